use super::xxhash::{xxh32, xxh64};
use super::*;

/// Text of 600 KB: several blocks of every codec.
fn text() -> Vec<u8> {
    (0..50_000_u32)
        .flat_map(|number| format!("{:x}{number}\n", number.wrapping_mul(0x9E37_79B1)).into_bytes())
        .take(600_000)
        .collect()
}

fn read(codec: Compression, input: &[u8]) -> Result<Bytes, DecompressError> {
    decompress(codec, input, &DecompressLimits::default())
}

fn reason(codec: Compression, input: &[u8]) -> String {
    match read(codec, input).unwrap_err() {
        DecompressError::Corrupt { reason, .. } => reason,
        error => panic!("{error}"),
    }
}

#[test]
fn names_and_ids_are_kafkas() {
    for (id, name) in ["none", "gzip", "snappy", "lz4", "zstd"].iter().enumerate() {
        let codec: Compression = name.parse().unwrap();
        assert_eq!(usize::from(codec.id()), id);
        assert_eq!(Compression::from_id(codec.id()), Some(codec));
        assert_eq!(codec.to_string(), *name);
    }
    assert_eq!(Compression::from_id(5), None);
    let error = "brotli".parse::<Compression>().unwrap_err();
    assert_eq!(error, ParseCompressionError("brotli".to_owned()));
}

#[test]
fn streams_of_many_blocks_come_back() {
    let text = text();
    for codec in Compression::ALL {
        let compressed = compress(codec, &text).unwrap();
        assert_eq!(read(codec, &compressed).unwrap(), text, "{codec}");
        assert!(codec == Compression::None || compressed.len() < text.len());
    }
}

#[test]
fn nothing_and_incompressible_bytes_come_back() {
    // A simple generator: noise that no codec shrinks.
    let mut state = 7_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_le_bytes()[7]
    })
    .take(200_000)
    .collect();
    for codec in Compression::ALL {
        for data in [&[][..], &noise] {
            let compressed = compress(codec, data).unwrap();
            assert_eq!(read(codec, &compressed).unwrap(), data, "{codec}");
            assert!(
                compressed.len() <= data.len() + data.len() / 50 + 64,
                "{codec}"
            );
        }
    }
}

#[test]
fn streams_that_follow_one_another_are_read_as_one() {
    let text = text();
    for codec in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let (first, second) = text.split_at(100_000);
        let streams = [
            compress(codec, first).unwrap(),
            compress(codec, second).unwrap(),
        ]
        .concat();
        assert_eq!(read(codec, &streams).unwrap(), text, "{codec}");
    }
}

#[test]
fn bytes_after_the_end_are_an_error() {
    for codec in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let mut compressed = compress(codec, b"some text").unwrap();
        compressed.extend_from_slice(b"junk!");
        reason(codec, &compressed);
    }
}

#[test]
fn no_bytes_are_an_error() {
    for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
        reason(codec, b"");
    }
}

#[test]
fn both_limits_name_themselves() {
    let data = vec![0; 100_000];
    for codec in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let compressed = compress(codec, &data).unwrap();
        let compressed_bytes = compressed.len();
        let limits = DecompressLimits::default().with_decompressed_bytes_max(99_999);
        assert_eq!(
            decompress(codec, &compressed, &limits),
            Err(DecompressError::TooLarge {
                codec,
                compressed_bytes,
                limit_bytes: 99_999
            })
        );
        let limits = DecompressLimits::default().with_ratio_max(Some(10));
        assert_eq!(
            decompress(codec, &compressed, &limits),
            Err(DecompressError::RatioTooHigh {
                codec,
                compressed_bytes,
                ratio_max: 10
            })
        );
    }
}

#[test]
fn gzip_compares_its_checksum_and_size() {
    let good = compress(Compression::Gzip, b"some text").unwrap();
    for at in good.len() - 8..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        reason(Compression::Gzip, &bad);
    }
}

