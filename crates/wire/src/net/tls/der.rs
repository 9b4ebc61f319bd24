//! The part of DER that keystores need: definite lengths, tags of one byte.

pub(super) const INTEGER: u8 = 0x02;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
/// `[0]`, constructed: what stands under an explicit tag.
pub(super) const EXPLICIT_0: u8 = 0xa0;
/// `[0]`, primitive: an implicitly tagged string.
pub(super) const IMPLICIT_0: u8 = 0x80;

/// The bytes are not the DER that is due here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// Values one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// What is left, undecoded.
    pub(super) const fn rest(self) -> &'a [u8] {
        self.0
    }

    /// The tag of the next value; `None` at the end.
    pub(super) fn tag(self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The contents of the next value, which must have this tag.
    pub(super) fn take(&mut self, tag: u8) -> Result<&'a [u8], Malformed> {
        let (&[found, length], rest) = self.0.split_first_chunk::<2>().ok_or(Malformed)?;
        if found != tag {
            return Err(Malformed);
        }
        let (length, rest) = if length < 0x80 {
            (usize::from(length), rest)
        } else {
            // 0x80 alone is the indefinite length of BER.
            let count = usize::from(length & 0x7f);
            if count == 0 || count > 4 {
                return Err(Malformed);
            }
            let (digits, rest) = rest.split_at_checked(count).ok_or(Malformed)?;
            let length = digits
                .iter()
                .fold(0, |sum, digit| (sum << 8) | usize::from(*digit));
            (length, rest)
        };
        let (contents, rest) = rest.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(contents)
    }

    /// The values inside the next one.
    pub(super) fn enter(&mut self, tag: u8) -> Result<Self, Malformed> {
        self.take(tag).map(Self)
    }

    pub(super) fn object_identifier(&mut self) -> Result<Oid<'a>, Malformed> {
        self.take(OBJECT_IDENTIFIER).map(Oid)
    }

    /// A number that is not negative.
    pub(super) fn number(&mut self) -> Result<u32, Malformed> {
        let digits = self.take(INTEGER)?;
        let digits = digits.strip_prefix(&[0]).unwrap_or(digits);
        if digits.len() > 4 {
            return Err(Malformed);
        }
        Ok(digits
            .iter()
            .fold(0, |sum, digit| (sum << 8) | u32::from(*digit)))
    }
}

/// An object identifier, as its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Oid<'a>(pub(super) &'a [u8]);

impl std::fmt::Display for Oid<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut arc = 0_u64;
        let mut is_first = true;
        for byte in self.0 {
            arc = (arc << 7) | u64::from(byte & 0x7f);
            if byte & 0x80 != 0 {
                continue;
            }
            if is_first {
                let root = (arc / 40).min(2);
                write!(f, "{root}.{}", arc - root * 40)?;
                is_first = false;
            } else {
                write!(f, ".{arc}")?;
            }
            arc = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_one_by_one() {
        let mut der = Der::new(&[0x30, 0x06, 0x02, 0x02, 0x01, 0x00, 0x04, 0x00, 0x05, 0x00]);
        let mut inner = der.enter(SEQUENCE).unwrap();
        assert_eq!(inner.number(), Ok(256));
        assert_eq!(inner.take(OCTET_STRING), Ok(&[][..]));
        assert!(inner.is_empty());
        assert_eq!(der.tag(), Some(0x05));
        assert_eq!(der.take(SEQUENCE), Err(Malformed));
    }

    #[test]
    fn lengths_beyond_the_end_are_refused() {
        for bytes in [
            &[0x30][..],
            &[0x30, 0x01],
            &[0x30, 0x80, 0x00, 0x00],
            &[0x30, 0x82, 0x01],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x30, 0x85, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(Der::new(bytes).take(SEQUENCE), Err(Malformed), "{bytes:x?}");
        }
    }

    #[test]
    fn object_identifiers_print_with_dots() {
        let oid = Oid(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d]);
        assert_eq!(oid.to_string(), "1.2.840.113549.1.5.13");
    }
}
