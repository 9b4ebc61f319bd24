//! A sink in memory that does what it is told, and jobs that write to it.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_sink::config::{KeyDef, Properties, load_properties};
use sharegroup_sink::worker::{TaskCounters, Worker, WorkerOptions};
use sharegroup_sink::{
    ConfigProblem, Connector, ConnectorConfig, DynSinkTask, OutcomeSender, PutError, Registry,
    SinkBatch, SinkTask, TaskContext, TaskError,
};
use tokio::time::{Instant, sleep};

pub(crate) const S: Duration = Duration::from_secs(1);
/// The group's.
pub(crate) const LOCK: Duration = Duration::from_secs(5);

/// How a put goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Put {
    /// Takes so long.
    Takes(Duration),
    /// Blocks its thread so long.
    Blocks(Duration),
    Hangs,
    /// Fails; another try may do it.
    Fails,
}

/// A target in memory: how often each offset was written, and how the next puts go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    written: BTreeMap<i64, usize>,
    puts: Vec<Put>,
    /// How the puts behind them go.
    then: Option<Put>,
}

impl Target {
    pub(crate) fn new(puts: impl IntoIterator<Item = Put>, then: Option<Put>) -> Self {
        let mut puts: Vec<_> = puts.into_iter().collect();
        puts.reverse();
        Self(Arc::new(Mutex::new(State {
            puts,
            then,
            ..State::default()
        })))
    }

    /// Writes beyond the first of each record.
    pub(crate) fn duplicates(&self) -> usize {
        let written = &self.0.lock().unwrap().written;
        written.values().map(|times| times - 1).sum()
    }

    pub(crate) fn has(&self, offset: i64) -> bool {
        self.0.lock().unwrap().written.contains_key(&offset)
    }

    pub(crate) fn written(&self) -> usize {
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
            Some(Put::Fails) => return Err(PutError::retriable("the target is down")),
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

/// Starts tasks on the topic and the group of a name.
pub(crate) fn start(
    servers: &str,
    name: &str,
    tasks: usize,
    target: &Target,
    loss_file: &Path,
) -> Worker {
    let mut worker = Properties::new("worker.properties");
    worker.set("bootstrap.servers", servers);
    worker.set("consumer.group.protocol", "share");
    let mut sink = Properties::new("sink.properties");
    for (key, value) in [
        ("name", "out"),
        ("connector.class", "target"),
        ("topics", name),
        ("tasks.max", &tasks.to_string()),
        ("share.group.id", name),
        ("share.loss.file", &loss_file.display().to_string()),
        ("consumer.override.max.poll.records", "20"),
    ] {
        sink.set(key, value);
    }
    let registry = Registry::new().with(target.clone());
    let loaded = load_properties(worker, vec![sink], false, &registry).unwrap();
    Worker::start(&loaded.worker, loaded.connectors, &WorkerOptions::default())
}

/// A topic with so many records, and a group of its name with a short lock.
pub(crate) async fn prepare(
    servers: &str,
    name: &str,
    records: usize,
    configs: &[(&str, &str)],
) -> Admin {
    let client = ClientConfig::new(servers).unwrap();
    let admin = Admin::new(client.clone());
    let lock_ms = LOCK.as_millis().to_string();
    let lock = [("share.record.lock.duration.ms", lock_ms.as_str())];
    for (key, value) in lock.iter().chain(configs) {
        admin.set_group_config(name, key, value).await.unwrap();
    }
    admin.create_topic(name, 1, -1, &[]).await.unwrap();
    let producer = Producer::new(ProducerConfig::new(client));
    for number in 0..records {
        let record = ProducerRecord::new(name).value(format!("r{number}"));
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
pub(crate) async fn settled(admin: &Admin, group_id: &str) {
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

pub(crate) fn named(loss_file: &Path) -> BTreeSet<i64> {
    let lines = std::fs::read_to_string(loss_file).unwrap_or_default();
    let offset = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["offset"].as_i64().unwrap()
    };
    lines.lines().map(offset).collect()
}

pub(crate) async fn end(worker: Worker) -> TaskCounters {
    worker.stop(10 * S).await;
    worker.status().totals()
}
