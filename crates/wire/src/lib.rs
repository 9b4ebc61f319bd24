//! The wire protocol of Kafka share groups (KIP-932): bytes ⇄ typed messages, record batches, and
//! (feature `net`) connections over tokio, with TLS and SASL (feature `tls`).
//!
//! The crate has no opinion on how a share consumer behaves; it turns bytes into values and back,
//! and it is safe against any peer: no allocation is made from a peer's number, every count is
//! bounded by the bytes that are really there, and decompression is capped ([`limits`]).
//!
//! | module | what it does |
//! | --- | --- |
//! | [`message`] | requests and responses as structs, one module per API; Kafka 4.1 to 4.4 |
//! | [`frame`] | sizes and headers around them, for whoever brings a socket of its own |
//! | [`record`], [`compress`] | record batches, read without a copy per record; five codecs |
//! | [`acknowledgement`] | ranges of acknowledgements in their shortest form |
//! | `net` (feature `net`) | connections: versions negotiated, deadlines, requests in flight bounded |
//! | `net::tls`, `net::sasl` (feature `tls`) | TLS and SASL with the keys of Kafka's clients |
//!
//! Both features are on by default. Without them the crate is synchronous and has neither tokio nor C
//! in its tree; `tls` brings ring. What is logged (with `tracing`) never holds a secret or a payload.
//!
//! # A message
//!
//! ```
//! use sharegroup_wire::message::{Message, share_group_heartbeat::ShareGroupHeartbeatRequest};
//!
//! let request = ShareGroupHeartbeatRequest {
//!     group_id: "orders".into(),
//!     member_id: "AAAAAAAAAAAAAAAAAAAAAA".into(),
//!     subscribed_topic_names: Some(vec!["orders".into()]),
//!     ..Default::default()
//! };
//! let body = request.to_bytes(1);
//! assert_eq!(ShareGroupHeartbeatRequest::from_bytes(&body, 1).unwrap(), request);
//! ```
//!
//! # A connection
//!
//! ```no_run
//! # #[cfg(feature = "net")]
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use sharegroup_wire::message::metadata::MetadataRequest;
//! use sharegroup_wire::net::{Connection, ConnectionOptions, TcpConnector};
//!
//! let (connector, options) = (TcpConnector::default(), ConnectionOptions::default());
//! let connection = Connection::open(&connector, &"localhost:9092".parse()?, &options).await?;
//! let metadata = connection.call(&MetadataRequest::default()).await?;
//! println!("{} brokers", metadata.brokers.len());
//! # Ok(())
//! # }
//! ```
//!
//! With TLS and SASL: `net::SecurityConfig`. A whole share group over a plain socket, from joining to
//! leaving, is the example `raw`.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod acknowledgement;
pub mod compress;
pub mod duration;
pub mod error;
pub mod error_code;
pub mod frame;
pub mod id;
pub mod limits;
pub mod message;
#[cfg(feature = "net")]
pub mod net;
pub mod primitive;
pub mod record;
pub mod text;

pub use error::DecodeError;
pub use error_code::ErrorCode;
pub use id::{BrokerId, CorrelationId, MemberEpoch, SessionEpoch, TopicId};
