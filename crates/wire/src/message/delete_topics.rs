//! DeleteTopics, key 20 (version 6: topic ids, KIP-516), versions 1–6.

use crate::ErrorCode;
use crate::id::TopicId;
use crate::message::{message, since};

message! {
    /// Deletes topics.
    pub struct DeleteTopicsRequest (key 20, api "DeleteTopics", versions 1..=6, flexible 4) -> DeleteTopicsResponse {
        /// Topics by name or id, from version 6 on.
        pub topics: Vec<DeleteTopicState> = since(6),
        /// Topics by name, up to version 5.
        pub topic_names: Vec<String> = since(0).until(5),
        /// How long the broker may take, in milliseconds.
        pub timeout_ms: i32,
    }

    /// A topic by name or by id.
    pub struct DeleteTopicState {
        /// Its name; null = by id.
        pub name: Option<String>,
        /// Its id; zero = by name.
        pub topic_id: TopicId,
    }

    /// Answer to [`DeleteTopicsRequest`].
    pub struct DeleteTopicsResponse (api "DeleteTopics", versions 1..=6, flexible 4) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// One entry per topic.
        pub responses: Vec<DeletableTopicResult>,
    }

    /// Result of one topic.
    pub struct DeletableTopicResult {
        /// Its name; null where the caller named an id and may not see the name.
        pub name: Option<String> = since(0).nullable_since(6),
        /// Its id.
        pub topic_id: TopicId = since(6),
        /// The result.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String> = since(5),
    }
}
