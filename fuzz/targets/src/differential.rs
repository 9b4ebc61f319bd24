//! What our decoder accepts means the same to another implementation, `kafka-protocol`.
//!
//! Never the other way round: that one allocates what a peer's count says, and aborts.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{
    Decodable, Encodable, Message as TheirMessage, Request as TheirRequest,
};
use sharegroup_wire::message as ours;
use sharegroup_wire::message::{Message, Request};

use crate::message::{Kind, for_api};

/// The other implementation's type of the same request.
trait Twin: Request {
    type Theirs: TheirRequest;
}

macro_rules! twins {
    ($($module:ident $name:ident),* $(,)?) => {
        $(impl Twin for ours::$module::$name { type Theirs = theirs::$name; })*
    };
}

twins!(
    add_partitions_to_txn AddPartitionsToTxnRequest,
    alter_share_group_offsets AlterShareGroupOffsetsRequest,
    api_versions ApiVersionsRequest,
    create_partitions CreatePartitionsRequest,
    create_topics CreateTopicsRequest,
    delete_groups DeleteGroupsRequest,
    delete_share_group_offsets DeleteShareGroupOffsetsRequest,
    delete_topics DeleteTopicsRequest,
    describe_cluster DescribeClusterRequest,
    describe_configs DescribeConfigsRequest,
    describe_groups DescribeGroupsRequest,
    describe_share_group_offsets DescribeShareGroupOffsetsRequest,
    describe_topic_partitions DescribeTopicPartitionsRequest,
    end_txn EndTxnRequest,
    fetch FetchRequest,
    find_coordinator FindCoordinatorRequest,
    get_telemetry_subscriptions GetTelemetrySubscriptionsRequest,
    incremental_alter_configs IncrementalAlterConfigsRequest,
    init_producer_id InitProducerIdRequest,
    list_config_resources ListConfigResourcesRequest,
    list_groups ListGroupsRequest,
    list_offsets ListOffsetsRequest,
    metadata MetadataRequest,
    offset_commit OffsetCommitRequest,
    offset_fetch OffsetFetchRequest,
    produce ProduceRequest,
    push_telemetry PushTelemetryRequest,
    sasl_authenticate SaslAuthenticateRequest,
    sasl_handshake SaslHandshakeRequest,
    share_acknowledge ShareAcknowledgeRequest,
    share_fetch ShareFetchRequest,
    share_group_describe ShareGroupDescribeRequest,
    share_group_heartbeat ShareGroupHeartbeatRequest,
);

/// Input: as for the other targets of messages.
pub fn differential(data: &[u8]) {
    if let Some((kind, body)) = Kind::take(data) {
        for_api!(kind.key, either_way(kind, &Bytes::copy_from_slice(body)));
    }
}

fn either_way<R: Twin>(kind: Kind, body: &Bytes) {
    if kind.is_response {
        same::<R::Response, <R::Theirs as TheirRequest>::Response>(body, kind.version);
    } else {
        same::<R, R::Theirs>(body, kind.version);
    }
}

fn same<Ours, Theirs>(body: &Bytes, version: i16)
where
    Ours: Message,
    Theirs: TheirMessage + Decodable + Encodable,
{
    let range = Theirs::VERSIONS;
    if !(range.min..=range.max).contains(&version) {
        return;
    }
    let Ok(ours) = Ours::from_bytes(body, version) else {
        return;
    };
    // As we write it, since they are not Kafka where nobody writes so: any mark but 1 is null to them. A body that was
    // in this form already is the body itself.
    let bytes = ours.to_bytes(version);
    assert_eq!(through::<Theirs>(&bytes, version), bytes);
}

/// Decodes and encodes.
fn through<Theirs: Decodable + Encodable>(body: &Bytes, version: i16) -> Bytes {
    let mut rest = body.clone();
    let value = Theirs::decode(&mut rest, version).expect("what we accept is legal");
    assert!(rest.is_empty(), "{} bytes too many for them", rest.len());
    let mut bytes = BytesMut::new();
    value
        .encode(&mut bytes, version)
        .expect("what was decoded can be encoded");
    bytes.freeze()
}
