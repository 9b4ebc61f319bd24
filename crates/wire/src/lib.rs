//! The wire protocol of Kafka share groups (KIP-932): bytes ⇄ typed messages, record batches, and
//! (feature `net`) connections over tokio, with TLS and SASL (feature `tls`).
//!
//! The crate has no opinion on how a share consumer behaves; it turns bytes into values and back,
//! and it is safe against any peer: no allocation is made from a peer's number, every count is
//! bounded by the bytes that are really there, and decompression is capped ([`limits`]).
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

pub use error::DecodeError;
pub use error_code::ErrorCode;
pub use id::{BrokerId, CorrelationId, MemberEpoch, SessionEpoch, TopicId};
