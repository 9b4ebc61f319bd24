//! Metadata, key 3 (topic ids: KIP-516; version 13: KIP-1102), versions 0–13.

use crate::ErrorCode;
use crate::id::{BrokerId, TopicId};
use crate::message::{message, since};

/// Authorized operations that were not asked for.
pub const OPERATIONS_UNKNOWN: i32 = i32::MIN;

message! {
    /// Asks any broker for brokers, topics and leaders.
    pub struct MetadataRequest (key 3, api "Metadata", versions 0..=13, flexible 9) -> MetadataResponse {
        /// Topics asked for; null = all, empty = none. Version 0 has no null: there empty = all.
        pub topics: Option<Vec<MetadataRequestTopic>> = since(0).nullable_since(1),
        /// Whether the broker may create topics that don't exist.
        pub allow_auto_topic_creation: bool = since(4) => true,
        /// Whether to answer with the operations allowed on the cluster.
        pub include_cluster_authorized_operations: bool = since(8).until(10),
        /// Whether to answer with the operations allowed on each topic.
        pub include_topic_authorized_operations: bool = since(8),
    }

    /// A topic by id or by name.
    pub struct MetadataRequestTopic {
        /// The topic's id; zero = by name. Brokers accept ids from version 12 on.
        pub topic_id: TopicId = since(10),
        /// The topic's name; null = by id.
        pub name: Option<String> = since(0).nullable_since(10),
    }

    /// Answer to [`MetadataRequest`].
    pub struct MetadataResponse (api "Metadata", versions 0..=13, flexible 9) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32 = since(3),
        /// Brokers that are alive.
        pub brokers: Vec<MetadataResponseBroker>,
        /// The cluster's id.
        pub cluster_id: Option<String> = since(2),
        /// The controller, or any live broker in its place; −1 = unknown.
        pub controller_id: BrokerId = since(1) => BrokerId::NONE,
        /// One entry per topic.
        pub topics: Vec<MetadataResponseTopic>,
        /// Bit field of operations allowed on the cluster, or [`OPERATIONS_UNKNOWN`].
        pub cluster_authorized_operations: i32 = since(8).until(10) => OPERATIONS_UNKNOWN,
        /// Top-level error: REBOOTSTRAP_REQUIRED (KIP-1102).
        pub error_code: ErrorCode = since(13),
    }

    /// A broker.
    pub struct MetadataResponseBroker {
        /// Its id.
        pub node_id: BrokerId,
        /// Host name or address.
        pub host: String,
        /// TCP port.
        pub port: i32,
        /// Rack.
        pub rack: Option<String> = since(1),
    }

    /// A topic.
    pub struct MetadataResponseTopic {
        /// Error of the topic.
        pub error_code: ErrorCode,
        /// Its name; null where an id was asked for that doesn't exist.
        pub name: Option<String> = since(0).nullable_since(12),
        /// Its id; zero where a name was asked for that doesn't exist.
        pub topic_id: TopicId = since(10),
        /// Whether Kafka made it for itself.
        pub is_internal: bool = since(1),
        /// Its partitions, in any order.
        pub partitions: Vec<MetadataResponsePartition>,
        /// Bit field of operations allowed on the topic, or [`OPERATIONS_UNKNOWN`].
        pub topic_authorized_operations: i32 = since(8) => OPERATIONS_UNKNOWN,
    }

    /// A partition.
    pub struct MetadataResponsePartition {
        /// Error of the partition.
        pub error_code: ErrorCode,
        /// Partition index.
        pub partition_index: i32,
        /// Leader; −1 = none.
        pub leader_id: BrokerId,
        /// Leader epoch; −1 = unknown.
        pub leader_epoch: i32 = since(7) => -1,
        /// All replicas.
        pub replica_nodes: Vec<BrokerId>,
        /// Replicas in sync.
        pub isr_nodes: Vec<BrokerId>,
        /// Replicas that are offline.
        pub offline_replicas: Vec<BrokerId> = since(5),
    }
}
