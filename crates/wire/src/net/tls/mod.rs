//! TLS by rustls, with ring as its only provider.
//!
//! The keys, and what they mean, are those of Kafka's Java clients: `TlsOptions`. The stream is
//! opened by another [`Connector`](crate::net::Connector), which `TlsConnector` wraps.

#[cfg(feature = "tls")]
mod connector;
#[cfg(feature = "tls")]
mod der;
mod error;
#[cfg(feature = "tls")]
mod options;
#[cfg(feature = "tls")]
mod pbes2;
#[cfg(feature = "tls")]
mod pem;
#[cfg(feature = "tls")]
mod pkcs12;
#[cfg(feature = "tls")]
mod store;
#[cfg(feature = "tls")]
mod stream;
#[cfg(feature = "tls")]
mod text;
#[cfg(feature = "tls")]
mod verifier;

#[cfg(feature = "tls")]
pub use connector::TlsConnector;
#[cfg(feature = "tls")]
pub(super) use connector::client_hello;
pub use error::{StoreError, TlsError};
#[cfg(feature = "tls")]
pub use options::{StoreType, TlsOptions, TlsVersion};
