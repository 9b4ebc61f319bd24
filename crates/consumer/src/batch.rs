//! Acquired records as the application gets them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use sharegroup_session::{Acknowledgement, Acquired, AcquisitionId, ReleaseReason};
use sharegroup_wire::TopicId;
use sharegroup_wire::record::{BatchError, Headers, RecordSpan, TimestampType};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::acknowledge::Acknowledge;
use crate::delivery::Confirmation;
use crate::error::SettleError;
use crate::hand_out::{HandOut, hand_out};
use crate::lock::{LockState, LockView};
use crate::metrics::add;
use crate::report::offsets;
use crate::shared::{Command, Reply, Settling, Shared};

/// One record, borrowed from its batch.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// Offset in the partition.
    pub offset: i64,
    /// Milliseconds since 1970, −1 when the producer set none.
    pub timestamp: i64,
    /// Whose clock the timestamp is from.
    pub timestamp_type: TimestampType,
    /// Key; `None` = null.
    pub key: Option<&'a [u8]>,
    /// Value; `None` = null (a tombstone).
    pub value: Option<&'a [u8]>,
    /// 1 = first delivery, as far as the broker remembers.
    pub delivery_count: i16,
    span: &'a RecordSpan,
    payload: &'a Bytes,
}

impl<'a> Record<'a> {
    /// Headers in their order, with duplicates and nulls.
    #[must_use]
    pub fn headers(&self) -> Headers<'a> {
        self.span.view(self.payload, self.timestamp_type).headers
    }

    /// The key, sharing the frame's memory.
    #[must_use]
    pub fn key_bytes(&self) -> Option<Bytes> {
        self.span.key_bytes(self.payload)
    }

    /// The value, sharing the frame's memory.
    #[must_use]
    pub fn value_bytes(&self) -> Option<Bytes> {
        self.span.value_bytes(self.payload)
    }
}

/// Leaves out key and value.
impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("offset", &self.offset)
            .field("timestamp", &self.timestamp)
            .field("delivery_count", &self.delivery_count)
            .finish_non_exhaustive()
    }
}

/// Where a record lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) span: RecordSpan,
    pub(crate) chunk: u32,
    pub(crate) delivery_count: i16,
}

/// The records of one producer batch, decompressed.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    pub(crate) payload: Bytes,
    pub(crate) timestamp_type: TimestampType,
}

/// All records of one acquisition.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) id: AcquisitionId,
    pub(crate) topic: Arc<str>,
    pub(crate) topic_id: TopicId,
    pub(crate) partition: i32,
    pub(crate) chunks: Vec<Chunk>,
    /// Ascending by offset.
    pub(crate) entries: Vec<Entry>,
}

/// The records of a [`ShareBatch`], shareable and independent of their settling. A cheap handle.
#[derive(Debug, Clone)]
pub struct BatchData {
    records: Arc<Records>,
    range: Range<usize>,
}

impl BatchData {
    /// Topic name.
    #[must_use]
    pub fn topic(&self) -> &Arc<str> {
        &self.records.topic
    }

    /// Topic id: a topic that was deleted and made again has another.
    #[must_use]
    pub fn topic_id(&self) -> TopicId {
        self.records.topic_id
    }

    /// Partition index.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.records.partition
    }

    /// Number of records; at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    fn entries(&self) -> &[Entry] {
        self.records
            .entries
            .get(self.range.clone())
            .unwrap_or_default()
    }

    /// Offset of the first record.
    #[must_use]
    pub fn first_offset(&self) -> i64 {
        self.entries().first().map_or(0, |entry| entry.span.offset)
    }

    /// Offset of the last record.
    #[must_use]
    pub fn last_offset(&self) -> i64 {
        self.entries().last().map_or(0, |entry| entry.span.offset)
    }

    fn view<'a>(&'a self, entry: &'a Entry) -> Option<Record<'a>> {
        let chunk = self.records.chunks.get(entry.chunk as usize)?;
        let view = entry.span.view(&chunk.payload, chunk.timestamp_type);
        Some(Record {
            offset: view.offset,
            timestamp: view.timestamp,
            timestamp_type: view.timestamp_type,
            key: view.key,
            value: view.value,
            delivery_count: entry.delivery_count,
            span: &entry.span,
            payload: &chunk.payload,
        })
    }

    /// The record of an index.
    #[must_use]
    pub fn record(&self, index: usize) -> Option<Record<'_>> {
        self.view(self.entries().get(index)?)
    }

    /// The records, ascending by offset. Offsets may have holes.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        // INVARIANT: every entry's chunk exists; `decode` makes both.
        self.entries().iter().filter_map(|entry| self.view(entry))
    }

    fn index_of(&self, offset: i64) -> Option<usize> {
        self.entries()
            .binary_search_by_key(&offset, |entry| entry.span.offset)
            .ok()
    }
}

