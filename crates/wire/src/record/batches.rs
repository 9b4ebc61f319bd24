//! The batches of one partition of a fetch response.

use std::iter::FusedIterator;

use bytes::{Buf, Bytes};

use super::batch::{Prefix, RecordBatch};
use super::{BATCH_HEADER_BYTES, BatchError, BatchErrorKind, CRC_START, MAGIC_V2};

/// Iterates over the batches of one partition of a fetch response.
///
/// Each item is a batch whose CRC is right, or the error of one bad batch; iteration goes on behind
/// a bad batch. Where a bad batch's length can't be trusted, the next intact batch is looked for,
/// and everything up to it belongs to the error.
///
/// The last batch of a response may be cut off; iteration ends there without an error, and
/// [`remainder`](Self::remainder) holds the bytes. **An offset at or above a cut batch's base
/// offset is not a gap**: it was not delivered. Who knows how far the broker promised records says
/// so with [`expecting`](Self::expecting).
#[derive(Debug, Clone)]
pub struct RecordBatches {
    rest: Bytes,
    /// Highest offset that was promised.
    expected: Option<i64>,
    /// No intact batch may begin below: one above the last offset of the last good batch.
    floor: i64,
    /// Bytes that may still be spent on CRCs of mere candidates.
    search_bytes: usize,
    done: bool,
}

