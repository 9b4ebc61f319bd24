//! The same statements by hand: rows that are ready for the wire lie in files, and nothing is left to do but to send them,
//! while a share consumer drains the topic at the same rate and throws the records away.

use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::SinkExt;
use sharegroup_consumer::ShareConsumer;
use sharegroup_consumer::admin::LogPosition;
use sharegroup_launcher::Kafka;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, NoTls};

use super::measure::{Measured, Watch};
use super::server::Server;
use super::topic::{PARTITIONS, Row, TOPIC};
use super::workers::{BATCH, CONNECTIONS};
use super::{AnyError, Mode};

/// Writes the files: one for each statement and mode, each with rows of one partition, as they come from the topic. The
/// answer: how many rows each has.
pub(super) fn prepare(folder: &Path, records: i64) -> Result<Vec<usize>, AnyError> {
    fs::create_dir_all(folder)?;
    let step = usize::try_from(PARTITIONS)?;
    let ids: Vec<Vec<i64>> = (0..PARTITIONS.into())
        .map(|first| (first..records).step_by(step).collect())
        .collect();
    let statements = ids.iter().map(|ids| ids.chunks(BATCH).collect::<Vec<_>>());
    let statements: Vec<_> = statements.collect();
    let mut counts = Vec::new();
    for number in 0..statements.iter().map(Vec::len).max().unwrap_or(0) {
        for ids in statements.iter().filter_map(|of_one| of_one.get(number)) {
            let rows: Vec<_> = ids.iter().copied().map(Row::new).collect();
            fs::write(file(folder, Mode::Insert, counts.len()), copy_of(&rows))?;
            fs::write(file(folder, Mode::Upsert, counts.len()), arrays_of(&rows)?)?;
            counts.push(rows.len());
        }
    }
    Ok(counts)
}

fn file(folder: &Path, mode: Mode, number: usize) -> PathBuf {
    folder.join(format!("{mode}-{number}"))
}

/// COPY's binary form.
fn copy_of(rows: &[Row]) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_slice(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0");
    for row in rows {
        out.put_i16(4);
        put_fields(row, |_, field| put_field(field, &mut out));
    }
    out.put_i16(-1);
    out
}

/// Four arrays, each behind its length.
fn arrays_of(rows: &[Row]) -> Result<BytesMut, AnyError> {
    let mut arrays: Vec<_> = [20_u32, 25, 701, 1114]
        .iter()
        .map(|element| {
            let mut array = BytesMut::new();
            array.put_i32(1);
            array.put_i32(0);
            array.put_u32(*element);
            array.put_u32(rows.len() as u32);
            array.put_i32(1);
            array
        })
        .collect();
    for row in rows {
        put_fields(row, |number, field| put_field(field, &mut arrays[number]));
    }
    let mut out = BytesMut::new();
    for array in arrays {
        out.put_u32(u32::try_from(array.len())?);
        out.put_slice(&array);
    }
    Ok(out)
}

fn put_fields(row: &Row, mut put: impl FnMut(usize, &[u8])) {
    put(0, &row.id.to_be_bytes());
    put(1, row.name.as_bytes());
    put(2, &row.amount.to_be_bytes());
    put(3, &(row.at * 1000 - MICROS_TO_2000).to_be_bytes());
}

fn put_field(field: &[u8], out: &mut BytesMut) {
    out.put_u32(field.len() as u32);
    out.put_slice(field);
}

/// From 1970-01-01 to 2000-01-01.
const MICROS_TO_2000: i64 = 946_684_800_000_000;

/// What the writers and the consumer share.
struct Pace {
    /// Records that were consumed and whose rows aren't written yet.
    consumed: Semaphore,
    /// How far the consumer may be ahead.
    ahead: Semaphore,
    next: AtomicUsize,
    /// Rows of each statement.
    statements: Vec<usize>,
}

