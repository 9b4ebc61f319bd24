//! From a record to the columns of its row.

use std::sync::Arc;

use sharegroup_sink::SinkRecord;
use sharegroup_sink::convert::ConvertedRecord;
use sharegroup_sink::data::{Schema, SchemaAndValue, Value};

use super::config::{Guard, Mode, PlaceColumns, PostgresConfig, RowKey, TIMESTAMP_COLUMN};
use super::encode::{Class, Form, form};
use super::identifier;
use super::table::Table;

/// A column that a record brings a value for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    /// Name of the field.
    pub(super) name: String,
    pub(super) source: Source,
    pub(super) class: Class,
    /// What the field's schema says of it; none where the values have no schema.
    pub(super) schema: Option<Schema>,
    pub(super) is_key: bool,
}

/// Where a field's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Topic,
    TopicId,
    Partition,
    Offset,
    Timestamp,
    /// Whether the record deletes its row.
    Deletes(bool),
    /// The key, whole.
    Key,
    /// A field of it.
    KeyField(usize),
    /// The value, whole.
    Value,
    /// A field of it.
    ValueField(usize),
}

impl Source {
    /// The value of a record's key or value; `None` for what isn't there.
    pub(super) fn of(self, data: &ConvertedRecord) -> Option<&Value> {
        match self {
            Self::Key => Some(&data.key.value),
            Self::Value => Some(&data.value.value),
            Self::KeyField(index) => field(&data.key.value, index),
            Self::ValueField(index) => field(&data.value.value, index),
            _ => None,
        }
    }
}

/// A field or, where it is null, its default.
fn field(value: &Value, index: usize) -> Option<&Value> {
    match value {
        Value::Struct(row) => {
            let value = row.values().get(index)?;
            let default = || row.schema().fields().get(index)?.schema().default();
            Some(if value.is_null() {
                default().unwrap_or(value)
            } else {
                value
            })
        }
        Value::Map(map) => map.iter().nth(index).map(|(_, value)| value),
        _ => None,
    }
}

/// The columns of a statement, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Places in the table, and how their values are written.
    pub(super) columns: Vec<(usize, Form)>,
    /// Which of them tell rows apart: places in `columns`.
    pub(super) key: Vec<usize>,
    pub(super) is_delete: bool,
}

impl Shape {
    /// Places in the table of the columns of the key.
    pub(super) fn key_columns(&self) -> impl Iterator<Item = usize> {
        let column = |place: &usize| self.columns.get(*place).map(|column| column.0);
        self.key.iter().filter_map(column)
    }
}

/// How records of one kind become rows.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) shape: Arc<Shape>,
    /// Sources and classes of the columns, in the shape's order.
    pub(super) cells: Vec<(Source, Class)>,
    /// Whether it is of records that delete their rows.
    deletes: bool,
    likeness: Likeness,
}

impl Layout {
    /// Whether it is the layout of this record as well.
    pub(super) fn fits(
        &self,
        config: &PostgresConfig,
        data: &ConvertedRecord,
        deletes: bool,
    ) -> bool {
        self.deletes == deletes && self.likeness.fits(config, data)
    }
}

/// What records of one layout have in common.
#[derive(Clone, Debug)]
struct Likeness {
    key: Part,
    value: Part,
}

#[derive(Clone, Debug)]
enum Part {
    /// It makes no difference.
    Any,
    Schema(Schema),
    Names(Vec<(Value, Class)>),
    Class(Class),
}

impl Likeness {
    fn of(config: &PostgresConfig, data: &ConvertedRecord) -> Self {
        Self {
            key: match config.key {
                RowKey::OfKey(_) => Part::of(&data.key),
                _ => Part::Any,
            },
            value: match config.value_column {
                Some(_) => Part::Class(class_of(&data.value)),
                None => Part::of(&data.value),
            },
        }
    }

    fn fits(&self, config: &PostgresConfig, data: &ConvertedRecord) -> bool {
        self.key.fits(&data.key)
            && match config.value_column {
                Some(_) => {
                    matches!(self.value, Part::Class(class) if class == class_of(&data.value))
                }
                None => self.value.fits(&data.value),
            }
    }
}

impl Part {
    fn of(data: &SchemaAndValue) -> Self {
        match &data.value {
            Value::Struct(row) => Self::Schema(row.schema().clone()),
            Value::Map(map) => Self::Names(
                map.iter()
                    .map(|(name, value)| (name.clone(), Class::of_value(value)))
                    .collect(),
            ),
            _ => Self::Class(class_of(data)),
        }
    }

