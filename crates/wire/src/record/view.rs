//! What a record looks like to a reader.

use std::borrow::Cow;
use std::iter::FusedIterator;

use bytes::Bytes;

use super::TimestampType;
use super::cursor::Cursor;

/// A range of bytes inside the decompressed records, or null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    size: u32,
}

impl Span {
    pub(super) const NULL: Self = Self {
        start: u32::MAX,
        size: 0,
    };

    /// INVARIANT: both fit, see [`Cursor::new`]; a span is made from checked positions only.
    #[inline]
    pub(super) fn new(start: usize, size: usize) -> Self {
        debug_assert!(u32::try_from(start + size).is_ok());
        #[allow(clippy::cast_possible_truncation)]
        Self {
            start: start as u32,
            size: size as u32,
        }
    }

    const fn is_null(self) -> bool {
        self.start == u32::MAX
    }

    #[inline]
    fn of(self, payload: &[u8]) -> Option<&[u8]> {
        let start = self.start as usize;
        payload.get(start..start.checked_add(self.size as usize)?)
    }

    fn slice(self, payload: &Bytes) -> Option<Bytes> {
        self.of(payload).map(|bytes| payload.slice_ref(bytes))
    }

    fn pair(self) -> Option<(u32, u32)> {
        (!self.is_null()).then_some((self.start, self.size))
    }
}

/// Where a record lies in the payload of its batch: 48 bytes, so that an index of a batch is one
/// `Vec`.
///
/// Positions are bytes from the start of [`RecordBatch::payload`](super::RecordBatch::payload).
/// Taken with another payload they give wrong bytes or `None`, never a panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordSpan {
    /// Offset in the partition.
    pub offset: i64,
    /// Milliseconds since 1970: the producer's or, with
    /// [`LogAppendTime`](TimestampType::LogAppendTime), the broker's.
    pub timestamp: i64,
    pub(super) key: Span,
    pub(super) value: Span,
    pub(super) headers: Span,
    /// How many headers there are.
    pub header_count: u32,
}

impl RecordSpan {
    /// Start and size of the key, in bytes; `None` for a null key.
    #[must_use]
    pub fn key(&self) -> Option<(u32, u32)> {
        self.key.pair()
    }

    /// Start and size of the value, in bytes; `None` for a null value (a tombstone).
    #[must_use]
    pub fn value(&self) -> Option<(u32, u32)> {
        self.value.pair()
    }

    /// Start and size of the encoded headers, without their count, in bytes.
    #[must_use]
    pub fn headers(&self) -> (u32, u32) {
        (self.headers.start, self.headers.size)
    }

    /// Bytes of key, value and headers together.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        [self.key, self.value, self.headers]
            .iter()
            .map(|span| span.size as usize)
            .sum()
    }

    /// The key, sharing the payload's memory.
    #[must_use]
    pub fn key_bytes(&self, payload: &Bytes) -> Option<Bytes> {
        self.key.slice(payload)
    }

    /// The value, sharing the payload's memory.
    #[must_use]
    pub fn value_bytes(&self, payload: &Bytes) -> Option<Bytes> {
        self.value.slice(payload)
    }

    /// The record, borrowed from its batch's payload.
    #[must_use]
    #[inline]
    pub fn view<'a>(&self, payload: &'a [u8], timestamp_type: TimestampType) -> RecordView<'a> {
        RecordView {
            offset: self.offset,
            timestamp: self.timestamp,
            timestamp_type,
            key: self.key.of(payload),
            value: self.value.of(payload),
            headers: Headers {
                bytes: self.headers.of(payload).unwrap_or_default(),
                left: self.header_count,
            },
        }
    }
}

/// One record, borrowed from its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordView<'a> {
    /// Offset in the partition.
    pub offset: i64,
    /// Milliseconds since 1970, or −1 when the producer set none.
    pub timestamp: i64,
    /// Whose clock the timestamp is from.
    pub timestamp_type: TimestampType,
    /// The key; null and empty are different.
    pub key: Option<&'a [u8]>,
    /// The value; null (a tombstone) and empty are different.
    pub value: Option<&'a [u8]>,
    /// The headers, in their order.
    pub headers: Headers<'a>,
}

/// The headers of a record, in their order, duplicates included.
///
/// The reader has checked them, so the iterator yields exactly [`len`](ExactSizeIterator::len)
/// headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    left: u32,
}

impl<'a> Headers<'a> {
    /// Whether there are none (left).
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// The value of the last header with this key, as Kafka's `lastHeader`; the inner `None` is a
    /// null value.
    #[must_use]
    pub fn last_value(&self, key: &str) -> Option<Option<&'a [u8]>> {
        (*self)
            .filter(|header| header.key == key.as_bytes())
            .last()
            .map(|header| header.value)
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        self.left = self.left.checked_sub(1)?;
        let mut cursor = Cursor::new(self.bytes, 0);
        // The second half only matters for spans that were taken with a foreign payload.
        let header = (|| {
            let length = cursor.varint().ok()?;
            let key = cursor.field(length).ok()?;
            let value = cursor.nullable().ok()?;
            Some(Header {
                key: key.of(self.bytes)?,
                value: value.of(self.bytes),
            })
        })();
        match header {
            Some(_) => self.bytes = self.bytes.get(cursor.position()..).unwrap_or_default(),
            None => self.left = 0,
        }
        header
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.left as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Headers<'_> {}
impl FusedIterator for Headers<'_> {}

/// One header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// The key as it came: UTF-8 by the protocol, not always in practice.
    pub key: &'a [u8],
    /// The value; null and empty are different.
    pub value: Option<&'a [u8]>,
}

impl<'a> Header<'a> {
    /// The key as text, with U+FFFD for what is not UTF-8.
    #[must_use]
    pub fn key_str(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.key)
    }
}
