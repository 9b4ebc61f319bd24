//! The suite of sinks finds each flaw by the check that is meant for it, and nothing in sinks without one.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first failure"
)]

mod lines;
mod store;

use std::thread;
use std::time::Duration;

use lines::Lines;
use sharegroup_testkit::sink_suite::{
    Delivery, Report, SinkSuite, WorkerCommand, run_worker_process,
};
use store::{Flaw, Store};

/// They need a process.
const SKIPPED: [&str; 2] = ["killed_worker", "memory_is_bounded"];

fn run(store: Store) -> Report {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let suite = SinkSuite::new(store).patience(Duration::from_secs(20));
    runtime.block_on(suite.run())
}

#[test]
fn a_sink_that_keeps_its_promises_passes() {
    thread::scope(|scope| {
        let stores = [
            Store::new(Delivery::AtLeastOnce, None),
            Store::new(Delivery::IdempotentById, None),
            Store::new(Delivery::IdempotentByKey, None),
            Store::all_or_nothing(Delivery::IdempotentById),
        ];
        for store in stores {
            scope.spawn(|| {
                let report = run(store);
                report.verdict().unwrap();
                assert_eq!(report.skipped(), SKIPPED);
            });
        }
    });
}

#[test]
fn each_flaw_is_found_by_the_checks_that_are_meant_for_it() {
    let by_id = Delivery::IdempotentById;
    let cases: [(Flaw, Delivery, &[&str]); 20] = [
        (
            Flaw::AcceptsBeforeWriting,
            by_id,
            &["written_before_accepted"],
        ),
        (Flaw::HidesTheBadRecord, by_id, &["bad_record_is_named"]),
        (
            Flaw::AcceptsTheBadRecord,
            by_id,
            &[
                "bad_record_is_named",
                "bad_record_stands_alone",
                "bad_record_fails_the_task",
            ],
        ),
        (Flaw::LosesANeighbour, by_id, &["bad_record_stands_alone"]),
        // A put that was dropped may have written.
        (Flaw::Appends, by_id, &["redelivered", "put_is_cancelled"]),
        (
            Flaw::WritesOlderVersions,
            Delivery::IdempotentByKey,
            &["reordered"],
        ),
        (
            Flaw::RemembersBeforeWriting,
            by_id,
            &[
                "put_is_cancelled",
                "put_while_silent",
                "shutdown_in_put",
                "shutdown_while_silent",
            ],
        ),
        (Flaw::BlocksItsThread, by_id, &["shutdown_in_put"]),
        (Flaw::Hoards, by_id, &["records_are_let_go"]),
        (
            Flaw::RefusesWhileDown,
            by_id,
            &["put_while_down", "down_in_the_middle"],
        ),
        (Flaw::RefusesWhileFull, by_id, &["put_while_full", "full"]),
        (
            Flaw::RefusesWhileRefused,
            by_id,
            &["put_while_refusing", "refusing_connections"],
        ),
        (
            Flaw::DoesNotWait,
            by_id,
            &["put_while_slow", "slow", "shutdown_in_put"],
        ),
        (
            Flaw::TakesSilenceForYes,
            by_id,
            &["put_while_silent", "silent"],
        ),
        (Flaw::LetsOneIn, by_id, &["several_tasks"]),
        (
            Flaw::NeverReconnects,
            by_id,
            &["put_after_restart", "restarted"],
        ),
        (Flaw::HangsAtStart, by_id, &["down_at_start"]),
        (Flaw::RefusesWithoutRights, by_id, &["wrong_credentials"]),
        (Flaw::LogsThePassword, by_id, &["secrets"]),
        (Flaw::ShowsThePassword, by_id, &["secrets"]),
    ];
    thread::scope(|scope| {
        for (flaw, delivery, expected) in cases {
            scope.spawn(move || {
                let report = run(Store::new(delivery, Some(flaw)));
                let told = report.verdict();
                assert_eq!(report.broken(), expected, "{flaw:?}: {told:?}");
            });
        }
    });
}

#[test]
fn worker_process() {
    run_worker_process(&lines::registry()).unwrap();
}

/// Only the checks with processes.
fn run_processes(flaw: &'static str) -> Report {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let suite = SinkSuite::new(Lines::new(flaw))
        .worker_process(WorkerCommand::this_program("worker_process"))
        .only("killed_worker")
        .only("memory_is_bounded")
        .memory_growth_max(80 << 20)
        .records(20_000);
    runtime.block_on(suite.run())
}

#[test]
fn a_worker_that_is_killed_loses_what_a_sink_accepts_too_early_and_memory_what_it_hoards() {
    for (flaw, expected) in [
        ("none", &[][..]),
        ("late", &["killed_worker"]),
        ("hoards", &["memory_is_bounded"]),
    ] {
        let report = run_processes(flaw);
        assert_eq!(report.broken(), expected, "{flaw}");
        assert!(report.skipped().is_empty());
    }
}

#[test]
fn a_check_that_does_not_exist_fails_the_run() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = Store::new(Delivery::AtLeastOnce, None);
    let report = runtime.block_on(SinkSuite::new(store).only("redeliverd").run());
    assert_eq!(report.broken(), ["only"]);
}
