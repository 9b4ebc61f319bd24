//! One topic's table: what it is, how records become its rows, and its making.

use std::sync::Arc;

use sharegroup_sink::SinkRecord;
use sharegroup_sink::convert::ConvertedRecord;
use sharegroup_sink::data::{Schema, Type};

use tokio_postgres::Client;

use super::config::{Guard, Mode, PlaceColumns, PostgresConfig, RowKey, TIMESTAMP_COLUMN};
use super::connect::{Session, within};
use super::encode::Class;
use super::identifier::{TableName, quoted};
use super::layout::{Layout, NoLayout, Source, Wanted, layout, wanted};
use super::outcome::{Trouble, TroubleKind};
use super::statement::{add_columns, create_table};
use super::table::Table;

/// A topic's table.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) table: Table,
    /// The latest first.
    layouts: Vec<Arc<Layout>>,
}

/// Why a record has no row.
#[derive(Debug)]
pub(super) enum NoRow {
    /// It doesn't go into the table.
    Refused(String),
    /// The statement that would have made room for it failed.
    Trouble(Trouble),
}

impl From<Trouble> for NoRow {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl From<tokio_postgres::Error> for NoRow {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Trouble(Trouble::of(&error))
    }
}

impl Plan {
    pub(super) const fn new(table: Table) -> Self {
        Self {
            table,
            layouts: Vec::new(),
        }
    }

    /// How this record becomes a row. Columns that are missing are added where that is allowed.
    pub(super) async fn layout(
        &mut self,
        session: &Session,
        config: &PostgresConfig,
        place: &PlaceColumns,
        record: &SinkRecord<'_>,
        data: &ConvertedRecord,
        deletes: bool,
    ) -> Result<Arc<Layout>, NoRow> {
        if let Some(known) = self
            .layouts
            .iter()
            .find(|known| known.fits(config, data, deletes))
        {
            return Ok(Arc::clone(known));
        }
        let fields = wanted(config, place, record, data, deletes).map_err(NoRow::Refused)?;
        let mut found = layout(config, &self.table, data, fields.clone(), deletes);
        if let Err(NoLayout::Missing(missing)) = &found
            && config.evolve
        {
            let evolved = self.evolve(&session.client, missing);
            within(session.deadline(), evolved).await?;
            found = layout(config, &self.table, data, fields, deletes);
        }
        let layout = Arc::new(found.map_err(|error| NoRow::Refused(self.reason(error)))?);
        if !layout.shape.is_delete {
            let keys = layout.shape.key_columns().collect();
            let broken = |reason| NoRow::Trouble(Trouble::new(TroubleKind::Broken, reason));
            self.check_key(config, place, keys).map_err(broken)?;
        }
        self.layouts.insert(0, Arc::clone(&layout));
        self.layouts.truncate(LAYOUTS_MAX);
        Ok(layout)
    }

    fn reason(&self, error: NoLayout) -> String {
        match error {
            NoLayout::Refused(reason) => reason,
            NoLayout::Missing(missing) => {
                let names: Vec<_> = missing.iter().map(|field| field.name.as_str()).collect();
                format!(
                    "the table {} has no column {}: add it, set auto.evolve=true, or name the fields to write in fields.include.list",
                    self.table.name,
                    names.join(", ")
                )
            }
        }
    }

    async fn evolve(&mut self, client: &Client, missing: &[Wanted]) -> Result<(), NoRow> {
        let columns = columns(missing).map_err(NoRow::Refused)?;
        let statement = add_columns(&self.table.name.to_string(), &columns);
        client.batch_execute(&statement).await?;
        tracing::info!(table = %self.table.name, statement, "The table has new columns.");
        if let Some(table) = Table::describe(client, &self.table.name).await? {
            *self = Self::new(table);
        }
        Ok(())
    }

    /// Rows that must be told apart need an index that does.
    fn check_key(
        &self,
        config: &PostgresConfig,
        place: &PlaceColumns,
        keys: Vec<usize>,
    ) -> Result<(), String> {
        let needs_index = !keys.is_empty() && config.mode != Mode::Update;
        let topic = self.table.column(&place.topic);
        let with_topic = || topic.map(|topic| [keys.as_slice(), &[topic]].concat());
        if !needs_index
            || self.table.is_unique(&keys)
            || config.key == RowKey::Place
                && with_topic().is_some_and(|keys| self.table.is_unique(&keys))
        {
            return Ok(());
        }
        Err(format!(
            "nothing keeps the rows of {0} apart by their key: CREATE UNIQUE INDEX ON {0} ({1})",
            self.table.name,
            self.table.names(keys)
        ))
    }

