//! A scripted source and a scripted sink: the task loop runs against them under paused time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use sharegroup_wire::TopicId;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::config::{ConfigProblem, ConnectorConfig, KeyDef, Loaded, Properties, load_properties};
use crate::connector::{Connector, DynSinkTask, Registry, SinkTask, TaskContext};
use crate::error::{PutError, TaskError};
use crate::outcome::{Outcome, OutcomeSender};
use crate::policy::LockLeft;
use crate::record::{OwnedRecord, SinkBatch};
use crate::source::{RecordSource, Settle, SourceBatch, SourceError, SourceSnapshot};

/// What the scripted broker has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) accepted: Vec<i64>,
    pub(crate) released: Vec<i64>,
    /// Settled although the lock was lost: reported, never sent.
    pub(crate) reported: Vec<i64>,
    pub(crate) commits: usize,
    pub(crate) closed: bool,
    pub(crate) paused: bool,
    pub(crate) pending: u64,
}

#[derive(Debug, Default)]
struct BrokerState {
    batches: VecDeque<Result<ScriptedBatch, String>>,
    seen: Seen,
}

/// The other end of a [`ScriptedSource`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Broker {
    state: Arc<Mutex<BrokerState>>,
    arrived: Arc<Notify>,
}

impl Broker {
    pub(crate) fn source(&self) -> ScriptedSource {
        ScriptedSource(self.clone())
    }

    /// Hands out a batch of records at `offsets`, on their `delivery_count`th delivery.
    pub(crate) fn deliver(&self, offsets: Range<i64>, delivery_count: i16) -> Lock {
        let lock = Lock::default();
        let records = offsets
            .map(|offset| OwnedRecord {
                offset,
                delivery_count,
                ..OwnedRecord::default()
            })
            .collect();
        let batch = ScriptedBatch {
            records: SinkBatch::from_records("orders", TopicId::ZERO, 3, records),
            lock: lock.clone(),
            broker: self.clone(),
        };
        self.push(Ok(batch));
        lock
    }

    pub(crate) fn fail(&self, text: &str) {
        self.push(Err(text.to_owned()));
    }

    fn push(&self, item: Result<ScriptedBatch, String>) {
        self.state.lock().unwrap().batches.push_back(item);
        self.arrived.notify_one();
    }

    pub(crate) fn seen<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.state.lock().unwrap().seen)
    }

    pub(crate) fn accepted(&self) -> Vec<i64> {
        self.seen(|seen| seen.accepted.clone())
    }

    pub(crate) fn released(&self) -> Vec<i64> {
        self.seen(|seen| seen.released.clone())
    }
}

/// The lock of one scripted batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lock {
    state: Arc<Mutex<Option<Instant>>>,
    lost: Arc<std::sync::atomic::AtomicBool>,
    changed: Arc<Notify>,
}

