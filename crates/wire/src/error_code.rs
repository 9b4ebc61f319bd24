//! The broker's error codes.

use std::fmt;

use bytes::BytesMut;

use crate::error::DecodeError;
use crate::primitive::{Context, Reader, Wire};

macro_rules! error_codes {
    ($($code:literal, $variant:ident, $name:literal, $retriable:literal, $sentence:literal;)*) => {
        /// An error code as a broker sends it. Names, numbers and the retriable flag are those of
        /// Apache Kafka 4.4.0; a code of a newer broker is kept as [`ErrorCode::Unknown`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $(
                #[doc = concat!("`", $name, "` (", stringify!($code), "): ", $sentence, ".")]
                $variant,
            )*
            /// A code that this crate doesn't know; the number is kept.
            Unknown(i16),
        }

        impl ErrorCode {
            /// Of the number on the wire.
            #[must_use]
            pub const fn from_code(code: i16) -> Self {
                match code {
                    $($code => Self::$variant,)*
                    code => Self::Unknown(code),
                }
            }

            /// The number on the wire.
            #[must_use]
            pub const fn code(self) -> i16 {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Unknown(code) => code,
                }
            }

            /// Kafka's name, `UNKNOWN` for a code that this crate doesn't know.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Unknown(_) => "UNKNOWN",
                }
            }

            /// What it means, in one sentence without a full stop.
            #[must_use]
            pub const fn sentence(self) -> &'static str {
                match self {
                    $(Self::$variant => $sentence,)*
                    Self::Unknown(_) => "the broker sent an error that this version does not know",
                }
            }

            /// Whether Kafka's own clients retry it.
            #[must_use]
            pub const fn is_retriable(self) -> bool {
                match self {
                    $(Self::$variant => $retriable,)*
                    Self::Unknown(_) => false,
                }
            }
        }
    };
}

