//! DescribeGroups, key 15 (classic groups; version 6, GROUP_ID_NOT_FOUND: KIP-1043), versions 0–6.

use bytes::Bytes;

use crate::ErrorCode;
use crate::message::metadata::OPERATIONS_UNKNOWN;
use crate::message::{message, since};

message! {
    /// Asks the group coordinator for classic groups.
    pub struct DescribeGroupsRequest (key 15, api "DescribeGroups", versions 0..=6, flexible 5) -> DescribeGroupsResponse {
        /// The groups.
        pub groups: Vec<String>,
        /// Whether to answer with the operations allowed on each group.
        pub include_authorized_operations: bool = since(3),
    }

    /// Answer to [`DescribeGroupsRequest`].
    pub struct DescribeGroupsResponse (api "DescribeGroups", versions 0..=6, flexible 5) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32 = since(1),
        /// One entry per group.
        pub groups: Vec<DescribedGroup>,
    }

    /// A group.
    pub struct DescribedGroup {
        /// Error of the group.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String> = since(6),
        /// Its id.
        pub group_id: String,
        /// Its state, as Kafka prints it.
        pub group_state: String,
        /// Its protocol.
        pub protocol_type: String,
        /// Its assignor.
        pub protocol_data: String,
        /// Its members.
        pub members: Vec<DescribedGroupMember>,
        /// Bit field of operations allowed on the group, or [`OPERATIONS_UNKNOWN`].
        pub authorized_operations: i32 = since(3) => OPERATIONS_UNKNOWN,
    }

    /// A member.
    pub struct DescribedGroupMember {
        /// Its id.
        pub member_id: String,
        /// Its instance id.
        pub group_instance_id: Option<String> = since(4),
        /// Client id.
        pub client_id: String,
        /// Address that the coordinator sees.
        pub client_host: String,
        /// What it told when it joined.
        pub member_metadata: Bytes,
        /// What it has.
        pub member_assignment: Bytes,
    }
}
