//! AddPartitionsToTxn, key 24 (KIP-98; versions 4 and 5, batches of brokers: KIP-890), versions 0–5.

use crate::ErrorCode;
use crate::message::{message, since};

message! {
    /// Makes partitions part of a producer's open transaction, before the producer writes to them.
    /// Clients send it up to version 3; from transaction version 2 on Produce does it.
    pub struct AddPartitionsToTxnRequest (key 24, api "AddPartitionsToTxn", versions 0..=5, flexible 3)
        -> AddPartitionsToTxnResponse
    {
        /// Transactions, from version 4 on: for brokers.
        pub transactions: Vec<AddPartitionsToTxnTransaction> = since(4),
        /// The transactional id, up to version 3.
        pub v3_and_below_transactional_id: String = since(0).until(3),
        /// The producer, up to version 3.
        pub v3_and_below_producer_id: i64 = since(0).until(3),
        /// Its epoch, up to version 3.
        pub v3_and_below_producer_epoch: i16 = since(0).until(3),
        /// Partitions to add, up to version 3.
        pub v3_and_below_topics: Vec<AddPartitionsToTxnTopic> = since(0).until(3),
    }

    /// One transaction.
    pub struct AddPartitionsToTxnTransaction {
        /// The transactional id.
        pub transactional_id: String,
        /// The producer.
        pub producer_id: i64,
        /// Its epoch.
        pub producer_epoch: i16,
        /// Check only.
        pub verify_only: bool,
        /// Partitions to add.
        pub topics: Vec<AddPartitionsToTxnTopic>,
    }

    /// Partitions of one topic.
    pub struct AddPartitionsToTxnTopic {
        /// The topic's name.
        pub name: String,
        /// Partition indexes.
        pub partitions: Vec<i32>,
    }

    /// Answer to [`AddPartitionsToTxnRequest`].
    pub struct AddPartitionsToTxnResponse (api "AddPartitionsToTxn", versions 0..=5, flexible 3) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// Top-level error.
        pub error_code: ErrorCode = since(4),
        /// One entry per transaction, from version 4 on.
        pub results_by_transaction: Vec<AddPartitionsToTxnResult> = since(4),
        /// One entry per topic, up to version 3.
        pub results_by_topic_v3_and_below: Vec<AddPartitionsToTxnTopicResult> = since(0).until(3),
    }

    /// Result of one transaction.
    pub struct AddPartitionsToTxnResult {
        /// The transactional id.
        pub transactional_id: String,
        /// One entry per topic.
        pub topic_results: Vec<AddPartitionsToTxnTopicResult>,
    }

    /// Result of one topic.
    pub struct AddPartitionsToTxnTopicResult {
        /// The topic's name.
        pub name: String,
        /// One entry per partition.
        pub results_by_partition: Vec<AddPartitionsToTxnPartitionResult>,
    }

    /// Result of one partition.
    pub struct AddPartitionsToTxnPartitionResult {
        /// Partition index.
        pub partition_index: i32,
        /// The result.
        pub partition_error_code: ErrorCode,
    }
}
