//! Making schemas.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::schema::{Definition, Field};
use super::{DataError, Schema, Type, Value};

/// A schema in the making.
#[derive(Debug)]
pub struct SchemaBuilder(Definition);

impl SchemaBuilder {
    pub(super) const fn new(type_of: Type) -> Self {
        Self(Definition {
            type_of,
            is_optional: false,
            name: None,
            version: None,
            doc: None,
            parameters: BTreeMap::new(),
            default: Value::Null,
            keys: None,
            values: None,
            fields: Vec::new(),
        })
    }

    /// Allows null.
    #[must_use]
    pub const fn optional(mut self) -> Self {
        self.0.is_optional = true;
        self
    }

    /// Sets the name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.0.name = Some(name.into());
        self
    }

    /// Sets the version.
    #[must_use]
    pub const fn version(mut self, version: i32) -> Self {
        self.0.version = Some(version);
        self
    }

    /// Sets what people should know.
    #[must_use]
    pub fn doc(mut self, doc: impl Into<String>) -> Self {
        self.0.doc = Some(doc.into());
        self
    }

    /// Adds or replaces a parameter.
    #[must_use]
    pub fn parameter(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.parameters.insert(name.into(), value.into());
        self
    }

    /// Sets what stands for a null or missing value; it must fit the schema.
    #[must_use]
    pub fn default(mut self, default: Value) -> Self {
        self.0.default = default;
        self
    }

    /// Sets the schema of a map's keys.
    #[must_use]
    pub fn keys(mut self, keys: Schema) -> Self {
        self.0.keys = Some(keys);
        self
    }

    /// Sets the schema of an array's items or a map's values.
    #[must_use]
    pub fn values(mut self, values: Schema) -> Self {
        self.0.values = Some(values);
        self
    }

    /// Appends a field to a struct.
    #[must_use]
    pub fn field(mut self, name: impl Into<Arc<str>>, schema: Schema) -> Self {
        self.0.fields.push(Field::new(name, schema));
        self
    }

    /// The schema.
    ///
    /// # Errors
    /// [`DataError::Schema`]: fields outside of a struct, two fields of one name, key or value
    /// schemas of a type that has none. [`DataError::Mismatch`] or [`DataError::Null`]: a default
    /// that doesn't fit.
    pub fn build(self) -> Result<Schema, DataError> {
        let definition = &self.0;
        let refuse = |reason: String| {
            let type_of = definition.type_of;
            Err(DataError::Schema { type_of, reason })
        };
        if !definition.fields.is_empty() && definition.type_of != Type::Struct {
            return refuse("only a struct has fields".to_owned());
        }
        if definition.keys.is_some() && definition.type_of != Type::Map {
            return refuse("only a map has keys".to_owned());
        }
        if definition.values.is_some() && !matches!(definition.type_of, Type::Array | Type::Map) {
            return refuse("only an array and a map have values".to_owned());
        }
        let mut names = HashSet::with_capacity(definition.fields.len());
        for field in &definition.fields {
            if !names.insert(field.name()) {
                return refuse(format!("two fields are named `{}`", field.name()));
            }
        }
        let schema = self.finish();
        if let Some(default) = schema.default() {
            schema.validate(default)?;
        }
        Ok(schema)
    }

    /// The schema, unchecked.
    pub(super) fn finish(self) -> Schema {
        Schema(Arc::new(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_that_can_not_be_are_refused() {
        let int = || Schema::required(Type::Int32);
        let twice = Schema::builder(Type::Struct)
            .field("a", int())
            .field("a", int());
        assert_eq!(
            twice.build().unwrap_err().to_string(),
            "schema of type STRUCT: two fields are named `a`"
        );
        assert!(
            Schema::builder(Type::Int8)
                .field("a", int())
                .build()
                .is_err()
        );
        assert!(Schema::builder(Type::Array).keys(int()).build().is_err());
        assert!(Schema::builder(Type::String).values(int()).build().is_err());
        let default = Schema::builder(Type::Int8).default(Value::Int16(1));
        assert_eq!(
            default.build().unwrap_err().to_string(),
            "INT16 where the schema has INT8"
        );
    }

    #[test]
    fn schemas_are_equal_by_what_they_say() {
        let schema = || {
            let schema = Schema::builder(Type::Map)
                .keys(Schema::required(Type::String))
                .values(Schema::optional(Type::Int8))
                .parameter("a", "b");
            schema.build().unwrap()
        };
        assert_eq!(schema(), schema());
        assert_ne!(Schema::required(Type::Int8), Schema::optional(Type::Int8));
        assert_eq!(Schema::decimal(2).scale(), Some(2));
    }
}
