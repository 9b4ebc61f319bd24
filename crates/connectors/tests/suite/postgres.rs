//! `postgres`, on a server of its own.

use std::io;

use sharegroup_connectors::registry;
use sharegroup_sink::{OwnedRecord, Registry};
use sharegroup_testkit::postgres::Postgres;
use sharegroup_testkit::sink_suite::{
    Arrived, Delivery, Promises, Recipe, Report, SLOW, SinkSuite, Target, TargetError, Trouble,
    WorkerCommand,
};
use tokio::task::block_in_place;
use tokio_postgres::{Client, NoTls};

/// A table for each check.
struct Tables {
    server: Postgres,
    delivery: Delivery,
    table: String,
    trouble: Option<Trouble>,
}

impl Tables {
    async fn new(delivery: Delivery) -> Self {
        let tables = Self {
            server: block_in_place(|| Postgres::start(&[])).unwrap(),
            delivery,
            table: String::new(),
            trouble: None,
        };
        let role = format!(
            "CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'; GRANT CREATE ON SCHEMA public TO {USER}"
        );
        tables.run(&role).await.unwrap();
        tables
    }

    /// A connection of somebody who may do everything.
    async fn client(&self) -> Result<Client, TargetError> {
        let connected = tokio_postgres::connect(&self.server.url(DATABASE), NoTls).await;
        let (client, connection) = connected.map_err(TargetError::broken)?;
        tokio::spawn(connection);
        Ok(client)
    }

    async fn run(&self, statements: &str) -> Result<(), TargetError> {
        let done = self.client().await?.batch_execute(statements).await;
        done.map_err(TargetError::broken)
    }

    /// Has this done before each statement that writes.
    async fn before_writing(&self, what: &str) -> Result<(), TargetError> {
        let Self { table, .. } = self;
        self.run(&format!(
            "CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {what}; RETURN NULL; END $$;
             CREATE TRIGGER trouble BEFORE INSERT OR UPDATE ON {table} EXECUTE FUNCTION trouble()"
        ))
        .await
    }

    fn server(
        &mut self,
        change: impl FnOnce(&mut Postgres) -> io::Result<()>,
    ) -> Result<(), TargetError> {
        Ok(block_in_place(|| change(&mut self.server))?)
    }

    fn is_by_key(&self) -> bool {
        self.delivery == Delivery::IdempotentByKey
    }

    fn record(&self, key: u64, number: i64, bytes: usize) -> OwnedRecord {
        let fill = "x".repeat(bytes);
        let value = format!(r#"{{"number":{number},"fill":"{fill}"}}"#);
        OwnedRecord {
            key: self.is_by_key().then(|| key.to_string().into()),
            value: Some(value.into()),
            ..OwnedRecord::default()
        }
    }
}

impl Target for Tables {
    fn promises(&self) -> Promises {
        Promises::new(self.delivery)
    }

    fn registry(&self) -> Registry {
        registry()
    }

    async fn start(&mut self, topic: &str) -> Result<(), TargetError> {
        self.mend().await?;
        self.table = topic.to_owned();
        let place = "__connect_topic_id uuid, __connect_partition int, __connect_offset bigint";
        let (key, columns) = match self.is_by_key() {
            true => ("id", "id bigint, __connect_timestamp timestamptz"),
            false => (
                "__connect_topic_id, __connect_partition, __connect_offset",
                "__connect_topic text",
            ),
        };
        self.run(&format!(
            "CREATE TABLE {topic} (number bigint CHECK (number >= 0), fill text, {place}, {columns}, PRIMARY KEY ({key}));
             ALTER TABLE {topic} OWNER TO {USER}"
        ))
        .await
    }

    fn properties(&self) -> Vec<(String, String)> {
        let url = format!(
            "jdbc:postgresql://127.0.0.1:{}/{DATABASE}",
            self.server.port()
        );
        let json = "org.apache.kafka.connect.json.JsonConverter";
        let mut keys = vec![
            ("connector.class", "postgres"),
            ("connection.url", &url),
            ("connection.user", USER),
            ("connection.password", PASSWORD),
            ("key.converter", json),
            ("key.converter.schemas.enable", "false"),
            ("value.converter", json),
            ("value.converter.schemas.enable", "false"),
        ];
        if self.is_by_key() {
            keys.extend([
                ("insert.mode", "upsert"),
                ("pk.mode", "record_key"),
                ("pk.fields", "id"),
            ]);
        }
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        keys.into_iter().map(owned).collect()
    }

