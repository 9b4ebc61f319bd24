//! Producing to real brokers and to the embedded one, read back with Kafka's own console consumer.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod both;
mod group;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sharegroup_broker::Broker;
use sharegroup_consumer::TopicPartition;
use sharegroup_consumer::admin::{Admin, LogPosition};
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{ProduceError, Producer, ProducerConfig, ProducerRecord};
use sharegroup_launcher::{Kafka, Tools};
use sharegroup_wire::compress::Compression;
use sharegroup_wire::{BrokerId, ErrorCode};

use both::{Cluster, on_both, run_tool};

const CONSOLE_CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleShareConsumer";
const RECORDS: usize = 10_000;

fn client(servers: &str) -> ClientConfig {
    ClientConfig::new(servers).unwrap()
}

/// Reads so many records as lines `Partition:p<tab>headers<tab>key<tab>value`.
async fn read_back(tools: &Tools, servers: &str, topic: &str, count: usize) -> Vec<String> {
    let admin = Admin::new(client(servers));
    group::set_group(&admin, topic, &[("share.auto.offset.reset", "earliest")]).await;
    let count = count.to_string();
    let mut arguments = vec!["--topic", topic, "--group", topic];
    arguments.extend(["--max-messages", &count, "--timeout-ms", "30000"]);
    for property in [
        "print.partition=true",
        "print.headers=true",
        "print.key=true",
    ] {
        arguments.extend(["--formatter-property", property]);
    }
    let output = run_tool(tools, servers, CONSOLE_CONSUMER, &arguments).await;
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn every_codec_is_read_back_by_kafka_in_order_per_key() {
    on_both(&[], every_codec).await;
}

async fn every_codec(cluster: &Cluster) {
    let client = client(cluster.bootstrap_servers());
    let admin = Admin::new(client.clone());
    for compression in Compression::ALL {
        let topic = format!("orders-{compression}");
        admin.create_topic(&topic, 4, -1, &[]).await.unwrap();
        let mut config = ProducerConfig::new(client.clone());
        config.compression = compression;
        let producer = Producer::new(config);
        let mut deliveries = Vec::new();
        for index in 0..RECORDS {
            let record = ProducerRecord::new(&*topic)
                .key(format!("key-{}", index % 97))
                .value(format!("value-{index}"))
                .header("index", index.to_string());
            deliveries.push(producer.send(record).await.unwrap());
        }
        producer.close(Duration::from_secs(30)).await.unwrap();
        let mut offsets = BTreeSet::new();
        for delivery in deliveries {
            let metadata = delivery.await.unwrap();
            assert!(offsets.insert((metadata.partition.partition, metadata.offset.unwrap())));
        }

        let lines = read_back(
            cluster.tools(),
            cluster.bootstrap_servers(),
            &topic,
            RECORDS,
        )
        .await;
        assert_eq!(lines.len(), RECORDS, "{compression}");
        let mut last_of_key: BTreeMap<String, usize> = BTreeMap::new();
        let mut partition_of_key: BTreeMap<String, String> = BTreeMap::new();
        let mut values = BTreeSet::new();
        for line in &lines {
            let [partition, header, key, value] =
                line.split('\t').collect::<Vec<_>>().try_into().unwrap();
            let index: usize = value.strip_prefix("value-").unwrap().parse().unwrap();
            assert_eq!(
                (header, key),
                (&*format!("index:{index}"), &*format!("key-{}", index % 97))
            );
            assert!(values.insert(index), "{line} twice");
            assert!(
                last_of_key
                    .insert(key.to_owned(), index)
                    .is_none_or(|last| last < index),
                "{line}"
            );
            let first = partition_of_key
                .entry(key.to_owned())
                .or_insert_with(|| partition.to_owned());
            assert_eq!(first, partition, "{line}");
        }
        assert_eq!(values.len(), RECORDS);
    }
}

#[tokio::test]
async fn refusals_are_typed_and_leave_the_producer_usable() {
    on_both(&[("auto.create.topics.enable", "false")], refusals).await;
}

async fn refusals(cluster: &Cluster) {
    let client = client(cluster.bootstrap_servers());
    let admin = Admin::new(client.clone());
    admin
        .create_topic("small", 1, -1, &[("max.message.bytes", "1000")])
        .await
        .unwrap();
    let mut config = ProducerConfig::new(client);
    config.block_max = Duration::from_secs(3);
    let producer = Producer::new(config);

    let large = producer
        .send(ProducerRecord::new("small").value(vec![b'x'; 5000]))
        .await
        .unwrap();
    match large.await.unwrap_err() {
        ProduceError::Broker {
            code: ErrorCode::MessageTooLarge,
            may_have_been_written: false,
            ..
        } => {}
        error => panic!("{error}"),
    }
    assert!(
        producer.flush().await.is_err(),
        "flush tells of the refusal too"
    );
    let after = producer
        .send(ProducerRecord::new("small").value("small"))
        .await
        .unwrap();
    assert_eq!(after.await.unwrap().offset, Some(0));

    refuses_at_once(&producer).await;
    producer.close(Duration::from_secs(5)).await.unwrap();
}

async fn refuses_at_once(producer: &Producer) {
    let error = producer
        .send(ProducerRecord::new("nowhere").value("x"))
        .await
        .unwrap_err();
    assert!(matches!(error, ProduceError::NoMetadata { .. }), "{error}");
    assert!(
        error.to_string().contains("UNKNOWN_TOPIC_OR_PARTITION"),
        "{error}"
    );
    let error = producer
        .send(ProducerRecord::new("not/legal").value("x"))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            ProduceError::Topic {
                code: ErrorCode::InvalidTopicException,
                ..
            }
        ),
        "{error}"
    );
    let error = producer
        .send(ProducerRecord::new("small").partition(1).value("x"))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            ProduceError::NoSuchPartition {
                partition: 1,
                partition_count: 1,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_killed_and_restarted_broker_loses_and_repeats_nothing() {
    let Some(kafka) = Kafka::builder().brokers(3).start_or_skip().unwrap() else {
        return;
    };
    let servers = kafka.bootstrap_servers();
    let kill = || kafka.broker(2).kill().unwrap();
    produce_through(&servers, kill, || kafka.broker(2).start().unwrap()).await;
    let lines = read_back(kafka.tools(), &servers, "orders", RECORDS).await;
    let values: BTreeSet<_> = lines
        .iter()
        .map(|line| line.rsplit('\t').next().unwrap().to_owned())
        .collect();
    assert_eq!(values.len(), RECORDS);
}

#[tokio::test]
async fn a_crashed_and_restarted_embedded_broker_loses_and_repeats_nothing() {
    let broker = Broker::builder().brokers(3).start().await.unwrap();
    let crash = || {
        broker.model(|model| model.set_up(BrokerId(2), false));
        broker.restart(BrokerId(2));
    };
    let start = || broker.model(|model| model.set_up(BrokerId(2), true));
    produce_through(broker.bootstrap_servers(), crash, start).await;
}

/// Produces while the second of three brokers goes away and comes back: each record is confirmed and
/// written once.
async fn produce_through(servers: &str, kill: impl Fn(), start: impl Fn()) {
    let admin = Admin::new(client(servers));
    admin
        .create_topic("orders", 3, 3, &[("min.insync.replicas", "2")])
        .await
        .unwrap();
    let producer = Producer::new(ProducerConfig::new(client(servers)));
    let mut deliveries = Vec::new();
    for index in 0..RECORDS {
        if index == RECORDS / 3 {
            kill();
        }
        if index == 2 * RECORDS / 3 {
            start();
        }
        let record = ProducerRecord::new("orders")
            .key(format!("key-{}", index % 97))
            .value(format!("{index}"));
        deliveries.push(producer.send(record).await.unwrap());
        if index % 100 == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    producer.flush().await.unwrap();
    let mut places = BTreeSet::new();
    for delivery in deliveries {
        let written = delivery.await.unwrap();
        // Without an offset the broker had the record already: the log's length tells whether once.
        if let Some(offset) = written.offset {
            assert!(places.insert((written.partition, offset)), "{offset} twice");
        }
    }
    let partitions: Vec<_> = (0..3)
        .map(|partition| TopicPartition::new("orders", partition))
        .collect();
    let latest = admin
        .log_offsets(&partitions, LogPosition::Latest)
        .await
        .unwrap();
    assert_eq!(
        latest.iter().map(|found| found.offset).sum::<i64>(),
        RECORDS as i64,
        "{latest:?}"
    );
}
