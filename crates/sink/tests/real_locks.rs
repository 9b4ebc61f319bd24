//! Locks that run out, on a real broker and on the embedded one: nothing is archived without an error that names
//! it, and what may arrive twice is counted.
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

use both::{Cluster, on_both};
use sharegroup_launcher::Kafka;
use sharegroup_sink::worker::Worker;
use target::{LOCK, Put, S, Target, end, named, prepare, set_group, settled, start};
use tokio::time::{Instant, sleep};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_renewal_nothing_is_archived_without_an_error_that_names_it() {
    on_both(&[], without_renewal).await;
}

async fn without_renewal(cluster: &Cluster) {
    let servers = cluster.bootstrap_servers();
    let group = "no-renewal";
    let configs = [
        ("share.renew.acknowledge.enable", "false"),
        ("share.delivery.count.limit", "2"),
        ("share.auto.offset.reset", "earliest"),
    ];
    let admin = prepare(servers, group, 300, &configs).await;
    let loss_file =
        std::env::temp_dir().join(format!("sharegroup-loss-{}", servers.replace(':', "-")));
    drop(std::fs::remove_file(&loss_file));

    // A put that hangs: the task fails while the records are its own, and they cost one delivery.
    let hanging = Target::new([Put::Hangs], None);
    let worker = start(servers, group, 1, &hanging, &loss_file);
    let started = Instant::now();
    worker.any_failed().await;
    assert!(started.elapsed() < 30 * S);
    let status = worker.status();
    let (_, task) = status.failed().next().unwrap();
    let trace = task.trace.clone().unwrap();
    assert!(
        trace.contains("no-renewal-0 offsets 0 to ") && trace.contains("before their lock ends"),
        "{trace}"
    );
    let totals = end(worker).await;
    assert_eq!((totals.locks_lost, totals.written), (0, 0), "{totals:?}");
    assert_eq!(named(&loss_file), BTreeSet::new());

    // Puts that block their thread for longer than the lock: what this costs on its last delivery is named.
    let blocking = Target::new([Put::Blocks(8 * S); 3], None);
    let worker = start(servers, group, 1, &blocking, &loss_file);
    tokio::select! {
        () = settled(&admin, group) => {}
        never = restart_failed(&worker) => match never {},
    }
    let totals = end(worker).await;
    let named = named(&loss_file);
    let archived = 300 - totals.acknowledged;
    assert!(archived > 0, "nothing was put to the test: {totals:?}");
    assert_eq!(named.len() as u64, archived, "{named:?} {totals:?}");
    assert_eq!(totals.named_as_lost, archived);
    let unwritten = (0..300).filter(|offset| !blocking.has(*offset));
    assert!(unwritten.into_iter().all(|offset| named.contains(&offset)));
    std::fs::remove_file(&loss_file).unwrap();
}

/// As somebody would who has read why they failed.
async fn restart_failed(worker: &Worker) -> std::convert::Infallible {
    loop {
        worker.any_failed().await;
        worker.restart("out", true).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_group_whose_lock_becomes_a_second_without_renewal_is_served_on() {
    on_both(&[], short_lock).await;
}

async fn short_lock(cluster: &Cluster) {
    let (servers, group) = (cluster.bootstrap_servers(), "short-lock");
    let earliest = ("share.auto.offset.reset", "earliest");
    let admin = prepare(servers, group, 400, &[earliest]).await;
    let loss_file = std::env::temp_dir().join(format!("short-lock-{}", servers.replace(':', "-")));
    let target = Target::per_record(S / 50);
    let worker = start(servers, group, 1, &target, &loss_file);
    while target.written() < 100 {
        sleep(S / 50).await;
    }
    let short = [
        ("share.renew.acknowledge.enable", "false"),
        ("share.record.lock.duration.ms", "1000"),
    ];
    set_group(&admin, group, &short).await;
    tokio::select! {
        () = settled(&admin, group) => {}
        () = worker.any_failed() => panic!("{:?}", worker.status()),
    }
    let totals = end(worker).await;
    assert_eq!(target.written(), 400);
    assert_eq!(totals.named_as_lost, 0, "{totals:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_frozen_broker_makes_arrive_twice_is_counted() {
    // Only a process can be frozen.
    let Some(kafka) = Kafka::builder().start_or_skip().unwrap() else {
        return;
    };
    let servers = kafka.bootstrap_servers();
    let group = "frozen";
    let configs = [("share.auto.offset.reset", "earliest")];
    let admin = prepare(&servers, group, 2000, &configs).await;
    let loss_file = kafka.dir().join("loss");
    let target = Target::new([], Some(Put::Takes(S / 20)));
    let worker = start(&servers, group, 1, &target, &loss_file);
    while target.written() < 500 {
        sleep(S / 50).await;
    }
    kafka.broker(1).freeze().unwrap();
    sleep(2 * LOCK).await;
    kafka.broker(1).thaw().unwrap();
    settled(&admin, group).await;
    let totals = end(worker).await;
    let duplicates = target.duplicates() as u64;
    assert_eq!(target.written(), 2000);
    assert!(duplicates > 0, "the freeze made no difference");
    assert!(
        totals.may_arrive_twice() >= duplicates,
        "{duplicates} {totals:?}"
    );
    assert_eq!(named(&loss_file), BTreeSet::new());
}
