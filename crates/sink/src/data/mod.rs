//! Kafka Connect's typed data: what converters make of bytes, and what transformations and sinks see.
//!
//! A [`Value`] stands alone or beside its [`Schema`]. Everything is cheap to clone: texts, lists,
//! maps, structs and schemas are shared, and bytes are slices of the fetched buffer.
//!
//! ```
//! use sharegroup_sink::data::{Schema, Struct, Type, Value};
//!
//! # fn main() -> Result<(), sharegroup_sink::data::DataError> {
//! let schema = Schema::builder(Type::Struct)
//!     .field("id", Schema::required(Type::Int64))
//!     .field("name", Schema::optional(Type::String))
//!     .build()?;
//! let row = Struct::new(schema, vec![Value::Int64(7), Value::Null])?;
//! assert_eq!(row.get("id"), Some(&Value::Int64(7)));
//! # Ok(())
//! # }
//! ```

mod builder;
mod decimal;
mod error;
mod schema;
mod validate;
mod value;

pub use builder::SchemaBuilder;
pub use decimal::Decimal;
pub use error::DataError;
pub use schema::{Field, Schema, Type, logical};
pub use value::{Map, SchemaAndValue, Struct, Value};

pub(crate) use decimal::{Digits, digit_value};
pub(crate) use error::join_path;

/// Milliseconds of a day, as Connect's `Date` and `Time` count them: without leap seconds.
pub(crate) const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1000;
