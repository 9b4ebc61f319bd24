//! What people report about record batches, one test per report, named after its id.
//!
//! The batches are made by hand and were read with Kafka's Java client for comparison; its answer
//! stands beside ours where they differ.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test's own failures")]

use bytes::Bytes;
use serde_json::Value;
use sharegroup_wire::compress::{Compression, DecompressError, DecompressLimits, decompress};
use sharegroup_wire::record::{
    BatchError, BatchErrorKind, RecordBatch, RecordBatchBuilder, RecordBatches, RecordErrorKind,
    TimestampType,
};

const LIMITS: DecompressLimits = DecompressLimits::DEFAULT;

type Owned = (i64, Option<Vec<u8>>, Option<Vec<u8>>);

fn fixture(id: &str) -> Bytes {
    include_str!("../testdata/RecordFixtures.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|fixture| fixture["id"] == id)
        .map(|fixture| from_hex(fixture["hex"].as_str().unwrap()))
        .unwrap_or_else(|| panic!("no fixture {id}"))
}

fn from_hex(hex: &str) -> Bytes {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

fn only_batch(id: &str) -> RecordBatch {
    let mut batches = RecordBatches::new(fixture(id));
    let batch = batches.next().unwrap().unwrap();
    assert!(batches.next().is_none());
    batch
}

/// All records of a batch, or the first error, whether of the batch or of a record.
fn read(batch: Result<RecordBatch, BatchError>) -> Result<Vec<Owned>, BatchError> {
    let batch = batch?;
    let mut index = Vec::new();
    let payload = batch.index_into(&LIMITS, &mut index, |_| true)?;
    Ok(index
        .iter()
        .map(|span| {
            let owned = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.to_vec());
            (
                span.offset,
                owned(span.key_bytes(&payload)),
                owned(span.value_bytes(&payload)),
            )
        })
        .collect())
}

fn only_error(id: &str) -> BatchError {
    let mut batches = RecordBatches::new(fixture(id));
    let error = read(batches.next().unwrap()).unwrap_err();
    assert!(batches.next().is_none());
    assert_eq!(error.bytes, fixture(id));
    error
}

fn record_error(id: &str) -> RecordErrorKind {
    let error = only_error(id);
    assert_eq!(
        (error.base_offset, error.last_offset, error.is_retriable()),
        (0, Some(0), false)
    );
    match error.kind {
        BatchErrorKind::Record(error) => error.kind,
        kind => panic!("{kind}"),
    }
}

fn one(offset: i64) -> Vec<Owned> {
    vec![(offset, Some(b"k".to_vec()), Some(b"v".to_vec()))]
}

fn two() -> Vec<Owned> {
    vec![
        (0, Some(b"k".to_vec()), Some(b"v".to_vec())),
        (1, Some(b"k2".to_vec()), Some(b"v2".to_vec())),
    ]
}

#[test]
fn b_001_two_billion_claimed_records_are_an_error_before_any_record() {
    // Java: record 0, then a premature end.
    let error = only_error("FX-C");
    assert_eq!(error.kind, BatchErrorKind::RecordCount { count: i32::MAX });
    assert_eq!((error.base_offset, error.last_offset), (0, Some(0)));
}

#[test]
fn b_001_as_many_claimed_records_as_offsets_allocate_nothing_either() {
    // The same, with a last offset delta that allows the count.
    let mut bytes = fixture("FX-C").to_vec();
    bytes[23..27].copy_from_slice(&i32::MAX.to_be_bytes());
    let error = read(RecordBatch::read(with_crc(bytes))).unwrap_err();
    assert_eq!(error.kind, BatchErrorKind::RecordCount { count: i32::MAX });
    assert_eq!(error.last_offset, Some(i64::from(i32::MAX)));
}

#[test]
fn b_002_negative_record_count_is_an_error_that_names_the_offset() {
    let error = only_error("FX-B");
    assert_eq!(error.kind, BatchErrorKind::RecordCount { count: -1 });
    assert_eq!(
        error.to_string(),
        "record batch at offset 0: record count -1 is not possible"
    );
}

#[test]
fn b_004_negative_header_count_is_an_error() {
    assert_eq!(
        record_error("FX-E"),
        RecordErrorKind::HeaderCount { count: -1 }
    );
}

#[test]
fn b_006_snappy_in_two_xerial_chunks_gives_both_records() {
    assert_eq!(read(Ok(only_batch("FX-H"))).unwrap(), two());
}

#[test]
fn b_007_snappy_without_framing_gives_both_records() {
    assert_eq!(read(Ok(only_batch("FX-I"))).unwrap(), two());
}

#[test]
fn b_008_xerial_versions_in_little_endian_give_both_records() {
    assert_eq!(read(Ok(only_batch("FX-J"))).unwrap(), two());
}

#[test]
fn b_009_zstd_without_content_size_gives_both_records() {
    assert_eq!(read(Ok(only_batch("FX-K"))).unwrap(), two());
}

#[test]
fn b_010_zstd_in_several_frames_gives_both_records() {
    assert_eq!(read(Ok(only_batch("FX-L"))).unwrap(), two());
}

#[test]
fn b_011_an_honest_batch_of_one_character_passes() {
    // 200 records of 500 KB, 100 MB in all, as the C library compresses them into 6 KB.
    let compressed = include_bytes!("../testdata/honest_200x500kB.zst");
    let bytes = raw_batch(Compression::Zstd, 200, compressed);
    let batch = RecordBatch::read(bytes).unwrap();
    let mut index = Vec::new();
    let payload = batch.index_into(&LIMITS, &mut index, |_| true).unwrap();
    let value = vec![b'a'; 500_000];
    assert_eq!(index.len(), 200);
    assert!(
        index
            .iter()
            .all(|span| span.value_bytes(&payload).unwrap() == value)
    );
}

#[test]
fn b_011_one_character_passes_with_every_codec() {
    let value = vec![b'a'; 50_000];
    for codec in Compression::ALL {
        let mut builder = RecordBatchBuilder::new(codec);
        for _ in 0..20 {
            builder.push(1000, None, Some(&value), []).unwrap();
        }
        let batch = RecordBatch::read(builder.build(0).unwrap()).unwrap();
        let mut index = Vec::new();
        let payload = batch.index_into(&LIMITS, &mut index, |_| true).unwrap();
        assert_eq!(index.len(), 20, "{codec}");
        assert!(
            index
                .iter()
                .all(|span| span.value_bytes(&payload).unwrap() == value)
        );
    }
}

#[test]
fn b_011_a_bomb_is_an_error_that_names_the_cap() {
    // 8192 RLE blocks of 131072 bytes: 32 KB on the wire, 1 GiB inflated.
    let bomb = zstd_bomb(0x58, 8192);
    assert_eq!(
        decompress(Compression::Zstd, &bomb, &LIMITS),
        Err(DecompressError::TooLarge {
            codec: Compression::Zstd,
            compressed_bytes: bomb.len(),
            limit_bytes: LIMITS.decompressed_bytes_max,
        })
    );
    let batch = RecordBatch::read(raw_batch(Compression::Zstd, 1, &bomb)).unwrap();
    let error = batch.payload(&LIMITS).unwrap_err();
    assert!(
        error.to_string().contains("decompressed_bytes_max"),
        "{error}"
    );
    assert_eq!((error.base_offset, error.last_offset), (0, Some(0)));
}

#[test]
fn b_012_lz4_content_checksum_is_read_and_compared() {
    assert_eq!(read(Ok(only_batch("FX-1"))).unwrap(), two());
    // Java does not compare it and gives two records.
    let error = only_error("FX-2");
    assert_eq!(
        error.to_string(),
        "record batch at offset 0: corrupt lz4 data: content checksum does not match"
    );
}

#[test]
fn b_013_unknown_codec_and_magic_are_errors_that_name_them() {
    let error = only_error("FX-U");
    assert_eq!(error.kind, BatchErrorKind::Compression { id: 7 });
    assert_eq!(error.last_offset, Some(0));
    let error = only_error("FX-V");
    assert_eq!(error.kind, BatchErrorKind::Magic { magic: 3 });
    assert_eq!(error.last_offset, None);
}

#[test]
fn b_013_an_old_message_set_is_an_error_per_message() {
    // Offset, size, CRC, magic 1, attributes, timestamp, null key, value "v".
    let message = |offset: i64| {
        let mut bytes = offset.to_be_bytes().to_vec();
        bytes.extend_from_slice(&23_i32.to_be_bytes());
        bytes.extend_from_slice(&[1, 2, 3, 4, 1, 0]);
        bytes.extend_from_slice(&1000_i64.to_be_bytes());
        bytes.extend_from_slice(&(-1_i32).to_be_bytes());
        bytes.extend_from_slice(&1_i32.to_be_bytes());
        bytes.push(b'v');
        bytes
    };
    let set = [message(7), message(8)].concat();
    let errors: Vec<_> = RecordBatches::new(set.into())
        .map(Result::unwrap_err)
        .collect();
    let seen: Vec<_> = errors
        .iter()
        .map(|error| (error.base_offset, error.kind.clone()))
        .collect();
    let magic = BatchErrorKind::Magic { magic: 1 };
    assert_eq!(seen, [(7, magic.clone()), (8, magic)]);
}

#[test]
fn b_014_a_transaction_marker_is_flagged() {
    let batch = only_batch("FX-M");
    assert!(batch.is_control() && batch.is_transactional());
    assert_eq!((batch.base_offset(), batch.last_offset()), (5, 5));
    let record = batch.records(&LIMITS).unwrap().next().unwrap().unwrap();
    // Version 0, type 1: commit.
    assert_eq!(record.key, Some(&[0, 0, 0, 1][..]));
    assert!(!only_batch("FX-W").is_control());
}

#[test]
fn b_015_compacted_batches_keep_their_range_of_offsets() {
    for (id, records) in [("FX-N", vec![]), ("FX-O", one(100))] {
        let batch = only_batch(id);
        assert_eq!((batch.base_offset(), batch.last_offset()), (100, 109));
        assert_eq!(read(Ok(batch)).unwrap(), records);
    }
}

#[test]
fn b_016_log_append_time_is_the_time_of_every_record() {
    let batch = only_batch("FX-G");
    assert_eq!(batch.timestamp_type(), TimestampType::LogAppendTime);
    for record in batch.records(&LIMITS).unwrap() {
        let record = record.unwrap();
        assert_eq!(
            (record.timestamp, record.timestamp_type),
            (5000, TimestampType::LogAppendTime)
        );
    }
    let created: Vec<_> = batch.spans(&LIMITS).unwrap().with_create_time().collect();
    let created: Vec<_> = created
        .into_iter()
        .map(|span| span.unwrap().timestamp)
        .collect();
    assert_eq!(created, [1000, 1007]);
}

#[test]
fn b_017_null_and_empty_stay_different() {
    let empty = Some(Vec::new());
    assert_eq!(
        read(Ok(only_batch("FX-W"))).unwrap(),
        [(0, None, None), (1, empty.clone(), empty)]
    );
    for record in only_batch("FX-W").records(&LIMITS).unwrap() {
        let record = record.unwrap();
        let empty: Option<&[u8]> = (record.offset == 1).then_some(&[]);
        assert_eq!((record.key, record.value), (empty, empty));
    }
}

#[test]
fn b_018_a_wrong_crc_is_an_error_and_worth_another_read() {
    let error = only_error("FX-P");
    let kind = BatchErrorKind::Crc {
        stored: 0x716a_6188,
        computed: 0x716a_6189,
    };
    assert_eq!(error.kind, kind);
    assert!(error.is_retriable());
    // Nothing inside such a batch is to be trusted, its last offset neither.
    assert_eq!(error.last_offset, None);
}

#[test]
fn b_019_lying_varints_are_four_different_errors() {
    assert_eq!(record_error("FX-Q"), RecordErrorKind::VarintTooLong);
    assert_eq!(record_error("FX-Y"), RecordErrorKind::Truncated);
    assert_eq!(
        record_error("FX-T"),
        RecordErrorKind::TrailingBytes { left: 2 }
    );
    // Three bytes can't hold the one record that is promised: seen before it is read.
    assert_eq!(
        only_error("FX-R").kind,
        BatchErrorKind::RecordCount { count: 1 }
    );
    let cut = raw_batch(Compression::None, 1, &[0x80; 8]);
    let error = read(RecordBatch::read(cut)).unwrap_err();
    assert!(
        matches!(error.kind, BatchErrorKind::Record(error) if error.kind == RecordErrorKind::VarintTooLong)
    );
    let cut = raw_batch(Compression::None, 1, &[0x0c, 0, 0, 0, 1, 1, 0x80]);
    let error = read(RecordBatch::read(cut)).unwrap_err();
    assert!(
        matches!(error.kind, BatchErrorKind::Record(error) if error.kind == RecordErrorKind::Truncated)
    );
}

#[test]
fn b_020_a_cut_last_batch_ends_the_response_without_an_error() {
    let bytes = fixture("FX-S");
    let mut batches = RecordBatches::new(bytes.clone());
    assert_eq!(read(batches.next().unwrap()).unwrap(), one(0));
    assert!(batches.next().is_none());
    assert_eq!(batches.cut_base_offset(), Some(1));
    assert_eq!(*batches.remainder(), bytes[bytes.len() - 20..]);
}

/// One zstd frame of RLE blocks of 128 KiB each.
fn zstd_bomb(window_descriptor: u8, blocks: u32) -> Vec<u8> {
    let mut bomb = vec![0x28, 0xb5, 0x2f, 0xfd, 0, window_descriptor];
    for block in 0..blocks {
        let last = u32::from(block + 1 == blocks);
        bomb.extend_from_slice(&(131_072 << 3 | 1 << 1 | last).to_le_bytes()[..3]);
        bomb.push(b'a');
    }
    bomb
}

/// A batch at offset 0 with these bytes as its records and a CRC that is right.
fn raw_batch(codec: Compression, record_count: i32, records: &[u8]) -> Bytes {
    let mut bytes = RecordBatchBuilder::new(Compression::None)
        .build(0)
        .unwrap()
        .to_vec();
    bytes.extend_from_slice(records);
    let length = i32::try_from(bytes.len() - 12).unwrap();
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[22] |= codec.id();
    bytes[23..27].copy_from_slice(&(record_count - 1).max(0).to_be_bytes());
    bytes[57..61].copy_from_slice(&record_count.to_be_bytes());
    with_crc(bytes)
}

fn with_crc(mut bytes: Vec<u8>) -> Bytes {
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.into()
}
