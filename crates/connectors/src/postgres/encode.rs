//! Values in PostgreSQL's binary form, written straight into a request.

use std::fmt::Write as _;

use bytes::{BufMut, BytesMut};
use sharegroup_sink::data::{Schema, Type, Value, logical};

use super::numeric;
use super::table::Kind;
use crate::json;

/// What a field's values are, by its schema or, without one, by the value itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    Null,
    Boolean,
    Integer,
    Float,
    Decimal,
    Text,
    /// Text of a value without a schema.
    PlainText,
    /// Text that is a JSON document, a moment with its zone, or a UUID.
    Readable,
    Bytes,
    Date,
    Time,
    Timestamp,
    /// Integers of Debezium's: days, and times in parts of a second.
    EpochDays,
    TimeOfDay(Unit),
    Epoch(Unit),
    List,
    Fields,
}

/// Part of a second that an integer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Unit {
    Millis,
    Micros,
    Nanos,
}

impl Unit {
    /// Microseconds: what is finer is cut off.
    const fn micros(self, count: i64) -> Option<i64> {
        match self {
            Self::Millis => count.checked_mul(1000),
            Self::Micros => Some(count),
            Self::Nanos => Some(count.div_euclid(1000)),
        }
    }
}

impl Class {
    pub(super) fn of_schema(schema: &Schema) -> Self {
        if let Some(class) = schema.name().and_then(Self::of_name) {
            return class;
        }
        match schema.type_of() {
            Type::Boolean => Self::Boolean,
            Type::Int8 | Type::Int16 | Type::Int32 | Type::Int64 => Self::Integer,
            Type::Float32 | Type::Float64 => Self::Float,
            Type::String => Self::Text,
            Type::Bytes => Self::Bytes,
            Type::Array => Self::List,
            Type::Map | Type::Struct => Self::Fields,
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            logical::DECIMAL => Self::Decimal,
            logical::DATE => Self::Date,
            logical::TIME => Self::Time,
            logical::TIMESTAMP => Self::Timestamp,
            "io.debezium.time.Date" => Self::EpochDays,
            "io.debezium.time.Time" => Self::TimeOfDay(Unit::Millis),
            "io.debezium.time.MicroTime" => Self::TimeOfDay(Unit::Micros),
            "io.debezium.time.NanoTime" => Self::TimeOfDay(Unit::Nanos),
            "io.debezium.time.Timestamp" => Self::Epoch(Unit::Millis),
            "io.debezium.time.MicroTimestamp" => Self::Epoch(Unit::Micros),
            "io.debezium.time.NanoTimestamp" => Self::Epoch(Unit::Nanos),
            "io.debezium.time.ZonedTimestamp"
            | "io.debezium.data.Uuid"
            | "io.debezium.data.Json" => Self::Readable,
            _ => return None,
        })
    }

    pub(super) const fn of_value(value: &Value) -> Self {
        match value {
            Value::Boolean(_) => Self::Boolean,
            Value::Int8(_) | Value::Int16(_) | Value::Int32(_) | Value::Int64(_) => Self::Integer,
            Value::Float32(_) | Value::Float64(_) => Self::Float,
            Value::Decimal(_) => Self::Decimal,
            Value::String(_) => Self::PlainText,
            Value::Bytes(_) => Self::Bytes,
            Value::Date(_) => Self::Date,
            Value::Time(_) => Self::Time,
            Value::Timestamp(_) => Self::Timestamp,
            Value::Array(_) => Self::List,
            Value::Map(_) | Value::Struct(_) => Self::Fields,
            _ => Self::Null,
        }
    }
}

/// How a value goes into a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// In the column's own binary form.
    Binary,
    /// As text that the database reads as the column's type.
    Text,
}

