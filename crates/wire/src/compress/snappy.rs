//! Snappy: xerial framing as Java's producer writes it, and raw blocks as librdkafka and franz-go
//! write them.

use snap::raw::{Decoder, Encoder, decompress_len};

use super::output::Output;
use super::{CompressError, Compression, DecompressError};

/// First bytes of the xerial framing. No raw block starts with them: after the size (82 53) the
/// next byte would be a copy from before the start.
const MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
/// Version and lowest compatible version, both 1, as the Java library writes them.
const VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
/// Uncompressed bytes in one chunk, as Kafka's Java client cuts them.
const CHUNK_BYTES: usize = 32 * 1024;
/// The densest snappy element copies 64 bytes with 3.
const RATIO_MAX: usize = 22;

/// Reads xerial chunks when the magic is there, else one raw block.
pub(super) fn decompress(input: &[u8], out: &mut Output) -> Result<(), DecompressError> {
    let Some(mut rest) = strip_header(input) else {
        return block(input, out);
    };
    while !rest.is_empty() {
        // Streams may follow one another, each with its own header.
        if let Some(after) = strip_header(rest) {
            rest = after;
            continue;
        }
        let Some((size, after)) = rest.split_first_chunk::<4>() else {
            return Err(out.corrupt("xerial chunk size is cut off"));
        };
        let size = u32::from_be_bytes(*size);
        let chunk = usize::try_from(size)
            .ok()
            .and_then(|size| after.split_at_checked(size));
        let Some((chunk, after)) = chunk else {
            return Err(out.corrupt(format_args!(
                "xerial chunk of {size} bytes with {} left",
                after.len()
            )));
        };
        block(chunk, out)?;
        rest = after;
    }
    Ok(())
}

/// Removes magic and version fields. The versions are not looked at: some brokers write them in
/// little-endian order, and Java accepts that too.
fn strip_header(input: &[u8]) -> Option<&[u8]> {
    let (_versions, rest) = input.strip_prefix(&MAGIC)?.split_first_chunk::<8>()?;
    Some(rest)
}

fn block(input: &[u8], out: &mut Output) -> Result<(), DecompressError> {
    let size = decompress_len(input).map_err(|error| out.corrupt(error))?;
    // The size is the peer's claim; what no snappy block can reach is a lie and costs nothing.
    if size > input.len().saturating_mul(RATIO_MAX) {
        return Err(out.corrupt(format_args!(
            "block of {} bytes claims {size} bytes",
            input.len()
        )));
    }
    out.append(size, |_, tail| Decoder::new().decompress(input, tail))?
        .map(drop)
        .map_err(|error| out.corrupt(error))
}

pub(super) fn compress(input: &[u8]) -> Result<Vec<u8>, CompressError> {
    let mut output = Vec::with_capacity(MAGIC.len() + VERSIONS.len() + input.len() / 2);
    output.extend_from_slice(&MAGIC);
    output.extend_from_slice(&VERSIONS);
    let mut encoder = Encoder::new();
    for chunk in input.chunks(CHUNK_BYTES) {
        let block = encoder
            .compress_vec(chunk)
            .map_err(|error| CompressError::new(Compression::Snappy, error))?;
        let size = u32::try_from(block.len())
            .map_err(|error| CompressError::new(Compression::Snappy, error))?;
        output.extend_from_slice(&size.to_be_bytes());
        output.extend_from_slice(&block);
    }
    Ok(output)
}
