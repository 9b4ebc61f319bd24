//! One record batch.

use std::fmt;
use std::sync::OnceLock;

use bytes::Bytes;

use super::iter::{RecordIter, SpanIter};
use super::view::RecordSpan;
use super::{
    BATCH_HEADER_BYTES, BatchError, BatchErrorKind, CRC_START, MAGIC_V2, RECORD_BYTES_MIN,
};
use crate::compress::{Compression, DecompressLimits, decompress};

/// Whose clock a timestamp is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TimestampType {
    /// The producer's, when it made the record.
    #[default]
    CreateTime,
    /// The broker's, when it wrote the batch.
    LogAppendTime,
}

impl TimestampType {
    /// Kafka's name: `CreateTime` or `LogAppendTime`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CreateTime => "CreateTime",
            Self::LogAppendTime => "LogAppendTime",
        }
    }
}

/// The fields before the records, as they lie in the batch.
#[derive(Debug, Clone, Copy)]
struct Fields {
    base_offset: i64,
    leader_epoch: i32,
    crc: u32,
    attributes: i16,
    last_offset_delta: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    record_count: i32,
}

impl Fields {
    fn read(mut bytes: &[u8]) -> Option<Self> {
        fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
            let (head, tail) = bytes.split_first_chunk::<N>()?;
            *bytes = tail;
            Some(*head)
        }
        let rest = &mut bytes;
        let base_offset = i64::from_be_bytes(take(rest)?);
        let _length = i32::from_be_bytes(take(rest)?);
        let leader_epoch = i32::from_be_bytes(take(rest)?);
        let _magic = i8::from_be_bytes(take(rest)?);
        Some(Self {
            base_offset,
            leader_epoch,
            crc: u32::from_be_bytes(take(rest)?),
            attributes: i16::from_be_bytes(take(rest)?),
            last_offset_delta: i32::from_be_bytes(take(rest)?),
            base_timestamp: i64::from_be_bytes(take(rest)?),
            max_timestamp: i64::from_be_bytes(take(rest)?),
            producer_id: i64::from_be_bytes(take(rest)?),
            producer_epoch: i16::from_be_bytes(take(rest)?),
            base_sequence: i32::from_be_bytes(take(rest)?),
            record_count: i32::from_be_bytes(take(rest)?),
        })
    }
}

/// One batch whose CRC is right and whose header makes sense.
///
/// It shares the memory of the frame it came from. Its records are decompressed at most once, when
/// they are first asked for, and kept until the batch is dropped.
#[derive(Clone)]
pub struct RecordBatch {
    bytes: Bytes,
    fields: Fields,
    compression: Compression,
    last_offset: i64,
    payload: OnceLock<Bytes>,
}

impl RecordBatch {
    /// Reads exactly one batch.
    ///
    /// # Errors
    /// Every kind but [`Cut`](BatchErrorKind::Cut), [`Decompress`](BatchErrorKind::Decompress) and
    /// [`Record`](BatchErrorKind::Record); `Length` when `bytes` is not exactly one batch.
    pub fn read(bytes: Bytes) -> Result<Self, BatchError> {
        match Self::check(&bytes) {
            Ok((fields, compression, last_offset)) => Ok(Self {
                bytes,
                fields,
                compression,
                last_offset,
                payload: OnceLock::new(),
            }),
            Err((base_offset, last_offset, kind)) => Err(BatchError {
                base_offset,
                last_offset,
                bytes,
                kind,
            }),
        }
    }

    #[allow(clippy::type_complexity)]
    fn check(
        bytes: &[u8],
    ) -> Result<(Fields, Compression, i64), (i64, Option<i64>, BatchErrorKind)> {
        let prefix = Prefix::read(bytes);
        let base_offset = prefix.map_or(-1, |prefix| prefix.base_offset);
        let length = prefix.map_or(0, |prefix| prefix.length);
        let unknown = |kind| Err((base_offset, None, kind));
        if let Some(prefix) = prefix
            && prefix.magic != MAGIC_V2
        {
            let magic = prefix.magic;
            return unknown(BatchErrorKind::Magic { magic });
        }
        let whole = prefix.is_some_and(|prefix| prefix.size_bytes() == Some(bytes.len()));
        let (Some(fields), true) = (Fields::read(bytes), whole) else {
            return unknown(BatchErrorKind::Length { length });
        };
        let computed = crc32c::crc32c(bytes.get(CRC_START..).unwrap_or_default());
        if computed != fields.crc {
            return unknown(BatchErrorKind::Crc {
                stored: fields.crc,
                computed,
            });
        }
        // From here on the batch is as its writer made it.
        let delta = fields.last_offset_delta;
        let last_offset = base_offset
            .checked_add(i64::from(delta))
            .filter(|_| base_offset >= 0 && delta >= 0);
        let Some(last_offset) = last_offset else {
            return unknown(BatchErrorKind::OffsetRange {
                last_offset_delta: delta,
            });
        };
        let known = |kind| Err((base_offset, Some(last_offset), kind));
        // Compaction takes records away, nothing adds any.
        let count = fields.record_count;
        if count < 0 || i64::from(count) > i64::from(delta) + 1 {
            return known(BatchErrorKind::RecordCount { count });
        }
        let id = fields.attributes.to_be_bytes()[1] & 0b111;
        match Compression::from_id(id) {
            Some(compression) => Ok((fields, compression, last_offset)),
            None => known(BatchErrorKind::Compression { id }),
        }
    }