/// Acquired records of one partition, at most `max_poll_records`.
///
/// They are locked to this member until they are settled; the lock is renewed meanwhile. Records that
/// are unsettled when the batch is dropped are held for a delay that grows with their delivery count
/// (1 s, doubling, at most 60 s) and then released, so that a handler that always panics doesn't burn
/// their deliveries.
#[derive(Debug)]
#[must_use = "a batch that is dropped is released and delivered again"]
pub struct ShareBatch {
    data: BatchData,
    lock: Arc<LockState>,
    shared: Arc<Shared>,
    /// One bit per record, once one was settled alone.
    settled: Vec<u64>,
    unsettled: usize,
    /// When the application got it.
    handed_out_at: Option<Instant>,
}

impl ShareBatch {
    pub(crate) fn new(
        records: Arc<Records>,
        range: Range<usize>,
        lock: Arc<LockState>,
        shared: Arc<Shared>,
    ) -> Self {
        let unsettled = range.len();
        Self {
            data: BatchData { records, range },
            lock,
            shared,
            settled: Vec::new(),
            unsettled,
            handed_out_at: None,
        }
    }

    /// Topic name.
    #[must_use]
    pub fn topic(&self) -> &Arc<str> {
        self.data.topic()
    }

    /// Topic id.
    #[must_use]
    pub fn topic_id(&self) -> TopicId {
        self.data.topic_id()
    }

