//! Known troubles of other clients that a decoder can have, each with its number.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test's own failures")]

mod messages;

use allocation_counter::measure;
use bytes::Bytes;
use messages::{from_hex, own_vectors, vectors};
use sharegroup_wire::frame::decode_response;
use sharegroup_wire::message::Message;
use sharegroup_wire::message::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use sharegroup_wire::message::share_acknowledge::ShareAcknowledgeResponse;
use sharegroup_wire::message::share_fetch::{
    AcquiredRecords, FetchedPartition, ShareFetchResponse,
};
use sharegroup_wire::{DecodeError, ErrorCode, TopicId};

const TOPIC: TopicId = TopicId([0x11; 16]);

/// ShareFetch version 1: lock 30000 ms, one batch of offsets 0–9, acquired 4–6, delivery count 2.
const SHARE_FETCH_4_TO_6: &str = "0000000000000000007530021111111111111111111111111111111102000000000000000000000000000000\
     000000008e01000000000000000000000081000000000280e99e3700000000000900000000000003e8000000\
     00000003e8ffffffffffffffffffffffffffff0000000a0e000000010230000e000002010231000e00000401\
     0232000e000006010233000e000008010234000e00000a010235000e00000c010236000e00000e010237000e\
     000010010238000e00001201023900020000000000000004000000000000000600020000000100";

/// ShareFetch version 1: lock 30000 ms, one partition without records.
const SHARE_FETCH_EMPTY: &str = "0000000000000000007530021111111111111111111111111111111102000000000000000000000000000000\
     00000000010100000100";

/// ShareFetch version 1: partition error 9999.
const SHARE_FETCH_ERROR_9999: &str = "000000000000000000000002111111111111111111111111111111110200000000270f000000000000000000\
     00000000010100000100";

/// ShareAcknowledge version 1: partition 0 without error, partition 1 INVALID_RECORD_STATE.
const SHARE_ACKNOWLEDGE_121: &str = "0000000000000002111111111111111111111111111111110300000000000000000000000000000000000000\
     00010079027800000000000000000000000100";

/// ShareFetch version 1: throttle 3000 ms, nothing else.
const SHARE_FETCH_THROTTLED: &str = "00000bb800000000000000010100";

/// ApiVersions in the layout of version 0: error 35, ApiVersions 0–3.
const API_VERSIONS_0: &str = "002300000001001200000003";

fn share_fetch(hex: &str) -> ShareFetchResponse {
    ShareFetchResponse::from_bytes(&from_hex(hex), 1).unwrap()
}

fn only_partition(response: &ShareFetchResponse) -> &FetchedPartition {
    let [topic] = response.responses.as_slice() else {
        panic!("{response:?}")
    };
    assert_eq!(topic.topic_id, TOPIC);
    let [partition] = topic.partitions.as_slice() else {
        panic!("{response:?}")
    };
    partition
}

#[test]
fn b_021_an_error_code_that_nobody_has_heard_of_keeps_its_number() {
    let response = share_fetch(SHARE_FETCH_ERROR_9999);
    let partition = only_partition(&response);
    assert_eq!(partition.error_code, ErrorCode::Unknown(9999));
    assert_eq!(partition.error_code.to_string(), "UNKNOWN (9999)");
    assert!(!partition.error_code.is_retriable());
    assert_eq!(response.to_bytes(1), from_hex(SHARE_FETCH_ERROR_9999));
}

#[test]
fn b_022_a_tagged_field_of_hostile_length_is_refused_without_allocating_it() {
    let mut tried = 0;
    for vector in vectors(&own_vectors()) {
        let is_share =
            vector.kind.name.starts_with("Share") && vector.kind.name.ends_with("Response");
        let Some(body) = vector.body.strip_suffix(&[0]).filter(|_| is_share) else {
            continue;
        };
        let hostile: Bytes = [body, &[0x01, 0x00, 0xff, 0xff, 0xff, 0xff, 0x0f]]
            .concat()
            .into();
        let mut result = None;
        let allocated =
            measure(|| result = (vector.kind.decode)(&hostile, vector.version).err()).bytes_max;
        assert_eq!(
            result,
            Some(DecodeError::CountTooLarge {
                what: "tagged field",
                count: 4_294_967_295,
                left: 0
            }),
            "{}",
            vector.place
        );
        assert!(allocated < 1_000_000, "{}: {allocated} bytes", vector.place);

        // The same tag with a sane length is skipped. Kafka has no tag 9 there.
        let sane: Bytes = [body, &[0x01, 0x09, 0x02, 0xaa, 0xbb]].concat().into();
        let message = (vector.kind.decode)(&sane, vector.version).unwrap();
        assert_eq!(
            message.to_bytes(vector.version),
            vector.body,
            "{}",
            vector.place
        );
        tried += 1;
    }
    assert!(tried > 0);
}