/// How values of a class go into a column of a kind; `None` = not at all.
pub(super) const fn form(class: Class, kind: Kind) -> Option<Form> {
    use Class as C;
    Some(match (kind, class) {
        (Kind::Other, _) => Form::Text,
        (_, C::Null) | (Kind::Text | Kind::Json | Kind::Jsonb, _) => Form::Binary,
        (Kind::Bool, C::Boolean)
        | (Kind::Int2 | Kind::Int4 | Kind::Int8, C::Integer | C::Float | C::Decimal)
        | (Kind::Float4 | Kind::Float8, C::Integer | C::Float | C::Decimal)
        | (Kind::Numeric, C::Integer | C::Float | C::Decimal)
        | (Kind::Bytea | Kind::Uuid, C::Bytes)
        | (Kind::Date, C::Date | C::EpochDays)
        | (Kind::Time, C::Time | C::TimeOfDay(_))
        | (
            Kind::Timestamp | Kind::TimestampTz,
            C::Date | C::EpochDays | C::Timestamp | C::Epoch(_),
        ) => Form::Binary,
        // Raw counts into columns of numbers, as they are.
        (Kind::Int4 | Kind::Int8 | Kind::Numeric, C::EpochDays | C::TimeOfDay(_) | C::Epoch(_)) => {
            Form::Binary
        }
        (_, C::Text | C::PlainText | C::Readable) => Form::Text,
        _ => return None,
    })
}

/// Why a value doesn't go into its column; ends a sentence that names the column.
pub(super) type Misfit = String;

/// Appends a field: its length and its bytes, or that it is null.
pub(super) fn put(
    value: &Value,
    class: Class,
    kind: Kind,
    form: Form,
    out: &mut BytesMut,
) -> Result<(), Misfit> {
    if value.is_null() {
        out.put_i32(-1);
        return Ok(());
    }
    let start = out.len();
    out.put_i32(0);
    match form {
        Form::Text => put_text(value, class, kind, out)?,
        Form::Binary => put_binary(value, class, kind, out)?,
    }
    set_length(start, out)
}

/// Appends bytes that are in their binary form already.
pub(super) fn put_bytes(bytes: &[u8], out: &mut BytesMut) -> Result<(), Misfit> {
    let length = i32::try_from(bytes.len()).map_err(|_| too_long())?;
    out.put_i32(length);
    out.put_slice(bytes);
    Ok(())
}

/// Writes the length of what follows it.
fn set_length(start: usize, out: &mut BytesMut) -> Result<(), Misfit> {
    let length = out.len() - start - 4;
    let length = i32::try_from(length).map_err(|_| too_long())?;
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

fn too_long() -> Misfit {
    "holds more than 2 GiB".to_owned()
}

fn misfit(value: &Value, kind: Kind) -> Misfit {
    format!(
        "has the type {}, which doesn't take this {}",
        kind.parameter().0,
        value.type_name()
    )
}

fn put_binary(value: &Value, class: Class, kind: Kind, out: &mut BytesMut) -> Result<(), Misfit> {
    let wrong = || misfit(value, kind);
    match kind {
        Kind::Bool => match value {
            Value::Boolean(flag) => out.put_u8(u8::from(*flag)),
            _ => return Err(wrong()),
        },
        Kind::Int2 => out.put_i16(narrow(value, kind)?),
        Kind::Int4 => out.put_i32(narrow(value, kind)?),
        Kind::Int8 => out.put_i64(narrow(value, kind)?),
        Kind::Float4 => out.put_f32(float4(value).ok_or_else(wrong)?),
        Kind::Float8 => out.put_f64(float8(value).ok_or_else(wrong)?),
        Kind::Numeric => put_numeric(value, out).ok_or_else(wrong)?,
        Kind::Text | Kind::Other => put_text(value, class, kind, out)?,
        Kind::Bytea => match value {
            Value::Bytes(bytes) => out.put_slice(bytes),
            _ => return Err(wrong()),
        },
        Kind::Uuid => match value {
            Value::Bytes(bytes) if bytes.len() == 16 => out.put_slice(bytes),
            _ => return Err(wrong()),
        },
        Kind::Date => out.put_i32(days(value, class).ok_or_else(wrong)?),
        Kind::Time => out.put_i64(time(value, class).ok_or_else(wrong)?),
        Kind::Timestamp | Kind::TimestampTz => out.put_i64(moment(value, class).ok_or_else(wrong)?),
        Kind::Json => put_json(value, class, out)?,
        Kind::Jsonb => {
            out.put_u8(JSONB_VERSION);
            put_json(value, class, out)?;
        }
    }
    Ok(())
}

fn integer(value: &Value) -> Option<i64> {
    Some(match value {
        Value::Int8(number) => i64::from(*number),
        Value::Int16(number) => i64::from(*number),
        Value::Int32(number) => i64::from(*number),
        Value::Int64(number) => *number,
        _ => return None,
    })
}

/// A whole number that fits, whatever its type was.
fn narrow<T: TryFrom<i64>>(value: &Value, kind: Kind) -> Result<T, Misfit> {
    let number = match value {
        Value::Float32(_) | Value::Float64(_) => float8(value).and_then(whole),
        Value::Decimal(decimal) => decimal.to_string().parse().ok(),
        _ => integer(value),
    };
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| {
        format!(
            "has the type {}, which doesn't hold this number",
            kind.parameter().0
        )
    })
}

