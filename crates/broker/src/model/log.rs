//! The log of one partition, in memory: producers' batches as they came, with their offsets.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use sharegroup_wire::ErrorCode;
use sharegroup_wire::compress::DecompressLimits;
use sharegroup_wire::record::{BATCH_HEADER_BYTES, RecordBatch, TimestampType};

use super::journal::RestoreError;
use super::producer_state::{ProducerState, Sequenced};

/// What a topic's configuration says to its logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRules {
    /// `max.message.bytes`.
    pub message_bytes_max: usize,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// `retention.bytes`; negative = no limit.
    pub retention_bytes: i64,
}

/// A batch in the log.
#[derive(Debug, Clone)]
pub struct StoredBatch {
    /// Its first offset.
    pub base_offset: i64,
    /// Its last offset, inclusive.
    pub last_offset: i64,
    /// Its largest timestamp, in milliseconds.
    pub max_timestamp: i64,
    /// The transactional producer that wrote it, unless it is a marker.
    pub transaction: Option<i64>,
    /// The whole batch.
    pub bytes: Bytes,
}

impl StoredBatch {
    fn of(batch: &RecordBatch, bytes: Bytes) -> Self {
        Self {
            base_offset: batch.base_offset(),
            last_offset: batch.last_offset(),
            max_timestamp: batch.max_timestamp(),
            transaction: (batch.is_transactional() && !batch.is_control())
                .then_some(batch.producer_id()),
            bytes,
        }
    }
}

/// Where a batch went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Offset of its first record.
    pub base_offset: i64,
    /// The broker's time, where the topic wants that; else −1.
    pub log_append_time_ms: i64,
}

/// A transaction that was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aborted {
    /// Its producer.
    pub producer_id: i64,
    /// Its first offset.
    pub first_offset: i64,
    /// The offset of its marker.
    pub last_offset: i64,
}

/// What a log knows beside its batches.
#[derive(Debug, Clone, Default)]
pub struct LogState {
    /// First offset that is still there.
    pub start_offset: i64,
    /// The next offset.
    pub end_offset: i64,
    /// Idempotent and transactional producers.
    pub producers: ProducerState,
    /// Transactions that were aborted, as far back as the log reaches.
    pub aborted: Vec<Aborted>,
}

/// A log.
#[derive(Debug, Clone, Default)]
pub struct PartitionLog {
    batches: VecDeque<StoredBatch>,
    start_offset: i64,
    end_offset: i64,
    size_bytes: usize,
    producers: ProducerState,
    aborted: Vec<Aborted>,
}

impl PartitionLog {
    /// First offset that is still there.
    #[must_use]
    pub const fn start_offset(&self) -> i64 {
        self.start_offset
    }

    /// The next offset; replication is nominal, so this is the high watermark as well.
    #[must_use]
    pub const fn end_offset(&self) -> i64 {
        self.end_offset
    }

    /// First offset that may still be aborted, or the end.
    #[must_use]
    pub fn last_stable_offset(&self) -> i64 {
        let open = self.producers.first_open_offset();
        open.unwrap_or(self.end_offset)
    }

    /// First offset that is still there, and the next one.
    #[must_use]
    pub const fn bounds(&self) -> (i64, i64) {
        (self.start_offset, self.end_offset)
    }

    /// Bytes of all batches.
    #[must_use]
    pub const fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// The batches, ascending.
    pub fn batches(&self) -> impl Iterator<Item = &StoredBatch> {
        self.batches.iter()
    }

