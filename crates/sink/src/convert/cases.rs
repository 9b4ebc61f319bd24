//! The public cases about converters, named after their ids.

use bytes::Bytes;

use super::*;
use crate::data::Value;

fn json(settings: &[(&str, &str)]) -> JsonConverter {
    let setting = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    JsonConverter::new(&settings.iter().map(setting).collect()).unwrap()
}

fn read(converter: &JsonConverter, bytes: &[u8]) -> Result<Value, ConvertError> {
    let data = converter.to_connect("t", Some(&Bytes::copy_from_slice(bytes)))?;
    Ok(data.value)
}

#[test]
fn b_083_plain_json_in_place_of_the_envelope_names_the_key() {
    let converter = json(&[]);
    for text in [
        "{\"a\":1}",
        "{\"schema\":{\"type\":\"int32\"},\"payload\":1,\"x\":0}",
    ] {
        let error = read(&converter, text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("schemas.enable"), "{error}");
    }
    let envelope = b"{\"payload\":1,\"schema\":{\"type\":\"int32\"}}";
    assert_eq!(read(&converter, envelope), Ok(Value::Int32(1)));
}

#[test]
fn b_084_a_value_that_does_not_fit_its_type_is_an_error() {
    let envelope = |type_of: &str, payload: &str| {
        format!("{{\"schema\":{{\"type\":\"{type_of}\"}},\"payload\":{payload}}}")
    };
    let lenient = json(&[("json.lenient", "true")]);
    for (type_of, payload, java) in [
        ("int32", "3000000000", Value::Int32(-1_294_967_296)),
        ("int8", "300", Value::Int8(44)),
        ("int64", "\"5\"", Value::Int64(0)),
    ] {
        let text = envelope(type_of, payload);
        assert!(read(&json(&[]), text.as_bytes()).is_err(), "{text}");
        assert_eq!(read(&lenient, text.as_bytes()), Ok(java));
    }
}

#[test]
fn b_085_an_explicit_null_is_the_default_or_null_as_configured() {
    let text = br#"{"schema":{"type":"struct","fields":[{"field":"a","type":"int32","optional":true,"default":9}]},"payload":{"a":null}}"#;
    for (replace, value) in [("true", Value::Int32(9)), ("false", Value::Null)] {
        let converter = json(&[("replace.null.with.default", replace)]);
        let Value::Struct(row) = read(&converter, text).unwrap() else {
            panic!("not a struct");
        };
        assert_eq!(row.values(), [value]);
    }
}

#[test]
fn b_086_decimals_are_exact() {
    let text = |payload: &str| {
        format!(
            r#"{{"schema":{{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{{"scale":"2"}}}},"payload":{payload}}}"#
        )
    };
    for (payload, number) in [
        ("\"AJw=\"", "1.56"),
        ("\"/w==\"", "-0.01"),
        ("1.56", "1.56"),
    ] {
        let Ok(Value::Decimal(decimal)) = read(&json(&[]), text(payload).as_bytes()) else {
            panic!("{payload}");
        };
        assert_eq!(decimal.to_string(), number);
    }
    let numeric = json(&[("decimal.format", "NUMERIC")]);
    let bytes = Bytes::from(text("\"AJw=\""));
    let data = numeric.to_connect("t", Some(&bytes)).unwrap();
    let written = numeric.from_connect("t", &data).unwrap().unwrap();
    assert!(written.ends_with(b"\"payload\":1.56}"), "{written:?}");
}

#[test]
fn b_087_timestamps_keep_their_milliseconds_and_texts_their_digits() {
    for millis in [-30_582_511_138_000_i64, 1_690_825_888_386] {
        let text = format!(
            r#"{{"schema":{{"type":"int64","name":"org.apache.kafka.connect.data.Timestamp","version":1}},"payload":{millis}}}"#
        );
        assert_eq!(
            read(&json(&[]), text.as_bytes()),
            Ok(Value::Timestamp(millis))
        );
    }
    let text = "2025-03-05T04:33:45.844195Z";
    let plain = json(&[("schemas.enable", "false")]);
    let value = read(&plain, format!("\"{text}\"").as_bytes());
    assert_eq!(value, Ok(Value::from(text)));
    let header = SimpleHeaderConverter::new().to_connect_header("t", "h", Some(text.as_bytes()));
    assert_eq!(header.unwrap().value, Value::from(text));
}

