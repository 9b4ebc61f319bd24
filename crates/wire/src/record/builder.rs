//! Writing one record batch.

use bytes::{BufMut, Bytes};

use super::{
    BATCH_HEADER_BYTES, BuildError, CRC_START, LENGTH_PREFIX_BYTES, MAGIC_V2, TimestampType,
};
use crate::compress::{Compression, compress};

/// Builds one record batch of magic 2.
///
/// Without compression the bytes are the same as Kafka's Java client writes.
#[derive(Debug, Clone)]
pub struct RecordBatchBuilder {
    compression: Compression,
    timestamp_type: TimestampType,
    append_time: Option<i64>,
    base_timestamp: Option<i64>,
    max_timestamp: i64,
    transactional: bool,
    control: bool,
    partition_leader_epoch: i32,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    record_count: i32,
    /// Largest delta so far, −1 before the first record.
    last_offset_delta: i32,
    /// The encoded records.
    records: Vec<u8>,
    /// The encoded headers of one record; kept for its memory.
    headers: Vec<u8>,
}

/// Attribute bits above the codec.
const LOG_APPEND_TIME: i16 = 1 << 3;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;

impl RecordBatchBuilder {
    /// Largest batch that is built, in bytes before compression: 1 GiB, far above any broker's
    /// `message.max.bytes`, so that no size in a batch overflows.
    pub const BYTES_MAX: usize = crate::limits::BATCH_BUILT_BYTES_MAX;

    /// An empty batch without a producer id.
    #[must_use]
    pub const fn new(compression: Compression) -> Self {
        Self {
            compression,
            timestamp_type: TimestampType::CreateTime,
            append_time: None,
            base_timestamp: None,
            max_timestamp: -1,
            transactional: false,
            control: false,
            partition_leader_epoch: -1,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: 0,
            last_offset_delta: -1,
            records: Vec::new(),
            headers: Vec::new(),
        }
    }

