//! What reading a fetch response allocates: nothing per record, a constant per response.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test's own failures")]

use allocation_counter::measure;
use bytes::Bytes;
use sharegroup_wire::compress::{Compression, DecompressLimits};
use sharegroup_wire::message::Message;
use sharegroup_wire::message::share_fetch::{
    AcquiredRecords, FetchedPartition, FetchedTopic, ShareFetchResponse,
};
use sharegroup_wire::record::{RecordBatchBuilder, RecordBatches};

/// Allocations of a response with one partition: its lists of topics, partitions and acquired
/// ranges. Records are slices of the frame.
const ALLOCATIONS_PER_RESPONSE: u64 = 3;

/// A response with records of 256 bytes, a key and a header each, in batches of 500.
fn response(records: i64) -> Bytes {
    let mut bytes = Vec::new();
    for base in (0..records).step_by(500) {
        let mut batch = RecordBatchBuilder::new(Compression::None);
        for offset in base..(base + 500).min(records) {
            let header = (&b"trace"[..], Some(&b"0123456789abcdef"[..]));
            batch
                .push(offset, Some(b"key"), Some(&[7; 256]), [header])
                .unwrap();
        }
        bytes.extend_from_slice(&batch.build(base).unwrap());
    }
    let partition = FetchedPartition {
        records: bytes.into(),
        acquired_records: vec![AcquiredRecords {
            first_offset: 0,
            last_offset: records - 1,
            delivery_count: 1,
        }],
        ..Default::default()
    };
    let topic = FetchedTopic {
        partitions: vec![partition],
        ..Default::default()
    };
    let response = ShareFetchResponse {
        responses: vec![topic],
        ..Default::default()
    };
    response.to_bytes(2)
}

/// Reads every key, value and header; the answer is how many records there were.
fn read(body: &Bytes) -> i64 {
    let mut records = 0;
    let response = ShareFetchResponse::from_bytes(body, 2).unwrap();
    for topic in response.responses {
        for partition in topic.partitions {
            for batch in RecordBatches::new(partition.records) {
                for record in batch.unwrap().records(&DecompressLimits::DEFAULT).unwrap() {
                    let mut record = record.unwrap();
                    assert_eq!(record.key, Some(&b"key"[..]));
                    assert_eq!(record.value.map(<[u8]>::len), Some(256));
                    assert_eq!(record.headers.next().unwrap().key, b"trace");
                    records += 1;
                }
            }
        }
    }
    records
}

#[test]
fn reading_records_allocates_nothing_per_record() {
    for records in [1, 500, 5_000] {
        let body = response(records);
        let allocations = measure(|| assert_eq!(read(&body), records)).count_total;
        assert_eq!(allocations, ALLOCATIONS_PER_RESPONSE, "{records} records");
    }
}

#[test]
fn the_counter_sees_an_allocation_per_record() {
    let body = response(500);
    let copies = measure(|| {
        let response = ShareFetchResponse::from_bytes(&body, 2).unwrap();
        let records = response.responses[0].partitions[0].records.clone();
        for batch in RecordBatches::new(records) {
            for record in batch.unwrap().records(&DecompressLimits::DEFAULT).unwrap() {
                drop(record.unwrap().value.map(<[u8]>::to_vec));
            }
        }
    });
    assert!(copies.count_total >= 500);
}
