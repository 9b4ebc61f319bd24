//! ListGroups, key 16 (version 4: KIP-518; version 5, types: KIP-848), versions 0–5.

use crate::ErrorCode;
use crate::message::{message, since};

message! {
    /// Asks one broker for the groups that it coordinates; ask them all for the whole list.
    pub struct ListGroupsRequest (key 16, api "ListGroups", versions 0..=5, flexible 3) -> ListGroupsResponse {
        /// States to list; empty = all.
        pub states_filter: Vec<String> = since(4),
        /// Types to list (`share`, `consumer`, `classic`, `streams`); empty = all.
        pub types_filter: Vec<String> = since(5),
    }

    /// Answer to [`ListGroupsRequest`].
    pub struct ListGroupsResponse (api "ListGroups", versions 0..=5, flexible 3) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32 = since(1),
        /// Top-level error.
        pub error_code: ErrorCode,
        /// The groups.
        pub groups: Vec<ListedGroup>,
    }

    /// A group.
    pub struct ListedGroup {
        /// Its id.
        pub group_id: String,
        /// Its protocol: `share`, `consumer` or another.
        pub protocol_type: String,
        /// Its state, as Kafka prints it.
        pub group_state: String = since(4),
        /// Its type, as Kafka prints it.
        pub group_type: String = since(5),
    }
}
