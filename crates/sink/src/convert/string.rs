//! Text.

use std::sync::Arc;

use bytes::Bytes;

use super::header::text_of;
use super::{ConvertError, Converter, ConverterConfigError, ConverterSettings, HeaderConverter};
use crate::data::{Schema, SchemaAndValue, Type, Value};

/// Reads and writes text, under the schema of optional STRING. `converter.encoding` is UTF-8 unless set:
/// also ISO-8859-1, US-ASCII, UTF-16 (with a byte order mark, big endian without), UTF-16BE, UTF-16LE,
/// under the names that Java knows them by.
///
/// Malformed bytes become U+FFFD, as in Java; it never fails. Numbers and booleans are written as Java
/// writes them, everything else as [`SimpleHeaderConverter`](super::SimpleHeaderConverter) does.
#[derive(Debug)]
pub struct StringConverter {
    schema: Schema,
    encoding: Encoding,
}

impl StringConverter {
    /// A converter with these settings; keys that aren't its own are passed over.
    ///
    /// # Errors
    /// [`ConverterConfigError::InvalidValue`]: an encoding that isn't known.
    pub fn new(settings: &ConverterSettings) -> Result<Self, ConverterConfigError> {
        let encoding = match settings.get(ENCODING) {
            Some(name) => Encoding::named(name).ok_or_else(|| {
                let expected = "UTF-8, ISO-8859-1, US-ASCII, UTF-16, UTF-16BE or UTF-16LE";
                ConverterConfigError::invalid(ENCODING, expected)
            })?,
            None => Encoding::Utf8,
        };
        Ok(Self {
            schema: Schema::optional(Type::String),
            encoding,
        })
    }

    fn read(&self, bytes: Option<&[u8]>) -> SchemaAndValue {
        let text = bytes.map(|bytes| self.encoding.decode(bytes));
        let value = text.map_or(Value::Null, Value::String);
        SchemaAndValue::new(self.schema.clone(), value)
    }

    fn write(&self, data: &SchemaAndValue) -> Result<Option<Bytes>, ConvertError> {
        if data.value.is_null() {
            return Ok(None);
        }
        let text = text_of(&data.value)?;
        Ok(Some(Bytes::from(self.encoding.encode(text))))
    }
}

impl Converter for StringConverter {
    fn class_name(&self) -> &'static str {
        CLASS
    }

    fn to_connect(&self, _: &str, bytes: Option<&Bytes>) -> Result<SchemaAndValue, ConvertError> {
        Ok(self.read(bytes.map(|bytes| &bytes[..])))
    }

    fn from_connect(&self, _: &str, data: &SchemaAndValue) -> Result<Option<Bytes>, ConvertError> {
        self.write(data)
    }

    fn never_fails(&self) -> bool {
        true
    }

    fn text<'a>(&self, bytes: &'a [u8]) -> Option<&'a str> {
        match self.encoding {
            Encoding::Utf8 => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

impl HeaderConverter for StringConverter {
    fn class_name(&self) -> &'static str {
        CLASS
    }

    fn to_connect_header(
        &self,
        _: &str,
        _: &str,
        value: Option<&[u8]>,
    ) -> Result<SchemaAndValue, ConvertError> {
        Ok(self.read(value))
    }

    fn from_connect_header(
        &self,
        _: &str,
        _: &str,
        data: &SchemaAndValue,
    ) -> Result<Option<Bytes>, ConvertError> {
        self.write(data)
    }

    fn never_fails(&self) -> bool {
        true
    }
}

#[derive(Clone, Copy, Debug)]
enum Encoding {
    Utf8,
    Latin1,
    Ascii,
    /// Written with a byte order mark; without one read as big endian.
    Utf16,
    Utf16Be,
    Utf16Le,
}

impl Encoding {
    /// By the names and aliases of Java's charsets, in any case.
    fn named(name: &str) -> Option<Self> {
        Some(match name.trim().to_ascii_lowercase().as_str() {
            "utf-8" | "utf8" | "unicode-1-1-utf-8" => Self::Utf8,
            "iso-8859-1" | "iso8859-1" | "iso8859_1" | "iso_8859-1" | "iso_8859_1" | "8859_1"
            | "latin1" | "l1" => Self::Latin1,
            "us-ascii" | "ascii" | "ascii7" | "iso646-us" => Self::Ascii,
            "utf-16" | "utf16" | "utf_16" | "unicode" => Self::Utf16,
            "utf-16be" | "utf_16be" | "x-utf-16be" => Self::Utf16Be,
            "utf-16le" | "utf_16le" | "x-utf-16le" => Self::Utf16Le,
            _ => return None,
        })
    }

