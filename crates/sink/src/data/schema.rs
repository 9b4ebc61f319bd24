//! Schemas: the type of a value, and what is known about it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{DataError, SchemaBuilder, Value};

/// Type of a schema, as Connect has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// True or false.
    Boolean,
    /// 8 bits, signed.
    Int8,
    /// 16 bits, signed.
    Int16,
    /// 32 bits, signed.
    Int32,
    /// 64 bits, signed.
    Int64,
    /// IEEE 754, 32 bits.
    Float32,
    /// IEEE 754, 64 bits.
    Float64,
    /// Unicode text.
    String,
    /// Bytes.
    Bytes,
    /// Values of one schema in order.
    Array,
    /// Keys of one schema, each with a value of another.
    Map,
    /// Named fields, each with a schema of its own.
    Struct,
}

impl Type {
    /// Connect's name: `INT8`, `STRUCT`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Boolean => "BOOLEAN",
            Self::Int8 => "INT8",
            Self::Int16 => "INT16",
            Self::Int32 => "INT32",
            Self::Int64 => "INT64",
            Self::Float32 => "FLOAT32",
            Self::Float64 => "FLOAT64",
            Self::String => "STRING",
            Self::Bytes => "BYTES",
            Self::Array => "ARRAY",
            Self::Map => "MAP",
            Self::Struct => "STRUCT",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Names of schemas that give their type another meaning (`org.apache.kafka.connect.data`).
pub mod logical {
    /// On BYTES: a number of any size, the unscaled value in two's complement, big endian. The
    /// parameter `scale` has the digits after the point.
    pub const DECIMAL: &str = "org.apache.kafka.connect.data.Decimal";
    /// On INT32: days since 1970-01-01.
    pub const DATE: &str = "org.apache.kafka.connect.data.Date";
    /// On INT32: milliseconds since midnight.
    pub const TIME: &str = "org.apache.kafka.connect.data.Time";
    /// On INT64: milliseconds since 1970-01-01 UTC.
    pub const TIMESTAMP: &str = "org.apache.kafka.connect.data.Timestamp";
    /// Parameter of a [`DECIMAL`] with its scale, in decimal text.
    pub const SCALE: &str = "scale";
}

/// A schema. A clone shares it.
#[derive(Clone)]
pub struct Schema(pub(super) Arc<Definition>);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Definition {
    pub(super) type_of: Type,
    pub(super) is_optional: bool,
    pub(super) name: Option<String>,
    pub(super) version: Option<i32>,
    pub(super) doc: Option<String>,
    pub(super) parameters: BTreeMap<String, String>,
    /// Null = none.
    pub(super) default: Value,
    pub(super) keys: Option<Schema>,
    /// Of an array's items or a map's values.
    pub(super) values: Option<Schema>,
    pub(super) fields: Vec<Field>,
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    name: Arc<str>,
    schema: Schema,
}

impl Field {
    pub(super) fn new(name: impl Into<Arc<str>>, schema: Schema) -> Self {
        let name = name.into();
        Self { name, schema }
    }

    /// The name.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The schema of its values.
    #[must_use]
    pub const fn schema(&self) -> &Schema {
        &self.schema
    }
}

impl Schema {
    /// Starts a schema with more than a type.
    #[must_use]
    pub fn builder(type_of: Type) -> SchemaBuilder {
        SchemaBuilder::new(type_of)
    }

    /// A required schema of a type, without a name or a default. An array or a map made so says
    /// nothing about what is in it; a struct has no fields.
    #[must_use]
    pub fn required(type_of: Type) -> Self {
        SchemaBuilder::new(type_of).finish()
    }

    /// As [`required`](Self::required), but null is allowed.
    #[must_use]
    pub fn optional(type_of: Type) -> Self {
        SchemaBuilder::new(type_of).optional().finish()
    }

