//! SaslAuthenticate, key 36 (KIP-152; version 1, session lifetime: KIP-368), versions 0–2.

use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::ErrorCode;
use crate::error::DecodeError;
use crate::message::json::Json;
use crate::message::{message, since};
use crate::primitive::{Context, Reader, Wire};

message! {
    /// One message of the SASL mechanism from the client.
    pub struct SaslAuthenticateRequest (key 36, api "SaslAuthenticate", versions 0..=2, flexible 2)
        -> SaslAuthenticateResponse
    {
        /// The mechanism's message.
        pub auth_bytes: AuthBytes,
    }

    /// Answer to [`SaslAuthenticateRequest`].
    pub struct SaslAuthenticateResponse (api "SaslAuthenticate", versions 0..=2, flexible 2) {
        /// SASL_AUTHENTICATION_FAILED and others.
        pub error_code: ErrorCode,
        /// The broker's text.
        pub error_message: Option<String>,
        /// The mechanism's message.
        pub auth_bytes: AuthBytes,
        /// Milliseconds after which the client must have authenticated again; 0 = never.
        pub session_lifetime_ms: i64 = since(1),
    }
}

/// A message of a SASL mechanism. It may hold a password or a token: `Debug` shows its length only,
/// [`to_json`](crate::message::Message::to_json) all of it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct AuthBytes(pub Bytes);

impl fmt::Debug for AuthBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} bytes]", self.0.len())
    }
}

impl Wire for AuthBytes {
    fn bytes_min(context: Context) -> usize {
        Bytes::bytes_min(context)
    }

    fn write(&self, context: Context, out: &mut BytesMut) {
        self.0.write(context, out);
    }

    fn read(context: Context, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Bytes::read(context, reader).map(Self)
    }
}

impl Json for AuthBytes {
    fn json(&self, version: i16, out: &mut String) {
        self.0.json(version, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let request = SaslAuthenticateRequest {
            auth_bytes: AuthBytes(Bytes::from_static(b"\0alice\0alice-secret")),
        };
        assert_eq!(
            format!("{request:?}"),
            "SaslAuthenticateRequest { auth_bytes: [19 bytes] }"
        );
    }
}
