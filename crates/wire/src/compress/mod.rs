//! Compression of record batches: Kafka's five codecs in pure Rust.
//!
//! Every decoder writes through one capped buffer, so that a few kilobytes from a peer can never
//! become more memory than [`DecompressLimits`] allows. Decoding is lenient where Kafka's clients
//! differ (snappy with and without xerial framing, several gzip members, several zstd and lz4
//! frames) and strict where data could be damaged: checksums that are present are compared, and
//! bytes after the end of a stream are an error.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

mod error;
mod gzip;
mod limits;
mod lz4;
mod output;
mod snappy;
mod xxhash;
mod zstd;

pub use error::{CompressError, DecompressError, ParseCompressionError};
pub use limits::DecompressLimits;

use output::Output;

/// The codec of a record batch, bits 0–2 of its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// Records as they are, id 0.
    #[default]
    None,
    /// RFC 1952, id 1.
    Gzip,
    /// Snappy blocks in xerial framing, or one raw block, id 2.
    Snappy,
    /// LZ4 frames, id 3.
    Lz4,
    /// Zstandard frames without a dictionary, id 4.
    Zstd,
}

impl Compression {
    /// All codecs, in the order of their ids.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec with this id; `None` for ids that Kafka has not given to a codec.
    #[must_use]
    pub const fn from_id(id: u8) -> Option<Self> {
        match id {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The id on the wire, 0–4.
    #[must_use]
    pub const fn id(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    /// Kafka's name, as in `compression.type`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Compression {
    type Err = ParseCompressionError;

    /// Reads Kafka's name of a codec, in lower case as Kafka demands.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|codec| codec.name() == name)
            .ok_or_else(|| ParseCompressionError(name.to_owned()))
    }
}

/// Decompresses a whole stream into one buffer.
///
/// [`Compression::None`] copies; a caller that holds [`Bytes`] should slice instead.
///
/// # Errors
/// [`DecompressError::TooLarge`] or [`DecompressError::RatioTooHigh`] when the output would pass a
/// limit (nothing beyond the limit has been allocated), [`DecompressError::OutOfMemory`] when the
/// system refuses memory within the limit, and [`DecompressError::Corrupt`] for everything that is
/// not a complete stream of the codec.
pub fn decompress(
    codec: Compression,
    input: &[u8],
    limits: &DecompressLimits,
) -> Result<Bytes, DecompressError> {
    let mut out = Output::new(codec, input.len(), limits);
    match codec {
        Compression::None => out.extend(input)?,
        Compression::Gzip => gzip::decompress(input, &mut out)?,
        Compression::Snappy => snappy::decompress(input, &mut out)?,
        Compression::Lz4 => lz4::decompress(input, &mut out)?,
        Compression::Zstd => zstd::decompress(input, &mut out)?,
    }
    Ok(out.into_bytes())
}

/// Compresses a whole stream the way Kafka's Java client frames it.
///
/// gzip at its default level, snappy in xerial chunks of 32 KiB, lz4 in independent blocks of
/// 64 KiB without checksums, zstd at ruzstd's fastest level (about zstd's level 1).
///
/// # Errors
/// [`CompressError`] when an encoder fails, which would be a bug: all of them write to memory.
pub fn compress(codec: Compression, input: &[u8]) -> Result<Vec<u8>, CompressError> {
    match codec {
        Compression::None => Ok(input.to_vec()),
        Compression::Gzip => gzip::compress(input),
        Compression::Snappy => snappy::compress(input),
        Compression::Lz4 => lz4::compress(input),
        Compression::Zstd => Ok(zstd::compress(input)),
    }
}

#[cfg(test)]
mod tests;
