//! Trouble in the middle of the main job, on real brokers: the work goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::fmt::Write;

use sharegroup_launcher::Kafka;
use support::Folder;
use support::job::Job;

#[test]
fn a_broker_that_is_killed_and_restarted_in_the_middle_loses_nothing() {
    let Some(job) = Job::prepare(Kafka::builder(), 4, 150_000) else {
        return;
    };
    let producing = job.begin_to_produce();
    let run = job.run("a", &["--exit-when-idle", "5s"]);
    job.wait_for_lines(&["a"], 30_000);
    let broker = job.kafka.broker(1);
    broker.kill().unwrap();
    broker.start().unwrap();
    job.finish(Some(producing), run);
}

#[test]
fn moved_leaders_lose_nothing() {
    let Some(job) = Job::prepare(Kafka::builder().brokers(3), 3, 200_000) else {
        return;
    };
    let producing = job.begin_to_produce();
    let run = job.run("a", &["--exit-when-idle", "5s"]);
    for (round, first) in [(1, 2), (2, 3), (3, 1)] {
        job.wait_for_lines(&["a"], round * 30_000);
        lead_everything(&job.kafka, &job.folder, "jobs", 3, first);
    }
    job.finish(Some(producing), run);
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
