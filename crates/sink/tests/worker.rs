//! A worker whose tasks and connectors come and go, and what it tells of them, on a real broker and on the embedded
//! one.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "../../consumer/tests/both/mod.rs"]
mod both;
mod http;
mod target;

use std::path::PathBuf;
use std::sync::Arc;

use both::{Cluster, on_shared};
use http::{get, serve};
use sharegroup_sink::config::{Properties, load_properties};
use sharegroup_sink::listener::Listener;
use sharegroup_sink::worker::{TaskState, Worker, WorkerOptions};
use sharegroup_sink::{Registry, StopReport};
use target::{Put, S, Target, end, prepare, settled, start, start_with};
use tokio::time::{sleep, timeout};

const EARLIEST: (&str, &str) = ("share.auto.offset.reset", "earliest");

/// Where nothing is to be named as lost.
fn loss_file(servers: &str, name: &str) -> PathBuf {
    let file = format!("sharegroup-{name}-{}", servers.replace(':', "-"));
    std::env::temp_dir().join(file)
}

async fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let reached = async {
        while !reached() {
            sleep(S / 50).await;
        }
    };
    timeout(60 * S, reached).await.expect(what);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_added_and_removed_while_records_flow_lose_none_and_count_none_twice() {
    on_shared(async |cluster| {
        let (servers, name) = (cluster.bootstrap_servers(), "resized");
        let admin = prepare(servers, name, 2_000, &[EARLIEST]).await;
        let target = Target::new([], Some(Put::Takes(S / 50)));
        let worker = start(servers, name, 2, &target, &loss_file(servers, name));
        until("some are written", || target.written() >= 300).await;
        assert_eq!(worker.set_tasks("out", 6).await, Ok(StopReport::default()));
        until("six tasks run", || {
            worker.status().count(TaskState::Running) == 6
        })
        .await;
        until("more are written", || target.written() >= 900).await;
        assert_eq!(worker.set_tasks("out", 1).await, Ok(StopReport::default()));
        assert_eq!(worker.status().tasks().count(), 1);
        settled(&admin, name).await;
        assert_eq!(worker.status().failed().count(), 0);
        let totals = end(worker).await;
        assert_eq!((target.written(), target.duplicates()), (2_000, 0));
        assert_eq!(
            (totals.written, totals.acknowledged, totals.locks_lost),
            (2_000, 2_000, 0),
            "{totals:?}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn connectors_of_different_groups_in_one_worker_each_write_everything() {
    on_shared(two_connectors).await;
}

async fn two_connectors(cluster: &Cluster) {
    let servers = cluster.bootstrap_servers();
    let admin = prepare(servers, "two-one", 60, &[EARLIEST]).await;
    prepare(servers, "two-other", 40, &[EARLIEST]).await;
    let (one, other) = (Target::new([], None), Target::new([], None));
    let mut config = Properties::new("worker.properties");
    config.set("bootstrap.servers", servers);
    config.set("consumer.group.protocol", "share");
    let load = |target: &Target, name: &str| {
        let mut sink = Properties::new(format!("{name}.properties"));
        for (key, value) in [
            ("name", name),
            ("connector.class", "target"),
            ("topics", name),
            ("tasks.max", "2"),
            ("share.group.id", name),
        ] {
            sink.set(key, value);
        }
        let registry = Registry::new().with(target.clone());
        load_properties(config.clone(), vec![sink], false, &registry).unwrap()
    };
    let loaded = load(&one, "two-one");
    let worker = Worker::start(&loaded.worker, loaded.connectors, &WorkerOptions::default());
    // The other one joins a worker at work, whose first one is removed then.
    let connector = load(&other, "two-other").connectors.remove(0);
    worker.add(connector).await.unwrap();
    settled(&admin, "two-one").await;
    settled(&admin, "two-other").await;
    let removed = worker.remove("two-one").await;
    assert_eq!(removed, Ok(StopReport::default()));
    let status = worker.status();
    assert_eq!(status.count(TaskState::Running), 2);
    assert_eq!(status.connectors[0].name, "two-other");
    assert_eq!((one.written(), other.written()), (60, 40));
    assert_eq!(end(worker).await.written, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_117_failed_tasks_are_started_again_with_growing_pauses_and_counted() {
    on_shared(async |cluster| {
        let (servers, name) = (cluster.bootstrap_servers(), "b-117");
        let admin = prepare(servers, name, 40, &[EARLIEST]).await;
        let target = Target::new([], None);
        target.set_poison([0]);
        let policy = [
            ("task.restart.max", "4"),
            ("task.restart.backoff.ms", "300"),
        ];
        let worker = start_with(
            servers,
            name,
            1,
            &target,
            &loss_file(servers, name),
            &policy,
        );
        let restarts = || worker.status().connectors[0].tasks[0].restarts;
        until("two restarts", || restarts() >= 2).await;
        target.set_poison([]);
        settled(&admin, name).await;
        assert_eq!(worker.status().count(TaskState::Running), 1);
        let metrics = worker.metrics();
        let counted = format!(
            "share_task_restarts_total{{connector=\"out\",task=\"0\"}} {}",
            restarts()
        );
        assert!(metrics.contains(&counted), "{metrics}");
        let totals = end(worker).await;
        assert_eq!(target.written(), 40);
        assert_eq!(totals.named_as_lost, 0, "{totals:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn restarts_leave_a_bad_record_its_last_delivery() {
    on_shared(async |cluster| {
        let (servers, name) = (cluster.bootstrap_servers(), "last-delivery");
        let limit = ("share.delivery.count.limit", "3");
        let admin = prepare(servers, name, 20, &[EARLIEST, limit]).await;
        let target = Target::new([], None);
        target.set_poison([0]);
        let policy = [
            ("task.restart.max", "100"),
            ("task.restart.backoff.ms", "100"),
        ];
        let losses = loss_file(servers, name);
        let worker = start_with(servers, name, 1, &target, &losses, &policy);
        worker.any_failed().await;
        let status = worker.status();
        let task = &status.connectors[0].tasks[0];
        assert_eq!(task.restarts, 1);
        let trace = task.trace.as_deref().unwrap();
        assert!(trace.contains("last-delivery-0 offset 0"), "{trace}");
        assert!(trace.contains("start it again (SIGHUP)"), "{trace}");
        assert_eq!(target.delivery_count_max(), 2);
        target.set_poison([]);
        worker.restart("out", true).await.unwrap();
        settled(&admin, name).await;
        let totals = end(worker).await;
        assert_eq!((target.written(), target.duplicates()), (20, 0));
        assert_eq!(totals.named_as_lost, 0, "{totals:?}");
    })
    .await;
}

/// KIP-1302's, and Connect's that it keeps, without their prefix `kafka_connect_`.
const OF_THE_KIP: [&str; 18] = [
    "sink_task_metrics_sink_record_read_total",
    "sink_task_metrics_sink_record_send_total",
    "sink_task_metrics_sink_record_active_count",
    "sink_task_metrics_sink_record_active_count_max",
    "sink_task_metrics_put_batch_max_time_ms",
    "sink_task_metrics_put_batch_avg_time_ms",
    "sink_task_metrics_sink_record_acquire_total",
    "sink_task_metrics_sink_record_acknowledge_total",
    "sink_task_metrics_sink_record_release_total",
    "sink_task_metrics_sink_record_reject_total",
    "sink_task_metrics_sink_record_redelivery_total",
    "sink_task_metrics_acknowledge_time_max",
    "sink_task_metrics_acknowledge_time_avg",
    "connector_task_metrics_running_ratio",
    "connector_task_metrics_batch_size_max",
    "task_error_metrics_total_record_failures",
    "task_error_metrics_deadletterqueue_produce_requests",
    "task_error_metrics_last_error_timestamp",
];

const EXCLUDED: [&str; 5] = [
    "partition_count",
    "offset_commit_seq_no",
    "offset_seq_number",
    "offset_commit_completion",
    "offset_commit_skip",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn metrics_of_a_run_have_the_kips_names_and_none_of_the_excluded() {
    on_shared(async |cluster| {
        let (servers, name) = (cluster.bootstrap_servers(), "scraped");
        let admin = prepare(servers, name, 100, &[EARLIEST]).await;
        let target = Target::new([], None);
        let worker = Arc::new(start(servers, name, 2, &target, &loss_file(servers, name)));
        let (_serving, address) = serve(&worker).await;
        settled(&admin, name).await;
        // What a task counts is shown a moment later.
        until("all is counted", || {
            worker.status().totals().acknowledged == 100
        })
        .await;
        let page = get(address, "/metrics").await;
        assert_eq!(page.status, 200, "{page:?}");
        let sum = |name: &str| -> f64 {
            let start = format!("kafka_connect_{name}{{connector=\"out\",task=");
            let samples = page.body.lines().filter(|line| line.starts_with(&start));
            let values = samples.map(|line| line.rsplit(' ').next().unwrap());
            let values: Vec<f64> = values.map(|value| value.parse().unwrap()).collect();
            assert_eq!(values.len(), 2, "{name} is not in:\n{}", page.body);
            values.iter().sum()
        };
        for name in OF_THE_KIP {
            sum(name);
        }
        for name in EXCLUDED {
            assert!(!page.body.contains(name), "{name} is in:\n{}", page.body);
        }
        assert_eq!(sum("sink_task_metrics_sink_record_acquire_total"), 100.0);
        assert_eq!(
            sum("sink_task_metrics_sink_record_acknowledge_total"),
            100.0
        );
        assert_eq!(sum("sink_task_metrics_sink_record_reject_total"), 0.0);
        assert!(sum("sink_task_metrics_acknowledge_time_max") > 0.0);
        assert!(sum("connector_task_metrics_running_ratio") > 0.0);
        for (name, value) in [
            ("connector_count", 1),
            ("task_count", 2),
            ("task_startup_success_total", 2),
        ] {
            let line = format!("kafka_connect_connect_worker_metrics_{name} {value}\n");
            assert!(
                page.body.contains(&line),
                "{line} is not in:\n{}",
                page.body
            );
        }
        worker.stop(5 * S).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_120_ready_only_after_the_first_assignment_and_until_a_task_fails() {
    on_shared(async |cluster| {
        let (servers, name) = (cluster.bootstrap_servers(), "b-120");
        let admin = prepare(servers, name, 1, &[EARLIEST]).await;
        let target = Target::new([], None);
        target.set_poison([0]);
        target.set_down(true);
        let worker = Arc::new(start(servers, name, 1, &target, &loss_file(servers, name)));
        let (_serving, address) = serve(&worker).await;
        let mut ready = get(address, "/health/ready").await;
        while ready.status != 200 {
            assert_eq!(ready.status, 503);
            assert!(ready.body.contains("\"reasons\":[\""), "{ready:?}");
            sleep(S / 20).await;
            ready = get(address, "/health/ready").await;
        }
        let status = worker.status();
        let task = &status.connectors[0].tasks[0];
        assert!(
            task.assignment
                .iter()
                .any(|partition| partition.fetch_answered)
        );
        // The target is back, and refuses the record: the task fails.
        target.set_down(false);
        worker.any_failed().await;
        let failed = get(address, "/health/ready").await;
        assert_eq!(failed.status, 503);
        assert!(failed.body.contains("task out-0 is FAILED"), "{failed:?}");
        assert_eq!(get(address, "/health/live").await.status, 200);
        worker.stop(5 * S).await;
        drop(admin);
    })
    .await;
}

#[tokio::test]
async fn an_address_that_is_taken_is_an_error_only_where_it_is_set() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut file = Properties::new("worker.properties");
    file.set("bootstrap.servers", "localhost:9092");
    file.set("listeners", format!("http://{address}"));
    let loaded = load_properties(file.clone(), vec![], false, &Registry::new()).unwrap();
    let error = Listener::bind(&loaded.worker.listeners).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("listeners: can't listen on {address}")),
        "{text}"
    );
    file.set("listeners", "");
    let loaded = load_properties(file, vec![], false, &Registry::new()).unwrap();
    let none = Listener::bind(&loaded.worker.listeners).await.unwrap();
    assert!(none.addresses().is_empty());
}
