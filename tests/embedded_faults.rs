//! Our own clients against each kind of scripted fault of the embedded broker: no record is lost, and
//! where nothing was cut off none comes twice. In memory, under paused time.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::time::Duration;

use sharegroup::consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup::consumer::{ClientConfig, ShareConsumer};
use sharegroup_broker::Broker;
use sharegroup_broker::model::fault_script::FaultScript;
use tokio::time::{sleep, timeout};

const WAVES: usize = 20;
const WAVE: usize = 25;

/// What a script did to the records.
struct Outcome {
    struck: u64,
    /// Deliveries beyond the first, of all records.
    again: usize,
}

/// Produces and consumes in waves, for some seconds of virtual time.
async fn survive(script: &str) -> Outcome {
    let broker = Broker::builder()
        .in_memory()
        .brokers(3)
        .topic("orders", 2)
        .group("workers", "share.auto.offset.reset", "earliest")
        .seed(1)
        .faults(FaultScript::parse(script).unwrap())
        .start()
        .await
        .unwrap();
    let mut client = ClientConfig::new(broker.bootstrap_servers()).unwrap();
    client.connector = broker.connector();
    client.request_timeout = Duration::from_secs(2);
    client.seed = 1;
    let producer = Producer::new(ProducerConfig::new(client.clone()));
    let mut consumer = ShareConsumer::builder_with(client)
        .group_id("workers")
        .topics(["orders"])
        .driver_on_current()
        .build()
        .await
        .unwrap();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for wave in 0..WAVES {
        let mut sent = Vec::new();
        for number in 0..WAVE {
            let value = (wave * WAVE + number).to_string();
            let record = ProducerRecord::new("orders")
                .key(value.clone())
                .value(value);
            sent.push(producer.send(record).await.unwrap());
        }
        producer.flush().await.unwrap();
        for delivery in sent {
            delivery.await.unwrap();
        }
        let all = timeout(Duration::from_secs(300), async {
            while seen.len() < (wave + 1) * WAVE {
                let batch = consumer.poll().await.unwrap().unwrap();
                for record in batch.records() {
                    let value = String::from_utf8_lossy(record.value.unwrap()).into_owned();
                    *seen.entry(value).or_default() += 1;
                }
                batch.accept();
                // What was not taken comes again.
                drop(consumer.commit().await);
            }
        });
        assert!(all.await.is_ok(), "{script}: {} came", seen.len());
        sleep(Duration::from_millis(200)).await;
    }
    drop(consumer.close(Duration::from_secs(5)).await);
    producer.close(Duration::from_secs(5)).await.unwrap();
    let written = broker.model(|model| {
        let topics = model.topics.iter().flat_map(|topic| &topic.partitions);
        topics
            .map(|partition| partition.log.end_offset())
            .sum::<i64>()
    });
    assert_eq!(written, (WAVES * WAVE) as i64, "{script}: written once");
    Outcome {
        struck: broker.model(|model| model.faults.struck()),
        again: seen.values().sum::<usize>() - seen.len(),
    }
}

async fn all_survive(scripts: &[&str]) {
    for script in scripts {
        let outcome = survive(script).await;
        assert!(outcome.struck > 0, "{script}: never struck");
    }
}

