//! How fast the sink `http` is, and what becomes of failures and of calls that hang, with a server that is a process of
//! its own, on the embedded broker and on a real one. `cargo xtask prove http` runs it alone, as a release build.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "../../consumer/tests/both/mod.rs"]
mod both;
#[path = "../../consumer/tests/group/mod.rs"]
mod group;
mod web;

use std::path::PathBuf;
use std::time::Duration;

use both::{Cluster, on_both};
use group::set_group;
use sharegroup_consumer::TopicPartition;
use sharegroup_consumer::admin::{Admin, LogPosition};
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_sink::config::{Properties, load_properties};
use sharegroup_sink::worker::{TaskCounters, Worker, WorkerOptions};
use tokio::time::{sleep, timeout};
use web::{Counts, WebServer, kept};

const S: Duration = Duration::from_secs(1);

/// How many records a run has, and what is demanded of it.
struct Demands {
    records: usize,
    /// Of 64 at a time, to one.
    many_to_one: f64,
    /// Of two workers, to one.
    two_to_one: f64,
    /// Of batches of a few records, to large ones.
    small_to_large: f64,
}

/// Beside other tests the machine isn't ours.
fn demands() -> Demands {
    match std::env::var_os("SHAREGROUP_HTTP") {
        Some(_) => Demands {
            records: 20_000,
            many_to_one: 50.0,
            two_to_one: 1.9,
            small_to_large: 0.9,
        },
        // Of so few records only what is far off is seen.
        None => Demands {
            records: 400,
            many_to_one: 10.0,
            two_to_one: 1.2,
            small_to_large: 0.5,
        },
    }
}

/// The server that the tests start as a process of its own.
#[test]
fn web_server_process() {
    web::serve_where_told();
}

/// A topic of one partition, a group, a path of the server: all of one name.
struct Run<'a> {
    cluster: &'a Cluster,
    admin: Admin,
    name: String,
    folder: PathBuf,
    server: WebServer,
}

impl<'a> Run<'a> {
    /// With so many records, produced in batches of at most so many bytes.
    async fn prepare(
        cluster: &'a Cluster,
        name: &str,
        lock_ms: &str,
        records: usize,
        batch_bytes: usize,
    ) -> Self {
        let client = ClientConfig::new(cluster.bootstrap_servers()).unwrap();
        let admin = Admin::new(client.clone());
        let settings = [
            ("share.record.lock.duration.ms", lock_ms),
            ("share.auto.offset.reset", "earliest"),
        ];
        set_group(&admin, name, &settings).await;
        admin.create_topic(name, 1, -1, &[]).await.unwrap();
        let mut config = ProducerConfig::new(client);
        config.batch_bytes_max = batch_bytes;
        let producer = Producer::new(config);
        for number in 0..records {
            let record = ProducerRecord::new(name).value(format!("{number};"));
            drop(producer.send(record).await.unwrap());
        }
        producer.close(60 * S).await.unwrap();
        let servers = cluster.bootstrap_servers().replace(':', "-");
        let folder = std::env::temp_dir().join(format!("http-figures-{name}-{servers}"));
        std::fs::create_dir_all(&folder).unwrap();
        Self {
            cluster,
            admin,
            name: name.to_owned(),
            server: WebServer::start(&folder, 0, None).unwrap(),
            folder,
        }
    }

    fn start(&self, settings: &[(&str, &str)]) -> Worker {
        let mut worker = Properties::new("worker.properties");
        worker.set("bootstrap.servers", self.cluster.bootstrap_servers());
        worker.set("consumer.group.protocol", "share");
        let mut sink = Properties::new("web.properties");
        let url = self.server.url("/in");
        for (key, value) in [
            ("name", "web"),
            ("connector.class", "http"),
            ("topics", &self.name),
            ("share.group.id", &self.name),
            ("http.url", &url),
            (
                "value.converter",
                "org.apache.kafka.connect.storage.StringConverter",
            ),
        ]
        .iter()
        .chain(settings)
        {
            sink.set(*key, *value);
        }
        let registry = sharegroup_connectors::registry();
        let loaded = load_properties(worker, vec![sink], true, &registry).unwrap();
        Worker::start(&loaded.worker, loaded.connectors, &WorkerOptions::default())
    }

