//! Memory that a hostile batch can cost. One test, since the peak is that of the whole process.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test's own failures")]

#[cfg(target_os = "linux")]
#[test]
fn a_hostile_batch_costs_no_more_memory_than_the_limits() {
    use sharegroup_wire::compress::{Compression, DecompressError, DecompressLimits, decompress};
    use sharegroup_wire::record::{RecordBatch, RecordBatchBuilder};

    const MIB: usize = 1024 * 1024;

    /// Largest resident size so far, in bytes.
    fn peak_bytes() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM:"))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<usize>()
            .unwrap()
            * 1024
    }

    /// A zstd frame of 8192 RLE blocks of 128 KiB: 32 KB that inflate to 1 GiB.
    fn bomb(window_descriptor: u8) -> Vec<u8> {
        let mut bomb = vec![0x28, 0xb5, 0x2f, 0xfd, 0, window_descriptor];
        for block in 0..8192_u32 {
            let last = u32::from(block == 8191);
            bomb.extend_from_slice(&(131_072 << 3 | 1 << 1 | last).to_le_bytes()[..3]);
            bomb.push(b'a');
        }
        bomb
    }

    // A batch that claims two billion records and as many offsets.
    let start = peak_bytes();
    let mut builder = RecordBatchBuilder::new(Compression::None);
    builder.push(0, None, None, []).unwrap();
    let mut bytes = builder
        .last_offset_delta(i32::MAX - 1)
        .build(0)
        .unwrap()
        .to_vec();
    bytes[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    let batch = RecordBatch::read(bytes.into()).unwrap();
    let mut index = Vec::new();
    batch
        .index_into(&DecompressLimits::default(), &mut index, |_| true)
        .unwrap_err();
    let grown = peak_bytes() - start;
    assert!(grown < MIB, "record count: {grown} bytes");

    // A bomb with a window of 2 MiB, then one of 128 MiB, which the decoder holds beside the output.
    let cap = 32 * MIB;
    let limits = DecompressLimits::default().with_decompressed_bytes_max(cap);
    for (window_descriptor, peak) in [(0x58, cap + 8 * MIB), (0x88, 3 * cap)] {
        let start = peak_bytes();
        let error = decompress(Compression::Zstd, &bomb(window_descriptor), &limits).unwrap_err();
        assert!(
            matches!(error, DecompressError::TooLarge { limit_bytes, .. } if limit_bytes == cap)
        );
        let grown = peak_bytes() - start;
        assert!(grown < peak, "zstd bomb: {grown} bytes");
    }
}
