//! Values.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;

use super::{DataError, Decimal, Schema};

/// A value. Logical types have variants of their own: a date under a schema named
/// [`DATE`](super::logical::DATE) is a [`Value::Date`], not an `Int32`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// No value.
    #[default]
    Null,
    /// True or false.
    Boolean(bool),
    /// 8 bits.
    Int8(i8),
    /// 16 bits.
    Int16(i16),
    /// 32 bits.
    Int32(i32),
    /// 64 bits.
    Int64(i64),
    /// 32 bits of float.
    Float32(f32),
    /// 64 bits of float.
    Float64(f64),
    /// Text.
    String(Arc<str>),
    /// Bytes, mostly a slice of the fetched buffer.
    Bytes(Bytes),
    /// Values in order.
    Array(Arc<[Self]>),
    /// Keys with their values.
    Map(Map),
    /// Fields of a struct.
    Struct(Struct),
    /// A number of any size.
    Decimal(Decimal),
    /// A day, as milliseconds from 1970-01-01 UTC to its beginning.
    Date(i64),
    /// A time of the day, in milliseconds since midnight.
    Time(i64),
    /// A moment, in milliseconds since 1970-01-01 UTC.
    Timestamp(i64),
}

impl Value {
    /// Whether there is none.
    #[must_use]
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Name of its type, for messages: `INT8`, `Decimal`, `null`.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean(_) => "BOOLEAN",
            Self::Int8(_) => "INT8",
            Self::Int16(_) => "INT16",
            Self::Int32(_) => "INT32",
            Self::Int64(_) => "INT64",
            Self::Float32(_) => "FLOAT32",
            Self::Float64(_) => "FLOAT64",
            Self::String(_) => "STRING",
            Self::Bytes(_) => "BYTES",
            Self::Array(_) => "ARRAY",
            Self::Map(_) => "MAP",
            Self::Struct(_) => "STRUCT",
            Self::Decimal(_) => "Decimal",
            Self::Date(_) => "Date",
            Self::Time(_) => "Time",
            Self::Timestamp(_) => "Timestamp",
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(Arc::from(text))
    }
}

/// Entries in the order in which their keys came first; keys are unlike each other. A clone shares
/// them.
#[derive(Clone, Debug, Default)]
pub struct Map(Arc<[(Value, Value)]>);

impl Map {
    /// The entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &(Value, Value)> {
        self.0.iter()
    }

    /// The value of a key, found by going through all.
    #[must_use]
    pub fn get(&self, key: &Value) -> Option<&Value> {
        let entry = self.0.iter().find(|entry| Key(&entry.0) == Key(key))?;
        Some(&entry.1)
    }

    /// Count of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Of entries with the same key the last one's value counts.
impl FromIterator<(Value, Value)> for Map {
    fn from_iter<T: IntoIterator<Item = (Value, Value)>>(entries: T) -> Self {
        let mut entries: Vec<(Value, Value)> = entries.into_iter().collect();
        let mut first = HashMap::with_capacity(entries.len());
        let places: Vec<usize> = entries
            .iter()
            .enumerate()
            .map(|(index, (key, _))| *first.entry(Key(key)).or_insert(index))
            .collect();
        if first.len() < entries.len() {
            drop(first);
            for (index, place) in places.iter().enumerate() {
                if *place < index {
                    // Both exist: `place` is the index of an earlier entry.
                    let value = std::mem::take(&mut entries[index].1);
                    entries[*place].1 = value;
                }
            }
            let mut index = 0..;
            entries.retain(|_| index.next().is_some_and(|index| places[index] == index));
        }
        Self(Arc::from(entries))
    }
}

/// Maps with the same entries are equal, whatever their order.
impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        if self.len() != other.len() {
            return false;
        }
        if self.0.iter().zip(&*other.0).all(|(a, b)| a == b) {
            return true;
        }
        let values: HashMap<_, _> = other
            .0
            .iter()
            .map(|(key, value)| (Key(key), value))
            .collect();
        self.iter()
            .all(|(key, value)| values.get(&Key(key)).is_some_and(|other| *other == value))
    }
}

/// A value as the key of a hash map. Floats are told apart by their bits, as Java does.
#[derive(Clone, Copy, Debug)]
struct Key<'a>(&'a Value);

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self.0, other.0) {
            (Value::Float32(a), Value::Float32(b)) => a.to_bits() == b.to_bits(),
            (Value::Float64(a), Value::Float64(b)) => a.to_bits() == b.to_bits(),
            (a, b) => a == b,
        }
    }
}

