//! Writes rows into PostgreSQL.
//!
//! It takes the keys of the JDBC sinks (`connection.url`, `insert.mode`, `pk.mode`, `auto.create` and so on;
//! `sharegroup describe connector postgres` has all). A record's value becomes a row field by field, or as a whole in the column that `value.column` names.
//!
//! **What is delivered twice is written once.** With `pk.mode=kafka`, the default, a row's key is where its record stood:
//! topic id, partition and offset. The topic's id is part of it, since a topic that is deleted and made again counts its
//! offsets from 0. With keys of the record's own, `insert.mode=upsert` and `update` write what is there already once more
//! to the same effect, and `insert` tells a row that is there already from another row with its key, which is refused.
//! With `pk.mode=none` what is delivered twice is two rows.
//!
//! **An older record doesn't replace a newer one**, though a share group gives no order: with `upsert` and `update` a row is
//! replaced only by a record that is newer by `version.field` or, without one, by its offset in the same partition, else
//! by its timestamp, which stand in columns beside the row. A row that was deleted has no such columns left: a record
//! from before that comes after its null value brings the row back, unless `delete.column` keeps the row and marks it.
//!
//! **One bad row costs no other.** A statement that fails for what a row holds is repeated with ever fewer rows, until
//! that row stands alone and is refused; a row that refers to one that isn't there yet is tried again later.
//!
//! **No statement outlasts the locks of its records**: the server breaks it off after `statement.timeout.ms`, two thirds of the group's lock
//! at most, and where a lock can't be renewed before that lock ends.
//!
//! # How rows are written
//!
//! Rows that can't be there yet are copied straight into the table in binary form. All others go as arrays, one for each
//! column, into one statement with `ON CONFLICT`. Each statement is a transaction. A value whose type isn't the column's,
//! text into a column of `inet` for example, is read by the database.
//!
//! Measured on two busy cores, PostgreSQL 15, over one connection (`examples/postgres_statements.rs`; a row of nine
//! columns with two unique indexes): µs of the server's CPU time per row, by rows in a statement.
//!
//! | | 100 | 500 | 3,000 | 10,000 |
//! | --- | --- | --- | --- | --- |
//! | COPY into the table | 5.2 | 3.0 | 3.2 | 2.4 |
//! | arrays, insert | 7.4 | 5.3 | 5.0 | 4.9 |
//! | arrays, upsert | 6.7 | 4.9 | 4.6 | 4.7 |
//! | COPY into a temporary table, then insert | 12.8 | 6.3 | 5.2 | 4.3 |
//! | the same, upsert | 12.1 | 5.9 | 4.5 | 3.9 |
//! | a statement for each row, pipelined, insert | 17.9 | 15.6 | 15.1 | 15.3 |
//! | the same, upsert | 18.3 | 17.2 | 15.8 | 17.2 |
//! | **this sink**, insert | 4.5 | 3.3 | 2.6 | 2.3 |
//! | **this sink**, upsert | 6.8 | 5.3 | 5.2 | 4.6 |
//!
//! So rows go by COPY where they may, and by arrays else: a temporary table gains from 10,000 rows on only, costs a transaction of
//! four round trips, and a right.
//!
//! # What is unlike the JDBC sinks
//!
//! | | here |
//! | --- | --- |
//! | `pk.mode` | `kafka` by default, with one column more: the topic's id |
//! | `max.retries`, `retry.backoff.ms`, pools | no effect: `share.*` says how a put is tried again, one connection is kept for each of `share.concurrency` |
//! | `max.poll.records` | `batch.size`, where no file sets it |
//! | dots in a topic's name | become `_`; dots of `table.name.format` part schema and table |
//! | `quote.sql.identifiers`, `quote.identifiers` | no effect: names are quoted; a column that isn't there by its name is looked for in lower case |
//! | `db.timezone`, `use.time.zone` | no effect: moments are written in UTC, as `timestamptz` where a column is made |
//! | arrays, maps, structs | `jsonb` where a column is made |
//! | `sslmode=require` | is `verify-full`; `allow` and `prefer` are `disable`, since they keep nobody out |
//! | `pk.mode=record_header` | isn't there: take the key's or the value's fields |
//! | Debezium's envelopes (`before`, `after`, `op`) | are written as they are: unwrap them where they are made (`ExtractNewRecordState`) |
//! | a null value without `delete.enabled` | is refused, or left out with `behavior.on.null.values=ignore` |

mod check;
mod config;
mod connect;
mod encode;
mod identifier;
mod layout;
mod numeric;
mod outcome;
mod plan;
mod request;
mod service;
mod statement;
mod table;
mod timeouts;
#[cfg(feature = "tls")]
mod tls;
mod url;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use sharegroup_sink::config::{ConfigProblem, KeyDef};
use sharegroup_sink::{
    CheckFuture, Connector, ConnectorConfig, DynSinkTask, OutcomeSender, PutError, SinkBatch,
    SinkTask, TaskContext, TaskError,
};

use self::config::{KEYS, PostgresConfig};
use self::service::Writer;

/// The sink `postgres`.
#[derive(Clone, Copy, Debug)]
pub struct PostgresConnector;

impl Connector for PostgresConnector {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn purpose(&self) -> &'static str {
        "writes rows into tables of PostgreSQL"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &[
            "io.confluent.connect.jdbc.JdbcSinkConnector",
            "io.debezium.connector.jdbc.JdbcSinkConnector",
            "io.aiven.connect.jdbc.JdbcSinkConnector",
        ]
    }

    fn keys(&self) -> &'static [KeyDef] {
        KEYS
    }

    fn validate(&self, config: &ConnectorConfig) -> Vec<ConfigProblem> {
        config::validate(config)
    }

    fn check<'a>(&'a self, config: &'a ConnectorConfig, topics: &'a [String]) -> CheckFuture<'a> {
        Box::pin(check::check(config, topics))
    }

    fn is_concurrent(&self) -> bool {
        true
    }

    fn writes_at_once(&self) -> bool {
        true
    }

    /// As many as one statement may have.
    fn put_records_max(&self, config: &ConnectorConfig) -> Option<usize> {
        PostgresConfig::rows_max(config)
    }

    fn task(
        &self,
        config: &ConnectorConfig,
        context: &TaskContext,
    ) -> Result<Box<dyn DynSinkTask>, TaskError> {
        let settings = PostgresConfig::of(config).map_err(|problems| {
            let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
            TaskError::new(problems.join("; "))
        })?;
        let place = PostgresConfig::place_columns(config);
        Ok(Box::new(PostgresTask(Writer::new(
            settings,
            place,
            context.clone(),
        ))))
    }
}

/// Writes the records of one task, or of one of its `share.concurrency` instances, over a connection of its own.
#[derive(Debug)]
struct PostgresTask(Writer);

impl SinkTask for PostgresTask {
    async fn start(&mut self, _: &TaskContext) -> Result<(), TaskError> {
        self.0.start().await
    }

    async fn open(&mut self, topics: &[Arc<str>]) -> Result<(), TaskError> {
        self.0.open(topics).await
    }

    async fn put(&mut self, batch: SinkBatch, outcomes: &OutcomeSender) -> Result<(), PutError> {
        self.0.put(&batch, outcomes).await
    }

    async fn stop(&mut self) -> Result<(), TaskError> {
        self.0.close();
        Ok(())
    }
}