impl RecordBatches {
    /// Batches in the records field of one partition.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self {
            search_bytes: bytes.len().saturating_mul(2),
            rest: bytes,
            expected: None,
            floor: 0,
            done: false,
        }
    }

    /// Treats a cut batch as a bad one when it begins at or below `last_offset`, the end of what
    /// the broker said it has acquired for the caller: then its length is damaged.
    #[must_use]
    pub const fn expecting(mut self, last_offset: i64) -> Self {
        self.expected = Some(last_offset);
        self
    }

    /// What is not read yet; after the end, the cut batch, or nothing.
    #[must_use]
    pub const fn remainder(&self) -> &Bytes {
        &self.rest
    }

    /// Base offset of the cut batch, when iteration has ended at one and at least its first 8
    /// bytes are there. Not covered by any CRC.
    #[must_use]
    pub fn cut_base_offset(&self) -> Option<i64> {
        let first = self.rest.first_chunk::<8>().filter(|_| self.done)?;
        Some(i64::from_be_bytes(*first))
    }

    /// The error of the batch at the start of `rest`, whose `size` bytes are all there.
    fn bad_batch(&mut self, size: usize, mut error: BatchError) -> BatchError {
        if let Some(next) = self.intact_base_offset(size) {
            self.take(size, Some(next), &mut error);
            return error;
        }
        let next = Prefix::read(self.rest.get(size..).unwrap_or_default());
        let next_size = next
            .filter(|next| (0..=MAGIC_V2).contains(&next.magic))
            .and_then(|next| next.size_bytes());
        match (self.find_intact(), next_size) {
            // Two bad ones in a row: the next one gets an error of its own.
            (Some((at, _)), Some(next_size)) if size + next_size <= at => {
                self.take(size, None, &mut error);
            }
            // The length was too large or too small.
            (Some((at, next)), _) => self.take(at, Some(next), &mut error),
            (None, Some(_)) => self.take(size, None, &mut error),
            // The last whole one.
            (None, None) if next.is_none() => self.take(size, None, &mut error),
            (None, None) => self.take(usize::MAX, None, &mut error),
        }
        error
    }

    /// The error of the batch at the start of `rest`, whose length can't be trusted: it takes
    /// everything up to the next intact batch.
    fn lost(&mut self, mut error: BatchError) -> BatchError {
        match self.find_intact() {
            Some((at, next)) => self.take(at, Some(next), &mut error),
            None => self.take(usize::MAX, None, &mut error),
        }
        error
    }

    /// Moves bytes to the error and bounds its offsets by the next batch.
    fn take(&mut self, size: usize, next_base_offset: Option<i64>, error: &mut BatchError) {
        error.bytes = self.rest.split_to(size.min(self.rest.len()));
        if error.last_offset.is_none() {
            error.last_offset = next_base_offset.map(|next| next - 1);
        }
    }

    /// Position and base offset of the next intact batch behind the start of `rest`.
    fn find_intact(&mut self) -> Option<(usize, i64)> {
        let last = self.rest.len().saturating_sub(BATCH_HEADER_BYTES);
        (1..=last).find_map(|at| {
            let next = self.intact_base_offset(at)?;
            self.is_followed(at).then_some((at, next))
        })
    }

    /// Whether the batch at `at` is followed by the end or by what looks like a batch, whole or cut
    /// off: a batch that lies inside a record of the damaged one is told apart by this.
    fn is_followed(&self, at: usize) -> bool {
        let rest = self.rest.get(at..).unwrap_or_default();
        let size = Prefix::read(rest).and_then(|prefix| prefix.size_bytes());
        let next = size.and_then(|size| rest.get(size..)).unwrap_or_default();
        match Prefix::read(next) {
            Some(prefix) => self.is_plausible(&prefix),
            None => next.is_empty(),
        }
    }

    fn is_plausible(&self, prefix: &Prefix) -> bool {
        prefix.magic == MAGIC_V2
            && prefix.size_bytes().is_some()
            && prefix.base_offset >= self.floor
    }

    /// Base offset of the batch at `at` when there is a whole one with the right CRC.
    fn intact_base_offset(&mut self, at: usize) -> Option<i64> {
        let bytes = self.rest.get(at..)?;
        // Cheapest first: this is tried at every byte behind a damaged batch.
        let prefix = Prefix::read(bytes)?;
        if !self.is_plausible(&prefix) {
            return None;
        }
        let batch = bytes.get(..prefix.size_bytes()?)?;
        let stored = batch.get(CRC_START - 4..)?.first_chunk::<4>()?;
        let covered = batch.get(CRC_START..)?;
        // A hostile peer could make every byte look like the start of a large batch.
        self.search_bytes = self.search_bytes.checked_sub(covered.len())?;
        (crc32c::crc32c(covered) == u32::from_be_bytes(*stored)).then_some(prefix.base_offset)
    }

    /// Ends at a cut batch, unless records behind it were promised.
    fn cut(&mut self, prefix: Option<Prefix>) -> Option<BatchError> {
        let promised =
            prefix.filter(|prefix| self.expected.is_some_and(|last| prefix.base_offset <= last));
        let Some(prefix) = promised else {
            self.done = true;
            return None;
        };
        let left = self.rest.len().saturating_sub(super::LENGTH_PREFIX_BYTES);
        let length = prefix.length;
        Some(self.lost(BatchError {
            base_offset: prefix.base_offset,
            last_offset: None,
            bytes: Bytes::new(),
            kind: BatchErrorKind::Cut { length, left },
        }))
    }
}

impl Iterator for RecordBatches {
    type Item = Result<RecordBatch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done || self.rest.is_empty() {
            self.done = true;
            return None;
        }
        let Some(prefix) = Prefix::read(&self.rest) else {
            return self.cut(None).map(Err);
        };
        let size = prefix.size_bytes().unwrap_or(usize::MAX);
        if size > self.rest.len() {
            let known = (0..=MAGIC_V2).contains(&prefix.magic);
            let kind = match prefix.size_bytes() {
                _ if !known => BatchErrorKind::Magic {
                    magic: prefix.magic,
                },
                None => BatchErrorKind::Length {
                    length: prefix.length,
                },
                Some(_) => return self.cut(Some(prefix)).map(Err),
            };
            return Some(Err(self.lost(BatchError {
                base_offset: prefix.base_offset,
                last_offset: None,
                bytes: Bytes::new(),
                kind,
            })));
        }
        match RecordBatch::read(self.rest.slice(..size)) {
            Ok(batch) => {
                self.rest.advance(size);
                self.floor = batch.last_offset().saturating_add(1);
                Some(Ok(batch))
            }
            Err(error) => Some(Err(self.bad_batch(size, error))),
        }
    }
}

impl FusedIterator for RecordBatches {}