    /// Checks what a producer sent and appends it, with offsets from the end on. A batch that was
    /// appended before gives its old offset.
    ///
    /// # Errors
    /// The code that Kafka gives: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, INVALID_TIMESTAMP and those of
    /// [`ProducerState::check`].
    pub fn produce(
        &mut self,
        now_ms: i64,
        leader_epoch: i32,
        records: Bytes,
        rules: &LogRules,
    ) -> Result<Appended, ErrorCode> {
        if records.len() > rules.message_bytes_max {
            return Err(ErrorCode::MessageTooLarge);
        }
        // Whatever is wrong with its bytes, Kafka calls it corrupt.
        let batch = RecordBatch::read(records).map_err(|_| ErrorCode::CorruptMessage)?;
        let count = batch.record_count();
        if batch.is_control() || count == 0 || batch.last_offset_delta() != count - 1 {
            return Err(ErrorCode::InvalidRecord);
        }
        if rules.timestamp_type == TimestampType::CreateTime
            && batch.max_timestamp().saturating_sub(now_ms) > rules.timestamp_after_max_ms
        {
            return Err(ErrorCode::InvalidTimestamp);
        }
        if let Sequenced::Duplicate(appended) = self.producers.check(&batch)? {
            return Ok(appended);
        }
        let append_time = match rules.timestamp_type {
            TimestampType::LogAppendTime => Some(now_ms),
            TimestampType::CreateTime => None,
        };
        let appended = self.append(&batch, leader_epoch, append_time);
        self.producers.appended(&batch, appended);
        self.retain(rules.retention_bytes);
        Ok(appended)
    }

    /// Appends a batch of the broker itself: a transaction's marker, a dead letter.
    pub fn append(
        &mut self,
        batch: &RecordBatch,
        leader_epoch: i32,
        append_time: Option<i64>,
    ) -> Appended {
        let base_offset = self.end_offset;
        let bytes = placed(batch.bytes(), base_offset, leader_epoch, append_time);
        self.push(StoredBatch {
            base_offset,
            last_offset: base_offset + i64::from(batch.last_offset_delta()),
            max_timestamp: append_time.unwrap_or(batch.max_timestamp()),
            ..StoredBatch::of(batch, bytes)
        });
        Appended {
            base_offset,
            log_append_time_ms: append_time.unwrap_or(-1),
        }
    }

