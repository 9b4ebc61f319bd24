//! Records as lines of text.

use sharegroup_sink::SinkRecord;
use sharegroup_sink::config::{KeyDef, ValueKind};

/// How a record becomes a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The value's bytes as they are; a null value is an empty line.
    #[default]
    Value,
    /// A JSON object with `topic`, `partition`, `offset`, `timestamp`, `key`, `value` and
    /// `headers`. Bytes that aren't UTF-8 are written as `{"base64":"…"}`.
    Jsonl,
}

impl Format {
    /// The configuration key.
    pub const KEY: KeyDef = KeyDef::optional(
        "format",
        ValueKind::OneOf(&["value", "jsonl"]),
        "value",
        "value writes each record's value as it is, jsonl one JSON object for each record",
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
        self == Self::Value && record.value.is_some_and(|value| value.contains(&b'\n'))
    }

    /// Appends the record's line, newline included.
    pub fn write(self, record: &SinkRecord<'_>, line: &mut Vec<u8>) {
        match self {
            Self::Value => line.extend_from_slice(record.value.unwrap_or_default()),
            Self::Jsonl => json(record, line),
        }
        line.push(b'\n');
    }
}

fn json(record: &SinkRecord<'_>, line: &mut Vec<u8>) {
    line.extend_from_slice(b"{\"topic\":");
    text(record.topic, line);
    for (name, number) in [
        (",\"partition\":", i64::from(record.partition)),
        (",\"offset\":", record.offset),
        (",\"timestamp\":", record.timestamp),
    ] {
        line.extend_from_slice(name.as_bytes());
        integer(number, line);
    }
    line.extend_from_slice(b",\"key\":");
    bytes(record.key, line);
    line.extend_from_slice(b",\"value\":");
    bytes(record.value, line);
    line.extend_from_slice(b",\"headers\":[");
    for (index, (key, value)) in record.headers().enumerate() {
        line.extend_from_slice(if index == 0 {
            b"{\"key\":"
        } else {
            b",{\"key\":"
        });
        bytes(Some(key), line);
        line.extend_from_slice(b",\"value\":");
        bytes(value, line);
        line.push(b'}');
    }
    line.extend_from_slice(b"]}");
}

fn bytes(bytes: Option<&[u8]>, line: &mut Vec<u8>) {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => line.extend_from_slice(b"null"),
        Some((_, Ok(utf8))) => text(utf8, line),
        Some((bytes, Err(_))) => {
            line.extend_from_slice(b"{\"base64\":\"");
            base64(bytes, line);
            line.extend_from_slice(b"\"}");
        }
    }
}

fn text(text: &str, line: &mut Vec<u8>) {
    let written = serde_json::to_writer(line, text);
    // INVARIANT: neither writing to memory nor a string can fail.
    debug_assert!(written.is_ok());
}

fn integer(number: i64, line: &mut Vec<u8>) {
    let written = serde_json::to_writer(line, &number);
    // INVARIANT: neither writing to memory nor an integer can fail.
    debug_assert!(written.is_ok());
}

/// Standard base64 with padding (RFC 4648, section 4).
fn base64(bytes: &[u8], line: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let mut bits = [0; 3];
        for (to, from) in bits.iter_mut().zip(group) {
            *to = *from;
        }
        let word = u32::from_be_bytes([0, bits[0], bits[1], bits[2]]);
        for position in 0..4 {
            let digit = (word >> (18 - 6 * position)) & 63;
            let filled = position <= group.len();
            line.push(if filled { DIGITS[digit as usize] } else { b'=' });
        }
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use bytes::Bytes;
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
                r#"{"topic":"orders","partition":2,"offset":7,"timestamp":1700000000000,"#,
                r#""key":{"base64":"/wA="},"value":"two\nlines \"quoted\"","#,
                r#""headers":[{"key":"a","value":"1"},{"key":"a","value":null}]}"#,
                "\n"
            )
        );
        assert!(
            line(Format::Jsonl, OwnedRecord::default())
                .contains(r#""key":null,"value":null,"headers":[]"#)
        );
    }

    #[test]
    fn base64_is_padded_as_the_standard_says() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            let mut out = Vec::new();
            base64(plain.as_bytes(), &mut out);
            assert_eq!(out, encoded.as_bytes());
        }
    }
}
