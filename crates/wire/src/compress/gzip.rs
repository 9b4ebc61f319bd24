//! gzip, RFC 1952, through flate2.

use std::io::Write as _;

use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::output::Output;
use super::{CompressError, Compression, DecompressError};

/// Reads one member or several; the CRC and the size in each trailer are checked.
pub(super) fn decompress(input: &[u8], out: &mut Output) -> Result<(), DecompressError> {
    if input.is_empty() {
        return Err(out.corrupt("no bytes"));
    }
    // The last four bytes are the size of the last member modulo 2^32.
    if let Some(size) = input.last_chunk::<4>() {
        out.expect(u64::from(u32::from_le_bytes(*size)))?;
    }
    out.read_from(&mut MultiGzDecoder::new(input))
}

pub(super) fn compress(input: &[u8]) -> Result<Vec<u8>, CompressError> {
    let capacity = input.len() / 2 + 64;
    let mut encoder = GzEncoder::new(Vec::with_capacity(capacity), flate2::Compression::default());
    encoder
        .write_all(input)
        .and_then(|()| encoder.finish())
        .map_err(|error| CompressError::new(Compression::Gzip, error))
}
