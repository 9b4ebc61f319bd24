//! The built-in sinks and the promises of every sink.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a test stops at the first failure"
)]

#[cfg(feature = "file")]
mod file;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "http")]
#[path = "../web/mod.rs"]
mod web;

use std::time::Duration;

use sharegroup_connectors::registry;
use sharegroup_launcher::Kafka;
use sharegroup_testkit::sink_suite::{SinkSuite, Target, run_worker_process};

/// The worker that the suite starts as a process of its own.
#[test]
fn worker_process() {
    run_worker_process(&registry()).unwrap();
}

/// A real broker that misses a worker soon that is killed; `None` where tests do without.
async fn kafka() -> Option<Kafka> {
    let builder = Kafka::builder()
        .set("group.share.session.timeout.ms", "6000")
        .set("group.share.heartbeat.interval.ms", "1000");
    let start = || builder.start_or_skip();
    tokio::task::spawn_blocking(start).await.unwrap().unwrap()
}

/// The suite with workers on a real broker: of the checks of workers those in which a broker has a part, or all of them
/// (`SHAREGROUP_SUITE`, `cargo xtask prove suite`).
fn suite_on<T: Target>(kafka: &Kafka, target: T) -> SinkSuite<T> {
    let mut suite = SinkSuite::new(target)
        .on(kafka.bootstrap_servers())
        .patience(Duration::from_secs(120));
    if std::env::var_os("SHAREGROUP_SUITE").is_none() {
        for name in WITH_A_BROKER {
            suite = suite.only(name);
        }
    }
    suite
}

const WITH_A_BROKER: [&str; 5] = [
    "metrics",
    "bad_record_stands_alone",
    "down_in_the_middle",
    "several_tasks",
    "killed_worker",
];

/// The server that the suite starts as a process of its own.
#[cfg(feature = "http")]
#[test]
fn web_server_process() {
    web::serve_where_told();
}