#[tokio::test(start_paused = true)]
async fn without_faults_each_record_comes_once() {
    let outcome = survive("").await;
    assert_eq!((outcome.struck, outcome.again), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn errors_are_survived() {
    all_survive(&[
        "Produce orders-1 first 3: error NOT_ENOUGH_REPLICAS",
        "Produce first 2: error NOT_LEADER_OR_FOLLOWER",
        "Metadata first 2: error UNKNOWN_SERVER_ERROR",
        "FindCoordinator first 2: error COORDINATOR_NOT_AVAILABLE",
        "ShareGroupHeartbeat first 2: error COORDINATOR_LOAD_IN_PROGRESS",
        "ShareFetch orders-0 first 3: error NOT_LEADER_OR_FOLLOWER",
        "ShareFetch after 5 first 2: error SHARE_SESSION_NOT_FOUND",
        "ShareFetch after 5 first 2: error INVALID_SHARE_SESSION_EPOCH",
        "ShareAcknowledge orders-0 first 2: error FENCED_STATE_EPOCH",
        "ShareAcknowledge orders-1 after 2 first 2: error NOT_LEADER_OR_FOLLOWER",
    ])
    .await;
}

/// Of a topic that nobody knows yet: the codes that end a send at once, and those that pass.
#[tokio::test(start_paused = true)]
async fn metadata_errors_of_a_topic_end_a_send_only_where_asking_again_is_of_no_use() {
    for (code, is_final) in [
        ("INVALID_TOPIC_EXCEPTION", true),
        ("TOPIC_AUTHORIZATION_FAILED", true),
        ("UNKNOWN_SERVER_ERROR", false),
        ("UNKNOWN_TOPIC_OR_PARTITION", false),
        ("LEADER_NOT_AVAILABLE", false),
        ("POLICY_VIOLATION", false),
    ] {
        let script = format!("Metadata first 2: error {code}");
        let broker = Broker::builder()
            .in_memory()
            .topic("orders", 1)
            .faults(FaultScript::parse(&script).unwrap())
            .start()
            .await
            .unwrap();
        let mut client = ClientConfig::new(broker.bootstrap_servers()).unwrap();
        client.connector = broker.connector();
        let producer = Producer::new(ProducerConfig::new(client));
        let send = || async {
            let record = ProducerRecord::new("orders").value("1");
            producer.send(record).await?.await
        };
        let sent = send().await;
        assert_eq!(sent.is_err(), is_final, "{code}: {sent:?}");
        if let Err(error) = sent {
            assert!(error.to_string().contains(code), "{error}");
            assert!(send().await.is_err(), "the second answer");
            assert!(send().await.is_ok(), "asked again");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn delays_and_answers_that_come_twice_are_survived() {
    all_survive(&[
        "any 20%: delay 300ms",
        "ShareFetch orders-0: delay 50ms",
        "any 5%: duplicate",
        "Produce first 1: duplicate",
        "ShareAcknowledge first 2: duplicate",
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn cut_connections_are_survived_before_and_after_the_effect() {
    all_survive(&[
        "any 5%: cut before",
        "any 5%: cut after",
        "Produce orders-0 50%: cut after",
        "ShareFetch orders-0 after 3 first 3: cut after",
        "ShareAcknowledge orders-1 after 3 first 3: cut before",
        "ShareAcknowledge orders-1 after 3 first 3: cut after",
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn records_that_arrive_damaged_come_all_the_same_and_once() {
    for script in [
        "ShareFetch: flip bit",
        "ShareFetch orders-0 50%: cut batch\nShareFetch 50%: flip bit",
        "ShareFetch first 5: cut batch\nFetch first 3: cut after",
    ] {
        let outcome = survive(script).await;
        assert!(outcome.struck > 0, "{script}");
        assert_eq!(outcome.again, 0, "{script}");
    }
}

#[tokio::test(start_paused = true)]
async fn withheld_answers_are_survived() {
    all_survive(&[
        "Produce after 2 first 2: withhold",
        "Metadata first 1: withhold",
        "ShareFetch after 3 first 2: withhold",
        "ShareAcknowledge orders-1 after 3 first 2: withhold",
        "ShareGroupHeartbeat first 1: withhold",
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn moved_leaders_and_coordinators_are_survived() {
    all_survive(&[
        "every 300ms: move leader orders-0 to next",
        "ShareAcknowledge orders-1 after 2 first 5: move leader orders-1 to next",
        "Produce after 2 first 5: move leader orders-0 to next",
        "every 500ms: move coordinator workers to next",
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn crashes_are_survived() {
    all_survive(&[
        "every 700ms: crash 1\nevery 900ms: crash 2\nevery 1100ms: crash 3",
        "ShareAcknowledge orders-0 after 2 first 3: crash 1\nShareFetch after 9 first 1: crash 2 for 2s",
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_lock_duration_is_survived() {
    let script = "at 500ms: set broker group.share.min.record.lock.duration.ms=1000\n\
                  at 1s: set group workers share.record.lock.duration.ms=1000\n\
                  at 2s: set group workers share.record.lock.duration.ms=60000";
    let outcome = survive(script).await;
    assert_eq!((outcome.struck, outcome.again), (3, 0));
}