impl Lock {
    /// From now on it is lost.
    pub(crate) fn lose(&self) {
        self.lost.store(true, std::sync::atomic::Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// From now on it can't be renewed, and ends after `left`.
    pub(crate) fn end_after(&self, left: Duration) {
        *self.state.lock().unwrap() = Some(Instant::now() + left);
        self.changed.notify_waiters();
    }

    fn left(&self) -> LockLeft {
        if self.lost.load(std::sync::atomic::Ordering::SeqCst) {
            return LockLeft::Lost;
        }
        match *self.state.lock().unwrap() {
            None => LockLeft::Renewable,
            Some(end) if end <= Instant::now() => LockLeft::Lost,
            Some(end) => LockLeft::Ends(end - Instant::now()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct ScriptedSource(Broker);

#[derive(Debug)]
pub(crate) struct ScriptedBatch {
    records: SinkBatch,
    lock: Lock,
    broker: Broker,
}

impl RecordSource for ScriptedSource {
    type Batch = ScriptedBatch;

    async fn poll(&mut self) -> Result<Option<ScriptedBatch>, SourceError> {
        loop {
            let next = self.0.state.lock().unwrap().batches.pop_front();
            match next {
                Some(item) => return item.map(Some).map_err(SourceError),
                None => self.0.arrived.notified().await,
            }
        }
    }

    async fn commit(&mut self) -> Result<(), SourceError> {
        self.0.seen(|seen| {
            seen.commits += 1;
            seen.pending = 0;
        });
        Ok(())
    }

    async fn close(&mut self, _: Duration) -> Result<(), SourceError> {
        self.0.seen(|seen| seen.closed = true);
        Ok(())
    }

    fn pause(&mut self) {
        self.0.seen(|seen| seen.paused = true);
    }

    fn resume(&mut self) {
        self.0.seen(|seen| seen.paused = false);
    }

    fn snapshot(&self) -> SourceSnapshot {
        let acknowledgements_pending = self.0.seen(|seen| seen.pending);
        SourceSnapshot {
            acknowledgements_pending,
            ..SourceSnapshot::default()
        }
    }
}

impl SourceBatch for ScriptedBatch {
    fn records(&self) -> SinkBatch {
        self.records.clone()
    }

    fn settle(&mut self, indexes: Range<usize>, how: Settle) {
        let selected = self.records.select(vec![indexes]);
        let offsets = selected.records().map(|record| record.offset);
        let lost = self.lock.left() == LockLeft::Lost;
        self.broker.seen(|seen| {
            let list = match how {
                _ if lost => &mut seen.reported,
                Settle::Accept => &mut seen.accepted,
                Settle::Release => &mut seen.released,
            };
            for offset in offsets {
                assert!(
                    !list.contains(&offset),
                    "offset {offset} was settled before"
                );
                list.push(offset);
            }
        });
    }

    fn lock(&self) -> LockLeft {
        self.lock.left()
    }

    async fn lock_trouble(&self) {
        while self.lock.left() == LockLeft::Renewable {
            self.lock.changed.notified().await;
        }
    }
}

/// What a scripted sink does in one `put` or `flush`.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Succeeds.
    Fine,
    /// Takes this long, then succeeds.
    Slow(Duration),
    /// Fails, retriably.
    Fails,
    /// Fails for good.
    Fatal,
    /// Panics.
    Panics,
    /// Never returns.
    Hangs,
    /// Blocks its thread until the gate opens.
    BlocksThread(Gate),
    /// Reports these outcomes; then succeeds, or fails retriably.
    Reports(Vec<(i64, Outcome)>, bool),
}

/// Blocks threads until it is opened, or its keeper is gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

/// Opens a gate at the latest when a test ends, however it ends.
#[derive(Debug, Default)]
pub(crate) struct Keeper(pub(crate) Gate);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let is_open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(is_open, |is_open| !*is_open).unwrap());
    }
}

/// What a scripted sink was asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Start,
    Open,
    Put(Vec<i64>),
    Flush,
    Tick,
    Close,
    Stop,
}

/// The other end of a [`ScriptedSink`].
#[derive(Clone, Debug, Default)]
pub(crate) struct SinkScript {
    puts: Arc<Mutex<VecDeque<Step>>>,
    flushes: Arc<Mutex<VecDeque<Step>>>,
    calls: Arc<Mutex<Vec<(Instant, Call)>>>,
}

impl SinkScript {
    /// A sink whose puts go as told; afterwards all is fine.
    pub(crate) fn puts(steps: impl IntoIterator<Item = Step>) -> Self {
        let script = Self::default();
        script.puts.lock().unwrap().extend(steps);
        script
    }

    pub(crate) fn flushes(self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.flushes.lock().unwrap().extend(steps);
        self
    }

    pub(crate) fn sink(&self) -> ScriptedSink {
        ScriptedSink(self.clone())
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls
            .lock()
            .unwrap()
            .iter()
            .map(|(_, call)| call.clone())
            .collect()
    }

    /// The offsets of each put.
    pub(crate) fn put_offsets(&self) -> Vec<Vec<i64>> {
        let put = |call| match call {
            Call::Put(offsets) => Some(offsets),
            _ => None,
        };
        self.calls().into_iter().filter_map(put).collect()
    }

