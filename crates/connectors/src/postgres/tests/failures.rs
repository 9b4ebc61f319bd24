//! What goes wrong, and what becomes of the records then.

use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::*;

const NO_KEY: (&str, &str) = ("pk.mode", "none");

fn numbers(count: i64, bad: &[i64]) -> Json {
    (0..count).fold(Json::plain(), |json, offset| {
        let text = if bad.contains(&offset) {
            "toolong"
        } else {
            "ok"
        };
        json.value(offset, &format!(r#"{{"id":{offset},"name":"{text}"}}"#))
    })
}

#[tokio::test]
async fn b_059_bad_rows_are_found_and_the_others_are_written_once() {
    let database = Database::new("badrows").await;
    database
        .run("CREATE TABLE orders (id int CHECK (id <> 17), name varchar(3))")
        .await;
    let mut task = database.open(&[NO_KEY, ("batch.size", "40")]).await;
    let (result, outcomes) = put(&mut task, numbers(100, &[3, 41]).batch()).await;
    result.unwrap();
    let refused: Vec<_> = (0..)
        .zip(&outcomes)
        .filter(|(_, outcome)| matches!(outcome, Some(Outcome::Refused { .. })))
        .collect();
    assert_eq!(
        refused
            .iter()
            .map(|(offset, _)| *offset)
            .collect::<Vec<i64>>(),
        [3, 17, 41]
    );
    assert_eq!(
        database
            .rows("SELECT count(*), count(DISTINCT id) FROM orders")
            .await,
        ["97|97"]
    );
    let Some(Some(Outcome::Refused { reason })) = outcomes.get(3) else {
        panic!("{outcomes:?}");
    };
    assert!(
        reason.contains("value too long") && reason.contains("22001"),
        "{reason}"
    );
}

/// What a statement leaves to the commit is said only after the statement's own success.
#[tokio::test]
async fn a_row_that_the_commit_refuses_is_found_and_the_others_are_written() {
    let database = Database::new("deferred").await;
    database
        .run(
            "CREATE TABLE orders (id int, name text, CONSTRAINT one UNIQUE (name) DEFERRABLE INITIALLY DEFERRED)",
        )
        .await;
    let json = (0..10).fold(Json::plain(), |json, offset| {
        // The eighth is named as the third.
        let name = if offset == 7 { 2 } else { offset };
        json.value(offset, &format!(r#"{{"id":{offset},"name":"{name}"}}"#))
    });
    let mut task = database.open(&[NO_KEY]).await;
    let (result, outcomes) = put(&mut task, json.batch()).await;
    result.unwrap();
    assert_eq!(letters(&outcomes), "wwwwwwwrww");
    let count = "SELECT count(*), count(DISTINCT name) FROM orders";
    assert_eq!(database.rows(count).await, ["9|9"]);
    // The connection is as good as before.
    write(
        &mut task,
        Json::plain().value(10, r#"{"id":10,"name":"10"}"#),
    )
    .await;
    assert_eq!(database.rows(count).await, ["10|10"]);
}

#[tokio::test]
async fn a_row_whose_parent_may_still_come_is_tried_later() {
    let database = Database::new("parents").await;
    database.run("CREATE TABLE parents (id int PRIMARY KEY); CREATE TABLE orders (id int REFERENCES parents, name text); INSERT INTO parents VALUES (0), (2)").await;
    let mut task = database.open(&[NO_KEY]).await;
    let (result, outcomes) = put(&mut task, numbers(3, &[]).batch()).await;
    assert!(result.unwrap_err().is_retriable());
    assert_eq!(letters(&outcomes), "wlw");
}

#[tokio::test]
async fn a_table_that_changes_is_looked_at_again() {
    let database = Database::new("changes").await;
    database
        .run("CREATE TABLE orders (id int, name text)")
        .await;
    let mut task = database.open(&[NO_KEY]).await;
    write(&mut task, numbers(2, &[])).await;
    database
        .run("ALTER TABLE orders ALTER id TYPE bigint, ALTER name TYPE jsonb USING '1'")
        .await;
    let plain = Json::plain().value(5, r#"{"id":5,"name":{"a":1}}"#);
    write(&mut task, plain).await;
    database.run("DROP TABLE orders").await;
    let (result, _) = put(&mut task, numbers(1, &[]).batch()).await;
    let error = result.unwrap_err();
    assert!(matches!(error, PutError::Broken { .. }), "{error}");
}

#[tokio::test]
async fn a_lock_is_not_waited_for_longer_than_configured() {
    let database = Database::new("locks").await;
    database
        .run("CREATE TABLE orders (id int, name text)")
        .await;
    let mut task = database.open(&[NO_KEY, ("lock.timeout.ms", "50")]).await;
    database.run("BEGIN; LOCK orders").await;
    let (result, outcomes) = put(&mut task, numbers(2, &[]).batch()).await;
    let error = result.unwrap_err();
    assert!(
        error.is_retriable() && error.to_string().contains("55P03"),
        "{error}"
    );
    assert_eq!(letters(&outcomes), "");
    database.run("COMMIT").await;
    write(&mut task, numbers(2, &[])).await;
}

/// As the runtime does it.
pub(super) async fn put_until_written(task: &mut PostgresTask, json: Json) {
    let batch = json.batch();
    for _ in 0..100 {
        match put(task, batch.clone()).await {
            (Ok(()), outcomes) => {
                assert!(!letters(&outcomes).contains(['r', '-']), "{outcomes:?}");
                return;
            }
            (Err(error), _) => assert!(error.is_retriable(), "{error}"),
        }
    }
    panic!("never written");
}

#[tokio::test]
async fn of_two_tasks_that_lock_each_other_out_both_write() {
    let database = Database::new("deadlocks").await;
    database
        .run("CREATE TABLE orders (id int PRIMARY KEY, name text)")
        .await;
    let extra = [
        ("insert.mode", "upsert"),
        ("pk.mode", "record_value"),
        ("pk.fields", "id"),
        ("version.guard", "false"),
    ];
    let up = || numbers(400, &[]);
    let down = || {
        let values = (0..400).map(|offset| (offset, 399 - offset));
        values.fold(Json::plain(), |json, (offset, id)| {
            json.value(offset, &format!(r#"{{"id":{id},"name":"b"}}"#))
        })
    };
    let (mut first, mut second) = (database.open(&extra).await, database.open(&extra).await);
    write(&mut first, up()).await;
    let ups = async {
        for _ in 0..20 {
            put_until_written(&mut first, up()).await;
        }
    };
    let downs = async {
        for _ in 0..20 {
            put_until_written(&mut second, down()).await;
        }
    };
    tokio::join!(ups, downs);
    assert_eq!(database.rows("SELECT count(*) FROM orders").await, ["400"]);
}

/// A way to the server that can be cut: at once, or when the server's next answer comes.
struct Cable {
    port: u16,
    cut: oneshot::Sender<Cut>,
}

enum Cut {
    Now,
    AtAnswer,
}

impl Cable {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cut, how) = oneshot::channel();
        let first = tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut server = TcpStream::connect(("127.0.0.1", server().port()))
                .await
                .unwrap();
            let how = tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => return listener,
                how = how => how,
            };
            if let Ok(Cut::AtAnswer) = how {
                let (mut from_client, _) = client.split();
                let (mut from_server, mut to_server) = server.split();
                tokio::select! {
                    _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
                    // The statement was carried out; nobody is told.
                    _ = wait_for(&mut from_server, b"COPY ") => {}
                }
            }
            listener
        });
        tokio::spawn(async move {
            let listener = first.await.unwrap();
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(("127.0.0.1", server().port()))
                        .await
                        .unwrap();
                    drop(copy_bidirectional(&mut client, &mut server).await);
                });
            }
        });
        Self { port, cut }
    }
}

