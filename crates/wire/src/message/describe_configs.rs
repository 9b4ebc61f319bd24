//! DescribeConfigs, key 32 (KIP-133; group configurations: KIP-848), versions 1–4.

use crate::ErrorCode;
use crate::message::{message, since};

/// `resource_type` of a topic.
pub const RESOURCE_TOPIC: i8 = 2;
/// `resource_type` of a broker; the name is its id, or empty for the cluster-wide defaults.
pub const RESOURCE_BROKER: i8 = 4;
/// `resource_type` of a group.
pub const RESOURCE_GROUP: i8 = 32;

/// `config_source`: set on the topic.
pub const SOURCE_TOPIC: i8 = 1;
/// `config_source`: set on the broker while it runs.
pub const SOURCE_DYNAMIC_BROKER: i8 = 2;
/// `config_source`: set for all brokers while they run.
pub const SOURCE_DYNAMIC_DEFAULT_BROKER: i8 = 3;
/// `config_source`: in the broker's file.
pub const SOURCE_STATIC_BROKER: i8 = 4;
/// `config_source`: nobody has set it.
pub const SOURCE_DEFAULT: i8 = 5;
/// `config_source`: set on the group.
pub const SOURCE_GROUP: i8 = 8;

message! {
    /// Asks for configurations.
    pub struct DescribeConfigsRequest (key 32, api "DescribeConfigs", versions 1..=4, flexible 4)
        -> DescribeConfigsResponse
    {
        /// Whose configurations.
        pub resources: Vec<DescribeConfigsResource>,
        /// Whether to answer with the values behind each value.
        pub include_synonyms: bool,
        /// Whether to answer with documentation.
        pub include_documentation: bool = since(3),
    }

    /// A resource.
    pub struct DescribeConfigsResource {
        /// [`RESOURCE_TOPIC`], [`RESOURCE_BROKER`], [`RESOURCE_GROUP`].
        pub resource_type: i8,
        /// Its name.
        pub resource_name: String,
        /// Keys asked for; null = all.
        pub configuration_keys: Option<Vec<String>>,
    }

    /// Answer to [`DescribeConfigsRequest`].
    pub struct DescribeConfigsResponse (api "DescribeConfigs", versions 1..=4, flexible 4) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// One entry per resource.
        pub results: Vec<DescribeConfigsResult>,
    }

    /// Result of one resource.
    pub struct DescribeConfigsResult {
        /// The result.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
        /// Kind of the resource.
        pub resource_type: i8,
        /// Its name.
        pub resource_name: String,
        /// Its configuration.
        pub configs: Vec<DescribeConfigsResourceResult>,
    }

    /// A configuration value.
    pub struct DescribeConfigsResourceResult {
        /// Its key.
        pub name: String,
        /// Its value; null where sensitive or unset.
        pub value: Option<String>,
        /// Whether it can't be changed.
        pub read_only: bool,
        /// Where it comes from, a `SOURCE_` constant; −1 = unknown.
        pub config_source: i8 => -1,
        /// Whether the value is secret.
        pub is_sensitive: bool,
        /// The values that stand behind it, the one in force first.
        pub synonyms: Vec<DescribeConfigsSynonym>,
        /// Type: 1 BOOLEAN, 2 STRING, 3 INT, 4 SHORT, 5 LONG, 6 DOUBLE, 7 LIST, 8 CLASS, 9 PASSWORD; 0 = unknown.
        pub config_type: i8 = since(3),
        /// Documentation, where asked for.
        pub documentation: Option<String> = since(3),
    }

    /// A value behind a value.
    pub struct DescribeConfigsSynonym {
        /// Its key.
        pub name: String,
        /// Its value.
        pub value: Option<String>,
        /// Where it comes from, a `SOURCE_` constant.
        pub source: i8,
    }
}
