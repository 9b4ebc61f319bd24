//! A member written in Java and one of ours in one share group, on the embedded broker, whose history
//! tells who was given what.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};
use std::time::Duration;

use sharegroup::consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup::consumer::{ClientConfig, ShareConsumer};
use sharegroup_broker::Broker;
use sharegroup_broker::model::Model;
use sharegroup_broker::model::history::Event;
use sharegroup_launcher::Tools;
use tokio::time::{sleep, timeout};

const GROUP: &str = "workers";
const TOPIC: &str = "orders";
const MEMBER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/java/ShareMember.java");
const ACCEPT: i8 = 1;

/// The Java member's process, killed with `SIGKILL` when it goes.
struct Java(Child);

impl Java {
    fn start(tools: &Tools, broker: &Broker, what: &str) -> Self {
        let mut command = tools.command(MEMBER, [broker.bootstrap_servers(), GROUP, TOPIC, what]);
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn tools() -> Option<Tools> {
    match Tools::fetch(sharegroup_launcher::DEFAULT_VERSION) {
        Err(error) if error.is_missing_requirement() && std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: Kafka's client for Java is needed: {error}");
            None
        }
        tools => Some(tools.unwrap()),
    }
}

async fn start(partitions: i32) -> Broker {
    let broker = Broker::builder()
        .topic(TOPIC, partitions)
        .set("group.share.min.heartbeat.interval.ms", "500")
        .group(GROUP, "share.auto.offset.reset", "earliest")
        .group(GROUP, "share.heartbeat.interval.ms", "500")
        .start()
        .await
        .unwrap();
    broker.model(Model::record_history);
    broker
}

async fn consumer(broker: &Broker) -> ShareConsumer {
    let consumer = ShareConsumer::builder(broker.bootstrap_servers())
        .group_id(GROUP)
        .topics([TOPIC]);
    consumer.build().await.unwrap()
}

async fn produce(broker: &Broker, records: usize) {
    let client = ClientConfig::new(broker.bootstrap_servers()).unwrap();
    let producer = Producer::new(ProducerConfig::new(client));
    for number in 0..records {
        let record = ProducerRecord::new(TOPIC).value(format!("{number:0100}"));
        drop(producer.send(record).await.unwrap());
    }
    producer.flush().await.unwrap();
    producer.close(Duration::from_secs(5)).await.unwrap();
}

async fn until(broker: &Broker, what: &str, mut is_so: impl FnMut(&mut Model) -> bool) {
    for _ in 0..12_000 {
        if broker.model(&mut is_so) {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

/// Whether that many members have partitions.
fn have_partitions(model: &Model, members: usize) -> bool {
    let group = model.groups.get(GROUP);
    let assigned = group.into_iter().flat_map(|group| group.members.values());
    assigned
        .filter(|member| !member.assigned.is_empty())
        .count()
        == members
}

/// Whether nothing is left to be settled of that many records.
fn is_drained(model: &Model, records: usize) -> bool {
    let ends = model.topics.named(TOPIC).unwrap().partitions.iter();
    let produced: i64 = ends.map(|partition| partition.log.end_offset()).sum();
    let loaded = model.groups.get(GROUP).into_iter();
    let settled: i64 = loaded
        .flat_map(|group| group.loaded.values())
        .map(|loaded| loaded.partition.start_offset())
        .sum();
    usize::try_from(produced).unwrap() == records && settled == produced
}

/// How many records each member accepted, by the history; none was accepted twice.
fn accepted(model: &Model) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (_, event) in model.history.events() {
        let Event::Acknowledged {
            member_id,
            place,
            applied,
            ..
        } = event
        else {
            continue;
        };
        for (first, last, kind) in applied {
            assert_eq!(*kind, ACCEPT);
            assert!((*first..=*last).all(|offset| seen.insert((*place, offset))));
            *counts.entry(member_id.clone()).or_default() += last - first + 1;
        }
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_java_member_and_ours_accept_each_record_once() {
    let Some(tools) = tools() else { return };
    let records = 200_000;
    let broker = start(4).await;
    let _java = Java::start(&tools, &broker, "accept");
    let mut consumer = consumer(&broker).await;
    let consume = tokio::spawn(async move {
        while let Ok(Some(batch)) = consumer.poll().await {
            batch.accept();
        }
    });
    until(&broker, "two members", |model| have_partitions(model, 2)).await;
    produce(&broker, records).await;
    until(&broker, "all is settled", |model| {
        is_drained(model, records)
    })
    .await;
    consume.abort();
    let counts = broker.model(|model| accepted(model));
    println!("accepted: {counts:?}");
    assert_eq!(counts.len(), 2, "both took part");
    assert_eq!(counts.values().sum::<i64>(), 200_000);
}

/// Polls until that many records have come; all must be second deliveries.
async fn expect_second_deliveries(broker: &Broker, records: usize) {
    let mut consumer = consumer(broker).await;
    let mut left = records;
    while left > 0 {
        let batch = consumer.poll().await.unwrap().unwrap();
        for record in batch.records() {
            assert_eq!(record.delivery_count, 2, "offset {}", record.offset);
            left -= 1;
        }
        batch.accept();
    }
    drop(consumer.close(Duration::from_secs(5)).await.unwrap());
}

fn has_acquired(model: &Model, records: i64) -> bool {
    let events = model.history.events().iter();
    let ranges = events.filter_map(|(_, event)| match event {
        Event::Acquired { ranges, .. } => Some(ranges),
        _ => None,
    });
    let acquired: i64 = ranges
        .flatten()
        .map(|range| range.last_offset - range.first_offset + 1)
        .sum();
    acquired == records
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_java_member_held_comes_again_at_its_disconnect() {
    let Some(tools) = tools() else { return };
    let broker = start(1).await;
    let java = Java::start(&tools, &broker, "hold");
    until(&broker, "a member", |model| have_partitions(model, 1)).await;
    produce(&broker, 10).await;
    until(&broker, "10 records are held", |model| {
        has_acquired(model, 10)
    })
    .await;
    drop(java);
    // Far less than the lock's 30 s.
    let again = expect_second_deliveries(&broker, 10);
    timeout(Duration::from_secs(10), again).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_java_member_waited_for_comes_again_when_its_parked_fetch_ends() {
    let Some(tools) = tools() else { return };
    let broker = start(1).await;
    let java = Java::start(&tools, &broker, "accept");
    let is_parked = |model: &mut Model| {
        let brokers: Vec<_> = model.brokers().collect();
        let mut links = brokers
            .into_iter()
            .flat_map(|broker| model.links_of(broker));
        links.any(|link| model.is_busy(link))
    };
    until(&broker, "a fetch is parked", is_parked).await;
    drop(java);
    produce(&broker, 10).await;
    // They went to the fetch of the dead member, as with a real broker.
    until(&broker, "10 records went out", |model| {
        has_acquired(model, 10)
    })
    .await;
    let again = expect_second_deliveries(&broker, 10);
    timeout(Duration::from_secs(10), again).await.unwrap();
}
