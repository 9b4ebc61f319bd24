//! From what arrives to what a poll gives. Runs where the consumer is polled.
//!
//! A bit may have flipped, or an answer have been cut, on one link alone: no record is rejected or released
//! for that. What can't be read of an acquisition stays held, and its offsets are read again from the
//! leader's log with a plain Fetch. What can be read then is delivered as any other part of the
//! acquisition; what can't is a [`CorruptBatch`]. Its neighbours wait for nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sharegroup_session::{Acquired, ReleaseReason};
use sharegroup_wire::record::BatchError;
use tokio::time::Instant;

use crate::batch::{CorruptBatch, ShareBatch};
use crate::cluster::LogRead;
use crate::decode::{Decoded, Reading, Unread, clip, decode, is_cut};
use crate::error::ClientError;
use crate::lock::LockView;
use crate::metrics::add;
use crate::shared::{Arrival, Command, ReadId, Shared};

/// Second reads at a time; others wait. Bounds the bytes that were read and not yet polled.
const READS_MAX: usize = 4;

/// Longest time for a second read, all its tries included.
const READ_TIME: Duration = Duration::from_secs(5);

/// Bytes of a second read where it isn't known how many there are. A larger batch comes all the same.
const READ_BYTES: usize = 1024 * 1024;

/// Room for the batch behind a bad one: it tells where that ends.
const NEXT_BYTES: usize = 64 * 1024;

/// What the next poll gives.
#[derive(Debug)]
pub(crate) enum Ready {
    Batch(ShareBatch),
    Corrupt(CorruptBatch),
}

impl Ready {
    /// Whether a record of it is no longer ours.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Batch(batch) => batch.is_lost(),
            Self::Corrupt(corrupt) => corrupt.lock().lost().is_some(),
        }
    }

    /// No application sees it.
    pub(crate) fn give_back(self, why: ReleaseReason) {
        match self {
            Self::Batch(batch) => batch.give_back(why),
            Self::Corrupt(corrupt) => corrupt.give_back(why),
        }
    }
}

/// A part of an acquisition that is to be read again.
#[derive(Debug)]
struct Part {
    /// Without bytes, and with the ranges of this part alone.
    acquired: Acquired,
    lock: LockView,
    /// The bad batch; `None` where the bytes didn't reach.
    error: Option<BatchError>,
}

impl Part {
    fn new(arrival: &Arrival, unread: Unread, shared: &Arc<Shared>) -> Self {
        let lock = LockView {
            state: Arc::clone(&arrival.lock),
            shared: Arc::clone(shared),
            first_offset: unread.first_offset,
            last_offset: unread.last_offset,
        };
        Self {
            acquired: Acquired {
                records: Bytes::new(),
                ranges: clip(&arrival.acquired.ranges, &unread),
                topic: Arc::clone(&arrival.acquired.topic),
                ..arrival.acquired
            },
            lock,
            error: unread.error,
        }
    }

    /// When to give up, if it is read now.
    fn until(&self) -> Instant {
        let now = Instant::now();
        if self.lock.is_renewable() {
            return now + READ_TIME;
        }
        // The lock ends by itself: somebody must have time to settle before.
        let left = self.lock.deadline().saturating_duration_since(now);
        now + READ_TIME.min(left / 2)
    }

    fn log_read(&self) -> LogRead {
        let error = self.error.as_ref();
        let size = error.map(|error| error.bytes.len() + NEXT_BYTES);
        LogRead {
            broker: self.acquired.broker,
            topic: self.acquired.topic.to_string(),
            partition: self.acquired.partition,
            offset: self.lock.first_offset,
            bytes_max: size.unwrap_or(READ_BYTES),
        }
    }

    /// It can't be read again: it is told as it came, or released later where it didn't come at all.
    fn give_up(self) -> Option<Ready> {
        match self.error {
            Some(error) => Some(Ready::Corrupt(CorruptBatch::new(
                &self.acquired,
                self.lock,
                error,
            ))),
            None => {
                self.drop_held();
                None
            }
        }
    }

    /// Released after the delay of what an application drops.
    fn drop_held(&self) {
        self.lock.shared.command(Command::Drop {
            id: self.acquired.id,
            first: self.lock.first_offset,
            last: self.lock.last_offset,
            forgotten: 0,
        });
    }

    /// No application sees it.
    fn give_back(&self, why: ReleaseReason) {
        self.lock.shared.command(Command::GiveBack {
            id: self.acquired.id,
            first: self.lock.first_offset,
            last: self.lock.last_offset,
            why,
        });
    }
}

