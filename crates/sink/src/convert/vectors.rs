//! Every line of what Java's converters do, in both modes. Lenient gives exactly that; strict gives that
//! or one of the errors in [`LOSSES`].

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::Value as Json;

use super::base64;
use super::*;
use crate::data::{Field, Schema, SchemaAndValue, Value};

/// What strict refuses although Java converts it, by the text of the error.
const LOSSES: [&str; 13] = [
    "two entries of a map have the same key", // Java: the last one counts; no line has it
    "where the schema has",                   // Java: 0, false or null
    "number that isn't one of INT8",          // Java: wraps, or cuts the fraction
    "number that isn't one of INT16",
    "number that isn't one of INT32",
    "number that isn't one of INT64",
    "number out of the range of FLOAT32", // Java: infinity, or 0
    "number out of the range of FLOAT64",
    "members that the schema has no field for", // Java: dropped
    "the value is empty",                       // Java: null
    "text behind the value",                    // Java: passed over
    "two members of one object have the same name", // Java: the last one counts
    "half of a surrogate pair",                 // Java: kept; lenient: U+FFFD
];

enum Either {
    Data(Box<dyn Converter>),
    Header(Box<dyn HeaderConverter>),
}

impl Either {
    fn of(line: &Json, is_lenient: bool) -> Result<Self, ConverterConfigError> {
        let mut settings: ConverterSettings =
            serde_json::from_value(line["config"].clone()).unwrap();
        if is_lenient {
            settings.insert("json.lenient".to_owned(), "true".to_owned());
        }
        let class = line["converter"].as_str().unwrap();
        if line["op"] == "to_connect_data" {
            find(class, &settings).map(Self::Data)
        } else {
            find_header(class, &settings).map(Self::Header)
        }
    }

    fn read(&self, bytes: Option<&Bytes>) -> Result<SchemaAndValue, ConvertError> {
        match self {
            Self::Data(converter) => converter.to_connect("t", bytes),
            Self::Header(converter) => {
                converter.to_connect_header("t", "h", bytes.map(|bytes| &bytes[..]))
            }
        }
    }

    fn write(&self, data: &SchemaAndValue) -> Result<Option<Bytes>, ConvertError> {
        match self {
            Self::Data(converter) => converter.from_connect("t", data),
            Self::Header(converter) => converter.from_connect_header("t", "h", data),
        }
    }
}

fn lines() -> impl Iterator<Item = (String, Json)> {
    let lines = include_str!("../../testdata/converters.jsonl").lines();
    lines.map(|line| (line.to_owned(), serde_json::from_str(line).unwrap()))
}

fn bytes_of(json: &Json) -> Option<Bytes> {
    json.as_str()
        .map(|text| Bytes::from(base64::decode(text).unwrap()))
}

#[test]
fn lenient_converters_give_exactly_what_java_gives() {
    for (text, line) in lines() {
        check(&text, &line, true);
    }
}

#[test]
fn strict_converters_give_what_java_gives_or_name_the_loss() {
    let mut met = BTreeSet::new();
    for (text, line) in lines() {
        if let Some(error) = check(&text, &line, false) {
            let error = error.to_string();
            let mut losses = LOSSES.iter().filter(|loss| error.contains(*loss));
            met.insert(losses.next().unwrap_or_else(|| panic!("{error}: {text}")));
        }
    }
    let unmet: Vec<_> = LOSSES.iter().filter(|loss| !met.contains(loss)).collect();
    assert_eq!(unmet, [&LOSSES[0]]);
}

/// Checks a line; gives the error where Java had none and strict refuses.
fn check(text: &str, line: &Json, is_lenient: bool) -> Option<ConvertError> {
    let converter = match Either::of(line, is_lenient) {
        Ok(converter) => converter,
        Err(error) => {
            assert!(line.get("configure_error").is_some(), "{error}: {text}");
            return None;
        }
    };
    assert!(line.get("configure_error").is_none(), "{text}");
    let input = bytes_of(&line["input"]);
    let data = match converter.read(input.as_ref()) {
        Ok(data) => data,
        Err(error) if line.get("error").is_some() => {
            assert!(!error.to_string().is_empty());
            return None;
        }
        Err(error) if is_lenient => panic!("{error}: {text}"),
        Err(error) => return Some(error),
    };
    assert!(line.get("error").is_none(), "{data:?}: {text}");
    if line.get("result_is_null").is_some() {
        assert_eq!(data, SchemaAndValue::default(), "{text}");
        return None;
    }
    assert!(
        same_schema(&line["schema"], data.schema.as_ref()),
        "{data:?}: {text}"
    );
    let keeps_sign = !is_lenient && data.value == Value::Float64(-0.0);
    let value = match keeps_sign && line["value"]["f64"] == "0000000000000000" {
        // Java loses the sign of zero.
        true => &Value::Float64(0.0),
        false => &data.value,
    };
    assert!(same_value(&line["value"], value), "{data:?}: {text}");
    let back = converter.write(&data);
    if line.get("back_error").is_some() {
        assert!(back.is_err(), "{back:?}: {text}");
        return None;
    }
    let (back, expected) = (back.unwrap(), bytes_of(&line["back"]));
    let is_json = line["converter"]
        .as_str()
        .unwrap()
        .ends_with("JsonConverter");
    match (&back, &expected) {
        (Some(back), Some(expected)) if is_json => {
            let json = |bytes: &Bytes| serde_json::from_slice::<Json>(bytes);
            // A half surrogate pair is no JSON for serde.
            if let Ok(expected) = json(expected) {
                assert!(
                    same_json(&json(back).unwrap(), &expected),
                    "{back:?}: {text}"
                );
            }
        }
        _ => assert_eq!(back, expected, "{text}"),
    }
    None
}

