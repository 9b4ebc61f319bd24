//! SASL: who the client is.
//!
//! `Credentials` go into [`ConnectionOptions`](crate::net::ConnectionOptions); the connection then
//! authenticates before anything else, and again before the broker's session ends (KIP-368).

#[cfg(feature = "tls")]
mod credentials;
mod error;
#[cfg(feature = "tls")]
mod exchange;
#[cfg(feature = "tls")]
mod jaas;
#[cfg(feature = "tls")]
mod oauth;
#[cfg(feature = "tls")]
mod oidc;
#[cfg(feature = "tls")]
mod oidc_options;
#[cfg(feature = "tls")]
mod options;
#[cfg(feature = "tls")]
mod scram;

#[cfg(feature = "tls")]
pub use credentials::{Credentials, ScramAlgorithm};
pub use error::SaslError;
#[cfg(feature = "tls")]
pub use jaas::{JaasConfig, JaasError};
#[cfg(feature = "tls")]
pub use oauth::{StaticToken, TokenFile, TokenFuture, TokenSource, UnsecuredToken};
#[cfg(feature = "tls")]
pub use oidc::ClientCredentials;
#[cfg(feature = "tls")]
pub use oidc_options::OidcOptions;
#[cfg(feature = "tls")]
pub use options::SaslOptions;

#[cfg(feature = "tls")]
pub(super) use exchange::{authenticate, reauthenticate_after};

use crate::limits::SASL_MECHANISMS_SHOWN_MAX;
use crate::message::sasl_handshake::SaslHandshakeResponse;
#[cfg(feature = "tls")]
use crate::text::is_visible;
use crate::text::visible;

/// The mechanisms that a broker has turned on, in order of their names, as far as they are shown.
pub(super) fn enabled_mechanisms(answer: &SaslHandshakeResponse) -> Vec<String> {
    let mechanisms = answer.mechanisms.iter().take(SASL_MECHANISMS_SHOWN_MAX);
    let mut names: Vec<_> = mechanisms.map(|name| visible(name)).collect();
    names.sort();
    names
}

/// A peer's text without a secret. Characters that are left out must not hide it, so they go first.
#[cfg(feature = "tls")]
fn censored(text: &str, secret: &crate::net::Secret) -> String {
    let all: String = text.chars().filter(|c| is_visible(*c)).collect();
    visible(&secret.censor(&all))
}

/// From 0 to 1.
#[cfg(feature = "tls")]
fn random_fraction() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    (RandomState::new().hash_one(0_u8) >> 11) as f64 / (1_u64 << 53) as f64
}
