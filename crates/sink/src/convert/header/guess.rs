//! Guesses what a text means, by the rules of Connect's `Values.parseString`.

use std::sync::Arc;

use super::date;
use crate::data::{
    Digits, MILLIS_PER_DAY, Map, Schema, SchemaAndValue, Type, Value, digit_value, logical,
};

/// The value that a text stands for; `string` is the schema of strings.
pub(super) fn guess(text: &str, string: &Schema) -> SchemaAndValue {
    let whole = || SchemaAndValue::new(string.clone(), Value::from(text));
    if text.is_empty() {
        return whole();
    }
    let mut guess = Guess {
        tokens: Tokens::of(text),
        string,
        depth: 0,
    };
    guess.value(false).unwrap_or_else(|_| whole())
}

/// What was tried isn't what the text is; the caller tries another thing.
#[derive(Debug)]
struct Refused;

struct Guess<'a> {
    tokens: Tokens<'a>,
    string: &'a Schema,
    depth: usize,
}

impl Guess<'_> {
    /// The next value; null without a schema is null, or the text's end. Embedded means within a list
    /// or a map, where the value's end is theirs to find.
    fn value(&mut self, is_embedded: bool) -> Result<SchemaAndValue, Refused> {
        if !self.tokens.has_next() {
            return Ok(SchemaAndValue::default());
        }
        if is_embedded && self.tokens.consume("\"") {
            return Ok(self.quoted());
        }
        if self.word("null", is_embedded) {
            return Ok(SchemaAndValue::default());
        }
        for (word, value) in [("true", true), ("false", false)] {
            if self.word(word, is_embedded) {
                let schema = Schema::required(Type::Boolean);
                return Ok(SchemaAndValue::new(schema, Value::Boolean(value)));
            }
        }
        let start = self.tokens.mark();
        match self.collection() {
            Ok(Some(collection)) => return Ok(collection),
            Ok(None) => {}
            Err(Refused) => self.tokens.rewind(start),
        }
        let token = self.tokens.next();
        if is_blank(token) {
            return Ok(SchemaAndValue::new(self.string.clone(), Value::from(token)));
        }
        if let Some(scalar) = self.scalar(trim(token)) {
            return Ok(scalar);
        }
        if is_embedded {
            return Err(Refused);
        }
        let whole = Value::from(self.tokens.text);
        Ok(SchemaAndValue::new(self.string.clone(), whole))
    }

    /// Consumes a word. At the top it must be the only one: `true}` is a string.
    fn word(&mut self, word: &str, is_embedded: bool) -> bool {
        let start = self.tokens.mark();
        if self.tokens.consume(word) && (is_embedded || !self.tokens.has_next()) {
            return true;
        }
        self.tokens.rewind(start);
        false
    }

    /// Up to the closing quote. Dates and times may be quoted, all else is a string.
    fn quoted(&mut self) -> SchemaAndValue {
        let mut content = String::new();
        while self.tokens.has_next() && !self.tokens.consume("\"") {
            content.push_str(self.tokens.next());
        }
        date::parse(&content)
            .unwrap_or_else(|| SchemaAndValue::new(self.string.clone(), Value::from(&*content)))
    }

    fn collection(&mut self) -> Result<Option<SchemaAndValue>, Refused> {
        let read = if self.tokens.consume("[") {
            Self::array
        } else if self.tokens.consume("{") {
            Self::map
        } else {
            return Ok(None);
        };
        if self.depth == DEPTH_MAX {
            return Err(Refused);
        }
        self.depth += 1;
        let collection = read(self);
        self.depth -= 1;
        collection.map(Some)
    }

    fn array(&mut self) -> Result<SchemaAndValue, Refused> {
        let mut values = Vec::new();
        let mut items = CommonSchema::default();
        while self.tokens.has_next() {
            if self.tokens.consume("]") {
                let items = items.schema;
                let values = values.into_iter().map(|value| align(items.as_ref(), value));
                let values: Result<Vec<Value>, Refused> = values.collect();
                let builder = Schema::builder(Type::Array);
                let builder = match items {
                    Some(items) => builder.values(items),
                    None => builder,
                };
                let schema = builder.build().map_err(|_| Refused)?;
                return Ok(SchemaAndValue::new(
                    schema,
                    Value::Array(Arc::from(values?)),
                ));
            }
            if self.tokens.consume(",") {
                return Err(Refused);
            }
            let element = self.value(true)?;
            items.merge(element.schema);
            values.push(element.value);
            let position = self.tokens.mark();
            if self.tokens.consume("]") {
                self.tokens.rewind(position);
            } else if !self.tokens.consume(",") {
                return Err(Refused);
            }
        }
        Err(Refused)
    }

    fn map(&mut self) -> Result<SchemaAndValue, Refused> {
        let mut entries = Vec::new();
        let mut keys = CommonSchema::default();
        let mut values = CommonSchema::default();
        while self.tokens.has_next() {
            if self.tokens.consume("}") {
                return map_of(entries, keys.schema, values.schema);
            }
            if self.tokens.consume(",") {
                return Err(Refused);
            }
            let key = self.value(true)?;
            if key.value.is_null() || !self.tokens.consume(":") {
                return Err(Refused);
            }
            let value = self.value(true)?;
            // The comma may be left out.
            self.tokens.consume(",");
            keys.merge(key.schema);
            values.merge(value.schema);
            entries.push((key.value, value.value));
        }
        Err(Refused)
    }

    /// A date, a time or a number.
    fn scalar(&mut self, token: &str) -> Option<SchemaAndValue> {
        let first = token.chars().next()?;
        let is_digit = digit_value(first).is_some();
        if is_digit && let Some(temporal) = self.temporal(token) {
            return Some(temporal);
        }
        if is_digit || matches!(first, '+' | '-') {
            return number(token);
        }
        None
    }

    /// A time has two colons, which are tokens: then it goes on for four tokens.
    fn temporal(&mut self, token: &str) -> Option<SchemaAndValue> {
        let position = self.tokens.mark();
        if let Some(rest) = self.tokens.next_four()
            && let Some(temporal) = date::parse(&format!("{token}{rest}"))
        {
            return Some(temporal);
        }
        self.tokens.rewind(position);
        date::parse(token)
    }
}

