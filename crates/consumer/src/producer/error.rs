//! Why records were not produced.

use std::time::Duration;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::duration::show;
use sharegroup_wire::record::BuildError;
use thiserror::Error;

use super::thinned::cause;
use crate::error::{ClientError, explained};
use crate::topic_partition::TopicPartition;

/// Why a record was not accepted or not confirmed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProduceError {
    /// The record is larger than the producer may send. The caller's fault.
    #[error("record of {size_bytes} bytes for topic `{topic}` exceeds {limit} = {limit_bytes}")]
    RecordTooLarge {
        /// The topic.
        topic: String,
        /// Upper bound of the record's bytes.
        size_bytes: usize,
        /// The limit.
        limit_bytes: usize,
        /// The key that sets the limit.
        limit: &'static str,
    },
    /// The topic has no such partition. The caller's fault.
    #[error("topic `{topic}` has no partition {partition}, it has {partition_count}")]
    NoSuchPartition {
        /// The topic.
        topic: String,
        /// The partition asked for.
        partition: i32,
        /// Count of partitions.
        partition_count: usize,
    },
    /// No metadata of the topic in `max.block.ms`: it doesn't exist, or no broker answers.
    #[error("no metadata of topic `{topic}` within {}{}", show(*.after), .last.as_ref().map_or_else(String::new, |last| format!("; last: {last}")))]
    NoMetadata {
        /// The topic.
        topic: String,
        /// The time allowed.
        after: Duration,
        /// The last failure.
        last: Option<Box<ClientError>>,
    },
    /// The broker refuses the topic for good, before anything was sent.
    #[error("topic `{topic}`: {code}: {}", .code.sentence())]
    Topic {
        /// The topic.
        topic: String,
        /// The broker's code.
        code: ErrorCode,
    },
    /// No room in the buffer in `max.block.ms`: the brokers take less than is produced.
    #[error(
        "no room for {size_bytes} bytes in the buffer (buffer.memory = {buffer_bytes}) within {}",
        show(*.after)
    )]
    BufferFull {
        /// The record's bytes.
        size_bytes: usize,
        /// Size of the buffer.
        buffer_bytes: usize,
        /// The time allowed.
        after: Duration,
    },
    /// The batch could not be written as bytes.
    #[error("batch for {partition} not built: {text}")]
    Build {
        /// The partition.
        partition: TopicPartition,
        /// Why.
        text: String,
    },
    /// The broker refused the record.
    #[error("{partition}: {code}: {}", explained(.message.as_deref(), *.code))]
    Broker {
        /// The partition.
        partition: TopicPartition,
        /// The broker's code.
        code: ErrorCode,
        /// The broker's text, of this record where it has one.
        message: Option<String>,
        /// Whether a broker may have written it: an answer was lost, or leaves it open.
        may_have_been_written: bool,
    },
    /// The broker refused the batch for other records in it; this one may be sent again.
    #[error(
        "{partition}: not written, since the broker refused other records of the batch: {code}"
    )]
    OtherRecordRefused {
        /// The partition.
        partition: TopicPartition,
        /// The broker's code.
        code: ErrorCode,
    },
    /// Not confirmed in `delivery.timeout.ms`, retries included.
    #[error(
        "{partition}: not confirmed within {}, {}{}",
        show(*.after),
        if *.may_have_been_written { "may have been written" } else { "not written" },
        .last.as_ref().map_or_else(String::new, |last| format!("; last: {last}"))
    )]
    DeliveryTimeout {
        /// The partition.
        partition: TopicPartition,
        /// The time allowed.
        after: Duration,
        /// Whether a broker may have written it: an answer was lost.
        may_have_been_written: bool,
        /// The last failure.
        last: Option<Box<ClientError>>,
    },
    /// No producer id.
    #[error("no producer id: {0}")]
    NoProducerId(Box<ClientError>),
    /// The producer was closed before the record was confirmed, or its runtime ended.
    #[error("the producer was closed")]
    Closed,
}

impl ProduceError {
    pub(super) fn build(partition: TopicPartition, error: &BuildError) -> Self {
        Self::Build {
            partition,
            text: error.to_string(),
        }
    }

