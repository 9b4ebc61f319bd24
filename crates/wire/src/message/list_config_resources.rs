//! ListConfigResources, key 74 (KIP-714; version 1, all kinds of resources: KIP-1142), versions 0–1.

use crate::ErrorCode;
use crate::message::{message, since};

/// `resource_type` of a client metrics subscription; the others stand in
/// [`describe_configs`](crate::message::describe_configs).
pub const RESOURCE_CLIENT_METRICS: i8 = 16;

message! {
    /// Asks which resources have configurations.
    pub struct ListConfigResourcesRequest (key 74, api "ListConfigResources", versions 0..=1, flexible 0)
        -> ListConfigResourcesResponse
    {
        /// Kinds of resources; empty = all.
        pub resource_types: Vec<i8> = since(1),
    }

    /// Answer to [`ListConfigResourcesRequest`].
    pub struct ListConfigResourcesResponse (api "ListConfigResources", versions 0..=1, flexible 0) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// Top-level error.
        pub error_code: ErrorCode,
        /// The resources.
        pub config_resources: Vec<ConfigResource>,
    }

    /// A resource.
    pub struct ConfigResource {
        /// Its name.
        pub resource_name: String,
        /// Its kind.
        pub resource_type: i8 = since(1) => RESOURCE_CLIENT_METRICS,
    }
}
