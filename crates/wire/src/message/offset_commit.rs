//! OffsetCommit, key 8 (version 9, consumer groups of the new protocol: KIP-848), versions 8–9.

use crate::ErrorCode;
use crate::message::message;

message! {
    /// Commits the offsets of a consumer group.
    pub struct OffsetCommitRequest (key 8, api "OffsetCommit", versions 8..=9, flexible 8) -> OffsetCommitResponse {
        /// The consumer group.
        pub group_id: String,
        /// Generation, or epoch of the member; −1 = of somebody who isn't a member, to a group without any.
        pub generation_id_or_member_epoch: i32 => -1,
        /// The member; empty with −1.
        pub member_id: String,
        /// Name of a static member.
        pub group_instance_id: Option<String>,
        /// One entry per topic.
        pub topics: Vec<OffsetCommitRequestTopic>,
    }

    /// Partitions of one topic.
    pub struct OffsetCommitRequestTopic {
        /// The topic's name.
        pub name: String,
        /// Its partitions.
        pub partitions: Vec<OffsetCommitRequestPartition>,
    }

    /// One partition.
    pub struct OffsetCommitRequestPartition {
        /// Partition index.
        pub partition_index: i32,
        /// Offset of the next record to read.
        pub committed_offset: i64,
        /// Leader epoch of the last record read; −1 = unknown.
        pub committed_leader_epoch: i32 => -1,
        /// Kept with it.
        pub committed_metadata: Option<String>,
    }

    /// Answer to [`OffsetCommitRequest`].
    pub struct OffsetCommitResponse (api "OffsetCommit", versions 8..=9, flexible 8) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// One entry per topic.
        pub topics: Vec<OffsetCommitResponseTopic>,
    }

    /// Results of one topic.
    pub struct OffsetCommitResponseTopic {
        /// The topic's name.
        pub name: String,
        /// Its partitions.
        pub partitions: Vec<OffsetCommitResponsePartition>,
    }

    /// Result of one partition.
    pub struct OffsetCommitResponsePartition {
        /// Partition index.
        pub partition_index: i32,
        /// The result.
        pub error_code: ErrorCode,
    }
}