    fn decode(self, bytes: &[u8]) -> Arc<str> {
        match self {
            Self::Utf8 => match std::str::from_utf8(bytes) {
                Ok(text) => Arc::from(text),
                Err(_) => Arc::from(decode_utf8(bytes)),
            },
            Self::Latin1 => bytes
                .iter()
                .map(|byte| char::from(*byte))
                .collect::<String>()
                .into(),
            Self::Ascii => {
                let char_of = |byte: &u8| {
                    if byte.is_ascii() {
                        char::from(*byte)
                    } else {
                        REPLACEMENT
                    }
                };
                bytes.iter().map(char_of).collect::<String>().into()
            }
            Self::Utf16 => match bytes {
                [0xfe, 0xff, rest @ ..] => decode_utf16(rest, u16::from_be_bytes),
                [0xff, 0xfe, rest @ ..] => decode_utf16(rest, u16::from_le_bytes),
                _ => decode_utf16(bytes, u16::from_be_bytes),
            },
            Self::Utf16Be => decode_utf16(bytes, u16::from_be_bytes),
            Self::Utf16Le => decode_utf16(bytes, u16::from_le_bytes),
        }
    }

    fn encode(self, text: String) -> Vec<u8> {
        let byte = |c: char, last: char| if c <= last { c as u8 } else { b'?' };
        match self {
            Self::Utf8 => text.into_bytes(),
            Self::Latin1 => text.chars().map(|c| byte(c, '\u{ff}')).collect(),
            Self::Ascii => text.chars().map(|c| byte(c, '\u{7f}')).collect(),
            Self::Utf16 => {
                let mark = [0xfe, 0xff].into_iter();
                mark.chain(text.encode_utf16().flat_map(u16::to_be_bytes))
                    .collect()
            }
            Self::Utf16Be => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            Self::Utf16Le => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        }
    }
}

fn decode_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Arc<str> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let units = char::decode_utf16(pairs.iter().map(|pair| unit(*pair)));
    let chars = units.map(|c| c.unwrap_or(REPLACEMENT));
    let half = (!rest.is_empty()).then_some(REPLACEMENT);
    chars.chain(half).collect::<String>().into()
}

/// UTF-8 with each malformed part as one U+FFFD. Where Rust sees up to three parts in an encoded
/// surrogate, Java sees one.
pub(super) fn decode_utf8(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        let (valid, malformed) = match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return text;
            }
            Err(error) => {
                let (valid, malformed) = rest.split_at(error.valid_up_to());
                let count = match malformed {
                    [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] => 3,
                    [0xed, 0xa0..=0xbf, ..] => 2,
                    _ => error.error_len().unwrap_or(malformed.len()),
                };
                (valid, malformed.split_at(count.max(1)).1)
            }
        };
        // Valid up to here, so nothing is replaced.
        text.push_str(&String::from_utf8_lossy(valid));
        text.push(REPLACEMENT);
        rest = malformed;
    }
}

const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;
const ENCODING: &str = "converter.encoding";
const CLASS: &str = "org.apache.kafka.connect.storage.StringConverter";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn converter(encoding: &str) -> StringConverter {
        let settings = [(ENCODING.to_owned(), encoding.to_owned())];
        StringConverter::new(&settings.into()).unwrap()
    }

    #[test]
    fn each_encoding_reads_what_it_writes() {
        let text = "aé日😀";
        for encoding in ["UTF-8", "utf8", "UTF-16", "UTF-16BE", "UTF-16LE"] {
            let converter = converter(encoding);
            let data = SchemaAndValue::schemaless(Value::from(text));
            let bytes = converter.from_connect("t", &data).unwrap();
            let back = converter.to_connect("t", bytes.as_ref()).unwrap();
            assert_eq!(back.value, data.value, "{encoding}");
        }
        let data = SchemaAndValue::schemaless(Value::from(text));
        let latin = converter("latin1").from_connect("t", &data).unwrap();
        assert_eq!(latin.unwrap(), &b"a\xe9??"[..]);
        let ascii = converter("ASCII").to_connect("t", Some(&Bytes::from_static(b"a\xe9")));
        assert_eq!(ascii.unwrap().value, Value::from("a\u{fffd}"));
    }

    #[test]
    fn values_that_are_not_text_are_written_as_java_writes_them() {
        let written = |value| {
            let data = SchemaAndValue::schemaless(value);
            converter("UTF-8").from_connect("t", &data).unwrap()
        };
        assert_eq!(written(Value::Float64(1e7)), Some(Bytes::from("1.0E7")));
        assert_eq!(written(Value::Boolean(true)), Some(Bytes::from("true")));
        assert_eq!(written(Value::Null), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            let text = decode_utf8(&bytes);
            if let Ok(valid) = std::str::from_utf8(&bytes) {
                prop_assert_eq!(text, valid);
            }
        }
    }
}
