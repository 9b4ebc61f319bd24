//! Kafka's primitive encodings: fixed integers, variable-length integers, strings, bytes, arrays.
//!
//! [`Reader`] never allocates from a peer's number and never reads past its end; [`Wire`] is one
//! type's encoding in both directions.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::DecodeError;
use crate::id::{BrokerId, MemberEpoch, SessionEpoch, TopicId};
use crate::limits::TAGGED_FIELDS_MAX;

/// How a value is encoded at one place: the message's version and what follows from it.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// Version of the message.
    pub version: i16,
    /// Compact lengths and tagged sections (KIP-482).
    pub flexible: bool,
    /// Whether null is legal here in this version.
    pub nullable: bool,
}

/// A value with a wire encoding.
pub trait Wire: Sized {
    /// Fewest bytes of one value: bounds the count of an array by the bytes left.
    fn bytes_min(context: Context) -> usize;

    /// Appends the value.
    fn write(&self, context: Context, out: &mut BytesMut);

    /// Reads a value.
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes are not a legal value.
    fn read(context: Context, reader: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// A cursor over a frame. Byte fields are slices of the frame's buffer, never copies.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a Bytes,
    position: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from the start.
    #[must_use]
    pub fn new(bytes: &'a Bytes) -> Self {
        Self {
            bytes,
            position: 0,
            end: bytes.len(),
        }
    }

    /// Bytes that are left.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.end - self.position
    }

    /// Bytes that were read.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.position
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let truncated = DecodeError::Truncated {
            needed: count,
            left: self.left(),
        };
        let stop = self
            .position
            .checked_add(count)
            .filter(|stop| *stop <= self.end)
            .ok_or_else(|| truncated.clone())?;
        let slice = self.bytes.get(self.position..stop).ok_or(truncated)?;
        self.position = stop;
        Ok(slice)
    }

    /// Exactly `N` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let slice = self.take(N)?;
        slice.try_into().map_err(|_| DecodeError::Truncated {
            needed: N,
            left: slice.len(),
        })
    }

    /// The next `count` bytes as a slice of the frame's buffer.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn slice(&mut self, count: usize) -> Result<Bytes, DecodeError> {
        let start = self.position;
        self.take(count)?;
        Ok(self.bytes.slice(start..self.position))
    }

    /// An unsigned variable-length integer of at most five bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`], [`DecodeError::VarintTooLong`].
    pub fn uvarint(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0_u32;
        for index in 0..5 {
            let [byte] = self.array()?;
            if index == 4 && byte > 0x0f {
                return Err(DecodeError::VarintTooLong);
            }
            value |= u32::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::VarintTooLong)
    }

    /// A length or count: `None` is null. `item_bytes_min` bounds it by the bytes left.
    fn length(
        &mut self,
        what: &'static str,
        context: Context,
        short: bool,
        item_bytes_min: usize,
    ) -> Result<Option<usize>, DecodeError> {
        let length = if context.flexible {
            i64::from(self.uvarint()?) - 1
        } else if short {
            i64::from(i16::from_be_bytes(self.array()?))
        } else {
            i64::from(i32::from_be_bytes(self.array()?))
        };
        match usize::try_from(length) {
            Ok(count) if count <= self.left() / item_bytes_min.max(1) => Ok(Some(count)),
            Ok(count) => Err(DecodeError::CountTooLarge {
                what,
                count: count as u64,
                left: self.left(),
            }),
            Err(_) if length == -1 => Ok(None),
            Err(_) => Err(DecodeError::NegativeLength { what, length }),
        }
    }

    /// Reads a tagged section. `known` decodes the content of a tag that it knows and returns
    /// `true`; others are skipped by their size.
    ///
    /// # Errors
    /// [`DecodeError`] for tags out of order, sizes past the end and contents of another size.
    pub fn tagged_fields(
        &mut self,
        mut known: impl FnMut(u32, &mut Self) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        let count = self.uvarint()?;
        if count > TAGGED_FIELDS_MAX {
            return Err(DecodeError::TooManyTaggedFields { count });
        }
        // A tag and a size take at least two bytes.
        if count as usize > self.left() / 2 {
            return Err(DecodeError::CountTooLarge {
                what: "tagged fields",
                count: u64::from(count),
                left: self.left(),
            });
        }
        let mut previous = None;
        for _ in 0..count {
            let tag = self.uvarint()?;
            if previous.is_some_and(|previous| tag <= previous) {
                return Err(DecodeError::TaggedFields { tag });
            }
            previous = Some(tag);
            let size = self.uvarint()? as usize;
            if size > self.left() {
                return Err(DecodeError::CountTooLarge {
                    what: "tagged field",
                    count: size as u64,
                    left: self.left(),
                });
            }
            let end = self.end;
            self.end = self.position + size;
            let taken = known(tag, self)?;
            if taken && self.left() > 0 {
                return Err(DecodeError::TaggedFieldSize {
                    tag,
                    left: self.left(),
                });
            }
            self.position = self.end;
            self.end = end;
        }
        Ok(())
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// [`DecodeError::TrailingBytes`].
    pub const fn finish(&self) -> Result<(), DecodeError> {
        match self.left() {
            0 => Ok(()),
            left => Err(DecodeError::TrailingBytes { left }),
        }
    }
}

