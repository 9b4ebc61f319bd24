//! Bytes as they are.

use bytes::Bytes;

use super::{ConvertError, Converter, HeaderConverter};
use crate::data::{Schema, SchemaAndValue, Type, Value};

/// Passes bytes on, under the schema of optional BYTES. A record's value isn't copied.
#[derive(Debug)]
pub struct ByteArrayConverter {
    schema: Schema,
}

impl ByteArrayConverter {
    /// It has no settings.
    #[must_use]
    pub fn new() -> Self {
        let schema = Schema::optional(Type::Bytes);
        Self { schema }
    }

    fn data(&self, bytes: Option<Bytes>) -> SchemaAndValue {
        let value = bytes.map_or(Value::Null, Value::Bytes);
        SchemaAndValue::new(self.schema.clone(), value)
    }
}

impl Default for ByteArrayConverter {
    fn default() -> Self {
        Self::new()
    }
}

impl Converter for ByteArrayConverter {
    fn class_name(&self) -> &'static str {
        CLASS
    }

    fn to_connect(&self, _: &str, bytes: Option<&Bytes>) -> Result<SchemaAndValue, ConvertError> {
        Ok(self.data(bytes.cloned()))
    }

    fn from_connect(&self, _: &str, data: &SchemaAndValue) -> Result<Option<Bytes>, ConvertError> {
        match &data.value {
            Value::Bytes(bytes) => Ok(Some(bytes.clone())),
            Value::Null => Ok(None),
            other => Err(ConvertError::Unwritable {
                converter: "ByteArrayConverter",
                found: other.type_name(),
                reason: "it writes BYTES alone".to_owned(),
            }),
        }
    }

    fn is_raw(&self) -> bool {
        true
    }
}

impl HeaderConverter for ByteArrayConverter {
    fn class_name(&self) -> &'static str {
        CLASS
    }

    fn to_connect_header(
        &self,
        _: &str,
        _: &str,
        value: Option<&[u8]>,
    ) -> Result<SchemaAndValue, ConvertError> {
        Ok(self.data(value.map(Bytes::copy_from_slice)))
    }

    fn from_connect_header(
        &self,
        topic: &str,
        _: &str,
        data: &SchemaAndValue,
    ) -> Result<Option<Bytes>, ConvertError> {
        self.from_connect(topic, data)
    }

    fn never_fails(&self) -> bool {
        true
    }
}

const CLASS: &str = "org.apache.kafka.connect.converters.ByteArrayConverter";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_passed_on_without_a_copy() {
        let bytes = Bytes::from(vec![0, 0xff, 7]);
        let data = ByteArrayConverter::new()
            .to_connect("t", Some(&bytes))
            .unwrap();
        let Value::Bytes(passed) = &data.value else {
            panic!("{data:?}");
        };
        assert_eq!(passed.as_ptr(), bytes.as_ptr());
        let back = ByteArrayConverter::new().from_connect("t", &data).unwrap();
        assert_eq!(back.unwrap().as_ptr(), bytes.as_ptr());
    }
}
