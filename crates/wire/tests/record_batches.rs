//! One bad batch among good ones: the others are read, and the bad one's extent is known.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test's own failures")]

use bytes::Bytes;
use sharegroup_wire::compress::{Compression, DecompressLimits};
use sharegroup_wire::record::{
    BatchError, BatchErrorKind, RecordBatch, RecordBatchBuilder, RecordBatches, RecordErrorKind,
};

const LIMITS: DecompressLimits = DecompressLimits::DEFAULT;
/// Records in each batch.
const RECORDS: i64 = 3;

/// `count` batches of three records, from offset 0.
fn batches(count: i64, codec: Compression) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| {
            let mut builder = RecordBatchBuilder::new(codec);
            for record in 0..RECORDS {
                let value = format!("{number}-{record}");
                builder
                    .push(1000, Some(b"key"), Some(value.as_bytes()), [])
                    .unwrap();
            }
            builder.build(number * RECORDS).unwrap().to_vec()
        })
        .collect()
}

/// Reads everything; offsets of good records and the errors.
fn read(batches: RecordBatches) -> (Vec<i64>, Vec<BatchError>) {
    let (mut offsets, mut errors) = (Vec::new(), Vec::new());
    for batch in batches {
        let read = |batch: RecordBatch| {
            let mut index = Vec::new();
            batch.index_into(&LIMITS, &mut index, |_| true)?;
            Ok(index)
        };
        match batch.and_then(read) {
            Ok(index) => offsets.extend(index.iter().map(|span| span.offset)),
            Err(error) => errors.push(error),
        }
    }
    (offsets, errors)
}

/// Damages the third of fifty batches and expects the other 49, and one error about the third.
fn only_the_third_is_set_apart(
    codec: Compression,
    damage: impl FnOnce(&mut Vec<u8>),
) -> BatchError {
    let mut all = batches(50, codec);
    damage(&mut all[2]);
    let damaged = all[2].clone();
    let batches = RecordBatches::new(all.concat().into()).expecting(50 * RECORDS - 1);
    let (offsets, mut errors) = read(batches);
    let others: Vec<i64> = (0..6).chain(9..150).collect();
    assert_eq!(offsets, others, "{errors:?}");
    assert_eq!(errors.len(), 1, "{errors:?}");
    let error = errors.remove(0);
    assert_eq!(error.bytes, damaged);
    assert_eq!((error.base_offset, error.last_offset), (6, Some(8)));
    error
}

fn patch(bytes: &mut [u8], at: usize, with: &[u8]) {
    bytes[at..at + with.len()].copy_from_slice(with);
}

fn repair_crc(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[21..]);
    patch(bytes, 17, &crc.to_be_bytes());
}

#[test]
fn a_flipped_bit_in_a_record_sets_one_batch_apart() {
    let error = only_the_third_is_set_apart(Compression::None, |bytes| bytes[70] ^= 4);
    assert!(matches!(error.kind, BatchErrorKind::Crc { .. }));
}

#[test]
fn a_flipped_last_offset_delta_is_not_believed() {
    let error = only_the_third_is_set_apart(Compression::None, |bytes| {
        patch(bytes, 23, &i32::MAX.to_be_bytes());
    });
    assert!(matches!(error.kind, BatchErrorKind::Crc { .. }));
}

#[test]
fn a_bad_magic_sets_one_batch_apart() {
    for magic in [0, 1, 3, 127, -1] {
        let error = only_the_third_is_set_apart(Compression::None, |bytes| {
            patch(bytes, 16, &i8::to_be_bytes(magic));
        });
        assert_eq!(error.kind, BatchErrorKind::Magic { magic });
    }
}

#[test]
fn a_bad_length_sets_one_batch_apart() {
    for length in [0, -1, i32::MIN, 48, 49, 90, 1000, 4000, 100_000, i32::MAX] {
        let error = only_the_third_is_set_apart(Compression::None, |bytes| {
            patch(bytes, 8, &i32::to_be_bytes(length));
        });
        let right = match length {
            ..49 => matches!(error.kind, BatchErrorKind::Length { .. }),
            49..=4000 => matches!(error.kind, BatchErrorKind::Crc { .. }),
            _ => matches!(error.kind, BatchErrorKind::Cut { .. }),
        };
        assert!(right && error.is_retriable(), "{length}: {error}");
    }
}

#[test]
fn any_flipped_bit_costs_one_batch_at_most() {
    let clean = batches(5, Compression::None);
    let (start, end) = (clean[0].len(), clean[0].len() + clean[1].len());
    let all = clean.concat();
    // The base offset and the leader epoch lie outside the CRC and can't be checked.
    for at in (start + 8..start + 12).chain(start + 16..end) {
        for bit in 0..8 {
            let mut bytes = all.clone();
            bytes[at] ^= 1 << bit;
            let batches = RecordBatches::new(bytes.into()).expecting(5 * RECORDS - 1);
            let (offsets, errors) = read(batches);
            let others: Vec<i64> = (0..3).chain(6..15).collect();
            assert_eq!(offsets, others, "byte {at} bit {bit}");
            assert_eq!(errors.len(), 1);
            assert_eq!((errors[0].base_offset, errors[0].last_offset), (3, Some(5)));
        }
    }
}

