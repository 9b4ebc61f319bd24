//! InitProducerId, key 22 (KIP-98; version 3: KIP-360), versions 0–5.

use crate::ErrorCode;
use crate::message::{message, since};

message! {
    /// Asks for a producer id: any broker where not transactional, else the transaction coordinator.
    pub struct InitProducerIdRequest (key 22, api "InitProducerId", versions 0..=5, flexible 2)
        -> InitProducerIdResponse
    {
        /// Null = idempotent only.
        pub transactional_id: Option<String>,
        /// Timeout of transactions, in milliseconds; only with a transactional id.
        pub transaction_timeout_ms: i32,
        /// Producer id in use; −1 = none.
        pub producer_id: i64 = since(3) => -1,
        /// Its epoch; −1 = none.
        pub producer_epoch: i16 = since(3) => -1,
    }

    /// Answer to [`InitProducerIdRequest`].
    pub struct InitProducerIdResponse (api "InitProducerId", versions 0..=5, flexible 2) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// Top-level error.
        pub error_code: ErrorCode,
        /// The producer id; −1 with an error.
        pub producer_id: i64 => -1,
        /// Its epoch.
        pub producer_epoch: i16,
    }
}
