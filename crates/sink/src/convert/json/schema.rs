//! Schemas as JSON, in the form of the Java converter.

use std::borrow::Cow;

use crate::convert::ConvertError;
use crate::data::{Schema, Type, Value};

use super::reader::Node;
use super::typed::Reading;

/// The schema that a JSON value describes; `None` = JSON null: there is none.
///
/// Each level of nesting takes stack: this function is the way down, what it found is put together in
/// others.
pub(super) fn read_schema(reading: Reading, node: &Node<'_>) -> Result<Option<Schema>, Wrong> {
    if matches!(node, Node::Null) {
        return Ok(None);
    }
    let mut parts = Parts {
        type_of: type_of(node)?,
        keys: None,
        values: None,
        fields: Vec::new(),
    };
    match parts.type_of {
        Type::Array => parts.values = read_schema(reading, inner(node, "items")?)?,
        Type::Map => {
            parts.keys = read_schema(reading, inner(node, "keys")?)?;
            parts.values = read_schema(reading, inner(node, "values")?)?;
        }
        Type::Struct => {
            let Some(Node::Array(fields)) = node.member("fields") else {
                return Err(wrong("`fields` of a struct is missing or not an array"));
            };
            for field in fields {
                let schema = read_schema(reading, field)?;
                parts.fields.push((field_name(field)?, schema));
            }
        }
        _ => {}
    }
    whole(reading, node, parts).map(Some)
}

/// A schema's type, and the schemas within.
struct Parts {
    type_of: Type,
    keys: Option<Schema>,
    values: Option<Schema>,
    fields: Vec<(String, Option<Schema>)>,
}

fn type_of(node: &Node<'_>) -> Result<Type, Wrong> {
    let name = node.member("type").and_then(Node::as_text);
    Ok(
        match name.ok_or_else(|| wrong("`type` is missing or not a text"))? {
            "boolean" => Type::Boolean,
            "int8" => Type::Int8,
            "int16" => Type::Int16,
            "int32" => Type::Int32,
            "int64" => Type::Int64,
            "float" => Type::Float32,
            "double" => Type::Float64,
            "bytes" => Type::Bytes,
            "string" => Type::String,
            "array" => Type::Array,
            "map" => Type::Map,
            "struct" => Type::Struct,
            _ => {
                return Err(wrong(
                    "`type` is none of boolean, int8, int16, int32, int64, float, double, bytes, string, array, map, struct",
                ));
            }
        },
    )
}

fn whole(reading: Reading, node: &Node<'_>, parts: Parts) -> Result<Schema, Wrong> {
    let mut builder = Schema::builder(parts.type_of);
    if let Some(keys) = parts.keys {
        builder = builder.keys(keys);
    }
    if let Some(values) = parts.values {
        builder = builder.values(values);
    }
    for (name, schema) in parts.fields {
        let schema = schema.ok_or_else(|| wrong("a field has no schema"))?;
        builder = builder.field(name, schema);
    }
    if let Some(Node::Boolean(true)) = node.member("optional") {
        builder = builder.optional();
    }
    if let Some(name) = node.member("name").and_then(Node::as_text) {
        builder = builder.name(name);
    }
    if let Some(Node::Number(version)) = node.member("version")
        && version.is_integral
    {
        builder = builder.version(
            version
                .digits()
                .map_err(|error| wrong(error.to_string()))?
                .wrapped_integer() as i32,
        );
    }
    if let Some(doc) = node.member("doc").and_then(Node::as_text) {
        builder = builder.doc(doc);
    }
    if let Some(Node::Object(parameters)) = node.member("parameters") {
        for (name, value) in parameters {
            let value = value.as_text();
            let value = value.ok_or_else(|| wrong("a parameter is not a text"))?;
            builder = builder.parameter(&**name, value);
        }
    }
    let schema = builder.build().map_err(|error| wrong(error.to_string()))?;
    let Some(default) = node.member("default") else {
        return Ok(schema);
    };
    let default = reading.value(Some(&schema), default);
    let default = default.map_err(|error| wrong(format!("default: {error}")))?;
    if matches!(default, Value::Struct(_)) {
        return Err(wrong("default: a struct can't have one"));
    }
    schema
        .with_default(default)
        .map_err(|error| wrong(error.to_string()))
}

fn field_name(field: &Node<'_>) -> Result<String, Wrong> {
    let name = field.member("field").and_then(Node::as_text);
    let name = name.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| wrong("`field` of a field is missing or not a text"))?;
    Ok(name.to_owned())
}

fn inner<'n, 'a>(node: &'n Node<'a>, name: &'static str) -> Result<&'n Node<'a>, Wrong> {
    let schema = node.member(name).filter(|node| !matches!(node, Node::Null));
    schema.ok_or_else(|| wrong(format!("`{name}` is missing")))
}

/// What is wrong: small, since each level of nesting has room for a few.
#[derive(Debug)]
pub(super) struct Wrong(Cow<'static, str>);

impl From<Wrong> for ConvertError {
    fn from(Wrong(reason): Wrong) -> Self {
        Self::Schema(reason.into_owned())
    }
}

fn wrong(reason: impl Into<Cow<'static, str>>) -> Wrong {
    Wrong(reason.into())
}

/// What a null becomes, if anything.
pub(super) fn replacement(schema: &Schema, replace_null: bool) -> Option<&Value> {
    schema.default().filter(|_| replace_null)
}