#[test]
fn b_023_api_versions_answered_in_version_0_is_readable() {
    let body = from_hex(API_VERSIONS_0);
    // Asked in version 5, answered in version 0: not a legal answer of version 5 …
    assert!(ApiVersionsResponse::from_bytes(&body, 5).is_err());
    // … but one of version 0, under the header that ApiVersions has in every version.
    let frame: Bytes = [&7_i32.to_be_bytes()[..], &body].concat().into();
    let response = decode_response::<ApiVersionsRequest>(&frame, 0).unwrap();
    assert_eq!(response.error_code, ErrorCode::UnsupportedVersion);
    assert_eq!(
        response.api_keys,
        [ApiVersion {
            api_key: 18,
            min_version: 0,
            max_version: 3
        }]
    );
}

#[test]
fn b_024_the_acquired_range_stands_beside_the_whole_batch() {
    let response = share_fetch(SHARE_FETCH_4_TO_6);
    assert_eq!(response.acquisition_lock_timeout_ms, 30_000);
    let partition = only_partition(&response);
    assert_eq!(partition.partition_index, 0);
    assert_eq!(
        partition.acquired_records,
        [AcquiredRecords {
            first_offset: 4,
            last_offset: 6,
            delivery_count: 2
        }]
    );
    // The batch is whole: base offset 0, last offset delta 9, ten records.
    assert_eq!(partition.records.len(), 141);
    assert_eq!(partition.records[..8], 0_i64.to_be_bytes());
    assert_eq!(partition.records[23..27], 9_i32.to_be_bytes());
    assert_eq!(partition.records[57..61], 10_i32.to_be_bytes());
    assert_eq!(response.to_bytes(1), from_hex(SHARE_FETCH_4_TO_6));
}

#[test]
fn records_are_a_slice_of_the_frame_and_no_copy() {
    let frame = from_hex(SHARE_FETCH_4_TO_6);
    let response = ShareFetchResponse::from_bytes(&frame, 1).unwrap();
    let records = &only_partition(&response).records;
    assert!(frame.as_ptr_range().contains(&records.as_ptr()));
}

#[test]
fn a_partition_without_records_has_empty_records() {
    let response = share_fetch(SHARE_FETCH_EMPTY);
    assert_eq!(response.acquisition_lock_timeout_ms, 30_000);
    let partition = only_partition(&response);
    assert!(partition.records.is_empty());
    assert!(partition.acquired_records.is_empty());
    assert_eq!(response.to_bytes(1), from_hex(SHARE_FETCH_EMPTY));
}

#[test]
fn null_records_of_a_share_fetch_are_refused() {
    // The length of the records is the sixth byte from the end: 1 = empty, 0 = null.
    let mut bytes = from_hex(SHARE_FETCH_EMPTY).to_vec();
    let at = bytes.len() - 6;
    assert_eq!(bytes[at], 1);
    bytes[at] = 0;
    assert_eq!(
        ShareFetchResponse::from_bytes(&bytes.into(), 1),
        Err(DecodeError::UnexpectedNull { what: "bytes" })
    );
}

#[test]
fn each_partition_of_an_acknowledgement_has_its_own_result() {
    let response =
        ShareAcknowledgeResponse::from_bytes(&from_hex(SHARE_ACKNOWLEDGE_121), 1).unwrap();
    let [topic] = response.responses.as_slice() else {
        panic!("{response:?}")
    };
    assert_eq!(topic.topic_id, TOPIC);
    let results: Vec<_> = topic
        .partitions
        .iter()
        .map(|it| (it.partition_index, it.error_code))
        .collect();
    assert_eq!(
        results,
        [(0, ErrorCode::None), (1, ErrorCode::InvalidRecordState)]
    );
    assert_eq!(topic.partitions[1].error_message.as_deref(), Some("x"));
    assert_eq!(response.to_bytes(1), from_hex(SHARE_ACKNOWLEDGE_121));
}

#[test]
fn a_throttled_answer_tells_the_delay() {
    let response = share_fetch(SHARE_FETCH_THROTTLED);
    assert_eq!(
        response,
        ShareFetchResponse {
            throttle_time_ms: 3000,
            ..Default::default()
        }
    );
    assert_eq!(response.to_bytes(1), from_hex(SHARE_FETCH_THROTTLED));
}
