//! Errors of configuration and of the cold path: what a caller, the network or a broker did wrong.

use std::time::Duration;

use sharegroup_wire::net::{AddressError, CallError, ConnectError};
use sharegroup_wire::{BrokerId, ErrorCode};
use thiserror::Error;

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
        source: AddressError,
    },
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
    #[error("{api}: {code}: {}", .message.as_deref().unwrap_or(.code.sentence()))]
    Broker {
        /// The API's name.
        api: &'static str,
        /// The broker's code.
        code: ErrorCode,
        /// Its text.
        message: Option<String>,
    },
    /// No metadata names this broker.
    #[error("broker {broker} is not in the cluster's metadata")]
    UnknownBroker {
        /// The broker.
        broker: BrokerId,
    },
    /// The time of the whole operation is over (`default.api.timeout.ms`), retries included.
    #[error("{operation} not done within {after:?}{}", .last.as_ref().map_or_else(String::new, |last| format!("; last: {last}")))]
    Deadline {
        /// What was to be done.
        operation: &'static str,
        /// The time allowed.
        after: Duration,
        /// The last failure before.
        last: Option<Box<ClientError>>,
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
            Self::UnknownBroker { .. } | Self::Deadline { .. } => true,
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
            Self::Broker { .. } | Self::Deadline { .. } => true,
        }
    }
}
