//! Records as lines of text.

use sharegroup_consumer::TimestampType;
use sharegroup_sink::SinkRecord;
use sharegroup_sink::config::{KeyDef, ValueKind};
use sharegroup_sink::data::Value;

use crate::json;

/// How a record becomes a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The value as its converter gives it: bytes and text as they are, anything else as JSON; null is an
    /// empty line.
    #[default]
    Value,
    /// A JSON object with `topic`, `partition`, `offset`, `timestamp`, `timestamp_type`, `delivery_count`, and `key`,
    /// `value` and `headers` as their converters give them. Bytes that aren't UTF-8 are written as
    /// `{"base64":"…"}`.
    Jsonl,
}

impl Format {
    /// The configuration key.
    pub const KEY: KeyDef = KeyDef::optional(
        "format",
        ValueKind::OneOf(&["value", "jsonl"]),
        "value",
        "value writes each record's value as it is (null as an empty line), jsonl one JSON object for each record",
    );

    /// The format that a value of [`Format::KEY`] names.
    #[must_use]
    pub fn parse(value: &str) -> Self {
        if value.trim().eq_ignore_ascii_case("jsonl") {
            Self::Jsonl
        } else {
            Self::Value
        }
    }

    /// Whether the record's line would be more than one line.
    #[must_use]
    pub fn is_broken_by(self, record: &SinkRecord<'_>) -> bool {
        if self != Self::Value {
            return false;
        }
        if let Some(value) = plain(record) {
            return value.contains(&b'\n');
        }
        match &record.data().value.value {
            Value::String(text) => text.contains('\n'),
            Value::Bytes(bytes) => bytes.contains(&b'\n'),
            _ => false,
        }
    }

    /// Appends the record's line, newline included.
    pub fn write(self, record: &SinkRecord<'_>, line: &mut Vec<u8>) {
        match self {
            Self::Value => value_line(record, line),
            Self::Jsonl => jsonl(record, line),
        }
        line.push(b'\n');
    }
}

/// The value's bytes, where nothing else is made of them.
fn plain<'a>(record: &SinkRecord<'a>) -> Option<&'a [u8]> {
    if record.is_raw() {
        return Some(record.value.unwrap_or_default());
    }
    record.value_text().map(str::as_bytes)
}

fn value_line(record: &SinkRecord<'_>, line: &mut Vec<u8>) {
    if let Some(value) = plain(record) {
        line.extend_from_slice(value);
        return;
    }
    match &record.data().value.value {
        Value::Null => {}
        Value::String(text) => line.extend_from_slice(text.as_bytes()),
        Value::Bytes(bytes) => line.extend_from_slice(bytes),
        value => json::value(value, line),
    }
}

