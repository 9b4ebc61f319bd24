//! Zstandard frames through ruzstd.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::DecompressError;
use super::output::Output;
use super::xxhash::xxh64;
use crate::limits::ZSTD_WINDOW_BYTES_MAX;

/// Bytes that are decoded before they are moved to the output.
const STEP_BYTES: usize = 1024 * 1024;

/// Reads one frame or several, with or without content size, and skips skippable frames.
pub(super) fn decompress(input: &[u8], out: &mut Output) -> Result<(), DecompressError> {
    if input.is_empty() {
        return Err(out.corrupt("no bytes"));
    }
    // ruzstd asserts some facts about its input instead of returning an error; a panic there must
    // not end a consumer.
    match catch_unwind(AssertUnwindSafe(|| frames(input, out))) {
        Ok(result) => result,
        Err(_) => Err(out.corrupt("the decoder gave up")),
    }
}

fn frames(mut rest: &[u8], out: &mut Output) -> Result<(), DecompressError> {
    while !rest.is_empty() {
        // A new decoder per frame: a used one reserves the declared window at once.
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW_BYTES_MAX);
        match decoder.init(&mut rest) {
            Ok(()) => frame(&mut decoder, &mut rest, out)?,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                rest = usize::try_from(length)
                    .ok()
                    .and_then(|length| rest.get(length..))
                    .ok_or_else(|| out.corrupt("skippable frame is cut off"))?;
            }
            Err(error) => return Err(out.corrupt(error)),
        }
    }
    Ok(())
}

fn frame(
    decoder: &mut FrameDecoder,
    rest: &mut &[u8],
    out: &mut Output,
) -> Result<(), DecompressError> {
    let start = out.len();
    let content_size = decoder.content_size();
    out.expect(content_size)?;
    // The decoder keeps back a whole window, so what has arrived in the output lags behind what is
    // in memory: a lower bound of that is counted too.
    let room = out.left();
    let mut decoded_min = 0;
    while !decoder.is_finished() {
        let step = STEP_BYTES.min(room - decoded_min + 1);
        decoder
            .decode_blocks(&mut *rest, BlockDecodingStrategy::UptoBytes(step))
            .map_err(|error| out.corrupt(error))?;
        if !decoder.is_finished() {
            decoded_min += step;
            if decoded_min > room {
                return Err(out.too_large());
            }
        }
        let ready = decoder.can_collect();
        // Checked first, so that the writer below can't fail.
        out.reserve(ready)?;
        let mut sink = Sink { out, error: None };
        let moved = decoder.collect_to_writer(&mut sink);
        if let Some(error) = sink.error {
            return Err(error);
        }
        moved.map_err(|error| out.corrupt(error))?;
    }
    let written = out.since(start);
    // ruzstd says 0 where the size is not given.
    if content_size != 0 && content_size != written.len() as u64 {
        return Err(out.corrupt(format_args!(
            "frame holds {} bytes and says {content_size}",
            written.len()
        )));
    }
    // The checksum is the low half of XXH64.
    let checksum = |data: &[u8]| (xxh64(data) & u64::from(u32::MAX)) as u32;
    if decoder
        .get_checksum_from_data()
        .is_some_and(|stored| stored != checksum(written))
    {
        return Err(out.corrupt("content checksum does not match"));
    }
    Ok(())
}

/// The output as a writer that keeps the typed error.
struct Sink<'a> {
    out: &'a mut Output,
    error: Option<DecompressError>,
}

impl io::Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.out.extend(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                self.error = Some(error);
                Err(io::ErrorKind::Other.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn compress(input: &[u8]) -> Vec<u8> {
    compress_to_vec(input, CompressionLevel::Fastest)
}