#[test]
fn b_090_a_tombstone_is_null_in_every_converter() {
    for class in ["bytes", "string", "json"] {
        let converter = find(class, &ConverterSettings::new()).unwrap();
        let data = converter.to_connect("t", None).unwrap();
        assert!(data.value.is_null(), "{class}");
        assert_eq!(
            converter.from_connect("t", &SchemaAndValue::default()),
            Ok(None)
        );
    }
}

#[test]
fn b_091_json_that_is_not_json_is_an_error() {
    let plain = json(&[("schemas.enable", "false")]);
    for bytes in [
        &b"{\"a\":1} xyz"[..],
        b"{\"x\":1e400}",
        b"{\"x\":NaN}",
        b"",
        b"\x22\xff\x22",
    ] {
        assert!(read(&plain, bytes).is_err(), "{bytes:?}");
    }
    let error = read(&plain, b"").unwrap_err().to_string();
    assert!(error.contains("empty"), "{error}");
    assert_eq!(read(&plain, b"null"), Ok(Value::Null));
    assert!(matches!(read(&plain, b"\xef\xbb\xbf{}"), Ok(Value::Map(map)) if map.is_empty()));
}

/// In a thread of half the size that tokio's workers have: what overflows there aborts the process.
#[test]
fn b_092_nesting_is_bounded_before_the_stack_is() {
    let run = || {
        let plain = json(&[("schemas.enable", "false")]);
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(&plain, "[".repeat(100_000).as_bytes()).is_err());
        assert!(read(&plain, nested(200).as_bytes()).is_ok());
        assert!(read(&plain, nested(501).as_bytes()).is_err());
        let deep = SchemaAndValue::schemaless(read(&plain, nested(500).as_bytes()).unwrap());
        let clone = deep.clone();
        assert_eq!(clone, deep);
        assert_eq!(
            plain.from_connect("t", &deep).unwrap().unwrap(),
            nested(500)
        );
        let array = "{\"type\":\"array\",\"items\":".repeat(490);
        let schema = format!("{array}{{\"type\":\"int8\"}}{}", "}".repeat(490));
        let text = format!("{{\"schema\":{schema},\"payload\":{}}}", nested(490));
        let data = json(&[]).to_connect("t", Some(&Bytes::from(text))).unwrap();
        assert_eq!(data.clone(), data);
        assert!(json(&[]).from_connect("t", &data).is_ok());
    };
    const STACK_BYTES: usize = 1024 * 1024;
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    thread.spawn(run).unwrap().join().unwrap();
}

#[test]
fn b_093_each_record_brings_its_own_schema() {
    let converter = json(&[]);
    let record = |fields: &str, payload: &str| {
        let text = format!(
            "{{\"schema\":{{\"type\":\"struct\",\"fields\":[{fields}]}},\"payload\":{payload}}}"
        );
        converter.to_connect("t", Some(&Bytes::from(text)))
    };
    let one = r#"{"field":"a","type":"int32"}"#;
    let two = r#"{"field":"a","type":"int32"},{"field":"b","type":"string","optional":true}"#;
    let fields = |data: SchemaAndValue| data.schema.unwrap().fields().len();
    assert_eq!(fields(record(one, r#"{"a":1}"#).unwrap()), 1);
    assert_eq!(fields(record(two, r#"{"a":1}"#).unwrap()), 2);
    assert!(record(one, r#"{"b":"x"}"#).is_err());
    assert_eq!(fields(record(two, r#"{"a":1,"b":"x"}"#).unwrap()), 2);
}
