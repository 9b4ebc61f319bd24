//! OffsetFetch, key 9 (several groups: KIP-709; version 9, members: KIP-848), versions 8–9.

use crate::ErrorCode;
use crate::message::{message, since};

message! {
    /// Asks the group coordinator for the offsets that consumer groups have committed.
    pub struct OffsetFetchRequest (key 9, api "OffsetFetch", versions 8..=9, flexible 6) -> OffsetFetchResponse {
        /// One entry per group.
        pub groups: Vec<OffsetFetchRequestGroup>,
        /// Whether offsets of open transactions are waited for: the answer then is UNSTABLE_OFFSET_COMMIT.
        pub require_stable: bool,
    }

    /// A group.
    pub struct OffsetFetchRequestGroup {
        /// The consumer group.
        pub group_id: String,
        /// The member who asks; null = an admin.
        pub member_id: Option<String> = since(9),
        /// Its epoch; −1 = an admin's.
        pub member_epoch: i32 = since(9) => -1,
        /// Topics asked for; null = all.
        pub topics: Option<Vec<OffsetFetchRequestTopic>>,
    }

    /// A topic.
    pub struct OffsetFetchRequestTopic {
        /// Its name.
        pub name: String,
        /// Partition indexes.
        pub partition_indexes: Vec<i32>,
    }

    /// Answer to [`OffsetFetchRequest`].
    pub struct OffsetFetchResponse (api "OffsetFetch", versions 8..=9, flexible 6) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// One entry per group.
        pub groups: Vec<OffsetFetchResponseGroup>,
    }

    /// A group's topics. Of a group that doesn't exist each partition has offset −1, as one without a commit.
    pub struct OffsetFetchResponseGroup {
        /// The consumer group.
        pub group_id: String,
        /// One entry per topic.
        pub topics: Vec<OffsetFetchResponseTopic>,
        /// Error of the group.
        pub error_code: ErrorCode,
    }

    /// A topic's partitions.
    pub struct OffsetFetchResponseTopic {
        /// The topic's name.
        pub name: String,
        /// Its partitions.
        pub partitions: Vec<OffsetFetchResponsePartition>,
    }

    /// What was committed of one partition.
    pub struct OffsetFetchResponsePartition {
        /// Partition index.
        pub partition_index: i32,
        /// Offset of the next record to read; −1 = nothing is committed.
        pub committed_offset: i64,
        /// Leader epoch of the last record read; −1 = unknown.
        pub committed_leader_epoch: i32 => -1,
        /// What the consumer kept with it.
        pub metadata: Option<String>,
        /// Error of the partition.
        pub error_code: ErrorCode,
    }
}
