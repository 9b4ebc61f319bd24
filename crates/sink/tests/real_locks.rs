//! Locks that run out, on a real broker and on the embedded one: nothing is archived without an error that names
//! it, and what may arrive twice is counted.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "../../consumer/tests/both/mod.rs"]
mod both;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use both::{Cluster, on_both};
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_launcher::Kafka;
use sharegroup_sink::config::{KeyDef, Properties, load_properties};
use sharegroup_sink::worker::{TaskCounters, Worker, WorkerOptions};
use sharegroup_sink::{
    ConfigProblem, Connector, ConnectorConfig, DynSinkTask, OutcomeSender, PutError, Registry,
    SinkBatch, SinkTask, TaskContext, TaskError,
};
use tokio::time::{Instant, sleep};

const S: Duration = Duration::from_secs(1);
const LOCK: Duration = Duration::from_secs(5);

/// How a put goes.
#[derive(Debug, Clone, Copy)]
enum Put {
    /// Takes so long.
    Takes(Duration),
    /// Blocks its thread so long.
    Blocks(Duration),
    Hangs,
}

/// A target in memory: how often each offset was written, and how the next puts go.
#[derive(Debug, Clone, Default)]
struct Target(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    written: BTreeMap<i64, usize>,
    puts: Vec<Put>,
    /// How the puts behind them go.
    then: Option<Put>,
}

impl Target {
    fn new(puts: impl IntoIterator<Item = Put>, then: Option<Put>) -> Self {
        let mut puts: Vec<_> = puts.into_iter().collect();
        puts.reverse();
        Self(Arc::new(Mutex::new(State {
            puts,
            then,
            ..State::default()
        })))
    }

    /// Writes beyond the first of each record.
    fn duplicates(&self) -> usize {
        let written = &self.0.lock().unwrap().written;
        written.values().map(|times| times - 1).sum()
    }

    fn has(&self, offset: i64) -> bool {
        self.0.lock().unwrap().written.contains_key(&offset)
    }

    fn written(&self) -> usize {
        self.0.lock().unwrap().written.len()
    }
}

impl SinkTask for Target {
    async fn put(&mut self, batch: SinkBatch, _: &OutcomeSender) -> Result<(), PutError> {
        let put = {
            let mut state = self.0.lock().unwrap();
            let then = state.then;
            state.puts.pop().or(then)
        };
        match put {
            None => {}
            Some(Put::Takes(time)) => sleep(time).await,
            Some(Put::Blocks(time)) => std::thread::sleep(time),
            Some(Put::Hangs) => std::future::pending().await,
        }
        let mut state = self.0.lock().unwrap();
        for record in batch.records() {
            *state.written.entry(record.offset).or_default() += 1;
        }
        Ok(())
    }
}

impl Connector for Target {
    fn name(&self) -> &'static str {
        "target"
    }

    fn keys(&self) -> &'static [KeyDef] {
        &[]
    }

    fn validate(&self, _: &ConnectorConfig) -> Vec<ConfigProblem> {
        Vec::new()
    }

    fn task(
        &self,
        _: &ConnectorConfig,
        _: &TaskContext,
    ) -> Result<Box<dyn DynSinkTask>, TaskError> {
        Ok(Box::new(self.clone()))
    }
}

fn start(servers: &str, group_id: &str, target: &Target, loss_file: &Path) -> Worker {
    let mut worker = Properties::new("worker.properties");
    worker.set("bootstrap.servers", servers);
    worker.set("consumer.group.protocol", "share");
    let mut sink = Properties::new("sink.properties");
    for (key, value) in [
        ("name", "out"),
        ("connector.class", "target"),
        ("topics", "orders"),
        ("share.group.id", group_id),
        ("share.loss.file", &loss_file.display().to_string()),
        ("consumer.override.max.poll.records", "20"),
    ] {
        sink.set(key, value);
    }
    let registry = Registry::new().with(target.clone());
    let loaded = load_properties(worker, vec![sink], false, &registry).unwrap();
    Worker::start(&loaded.worker, loaded.connectors, &WorkerOptions::default())
}

/// A topic with so many records, and a group with a short lock.
async fn prepare(servers: &str, group_id: &str, records: usize, configs: &[(&str, &str)]) -> Admin {
    let client = ClientConfig::new(servers).unwrap();
    let admin = Admin::new(client.clone());
    let lock_ms = LOCK.as_millis().to_string();
    let lock = [("share.record.lock.duration.ms", lock_ms.as_str())];
    for (key, value) in lock.iter().chain(configs) {
        admin.set_group_config(group_id, key, value).await.unwrap();
    }
    admin.create_topic("orders", 1, -1, &[]).await.unwrap();
    let producer = Producer::new(ProducerConfig::new(client));
    for number in 0..records {
        let record = ProducerRecord::new("orders").value(format!("r{number}"));
        drop(producer.send(record).await.unwrap());
        // Batches of ten.
        if number % 10 == 9 {
            producer.flush().await.unwrap();
        }
    }
    producer.close(10 * S).await.unwrap();
    admin
}

