//! Properties of record batches and codecs that must hold for any content and any bytes.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test's own failures")]

use std::str::FromStr as _;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use sharegroup_wire::compress::{Compression, DecompressLimits, compress, decompress};
use sharegroup_wire::record::{RecordBatch, RecordBatchBuilder, RecordBatches};

const LIMITS: DecompressLimits = DecompressLimits::DEFAULT;

#[derive(Debug, Clone, PartialEq)]
struct Owned {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

fn codec() -> impl Strategy<Value = Compression> {
    proptest::sample::select(Compression::ALL.to_vec())
}

/// Bytes that compress in different ways: noise, runs, and text that repeats.
fn content(size_max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..size_max),
        (any::<u8>(), 0..size_max).prop_map(|(byte, size)| vec![byte; size]),
        (vec(any::<u8>(), 1..40), 0..size_max).prop_map(|(part, size)| part
            .into_iter()
            .cycle()
            .take(size)
            .collect()),
        vec(
            proptest::sample::select(b"{\"id\":12,ab}".to_vec()),
            0..size_max
        ),
    ]
}

fn record() -> impl Strategy<Value = Owned> {
    let field = || proptest::option::weighted(0.8, content(60));
    let headers = vec((vec(any::<u8>(), 0..10), field()), 0..4);
    (1_i64..3, any::<i64>(), field(), field(), headers).prop_map(
        // The offset is the distance to the one before.
        |(offset, timestamp, key, value, headers)| Owned {
            offset,
            timestamp,
            key,
            value,
            headers,
        },
    )
}

fn records(count_max: usize) -> impl Strategy<Value = Vec<Owned>> {
    (0..1_i64 << 40, vec(record(), 0..count_max)).prop_map(|(mut offset, mut records)| {
        for record in &mut records {
            offset += record.offset;
            record.offset = offset;
        }
        records
    })
}

fn build(codec: Compression, records: &[Owned]) -> Bytes {
    let base_offset = records.first().map_or(0, |record| record.offset);
    let mut builder = RecordBatchBuilder::new(codec);
    for record in records {
        builder
            .push_at(
                i32::try_from(record.offset - base_offset).unwrap(),
                record.timestamp,
                record.key.as_deref(),
                record.value.as_deref(),
                record
                    .headers
                    .iter()
                    .map(|(key, value)| (key.as_slice(), value.as_deref())),
            )
            .unwrap();
    }
    assert_eq!(builder.len(), records.len());
    let batch = builder.build(base_offset).unwrap();
    if codec == Compression::None {
        assert_eq!(batch.len(), builder.size_bytes());
    }
    batch
}

fn read(batch: &RecordBatch) -> Vec<Owned> {
    let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
    batch
        .records(&LIMITS)
        .unwrap()
        .map(|record| {
            let record = record.unwrap();
            Owned {
                offset: record.offset,
                timestamp: record.timestamp,
                key: owned(record.key),
                value: owned(record.value),
                headers: record
                    .headers
                    .map(|header| (header.key.to_vec(), owned(header.value)))
                    .collect(),
            }
        })
        .collect()
}

