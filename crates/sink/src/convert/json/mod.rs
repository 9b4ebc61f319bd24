//! JSON, with an envelope that has the schema or without.

mod reader;
mod schema;
mod typed;
mod writer;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::{
    ConvertError, Converter, ConverterConfigError, ConverterSettings, HeaderConverter, boolean,
};
use crate::data::{Schema, SchemaAndValue, Value};

use reader::{Document, Node, SchemaText, read};
use schema::read_schema;
use typed::Reading;
use writer::{DecimalFormat, Writing};

/// Connect's JSON converter.
///
/// | key | default | |
/// | --- | --- | --- |
/// | `schemas.enable` | true | a value is an object of `schema` and `payload` |
/// | `schema.content` | — | the schema of all values, which then are bare payloads |
/// | `schemas.cache.size` | 1000 | schemas kept, each of at most 16 KiB of text |
/// | `decimal.format` | `BASE64` | how decimals are written, or `NUMERIC`; both are read |
/// | `replace.null.with.default` | true | a null becomes its schema's default |
/// | `json.lenient` | false | ours: what would lose something is converted as Java does it |
///
/// The Java converter turns a text in a number's place into 0 and wraps numbers that are too large. Here
/// that is an error: numbers out of range, values of another kind, unknown fields, two members of one
/// name, text behind the value, and no text at all. `json.lenient=true` gives what Java gives.
/// Differences that stay: only UTF-8 is read, and half of a surrogate pair becomes U+FFFD.
///
/// JSON null is a null value, as a tombstone is; the record's own value tells them apart.
///
/// Limits, in both modes: 500 levels of nesting (Java 1,000), numbers of 1,000 digits, decimals of 4,096 bytes.
#[derive(Debug)]
pub struct JsonConverter {
    has_envelope: bool,
    /// Schema of all values.
    content: Option<Schema>,
    reading: Reading,
    writing: Writing,
    schemas: SchemaCache,
}

impl JsonConverter {
    /// A converter with these settings; keys that aren't its own are passed over.
    ///
    /// # Errors
    /// [`ConverterConfigError::InvalidValue`].
    pub fn new(settings: &ConverterSettings) -> Result<Self, ConverterConfigError> {
        let has_envelope = boolean(settings, "schemas.enable", true)?;
        let replace_null = boolean(settings, "replace.null.with.default", true)?;
        let reading = Reading {
            is_lenient: boolean(settings, "json.lenient", false)?,
            replace_null,
        };
        let decimal_format = match settings.get("decimal.format") {
            Some(format) if format.eq_ignore_ascii_case("numeric") => DecimalFormat::Numeric,
            Some(format) if !format.eq_ignore_ascii_case("base64") => {
                return Err(ConverterConfigError::invalid(
                    "decimal.format",
                    "BASE64 or NUMERIC",
                ));
            }
            _ => DecimalFormat::Base64,
        };
        let content = settings.get("schema.content").map(|text| text.trim());
        let content = content.filter(|text| !text.is_empty());
        let content = content
            .map(|text| content_schema(reading, text))
            .transpose()?
            .flatten();
        let cache_size = match settings
            .get("schemas.cache.size")
            .map(|size| size.trim().parse())
        {
            None => SCHEMAS_CACHED,
            Some(Ok(size)) => size,
            Some(Err(_)) => {
                return Err(ConverterConfigError::invalid(
                    "schemas.cache.size",
                    "a count of at least 0",
                ));
            }
        };
        Ok(Self {
            has_envelope,
            content: content.filter(|_| has_envelope),
            reading,
            writing: Writing {
                decimal_format,
                replace_null,
            },
            schemas: SchemaCache::new(cache_size),
        })
    }

    fn read(&self, bytes: &[u8]) -> Result<SchemaAndValue, ConvertError> {
        let is_lenient = self.reading.is_lenient;
        if self.has_envelope && self.content.is_none() {
            let latest = self.schemas.latest();
            let document = read(bytes, is_lenient, &latest.text)?;
            return self.open_envelope(&document, bytes, &latest);
        }
        let document = read(bytes, is_lenient, "")?;
        let value = self.reading.value(self.content.as_ref(), &document.root)?;
        let schema = self.content.clone();
        Ok(SchemaAndValue { schema, value })
    }