    /// Partition index.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.data.partition()
    }

    /// Number of records; at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Offset of the first record.
    #[must_use]
    pub fn first_offset(&self) -> i64 {
        self.data.first_offset()
    }

    /// Offset of the last record.
    #[must_use]
    pub fn last_offset(&self) -> i64 {
        self.data.last_offset()
    }

    /// The records, ascending by offset.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.data.records()
    }

    /// The record of an index.
    #[must_use]
    pub fn record(&self, index: usize) -> Option<Record<'_>> {
        self.data.record(index)
    }

    /// The records alone, to be handed to others while this batch keeps the right to settle them.
    #[must_use]
    pub fn data(&self) -> BatchData {
        self.data.clone()
    }

    pub(crate) const fn records_alone(&self) -> &BatchData {
        &self.data
    }

    /// The lock.
    #[must_use]
    pub fn lock(&self) -> LockView {
        LockView {
            state: Arc::clone(&self.lock),
            shared: Arc::clone(&self.shared),
            first_offset: self.first_offset(),
            last_offset: self.last_offset(),
        }
    }

    /// Records that aren't settled yet.
    #[must_use]
    pub const fn unsettled(&self) -> usize {
        self.unsettled
    }

    /// Accepts every record that isn't settled yet.
    pub fn accept(self) {
        self.settle_rest(Acknowledgement::Accept);
    }

    /// Releases every record that isn't settled yet, at once. See [`Acknowledge::Release`].
    pub fn release(self) {
        self.settle_rest(Acknowledgement::Release);
    }

    /// Releases every record that isn't settled yet, after a delay that grows with their delivery count (1 s,
    /// doubling, at most 60 s); their lock is renewed until then. What dropping the batch does, but said: no
    /// warning is logged. On their last allowed delivery they are settled as
    /// [`ShareObserver::last_delivery`](crate::ShareObserver::last_delivery) says.
    pub fn release_later(mut self) {
        if self.unsettled > 0 {
            self.unsettled = 0;
            self.send_drop(0);
        }
    }

    /// Rejects every record that isn't settled yet.
    pub fn reject(self) {
        self.settle_rest(Acknowledgement::Reject);
    }

    /// Whether a record of it is no longer ours.
    pub(crate) fn is_lost(&self) -> bool {
        let lost = self.lock.lost_in(self.first_offset(), self.last_offset());
        lost.is_some()
    }

    /// What is to become of its first records, `most` at the longest, when the application asks for them.
    pub(crate) fn hand_out(&self, now: Instant, most: usize) -> HandOut {
        let group_renews = self.shared.renewable.load(Ordering::Relaxed);
        let time = self.lock.time_left(now, group_renews);
        let is_first_delivery = || {
            let mut entries = self.data.entries().iter();
            entries.all(|entry| entry.delivery_count <= 1)
        };
        let pace = self.shared.pace.per_record();
        hand_out(time, self.len().min(most), is_first_delivery, pace)
    }

    /// Has its lock renewed now, not when it is due.
    pub(crate) fn ask_renewal(&self) {
        if self.lock.ask_renewal() {
            let id = self.data.records.id;
            self.shared.command(Command::Renew { id });
        }
    }

    /// Its first records, at least one, from now on with the application, and the others. None of them
    /// is settled.
    pub(crate) fn split(mut self, now: Instant, records: usize) -> (Self, Option<Self>) {
        let Range { start, end } = self.data.range;
        if start + records >= end {
            self.handed_out_at = Some(now);
            return (self, None);
        }
        let (data, lock) = (Arc::clone(&self.data.records), Arc::clone(&self.lock));
        let first = start..start + records;
        let mut first = Self::new(data, first, lock, Arc::clone(&self.shared));
        first.handed_out_at = Some(now);
        self.data.range.start += records;
        self.unsettled -= records;
        (first, Some(self))
    }

    /// The application has settled all.
    fn all_settled(&self) {
        if let Some(at) = self.handed_out_at {
            self.shared.pace.measured(at.elapsed(), self.len());
        }
    }

    /// The only record's acknowledgement, and what becomes of it.
    pub(crate) fn confirm(mut self, how: Acknowledgement) -> Confirmation {
        let (reply, answer) = oneshot::channel();
        self.unsettled = 0;
        self.all_settled();
        let offset = self.first_offset();
        self.send((offset, offset), how, Some(reply));
        Confirmation::new(answer, self.lock())
    }

    /// No application sees it.
    pub(crate) fn give_back(mut self, why: ReleaseReason) {
        self.unsettled = 0;
        self.shared.command(Command::GiveBack {
            id: self.data.records.id,
            first: self.first_offset(),
            last: self.last_offset(),
            why,
        });
    }

    fn settle_rest(mut self, how: Acknowledgement) {
        if self.unsettled > 0 {
            self.unsettled = 0;
            self.all_settled();
            self.send((self.first_offset(), self.last_offset()), how, None);
        }
    }

    /// Settles the record at an offset. While records are settled in a loop over them, borrow them from
    /// [`data`](Self::data), a cheap handle of its own:
    ///
    /// ```no_run
    /// # use sharegroup_consumer::{Acknowledge, SettleError, ShareBatch};
    /// # fn is_good(_: Option<&[u8]>) -> bool { true }
    /// # fn run(mut batch: ShareBatch) -> Result<(), SettleError> {
    /// for record in batch.data().records() {
    ///     if !is_good(record.value) {
    ///         batch.settle(record.offset, Acknowledge::Reject)?;
    ///     }
    /// }
    /// batch.accept(); // the others
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`SettleError::NotInBatch`], [`SettleError::AlreadySettled`].
    pub fn settle(&mut self, offset: i64, how: Acknowledge) -> Result<(), SettleError> {
        let Some(index) = self.data.index_of(offset) else {
            return Err(SettleError::NotInBatch {
                offset,
                topic: Arc::clone(self.topic()),
                partition: self.partition(),
                first_offset: self.first_offset(),
                last_offset: self.last_offset(),
            });
        };
        self.settle_indexes(index..index + 1, how)
    }

    /// Settles the records of a range of indexes.
    ///
    /// # Errors
    /// [`SettleError::OutOfRange`], [`SettleError::AlreadySettled`]; nothing is settled then.
    pub fn settle_indexes(
        &mut self,
        indexes: Range<usize>,
        how: Acknowledge,
    ) -> Result<(), SettleError> {
        let len = self.len();
        if indexes.is_empty() {
            return Ok(());
        }
        let (Some(first), Some(last)) = (self.record(indexes.start), self.record(indexes.end - 1))
        else {
            return Err(SettleError::OutOfRange {
                index: indexes.end - 1,
                len,
            });
        };
        let (first, last) = (first.offset, last.offset);
        if let Some(index) = indexes.clone().find(|index| self.is_settled(*index)) {
            let offset = self.record(index).map_or(first, |record| record.offset);
            return Err(SettleError::AlreadySettled { offset });
        }
        let Some(how) = how.terminal() else {
            self.shared.command(Command::Renew {
                id: self.data.records.id,
            });
            return Ok(());
        };
        self.settled.resize(len.div_ceil(64), 0);
        for index in indexes.clone() {
            if let Some(word) = self.settled.get_mut(index / 64) {
                *word |= 1 << (index % 64);
            }
        }
        self.unsettled -= indexes.len();
        if self.unsettled == 0 {
            self.all_settled();
        }
        self.send((first, last), how, None);
        Ok(())
    }

    fn is_settled(&self, index: usize) -> bool {
        self.settled
            .get(index / 64)
            .is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    /// The range may cover offsets that are not the batch's: the core settles only what this
    /// acquisition still holds, and every offset without a record was settled as a gap before.
    fn send(&self, (first, last): (i64, i64), how: Acknowledgement, reply: Reply) {
        let settling = Settling {
            id: self.data.records.id,
            first,
            last,
            how,
        };
        self.shared
            .settle(self.topic(), &self.lock, settling, reply);
    }

    fn send_drop(&self, forgotten: u64) {
        self.shared.command(Command::Drop {
            id: self.data.records.id,
            first: self.first_offset(),
            last: self.last_offset(),
            forgotten,
        });
    }
}

