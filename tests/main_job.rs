//! The main job on a real broker: records leave a topic through a share group and arrive in files.
//!
//! Each test prints its figures.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::time::{Duration, Instant};

use sharegroup_launcher::Kafka;
use support::job::Job;
use support::wait_for;

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
    // On a busy machine the other one may have had them all.
    job.wait_for_lines(&["a"], 1);
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

/// `SHAREGROUP_KILLS=30` with 500,000 records is `cargo xtask prove kills`.
#[test]
fn a_process_killed_again_and_again_at_random_loses_nothing() {
    let kills: u64 = std::env::var("SHAREGROUP_KILLS").map_or(4, |text| text.parse().unwrap());
    let records = if kills < 30 { 100_000 } else { 500_000 };
    let Some(job) = Job::prepare(Kafka::builder(), 4, records) else {
        return;
    };
    job.with_dead_letters_of_the_group();
    job.produce();
    let mut random = u64::from(std::process::id());
    println!("seed {random}");
    for kill in 0..kills {
        let name = format!("killed-{kill}");
        let mut run = job.run(&name, &[]);
        // Somewhere in what it writes, the last ones too; or before it has written anything.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let lines = (random >> 33) % (2 * records / kills);
        let written = || {
            let names = (0..=kill).map(|kill| format!("killed-{kill}"));
            let all: u64 = names.map(|name| job.lines(&name)).sum();
            job.lines(&name) >= lines || all >= records
        };
        wait_for(
            "lines of a process to be killed",
            Duration::from_secs(120),
            written,
        );
        run.signal("-9");
        run.wait(Duration::from_secs(5));
    }
    let last = job.run("last", &["--exit-when-idle", "5s"]);
    let written = job.finish(None, last);
    println!(
        "{kills} kills; {} in the dead-letter topic",
        job.dead_letters()
    );
    let bound = kills * HELD_MAX;
    assert!(
        written.duplicates() <= bound,
        "{} duplicates",
        written.duplicates()
    );
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
