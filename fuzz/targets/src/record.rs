//! Record batches.

use arbitrary::Arbitrary;
use bytes::Bytes;
use sharegroup_wire::compress::{Compression, DecompressLimits, compress};
use sharegroup_wire::record::{
    BATCH_HEADER_BYTES, RecordBatch, RecordBatchBuilder, RecordBatches, RecordView, TimestampType,
};

use crate::allocation::within;

/// Cap on the records of a batch, in bytes.
const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// Where the CRC lies, and what it covers.
const CRC: std::ops::Range<usize> = 17..21;
/// Where the fields lie that [`record_inside`] sets.
const FIELDS: std::ops::Range<usize> = 21..BATCH_HEADER_BYTES;
/// What an error or a handle may allocate.
const HANDLE_BYTES: usize = 1024;

fn limits() -> DecompressLimits {
    DecompressLimits::DEFAULT.with_decompressed_bytes_max(PAYLOAD_BYTES_MAX)
}

/// The records field of a partition, as a broker sends it.
///
/// Input: whether CRCs are put right (bit 0) and records up to the end are promised (bit 1), bytes.
pub fn record_batches(data: &[u8]) {
    let [flags, bytes @ ..] = data else { return };
    let mut bytes = bytes.to_vec();
    if flags & 1 == 1 {
        put_crcs_right(&mut bytes);
    }
    let bytes = Bytes::from(bytes);
    let mut batches = RecordBatches::new(bytes.clone());
    if flags & 2 == 2 {
        batches = batches.expecting(i64::MAX);
    }
    let mut seen = Vec::new();
    let mut floor = 0;
    while let Some(batch) = within(HANDLE_BYTES, || batches.next()) {
        match batch {
            Ok(batch) => {
                assert!(batch.base_offset() >= 0 && batch.last_offset() >= batch.base_offset());
                floor = floor.max(batch.last_offset());
                seen.extend_from_slice(batch.bytes());
                read(&batch);
            }
            Err(error) => {
                assert!(!error.bytes.is_empty(), "no progress");
                drop(error.to_string());
                seen.extend_from_slice(&error.bytes);
            }
        }
    }
    assert!(batches.next().is_none());
    seen.extend_from_slice(batches.remainder());
    assert_eq!(
        seen, bytes,
        "every byte is in a batch, an error or the rest"
    );
}

fn put_crcs_right(mut rest: &mut [u8]) {
    while let Some(length) = rest.get(8..12) {
        let length = u32::from_be_bytes(length.try_into().expect("four bytes"));
        let size = usize::try_from(length).expect("64 bits") + 12;
        if size < BATCH_HEADER_BYTES || size > rest.len() {
            return;
        }
        let (batch, behind) = rest.split_at_mut(size);
        put_crc_right(batch);
        rest = behind;
    }
}

fn put_crc_right(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[CRC.end..]);
    batch[CRC].copy_from_slice(&crc.to_be_bytes());
}

/// One batch whose frame is right, whatever is inside.
///
/// Input: whether the payload is compressed here (bit 0), base offset, the fields from the attributes
/// to the count of records, the payload.
pub fn record_inside(data: &[u8]) {
    let Some((&[flags], data)) = data.split_first_chunk() else {
        return;
    };
    let Some((base_offset, data)) = data.split_first_chunk::<8>() else {
        return;
    };
    let Some((fields, payload)) = data.split_first_chunk::<{ FIELDS.end - FIELDS.start }>() else {
        return;
    };
    let codec = Compression::from_id(fields[1] & 0b111);
    let payload = match codec.filter(|_| flags & 1 == 1) {
        Some(codec) => compress(codec, payload).expect("memory takes everything"),
        None => payload.to_vec(),
    };
    let length = u32::try_from(BATCH_HEADER_BYTES - 12 + payload.len()).expect("inputs are small");
    let leader_epoch_magic_crc = [0, 0, 0, 5, 2, 0, 0, 0, 0];
    let head = [
        &base_offset[..],
        &length.to_be_bytes(),
        &leader_epoch_magic_crc,
        fields,
    ];
    let mut bytes = [&head.concat()[..], &payload].concat();
    put_crc_right(&mut bytes);
    match RecordBatch::read(bytes.into()) {
        Ok(batch) => read(&batch),
        Err(error) => drop(error.to_string()),
    }
}

/// The input of [`record_inside`] that gives this batch.
pub(crate) fn inside_of(batch: &[u8]) -> Vec<u8> {
    let payload = &batch[BATCH_HEADER_BYTES..];
    [&[0], &batch[..8], &batch[FIELDS], payload].concat()
}

/// All ways to read a batch agree, and what was read can be written and read again.
fn read(batch: &RecordBatch) {
    let held = if batch.compression() == Compression::None {
        HANDLE_BYTES
    } else {
        4 * PAYLOAD_BYTES_MAX + 2 * 1024 * 1024
    };
    let records = match within(held, || batch.records(&limits())) {
        Ok(records) => records,
        Err(error) => {
            drop(error.to_string());
            assert!(
                batch
                    .index_into(&limits(), &mut Vec::new(), |_| true)
                    .is_err()
            );
            return;
        }
    };
    let mut views = Vec::new();
    let mut failure = None;
    for record in records {
        assert!(failure.is_none(), "records behind an error");
        match record {
            Ok(record) => views.push(record),
            Err(error) => failure = Some(error),
        }
    }
    let mut index = Vec::new();
    let payload = batch.index_into(&limits(), &mut index, |_| true);
    if let Some(error) = failure {
        drop(batch.error(error).to_string());
        assert!(payload.is_err() && index.is_empty());
        return;
    }
    let payload = payload.expect("no record is malformed");
    assert_eq!(i32::try_from(views.len()), Ok(batch.record_count()));
    assert_eq!(views.len(), index.len());
    let mut next_offset = batch.base_offset();
    for (record, span) in views.iter().zip(&index) {
        assert!((next_offset..=batch.last_offset()).contains(&record.offset));
        next_offset = record.offset.saturating_add(1);
        assert_eq!(*record, span.view(&payload, batch.timestamp_type()));
        assert_eq!(record.headers.len(), record.headers.count());
        assert_eq!(span.key_bytes(&payload).as_deref(), record.key);
        assert_eq!(span.value_bytes(&payload).as_deref(), record.value);
    }
    written_again_is_the_same(batch, &views);
}

