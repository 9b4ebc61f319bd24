//! Letters to the byte, and the queue on a real broker and on the embedded one.

#[path = "../../../consumer/tests/both/mod.rs"]
mod both;
#[path = "../../../consumer/tests/group/mod.rs"]
mod group;

use std::time::Duration;

use both::{Cluster, on_shared};
use bytes::Bytes;
use sharegroup_broker::Broker;
use sharegroup_broker::model::fault_script::FaultScript;
use sharegroup_consumer::ShareConsumer;
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{ProducerConfig, ProducerHeader, ProducerRecord};
use sharegroup_wire::TopicId;

use super::letter::{DeadLetter, Origin};
use super::letter::{MESSAGE_BYTES_MAX, STACKTRACE_BYTES_MAX};
use super::queue::{DeadLetterConfig, DeadLetterQueue, OpenError};
use super::*;
use crate::convert::{ConverterSettings, Converters, StageError, find, find_header};
use crate::error::{PutError, TaskError};
use crate::record::{OwnedRecord, SinkBatch};

const WITHIN: Duration = Duration::from_secs(30);
const KIB: usize = 1024;

type Header = (String, Option<Bytes>);

fn header(key: &str, value: Option<&'static str>) -> Header {
    (key.to_owned(), value.map(Bytes::from))
}

fn context(name: &str, value: &'static str) -> Header {
    header(&format!("__connect.errors.{name}"), Some(value))
}

fn origin() -> Origin {
    Origin {
        connector: "orders-sink".to_owned(),
        task: 3,
        group_id: "workers".to_owned(),
    }
}

/// The record of case B-075: its key is no text, its value no JSON, and a header clashes.
fn poison() -> SinkBatch {
    let record = OwnedRecord {
        offset: 42,
        timestamp: 1_700_000_000_123,
        key: Some(Bytes::from_static(&[0, 0xff])),
        value: Some(Bytes::from_static(b"{bad")),
        headers: vec![
            header("a", None),
            header("a", Some("")),
            context("topic", "x"),
        ],
        delivery_count: 2,
    };
    SinkBatch::from_records("orders", TopicId::ZERO, 1, vec![record])
}

fn batch_of(headers: Vec<Header>, value: Bytes) -> SinkBatch {
    let record = OwnedRecord {
        value: Some(value),
        headers,
        delivery_count: 1,
        ..OwnedRecord::default()
    };
    SinkBatch::from_records("orders", TopicId::ZERO, 1, vec![record])
}

fn letter(batch: &SinkBatch, failure: &StageError) -> DeadLetter {
    DeadLetter::of(&batch.records().next().unwrap(), failure, Some(&origin()))
}

fn conversion_failure(batch: &SinkBatch) -> StageError {
    let settings = ConverterSettings::new();
    let converters = Converters {
        key: find("bytes", &settings).unwrap(),
        value: find("json", &settings).unwrap(),
        header: find_header("simple", &settings).unwrap(),
    };
    converters
        .convert(&batch.records().next().unwrap())
        .unwrap_err()
}

fn headers_of(letter: &DeadLetter) -> Vec<Header> {
    let headers = letter.record("dead").headers;
    let text = |header: ProducerHeader| {
        (
            String::from_utf8(header.key.to_vec()).unwrap(),
            header.value,
        )
    };
    headers.into_iter().map(text).collect()
}

/// All headers of the letter of [`poison`].
fn expected_headers() -> Vec<Header> {
    vec![
        header("a", None),
        header("a", Some("")),
        context("topic", "x"),
        context("topic", "orders"),
        context("partition", "1"),
        context("offset", "42"),
        context("connector.name", "orders-sink"),
        context("task.id", "3"),
        context("stage", "VALUE_CONVERTER"),
        context("class.name", "org.apache.kafka.connect.json.JsonConverter"),
        context(
            "exception.class.name",
            "org.apache.kafka.connect.errors.DataException",
        ),
        context(
            "exception.message",
            "not JSON at byte 1: the name of a member is expected",
        ),
        context(
            "exception.stacktrace",
            "not JSON at byte 1: the name of a member is expected",
        ),
        context("group", "workers"),
        context("delivery.count", "2"),
    ]
}