/// A float that is a whole number, and surely the one that was meant.
fn whole(number: f64) -> Option<i64> {
    let exact = number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0;
    // INVARIANT: within 2^53, so nothing is cut off.
    exact.then_some(number as i64)
}

fn float4(value: &Value) -> Option<f32> {
    match value {
        Value::Float32(number) => Some(*number),
        // As PostgreSQL does: the nearest, but none that is too large.
        value => {
            let number = float8(value)?;
            let near = number as f32;
            (near.is_finite() || !number.is_finite()).then_some(near)
        }
    }
}

fn float8(value: &Value) -> Option<f64> {
    match value {
        Value::Float32(number) => Some(f64::from(*number)),
        Value::Float64(number) => Some(*number),
        Value::Decimal(decimal) => decimal.to_string().parse().ok(),
        value => integer(value).map(|number| number as f64),
    }
}

fn put_numeric(value: &Value, out: &mut BytesMut) -> Option<()> {
    match value {
        Value::Decimal(decimal) => numeric::put_decimal(decimal, out),
        Value::Float32(number) if number.is_nan() => numeric::put_nan(out),
        Value::Float64(number) if number.is_nan() => numeric::put_nan(out),
        Value::Float32(number) => put_shortest(&number.to_string(), out),
        Value::Float64(number) => put_shortest(&number.to_string(), out),
        value => numeric::put_integer(integer(value)?, out),
    }
}

/// The shortest decimal that is read back as the same float.
fn put_shortest(text: &str, out: &mut BytesMut) -> Option<()> {
    numeric::put_decimal(&sharegroup_sink::data::Decimal::parse(text)?, out)
}

/// Days since 2000-01-01.
fn days(value: &Value, class: Class) -> Option<i32> {
    let days = match (class, value) {
        (Class::EpochDays, value) => integer(value)?,
        (_, Value::Date(millis)) => millis.div_euclid(MILLIS_PER_DAY),
        _ => return None,
    };
    i32::try_from(days.checked_sub(DAYS_TO_2000)?).ok()
}

/// Microseconds since midnight.
fn time(value: &Value, class: Class) -> Option<i64> {
    let micros = match (class, value) {
        (Class::TimeOfDay(unit), value) => unit.micros(integer(value)?)?,
        (_, Value::Time(millis)) => Unit::Millis.micros(*millis)?,
        _ => return None,
    };
    (0..=MILLIS_PER_DAY * 1000)
        .contains(&micros)
        .then_some(micros)
}

