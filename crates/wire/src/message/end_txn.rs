//! EndTxn, key 26 (KIP-98; version 5, a new epoch for each transaction: KIP-890), versions 0–5.

use crate::ErrorCode;
use crate::message::{message, since};

message! {
    /// Commits or aborts a producer's open transaction.
    pub struct EndTxnRequest (key 26, api "EndTxn", versions 0..=5, flexible 3) -> EndTxnResponse {
        /// The transactional id.
        pub transactional_id: String,
        /// The producer.
        pub producer_id: i64,
        /// Its epoch.
        pub producer_epoch: i16,
        /// True commits, false aborts.
        pub committed: bool,
    }

    /// Answer to [`EndTxnRequest`].
    pub struct EndTxnResponse (api "EndTxn", versions 0..=5, flexible 3) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// The result.
        pub error_code: ErrorCode,
        /// The producer's id for its next transaction; −1 with an error.
        pub producer_id: i64 = since(5) => -1,
        /// The epoch for its next transaction; −1 with an error.
        pub producer_epoch: i16 = since(5) => -1,
    }
}
