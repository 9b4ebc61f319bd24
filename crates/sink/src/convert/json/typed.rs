//! From a JSON tree to values, with a schema or without.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::convert::{ConvertError, base64};
use crate::data::{
    DataError, Decimal, Digits, MILLIS_PER_DAY, Map, Schema, Struct, Type, Value, logical,
};

use super::reader::{Member, Node, Number};
use super::schema::replacement;

/// How JSON becomes values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Whether what would lose something is converted as Java does it, instead of refused.
    pub(super) is_lenient: bool,
    /// Whether a null becomes its schema's default.
    pub(super) replace_null: bool,
}

impl Reading {
    /// The value of a node under a schema, or under none.
    ///
    /// Each level of nesting takes stack: what isn't needed for the way down is in functions of its own,
    /// and loops stand where iterators that collect would be deeper.
    pub(super) fn value(
        self,
        schema: Option<&Schema>,
        node: &Node<'_>,
    ) -> Result<Value, ConvertError> {
        let Some(schema) = schema else {
            return match node {
                Node::Array(nodes) => self.array(None, &mut nodes.iter()),
                Node::Object(members) => self.object(None, members),
                scalar => self.schemaless(scalar),
            };
        };
        match (schema.type_of(), node) {
            (_, Node::Null) => self.null(schema),
            _ if schema.is_logical() => self.scalar(schema, node),
            (Type::Array, Node::Array(nodes)) => self.array(schema.values(), &mut nodes.iter()),
            (Type::Map, _) => self.map(schema, node),
            (Type::Struct, Node::Object(members)) => self.row(schema, members),
            _ => self.scalar(schema, node),
        }
    }

    fn scalar(self, schema: &Schema, node: &Node<'_>) -> Result<Value, ConvertError> {
        match schema.name() {
            Some(logical::DECIMAL) => decimal(schema, node),
            Some(logical::DATE) => {
                int_32(schema, node).map(|days| Value::Date(i64::from(days) * MILLIS_PER_DAY))
            }
            Some(logical::TIME) => {
                let millis = i64::from(int_32(schema, node)?);
                if (0..=MILLIS_PER_DAY).contains(&millis) {
                    Ok(Value::Time(millis))
                } else {
                    Err(ConvertError::loss("time of the day outside of the day"))
                }
            }
            Some(logical::TIMESTAMP) => match node {
                Node::Number(number) if number.is_integral => {
                    self.integer(schema, node).map(Value::Timestamp)
                }
                _ => Err(mismatch(schema, node)),
            },
            _ => self.by_type(schema, node),
        }
    }

    fn null(self, schema: &Schema) -> Result<Value, ConvertError> {
        if let Some(default) = replacement(schema, self.replace_null) {
            return Ok(default.clone());
        }
        if schema.is_optional() {
            return Ok(Value::Null);
        }
        Err(ConvertError::Data(DataError::Null {
            type_of: schema.type_of(),
            path: String::new(),
        }))
    }

    fn schemaless(self, node: &Node<'_>) -> Result<Value, ConvertError> {
        Ok(match node {
            Node::Missing | Node::Null => Value::Null,
            Node::Boolean(value) => Value::Boolean(*value),
            Node::Number(number) if number.is_integral => Value::Int64(self.integer_of(*number)?),
            Node::Number(number) => Value::Float64(self.double_of(*number)?),
            Node::Text(text) => Value::String(Arc::from(&**text)),
            Node::Array(_) | Node::Object(_) => return self.value(None, node),
        })
    }

    fn by_type(self, schema: &Schema, node: &Node<'_>) -> Result<Value, ConvertError> {
        Ok(match schema.type_of() {
            Type::Boolean => match node {
                Node::Boolean(value) => Value::Boolean(*value),
                _ => self.lenient(schema, node, Value::Boolean(false))?,
            },
            Type::Int8 => Value::Int8(self.narrow(schema, node, |value| value as i8)?),
            Type::Int16 => Value::Int16(self.narrow(schema, node, |value| value as i16)?),
            Type::Int32 => Value::Int32(self.narrow(schema, node, |value| value as i32)?),
            Type::Int64 => Value::Int64(self.integer(schema, node)?),
            Type::Float32 => match node {
                Node::Number(number) => Value::Float32(self.float_of(*number)?),
                _ => self.lenient(schema, node, Value::Float32(0.0))?,
            },
            Type::Float64 => match node {
                Node::Number(number) => Value::Float64(self.double_of(*number)?),
                _ => self.lenient(schema, node, Value::Float64(0.0))?,
            },
            Type::String => match node {
                Node::Text(text) => Value::String(Arc::from(&**text)),
                _ => self.lenient(schema, node, Value::Null)?,
            },
            Type::Bytes => match node {
                Node::Text(text) => Value::Bytes(decode(text)?),
                _ => self.lenient(schema, node, Value::Null)?,
            },
            Type::Array => match node {
                Node::Object(members) if self.is_lenient => {
                    let mut nodes = members.iter().map(|member| &member.1);
                    self.array(schema.values(), &mut nodes)?
                }
                _ => self.lenient(schema, node, Value::Array(Arc::default()))?,
            },
            Type::Map | Type::Struct => return Err(mismatch(schema, node)),
        })
    }

