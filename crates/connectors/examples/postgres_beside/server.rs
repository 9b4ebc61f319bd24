//! The database, the tables, and what its processes cost.

use std::fs;
use std::time::Duration;

use sharegroup_testkit::postgres::{Postgres, SUPERUSER};
use tokio_postgres::{Client, NoTls};

use super::topic::EXPECTED;
use super::{AnyError, Mode};

/// A server, and a connection that looks at it.
pub(super) struct Server {
    postgres: Postgres,
    client: Client,
    /// Process of that connection.
    watcher: u32,
}

impl Server {
    pub(super) async fn start() -> Result<Self, AnyError> {
        let postgres = Postgres::start(&[])?;
        let (client, connection) =
            tokio_postgres::connect(&postgres.url("postgres"), NoTls).await?;
        tokio::spawn(connection);
        // What it costs to look must not hide in processes that help with it.
        let alone = "SET max_parallel_workers_per_gather = 0; SET TimeZone = 'UTC'";
        client.batch_execute(alone).await?;
        let watcher: i32 = client
            .query_one("SELECT pg_backend_pid()", &[])
            .await?
            .get(0);
        Ok(Self {
            postgres,
            client,
            watcher: watcher.try_into()?,
        })
    }

    pub(super) fn url(&self) -> String {
        self.postgres.url("postgres")
    }

    pub(super) fn jdbc_url(&self) -> String {
        format!(
            "jdbc:postgresql://127.0.0.1:{}/postgres",
            self.postgres.port()
        )
    }

    pub(super) const fn user(&self) -> &'static str {
        SUPERUSER
    }

    /// A table, for `upsert` with every other row in it, older.
    pub(super) async fn make_table(
        &self,
        table: &str,
        mode: Mode,
        records: i64,
    ) -> Result<(), AnyError> {
        let make = format!(
            "CREATE TABLE {table} (id bigint PRIMARY KEY, name text NOT NULL, \
             amount double precision NOT NULL, at timestamp NOT NULL)"
        );
        self.client.batch_execute(&make).await?;
        if mode == Mode::Upsert {
            let fill = format!(
                "INSERT INTO {table} SELECT id, 'old', 0, timestamp '2020-01-01' \
                 FROM generate_series(0, {}, 2) AS id",
                records - 1
            );
            self.client.batch_execute(&fill).await?;
        }
        self.client.batch_execute("CHECKPOINT").await?;
        Ok(())
    }

    /// How many rows are written.
    pub(super) async fn written(&self, table: &str) -> Result<i64, AnyError> {
        let count = format!("SELECT count(*) FROM {table} WHERE name <> 'old'");
        Ok(self.client.query_one(&count, &[]).await?.get(0))
    }

    /// The write-ahead log's end, in bytes: it grows with each row.
    pub(super) async fn log_end(&self) -> Result<i64, AnyError> {
        let end = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
        Ok(self.client.query_one(end, &[]).await?.get(0))
    }

    /// Whether the table holds what was produced, no more and no less; then it goes.
    pub(super) async fn check_and_drop(&self, table: &str, records: i64) -> Result<(), AnyError> {
        let differences = format!(
            "WITH expected AS ({EXPECTED} FROM generate_series(0, {} :: bigint) AS id) \
             SELECT count(*) FROM expected FULL JOIN {table} AS t USING (id) \
             WHERE ROW(expected.name, expected.amount, expected.at) IS DISTINCT FROM ROW(t.name, t.amount, t.at)",
            records - 1
        );
        let different: i64 = self.client.query_one(&differences, &[]).await?.get(0);
        if different != 0 {
            return Err(format!("{different} rows of {table} are not what was produced").into());
        }
        self.client
            .batch_execute(&format!("DROP TABLE {table}"))
            .await?;
        Ok(())
    }

    /// CPU time of all processes of the server, also of those that ended, but for the one that looks.
    pub(super) fn cpu(&self) -> Result<Duration, AnyError> {
        let postmaster = self.postgres.pid().ok_or("the server is gone")?;
        let own = ticks(postmaster).ok_or("the server is gone")?;
        let mut sum = own.itself + own.ended_children;
        for entry in fs::read_dir("/proc")? {
            let pid = entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let Some(pid) = pid.filter(|pid| *pid != self.watcher) else {
                continue;
            };
            if let Some(ticks) = ticks(pid).filter(|ticks| ticks.parent == postmaster) {
                sum += ticks.itself;
            }
        }
        Ok(Duration::from_millis(sum * TICK_MS))
    }
}

struct Ticks {
    parent: u32,
    itself: u64,
    ended_children: u64,
}

/// From `/proc/PID/stat`, see proc(5): fields 4 and 14 to 17.
fn ticks(pid: u32) -> Option<Ticks> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Ticks {
        parent: number(4)?.try_into().ok()?,
        itself: number(14)? + number(15)?,
        ended_children: number(16)? + number(17)?,
    })
}

const TICK_MS: u64 = 10;
