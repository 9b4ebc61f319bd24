//! How a record is printed: as Kafka's `DefaultMessageFormatter` does.

use std::borrow::Cow;

use sharegroup_consumer::TimestampType;
use sharegroup_sink::config::nearest;

/// Which parts of a record are printed, and what stands between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordFormat {
    timestamp: bool,
    partition: bool,
    offset: bool,
    delivery: bool,
    epoch: bool,
    headers: bool,
    key: bool,
    value: bool,
    key_separator: Vec<u8>,
    line_separator: Vec<u8>,
    headers_separator: Vec<u8>,
    null_literal: Vec<u8>,
}

impl Default for RecordFormat {
    fn default() -> Self {
        Self {
            timestamp: false,
            partition: false,
            offset: false,
            delivery: false,
            epoch: false,
            headers: false,
            key: false,
            value: true,
            key_separator: b"\t".to_vec(),
            line_separator: b"\n".to_vec(),
            headers_separator: b",".to_vec(),
            null_literal: b"null".to_vec(),
        }
    }
}

/// What can be printed of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    pub(super) timestamp: i64,
    pub(super) timestamp_type: TimestampType,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) delivery_count: i16,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
}

/// Properties that set whether a part is printed.
const PARTS: [&str; 8] = [
    "print.timestamp",
    "print.partition",
    "print.offset",
    "print.delivery",
    "print.epoch",
    "print.headers",
    "print.key",
    "print.value",
];
/// Properties that set text.
const TEXTS: [&str; 4] = [
    "key.separator",
    "line.separator",
    "headers.separator",
    "null.literal",
];

impl RecordFormat {
    /// Of properties, later ones counting; with everything that is wrong, and everything that is odd.
    pub(crate) fn parse(
        properties: &[(String, String)],
        errors: &mut Vec<String>,
        warnings: &mut Vec<String>,
    ) -> Self {
        let mut format = Self::default();
        for (key, value) in properties {
            if let Some(slot) = format.part(key) {
                match value.trim().to_ascii_lowercase().as_str() {
                    "true" => *slot = true,
                    "false" => *slot = false,
                    _ => errors.push(format!("{key}={value}: must be true or false")),
                }
            } else if let Some(slot) = format.text(key) {
                *slot = unescape(value).into_bytes();
            } else if key.ends_with(".deserializer") {
                warnings.push(format!(
                    "{key}: has no effect; keys, values and headers are printed as the bytes they are"
                ));
            } else {
                let known = PARTS.iter().chain(&TEXTS);
                let known = known.map(|name| Cow::Borrowed(*name));
                match nearest(key, known) {
                    Some(right) => {
                        errors.push(format!("{key}: is not a property; did you mean {right}?"));
                    }
                    None => warnings.push(format!("{key}: is not a property; it has no effect")),
                }
            }
        }
        format
    }

    fn part(&mut self, key: &str) -> Option<&mut bool> {
        Some(match key {
            "print.timestamp" => &mut self.timestamp,
            "print.partition" => &mut self.partition,
            "print.offset" => &mut self.offset,
            "print.delivery" => &mut self.delivery,
            "print.epoch" => &mut self.epoch,
            "print.headers" => &mut self.headers,
            "print.key" => &mut self.key,
            "print.value" => &mut self.value,
            _ => return None,
        })
    }

    fn text(&mut self, key: &str) -> Option<&mut Vec<u8>> {
        Some(match key {
            "key.separator" => &mut self.key_separator,
            "line.separator" => &mut self.line_separator,
            "headers.separator" => &mut self.headers_separator,
            "null.literal" => &mut self.null_literal,
            _ => return None,
        })
    }

    /// Appends a record to `out`.
    pub(super) fn write<'a>(
        &self,
        record: &Fields<'_>,
        headers: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        if self.timestamp {
            self.field(out, start, timestamp(record).as_bytes());
        }
        if self.partition {
            let text = format!("Partition:{}", record.partition);
            self.field(out, start, text.as_bytes());
        }
        if self.offset {
            self.field(out, start, format!("Offset:{}", record.offset).as_bytes());
        }
        if self.delivery {
            let text = format!("Delivery:{}", record.delivery_count);
            self.field(out, start, text.as_bytes());
        }
        if self.epoch {
            // As Kafka's share consumer: a share fetch doesn't tell it.
            self.field(out, start, b"Epoch:NOT_PRESENT");
        }
        if self.headers {
            self.separate(out, start);
            self.write_headers(headers, out);
        }
        if self.key {
            self.field(out, start, record.key.unwrap_or(&self.null_literal));
        }
        if self.value {
            self.field(out, start, record.value.unwrap_or(&self.null_literal));
        }
        out.extend_from_slice(&self.line_separator);
    }

    fn field(&self, out: &mut Vec<u8>, start: usize, bytes: &[u8]) {
        self.separate(out, start);
        out.extend_from_slice(bytes);
    }

    fn separate(&self, out: &mut Vec<u8>, start: usize) {
        if out.len() > start {
            out.extend_from_slice(&self.key_separator);
        }
    }

    fn write_headers<'a>(
        &self,
        headers: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
        out: &mut Vec<u8>,
    ) {
        let mut any = false;
        for (key, value) in headers {
            if any {
                out.extend_from_slice(&self.headers_separator);
            }
            any = true;
            out.extend_from_slice(key);
            out.push(b':');
            out.extend_from_slice(value.unwrap_or(&self.null_literal));
        }
        if !any {
            out.extend_from_slice(b"NO_HEADERS");
        }
    }
}

