use super::*;

fn converter(settings: &[(&str, &str)]) -> JsonConverter {
    let setting = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    JsonConverter::new(&settings.iter().map(setting).collect()).unwrap()
}

fn read(converter: &JsonConverter, text: &str) -> Result<SchemaAndValue, ConvertError> {
    converter.to_connect("t", Some(&Bytes::copy_from_slice(text.as_bytes())))
}

#[test]
fn a_schema_is_read_once_for_all_its_records() {
    let converter = converter(&[]);
    let text = |value: i32| format!("{{\"schema\":{{\"type\":\"int32\"}},\"payload\":{value}}}");
    let first = read(&converter, &text(1)).unwrap().schema.unwrap();
    let second = read(&converter, &text(2)).unwrap().schema.unwrap();
    assert!(first.is_same(&second));
}

#[test]
fn a_known_schema_is_passed_over_only_where_it_is_the_schema() {
    let converter = converter(&[]);
    let int = r#"{"type":"int32"}"#;
    for (text, expected) in [
        (
            format!(r#"{{"schema":{int},"payload":1}}"#),
            Ok(Value::Int32(1)),
        ),
        (
            format!(r#"{{"schema":{int},"payload":2}}"#),
            Ok(Value::Int32(2)),
        ),
        (
            format!(r#"{{"payload":3,"schema":{int} }}"#),
            Ok(Value::Int32(3)),
        ),
        (format!(r#"{{"schema":{int}x,"payload":1}}"#), Err(())),
        (format!(r#"{{"schema":{int},"payload":{int}}}"#), Err(())),
        (
            format!(r#"{{"schema":{int},"schema":{int},"payload":1}}"#),
            Err(()),
        ),
        (
            r#"{"schema":{"type":"int64"},"payload":4}"#.to_owned(),
            Ok(Value::Int64(4)),
        ),
        (
            format!(r#"{{"schema":{int},"payload":5}}"#),
            Ok(Value::Int32(5)),
        ),
        (
            format!(r#"{{"schema":null,"payload":{{"schema":{int}}}}}"#),
            read_payload(int),
        ),
    ] {
        let value = read(&converter, &text).map(|data| data.value);
        assert_eq!(value.map_err(drop), expected, "{text}");
    }
}

/// The value of `{"schema":text}` without a schema.
fn read_payload(text: &str) -> Result<Value, ()> {
    let plain = converter(&[("schemas.enable", "false")]);
    let data = read(&plain, &format!(r#"{{"schema":{text}}}"#)).unwrap();
    Ok(data.value)
}

#[test]
fn the_cache_of_schemas_is_bounded() {
    let converter = converter(&[("schemas.cache.size", "3")]);
    for version in 0..10 {
        let text =
            format!("{{\"schema\":{{\"type\":\"int32\",\"version\":{version}}},\"payload\":1}}");
        assert_eq!(
            read(&converter, &text).unwrap().schema.unwrap().version(),
            Some(version)
        );
        assert!(converter.schemas.known().by_text.len() <= 3);
    }
}

#[test]
fn errors_tell_the_place_and_never_the_value() {
    let converter = converter(&[]);
    let text = r#"{"schema":{"type":"struct","fields":[{"field":"a","type":"array","items":{"type":"struct","fields":[{"field":"b","type":"int8"}]}}]},"payload":{"a":[{"b":1},{"b":"secret"}]}}"#;
    assert_eq!(
        read(&converter, text).unwrap_err().to_string(),
        "a text where the schema has INT8 at `a[].b`"
    );
    let text = r#"{"schema":{"type":"int32"},"payload":31337000000}"#;
    assert_eq!(
        read(&converter, text).unwrap_err().to_string(),
        "number that isn't one of INT32"
    );
}

#[test]
fn values_round_trip_with_their_schema() {
    let converter = converter(&[]);
    for text in [
        r#"{"schema":{"type":"map","keys":{"type":"int32","optional":false},"values":{"type":"string","optional":true},"optional":false},"payload":[[1,"a"],[2,null]]}"#,
        r#"{"schema":{"type":"bytes","optional":false,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2"}},"payload":"BNI="}"#,
        r#"{"schema":{"type":"struct","fields":[{"type":"double","optional":true,"doc":"d","default":1.5,"field":"a"}],"optional":true,"name":"n"},"payload":{"a":1.5}}"#,
        r#"{"schema":null,"payload":{"a":[1,2.5,"x",null,true]}}"#,
    ] {
        let data = read(&converter, text).unwrap();
        let back = converter.from_connect("t", &data).unwrap();
        assert_eq!(back.unwrap(), text);
    }
}

#[test]
fn what_has_no_place_in_json_is_refused() {
    let converter = converter(&[]);
    let write = |data| converter.from_connect("t", &data).unwrap_err().to_string();
    assert_eq!(
        write(SchemaAndValue::new(Schema::date(), Value::Date(1))),
        "JsonConverter can't write Date: it has a time of the day"
    );
    assert_eq!(
        write(SchemaAndValue::schemaless(Value::Timestamp(1))),
        "JsonConverter can't write Timestamp: it needs the schema of its logical type"
    );
    assert_eq!(
        write(SchemaAndValue::new(
            Schema::required(crate::data::Type::Int8),
            Value::Int16(1)
        )),
        "INT16 where the schema has INT8"
    );
}

#[test]
fn entries_of_one_key_are_a_loss_or_the_last_counts() {
    let text = r#"{"schema":{"type":"map","keys":{"type":"int32"},"values":{"type":"int32"}},"payload":[[1,10],[1,20]]}"#;
    let error = read(&converter(&[]), text).unwrap_err();
    assert_eq!(error.to_string(), "two entries of a map have the same key");
    let lenient = read(&converter(&[("json.lenient", "true")]), text).unwrap();
    let Value::Map(map) = lenient.value else {
        panic!("not a map");
    };
    assert_eq!(map.len(), 1);
    assert_eq!(map.get(&Value::Int32(1)), Some(&Value::Int32(20)));
}

#[test]
fn fields_without_end_are_read_in_time() {
    let field = |index: usize| format!("{{\"field\":\"f{index}\",\"type\":\"int8\"}}");
    let fields: Vec<String> = (0..20_000).map(field).collect();
    let members: Vec<String> = (0..20_000)
        .rev()
        .map(|index| format!("\"f{index}\":1"))
        .collect();
    let text = format!(
        "{{\"schema\":{{\"type\":\"struct\",\"fields\":[{}]}},\"payload\":{{{}}}}}",
        fields.join(","),
        members.join(",")
    );
    assert!(matches!(
        read(&converter(&[]), &text).unwrap().value,
        Value::Struct(_)
    ));
}

/// Java's reader has no -0.0, its writer has one.
#[test]
fn the_sign_of_zero_is_kept_unless_java_is_followed() {
    let strict = converter(&[("schemas.enable", "false")]);
    let lenient = converter(&[("schemas.enable", "false"), ("json.lenient", "true")]);
    for text in ["-0.0", "-0e7", "-0.000"] {
        let data = read(&strict, text).unwrap();
        let written = strict.from_connect("t", &data).unwrap();
        assert_eq!(written, Some(Bytes::from("-0.0")), "{text}");
        let data = read(&lenient, text).unwrap();
        let written = lenient.from_connect("t", &data).unwrap();
        assert_eq!(written, Some(Bytes::from("0.0")), "{text}");
    }
    let typed = converter(&[]);
    for kind in ["float", "double"] {
        let text = format!(r#"{{"schema":{{"type":"{kind}"}},"payload":-0.0}}"#);
        let data = read(&typed, &text).unwrap();
        let is_negative = match data.value {
            Value::Float32(value) => value.is_sign_negative(),
            Value::Float64(value) => value.is_sign_negative(),
            other => panic!("{other:?}"),
        };
        assert!(is_negative, "{kind}");
    }
}
