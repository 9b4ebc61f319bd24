//! A worker that is killed at each point of its loop, and what another one finds: the table in `docs/semantics.md`.
//! On a real broker and on the embedded one.
#![allow(
    missing_docs,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "../../consumer/tests/both/mod.rs"]
mod both;
mod network;
#[path = "../../consumer/tests/cases/tap.rs"]
mod tap;
mod target;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use both::{Cluster, on_shared};
use network::Network;
use sharegroup_sink::config::{Properties, load_properties};
use sharegroup_sink::worker::{Worker, WorkerOptions};
use sharegroup_sink::{
    Connector, ConnectorConfig, DynSinkTask, OutcomeSender, PutError, Registry, SinkBatch,
    SinkTask, TaskContext, TaskError,
};
use tap::{Fault, Sent, Tap};
use target::{LOCK, S, Target, end, prepare, settled, start};
use tokio::time::{Instant, sleep, timeout};

const RECORDS: usize = 20;

/// Where the worker is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    BeforePut,
    AfterPut,
    /// The acknowledgement is on its way, and never arrives.
    BeforeAcknowledgement,
    /// The broker has it, and its answer never arrives.
    AfterAcknowledgement,
    /// The broker's answer is there.
    AfterCommit,
}

/// A sink that dies with its worker.
#[derive(Debug, Clone)]
struct Mortal {
    target: Target,
    point: Point,
    network: Arc<Network>,
    is_dead: Arc<AtomicBool>,
}

impl Mortal {
    /// From now on nothing of the worker has any effect.
    fn die(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
        self.network.kill();
    }

