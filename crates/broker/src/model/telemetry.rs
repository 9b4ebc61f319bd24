//! Metrics of clients (KIP-714): what is wanted of them, and what they pushed.

use bytes::Bytes;
use sharegroup_wire::ErrorCode;
use sharegroup_wire::id::TopicId;
use sharegroup_wire::message::push_telemetry::PushTelemetryRequest;

/// Pushes that are kept; of more the oldest are forgotten.
const PUSHES_MAX: usize = 1000;

/// Codecs in the order in which Kafka prefers them: zstd, lz4, gzip, snappy.
const COMPRESSION_TYPES: [i8; 4] = [4, 3, 1, 2];

/// What is wanted of clients, and what they pushed.
#[derive(Debug, Default)]
pub struct Telemetry {
    /// What is wanted. Default nothing, as with a broker that has no receiver of metrics.
    pub subscription: Subscription,
    /// How often clients asked for it.
    pub asked: u64,
    /// What was pushed and taken; the last thousand, in their order.
    pub pushes: Vec<Push>,
}

/// What is wanted of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// Its name.
    pub id: i32,
    /// Prefixes of metrics; `*` = all, empty = none.
    pub metrics: Vec<String>,
    /// Time between two pushes, in milliseconds.
    pub push_interval_ms: i32,
    /// Largest push, in bytes.
    pub bytes_max: i32,
    /// Whether counters are to be differences.
    pub is_delta: bool,
    /// Codecs, as numbered on the wire.
    pub compression_types: Vec<i8>,
}

impl Default for Subscription {
    fn default() -> Self {
        Self {
            id: 0,
            metrics: Vec::new(),
            push_interval_ms: 300_000,
            bytes_max: 1_048_576,
            is_delta: true,
            compression_types: COMPRESSION_TYPES.to_vec(),
        }
    }
}

/// Metrics that a client pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// The client.
    pub client_instance_id: TopicId,
    /// Whether it said that it is about to end.
    pub terminating: bool,
    /// Codec of the metrics, as numbered on the wire.
    pub compression_type: i8,
    /// The metrics, compressed.
    pub metrics: Bytes,
}

impl Telemetry {
    /// Takes a push, or tells why not.
    pub(crate) fn push(&mut self, request: PushTelemetryRequest) -> ErrorCode {
        if request.subscription_id != self.subscription.id {
            return ErrorCode::UnknownSubscriptionId;
        }
        let bytes_max = usize::try_from(self.subscription.bytes_max).unwrap_or(0);
        if request.metrics.len() > bytes_max {
            return ErrorCode::TelemetryTooLarge;
        }
        if self.pushes.len() >= PUSHES_MAX {
            self.pushes.remove(0);
        }
        self.pushes.push(Push {
            client_instance_id: request.client_instance_id,
            terminating: request.terminating,
            compression_type: request.compression_type,
            // Not a slice of the frame, which would live as long.
            metrics: Bytes::copy_from_slice(&request.metrics),
        });
        ErrorCode::None
    }
}
