//! Configurations against clusters: patterns and start positions, on a real broker and on the embedded one.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "../../consumer/tests/both/mod.rs"]
mod both;
mod target;

use std::collections::BTreeSet;

use both::{Cluster, on_shared};
use sharegroup_consumer::TopicPartition;
use sharegroup_consumer::admin::{Admin, LogPosition, PartitionOffsets};
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_sink::Registry;
use sharegroup_sink::config::{Properties, load_properties};
use sharegroup_sink::worker::{Worker, WorkerOptions};
use target::{S, Target};
use tokio::time::{Instant, sleep, timeout};

fn admin(cluster: &Cluster) -> Admin {
    Admin::new(ClientConfig::new(cluster.bootstrap_servers()).unwrap())
}

/// A worker with one task; these are the connector's keys beside the least.
fn start(cluster: &Cluster, target: &Target, keys: &[(&str, &str)]) -> Worker {
    let mut worker = Properties::new("worker.properties");
    worker.set("bootstrap.servers", cluster.bootstrap_servers());
    worker.set("consumer.group.protocol", "share");
    worker.set("consumer.metadata.max.age.ms", "1000");
    let mut sink = Properties::new("sink.properties");
    sink.set("name", "out");
    sink.set("connector.class", "target");
    for (key, value) in keys {
        sink.set(*key, *value);
    }
    let registry = Registry::new().with(target.clone());
    let loaded = load_properties(worker, vec![sink], false, &registry).unwrap();
    Worker::start(&loaded.worker, loaded.connectors, &WorkerOptions::default())
}

async fn create(cluster: &Cluster, topic: &str, records: usize) {
    admin(cluster)
        .create_topic(topic, 1, -1, &[])
        .await
        .unwrap();
    produce(cluster, topic, records).await;
}

async fn produce(cluster: &Cluster, topic: &str, records: usize) {
    let client = ClientConfig::new(cluster.bootstrap_servers()).unwrap();
    let producer = Producer::new(ProducerConfig::new(client));
    for number in 0..records {
        let record = ProducerRecord::new(topic).value(number.to_string());
        drop(producer.send(record).await.unwrap());
    }
    producer.close(10 * S).await.unwrap();
}

/// Waits for the group's offsets to be so.
async fn offsets(
    cluster: &Cluster,
    group_id: &str,
    wanted: impl Fn(&[PartitionOffsets]) -> bool,
) -> Vec<PartitionOffsets> {
    let admin = admin(cluster);
    let deadline = Instant::now() + 60 * S;
    loop {
        let offsets = admin.share_group_offsets(group_id, None).await.unwrap();
        if wanted(&offsets) {
            return offsets;
        }
        assert!(Instant::now() < deadline, "{offsets:?}");
        sleep(S / 10).await;
    }
}

