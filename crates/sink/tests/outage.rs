//! A target that is down for ten lock times, on a real broker and on the embedded one: nothing is lost and no
//! delivery is burnt, however many workers there are.
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
use target::{S, Target, end, named, prepare, settled, start_with};
use tokio::time::{Duration, sleep};

const LOCK_SHORT: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn outage_with_one_worker_loses_nothing_and_burns_no_delivery() {
    on_shared(async |cluster| outage(cluster, "outage-1", 1).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn outage_with_eight_workers_loses_nothing_and_burns_no_delivery() {
    on_shared(async |cluster| outage(cluster, "outage-8", 8).await).await;
}

async fn outage(cluster: &Cluster, name: &str, workers: usize) {
    let servers = cluster.bootstrap_servers();
    let configs = [
        ("share.auto.offset.reset", "earliest"),
        ("share.record.lock.duration.ms", "2000"),
    ];
    let admin = prepare(servers, name, 400, &configs).await;
    let loss_file =
        std::env::temp_dir().join(format!("sharegroup-{name}-{}", servers.replace(':', "-")));
    drop(std::fs::remove_file(&loss_file));
    let target = Target::new([], None);
    target.set_down(true);
    // Three locks: the poll interval must not put anybody out.
    let interval = [("consumer.override.max.poll.interval.ms", "6000")];
    let workers: Vec<_> = (0..workers)
        .map(|_| start_with(servers, name, 1, &target, &loss_file, &interval))
        .collect();
    while target.puts_made() == 0 {
        sleep(S / 20).await;
    }
    sleep(10 * LOCK_SHORT).await;
    assert_eq!(target.written(), 0);
    target.set_down(false);
    settled(&admin, name).await;
    assert_eq!(target.written(), 400);
    assert!(
        target.delivery_count_max() <= 2,
        "{}",
        target.delivery_count_max()
    );
    for worker in workers {
        assert_eq!(worker.status().failed().count(), 0);
        let totals = end(worker).await;
        assert_eq!(
            (totals.named_as_lost, totals.rejected),
            (0, 0),
            "{totals:?}"
        );
    }
    assert_eq!(named(&loss_file), BTreeSet::new());
}