    /// Appends a batch as it lay in a log: it has its offsets already.
    ///
    /// # Errors
    /// [`RestoreError`]: nothing has changed.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<(), RestoreError> {
        // A copy: what it came in may be much larger.
        let batch = RecordBatch::read(Bytes::copy_from_slice(bytes))?;
        let base_offset = batch.base_offset();
        if base_offset < self.end_offset || batch.last_offset_delta() < 0 {
            return Err(RestoreError::Offsets);
        }
        if self.batches.is_empty() {
            self.start_offset = base_offset;
        }
        let append_time = (batch.timestamp_type() == TimestampType::LogAppendTime)
            .then_some(batch.max_timestamp());
        self.push(StoredBatch::of(&batch, batch.bytes().clone()));
        if batch.is_control() {
            let (producer_id, epoch) = (batch.producer_id(), batch.producer_epoch());
            self.end_transaction(producer_id, epoch, base_offset, commits(&batch));
        } else {
            let appended = Appended {
                base_offset,
                log_append_time_ms: append_time.unwrap_or(-1),
            };
            self.producers.appended(&batch, appended);
        }
        Ok(())
    }

    /// What is known beside the batches.
    #[must_use]
    pub fn state(&self) -> LogState {
        LogState {
            start_offset: self.start_offset,
            end_offset: self.end_offset,
            producers: self.producers.clone(),
            aborted: self.aborted.clone(),
        }
    }

    /// Goes on from what was known beside the batches; those before its start are dropped.
    pub fn set_state(&mut self, state: LogState) {
        self.end_offset = self.end_offset.max(state.end_offset);
        self.producers = state.producers;
        self.delete_before(state.start_offset);
        self.aborted = state.aborted;
    }

    /// Appends bytes that stand for the offsets up to `last_offset`, whatever they are: for tests.
    pub fn push_raw(&mut self, count: i64, bytes: Bytes) {
        self.push(StoredBatch {
            base_offset: self.end_offset,
            last_offset: self.end_offset + count - 1,
            max_timestamp: -1,
            transaction: None,
            bytes,
        });
    }

    /// Changes the bytes of the batch that holds an offset: for tests. Their number stays.
    pub fn rewrite(&mut self, offset: i64, change: impl FnOnce(&mut [u8])) {
        let mut batches = self.batches.iter_mut();
        if let Some(batch) = batches.find(|batch| batch.last_offset >= offset) {
            let mut bytes = BytesMut::from(&batch.bytes[..]);
            change(&mut bytes);
            batch.bytes = bytes.freeze();
        }
    }

    fn push(&mut self, stored: StoredBatch) {
        self.end_offset = stored.last_offset + 1;
        self.size_bytes += stored.bytes.len();
        self.batches.push_back(stored);
    }

    /// Whole batches from the one that holds `offset` on, below `end`. The first comes whatever its
    /// size when `first_whole`; the others while they fit in `bytes_max`.
    pub fn read(
        &self,
        offset: i64,
        end: i64,
        bytes_max: usize,
        first_whole: bool,
    ) -> impl Iterator<Item = &StoredBatch> {
        let first = self
            .batches
            .partition_point(|batch| batch.last_offset < offset);
        let mut size = 0;
        self.batches
            .iter()
            .skip(first)
            .take_while(move |batch| batch.last_offset < end)
            .enumerate()
            .take_while(move |(index, batch)| {
                size += batch.bytes.len();
                size <= bytes_max || (*index == 0 && first_whole)
            })
            .map(|(_, batch)| batch)
    }

    /// The first record not older than `timestamp`: its offset and its timestamp.
    #[must_use]
    pub fn offset_for_time(&self, timestamp: i64) -> Option<(i64, i64)> {
        let batch = self
            .batches
            .iter()
            .find(|batch| batch.max_timestamp >= timestamp)?;
        let records = RecordBatch::read(batch.bytes.clone()).ok()?;
        let found = records.records(&DecompressLimits::default()).ok()?;
        let mut found = found
            .flatten()
            .filter(|record| record.timestamp >= timestamp);
        found.next().map(|record| (record.offset, record.timestamp))
    }

    /// The offset of the first record with the largest timestamp, and that timestamp.
    #[must_use]
    pub fn offset_of_max_timestamp(&self) -> Option<(i64, i64)> {
        let newest = self.batches.iter().map(|batch| batch.max_timestamp).max()?;
        self.offset_for_time(newest)
    }

    /// Ends a producer's open transaction: its marker was appended at `marker`.
    pub fn end_transaction(&mut self, producer_id: i64, epoch: i16, marker: i64, commit: bool) {
        let Some(first_offset) = self.producers.end_transaction(producer_id, epoch) else {
            return;
        };
        if !commit {
            self.aborted.push(Aborted {
                producer_id,
                first_offset,
                last_offset: marker,
            });
        }
    }

    /// Aborted transactions that overlap the offsets from `first` to `last`.
    pub fn aborted(&self, first: i64, last: i64) -> impl Iterator<Item = &Aborted> {
        self.aborted
            .iter()
            .filter(move |aborted| aborted.last_offset >= first && aborted.first_offset <= last)
    }

    /// Whether a batch belongs to a transaction that was aborted.
    #[must_use]
    pub fn is_aborted(&self, batch: &StoredBatch) -> bool {
        batch.transaction.is_some_and(|producer_id| {
            self.aborted(batch.base_offset, batch.last_offset)
                .any(|aborted| aborted.producer_id == producer_id)
        })
    }

    /// Drops the oldest batches while what is left still has `bytes`. The last batch stays.
    fn retain(&mut self, bytes: i64) {
        let Ok(bytes) = usize::try_from(bytes) else {
            return;
        };
        while self.batches.len() > 1
            && let Some(oldest) = self.batches.front()
            && self.size_bytes - oldest.bytes.len() >= bytes
        {
            self.drop_oldest();
        }
    }

    /// Drops whole batches below `offset` and lets the log begin there.
    pub fn delete_before(&mut self, offset: i64) {
        while self
            .batches
            .front()
            .is_some_and(|batch| batch.last_offset < offset)
        {
            self.drop_oldest();
        }
        self.start_offset = self.start_offset.max(offset.min(self.end_offset));
    }

    fn drop_oldest(&mut self) {
        if let Some(dropped) = self.batches.pop_front() {
            self.size_bytes -= dropped.bytes.len();
            self.start_offset = dropped.last_offset + 1;
            self.aborted
                .retain(|aborted| aborted.last_offset >= dropped.last_offset);
        }
    }
}

