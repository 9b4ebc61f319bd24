//! A scripted source and a scripted sink: the task loop runs against them under paused time.

mod letters;
mod log;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::{Future, ready};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use sharegroup_wire::TopicId;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

pub(crate) use self::letters::LetterBox;
pub(crate) use self::log::Lines;

use crate::config::{ConnectorConfig, Loaded, Properties, load_properties};
use crate::connector::{Connector, DynSinkTask, Registry, SinkTask, TaskContext};
use crate::convert::ConvertedRecord;
use crate::error::{PutError, TaskError};
use crate::outcome::{Outcome, OutcomeSender};
use crate::policy::LockLeft;
use crate::record::{OwnedRecord, SinkBatch};
use crate::source::{
    CorruptSource, Polled, PolledBy, RecordSource, RenewalStop, Settle, SourceBatch, SourceError,
    SourceSnapshot,
};
use crate::task::CorruptRange;

/// What the scripted broker has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) accepted: Vec<i64>,
    pub(crate) released: Vec<i64>,
    pub(crate) rejected: Vec<i64>,
    settled: BTreeSet<(bool, u8, i64)>,
    /// Settled although the lock was lost: reported, never sent.
    pub(crate) reported: Vec<i64>,
    pub(crate) commits: usize,
    pub(crate) closed: bool,
    pub(crate) paused: bool,
    /// Only one record more is acquired.
    pub(crate) acquires_one: bool,
    pub(crate) pending: u64,
    /// Records that are not settled.
    held: u64,
}

#[derive(Debug, Default)]
struct BrokerState {
    batches: VecDeque<Result<Arrival, String>>,
    /// Who waits for the next.
    polls: Option<Waker>,
    /// All that were handed out, for the end of all renewals.
    locks: Vec<Lock>,
    seen: Seen,
}

type Arrival = Polled<ScriptedBatch, ScriptedCorrupt>;

/// The other end of a [`ScriptedSource`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Broker {
    state: Arc<Mutex<BrokerState>>,
    /// Those that match a pattern.
    topics: Arc<Mutex<Vec<Arc<str>>>>,
}

impl Broker {
    /// Matches these topics.
    pub(crate) fn set_topics(&self, topics: &[&str]) {
        *self.topics.lock().unwrap() = topics.iter().map(|topic| Arc::from(*topic)).collect();
    }

    pub(crate) fn source(&self) -> ScriptedSource {
        ScriptedSource(self.clone())
    }

    /// Hands out a batch of records at `offsets`, on their `delivery_count`th delivery.
    pub(crate) fn deliver(&self, offsets: Range<i64>, delivery_count: i16) -> Lock {
        self.deliver_of("orders", offsets, delivery_count)
    }

    /// The same of a topic.
    pub(crate) fn deliver_of(&self, topic: &str, offsets: Range<i64>, delivery_count: i16) -> Lock {
        let record = |offset| OwnedRecord {
            offset,
            delivery_count,
            ..OwnedRecord::default()
        };
        self.deliver_records_of(topic, offsets.map(record).collect())
    }

    /// Hands out a batch of these values at the offsets from 0, for the first time.
    pub(crate) fn deliver_values<V: Into<Bytes>>(
        &self,
        values: impl IntoIterator<Item = V>,
    ) -> Lock {
        let record = |(offset, value): (i64, V)| OwnedRecord {
            offset,
            key: Some(Bytes::from_static(b"k")),
            value: Some(value.into()),
            delivery_count: 1,
            ..OwnedRecord::default()
        };
        self.deliver_records((0..).zip(values).map(record).collect())
    }

    /// Hands out a batch of these records.
    pub(crate) fn deliver_records(&self, records: Vec<OwnedRecord>) -> Lock {
        self.deliver_records_of("orders", records)
    }

