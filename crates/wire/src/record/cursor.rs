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
    pub(super) fn limited(&self, size: usize) -> Result<Self, RecordErrorKind> {
        let end = self
            .at
            .checked_add(size)
            .ok_or(RecordErrorKind::Truncated)?;
        let bytes = self.bytes.get(..end).ok_or(RecordErrorKind::Truncated)?;
        Ok(Self { bytes, at: self.at })
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, RecordErrorKind> {
        let byte = *self.bytes.get(self.at).ok_or(RecordErrorKind::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    /// A zigzag integer of at most 5 bytes.
    #[inline]
    pub(super) fn varint(&mut self) -> Result<i32, RecordErrorKind> {
        let byte = self.byte()?;
        let raw = if byte < 0x80 {
            u32::from(byte)
        } else {
            self.long_u32(byte)?
        };
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// A zigzag integer of at most 10 bytes.
    #[inline]
    pub(super) fn varlong(&mut self) -> Result<i64, RecordErrorKind> {
        let byte = self.byte()?;
        let raw = if byte < 0x80 {
            u64::from(byte)
        } else {
            self.long_u64(byte)?
        };
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    fn long_u32(&mut self, first: u8) -> Result<u32, RecordErrorKind> {
        let mut raw = u32::from(first & 0x7f);
        for shift in [7, 14, 21, 28] {
            let byte = self.byte()?;
            // Bits beyond 32 fall off, as they do in Java.
            raw |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(raw);
            }
        }
        Err(RecordErrorKind::VarintTooLong)
    }

    fn long_u64(&mut self, first: u8) -> Result<u64, RecordErrorKind> {
        let mut raw = u64::from(first & 0x7f);
        for shift in [7, 14, 21, 28, 35, 42, 49, 56, 63] {
            let byte = self.byte()?;
            raw |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(raw);
            }
        }
        Err(RecordErrorKind::VarintTooLong)
    }

    /// A field of `length` bytes.
    #[inline]
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
    #[inline]
    pub(super) fn nullable(&mut self) -> Result<Span, RecordErrorKind> {
        match self.varint()? {
            -1 => Ok(Span::NULL),
            length => self.field(length),
        }
    }
}
