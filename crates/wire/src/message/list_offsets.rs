//! ListOffsets, key 2 (timestamps: KIP-79, KIP-734, KIP-405, KIP-1005, KIP-1023), versions 1–11.

use crate::ErrorCode;
use crate::id::BrokerId;
use crate::message::{message, since};

/// `timestamp` that asks for the end of the log (with `isolation_level` 1: the last stable offset).
pub const TIMESTAMP_LATEST: i64 = -1;
/// `timestamp` that asks for the start of the log.
pub const TIMESTAMP_EARLIEST: i64 = -2;
/// `timestamp` that asks for the record with the largest timestamp (version 7).
pub const TIMESTAMP_MAX: i64 = -3;

message! {
    /// Asks a leader for offsets by time.
    pub struct ListOffsetsRequest (key 2, api "ListOffsets", versions 1..=11, flexible 6) -> ListOffsetsResponse {
        /// −1 for a client.
        pub replica_id: BrokerId => BrokerId::NONE,
        /// 0 READ_UNCOMMITTED, 1 READ_COMMITTED.
        pub isolation_level: i8 = since(2),
        /// One entry per topic.
        pub topics: Vec<ListOffsetsTopic>,
        /// How long remote storage may take, in milliseconds.
        pub timeout_ms: i32 = since(10),
    }

    /// Partitions of one topic.
    pub struct ListOffsetsTopic {
        /// The topic's name.
        pub name: String,
        /// Its partitions.
        pub partitions: Vec<ListOffsetsPartition>,
    }

    /// One partition.
    pub struct ListOffsetsPartition {
        /// Partition index.
        pub partition_index: i32,
        /// Leader epoch known to the client; −1 = don't check.
        pub current_leader_epoch: i32 = since(4) => -1,
        /// Milliseconds since 1970, or [`TIMESTAMP_LATEST`], [`TIMESTAMP_EARLIEST`], [`TIMESTAMP_MAX`].
        pub timestamp: i64,
    }

    /// Answer to [`ListOffsetsRequest`].
    pub struct ListOffsetsResponse (api "ListOffsets", versions 1..=11, flexible 6) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32 = since(2),
        /// One entry per topic.
        pub topics: Vec<ListOffsetsTopicResponse>,
    }

    /// Results of one topic.
    pub struct ListOffsetsTopicResponse {
        /// The topic's name.
        pub name: String,
        /// Its partitions.
        pub partitions: Vec<ListOffsetsPartitionResponse>,
    }

    /// Result of one partition.
    pub struct ListOffsetsPartitionResponse {
        /// Partition index.
        pub partition_index: i32,
        /// The result.
        pub error_code: ErrorCode,
        /// Timestamp of the record found, in milliseconds since 1970; −1 = none.
        pub timestamp: i64 => -1,
        /// The offset; −1 = none.
        pub offset: i64 => -1,
        /// Leader epoch of that offset; −1 = unknown.
        pub leader_epoch: i32 = since(4) => -1,
    }
}