/// Reads until a text has come; whoever asks first is told nothing of it.
async fn wait_for(from: &mut (impl tokio::io::AsyncRead + Unpin), text: &[u8]) {
    use tokio::io::AsyncReadExt;
    let mut seen = Vec::new();
    while from.read_buf(&mut seen).await.is_ok_and(|count| count > 0) {
        if seen.windows(text.len()).any(|window| window == text) {
            return;
        }
    }
}

#[tokio::test]
async fn b_063_a_commit_whose_answer_is_lost_is_found_again() {
    let database = Database::new("lost").await;
    let cable = Cable::new().await;
    let url = format!("postgresql://sharegroup@127.0.0.1:{}/lost", cable.port);
    let mut task = task(&[
        ("connection.url", &url),
        ("auto.create", "true"),
        ("value.column", "doc"),
        ("statement.timeout.ms", "2000"),
    ]);
    start(&mut task).await.unwrap();
    write(&mut task, numbers(1, &[])).await;
    let batch = || (10..20).fold(Json::plain(), |json, offset| json.value(offset, "1"));
    assert!(cable.cut.send(Cut::AtAnswer).is_ok());
    let (result, outcomes) = put(&mut task, batch().batch()).await;
    assert!(result.unwrap_err().is_retriable());
    assert_eq!(letters(&outcomes), "uuuuuuuuuu");
    // Written all the same, and written again to no effect.
    write(&mut task, batch()).await;
    assert_eq!(database.rows("SELECT count(*) FROM orders").await, ["11"]);
}

