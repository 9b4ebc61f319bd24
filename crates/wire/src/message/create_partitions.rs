//! CreatePartitions, key 37 (KIP-195), versions 0–3.

use crate::ErrorCode;
use crate::id::BrokerId;
use crate::message::message;

message! {
    /// Adds partitions to topics.
    pub struct CreatePartitionsRequest (key 37, api "CreatePartitions", versions 0..=3, flexible 2)
        -> CreatePartitionsResponse
    {
        /// One entry per topic.
        pub topics: Vec<CreatePartitionsTopic>,
        /// How long the broker may take, in milliseconds.
        pub timeout_ms: i32,
        /// Check only.
        pub validate_only: bool,
    }

    /// A topic.
    pub struct CreatePartitionsTopic {
        /// Its name.
        pub name: String,
        /// Partitions that it is to have in all.
        pub count: i32,
        /// Brokers of each new partition; null = the cluster chooses.
        pub assignments: Option<Vec<CreatePartitionsAssignment>>,
    }

    /// Brokers of one new partition.
    pub struct CreatePartitionsAssignment {
        /// The brokers, preferred leader first.
        pub broker_ids: Vec<BrokerId>,
    }

    /// Answer to [`CreatePartitionsRequest`].
    pub struct CreatePartitionsResponse (api "CreatePartitions", versions 0..=3, flexible 2) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// One entry per topic.
        pub results: Vec<CreatePartitionsTopicResult>,
    }

    /// Result of one topic.
    pub struct CreatePartitionsTopicResult {
        /// Its name.
        pub name: String,
        /// The result.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
    }
}