/// Goes through whatever these bytes are; must end, and must not panic.
fn exhaust(bytes: Bytes) {
    let limits = DecompressLimits::default().with_decompressed_bytes_max(1 << 20);
    let size = bytes.len();
    let mut batches = RecordBatches::new(bytes).expecting(i64::MAX);
    let mut seen = 0;
    for batch in batches.by_ref() {
        match batch {
            Ok(batch) => {
                seen += batch.size_bytes();
                for record in batch.records(&limits).into_iter().flatten().flatten() {
                    assert!((batch.base_offset()..=batch.last_offset()).contains(&record.offset));
                    assert_eq!(record.headers.len(), record.headers.count());
                }
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                seen += error.bytes.len();
            }
        }
    }
    // Every byte is in a batch, in an error, or left over.
    assert_eq!(seen + batches.remainder().len(), size);
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(codec in codec(), records in records(30)) {
        let bytes = build(codec, &records);
        let batch = RecordBatch::read(bytes.clone()).unwrap();
        prop_assert_eq!(batch.compression(), codec);
        prop_assert_eq!(&read(&batch), &records);
        // The index says the same.
        let mut index = Vec::new();
        let payload = batch.index_into(&LIMITS, &mut index, |_| true).unwrap();
        let values: Vec<_> = index.iter().map(|span| span.value_bytes(&payload)).collect();
        let expected: Vec<_> = records.iter().map(|record| record.value.clone().map(Bytes::from)).collect();
        prop_assert_eq!(values, expected);
        prop_assert_eq!(build(codec, &records), bytes);
    }

    #[test]
    fn a_batch_cut_at_any_byte_is_no_batch(codec in codec(), records in records(5)) {
        let bytes = build(codec, &records);
        for size in 0..bytes.len() {
            let mut batches = RecordBatches::new(bytes.slice(..size));
            prop_assert!(batches.next().is_none());
            prop_assert_eq!(batches.remainder().len(), size);
            prop_assert!(RecordBatch::read(bytes.slice(..size)).is_err());
        }
    }

    #[test]
    fn records_cut_at_any_byte_under_a_right_crc_are_an_error(codec in codec(), records in records(5)) {
        let bytes = build(codec, &records);
        // An empty batch has nothing to cut.
        let bytes = if records.is_empty() { bytes.slice(..61) } else { bytes };
        for size in 61..bytes.len() {
            let batch = RecordBatch::read(with_length_and_crc(bytes[..size].to_vec())).unwrap();
            let mut index = Vec::new();
            prop_assert!(batch.index_into(&LIMITS, &mut index, |_| true).is_err());
            prop_assert!(index.is_empty());
        }
    }

    #[test]
    fn damaged_batches_under_a_right_crc_never_panic(
        codec in codec(),
        records in records(20),
        damage in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = build(codec, &records).to_vec();
        for (at, byte) in damage {
            // Behind the CRC: what a hostile writer can choose.
            let at = 21 + at.index(bytes.len() - 21);
            bytes[at] = byte;
        }
        exhaust(with_length_and_crc(bytes));
    }

    #[test]
    fn flipped_bits_never_panic_and_no_byte_is_lost(
        codec in codec(),
        parts in vec(records(4), 1..5),
        flips in vec((any::<proptest::sample::Index>(), 0..8_u8), 0..6),
    ) {
        let mut bytes: Vec<u8> = parts.iter().flat_map(|records| build(codec, records)).collect();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        exhaust(bytes.into());
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..400), magic in 0..4_u8) {
        let mut bytes = bytes;
        if bytes.len() > 16 {
            bytes[8..12].copy_from_slice(&[0, 0, 0, 80]);
            bytes[16] = magic;
        }
        exhaust(bytes.into());
    }

    #[test]
    fn random_records_under_a_right_crc_never_panic(
        codec in codec(),
        count in 0..5_i32,
        records in vec(prop_oneof![0..20_u8, any::<u8>()], 0..200),
    ) {
        let mut bytes = RecordBatchBuilder::new(Compression::None).build(7).unwrap().to_vec();
        bytes[22] |= codec.id();
        bytes[23..27].copy_from_slice(&20_i32.to_be_bytes());
        bytes[57..61].copy_from_slice(&count.to_be_bytes());
        bytes.extend_from_slice(&records);
        exhaust(with_length_and_crc(bytes));
    }

}

proptest! {
    // Large data: fewer cases.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 6, ..ProptestConfig::default() })]

    #[test]
    fn every_codec_gives_back_what_it_got(codec in codec(), data in content(300_000)) {
        let compressed = compress(codec, &data).unwrap();
        prop_assert_eq!(decompress(codec, &compressed, &LIMITS).unwrap(), data);
    }

    #[test]
    fn the_cap_is_exact(codec in codec(), data in content(200_000)) {
        let compressed = compress(codec, &data).unwrap();
        let exact = LIMITS.with_decompressed_bytes_max(data.len());
        prop_assert_eq!(decompress(codec, &compressed, &exact).unwrap(), data.clone());
        if let Some(less) = data.len().checked_sub(1) {
            let less = LIMITS.with_decompressed_bytes_max(less);
            let error = decompress(codec, &compressed, &less).unwrap_err();
            prop_assert!(error.to_string().contains("decompressed_bytes_max"), "{}", error);
        }
    }

    #[test]
    fn a_cut_stream_is_an_error(codec in codec(), data in content(2000)) {
        if codec == Compression::None || data.is_empty() {
            return Ok(());
        }
        let compressed = compress(codec, &data).unwrap();
        for size in 0..compressed.len() {
            match decompress(codec, &compressed[..size], &LIMITS) {
                Err(_) => {}
                // Xerial streams have no end; a cut between two chunks shows in the records.
                Ok(cut) => {
                    prop_assert_eq!(codec, Compression::Snappy);
                    prop_assert!(cut.len() < data.len());
                }
            }
        }
    }

    #[test]
    fn damaged_streams_never_panic_nor_pass_the_cap(
        codec in codec(),
        data in content(20_000),
        damage in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut compressed = compress(codec, &data).unwrap();
        for (at, byte) in damage {
            if !compressed.is_empty() {
                let at = at.index(compressed.len());
                compressed[at] = byte;
            }
        }
        let limits = LIMITS.with_decompressed_bytes_max(30_000);
        if let Ok(output) = decompress(codec, &compressed, &limits) {
            prop_assert!(output.len() <= 30_000);
        }
    }
}

fn with_length_and_crc(mut bytes: Vec<u8>) -> Bytes {
    let length = i32::try_from(bytes.len() - 12).unwrap();
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.into()
}

#[test]
fn names_are_read_as_they_are_written() {
    for codec in Compression::ALL {
        assert_eq!(Compression::from_str(codec.name()), Ok(codec));
    }
}
