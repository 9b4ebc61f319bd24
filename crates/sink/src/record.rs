//! What a task is given: batches of records of one partition.
//!
//! Keys, values and headers are slices of the fetched buffer; nothing is copied on the way to the
//! task. What converters made of them is beside the bytes, made once however often a record is put;
//! where no record can fail in them it is made only for a task that asks. A batch also knows which of
//! its records are still to be written, so that a retry hands over the rest only.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sharegroup_consumer::{BatchData, Record, TimestampType};
use sharegroup_wire::TopicId;
use sharegroup_wire::record::Headers;

use crate::convert::{Chain, ConvertedRecord, StageError};

/// One record as a task sees it: its bytes, what converters made of them, and where it came from.
#[derive(Clone, Copy, Debug)]
pub struct SinkRecord<'a> {
    /// Topic the record was read from.
    pub topic: &'a Arc<str>,
    /// That topic's id.
    pub topic_id: TopicId,
    /// Partition it was read from.
    pub partition: i32,
    /// Its offset in that partition.
    pub offset: i64,
    /// Its timestamp, in milliseconds since 1970-01-01 UTC; -1 if it has none.
    pub timestamp: i64,
    /// The key's bytes, or `None` for a null key.
    pub key: Option<&'a [u8]>,
    /// The value's bytes, or `None` for a null value (a tombstone).
    pub value: Option<&'a [u8]>,
    /// How often the group has handed out this record, this time included; at least 1.
    pub delivery_count: i16,
    raw: Raw<'a>,
    data: DataOf<'a>,
}

#[derive(Clone, Copy, Debug)]
enum DataOf<'a> {
    OnDemand(&'a Chain),
    Ready(&'a OnceLock<ConvertedRecord>),
}

#[derive(Clone, Copy, Debug)]
enum Raw<'a> {
    Memory(&'a OwnedRecord),
    Fetched(Record<'a>),
}

impl<'a> SinkRecord<'a> {
    /// The record as its converters see it. Where these take all bytes it is made by this call, and costs
    /// an allocation for each text and header.
    #[must_use]
    pub fn data(&self) -> Cow<'a, ConvertedRecord> {
        let data = match self.data {
            DataOf::Ready(data) => return self.ready(data),
            DataOf::OnDemand(chain) => chain.run(self),
        };
        // INVARIANT: such a chain neither fails nor drops.
        debug_assert!(matches!(data, Ok(Some(_))));
        let data = data.ok().flatten();
        Cow::Owned(data.unwrap_or_else(|| ConvertedRecord::of_bytes(self)))
    }

    /// What is put has been converted; of a record that isn't put there are the bytes.
    fn ready(&self, data: &'a OnceLock<ConvertedRecord>) -> Cow<'a, ConvertedRecord> {
        data.get().map_or_else(
            || Cow::Owned(ConvertedRecord::of_bytes(self)),
            Cow::Borrowed,
        )
    }

    /// Whether key and value are no more than their bytes, so that [`SinkRecord::data`] has nothing to
    /// add to them.
    #[must_use]
    pub const fn is_raw(&self) -> bool {
        matches!(self.data, DataOf::OnDemand(chain) if chain.is_raw())
    }

    /// The value without a copy, where its converter makes just the text of it that its bytes are. `None`:
    /// [`SinkRecord::data`] tells what it is.
    #[must_use]
    pub fn value_text(&self) -> Option<&'a str> {
        match self.data {
            DataOf::OnDemand(chain) => chain.text(self.value?),
            DataOf::Ready(_) => None,
        }
    }

    /// The headers in their order, duplicates included, as key and value. A key is UTF-8 unless its
    /// producer broke the rules; a value may be null.
    pub fn headers(&self) -> SinkHeaders<'a> {
        match self.raw {
            Raw::Memory(record) => SinkHeaders(HeadersInner::Memory(record.headers.iter())),
            Raw::Fetched(record) => SinkHeaders(HeadersInner::Fetched(record.headers())),
        }
    }

    /// Whose clock the timestamp is from: the producer's, or the broker's.
    #[must_use]
    pub const fn timestamp_type(&self) -> TimestampType {
        match &self.raw {
            Raw::Memory(_) => TimestampType::CreateTime,
            Raw::Fetched(record) => record.timestamp_type,
        }
    }

    /// The key as a shared slice of the fetched buffer, for tasks that keep it.
    #[must_use]
    pub fn key_bytes(&self) -> Option<Bytes> {
        match self.raw {
            Raw::Memory(record) => record.key.clone(),
            Raw::Fetched(record) => record.key_bytes(),
        }
    }

    /// The value as a shared slice of the fetched buffer, for tasks that keep it.
    #[must_use]
    pub fn value_bytes(&self) -> Option<Bytes> {
        match self.raw {
            Raw::Memory(record) => record.value.clone(),
            Raw::Fetched(record) => record.value_bytes(),
        }
    }
}

