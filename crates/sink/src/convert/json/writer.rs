//! Writes values as JSON, in the form of the Java converter.

use crate::convert::float::{double_text, float_text};
use crate::convert::{ConvertError, base64};
use crate::data::{DataError, Decimal, MILLIS_PER_DAY, Map, Schema, Struct, Type, Value, logical};

use super::reader::DEPTH_MAX;
use super::schema::replacement;

/// How values become JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    pub(super) decimal_format: DecimalFormat,
    pub(super) replace_null: bool,
}

/// How a decimal is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecimalFormat {
    /// Its unscaled bytes in base64.
    Base64,
    /// As a number.
    Numeric,
}

impl Writing {
    /// Schema and value in one object.
    pub(super) fn envelope(
        self,
        schema: Option<&Schema>,
        value: &Value,
    ) -> Result<String, ConvertError> {
        let mut out = Output::new(self);
        out.text.push_str("{\"schema\":");
        match schema {
            Some(schema) => out.schema(schema, None)?,
            None => out.text.push_str("null"),
        }
        out.text.push_str(",\"payload\":");
        out.value(schema, value)?;
        out.text.push('}');
        Ok(out.text)
    }

    /// The value alone.
    pub(super) fn payload(
        self,
        schema: Option<&Schema>,
        value: &Value,
    ) -> Result<String, ConvertError> {
        let mut out = Output::new(self);
        out.value(schema, value)?;
        Ok(out.text)
    }
}

struct Output {
    writing: Writing,
    text: String,
    depth: usize,
}

impl Output {
    const fn new(writing: Writing) -> Self {
        Self {
            writing,
            text: String::new(),
            depth: 0,
        }
    }

    /// A schema, as that of a struct's field where it has a name.
    fn schema(&mut self, schema: &Schema, field: Option<&str>) -> Result<(), ConvertError> {
        self.deeper()?;
        self.text.push_str("{\"type\":\"");
        self.text.push_str(type_name(schema.type_of()));
        self.text.push('"');
        if let Some(keys) = schema.keys() {
            self.text.push_str(",\"keys\":");
            self.schema(keys, None)?;
        }
        if let Some(values) = schema.values() {
            let is_map = schema.type_of() == Type::Map;
            self.text.push_str(if is_map {
                ",\"values\":"
            } else {
                ",\"items\":"
            });
            self.schema(values, None)?;
        }
        if schema.type_of() == Type::Struct {
            self.text.push_str(",\"fields\":[");
            for (index, field) in schema.fields().iter().enumerate() {
                self.comma(index);
                self.schema(field.schema(), Some(field.name()))?;
            }
            self.text.push(']');
        }
        self.text.push_str(",\"optional\":");
        self.text.push_str(if schema.is_optional() {
            "true"
        } else {
            "false"
        });
        self.texts(schema);
        if let Some(default) = schema.default() {
            self.text.push_str(",\"default\":");
            self.value(Some(schema), default)?;
        }
        if let Some(field) = field {
            self.text.push_str(",\"field\":");
            self.string(field);
        }
        self.text.push('}');
        self.depth -= 1;
        Ok(())
    }

    fn texts(&mut self, schema: &Schema) {
        if let Some(name) = schema.name() {
            self.text.push_str(",\"name\":");
            self.string(name);
        }
        if let Some(version) = schema.version() {
            self.text.push_str(&format!(",\"version\":{version}"));
        }
        if let Some(doc) = schema.doc() {
            self.text.push_str(",\"doc\":");
            self.string(doc);
        }
        for (index, (name, value)) in schema.parameters().iter().enumerate() {
            self.text
                .push_str(if index == 0 { ",\"parameters\":{" } else { "," });
            self.string(name);
            self.text.push(':');
            self.string(value);
        }
        if !schema.parameters().is_empty() {
            self.text.push('}');
        }
    }

    /// Each level of nesting takes stack: what isn't needed for the way down is in functions of its own.
    fn value(&mut self, schema: Option<&Schema>, value: &Value) -> Result<(), ConvertError> {
        match value {
            Value::Null => return self.null(schema),
            Value::Array(_) | Value::Map(_) | Value::Struct(_) => {
                self.deeper()?;
                check_type(schema, value)?;
            }
            scalar => return self.scalar(schema, scalar),
        }
        match value {
            Value::Array(values) => self.array(schema.and_then(Schema::values), values)?,
            Value::Map(map) => self.map(schema, map)?,
            Value::Struct(row) => self.row(row)?,
            _ => {}
        }
        self.depth -= 1;
        Ok(())
    }

    fn null(&mut self, schema: Option<&Schema>) -> Result<(), ConvertError> {
        if let Some(schema) = schema {
            if let Some(default) = replacement(schema, self.writing.replace_null) {
                return self.value(Some(schema), default);
            }
            if !schema.is_optional() {
                return Err(ConvertError::Data(DataError::Null {
                    type_of: schema.type_of(),
                    path: String::new(),
                }));
            }
        }
        self.text.push_str("null");
        Ok(())
    }

