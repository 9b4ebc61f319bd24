//! A sink in memory that does what it is told, and jobs that write to it.
#![allow(dead_code, reason = "each test binary uses its part")]

#[path = "../../../consumer/tests/group/mod.rs"]
mod group;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_sink::config::{Loaded, Properties, load_properties};
use sharegroup_sink::data::Value;
use sharegroup_sink::worker::{TaskCounters, Worker, WorkerOptions};
use sharegroup_sink::{
    Connector, ConnectorConfig, DynSinkTask, OutcomeSender, PutError, Registry, SinkBatch,
    SinkTask, TaskContext, TaskError,
};
use tokio::time::{Instant, sleep};

pub(crate) use self::group::set_group;

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
    /// Takes so long for each record.
    TakesEach(Duration),
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
    /// What converters made of the values.
    values: BTreeMap<i64, Value>,
    puts: Vec<Put>,
    /// How the puts behind them go.
    then: Option<Put>,
    /// Records that no put can write.
    poison: BTreeSet<i64>,
    /// Whether every put fails.
    is_down: bool,
    puts_made: usize,
    delivery_count_max: i16,
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

    /// It takes so long for each record.
    pub(crate) fn per_record(time: Duration) -> Self {
        Self::new([], Some(Put::TakesEach(time)))
    }

    /// A put of one of these fails as a whole, for good.
    pub(crate) fn set_poison(&self, offsets: impl IntoIterator<Item = i64>) {
        self.0.lock().unwrap().poison = offsets.into_iter().collect();
    }

    /// From now on every put fails, or none.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.0.lock().unwrap().is_down = is_down;
    }

    pub(crate) fn puts_made(&self) -> usize {
        self.0.lock().unwrap().puts_made
    }

    /// The highest delivery count of any record that was put.
    pub(crate) fn delivery_count_max(&self) -> i16 {
        self.0.lock().unwrap().delivery_count_max
    }

    /// Writes beyond the first of each record.
    pub(crate) fn duplicates(&self) -> usize {
        let written = &self.0.lock().unwrap().written;
        written.values().map(|times| times - 1).sum()
    }

    /// How often a record was written.
    pub(crate) fn times(&self, offset: i64) -> usize {
        let written = &self.0.lock().unwrap().written;
        written.get(&offset).copied().unwrap_or(0)
    }

    pub(crate) fn has(&self, offset: i64) -> bool {
        self.0.lock().unwrap().written.contains_key(&offset)
    }

    /// The values that were written, by offset.
    pub(crate) fn values(&self) -> Vec<(i64, Value)> {
        let values = self.0.lock().unwrap().values.clone();
        values.into_iter().collect()
    }

    pub(crate) fn written(&self) -> usize {
        self.0.lock().unwrap().written.len()
    }
}

impl SinkTask for Target {
    async fn put(&mut self, batch: SinkBatch, _: &OutcomeSender) -> Result<(), PutError> {
        let put = {
            let mut state = self.0.lock().unwrap();
            state.puts_made += 1;
            let counts = batch.records().map(|record| record.delivery_count);
            state.delivery_count_max = counts.max().max(Some(state.delivery_count_max)).unwrap();
            if state.is_down {
                return Err(PutError::retriable("the target is down"));
            }
            if batch
                .records()
                .any(|record| state.poison.contains(&record.offset))
            {
                return Err(PutError::fatal("a row has no such column"));
            }
            let then = state.then;
            state.puts.pop().or(then)
        };
        match put {
            None => {}
            Some(Put::Takes(time)) => sleep(time).await,
            Some(Put::TakesEach(time)) => sleep(time * batch.records().count() as u32).await,
            Some(Put::Blocks(time)) => std::thread::sleep(time),
            Some(Put::Hangs) => std::future::pending().await,
            Some(Put::Fails) => return Err(PutError::retriable("the target is down")),
        }
        let mut state = self.0.lock().unwrap();
        for record in batch.records() {
            *state.written.entry(record.offset).or_default() += 1;
            let value = record.data().value.value.clone();
            state.values.insert(record.offset, value);
        }
        Ok(())
    }
}

impl Connector for Target {
    fn name(&self) -> &'static str {
        "target"
    }

    fn is_concurrent(&self) -> bool {
        true
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
    start_with(servers, name, tasks, target, loss_file, &[])
}

/// The same with further settings.
pub(crate) fn start_with(
    servers: &str,
    name: &str,
    tasks: usize,
    target: &Target,
    loss_file: &Path,
    settings: &[(&str, &str)],
) -> Worker {
    let loaded = load_with(servers, name, tasks, target, loss_file, settings);
    Worker::start(&loaded.worker, loaded.connectors, &WorkerOptions::default())
}

/// What such a worker is started with.
pub(crate) fn load_with(
    servers: &str,
    name: &str,
    tasks: usize,
    target: &Target,
    loss_file: &Path,
    settings: &[(&str, &str)],
) -> Loaded {
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
    for &(key, value) in settings {
        sink.set(key, value);
    }
    let registry = Registry::new().with(target.clone());
    load_properties(worker, vec![sink], false, &registry).unwrap()
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
    let settings: Vec<_> = lock.iter().chain(configs).copied().collect();
    set_group(&admin, name, &settings).await;
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