/// Waits until so many topics are read to their ends.
async fn drained(cluster: &Cluster, group_id: &str, topics: usize) -> BTreeSet<String> {
    let is_drained = |offsets: &[PartitionOffsets]| {
        offsets.len() == topics && offsets.iter().all(|offset| offset.lag == Some(0))
    };
    let offsets = offsets(cluster, group_id, is_drained).await;
    offsets.into_iter().map(|offset| offset.topic).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_099_new_topics_of_a_pattern_are_read_and_internal_ones_never() {
    on_shared(b_099).await;
}

async fn b_099(cluster: &Cluster) {
    let target = Target::new([], None);
    let group_id = "b-099";
    let keys = [
        ("topics.regex", "__.*|b-099-.*"),
        ("share.group.id", group_id),
    ];
    // Nothing matches yet.
    let worker = start(cluster, &target, &keys);
    let deadline = Instant::now() + 30 * S;
    loop {
        let status = worker.status();
        let note = status.tasks().find_map(|task| task.note.clone());
        if note.is_some_and(|note| note.starts_with("waiting for a topic of those that match")) {
            break;
        }
        assert!(Instant::now() < deadline, "{status:?}");
        sleep(S / 10).await;
    }
    create(cluster, "b-099-1", 10).await;
    assert_eq!(
        drained(cluster, group_id, 1).await,
        BTreeSet::from(["b-099-1".to_owned()])
    );
    create(cluster, "b-099-2", 10).await;
    create(cluster, "not-b-099", 10).await;
    let read = drained(cluster, group_id, 2).await;
    assert!(read.contains("b-099-2"), "{read:?}");
    let totals = target::end(worker).await;
    assert_eq!((totals.written, target.written()), (20, 10), "{totals:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_topic_of_a_pattern_that_is_deleted_drops_out_and_is_not_waited_for() {
    on_shared(deleted).await;
}

async fn deleted(cluster: &Cluster) {
    let target = Target::new([], None);
    let group_id = "pattern-deleted";
    create(cluster, "deleted-goes", 10).await;
    create(cluster, "deleted-stays", 10).await;
    let keys = [
        ("topics.regex", "deleted-.*"),
        ("share.group.id", group_id),
        // Looked at sooner than that.
        ("consumer.override.metadata.max.age.ms", "60000"),
    ];
    let worker = start(cluster, &target, &keys);
    drained(cluster, group_id, 2).await;
    let admin = admin(cluster);
    admin.delete_topic("deleted-goes").await.unwrap();
    let deadline = Instant::now() + 25 * S;
    loop {
        let status = worker.status();
        assert!(status.tasks().all(|task| task.missing_topics.is_empty()));
        let group = admin.describe_share_group(group_id).await.unwrap();
        let members = group.members.iter();
        let mut subscribed = members.map(|member| member.subscribed_topics.as_slice());
        if subscribed.all(|topics| *topics == ["deleted-stays"]) {
            break;
        }
        assert!(Instant::now() < deadline, "{group:?}");
        sleep(S / 10).await;
    }
    produce(cluster, "deleted-stays", 5).await;
    while worker.status().totals().written < 25 {
        assert!(Instant::now() < deadline + 30 * S, "{:?}", worker.status());
        sleep(S / 10).await;
    }
    target::end(worker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn partitions_added_under_load_are_read_from_their_first_record_by_a_group_nobody_configured()
{
    on_shared(partitions_added).await;
}

async fn partitions_added(cluster: &Cluster) {
    let name = "grows-under-load";
    create(cluster, name, 10).await;
    let target = Target::new([], None);
    let keys = [("topics", name), ("share.group.id", name)];
    let worker = start(cluster, &target, &keys);

    let mut client = ClientConfig::new(cluster.bootstrap_servers()).unwrap();
    client.metadata_max_age = S / 4;
    let producer = Producer::new(ProducerConfig::new(client));
    let mut sent = 10;
    let new = [1, 2, 3].map(|partition| TopicPartition::new(name, partition));
    let admin = admin(cluster);
    let load = async {
        // Until each of the new partitions has some.
        loop {
            for _ in 0..20 {
                let record = ProducerRecord::new(name).value("under load");
                drop(producer.send(record).await.unwrap());
                sent += 1;
            }
            producer.flush().await.unwrap();
            let ends = admin.log_offsets(&new, LogPosition::Latest).await;
            if ends.is_ok_and(|ends| ends.iter().all(|end| end.offset > 100)) {
                return;
            }
            sleep(S / 100).await;
        }
    };
    let alter = ["--alter", "--topic", name, "--partitions", "4"];
    let grow = cluster.tool("org.apache.kafka.tools.TopicCommand", &alter);
    timeout(60 * S, async { tokio::join!(load, grow) })
        .await
        .unwrap();
    producer.close(10 * S).await.unwrap();

    let all_read = |offsets: &[PartitionOffsets]| {
        offsets.len() == 4 && offsets.iter().all(|offset| offset.lag == Some(0))
    };
    offsets(cluster, name, all_read).await;
    let totals = target::end(worker).await;
    assert_eq!(
        (totals.written, totals.redelivered),
        (sent, 0),
        "{totals:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_097_old_records_are_read_unless_told_otherwise() {
    on_shared(b_097).await;
}

async fn b_097(cluster: &Cluster) {
    create(cluster, "b-097", 5).await;
    let keys = |group_id| [("topics", "b-097"), ("share.group.id", group_id)];
    let all = Target::new([], None);
    let worker = start(cluster, &all, &keys("b-097-all"));
    drained(cluster, "b-097-all", 1).await;
    target::end(worker).await;
    assert_eq!(all.written(), 5);

    let new = Target::new([], None);
    let latest = [("share.auto.offset.reset", "latest")];
    let keys = [&keys("b-097-new")[..], &latest].concat();
    let worker = start(cluster, &new, &keys);
    // Those that come before it has joined don't count, either.
    let deadline = Instant::now() + 60 * S;
    while new.written() == 0 {
        assert!(Instant::now() < deadline, "nothing is written");
        produce(cluster, "b-097", 1).await;
        sleep(S / 10).await;
    }
    target::end(worker).await;
    assert!((0..5).all(|offset| !new.has(offset)));
}