fn map_of(
    entries: Vec<(Value, Value)>,
    keys: Option<Schema>,
    values: Option<Schema>,
) -> Result<SchemaAndValue, Refused> {
    let builder = Schema::builder(Type::Map);
    let values = values.filter(|_| keys.is_some());
    // The last value of a key counts, so that an earlier one need not fit.
    let entries: Map = entries.into_iter().collect();
    let entry = |(key, value): &(Value, Value)| {
        let key = align(keys.as_ref(), key.clone())?;
        Ok((key, align(values.as_ref(), value.clone())?))
    };
    let map: Result<Map, Refused> = entries.iter().map(entry).collect();
    let map = map?;
    let builder = match keys {
        Some(keys) => builder.keys(keys),
        None => builder,
    };
    let builder = match values {
        Some(values) => builder.values(values),
        None => builder,
    };
    let schema = builder.build().map_err(|_| Refused)?;
    Ok(SchemaAndValue::new(schema, Value::Map(map)))
}

/// Whole numbers in the smallest of the integer types, others as floats, what neither holds as a
/// decimal.
fn number(token: &str) -> Option<SchemaAndValue> {
    let digits = Digits::parse(token)?;
    if let Some(whole) = digits.exact_integer() {
        let (type_of, value) = if let Ok(value) = i8::try_from(whole) {
            (Type::Int8, Value::Int8(value))
        } else if let Ok(value) = i16::try_from(whole) {
            (Type::Int16, Value::Int16(value))
        } else if let Ok(value) = i32::try_from(whole) {
            (Type::Int32, Value::Int32(value))
        } else {
            (Type::Int64, Value::Int64(whole))
        };
        return Some(SchemaAndValue::new(Schema::required(type_of), value));
    }
    if digits.has_scale() {
        let float = digits.to_f32();
        if float.is_finite() {
            return Some(SchemaAndValue::new(
                Schema::required(Type::Float32),
                Value::Float32(float),
            ));
        }
        let double = digits.to_f64();
        if double.is_finite() {
            return Some(SchemaAndValue::new(
                Schema::required(Type::Float64),
                Value::Float64(double),
            ));
        }
    }
    let decimal = digits.decimal()?;
    Some(SchemaAndValue::new(
        Schema::decimal(decimal.scale()),
        Value::Decimal(decimal),
    ))
}

/// The schema that holds all elements, as far as there is one.
#[derive(Debug, Default)]
struct CommonSchema {
    schema: Option<Schema>,
    is_none: bool,
}

impl CommonSchema {
    fn merge(&mut self, latest: Option<Schema>) {
        let Some(latest) = latest.filter(|_| !self.is_none) else {
            return;
        };
        self.schema = match self.schema.take() {
            None => Some(latest),
            Some(known) if known.type_of() == latest.type_of() => Some(latest),
            Some(known) => match (width(known.type_of()), width(latest.type_of())) {
                (Some(a), Some(b)) if a > b => Some(known),
                (Some(_), Some(_)) => Some(latest),
                _ => None,
            },
        };
        self.is_none = self.schema.is_none();
    }
}

/// Each numeric type holds those of less width.
const fn width(type_of: Type) -> Option<u8> {
    Some(match type_of {
        Type::Int8 => 0,
        Type::Int16 => 1,
        Type::Int32 => 2,
        Type::Int64 => 3,
        Type::Float32 => 4,
        Type::Float64 => 5,
        _ => return None,
    })
}