    /// What Java makes of a node of the wrong kind.
    fn lenient(
        self,
        schema: &Schema,
        node: &Node<'_>,
        value: Value,
    ) -> Result<Value, ConvertError> {
        if self.is_lenient {
            Ok(value)
        } else {
            Err(mismatch(schema, node))
        }
    }

    fn narrow<T>(
        self,
        schema: &Schema,
        node: &Node<'_>,
        cut: fn(i64) -> T,
    ) -> Result<T, ConvertError>
    where
        T: Copy + TryFrom<i64> + Into<i64>,
    {
        let value = self.integer(schema, node)?;
        let narrow = cut(value);
        if self.is_lenient || narrow.into() == value {
            Ok(narrow)
        } else {
            Err(too_large(schema.type_of()))
        }
    }

    fn integer(self, schema: &Schema, node: &Node<'_>) -> Result<i64, ConvertError> {
        match node {
            Node::Number(number) => self.integer_of(*number),
            _ if self.is_lenient => Ok(0),
            _ => Err(mismatch(schema, node)),
        }
    }

    fn integer_of(self, number: Number<'_>) -> Result<i64, ConvertError> {
        if let Some(value) = number.small_integer() {
            return Ok(value);
        }
        let digits = number.digits()?;
        match digits.exact_integer() {
            Some(value) => Ok(value),
            None if self.is_lenient => Ok(digits.wrapped_integer()),
            None => Err(too_large(Type::Int64)),
        }
    }

    fn float_of(self, number: Number<'_>) -> Result<f32, ConvertError> {
        if let Some(value) = number.plain_float() {
            return Ok(value);
        }
        let digits = number.digits()?;
        if self.is_negative_zero(number, &digits) {
            return Ok(-0.0);
        }
        let value = digits.to_f32();
        let is_lost = value.is_infinite() || value == 0.0 && !digits.is_zero();
        self.unless_lost(is_lost, value, Type::Float32)
    }

    fn double_of(self, number: Number<'_>) -> Result<f64, ConvertError> {
        if let Some(value) = number.plain_float() {
            return Ok(value);
        }
        let digits = number.digits()?;
        if self.is_negative_zero(number, &digits) {
            return Ok(-0.0);
        }
        let value = digits.to_f64();
        let is_lost = value.is_infinite() || value == 0.0 && !digits.is_zero();
        self.unless_lost(is_lost, value, Type::Float64)
    }

    /// Java reads by way of BigDecimal, whose zero has no sign.
    fn is_negative_zero(self, number: Number<'_>, digits: &Digits) -> bool {
        !self.is_lenient && digits.is_zero() && number.is_negative()
    }

    fn unless_lost<T>(self, is_lost: bool, value: T, type_of: Type) -> Result<T, ConvertError> {
        if is_lost && !self.is_lenient {
            return Err(ConvertError::loss(format!(
                "number out of the range of {type_of}"
            )));
        }
        Ok(value)
    }