const BASE_OFFSET: usize = 0;
const LEADER_EPOCH: usize = 12;
const CRC: usize = 17;
const ATTRIBUTES: usize = 21;
const MAX_TIMESTAMP: usize = 35;
const LOG_APPEND_TIME: u8 = 1 << 3;

/// A copy of a batch at its place in the log. Offset and epoch are not covered by the CRC; the
/// append time is.
fn placed(batch: &Bytes, base_offset: i64, leader_epoch: i32, append_time: Option<i64>) -> Bytes {
    debug_assert!(batch.len() >= BATCH_HEADER_BYTES);
    let mut bytes = BytesMut::from(&batch[..]);
    put(&mut bytes, BASE_OFFSET, &base_offset.to_be_bytes());
    put(&mut bytes, LEADER_EPOCH, &leader_epoch.to_be_bytes());
    if let Some(time) = append_time {
        // The low byte of the attributes.
        if let Some(attributes) = bytes.get_mut(ATTRIBUTES + 1) {
            *attributes |= LOG_APPEND_TIME;
        }
        put(&mut bytes, MAX_TIMESTAMP, &time.to_be_bytes());
        let crc = crc32c::crc32c(bytes.get(ATTRIBUTES..).unwrap_or_default());
        put(&mut bytes, CRC, &crc.to_be_bytes());
    }
    bytes.freeze()
}

/// Whether a marker says that its transaction was committed.
fn commits(marker: &RecordBatch) -> bool {
    let records = marker.records(&DecompressLimits::default());
    let first = records.ok().and_then(|mut records| records.next()?.ok());
    first.is_some_and(|record| record.key == Some(&[0, 0, 0, 1]))
}

