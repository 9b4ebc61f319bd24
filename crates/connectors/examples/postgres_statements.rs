//! How fast rows get into PostgreSQL by kind of statement and number of rows, and how fast the sink is beside that.
//!
//! `cargo run --release -p sharegroup-connectors --features postgres --example postgres_statements -- [ROWS]`
//!
//! Prints rows per second and the CPU time of the server's processes per row, for a table with four columns, the
//! record's place, and unique indexes over place and id. Everything runs over one connection at a time to a server on
//! this machine, fsync on.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use futures_util::future::join_all;
use sharegroup_sink::config::{Properties, load_properties};
use sharegroup_sink::convert::{self, Chain, Converters};
use sharegroup_sink::{DynSinkTask, Outcomes, OwnedRecord, Registry, SinkBatch, TaskContext};
use sharegroup_testkit::postgres::Postgres;
use sharegroup_wire::TopicId;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, NoTls, Statement};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), AnyError> {
    let rows = std::env::args()
        .nth(1)
        .map_or(Ok(200_000), |rows| rows.parse())?;
    let server = Postgres::start(&[])?;
    let url = server.url("postgres");
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    println!(
        "{:<18} {:>6} {:>10} {:>8}",
        "how", "batch", "rows/s", "µs/row"
    );
    for batch in [100, 500, 3000, 10_000] {
        for how in [How::Copy, How::Arrays, How::Staging, How::Pipelined] {
            for upsert in [false, true] {
                if how == How::Copy && upsert {
                    continue;
                }
                fresh(&client).await?;
                let measured = by_hand(&client, how, upsert, batch, rows).await?;
                let name = format!("{how:?}{}", if upsert { " upsert" } else { "" });
                print(&name, batch, rows, measured);
            }
        }
        for mode in ["insert", "upsert"] {
            fresh(&client).await?;
            let mut task = sink(&url, mode).await?;
            let measured = through_sink(&client, task.as_mut(), batch, rows).await?;
            print(&format!("sink {mode}"), batch, rows, measured);
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// COPY into the table.
    Copy,
    /// One statement with an array for each column.
    Arrays,
    /// COPY into a temporary table, then one statement from there.
    Staging,
    /// One statement for each row, many on their way.
    Pipelined,
}

fn print(name: &str, batch: i64, rows: i64, (time, cpu): (Duration, Duration)) {
    let per_second = rows as f64 / time.as_secs_f64();
    let micros = cpu.as_secs_f64() * 1e6 / rows as f64;
    println!("{name:<18} {batch:>6} {per_second:>10.0} {micros:>8.1}");
}

const TABLE: &str = "DROP TABLE IF EXISTS rows, stage; \
    CREATE TABLE rows (id bigint NOT NULL UNIQUE, name text, amount double precision, at timestamptz, \
        __connect_topic text, __connect_topic_id uuid, __connect_partition int, __connect_offset bigint, \
        __connect_timestamp timestamptz, \
        UNIQUE (__connect_topic_id, __connect_partition, __connect_offset)); \
    CREATE TEMP TABLE stage (LIKE rows) ON COMMIT DELETE ROWS";
const COLUMNS: &str = "id, name, amount, at, __connect_topic, __connect_topic_id, __connect_partition, \
    __connect_offset, __connect_timestamp";
const TYPES: [Type; 9] = [
    Type::INT8,
    Type::TEXT,
    Type::FLOAT8,
    Type::TIMESTAMPTZ,
    Type::TEXT,
    Type::UUID,
    Type::INT4,
    Type::INT8,
    Type::TIMESTAMPTZ,
];

async fn fresh(client: &Client) -> Result<(), AnyError> {
    client.batch_execute(TABLE).await?;
    client.batch_execute("CHECKPOINT").await?;
    Ok(())
}

const fn tail(upsert: bool) -> &'static str {
    match upsert {
        false => {
            "ON CONFLICT (__connect_topic_id, __connect_partition, __connect_offset) DO NOTHING"
        }
        true => {
            "ON CONFLICT (id) DO UPDATE SET name = excluded.name, amount = excluded.amount, at = excluded.at, \
            __connect_topic_id = excluded.__connect_topic_id, \
            __connect_partition = excluded.__connect_partition, __connect_offset = excluded.__connect_offset, \
            __connect_timestamp = excluded.__connect_timestamp \
            WHERE t.__connect_offset < excluded.__connect_offset"
        }
    }
}

struct Row {
    id: i64,
    name: String,
    amount: f64,
    at: SystemTime,
}

impl Row {
    fn new(id: i64) -> Self {
        Self {
            id,
            name: format!("customer {id}"),
            amount: id as f64 / 4.0,
            at: UNIX_EPOCH + Duration::from_millis(START_MS + id.unsigned_abs()),
        }
    }

    fn values(&self) -> [&(dyn ToSql + Sync); 9] {
        let Self {
            id,
            name,
            amount,
            at,
        } = self;
        [id, name, amount, at, &"rows", &ID, &0_i32, id, at]
    }
}

const START_MS: u64 = 1_700_000_000_000;

/// Sixteen bytes as PostgreSQL's uuid.
#[derive(Clone, Copy, Debug)]
struct Uuid([u8; 16]);

const ID: Uuid = Uuid([7; 16]);

impl ToSql for Uuid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, AnyError> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::UUID
    }

    to_sql_checked!();
}