    fn array<'n, 'a: 'n>(
        self,
        items: Option<&Schema>,
        nodes: &mut dyn Iterator<Item = &'n Node<'a>>,
    ) -> Result<Value, ConvertError> {
        let mut values = Vec::new();
        for node in nodes {
            match self.value(items, node) {
                Ok(value) => values.push(value),
                Err(error) => return Err(error.within("[]")),
            }
        }
        Ok(Value::Array(Arc::from(values)))
    }

    /// A map with texts as keys.
    fn object(
        self,
        values: Option<&Schema>,
        members: &[Member<'_>],
    ) -> Result<Value, ConvertError> {
        let mut entries = Vec::with_capacity(members.len());
        for (name, node) in members {
            match self.value(values, node) {
                Ok(value) => entries.push((Value::from(&**name), value)),
                Err(error) => return Err(error.within(name)),
            }
        }
        Ok(Value::Map(entries.into_iter().collect()))
    }

    /// With texts as keys an object, with others an array of pairs.
    fn map(self, schema: &Schema, node: &Node<'_>) -> Result<Value, ConvertError> {
        let has_text_keys = schema
            .keys()
            .is_none_or(|keys| keys.type_of() == Type::String);
        match node {
            Node::Object(members) if has_text_keys => self.object(schema.values(), members),
            Node::Array(pairs) if !has_text_keys => self.pairs(schema, pairs),
            _ => Err(mismatch(schema, node)),
        }
    }

    fn pairs(self, schema: &Schema, pairs: &[Node<'_>]) -> Result<Value, ConvertError> {
        let mut entries = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let Node::Array(pair) = pair else {
                return Err(not_a_pair());
            };
            let [key, value] = &pair[..] else {
                return Err(not_a_pair());
            };
            let key = self.value(schema.keys(), key);
            match key.and_then(|key| Ok((key, self.value(schema.values(), value)?))) {
                Ok(entry) => entries.push(entry),
                Err(error) => return Err(error.within("[]")),
            }
        }
        self.unlike(entries).map(Value::Map)
    }

    fn unlike(self, entries: Vec<(Value, Value)>) -> Result<Map, ConvertError> {
        let count = entries.len();
        let map: Map = entries.into_iter().collect();
        if map.len() < count && !self.is_lenient {
            return Err(ConvertError::loss("two entries of a map have the same key"));
        }
        Ok(map)
    }

    fn row(self, schema: &Schema, members: &[Member<'_>]) -> Result<Value, ConvertError> {
        let mut nodes = Finder::new(members);
        let mut found = 0;
        let mut values = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            let node = nodes.find(field.name());
            found += usize::from(node.is_some());
            match self.value(Some(field.schema()), node.unwrap_or(&Node::Null)) {
                Ok(value) => values.push(value),
                Err(error) => return Err(error.within(field.name())),
            }
        }
        if found < members.len() && !self.is_lenient {
            let count = members.len() - found;
            return Err(ConvertError::loss(format!(
                "{count} members that the schema has no field for"
            )));
        }
        Ok(Value::Struct(Struct::new(schema.clone(), values)?))
    }
}

/// Finds members, unlike each other, by their names: most rows have them in their schema's order.
struct Finder<'n, 'a> {
    members: &'n [Member<'a>],
    /// Behind the one that was found last.
    next: usize,
    /// Made for the first one that isn't next.
    places: Option<HashMap<&'n str, usize>>,
}

impl<'n, 'a> Finder<'n, 'a> {
    const fn new(members: &'n [Member<'a>]) -> Self {
        Self {
            members,
            next: 0,
            places: None,
        }
    }

    fn find(&mut self, name: &str) -> Option<&'n Node<'a>> {
        let members = self.members;
        let is_next = |member: &&Member<'_>| member.0 == name;
        let place = match members.get(self.next).filter(is_next) {
            Some(_) => self.next,
            None => {
                let names = members.iter().enumerate();
                let places = || names.map(|(place, (name, _))| (&**name, place)).collect();
                *self.places.get_or_insert_with(places).get(name)?
            }
        };
        self.next = place + 1;
        members.get(place).map(|member| &member.1)
    }
}

/// A number keeps the digits that it has; bytes have the scale of their schema.
fn decimal(schema: &Schema, node: &Node<'_>) -> Result<Value, ConvertError> {
    let decimal = match node {
        Node::Number(number) => number.digits()?.decimal(),
        Node::Text(text) => {
            let scale = schema.scale();
            let scale = scale.ok_or_else(|| ConvertError::loss("a decimal without a scale"))?;
            let unscaled = decode(text)?;
            if unscaled.len() > DECIMAL_BYTES_MAX {
                return Err(ConvertError::loss("a decimal of more than 4096 bytes"));
            }
            Decimal::from_unscaled(unscaled, scale)
        }
        _ => return Err(mismatch(schema, node)),
    };
    let decimal = decimal.ok_or_else(|| ConvertError::loss("a decimal without bytes"))?;
    Ok(Value::Decimal(decimal))
}

/// Days and times of the day: a number of 32 bits, neither cut nor wrapped in any mode.
fn int_32(schema: &Schema, node: &Node<'_>) -> Result<i32, ConvertError> {
    let Node::Number(number) = node else {
        return Err(mismatch(schema, node));
    };
    let value = number
        .small_integer()
        .and_then(|value| i32::try_from(value).ok());
    value.ok_or_else(|| too_large(Type::Int32))
}

fn decode(text: &str) -> Result<Bytes, ConvertError> {
    let bytes = base64::decode(text);
    bytes
        .map(Bytes::from)
        .ok_or_else(|| ConvertError::loss("malformed base64"))
}

fn mismatch(schema: &Schema, node: &Node<'_>) -> ConvertError {
    ConvertError::Data(DataError::Mismatch {
        expected: schema.shown_type().to_owned(),
        found: node.kind(),
        path: String::new(),
    })
}

fn not_a_pair() -> ConvertError {
    ConvertError::loss("an entry of a map that isn't a pair")
}

fn too_large(type_of: Type) -> ConvertError {
    ConvertError::loss(format!("number that isn't one of {type_of}"))
}

/// Longest unscaled value of a decimal: about 9,800 digits. Writing one out takes time by the square of
/// its length.
const DECIMAL_BYTES_MAX: usize = 4096;