    /// Sets the idempotent producer and the sequence number of the first record.
    #[must_use]
    pub const fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        self.producer_id = id;
        self.producer_epoch = epoch;
        self.base_sequence = base_sequence;
        self
    }

    /// Marks the batch as part of a transaction.
    #[must_use]
    pub const fn transactional(mut self, transactional: bool) -> Self {
        self.transactional = transactional;
        self
    }

    /// Marks the batch as a control batch, as only brokers write it.
    #[must_use]
    pub const fn control(mut self, control: bool) -> Self {
        self.control = control;
        self
    }

    /// Sets the leader epoch, as brokers do; −1, the default, is none.
    #[must_use]
    pub const fn partition_leader_epoch(mut self, epoch: i32) -> Self {
        self.partition_leader_epoch = epoch;
        self
    }

    /// Makes the broker's time in milliseconds the timestamp of every record, as brokers do for
    /// `message.timestamp.type=LogAppendTime`.
    #[must_use]
    pub const fn log_append_time(mut self, timestamp: i64) -> Self {
        self.timestamp_type = TimestampType::LogAppendTime;
        self.append_time = Some(timestamp);
        self
    }

    /// Sets the timestamp that deltas count from, in milliseconds; the default is the first
    /// record's. After the first record it has no effect.
    #[must_use]
    pub const fn base_timestamp(mut self, timestamp: i64) -> Self {
        if self.record_count == 0 {
            self.base_timestamp = Some(timestamp);
        }
        self
    }

    /// Lets the batch reach up to this delta, as compaction leaves it when it removes the last
    /// records. Smaller values than the last record's have no effect.
    #[must_use]
    pub const fn last_offset_delta(mut self, delta: i32) -> Self {
        if delta > self.last_offset_delta {
            self.last_offset_delta = delta;
        }
        self
    }

    /// Appends a record with the next offset. `timestamp` is in milliseconds since 1970.
    ///
    /// # Errors
    /// [`BuildError::TooLarge`]: build this batch and begin another. The batch is unchanged.
    pub fn push<'h>(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl IntoIterator<Item = (&'h [u8], Option<&'h [u8]>)>,
    ) -> Result<(), BuildError> {
        let delta = self.last_offset_delta.saturating_add(1);
        self.push_at(delta, timestamp, key, value, headers)
    }

    /// Appends a record at a given delta to the base offset, which may leave a hole before it.
    ///
    /// # Errors
    /// As [`push`](Self::push), and [`BuildError::Offset`] when `delta` is not above the last one.
    pub fn push_at<'h>(
        &mut self,
        delta: i32,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl IntoIterator<Item = (&'h [u8], Option<&'h [u8]>)>,
    ) -> Result<(), BuildError> {
        if delta <= self.last_offset_delta {
            return Err(BuildError::Offset {
                delta,
                last: self.last_offset_delta,
            });
        }
        let header_count = self.encode_headers(headers)?;
        let base_timestamp = self.base_timestamp.unwrap_or(timestamp);
        let timestamp_delta = timestamp.wrapping_sub(base_timestamp);
        let size = 1
            + varlong_size(timestamp_delta)
            + varint_size(delta)
            + nullable_size(key)
            + nullable_size(value)
            + varint_size(header_count)
            + self.headers.len();
        let size_bytes = self.size_bytes().saturating_add(size).saturating_add(5);
        let Some(length) = i32::try_from(size)
            .ok()
            .filter(|_| size_bytes <= Self::BYTES_MAX)
        else {
            return Err(too_large(size_bytes));
        };
        self.records.reserve(size + 5);
        put_varint(&mut self.records, length);
        self.records.put_u8(0);
        put_varlong(&mut self.records, timestamp_delta);
        put_varint(&mut self.records, delta);
        put_nullable(&mut self.records, key);
        put_nullable(&mut self.records, value);
        put_varint(&mut self.records, header_count);
        self.records.extend_from_slice(&self.headers);

        self.max_timestamp = if self.record_count == 0 {
            timestamp
        } else {
            self.max_timestamp.max(timestamp)
        };
        self.base_timestamp = Some(base_timestamp);
        self.last_offset_delta = delta;
        // INVARIANT: at most as many records as deltas, so this can't overflow.
        self.record_count = self.record_count.saturating_add(1);
        Ok(())
    }

    fn encode_headers<'h>(
        &mut self,
        headers: impl IntoIterator<Item = (&'h [u8], Option<&'h [u8]>)>,
    ) -> Result<i32, BuildError> {
        self.headers.clear();
        let mut count = 0_i32;
        for (key, value) in headers {
            let size = self
                .headers
                .len()
                .saturating_add(nullable_size(Some(key)))
                .saturating_add(nullable_size(value));
            if size > Self::BYTES_MAX {
                return Err(too_large(size));
            }
            put_nullable(&mut self.headers, Some(key));
            put_nullable(&mut self.headers, value);
            count += 1;
        }
        Ok(count)
    }

    /// Records in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.record_count).unwrap_or(0)
    }

    /// Whether the batch has no records.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Size of the batch in bytes before compression: exact without a codec, else an upper
    /// estimate for data that compresses at all.
    #[must_use]
    pub const fn size_bytes(&self) -> usize {
        BATCH_HEADER_BYTES + self.records.len()
    }

    /// Writes the batch. Producers use base offset 0, the broker sets the real one.
    ///
    /// The same builder gives the same bytes each time.
    ///
    /// # Errors
    /// [`BuildError::BaseOffset`], and [`BuildError::Compress`] or [`BuildError::TooLarge`] when
    /// the codec fails or its output is too large.
    pub fn build(&self, base_offset: i64) -> Result<Bytes, BuildError> {
        let last_offset_delta = self.last_offset_delta.max(0);
        if base_offset < 0
            || base_offset
                .checked_add(i64::from(last_offset_delta))
                .is_none()
        {
            return Err(BuildError::BaseOffset { base_offset });
        }
        let compressed;
        let records = match self.compression {
            Compression::None => &self.records,
            codec => {
                compressed = compress(codec, &self.records)?;
                &compressed
            }
        };
        let size = BATCH_HEADER_BYTES + records.len();
        let length = i32::try_from(size - LENGTH_PREFIX_BYTES).map_err(|_| too_large(size))?;

        let mut batch = Vec::with_capacity(size);
        batch.put_i64(base_offset);
        batch.put_i32(length);
        batch.put_i32(self.partition_leader_epoch);
        batch.put_i8(MAGIC_V2);
        let crc_at = batch.len();
        batch.put_u32(0);
        batch.put_i16(self.attributes());
        batch.put_i32(last_offset_delta);
        batch.put_i64(self.base_timestamp.unwrap_or(-1));
        batch.put_i64(self.append_time.unwrap_or(self.max_timestamp));
        batch.put_i64(self.producer_id);
        batch.put_i16(self.producer_epoch);
        batch.put_i32(self.base_sequence);
        batch.put_i32(self.record_count);
        batch.extend_from_slice(records);

        if let Some((head, covered)) = batch.split_at_mut_checked(CRC_START)
            && let Some(slot) = head.get_mut(crc_at..)
        {
            slot.copy_from_slice(&crc32c::crc32c(covered).to_be_bytes());
        }
        Ok(batch.into())
    }

    fn attributes(&self) -> i16 {
        let mut attributes = i16::from(self.compression.id());
        if self.timestamp_type == TimestampType::LogAppendTime {
            attributes |= LOG_APPEND_TIME;
        }
        if self.transactional {
            attributes |= TRANSACTIONAL;
        }
        if self.control {
            attributes |= CONTROL;
        }
        attributes
    }
}

const fn too_large(size_bytes: usize) -> BuildError {
    BuildError::TooLarge {
        size_bytes,
        limit_bytes: RecordBatchBuilder::BYTES_MAX,
    }
}

const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

/// Zigzag of 32 and of 64 bits agree in their bytes.
fn put_varint(out: &mut Vec<u8>, value: i32) {
    put_varlong(out, i64::from(value));
}

fn put_varlong(out: &mut Vec<u8>, value: i64) {
    let mut rest = zigzag(value);
    while rest >= 0x80 {
        out.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    out.push(rest.to_le_bytes()[0]);
}

const fn varlong_size(value: i64) -> usize {
    let bits = 64 - (zigzag(value) | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

fn varint_size(value: i32) -> usize {
    varlong_size(i64::from(value))
}

/// Length of a field; callers keep fields below [`RecordBatchBuilder::BYTES_MAX`].
fn field_length(bytes: &[u8]) -> i32 {
    i32::try_from(bytes.len()).unwrap_or(i32::MAX)
}

fn nullable_size(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| varint_size(field_length(bytes)) + bytes.len())
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, field_length(bytes));
            out.extend_from_slice(bytes);
        }
    }
}
