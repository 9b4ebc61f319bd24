//! Texts with places for parts of a record: `${topic}`, `${value.user.id}`.

use std::borrow::Cow;
use std::fmt;

use sharegroup_sink::SinkRecord;
use sharegroup_sink::convert::ConvertedRecord;
use sharegroup_sink::data::Value;

use crate::json;

/// A text with places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// In a JSON text: whether it stands between quotation marks.
    Place {
        field: Field,
        in_quotes: bool,
    },
}

/// A part of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    Topic,
    Partition,
    Offset,
    Timestamp,
    /// The key, or what lies behind a path in it.
    Key(Vec<String>),
    Value(Vec<String>),
    /// The last header of that name, as `${header.name}`.
    Header(String),
}

/// How what is put in is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Escape {
    /// As it is: methods and headers, which are checked as a whole.
    #[default]
    None,
    /// Percent-encoded, but for letters, digits and `-._~` (RFC 3986, section 2.3).
    Url,
    /// Between quotation marks as the inside of a JSON string, elsewhere as a JSON value.
    Json,
}

/// A record that has no value for a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing(String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Template {
    /// Reads a text. `Err`: what is wrong with it, to be read after the key.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut quotes = Quotes::default();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            let (name, after) = behind
                .split_once('}')
                .ok_or_else(|| "has a `${` without a `}`".to_owned())?;
            quotes.pass(before);
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::Place {
                field: Field::parse(name)?,
                in_quotes: quotes.open,
            });
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self { parts })
    }

    /// The text, if nothing of a record is put in.
    pub(super) fn literal(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text with an `x` at each place.
    pub(super) fn sample(&self) -> String {
        let parts = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.as_str(),
            Part::Place { .. } => "x",
        });
        parts.collect()
    }

    /// Appends the text for a record.
    pub(super) fn write(
        &self,
        record: &Source<'_>,
        escape: Escape,
        out: &mut Vec<u8>,
    ) -> Result<(), Missing> {
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Place { field, in_quotes } => record.write(field, *in_quotes, escape, out)?,
            }
        }
        Ok(())
    }

    /// The text for a record.
    pub(super) fn render(&self, record: &Source<'_>, escape: Escape) -> Result<Vec<u8>, Missing> {
        let mut out = Vec::new();
        self.write(record, escape, &mut out)?;
        Ok(out)
    }
}

impl Field {
    fn parse(name: &str) -> Result<Self, String> {
        let path = |rest: &str| rest.split('.').map(str::to_owned).collect::<Vec<_>>();
        let (first, rest) = match name.split_once('.') {
            Some((first, rest)) => (first, Some(rest)),
            None => (name, None),
        };
        let has_gap = rest.is_some_and(|rest| rest.split('.').any(str::is_empty));
        match (first, rest) {
            ("header", Some(rest)) if !rest.is_empty() => Ok(Self::Header(rest.to_owned())),
            _ if has_gap => Err(format!("has `${{{name}}}`, a path with an empty name")),
            ("topic", None) => Ok(Self::Topic),
            ("partition", None) => Ok(Self::Partition),
            ("offset", None) => Ok(Self::Offset),
            ("timestamp", None) => Ok(Self::Timestamp),
            ("key", rest) => Ok(Self::Key(rest.map(path).unwrap_or_default())),
            ("value", rest) => Ok(Self::Value(rest.map(path).unwrap_or_default())),
            _ => Err(format!(
                "has `${{{name}}}`, which isn't known: topic, partition, offset, timestamp, key, key.FIELD, value, value.FIELD and header.NAME are"
            )),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic => f.write_str("topic"),
            Self::Partition => f.write_str("partition"),
            Self::Offset => f.write_str("offset"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Key(path) => write!(f, "{}", dotted("key", path)),
            Self::Value(path) => write!(f, "{}", dotted("value", path)),
            Self::Header(name) => write!(f, "header.{name}"),
        }
    }
}

fn dotted(root: &str, path: &[String]) -> String {
    let names = std::iter::once(root).chain(path.iter().map(String::as_str));
    names.collect::<Vec<_>>().join(".")
}

/// Whether a JSON text stands between quotation marks.
#[derive(Default)]
struct Quotes {
    open: bool,
    escaped: bool,
}

impl Quotes {
    fn pass(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                _ if std::mem::take(&mut self.escaped) => {}
                '\\' if self.open => self.escaped = true,
                '"' => self.open = !self.open,
                _ => {}
            }
        }
    }
}