#[test]
fn b_075_key_value_and_headers_are_kept_and_the_context_is_appended() {
    let batch = poison();
    let letter = letter(&batch, &conversion_failure(&batch));
    let record = letter.record("dead");
    assert_eq!(record.topic, "dead");
    assert_eq!(record.partition, None);
    assert_eq!(record.key, Some(Bytes::from_static(&[0, 0xff])));
    assert_eq!(record.value, Some(Bytes::from_static(b"{bad")));
    assert_eq!(record.timestamp_ms, Some(1_700_000_000_123));
    assert_eq!(headers_of(&letter), expected_headers());
    assert_eq!(letter.place, "orders-1@42");
}

#[test]
fn without_context_a_letter_is_the_record() {
    let batch = poison();
    let failure = conversion_failure(&batch);
    let letter = DeadLetter::of(&batch.records().next().unwrap(), &failure, None);
    let headers = [
        header("a", None),
        header("a", Some("")),
        context("topic", "x"),
    ];
    assert_eq!(headers_of(&letter), headers);
    assert!(letter.trimmed().is_none());
}

#[test]
fn causes_stand_in_the_stack_trace_a_line_each() {
    let error = TaskError::new("row refused").caused_by(std::io::Error::other("disk gone"));
    let letter = letter(&poison(), &StageError::of_put(PutError::fatal(error)));
    let headers = headers_of(&letter);
    let value = |name: &str| {
        let name = format!("__connect.errors.{name}");
        let header = headers.iter().find(|header| header.0 == name).unwrap();
        header.1.clone().unwrap()
    };
    assert_eq!(
        value("exception.stacktrace"),
        "row refused\nCaused by: disk gone"
    );
    assert_eq!(
        value("exception.class.name"),
        "org.apache.kafka.connect.errors.ConnectException"
    );
    assert_eq!(value("stage"), "TASK_PUT");
    assert_eq!(
        value("class.name"),
        "org.apache.kafka.connect.sink.SinkTask"
    );
}

#[test]
fn b_076_headers_do_not_grow_when_a_letter_is_replayed() {
    let failure = || StageError::reported("ä".repeat(1024 * KIB));
    let mut headers = vec![header("trace", Some("abc")), context("topic", "x")];
    for _ in 0..5 {
        let batch = batch_of(headers, Bytes::from("v"));
        headers = headers_of(&letter(&batch, &failure()));
        assert_eq!(
            headers[..2],
            [header("trace", Some("abc")), context("topic", "x")]
        );
        assert_eq!(headers.len(), 14);
        let length = |name: &str| {
            let header = headers
                .iter()
                .find(|header| header.0.ends_with(name))
                .unwrap();
            let text = std::str::from_utf8(header.1.as_ref().unwrap()).unwrap();
            assert!(text.ends_with("… (cut)"));
            text.len()
        };
        assert!(length("exception.message") <= MESSAGE_BYTES_MAX);
        assert!(length("exception.stacktrace") <= STACKTRACE_BYTES_MAX);
    }
    // A tool for replays may add headers of its own behind the context.
    headers.push(header("replayed", Some("1")));
    let again = headers_of(&letter(&batch_of(headers, Bytes::from("v")), &failure()));
    assert_eq!(again.len(), 15);
    assert_eq!(again[2], header("replayed", Some("1")));
}

#[test]
fn the_context_that_connect_wrote_is_replaced_too() {
    let names = [
        "topic",
        "partition",
        "offset",
        "connector.name",
        "task.id",
        "stage",
        "class.name",
    ];
    let mut headers: Vec<Header> = names.map(|name| context(name, "old")).into();
    let batch = batch_of(headers.clone(), Bytes::from("v"));
    let failure = || StageError::reported("refused");
    assert_eq!(headers_of(&letter(&batch, &failure())).len(), 12);
    // One is missing: it wasn't Connect.
    headers.remove(3);
    let batch = batch_of(headers, Bytes::from("v"));
    assert_eq!(headers_of(&letter(&batch, &failure())).len(), 6 + 12);
}

fn config(servers: &str, topic: &str) -> DeadLetterConfig {
    DeadLetterConfig {
        topic: topic.to_owned(),
        partitions: 1,
        replication_factor: None,
        producer: ProducerConfig::new(ClientConfig::new(servers).unwrap()),
    }
}

fn admin(servers: &str) -> Admin {
    Admin::new(ClientConfig::new(servers).unwrap())
}

