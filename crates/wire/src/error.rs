//! Why bytes could not be decoded.

use thiserror::Error;

/// A peer's bytes that are not a legal message of the version they claim.
///
/// Every variant is the peer's fault (or that of the link). None is retriable on the same bytes;
/// the connection that delivered them should be dropped, since its framing can't be trusted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes ended inside a field.
    #[error("message ends inside a field: {needed} bytes needed, {left} left")]
    Truncated {
        /// Bytes that the field needs at least.
        needed: usize,
        /// Bytes that were left.
        left: usize,
    },
    /// A count or length that can't fit in the bytes that are left.
    #[error("{what} of {count} does not fit in the {left} bytes left")]
    CountTooLarge {
        /// What was counted: `array`, `string`, `bytes` or `tagged fields`.
        what: &'static str,
        /// The claimed number.
        count: u64,
        /// Bytes that were left.
        left: usize,
    },
    /// A negative length where only −1 (null) is legal.
    #[error("negative {what} length {length}")]
    NegativeLength {
        /// What has the length.
        what: &'static str,
        /// The length.
        length: i64,
    },
    /// Null in a field that can't be null in this version.
    #[error("null {what} where a value is required")]
    UnexpectedNull {
        /// What is null.
        what: &'static str,
    },
    /// A variable-length integer with more bytes than its type can hold.
    #[error("variable-length integer is too long")]
    VarintTooLong,
    /// Text that is not UTF-8.
    #[error("text is not valid UTF-8")]
    InvalidUtf8,
    /// More tagged fields in one section than
    /// [`TAGGED_FIELDS_MAX`](crate::limits::TAGGED_FIELDS_MAX).
    #[error(
        "{count} tagged fields where {} are allowed (limits::TAGGED_FIELDS_MAX)",
        crate::limits::TAGGED_FIELDS_MAX
    )]
    TooManyTaggedFields {
        /// The claimed number.
        count: u32,
    },
    /// Tagged fields that are not in ascending order.
    #[error("tagged field {tag} is out of order")]
    TaggedFields {
        /// The tag at fault.
        tag: u32,
    },
    /// A tagged field whose content is shorter or longer than its size says.
    #[error("tagged field {tag} has {left} bytes too many")]
    TaggedFieldSize {
        /// The tag at fault.
        tag: u32,
        /// Bytes left after its content.
        left: usize,
    },
    /// Bytes after the end of the message.
    #[error("{left} bytes after the end of the message")]
    TrailingBytes {
        /// How many.
        left: usize,
    },
    /// A frame larger than the limit.
    #[error(
        "frame of {size} bytes exceeds the limit of {limit} bytes (limits::FRAME_BYTES_MAX, set by ConnectionOptions::frame_bytes_max; a smaller fetch.max.bytes makes smaller answers)"
    )]
    FrameTooLarge {
        /// Claimed size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: usize,
    },
    /// A version of an API that this crate doesn't know.
    #[error("{api} has no version {version} here")]
    UnknownVersion {
        /// The API's name.
        api: &'static str,
        /// The version asked for.
        version: i16,
    },
}

impl DecodeError {
    /// Whether the same bytes may decode later. They never do.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        false
    }
}