    fn fits(&self, data: &SchemaAndValue) -> bool {
        match (self, &data.value) {
            (Self::Any, _) => true,
            (Self::Schema(schema), Value::Struct(row)) => schema == row.schema(),
            (Self::Names(names), Value::Map(map)) => {
                let same = |(known, (name, value)): (&(Value, Class), &(Value, Value))| {
                    known.0 == *name && known.1 == Class::of_value(value)
                };
                names.len() == map.len() && names.iter().zip(map.iter()).all(same)
            }
            (Self::Class(class), Value::Struct(_) | Value::Map(_)) => *class == Class::Fields,
            (Self::Class(class), _) => *class == class_of(data),
            _ => false,
        }
    }
}

fn class_of(data: &SchemaAndValue) -> Class {
    match (&data.value, &data.schema) {
        (Value::Null, _) => Class::Null,
        (_, Some(schema)) => Class::of_schema(schema),
        (value, None) => Class::of_value(value),
    }
}

/// Why a record has no layout.
#[derive(Debug)]
pub(super) enum NoLayout {
    /// The table lacks columns.
    Missing(Vec<Wanted>),
    /// The record doesn't go into this table.
    Refused(String),
}

/// The columns that a record brings values for.
pub(super) fn wanted(
    config: &PostgresConfig,
    place: &PlaceColumns,
    record: &SinkRecord<'_>,
    data: &ConvertedRecord,
    deletes: bool,
) -> Result<Vec<Wanted>, String> {
    let mut wanted = Vec::new();
    match &config.key {
        RowKey::None => {}
        RowKey::Place => {
            wanted.push(of_place(&place.topic, Source::Topic, Class::Text, false));
            wanted.push(of_place(
                &place.topic_id,
                Source::TopicId,
                Class::Bytes,
                true,
            ));
            wanted.push(of_place(
                &place.partition,
                Source::Partition,
                Class::Integer,
                true,
            ));
            wanted.push(of_place(
                &place.offset,
                Source::Offset,
                Class::Integer,
                true,
            ));
        }
        RowKey::OfKey(names) => key_fields("key", &data.key, names, &mut wanted)?,
        RowKey::OfValue(names) => key_fields("value", &data.value, names, &mut wanted)?,
    }
    if !deletes {
        value_fields(config, record, data, &mut wanted)?;
    }
    if let Some(column) = &config.delete_column {
        wanted.push(of_place(
            column,
            Source::Deletes(deletes),
            Class::Boolean,
            false,
        ));
    }
    if config.mode != Mode::Insert && config.guard == Guard::Place {
        wanted.push(of_place(
            &place.topic_id,
            Source::TopicId,
            Class::Bytes,
            false,
        ));
        wanted.push(of_place(
            &place.partition,
            Source::Partition,
            Class::Integer,
            false,
        ));
        wanted.push(of_place(
            &place.offset,
            Source::Offset,
            Class::Integer,
            false,
        ));
        wanted.push(of_place(
            TIMESTAMP_COLUMN,
            Source::Timestamp,
            Class::Timestamp,
            false,
        ));
    }
    for column in &wanted {
        identifier::check(&column.name)?;
    }
    Ok(wanted)
}

fn of_place(name: &str, source: Source, class: Class, is_key: bool) -> Wanted {
    Wanted {
        name: name.to_owned(),
        source,
        class,
        schema: None,
        is_key,
    }
}

/// The fields of the key, which may be the whole of one that has no fields.
fn key_fields(
    part: &str,
    data: &SchemaAndValue,
    names: &[String],
    wanted: &mut Vec<Wanted>,
) -> Result<(), String> {
    let is_of_key = part == "key";
    let fields =
        match &data.value {
            Value::Struct(_) | Value::Map(_) => fields(data, is_of_key)?,
            Value::Null => {
                return Err(format!(
                    "its {part} is null, and pk.mode takes the row's key from it"
                ));
            }
            _ if !is_of_key => return Err(
                "its value has no fields, and pk.mode=record_value takes the row's key from them"
                    .to_owned(),
            ),
            _ => match names {
                [name] => vec![Wanted {
                    name: name.clone(),
                    source: Source::Key,
                    class: class_of(data),
                    schema: data.schema.clone(),
                    is_key: true,
                }],
                _ => return Err("its key has no fields; give it a name with pk.fields".to_owned()),
            },
        };
    let taken = |field: &Wanted| names.is_empty() || names.contains(&field.name);
    let before = wanted.len();
    wanted.extend(fields.into_iter().filter(taken).map(|field| Wanted {
        is_key: true,
        ..field
    }));
    let found = wanted.get(before..).unwrap_or_default();
    match names
        .iter()
        .find(|name| !found.iter().any(|field| field.name == **name))
    {
        Some(name) => Err(format!(
            "its {part} has no field {name}, which pk.fields names"
        )),
        None if found.is_empty() => Err(format!("its {part} has no fields")),
        None => Ok(()),
    }
}

