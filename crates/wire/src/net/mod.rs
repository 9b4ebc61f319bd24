//! Connections over tokio: an [`Address`], a [`Connector`] that opens a byte stream to it, and a
//! [`Connection`] that negotiates versions and ties answers to requests.
//!
//! With the feature `tls`, `SecurityConfig` takes Kafka's keys of TLS ([`tls`]) and SASL ([`sasl`]).
//!
//! All time goes through `tokio::time` and all I/O through the connector, so that everything above
//! also runs under paused time against an in-memory peer.

mod address;
#[cfg(feature = "tls")]
mod base64;
mod connection;
mod connector;
mod error;
#[cfg(feature = "tls")]
mod http;
mod negotiation;
mod probe;
pub mod sasl;
#[cfg(feature = "tls")]
mod secret;
#[cfg(feature = "tls")]
mod security;
mod task;
pub mod tls;

pub use address::{Address, AddressError};
pub use connection::{Connection, ConnectionOptions};
pub use connector::{BoxStream, ConnectFuture, Connector, Stream, TcpConnector, canonical_servers};
pub use error::{CallError, CloseReason, ConnectError, ConnectPhase};
pub use negotiation::{ApiVersionRange, NegotiatedVersions};
#[cfg(feature = "tls")]
pub use secret::Secret;
#[cfg(feature = "tls")]
pub use security::{KeyError, SecurityConfig, SecurityError, SecurityProtocol};