/// The headers of a record, in order.
#[derive(Debug)]
pub struct SinkHeaders<'a>(HeadersInner<'a>);

#[derive(Debug)]
enum HeadersInner<'a> {
    Memory(std::slice::Iter<'a, (String, Option<Bytes>)>),
    Fetched(Headers<'a>),
}

impl<'a> Iterator for SinkHeaders<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            HeadersInner::Memory(headers) => headers
                .next()
                .map(|(key, value)| (key.as_bytes(), value.as_deref())),
            HeadersInner::Fetched(headers) => {
                headers.next().map(|header| (header.key, header.value))
            }
        }
    }
}

/// A record that owns its bytes: how tests, and sources other than Kafka, make batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedRecord {
    /// Offset in the partition; ascending within a batch.
    pub offset: i64,
    /// Milliseconds since 1970-01-01 UTC.
    pub timestamp: i64,
    /// The key, or `None` for null.
    pub key: Option<Bytes>,
    /// The value, or `None` for null.
    pub value: Option<Bytes>,
    /// Headers in order.
    pub headers: Vec<(String, Option<Bytes>)>,
    /// Deliveries so far, this one included.
    pub delivery_count: i16,
}

/// Records of one partition, in ascending order of offsets, to be written by a task.
///
/// Cloning is cheap: the records themselves are shared.
#[derive(Clone, Debug)]
pub struct SinkBatch {
    records: Records,
    data: Data,
    /// Indexes of the records that belong to this batch, ascending and apart.
    selection: Arc<[Range<usize>]>,
    len: usize,
}

#[derive(Clone, Debug)]
enum Records {
    Memory(Arc<MemoryBatch>),
    Fetched(BatchData),
}

#[derive(Clone, Debug)]
enum Data {
    /// Nothing fails: records are converted for whoever asks.
    OnDemand(Arc<Chain>),
    /// By index in the fetched batch; what isn't converted yet, or failed, has none.
    Ready(Arc<[OnceLock<ConvertedRecord>]>),
}

#[derive(Debug)]
struct MemoryBatch {
    topic: Arc<str>,
    topic_id: TopicId,
    partition: i32,
    records: Vec<OwnedRecord>,
}

impl SinkBatch {
    /// A batch of records in memory. `records` must be in ascending order of offsets; they are
    /// sorted if they are not.
    #[must_use]
    pub fn from_records(
        topic: impl Into<Arc<str>>,
        topic_id: TopicId,
        partition: i32,
        mut records: Vec<OwnedRecord>,
    ) -> Self {
        records.sort_by_key(|record| record.offset);
        let len = records.len();
        Self::whole(
            Records::Memory(Arc::new(MemoryBatch {
                topic: topic.into(),
                topic_id,
                partition,
                records,
            })),
            len,
        )
    }

    /// The records of a fetched batch.
    pub(crate) fn from_fetched(data: BatchData) -> Self {
        let len = data.len();
        Self::whole(Records::Fetched(data), len)
    }

    fn whole(records: Records, len: usize) -> Self {
        Self {
            records,
            data: Data::OnDemand(Chain::raw()),
            selection: std::iter::once(0..len).collect(),
            len,
        }
    }

    /// The same batch with all of its records converted, as the task loop hands it over; for tests of
    /// sinks. Records that a transformation drops are not in it.
    ///
    /// # Errors
    /// [`StageError`] of the first record that can't be converted.
    pub fn converted(&self, chain: &Arc<Chain>) -> Result<Self, StageError> {
        let mut batch = self.select(self.selection.to_vec());
        batch.prepare(chain);
        let mut passed = Vec::with_capacity(batch.len());
        for index in batch.indexes() {
            if batch.convert(index, chain)? {
                passed.push(index..index + 1);
            }
        }
        Ok(batch.select(passed))
    }

    /// Prepares the batch for [`SinkBatch::convert`]; nothing of it is converted yet.
    pub(crate) fn prepare(&mut self, chain: &Arc<Chain>) {
        self.data = if chain.never_fails() {
            Data::OnDemand(Arc::clone(chain))
        } else {
            let count = self.selection.last().map_or(0, |last| last.end);
            Data::Ready(std::iter::repeat_with(OnceLock::new).take(count).collect())
        };
    }

    /// Takes the record at an index of the fetched batch through the chain, unless that was done before.
    /// `false` = a transformation dropped it.
    ///
    /// # Errors
    /// [`StageError`] of the stage that failed.
    pub(crate) fn convert(&self, index: usize, chain: &Chain) -> Result<bool, StageError> {
        let Data::Ready(data) = &self.data else {
            return Ok(true);
        };
        let (Some(data), Some(record)) = (data.get(index), self.record_at(index)) else {
            return Ok(true);
        };
        if data.get().is_none() {
            let Some(converted) = chain.run(&record)? else {
                return Ok(false);
            };
            data.get_or_init(|| converted);
        }
        Ok(true)
    }

