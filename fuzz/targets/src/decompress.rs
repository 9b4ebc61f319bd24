//! Decompressors alone.

use std::panic;

use sharegroup_wire::compress::{Compression, DecompressLimits, compress, decompress as unpack};

use crate::allocation::within;

/// Cap on the output, in bytes.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// What a decoder may hold beside its output: tables, windows and steps of a fixed size.
const DECODER_BYTES: usize = 2 * 1024 * 1024;

/// Input: the codec, whether a bound on the ratio is set, a stream.
pub fn decompress(data: &[u8]) {
    let [codec, ratio, input @ ..] = data else {
        return;
    };
    let Some(codec) = Compression::from_id(*codec) else {
        return;
    };
    let limits = DecompressLimits::DEFAULT
        .with_decompressed_bytes_max(OUTPUT_BYTES_MAX)
        .with_ratio_max((ratio & 1 == 1).then_some(10));
    let held = 4 * OUTPUT_BYTES_MAX + DECODER_BYTES;
    let Ok(output) = within(held, || unpack(codec, input, &limits)) else {
        return;
    };
    assert!(output.len() <= OUTPUT_BYTES_MAX);
    let again = compress(codec, &output).expect("memory takes everything");
    let limits = limits.with_ratio_max(None);
    assert_eq!(unpack(codec, &again, &limits), Ok(output));
}

/// Lets panics inside of ruzstd unwind: the wire crate turns them into errors. Every other panic
/// still ends a fuzzer at once.
pub fn forgive_ruzstd() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let is_ruzstd = |location: &panic::Location<'_>| location.file().contains("/ruzstd-");
        if !info.location().is_some_and(is_ruzstd) {
            hook(info);
        }
    }));
}