    fn deliver_records_of(&self, topic: &str, records: Vec<OwnedRecord>) -> Lock {
        let lock = Lock::default();
        let batch = ScriptedBatch::new(topic, records, &lock, self);
        self.state.lock().unwrap().locks.push(lock.clone());
        self.push(Ok(Polled::Batch(batch)));
        lock
    }

    /// Hands out records that can't be read.
    pub(crate) fn deliver_corrupt(&self, offsets: Range<i64>, delivery_count: i16) {
        self.push(Ok(Polled::Corrupt(ScriptedCorrupt {
            range: CorruptRange {
                topic: Arc::from("orders"),
                partition: 3,
                first_offset: offsets.start,
                last_offset: offsets.end - 1,
                delivery_count,
                bytes: Bytes::from_static(b"rubbish"),
                error: format!(
                    "offsets {}-{} of orders-3 can't be read",
                    offsets.start,
                    offsets.end - 1
                ),
            },
            broker: self.clone(),
        })));
    }

    pub(crate) fn fail(&self, text: &str) {
        self.push(Err(text.to_owned()));
    }

    fn push(&self, item: Result<Arrival, String>) {
        let mut state = self.state.lock().unwrap();
        if let Ok(Polled::Batch(batch)) = &item {
            state.seen.held += batch.records.len() as u64;
        }
        state.batches.push_back(item);
        if let Some(waker) = state.polls.take() {
            waker.wake();
        }
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

    /// The records that nobody has polled.
    pub(crate) fn unpolled(&self) -> BTreeSet<i64> {
        let state = self.state.lock().unwrap();
        let batches = state.batches.iter().filter_map(|batch| match batch {
            Ok(Polled::Batch(batch)) => Some(&batch.records),
            _ => None,
        });
        let records = batches.flat_map(SinkBatch::records);
        records.map(|record| record.offset).collect()
    }

    pub(crate) fn rejected(&self) -> Vec<i64> {
        self.seen(|seen| seen.rejected.clone())
    }

    fn settle(&self, offsets: impl Iterator<Item = i64>, how: Settle, lost: bool) {
        self.seen(|seen| {
            let comes_back = how == Settle::Release && !lost && !seen.paused;
            assert!(
                !comes_back,
                "released while acquiring: it comes back at once"
            );
            let list = match how {
                _ if lost => &mut seen.reported,
                Settle::Accept => &mut seen.accepted,
                Settle::Release => &mut seen.released,
                Settle::Reject => &mut seen.rejected,
            };
            for offset in offsets {
                seen.held = seen.held.saturating_sub(1);
                let first_time = seen.settled.insert((lost, how as u8, offset));
                assert!(first_time, "offset {offset} was settled before");
                list.push(offset);
            }
        });
    }
}

/// The lock of one scripted batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lock {
    state: Arc<Mutex<Option<Instant>>>,
    duration: Arc<Mutex<Option<Duration>>>,
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
        *self.duration.lock().unwrap() = Some(left);
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
    topic: String,
    owned: Vec<OwnedRecord>,
    lock: Lock,
    broker: Broker,
}

impl ScriptedBatch {
    fn new(topic: &str, owned: Vec<OwnedRecord>, lock: &Lock, broker: &Broker) -> Self {
        Self {
            records: SinkBatch::from_records(topic, TopicId::ZERO, 3, owned.clone()),
            topic: topic.to_owned(),
            owned,
            lock: lock.clone(),
            broker: broker.clone(),
        }
    }

    /// Keeps the first records, and gives the others away.
    fn split_off(&mut self, records: usize) -> Option<Self> {
        if records >= self.owned.len() {
            return None;
        }
        let rest = self.owned.split_off(records);
        let part = |owned| Self::new(&self.topic, owned, &self.lock, &self.broker);
        let rest = part(rest);
        *self = part(self.owned.clone());
        Some(rest)
    }
}

/// Records that can't be read. Their lock is renewed.
#[derive(Debug)]
pub(crate) struct ScriptedCorrupt {
    range: CorruptRange,
    broker: Broker,
}