/// Key, value, timestamp and headers of so many records of a topic.
async fn read_back(servers: &str, topic: &str, count: usize) -> Vec<ProducerRecord> {
    let group = format!("reads-{topic}");
    let admin = admin(servers);
    group::set_group(&admin, &group, &[("share.auto.offset.reset", "earliest")]).await;
    let consumer = ShareConsumer::builder_with(ClientConfig::new(servers).unwrap());
    let mut consumer = consumer
        .group_id(&group)
        .topics([topic])
        .build()
        .await
        .unwrap();
    let mut read = Vec::new();
    while read.len() < count {
        let batch = consumer.poll().await.unwrap().unwrap();
        for record in batch.records() {
            let mut copy = ProducerRecord::new(topic).timestamp_ms(record.timestamp);
            copy.key = record.key_bytes();
            copy.value = record.value_bytes();
            copy.headers
                .extend(record.headers().map(|header| ProducerHeader {
                    key: Bytes::copy_from_slice(header.key),
                    value: header.value.map(Bytes::copy_from_slice),
                }));
            read.push(copy);
        }
        batch.accept();
    }
    drop(consumer.close(WITHIN).await);
    read
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_073_one_broker_and_default_settings_are_enough() {
    on_shared(b_073).await;
}

async fn b_073(cluster: &Cluster) {
    let servers = cluster.bootstrap_servers();
    let admin = admin(servers);
    let queue = DeadLetterQueue::open(config(servers, "dead-073"), &admin, &[])
        .await
        .unwrap();
    let batch = poison();
    let letters = [letter(&batch, &conversion_failure(&batch))];
    assert!(queue.write(&letters, WITHIN).await[0].is_ok());
    let topic = admin.find_topic("dead-073").await.unwrap().unwrap();
    assert_eq!(topic.partitions.len(), 1);
    let asked = DeadLetterConfig {
        replication_factor: Some(3),
        ..config(servers, "dead-073-3")
    };
    let error = DeadLetterQueue::open(asked, &admin, &[])
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("errors.deadletterqueue.topic.replication.factor=3"),
        "{error}"
    );
    assert!(error.contains("dead-073-3"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_074_the_topic_has_the_partitions_that_are_set_or_those_that_it_has() {
    on_shared(b_074).await;
}

async fn b_074(cluster: &Cluster) {
    let servers = cluster.bootstrap_servers();
    let admin = admin(servers);
    for partitions in [10, 5] {
        let config = DeadLetterConfig {
            partitions,
            ..config(servers, "dead-074")
        };
        let queue = DeadLetterQueue::open(config, &admin, &[]).await.unwrap();
        let letters = [letter(&poison(), &StageError::reported("refused"))];
        assert!(queue.write(&letters, WITHIN).await[0].is_ok());
        let topic = admin.describe_topics(&["dead-074"]).await.unwrap();
        assert_eq!(topic[0].partitions.len(), 10);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_075_a_letter_is_read_back_byte_for_byte() {
    on_shared(b_075).await;
}

async fn b_075(cluster: &Cluster) {
    let servers = cluster.bootstrap_servers();
    let config = config(servers, "dead-075");
    let queue = DeadLetterQueue::open(config, &admin(servers), &[])
        .await
        .unwrap();
    let batch = poison();
    let letter = letter(&batch, &conversion_failure(&batch));
    let results = queue.write(std::slice::from_ref(&letter), WITHIN).await;
    assert!(results[0].is_ok(), "{results:?}");
    assert_eq!(
        read_back(servers, "dead-075", 1).await,
        [letter.record("dead-075")]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_077_a_letter_that_is_too_large_is_trimmed_or_told() {
    on_shared(b_077).await;
}

async fn b_077(cluster: &Cluster) {
    let servers = cluster.bootstrap_servers();
    let admin = admin(servers);
    let value = |bytes| Bytes::from(vec![b'x'; bytes]);
    let letter = |bytes| {
        let failure = StageError::reported("e".repeat(2048 * KIB));
        letter(&batch_of(Vec::new(), value(bytes)), &failure)
    };
    // By the topic's limit, and by the producer's: the value fits, but not with the texts.
    let limit = (904 * KIB).to_string();
    let configs = [("max.message.bytes", &*limit)];
    admin
        .create_topic("dead-077", 1, 1, &configs)
        .await
        .unwrap();
    let of_topic = config(servers, "dead-077");
    let mut of_producer = of_topic.clone();
    of_producer.producer.request_bytes_max = 904 * KIB;
    for config in [of_topic, of_producer] {
        let queue = DeadLetterQueue::open(config, &admin, &[]).await.unwrap();
        let results = queue
            .write(&[letter(900 * KIB), letter(5 * 1024 * KIB)], WITHIN)
            .await;
        assert!(results[0].is_ok(), "{results:?}");
        let error = results[1].as_ref().unwrap_err();
        assert!(matches!(error, DeadLetterError::TooLarge { .. }), "{error}");
        assert!(!error.is_retriable());
        assert!(error.to_string().contains("orders-1@0"), "{error}");
        assert!(error.to_string().contains("max.message.bytes"), "{error}");
    }
    let written = read_back(servers, "dead-077", 2).await;
    assert!(
        written
            .iter()
            .all(|record| record.value == Some(value(900 * KIB)))
    );
    assert!(written.iter().all(|record| record.headers.len() == 10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_079_each_letter_has_an_answer_of_its_own() {
    on_shared(b_079).await;
}

async fn b_079(cluster: &Cluster) {
    let servers = cluster.bootstrap_servers();
    let mut config = config(servers, "dead-079");
    config.producer.request_bytes_max = 100 * KIB;
    let queue = DeadLetterQueue::open(config, &admin(servers), &[])
        .await
        .unwrap();
    let letter = |bytes| {
        let batch = batch_of(Vec::new(), Bytes::from(vec![b'x'; bytes]));
        letter(&batch, &StageError::reported("refused"))
    };
    let letters = [letter(1), letter(200 * KIB), letter(1)];
    let results = queue.write(&letters, WITHIN).await;
    let confirmed: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(confirmed, [true, false, true]);
    let written = read_back(servers, "dead-079", 2).await;
    let names = ["__connect.errors.group", "__connect.errors.task.id"];
    assert!(written.iter().all(|record| names.iter().all(|name| {
        record
            .headers
            .iter()
            .any(|header| header.key == name.as_bytes())
    })));
}

async fn in_memory(faults: &str) -> (Broker, DeadLetterConfig, Admin) {
    let broker = Broker::builder().in_memory();
    let broker = broker.faults(FaultScript::parse(faults).unwrap());
    let broker = broker.start().await.unwrap();
    let mut client = ClientConfig::new(broker.bootstrap_servers()).unwrap();
    client.connector = broker.connector();
    let config = DeadLetterConfig {
        producer: ProducerConfig::new(client.clone()),
        ..config(broker.bootstrap_servers(), "dead")
    };
    (broker, config, Admin::new(client))
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_topic_among_the_sources_is_refused() {
    let (_broker, config, admin) = in_memory("").await;
    let sources = ["orders".to_owned(), "dead".to_owned()];
    let error = DeadLetterQueue::open(config, &admin, &sources)
        .await
        .unwrap_err();
    assert!(matches!(error, OpenError::IsSource { .. }), "{error}");
    assert!(admin.find_topic("dead").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_is_not_confirmed_in_time_is_told_and_may_be_tried_again() {
    let (_broker, config, admin) = in_memory("Produce first 1: delay 20s").await;
    let queue = DeadLetterQueue::open(config, &admin, &[]).await.unwrap();
    let letters = [letter(&poison(), &StageError::reported("refused"))];
    let begun = tokio::time::Instant::now();
    let results = queue.write(&letters, Duration::from_secs(5)).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    let error = results[0].as_ref().unwrap_err();
    assert!(error.is_retriable(), "{error}");
    assert!(error.to_string().contains("orders-1@42"), "{error}");
    assert!(queue.write(&letters, WITHIN).await[0].is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_letter_whose_topic_has_been_deleted_is_not_confirmed() {
    let (_broker, config, admin) = in_memory("").await;
    let queue = DeadLetterQueue::open(config, &admin, &[]).await.unwrap();
    admin.delete_topic("dead").await.unwrap();
    let letters = [letter(&poison(), &StageError::reported("refused"))];
    let results = queue.write(&letters, Duration::from_secs(5)).await;
    assert!(results[0].is_err());
}

/// The idempotent producer, not the queue, keeps the order and sends once.
#[tokio::test(start_paused = true)]
async fn letters_are_confirmed_across_a_broker_that_hangs_up() {
    let (broker, config, admin) = in_memory("").await;
    let queue = DeadLetterQueue::open(config, &admin, &[]).await.unwrap();
    let letters = vec![letter(&poison(), &StageError::reported("refused")); 100];
    let write = queue.write(&letters, WITHIN);
    let (results, ()) = tokio::join!(write, async {
        tokio::task::yield_now().await;
        broker.restart(sharegroup_wire::BrokerId(1));
    });
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}
