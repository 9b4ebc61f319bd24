//! SaslHandshake, key 17 (version 1: KIP-152), versions 0–1.
//!
//! After version 1 the mechanism's messages travel in
//! [SaslAuthenticate](crate::message::sasl_authenticate); after version 0 as bare bytes, which this
//! crate doesn't speak.

use crate::ErrorCode;
use crate::message::message;

message! {
    /// Names the SASL mechanism that the client means to use.
    pub struct SaslHandshakeRequest (key 17, api "SaslHandshake", versions 0..=1, flexible 32767) -> SaslHandshakeResponse {
        /// The mechanism, such as `SCRAM-SHA-512`.
        pub mechanism: String,
    }

    /// Answer to [`SaslHandshakeRequest`].
    pub struct SaslHandshakeResponse (api "SaslHandshake", versions 0..=1, flexible 32767) {
        /// UNSUPPORTED_SASL_MECHANISM, or ILLEGAL_SASL_STATE on a listener without SASL.
        pub error_code: ErrorCode,
        /// The mechanisms that the broker has turned on.
        pub mechanisms: Vec<String>,
    }
}
