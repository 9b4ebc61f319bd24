//! More tasks, or more lanes of one task, than partitions: a sink that takes 5 ms a record, on one partition, on a real
//! broker and on the embedded one. `cargo xtask prove scale` runs it alone, with more records and the full demands.
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
use std::time::Duration;

use both::{Cluster, on_both};
use target::{S, Target, end, prepare, settled, start_with};
use tokio::time::{Instant, sleep, timeout};

const PER_RECORD: Duration = Duration::from_millis(5);
const EARLIEST: (&str, &str) = ("share.auto.offset.reset", "earliest");

/// Records of one task in a run, and how much faster six have to be than one, and than two.
struct Demands {
    records: usize,
    six_to_one: f64,
    six_to_two: f64,
    six_lanes_to_one: f64,
}

/// Beside other tests the machine isn't ours.
fn demands() -> Demands {
    match std::env::var_os("SHAREGROUP_SCALE") {
        Some(_) => Demands {
            records: 4_000,
            six_to_one: 5.5,
            six_to_two: 2.5,
            six_lanes_to_one: 4.5,
        },
        None => Demands {
            records: 600,
            six_to_one: 3.0,
            six_to_two: 1.8,
            six_lanes_to_one: 3.0,
        },
    }
}

fn loss_file(cluster: &Cluster, name: &str) -> PathBuf {
    let servers = cluster.bootstrap_servers().replace(':', "-");
    std::env::temp_dir().join(format!("sharegroup-{name}-{servers}"))
}

/// Records a second between two counts of written ones.
async fn rate(target: &Target, from: usize, to: usize) -> f64 {
    let reached = async |count| {
        while target.written() < count {
            sleep(PER_RECORD / 5).await;
        }
        (target.written(), Instant::now())
    };
    let measured = async {
        let first = reached(from).await;
        let last = reached(to).await;
        (last.0 - first.0) as f64 / (last.1 - first.1).as_secs_f64()
    };
    timeout(300 * S, measured)
        .await
        .expect("records are written")
}

/// The rate of so many tasks, each with so many lanes, in the middle of what they write.
async fn rate_of(cluster: &Cluster, tasks: usize, lanes: usize, records: usize) -> f64 {
    let name = format!("scale-{tasks}-{lanes}");
    let servers = cluster.bootstrap_servers();
    let admin = prepare(servers, &name, records, &[EARLIEST]).await;
    let target = Target::per_record(PER_RECORD);
    let file = loss_file(cluster, &name);
    let concurrency = lanes.to_string();
    let settings = [("share.concurrency", concurrency.as_str())];
    let worker = start_with(servers, &name, tasks, &target, &file, &settings);
    let rate = rate(&target, records / 5, records * 9 / 10).await;
    settled(&admin, &name).await;
    end(worker).await;
    assert_eq!((target.written(), target.duplicates()), (records, 0));
    println!("{tasks} tasks of {lanes} lanes: {rate:.0} records/s");
    rate
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn six_tasks_or_six_lanes_on_one_partition_are_nearly_six_times_as_fast_as_one() {
    on_both(&[], async |cluster| {
        let demands = demands();
        let one = rate_of(cluster, 1, 1, demands.records).await;
        for (tasks, lanes, demanded) in
            [(6, 1, demands.six_to_one), (1, 6, demands.six_lanes_to_one)]
        {
            let six = rate_of(cluster, tasks, lanes, 6 * demands.records).await;
            println!("ratio {:.2}", six / one);
            assert!(six >= demanded * one, "{six:.0} to {one:.0}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_tasks_that_become_six_while_they_work_are_faster_at_once_and_lose_nothing() {
    on_both(&[], async |cluster| {
        let (demands, name) = (demands(), "grows");
        let records = 6 * demands.records;
        let servers = cluster.bootstrap_servers();
        let admin = prepare(servers, name, records, &[EARLIEST]).await;
        let target = Target::per_record(PER_RECORD);
        let file = loss_file(cluster, name);
        let worker = start_with(servers, name, 2, &target, &file, &[]);
        let two = rate(&target, records / 20, records / 5).await;
        worker.set_tasks("out", 6).await.unwrap();
        // The new ones join, and have the partition at their second heartbeat.
        let six = rate(&target, records / 2, records * 9 / 10).await;
        settled(&admin, name).await;
        println!(
            "two tasks: {two:.0} records/s, six: {six:.0}, ratio {:.2}",
            six / two
        );
        assert!(six >= demands.six_to_two * two, "{six:.0} to {two:.0}");
        let totals = end(worker).await;
        assert_eq!((target.written(), target.duplicates()), (records, 0));
        assert_eq!(totals.locks_lost, 0);
    })
    .await;
}