fn jsonl(record: &SinkRecord<'_>, line: &mut Vec<u8>) {
    line.extend_from_slice(b"{\"topic\":");
    json::text(record.topic, line);
    for (name, number) in [
        (",\"partition\":", i64::from(record.partition)),
        (",\"offset\":", record.offset),
        (",\"timestamp\":", record.timestamp),
    ] {
        line.extend_from_slice(name.as_bytes());
        json::integer(number, line);
    }
    line.extend_from_slice(match record.timestamp_type() {
        TimestampType::LogAppendTime => b",\"timestamp_type\":\"LogAppendTime\"",
        _ => b",\"timestamp_type\":\"CreateTime\"",
    });
    line.extend_from_slice(b",\"delivery_count\":");
    json::integer(record.delivery_count.into(), line);
    // Without headers the data of raw records has nothing to tell.
    let data = (!record.is_raw() || record.headers().next().is_some()).then(|| record.data());
    let data = data.as_deref();
    match data.filter(|_| !record.is_raw()) {
        Some(data) => {
            line.extend_from_slice(b",\"key\":");
            json::value(&data.key.value, line);
            line.extend_from_slice(b",\"value\":");
            json::value(&data.value.value, line);
        }
        None => {
            line.extend_from_slice(b",\"key\":");
            json::bytes(record.key, line);
            line.extend_from_slice(b",\"value\":");
            json::bytes(record.value, line);
        }
    }
    line.extend_from_slice(b",\"headers\":[");
    let headers = data.into_iter().flat_map(|data| &data.headers);
    for (index, header) in headers.enumerate() {
        let before = if index == 0 { "" } else { "," };
        line.extend_from_slice(before.as_bytes());
        line.extend_from_slice(b"{\"key\":");
        json::text(&header.key, line);
        line.extend_from_slice(b",\"value\":");
        json::value(&header.data.value, line);
        line.push(b'}');
    }
    line.extend_from_slice(b"]}");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use sharegroup_sink::convert::{self, Chain, ConverterSettings, Converters};
    use sharegroup_sink::{OwnedRecord, SinkBatch};
    use sharegroup_wire::TopicId;

    use super::*;

    fn line(format: Format, record: OwnedRecord) -> String {
        let batch = SinkBatch::from_records("orders", TopicId::ZERO, 2, vec![record]);
        let mut line = Vec::new();
        for record in batch.records() {
            format.write(&record, &mut line);
        }
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn a_value_is_written_as_it_is_and_null_as_an_empty_line() {
        let record = OwnedRecord {
            value: Some(Bytes::from("a b")),
            ..OwnedRecord::default()
        };
        assert_eq!(line(Format::Value, record), "a b\n");
        assert_eq!(line(Format::Value, OwnedRecord::default()), "\n");
    }

    #[test]
    fn jsonl_keeps_everything_on_one_line() {
        let record = OwnedRecord {
            offset: 7,
            timestamp: 1_700_000_000_000,
            key: Some(Bytes::from_static(&[0xff, 0x00])),
            value: Some(Bytes::from("two\nlines \"quoted\"")),
            headers: vec![
                ("a".to_owned(), Some(Bytes::from("1"))),
                ("a".to_owned(), None),
            ],
            delivery_count: 1,
        };
        assert_eq!(
            line(Format::Jsonl, record),
            concat!(
                r#"{"topic":"orders","partition":2,"offset":7,"timestamp":1700000000000,"timestamp_type":"CreateTime","delivery_count":1,"#,
                r#""key":{"base64":"/wA="},"value":"two\nlines \"quoted\"","#,
                r#""headers":[{"key":"a","value":1},{"key":"a","value":null}]}"#,
                "\n"
            )
        );
        assert!(
            line(Format::Jsonl, OwnedRecord::default())
                .contains(r#""key":null,"value":null,"headers":[]"#)
        );
    }

    fn converted(format: Format, converter: &str, records: Vec<OwnedRecord>) -> String {
        let settings = ConverterSettings::from([("schemas.enable".to_owned(), "false".to_owned())]);
        let chain = Arc::new(Chain::of(Converters {
            key: convert::find("string", &settings).unwrap(),
            value: convert::find(converter, &settings).unwrap(),
            header: convert::find_header("simple", &settings).unwrap(),
        }));
        let batch = SinkBatch::from_records("orders", TopicId::ZERO, 2, records);
        let mut lines = Vec::new();
        for record in batch.converted(&chain).unwrap().records() {
            format.write(&record, &mut lines);
        }
        String::from_utf8(lines).unwrap()
    }

    fn values(values: &[&'static str]) -> Vec<OwnedRecord> {
        let record = |value: &&'static str| OwnedRecord {
            value: Some(Bytes::from_static(value.as_bytes())),
            ..OwnedRecord::default()
        };
        values.iter().map(record).collect()
    }

    #[test]
    fn a_converted_value_is_written_as_its_converter_gives_it() {
        let mut records = values(&["{ \"a\": [1, null] }", "\"text\"", "null"]);
        records.push(OwnedRecord::default());
        assert_eq!(
            converted(Format::Value, "json", records),
            "{\"a\":[1,null]}\ntext\n\n\n"
        );
        assert_eq!(
            converted(Format::Value, "string", values(&["{ \"a\": 1 }"])),
            "{ \"a\": 1 }\n"
        );
        let malformed = OwnedRecord {
            value: Some(Bytes::from_static(b"a\xffb")),
            ..OwnedRecord::default()
        };
        assert_eq!(
            converted(
                Format::Value,
                "string",
                vec![malformed, OwnedRecord::default()]
            ),
            "a\u{fffd}b\n\n"
        );
    }

    #[test]
    fn jsonl_has_key_value_and_headers_as_their_converters_give_them() {
        let record = OwnedRecord {
            key: Some(Bytes::from("k")),
            value: Some(Bytes::from("{\"a\": 1.50}")),
            headers: vec![
                ("day".to_owned(), Some(Bytes::from("2024-02-29"))),
                ("n".to_owned(), Some(Bytes::from("[1,2]"))),
            ],
            ..OwnedRecord::default()
        };
        assert_eq!(
            converted(Format::Jsonl, "json", vec![record]),
            concat!(
                r#"{"topic":"orders","partition":2,"offset":0,"timestamp":0,"timestamp_type":"CreateTime","delivery_count":0,"#,
                r#""key":"k","value":{"a":1.5},"#,
                r#""headers":[{"key":"day","value":"2024-02-29"},{"key":"n","value":[1,2]}]}"#,
                "\n"
            )
        );
    }
}