#[test]
fn an_undecompressable_payload_sets_one_batch_apart() {
    for codec in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let error = only_the_third_is_set_apart(codec, |bytes| {
            bytes[62..].fill(0xff);
            repair_crc(bytes);
        });
        assert!(matches!(error.kind, BatchErrorKind::Decompress(_)));
        assert!(!error.is_retriable());
    }
}

#[test]
fn a_last_offset_delta_below_its_records_is_an_error_of_the_records() {
    let error = {
        let mut bytes = batches(1, Compression::None).concat();
        patch(&mut bytes, 23, &1_i32.to_be_bytes());
        repair_crc(&mut bytes);
        RecordBatch::read(bytes.into()).unwrap_err()
    };
    assert_eq!(error.kind, BatchErrorKind::RecordCount { count: 3 });

    let mut builder = RecordBatchBuilder::new(Compression::None);
    builder.push_at(7, 0, None, None, []).unwrap();
    let mut bytes = builder.build(0).unwrap().to_vec();
    patch(&mut bytes, 23, &6_i32.to_be_bytes());
    repair_crc(&mut bytes);
    let (offsets, errors) = read(RecordBatches::new(bytes.into()));
    assert!(offsets.is_empty());
    assert!(matches!(
        errors[0].kind,
        BatchErrorKind::Record(error) if error.kind == RecordErrorKind::Offset { delta: 7 }
    ));
}

#[test]
fn offsets_that_repeat_inside_a_batch_are_an_error() {
    let mut bytes = batches(1, Compression::None).concat();
    // The delta of the second record: every record has the same size, 4 bytes into it.
    let record = (bytes.len() - 61) / 3;
    bytes[61 + record + 3] = 0;
    repair_crc(&mut bytes);
    let (offsets, errors) = read(RecordBatches::new(bytes.into()));
    assert!(offsets.is_empty());
    assert!(matches!(
        errors[0].kind,
        BatchErrorKind::Record(error)
            if error.kind == RecordErrorKind::Offset { delta: 0 } && error.index == 1
    ));
}

#[test]
fn offsets_that_overflow_are_an_error() {
    for (base_offset, delta) in [(i64::MAX, 2), (-1, 2), (0, -1), (i64::MIN, i32::MAX)] {
        let mut bytes = batches(1, Compression::None).concat();
        patch(&mut bytes, 0, &base_offset.to_be_bytes());
        patch(&mut bytes, 23, &i32::to_be_bytes(delta));
        repair_crc(&mut bytes);
        let error = RecordBatch::read(bytes.into()).unwrap_err();
        let kind = BatchErrorKind::OffsetRange {
            last_offset_delta: delta,
        };
        assert_eq!((error.kind, error.last_offset), (kind, None));
    }
}

#[test]
fn a_cut_batch_is_an_error_only_where_records_were_promised() {
    let all = batches(3, Compression::None);
    let bytes = Bytes::from(all.concat());
    let cut = bytes.slice(..bytes.len() - 1);
    for expected in [None, Some(5)] {
        let mut batches = RecordBatches::new(cut.clone());
        if let Some(last_offset) = expected {
            batches = batches.expecting(last_offset);
        }
        assert_eq!(batches.by_ref().filter(Result::is_ok).count(), 2);
        assert_eq!(batches.cut_base_offset(), Some(6));
        assert_eq!(batches.remainder().len(), all[2].len() - 1);
    }
    let (offsets, errors) = read(RecordBatches::new(cut).expecting(6));
    assert_eq!(offsets, [0, 1, 2, 3, 4, 5]);
    assert!(matches!(errors[0].kind, BatchErrorKind::Cut { .. }));
    assert_eq!((errors[0].base_offset, errors[0].last_offset), (6, None));
}

#[test]
fn a_batch_inside_a_cut_record_is_not_taken_for_a_batch() {
    let inner = batches(4, Compression::None)[3].clone();
    let mut builder = RecordBatchBuilder::new(Compression::None);
    builder.push(0, None, Some(&inner), []).unwrap();
    builder.push(0, None, Some(b"end"), []).unwrap();
    let bytes = builder.build(0).unwrap();
    let cut = bytes.slice(..bytes.len() - 2);
    assert_eq!(RecordBatches::new(cut).count(), 0);
}