#[test]
fn zstd_skips_skippable_frames_and_compares_its_checksum() {
    // Made by the zstd tool: `printf abcabcabcabc | zstd --check`.
    let frame = [
        0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x61, 0x00, 0x00, 0x61, 0x62, 0x63, 0x61, 0x62, 0x63,
        0x61, 0x62, 0x63, 0x61, 0x62, 0x63,
    ];
    let checksum = [0x7f, 0x07, 0x79, 0x96];
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    let good = [&skippable[..], &frame, &checksum, &skippable].concat();
    assert_eq!(
        read(Compression::Zstd, &good).unwrap(),
        &b"abcabcabcabc"[..]
    );
    let bad = [&frame[..], &[0; 4]].concat();
    assert_eq!(
        reason(Compression::Zstd, &bad),
        "content checksum does not match"
    );
    assert_eq!(
        reason(Compression::Zstd, &skippable[..9]),
        "skippable frame is cut off"
    );
}

#[test]
fn lz4_frames_of_other_writers_are_read() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    use std::io::Write as _;

    let text = text();
    for mode in [BlockMode::Independent, BlockMode::Linked] {
        for size in [
            BlockSize::Max64KB,
            BlockSize::Max256KB,
            BlockSize::Max1MB,
            BlockSize::Max4MB,
        ] {
            for checksums in [false, true] {
                let info = FrameInfo::new()
                    .block_mode(mode)
                    .block_size(size)
                    .block_checksums(checksums)
                    .content_checksum(checksums)
                    .content_size(checksums.then_some(text.len() as u64));
                let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
                encoder.write_all(&text).unwrap();
                let frame = encoder.finish().unwrap();
                assert_eq!(read(Compression::Lz4, &frame).unwrap(), text);
            }
        }
    }
}

#[test]
fn lz4_frames_are_read_by_another_reader() {
    use std::io::Read as _;

    let text = text();
    let frame = compress(Compression::Lz4, &text).unwrap();
    let mut decoder = lz4_flex::frame::FrameDecoder::new(&frame[..]);
    let mut read = Vec::new();
    decoder.read_to_end(&mut read).unwrap();
    assert_eq!(read, text);
}

#[test]
fn lz4_headers_are_checked() {
    let frame = compress(Compression::Lz4, b"some text").unwrap();
    let with = |at: usize, byte: u8| {
        let mut frame = frame.clone();
        frame[at] = byte;
        reason(Compression::Lz4, &frame)
    };
    assert_eq!(with(0, 0), "frame magic is missing");
    assert_eq!(with(4, 0xa0), "unknown frame version");
    assert_eq!(with(4, 0x62), "reserved bits of the frame header are set");
    assert_eq!(with(4, 0x61), "the frame needs a dictionary");
    assert_eq!(with(5, 0x30), "unknown block size id");
    assert_eq!(with(6, 0), "frame header checksum does not match");
    assert_eq!(
        reason(Compression::Lz4, &frame[..frame.len() - 4]),
        "frame ends without end mark"
    );
}

#[test]
fn a_snappy_block_that_lies_about_its_size_allocates_nothing() {
    // 4 GiB claimed in five bytes.
    let lie = [0xff, 0xff, 0xff, 0xff, 0x0f];
    assert_eq!(
        reason(Compression::Snappy, &lie),
        "block of 5 bytes claims 4294967295 bytes"
    );
    let chunk = [&b"\x82SNAPPY\0"[..], &[0; 8], &[0xff; 4], &[0; 9]].concat();
    assert_eq!(
        reason(Compression::Snappy, &chunk),
        "xerial chunk of 4294967295 bytes with 9 left"
    );
}

#[test]
fn xxhash_is_that_of_its_specification() {
    assert_eq!(xxh32(b""), 0x02CC_5D05);
    assert_eq!(xxh32(b"abc"), 0x32D1_53FF);
    assert_eq!(
        xxh32(b"Nobody inspects the spammish repetition"),
        0xE229_3B2F
    );
    assert_eq!(xxh64(b""), 0xEF46_DB37_51D8_E999);
    assert_eq!(xxh64(b"abc"), 0x44BC_2CF5_AD77_0999);
    assert_eq!(
        xxh64(b"Nobody inspects the spammish repetition"),
        0xFBCE_A83C_8A37_8BF1
    );
}
