//! IncrementalAlterConfigs, key 44 (KIP-339), versions 0–1.
//!
//! All changes of one resource succeed or fail together.

use crate::ErrorCode;
use crate::message::message;

/// `config_operation`: sets a key.
pub const OPERATION_SET: i8 = 0;
/// `config_operation`: takes a key back to its default.
pub const OPERATION_DELETE: i8 = 1;
/// `config_operation`: adds to a list.
pub const OPERATION_APPEND: i8 = 2;
/// `config_operation`: takes from a list.
pub const OPERATION_SUBTRACT: i8 = 3;

message! {
    /// Changes configurations.
    pub struct IncrementalAlterConfigsRequest (key 44, api "IncrementalAlterConfigs", versions 0..=1, flexible 1)
        -> IncrementalAlterConfigsResponse
    {
        /// One entry per resource.
        pub resources: Vec<AlterConfigsResource>,
        /// Check only.
        pub validate_only: bool,
    }

    /// Changes of one resource.
    pub struct AlterConfigsResource {
        /// Kind of the resource, a `RESOURCE_` constant of [`describe_configs`](crate::message::describe_configs).
        pub resource_type: i8,
        /// Its name.
        pub resource_name: String,
        /// The changes; a key stands once.
        pub configs: Vec<AlterableConfig>,
    }

    /// One change.
    pub struct AlterableConfig {
        /// The key.
        pub name: String,
        /// An `OPERATION_` constant.
        pub config_operation: i8,
        /// The value; null with [`OPERATION_DELETE`].
        pub value: Option<String>,
    }

    /// Answer to [`IncrementalAlterConfigsRequest`].
    pub struct IncrementalAlterConfigsResponse (api "IncrementalAlterConfigs", versions 0..=1, flexible 1) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// One entry per resource.
        pub responses: Vec<AlterConfigsResourceResponse>,
    }

    /// Result of one resource.
    pub struct AlterConfigsResourceResponse {
        /// The result.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
        /// Kind of the resource.
        pub resource_type: i8,
        /// Its name.
        pub resource_name: String,
    }
}