/// A record whose parts are put into templates. It is converted once, and only where a template asks for it.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) record: SinkRecord<'a>,
    data: std::cell::OnceCell<Cow<'a, ConvertedRecord>>,
}

impl<'a> Source<'a> {
    pub(super) fn new(record: SinkRecord<'a>) -> Self {
        Self {
            record,
            data: std::cell::OnceCell::new(),
        }
    }

    pub(super) fn data(&self) -> &ConvertedRecord {
        self.data.get_or_init(|| self.record.data())
    }

    fn write(
        &self,
        field: &Field,
        in_quotes: bool,
        escape: Escape,
        out: &mut Vec<u8>,
    ) -> Result<(), Missing> {
        let number = |number: i64| Cow::Owned(Value::Int64(number));
        let value = match field {
            Field::Topic => Cow::Owned(Value::String(self.record.topic.clone())),
            Field::Partition => number(self.record.partition.into()),
            Field::Offset => number(self.record.offset),
            Field::Timestamp => number(self.record.timestamp),
            Field::Key(path) => Cow::Borrowed(find(&self.data().key.value, path, field)?),
            Field::Value(path) => Cow::Borrowed(find(&self.data().value.value, path, field)?),
            Field::Header(name) => {
                let mut headers = self.data().headers.iter().rev();
                let header = headers.find(|header| *header.key == **name);
                Cow::Borrowed(&header.ok_or_else(|| missing(field))?.data.value)
            }
        };
        let is_json_value = escape == Escape::Json && !in_quotes;
        if value.is_null() && !is_json_value {
            return Err(Missing(format!("{field} is null")));
        }
        match escape {
            Escape::Json if in_quotes => {
                let mut quoted = Vec::new();
                json::text(&String::from_utf8_lossy(&text(&value)), &mut quoted);
                out.extend(inside(&quoted));
            }
            Escape::Json => json::value(&value, out),
            Escape::Url => percent_encode(&text(&value), out),
            Escape::None => out.extend_from_slice(&text(&value)),
        }
        Ok(())
    }
}

fn missing(field: &Field) -> Missing {
    Missing(format!("the record has no {field}"))
}

/// What lies behind a path of fields, of keys of maps, and of indexes of arrays.
fn find<'v>(root: &'v Value, path: &[String], field: &Field) -> Result<&'v Value, Missing> {
    let mut value = root;
    for name in path {
        value = match value {
            Value::Struct(row) => row.get(name),
            Value::Map(map) => map.get(&Value::from(name.as_str())),
            Value::Array(values) => name.parse().ok().and_then(|index: usize| values.get(index)),
            Value::Bytes(_) => {
                return Err(Missing(format!(
                    "the record has no {field}: there are only bytes, which another converter would take apart"
                )));
            }
            _ => None,
        }
        .ok_or_else(|| missing(field))?;
    }
    Ok(value)
}

/// A value as text: strings and bytes as they are, anything else as JSON; what JSON would put in quotation marks
/// (days, times) without them.
pub(super) fn text(value: &Value) -> Cow<'_, [u8]> {
    match value {
        Value::String(text) => Cow::Borrowed(text.as_bytes()),
        Value::Bytes(bytes) => Cow::Borrowed(bytes),
        other => {
            let mut out = Vec::new();
            json::value(other, &mut out);
            if out.first() == Some(&b'"') {
                out = inside(&out).to_vec();
            }
            Cow::Owned(out)
        }
    }
}