    fn good_record(&self, recipe: &Recipe) -> OwnedRecord {
        self.record(recipe.key, recipe.number.cast_signed(), recipe.bytes)
    }

    fn bad_record(&self, recipe: &Recipe) -> Result<OwnedRecord, TargetError> {
        Ok(self.record(recipe.key, -1, 0))
    }

    async fn read_back(&mut self) -> Result<Vec<Arrived>, TargetError> {
        let count = format!("SELECT number, count(*) FROM {} GROUP BY 1", self.table);
        let rows = self.client().await?.query(&count, &[]).await;
        let arrived = |row: &tokio_postgres::Row| Arrived {
            number: row.get::<_, i64>(0).cast_unsigned(),
            times: row.get::<_, i64>(1).cast_unsigned(),
        };
        Ok(rows
            .map_err(TargetError::broken)?
            .iter()
            .map(arrived)
            .collect())
    }

    async fn trouble(&mut self, trouble: Trouble) -> Result<(), TargetError> {
        match trouble {
            Trouble::Down => self.server(Postgres::kill)?,
            Trouble::Restarted => {
                return self.server(|server| {
                    server.kill()?;
                    server.restart()
                });
            }
            Trouble::Refusing => {
                self.run(&format!("ALTER ROLE {USER} CONNECTION LIMIT 0"))
                    .await?
            }
            Trouble::Slow => {
                let sleep = format!("PERFORM pg_sleep({})", SLOW.as_secs_f64());
                self.before_writing(&sleep).await?;
            }
            // What the server says where a disk is full; one that can be filled is none of the test's.
            Trouble::Full => {
                let full = "RAISE 'could not extend file: no space left' USING ERRCODE = '53100'";
                self.before_writing(full).await?;
            }
            Trouble::Silent => self.server(|server| server.pause())?,
            _ => return Err(TargetError::cant_play("a trouble that isn't known here")),
        }
        self.trouble = Some(trouble);
        Ok(())
    }

    async fn mend(&mut self) -> Result<(), TargetError> {
        match self.trouble.take() {
            Some(Trouble::Down) => self.server(Postgres::restart),
            Some(Trouble::Silent) => self.server(|server| server.resume()),
            Some(Trouble::Refusing) => {
                self.run(&format!("ALTER ROLE {USER} CONNECTION LIMIT -1"))
                    .await
            }
            Some(Trouble::Slow | Trouble::Full) => self.run("DROP FUNCTION trouble CASCADE").await,
            _ => Ok(()),
        }
    }

    fn wrong_credentials(&self) -> Result<Vec<(String, String)>, TargetError> {
        let key = "connection.password".to_owned();
        Ok(vec![(key, WRONG_PASSWORD.to_owned())])
    }

    fn secrets(&self) -> Vec<String> {
        [PASSWORD, WRONG_PASSWORD].map(str::to_owned).to_vec()
    }
}

/// Every check has passed, and none was left out.
fn passed(report: &Report) {
    report.verdict().unwrap();
    assert_eq!(report.skipped(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_the_promises_of_a_sink() {
    let suite = SinkSuite::new(Tables::new(Delivery::IdempotentById).await);
    let report = suite
        .worker_process(WorkerCommand::this_program("worker_process"))
        .run()
        .await;
    passed(&report);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_the_promises_of_a_sink_that_upserts() {
    let mut suite = SinkSuite::new(Tables::new(Delivery::IdempotentByKey).await)
        .worker_process(WorkerCommand::this_program("worker_process"))
        .records(20_000);
    for check in UNLIKE_FOR_KEYS {
        suite = suite.only(check);
    }
    passed(&suite.run().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_the_promises_of_a_sink_on_a_real_broker() {
    let Some(kafka) = super::kafka().await else {
        return;
    };
    let tables = Tables::new(Delivery::IdempotentById).await;
    let report = super::suite_on(&kafka, tables)
        .worker_process(WorkerCommand::this_program("worker_process"))
        .run()
        .await;
    passed(&report);
}

const DATABASE: &str = "postgres";
/// The server's name for users that SCRAM lets in.
const USER: &str = "scram";
const PASSWORD: &str = "open-sesame-4711";
const WRONG_PASSWORD: &str = "guessed-wrongly-0815";
/// The checks in which an upsert's statements have a part that an insert's haven't.
const UNLIKE_FOR_KEYS: [&str; 9] = [
    "written_before_accepted",
    "bad_record_is_named",
    "redelivered",
    "reordered",
    "put_is_cancelled",
    "put_after_restart",
    "bad_record_stands_alone",
    "restarted",
    "killed_worker",
];
