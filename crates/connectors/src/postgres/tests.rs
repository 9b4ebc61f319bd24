//! The sink against a real PostgreSQL.

mod check;
mod failures;
mod histories;
mod modes;
mod security;
mod types;

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use sharegroup_sink::config::{ConfigProblem, Properties, load_properties};
use sharegroup_sink::convert::{self, Chain, Converters};
use sharegroup_sink::{
    ConnectorConfig, Outcome, Outcomes, OwnedRecord, PutError, Registry, SinkBatch, SinkTask,
    TaskContext, TaskError,
};
use sharegroup_testkit::postgres::Postgres;
use sharegroup_wire::TopicId;
use tokio_postgres::{Client, NoTls};

use super::config::PostgresConfig;
use super::service::Writer;
use super::{PostgresConnector, PostgresTask};

/// One server for all tests, each of which has a database of its own.
fn server() -> &'static Postgres {
    static SERVER: LazyLock<Postgres> = LazyLock::new(|| {
        Postgres::start(&[("fsync", "off"), ("deadlock_timeout", "20ms")]).unwrap()
    });
    &SERVER
}

/// A database, and a connection to it for a look at what is there.
struct Database {
    name: String,
    client: Client,
}

impl Database {
    async fn new(name: &str) -> Self {
        Self::on(server(), name).await
    }

    async fn on(server: &Postgres, name: &str) -> Self {
        let first = connect(&server.url("postgres")).await;
        first
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .await
            .unwrap();
        Self {
            client: connect(&server.url(name)).await,
            name: name.to_owned(),
        }
    }

    fn url(&self) -> String {
        server().url(&self.name)
    }

    async fn run(&self, statement: &str) {
        self.client.batch_execute(statement).await.unwrap();
    }

    /// Rows of a query, their columns joined by `|`.
    async fn rows(&self, query: &str) -> Vec<String> {
        let messages = self.client.simple_query(query).await.unwrap();
        let rows = messages.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => {
                let columns = (0..row.len()).map(|column| row.get(column).unwrap_or("NULL"));
                Some(columns.collect::<Vec<_>>().join("|"))
            }
            _ => None,
        });
        rows.collect()
    }

    fn task(&self, extra: &[(&str, &str)]) -> PostgresTask {
        let url = self.url();
        task(&[&[("connection.url", url.as_str())], extra].concat())
    }

    /// A task that has started and knows its topic.
    async fn open(&self, extra: &[(&str, &str)]) -> PostgresTask {
        let mut task = self.task(extra);
        start(&mut task).await.unwrap();
        task
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn start(task: &mut PostgresTask) -> Result<(), TaskError> {
    task.start(&context()).await?;
    task.open(&[Arc::from("orders")]).await
}

fn context() -> TaskContext {
    TaskContext::new("out", 0, 1, "connect-out")
}

fn task(extra: &[(&str, &str)]) -> PostgresTask {
    task_of(extra, context())
}

fn task_of(extra: &[(&str, &str)], context: TaskContext) -> PostgresTask {
    let config = configure(extra).unwrap();
    let settings = PostgresConfig::of(&config).unwrap();
    PostgresTask(Writer::new(
        settings,
        PostgresConfig::place_columns(&config),
        context,
    ))
}

/// The connector, or what is wrong with it; warnings included.
fn load(extra: &[(&str, &str)]) -> Result<(ConnectorConfig, String), String> {
    let mut connector = Properties::new("out.properties");
    let all = [
        ("name", "out"),
        (
            "connector.class",
            "io.confluent.connect.jdbc.JdbcSinkConnector",
        ),
        ("topics", "orders"),
    ];
    for (key, value) in all.iter().chain(extra) {
        connector.set(*key, *value);
    }
    let mut worker = Properties::new("worker.properties");
    worker.set("bootstrap.servers", "localhost:9092");
    worker.set("consumer.group.protocol", "share");
    let registry = Registry::new().with(PostgresConnector);
    let text = |problems: Vec<ConfigProblem>| -> String {
        problems
            .iter()
            .map(|problem| format!("{problem}\n"))
            .collect()
    };
    let mut loaded = load_properties(worker, vec![connector], false, &registry).map_err(text)?;
    Ok((loaded.connectors.remove(0), text(loaded.warnings)))
}

fn configure(extra: &[(&str, &str)]) -> Result<ConnectorConfig, String> {
    load(extra).map(|loaded| loaded.0)
}

/// A batch of JSON: keys and values, with schemas or without.
struct Json {
    with_schemas: bool,
    topic_id: TopicId,
    partition: i32,
    records: Vec<OwnedRecord>,
}

impl Json {
    fn plain() -> Self {
        Self {
            with_schemas: false,
            topic_id: TopicId([7; 16]),
            partition: 0,
            records: Vec::new(),
        }
    }

    fn with_schemas() -> Self {
        Self {
            with_schemas: true,
            ..Self::plain()
        }
    }

    fn partition(mut self, partition: i32) -> Self {
        self.partition = partition;
        self
    }

    fn record(mut self, offset: i64, key: Option<&str>, value: Option<&str>) -> Self {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        self.records.push(OwnedRecord {
            offset,
            timestamp: offset * 1000,
            key: key.map(bytes),
            value: value.map(bytes),
            delivery_count: 1,
            ..OwnedRecord::default()
        });
        self
    }

    fn value(self, offset: i64, value: &str) -> Self {
        self.record(offset, None, Some(value))
    }

    fn redelivered(mut self) -> Self {
        self.records
            .iter_mut()
            .for_each(|record| record.delivery_count = 2);
        self
    }

    fn batch(self) -> SinkBatch {
        let schemas = self.with_schemas.to_string();
        let settings = [("schemas.enable".to_owned(), schemas)].into();
        let converter =
            || convert::find("org.apache.kafka.connect.json.JsonConverter", &settings).unwrap();
        let chain = Arc::new(Chain::of(Converters {
            key: converter(),
            value: converter(),
            header: Box::new(convert::SimpleHeaderConverter::new()),
        }));
        let batch = SinkBatch::from_records("orders", self.topic_id, self.partition, self.records);
        batch.converted(&chain).unwrap()
    }
}

async fn put(
    task: &mut PostgresTask,
    batch: SinkBatch,
) -> (Result<(), PutError>, Vec<Option<Outcome>>) {
    let outcomes = Outcomes::of(&batch);
    let sender = outcomes.sender();
    let result = task.put(batch, &sender).await;
    (result, outcomes.take().unwrap_or_default())
}

/// Puts a batch of which every record is written.
async fn write(task: &mut PostgresTask, json: Json) {
    let (result, outcomes) = put(task, json.batch()).await;
    result.unwrap();
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome == &Some(Outcome::Written)),
        "{outcomes:?}"
    );
}