    fn open_envelope(
        &self,
        document: &Document<'_>,
        bytes: &[u8],
        latest: &KnownSchema,
    ) -> Result<SchemaAndValue, ConvertError> {
        let root = &document.root;
        let members = match root {
            Node::Object(members) => members.len(),
            other => {
                let found = other.kind().to_owned();
                return Err(ConvertError::Envelope { found });
            }
        };
        let (Some(schema), Some(payload), 2) =
            (root.member("schema"), root.member("payload"), members)
        else {
            let found = format!("an object of {members} members that aren't these two");
            return Err(ConvertError::Envelope { found });
        };
        let schema = match &document.schema {
            SchemaText::Known => latest.schema.clone(),
            SchemaText::At(range) => {
                let text = bytes.get(range.clone());
                let text = text.and_then(|text| str::from_utf8(text).ok());
                self.schemas.get_or_read(text.unwrap_or_default(), || {
                    Ok(read_schema(self.reading, schema)?)
                })?
            }
            SchemaText::Missing => None,
        };
        let value = self.reading.value(schema.as_ref(), payload)?;
        Ok(SchemaAndValue { schema, value })
    }

    fn write(&self, data: &SchemaAndValue) -> Result<Option<Bytes>, ConvertError> {
        let schema = data.schema.as_ref();
        if schema.is_none() && data.value == Value::Null {
            return Ok(None);
        }
        let text = if self.has_envelope {
            self.writing.envelope(schema, &data.value)
        } else {
            self.writing.payload(schema, &data.value)
        };
        text.map(|text| Some(Bytes::from(text)))
    }
}

impl Converter for JsonConverter {
    fn class_name(&self) -> &'static str {
        CLASS
    }

    fn to_connect(&self, _: &str, bytes: Option<&Bytes>) -> Result<SchemaAndValue, ConvertError> {
        bytes.map_or_else(|| Ok(SchemaAndValue::default()), |bytes| self.read(bytes))
    }

    fn from_connect(&self, _: &str, data: &SchemaAndValue) -> Result<Option<Bytes>, ConvertError> {
        self.write(data)
    }
}

impl HeaderConverter for JsonConverter {
    fn class_name(&self) -> &'static str {
        CLASS
    }

    fn to_connect_header(
        &self,
        _: &str,
        _: &str,
        value: Option<&[u8]>,
    ) -> Result<SchemaAndValue, ConvertError> {
        value.map_or_else(|| Ok(SchemaAndValue::default()), |value| self.read(value))
    }

    fn from_connect_header(
        &self,
        _: &str,
        _: &str,
        data: &SchemaAndValue,
    ) -> Result<Option<Bytes>, ConvertError> {
        self.write(data)
    }
}

fn content_schema(reading: Reading, text: &str) -> Result<Option<Schema>, ConverterConfigError> {
    let document = read(text.as_bytes(), reading.is_lenient, "");
    let schema = document.and_then(|document| Ok(read_schema(reading, &document.root)?));
    schema.map_err(|error| {
        ConverterConfigError::invalid("schema.content", format!("a schema in JSON; {error}"))
    })
}

/// Schemas by their text, so that records of one kind don't bring a new one each.
#[derive(Debug)]
struct SchemaCache {
    count_max: usize,
    known: Mutex<KnownSchemas>,
}

#[derive(Debug, Default)]
struct KnownSchemas {
    by_text: HashMap<Arc<str>, Arc<KnownSchema>>,
    latest: Arc<KnownSchema>,
}

#[derive(Debug, Default)]
struct KnownSchema {
    text: Arc<str>,
    schema: Option<Schema>,
}

impl SchemaCache {
    fn new(count_max: usize) -> Self {
        let known = Mutex::default();
        Self { count_max, known }
    }

    fn known(&self) -> MutexGuard<'_, KnownSchemas> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The schema that was asked for last, empty at first.
    fn latest(&self) -> Arc<KnownSchema> {
        Arc::clone(&self.known().latest)
    }

    fn get_or_read(
        &self,
        text: &str,
        read: impl FnOnce() -> Result<Option<Schema>, ConvertError>,
    ) -> Result<Option<Schema>, ConvertError> {
        if self.count_max == 0 || text.len() > SCHEMA_BYTES_CACHED {
            return read();
        }
        let mut known = self.known();
        if let Some(found) = known.by_text.get(text).cloned() {
            known.latest = Arc::clone(&found);
            return Ok(found.schema.clone());
        }
        drop(known);
        let schema = read()?;
        let mut known = self.known();
        if known.by_text.len() >= self.count_max {
            // Whoever sends so many of them gains nothing from a cache.
            known.by_text.clear();
        }
        let text: Arc<str> = Arc::from(text);
        known.latest = Arc::new(KnownSchema {
            text: Arc::clone(&text),
            schema: schema.clone(),
        });
        let latest = Arc::clone(&known.latest);
        known.by_text.insert(text, latest);
        Ok(schema)
    }
}

const CLASS: &str = "org.apache.kafka.connect.json.JsonConverter";

/// Default of `schemas.cache.size`.
const SCHEMAS_CACHED: usize = 1000;

/// Longest text of a schema that is kept, in bytes.
const SCHEMA_BYTES_CACHED: usize = 16 * 1024;

#[cfg(test)]
mod tests;
