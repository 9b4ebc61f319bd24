//! DeleteGroups, key 42 (KIP-229; version 3, texts), versions 0–3.

use crate::ErrorCode;
use crate::message::{message, since};

message! {
    /// Deletes groups without members, of any kind.
    pub struct DeleteGroupsRequest (key 42, api "DeleteGroups", versions 0..=3, flexible 2) -> DeleteGroupsResponse {
        /// The groups.
        pub groups_names: Vec<String>,
    }

    /// Answer to [`DeleteGroupsRequest`].
    pub struct DeleteGroupsResponse (api "DeleteGroups", versions 0..=3, flexible 2) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// One entry per group.
        pub results: Vec<DeletableGroupResult>,
    }

    /// Result of one group.
    pub struct DeletableGroupResult {
        /// Its id.
        pub group_id: String,
        /// The result.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String> = since(3),
    }
}