    /// Topic of all records.
    #[must_use]
    pub fn topic(&self) -> &Arc<str> {
        match &self.records {
            Records::Memory(batch) => &batch.topic,
            Records::Fetched(data) => data.topic(),
        }
    }

    /// Id of that topic.
    #[must_use]
    pub fn topic_id(&self) -> TopicId {
        match &self.records {
            Records::Memory(batch) => batch.topic_id,
            Records::Fetched(data) => data.topic_id(),
        }
    }

    /// Partition of all records.
    #[must_use]
    pub fn partition(&self) -> i32 {
        match &self.records {
            Records::Memory(batch) => batch.partition,
            Records::Fetched(data) => data.partition(),
        }
    }

    /// Number of records to write.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The records to write, in ascending order of offsets.
    pub fn records(&self) -> impl Iterator<Item = SinkRecord<'_>> {
        self.indexes().filter_map(|index| self.record_at(index))
    }

    /// Offset of the first record, or `None` for an empty batch.
    #[must_use]
    pub fn first_offset(&self) -> Option<i64> {
        let index = self.selection.iter().find(|range| !range.is_empty())?.start;
        self.offset_at(index)
    }

    /// Offset of the last record, or `None` for an empty batch.
    #[must_use]
    pub fn last_offset(&self) -> Option<i64> {
        let range = self
            .selection
            .iter()
            .rev()
            .find(|range| !range.is_empty())?;
        self.offset_at(range.end.checked_sub(1)?)
    }

    /// `topic-partition` and the offsets, for messages: `orders-3 offsets 17 to 42`.
    #[must_use]
    pub fn describe(&self) -> String {
        let (topic, partition) = (self.topic(), self.partition());
        match (self.first_offset(), self.last_offset()) {
            (Some(first), Some(last)) if first == last => {
                format!("{topic}-{partition} offset {first}")
            }
            (Some(first), Some(last)) => {
                format!("{topic}-{partition} offsets {first} to {last}")
            }
            _ => format!("{topic}-{partition} without records"),
        }
    }

    /// Indexes, in the fetched batch, of the records to write.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = usize> {
        self.selection.iter().flat_map(Clone::clone)
    }

    /// The same batch with only the records at `selection` (indexes in the fetched batch,
    /// ascending and apart).
    pub(crate) fn select(&self, selection: Vec<Range<usize>>) -> Self {
        let len = selection.iter().map(ExactSizeIterator::len).sum();
        Self {
            records: self.records.clone(),
            data: self.data.clone(),
            selection: Arc::from(selection),
            len,
        }
    }

    fn offset_at(&self, index: usize) -> Option<i64> {
        self.record_at(index).map(|record| record.offset)
    }

    /// The record at an index of the fetched batch.
    pub(crate) fn record_at(&self, index: usize) -> Option<SinkRecord<'_>> {
        let converted = match &self.data {
            Data::OnDemand(chain) => DataOf::OnDemand(chain),
            Data::Ready(data) => DataOf::Ready(data.get(index)?),
        };
        match &self.records {
            Records::Memory(batch) => batch.records.get(index).map(|record| SinkRecord {
                topic: &batch.topic,
                topic_id: batch.topic_id,
                partition: batch.partition,
                offset: record.offset,
                timestamp: record.timestamp,
                key: record.key.as_deref(),
                value: record.value.as_deref(),
                delivery_count: record.delivery_count,
                raw: Raw::Memory(record),
                data: converted,
            }),
            Records::Fetched(data) => data.record(index).map(|record| SinkRecord {
                topic: data.topic(),
                topic_id: data.topic_id(),
                partition: data.partition(),
                offset: record.offset,
                timestamp: record.timestamp,
                key: record.key,
                value: record.value,
                delivery_count: record.delivery_count,
                raw: Raw::Fetched(record),
                data: converted,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(count: i64) -> SinkBatch {
        let records = (0..count)
            .map(|offset| OwnedRecord {
                offset,
                value: Some(Bytes::from(format!("v{offset}"))),
                delivery_count: 1,
                ..OwnedRecord::default()
            })
            .collect();
        SinkBatch::from_records("orders", TopicId::ZERO, 3, records)
    }

    #[test]
    fn a_selection_hands_over_the_rest_only() {
        let rest = batch(10).select(vec![0..2, 7..8]);
        let offsets: Vec<i64> = rest.records().map(|record| record.offset).collect();
        assert_eq!(offsets, [0, 1, 7]);
        assert_eq!(rest.len(), 3);
        assert_eq!(rest.first_offset(), Some(0));
        assert_eq!(rest.last_offset(), Some(7));
        assert_eq!(rest.describe(), "orders-3 offsets 0 to 7");
    }

    #[test]
    fn an_empty_selection_has_no_offsets() {
        let rest = batch(3).select(Vec::new());
        assert!(rest.is_empty());
        assert_eq!(rest.first_offset(), None);
        assert_eq!(rest.describe(), "orders-3 without records");
    }
}
