//! What the database says of a table.

use tokio_postgres::Client;

use super::identifier::{TableName, quoted};

/// A table as it is.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) name: TableName,
    pub(super) columns: Vec<Column>,
    /// The columns of each unique index, by their places in `columns`.
    unique: Vec<Vec<usize>>,
    /// Whether COPY writes into it: no view, no row-level security.
    pub(super) takes_copy: bool,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The type as statements write it, without its length: a cast to `bit(2)` would cut off what a column refuses.
    pub(super) type_name: String,
    /// The type with its length: `numeric(10,2)`.
    pub(super) stored_as: String,
    /// Whether null is refused.
    pub(super) is_required: bool,
    /// Whether its value is the database's own affair.
    pub(super) is_generated: bool,
}

/// Types whose binary form is written here. All others are written as text, which the database reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Bytea,
    Date,
    Time,
    Timestamp,
    TimestampTz,
    Json,
    Jsonb,
    Uuid,
    Other,
}

impl Kind {
    fn of(base_type: &str) -> Self {
        match base_type {
            "bool" => Self::Bool,
            "int2" => Self::Int2,
            "int4" => Self::Int4,
            "int8" => Self::Int8,
            "float4" => Self::Float4,
            "float8" => Self::Float8,
            "numeric" => Self::Numeric,
            "text" | "varchar" | "bpchar" => Self::Text,
            "bytea" => Self::Bytea,
            "date" => Self::Date,
            "time" => Self::Time,
            "timestamp" => Self::Timestamp,
            "timestamptz" => Self::TimestampTz,
            "json" => Self::Json,
            "jsonb" => Self::Jsonb,
            "uuid" => Self::Uuid,
            _ => Self::Other,
        }
    }

    /// The type's name and its number, which are the same on every server.
    pub(super) const fn parameter(self) -> (&'static str, u32) {
        match self {
            Self::Bool => ("bool", 16),
            Self::Int2 => ("int2", 21),
            Self::Int4 => ("int4", 23),
            Self::Int8 => ("int8", 20),
            Self::Float4 => ("float4", 700),
            Self::Float8 => ("float8", 701),
            Self::Numeric => ("numeric", 1700),
            Self::Text | Self::Other => ("text", 25),
            Self::Bytea => ("bytea", 17),
            Self::Date => ("date", 1082),
            Self::Time => ("time", 1083),
            Self::Timestamp => ("timestamp", 1114),
            Self::TimestampTz => ("timestamptz", 1184),
            Self::Json => ("json", 114),
            Self::Jsonb => ("jsonb", 3802),
            Self::Uuid => ("uuid", 2950),
        }
    }
}

impl Table {
    /// What the database knows of the table; `None` = there is none of that name.
    pub(super) async fn describe(
        client: &Client,
        name: &TableName,
    ) -> Result<Option<Self>, tokio_postgres::Error> {
        let regclass = name.to_string();
        let Some(table) = client.query_opt(TABLE, &[&regclass]).await? else {
            return Ok(None);
        };
        let (oid, takes_copy): (u32, bool) = (table.get(0), table.get(1));
        let mut numbers: Vec<i16> = Vec::new();
        let mut columns = Vec::new();
        for row in client.query(COLUMNS, &[&oid]).await? {
            numbers.push(row.get(0));
            columns.push(Column {
                name: row.get(1),
                kind: Kind::of(row.get(2)),
                type_name: row.get(3),
                stored_as: row.get(4),
                is_required: row.get(5),
                is_generated: row.get(6),
            });
        }
        let unique = client.query(UNIQUE, &[&oid]).await?.into_iter();
        let unique = unique.map(|row| {
            let of_index: Vec<i16> = row.get(0);
            let place = |number| numbers.iter().position(|known| *known == number);
            of_index.into_iter().filter_map(place).collect()
        });
        Ok(Some(Self {
            name: name.clone(),
            columns,
            unique: unique.collect(),
            takes_copy,
        }))
    }

    /// The column of a field: of the same name or, where there is none, of that in lower case.
    pub(super) fn column(&self, field: &str) -> Option<usize> {
        let of = |name: &str| self.columns.iter().position(|column| column.name == name);
        of(field).or_else(|| of(&field.to_lowercase()))
    }

    /// Whether an index keeps just these columns unique.
    pub(super) fn is_unique(&self, columns: &[usize]) -> bool {
        self.unique.iter().any(|index| {
            index.len() == columns.len() && columns.iter().all(|column| index.contains(column))
        })
    }

    /// Names of columns, quoted, with commas.
    pub(super) fn names(&self, columns: impl IntoIterator<Item = usize>) -> String {
        let names = columns
            .into_iter()
            .filter_map(|place| self.columns.get(place));
        let names: Vec<_> = names.map(|column| quoted(&column.name)).collect();
        names.join(", ")
    }
}

/// Of text in the first parameter; COPY goes into plain tables and partitioned ones without row-level security.
const TABLE: &str = "SELECT c.oid, c.relkind IN ('r', 'p') AND NOT c.relrowsecurity \
    FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass($1::text)::oid";

/// A domain's kind is none, so that its checks see text. A default stands for what isn't written, not for null.
const COLUMNS: &str = "SELECT a.attnum, a.attname::text, t.typname::text, \
    pg_catalog.format_type(a.atttypid, NULL), pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, \
    a.attgenerated <> '' OR a.attidentity = 'a' \
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid \
    WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

/// Indexes that ON CONFLICT can name by their columns alone.
const UNIQUE: &str = "SELECT ARRAY(SELECT k FROM pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS u(k, n) \
    WHERE u.n <= i.indnkeyatts ORDER BY u.n) FROM pg_catalog.pg_index i \
    WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid AND i.indimmediate \
    AND i.indpred IS NULL AND i.indexprs IS NULL";
