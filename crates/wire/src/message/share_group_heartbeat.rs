//! ShareGroupHeartbeat, key 76 (KIP-932), version 1.

use crate::ErrorCode;
use crate::id::{MemberEpoch, TopicId};
use crate::message::message;

message! {
    /// Joins a share group, stays in it, leaves it. Sent to the group coordinator.
    pub struct ShareGroupHeartbeatRequest (key 76, api "ShareGroupHeartbeat", versions 1..=1, flexible 0)
        -> ShareGroupHeartbeatResponse
    {
        /// The share group.
        pub group_id: String,
        /// Made by the client, 1–36 characters, the same for the client's whole life.
        pub member_id: String,
        /// 0 joins, −1 leaves, else the last epoch received.
        pub member_epoch: MemberEpoch,
        /// Null = unchanged; the empty string is INVALID_REQUEST.
        pub rack_id: Option<String>,
        /// Null = unchanged; must be a non-empty list at epoch 0.
        pub subscribed_topic_names: Option<Vec<String>>,
    }

    /// Answer to [`ShareGroupHeartbeatRequest`].
    pub struct ShareGroupHeartbeatResponse (api "ShareGroupHeartbeat", versions 1..=1, flexible 0) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// Top-level error.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
        /// Echo of the member id.
        pub member_id: Option<String>,
        /// Epoch to store and to send next time.
        pub member_epoch: MemberEpoch,
        /// Wait this long before the next heartbeat, in milliseconds; may change at any time.
        pub heartbeat_interval_ms: i32,
        /// Null = keep the current assignment.
        pub assignment: Option<Assignment>,
    }

    /// A whole new assignment, not a delta.
    pub struct Assignment {
        /// Partitions by topic.
        pub topic_partitions: Vec<TopicPartitions>,
    }

    /// Partitions of one topic.
    pub struct TopicPartitions {
        /// The topic; resolve it by Metadata.
        pub topic_id: TopicId,
        /// Partition indexes.
        pub partitions: Vec<i32>,
    }
}