/// A JSON string without its quotation marks.
fn inside(quoted: &[u8]) -> &[u8] {
    let inner = quoted
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    inner.unwrap_or(quoted)
}

pub(super) fn percent_encode(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            out.push(*byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use sharegroup_sink::convert::{self, Chain, ConverterSettings, Converters};
    use sharegroup_sink::{OwnedRecord, SinkBatch};
    use sharegroup_wire::TopicId;

    use super::*;

    fn rendered(template: &str, escape: Escape, value: &str) -> Result<String, String> {
        let settings = ConverterSettings::from([("schemas.enable".to_owned(), "false".to_owned())]);
        let chain = Arc::new(Chain::of(Converters {
            key: convert::find("string", &settings).unwrap(),
            value: convert::find("json", &settings).unwrap(),
            header: convert::find_header("simple", &settings).unwrap(),
        }));
        let record = OwnedRecord {
            offset: 7,
            timestamp: 1_700_000_000_000,
            key: Some(Bytes::from("a/b \"c\" ü")),
            value: Some(Bytes::from(value.to_owned())),
            headers: vec![
                ("trace.id".to_owned(), Some(Bytes::from("first"))),
                ("trace.id".to_owned(), Some(Bytes::from("last"))),
            ],
            delivery_count: 1,
        };
        let batch = SinkBatch::from_records("orders", TopicId::ZERO, 2, vec![record]);
        let batch = batch.converted(&chain).unwrap();
        let record = Source::new(batch.records().next().unwrap());
        let template = Template::parse(template).unwrap();
        let text = template.render(&record, escape);
        text.map(|text| String::from_utf8(text).unwrap())
            .map_err(|missing| missing.to_string())
    }

    const VALUE: &str =
        r#"{"id": 5, "user": {"name": "a\"b\n", "tags": ["x", "y"]}, "gone": null}"#;

    #[test]
    fn every_part_of_a_record_can_be_put_in() {
        let template = "${topic}-${partition}-${offset} ${timestamp} ${value.id} ${value.user.tags.1} ${header.trace.id}";
        assert_eq!(
            rendered(template, Escape::None, VALUE).unwrap(),
            "orders-2-7 1700000000000 5 y last"
        );
    }

    #[test]
    fn what_is_put_into_a_url_stays_within_its_part() {
        assert_eq!(
            rendered("/x/${key}?q=${value.user.name}", Escape::Url, VALUE).unwrap(),
            "/x/a%2Fb%20%22c%22%20%C3%BC?q=a%22b%0A"
        );
    }

    #[test]
    fn what_is_put_into_json_stays_json() {
        let template = r#"{"a \" ${key}": ${value.user}, "n": ${value.gone}, "i": "${value.id}", "k": ${key}}"#;
        let text = rendered(template, Escape::Json, VALUE).unwrap();
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed["a \" a/b \"c\" ü"]["name"], "a\"b\n");
        assert_eq!(parsed["n"], serde_json::Value::Null);
        assert_eq!(parsed["i"], "5");
        assert_eq!(parsed["k"], "a/b \"c\" ü");
    }

    #[test]
    fn what_a_record_has_not_is_named() {
        for (template, text) in [
            ("${value.user.mail}", "the record has no value.user.mail"),
            ("${value.id.x}", "the record has no value.id.x"),
            ("${header.none}", "the record has no header.none"),
            ("${value.gone}", "value.gone is null"),
        ] {
            assert_eq!(rendered(template, Escape::Url, VALUE).unwrap_err(), text);
        }
    }

    #[test]
    fn a_wrong_template_is_found_before_the_start() {
        for (template, text) in [
            ("${value", "without a `}`"),
            ("${valu.x}", "`${valu.x}`, which isn't known"),
            ("${value..x}", "empty name"),
            ("${topic.x}", "isn't known"),
            ("${header.}", "empty name"),
        ] {
            let error = Template::parse(template).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }
}