async fn by_hand(
    client: &Client,
    how: How,
    upsert: bool,
    batch: i64,
    rows: i64,
) -> Result<(Duration, Duration), AnyError> {
    let (insert, tail) = (format!("INSERT INTO rows AS t ({COLUMNS})"), tail(upsert));
    let text = match how {
        How::Copy => format!("COPY rows ({COLUMNS}) FROM STDIN (FORMAT binary)"),
        How::Staging => format!("COPY stage ({COLUMNS}) FROM STDIN (FORMAT binary)"),
        How::Arrays => format!(
            "{insert} SELECT * FROM unnest($1::int8[], $2::text[], $3::float8[], $4::timestamptz[], \
             $5::text[], $6::uuid[], $7::int4[], $8::int8[], $9::timestamptz[]) {tail}"
        ),
        How::Pipelined => format!("{insert} VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9) {tail}"),
    };
    let statement = client.prepare(&text).await?;
    let move_on = format!("{insert} SELECT {COLUMNS} FROM stage {tail}");
    let move_on = client.prepare(&move_on).await?;
    let begun = (Instant::now(), cpu(client).await?);
    for first in (0..rows).step_by(usize::try_from(batch)?) {
        let all: Vec<_> = (first..(first + batch).min(rows)).map(Row::new).collect();
        match how {
            How::Copy => copy(client, &statement, &all).await?,
            How::Staging => {
                client.batch_execute("BEGIN").await?;
                copy(client, &statement, &all).await?;
                client.execute(&move_on, &[]).await?;
                client.batch_execute("COMMIT").await?;
            }
            How::Arrays => arrays(client, &statement, &all).await?,
            How::Pipelined => {
                client.batch_execute("BEGIN").await?;
                let run = async |row: &Row| client.execute(&statement, &row.values()).await;
                for done in join_all(all.iter().map(run)).await {
                    done?;
                }
                client.batch_execute("COMMIT").await?;
            }
        }
    }
    Ok((begun.0.elapsed(), cpu(client).await? - begun.1))
}

async fn copy(client: &Client, statement: &Statement, all: &[Row]) -> Result<(), AnyError> {
    let sink = client.copy_in(statement).await?;
    let mut writer = pin!(BinaryCopyInWriter::new(sink, &TYPES));
    for row in all {
        writer.as_mut().write(&row.values()).await?;
    }
    writer.finish().await?;
    Ok(())
}

async fn arrays(client: &Client, statement: &Statement, all: &[Row]) -> Result<(), AnyError> {
    let ids: Vec<_> = all.iter().map(|row| row.id).collect();
    let names: Vec<_> = all.iter().map(|row| row.name.as_str()).collect();
    let amounts: Vec<_> = all.iter().map(|row| row.amount).collect();
    let times: Vec<_> = all.iter().map(|row| row.at).collect();
    let (topics, topic_ids) = (vec!["rows"; all.len()], vec![ID; all.len()]);
    let partitions = vec![0_i32; all.len()];
    let values: [&(dyn ToSql + Sync); 9] = [
        &ids,
        &names,
        &amounts,
        &times,
        &topics,
        &topic_ids,
        &partitions,
        &ids,
        &times,
    ];
    client.execute(statement, &values).await?;
    Ok(())
}