/// Appends an unsigned variable-length integer.
pub fn write_uvarint(mut value: u32, out: &mut BytesMut) {
    while value >= 0x80 {
        out.put_u8((value as u8) | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn write_length(length: Option<usize>, context: Context, short: bool, out: &mut BytesMut) {
    // INVARIANT: what is written comes from the caller and stays far below 2 GiB; larger values
    // saturate and are refused by the peer instead of wrapping into another meaning.
    if context.flexible {
        write_uvarint(
            length.map_or(0, |n| {
                u32::try_from(n).unwrap_or(u32::MAX - 1).saturating_add(1)
            }),
            out,
        );
    } else if short {
        out.put_i16(length.map_or(-1, |n| i16::try_from(n).unwrap_or(i16::MAX)));
    } else {
        out.put_i32(length.map_or(-1, |n| i32::try_from(n).unwrap_or(i32::MAX)));
    }
}

/// Fewest bytes of a length or count.
const fn length_bytes_min(context: Context, short: bool) -> usize {
    match (context.flexible, short) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => 4,
    }
}

macro_rules! fixed {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            fn bytes_min(_: Context) -> usize {
                size_of::<$type>()
            }

            fn write(&self, _: Context, out: &mut BytesMut) {
                out.put_slice(&self.to_be_bytes());
            }

            fn read(_: Context, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                reader.array().map(<$type>::from_be_bytes)
            }
        }
    )*};
}

fixed!(i8, i16, i32, i64, u16, u32, f64);

macro_rules! wrapped {
    ($($name:ident($inner:ty)),*) => {$(
        impl Wire for $name {
            fn bytes_min(context: Context) -> usize {
                <$inner as Wire>::bytes_min(context)
            }

            fn write(&self, context: Context, out: &mut BytesMut) {
                self.0.write(context, out);
            }

            fn read(context: Context, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Wire::read(context, reader).map(Self)
            }
        }
    )*};
}

wrapped!(
    BrokerId(i32),
    MemberEpoch(i32),
    SessionEpoch(i32),
    TopicId([u8; 16])
);

impl<const N: usize> Wire for [u8; N] {
    fn bytes_min(_: Context) -> usize {
        N
    }

    fn write(&self, _: Context, out: &mut BytesMut) {
        out.put_slice(self);
    }

    fn read(_: Context, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.array()
    }
}

impl Wire for bool {
    fn bytes_min(_: Context) -> usize {
        1
    }

    fn write(&self, _: Context, out: &mut BytesMut) {
        out.put_u8(u8::from(*self));
    }

    fn read(_: Context, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.array().map(|[byte]| byte != 0)
    }
}

impl Wire for Option<String> {
    fn bytes_min(context: Context) -> usize {
        length_bytes_min(context, true)
    }

    fn write(&self, context: Context, out: &mut BytesMut) {
        match self {
            Some(text) => text.write(context, out),
            None if context.nullable => write_length(None, context, true, out),
            None => write_length(Some(0), context, true, out),
        }
    }

    fn read(context: Context, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let Some(length) = reader.length("string", context, true, 1)? else {
            return if context.nullable {
                Ok(None)
            } else {
                Err(DecodeError::UnexpectedNull { what: "string" })
            };
        };
        let text =
            std::str::from_utf8(reader.take(length)?).map_err(|_| DecodeError::InvalidUtf8)?;
        Ok(Some(text.to_owned()))
    }
}

impl Wire for String {
    fn bytes_min(context: Context) -> usize {
        length_bytes_min(context, true)
    }

    fn write(&self, context: Context, out: &mut BytesMut) {
        write_length(Some(self.len()), context, true, out);
        out.put_slice(self.as_bytes());
    }

    fn read(context: Context, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Option::<Self>::read(context, reader)?.ok_or(DecodeError::UnexpectedNull { what: "string" })
    }
}