    /// Has so many workers send everything; what the server counted, and what the workers did.
    async fn send_all(
        &mut self,
        workers: usize,
        settings: &[(&str, &str)],
    ) -> (Counts, Vec<TaskCounters>) {
        let workers: Vec<_> = (0..workers).map(|_| self.start(settings)).collect();
        let settled = async {
            loop {
                let offsets = self
                    .admin
                    .share_group_offsets(&self.name, None)
                    .await
                    .unwrap();
                if offsets.first().and_then(|partition| partition.lag) == Some(0) {
                    return;
                }
                sleep(S / 20).await;
            }
        };
        timeout(300 * S, settled).await.unwrap();
        let mut totals = Vec::new();
        for worker in workers {
            worker.stop(10 * S).await;
            totals.push(worker.status().totals());
        }
        (self.server.counts().unwrap(), totals)
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// Sends records at 50 ms a call; prints and returns the rate.
async fn rate(
    cluster: &Cluster,
    name: &str,
    records: usize,
    workers: usize,
    settings: &[(&str, &str)],
) -> f64 {
    rate_of_batches(cluster, name, records, workers, settings, LARGE).await
}

async fn rate_of_batches(
    cluster: &Cluster,
    name: &str,
    records: usize,
    workers: usize,
    settings: &[(&str, &str)],
    batch_bytes: usize,
) -> f64 {
    let mut run = Run::prepare(cluster, name, "30000", records, batch_bytes).await;
    run.server.tell("delay 50").unwrap();
    let (counts, totals) = run.send_all(workers, settings).await;
    assert_eq!((counts.calls, counts.records), (records, records));
    let written: u64 = totals.iter().map(|totals| totals.written).sum();
    assert_eq!(written, records as u64);
    println!(
        "{name}: {:.1} calls/s in the middle, {:.1} from the first to the last; by worker {:?}",
        counts.rate(),
        counts.whole_rate(),
        totals
            .iter()
            .map(|totals| totals.written)
            .collect::<Vec<_>>()
    );
    counts.rate()
}

/// Bytes of a producer's batch with a few records, and with many.
const SMALL: usize = 100;
const LARGE: usize = 16 << 10;
const ONE: &[(&str, &str)] = &[("http.concurrency.max", "1")];
const MANY: &[(&str, &str)] = &[
    ("http.concurrency.start", "64"),
    ("http.concurrency.max", "64"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_requests_at_a_time_are_as_many_times_as_fast_and_two_workers_twice_as_fast() {
    on_both(&[], async |cluster| {
        let demands = demands();
        let one = rate(cluster, "one-at-a-time", demands.records / 40, 1, ONE).await;
        let many = rate(cluster, "many", demands.records, 1, MANY).await;
        assert!(many >= demands.many_to_one * one, "{many:.1} to {one:.1}");
        if demands.records < 20_000 {
            return;
        }
        let two = rate(cluster, "two-workers", demands.records, 2, MANY).await;
        println!(
            "64 at a time: {:.1} times one; two workers: {:.2} times one",
            many / one,
            two / many
        );
        let small =
            rate_of_batches(cluster, "small-batches", demands.records, 1, MANY, SMALL).await;
        println!(
            "batches of a few records: {:.2} of the rate of large ones",
            small / many
        );
        assert!(two >= demands.two_to_one * many, "{two:.1} to {many:.1}");
        assert!(
            small >= demands.small_to_large * many,
            "{small:.1} to {many:.1}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_refused_gets_a_letter_and_all_else_is_sent_with_two_tries_at_most() {
    on_both(&[], async |cluster| {
        let records = demands().records;
        let mut run = Run::prepare(cluster, "failing", "30000", records, LARGE).await;
        run.server.tell("delay 50").unwrap();
        run.server.tell("fail").unwrap();
        let letters = "failing-letters";
        run.admin.create_topic(letters, 1, -1, &[]).await.unwrap();
        let settings = [
            ("errors.tolerance", "all"),
            ("errors.deadletterqueue.topic.name", letters),
            ("errors.deadletterqueue.topic.replication.factor", "1"),
        ];
        let (counts, totals) = run.send_all(1, &[MANY, &settings].concat()).await;
        let place = TopicPartition::new(letters.to_owned(), 0);
        let ends = run.admin.log_offsets(&[place], LogPosition::Latest).await;
        let ends: i64 = ends.unwrap().iter().map(|end| end.offset).sum();
        let totals = &totals[0];
        println!("{counts:?}; {ends} letters; {totals:?}");
        let (refused, failed_once) = (records / 100, records / 20);
        assert_eq!(ends, refused as i64);
        assert_eq!(totals.written, (records - refused) as u64);
        let kept = kept(&run.folder, "in").unwrap();
        assert_eq!(kept.len(), records - refused);
        assert!(kept.values().all(|times| *times == 1));
        assert_eq!((counts.records, counts.calls_max), (records, 2));
        assert_eq!(counts.calls, records + failed_once);
        // Each was delivered once.
        assert_eq!((totals.acquired, totals.redelivered), (records as u64, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_record_is_with_two_workers_at_once_while_calls_hang_for_two_locks() {
    on_both(&[], async |cluster| {
        let (records, lock_ms) = match std::env::var_os("SHAREGROUP_HTTP") {
            Some(_) => (500, 5_000),
            None => (300, 1_000),
        };
        let mut run = Run::prepare(cluster, "hanging", &lock_ms.to_string(), records, 200).await;
        run.server.tell(&format!("delay {}", 2 * lock_ms)).unwrap();
        let (counts, totals) = run.send_all(2, MANY).await;
        println!("{counts:?}; {totals:?}");
        assert_eq!(
            (counts.calls, counts.records, counts.overlaps),
            (records, records, 0)
        );
        let count = |of: fn(&TaskCounters) -> u64| totals.iter().map(of).sum::<u64>();
        assert_eq!(count(|totals| totals.written), records as u64);
        assert_eq!(count(|totals| totals.locks_lost), 0);
        assert!(count(|totals| totals.renewals) > 0);
    })
    .await;
}
