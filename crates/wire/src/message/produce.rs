//! Produce, key 0 (leader hints: KIP-951; version 13, topic ids: KIP-516), versions 3–13.

use bytes::Bytes;

use crate::ErrorCode;
use crate::id::{BrokerId, TopicId};
use crate::message::share_fetch::NodeEndpoint;
use crate::message::{message, since};

/// `acks`: the leader answers when all in-sync replicas have the batch.
pub const ACKS_ALL: i16 = -1;
/// `acks`: the leader answers when it has the batch itself.
pub const ACKS_LEADER: i16 = 1;
/// `acks`: the broker sends no answer at all.
pub const ACKS_NONE: i16 = 0;

message! {
    /// Appends record batches. With [`ACKS_NONE`] it is never answered.
    pub struct ProduceRequest (key 0, api "Produce", versions 3..=13, flexible 9) -> ProduceResponse {
        /// Null = not in a transaction.
        pub transactional_id: Option<String>,
        /// [`ACKS_ALL`], [`ACKS_LEADER`] or [`ACKS_NONE`].
        pub acks: i16,
        /// How long the leader may wait for replicas, in milliseconds.
        pub timeout_ms: i32,
        /// One entry per topic.
        pub topic_data: Vec<TopicProduceData>,
    }

    /// Partitions of one topic.
    pub struct TopicProduceData {
        /// The topic's name, up to version 12.
        pub name: String = since(0).until(12),
        /// The topic's id, from version 13 on.
        pub topic_id: TopicId = since(13),
        /// Its partitions.
        pub partition_data: Vec<PartitionProduceData>,
    }

    /// What one partition gets.
    pub struct PartitionProduceData {
        /// Partition index.
        pub index: i32,
        /// Exactly one record batch (magic 2).
        pub records: Option<Bytes>,
    }

    /// Answer to [`ProduceRequest`].
    pub struct ProduceResponse (api "Produce", versions 3..=13, flexible 9) {
        /// One entry per topic.
        pub responses: Vec<TopicProduceResponse>,
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// Addresses of the leaders named in the partitions.
        pub node_endpoints: Vec<NodeEndpoint> = since(10).tag(0),
    }

    /// Results of one topic.
    pub struct TopicProduceResponse {
        /// The topic's name, up to version 12.
        pub name: String = since(0).until(12),
        /// The topic's id, from version 13 on.
        pub topic_id: TopicId = since(13),
        /// Its partitions.
        pub partition_responses: Vec<PartitionProduceResponse>,
    }

    /// Result of one partition.
    pub struct PartitionProduceResponse {
        /// Partition index.
        pub index: i32,
        /// The result.
        pub error_code: ErrorCode,
        /// Offset of the batch's first record.
        pub base_offset: i64,
        /// Append time in milliseconds since 1970 where the topic uses LogAppendTime, else −1.
        pub log_append_time_ms: i64 => -1,
        /// Start of the partition's log; −1 = unknown.
        pub log_start_offset: i64 = since(5) => -1,
        /// Records that made the broker refuse the batch (KIP-467).
        pub record_errors: Vec<BatchIndexAndErrorMessage> = since(8),
        /// Text of the refusal.
        pub error_message: Option<String> = since(8),
        /// Valid only with NOT_LEADER_OR_FOLLOWER.
        pub current_leader: LeaderIdAndEpoch = since(10).tag(0),
    }

    /// A record that was refused.
    pub struct BatchIndexAndErrorMessage {
        /// Index of the record in its batch.
        pub batch_index: i32,
        /// Why.
        pub batch_index_error_message: Option<String>,
    }

    /// A partition's leader, as far as the broker knows. −1/−1 when unset.
    pub struct LeaderIdAndEpoch {
        /// Leader; −1 = unknown.
        pub leader_id: BrokerId => BrokerId::NONE,
        /// Its epoch; −1 = unknown.
        pub leader_epoch: i32 => -1,
    }
}
