//! Reported troubles of sinks with locks (`b_…`), each by its id, on a real broker and on the embedded one.
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
use std::path::PathBuf;

use both::{Cluster, on_shared};
use sharegroup_broker::Broker;
use target::{LOCK, Put, S, Target, end, named, prepare, settled, start, start_with};
use tokio::time::sleep;

const EARLIEST: (&str, &str) = ("share.auto.offset.reset", "earliest");

fn loss_file(cluster: &Cluster, name: &str) -> PathBuf {
    let servers = cluster.bootstrap_servers().replace(':', "-");
    let file = std::env::temp_dir().join(format!("sharegroup-{name}-{servers}"));
    drop(std::fs::remove_file(&file));
    file
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_050_put_of_two_locks_writes_each_record_once() {
    on_shared(b_050).await;
}

async fn b_050(cluster: &Cluster) {
    let (servers, name) = (cluster.bootstrap_servers(), "b-050");
    let admin = prepare(servers, name, 40, &[EARLIEST]).await;
    let loss_file = loss_file(cluster, name);
    let target = Target::new([Put::Takes(2 * LOCK)], None);
    let worker = start(servers, name, 2, &target, &loss_file);
    settled(&admin, name).await;
    let totals = end(worker).await;
    assert_eq!((target.written(), target.duplicates()), (40, 0));
    assert_eq!((totals.locks_lost, totals.may_arrive_twice()), (0, 0));
    assert_eq!(named(&loss_file), BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_051_outage_burns_no_delivery() {
    on_shared(b_051).await;
}

async fn b_051(cluster: &Cluster) {
    let (servers, name) = (cluster.bootstrap_servers(), "b-051");
    let limit = ("share.delivery.count.limit", "2");
    let admin = prepare(servers, name, 1, &[EARLIEST, limit]).await;
    let loss_file = loss_file(cluster, name);
    let target = Target::new([Put::Fails; 6], None);
    let worker = start(servers, name, 1, &target, &loss_file);
    settled(&admin, name).await;
    let totals = end(worker).await;
    assert_eq!((target.written(), target.duplicates()), (1, 0));
    assert_eq!((totals.put_failures, totals.acquired), (6, 1), "{totals:?}");
    assert_eq!(named(&loss_file), BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_054_last_delivery_is_held_and_named_when_it_is_given_up() {
    on_shared(b_054).await;
}

async fn b_054(cluster: &Cluster) {
    let (servers, name) = (cluster.bootstrap_servers(), "b-054");
    let limit = ("share.delivery.count.limit", "2");
    let admin = prepare(servers, name, 1, &[EARLIEST, limit]).await;
    let loss_file = loss_file(cluster, name);
    let target = Target::new([], Some(Put::Fails));
    let fails = async |times: u64| {
        let worker = start(servers, name, 1, &target, &loss_file);
        while worker.status().totals().put_failures < times {
            sleep(S / 20).await;
        }
        worker
    };
    // The first delivery ends with its task, which gives the record back.
    let totals = end(fails(1).await).await;
    assert_eq!((totals.acquired, totals.named_as_lost), (1, 0));
    // The last one is held for as long as the task runs, and longer than its lock.
    let worker = fails(1).await;
    sleep(2 * LOCK).await;
    let totals = worker.status().totals();
    assert_eq!((totals.acquired, totals.locks_lost), (1, 0), "{totals:?}");
    let offsets = admin.share_group_offsets(name, None).await.unwrap();
    assert_eq!(offsets[0].lag, Some(1));
    assert_eq!(named(&loss_file), BTreeSet::new());
    let totals = end(worker).await;
    assert_eq!(totals.named_as_lost, 1, "{totals:?}");
    assert_eq!(named(&loss_file), BTreeSet::from([0]));
    drop(std::fs::remove_file(&loss_file));
}

/// A broker answers the change of a group's settings before it acts on them (`Configs::hold`).
#[tokio::test]
async fn nothing_is_skipped_while_the_brokers_take_in_the_groups_start() {
    let short_locks = ("group.share.min.record.lock.duration.ms", "1000");
    let broker = Broker::builder().set(short_locks.0, short_locks.1);
    let broker = broker.start().await.unwrap();
    let (servers, name) = (broker.bootstrap_servers(), "taken-in");
    let admin = prepare(servers, name, 20, &[]).await;
    broker.model(|model| model.configs.hold());
    let target = Target::new([], None);
    let loss_file = std::env::temp_dir().join("sharegroup-taken-in");
    let worker = start(servers, name, 2, &target, &loss_file);
    settled(&admin, name).await;
    end(worker).await;
    assert_eq!((target.written(), target.duplicates()), (20, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_059_poison_row_stands_alone_and_the_others_are_written_once() {
    on_shared(b_059).await;
}

async fn b_059(cluster: &Cluster) {
    let (servers, name) = (cluster.bootstrap_servers(), "b-059");
    let admin = prepare(servers, name, 40, &[EARLIEST]).await;
    let loss_file = loss_file(cluster, name);
    let target = Target::new([], None);
    target.set_poison([4]);
    let worker = start(servers, name, 1, &target, &loss_file);
    worker.any_failed().await;
    let status = worker.status();
    let (_, task) = status.failed().next().unwrap();
    let trace = task.trace.clone().unwrap();
    assert!(
        trace.contains("the sink refused b-059-0 offset 4: "),
        "{trace}"
    );
    assert!(trace.contains("a row has no such column"), "{trace}");
    end(worker).await;
    assert!(!target.has(4));
    assert_eq!(target.duplicates(), 0);
    assert!(target.puts_made() <= 16, "{}", target.puts_made());
    // Once the sink is mended everything is delivered.
    target.set_poison([]);
    let worker = start(servers, name, 1, &target, &loss_file);
    settled(&admin, name).await;
    end(worker).await;
    assert_eq!((target.written(), target.duplicates()), (40, 0));
    assert_eq!(named(&loss_file), BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_069_put_longer_than_the_poll_interval_keeps_its_member() {
    on_shared(b_069).await;
}

async fn b_069(cluster: &Cluster) {
    let (servers, name) = (cluster.bootstrap_servers(), "b-069");
    let admin = prepare(servers, name, 20, &[EARLIEST]).await;
    let loss_file = loss_file(cluster, name);
    let target = Target::new([Put::Takes(12 * S)], None);
    let interval = [("consumer.override.max.poll.interval.ms", "10000")];
    let worker = start_with(servers, name, 1, &target, &loss_file, &interval);
    settled(&admin, name).await;
    let totals = end(worker).await;
    assert_eq!((target.written(), target.duplicates()), (20, 0));
    assert_eq!(
        (totals.locks_lost, totals.redelivered),
        (0, 0),
        "{totals:?}"
    );
}