    /// What it comes from, whatever the partition.
    pub(super) fn cause(&self) -> String {
        match self {
            Self::DeliveryTimeout {
                last: Some(last), ..
            } => cause(last),
            Self::DeliveryTimeout { last: None, .. } => "not sent in time".to_owned(),
            Self::Build { text, .. } => text.clone(),
            Self::Broker { code, message, .. } => {
                format!("{code}: {}", explained(message.as_deref(), *code))
            }
            Self::NoProducerId(error) => cause(error),
            other => other.to_string(),
        }
    }

    /// Whether sending the record again may succeed. Where
    /// [`may_have_been_written`](Self::may_have_been_written), that may write it twice.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        match self {
            Self::RecordTooLarge { .. }
            | Self::NoSuchPartition { .. }
            | Self::Build { .. }
            | Self::Closed => false,
            Self::NoMetadata { .. }
            | Self::BufferFull { .. }
            | Self::OtherRecordRefused { .. }
            | Self::DeliveryTimeout { .. } => true,
            Self::Topic { code, .. } | Self::Broker { code, .. } => code.is_retriable(),
            Self::NoProducerId(error) => error.is_retriable(),
        }
    }

    /// Whether the record may be in the log all the same.
    #[must_use]
    pub const fn may_have_been_written(&self) -> bool {
        match self {
            Self::DeliveryTimeout {
                may_have_been_written,
                ..
            }
            | Self::Broker {
                may_have_been_written,
                ..
            } => *may_have_been_written,
            Self::Closed => true,
            _ => false,
        }
    }
}

/// Whether a batch may be in the log although a leader answered with this code. Only a code that a
/// leader gives before it appends says no; one that isn't in this list leaves it open.
pub(super) const fn may_have_been_written(code: ErrorCode) -> bool {
    use ErrorCode as E;
    !match code {
        // The request is refused as a whole.
        E::InvalidRequest
        | E::InvalidRequiredAcks
        | E::UnsupportedVersion
        | E::UnsupportedForMessageFormat => true,
        // Rights are looked at first.
        E::TopicAuthorizationFailed
        | E::ClusterAuthorizationFailed
        | E::TransactionalIdAuthorizationFailed => true,
        // No log to append to.
        E::UnknownTopicOrPartition
        | E::UnknownTopicId
        | E::InconsistentTopicId
        | E::InvalidTopicException => true,
        // The batch is checked before it is appended.
        E::CorruptMessage
        | E::MessageTooLarge
        | E::RecordListTooLarge
        | E::InvalidTimestamp
        | E::InvalidRecord
        | E::UnsupportedCompressionType => true,
        // So are the producer and its sequence number: a batch that is in the log already is answered
        // with success, or DUPLICATE_SEQUENCE_NUMBER.
        E::OutOfOrderSequenceNumber
        | E::UnknownProducerId
        | E::InvalidProducerEpoch
        | E::ProducerFenced
        | E::InvalidProducerIdMapping
        | E::InvalidTxnState
        | E::ConcurrentTransactions
        | E::TransactionAbortable => true,
        // The replicas are counted before; NOT_ENOUGH_REPLICAS_AFTER_APPEND is the same after it.
        E::NotEnoughReplicas => true,
        // Left open, among all others: KAFKA_STORAGE_ERROR (the append may have come to the disk in
        // part, or later), REQUEST_TIMED_OUT and NOT_LEADER_OR_FOLLOWER (also given to a batch that waits
        // for its replicas), NETWORK_EXCEPTION, UNKNOWN_SERVER_ERROR, codes of newer brokers.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every code that may come with a batch in the log.
    #[test]
    fn a_batch_is_not_written_only_where_the_code_says_so_for_certain() {
        for code in [
            ErrorCode::KafkaStorageError,
            ErrorCode::RequestTimedOut,
            ErrorCode::NotEnoughReplicasAfterAppend,
            ErrorCode::UnknownServerError,
            ErrorCode::NotLeaderOrFollower,
            ErrorCode::FencedLeaderEpoch,
            ErrorCode::NetworkException,
            ErrorCode::LogDirNotFound,
            ErrorCode::DuplicateSequenceNumber,
            ErrorCode::Unknown(9999),
        ] {
            assert!(may_have_been_written(code), "{code}");
        }
        let certain = (-1..=136).filter(|code| !may_have_been_written(ErrorCode::from_code(*code)));
        assert_eq!(certain.count(), 26);
    }
}