    /// When each put began.
    pub(crate) fn put_times(&self) -> Vec<Instant> {
        let calls = self.calls.lock().unwrap();
        calls
            .iter()
            .filter(|(_, call)| matches!(call, Call::Put(_)))
            .map(|(at, _)| *at)
            .collect()
    }

    fn log(&self, call: Call) {
        self.calls.lock().unwrap().push((Instant::now(), call));
    }
}

#[derive(Debug)]
pub(crate) struct ScriptedSink(SinkScript);

async fn play(step: Option<Step>, outcomes: Option<&OutcomeSender>) -> Result<(), PutError> {
    match step.unwrap_or(Step::Fine) {
        Step::Fine => Ok(()),
        Step::Slow(time) => {
            sleep(time).await;
            Ok(())
        }
        Step::Fails => Err(PutError::retriable("the target is down")),
        Step::Fatal => Err(PutError::fatal("the table is gone")),
        Step::Panics => panic!("a bug in the sink"),
        Step::Hangs => std::future::pending().await,
        Step::BlocksThread(gate) => {
            gate.pass();
            Ok(())
        }
        Step::Reports(list, fine) => {
            for (offset, outcome) in list {
                outcomes.unwrap().report(offset, outcome);
            }
            if fine {
                Ok(())
            } else {
                Err(PutError::retriable("the connection broke"))
            }
        }
    }
}

impl SinkTask for ScriptedSink {
    async fn start(&mut self, _: &TaskContext) -> Result<(), TaskError> {
        self.0.log(Call::Start);
        Ok(())
    }

    async fn open(&mut self, _: &[Arc<str>]) -> Result<(), TaskError> {
        self.0.log(Call::Open);
        Ok(())
    }

    async fn put(&mut self, batch: SinkBatch, outcomes: &OutcomeSender) -> Result<(), PutError> {
        let offsets = batch.records().map(|record| record.offset).collect();
        self.0.log(Call::Put(offsets));
        let step = self.0.puts.lock().unwrap().pop_front();
        play(step, Some(outcomes)).await
    }

    async fn flush(&mut self) -> Result<(), PutError> {
        self.0.log(Call::Flush);
        let step = self.0.flushes.lock().unwrap().pop_front();
        play(step, None).await
    }

    async fn tick(&mut self) -> Result<(), TaskError> {
        self.0.log(Call::Tick);
        Ok(())
    }

    async fn close(&mut self) -> Result<(), TaskError> {
        self.0.log(Call::Close);
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), TaskError> {
        self.0.log(Call::Stop);
        Ok(())
    }
}

/// A connector whose tasks are scripted sinks, one script per task.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptedConnector(pub(crate) Vec<SinkScript>);

impl Connector for ScriptedConnector {
    fn name(&self) -> &'static str {
        "scripted"
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
        context: &TaskContext,
    ) -> Result<Box<dyn DynSinkTask>, TaskError> {
        match self.0.get(context.task_index as usize) {
            Some(script) => Ok(Box::new(script.sink())),
            None => Err(TaskError::new("there is no script for this task")),
        }
    }
}

/// A worker with one connector `out` over `connector`, with further lines in its file.
pub(crate) fn load(connector: ScriptedConnector, lines: &str) -> Loaded {
    let mut worker = Properties::new("worker.properties");
    worker.set("bootstrap.servers", "localhost:9092");
    worker.set("consumer.group.protocol", "share");
    let text = format!("name=out\nconnector.class=scripted\ntopics=orders\n{lines}");
    let path = std::path::Path::new("out.properties");
    let file = Properties::parse(path, &text, &mut Vec::new()).unwrap();
    load_properties(worker, vec![file], false, &Registry::new().with(connector)).unwrap()
}

/// The connector alone.
pub(crate) fn connector(lines: &str) -> ConnectorConfig {
    load(ScriptedConnector::default(), lines)
        .connectors
        .remove(0)
}