impl Wire for Option<Bytes> {
    fn bytes_min(context: Context) -> usize {
        length_bytes_min(context, false)
    }

    fn write(&self, context: Context, out: &mut BytesMut) {
        match self {
            Some(bytes) => bytes.write(context, out),
            None if context.nullable => write_length(None, context, false, out),
            None => write_length(Some(0), context, false, out),
        }
    }

    fn read(context: Context, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.length("bytes", context, false, 1)? {
            Some(length) => reader.slice(length).map(Some),
            None if context.nullable => Ok(None),
            None => Err(DecodeError::UnexpectedNull { what: "bytes" }),
        }
    }
}

impl Wire for Bytes {
    fn bytes_min(context: Context) -> usize {
        length_bytes_min(context, false)
    }

    fn write(&self, context: Context, out: &mut BytesMut) {
        write_length(Some(self.len()), context, false, out);
        out.put_slice(self);
    }

    fn read(context: Context, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Option::<Self>::read(context, reader)?.ok_or(DecodeError::UnexpectedNull { what: "bytes" })
    }
}

impl<T: Wire> Wire for Option<Vec<T>> {
    fn bytes_min(context: Context) -> usize {
        length_bytes_min(context, false)
    }

    fn write(&self, context: Context, out: &mut BytesMut) {
        match self {
            Some(items) => items.write(context, out),
            None if context.nullable => write_length(None, context, false, out),
            None => write_length(Some(0), context, false, out),
        }
    }

    fn read(context: Context, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let Some(count) = reader.length("array", context, false, T::bytes_min(context))? else {
            return if context.nullable {
                Ok(None)
            } else {
                Err(DecodeError::UnexpectedNull { what: "array" })
            };
        };
        // Bounded: `length` checked that `count` items of the smallest size fit in the bytes left.
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(T::read(context, reader)?);
        }
        Ok(Some(items))
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn bytes_min(context: Context) -> usize {
        length_bytes_min(context, false)
    }

    fn write(&self, context: Context, out: &mut BytesMut) {
        write_length(Some(self.len()), context, false, out);
        for item in self {
            item.write(context, out);
        }
    }

    fn read(context: Context, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let context = Context {
            nullable: false,
            ..context
        };
        Option::<Self>::read(context, reader)?.ok_or(DecodeError::UnexpectedNull { what: "array" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLEXIBLE: Context = Context {
        version: 0,
        flexible: true,
        nullable: true,
    };

    #[test]
    fn array_count_beyond_the_bytes_left_is_refused_before_any_allocation() {
        let bytes = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]);
        let error = Vec::<i32>::read(FLEXIBLE, &mut Reader::new(&bytes)).unwrap_err();
        assert!(
            matches!(error, DecodeError::CountTooLarge { what: "array", .. }),
            "{error}"
        );
    }

    #[test]
    fn fifth_varint_byte_with_high_bits_is_refused() {
        let bytes = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x1f]);
        assert_eq!(
            Reader::new(&bytes).uvarint(),
            Err(DecodeError::VarintTooLong)
        );
    }

    #[test]
    fn b_022_tag_with_a_hostile_length_is_refused() {
        let bytes = Bytes::from_static(&[0x01, 0x00, 0xff, 0xff, 0xff, 0xff, 0x0f]);
        let error = Reader::new(&bytes)
            .tagged_fields(|_, _| Ok(false))
            .unwrap_err();
        assert!(
            matches!(
                error,
                DecodeError::CountTooLarge {
                    what: "tagged field",
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn b_022_more_tagged_fields_than_the_limit_are_refused_by_its_name() {
        let mut bytes = BytesMut::new();
        write_uvarint(TAGGED_FIELDS_MAX + 1, &mut bytes);
        bytes.resize(10_000, 0);
        let bytes = bytes.freeze();
        let error = Reader::new(&bytes).tagged_fields(|_, _| Ok(false));
        let error = error.unwrap_err();
        let count = TAGGED_FIELDS_MAX + 1;
        assert_eq!(error, DecodeError::TooManyTaggedFields { count });
        assert!(error.to_string().contains("TAGGED_FIELDS_MAX"), "{error}");
    }

    #[test]
    fn unknown_tags_of_sane_length_are_skipped() {
        let bytes = Bytes::from_static(&[0x02, 0x05, 0x02, 0xaa, 0xbb, 0x09, 0x00]);
        let mut reader = Reader::new(&bytes);
        reader.tagged_fields(|_, _| Ok(false)).unwrap();
        reader.finish().unwrap();
    }
}