pub(super) async fn run(
    kafka: &Kafka,
    server: &Server,
    statements: &[usize],
    mode: Mode,
    table: &str,
) -> Result<Measured, AnyError> {
    let records: usize = statements.iter().sum();
    let pace = Arc::new(Pace {
        statements: statements.to_vec(),
        consumed: Semaphore::new(0),
        ahead: Semaphore::new(BATCH * (CONNECTIONS + 1)),
        next: AtomicUsize::new(0),
    });
    let watch = Watch::begin(kafka, server, table, records.try_into()?).await?;
    let mut tasks: JoinSet<Result<(), AnyError>> = JoinSet::new();
    tasks.spawn(drain(
        kafka.bootstrap_servers(),
        table.to_owned(),
        records,
        Arc::clone(&pace),
    ));
    let folder = kafka.dir().join("by-hand");
    for _ in 0..CONNECTIONS {
        let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await?;
        tokio::spawn(connection);
        let writer = Writer {
            client,
            mode,
            folder: folder.clone(),
            pace: Arc::clone(&pace),
        };
        tasks.spawn(writer.write(table.to_owned()));
    }
    let measured = watch
        .until_full(None, || match tasks.try_join_next() {
            Some(Ok(Err(error))) => Err(error),
            Some(Err(error)) => Err(error.into()),
            _ => Ok(()),
        })
        .await?;
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(measured)
}

/// Consumes and confirms all records.
async fn drain(
    servers: String,
    group: String,
    records: usize,
    pace: Arc<Pace>,
) -> Result<(), AnyError> {
    let mut consumer = ShareConsumer::builder(&servers)
        .group_id(group)
        .topics([TOPIC])
        .begin_at(LogPosition::Earliest)
        .build()
        .await?;
    let mut seen = 0;
    while seen < records {
        let Some(batch) = consumer.poll().await? else {
            break;
        };
        let count = batch.len();
        pace.ahead.acquire_many(count.try_into()?).await?.forget();
        batch.accept();
        pace.consumed.add_permits(count);
        seen += count;
    }
    match consumer.close(Duration::from_secs(5)).await?.is_ok() {
        true => Ok(()),
        false => Err("not all was confirmed".into()),
    }
}

struct Writer {
    client: Client,
    mode: Mode,
    folder: PathBuf,
    pace: Arc<Pace>,
}

impl Writer {
    async fn write(self, table: String) -> Result<(), AnyError> {
        let text = match self.mode {
            Mode::Insert => {
                format!("COPY {table} (id, name, amount, at) FROM STDIN (FORMAT binary)")
            }
            Mode::Upsert => format!(
                "INSERT INTO {table} AS t (id, name, amount, at) \
                 SELECT c0, c1, c2, c3 FROM unnest($1::int8[], $2::text[], $3::float8[], $4::timestamp[]) AS u(c0, c1, c2, c3) \
                 ON CONFLICT (id) DO UPDATE SET name = excluded.name, amount = excluded.amount, at = excluded.at \
                 WHERE (t.at IS NULL OR t.at <= excluded.at)"
            ),
        };
        let statement = self.client.prepare(&text).await?;
        loop {
            let number = self.pace.next.fetch_add(1, Ordering::Relaxed);
            let Some(&rows) = self.pace.statements.get(number) else {
                return Ok(());
            };
            let permits = u32::try_from(rows)?;
            self.pace.consumed.acquire_many(permits).await?.forget();
            let bytes = Bytes::from(fs::read(file(&self.folder, self.mode, number))?);
            match self.mode {
                Mode::Insert => {
                    let mut sink = pin!(self.client.copy_in::<_, Bytes>(&statement).await?);
                    sink.send(bytes).await?;
                    sink.finish().await?;
                }
                Mode::Upsert => {
                    let arrays = split(bytes)?;
                    let parameters: Vec<_> = arrays
                        .iter()
                        .map(|array| array as &(dyn ToSql + Sync))
                        .collect();
                    self.client.execute(&statement, &parameters).await?;
                }
            }
            self.pace.ahead.add_permits(rows);
        }
    }
}

fn split(mut bytes: Bytes) -> Result<Vec<Ready>, AnyError> {
    use bytes::Buf;
    let mut parts = Vec::new();
    while bytes.has_remaining() {
        let length = usize::try_from(bytes.get_u32())?;
        parts.push(Ready(bytes.split_to(length)));
    }
    Ok(parts)
}

/// A parameter that is ready.
#[derive(Debug)]
struct Ready(Bytes);

impl ToSql for Ready {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, AnyError> {
        out.put_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Binary
    }

    to_sql_checked!();
}
