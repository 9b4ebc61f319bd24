//! Headers as text whose type is guessed.

mod date;
mod guess;

use bytes::Bytes;

use super::float::{double_text, float_text};
use super::string::decode_utf8;
use super::{ConvertError, HeaderConverter, base64};
use crate::data::{Schema, SchemaAndValue, Type, Value};

/// Connect's default for headers: text in UTF-8 from which the type is guessed: null, booleans, numbers
/// in the smallest type that holds them, dates and times (UTC), lists and maps; all else is a string.
/// Reading never fails; malformed bytes become U+FFFD.
///
/// Limits: a number of more than 1,000 digits, and what is nested deeper than 200 levels, is a string.
#[derive(Debug)]
pub struct SimpleHeaderConverter {
    string: Schema,
}

impl SimpleHeaderConverter {
    /// It has no settings.
    #[must_use]
    pub fn new() -> Self {
        let string = Schema::required(Type::String);
        Self { string }
    }
}

impl Default for SimpleHeaderConverter {
    fn default() -> Self {
        Self::new()
    }
}

impl HeaderConverter for SimpleHeaderConverter {
    fn class_name(&self) -> &'static str {
        "org.apache.kafka.connect.storage.SimpleHeaderConverter"
    }

    fn to_connect_header(
        &self,
        _: &str,
        _: &str,
        value: Option<&[u8]>,
    ) -> Result<SchemaAndValue, ConvertError> {
        Ok(value.map_or_else(SchemaAndValue::default, |value| {
            guess::guess(&decode_utf8(value), &self.string)
        }))
    }

    fn from_connect_header(
        &self,
        _: &str,
        _: &str,
        data: &SchemaAndValue,
    ) -> Result<Option<Bytes>, ConvertError> {
        if data.value.is_null() {
            return Ok(None);
        }
        Ok(Some(Bytes::from(text_of(&data.value)?)))
    }

    fn never_fails(&self) -> bool {
        true
    }
}

/// A value as text: numbers as Java prints them, bytes in base64, lists and maps with quoted texts,
/// dates and times in ISO 8601.
pub(super) fn text_of(value: &Value) -> Result<String, ConvertError> {
    let mut text = String::new();
    append(&mut text, value, 0)?;
    Ok(text)
}

fn append(text: &mut String, value: &Value, depth: usize) -> Result<(), ConvertError> {
    if depth > DEPTH_WRITTEN_MAX {
        return Err(ConvertError::Unwritable {
            converter: "SimpleHeaderConverter",
            found: value.type_name(),
            reason: "it is nested more than 500 levels deep".to_owned(),
        });
    }
    match value {
        Value::Null => text.push_str("null"),
        Value::Boolean(value) => text.push_str(if *value { "true" } else { "false" }),
        Value::Int8(value) => text.push_str(&value.to_string()),
        Value::Int16(value) => text.push_str(&value.to_string()),
        Value::Int32(value) => text.push_str(&value.to_string()),
        Value::Int64(value) => text.push_str(&value.to_string()),
        Value::Float32(value) => text.push_str(&float_text(*value)),
        Value::Float64(value) => text.push_str(&double_text(*value)),
        Value::Decimal(value) => text.push_str(&value.to_string()),
        Value::Date(millis) | Value::Time(millis) | Value::Timestamp(millis) => {
            text.push_str(&date::text_of(*millis));
        }
        Value::String(value) if depth == 0 => text.push_str(value),
        Value::String(value) => quote(text, value),
        Value::Bytes(bytes) if depth == 0 => text.push_str(&base64::encode(bytes)),
        Value::Bytes(bytes) => quote(text, &base64::encode(bytes)),
        Value::Array(values) => {
            text.push('[');
            for (index, value) in values.iter().enumerate() {
                comma(text, index);
                append(text, value, depth + 1)?;
            }
            text.push(']');
        }
        Value::Map(map) => {
            text.push('{');
            for (index, (key, value)) in map.iter().enumerate() {
                comma(text, index);
                append(text, key, depth + 1)?;
                text.push(':');
                append(text, value, depth + 1)?;
            }
            text.push('}');
        }
        Value::Struct(row) => {
            text.push('{');
            for (index, field) in row.schema().fields().iter().enumerate() {
                comma(text, index);
                quote(text, field.name());
                text.push(':');
                append(
                    text,
                    row.get(field.name()).unwrap_or(&Value::Null),
                    depth + 1,
                )?;
            }
            text.push('}');
        }
    }
    Ok(())
}