/// Decodes what arrives, and has read again what can't be decoded.
#[derive(Debug)]
pub(crate) struct Reader {
    shared: Arc<Shared>,
    /// Most records of a batch.
    records_max: usize,
    waiting: VecDeque<Part>,
    reading: BTreeMap<ReadId, Part>,
    last_read: ReadId,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>, records_max: usize) -> Self {
        Self {
            shared,
            records_max,
            waiting: VecDeque::new(),
            reading: BTreeMap::new(),
            last_read: ReadId(0),
        }
    }

    /// Most records of a batch.
    pub(crate) const fn batch_records_max(&self) -> usize {
        self.records_max
    }

    /// What can be read of an arrival.
    pub(crate) fn read(&mut self, arrival: &Arrival) -> Vec<Ready> {
        let Decoded { batches, unread } =
            decode(arrival, Reading::First, self.records_max, &self.shared);
        let ready: Vec<Ready> = batches.into_iter().map(Ready::Batch).collect();
        for mut part in unread {
            warn_unread(&arrival.acquired, &part);
            // Of the half of a batch nothing is known.
            part.error = part.error.filter(|error| !is_cut(error));
            self.waiting
                .push_back(Part::new(arrival, part, &self.shared));
        }
        self.read_waiting();
        ready
    }

    /// What can be read of a part now that its offsets were read again.
    pub(crate) fn enter_read(
        &mut self,
        id: ReadId,
        answer: Result<Bytes, ClientError>,
    ) -> Vec<Ready> {
        let mut ready = Vec::new();
        match (self.reading.remove(&id), answer) {
            (Some(part), _) if part.lock.lost().is_some() => part.drop_held(),
            (Some(part), Ok(bytes)) => self.decode_again(part, bytes, &mut ready),
            (Some(part), Err(error)) => {
                let (topic, partition) = (&part.acquired.topic, part.acquired.partition.partition);
                let first_offset = part.lock.first_offset;
                tracing::warn!(%topic, partition, first_offset, %error, "Offsets could not be read again.");
                ready.extend(part.give_up());
            }
            (None, _) => {}
        }
        self.read_waiting();
        ready
    }

    fn decode_again(&mut self, part: Part, bytes: Bytes, ready: &mut Vec<Ready>) {
        let arrival = Arrival {
            lock: Arc::clone(&part.lock.state),
            acquired: Acquired {
                records: bytes,
                ..part.acquired
            },
        };
        let Decoded { batches, unread } =
            decode(&arrival, Reading::Again, self.records_max, &self.shared);
        ready.extend(batches.into_iter().map(Ready::Batch));
        for mut left in unread {
            let error = left.error.as_ref();
            let is_end = error.is_none_or(|error| error.last_offset.is_none());
            if is_end && left.first_offset > part.lock.first_offset {
                // It didn't fit in, or its end did not: now it comes first.
                left.error = None;
                self.waiting
                    .push_front(Part::new(&arrival, left, &self.shared));
                continue;
            }
            left.error = left.error.or_else(|| part.error.clone());
            ready.extend(Part::new(&arrival, left, &self.shared).give_up());
        }
    }

    /// Has the next ones read, as many as may be at a time.
    fn read_waiting(&mut self) {
        while self.reading.len() < READS_MAX
            && let Some(part) = self.waiting.pop_front()
        {
            if part.lock.lost().is_some() {
                part.drop_held();
                continue;
            }
            self.last_read.0 += 1;
            add(&self.shared.counters.batches_read_again, 1);
            self.shared.command(Command::ReadAgain {
                id: self.last_read,
                read: part.log_read(),
                until: part.until(),
            });
            self.reading.insert(self.last_read, part);
        }
    }

    /// No application sees what is still to be read.
    pub(crate) fn give_back(&mut self, why: ReleaseReason) {
        let reading = std::mem::take(&mut self.reading).into_values();
        for part in reading.chain(self.waiting.drain(..)) {
            part.give_back(why);
        }
    }
}

fn warn_unread(acquired: &Acquired, unread: &Unread) {
    let (first_offset, last_offset) = (unread.first_offset, unread.last_offset);
    let error = unread.error.as_ref().map(tracing::field::display);
    tracing::warn!(
        topic = %acquired.topic, partition = acquired.partition.partition, first_offset, last_offset, error,
        "Acquired records can't be read; their offsets are read again."
    );
}

#[cfg(test)]
mod tests {
    use sharegroup_session::{AcquiredRange, AcquisitionId, LockLoss, TopicPartition};
    use sharegroup_wire::compress::Compression;
    use sharegroup_wire::record::{RecordBatch, RecordBatchBuilder};
    use sharegroup_wire::{BrokerId, ErrorCode, TopicId};

    use super::*;
    use crate::lock::LockState;
    use crate::status::ShareStatus;

