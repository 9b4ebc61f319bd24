//! Messages as JSON, in the form of Kafka's own converters and request logs.
//!
//! Field names in camelCase, ids in URL-safe base64, bytes in base64. A tagged field stands there
//! only where it differs from its default, a field of other versions not at all.

use std::fmt::Write;

use bytes::Bytes;

use crate::ErrorCode;
use crate::id::{BrokerId, MemberEpoch, SessionEpoch, TopicId};

/// A value that can be shown as JSON.
pub trait Json {
    /// Appends the value with the fields that `version` of its message has.
    fn json(&self, version: i16, out: &mut String);
}

macro_rules! displayed {
    ($($type:ty),*) => {$(
        impl Json for $type {
            fn json(&self, _: i16, out: &mut String) {
                put(out, format_args!("{self}"));
            }
        }
    )*};
}

displayed!(bool, i8, i16, i32, i64, BrokerId, MemberEpoch, SessionEpoch);

impl Json for ErrorCode {
    fn json(&self, version: i16, out: &mut String) {
        self.code().json(version, out);
    }
}

impl Json for TopicId {
    fn json(&self, _: i16, out: &mut String) {
        put(out, format_args!("\"{self}\""));
    }
}

impl Json for String {
    fn json(&self, _: i16, out: &mut String) {
        out.push('"');
        for character in self.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                control if control.is_control() => {
                    put(out, format_args!("\\u{:04x}", u32::from(control)))
                }
                other => out.push(other),
            }
        }
        out.push('"');
    }
}

impl Json for Bytes {
    fn json(&self, _: i16, out: &mut String) {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        out.push('"');
        for chunk in self.chunks(3) {
            let mut group = [0; 4];
            for (byte, from) in group.iter_mut().skip(1).zip(chunk) {
                *byte = *from;
            }
            let group = u32::from_be_bytes(group);
            for index in 0..4_u32 {
                let sextet = (group >> (18 - 6 * index)) & 0x3f;
                let digit = DIGITS
                    .get(sextet as usize)
                    .copied()
                    .filter(|_| index as usize <= chunk.len());
                out.push(char::from(digit.unwrap_or(b'=')));
            }
        }
        out.push('"');
    }
}

impl<T: Json> Json for Option<T> {
    fn json(&self, version: i16, out: &mut String) {
        match self {
            Some(value) => value.json(version, out),
            None => out.push_str("null"),
        }
    }
}

impl<T: Json> Json for Vec<T> {
    fn json(&self, version: i16, out: &mut String) {
        out.push('[');
        for (index, item) in self.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            item.json(version, out);
        }
        out.push(']');
    }
}

/// Appends one field of an object whose `{` is already there.
pub(crate) fn field(name: &str, value: &impl Json, version: i16, out: &mut String) {
    if !out.ends_with('{') {
        out.push(',');
    }
    out.push('"');
    let mut word_starts = false;
    for character in name.chars() {
        match character {
            '_' => word_starts = true,
            other if word_starts => {
                out.push(other.to_ascii_uppercase());
                word_starts = false;
            }
            other => out.push(other),
        }
    }
    out.push_str("\":");
    value.json(version, out);
}

fn put(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // INVARIANT: writing to a String never fails.
    let written = out.write_fmt(arguments);
    debug_assert!(written.is_ok());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_padded_base64() {
        for (bytes, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            let mut out = String::new();
            Bytes::from_static(bytes.as_bytes()).json(0, &mut out);
            assert_eq!(out, format!("\"{expected}\""));
        }
    }

    #[test]
    fn text_is_escaped() {
        let mut out = String::new();
        "a\"b\\c\n".to_owned().json(0, &mut out);
        assert_eq!(out, r#""a\"b\\c\u000a""#);
    }
}
