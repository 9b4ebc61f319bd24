//! Trouble in the middle of the main job, on real brokers: the work goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::fmt::Write;
use std::time::Duration;

use sharegroup_launcher::Kafka;
use support::{Folder, Run, RunPlan, Written, create_topic, lag, lines, producer, wait_for};

#[test]
fn a_broker_that_is_killed_and_restarted_in_the_middle_loses_nothing() {
    const RECORDS: u64 = 150_000;
    let Some(kafka) = Kafka::builder().start_or_skip().unwrap() else {
        return;
    };
    let folder = Folder::new("restarted");
    create_topic(&kafka, "jobs", 4, 1);
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
        arguments: &["--exit-when-idle", "5s"],
    });
    wait_for("30,000 lines", Duration::from_secs(120), || {
        lines(&folder, "a") >= 30_000
    });
    let broker = kafka.broker(1);
    broker.kill().unwrap();
    broker.start().unwrap();
    let status = producing.wait().unwrap();
    assert!(status.success(), "VerifiableProducer ended with {status}");
    let status = run.wait(Duration::from_secs(180));
    assert!(status.success(), "{status}\n{}", run.log());
    let written = Written::read(&folder);
    println!(
        "distinct {}, duplicates {}",
        written.distinct(),
        written.duplicates()
    );
    assert_eq!(written.missing(RECORDS), Vec::<u64>::new());
    assert_eq!(lag(&kafka, "job"), Some(0));
}

#[test]
fn moved_leaders_lose_nothing() {
    const RECORDS: u64 = 200_000;
    let Some(kafka) = Kafka::builder().brokers(3).start_or_skip().unwrap() else {
        return;
    };
    let folder = Folder::new("moved");
    create_topic(&kafka, "jobs", 3, 3);
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
        arguments: &["--exit-when-idle", "5s"],
    });
    for (round, first) in [(1, 2), (2, 3), (3, 1)] {
        let enough = round * 30_000;
        wait_for("lines between moves", Duration::from_secs(120), || {
            lines(&folder, "a") >= enough
        });
        lead_everything(&kafka, &folder, "jobs", 3, first);
    }
    let status = producing.wait().unwrap();
    assert!(status.success(), "VerifiableProducer ended with {status}");
    let status = run.wait(Duration::from_secs(180));
    assert!(status.success(), "{status}\n{}", run.log());
    let written = Written::read(&folder);
    println!(
        "distinct {}, duplicates {}",
        written.distinct(),
        written.duplicates()
    );
    assert_eq!(written.missing(RECORDS), Vec::<u64>::new());
    assert_eq!(lag(&kafka, "job"), Some(0));
}

/// Moves the leadership of all partitions to one broker: another order of the replicas, then an
/// election.
fn lead_everything(kafka: &Kafka, folder: &Folder, topic: &str, partitions: u32, first: u32) {
    let others = [1, 2, 3]
        .into_iter()
        .filter(|broker| *broker != first)
        .map(|broker| broker.to_string())
        .collect::<Vec<_>>();
    let mut plan = String::from(r#"{"version":1,"partitions":["#);
    for partition in 0..partitions {
        let comma = if partition > 0 { "," } else { "" };
        write!(
            plan,
            r#"{comma}{{"topic":"{topic}","partition":{partition},"replicas":[{first},{}]}}"#,
            others.join(",")
        )
        .unwrap();
    }
    plan.push_str("]}");
    let file = folder.write("reassignment.json", &plan);
    let servers = kafka.bootstrap_servers();
    let file = file.to_string_lossy();
    kafka
        .tool(
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
            [
                "--bootstrap-server",
                &servers,
                "--reassignment-json-file",
                &file,
                "--execute",
            ],
        )
        .unwrap();
    kafka
        .tool(
            "org.apache.kafka.tools.LeaderElectionCommand",
            [
                "--bootstrap-server",
                &servers,
                "--election-type",
                "preferred",
                "--all-topic-partitions",
            ],
        )
        .unwrap();
}