    /// What the table lacks before the first record comes: what doesn't depend on records.
    pub(super) fn check(
        &self,
        config: &PostgresConfig,
        place: &PlaceColumns,
    ) -> Result<(), String> {
        let mut needed: Vec<(&str, &str)> = Vec::new();
        let is_guarded = config.mode != Mode::Insert && config.guard == Guard::Place;
        if config.key == RowKey::Place {
            needed.push((&place.topic, "text"));
        }
        if config.key == RowKey::Place || is_guarded {
            needed.push((&place.partition, "integer"));
            needed.push((&place.offset, "bigint"));
            needed.push((&place.topic_id, "uuid"));
        }
        if is_guarded {
            needed.push((TIMESTAMP_COLUMN, "timestamptz"));
        }
        needed.retain(|(name, _)| self.table.column(name).is_none());
        if needed.is_empty() || config.evolve && config.key != RowKey::Place {
            let keys: Vec<&str> = match &config.key {
                RowKey::None => Vec::new(),
                RowKey::Place => vec![&place.topic_id, &place.partition, &place.offset],
                RowKey::OfKey(names) | RowKey::OfValue(names) => {
                    names.iter().map(String::as_str).collect()
                }
            };
            let columns: Option<Vec<_>> = keys.iter().map(|name| self.table.column(name)).collect();
            // Columns that aren't there yet are told of with the first record.
            return columns.map_or(Ok(()), |keys| self.check_key(config, place, keys));
        }
        let added = needed
            .iter()
            .map(|(name, kind)| format!("ADD COLUMN {} {kind}", quoted(name)));
        let statement = format!(
            "ALTER TABLE {} {}",
            self.table.name,
            added.collect::<Vec<_>>().join(", ")
        );
        let why = match config.key {
            RowKey::Place => {
                "with pk.mode=kafka a record's place is its row's key, the id of its topic included, since a topic that is made anew counts its offsets from 0 again; add them, with a unique index of topic id, partition and offset, or choose another pk.mode"
            }
            _ => {
                "records come in no order, and these columns keep an older one from replacing a newer one; add them, or name a field with version.field, or set version.guard=false"
            }
        };
        Err(format!(
            "the table {} lacks columns ({statement}): {why}",
            self.table.name
        ))
    }
}

/// Makes a table for rows with these fields, unless somebody else does at the same time.
pub(super) async fn create(
    client: &mut Client,
    name: &TableName,
    fields: &[Wanted],
) -> Result<(), NoRow> {
    let table = columns(fields).map_err(NoRow::Refused)?;
    let keys = fields.iter().filter(|field| field.is_key);
    let keys: Vec<_> = keys.map(|field| field.name.clone()).collect();
    let statement = create_table(&name.to_string(), &table, &keys);
    let transaction = client.transaction().await?;
    // Two that make one table at the same time fail in the catalog otherwise.
    transaction
        .execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK])
        .await?;
    transaction.batch_execute(&statement).await?;
    transaction.commit().await?;
    tracing::info!(table = %name, statement, "The table is there.");
    Ok(())
}

/// Names, types, and whether null is refused.
fn columns(fields: &[Wanted]) -> Result<Vec<(String, &'static str, bool)>, String> {
    let column = |field: &Wanted| {
        let type_name = type_of(field).ok_or_else(|| {
            format!("its field {} has no schema that would say of which type its column is; make the table yourself, or set value.column", field.name)
        })?;
        let is_optional = field.schema.as_ref().is_none_or(Schema::is_optional);
        Ok((field.name.clone(), type_name, field.is_key || !is_optional))
    };
    fields.iter().map(column).collect()
}

fn type_of(field: &Wanted) -> Option<&'static str> {
    Some(match (field.source, &field.schema) {
        (Source::Topic, _) => "text",
        (Source::TopicId, _) => "uuid",
        (Source::Partition, _) => "integer",
        (Source::Offset, _) => "bigint",
        (Source::Timestamp, _) => "timestamptz",
        (Source::Deletes(_), _) => "boolean",
        (Source::Value, _) => "jsonb",
        (_, Some(schema)) => type_of_schema(schema, field.class),
        (Source::Key, None) if field.class == Class::PlainText => "text",
        (Source::Key, None) if field.class == Class::Bytes => "bytea",
        _ => return None,
    })
}

fn type_of_schema(schema: &Schema, class: Class) -> &'static str {
    match (class, schema.type_of()) {
        (Class::Decimal, _) => "numeric",
        (Class::Date | Class::EpochDays, _) => "date",
        (Class::Time | Class::TimeOfDay(_), _) => "time",
        (Class::Timestamp | Class::Epoch(_), _) => "timestamptz",
        (Class::Readable, _) => match schema.name() {
            Some("io.debezium.data.Uuid") => "uuid",
            Some("io.debezium.data.Json") => "jsonb",
            _ => "timestamptz",
        },
        (_, Type::Boolean) => "boolean",
        (_, Type::Int8 | Type::Int16) => "smallint",
        (_, Type::Int32) => "integer",
        (_, Type::Int64) => "bigint",
        (_, Type::Float32) => "real",
        (_, Type::Float64) => "double precision",
        (_, Type::String) => "text",
        (_, Type::Bytes) => "bytea",
        (_, Type::Array | Type::Map | Type::Struct) => "jsonb",
    }
}

/// Layouts that are kept of a table: of records without a schema there may be many.
const LAYOUTS_MAX: usize = 32;
/// Held while a table is made: `sharegrp` in ASCII.
const LOCK: i64 = 0x7368_6172_6567_7270;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_logical_type_has_a_column() {
        for (schema, expected) in [
            (Schema::decimal(2), "numeric"),
            (Schema::date(), "date"),
            (Schema::time(), "time"),
            (Schema::timestamp(), "timestamptz"),
            (Schema::required(Type::Int8), "smallint"),
            (Schema::required(Type::Map), "jsonb"),
        ] {
            assert_eq!(type_of_schema(&schema, Class::of_schema(&schema)), expected);
        }
    }
}
