//! Record batches, both ways: to the content that Java's reader finds, and back to the bytes where
//! nothing is compressed.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test's own failures")]

use std::path::Path;

use bytes::Bytes;
use serde_json::{Value, json};
use sharegroup_wire::compress::{Compression, DecompressLimits};
use sharegroup_wire::record::{
    RecordBatch, RecordBatchBuilder, RecordBatches, RecordView, TimestampType,
};

use crate::messages::{BATCHES_FILE, from_hex};

/// Checks each line of the folder's file of batches, and counts them.
pub(crate) fn check_all(folder: &Path) -> usize {
    let file = folder.join(BATCHES_FILE);
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut checked = 0;
    for (number, line) in text.lines().enumerate() {
        let vector: Value = serde_json::from_str(line).unwrap();
        let bytes = from_hex(vector["hex"].as_str().unwrap());
        check(&bytes, &vector).unwrap_or_else(|failure| {
            panic!("line {} ({}): {failure}", number + 1, vector["case"])
        });
        checked += 1;
    }
    assert!(checked > 0, "no vectors in {}", file.display());
    checked
}

fn check(bytes: &Bytes, vector: &Value) -> Result<(), String> {
    let batches = RecordBatches::new(bytes.clone())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| error.to_string())?;
    let content: Vec<Value> = batches.iter().map(content).collect();
    if Value::from(content.clone()) != vector["batches"] {
        return Err(format!("decodes to {content:?}"));
    }
    let mut again = Vec::new();
    for batch in &batches {
        let encoded = encode(batch);
        let decoded = RecordBatch::read(encoded.clone()).map_err(|error| error.to_string())?;
        let (mut ours, mut theirs) = (self::content(&decoded), self::content(batch));
        if batch.compression() != Compression::None {
            ours["crc32c"].take();
            theirs["crc32c"].take();
        }
        if ours != theirs {
            return Err(format!("encodes to {ours}"));
        }
        again.extend_from_slice(&encoded);
    }
    let plain = batches
        .iter()
        .all(|batch| batch.compression() == Compression::None);
    if plain && again != *bytes {
        return Err(format!("encodes to {}", to_hex(&again)));
    }
    Ok(())
}

/// A batch in the form of the vectors.
fn content(batch: &RecordBatch) -> Value {
    let records: Vec<Value> = batch
        .records(&DecompressLimits::default())
        .unwrap()
        .map(|record| {
            let record = record.unwrap();
            let headers: Vec<Value> = record
                .headers
                .map(|header| json!({"key": header.key_str(), "value": header.value.map(to_hex)}))
                .collect();
            json!({
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": record.key.map(to_hex),
                "value": record.value.map(to_hex),
                "headers": headers,
            })
        })
        .collect();
    json!({
        "baseOffset": batch.base_offset(),
        "lastOffset": batch.last_offset(),
        "partitionLeaderEpoch": batch.partition_leader_epoch(),
        "compression": batch.compression().name(),
        "timestampType": batch.timestamp_type().name(),
        "maxTimestamp": batch.max_timestamp(),
        "producerId": batch.producer_id(),
        "producerEpoch": batch.producer_epoch(),
        "baseSequence": batch.base_sequence(),
        "transactional": batch.is_transactional(),
        "control": batch.is_control(),
        "crc32c": batch.crc(),
        "records": records,
    })
}

/// Writes a batch that was read, from what the reader says about it.
fn encode(batch: &RecordBatch) -> Bytes {
    let mut builder = RecordBatchBuilder::new(batch.compression())
        .producer(
            batch.producer_id(),
            batch.producer_epoch(),
            batch.base_sequence(),
        )
        .transactional(batch.is_transactional())
        .control(batch.is_control())
        .partition_leader_epoch(batch.partition_leader_epoch())
        .base_timestamp(batch.base_timestamp());
    if batch.timestamp_type() == TimestampType::LogAppendTime {
        builder = builder.log_append_time(batch.max_timestamp());
    }
    let limits = DecompressLimits::default();
    for span in batch.spans(&limits).unwrap().with_create_time() {
        let span = span.unwrap();
        let payload = batch.payload(&limits).unwrap();
        let record: RecordView<'_> = span.view(&payload, TimestampType::CreateTime);
        let delta = i32::try_from(record.offset - batch.base_offset()).unwrap();
        let headers = record.headers.map(|header| (header.key, header.value));
        builder
            .push_at(delta, record.timestamp, record.key, record.value, headers)
            .unwrap();
    }
    builder
        .last_offset_delta(batch.last_offset_delta())
        .build(batch.base_offset())
        .unwrap()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