fn comma(text: &mut String, index: usize) {
    if index > 0 {
        text.push(',');
    }
}

fn quote(text: &mut String, value: &str) {
    text.push('"');
    for c in value.chars() {
        if matches!(c, '"' | '\\') {
            text.push('\\');
        }
        text.push(c);
    }
    text.push('"');
}

/// Deepest nesting of a value that is written.
const DEPTH_WRITTEN_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::data::{Map, Struct};

    fn read(text: &str) -> SchemaAndValue {
        let converter = SimpleHeaderConverter::new();
        converter
            .to_connect_header("t", "h", Some(text.as_bytes()))
            .unwrap()
    }

    #[test]
    fn values_are_written_as_text_that_reads_back() {
        let schema = Schema::builder(Type::Struct).field("a\"b", Schema::optional(Type::Bytes));
        let row = Struct::new(
            schema.build().unwrap(),
            vec![Value::Bytes(Bytes::from_static(b"\x01"))],
        );
        let map: Map = [(Value::from("k"), Value::Null)].into_iter().collect();
        let values = [
            Value::Int8(1),
            Value::from("a\\b"),
            Value::Map(map),
            Value::Struct(row.unwrap()),
        ];
        assert_eq!(
            text_of(&Value::Array(Arc::from(values))).unwrap(),
            r#"[1,"a\\b",{"k":null},{"a\"b":"AQ=="}]"#
        );
    }

    #[test]
    fn elements_share_the_schema_that_holds_them_all() {
        let items = |text| read(text).schema.unwrap().values().map(Schema::type_of);
        assert_eq!(items("[1,300,70000]"), Some(Type::Int32));
        assert_eq!(items("[70000,1]"), Some(Type::Int32));
        assert_eq!(items("[1,2.5,1e39]"), Some(Type::Float64));
        assert_eq!(items("[1,\"x\",2]"), None);
        assert_eq!(
            read("[2024-02-29,1]").value,
            read("[2024-02-29,1970-01-02]").value
        );
    }

    #[test]
    fn what_is_nested_too_deep_is_a_string() {
        let text = format!("{}{}", "[".repeat(150), "]".repeat(150));
        assert!(matches!(read(&text).value, Value::Array(_)));
        for count in [300, 100_000] {
            for open in ["[", "{", "{\"a\":"] {
                let text = open.repeat(count);
                assert_eq!(read(&text).value, Value::from(&*text));
            }
            let text = format!("{}{}", "[".repeat(count), "]".repeat(count));
            assert_eq!(read(&text).value, Value::from(&*text));
        }
    }

    #[test]
    fn long_lists_are_read_in_time() {
        let text = format!("[{}\"x", "12,".repeat(100_000));
        assert_eq!(read(&text).value, Value::from(&*text));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            let converter = SimpleHeaderConverter::new();
            let data = converter.to_connect_header("t", "h", Some(&bytes)).unwrap();
            prop_assert!(converter.from_connect_header("t", "h", &data).is_ok());
        }

        #[test]
        fn text_made_of_its_own_signs_is_read(text in r#"([\[\]{}:,"\\ 12e.+-]|null|true|2024-02-29|12:34:56.789Z){0,30}"#) {
            let data = read(&text);
            if let (Some(schema), value) = (&data.schema, &data.value) {
                prop_assert!(value.is_null() || schema.validate(value).is_ok());
            }
        }
    }
}