error_codes! {
    -1, UnknownServerError, "UNKNOWN_SERVER_ERROR", false, "the server experienced an unexpected error";
    0, None, "NONE", false, "no error";
    1, OffsetOutOfRange, "OFFSET_OUT_OF_RANGE", false, "the offset is outside the range that the broker keeps";
    2, CorruptMessage, "CORRUPT_MESSAGE", true, "a record batch failed its checksum or is otherwise corrupt";
    3, UnknownTopicOrPartition, "UNKNOWN_TOPIC_OR_PARTITION", true, "this broker does not host the topic or partition";
    4, InvalidFetchSize, "INVALID_FETCH_SIZE", false, "the requested fetch size is invalid";
    5, LeaderNotAvailable, "LEADER_NOT_AVAILABLE", true, "the partition has no leader at the moment";
    6, NotLeaderOrFollower, "NOT_LEADER_OR_FOLLOWER", true, "the broker does not lead the partition (any more)";
    7, RequestTimedOut, "REQUEST_TIMED_OUT", true, "the broker did not finish in time";
    8, BrokerNotAvailable, "BROKER_NOT_AVAILABLE", false, "the broker is not available";
    9, ReplicaNotAvailable, "REPLICA_NOT_AVAILABLE", true, "the replica is not available";
    10, MessageTooLarge, "MESSAGE_TOO_LARGE", false, "a record batch is larger than the topic allows";
    11, StaleControllerEpoch, "STALE_CONTROLLER_EPOCH", false, "the controller's epoch is old";
    12, OffsetMetadataTooLarge, "OFFSET_METADATA_TOO_LARGE", false, "the metadata of an offset commit is too large";
    13, NetworkException, "NETWORK_EXCEPTION", true, "the connection was lost before an answer came";
    14, CoordinatorLoadInProgress, "COORDINATOR_LOAD_IN_PROGRESS", true, "the coordinator is still loading its state";
    15, CoordinatorNotAvailable, "COORDINATOR_NOT_AVAILABLE", true, "the coordinator is not available";
    16, NotCoordinator, "NOT_COORDINATOR", true, "the broker is not the coordinator of this group";
    17, InvalidTopicException, "INVALID_TOPIC_EXCEPTION", false, "the topic's name is not legal";
    18, RecordListTooLarge, "RECORD_LIST_TOO_LARGE", false, "a request holds a larger batch than the broker's segments";
    19, NotEnoughReplicas, "NOT_ENOUGH_REPLICAS", true, "fewer replicas are in sync than the topic demands";
    20, NotEnoughReplicasAfterAppend, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", true, "the batch was written, but to fewer replicas than the topic demands";
    21, InvalidRequiredAcks, "INVALID_REQUIRED_ACKS", false, "the acks value of the produce request is not legal";
    22, IllegalGeneration, "ILLEGAL_GENERATION", false, "the generation of the consumer group is not the current one";
    23, InconsistentGroupProtocol, "INCONSISTENT_GROUP_PROTOCOL", false, "the group uses another protocol";
    24, InvalidGroupId, "INVALID_GROUP_ID", false, "the group id is not legal";
    25, UnknownMemberId, "UNKNOWN_MEMBER_ID", false, "the coordinator does not know this member";
    26, InvalidSessionTimeout, "INVALID_SESSION_TIMEOUT", false, "the session timeout is outside the broker's bounds";
    27, RebalanceInProgress, "REBALANCE_IN_PROGRESS", false, "the group is rebalancing";
    28, InvalidCommitOffsetSize, "INVALID_COMMIT_OFFSET_SIZE", false, "the committed offsets are too large";
    29, TopicAuthorizationFailed, "TOPIC_AUTHORIZATION_FAILED", false, "not authorized for the topic";
    30, GroupAuthorizationFailed, "GROUP_AUTHORIZATION_FAILED", false, "not authorized for the group";
    31, ClusterAuthorizationFailed, "CLUSTER_AUTHORIZATION_FAILED", false, "not authorized for the cluster";
    32, InvalidTimestamp, "INVALID_TIMESTAMP", false, "the timestamp of a record is out of the allowed range";
    33, UnsupportedSaslMechanism, "UNSUPPORTED_SASL_MECHANISM", false, "the broker does not offer this SASL mechanism";
    34, IllegalSaslState, "ILLEGAL_SASL_STATE", false, "the request is not legal in this state of the SASL exchange";
    35, UnsupportedVersion, "UNSUPPORTED_VERSION", false, "the broker does not support this version of the API, or the feature is off";
    36, TopicAlreadyExists, "TOPIC_ALREADY_EXISTS", false, "the topic exists already";
    37, InvalidPartitions, "INVALID_PARTITIONS", false, "the number of partitions is not legal";
    38, InvalidReplicationFactor, "INVALID_REPLICATION_FACTOR", false, "the replication factor is not legal or larger than the number of brokers";
    39, InvalidReplicaAssignment, "INVALID_REPLICA_ASSIGNMENT", false, "the replica assignment is not legal";
    40, InvalidConfig, "INVALID_CONFIG", false, "a configuration value is not legal";
    41, NotController, "NOT_CONTROLLER", true, "the broker is not the controller";
    42, InvalidRequest, "INVALID_REQUEST", false, "the request is malformed or breaks a rule of its API";
    43, UnsupportedForMessageFormat, "UNSUPPORTED_FOR_MESSAGE_FORMAT", false, "the format of the log does not support this";
    44, PolicyViolation, "POLICY_VIOLATION", false, "a policy of the cluster refuses the request";
    45, OutOfOrderSequenceNumber, "OUT_OF_ORDER_SEQUENCE_NUMBER", false, "the batch's sequence number is not the expected one";
    46, DuplicateSequenceNumber, "DUPLICATE_SEQUENCE_NUMBER", false, "the batch was written already";
    47, InvalidProducerEpoch, "INVALID_PRODUCER_EPOCH", false, "the producer's epoch is not the current one";
    48, InvalidTxnState, "INVALID_TXN_STATE", false, "the request is not legal in this state of the transaction";
    49, InvalidProducerIdMapping, "INVALID_PRODUCER_ID_MAPPING", false, "the producer id does not belong to the transactional id";
    50, InvalidTransactionTimeout, "INVALID_TRANSACTION_TIMEOUT", false, "the transaction timeout is larger than the broker allows";
    51, ConcurrentTransactions, "CONCURRENT_TRANSACTIONS", true, "the transactional id is busy with another operation";
    52, TransactionCoordinatorFenced, "TRANSACTION_COORDINATOR_FENCED", false, "the transaction coordinator is not the current one";
    53, TransactionalIdAuthorizationFailed, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", false, "not authorized for the transactional id";
    54, SecurityDisabled, "SECURITY_DISABLED", false, "security features are off";
    55, OperationNotAttempted, "OPERATION_NOT_ATTEMPTED", false, "the operation was not tried";
    56, KafkaStorageError, "KAFKA_STORAGE_ERROR", true, "the broker's disk failed";
    57, LogDirNotFound, "LOG_DIR_NOT_FOUND", false, "the log directory does not exist";
    58, SaslAuthenticationFailed, "SASL_AUTHENTICATION_FAILED", false, "the credentials were refused";
    59, UnknownProducerId, "UNKNOWN_PRODUCER_ID", false, "the broker does not know the producer id (any more)";
    60, ReassignmentInProgress, "REASSIGNMENT_IN_PROGRESS", false, "a reassignment of partitions is running";
    61, DelegationTokenAuthDisabled, "DELEGATION_TOKEN_AUTH_DISABLED", false, "delegation tokens are off";
    62, DelegationTokenNotFound, "DELEGATION_TOKEN_NOT_FOUND", false, "the delegation token does not exist";
    63, DelegationTokenOwnerMismatch, "DELEGATION_TOKEN_OWNER_MISMATCH", false, "the principal neither owns nor may renew the delegation token";
    64, DelegationTokenRequestNotAllowed, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", false, "delegation tokens can't be asked for over such a connection";
    65, DelegationTokenAuthorizationFailed, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", false, "not authorized for the delegation token";
    66, DelegationTokenExpired, "DELEGATION_TOKEN_EXPIRED", false, "the delegation token has expired";
    67, InvalidPrincipalType, "INVALID_PRINCIPAL_TYPE", false, "this kind of principal is not supported";
    68, NonEmptyGroup, "NON_EMPTY_GROUP", false, "the group still has members";
    69, GroupIdNotFound, "GROUP_ID_NOT_FOUND", false, "there is no such group of this type";
    70, FetchSessionIdNotFound, "FETCH_SESSION_ID_NOT_FOUND", true, "the fetch session is unknown";
    71, InvalidFetchSessionEpoch, "INVALID_FETCH_SESSION_EPOCH", true, "the fetch session's epoch is not the expected one";
    72, ListenerNotFound, "LISTENER_NOT_FOUND", true, "the leader has no listener like the one asked";
    73, TopicDeletionDisabled, "TOPIC_DELETION_DISABLED", false, "topics can't be deleted in this cluster";
    74, FencedLeaderEpoch, "FENCED_LEADER_EPOCH", true, "the leader epoch is older than the broker's";
    75, UnknownLeaderEpoch, "UNKNOWN_LEADER_EPOCH", true, "the leader epoch is newer than the broker's";
    76, UnsupportedCompressionType, "UNSUPPORTED_COMPRESSION_TYPE", false, "the broker does not support this compression";
    77, StaleBrokerEpoch, "STALE_BROKER_EPOCH", false, "the broker's epoch is stale";
    78, OffsetNotAvailable, "OFFSET_NOT_AVAILABLE", true, "the leader does not know its high watermark yet";
    79, MemberIdRequired, "MEMBER_ID_REQUIRED", false, "the member must come back with the id it was given";
    80, PreferredLeaderNotAvailable, "PREFERRED_LEADER_NOT_AVAILABLE", true, "the preferred leader is not available";
    81, GroupMaxSizeReached, "GROUP_MAX_SIZE_REACHED", false, "the group has as many members as it may have";
    82, FencedInstanceId, "FENCED_INSTANCE_ID", false, "another member uses the same instance id";
    83, EligibleLeadersNotAvailable, "ELIGIBLE_LEADERS_NOT_AVAILABLE", true, "no replica may become leader";
    84, ElectionNotNeeded, "ELECTION_NOT_NEEDED", true, "the partition has the wanted leader already";
    85, NoReassignmentInProgress, "NO_REASSIGNMENT_IN_PROGRESS", false, "no reassignment is running";
    86, GroupSubscribedToTopic, "GROUP_SUBSCRIBED_TO_TOPIC", false, "the group is subscribed to the topic";
    87, InvalidRecord, "INVALID_RECORD", false, "the broker refused a record";
    88, UnstableOffsetCommit, "UNSTABLE_OFFSET_COMMIT", true, "some offsets are part of an open transaction";
    89, ThrottlingQuotaExceeded, "THROTTLING_QUOTA_EXCEEDED", true, "a quota is exceeded";
    90, ProducerFenced, "PRODUCER_FENCED", false, "a newer producer took over";
    91, ResourceNotFound, "RESOURCE_NOT_FOUND", false, "the resource does not exist";
    92, DuplicateResource, "DUPLICATE_RESOURCE", false, "the resource exists already";
    93, UnacceptableCredential, "UNACCEPTABLE_CREDENTIAL", false, "the credential is not acceptable";
    94, InconsistentVoterSet, "INCONSISTENT_VOTER_SET", false, "the voter sets differ";
    95, InvalidUpdateVersion, "INVALID_UPDATE_VERSION", false, "the update version is not legal";
    96, FeatureUpdateFailed, "FEATURE_UPDATE_FAILED", false, "a feature could not be updated";
    97, PrincipalDeserializationFailure, "PRINCIPAL_DESERIALIZATION_FAILURE", false, "a forwarded principal could not be read";
    98, SnapshotNotFound, "SNAPSHOT_NOT_FOUND", false, "the snapshot does not exist";
    99, PositionOutOfRange, "POSITION_OUT_OF_RANGE", false, "the position is out of range";
    100, UnknownTopicId, "UNKNOWN_TOPIC_ID", true, "the broker does not host a topic of this id";
    101, DuplicateBrokerRegistration, "DUPLICATE_BROKER_REGISTRATION", false, "the broker id is registered already";
    102, BrokerIdNotRegistered, "BROKER_ID_NOT_REGISTERED", false, "the broker id is not registered";
    103, InconsistentTopicId, "INCONSISTENT_TOPIC_ID", true, "the topic's id in the log differs from that of the request";
    104, InconsistentClusterId, "INCONSISTENT_CLUSTER_ID", false, "the cluster id differs";
    105, TransactionalIdNotFound, "TRANSACTIONAL_ID_NOT_FOUND", false, "the transactional id does not exist";
    106, FetchSessionTopicIdError, "FETCH_SESSION_TOPIC_ID_ERROR", true, "the fetch session uses topic ids in another way";
    107, IneligibleReplica, "INELIGIBLE_REPLICA", false, "the replica may not join the in-sync set";
    108, NewLeaderElected, "NEW_LEADER_ELECTED", false, "the request made a new leader";
    109, OffsetMovedToTieredStorage, "OFFSET_MOVED_TO_TIERED_STORAGE", false, "the offset is in tiered storage";
    110, FencedMemberEpoch, "FENCED_MEMBER_EPOCH", false, "the member's epoch is not the one the coordinator knows";
    111, UnreleasedInstanceId, "UNRELEASED_INSTANCE_ID", false, "the instance id is still in use";
    112, UnsupportedAssignor, "UNSUPPORTED_ASSIGNOR", false, "the coordinator does not know the assignor";
    113, StaleMemberEpoch, "STALE_MEMBER_EPOCH", false, "the member's epoch is stale; heartbeat and retry";
    114, MismatchedEndpointType, "MISMATCHED_ENDPOINT_TYPE", false, "the request was sent to the wrong kind of endpoint";
    115, UnsupportedEndpointType, "UNSUPPORTED_ENDPOINT_TYPE", false, "the kind of endpoint is not supported";
    116, UnknownControllerId, "UNKNOWN_CONTROLLER_ID", false, "the controller id is unknown";
    117, UnknownSubscriptionId, "UNKNOWN_SUBSCRIPTION_ID", false, "the telemetry subscription is unknown";
    118, TelemetryTooLarge, "TELEMETRY_TOO_LARGE", false, "the pushed telemetry is too large";
    119, InvalidRegistration, "INVALID_REGISTRATION", false, "the broker registration is not legal";
    120, TransactionAbortable, "TRANSACTION_ABORTABLE", false, "the transaction can only be aborted";
    121, InvalidRecordState, "INVALID_RECORD_STATE", false, "a record is not acquired by this member (any more), or renewal is off";
    122, ShareSessionNotFound, "SHARE_SESSION_NOT_FOUND", true, "the share session does not exist";
    123, InvalidShareSessionEpoch, "INVALID_SHARE_SESSION_EPOCH", true, "the share session's epoch is not the expected one";
    124, FencedStateEpoch, "FENCED_STATE_EPOCH", false, "the share state's epoch is old";
    125, InvalidVoterKey, "INVALID_VOTER_KEY", false, "the voter's key does not match";
    126, DuplicateVoter, "DUPLICATE_VOTER", false, "the voter exists already";
    127, VoterNotFound, "VOTER_NOT_FOUND", false, "the voter does not exist";
    128, InvalidRegularExpression, "INVALID_REGULAR_EXPRESSION", false, "the regular expression is not legal";
    129, RebootstrapRequired, "REBOOTSTRAP_REQUIRED", false, "the client must start again from its bootstrap servers";
    130, StreamsInvalidTopology, "STREAMS_INVALID_TOPOLOGY", false, "the topology is not legal";
    131, StreamsInvalidTopologyEpoch, "STREAMS_INVALID_TOPOLOGY_EPOCH", false, "the topology's epoch is not legal";
    132, StreamsTopologyFenced, "STREAMS_TOPOLOGY_FENCED", false, "the topology's epoch is old";
    133, ShareSessionLimitReached, "SHARE_SESSION_LIMIT_REACHED", true, "the broker has as many share sessions as it may have";
    134, GroupDeletionFailed, "GROUP_DELETION_FAILED", false, "the group could not be deleted";
    135, StreamsTopologyDescriptionUpdateFailed, "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED", false, "the topology's description could not be updated";
    136, ControllerIdNotRegistered, "CONTROLLER_ID_NOT_REGISTERED", false, "the controller id is not registered";
}