#[tokio::test]
async fn b_066_a_connection_that_ends_is_made_anew() {
    let database = Database::new("reconnect").await;
    database
        .run("CREATE TABLE orders (id int, name text)")
        .await;
    let mut task = database.open(&[NO_KEY]).await;
    write(&mut task, numbers(2, &[])).await;
    database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'reconnect' AND pid <> pg_backend_pid()").await;
    let (result, _) = put(&mut task, numbers(2, &[]).batch()).await;
    if let Err(error) = result {
        assert!(error.is_retriable(), "{error}");
        write(&mut task, numbers(2, &[])).await;
    }
    assert_eq!(database.rows("SELECT count(*) FROM orders").await, ["4"]);
    let cable = Cable::new().await;
    let url = format!("postgresql://sharegroup@127.0.0.1:{}/reconnect", cable.port);
    let mut task = super::task(&[("connection.url", &url), NO_KEY]);
    start(&mut task).await.unwrap();
    assert!(cable.cut.send(Cut::Now).is_ok());
    let (result, _) = put(&mut task, numbers(2, &[]).batch()).await;
    assert!(result.is_err_and(|error| error.is_retriable()));
    write(&mut task, numbers(2, &[])).await;
}

#[tokio::test]
async fn a_put_that_is_dropped_leaves_no_statement_that_the_next_waits_for() {
    let database = Database::new("dropped").await;
    database
        .run("CREATE TABLE orders (id int, name text)")
        .await;
    let mut task = database.open(&[NO_KEY]).await;
    database.run("BEGIN; LOCK orders").await;
    let dropped = tokio::time::timeout(
        Duration::from_millis(50),
        put(&mut task, numbers(2, &[]).batch()),
    );
    assert!(dropped.await.is_err());
    database.run("COMMIT").await;
    write(&mut task, numbers(2, &[])).await;
}

