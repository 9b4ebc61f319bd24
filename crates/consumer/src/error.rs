//! Errors of configuration and of the cold path: what a caller, the network or a broker did wrong.

use std::sync::Arc;
use std::time::Duration;

use sharegroup_session::FatalError;
use sharegroup_wire::duration::show;
use sharegroup_wire::net::{Address, AddressError, CallError, ConnectError};
use sharegroup_wire::text::visible;
use sharegroup_wire::{BrokerId, ErrorCode};
use thiserror::Error;

use crate::admin::AdminError;
use crate::batch::CorruptBatch;

/// A configuration value that can't be used. The caller's fault; never retriable.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not a value of the key's type or range.
    #[error("`{key}` is `{value}`, but must be {expected}")]
    InvalidValue {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What is legal.
        expected: &'static str,
    },
    /// A server that is not an address.
    #[error("`{key}`: {source}")]
    Address {
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        r#source: AddressError,
    },
    /// This program has no TLS and no SASL.
    #[error(
        "`security.protocol` is `{protocol}`, but this program was built without TLS and SASL (cargo feature `tls`); only PLAINTEXT is possible"
    )]
    NoTls {
        /// The protocol asked for.
        protocol: String,
    },
    /// A key of TLS or SASL. Its value is never shown where it may be secret.
    #[cfg(feature = "tls")]
    #[error(transparent)]
    SecurityKey(#[from] sharegroup_wire::net::KeyError),
    /// Keys of TLS or SASL that don't work together, or with the files that they name.
    #[cfg(feature = "tls")]
    #[error(transparent)]
    Security(#[from] sharegroup_wire::net::SecurityError),
}

impl ConfigError {
    /// Whether the same configuration may be accepted later. It never is.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        false
    }
}

/// Why the cluster gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A connection, but no answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The broker refused.
    #[error("{api}: {code}: {}", explained(.message.as_deref(), *.code))]
    Broker {
        /// The API's name.
        api: &'static str,
        /// The broker's code.
        code: ErrorCode,
        /// Its text.
        message: Option<String>,
    },
    /// A broker kept silent for as long as it was worth waiting.
    #[error("{address} gave no answer within {}", show(*.after))]
    NoAnswer {
        /// The broker.
        address: Address,
        /// The time waited.
        after: Duration,
    },
    /// No metadata names this broker.
    #[error("broker {broker} is not in the cluster's metadata")]
    UnknownBroker {
        /// The broker.
        broker: BrokerId,
    },
    /// The time of the whole operation is over (`default.api.timeout.ms`), retries included.
    #[error("{operation} not done within {}{}", show(*.after), .last.as_ref().map_or_else(String::new, |last| format!("; last: {last}")))]
    Deadline {
        /// What was to be done.
        operation: &'static str,
        /// The time allowed.
        after: Duration,
        /// The last failure before.
        last: Option<Box<Self>>,
    },
}

impl ClientError {
    /// Whether the same operation may succeed later.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_retriable(),
            Self::Call(error) => error.is_retriable(),
            Self::Broker { code, .. } => code.is_retriable(),
            Self::NoAnswer { .. } | Self::UnknownBroker { .. } | Self::Deadline { .. } => true,
        }
    }

    /// The broker's code, where a broker refused.
    #[must_use]
    pub const fn broker_code(&self) -> Option<ErrorCode> {
        match self {
            Self::Broker { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether a broker may have seen the last request: `false` means that it certainly has not.
    #[must_use]
    pub const fn may_have_arrived(&self) -> bool {
        match self {
            Self::Connect(_) | Self::UnknownBroker { .. } => false,
            Self::Call(error) => error.may_have_arrived(),
            Self::Broker { .. } | Self::NoAnswer { .. } | Self::Deadline { .. } => true,
        }
    }
}

/// A broker's own words, or what its code means.
pub(crate) fn explained(message: Option<&str>, code: ErrorCode) -> String {
    message.map_or_else(|| code.sentence().to_owned(), visible)
}

/// Why a share consumer could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The builder lacks something or got something that can't work. The caller's fault.
    #[error("{what}")]
    Misuse {
        /// What is wrong.
        what: &'static str,
    },
    /// A configuration value.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The group could not be joined in the time allowed.
    #[error("group {group_id} not joined through {bootstrap_servers} within {}: {}", show(*.waited), .last.as_deref().unwrap_or("no answer came"))]
    NotJoined {
        /// The group.
        group_id: String,
        /// Where it was tried.
        bootstrap_servers: String,
        /// The time allowed.
        waited: Duration,
        /// The last failure; `None` = nothing was refused, no answer came.
        last: Option<String>,
    },
    /// No connection, and none however often it is tried: a certificate or credentials that are
    /// refused, or a peer that is no Kafka broker.
    #[error("group {group_id} not joined: {source}")]
    Refused {
        /// The group.
        group_id: String,
        /// Why.
        r#source: ConnectError,
    },
    /// Where the group begins could not be written
    /// ([`begin_at`](crate::ShareConsumerBuilder::begin_at)).
    #[error(
        "where group {group_id} begins can't be written: {source}; it takes READ on group and topics, DESCRIBE_CONFIGS and ALTER_CONFIGS on the group"
    )]
    NotBegun {
        /// The group.
        group_id: String,
        /// Why.
        r#source: AdminError,
    },
    /// The cluster or the group refuses for good.
    #[error(transparent)]
    Fatal(#[from] FatalError),
}

impl OpenError {
    /// Whether the same consumer may open later.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        matches!(self, Self::NotJoined { .. })
    }
}

/// Why a poll gave no records.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PollError {
    /// The member can't go on.
    #[error(transparent)]
    Fatal(FatalError),
    /// Records that can't be read, also when they were read again: settle them, or drop them to have them
    /// released. Poll again for what follows.
    #[error(transparent)]
    CorruptBatch(Box<CorruptBatch>),
    /// The driver ended without being told to: a fault of this library, or the end of the runtime that it was
    /// to run on. What was held goes to others. Close this consumer and build a new one; please report it with
    /// the log.
    #[error(
        "the consumer's driver ended unexpectedly: build a new consumer, and report this fault of the library with its log"
    )]
    Bug,
}

impl PollError {
    /// Whether polling again makes sense.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        matches!(self, Self::CorruptBatch(_))
    }
}

/// Why a record could not be settled. The caller's fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettleError {
    /// The batch has no record at this offset.
    #[error(
        "offset {offset} is not in the batch of {topic}-{partition}, offsets {first_offset} to {last_offset}"
    )]
    NotInBatch {
        /// The offset.
        offset: i64,
        /// The batch's topic.
        topic: Arc<str>,
        /// The batch's partition.
        partition: i32,
        /// The batch's first offset.
        first_offset: i64,
        /// The batch's last offset; between them offsets may be missing.
        last_offset: i64,
    },
    /// The record was settled before.
    #[error("offset {offset} was settled before")]
    AlreadySettled {
        /// The offset.
        offset: i64,
    },
    /// An index past the batch's end.
    #[error("index {index} is past the batch's {len} records")]
    OutOfRange {
        /// The index.
        index: usize,
        /// Records in the batch.
        len: usize,
    },
}

impl SettleError {
    /// Whether the same call may work later. It never does.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        false
    }
}
