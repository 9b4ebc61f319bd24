//! AlterShareGroupOffsets, key 91 (KIP-932), version 0.

use crate::ErrorCode;
use crate::id::TopicId;
use crate::message::message;

message! {
    /// Moves the start offsets of a share group without members.
    pub struct AlterShareGroupOffsetsRequest (key 91, api "AlterShareGroupOffsets", versions 0..=0, flexible 0)
        -> AlterShareGroupOffsetsResponse
    {
        /// The share group.
        pub group_id: String,
        /// One entry per topic.
        pub topics: Vec<AlterShareGroupOffsetsRequestTopic>,
    }

    /// Partitions of one topic.
    pub struct AlterShareGroupOffsetsRequestTopic {
        /// The topic's name.
        pub topic_name: String,
        /// Its partitions.
        pub partitions: Vec<AlterShareGroupOffsetsRequestPartition>,
    }

    /// One partition.
    pub struct AlterShareGroupOffsetsRequestPartition {
        /// Partition index.
        pub partition_index: i32,
        /// The new start offset (SPSO).
        pub start_offset: i64,
    }

    /// Answer to [`AlterShareGroupOffsetsRequest`].
    pub struct AlterShareGroupOffsetsResponse (api "AlterShareGroupOffsets", versions 0..=0, flexible 0) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// Top-level error.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
        /// One entry per topic.
        pub responses: Vec<AlterShareGroupOffsetsResponseTopic>,
    }

    /// Results of one topic.
    pub struct AlterShareGroupOffsetsResponseTopic {
        /// The topic's name.
        pub topic_name: String,
        /// The topic's id.
        pub topic_id: TopicId,
        /// Its partitions.
        pub partitions: Vec<AlterShareGroupOffsetsResponsePartition>,
    }

    /// Result of one partition.
    pub struct AlterShareGroupOffsetsResponsePartition {
        /// Partition index.
        pub partition_index: i32,
        /// The result.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
    }
}