#[tokio::test]
async fn a_server_that_crashes_has_what_it_confirmed() {
    let mut server = Postgres::start(&[("fsync", "on")]).unwrap();
    let database = Database::on(&server, "crash").await;
    database
        .run("CREATE TABLE orders (id int, name text)")
        .await;
    let url = server.url("crash");
    let mut task = task(&[("connection.url", &url), NO_KEY]);
    start(&mut task).await.unwrap();
    write(&mut task, numbers(500, &[])).await;
    server.kill().unwrap();
    let (result, outcomes) = put(&mut task, numbers(1, &[]).batch()).await;
    assert!(result.unwrap_err().is_retriable());
    assert!(matches!(letters(&outcomes).as_str(), "" | "u"));
    server.restart().unwrap();
    write(&mut task, numbers(1, &[])).await;
    let client = connect(&url).await;
    let count: i64 = client
        .query_one("SELECT count(*) FROM orders", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(count, 501);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = format!("postgresql://u@127.0.0.1:{port}/d");
    let extra = [
        ("connection.url", url.as_str()),
        ("connect.timeout.ms", "50"),
    ];
    let error = start(&mut task(&extra)).await.unwrap_err().to_string();
    assert!(
        error.contains("no answer from PostgreSQL at 127.0.0.1"),
        "{error}"
    );
}

#[tokio::test]
async fn records_that_no_table_can_be_made_for_are_refused_and_the_others_written() {
    let database = Database::new("maker").await;
    let mut task = database.open(&[("auto.create", "true")]).await;
    let (result, outcomes) = put(&mut task, numbers(2, &[]).batch()).await;
    result.unwrap();
    assert_eq!(letters(&outcomes), "rr");
    let schema = r#"{"type":"struct","fields":[{"field":"id","type":"int32"}]}"#;
    let good = format!(r#"{{"schema":{schema},"payload":{{"id":1}}}}"#);
    let batch = Json::with_schemas()
        .value(0, r#"{"schema":{"type":"int32"},"payload":7}"#)
        .value(1, &good);
    let (result, outcomes) = put(&mut task, batch.batch()).await;
    result.unwrap();
    assert_eq!(letters(&outcomes), "rw");
}

#[tokio::test]
async fn a_key_that_is_null_is_refused() {
    let database = Database::new("nullkey").await;
    database
        .run("CREATE TABLE orders (id int UNIQUE, name text)")
        .await;
    let mut task = database
        .open(&[("pk.mode", "record_value"), ("pk.fields", "id")])
        .await;
    let (result, outcomes) = put(
        &mut task,
        Json::plain().value(0, r#"{"id":null,"name":"a"}"#).batch(),
    )
    .await;
    result.unwrap();
    assert_eq!(letters(&outcomes), "r");
}

#[tokio::test]
async fn a_statement_has_less_time_than_the_lock_of_its_records() {
    let database = Database::new("timeouts").await;
    // Each row notes the limits of the statement that wrote it.
    database
        .run(
            "CREATE TABLE orders (id int, name text);
             CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 NEW.name := current_setting('statement_timeout') || ' ' || current_setting('lock_timeout');
                 RETURN NEW;
             END $$;
             CREATE TRIGGER note BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION note()",
        )
        .await;
    let context = context();
    let url = database.url();
    let mut task = task_of(&[("connection.url", &url), NO_KEY], context.clone());
    start(&mut task).await.unwrap();
    let mut noted = Vec::new();
    for seconds in [0, 30, 15, 45] {
        context.note_lock_duration(Duration::from_secs(seconds));
        write(&mut task, numbers(1, &[])).await;
        noted.extend(database.rows("DELETE FROM orders RETURNING name").await);
    }
    assert_eq!(noted, ["20s 10s", "20s 10s", "10s 5s", "20s 10s"]);
    // Where the lock can't be renewed, what is left of it counts.
    let batch = numbers(1, &[]).batch();
    let outcomes = Outcomes::of(&batch);
    outcomes.cut_off_at(Some(tokio::time::Instant::now() + Duration::from_secs(4)));
    task.put(batch, &outcomes.sender()).await.unwrap();
    let limits = &database.rows("SELECT name FROM orders").await[0];
    let (statement, lock) = limits.split_once(' ').unwrap();
    let millis = |text: &str| text.trim_end_matches("ms").parse::<u64>().unwrap();
    assert!((3_000..4_000).contains(&millis(statement)), "{limits}");
    assert!(millis(lock) <= 2_000, "{limits}");
}
