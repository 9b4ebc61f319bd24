//! Record batches, format version (magic) 2: a reader without a copy or an allocation per record,
//! and a writer.
//!
//! A fetch response carries, per partition, whole batches one after the other; the last one may be
//! cut off. [`RecordBatches`] walks over them and checks each CRC before it believes anything
//! inside. One bad batch is one [`BatchError`] with its raw bytes; the batches behind it are still
//! read.
//!
//! ```
//! use sharegroup_wire::compress::{Compression, DecompressLimits};
//! use sharegroup_wire::record::{RecordBatchBuilder, RecordBatches};
//!
//! let mut builder = RecordBatchBuilder::new(Compression::Lz4);
//! builder.push(1_700_000_000_000, Some(b"k"), Some(b"v"), [])?;
//! let bytes = builder.build(41)?;
//!
//! for batch in RecordBatches::new(bytes) {
//!     let batch = batch?;
//!     for record in batch.records(&DecompressLimits::default())? {
//!         let record = record?;
//!         assert_eq!((record.offset, record.value), (41, Some(&b"v"[..])));
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Source: the format is Kafka's `DefaultRecordBatch` and
//! `DefaultRecord` (message format v2, KIP-98).

mod batch;
mod batches;
mod builder;
mod cursor;
mod error;
mod iter;
mod view;

pub use batch::{RecordBatch, TimestampType};
pub use batches::RecordBatches;
pub use builder::RecordBatchBuilder;
pub use error::{BatchError, BatchErrorKind, BuildError, RecordError, RecordErrorKind};
pub use iter::{RecordIter, SpanIter};
pub use view::{Header, Headers, RecordSpan, RecordView};

/// Bytes of a batch before its first record.
pub const BATCH_HEADER_BYTES: usize = 61;

/// The only record batch format that 4.x brokers store.
pub const MAGIC_V2: i8 = 2;

/// Bytes before the length field's count begins: base offset and the length itself.
const LENGTH_PREFIX_BYTES: usize = 12;
/// Where the CRC's coverage begins: the attributes.
const CRC_START: usize = 21;
/// Bytes of the smallest record: length, attributes, two deltas, two lengths, header count.
const RECORD_BYTES_MIN: usize = 7;

#[cfg(test)]
mod tests;