/// Microseconds since 2000-01-01 UTC.
fn moment(value: &Value, class: Class) -> Option<i64> {
    let micros = match (class, value) {
        (Class::Epoch(unit), value) => unit.micros(integer(value)?)?,
        (Class::EpochDays, value) => {
            Unit::Millis.micros(integer(value)?.checked_mul(MILLIS_PER_DAY)?)?
        }
        (_, Value::Timestamp(millis) | Value::Date(millis)) => Unit::Millis.micros(*millis)?,
        _ => return None,
    };
    // The two ends stand for the infinities.
    let micros = micros.checked_sub(DAYS_TO_2000 * MILLIS_PER_DAY * 1000)?;
    (micros != i64::MIN && micros != i64::MAX).then_some(micros)
}

/// Text with a schema, and bytes, are taken for JSON documents; all else is written as one.
fn put_json(value: &Value, class: Class, out: &mut BytesMut) -> Result<(), Misfit> {
    match value {
        Value::String(text) if class != Class::PlainText => put_str(text, out),
        Value::Bytes(bytes) => {
            out.put_slice(bytes);
            Ok(())
        }
        value => {
            let mut line = Vec::new();
            json::value(value, &mut line);
            out.put_slice(&line);
            Ok(())
        }
    }
}

/// A value as text: for a column of text as people read it, for others as the database does.
fn put_text(value: &Value, class: Class, kind: Kind, out: &mut BytesMut) -> Result<(), Misfit> {
    match value {
        Value::String(text) => put_str(text, out),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => put_str(text, out),
            Err(_) => Err(misfit(value, kind)),
        },
        Value::Boolean(flag) => put_str(if *flag { "true" } else { "false" }, out),
        Value::Decimal(number) => put_display(number, out),
        Value::Array(items) if kind == Kind::Other => put_array(items, out),
        value if kind == Kind::Other && needs_date(class) => Err(misfit(value, kind)),
        value => {
            let mut line = Vec::new();
            json::value(value, &mut line);
            // Dates, times and floats without a number stand in quotes.
            let plain = line
                .strip_prefix(b"\"")
                .and_then(|line| line.strip_suffix(b"\""));
            out.put_slice(plain.unwrap_or(&line));
            Ok(())
        }
    }
}

/// Counts that only a column of time knows how to read.
const fn needs_date(class: Class) -> bool {
    matches!(
        class,
        Class::EpochDays | Class::TimeOfDay(_) | Class::Epoch(_)
    )
}

fn put_display(value: &impl std::fmt::Display, out: &mut BytesMut) -> Result<(), Misfit> {
    // INVARIANT: nothing to write to can fail here.
    write!(out, "{value}").map_err(|_| too_long())
}

/// A literal of an array: `{"a",NULL,{1,2}}`.
fn put_array(items: &[Value], out: &mut BytesMut) -> Result<(), Misfit> {
    out.put_u8(b'{');
    for (number, item) in items.iter().enumerate() {
        if number > 0 {
            out.put_u8(b',');
        }
        match item {
            Value::Null => out.put_slice(b"NULL"),
            Value::Array(items) => put_array(items, out)?,
            item => {
                let mut text = BytesMut::new();
                put_text(item, Class::of_value(item), Kind::Other, &mut text)?;
                out.put_u8(b'"');
                for byte in text {
                    if matches!(byte, b'"' | b'\\') {
                        out.put_u8(b'\\');
                    }
                    out.put_u8(byte);
                }
                out.put_u8(b'"');
            }
        }
    }
    out.put_u8(b'}');
    Ok(())
}

/// PostgreSQL's text holds every character but the zero byte.
fn put_str(text: &str, out: &mut BytesMut) -> Result<(), Misfit> {
    if text.as_bytes().contains(&0) {
        return Err("can't hold text with a zero byte".to_owned());
    }
    out.put_slice(text.as_bytes());
    Ok(())
}

const JSONB_VERSION: u8 = 1;
const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1000;
/// From 1970-01-01 to 2000-01-01.
const DAYS_TO_2000: i64 = 10_957;
