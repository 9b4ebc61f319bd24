//! Connect's values as JSON, for people and for tools that read lines.

use sharegroup_sink::data::Value;

/// Appends a value: numbers as they are, decimals with all of their digits; dates and times in
/// ISO 8601, UTC; a map as an object, or as an array of pairs where a key isn't text. Bytes are text
/// where they are UTF-8, else `{"base64":"…"}`. `NaN` and the infinities, which JSON has no numbers for,
/// are text.
pub(crate) fn value(value: &Value, line: &mut Vec<u8>) {
    match value {
        Value::Boolean(true) => line.extend_from_slice(b"true"),
        Value::Boolean(false) => line.extend_from_slice(b"false"),
        Value::Int8(number) => integer(i64::from(*number), line),
        Value::Int16(number) => integer(i64::from(*number), line),
        Value::Int32(number) => integer(i64::from(*number), line),
        Value::Int64(number) => integer(*number, line),
        Value::Float32(number) if number.is_finite() => {
            written(serde_json::to_writer(line, number));
        }
        Value::Float64(number) if number.is_finite() => {
            written(serde_json::to_writer(line, number));
        }
        Value::Float32(number) => text(infinite(f64::from(*number)), line),
        Value::Float64(number) => text(infinite(*number), line),
        Value::Decimal(number) => line.extend_from_slice(number.to_string().as_bytes()),
        Value::Date(millis) => text(&date(*millis), line),
        Value::Time(millis) => text(&time(*millis), line),
        Value::Timestamp(millis) => {
            text(&format!("{}T{}Z", date(*millis), time(*millis)), line);
        }
        Value::String(string) => text(string, line),
        Value::Bytes(raw) => bytes(Some(raw), line),
        Value::Array(values) => {
            let write = |value: &Value, line: &mut Vec<u8>| self::value(value, line);
            list(b"[]", values.iter(), line, write);
        }
        Value::Map(map) if map.iter().all(|(key, _)| matches!(key, Value::String(_))) => {
            list(b"{}", map.iter(), line, |(key, value), line| {
                member(key, value, b':', line)
            });
        }
        Value::Map(map) => {
            list(b"[]", map.iter(), line, |(key, value), line| {
                line.push(b'[');
                member(key, value, b',', line);
                line.push(b']');
            });
        }
        Value::Struct(row) => {
            let fields = row.schema().fields().iter().zip(row.values());
            list(b"{}", fields, line, |(field, value), line| {
                text(field.name(), line);
                line.push(b':');
                self::value(value, line);
            });
        }
        // Null; kinds that are new here have no form yet.
        _ => line.extend_from_slice(b"null"),
    }
}

/// As Java writes what isn't finite.
fn infinite(number: f64) -> &'static str {
    match number {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    }
}

fn member(key: &Value, value: &Value, between: u8, line: &mut Vec<u8>) {
    self::value(key, line);
    line.push(between);
    self::value(value, line);
}

fn list<T>(
    brackets: &[u8; 2],
    items: impl Iterator<Item = T>,
    line: &mut Vec<u8>,
    write: impl Fn(T, &mut Vec<u8>),
) {
    line.push(brackets[0]);
    for (index, item) in items.enumerate() {
        if index > 0 {
            line.push(b',');
        }
        write(item, line);
    }
    line.push(brackets[1]);
}

/// Appends bytes as text, or in base64 where they aren't UTF-8.
pub(crate) fn bytes(bytes: Option<&[u8]>, line: &mut Vec<u8>) {
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

pub(crate) fn text(text: &str, line: &mut Vec<u8>) {
    written(serde_json::to_writer(line, text));
}

pub(crate) fn integer(number: i64, line: &mut Vec<u8>) {
    written(serde_json::to_writer(line, &number));
}

fn written(written: serde_json::Result<()>) {
    // INVARIANT: neither writing to memory nor a string or a number can fail.
    debug_assert!(written.is_ok());
}

/// The day of a moment, in the Gregorian calendar, also before there was one (ISO 8601).
fn date(millis: i64) -> String {
    // Days since 0000-03-01, in eras of 400 years: leap days end a year that begins in March.
    let days = millis.div_euclid(MILLIS_PER_DAY) + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

fn time(millis: i64) -> String {
    let of_day = millis.rem_euclid(MILLIS_PER_DAY);
    let (seconds, fraction) = (of_day / 1000, of_day % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hour:02}:{minute:02}:{second:02}.{fraction:03}")
}

const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1000;

/// Standard base64 with padding (RFC 4648, section 4).
pub(crate) fn base64(bytes: &[u8], line: &mut Vec<u8>) {
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
    use sharegroup_sink::data::{Decimal, Map};

    use super::*;

    fn shown(value: &Value) -> String {
        let mut line = Vec::new();
        super::value(value, &mut line);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn b_086_numbers_keep_all_of_their_digits() {
        let decimal = Decimal::parse("-12345678901234567890.10").unwrap();
        for (value, text) in [
            (Value::Decimal(decimal), "-12345678901234567890.10"),
            (Value::Int64(i64::MIN), "-9223372036854775808"),
            (Value::Float32(1.1), "1.1"),
            (Value::Float64(f64::NAN), "\"NaN\""),
            (Value::Float64(f64::NEG_INFINITY), "\"-Infinity\""),
        ] {
            assert_eq!(shown(&value), text);
        }
    }

    #[test]
    fn b_087_moments_are_not_shifted() {
        for (value, text) in [
            (
                Value::Timestamp(-30_582_511_138_000),
                "1000-11-17T18:01:02.000Z",
            ),
            (
                Value::Timestamp(1_690_825_888_386),
                "2023-07-31T17:51:28.386Z",
            ),
            (Value::Timestamp(-1), "1969-12-31T23:59:59.999Z"),
            (Value::Date(1_709_164_800_000), "2024-02-29"),
            (Value::Time(45_296_789), "12:34:56.789"),
        ] {
            assert_eq!(shown(&value), format!("\"{text}\""));
        }
        // The ends of the type.
        for millis in [i64::MIN, i64::MAX] {
            assert!(shown(&Value::Timestamp(millis)).ends_with("Z\""));
        }
    }

    #[test]
    fn a_map_with_keys_that_are_not_text_is_an_array_of_pairs() {
        let map = |key| Map::from_iter([(key, Value::Boolean(true))]);
        assert_eq!(shown(&Value::Map(map(Value::from("a")))), r#"{"a":true}"#);
        assert_eq!(shown(&Value::Map(map(Value::Int8(1)))), "[[1,true]]");
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
