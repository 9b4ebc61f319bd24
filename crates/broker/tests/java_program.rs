//! A program with Java's `KafkaShareConsumer` and `Admin`, on a real Apache Kafka 4.4 and on this
//! broker: it must see the same.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::thread;

use sharegroup_broker::Broker;
use sharegroup_launcher::{Kafka, Tools};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/java/ShareHistory.java");
/// Bounds of groups' settings; locks short enough to wait for their end.
const SETTINGS: [(&str, &str); 3] = [
    ("group.share.min.record.lock.duration.ms", "1000"),
    ("group.share.min.heartbeat.interval.ms", "500"),
    ("group.share.min.session.timeout.ms", "1000"),
];

/// What the program printed, line by line.
fn history(tools: &Tools, servers: &str) -> Vec<String> {
    let output = tools.run(PROGRAM, [servers]).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_java_program_sees_the_same_on_both_brokers() {
    let mut builder = Kafka::builder();
    for (key, value) in SETTINGS {
        builder = builder.set(key, value);
    }
    let Some(kafka) = builder.start_or_skip().unwrap() else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut builder = Broker::builder();
    for (key, value) in SETTINGS {
        builder = builder.set(key, value);
    }
    let broker = runtime.block_on(builder.start()).unwrap();
    let tools = Tools::fetch(kafka.version()).unwrap();
    let (real, ours) = thread::scope(|scope| {
        let real = scope.spawn(|| history(&tools, &kafka.bootstrap_servers()));
        let ours = scope.spawn(|| history(&tools, broker.bootstrap_servers()));
        (real.join().unwrap(), ours.join().unwrap())
    });
    let differs = |(real, ours): &(&String, &String)| real != ours;
    let differences: Vec<String> = real
        .iter()
        .zip(&ours)
        .filter(differs)
        .map(|(real, ours)| format!("real  {real}\nours  {ours}"))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(real.len(), ours.len());
}
