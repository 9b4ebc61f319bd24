//! DescribeCluster, key 60 (KIP-700; version 1: KIP-919; version 2: KIP-1073), versions 0–2.

use crate::ErrorCode;
use crate::id::BrokerId;
use crate::message::metadata::OPERATIONS_UNKNOWN;
use crate::message::{message, since};

/// `endpoint_type` of brokers.
pub const ENDPOINT_BROKERS: i8 = 1;
/// `endpoint_type` of controllers.
pub const ENDPOINT_CONTROLLERS: i8 = 2;

message! {
    /// Asks any broker for the cluster's brokers.
    pub struct DescribeClusterRequest (key 60, api "DescribeCluster", versions 0..=2, flexible 0)
        -> DescribeClusterResponse
    {
        /// Whether to answer with the operations allowed on the cluster.
        pub include_cluster_authorized_operations: bool,
        /// [`ENDPOINT_BROKERS`] or [`ENDPOINT_CONTROLLERS`].
        pub endpoint_type: i8 = since(1) => ENDPOINT_BROKERS,
        /// Whether to list brokers that are fenced too.
        pub include_fenced_brokers: bool = since(2),
    }

    /// Answer to [`DescribeClusterRequest`].
    pub struct DescribeClusterResponse (api "DescribeCluster", versions 0..=2, flexible 0) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// Top-level error.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
        /// [`ENDPOINT_BROKERS`] or [`ENDPOINT_CONTROLLERS`].
        pub endpoint_type: i8 = since(1) => ENDPOINT_BROKERS,
        /// The cluster's id.
        pub cluster_id: String,
        /// The controller; from a broker, any live broker; −1 = unknown.
        pub controller_id: BrokerId => BrokerId::NONE,
        /// The brokers or controllers.
        pub brokers: Vec<DescribeClusterBroker>,
        /// Bit field of operations allowed on the cluster, or [`OPERATIONS_UNKNOWN`].
        pub cluster_authorized_operations: i32 => OPERATIONS_UNKNOWN,
    }

    /// A broker.
    pub struct DescribeClusterBroker {
        /// Its id.
        pub broker_id: BrokerId,
        /// Host name or address.
        pub host: String,
        /// TCP port.
        pub port: i32,
        /// Rack.
        pub rack: Option<String>,
        /// Whether it is fenced.
        pub is_fenced: bool = since(2),
    }
}
