//! What went wrong with an admin operation, and what to do.

use std::fmt;

use sharegroup_wire::{BrokerId, ErrorCode};
use thiserror::Error;

use crate::error::{ClientError, explained};
use crate::topic_partition::TopicPartition;

/// What an operation is about.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resource {
    /// The cluster.
    Cluster,
    /// A broker.
    Broker(BrokerId),
    /// A topic.
    Topic(String),
    /// A group.
    Group(String),
    /// A configuration key of a group.
    GroupConfig {
        /// The group.
        group_id: String,
        /// The key.
        key: String,
    },
    /// A partition.
    Partition(TopicPartition),
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("the cluster"),
            Self::Broker(broker) => write!(f, "broker {broker}"),
            Self::Topic(topic) => write!(f, "topic `{topic}`"),
            Self::Group(group_id) => write!(f, "group `{group_id}`"),
            Self::GroupConfig { group_id, key } => write!(f, "`{key}` of group `{group_id}`"),
            Self::Partition(partition) => write!(f, "partition {partition}"),
        }
    }
}

/// Why an admin operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The broker refused.
    #[error("{operation} of {resource} refused: {code}: {}{}", explained(.message.as_deref(), *.code), hint(*.code))]
    Broker {
        /// The API's name.
        operation: &'static str,
        /// What it was about.
        resource: Resource,
        /// The broker's code.
        code: ErrorCode,
        /// The broker's text.
        message: Option<String>,
    },
    /// No answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The answer doesn't say what was asked: the broker's fault.
    #[error("answer to {operation} says nothing about {resource}")]
    PeerMisbehaved {
        /// The API's name.
        operation: &'static str,
        /// What it was about.
        resource: Resource,
    },
}

impl AdminError {
    pub(super) fn broker(
        operation: &'static str,
        resource: Resource,
        code: ErrorCode,
        message: Option<String>,
    ) -> Self {
        Self::Broker {
            operation,
            resource,
            code,
            message: message.filter(|text| !text.is_empty()),
        }
    }

    /// Whether the same operation may succeed later.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        match self {
            Self::Broker { code, .. } => code.is_retriable(),
            Self::Client(error) => error.is_retriable(),
            Self::PeerMisbehaved { .. } => false,
        }
    }

    /// The broker's code, where a broker refused.
    #[must_use]
    pub const fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Broker { code, .. } => Some(*code),
            Self::Client(error) => error.broker_code(),
            Self::PeerMisbehaved { .. } => None,
        }
    }

    /// What the operator can do, where there is a usual answer.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        self.code().and_then(advice)
    }
}

fn hint(code: ErrorCode) -> String {
    advice(code).map_or_else(String::new, |advice| format!(" ({advice})"))
}

const fn advice(code: ErrorCode) -> Option<&'static str> {
    Some(match code {
        ErrorCode::UnsupportedVersion => {
            "share groups may be off: turn them on with `kafka-features.sh --bootstrap-server HOST:PORT upgrade --feature share.version=1`"
        }
        ErrorCode::TopicAuthorizationFailed => {
            "grant the operation on the topic with kafka-acls.sh"
        }
        ErrorCode::GroupAuthorizationFailed => {
            "grant the operation on the group with kafka-acls.sh"
        }
        ErrorCode::ClusterAuthorizationFailed => {
            "grant the operation on the cluster with kafka-acls.sh"
        }
        ErrorCode::UnknownTopicOrPartition => "create the topic first, or check its name",
        ErrorCode::InvalidReplicationFactor => {
            "ask for at most as many replicas as there are brokers, or for -1"
        }
        ErrorCode::NonEmptyGroup => "stop the members of the group first",
        ErrorCode::GroupIdNotFound => {
            "check the group id; it may belong to a group of another type"
        }
        ErrorCode::RequestTimedOut => "the broker may still finish it: look before trying again",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_operation_resource_code_and_advice() {
        let error = AdminError::broker(
            "AlterShareGroupOffsets",
            Resource::Group("orders".into()),
            ErrorCode::NonEmptyGroup,
            Some(String::new()),
        );
        assert_eq!(
            error.to_string(),
            "AlterShareGroupOffsets of group `orders` refused: NON_EMPTY_GROUP (68): \
             the group still has members (stop the members of the group first)"
        );
        assert!(!error.is_retriable());
    }
}