fn put(bytes: &mut BytesMut, at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sharegroup_wire::compress::Compression;
    use sharegroup_wire::record::RecordBatchBuilder;

    const RULES: LogRules = LogRules {
        message_bytes_max: 1_048_588,
        timestamp_type: TimestampType::CreateTime,
        timestamp_after_max_ms: 3_600_000,
        retention_bytes: -1,
    };

    fn batch(values: &[&str], producer: (i64, i16, i32)) -> Bytes {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        builder = builder.producer(producer.0, producer.1, producer.2);
        for value in values {
            builder
                .push(1000, None, Some(value.as_bytes()), [])
                .unwrap();
        }
        builder.build(0).unwrap()
    }

    const NOBODY: (i64, i16, i32) = (-1, -1, -1);

    #[test]
    fn batches_are_kept_as_they_came_with_offsets_of_the_log() {
        let mut log = PartitionLog::default();
        let came = batch(&["a", "b"], NOBODY);
        log.produce(5000, 3, came.clone(), &RULES).unwrap();
        let appended = log.produce(5000, 3, came.clone(), &RULES).unwrap();
        assert_eq!((appended.base_offset, appended.log_append_time_ms), (2, -1));
        let stored = log.batches().last().unwrap();
        assert_eq!(stored.bytes[CRC..], came[CRC..]);
        let read = RecordBatch::read(stored.bytes.clone()).unwrap();
        assert_eq!(
            (
                read.base_offset(),
                read.last_offset(),
                read.partition_leader_epoch()
            ),
            (2, 3, 3)
        );
    }

    #[test]
    fn log_append_time_is_the_brokers() {
        let mut log = PartitionLog::default();
        let rules = LogRules {
            timestamp_type: TimestampType::LogAppendTime,
            ..RULES
        };
        let appended = log.produce(5000, 0, batch(&["a"], NOBODY), &rules).unwrap();
        assert_eq!(appended.log_append_time_ms, 5000);
        let read = RecordBatch::read(log.batches().next().unwrap().bytes.clone()).unwrap();
        let records: Vec<_> = read
            .records(&DecompressLimits::default())
            .unwrap()
            .flatten()
            .map(|r| r.timestamp)
            .collect();
        assert_eq!(records, [5000]);
    }

    #[test]
    fn a_repeated_batch_is_appended_once_and_a_gap_is_refused() {
        let mut log = PartitionLog::default();
        for sequence in [0, 1, 2] {
            log.produce(0, 0, batch(&["a"], (7, 0, sequence)), &RULES)
                .unwrap();
        }
        let again = log.produce(0, 0, batch(&["a"], (7, 0, 1)), &RULES).unwrap();
        assert_eq!((again.base_offset, log.end_offset()), (1, 3));
        let gap = log.produce(0, 0, batch(&["a"], (7, 0, 5)), &RULES);
        assert_eq!(gap, Err(ErrorCode::OutOfOrderSequenceNumber));
        log.produce(0, 0, batch(&["a"], (7, 1, 0)), &RULES).unwrap();
        let old = log.produce(0, 0, batch(&["a"], (7, 0, 3)), &RULES);
        assert_eq!(old, Err(ErrorCode::InvalidProducerEpoch));
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        let mut log = PartitionLog::default();
        let mut bad = batch(&["a"], NOBODY).to_vec();
        *bad.last_mut().unwrap() ^= 1;
        assert_eq!(
            log.produce(0, 0, bad.into(), &RULES),
            Err(ErrorCode::CorruptMessage)
        );
        assert_eq!(
            log.produce(0, 0, Bytes::new(), &RULES),
            Err(ErrorCode::CorruptMessage)
        );
        let small = LogRules {
            message_bytes_max: 60,
            ..RULES
        };
        assert_eq!(
            log.produce(0, 0, batch(&["a"], NOBODY), &small),
            Err(ErrorCode::MessageTooLarge)
        );
        assert_eq!(log.end_offset(), 0);
    }

    #[test]
    fn retention_drops_the_oldest_batches_and_keeps_the_last() {
        let mut log = PartitionLog::default();
        let rules = LogRules {
            retention_bytes: 200,
            ..RULES
        };
        for _ in 0..10 {
            log.produce(0, 0, batch(&["0123456789"], NOBODY), &rules)
                .unwrap();
        }
        assert!(
            log.size_bytes() >= 200 && log.size_bytes() < 300,
            "{}",
            log.size_bytes()
        );
        assert_eq!(
            log.start_offset(),
            log.batches().next().unwrap().base_offset
        );
        let none = LogRules {
            retention_bytes: 0,
            ..RULES
        };
        log.produce(0, 0, batch(&["0123456789"], NOBODY), &none)
            .unwrap();
        assert_eq!((log.start_offset(), log.end_offset()), (10, 11));
    }

    #[test]
    fn a_read_gives_whole_batches_from_the_one_that_holds_the_offset() {
        let mut log = PartitionLog::default();
        for _ in 0..3 {
            log.produce(0, 0, batch(&["a", "b"], NOBODY), &RULES)
                .unwrap();
        }
        let size = log.size_bytes() / 3;
        let bases = |offset, end, bytes, whole| -> Vec<i64> {
            log.read(offset, end, bytes, whole)
                .map(|batch| batch.base_offset)
                .collect()
        };
        assert_eq!(bases(3, 6, usize::MAX, true), [2, 4]);
        assert_eq!(bases(0, 5, usize::MAX, true), [0, 2]);
        assert_eq!(bases(0, 6, 2 * size, true), [0, 2]);
        assert_eq!(bases(0, 6, 1, true), [0]);
        assert_eq!(bases(0, 6, 1, false), [0; 0]);
        assert_eq!(bases(6, 6, usize::MAX, true), [0; 0]);
    }
}
