//! LZ4 frames around lz4_flex's block codec.
//!
//! The frame is read here rather than by lz4_flex, so that blocks are decoded straight into the
//! capped output, and that a frame that is cut off is an error and not a short result.

use lz4_flex::block;

use super::output::Output;
use super::xxhash::xxh32;
use super::{CompressError, Compression, DecompressError};

const MAGIC: u32 = 0x184D_2204;
/// Magic, flags (version 1, independent blocks), block size id 4, header checksum.
const HEADER: [u8; 7] = [0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, 0x82];
/// Uncompressed bytes in one written block; block size id 4.
const BLOCK_BYTES: usize = 64 * 1024;
/// Set in a block's size when the block is stored as it is.
const STORED: u32 = 1 << 31;
/// How far back a linked block may reach.
const WINDOW_BYTES: usize = 64 * 1024;

/// What a frame header says.
#[derive(Debug)]
struct Descriptor {
    linked: bool,
    block_checksums: bool,
    content_checksum: bool,
    content_size: Option<u64>,
    block_bytes_max: usize,
}

/// Reads one frame or several. Linked blocks are accepted too, which Java refuses.
pub(super) fn decompress(input: &[u8], out: &mut Output) -> Result<(), DecompressError> {
    let mut rest = input;
    loop {
        rest = frame(rest, out)?;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

/// Reads one frame and returns what follows it.
fn frame<'a>(mut rest: &'a [u8], out: &mut Output) -> Result<&'a [u8], DecompressError> {
    let descriptor = descriptor(&mut rest).map_err(|reason| out.corrupt(reason))?;
    let start = out.len();
    if let Some(size) = descriptor.content_size {
        out.expect(size)?;
    }
    loop {
        let word = u32_le(&mut rest).ok_or_else(|| out.corrupt("frame ends without end mark"))?;
        if word == 0 {
            break;
        }
        let size = usize::try_from(word & !STORED).unwrap_or(usize::MAX);
        if size > descriptor.block_bytes_max {
            return Err(out.corrupt(format_args!("block of {size} bytes in the frame")));
        }
        let (data, after) = rest
            .split_at_checked(size)
            .ok_or_else(|| out.corrupt("block is cut off"))?;
        rest = after;
        if descriptor.block_checksums && u32_le(&mut rest) != Some(xxh32(data)) {
            return Err(out.corrupt("block checksum does not match"));
        }
        if word & STORED == STORED {
            out.extend(data)?;
        } else {
            decode_block(data, &descriptor, start, out)?;
        }
    }
    let written = out.len() - start;
    if descriptor
        .content_size
        .is_some_and(|size| size != written as u64)
    {
        return Err(out.corrupt(format_args!(
            "frame holds {written} bytes, not what it says"
        )));
    }
    if descriptor.content_checksum && u32_le(&mut rest) != Some(xxh32(out.since(start))) {
        return Err(out.corrupt("content checksum does not match"));
    }
    Ok(rest)
}

fn decode_block(
    data: &[u8],
    descriptor: &Descriptor,
    start: usize,
    out: &mut Output,
) -> Result<(), DecompressError> {
    // No sequence yields more than 255 bytes per byte of input.
    let possible = descriptor
        .block_bytes_max
        .min(data.len().saturating_mul(255));
    let room = possible.min(out.left());
    let decoded = out.append(room, |before, tail| {
        if descriptor.linked {
            let frame = before.get(start..).unwrap_or_default();
            let window = frame.len().saturating_sub(WINDOW_BYTES);
            let dictionary = frame.get(window..).unwrap_or_default();
            block::decompress_into_with_dict(data, tail, dictionary)
        } else {
            block::decompress_into(data, tail)
        }
    })?;
    match decoded {
        Ok(_) => Ok(()),
        Err(block::DecompressError::OutputTooSmall { .. }) if room < possible => {
            Err(out.too_large())
        }
        Err(error) => Err(out.corrupt(error)),
    }
}

fn descriptor(rest: &mut &[u8]) -> Result<Descriptor, &'static str> {
    const CUT: &str = "frame header is cut off";
    if u32_le(rest).ok_or(CUT)? != MAGIC {
        return Err("frame magic is missing");
    }
    let checked = *rest;
    let &[flags, sizes] = take::<2>(rest).ok_or(CUT)?;
    if flags & 0b1100_0000 != 0b0100_0000 {
        return Err("unknown frame version");
    }
    if flags & 0b0000_0010 != 0 || sizes & 0b1000_1111 != 0 {
        return Err("reserved bits of the frame header are set");
    }
    let block_bytes_max = match sizes >> 4 {
        4 => 64 * 1024,
        5 => 256 * 1024,
        6 => 1024 * 1024,
        7 => 4 * 1024 * 1024,
        _ => return Err("unknown block size id"),
    };
    let content_size = if flags & 0b0000_1000 == 0 {
        None
    } else {
        Some(u64::from_le_bytes(*take::<8>(rest).ok_or(CUT)?))
    };
    if flags & 0b0000_0001 != 0 {
        return Err("the frame needs a dictionary");
    }
    let checked = checked
        .get(..checked.len() - rest.len())
        .unwrap_or_default();
    let &[checksum] = take::<1>(rest).ok_or(CUT)?;
    if xxh32(checked).to_le_bytes()[1] != checksum {
        return Err("frame header checksum does not match");
    }
    Ok(Descriptor {
        linked: flags & 0b0010_0000 == 0,
        block_checksums: flags & 0b0001_0000 != 0,
        content_checksum: flags & 0b0000_0100 != 0,
        content_size,
        block_bytes_max,
    })
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(head)
}

fn u32_le(rest: &mut &[u8]) -> Option<u32> {
    take::<4>(rest).map(|bytes| u32::from_le_bytes(*bytes))
}

/// Writes one frame of independent blocks without checksums, as Kafka's Java client does.
pub(super) fn compress(input: &[u8]) -> Result<Vec<u8>, CompressError> {
    let mut output = Vec::with_capacity(HEADER.len() + input.len() / 2 + 16);
    output.extend_from_slice(&HEADER);
    let mut buffer = vec![0; block::get_maximum_output_size(input.len().min(BLOCK_BYTES))];
    for chunk in input.chunks(BLOCK_BYTES) {
        let size = block::compress_into(chunk, &mut buffer)
            .map_err(|error| CompressError::new(Compression::Lz4, error))?;
        // What does not shrink is stored as it is.
        let (data, flag) = match buffer.get(..size) {
            Some(compressed) if size < chunk.len() => (compressed, 0),
            _ => (chunk, STORED),
        };
        let word = u32::try_from(data.len())
            .map_err(|error| CompressError::new(Compression::Lz4, error))?
            | flag;
        output.extend_from_slice(&word.to_le_bytes());
        output.extend_from_slice(data);
    }
    output.extend_from_slice(&[0; 4]);
    Ok(output)
}
