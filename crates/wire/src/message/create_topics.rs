//! CreateTopics, key 19 (version 5: KIP-525; version 7: topic ids), versions 2–7.

use crate::ErrorCode;
use crate::id::{BrokerId, TopicId};
use crate::message::{message, since};

message! {
    /// Creates topics.
    pub struct CreateTopicsRequest (key 19, api "CreateTopics", versions 2..=7, flexible 5) -> CreateTopicsResponse {
        /// The topics.
        pub topics: Vec<CreatableTopic>,
        /// How long the broker may take, in milliseconds.
        pub timeout_ms: i32 => 60_000,
        /// Check only.
        pub validate_only: bool,
    }

    /// A topic to be.
    pub struct CreatableTopic {
        /// Its name.
        pub name: String,
        /// Count of partitions; −1 = the broker's default (version 4), or by `assignments`.
        pub num_partitions: i32,
        /// Replicas of each partition; −1 = the broker's default (version 4), or by `assignments`.
        pub replication_factor: i16,
        /// Brokers of each partition; empty = the cluster chooses.
        pub assignments: Vec<CreatableReplicaAssignment>,
        /// Configuration that differs from the defaults.
        pub configs: Vec<CreatableTopicConfig>,
    }

    /// Brokers of one partition.
    pub struct CreatableReplicaAssignment {
        /// Partition index.
        pub partition_index: i32,
        /// The brokers, preferred leader first.
        pub broker_ids: Vec<BrokerId>,
    }

    /// A configuration value.
    pub struct CreatableTopicConfig {
        /// Its key.
        pub name: String,
        /// Its value.
        pub value: Option<String>,
    }

    /// Answer to [`CreateTopicsRequest`].
    pub struct CreateTopicsResponse (api "CreateTopics", versions 2..=7, flexible 5) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// One entry per topic.
        pub topics: Vec<CreatableTopicResult>,
    }

    /// Result of one topic.
    pub struct CreatableTopicResult {
        /// Its name.
        pub name: String,
        /// Its new id.
        pub topic_id: TopicId = since(7),
        /// The result.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
        /// Count of partitions; −1 = not told.
        pub num_partitions: i32 = since(5) => -1,
        /// Replicas of each partition; −1 = not told.
        pub replication_factor: i16 = since(5) => -1,
        /// The topic's configuration; null = not told, see `topic_config_error_code`.
        pub configs: Option<Vec<CreatableTopicConfigs>> = since(5),
        /// Why the configuration is not told.
        pub topic_config_error_code: ErrorCode = since(5).tag(0),
    }

    /// A configuration value of the new topic.
    pub struct CreatableTopicConfigs {
        /// Its key.
        pub name: String,
        /// Its value; null where sensitive.
        pub value: Option<String>,
        /// Whether it can't be changed.
        pub read_only: bool,
        /// Where it comes from: see [`describe_configs`](crate::message::describe_configs); −1 = unknown.
        pub config_source: i8 => -1,
        /// Whether the value is secret.
        pub is_sensitive: bool,
    }
}