impl Eq for Key<'_> {}

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self.0).hash(state);
        match self.0 {
            Value::Boolean(value) => value.hash(state),
            Value::Int8(value) => value.hash(state),
            Value::Int16(value) => value.hash(state),
            Value::Int32(value) => value.hash(state),
            Value::Int64(value)
            | Value::Date(value)
            | Value::Time(value)
            | Value::Timestamp(value) => value.hash(state),
            Value::Float32(value) => value.to_bits().hash(state),
            Value::Float64(value) => value.to_bits().hash(state),
            Value::String(text) => text.hash(state),
            Value::Bytes(bytes) => bytes.hash(state),
            Value::Decimal(decimal) => decimal.hash(state),
            Value::Array(values) => values.iter().for_each(|value| Key(value).hash(state)),
            Value::Struct(row) => row.values.iter().for_each(|value| Key(value).hash(state)),
            // Its order doesn't count: maps as keys meet in few buckets.
            Value::Map(map) => map.len().hash(state),
            Value::Null => {}
        }
    }
}

/// A struct: a value for each field of its schema. A clone shares them.
#[derive(Clone, Debug, PartialEq)]
pub struct Struct {
    schema: Schema,
    values: Arc<[Value]>,
}

impl Struct {
    /// A struct of a schema, with values in the order of its fields.
    ///
    /// # Errors
    /// [`DataError::Schema`]: not a struct's schema, or another number of fields;
    /// [`DataError::Null`] or [`DataError::Mismatch`]: a value that doesn't fit its field.
    pub fn new(schema: Schema, values: Vec<Value>) -> Result<Self, DataError> {
        let type_of = schema.type_of();
        if type_of != super::Type::Struct {
            let reason = "a struct needs the schema of one".to_owned();
            return Err(DataError::Schema { type_of, reason });
        }
        if schema.fields().len() != values.len() {
            let (fields, values) = (schema.fields().len(), values.len());
            let reason = format!("{values} values for {fields} fields");
            return Err(DataError::Schema { type_of, reason });
        }
        for (field, value) in schema.fields().iter().zip(&values) {
            let fits = field.schema().validate(value);
            fits.map_err(|error| error.within(field.name()))?;
        }
        let values = Arc::from(values);
        Ok(Self { schema, values })
    }

    /// The schema.
    #[must_use]
    pub const fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The values in the order of the schema's fields; a null may have a default there.
    #[must_use]
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// A field's value or, where that is null, its default; `None` = no such field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        let index = self.schema.field_index(name)?;
        let value = self.values.get(index)?;
        let default = || self.schema.fields().get(index)?.schema().default();
        Some(if value.is_null() {
            default().unwrap_or(value)
        } else {
            value
        })
    }
}

/// A value with its schema, where there is one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchemaAndValue {
    /// The schema; `None` = the value stands alone.
    pub schema: Option<Schema>,
    /// The value.
    pub value: Value,
}

impl SchemaAndValue {
    /// A value with a schema.
    #[must_use]
    pub const fn new(schema: Schema, value: Value) -> Self {
        Self {
            schema: Some(schema),
            value,
        }
    }

    /// A value alone.
    #[must_use]
    pub const fn schemaless(value: Value) -> Self {
        Self {
            schema: None,
            value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Type;

    fn map(entries: &[(i64, &str)]) -> Map {
        let entry = |(key, value): &(i64, &str)| (Value::Int64(*key), Value::from(*value));
        entries.iter().map(entry).collect()
    }

    #[test]
    fn the_last_of_equal_keys_counts_in_the_place_of_the_first() {
        let map = map(&[(1, "a"), (2, "b"), (1, "c"), (3, "d"), (1, "e")]);
        let entries: Vec<_> = map.iter().cloned().collect();
        assert_eq!(
            entries,
            [
                (Value::Int64(1), Value::from("e")),
                (Value::Int64(2), Value::from("b")),
                (Value::Int64(3), Value::from("d")),
            ]
        );
        assert_eq!(map.get(&Value::Int64(3)), Some(&Value::from("d")));
        assert_eq!(map.get(&Value::Int32(3)), None);
    }

    #[test]
    fn maps_are_equal_in_any_order() {
        assert_eq!(map(&[(1, "a"), (2, "b")]), map(&[(2, "b"), (1, "a")]));
        assert_ne!(map(&[(1, "a"), (2, "b")]), map(&[(2, "a"), (1, "b")]));
        assert_ne!(map(&[(1, "a")]), map(&[(1, "a"), (2, "b")]));
    }

    #[test]
    fn a_struct_gives_the_default_of_a_null_field() {
        let field = Schema::builder(Type::Int32).optional();
        let field = field.default(Value::Int32(9)).build().unwrap();
        let schema = Schema::builder(Type::Struct).field("a", field);
        let schema = schema.build().unwrap();
        let row = Struct::new(schema.clone(), vec![Value::Null]).unwrap();
        assert_eq!(row.get("a"), Some(&Value::Int32(9)));
        assert_eq!(row.values(), [Value::Null]);
        assert_eq!(row.get("b"), None);
        let error = Struct::new(schema.clone(), vec![Value::from("x")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "STRING where the schema has INT32 at `a`"
        );
        assert!(Struct::new(schema, Vec::new()).is_err());
    }
}
