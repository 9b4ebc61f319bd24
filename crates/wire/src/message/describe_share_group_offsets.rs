//! DescribeShareGroupOffsets, key 90 (KIP-932; version 1, lag: KIP-1226), versions 0–1.

use crate::ErrorCode;
use crate::id::TopicId;
use crate::message::{message, since};

message! {
    /// Asks the group coordinator where share groups stand.
    pub struct DescribeShareGroupOffsetsRequest (key 90, api "DescribeShareGroupOffsets", versions 0..=1, flexible 0)
        -> DescribeShareGroupOffsetsResponse
    {
        /// One entry per group.
        pub groups: Vec<DescribeShareGroupOffsetsRequestGroup>,
    }

    /// A group.
    pub struct DescribeShareGroupOffsetsRequestGroup {
        /// The share group.
        pub group_id: String,
        /// Topics asked for; null = all.
        pub topics: Option<Vec<DescribeShareGroupOffsetsRequestTopic>>,
    }

    /// A topic.
    pub struct DescribeShareGroupOffsetsRequestTopic {
        /// Its name.
        pub topic_name: String,
        /// Partition indexes.
        pub partitions: Vec<i32>,
    }

    /// Answer to [`DescribeShareGroupOffsetsRequest`].
    pub struct DescribeShareGroupOffsetsResponse (api "DescribeShareGroupOffsets", versions 0..=1, flexible 0) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// One entry per group.
        pub groups: Vec<DescribeShareGroupOffsetsResponseGroup>,
    }

    /// A group's topics.
    pub struct DescribeShareGroupOffsetsResponseGroup {
        /// The share group.
        pub group_id: String,
        /// One entry per topic.
        pub topics: Vec<DescribeShareGroupOffsetsResponseTopic>,
        /// Error of the group.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
    }

    /// A topic's partitions.
    pub struct DescribeShareGroupOffsetsResponseTopic {
        /// The topic's name.
        pub topic_name: String,
        /// The topic's id.
        pub topic_id: TopicId,
        /// Its partitions.
        pub partitions: Vec<DescribeShareGroupOffsetsResponsePartition>,
    }

    /// Where one share-partition stands.
    pub struct DescribeShareGroupOffsetsResponsePartition {
        /// Partition index.
        pub partition_index: i32,
        /// Start offset (SPSO) as it was last stored; −1 = unknown. Records behind it may be settled:
        /// [`lag`](Self::lag) counts them out.
        pub start_offset: i64,
        /// Leader epoch of the partition.
        pub leader_epoch: i32,
        /// Records that are not settled yet; −1 = unknown.
        pub lag: i64 = since(1) => -1,
        /// Error of the partition.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
    }
}
