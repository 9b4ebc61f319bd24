//! `share.start.from.group` on a real broker and on the embedded one.
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

use std::path::PathBuf;

use both::{Cluster, on_shared};
use sharegroup_consumer::TopicPartition;
use sharegroup_consumer::admin::{Admin, LogOffset};
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_sink::worker::Worker;
use target::{S, Target, end, prepare, settled, start_with};
use tokio::time::{Instant, sleep};

const OLD: &str = "share.start.from.group";

fn loss_file(cluster: &Cluster, name: &str) -> PathBuf {
    let servers = cluster.bootstrap_servers().replace(':', "-");
    std::env::temp_dir().join(format!("sharegroup-{name}-{servers}"))
}

fn start(cluster: &Cluster, name: &str, old: &str, target: &Target) -> Worker {
    let servers = cluster.bootstrap_servers();
    let loss_file = loss_file(cluster, name);
    start_with(servers, name, 1, target, &loss_file, &[(OLD, old)])
}

/// A topic with a hundred records, of which a consumer group has committed so many.
async fn half_done(cluster: &Cluster, name: &str, old: &str, committed: i64) -> Admin {
    let configs = [("share.auto.offset.reset", "earliest")];
    let admin = prepare(cluster.bootstrap_servers(), name, 100, &configs).await;
    commit(&admin, name, old, committed).await;
    admin
}

async fn commit(admin: &Admin, topic: &str, old: &str, offset: i64) {
    let committed = LogOffset::new(TopicPartition::new(topic, 0), offset);
    let committed = admin.alter_consumer_group_offsets(old, &[committed]).await;
    committed.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_share_group_begins_at_the_committed_offsets_and_goes_on_after_a_restart() {
    on_shared(begins_and_goes_on).await;
}

async fn begins_and_goes_on(cluster: &Cluster) {
    let (name, old) = ("migrated", "migrated-old");
    let admin = half_done(cluster, name, old, 40).await;
    let target = Target::new([], None);
    let worker = start(cluster, name, old, &target);
    settled(&admin, name).await;
    end(worker).await;
    assert_eq!((target.written(), target.duplicates()), (60, 0));
    assert!(target.has(40) && !target.has(39));

    // The key is still set: nothing is moved, nothing comes again.
    let worker = start(cluster, name, old, &target);
    let client = ClientConfig::new(cluster.bootstrap_servers()).unwrap();
    let producer = Producer::new(ProducerConfig::new(client));
    drop(producer.send(ProducerRecord::new(name)).await.unwrap());
    producer.close(10 * S).await.unwrap();
    wait(|| target.has(100)).await;
    end(worker).await;
    assert_eq!((target.written(), target.duplicates()), (61, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_share_group_that_stands_before_the_committed_offsets_is_refused() {
    on_shared(stands_before).await;
}

async fn stands_before(cluster: &Cluster) {
    let (name, old) = ("behind", "behind-old");
    let admin = half_done(cluster, name, old, 90).await;
    let begun = LogOffset::new(TopicPartition::new(name, 0), 10);
    admin
        .alter_share_group_offsets(name, &[begun])
        .await
        .unwrap();
    let target = Target::new([], None);
    let worker = start(cluster, name, old, &target);
    wait(|| worker.status().failed().count() > 0).await;
    let status = worker.status();
    let failed: Vec<_> = status
        .failed()
        .map(|(_, task)| format!("{task:?}"))
        .collect();
    assert!(
        failed[0].contains("stands at offset 10 of behind-0, before offset 90"),
        "{failed:?}"
    );
    end(worker).await;
    assert_eq!(target.puts_made(), 0);
}

async fn wait(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + 60 * S;
    while !condition() {
        assert!(Instant::now() < deadline, "not within a minute");
        sleep(S / 20).await;
    }
}
