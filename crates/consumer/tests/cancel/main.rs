//! T9: every public future of the crate, dropped at every point where it waits: no record is lost, none is
//! settled twice, nothing hangs and nothing stays locked.
//!
//! The real driver meets the embedded broker over connections in memory, under paused time. Each operation is
//! cut at its first wait, at its second, and so on until it gets through; once where it goes to wait and once
//! where it was woken and what it waited for is there. Then the rest of the work must get done as if nothing
//! had been.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod admin;
mod consumer;
mod producer;
mod seeded;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use sharegroup_broker::Broker;
use sharegroup_broker::model::history::Event;
use sharegroup_broker::model::topics::Place;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_consumer::{ClientConfig, ShareConsumer, ShareConsumerBuilder};
use sharegroup_wire::compress::DecompressLimits;
use sharegroup_wire::record::RecordBatch;
use tokio::time::{Instant, sleep, timeout};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

const TOPIC: &str = "orders";
const GROUP: &str = "group";
const PARTITIONS: i32 = 2;
const LOCK_MS: &str = "2000";

/// Nothing here takes so long, in virtual time.
const IN_TIME: Duration = Duration::from_secs(120);

/// Waits of one operation, at most.
const WAITS_MAX: usize = 2_000;

/// Where a future is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// As soon as it waits for the so manieth time, from 0 on.
    Waiting(usize),
    /// When it is woken after that wait, without being polled.
    Woken(usize),
}

/// Polls a future until it is done or its cut has come; then drops it.
async fn cut<F: Future>(at: Cut, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut waits = 0;
    poll_fn(|context| {
        if matches!(at, Cut::Woken(last) if waits > last) {
            return Poll::Ready(None);
        }
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if at == Cut::Waiting(waits) => Poll::Ready(None),
            Poll::Pending => {
                waits += 1;
                Poll::Pending
            }
        }
    })
    .await
}

/// Runs a test with each cut of an operation, which says whether the operation got through all the same: that
/// is the last one.
async fn at_every_wait(test: impl AsyncFn(Cut) -> bool) {
    for cut_at in [Cut::Waiting as fn(usize) -> Cut, Cut::Woken] {
        let mut waits = 0;
        while !timeout(IN_TIME, test(cut_at(waits)))
            .await
            .unwrap_or_else(|_| panic!("hangs after {:?}", cut_at(waits)))
        {
            waits += 1;
            assert!(waits < WAITS_MAX, "no end of waits");
        }
        assert!(waits > 0, "it never waited");
    }
}

