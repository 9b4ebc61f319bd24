//! Reading the fields of a record.

use super::RecordErrorKind;
use super::view::Span;

/// A position in the records of one batch; never leaves `bytes`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// INVARIANT: `bytes` is shorter than 4 GiB, since batches and decompressed records are.
    pub(super) const fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(super) const fn position(&self) -> usize {
        self.at
    }

    pub(super) const fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// The same position with an end `size` bytes ahead.
    #[inline(always)]
    pub(super) fn limited(&self, size: usize) -> Result<Self, RecordErrorKind> {
        let end = self
            .at
            .checked_add(size)
            .ok_or(RecordErrorKind::Truncated)?;
        let bytes = self.bytes.get(..end).ok_or(RecordErrorKind::Truncated)?;
        Ok(Self { bytes, at: self.at })
    }

    #[inline(always)]
    pub(super) fn byte(&mut self) -> Result<u8, RecordErrorKind> {
        let byte = *self.bytes.get(self.at).ok_or(RecordErrorKind::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    /// A zigzag integer of at most 5 bytes.
    #[inline(always)]
    pub(super) fn varint(&mut self) -> Result<i32, RecordErrorKind> {
        let raw = self.raw(LONG_BYTES_MAX_32)?;
        // Bits beyond 32 fall off, as they do in Java.
        #[allow(clippy::cast_possible_truncation)]
        let raw = raw as u32;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// A zigzag integer of at most 10 bytes.
    #[inline(always)]
    pub(super) fn varlong(&mut self) -> Result<i64, RecordErrorKind> {
        let raw = self.raw(LONG_BYTES_MAX_64)?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// Most integers have one byte or two.
    #[inline(always)]
    fn raw(&mut self, bytes_max: usize) -> Result<u64, RecordErrorKind> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let second = self.byte()?;
        let raw = u64::from(first & 0x7f) | u64::from(second & 0x7f) << 7;
        if second < 0x80 {
            return Ok(raw);
        }
        let (raw, size) = long(
            self.bytes.get(self.at..).unwrap_or_default(),
            raw,
            bytes_max,
        )?;
        self.at += size;
        Ok(raw)
    }

    /// A field of `length` bytes.
    #[inline(always)]
    pub(super) fn field(&mut self, length: i32) -> Result<Span, RecordErrorKind> {
        let size =
            usize::try_from(length).map_err(|_| RecordErrorKind::NegativeLength { length })?;
        if size > self.left() {
            return Err(RecordErrorKind::Truncated);
        }
        let span = Span::new(self.at, size);
        self.at += size;
        Ok(span)
    }

    /// A length and its field; −1 is null.
    #[inline(always)]
    pub(super) fn nullable(&mut self) -> Result<Span, RecordErrorKind> {
        match self.varint()? {
            -1 => Ok(Span::NULL),
            length => self.field(length),
        }
    }
}

/// Bytes that may follow the first two.
const LONG_BYTES_MAX_32: usize = 3;
const LONG_BYTES_MAX_64: usize = 8;

/// The rest of an integer after two bytes, and how many bytes that took.
#[inline(never)]
fn long(bytes: &[u8], mut raw: u64, bytes_max: usize) -> Result<(u64, usize), RecordErrorKind> {
    for (index, byte) in bytes.iter().take(bytes_max).enumerate() {
        raw |= u64::from(byte & 0x7f) << (14 + 7 * index);
        if *byte < 0x80 {
            return Ok((raw, index + 1));
        }
    }
    Err(if bytes.len() < bytes_max {
        RecordErrorKind::Truncated
    } else {
        RecordErrorKind::VarintTooLong
    })
}
