//! ApiVersions, key 18 (KIP-35; features: KIP-584; version 4: KIP-1022; version 5: KIP-1242), versions 0–5.
//!
//! A broker that doesn't know the version asked for answers in version 0 with UNSUPPORTED_VERSION;
//! the answer's header is never flexible, so that it can be read in any case.

use crate::ErrorCode;
use crate::id::BrokerId;
use crate::message::{message, since};

message! {
    /// Asks a broker which APIs and versions it speaks.
    pub struct ApiVersionsRequest (key 18, api "ApiVersions", versions 0..=5, flexible 3) -> ApiVersionsResponse {
        /// Name of the client library.
        pub client_software_name: String = since(3),
        /// Its version.
        pub client_software_version: String = since(3),
        /// Cluster that the client means to reach; null = any. Goes together with `node_id`.
        pub cluster_id: Option<String> = since(5),
        /// Broker that the client means to reach; −1 = any.
        pub node_id: BrokerId = since(5) => BrokerId::NONE,
    }

    /// Answer to [`ApiVersionsRequest`].
    pub struct ApiVersionsResponse (api "ApiVersions", versions 0..=5, flexible 3) {
        /// Top-level error.
        pub error_code: ErrorCode,
        /// What the broker speaks; with UNSUPPORTED_VERSION at least ApiVersions itself.
        pub api_keys: Vec<ApiVersion>,
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32 = since(1),
        /// Features that the broker supports; up to version 3 without those whose minimum is 0.
        pub supported_features: Vec<SupportedFeatureKey> = since(3).tag(0),
        /// Epoch of the finalized features; −1 = unknown, then they are not valid.
        pub finalized_features_epoch: i64 = since(3).tag(1) => -1,
        /// Features that the cluster has turned on: `share.version` above 0 means share groups.
        pub finalized_features: Vec<FinalizedFeatureKey> = since(3).tag(2),
        /// Set by a controller that can migrate from ZooKeeper.
        pub zk_migration_ready: bool = since(3).tag(3),
    }

    /// One API.
    pub struct ApiVersion {
        /// The API's key.
        pub api_key: i16,
        /// Oldest version, inclusive.
        pub min_version: i16,
        /// Newest version, inclusive.
        pub max_version: i16,
    }

    /// A feature that the broker supports.
    pub struct SupportedFeatureKey {
        /// The feature's name.
        pub name: String,
        /// Lowest level, inclusive.
        pub min_version: i16,
        /// Highest level, inclusive.
        pub max_version: i16,
    }

    /// A feature that is on in the whole cluster.
    pub struct FinalizedFeatureKey {
        /// The feature's name.
        pub name: String,
        /// Highest level that is on.
        pub max_version_level: i16,
        /// Lowest level that is on.
        pub min_version_level: i16,
    }
}
