//! Converters: from a record's bytes to Connect's data, and back.
//!
//! Each is found by the name of the Java class that it stands for, or a short one, and configured once
//! from its own keys, `key.converter.schemas.enable` as `schemas.enable`:
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use bytes::Bytes;
//! use sharegroup_sink::convert;
//! use sharegroup_sink::data::Value;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = BTreeMap::from([("schemas.enable".to_owned(), "false".to_owned())]);
//! let converter = convert::find("org.apache.kafka.connect.json.JsonConverter", &settings)?;
//! let data = converter.to_connect("orders", Some(&Bytes::from_static(b"42")))?;
//! assert_eq!(data.value, Value::Int64(42));
//! # Ok(())
//! # }
//! ```

mod base64;
mod batch;
mod byte_array;
mod chain;
mod error;
mod find;
mod float;
mod header;
mod json;
mod string;

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

use crate::data::SchemaAndValue;

pub use batch::{ConvertedHeader, ConvertedRecord, Converters, Stage, StageError};
pub use byte_array::ByteArrayConverter;
pub use chain::Chain;
#[cfg(test)]
pub(crate) use chain::Transformation;
pub use error::{ConvertError, ConverterConfigError};
pub use find::{find, find_header};
pub use header::SimpleHeaderConverter;
pub use json::JsonConverter;
pub use string::StringConverter;

/// Settings of one converter: its keys without prefix, with their values.
pub type ConverterSettings = BTreeMap<String, String>;

/// Converts keys or values.
pub trait Converter: fmt::Debug + Send + Sync {
    /// Name of the Java class that it stands for, as dead letters tell it.
    fn class_name(&self) -> &'static str;

    /// What a record's bytes say; `None` is a null key or a tombstone, which is null in any format.
    ///
    /// # Errors
    /// [`ConvertError`]: the bytes aren't of the format, or don't fit their schema.
    fn to_connect(
        &self,
        topic: &str,
        bytes: Option<&Bytes>,
    ) -> Result<SchemaAndValue, ConvertError>;

    /// The bytes of a value, for records that a task makes; `None` is a null key or a tombstone.
    ///
    /// # Errors
    /// [`ConvertError`]: the value has no place in the format, or doesn't fit its schema.
    #[allow(
        clippy::wrong_self_convention,
        reason = "from Connect's data, in Connect's words"
    )]
    fn from_connect(
        &self,
        topic: &str,
        data: &SchemaAndValue,
    ) -> Result<Option<Bytes>, ConvertError>;

    /// Whether values are the bytes themselves, so that nobody needs to convert them.
    fn is_raw(&self) -> bool {
        false
    }

    /// Whether [`Converter::to_connect`] takes all bytes, so that they need not be looked into before a
    /// task asks for their data.
    fn never_fails(&self) -> bool {
        self.is_raw()
    }

    /// The value, where it is just the text that these bytes are; `None` where it may be something else.
    fn text<'a>(&self, _bytes: &'a [u8]) -> Option<&'a str> {
        None
    }
}

/// Converts the values of headers.
pub trait HeaderConverter: fmt::Debug + Send + Sync {
    /// Name of the Java class that it stands for, as dead letters tell it.
    fn class_name(&self) -> &'static str;

    /// What a header's bytes say.
    ///
    /// # Errors
    /// As [`Converter::to_connect`].
    fn to_connect_header(
        &self,
        topic: &str,
        header_key: &str,
        value: Option<&[u8]>,
    ) -> Result<SchemaAndValue, ConvertError>;

    /// The bytes of a header's value.
    ///
    /// # Errors
    /// As [`Converter::from_connect`].
    #[allow(
        clippy::wrong_self_convention,
        reason = "from Connect's data, in Connect's words"
    )]
    fn from_connect_header(
        &self,
        topic: &str,
        header_key: &str,
        data: &SchemaAndValue,
    ) -> Result<Option<Bytes>, ConvertError>;

    /// Whether it makes something of any bytes, so that nobody needs to convert them to find out.
    fn never_fails(&self) -> bool {
        false
    }
}

/// The value of a key of a converter that is `true` or `false`, in any case as Java takes it.
fn boolean(
    settings: &ConverterSettings,
    key: &'static str,
    default: bool,
) -> Result<bool, ConverterConfigError> {
    let Some(value) = settings.get(key) else {
        return Ok(default);
    };
    match value.trim().to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(ConverterConfigError::invalid(key, "true or false")),
    }
}

#[cfg(test)]
mod cases;
#[cfg(test)]
mod vectors;