impl CorruptSource for ScriptedCorrupt {
    fn range(&self) -> CorruptRange {
        self.range.clone()
    }

    fn settle(self, how: Settle) {
        let offsets = self.range.first_offset..=self.range.last_offset;
        self.broker.settle(offsets, how, false);
    }

    fn lock(&self) -> LockLeft {
        LockLeft::Renewable
    }
}

impl RecordSource for ScriptedSource {
    type Batch = ScriptedBatch;
    type Corrupt = ScriptedCorrupt;

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        records_max: usize,
    ) -> Poll<Result<Option<PolledBy<Self>>, SourceError>> {
        let mut state = self.0.state.lock().unwrap();
        match state.batches.pop_front() {
            Some(Ok(Polled::Batch(mut batch))) => {
                if let Some(rest) = batch.split_off(records_max) {
                    state.batches.push_front(Ok(Polled::Batch(rest)));
                }
                Poll::Ready(Ok(Some(Polled::Batch(batch))))
            }
            Some(item) => Poll::Ready(item.map(Some).map_err(SourceError)),
            None => {
                state.polls = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn commit(&mut self) -> impl Future<Output = Result<(), SourceError>> + Send + use<> {
        self.0.seen(|seen| {
            seen.commits += 1;
            seen.pending = 0;
        });
        ready(Ok(()))
    }

    async fn close(&mut self, _: Duration) -> Result<(), SourceError> {
        self.0.seen(|seen| seen.closed = true);
        Ok(())
    }

    fn pause(&mut self) {
        self.0.seen(|seen| seen.paused = true);
    }

    fn resume(&mut self) {
        self.0.seen(|seen| {
            seen.paused = false;
            seen.acquires_one = false;
        });
    }

    fn acquire_one(&mut self) {
        self.0.seen(|seen| {
            seen.paused = false;
            seen.acquires_one = true;
        });
    }

    fn topics(&self) -> Vec<Arc<str>> {
        self.0.topics.lock().unwrap().clone()
    }

    /// Each lock ends after 30 s.
    fn renewal_stop(&self) -> RenewalStop {
        let state = Arc::clone(&self.0.state);
        Box::new(move || {
            let locks = &state.lock().unwrap().locks;
            locks
                .iter()
                .for_each(|lock| lock.end_after(Duration::from_secs(30)));
        })
    }

    fn records_held(&self) -> u64 {
        self.0.seen(|seen| seen.held)
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
        self.broker.settle(offsets, how, lost);
    }

    fn lock(&self) -> LockLeft {
        self.lock.left()
    }

    fn lock_duration(&self) -> Duration {
        let duration = *self.lock.duration.lock().unwrap();
        duration.unwrap_or(Duration::from_secs(30))
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
    /// Fails for good, whatever the records.
    Broken,
    /// Reports these outcomes, then fails for good.
    BreaksAfter(Vec<(i64, Outcome)>),
    /// Fails; the target wants to be left alone so long.
    FailsFor(Duration),
    /// Panics.
    Panics,
    /// Writes one record after the other, each taking so long.
    WritesEvery(Duration),
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
    /// These topics.
    Open(Vec<String>),
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
    poison: Arc<Mutex<BTreeMap<i64, Step>>>,
    written: Arc<Mutex<Vec<i64>>>,
    data: Arc<Mutex<Vec<(i64, ConvertedRecord)>>>,
    durable: Arc<Mutex<Durable>>,
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

    /// Puts without a step of their own that hold one of these records go like this, as a whole.
    pub(crate) fn poisoned(self, offsets: impl IntoIterator<Item = i64>, step: Step) -> Self {
        let poison = offsets.into_iter().map(|offset| (offset, step.clone()));
        self.poison.lock().unwrap().extend(poison);
        self
    }

    /// From now on no record is poison.
    pub(crate) fn cure(&self) {
        self.poison.lock().unwrap().clear();
    }

    /// The records of puts that succeeded as a whole, in order.
    pub(crate) fn written(&self) -> Vec<i64> {
        self.written.lock().unwrap().clone()
    }

    /// What converters had made of each record of each put, in order.
    pub(crate) fn data(&self) -> Vec<(i64, ConvertedRecord)> {
        self.data.lock().unwrap().clone()
    }

    /// The records that a flush has made durable.
    pub(crate) fn durable(&self) -> BTreeSet<i64> {
        self.durable.lock().unwrap().flushed.clone()
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

#[derive(Debug, Default)]
struct Durable {
    /// Since the last flush.
    put: BTreeSet<i64>,
    flushed: BTreeSet<i64>,
}

#[derive(Debug)]
pub(crate) struct ScriptedSink(SinkScript);

async fn play(
    step: Option<Step>,
    offsets: &[i64],
    outcomes: Option<&OutcomeSender>,
) -> Result<(), PutError> {
    match step.unwrap_or(Step::Fine) {
        Step::Fine => Ok(()),
        Step::Slow(time) => {
            sleep(time).await;
            Ok(())
        }
        Step::Fails => Err(PutError::retriable("the target is down")),
        Step::Fatal => Err(PutError::fatal("the table is gone")),
        Step::Broken => Err(PutError::broken("the target is gone")),
        Step::BreaksAfter(list) => {
            for (offset, outcome) in list {
                outcomes.unwrap().report(offset, outcome);
            }
            Err(PutError::broken("the target is gone"))
        }
        Step::FailsFor(time) => Err(PutError::Retriable {
            source: "slow down".into(),
            after: Some(time),
        }),
        Step::Panics => panic!("a bug in the sink"),
        Step::WritesEvery(time) => {
            for offset in offsets {
                sleep(time).await;
                outcomes.unwrap().written(*offset);
            }
            Ok(())
        }
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

    async fn open(&mut self, topics: &[Arc<str>]) -> Result<(), TaskError> {
        let topics = topics.iter().map(|topic| topic.to_string());
        self.0.log(Call::Open(topics.collect()));
        Ok(())
    }

    async fn put(&mut self, batch: SinkBatch, outcomes: &OutcomeSender) -> Result<(), PutError> {
        let offsets: Vec<i64> = batch.records().map(|record| record.offset).collect();
        self.0.log(Call::Put(offsets.clone()));
        let data = batch
            .records()
            .map(|record| (record.offset, record.data().into_owned()));
        self.0.data.lock().unwrap().extend(data);
        let step = self.0.puts.lock().unwrap().pop_front();
        let step = step.or_else(|| {
            let poison = self.0.poison.lock().unwrap();
            offsets
                .iter()
                .find_map(|offset| poison.get(offset))
                .cloned()
        });
        let reports = match &step {
            Some(Step::Reports(list, _) | Step::BreaksAfter(list)) => list.clone(),
            _ => Vec::new(),
        };
        let put = play(step, &offsets, Some(outcomes)).await;
        let said = |offset: &i64| {
            let last = reports.iter().rev().find(|(of, _)| of == offset);
            last.map_or(put.is_ok(), |(_, outcome)| *outcome == Outcome::Written)
        };
        let written: Vec<_> = offsets
            .iter()
            .copied()
            .filter(|offset| said(offset))
            .collect();
        self.0.durable.lock().unwrap().put.extend(written);
        if put.is_ok() {
            self.0.written.lock().unwrap().extend(offsets);
        }
        put
    }

    async fn flush(&mut self) -> Result<(), PutError> {
        self.0.log(Call::Flush);
        let step = self.0.flushes.lock().unwrap().pop_front();
        let flushed = play(step, &[], None).await;
        let mut durable = self.0.durable.lock().unwrap();
        let put = std::mem::take(&mut durable.put);
        if flushed.is_ok() {
            durable.flushed.extend(put);
        }
        flushed
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

    fn is_concurrent(&self) -> bool {
        true
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
