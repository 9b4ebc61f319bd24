//! DescribeTopicPartitions, key 75 (KIP-966), version 0.

use crate::ErrorCode;
use crate::id::{BrokerId, TopicId};
use crate::message::message;
use crate::message::metadata::OPERATIONS_UNKNOWN;

message! {
    /// Asks for topics in pages.
    pub struct DescribeTopicPartitionsRequest (key 75, api "DescribeTopicPartitions", versions 0..=0, flexible 0)
        -> DescribeTopicPartitionsResponse
    {
        /// Topics by name; empty = all.
        pub topics: Vec<TopicRequest>,
        /// Most partitions of one answer.
        pub response_partition_limit: i32 => 2000,
        /// Where the last answer stopped; null = from the first.
        pub cursor: Option<Cursor>,
    }

    /// A topic.
    pub struct TopicRequest {
        /// Its name.
        pub name: String,
    }

    /// The first partition of the next page.
    pub struct Cursor {
        /// Its topic.
        pub topic_name: String,
        /// Its index.
        pub partition_index: i32,
    }

    /// Answer to [`DescribeTopicPartitionsRequest`].
    pub struct DescribeTopicPartitionsResponse (api "DescribeTopicPartitions", versions 0..=0, flexible 0) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// One entry per topic, in the order of their names.
        pub topics: Vec<DescribeTopicPartitionsResponseTopic>,
        /// Where the next page begins; null = this was the last.
        pub next_cursor: Option<Cursor>,
    }

    /// A topic.
    pub struct DescribeTopicPartitionsResponseTopic {
        /// Error of the topic.
        pub error_code: ErrorCode,
        /// Its name.
        pub name: Option<String>,
        /// Its id.
        pub topic_id: TopicId,
        /// Whether Kafka made it for itself.
        pub is_internal: bool,
        /// Its partitions on this page.
        pub partitions: Vec<DescribeTopicPartitionsResponsePartition>,
        /// Bit field of operations allowed on the topic, or [`OPERATIONS_UNKNOWN`].
        pub topic_authorized_operations: i32 => OPERATIONS_UNKNOWN,
    }

    /// A partition.
    pub struct DescribeTopicPartitionsResponsePartition {
        /// Error of the partition.
        pub error_code: ErrorCode,
        /// Partition index.
        pub partition_index: i32,
        /// Leader; −1 = none.
        pub leader_id: BrokerId,
        /// Leader epoch; −1 = unknown.
        pub leader_epoch: i32 => -1,
        /// All replicas.
        pub replica_nodes: Vec<BrokerId>,
        /// Replicas in sync.
        pub isr_nodes: Vec<BrokerId>,
        /// Replicas that may become leader though they aren't in sync; null = unknown.
        pub eligible_leader_replicas: Option<Vec<BrokerId>>,
        /// The last of them that are known; null = unknown.
        pub last_known_elr: Option<Vec<BrokerId>>,
        /// Replicas that are offline.
        pub offline_replicas: Vec<BrokerId>,
    }
}
