//! Our own clients against the embedded broker.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::time::Duration;

use sharegroup::consumer::admin::Admin;
use sharegroup::consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup::consumer::{Acknowledge, ClientConfig, ShareConsumer};
use sharegroup_broker::{Broker, BrokerBuilder};

const GROUP: &str = "workers";

fn describe() -> BrokerBuilder {
    Broker::builder()
        .topic("orders", 4)
        .group(GROUP, "share.auto.offset.reset", "earliest")
}

async fn produce(broker: &Broker, count: usize) {
    let client = ClientConfig::new(broker.bootstrap_servers()).unwrap();
    let producer = Producer::new(ProducerConfig::new(client));
    let mut sent = Vec::new();
    for number in 0..count {
        let record = ProducerRecord::new("orders")
            .key(number.to_string())
            .value(number.to_string());
        sent.push(producer.send(record).await.unwrap());
    }
    producer.flush().await.unwrap();
    for delivery in sent {
        delivery.await.unwrap();
    }
    producer.close(Duration::from_secs(5)).await.unwrap();
}

async fn consumer(broker: &Broker) -> ShareConsumer {
    let consumer = ShareConsumer::builder(broker.bootstrap_servers())
        .group_id(GROUP)
        .topics(["orders"]);
    consumer.build().await.unwrap()
}

fn number(value: Option<&[u8]>) -> usize {
    String::from_utf8_lossy(value.unwrap()).parse().unwrap()
}

#[tokio::test]
async fn every_record_is_accepted_once_and_the_lag_is_zero() {
    for brokers in [1, 3] {
        let broker = describe().brokers(brokers).start().await.unwrap();
        produce(&broker, 2000).await;
        let mut consumer = consumer(&broker).await;
        let mut seen = BTreeSet::new();
        while seen.len() < 2000 {
            let batch = consumer.poll().await.unwrap().unwrap();
            for record in batch.records() {
                assert!(seen.insert(number(record.value)), "delivered once");
            }
            batch.accept();
        }
        assert!(
            consumer
                .close(Duration::from_secs(5))
                .await
                .unwrap()
                .is_ok()
        );
        let admin = Admin::new(ClientConfig::new(broker.bootstrap_servers()).unwrap());
        let offsets = admin.share_group_offsets(GROUP, None).await.unwrap();
        assert_eq!(
            offsets
                .iter()
                .filter_map(|partition| partition.lag)
                .sum::<i64>(),
            0
        );
        let groups = admin.list_groups().await.unwrap();
        assert!(
            groups.iter().any(|group| group.group_id == GROUP),
            "{groups:?}"
        );
    }
}

#[tokio::test]
async fn what_a_consumer_rejects_never_comes_again_and_what_it_releases_does() {
    let broker = describe().start().await.unwrap();
    produce(&broker, 10).await;
    let mut consumer = consumer(&broker).await;
    let mut left: BTreeSet<usize> = (0..10).collect();
    let mut released = BTreeSet::new();
    while !left.is_empty() {
        let mut batch = consumer.poll().await.unwrap().unwrap();
        let records: Vec<_> = batch
            .records()
            .map(|record| (record.offset, number(record.value)))
            .collect();
        for (offset, number) in records {
            let how = if number % 2 == 0 && released.insert(number) {
                Acknowledge::Release
            } else {
                assert!(left.remove(&number), "{number} came again");
                Acknowledge::Reject
            };
            batch.settle(offset, how).unwrap();
        }
        assert!(consumer.commit().await.unwrap().is_ok());
    }
    assert_eq!(released.len(), 5);
    drop(consumer.close(Duration::from_secs(5)).await.unwrap());
}

#[tokio::test]
async fn a_cut_broker_costs_no_record() {
    let broker = describe().start().await.unwrap();
    produce(&broker, 500).await;
    let mut consumer = consumer(&broker).await;
    let mut seen = BTreeSet::new();
    let mut is_cut = false;
    while seen.len() < 500 {
        let batch = consumer.poll().await.unwrap().unwrap();
        seen.extend(batch.records().map(|record| number(record.value)));
        batch.accept();
        if !is_cut {
            is_cut = true;
            broker.cut(broker.addresses()[0].0);
        }
    }
    drop(consumer.close(Duration::from_secs(5)).await.unwrap());
}
