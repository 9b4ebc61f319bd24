//! DeleteShareGroupOffsets, key 92 (KIP-932), version 0.

use crate::ErrorCode;
use crate::id::TopicId;
use crate::message::message;

message! {
    /// Forgets topics of a share group without members.
    pub struct DeleteShareGroupOffsetsRequest (key 92, api "DeleteShareGroupOffsets", versions 0..=0, flexible 0)
        -> DeleteShareGroupOffsetsResponse
    {
        /// The share group.
        pub group_id: String,
        /// One entry per topic.
        pub topics: Vec<DeleteShareGroupOffsetsRequestTopic>,
    }

    /// A topic.
    pub struct DeleteShareGroupOffsetsRequestTopic {
        /// Its name.
        pub topic_name: String,
    }

    /// Answer to [`DeleteShareGroupOffsetsRequest`].
    pub struct DeleteShareGroupOffsetsResponse (api "DeleteShareGroupOffsets", versions 0..=0, flexible 0) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// Top-level error.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
        /// One entry per topic.
        pub responses: Vec<DeleteShareGroupOffsetsResponseTopic>,
    }

    /// Result of one topic.
    pub struct DeleteShareGroupOffsetsResponseTopic {
        /// The topic's name.
        pub topic_name: String,
        /// The topic's id.
        pub topic_id: TopicId,
        /// The result.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
    }
}