/// What a new public function has to do: be cut here, too.
#[test]
fn every_public_async_function_is_cut() {
    let tests = ["admin", "consumer", "producer", "seeded"].map(|name| {
        let path = format!("{}/tests/cancel/{name}.rs", env!("CARGO_MANIFEST_DIR"));
        fs::read_to_string(path).unwrap()
    });
    let mut missing = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(path).unwrap();
            let functions = text.split("pub async fn ").skip(1);
            let names = functions.filter_map(|rest| rest.split(['(', '<']).next());
            let is_missing =
                |name: &&str| !tests.iter().any(|test| test.contains(&format!("{name}(")));
            missing.extend(names.filter(is_missing).map(ToOwned::to_owned));
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

/// A cluster of two brokers with a topic and a group that reads it from its start under short locks.
struct World {
    broker: Broker,
    records: BTreeSet<(Place, i64)>,
}

impl World {
    async fn new() -> Self {
        let broker = Broker::builder()
            .in_memory()
            .brokers(2)
            .seed(7)
            .set("group.share.min.record.lock.duration.ms", "1000")
            .group(GROUP, "share.auto.offset.reset", "earliest")
            .group(GROUP, "share.record.lock.duration.ms", LOCK_MS)
            .group(GROUP, "share.delivery.count.limit", "10")
            .topic(TOPIC, PARTITIONS)
            .start()
            .await
            .unwrap();
        broker.model(|model| model.record_history());
        Self {
            broker,
            records: BTreeSet::new(),
        }
    }

    /// With so many records.
    async fn with_records(count: usize) -> Self {
        let mut world = Self::new().await;
        let producer = world.producer();
        for number in 0..count {
            let partition = i32::try_from(number).unwrap() % PARTITIONS;
            let record = ProducerRecord::new(TOPIC)
                .partition(partition)
                .value(number.to_string());
            drop(producer.send(record).await.unwrap());
        }
        producer.close(10 * SECOND).await.unwrap();
        world.note_records();
        world
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new(self.broker.bootstrap_servers()).unwrap();
        config.connector = self.broker.connector();
        config.seed = 7;
        config
    }

    fn producer(&self) -> Producer {
        Producer::new(ProducerConfig::new(self.config()))
    }

    fn builder(&self) -> ShareConsumerBuilder {
        ShareConsumer::builder_with(self.config())
            .group_id(GROUP)
            .topics([TOPIC])
            .driver_on_current()
    }

    async fn consumer(&self) -> ShareConsumer {
        self.builder().build().await.unwrap()
    }

    /// What the log holds by now is to be consumed.
    fn note_records(&mut self) {
        self.records = self.broker.model(|model| {
            let places: Vec<Place> = model.topics.places().collect();
            let all = places.into_iter().flat_map(|place| {
                let partition = model.topics.partition(place).unwrap();
                (0..partition.log.end_offset()).map(move |offset| (place, offset))
            });
            all.collect()
        });
    }

    /// The values of a partition, in the order of its log.
    fn values(&self, partition: i32) -> Vec<String> {
        self.broker.model(|model| {
            let id = model.topics.named(TOPIC).unwrap().id;
            let log = &model.topics.partition((id, partition)).unwrap().log;
            let mut values = Vec::new();
            for stored in log.batches() {
                let batch = RecordBatch::read(stored.bytes.clone()).unwrap();
                for record in batch.records(&DecompressLimits::default()).unwrap() {
                    let value = record.unwrap().value.unwrap().to_vec();
                    values.push(String::from_utf8(value).unwrap());
                }
            }
            values
        })
    }

    /// How many records were accepted.
    fn accepted(&self) -> usize {
        self.broker.model(|model| {
            let applied = model
                .history
                .events()
                .iter()
                .flat_map(|(_, event)| match event {
                    Event::Acknowledged { applied, .. } => applied.as_slice(),
                    _ => &[],
                });
            let accepted = applied.filter(|(_, _, wire_type)| *wire_type == 1);
            let counts =
                accepted.map(|(first, last, _)| usize::try_from(last - first + 1).unwrap());
            counts.sum()
        })
    }

    /// Accepts all that is left with a consumer that went through something, closes it and looks at what came
    /// of it all.
    async fn finish(self, mut consumer: ShareConsumer) {
        let started = Instant::now();
        while self.accepted() < self.records.len() {
            if let Ok(batch) = timeout(100 * MS, consumer.poll()).await {
                batch.unwrap().expect("not closed").accept();
            }
            assert!(
                started.elapsed() < IN_TIME / 2,
                "wedged: {:?}",
                consumer.status()
            );
        }
        let report = timeout(10 * SECOND, consumer.close(5 * SECOND)).await;
        assert!(report.unwrap().unwrap().is_ok());
        self.check().await;
    }

    /// Every record was accepted once, and none settled twice; nobody holds anything, and nobody is left.
    async fn check(&self) {
        sleep(SECOND).await;
        self.broker.model(|model| {
            let mut open = BTreeSet::new();
            let mut ends: BTreeMap<(Place, i64), Vec<i8>> = BTreeMap::new();
            for (_, event) in model.history.events() {
                match event {
                    Event::Acquired { place, ranges, .. } => {
                        let offsets = ranges
                            .iter()
                            .flat_map(|range| range.first_offset..=range.last_offset);
                        open.extend(offsets.map(|offset| (*place, offset)));
                    }
                    Event::Acknowledged { place, applied, .. } => {
                        for (first, last, wire_type) in
                            applied.iter().filter(|(_, _, one)| *one != 4)
                        {
                            for offset in *first..=*last {
                                let record = (*place, offset);
                                assert!(open.remove(&record), "{record:?} is settled twice");
                                ends.entry(record).or_default().push(*wire_type);
                            }
                        }
                    }
                    Event::Expired { place, ranges, .. }
                    | Event::Released { place, ranges, .. } => {
                        for offset in ranges.iter().flat_map(|(first, last, _)| *first..=*last) {
                            open.remove(&(*place, offset));
                        }
                    }
                    Event::Request { .. } => {}
                }
            }
            let once = |ends: &&Vec<i8>| ends.iter().filter(|one| **one == 1).count() == 1;
            let for_good = ends.iter().filter(|(_, ends)| once(ends));
            let for_good: BTreeSet<_> = for_good.map(|(record, _)| *record).collect();
            assert_eq!(for_good, self.records);
            assert!(open.is_empty(), "still locked: {open:?}");
            let group = model.groups.get(GROUP);
            let members = group.map(|group| group.members.len());
            assert_eq!(members.unwrap_or_default(), 0, "somebody is left behind");
        });
    }
}