/// One letter for each record: what became of it.
fn letters(outcomes: &[Option<Outcome>]) -> String {
    let letter = |outcome: &Option<Outcome>| match outcome {
        None => '-',
        Some(Outcome::Written) => 'w',
        Some(Outcome::Refused { .. }) => 'r',
        Some(Outcome::Later { .. }) => 'l',
        _ => 'u',
    };
    outcomes.iter().map(letter).collect()
}

#[test]
fn keys_have_the_names_of_both_kinds_of_jdbc_sinks() {
    let url = ("connection.url", "jdbc:postgresql://h/d");
    for extra in [
        &[
            ("pk.mode", "record_key"),
            ("insert.mode", "upsert"),
            ("pk.fields", "id"),
        ][..],
        &[
            ("primary.key.mode", "record_key"),
            ("insert.mode", "upsert"),
            ("schema.evolution", "basic"),
        ][..],
    ] {
        let config = configure(&[&[url], extra].concat()).unwrap();
        let settings = PostgresConfig::of(&config).unwrap();
        assert!(matches!(settings.key, super::config::RowKey::OfKey(_)));
        assert_eq!(settings.create, extra.len() == 3 && extra[2].1 == "basic");
    }
}

#[test]
fn b_101_contradictions_are_told_before_anything_starts() {
    let url = ("connection.url", "postgresql://u:hush@h/d");
    for (extra, key) in [
        (vec![("delete.enabled", "true")], "delete.enabled"),
        (vec![("insert.mode", "upsert")], "insert.mode"),
        (vec![("pk.fields", "a")], "pk.fields"),
        (
            vec![("pk.mode", "none"), ("primary.key.mode", "kafka")],
            "pk.mode",
        ),
        (vec![("table.name.format", "a.b.c")], "table.name.format"),
        (
            vec![("connection.url", "jdbc:mysql://u:hush@h/d")],
            "connection.url",
        ),
    ] {
        let problems = load(&[&[url], &*extra].concat()).unwrap_err();
        assert!(problems.contains(&format!(": {key}")), "{problems}");
        assert!(!problems.contains("hush"), "{problems}");
    }
    let (_, warnings) = load(&[url, ("max.retries", "3")]).unwrap();
    assert!(
        warnings.contains("max.retries") && warnings.contains("share.hold.max.ms"),
        "{warnings}"
    );
}