/// Waits until the group has settled every record for good.
async fn settled(admin: &Admin, group_id: &str) {
    let deadline = Instant::now() + 90 * S;
    loop {
        let offsets = admin.share_group_offsets(group_id, None).await.unwrap();
        if offsets.first().and_then(|partition| partition.lag) == Some(0) {
            return;
        }
        assert!(Instant::now() < deadline, "not settled: {offsets:?}");
        sleep(S / 5).await;
    }
}

fn named(loss_file: &Path) -> BTreeSet<i64> {
    let lines = std::fs::read_to_string(loss_file).unwrap_or_default();
    let offset = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["offset"].as_i64().unwrap()
    };
    lines.lines().map(offset).collect()
}

async fn end(worker: Worker) -> TaskCounters {
    worker.stop(10 * S).await;
    worker.status().totals()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_renewal_nothing_is_archived_without_an_error_that_names_it() {
    on_both(&[], without_renewal).await;
}

async fn without_renewal(cluster: &Cluster) {
    let servers = cluster.bootstrap_servers();
    let group = "no-renewal";
    let configs = [
        ("share.renew.acknowledge.enable", "false"),
        ("share.delivery.count.limit", "2"),
        ("share.auto.offset.reset", "earliest"),
    ];
    let admin = prepare(servers, group, 300, &configs).await;
    let loss_file =
        std::env::temp_dir().join(format!("sharegroup-loss-{}", servers.replace(':', "-")));
    drop(std::fs::remove_file(&loss_file));

    // A put that hangs: the task fails while the records are its own, and they cost one delivery.
    let hanging = Target::new([Put::Hangs], None);
    let worker = start(servers, group, &hanging, &loss_file);
    let started = Instant::now();
    worker.any_failed().await;
    assert!(started.elapsed() < 30 * S);
    let status = worker.status();
    let (_, task) = status.failed().next().unwrap();
    let trace = task.trace.clone().unwrap();
    assert!(
        trace.contains("orders-0 offsets 0 to ") && trace.contains("before their lock ends"),
        "{trace}"
    );
    let totals = end(worker).await;
    assert_eq!((totals.locks_lost, totals.written), (0, 0), "{totals:?}");
    assert_eq!(named(&loss_file), BTreeSet::new());

    // Puts that block their thread for longer than the lock: what this costs on its last delivery is named.
    let blocking = Target::new([Put::Blocks(8 * S); 3], None);
    let worker = start(servers, group, &blocking, &loss_file);
    settled(&admin, group).await;
    let totals = end(worker).await;
    let named = named(&loss_file);
    let archived = 300 - totals.acknowledged;
    assert!(archived > 0, "nothing was put to the test: {totals:?}");
    assert_eq!(named.len() as u64, archived, "{named:?} {totals:?}");
    assert_eq!(totals.named_as_lost, archived);
    let unwritten = (0..300).filter(|offset| !blocking.has(*offset));
    assert!(unwritten.into_iter().all(|offset| named.contains(&offset)));
    std::fs::remove_file(&loss_file).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_frozen_broker_makes_arrive_twice_is_counted() {
    // Only a process can be frozen.
    let Some(kafka) = Kafka::builder().start_or_skip().unwrap() else {
        return;
    };
    let servers = kafka.bootstrap_servers();
    let group = "frozen";
    let configs = [("share.auto.offset.reset", "earliest")];
    let admin = prepare(&servers, group, 2000, &configs).await;
    let loss_file = kafka.dir().join("loss");
    let target = Target::new([], Some(Put::Takes(S / 20)));
    let worker = start(&servers, group, &target, &loss_file);
    while target.written() < 500 {
        sleep(S / 50).await;
    }
    kafka.broker(1).freeze().unwrap();
    sleep(2 * LOCK).await;
    kafka.broker(1).thaw().unwrap();
    settled(&admin, group).await;
    let totals = end(worker).await;
    let duplicates = target.duplicates() as u64;
    assert_eq!(target.written(), 2000);
    assert!(duplicates > 0, "the freeze made no difference");
    assert!(
        totals.may_arrive_twice() >= duplicates,
        "{duplicates} {totals:?}"
    );
    assert_eq!(named(&loss_file), BTreeSet::new());
}