/// CPU time that the server's processes for clients have used.
async fn cpu(client: &Client) -> Result<Duration, AnyError> {
    let processes = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name IN ('', 'sharegroup')";
    let mut ticks = 0;
    for row in client.query(processes, &[]).await? {
        let pid: i32 = row.get(0);
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let times = fields.split_whitespace().skip(11).take(2);
        ticks += times
            .filter_map(|time| time.parse::<u64>().ok())
            .sum::<u64>();
    }
    Ok(Duration::from_millis(ticks * TICK_MS))
}

const TICK_MS: u64 = 10;

async fn sink(url: &str, mode: &str) -> Result<Box<dyn DynSinkTask>, AnyError> {
    let is_insert = mode == "insert";
    let mut connector = Properties::new("rows.properties");
    for (key, value) in [
        ("name", "rows"),
        ("connector.class", "postgres"),
        ("topics", "rows"),
        ("connection.url", url),
        ("batch.size", "100000"),
        ("insert.mode", mode),
        ("pk.mode", if is_insert { "kafka" } else { "record_value" }),
        ("pk.fields", if is_insert { "" } else { "id" }),
    ] {
        connector.set(key, value);
    }
    let mut worker = Properties::new("worker.properties");
    worker.set("bootstrap.servers", "localhost:9092");
    worker.set("consumer.group.protocol", "share");
    let registry = Registry::new().with(sharegroup_connectors::postgres::PostgresConnector);
    let loaded = load_properties(worker, vec![connector], false, &registry);
    let loaded = loaded.map_err(|problems| format!("{problems:?}"))?;
    let config = loaded.connectors.first().ok_or("no connector")?;
    let context = TaskContext::new("rows", 0, 1, "rows");
    let mut task = config.connector().task(config, &context)?;
    task.start(&context).await?;
    task.open(&[Arc::from("rows")]).await?;
    Ok(task)
}

const SCHEMA: &str = r#"{"type":"struct","fields":[{"field":"id","type":"int64"},{"field":"name","type":"string"},{"field":"amount","type":"double"},{"field":"at","type":"int64","name":"org.apache.kafka.connect.data.Timestamp","version":1}]}"#;

async fn through_sink(
    client: &Client,
    task: &mut dyn DynSinkTask,
    batch: i64,
    rows: i64,
) -> Result<(Duration, Duration), AnyError> {
    let settings = [("schemas.enable".to_owned(), "true".to_owned())].into();
    let converter = || convert::find("org.apache.kafka.connect.json.JsonConverter", &settings);
    let chain = Arc::new(Chain::of(Converters {
        key: converter()?,
        value: converter()?,
        header: Box::new(convert::SimpleHeaderConverter::new()),
    }));
    // Converted before the clock runs: this is about what comes after.
    let mut batches = Vec::new();
    for first in (0..rows).step_by(usize::try_from(batch)?) {
        let records = (first..(first + batch).min(rows)).map(|id| {
            let Row { name, amount, .. } = Row::new(id);
            let at = 1_700_000_000_000 + id;
            let value = format!(
                r#"{{"schema":{SCHEMA},"payload":{{"id":{id},"name":"{name}","amount":{amount},"at":{at}}}}}"#
            );
            OwnedRecord {
                offset: id,
                timestamp: at,
                value: Some(Bytes::from(value)),
                delivery_count: 1,
                ..OwnedRecord::default()
            }
        });
        let batch = SinkBatch::from_records("rows", TopicId(ID.0), 0, records.collect());
        batches.push(batch.converted(&chain)?);
    }
    let begun = (Instant::now(), cpu(client).await?);
    for batch in batches {
        let outcomes = Outcomes::of(&batch);
        task.put(batch, &outcomes.sender()).await?;
    }
    Ok((begun.0.elapsed(), cpu(client).await? - begun.1))
}