    /// The schema of a [`Decimal`](super::Decimal) with this many digits after the point.
    #[must_use]
    pub fn decimal(scale: i32) -> Self {
        SchemaBuilder::new(Type::Bytes)
            .name(logical::DECIMAL)
            .version(1)
            .parameter(logical::SCALE, scale.to_string())
            .finish()
    }

    /// The schema of a date.
    #[must_use]
    pub fn date() -> Self {
        Self::logical(Type::Int32, logical::DATE)
    }

    /// The schema of a time of the day.
    #[must_use]
    pub fn time() -> Self {
        Self::logical(Type::Int32, logical::TIME)
    }

    /// The schema of a timestamp.
    #[must_use]
    pub fn timestamp() -> Self {
        Self::logical(Type::Int64, logical::TIMESTAMP)
    }

    fn logical(type_of: Type, name: &str) -> Self {
        SchemaBuilder::new(type_of).name(name).version(1).finish()
    }

    /// The type.
    #[must_use]
    pub fn type_of(&self) -> Type {
        self.0.type_of
    }

    /// Whether null is allowed.
    #[must_use]
    pub fn is_optional(&self) -> bool {
        self.0.is_optional
    }

    /// The name: of a record type, or one of [`logical`].
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// The version, counted up by whoever owns the schema.
    #[must_use]
    pub fn version(&self) -> Option<i32> {
        self.0.version
    }

    /// What it is for, for people.
    #[must_use]
    pub fn doc(&self) -> Option<&str> {
        self.0.doc.as_deref()
    }

    /// Further properties.
    #[must_use]
    pub fn parameters(&self) -> &BTreeMap<String, String> {
        &self.0.parameters
    }

    /// What stands for a null or missing value; `None` = nothing does.
    #[must_use]
    pub fn default(&self) -> Option<&Value> {
        Some(&self.0.default).filter(|value| !value.is_null())
    }

    /// The same schema with a default, which must fit.
    pub(crate) fn with_default(self, default: Value) -> Result<Self, DataError> {
        self.validate(&default)?;
        let mut definition = Arc::unwrap_or_clone(self.0);
        definition.default = default;
        Ok(Self(Arc::new(definition)))
    }

    /// Schema of a map's keys; `None` = unknown, or not a map.
    #[must_use]
    pub fn keys(&self) -> Option<&Self> {
        self.0.keys.as_ref()
    }

    /// Schema of an array's items or a map's values; `None` = unknown, or neither.
    #[must_use]
    pub fn values(&self) -> Option<&Self> {
        self.0.values.as_ref()
    }

    /// Fields of a struct, in order.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.0.fields
    }

    /// Place of a struct's field.
    #[must_use]
    pub fn field_index(&self, name: &str) -> Option<usize> {
        self.0.fields.iter().position(|field| &*field.name == name)
    }

    /// Whether its name gives its type another meaning.
    pub(crate) fn is_logical(&self) -> bool {
        matches!(
            self.name(),
            Some(logical::DECIMAL | logical::DATE | logical::TIME | logical::TIMESTAMP)
        )
    }

    /// Whether both are clones of one.
    #[cfg(test)]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether it is the schema of a logical type with this name.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        self.name() == Some(name)
    }

    /// The scale of a decimal's schema; `None` where it has none that is a number.
    #[must_use]
    pub fn scale(&self) -> Option<i32> {
        self.0.parameters.get(logical::SCALE)?.parse().ok()
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Schema");
        shown.field("type", &self.0.type_of);
        shown.field("optional", &self.0.is_optional);
        if let Some(name) = &self.0.name {
            shown.field("name", name);
        }
        if let Some(keys) = &self.0.keys {
            shown.field("keys", keys);
        }
        if let Some(values) = &self.0.values {
            shown.field("values", values);
        }
        if !self.0.fields.is_empty() {
            shown.field("fields", &self.0.fields);
        }
        shown.finish_non_exhaustive()
    }
}
