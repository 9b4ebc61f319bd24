//! Fetch, key 1 (topic ids: KIP-516; leader hints: KIP-951; version 18: KIP-1166), versions 4–18.
//!
//! Reads what is in a log without any group; used to read a batch again whose bytes were damaged.

use bytes::Bytes;

use crate::ErrorCode;
use crate::id::{BrokerId, TopicId};
use crate::message::produce::LeaderIdAndEpoch;
use crate::message::share_fetch::NodeEndpoint;
use crate::message::{message, since};

/// `high_watermark` of a request whose sender doesn't tell it.
pub const HIGH_WATERMARK_UNSUPPORTED: i64 = i64::MAX;

message! {
    /// Reads record batches from a leader.
    pub struct FetchRequest (key 1, api "Fetch", versions 4..=18, flexible 12) -> FetchResponse {
        /// −1 for a client; up to version 14.
        pub replica_id: BrokerId = since(0).until(14) => BrokerId::NONE,
        /// Longest wait for data, in milliseconds.
        pub max_wait_ms: i32,
        /// Wait for this many bytes.
        pub min_bytes: i32,
        /// Most bytes of the whole answer; the first batch comes whole even if it is larger.
        pub max_bytes: i32 => 0x7fff_ffff,
        /// 0 READ_UNCOMMITTED, 1 READ_COMMITTED.
        pub isolation_level: i8,
        /// Fetch session; 0 = none.
        pub session_id: i32 = since(7),
        /// Its epoch; −1 = no session.
        pub session_epoch: i32 = since(7) => -1,
        /// One entry per topic.
        pub topics: Vec<FetchTopic>,
        /// Partitions that leave the fetch session.
        pub forgotten_topics_data: Vec<ForgottenTopic> = since(7),
        /// Rack of the client; empty = unknown.
        pub rack_id: String = since(11),
        /// The cluster's id, if known.
        pub cluster_id: Option<String> = since(12).tag(0),
        /// What a follower is; not for clients.
        pub replica_state: ReplicaState = since(15).tag(1),
    }

    /// A follower.
    pub struct ReplicaState {
        /// Its id; −1 for a client.
        pub replica_id: BrokerId => BrokerId::NONE,
        /// Its epoch; −1 = unknown.
        pub replica_epoch: i64 => -1,
    }

    /// Partitions of one topic.
    pub struct FetchTopic {
        /// The topic's name, up to version 12.
        pub topic: String = since(0).until(12),
        /// The topic's id, from version 13 on.
        pub topic_id: TopicId = since(13),
        /// Its partitions.
        pub partitions: Vec<FetchPartition>,
    }

    /// One partition.
    pub struct FetchPartition {
        /// Partition index.
        pub partition: i32,
        /// Leader epoch known to the client; −1 = don't check.
        pub current_leader_epoch: i32 = since(9) => -1,
        /// First offset wanted; the answer starts with the batch that holds it.
        pub fetch_offset: i64,
        /// Epoch of the last record read; −1 = none.
        pub last_fetched_epoch: i32 = since(12) => -1,
        /// Start of a follower's log; −1 for a client.
        pub log_start_offset: i64 = since(5) => -1,
        /// Most bytes of this partition.
        pub partition_max_bytes: i32,
        /// Directory of a follower; zero for a client.
        pub replica_directory_id: TopicId = since(17).tag(0),
        /// High watermark known to a follower; −1 = unknown.
        pub high_watermark: i64 = since(18).tag(1) => HIGH_WATERMARK_UNSUPPORTED,
    }

    /// Partitions that leave the fetch session.
    pub struct ForgottenTopic {
        /// The topic's name, up to version 12.
        pub topic: String = since(0).until(12),
        /// The topic's id, from version 13 on.
        pub topic_id: TopicId = since(13),
        /// Partition indexes.
        pub partitions: Vec<i32>,
    }

    /// Answer to [`FetchRequest`].
    pub struct FetchResponse (api "Fetch", versions 4..=18, flexible 12) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// Top-level error.
        pub error_code: ErrorCode = since(7),
        /// Fetch session; 0 = none.
        pub session_id: i32 = since(7),
        /// One entry per topic.
        pub responses: Vec<FetchableTopicResponse>,
        /// Addresses of the leaders named in the partitions.
        pub node_endpoints: Vec<NodeEndpoint> = since(16).tag(0),
    }

    /// Partitions of one topic.
    pub struct FetchableTopicResponse {
        /// The topic's name, up to version 12.
        pub topic: String = since(0).until(12),
        /// The topic's id, from version 13 on.
        pub topic_id: TopicId = since(13),
        /// Its partitions.
        pub partitions: Vec<PartitionData>,
    }

    /// What one partition gave.
    pub struct PartitionData {
        /// Partition index.
        pub partition_index: i32,
        /// The result.
        pub error_code: ErrorCode,
        /// End of what all in-sync replicas have.
        pub high_watermark: i64,
        /// End of what is decided of transactions; −1 = unknown.
        pub last_stable_offset: i64 => -1,
        /// Start of the log; −1 = unknown.
        pub log_start_offset: i64 = since(5) => -1,
        /// Transactions that were aborted; null = not told.
        pub aborted_transactions: Option<Vec<AbortedTransaction>>,
        /// Replica to read from next time; −1 = the leader.
        pub preferred_read_replica: BrokerId = since(11) => BrokerId::NONE,
        /// Whole batches; the last may be cut. A slice of the frame.
        pub records: Option<Bytes>,
        /// Where a follower's log parts from the leader's.
        pub diverging_epoch: EpochEndOffset = since(12).tag(0),
        /// The leader, where the broker isn't.
        pub current_leader: LeaderIdAndEpoch = since(12).tag(1),
        /// Snapshot that a follower must load.
        pub snapshot_id: SnapshotId = since(12).tag(2),
    }

    /// An aborted transaction.
    pub struct AbortedTransaction {
        /// Its producer.
        pub producer_id: i64,
        /// Its first offset.
        pub first_offset: i64,
    }

    /// An epoch and its end.
    pub struct EpochEndOffset {
        /// Leader epoch; −1 = none.
        pub epoch: i32 => -1,
        /// Its end offset; −1 = none.
        pub end_offset: i64 => -1,
    }

    /// A snapshot.
    pub struct SnapshotId {
        /// End offset; −1 = none.
        pub end_offset: i64 => -1,
        /// Leader epoch; −1 = none.
        pub epoch: i32 => -1,
    }
}
