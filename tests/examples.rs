//! The examples work off a topic, and end with Ctrl-C.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use sharegroup_broker::Broker;
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};

const ORDERS: usize = 200;

/// Runs an example on a broker of its own: each order is printed and accepted once.
async fn works_off(example: &'static str) {
    let broker = Broker::builder().topic("orders", 2).start().await.unwrap();
    let servers = broker.bootstrap_servers().to_owned();
    let config = ClientConfig::new(&servers).unwrap();
    let admin = Admin::new(config.clone());
    let earliest = admin.set_group_config("billing", "share.auto.offset.reset", "earliest");
    earliest.await.unwrap();
    let producer = Producer::new(ProducerConfig::new(config));
    for order in 0..ORDERS {
        let record = ProducerRecord::new("orders").key(order.to_string());
        let record = record.value(format!("order {order}"));
        drop(producer.send(record).await.unwrap());
    }
    producer.close(Duration::from_secs(10)).await.unwrap();

    let run = tokio::task::spawn_blocking(move || until_ctrl_c(example, &servers));
    let printed = run.await.unwrap();
    let distinct: BTreeSet<_> = printed.iter().collect();
    assert_eq!((printed.len(), distinct.len()), (ORDERS, ORDERS));
    let offsets = admin.share_group_offsets("billing", None).await.unwrap();
    let lag: Vec<_> = offsets.iter().map(|offsets| offsets.lag).collect();
    assert_eq!(lag, [Some(0); 2], "{example}");
}

/// The orders that it printed until there were all, and it was told to end.
fn until_ctrl_c(example: &str, servers: &str) -> Vec<String> {
    let mut child = Command::new(support::example(example))
        .arg(servers)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let order =
        |line: std::io::Result<String>| line.unwrap().split_once(": ").unwrap().1.to_owned();
    let mut printed: Vec<_> = lines.by_ref().take(ORDERS).map(order).collect();
    let pid = child.id().to_string();
    let interrupted = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(interrupted.success());
    printed.extend(lines.map(order));
    assert!(child.wait().unwrap().success(), "{example}");
    printed
}

#[tokio::test(flavor = "multi_thread")]
async fn poll_loop() {
    works_off("poll_loop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent() {
    works_off("concurrent").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stream() {
    works_off("stream").await;
}

#[test]
fn an_example_has_less_than_30_lines() {
    for text in [
        include_str!("../examples/poll_loop.rs"),
        include_str!("../examples/concurrent.rs"),
        include_str!("../examples/stream.rs"),
    ] {
        assert!(text.lines().count() < 30, "{text}");
    }
}