impl ErrorCode {
    /// Whether this is [`ErrorCode::None`].
    #[must_use]
    pub const fn is_none(self) -> bool {
        matches!(self, Self::None)
    }

    /// `Ok` for [`ErrorCode::None`], else itself as the error.
    ///
    /// # Errors
    /// The code, unless it is [`ErrorCode::None`].
    pub const fn ok(self) -> Result<(), Self> {
        match self {
            Self::None => Ok(()),
            code => Err(code),
        }
    }
}

#[expect(
    clippy::derivable_impls,
    reason = "the variants come from a table that has no place for an attribute"
)]
impl Default for ErrorCode {
    fn default() -> Self {
        Self::None
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.code())
    }
}

impl std::error::Error for ErrorCode {}

impl Wire for ErrorCode {
    fn bytes_min(_: Context) -> usize {
        2
    }

    fn write(&self, context: Context, out: &mut BytesMut) {
        self.code().write(context, out);
    }

    fn read(context: Context, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        i16::read(context, reader).map(Self::from_code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_keeps_its_number() {
        for code in i16::MIN..=i16::MAX {
            assert_eq!(ErrorCode::from_code(code).code(), code);
        }
    }

    #[test]
    fn b_021_unknown_code_keeps_its_number_in_print() {
        assert_eq!(ErrorCode::from_code(9999).to_string(), "UNKNOWN (9999)");
    }
}
