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
#[cfg(feature = "http")]
#[path = "../web/mod.rs"]
mod web;

/// The worker that the suite starts as a process of its own.
#[test]
fn worker_process() {
    let registry = sharegroup_connectors::registry();
    sharegroup_testkit::sink_suite::run_worker_process(&registry).unwrap();
}

/// The server that the suite starts as a process of its own.
#[cfg(feature = "http")]
#[test]
fn web_server_process() {
    web::serve_where_told();
}
