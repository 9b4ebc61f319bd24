//! ShareGroupDescribe, key 77 (KIP-932), version 1.

use crate::ErrorCode;
use crate::id::{MemberEpoch, TopicId};
use crate::message::message;
use crate::message::metadata::OPERATIONS_UNKNOWN;

message! {
    /// Asks the group coordinator for share groups and their members.
    pub struct ShareGroupDescribeRequest (key 77, api "ShareGroupDescribe", versions 1..=1, flexible 0)
        -> ShareGroupDescribeResponse
    {
        /// The share groups.
        pub group_ids: Vec<String>,
        /// Whether to answer with the operations allowed on each group.
        pub include_authorized_operations: bool,
    }

    /// Answer to [`ShareGroupDescribeRequest`].
    pub struct ShareGroupDescribeResponse (api "ShareGroupDescribe", versions 1..=1, flexible 0) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// One entry per group.
        pub groups: Vec<DescribedGroup>,
    }

    /// A share group.
    pub struct DescribedGroup {
        /// Error of the group.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
        /// Its id.
        pub group_id: String,
        /// Its state as Kafka prints it, or empty.
        pub group_state: String,
        /// Rises with each change of members or subscriptions.
        pub group_epoch: i32,
        /// Group epoch of the current assignment.
        pub assignment_epoch: i32,
        /// The assignor in use.
        pub assignor_name: String,
        /// Its members.
        pub members: Vec<Member>,
        /// Bit field of operations allowed on the group, or [`OPERATIONS_UNKNOWN`].
        pub authorized_operations: i32 => OPERATIONS_UNKNOWN,
    }

    /// A member.
    pub struct Member {
        /// Its id.
        pub member_id: String,
        /// Its rack.
        pub rack_id: Option<String>,
        /// Its epoch.
        pub member_epoch: MemberEpoch,
        /// Client id.
        pub client_id: String,
        /// Address that the coordinator sees.
        pub client_host: String,
        /// Topics that it subscribed to.
        pub subscribed_topic_names: Vec<String>,
        /// What it has.
        pub assignment: Assignment,
    }

    /// Partitions of a member.
    pub struct Assignment {
        /// Partitions by topic.
        pub topic_partitions: Vec<TopicPartitions>,
    }

    /// Partitions of one topic.
    pub struct TopicPartitions {
        /// The topic's id.
        pub topic_id: TopicId,
        /// The topic's name.
        pub topic_name: String,
        /// Partition indexes.
        pub partitions: Vec<i32>,
    }
}