fn written_again_is_the_same(batch: &RecordBatch, views: &[RecordView<'_>]) {
    let (id, epoch, sequence) = (
        batch.producer_id(),
        batch.producer_epoch(),
        batch.base_sequence(),
    );
    let mut builder = RecordBatchBuilder::new(batch.compression())
        .base_timestamp(batch.base_timestamp())
        .producer(id, epoch, sequence)
        .control(batch.is_control())
        .transactional(batch.is_transactional())
        .partition_leader_epoch(batch.partition_leader_epoch());
    if batch.timestamp_type() == TimestampType::LogAppendTime {
        builder = builder.log_append_time(batch.max_timestamp());
    }
    for record in views {
        let delta = i32::try_from(record.offset - batch.base_offset()).expect("a delta");
        let headers = record.headers.map(|header| (header.key, header.value));
        let pushed = builder.push_at(delta, record.timestamp, record.key, record.value, headers);
        pushed.expect("records that were read fit in a batch");
    }
    let bytes = builder
        .last_offset_delta(batch.last_offset_delta())
        .build(batch.base_offset())
        .expect("a batch");
    let again = RecordBatch::read(bytes).expect("a batch that was written can be read");
    assert_eq!(again.last_offset(), batch.last_offset());
    assert_eq!(again.record_count(), batch.record_count());
    assert_eq!(again.timestamp_type(), batch.timestamp_type());
    // The cap holds for what was in the batch, and the same records can take more bytes here.
    let records = again.records(&DecompressLimits::DEFAULT).expect("records");
    let records: Vec<_> = records.collect::<Result<_, _>>().expect("records");
    assert_eq!(records, views);
}

/// A batch to write.
#[derive(Debug, Arbitrary)]
struct Batch<'a> {
    codec: u8,
    base_offset: u32,
    producer: (i64, i16, i32),
    leader_epoch: i32,
    is_transactional: bool,
    is_control: bool,
    append_time: Option<i64>,
    base_timestamp: Option<i64>,
    records: Vec<Record<'a>>,
}

/// A record to write.
#[derive(Debug, Arbitrary)]
struct Record<'a> {
    /// Offsets left out before it.
    hole: u8,
    timestamp: i64,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: Vec<(&'a [u8], Option<&'a [u8]>)>,
    /// How often it stands there.
    repeats: u8,
}

/// What is written is read back, with every codec.
pub fn record_writer(data: &[u8]) {
    let Ok(input) = Batch::arbitrary_take_rest(arbitrary::Unstructured::new(data)) else {
        return;
    };
    let codec = Compression::ALL[usize::from(input.codec) % Compression::ALL.len()];
    let (id, epoch, sequence) = input.producer;
    let mut builder = RecordBatchBuilder::new(codec)
        .producer(id, epoch, sequence)
        .partition_leader_epoch(input.leader_epoch)
        .transactional(input.is_transactional)
        .control(input.is_control);
    if let Some(time) = input.base_timestamp {
        builder = builder.base_timestamp(time);
    }
    if let Some(time) = input.append_time {
        builder = builder.log_append_time(time);
    }
    let records = input.records.iter();
    let records: Vec<_> = records
        .flat_map(|record| std::iter::repeat_n(record, usize::from(record.repeats) + 1))
        .take(1000)
        .collect();
    let mut delta = -1;
    for record in &records {
        delta += 1 + i32::from(record.hole);
        let headers = record.headers.iter().copied();
        let pushed = builder.push_at(delta, record.timestamp, record.key, record.value, headers);
        pushed.expect("records are small");
    }
    let base_offset = i64::from(input.base_offset);
    let bytes = builder.build(base_offset).expect("a small batch");
    let batch = RecordBatch::read(bytes.clone()).expect("a batch");
    assert_eq!(batch.bytes(), &bytes);
    assert_eq!(batch.compression(), codec);
    assert_eq!(
        (
            batch.producer_id(),
            batch.producer_epoch(),
            batch.base_sequence()
        ),
        input.producer
    );
    assert_eq!(batch.partition_leader_epoch(), input.leader_epoch);
    assert_eq!(batch.is_control(), input.is_control);
    assert_eq!(batch.is_transactional(), input.is_transactional);
    assert_eq!(batch.last_offset(), base_offset + i64::from(delta.max(0)));
    read_back(&batch, &records, input.append_time);
}

fn read_back(batch: &RecordBatch, written: &[&Record<'_>], append_time: Option<i64>) {
    let limits = DecompressLimits::DEFAULT;
    let read = batch.records(&limits).expect("records");
    let read: Vec<_> = read.collect::<Result<_, _>>().expect("records");
    assert_eq!(read.len(), written.len());
    let mut offset = batch.base_offset() - 1;
    for (read, written) in read.iter().zip(written) {
        offset += 1 + i64::from(written.hole);
        assert_eq!(read.offset, offset);
        assert_eq!(read.timestamp, append_time.unwrap_or(written.timestamp));
        assert_eq!((read.key, read.value), (written.key, written.value));
        let headers = read.headers.map(|header| (header.key, header.value));
        assert!(headers.eq(written.headers.iter().copied()));
    }
}
