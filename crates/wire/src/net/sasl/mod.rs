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
pub use options::SaslOptions;

#[cfg(feature = "tls")]
pub(super) use exchange::{authenticate, reauthenticate_after};
