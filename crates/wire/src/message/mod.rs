//! The messages, one file per API.
//!
//! Each struct is declared once with [`message!`](crate::message): its fields in wire order, the
//! versions that have them, and their defaults. The declaration gives both directions. Sources: the
//! schema files of Apache Kafka 4.4.0.
//!
//! Tagged fields that are not known here are skipped by their size, as KIP-482 has it: a peer may send
//! them in any version, and who doesn't know one loses nothing that the version promises. They are
//! not kept, because nothing here forwards a message: a client reads answers, a broker for tests
//! reads requests, and both write only what they made themselves. Whoever does forward (a proxy)
//! passes the frame's bytes on, which are all there, and so do the fields it doesn't know; decoding
//! and encoding again would drop them, and a place to keep them in every struct would cost each
//! response for the sake of that.

use bytes::{Bytes, BytesMut};

use crate::error::DecodeError;
use crate::primitive::{Context, Reader, Wire};

mod schema;

pub mod add_partitions_to_txn;
pub mod alter_share_group_offsets;
pub mod api_versions;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_groups;
pub mod delete_share_group_offsets;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_groups;
pub mod describe_share_group_offsets;
pub mod describe_topic_partitions;
pub mod end_txn;
pub mod fetch;
pub mod find_coordinator;
pub mod get_telemetry_subscriptions;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod json;
pub mod list_config_resources;
pub mod list_groups;
pub mod list_offsets;
pub mod metadata;
pub mod offset_commit;
pub mod offset_fetch;
pub mod produce;
pub mod push_telemetry;
pub mod sasl_authenticate;
pub mod sasl_handshake;
pub mod share_acknowledge;
pub mod share_fetch;
pub mod share_group_describe;
pub mod share_group_heartbeat;

pub(crate) use schema::{FieldSpec, message, since};

/// A request or response body.
pub trait Message: Wire + json::Json + Default {
    /// The API's name, as Kafka prints it.
    const NAME: &'static str;
    /// Oldest version known here.
    const VERSION_MIN: i16;
    /// Newest version known here.
    const VERSION_MAX: i16;
    /// First version with compact lengths and tagged sections.
    const FLEXIBLE_SINCE: i16;

    /// Whether `version` is flexible.
    #[must_use]
    fn is_flexible(version: i16) -> bool {
        version >= Self::FLEXIBLE_SINCE
    }

    /// Appends the body. Fields that the version doesn't have are left out.
    fn encode(&self, version: i16, out: &mut BytesMut) {
        debug_assert!(
            (Self::VERSION_MIN..=Self::VERSION_MAX).contains(&version),
            "{} {version}",
            Self::NAME
        );
        self.write(
            Context {
                version,
                flexible: Self::is_flexible(version),
                nullable: false,
            },
            out,
        );
    }

    /// The body alone.
    #[must_use]
    fn to_bytes(&self, version: i16) -> Bytes {
        let mut out = BytesMut::new();
        self.encode(version, &mut out);
        out.freeze()
    }

    /// The body as JSON, for logs: the form of Kafka's own converters, see [`json`].
    #[must_use]
    fn to_json(&self, version: i16) -> String {
        let mut out = String::new();
        self.json(version, &mut out);
        out
    }

    /// Decodes a body, to its last byte. Byte fields are slices of `body`; everything else takes at
    /// most 48 bytes of memory per byte of the body, whatever it claims (tests/hostile.rs).
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes are not a legal body of that version.
    fn from_bytes(body: &Bytes, version: i16) -> Result<Self, DecodeError> {
        if !(Self::VERSION_MIN..=Self::VERSION_MAX).contains(&version) {
            return Err(DecodeError::UnknownVersion {
                api: Self::NAME,
                version,
            });
        }
        let mut reader = Reader::new(body);
        let context = Context {
            version,
            flexible: Self::is_flexible(version),
            nullable: false,
        };
        let message = Self::read(context, &mut reader)?;
        reader.finish()?;
        Ok(message)
    }
}

/// A request, and what answers it.
pub trait Request: Message {
    /// The API's key.
    const KEY: i16;
    /// The answer.
    type Response: Message;
}