    fn batch(base_offset: i64, count: i64) -> Bytes {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        for index in 0..count {
            let none = std::iter::empty();
            let value = (base_offset + index).to_string();
            builder
                .push(1000, None, Some(value.as_bytes()), none)
                .unwrap();
        }
        builder.build(base_offset).unwrap()
    }

    fn bad(base_offset: i64, count: i64) -> Bytes {
        let mut bytes = batch(base_offset, count).to_vec();
        bytes[61] ^= 1;
        bytes.into()
    }

    struct World {
        reader: Reader,
        shared: Arc<Shared>,
        lock: Arc<LockState>,
    }

    impl World {
        fn new() -> Self {
            let shared = Shared::new(ShareStatus::joining(String::new()));
            Self {
                reader: Reader::new(Arc::clone(&shared), 100),
                shared,
                lock: Arc::new(LockState::new(
                    Instant::now(),
                    Duration::from_secs(30),
                    true,
                )),
            }
        }

        /// Batches arrive for these offsets, which are acquired for the second time.
        fn arrive(&mut self, records: &[Bytes], (first_offset, last_offset): (i64, i64)) -> Told {
            let range = AcquiredRange {
                first_offset,
                last_offset,
                delivery_count: 2,
            };
            let acquired = Acquired {
                id: AcquisitionId(7),
                partition: TopicPartition {
                    topic_id: TopicId([3; 16]),
                    partition: 0,
                },
                topic: "t".into(),
                broker: BrokerId(1),
                records: records.concat().into(),
                ranges: vec![range],
                deadline: Instant::now().into_std(),
                renewable: true,
            };
            let lock = Arc::clone(&self.lock);
            let ready = self.reader.read(&Arrival { acquired, lock });
            self.told(ready)
        }

        fn answer(&mut self, read: u64, answer: Result<&[Bytes], ErrorCode>) -> Told {
            let answer = answer.map(|records| records.concat().into());
            let answer = answer.map_err(|code| ClientError::Broker {
                api: "Fetch",
                code,
                message: None,
            });
            let ready = self.reader.enter_read(ReadId(read), answer);
            self.told(ready)
        }