    fn scalar(&mut self, schema: Option<&Schema>, value: &Value) -> Result<(), ConvertError> {
        match value {
            Value::Decimal(decimal) => {
                return self.decimal(logical(schema, value, logical::DECIMAL)?, decimal);
            }
            Value::Date(millis) => {
                logical(schema, value, logical::DATE)?;
                if millis % MILLIS_PER_DAY != 0 {
                    return Err(unwritable("Date", "it has a time of the day"));
                }
                self.text.push_str(&(millis / MILLIS_PER_DAY).to_string());
                return Ok(());
            }
            Value::Time(millis) => {
                logical(schema, value, logical::TIME)?;
                if !(0..=MILLIS_PER_DAY).contains(millis) {
                    return Err(unwritable("Time", "it is outside of the day"));
                }
                self.text.push_str(&millis.to_string());
                return Ok(());
            }
            Value::Timestamp(millis) => {
                logical(schema, value, logical::TIMESTAMP)?;
                self.text.push_str(&millis.to_string());
                return Ok(());
            }
            _ => check_type(schema, value)?,
        }
        match value {
            Value::Boolean(value) => self.text.push_str(if *value { "true" } else { "false" }),
            Value::Int8(value) => self.text.push_str(&value.to_string()),
            Value::Int16(value) => self.text.push_str(&value.to_string()),
            Value::Int32(value) => self.text.push_str(&value.to_string()),
            Value::Int64(value) => self.text.push_str(&value.to_string()),
            Value::Float32(value) => self.float(value.is_finite(), &float_text(*value)),
            Value::Float64(value) => self.float(value.is_finite(), &double_text(*value)),
            Value::String(text) => self.string(text),
            Value::Bytes(bytes) => self.string(&base64::encode(bytes)),
            other => return Err(unwritable(other.type_name(), "it isn't a scalar")),
        }
        Ok(())
    }

    fn array(&mut self, items: Option<&Schema>, values: &[Value]) -> Result<(), ConvertError> {
        self.text.push('[');
        for (index, value) in values.iter().enumerate() {
            self.comma(index);
            self.value(items, value)?;
        }
        self.text.push(']');
        Ok(())
    }

    /// An object where all keys are texts, by the schema or by their own types, else pairs.
    fn map(&mut self, schema: Option<&Schema>, map: &Map) -> Result<(), ConvertError> {
        let keys = schema.and_then(Schema::keys);
        let values = schema.and_then(Schema::values);
        let is_object = match keys {
            Some(keys) => keys.type_of() == Type::String,
            None => map.iter().all(|(key, _)| matches!(key, Value::String(_))),
        };
        self.text.push(if is_object { '{' } else { '[' });
        for (index, (key, value)) in map.iter().enumerate() {
            self.comma(index);
            match key {
                Value::String(key) if is_object => {
                    self.string(key);
                    self.text.push(':');
                    self.value(values, value)?;
                }
                other if is_object => {
                    return Err(unwritable(other.type_name(), "a key must be a text"));
                }
                key => {
                    self.text.push('[');
                    self.value(keys, key)?;
                    self.text.push(',');
                    self.value(values, value)?;
                    self.text.push(']');
                }
            }
        }
        self.text.push(if is_object { '}' } else { ']' });
        Ok(())
    }

    fn row(&mut self, row: &Struct) -> Result<(), ConvertError> {
        self.text.push('{');
        for (index, (field, value)) in row.schema().fields().iter().zip(row.values()).enumerate() {
            self.comma(index);
            self.string(field.name());
            self.text.push(':');
            if let Err(error) = self.value(Some(field.schema()), value) {
                return Err(error.within(field.name()));
            }
        }
        self.text.push('}');
        Ok(())
    }

    fn comma(&mut self, index: usize) {
        if index > 0 {
            self.text.push(',');
        }
    }

    fn decimal(&mut self, schema: &Schema, decimal: &Decimal) -> Result<(), ConvertError> {
        if self.writing.decimal_format == DecimalFormat::Numeric {
            self.text.push_str(&decimal.to_string());
            return Ok(());
        }
        if schema.scale() != Some(decimal.scale()) {
            return Err(unwritable("Decimal", "its scale isn't that of the schema"));
        }
        self.string(&base64::encode(decimal.unscaled()));
        Ok(())
    }

    /// JSON has no number for what isn't finite: Java writes its name as a text.
    fn float(&mut self, is_finite: bool, text: &str) {
        if is_finite {
            self.text.push_str(text);
        } else {
            self.string(text);
        }
    }

    fn string(&mut self, text: &str) {
        self.text
            .push_str(&serde_json::Value::from(text).to_string());
    }

    fn deeper(&mut self) -> Result<(), ConvertError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(unwritable(
                "value",
                "it is nested more than 500 levels deep",
            ));
        }
        Ok(())
    }
}

/// The schema of a value of a logical type, which can't be written without.
fn logical<'s>(
    schema: Option<&'s Schema>,
    value: &Value,
    name: &'static str,
) -> Result<&'s Schema, ConvertError> {
    let schema = schema.filter(|schema| schema.is_named(name));
    schema.ok_or_else(|| unwritable(value.type_name(), "it needs the schema of its logical type"))
}

/// Whether a value that is none of a logical type has the type of its schema.
fn check_type(schema: Option<&Schema>, value: &Value) -> Result<(), ConvertError> {
    let Some(schema) = schema else {
        return Ok(());
    };
    let has_type = match value {
        Value::Struct(row) => row.schema().fields() == schema.fields(),
        value => value.type_name() == schema.shown_type(),
    };
    if has_type {
        return Ok(());
    }
    Err(ConvertError::Data(DataError::Mismatch {
        expected: schema.shown_type().to_owned(),
        found: value.type_name(),
        path: String::new(),
    }))
}

fn unwritable(found: &'static str, reason: &str) -> ConvertError {
    ConvertError::Unwritable {
        converter: "JsonConverter",
        found,
        reason: reason.to_owned(),
    }
}

const fn type_name(type_of: Type) -> &'static str {
    match type_of {
        Type::Boolean => "boolean",
        Type::Int8 => "int8",
        Type::Int16 => "int16",
        Type::Int32 => "int32",
        Type::Int64 => "int64",
        Type::Float32 => "float",
        Type::Float64 => "double",
        Type::String => "string",
        Type::Bytes => "bytes",
        Type::Array => "array",
        Type::Map => "map",
        Type::Struct => "struct",
    }
}
