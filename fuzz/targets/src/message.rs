//! Messages: what decodes is a value that survives encoding.
//!
//! Input: the API's key (its highest bit set for the response), the version, the body.

use std::fmt::Debug;

use bytes::Bytes;
use sharegroup_wire::message::{Message, Request};

use crate::allocation::{of_message, within};

/// Calls a function with each API's request type: `for_api!(key, function(arguments))` is `None` for
/// unknown keys.
macro_rules! for_api {
    ($key:expr, $function:ident($($argument:expr),*)) => {{
        use sharegroup_wire::message as m;
        $crate::message::for_api!(@match $key, $function($($argument),*),
            m::add_partitions_to_txn::AddPartitionsToTxnRequest
            m::alter_share_group_offsets::AlterShareGroupOffsetsRequest
            m::api_versions::ApiVersionsRequest
            m::create_partitions::CreatePartitionsRequest
            m::create_topics::CreateTopicsRequest
            m::delete_groups::DeleteGroupsRequest
            m::delete_share_group_offsets::DeleteShareGroupOffsetsRequest
            m::delete_topics::DeleteTopicsRequest
            m::describe_cluster::DescribeClusterRequest
            m::describe_configs::DescribeConfigsRequest
            m::describe_groups::DescribeGroupsRequest
            m::describe_share_group_offsets::DescribeShareGroupOffsetsRequest
            m::describe_topic_partitions::DescribeTopicPartitionsRequest
            m::end_txn::EndTxnRequest
            m::fetch::FetchRequest
            m::find_coordinator::FindCoordinatorRequest
            m::get_telemetry_subscriptions::GetTelemetrySubscriptionsRequest
            m::incremental_alter_configs::IncrementalAlterConfigsRequest
            m::init_producer_id::InitProducerIdRequest
            m::list_config_resources::ListConfigResourcesRequest
            m::list_groups::ListGroupsRequest
            m::list_offsets::ListOffsetsRequest
            m::metadata::MetadataRequest
            m::offset_commit::OffsetCommitRequest
            m::offset_fetch::OffsetFetchRequest
            m::produce::ProduceRequest
            m::push_telemetry::PushTelemetryRequest
            m::sasl_authenticate::SaslAuthenticateRequest
            m::sasl_handshake::SaslHandshakeRequest
            m::share_acknowledge::ShareAcknowledgeRequest
            m::share_fetch::ShareFetchRequest
            m::share_group_describe::ShareGroupDescribeRequest
            m::share_group_heartbeat::ShareGroupHeartbeatRequest
        )
    }};
    (@match $key:expr, $function:ident $arguments:tt, $($request:path)*) => {
        match $key {
            $(<$request>::API_KEY => Some($crate::message::for_api!(@call $function, $request, $arguments)),)*
            _ => None,
        }
    };
    (@call $function:ident, $request:path, ($($argument:expr),*)) => {
        $function::<$request>($($argument),*)
    };
}
pub(crate) use for_api;

/// Which message an input is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) key: i16,
    pub(crate) is_response: bool,
    pub(crate) version: i16,
}

impl Kind {
    /// Takes the kind off the input.
    pub(crate) fn take(data: &[u8]) -> Option<(Self, &[u8])> {
        let [key, version, body @ ..] = data else {
            return None;
        };
        let kind = Self {
            key: i16::from(key & 0x7f),
            is_response: key & 0x80 != 0,
            version: i16::from(*version),
        };
        Some((kind, body))
    }

    /// Puts it before the body.
    pub(crate) fn input(self, body: &[u8]) -> Vec<u8> {
        let key = u8::try_from(self.key).expect("keys are below 128");
        let version = u8::try_from(self.version).expect("versions are small");
        let direction = if self.is_response { 0x80 } else { 0 };
        [&[key | direction, version], body].concat()
    }
}

/// ShareGroupHeartbeat and ShareGroupDescribe, both ways.
pub fn share_group(data: &[u8]) {
    of_keys(&[76, 77], data);
}

/// ShareFetch, both ways.
pub fn share_fetch(data: &[u8]) {
    of_keys(&[78], data);
}

/// ShareAcknowledge, both ways.
pub fn share_acknowledge(data: &[u8]) {
    of_keys(&[79], data);
}

/// DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets, both ways.
pub fn share_offsets(data: &[u8]) {
    of_keys(&[90, 91, 92], data);
}

/// Every message in every version, both ways.
pub fn messages(data: &[u8]) {
    if let Some((kind, body)) = Kind::take(data) {
        survives(kind, body);
    }
}

fn of_keys(keys: &[i16], data: &[u8]) {
    if let Some((kind, body)) = Kind::take(data).filter(|(kind, _)| keys.contains(&kind.key)) {
        survives(kind, body);
    }
}

/// Decodes a body, and checks what came of it.
fn survives(kind: Kind, body: &[u8]) {
    for_api!(kind.key, either_way_survives(kind, body));
}

fn either_way_survives<R>(kind: Kind, body: &[u8])
where
    R: Request<Response: PartialEq + Debug> + PartialEq + Debug,
{
    let body = Bytes::copy_from_slice(body);
    if kind.is_response {
        message_survives::<R::Response>(&body, kind.version);
    } else {
        message_survives::<R>(&body, kind.version);
    }
}

fn message_survives<M: Message + PartialEq + Debug>(body: &Bytes, version: i16) {
    let decoded = within(of_message(body.len()), || M::from_bytes(body, version));
    let Ok(value) = decoded else { return };
    let bytes = value.to_bytes(version);
    let again = M::from_bytes(&bytes, version).expect("what was encoded can be decoded");
    assert_eq!(again, value);
    assert_eq!(again.to_bytes(version), bytes);
    // For logs: must not fail either.
    assert_eq!(again.to_json(version), value.to_json(version));
}
