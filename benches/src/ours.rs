//! This project's codec.

use bytes::Bytes;
use sharegroup_wire::acknowledgement::{AcknowledgedRun, acknowledgement_batches};
use sharegroup_wire::compress::DecompressLimits;
use sharegroup_wire::message::Message;
use sharegroup_wire::message::share_fetch::{
    FetchPartition, FetchTopic, ShareFetchRequest, ShareFetchResponse,
};
use sharegroup_wire::record::RecordBatches;

use crate::Checksum;
use crate::workload::VERSION;

/// Decodes a response and reads all of its records.
///
/// # Errors
/// The body is no response, or a batch in it is bad.
pub fn read(body: &Bytes) -> anyhow::Result<Checksum> {
    let limits = DecompressLimits::DEFAULT;
    let mut checksum = Checksum::default();
    let response = ShareFetchResponse::from_bytes(body, VERSION)?;
    for partition in response
        .responses
        .into_iter()
        .flat_map(|topic| topic.partitions)
    {
        for batch in RecordBatches::new(partition.records) {
            for record in batch?.records(&limits)? {
                let record = record?;
                checksum.record(record.timestamp, record.key, record.value);
                for header in record.headers {
                    checksum.header(header.key, header.value);
                }
            }
        }
    }
    Ok(checksum)
}

/// A request that accepts these offsets.
#[must_use]
pub fn accept(ranges: &[(i64, i64)]) -> Bytes {
    let runs = ranges
        .iter()
        .map(|(first_offset, last_offset)| AcknowledgedRun {
            first_offset: *first_offset,
            last_offset: *last_offset,
            acknowledge_type: 1,
        });
    let request = ShareFetchRequest {
        group_id: Some("orders".into()),
        member_id: Some("AAAAAAAAAAAAAAAAAAAAAA".into()),
        max_records: 500,
        topics: vec![FetchTopic {
            partitions: vec![FetchPartition {
                partition_index: 3,
                acknowledgement_batches: acknowledgement_batches(runs),
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    request.to_bytes(VERSION)
}
