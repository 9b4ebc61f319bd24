//! Whole workers that write into a real PostgreSQL, which crashes on the way.
#![cfg(feature = "postgres")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use sharegroup_broker::Broker;
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_sink::config::{Properties, load_properties};
use sharegroup_sink::worker::{Worker, WorkerOptions};
use sharegroup_testkit::postgres::Postgres;
use tokio::time::{Instant, sleep};
use tokio_postgres::NoTls;

const RECORDS: i64 = 6_000;

/// How many rows are there, and how many records they are of; `None` while the server is down.
async fn rows(url: &str) -> Option<(i64, i64)> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.ok()?;
    tokio::spawn(connection);
    let count =
        "SELECT count(*), count(DISTINCT (__connect_partition, __connect_offset)) FROM orders";
    let row = client.query_one(count, &[]).await.ok()?;
    Some((row.get(0), row.get(1)))
}

async fn until(what: &str, url: &str, worker: &Worker, reached: impl Fn(i64) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        let found = rows(url).await;
        if found.is_some_and(|(count, _)| reached(count)) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{what}: {found:?} {:?}",
            worker.status()
        );
        sleep(Duration::from_millis(20)).await;
    }
}

fn start(servers: &str, url: &str) -> Worker {
    let mut worker = Properties::new("worker.properties");
    worker.set("bootstrap.servers", servers);
    worker.set("consumer.group.protocol", "share");
    let mut sink = Properties::new("sink.properties");
    for (key, value) in [
        ("name", "rows"),
        ("connector.class", "JdbcSink"),
        ("topics", "orders"),
        ("tasks.max", "2"),
        ("share.concurrency", "2"),
        ("share.group.id", "rows"),
        ("share.breaker.probe.ms", "50"),
        ("consumer.override.max.poll.records", "50"),
        ("connection.url", url),
        ("auto.create", "true"),
        ("value.column", "doc"),
        (
            "value.converter",
            "org.apache.kafka.connect.json.JsonConverter",
        ),
        ("value.converter.schemas.enable", "false"),
    ] {
        sink.set(key, value);
    }
    let registry = sharegroup_connectors::registry();
    let loaded = load_properties(worker, vec![sink], false, &registry).unwrap();
    Worker::start(&loaded.worker, loaded.connectors, &WorkerOptions::default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_made_anew_under_a_running_sink_has_all_of_its_records_written() {
    let server = Postgres::start(&[("fsync", "off")]).unwrap();
    let url = server.url("postgres");
    let broker = Broker::builder()
        .topic("orders", 3)
        .group("rows", "share.auto.offset.reset", "earliest")
        .start()
        .await
        .unwrap();
    let servers = broker.bootstrap_servers();
    let admin = Admin::new(ClientConfig::new(servers).unwrap());
    let worker = start(servers, &url);
    for topic in 1..=3 {
        produce(servers.to_owned()).await;
        // Their offsets are those of the topics before.
        until("all are written", &url, &worker, |count| {
            count >= topic * RECORDS
        })
        .await;
        admin.delete_topic("orders").await.unwrap();
        admin.create_topic("orders", 3, 1, &[]).await.unwrap();
    }
    worker.stop(Duration::from_secs(10)).await;
    assert_eq!(worker.status().failed().count(), 0);
    let count = "SELECT count(DISTINCT __connect_topic_id), count(DISTINCT (__connect_topic_id, doc->>'number')) FROM orders";
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let row = client.query_one(count, &[]).await.unwrap();
    assert_eq!((row.get(0), row.get(1)), (3_i64, 3 * RECORDS));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_record_is_one_row_though_the_server_crashes_twice() {
    let mut server = Postgres::start(&[("fsync", "on")]).unwrap();
    let url = server.url("postgres");
    let broker = Broker::builder()
        .topic("orders", 3)
        .group("rows", "share.auto.offset.reset", "earliest")
        .start()
        .await
        .unwrap();
    let servers = broker.bootstrap_servers();
    let worker = start(servers, &url);
    let produced = tokio::spawn(produce(servers.to_owned()));
    for part in [4, 2] {
        until("some are written", &url, &worker, |count| {
            count >= RECORDS / part
        })
        .await;
        server.kill().unwrap();
        server.restart().unwrap();
    }
    produced.await.unwrap();
    until("all are written", &url, &worker, |count| count >= RECORDS).await;
    worker.stop(Duration::from_secs(10)).await;
    assert_eq!(worker.status().failed().count(), 0);
    assert_eq!(rows(&url).await, Some((RECORDS, RECORDS)));
}

async fn produce(servers: String) {
    let client = ClientConfig::new(&servers).unwrap();
    let producer = Producer::new(ProducerConfig::new(client));
    for number in 0..RECORDS {
        let record = ProducerRecord::new("orders").value(format!(r#"{{"number":{number}}}"#));
        drop(producer.send(record).await.unwrap());
        if number % 50 == 49 {
            producer.flush().await.unwrap();
        }
    }
    producer.close(Duration::from_secs(10)).await.unwrap();
}
