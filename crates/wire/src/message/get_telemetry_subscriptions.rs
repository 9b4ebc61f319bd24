//! GetTelemetrySubscriptions, key 71 (KIP-714), version 0.

use crate::ErrorCode;
use crate::id::TopicId;
use crate::message::message;

message! {
    /// Asks which metrics the broker wants of this client.
    pub struct GetTelemetrySubscriptionsRequest (key 71, api "GetTelemetrySubscriptions", versions 0..=0, flexible 0)
        -> GetTelemetrySubscriptionsResponse
    {
        /// The client's id; zero = it wants one.
        pub client_instance_id: TopicId,
    }

    /// Answer to [`GetTelemetrySubscriptionsRequest`].
    pub struct GetTelemetrySubscriptionsResponse (api "GetTelemetrySubscriptions", versions 0..=0, flexible 0) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// Top-level error.
        pub error_code: ErrorCode,
        /// The client's new id; zero = it keeps its own.
        pub client_instance_id: TopicId,
        /// Names this subscription.
        pub subscription_id: i32,
        /// Codecs that the broker takes.
        pub accepted_compression_types: Vec<i8>,
        /// Time between two pushes, in milliseconds.
        pub push_interval_ms: i32,
        /// Largest push, in bytes.
        pub telemetry_max_bytes: i32,
        /// Whether counters are to be sent as differences.
        pub delta_temporality: bool,
        /// Prefixes of the metrics wanted; empty = none.
        pub requested_metrics: Vec<String>,
    }
}
