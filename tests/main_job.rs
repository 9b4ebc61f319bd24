//! The main job on a real broker: records leave a topic through a share group and arrive in files.
//!
//! Each test prints its figures.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::time::{Duration, Instant};

use sharegroup_launcher::Kafka;
use support::job::Job;

/// What members can hold of 4 partitions, written and not yet confirmed: the broker's window of
/// record locks (`group.share.partition.max.record.locks`, 2,000 per partition) bounds it.
const HELD_MAX: u64 = 4 * 2_000;

#[test]
fn a_killed_process_loses_nothing_and_repeats_at_most_what_it_held() {
    let Some(job) = Job::prepare(Kafka::builder(), 4, 1_000_000) else {
        return;
    };
    job.produce();

    let started = Instant::now();
    let until_idle = ["--exit-when-idle", "3s"];
    let mut killed = job.run("a", &until_idle);
    let survivor = job.run("b", &until_idle);
    job.wait_for_lines(&["a", "b"], 200_000);
    killed.signal("-9");
    killed.wait(Duration::from_secs(5));
    let (by_killed, at_kill) = (job.lines("a"), started.elapsed());
    let written = job.finish(None, survivor);
    println!(
        "drained in {:?} (killed at {at_kill:?} after {by_killed} lines of its own)",
        started.elapsed()
    );
    assert!(by_killed > 0, "the killed process had written nothing");
    let duplicates = written.duplicates();
    assert!(duplicates <= HELD_MAX, "{duplicates} duplicates");
}

#[test]
fn a_stop_in_the_middle_repeats_nothing() {
    const RECORDS: u64 = 400_000;
    let Some(job) = Job::prepare(Kafka::builder(), 4, RECORDS) else {
        return;
    };
    job.produce();

    let mut first = job.run("a", &[]);
    job.wait_for_lines(&["a"], 50_000);
    let stopped = Instant::now();
    first.signal("-TERM");
    let status = first.wait(Duration::from_secs(10));
    let took = stopped.elapsed();
    assert!(status.success(), "{status}\n{}", first.log());
    assert!(took < Duration::from_secs(5), "left after {took:?}");
    let by_first = job.lines("a");
    assert!(by_first < RECORDS, "stopped too late to prove anything");

    let second = job.run("b", &["--exit-when-idle", "3s"]);
    let written = job.finish(None, second);
    println!("stopped after {by_first} lines in {took:?}");
    assert_eq!(written.duplicates(), 0);
}

#[test]
fn three_brokers_of_which_one_dies_and_comes_back_lose_nothing() {
    let Some(job) = Job::prepare(Kafka::builder().brokers(3), 6, 300_000) else {
        return;
    };
    let producing = job.begin_to_produce();
    let run = job.run("a", &["--exit-when-idle", "10s"]);
    job.wait_for_lines(&["a"], 60_000);
    let broker = job.kafka.broker(2);
    broker.kill().unwrap();
    let at_kill = job.lines("a");
    job.wait_for_lines(&["a"], at_kill + 20_000);
    broker.start().unwrap();
    job.finish(Some(producing), run);
    println!("killed after {at_kill} lines");
}