/// An element as one of the common schema. Nulls fit only where there is none.
fn align(schema: Option<&Schema>, value: Value) -> Result<Value, Refused> {
    let Some(schema) = schema else {
        return Ok(value);
    };
    if value.is_null() {
        return Err(Refused);
    }
    match schema.name() {
        Some(logical::DATE) => temporal_of(&value, MILLIS_PER_DAY).map(Value::Date),
        Some(logical::TIME) => {
            let millis = temporal_of(&value, 1)?;
            let is_number = integer_of(&value).is_ok();
            if is_number && !(0..=MILLIS_PER_DAY).contains(&millis) {
                return Err(Refused);
            }
            Ok(Value::Time(millis))
        }
        Some(logical::TIMESTAMP) => temporal_of(&value, 1).map(Value::Timestamp),
        _ => match schema.type_of() {
            Type::Int8 => integer_of(&value).map(|value| Value::Int8(value as i8)),
            Type::Int16 => integer_of(&value).map(|value| Value::Int16(value as i16)),
            Type::Int32 => integer_of(&value).map(|value| Value::Int32(value as i32)),
            Type::Int64 => integer_of(&value).map(Value::Int64),
            Type::Float32 => match value {
                Value::Float32(_) => Ok(value),
                value => integer_of(&value).map(|value| Value::Float32(value as f64 as f32)),
            },
            Type::Float64 => match value {
                Value::Float64(_) => Ok(value),
                Value::Float32(value) => Ok(Value::Float64(value.into())),
                value => integer_of(&value).map(|value| Value::Float64(value as f64)),
            },
            _ => Ok(value),
        },
    }
}

fn integer_of(value: &Value) -> Result<i64, Refused> {
    match value {
        Value::Int8(value) => Ok((*value).into()),
        Value::Int16(value) => Ok((*value).into()),
        Value::Int32(value) => Ok((*value).into()),
        Value::Int64(value) => Ok(*value),
        _ => Err(Refused),
    }
}

fn temporal_of(value: &Value, unit: i64) -> Result<i64, Refused> {
    match value {
        Value::Date(millis) | Value::Time(millis) | Value::Timestamp(millis) => Ok(*millis),
        value => integer_of(value)?.checked_mul(unit).ok_or(Refused),
    }
}

/// The text in pieces: each delimiter that isn't escaped, and what stands between them.
struct Tokens<'a> {
    text: &'a str,
    at: usize,
    /// Looked at, not consumed.
    next: Option<&'a str>,
}

impl<'a> Tokens<'a> {
    const fn of(text: &'a str) -> Self {
        let (at, next) = (0, None);
        Self { text, at, next }
    }

    const fn has_next(&self) -> bool {
        self.next.is_some() || self.at < self.text.len()
    }

    fn mark(&self) -> usize {
        self.at - self.next.map_or(0, str::len)
    }

    const fn rewind(&mut self, position: usize) {
        (self.at, self.next) = (position, None);
    }

    /// The next token; empty at the end.
    fn next(&mut self) -> &'a str {
        self.next.take().unwrap_or_else(|| self.cut())
    }

    /// The text of the next four tokens, or nothing consumed if there are fewer.
    fn next_four(&mut self) -> Option<&'a str> {
        let start = self.mark();
        for _ in 0..4 {
            if !self.has_next() {
                self.rewind(start);
                return None;
            }
            self.next();
        }
        self.text.get(start..self.at)
    }

    /// Consumes the next token that isn't blank, if it is `expected` with blanks around it.
    fn consume(&mut self, expected: &str) -> bool {
        if !self.has_next() {
            return false;
        }
        let mut token = self.next();
        while is_blank(token) && self.at < self.text.len() {
            token = self.cut();
        }
        let is_expected = trim(token) == expected;
        self.next = Some(token).filter(|_| !is_expected);
        is_expected
    }

    fn cut(&mut self) -> &'a str {
        let start = self.at;
        let mut is_escaped = false;
        let rest = self.text.get(start..).unwrap_or_default();
        let end = rest.bytes().position(|byte| {
            let is_delimiter = matches!(byte, b':' | b',' | b'{' | b'}' | b'[' | b']' | b'"');
            let ends = is_delimiter && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        });
        // A delimiter is a token of its own.
        let length = end.map_or(rest.len(), |end| end.max(1));
        self.at = start + length;
        rest.get(..length).unwrap_or_default()
    }
}

/// As Java's `String.trim`.
fn trim(token: &str) -> &str {
    token.trim_matches(|c| c <= ' ')
}

fn is_blank(token: &str) -> bool {
    trim(token).is_empty()
}

/// Lists and maps within each other.
const DEPTH_MAX: usize = 200;