#[test]
fn a_search_for_the_next_batch_is_bounded() {
    // Each byte pair looks like the start of a large batch whose CRC is wrong.
    let mut bytes = Vec::new();
    for at in 0..20_000_i64 {
        let mut header = [0_u8; 61];
        header[..8].copy_from_slice(&at.to_be_bytes());
        header[8..12].copy_from_slice(&600_000_i32.to_be_bytes());
        header[16] = 2;
        bytes.extend_from_slice(&header);
    }
    patch(&mut bytes, 8, &(-5_i32).to_be_bytes());
    let size = bytes.len();
    let started = std::time::Instant::now();
    let (offsets, errors) = read(RecordBatches::new(bytes.into()));
    assert!(offsets.is_empty());
    assert_eq!(
        errors.iter().map(|error| error.bytes.len()).sum::<usize>(),
        size
    );
    // Without the bound it would be 6 GB of CRC.
    assert!(started.elapsed().as_secs() < 5);
}

#[test]
fn positions_of_wanted_records_share_the_frame() {
    let frame = Bytes::from(batches(2, Compression::None).concat());
    let batch = RecordBatches::new(frame.clone()).nth(1).unwrap().unwrap();
    let mut index = Vec::new();
    let payload = batch
        .index_into(&LIMITS, &mut index, |offset| offset != 4)
        .unwrap();
    let values: Vec<_> = index
        .iter()
        .map(|span| (span.offset, span.value_bytes(&payload).unwrap()))
        .collect();
    assert_eq!(values, [(3, Bytes::from("1-0")), (5, Bytes::from("1-2"))]);
    let inside = frame.as_ptr_range();
    assert!(
        values
            .iter()
            .all(|(_, value)| inside.contains(&value.as_ptr()))
    );
    assert_eq!(size_of_val(&index[0]), 48);
}

#[test]
fn a_malformed_record_leaves_the_index_as_it_was() {
    let mut bytes = batches(1, Compression::None).concat();
    let size = bytes.len();
    // The header count of the last record.
    bytes[size - 1] = 1;
    repair_crc(&mut bytes);
    let batch = RecordBatch::read(bytes.into()).unwrap();
    let mut index = Vec::new();
    let error = batch.index_into(&LIMITS, &mut index, |_| true).unwrap_err();
    assert!(index.is_empty());
    assert_eq!((error.base_offset, error.last_offset), (0, Some(2)));
    assert!(matches!(
        error.kind,
        BatchErrorKind::Record(error)
            if error.index == 2 && error.kind == RecordErrorKind::HeaderCount { count: -1 }
    ));
}

#[test]
fn headers_keep_duplicates_nulls_and_keys_that_are_not_text() {
    let headers: [(&[u8], Option<&[u8]>); 4] = [
        (b"a", Some(b"1")),
        (b"a", None),
        (b"\xff\xfe", Some(b"")),
        (b"", Some(b"x")),
    ];
    for codec in Compression::ALL {
        let mut builder = RecordBatchBuilder::new(codec);
        builder.push(5, None, None, headers).unwrap();
        let batch = RecordBatch::read(builder.build(0).unwrap()).unwrap();
        let record = batch.records(&LIMITS).unwrap().next().unwrap().unwrap();
        assert_eq!(record.headers.len(), 4);
        let read: Vec<_> = record
            .headers
            .map(|header| (header.key, header.value))
            .collect();
        assert_eq!(read, headers);
        assert_eq!(record.headers.last_value("a"), Some(None));
        assert_eq!(record.headers.last_value("b"), None);
        assert_eq!(
            record.headers.clone().nth(2).unwrap().key_str(),
            "\u{fffd}\u{fffd}"
        );
    }
}

#[test]
fn an_empty_batch_keeps_what_its_header_says() {
    for codec in Compression::ALL {
        let bytes = RecordBatchBuilder::new(codec)
            .producer(9, 1, 4)
            .last_offset_delta(9)
            .build(100)
            .unwrap();
        let batch = RecordBatch::read(bytes).unwrap();
        assert_eq!((batch.last_offset(), batch.record_count()), (109, 0));
        assert_eq!((batch.producer_id(), batch.producer_epoch()), (9, 1));
        assert_eq!(batch.base_sequence(), 4);
        assert_eq!(batch.records(&LIMITS).unwrap().count(), 0, "{codec}");
    }
}

#[test]
fn timestamps_span_64_bits() {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    let times = [0, i64::MAX, i64::MIN, -1, 1_700_000_000_000];
    for time in times {
        builder.push(time, None, None, []).unwrap();
    }
    let batch = RecordBatch::read(builder.build(0).unwrap()).unwrap();
    let read: Vec<_> = batch
        .records(&LIMITS)
        .unwrap()
        .map(|record| record.unwrap().timestamp)
        .collect();
    assert_eq!(read, times);
    assert_eq!(batch.max_timestamp(), i64::MAX);
}
