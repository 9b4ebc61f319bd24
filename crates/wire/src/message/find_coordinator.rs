//! FindCoordinator, key 10 (version 4: many keys, KIP-699; version 6: share keys, KIP-932), versions 0–6.

use crate::ErrorCode;
use crate::id::BrokerId;
use crate::message::{message, since};

/// `key_type` of groups of every kind, share groups too.
pub const KEY_TYPE_GROUP: i8 = 0;
/// `key_type` of transactional ids.
pub const KEY_TYPE_TRANSACTION: i8 = 1;
/// `key_type` of share-partition state (brokers among themselves); members use [`KEY_TYPE_GROUP`].
pub const KEY_TYPE_SHARE: i8 = 2;

message! {
    /// Asks any broker for the coordinator of a key.
    pub struct FindCoordinatorRequest (key 10, api "FindCoordinator", versions 0..=6, flexible 3)
        -> FindCoordinatorResponse
    {
        /// The key, up to version 3.
        pub key: String = since(0).until(3),
        /// [`KEY_TYPE_GROUP`], [`KEY_TYPE_TRANSACTION`] or [`KEY_TYPE_SHARE`].
        pub key_type: i8 = since(1),
        /// The keys, from version 4 on.
        pub coordinator_keys: Vec<String> = since(4),
    }

    /// Answer to [`FindCoordinatorRequest`]: one coordinator up to version 3, a list from version 4 on.
    pub struct FindCoordinatorResponse (api "FindCoordinator", versions 0..=6, flexible 3) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32 = since(1),
        /// Top-level error, up to version 3.
        pub error_code: ErrorCode = since(0).until(3),
        /// Its text.
        pub error_message: Option<String> = since(1).until(3),
        /// The coordinator, up to version 3; −1 with an error.
        pub node_id: BrokerId = since(0).until(3),
        /// Its host name or address, up to version 3.
        pub host: String = since(0).until(3),
        /// Its TCP port, up to version 3.
        pub port: i32 = since(0).until(3),
        /// One entry per key, from version 4 on.
        pub coordinators: Vec<Coordinator> = since(4),
    }

    /// The coordinator of one key.
    pub struct Coordinator {
        /// The key.
        pub key: String,
        /// The coordinator; −1 with an error.
        pub node_id: BrokerId,
        /// Host name or address.
        pub host: String,
        /// TCP port.
        pub port: i32,
        /// Error of this key.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
    }
}
