//! The texts of statements: one for many rows, whose columns come as arrays.

use super::config::{Guard, Mode, PlaceColumns, PostgresConfig, TIMESTAMP_COLUMN};
use super::encode::Form;
use super::identifier::quoted;
use super::layout::Shape;
use super::table::{Kind, Table};

/// What the statements of one table and shape are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statements<'a> {
    pub(super) config: &'a PostgresConfig,
    pub(super) place: &'a PlaceColumns,
    pub(super) table: &'a Table,
    pub(super) shape: &'a Shape,
}

impl Statements<'_> {
    /// Takes rows in COPY's binary form, without looking for those that are there.
    pub(super) fn copy(&self) -> String {
        let columns = self
            .table
            .names(self.shape.columns.iter().map(|column| column.0));
        format!(
            "COPY {} ({columns}) FROM STDIN (FORMAT binary)",
            self.table.name
        )
    }

    /// Writes rows. `repeats`: a key may be there more than once, and its newest row counts.
    pub(super) fn write(&self, repeats: bool) -> String {
        if self.shape.is_delete {
            return self.delete(repeats);
        }
        match self.config.mode {
            Mode::Insert => self.insert(),
            Mode::Upsert => self.upsert(repeats),
            Mode::Update => self.update(repeats),
        }
    }

    /// Numbers, from 1, of the rows that were not written for another row with their key that isn't the same.
    pub(super) fn others(&self) -> String {
        let column = |place: &(usize, Form)| self.name(place.0);
        let there: Vec<_> = self
            .shape
            .columns
            .iter()
            .map(|place| format!("t.{}::text", column(place)))
            .collect();
        // As the column would have it, rounded for example.
        let as_stored = |place: &(usize, Form)| {
            let type_name = self
                .table
                .columns
                .get(place.0)
                .map_or("text", |column| &column.stored_as);
            format!("u.{}::{type_name}::text", column(place))
        };
        let brought: Vec<_> = self.shape.columns.iter().map(as_stored).collect();
        format!(
            "SELECT u.ord FROM {} AS t JOIN ({}) AS u ON {} WHERE ROW({}) IS DISTINCT FROM ROW({})",
            self.table.name,
            self.rows(false, true),
            self.same_key(),
            there.join(", "),
            brought.join(", ")
        )
    }

    fn insert(&self) -> String {
        let conflict = match self.shape.key.is_empty() {
            true => String::new(),
            false => format!(" ON CONFLICT ({}) DO NOTHING", self.conflict_columns()),
        };
        format!(
            "{} {}{conflict}",
            self.insert_into(),
            self.rows(false, false)
        )
    }

    fn upsert(&self, repeats: bool) -> String {
        let sets: Vec<_> = self
            .not_key()
            .map(|name| format!("{name} = excluded.{name}"))
            .collect();
        let action = match sets.is_empty() {
            true => "DO NOTHING".to_owned(),
            false => {
                let guard = self
                    .guard("excluded")
                    .map(|guard| format!(" WHERE {guard}"));
                format!(
                    "DO UPDATE SET {}{}",
                    sets.join(", "),
                    guard.unwrap_or_default()
                )
            }
        };
        format!(
            "{} {} ON CONFLICT ({}) {action}",
            self.insert_into(),
            self.rows(repeats, false),
            self.conflict_columns()
        )
    }

    fn update(&self, repeats: bool) -> String {
        let mut sets: Vec<_> = self
            .not_key()
            .map(|name| format!("{name} = u.{name}"))
            .collect();
        if sets.is_empty() {
            let keys = self.shape.key_columns().map(|place| self.name(place));
            sets = keys.map(|name| format!("{name} = u.{name}")).collect();
        }
        let guard = self.guard("u").map(|guard| format!(" AND {guard}"));
        format!(
            "UPDATE {} AS t SET {} FROM ({}) AS u WHERE {}{}",
            self.table.name,
            sets.join(", "),
            self.rows(repeats, false),
            self.same_key(),
            guard.unwrap_or_default()
        )
    }

    fn delete(&self, repeats: bool) -> String {
        // A null value has no field that could say how old it is.
        let guard = match self.config.guard {
            Guard::Place => self.guard("u").map(|guard| format!(" AND {guard}")),
            Guard::Off | Guard::Field(_) => None,
        };
        format!(
            "DELETE FROM {} AS t USING ({}) AS u WHERE {}{}",
            self.table.name,
            self.rows(repeats, false),
            self.same_key(),
            guard.unwrap_or_default()
        )
    }

    fn insert_into(&self) -> String {
        let columns = self
            .table
            .names(self.shape.columns.iter().map(|column| column.0));
        format!("INSERT INTO {} AS t ({columns})", self.table.name)
    }

    /// The rows that the parameters hold, under the columns' names.
    fn rows(&self, distinct: bool, numbered: bool) -> String {
        let columns = self.shape.columns.iter().enumerate();
        let (mut shown, mut parameters, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (place, form)) in columns {
            parameters.push(format!(
                "${}::{}[]",
                number + 1,
                self.parameter(*place, *form).0
            ));
            names.push(format!("c{number}"));
            let name = self.name(*place);
            shown.push(format!("{} AS {name}", self.read(number)));
        }
        if numbered {
            shown.push("ord".to_owned());
        }
        let (distinct_on, order) = match distinct {
            true => self.newest_first(),
            false => (String::new(), String::new()),
        };
        let ordinality = match distinct || numbered {
            true => {
                names.push("ord".to_owned());
                " WITH ORDINALITY"
            }
            false => "",
        };
        format!(
            "SELECT {distinct_on}{} FROM unnest({}){ordinality} AS u({}){order}",
            shown.join(", "),
            parameters.join(", "),
            names.join(", ")
        )
    }

    /// Of each key the newest row: with the largest version, and the one that came last.
    fn newest_first(&self) -> (String, String) {
        let keys: Vec<_> = self
            .shape
            .key
            .iter()
            .map(|number| self.read(*number))
            .collect();
        let keys = keys.join(", ");
        let version = match &self.config.guard {
            Guard::Field(field) if !self.shape.is_delete => {
                let place = self.table.column(field);
                let columns = self.shape.columns.iter();
                let number = columns.clone().position(|column| Some(column.0) == place);
                number.map(|number| format!(", {} DESC NULLS LAST", self.read(number)))
            }
            _ => None,
        };
        let order = format!(" ORDER BY {keys}{}, ord DESC", version.unwrap_or_default());
        (format!("DISTINCT ON ({keys}) "), order)
    }

    /// A column of the parameters as its type.
    fn read(&self, number: usize) -> String {
        let column = self.shape.columns.get(number);
        let column =
            column.and_then(|(place, form)| Some((self.table.columns.get(*place)?, *form)));
        match column {
            Some((column, Form::Text)) if column.kind != Kind::Text => {
                format!("c{number}::{}", column.type_name)
            }
            _ => format!("c{number}"),
        }
    }

    /// Name and number of the type in which a column's values are sent.
    pub(super) fn parameter(&self, place: usize, form: Form) -> (&'static str, u32) {
        let kind = self
            .table
            .columns
            .get(place)
            .map_or(Kind::Other, |column| column.kind);
        match form {
            Form::Binary => kind.parameter(),
            Form::Text => Kind::Text.parameter(),
        }
    }

    fn name(&self, place: usize) -> String {
        self.table.names([place])
    }

    fn not_key(&self) -> impl Iterator<Item = String> {
        let columns = self.shape.columns.iter().enumerate();
        let others = columns.filter(|(number, _)| !self.shape.key.contains(number));
        others.map(|(_, column)| self.name(column.0))
    }

    /// The columns of the index that keeps rows apart.
    fn conflict_columns(&self) -> String {
        let keys: Vec<_> = self.shape.key_columns().collect();
        let with_topic = || {
            let topic = self.table.column(&self.place.topic)?;
            Some([keys.as_slice(), &[topic]].concat())
        };
        match with_topic() {
            Some(more) if !self.table.is_unique(&keys) && self.table.is_unique(&more) => {
                self.table.names(more)
            }
            _ => self.table.names(keys),
        }
    }

    fn same_key(&self) -> String {
        let names = self.shape.key_columns().map(|place| self.name(place));
        let same: Vec<_> = names.map(|name| format!("t.{name} = u.{name}")).collect();
        same.join(" AND ")
    }

    /// Whether the row that comes is newer than the one that is there. Rows that nobody versioned are older than all.
    fn guard(&self, new: &str) -> Option<String> {
        match &self.config.guard {
            Guard::Off => None,
            Guard::Field(field) => {
                let name = self.name(self.table.column(field)?);
                Some(format!("(t.{name} IS NULL OR t.{name} <= {new}.{name})"))
            }
            Guard::Place => {
                let name = |name: &str| Some(self.name(self.table.column(name)?));
                let (id, partition) = (name(&self.place.topic_id)?, name(&self.place.partition)?);
                let (offset, timestamp) = (name(&self.place.offset)?, name(TIMESTAMP_COLUMN)?);
                Some(format!(
                    "CASE WHEN t.{id} = {new}.{id} AND t.{partition} = {new}.{partition} \
                     THEN t.{offset} < {new}.{offset} \
                     ELSE t.{timestamp} IS NULL OR t.{timestamp} <= {new}.{timestamp} END"
                ))
            }
        }
    }
}

/// Makes a table; whoever comes second finds it.
pub(super) fn create_table(
    table: &str,
    columns: &[(String, &'static str, bool)],
    keys: &[String],
) -> String {
    let mut parts: Vec<_> = columns
        .iter()
        .map(|(name, type_name, is_required)| {
            let not_null = if *is_required { " NOT NULL" } else { "" };
            format!("{} {type_name}{not_null}", quoted(name))
        })
        .collect();
    if !keys.is_empty() {
        let keys: Vec<_> = keys.iter().map(|name| quoted(name)).collect();
        parts.push(format!("PRIMARY KEY ({})", keys.join(", ")));
    }
    format!("CREATE TABLE IF NOT EXISTS {table} ({})", parts.join(", "))
}

/// Adds columns; those that somebody else has added are left alone.
pub(super) fn add_columns(table: &str, columns: &[(String, &'static str, bool)]) -> String {
    let added = columns.iter().map(|(name, type_name, _)| {
        format!("ADD COLUMN IF NOT EXISTS {} {type_name}", quoted(name))
    });
    format!(
        "ALTER TABLE {table} {}",
        added.collect::<Vec<_>>().join(", ")
    )
}
