//! Errors of record batches.

use std::fmt;

use bytes::Bytes;
use thiserror::Error;

use crate::compress::{CompressError, DecompressError};

/// One batch that could not be read, with what is known about it.
///
/// The offsets it covers must not be acknowledged as if they had been empty.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("record batch at offset {base_offset}: {kind}")]
pub struct BatchError {
    /// First offset of the batch. It lies outside the CRC, so it is the peer's claim.
    pub base_offset: i64,
    /// No offset above this one belongs to the batch: its own last offset when the CRC was right,
    /// else the one before the next intact batch. `None` when neither is known.
    pub last_offset: Option<i64>,
    /// The batch as it came, or all bytes up to the next intact batch when its length is not to be
    /// trusted.
    pub bytes: Bytes,
    /// What is wrong.
    pub kind: BatchErrorKind,
}

impl BatchError {
    /// Whether reading the offsets again may help: the bytes may have been damaged on the way.
    ///
    /// A batch whose CRC is right arrived as it was written, so it fails again the same way.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        match &self.kind {
            BatchErrorKind::Crc { .. }
            | BatchErrorKind::Length { .. }
            | BatchErrorKind::Cut { .. }
            | BatchErrorKind::Magic { .. } => true,
            BatchErrorKind::Decompress(error) => error.is_retriable(),
            _ => false,
        }
    }
}

/// Leaves out the payload.
impl fmt::Debug for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchError")
            .field("base_offset", &self.base_offset)
            .field("last_offset", &self.last_offset)
            .field("size_bytes", &self.bytes.len())
            .field("kind", &self.kind)
            .finish()
    }
}

/// What is wrong with a batch.
///
/// Up to [`Cut`](Self::Cut) the bytes are not those that the broker wrote; from
/// [`Compression`](Self::Compression) on the CRC is right and the writer is at fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BatchErrorKind {
    /// The stored CRC-32C is not that of the bytes.
    #[error("CRC is {computed:08x}, the batch says {stored:08x}")]
    Crc {
        /// From the batch.
        stored: u32,
        /// Over its bytes.
        computed: u32,
    },
    /// A format version that is not 2: unknown, or a message set of Kafka before 0.11.
    #[error("magic {magic} is not supported, only 2")]
    Magic {
        /// The version.
        magic: i8,
    },
    /// A length that no batch can have.
    #[error("length {length} is not possible")]
    Length {
        /// The length field.
        length: i32,
    },
    /// A batch that is cut off although records behind it were promised
    /// ([`RecordBatches::expecting`](super::RecordBatches::expecting)).
    #[error("length {length} with only {left} bytes left")]
    Cut {
        /// The length field.
        length: i32,
        /// Bytes that are there after the length field.
        left: usize,
    },
    /// A codec id that Kafka has not given out.
    #[error("unknown compression codec {id}")]
    Compression {
        /// Bits 0–2 of the attributes.
        id: u8,
    },
    /// Base offset and last offset delta that make no range of offsets.
    #[error("last offset delta {last_offset_delta} makes no range of offsets")]
    OffsetRange {
        /// The field of the header.
        last_offset_delta: i32,
    },
    /// A record count that is negative, or that can't fit in the bytes or in the offsets.
    #[error("record count {count} is not possible")]
    RecordCount {
        /// The field of the header.
        count: i32,
    },
    /// The records could not be decompressed.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    /// A record is malformed.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// A malformed record inside a batch whose CRC is right: its writer's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("record {index} is malformed at byte {position} of the records: {kind}")]
pub struct RecordError {
    /// Which record of the batch, from 0.
    pub index: u32,
    /// Where, in bytes from the start of the decompressed records.
    pub position: u32,
    /// What is wrong.
    pub kind: RecordErrorKind,
}

/// What is wrong with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordErrorKind {
    /// A field reaches beyond the record, or the record beyond the batch.
    #[error("it ends too early")]
    Truncated,
    /// A variable-length integer of more than 5 bytes (10 for 64 bits).
    #[error("a variable-length integer is too long")]
    VarintTooLong,
    /// A negative length where only −1 (null) is legal.
    #[error("a length is {length}")]
    NegativeLength {
        /// The length.
        length: i32,
    },
    /// A header count that is negative or can't fit in the bytes.
    #[error("header count {count} is not possible")]
    HeaderCount {
        /// The count.
        count: i32,
    },
    /// The fields are shorter than the record's length.
    #[error("{left} bytes follow its last field")]
    RecordLength {
        /// Bytes left over.
        left: u32,
    },
    /// An offset outside the batch, or not above the one before it.
    #[error("offset delta {delta} is out of order or outside the batch")]
    Offset {
        /// The delta to the base offset.
        delta: i32,
    },
    /// Bytes after the last record.
    #[error("{left} bytes follow the last record")]
    TrailingBytes {
        /// How many.
        left: u32,
    },
}

/// Why a record can't be added to a batch, or a batch not be built.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The batch would be larger than any broker takes: the caller's fault.
    #[error("batch of {size_bytes} bytes exceeds the limit of {limit_bytes} bytes")]
    TooLarge {
        /// Size with the new record, in bytes.
        size_bytes: usize,
        /// [`RecordBatchBuilder::BYTES_MAX`](super::RecordBatchBuilder::BYTES_MAX).
        limit_bytes: usize,
    },
    /// An offset delta that is not above the last one: the caller's fault.
    #[error("offset delta {delta} is not above {last}")]
    Offset {
        /// The delta given.
        delta: i32,
        /// The largest one so far.
        last: i32,
    },
    /// A base offset so high that the last offset does not fit in 64 bits: the caller's fault.
    #[error("base offset {base_offset} leaves no room for the records")]
    BaseOffset {
        /// The base offset given.
        base_offset: i64,
    },
    /// The codec failed: a bug.
    #[error(transparent)]
    Compress(#[from] CompressError),
}