    async fn die_at(&self, point: Point) {
        if self.point == point {
            self.die();
        }
        if self.is_dead.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

impl SinkTask for Mortal {
    async fn put(&mut self, batch: SinkBatch, outcomes: &OutcomeSender) -> Result<(), PutError> {
        self.die_at(Point::BeforePut).await;
        SinkTask::put(&mut self.target, batch, outcomes).await
    }

    async fn flush(&mut self) -> Result<(), PutError> {
        self.die_at(Point::AfterPut).await;
        Ok(())
    }
}

impl Connector for Mortal {
    fn name(&self) -> &'static str {
        "mortal"
    }

    fn task(
        &self,
        _: &ConnectorConfig,
        _: &TaskContext,
    ) -> Result<Box<dyn DynSinkTask>, TaskError> {
        Ok(Box::new(self.clone()))
    }
}

/// Starts a worker whose connections end with it.
fn start_mortal(cluster: &Cluster, name: &str, mortal: &Mortal) -> Worker {
    let mut worker = Properties::new("worker.properties");
    worker.set("bootstrap.servers", cluster.bootstrap_servers());
    worker.set("consumer.group.protocol", "share");
    let mut sink = Properties::new("sink.properties");
    for (key, value) in [
        ("name", "out"),
        ("connector.class", "mortal"),
        ("topics", name),
        ("share.group.id", name),
    ] {
        sink.set(key, value);
    }
    let registry = Registry::new().with(mortal.clone());
    let mut loaded = load_properties(worker, vec![sink], false, &registry).unwrap();
    for connector in &mut loaded.connectors {
        connector.consumer.client.connector = Arc::clone(&mortal.network) as _;
    }
    Worker::start(&loaded.worker, loaded.connectors, &WorkerOptions::default())
}

/// What came of a kill once another worker had gone on.
struct Found {
    delivery_count_max: i16,
    /// Records that were written twice.
    twice: Vec<i64>,
    /// What the first acknowledgement was of.
    acknowledged: Vec<i64>,
}

async fn killed_at(cluster: &Cluster, name: &str, point: Point) -> Found {
    let earliest = ("share.auto.offset.reset", "earliest");
    let admin = prepare(cluster.bootstrap_servers(), name, RECORDS, &[earliest]).await;
    let tap = Tap::new();
    let mortal = Mortal {
        target: Target::new([], None),
        point,
        network: Arc::new(Network::new(Arc::new(tap.clone()))),
        is_dead: Arc::default(),
    };
    let fault = match point {
        Point::BeforeAcknowledgement => Some(Fault::CutBefore),
        Point::AfterAcknowledgement => Some(Fault::CutAfter),
        _ => None,
    };
    if let Some(fault) = fault {
        let mortal = mortal.clone();
        tap.on(1, move |sent| {
            let settles = sent.settles();
            if settles {
                mortal.network.close();
                mortal.is_dead.store(true, Ordering::SeqCst);
            }
            settles.then(|| fault.clone())
        });
    }
    let killed = start_mortal(cluster, name, &mortal);
    let dead = async {
        while !mortal.is_dead.load(Ordering::SeqCst) {
            if point == Point::AfterCommit && killed.status().totals().acknowledged > 0 {
                mortal.die();
            }
            sleep(Duration::from_millis(1)).await;
        }
        // What was on its way when the connection was cut has been worked on by now.
        sleep(S / 5).await;
        mortal.network.kill();
    };
    timeout(30 * S, dead).await.expect("a kill");
    let written = mortal.target.written();
    let file = std::env::temp_dir().join(format!("sharegroup-{name}"));
    let at = Instant::now();
    let survivor = start(cluster.bootstrap_servers(), name, 1, &mortal.target, &file);
    settled(&admin, name).await;
    assert!(at.elapsed() < 3 * LOCK, "{point:?}: {:?}", at.elapsed());
    assert_eq!(mortal.target.written(), RECORDS, "{point:?}");
    let offsets = 0..RECORDS as i64;
    let twice: Vec<_> = offsets
        .filter(|offset| mortal.target.times(*offset) > 1)
        .collect();
    assert_eq!(mortal.target.duplicates(), twice.len(), "{point:?}");
    assert!(twice.len() <= written, "{point:?}");
    end(survivor).await;
    killed.stop(Duration::ZERO).await;
    let sent = tap.sent().into_iter().find(Sent::settles);
    let ranges = sent.map_or(Vec::new(), |sent| sent.acknowledged());
    let ranges = ranges
        .iter()
        .map(|(_, batch)| batch.first_offset..=batch.last_offset);
    Found {
        delivery_count_max: mortal.target.delivery_count_max(),
        twice,
        acknowledged: ranges.flatten().collect(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn killed_before_the_put_each_record_is_written_once() {
    on_shared(async |cluster| {
        let found = killed_at(cluster, "before-put", Point::BeforePut).await;
        assert_eq!((found.delivery_count_max, found.twice), (2, vec![]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn killed_after_the_put_what_it_had_written_is_written_twice() {
    on_shared(async |cluster| {
        let found = killed_at(cluster, "after-put", Point::AfterPut).await;
        assert_eq!(found.delivery_count_max, 2);
        assert!(!found.twice.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn killed_before_the_acknowledgement_arrives_what_it_had_written_is_written_twice() {
    on_shared(async |cluster| {
        let found = killed_at(cluster, "before-ack", Point::BeforeAcknowledgement).await;
        assert_eq!(found.delivery_count_max, 2);
        let comes_again = |offset| found.twice.contains(offset);
        assert!(
            found.acknowledged.iter().all(comes_again),
            "{:?}",
            found.twice
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn killed_after_the_acknowledgement_has_arrived_what_it_acknowledged_stays_settled() {
    on_shared(async |cluster| {
        let found = killed_at(cluster, "after-ack", Point::AfterAcknowledgement).await;
        stays_settled(&found);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn killed_after_the_commit_what_was_committed_never_comes_again() {
    on_shared(async |cluster| {
        let found = killed_at(cluster, "after-commit", Point::AfterCommit).await;
        stays_settled(&found);
    })
    .await;
}

fn stays_settled(found: &Found) {
    assert!(!found.acknowledged.is_empty());
    let comes_again = |offset| found.twice.contains(offset);
    assert!(
        !found.acknowledged.iter().any(comes_again),
        "{:?}",
        found.twice
    );
}
