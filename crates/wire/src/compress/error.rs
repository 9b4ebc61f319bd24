//! Errors of the codecs.

use thiserror::Error;

use super::Compression;

/// Why a compressed stream could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecompressError {
    /// The output would be larger than the cap: a bomb, or a cap that is too small for honest data.
    #[error(
        "{codec} data of {compressed_bytes} bytes inflates to more than {limit_bytes} bytes \
         (limit decompressed_bytes_max; raise it if the batch is honest)"
    )]
    TooLarge {
        /// The codec.
        codec: Compression,
        /// Size of the compressed input in bytes.
        compressed_bytes: usize,
        /// [`DecompressLimits::decompressed_bytes_max`](super::DecompressLimits::decompressed_bytes_max).
        limit_bytes: usize,
    },
    /// The output would be more times the input than the caller allows.
    #[error(
        "{codec} data of {compressed_bytes} bytes inflates to more than {ratio_max} times its size \
         (limit ratio_max; raise it if the batch is honest)"
    )]
    RatioTooHigh {
        /// The codec.
        codec: Compression,
        /// Size of the compressed input in bytes.
        compressed_bytes: usize,
        /// [`DecompressLimits::ratio_max`](super::DecompressLimits::ratio_max).
        ratio_max: u32,
    },
    /// The system has no memory for an output that is within the limits.
    #[error("no memory for {bytes} bytes of decompressed {codec} data")]
    OutOfMemory {
        /// The codec.
        codec: Compression,
        /// Bytes that were asked for.
        bytes: usize,
    },
    /// The input is not one complete stream of the codec: the producer's or the broker's fault.
    #[error("corrupt {codec} data: {reason}")]
    Corrupt {
        /// The codec.
        codec: Compression,
        /// What is wrong with it.
        reason: String,
    },
}

impl DecompressError {
    pub(super) fn corrupt(codec: Compression, reason: impl ToString) -> Self {
        Self::Corrupt {
            codec,
            reason: reason.to_string(),
        }
    }

    /// Whether the same bytes may decompress later: only when memory was short.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. })
    }
}

/// An encoder failed, which would be a bug here or in the codec's crate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{codec} encoder failed: {reason}")]
pub struct CompressError {
    /// The codec.
    pub codec: Compression,
    /// What the encoder said.
    pub reason: String,
}

impl CompressError {
    pub(super) fn new(codec: Compression, reason: impl ToString) -> Self {
        Self {
            codec,
            reason: reason.to_string(),
        }
    }
}

/// A name that is none of Kafka's codecs.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown compression {0:?}, known are none, gzip, snappy, lz4 and zstd")]
pub struct ParseCompressionError(pub String);
