//! The main job on a real broker: records leave a topic through a share group and arrive in files.
//!
//! Each test prints its figures.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::time::{Duration, Instant};

use sharegroup_launcher::Kafka;
use support::{
    Folder, Run, RunPlan, Written, create_topic, lag, lines, produce, producer, wait_for,
};

/// What members can hold of 4 partitions, written and not yet confirmed: the broker's window of
/// record locks (`group.share.partition.max.record.locks`, 2,000 per partition) bounds it.
const HELD_MAX: u64 = 4 * 2_000;

#[test]
fn a_killed_process_loses_nothing_and_repeats_at_most_what_it_held() {
    const RECORDS: u64 = 1_000_000;
    let Some(kafka) = Kafka::builder().start_or_skip().unwrap() else {
        return;
    };
    let folder = Folder::new("killed");
    create_topic(&kafka, "jobs", 4, 1);
    let produced = Instant::now();
    produce(&kafka, &folder, "jobs", RECORDS);
    println!("produced {RECORDS} records in {:?}", produced.elapsed());

    let plan = |name| RunPlan {
        name,
        kafka: &kafka,
        folder: &folder,
        topic: "jobs",
        group: "job",
        tasks: 2,
        more: "",
        arguments: &["--exit-when-idle", "3s"],
    };
    let started = Instant::now();
    let mut killed = Run::start(&plan("a"));
    let mut survivor = Run::start(&plan("b"));
    wait_for("200,000 lines", Duration::from_secs(120), || {
        lines(&folder, "a") + lines(&folder, "b") >= 200_000
    });
    killed.signal("-9");
    killed.wait(Duration::from_secs(5));
    let (by_killed, at_kill) = (lines(&folder, "a"), started.elapsed());
    let status = survivor.wait(Duration::from_secs(180));
    assert!(status.success(), "{status}\n{}", survivor.log());
    println!(
        "drained in {:?} (killed at {at_kill:?} after {by_killed} lines of its own)",
        started.elapsed()
    );

    let written = Written::read(&folder);
    println!(
        "distinct {}, duplicates {}",
        written.distinct(),
        written.duplicates()
    );
    assert_eq!(written.missing(RECORDS), Vec::<u64>::new());
    assert_eq!(written.distinct(), RECORDS);
    assert!(by_killed > 0, "the killed process had written nothing");
    assert!(
        written.duplicates() <= HELD_MAX,
        "{} duplicates",
        written.duplicates()
    );
    assert_eq!(lag(&kafka, "job"), Some(0));
}

#[test]
fn a_stop_in_the_middle_repeats_nothing() {
    const RECORDS: u64 = 400_000;
    let Some(kafka) = Kafka::builder().start_or_skip().unwrap() else {
        return;
    };
    let folder = Folder::new("stopped");
    create_topic(&kafka, "jobs", 4, 1);
    produce(&kafka, &folder, "jobs", RECORDS);
    let plan = |name, arguments| RunPlan {
        name,
        kafka: &kafka,
        folder: &folder,
        topic: "jobs",
        group: "job",
        tasks: 2,
        more: "",
        arguments,
    };

    let mut first = Run::start(&plan("a", &[]));
    wait_for("50,000 lines", Duration::from_secs(120), || {
        lines(&folder, "a") >= 50_000
    });
    let stopped = Instant::now();
    first.signal("-TERM");
    let status = first.wait(Duration::from_secs(10));
    assert!(status.success(), "{status}\n{}", first.log());
    let (by_first, took) = (lines(&folder, "a"), stopped.elapsed());
    assert!(took < Duration::from_secs(5), "left after {took:?}");
    assert!(by_first < RECORDS, "stopped too late to prove anything");

    let mut second = Run::start(&plan("b", &["--exit-when-idle", "3s"]));
    let status = second.wait(Duration::from_secs(120));
    assert!(status.success(), "{status}\n{}", second.log());
    let written = Written::read(&folder);
    println!(
        "stopped after {by_first} lines in {took:?}; distinct {}, duplicates {}",
        written.distinct(),
        written.duplicates()
    );
    assert_eq!(written.missing(RECORDS), Vec::<u64>::new());
    assert_eq!(written.duplicates(), 0);
    assert_eq!(lag(&kafka, "job"), Some(0));
}

#[test]
fn three_brokers_of_which_one_dies_and_comes_back_lose_nothing() {
    const RECORDS: u64 = 300_000;
    let Some(kafka) = Kafka::builder().brokers(3).start_or_skip().unwrap() else {
        return;
    };
    let folder = Folder::new("three");
    create_topic(&kafka, "jobs", 6, 3);
    let mut producing = producer(&kafka, &folder, "jobs", RECORDS)
        .args(["--throughput", "15000"])
        .spawn()
        .unwrap();
    let mut run = Run::start(&RunPlan {
        name: "a",
        kafka: &kafka,
        folder: &folder,
        topic: "jobs",
        group: "job",
        tasks: 2,
        more: "",
        arguments: &["--exit-when-idle", "10s"],
    });
    wait_for("60,000 lines", Duration::from_secs(120), || {
        lines(&folder, "a") >= 60_000
    });
    let broker = kafka.broker(2);
    broker.kill().unwrap();
    let at_kill = lines(&folder, "a");
    wait_for(
        "20,000 more lines without the broker",
        Duration::from_secs(60),
        || lines(&folder, "a") >= at_kill + 20_000,
    );
    broker.start().unwrap();
    let status = producing.wait().unwrap();
    assert!(status.success(), "VerifiableProducer ended with {status}");
    let status = run.wait(Duration::from_secs(180));
    assert!(status.success(), "{status}\n{}", run.log());
    let written = Written::read(&folder);
    println!(
        "killed after {at_kill} lines; distinct {}, duplicates {}",
        written.distinct(),
        written.duplicates()
    );
    assert_eq!(written.missing(RECORDS), Vec::<u64>::new());
    assert_eq!(lag(&kafka, "job"), Some(0));
}