fn value_fields(
    config: &PostgresConfig,
    record: &SinkRecord<'_>,
    data: &ConvertedRecord,
    wanted: &mut Vec<Wanted>,
) -> Result<(), String> {
    let keys = wanted.len();
    if let Some(column) = &config.value_column {
        wanted.push(Wanted {
            name: column.clone(),
            source: Source::Value,
            class: class_of(&data.value),
            schema: None,
            is_key: false,
        });
    } else {
        for field in fields(&data.value, false)? {
            let is_known = wanted
                .iter()
                .take(keys)
                .any(|known| known.name == field.name);
            if !is_known && config.fields.take(record.topic, &field.name) {
                wanted.push(field);
            }
        }
    }
    match &config.guard {
        Guard::Field(version) if !wanted.iter().any(|field| field.name == *version) => Err(
            format!("it has no field {version}, which version.field names"),
        ),
        _ => Ok(()),
    }
}

/// All fields of a key or a value.
fn fields(data: &SchemaAndValue, is_of_key: bool) -> Result<Vec<Wanted>, String> {
    let source = |index| match is_of_key {
        true => Source::KeyField(index),
        false => Source::ValueField(index),
    };
    match &data.value {
        Value::Struct(row) => {
            let fields = row.schema().fields().iter().enumerate();
            let fields = fields.map(|(index, field)| Wanted {
                name: field.name().to_string(),
                source: source(index),
                class: Class::of_schema(field.schema()),
                schema: Some(field.schema().clone()),
                is_key: false,
            });
            Ok(fields.collect())
        }
        Value::Map(map) => {
            let fields = map
                .iter()
                .enumerate()
                .map(|(index, (name, value))| match name {
                    Value::String(name) => Ok(Wanted {
                        name: name.to_string(),
                        source: source(index),
                        class: Class::of_value(value),
                        schema: None,
                        is_key: false,
                    }),
                    _ => Err("it is a map whose keys aren't text".to_owned()),
                });
            fields.collect()
        }
        Value::Null => Err("its value is null".to_owned()),
        value => Err(format!(
            "its value is a {} and has no fields: a converter such as JsonConverter makes rows, value.column takes any value whole",
            value.type_name()
        )),
    }
}

/// Where the wanted columns are in the table.
pub(super) fn layout(
    config: &PostgresConfig,
    table: &Table,
    data: &ConvertedRecord,
    wanted: Vec<Wanted>,
    deletes: bool,
) -> Result<Layout, NoLayout> {
    let mut shape = Shape {
        columns: Vec::new(),
        key: Vec::new(),
        is_delete: deletes && config.delete_column.is_none(),
    };
    let mut cells = Vec::new();
    let mut missing = Vec::new();
    for field in wanted {
        let Some((place, column)) = table
            .column(&field.name)
            .and_then(|place| Some((place, table.columns.get(place)?)))
        else {
            missing.push(field);
            continue;
        };
        // The database fills it in. Two fields whose names differ by case can't have one column.
        if column.is_generated || shape.columns.iter().any(|known| known.0 == place) {
            continue;
        }
        let Some(form) = form(field.class, column.kind) else {
            let class = format!("{:?}", field.class).to_lowercase();
            let reason = format!(
                "column {} has the type {}, which doesn't take a {class}",
                column.name, column.type_name
            );
            return Err(NoLayout::Refused(reason));
        };
        if field.is_key {
            shape.key.push(shape.columns.len());
        }
        shape.columns.push((place, form));
        cells.push((field.source, field.class));
    }
    if !missing.is_empty() {
        return Err(NoLayout::Missing(missing));
    }
    Ok(Layout {
        shape: Arc::new(shape),
        cells,
        deletes,
        likeness: Likeness::of(config, data),
    })
}