    /// First offset of the batch, also when compaction has removed the record there.
    #[must_use]
    pub const fn base_offset(&self) -> i64 {
        self.fields.base_offset
    }

    /// Last offset of the batch, inclusive, also when compaction has removed the record there.
    #[must_use]
    pub const fn last_offset(&self) -> i64 {
        self.last_offset
    }

    /// [`last_offset`](Self::last_offset) − [`base_offset`](Self::base_offset).
    #[must_use]
    pub const fn last_offset_delta(&self) -> i32 {
        self.fields.last_offset_delta
    }

    /// Epoch of the leader that wrote the batch. Not covered by the CRC.
    #[must_use]
    pub const fn partition_leader_epoch(&self) -> i32 {
        self.fields.leader_epoch
    }

    /// The CRC-32C, which was right.
    #[must_use]
    pub const fn crc(&self) -> u32 {
        self.fields.crc
    }

    /// Codec of the records.
    #[must_use]
    pub const fn compression(&self) -> Compression {
        self.compression
    }

    /// Whose clock the records' timestamps are from.
    #[must_use]
    pub const fn timestamp_type(&self) -> TimestampType {
        if self.has_attribute(3) {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    /// Whether the batch belongs to a transaction.
    #[must_use]
    pub const fn is_transactional(&self) -> bool {
        self.has_attribute(4)
    }

    /// Whether it is a control batch (a transaction marker): its record is never a user's, its
    /// offset is acknowledged as a gap.
    #[must_use]
    pub const fn is_control(&self) -> bool {
        self.has_attribute(5)
    }

    /// When compaction may remove the batch's tombstones, in milliseconds since 1970.
    #[must_use]
    pub const fn delete_horizon_ms(&self) -> Option<i64> {
        if self.has_attribute(6) {
            Some(self.fields.base_timestamp)
        } else {
            None
        }
    }

    const fn has_attribute(&self, bit: u32) -> bool {
        self.fields.attributes >> bit & 1 == 1
    }

    /// The timestamp that the records' deltas count from, in milliseconds.
    #[must_use]
    pub const fn base_timestamp(&self) -> i64 {
        self.fields.base_timestamp
    }

    /// Largest timestamp of the batch in milliseconds; with
    /// [`LogAppendTime`](TimestampType::LogAppendTime) that of every record.
    #[must_use]
    pub const fn max_timestamp(&self) -> i64 {
        self.fields.max_timestamp
    }

    /// Id of the idempotent producer; −1 is none.
    #[must_use]
    pub const fn producer_id(&self) -> i64 {
        self.fields.producer_id
    }

    /// Epoch of the idempotent producer; −1 is none.
    #[must_use]
    pub const fn producer_epoch(&self) -> i16 {
        self.fields.producer_epoch
    }

    /// The producer's sequence number of the first record; −1 is none.
    #[must_use]
    pub const fn base_sequence(&self) -> i32 {
        self.fields.base_sequence
    }

    /// How many records the header promises, never negative. 0 is legal after compaction.
    #[must_use]
    pub const fn record_count(&self) -> i32 {
        self.fields.record_count
    }

    /// The whole batch as it came, header included.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Size of the whole batch as it came, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The records' bytes, decompressed: a slice of the frame when the codec is none.
    ///
    /// Decompressed at the first call only; a later call with other limits gives the same bytes.
    ///
    /// # Errors
    /// [`Decompress`](BatchErrorKind::Decompress), and [`RecordCount`](BatchErrorKind::RecordCount)
    /// when the bytes are too few for the records that the header promises.
    pub fn payload(&self, limits: &DecompressLimits) -> Result<Bytes, BatchError> {
        self.borrowed_payload(limits).cloned()
    }

    fn borrowed_payload(&self, limits: &DecompressLimits) -> Result<&Bytes, BatchError> {
        if let Some(payload) = self.payload.get() {
            return Ok(payload);
        }
        let raw = self.bytes.slice(BATCH_HEADER_BYTES.min(self.bytes.len())..);
        let payload = match self.compression {
            Compression::None => raw,
            // What compaction has emptied has no stream either.
            _ if self.record_count() == 0 && raw.is_empty() => raw,
            codec => decompress(codec, &raw, limits).map_err(|error| self.error(error))?,
        };
        let count = self.record_count();
        let fits = usize::try_from(count)
            .is_ok_and(|count| count.saturating_mul(RECORD_BYTES_MIN) <= payload.len());
        if !fits {
            return Err(self.error(BatchErrorKind::RecordCount { count }));
        }
        Ok(self.payload.get_or_init(|| payload))
    }

    /// The records, borrowed, in their order and without an allocation per record.
    ///
    /// A consumer that must not hand out a part of a malformed batch goes through all of them
    /// first, or uses [`index_into`](Self::index_into).
    ///
    /// # Errors
    /// As [`payload`](Self::payload); each record may fail on its own with a
    /// [`RecordError`](super::RecordError).
    pub fn records(&self, limits: &DecompressLimits) -> Result<RecordIter<'_>, BatchError> {
        let spans = self.spans(limits)?;
        Ok(RecordIter::new(spans, self.timestamp_type()))
    }

    /// The positions of the records in [`payload`](Self::payload).
    ///
    /// # Errors
    /// As [`records`](Self::records).
    pub fn spans(&self, limits: &DecompressLimits) -> Result<SpanIter<'_>, BatchError> {
        let payload = self.borrowed_payload(limits)?;
        Ok(SpanIter::new(self, payload))
    }