impl Drop for ShareBatch {
    fn drop(&mut self) {
        if self.unsettled > 0 {
            let forgotten = if self.is_lost() { 0 } else { self.unsettled };
            self.send_drop(forgotten as u64);
        }
    }
}

/// Acquired records that can't be read, neither as they came with the acquisition nor when their offsets were
/// read again with a plain Fetch; or that could not be read again.
///
/// It is settled like a delivery; dropped unsettled it is released after the delay of a dropped
/// [`ShareBatch`]. Its neighbours are delivered without it.
#[derive(Debug)]
pub struct CorruptBatch {
    id: AcquisitionId,
    topic: Arc<str>,
    partition: i32,
    lock: LockView,
    delivery_count: i16,
    error: BatchError,
    settled: bool,
}

impl CorruptBatch {
    /// What `lock` covers of an acquisition.
    pub(crate) fn new(acquired: &Acquired, lock: LockView, error: BatchError) -> Self {
        add(&lock.shared.counters.corrupt_batches, 1);
        let covered = acquired.ranges.iter().filter(|range| {
            range.first_offset <= lock.last_offset && lock.first_offset <= range.last_offset
        });
        Self {
            id: acquired.id,
            topic: Arc::clone(&acquired.topic),
            partition: acquired.partition.partition,
            delivery_count: covered.map(|range| range.delivery_count).max().unwrap_or(1),
            lock,
            error,
            settled: false,
        }
    }

    /// Topic name.
    #[must_use]
    pub fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// Partition index.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.partition
    }

    /// First acquired offset that can't be read.
    #[must_use]
    pub fn first_offset(&self) -> i64 {
        self.lock.first_offset
    }

    /// Last acquired offset that can't be read.
    #[must_use]
    pub fn last_offset(&self) -> i64 {
        self.lock.last_offset
    }

    /// Highest delivery count of these offsets, this delivery included; at least 1.
    #[must_use]
    pub const fn delivery_count(&self) -> i16 {
        self.delivery_count
    }

    /// The lock.
    #[must_use]
    pub fn lock(&self) -> LockView {
        self.lock.clone()
    }

    /// What is wrong, with the raw bytes of the last read.
    #[must_use]
    pub fn error(&self) -> &BatchError {
        &self.error
    }

    /// Accepts the records, for who has kept their bytes somewhere else.
    pub fn accept(mut self) {
        self.settle(Acknowledgement::Accept);
    }

    /// Rejects the records: archived by the broker, or written to the group's dead-letter topic.
    pub fn reject(mut self) {
        self.settle(Acknowledgement::Reject);
    }

    /// Releases the records at once.
    pub fn release(mut self) {
        self.settle(Acknowledgement::Release);
    }

    /// No application sees it.
    pub(crate) fn give_back(mut self, why: ReleaseReason) {
        self.settled = true;
        self.lock.shared.command(Command::GiveBack {
            id: self.id,
            first: self.lock.first_offset,
            last: self.lock.last_offset,
            why,
        });
    }

    fn settle(&mut self, how: Acknowledgement) {
        self.settled = true;
        let settling = Settling {
            id: self.id,
            first: self.lock.first_offset,
            last: self.lock.last_offset,
            how,
        };
        let lock = &self.lock;
        lock.shared.settle(&self.topic, &lock.state, settling, None);
    }
}

impl fmt::Display for CorruptBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "offsets {}-{} of {}-{} can't be read: {}",
            self.first_offset(),
            self.last_offset(),
            self.topic,
            self.partition,
            self.error
        )
    }
}

impl std::error::Error for CorruptBatch {}

impl Drop for CorruptBatch {
    fn drop(&mut self) {
        if !self.settled {
            let (first, last) = (self.first_offset(), self.last_offset());
            let is_lost = self.lock.lost().is_some();
            self.lock.shared.command(Command::Drop {
                id: self.id,
                first,
                last,
                forgotten: if is_lost { 0 } else { offsets(first, last) },
            });
        }
    }
}
