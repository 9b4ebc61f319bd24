//! Iterating over the records of one batch.

use std::iter::FusedIterator;

use super::batch::{RecordBatch, TimestampType};
use super::cursor::Cursor;
use super::view::{RecordSpan, RecordView, Span};
use super::{RecordError, RecordErrorKind};

/// The positions of a batch's records, in their order.
///
/// After an error, and after the last record, it ends. When it ends without an error the batch held
/// exactly the records that its header promises, and nothing else.
#[derive(Debug, Clone)]
pub struct SpanIter<'a> {
    payload: &'a [u8],
    at: usize,
    index: u32,
    count: u32,
    base_offset: i64,
    /// Smallest delta that the next record may have.
    delta_min: i32,
    delta_max: i32,
    base_timestamp: i64,
    /// The timestamp of all records when the broker set it.
    append_time: Option<i64>,
    done: bool,
}

impl<'a> SpanIter<'a> {
    pub(super) fn new(batch: &RecordBatch, payload: &'a [u8]) -> Self {
        Self {
            payload,
            at: 0,
            index: 0,
            // INVARIANT: not negative, checked when the batch was read.
            count: u32::try_from(batch.record_count()).unwrap_or(0),
            base_offset: batch.base_offset(),
            delta_min: 0,
            delta_max: batch.last_offset_delta(),
            base_timestamp: batch.base_timestamp(),
            append_time: match batch.timestamp_type() {
                TimestampType::CreateTime => None,
                TimestampType::LogAppendTime => Some(batch.max_timestamp()),
            },
            done: false,
        }
    }

    /// Reports the producer's timestamps also where the broker's apply.
    #[must_use]
    pub const fn with_create_time(mut self) -> Self {
        self.append_time = None;
        self
    }

    /// The bytes that the positions refer to.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    // Inlined, so that positions stay in registers: calls cost half of the time per record.
    #[inline(always)]
    fn record(&mut self, cursor: &mut Cursor<'a>) -> Result<RecordSpan, RecordErrorKind> {
        let length = cursor.varint()?;
        let size =
            usize::try_from(length).map_err(|_| RecordErrorKind::NegativeLength { length })?;
        *cursor = cursor.limited(size)?;
        let _attributes = cursor.byte()?;
        let timestamp_delta = cursor.varlong()?;
        let delta = cursor.varint()?;
        if delta < self.delta_min || delta > self.delta_max {
            return Err(RecordErrorKind::Offset { delta });
        }
        let key = cursor.nullable()?;
        let value = cursor.nullable()?;
        let (headers, header_count) = headers(cursor)?;
        if cursor.left() > 0 {
            return Err(RecordErrorKind::RecordLength {
                left: u32::try_from(cursor.left()).unwrap_or(u32::MAX),
            });
        }
        // Past i32::MAX no further record passes the check above: count ends there too.
        self.delta_min = delta.saturating_add(1);
        Ok(RecordSpan {
            // INVARIANT: no overflow, base offset + last delta was checked and delta is not above.
            offset: self.base_offset.saturating_add(i64::from(delta)),
            // Java wraps too, and a strange time must not make a record unreadable.
            timestamp: self
                .append_time
                .unwrap_or_else(|| self.base_timestamp.wrapping_add(timestamp_delta)),
            key,
            value,
            headers,
            header_count,
        })
    }

    #[cold]
    fn fail(&mut self, position: usize, kind: RecordErrorKind) -> RecordError {
        self.done = true;
        RecordError {
            index: self.index,
            position: u32::try_from(position).unwrap_or(u32::MAX),
            kind,
        }
    }
}

/// Walks over the headers, so that later iteration can't fail.
#[inline(always)]
fn headers(cursor: &mut Cursor<'_>) -> Result<(Span, u32), RecordErrorKind> {
    let count = cursor.varint()?;
    let start = cursor.position();
    // A header has at least two bytes.
    let header_count = u32::try_from(count)
        .ok()
        .filter(|count| *count as usize <= cursor.left() / 2)
        .ok_or(RecordErrorKind::HeaderCount { count })?;
    for _ in 0..header_count {
        let length = cursor.varint()?;
        cursor.field(length)?;
        cursor.nullable()?;
    }
    Ok((Span::new(start, cursor.position() - start), header_count))
}

impl Iterator for SpanIter<'_> {
    type Item = Result<RecordSpan, RecordError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        if self.index == self.count {
            self.done = true;
            let left = u32::try_from(self.payload.len() - self.at).unwrap_or(u32::MAX);
            return (left > 0)
                .then(|| Err(self.fail(self.at, RecordErrorKind::TrailingBytes { left })));
        }
        let mut cursor = Cursor::new(self.payload, self.at);
        match self.record(&mut cursor) {
            Ok(span) => {
                self.at = cursor.position();
                self.index += 1;
                Some(Ok(span))
            }
            Err(kind) => Some(Err(self.fail(cursor.position(), kind))),
        }
    }
}

impl FusedIterator for SpanIter<'_> {}

/// The records of a batch, borrowed from it, in their order.
///
/// Ends as [`SpanIter`] does.
#[derive(Debug, Clone)]
pub struct RecordIter<'a> {
    spans: SpanIter<'a>,
    timestamp_type: TimestampType,
}

impl<'a> RecordIter<'a> {
    pub(super) const fn new(spans: SpanIter<'a>, timestamp_type: TimestampType) -> Self {
        Self {
            spans,
            timestamp_type,
        }
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<RecordView<'a>, RecordError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let span = self.spans.next()?;
        Some(span.map(|span| span.view(self.spans.payload, self.timestamp_type)))
    }
}

impl FusedIterator for RecordIter<'_> {}