        fn told(&self, ready: Vec<Ready>) -> Told {
            let mut commands = Vec::new();
            self.shared.take_commands(&mut commands);
            let mut told = Told::default();
            for ready in ready {
                match &ready {
                    Ready::Batch(batch) => told.good.extend(batch.records().map(|record| {
                        assert_eq!(record.delivery_count, 2);
                        let value = record.offset.to_string();
                        assert_eq!(record.value, Some(value.as_bytes()));
                        record.offset
                    })),
                    Ready::Corrupt(corrupt) => told
                        .corrupt
                        .push((corrupt.first_offset(), corrupt.last_offset())),
                }
                // Not dropped: that would be a command.
                ready.give_back(ReleaseReason::Unseen);
            }
            for command in commands {
                match command {
                    Command::ReadAgain { id, read, .. } => told.reads.push((id.0, read.offset)),
                    Command::Drop {
                        id, first, last, ..
                    } => {
                        assert_eq!(id, AcquisitionId(7));
                        told.dropped.push((first, last));
                    }
                    Command::Settle(gap, _) => told.gaps.push((gap.first, gap.last)),
                    Command::GiveBack { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            told
        }
    }

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Told {
        good: Vec<i64>,
        corrupt: Vec<(i64, i64)>,
        /// Which reads are asked for, and from which offset.
        reads: Vec<(u64, i64)>,
        dropped: Vec<(i64, i64)>,
        gaps: Vec<(i64, i64)>,
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_second_read_does_not_reach_is_read_from_there() {
        let mut world = World::new();
        let told = world.arrive(&[batch(0, 3)], (0, 11));
        assert_eq!((told.good, told.reads), (vec![0, 1, 2], vec![(1, 3)]));
        let half = batch(6, 3).slice(..40);
        let told = world.answer(1, Ok(&[batch(3, 3), half]));
        assert_eq!((told.good, told.reads), (vec![3, 4, 5], vec![(2, 6)]));
        let told = world.answer(2, Ok(&[batch(6, 3)]));
        assert_eq!((told.good, told.reads), (vec![6, 7, 8], vec![(3, 9)]));
        // The rest of the partition is empty up to a batch that isn't ours.
        let told = world.answer(3, Ok(&[batch(20, 3)]));
        assert_eq!(told.gaps, [(9, 11)]);
        assert!(world.reader.reading.is_empty() && world.reader.waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_read_that_gives_nothing_ends_it() {
        let mut world = World::new();
        world.arrive(&[batch(0, 3)], (0, 5));
        let nothing = world.answer(1, Ok(&[]));
        let dropped = Told {
            dropped: vec![(3, 5)],
            ..Told::default()
        };
        assert_eq!(nothing, dropped);
        let mut world = World::new();
        world.arrive(&[bad(0, 3)], (0, 2));
        assert_eq!(world.answer(1, Ok(&[])).corrupt, [(0, 2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bad_batch_behind_a_good_one_is_read_until_its_end_is_known() {
        let mut world = World::new();
        world.arrive(&[batch(0, 3)], (0, 11));
        // Whether it goes up to 8 or further nobody knows.
        let told = world.answer(1, Ok(&[batch(3, 3), bad(6, 3)]));
        assert_eq!((told.good, told.reads), (vec![3, 4, 5], vec![(2, 6)]));
        let told = world.answer(2, Ok(&[bad(6, 3), batch(9, 3)]));
        assert_eq!((told.good, told.corrupt), (vec![9, 10, 11], vec![(6, 8)]));
        assert!(told.reads.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn few_reads_run_at_a_time_and_the_others_follow() {
        let mut world = World::new();
        let records: Vec<Bytes> = (0..12)
            .map(|index| {
                if index % 2 == 0 {
                    bad(index, 1)
                } else {
                    batch(index, 1)
                }
            })
            .collect();
        let told = world.arrive(&records, (0, 11));
        assert_eq!(told.good, [1, 3, 5, 7, 9, 11]);
        assert_eq!(told.reads, [(1, 0), (2, 2), (3, 4), (4, 6)]);
        let told = world.answer(2, Ok(&[batch(2, 1)]));
        assert_eq!((told.good, told.reads), (vec![2], vec![(5, 8)]));
        let told = world.answer(5, Err(ErrorCode::TopicAuthorizationFailed));
        assert_eq!((told.corrupt, told.reads), (vec![(8, 8)], vec![(6, 10)]));
        let metrics = world.shared.counters.snapshot();
        assert_eq!(
            (metrics.batches_read_again, metrics.corrupt_batches),
            (6, 1)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_lost_its_lock_is_neither_told_nor_read() {
        let mut world = World::new();
        let records: Vec<Bytes> = (0..10).map(|index| bad(index, 1)).collect();
        assert_eq!(world.arrive(&records, (0, 9)).reads.len(), READS_MAX);
        world.lock.lost(&LockLoss {
            acquisition: AcquisitionId(7),
            partition: TopicPartition {
                topic_id: TopicId([3; 16]),
                partition: 0,
            },
            first_offset: 0,
            last_offset: 9,
            delivery_count: 2,
            why: sharegroup_session::AckFailure::LockExpired,
        });
        let told = world.answer(1, Ok(&[batch(0, 1)]));
        assert!(told.good.is_empty() && told.corrupt.is_empty() && told.reads.is_empty());
        assert_eq!(
            told.dropped,
            [(0, 0), (4, 4), (5, 5), (6, 6), (7, 7), (8, 8), (9, 9)]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_close_an_answer_is_nobodys() {
        let mut world = World::new();
        world.arrive(&[bad(0, 3), batch(3, 3), bad(6, 3)], (0, 8));
        world.reader.give_back(ReleaseReason::Unseen);
        assert_eq!(world.answer(1, Ok(&[batch(0, 3)])), Told::default());
    }

    /// What of the log's batches a leader sends from an offset on.
    fn log_from(log: &[Bytes], offset: i64) -> Vec<Bytes> {
        let last_offset = |batch: &Bytes| RecordBatch::read(batch.clone()).unwrap().last_offset();
        let batches = log.iter().filter(|batch| last_offset(batch) >= offset);
        batches.cloned().collect()
    }

    #[tokio::test(start_paused = true)]
    async fn b_018_whichever_bit_flips_every_record_comes_once_and_as_it_was() {
        let log = [batch(0, 3), batch(3, 3), batch(6, 3)];
        for (first, last) in [(0, 8), (3, 5), (1, 8), (0, 7), (3, 8)] {
            let whole = log_from(&log, first).concat();
            for bit in 0..whole.len() * 8 {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let mut world = World::new();
                let mut told = world.arrive(&[bytes.into()], (first, last));
                let mut good = std::mem::take(&mut told.good);
                while let Some((id, offset)) = told.reads.pop() {
                    assert!(told.gaps.is_empty());
                    let more = world.answer(id, Ok(&log_from(&log, offset)));
                    good.extend(more.good);
                    told.reads.extend(more.reads);
                    told.gaps.extend(more.gaps);
                    told.dropped.extend(more.dropped);
                    told.corrupt.extend(more.corrupt);
                }
                good.sort_unstable();
                let where_from = format!("{first}-{last}, bit {bit}: {told:?}");
                assert_eq!(good, (first..=last).collect::<Vec<_>>(), "{where_from}");
                assert_eq!(told, Told::default(), "{where_from}");
            }
        }
    }
}