fn timestamp(record: &Fields<'_>) -> String {
    match record.timestamp_type {
        _ if record.timestamp < 0 => "NO_TIMESTAMP".to_owned(),
        TimestampType::LogAppendTime => format!("LogAppendTime:{}", record.timestamp),
        TimestampType::CreateTime => format!("CreateTime:{}", record.timestamp),
    }
}

/// `\t`, `\n`, `\r`, `\0` and `\\` as one would write them in a shell; everything else stays.
pub(crate) fn unescape(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let mut ahead = rest.clone();
        let escaped = match (c, ahead.next()) {
            ('\\', Some('t')) => '\t',
            ('\\', Some('n')) => '\n',
            ('\\', Some('r')) => '\r',
            ('\\', Some('0')) => '\0',
            ('\\', Some('\\')) => '\\',
            _ => {
                result.push(c);
                continue;
            }
        };
        result.push(escaped);
        rest = ahead;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(properties: &[(&str, &str)]) -> (RecordFormat, Vec<String>, Vec<String>) {
        let properties: Vec<_> = properties
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        let format = RecordFormat::parse(&properties, &mut errors, &mut warnings);
        (format, errors, warnings)
    }

    #[test]
    fn each_print_property_switches_its_part() {
        for name in PARTS {
            let (format, errors, _) = parse(&[(name, "TRUE"), ("print.value", "true")]);
            assert!(errors.is_empty(), "{errors:?}");
            let (off, _, _) = parse(&[(name, "true"), (name, "false")]);
            assert_ne!(format, off, "{name}");
        }
        assert_eq!(parse(&[]).0, RecordFormat::default());
    }

    /// The line of Kafka 4.4's `ConsoleShareConsumer` for the same record.
    #[test]
    fn all_parts_stand_where_kafka_puts_them() {
        let all: Vec<_> = PARTS.iter().map(|name| (*name, "true")).collect();
        let (format, _, _) = parse(&all);
        let record = Fields {
            timestamp: 1_795_982_710_060,
            timestamp_type: TimestampType::CreateTime,
            partition: 1,
            offset: 3,
            delivery_count: 1,
            key: Some(b"k2"),
            value: Some(b"v2"),
        };
        let mut out = Vec::new();
        format.write(&record, std::iter::empty(), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "CreateTime:1795982710060\tPartition:1\tOffset:3\tDelivery:1\tEpoch:NOT_PRESENT\tNO_HEADERS\tk2\tv2\n"
        );
    }

    #[test]
    fn nulls_and_headers_are_spelled_out() {
        let (format, _, _) = parse(&[
            ("print.headers", "true"),
            ("print.key", "true"),
            ("null.literal", "NIL"),
            ("headers.separator", ";"),
        ]);
        let record = Fields {
            timestamp: -1,
            timestamp_type: TimestampType::CreateTime,
            partition: 0,
            offset: 0,
            delivery_count: 1,
            key: None,
            value: None,
        };
        let headers: [(&[u8], Option<&[u8]>); 2] = [(b"a", Some(b"1")), (b"b", None)];
        let mut out = Vec::new();
        format.write(&record, headers.into_iter(), &mut out);
        assert_eq!(out, b"a:1;b:NIL\tNIL\tNIL\n");
    }

    #[test]
    fn separators_may_be_escaped() {
        let (format, _, _) = parse(&[("key.separator", r"\t|\\"), ("line.separator", r"\r\n")]);
        assert_eq!(format.key_separator, b"\t|\\");
        assert_eq!(format.line_separator, b"\r\n");
        assert_eq!(unescape(r"a\x\"), r"a\x\");
    }

    #[test]
    fn a_misspelt_property_is_an_error_and_a_foreign_one_a_warning() {
        let (_, errors, warnings) = parse(&[
            ("print.keys", "true"),
            ("print.offset", "yes"),
            ("my.setting", "1"),
            ("value.deserializer", "StringDeserializer"),
        ]);
        assert!(errors[0].contains("did you mean print.key?"), "{errors:?}");
        assert!(errors[1].contains("must be true or false"), "{errors:?}");
        assert_eq!((errors.len(), warnings.len()), (2, 2));
    }
}
