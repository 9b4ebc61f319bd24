//! PushTelemetry, key 72 (KIP-714), version 0.

use bytes::Bytes;

use crate::ErrorCode;
use crate::id::TopicId;
use crate::message::message;

message! {
    /// Sends the metrics that the broker subscribed to.
    pub struct PushTelemetryRequest (key 72, api "PushTelemetry", versions 0..=0, flexible 0) -> PushTelemetryResponse {
        /// The client's id.
        pub client_instance_id: TopicId,
        /// The subscription that they belong to.
        pub subscription_id: i32,
        /// Whether the client is about to end.
        pub terminating: bool,
        /// Codec of the metrics.
        pub compression_type: i8,
        /// The metrics, in OpenTelemetry's encoding.
        pub metrics: Bytes,
    }

    /// Answer to [`PushTelemetryRequest`].
    pub struct PushTelemetryResponse (api "PushTelemetry", versions 0..=0, flexible 0) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// The result.
        pub error_code: ErrorCode,
    }
}