    /// Checks every record and appends the positions of those that are `wanted` (by offset) to
    /// `index`; returns the payload that they refer to.
    ///
    /// # Errors
    /// As [`payload`](Self::payload), and [`Record`](BatchErrorKind::Record) when any record of the
    /// batch is malformed, wanted or not: `index` is then as it was.
    pub fn index_into(
        &self,
        limits: &DecompressLimits,
        index: &mut Vec<RecordSpan>,
        mut wanted: impl FnMut(i64) -> bool,
    ) -> Result<Bytes, BatchError> {
        let payload = self.borrowed_payload(limits)?;
        let start = index.len();
        for span in SpanIter::new(self, payload) {
            match span {
                Ok(span) if wanted(span.offset) => index.push(span),
                Ok(_) => {}
                Err(error) => {
                    index.truncate(start);
                    return Err(self.error(error));
                }
            }
        }
        Ok(payload.clone())
    }

    /// An error of this batch, with its offsets and its bytes: for records that turned out to be
    /// malformed after [`records`](Self::records).
    #[must_use]
    pub fn error(&self, kind: impl Into<BatchErrorKind>) -> BatchError {
        BatchError {
            base_offset: self.base_offset(),
            last_offset: Some(self.last_offset),
            bytes: self.bytes.clone(),
            kind: kind.into(),
        }
    }
}

/// Leaves out the payload.
impl fmt::Debug for RecordBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordBatch")
            .field("fields", &self.fields)
            .field("size_bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

/// What every format version has in the same place: base offset, length, magic.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prefix {
    pub(super) base_offset: i64,
    pub(super) length: i32,
    pub(super) magic: i8,
}

impl Prefix {
    /// `None` with fewer bytes than these fields have.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (base_offset, rest) = bytes.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let magic = *rest.get(4)?;
        Some(Self {
            base_offset: i64::from_be_bytes(*base_offset),
            length: i32::from_be_bytes(*length),
            magic: i8::from_be_bytes([magic]),
        })
    }

    /// Bytes of the whole batch; `None` when the length is impossible for its version.
    pub(super) fn size_bytes(&self) -> Option<usize> {
        // Length of an empty batch of magic 2, and of an empty message of magic 0 and 1.
        let length_min = if self.magic == MAGIC_V2 { 49 } else { 14 };
        let length = usize::try_from(self.length).ok()?;
        (length >= length_min).then_some(length + super::LENGTH_PREFIX_BYTES)
    }
}