/// The vectors were written by a Java before 19, which prints some floats with a digit more.
fn same_json(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => {
            a == b || a.is_f64() && a.as_f64().map(|a| a as f32) == b.as_f64().map(|b| b as f32)
        }
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_json(a, b))
        }
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(name, a)| b.get(name).is_some_and(|b| same_json(a, b)))
        }
        _ => a == b,
    }
}

fn same_schema(expected: &Json, schema: Option<&Schema>) -> bool {
    let Some(schema) = schema else {
        return expected.is_null();
    };
    let parameters: serde_json::Map<String, Json> = schema
        .parameters()
        .iter()
        .map(|(name, value)| (name.clone(), Json::from(value.as_str())))
        .collect();
    let same_field = |(expected, field): (&Json, &Field)| {
        expected["name"] == **field.name() && same_schema(&expected["schema"], Some(field.schema()))
    };
    let none = Vec::new();
    let fields = expected["fields"].as_array().unwrap_or(&none);
    let values = expected.get("items").unwrap_or(&expected["values"]);
    expected["type"] == schema.type_of().name()
        && expected["optional"] == schema.is_optional()
        && expected["name"].as_str() == schema.name()
        && expected["version"].as_i64() == schema.version().map(i64::from)
        && expected["doc"].as_str() == schema.doc()
        && expected
            .get("parameters")
            .is_none_or(|expected| *expected == Json::Object(parameters.clone()))
        && (parameters.is_empty() || expected.get("parameters").is_some())
        && same_value(
            &expected["default"],
            schema.default().unwrap_or(&Value::Null),
        )
        && same_schema(&expected["keys"], schema.keys())
        && same_schema(values, schema.values())
        && fields.len() == schema.fields().len()
        && fields.iter().zip(schema.fields()).all(same_field)
}

fn same_value(expected: &Json, value: &Value) -> bool {
    let Some(object) = expected.as_object() else {
        return expected.is_null() && value.is_null();
    };
    let pairs = |tag: &str| {
        let pairs = object.get(tag).and_then(Json::as_array);
        pairs.map(|pairs| {
            pairs
                .iter()
                .map(|pair| (&pair[0], &pair[1]))
                .collect::<Vec<_>>()
        })
    };
    let text = |tag: &str| object.get(tag).and_then(Json::as_str);
    match value {
        Value::Null => false,
        Value::Boolean(value) => object.get("bool") == Some(&Json::from(*value)),
        Value::Int8(value) => object.get("i8") == Some(&Json::from(*value)),
        Value::Int16(value) => object.get("i16") == Some(&Json::from(*value)),
        Value::Int32(value) => object.get("i32") == Some(&Json::from(*value)),
        Value::Int64(value) => text("i64") == Some(&value.to_string()),
        Value::Float32(value) => text("f32") == Some(&format!("{:08x}", value.to_bits())),
        Value::Float64(value) => text("f64") == Some(&format!("{:016x}", value.to_bits())),
        Value::String(value) => match text("utf16") {
            Some(_) => value.contains(char::REPLACEMENT_CHARACTER),
            None => text("str") == Some(&**value),
        },
        Value::Bytes(value) => text("bytes") == Some(&base64::encode(value)),
        Value::Decimal(value) => {
            text("decimal") == Some(&value.unscaled_digits())
                && object.get("scale") == Some(&Json::from(value.scale()))
        }
        Value::Date(millis) | Value::Time(millis) | Value::Timestamp(millis) => {
            text("date_ms") == Some(&millis.to_string())
        }
        Value::Array(values) => {
            let list = object.get("list").and_then(Json::as_array);
            list.is_some_and(|list| {
                list.len() == values.len()
                    && list
                        .iter()
                        .zip(&**values)
                        .all(|(expected, value)| same_value(expected, value))
            })
        }
        Value::Map(map) => pairs("map").is_some_and(|pairs| {
            pairs.len() == map.len()
                && pairs.iter().all(|(key, value)| {
                    let mut entries = map.iter();
                    entries.any(|entry| same_value(key, &entry.0) && same_value(value, &entry.1))
                })
        }),
        Value::Struct(row) => pairs("struct").is_some_and(|pairs| {
            let fields = row.schema().fields().iter().zip(row.values());
            pairs.len() == row.values().len()
                && pairs
                    .iter()
                    .zip(fields)
                    .all(|((name, expected), (field, value))| {
                        **name == **field.name() && same_value(expected, value)
                    })
        }),
    }
}
