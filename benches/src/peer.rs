//! `kafka-protocol`, as its documentation says to use it.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::ShareFetchResponse;
use kafka_protocol::messages::share_fetch_request::{
    AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use kafka_protocol::records::{Compression, RecordBatchDecoder};
use sharegroup_wire::compress::{self, DecompressLimits};

use crate::Checksum;
use crate::workload::VERSION;

/// Decodes a response and reads all of its records. It decompresses with our codecs, so that only
/// the rest differs.
///
/// # Errors
/// The body is no response, or a batch in it is bad.
pub fn read(body: &Bytes) -> anyhow::Result<Checksum> {
    let mut checksum = Checksum::default();
    let response = ShareFetchResponse::decode(&mut body.clone(), VERSION)?;
    for partition in response
        .responses
        .into_iter()
        .flat_map(|topic| topic.partitions)
    {
        let mut bytes = partition.records.unwrap_or_default();
        while !bytes.is_empty() {
            let batch =
                RecordBatchDecoder::decode_with_custom_compression(&mut bytes, Some(decompress))?;
            for record in &batch.records {
                checksum.record(
                    record.timestamp,
                    record.key.as_deref(),
                    record.value.as_deref(),
                );
                for (key, value) in &record.headers {
                    checksum.header(key.as_bytes(), value.as_deref());
                }
            }
        }
    }
    Ok(checksum)
}

fn decompress(records: &mut Bytes, codec: Compression) -> anyhow::Result<Bytes> {
    let codec = match codec {
        Compression::None => return Ok(records.clone()),
        Compression::Gzip => compress::Compression::Gzip,
        Compression::Snappy => compress::Compression::Snappy,
        Compression::Lz4 => compress::Compression::Lz4,
        Compression::Zstd => compress::Compression::Zstd,
    };
    Ok(compress::decompress(
        codec,
        records,
        &DecompressLimits::DEFAULT,
    )?)
}

/// A request that accepts these offsets.
///
/// # Errors
/// None for the workloads of this crate.
pub fn accept(ranges: &[(i64, i64)]) -> anyhow::Result<Bytes> {
    let batches = ranges.iter().map(|(first_offset, last_offset)| {
        AcknowledgementBatch::default()
            .with_first_offset(*first_offset)
            .with_last_offset(*last_offset)
            .with_acknowledge_types(vec![1])
    });
    let partition = FetchPartition::default()
        .with_partition_index(3)
        .with_acknowledgement_batches(batches.collect());
    let request = ShareFetchRequest::default()
        .with_group_id(Some(StrBytes::from_static_str("orders").into()))
        .with_member_id(Some(StrBytes::from_static_str("AAAAAAAAAAAAAAAAAAAAAA")))
        .with_max_records(500)
        .with_topics(vec![FetchTopic::default().with_partitions(vec![partition])]);
    let mut out = BytesMut::new();
    request.encode(&mut out, VERSION)?;
    Ok(out.freeze())
}
