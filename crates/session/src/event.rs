//! What goes in and out of the core.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sharegroup_wire::duration::show;
use sharegroup_wire::message::share_acknowledge::ShareAcknowledgeRequest;
use sharegroup_wire::message::share_fetch::ShareFetchRequest;
use sharegroup_wire::message::share_group_heartbeat::ShareGroupHeartbeatRequest;
use sharegroup_wire::{BrokerId, ErrorCode, MemberEpoch};
use thiserror::Error;

use crate::acquired::{Acknowledgement, AcquisitionId, TopicPartition};
use crate::topology::MetadataTopics;

/// Names one connection that the core asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Names one [`SessionCore::commit`](crate::SessionCore::commit).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommitId(pub u64);

/// Something for the driver to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Ask any broker. Answer: [`handle_metadata`](crate::SessionCore::handle_metadata).
    Metadata(MetadataTopics),
    /// Ask any broker for the group's coordinator. Answer:
    /// [`handle_coordinator`](crate::SessionCore::handle_coordinator).
    FindCoordinator,
    /// Send to the coordinator, on a connection that no fetch uses. Answer:
    /// [`handle_heartbeat`](crate::SessionCore::handle_heartbeat).
    Heartbeat {
        /// The coordinator.
        coordinator: BrokerId,
        /// The body.
        request: ShareGroupHeartbeatRequest,
    },
    /// Open a connection for a share session alone. Answer:
    /// [`handle_connected`](crate::SessionCore::handle_connected).
    Connect {
        /// The leader.
        broker: BrokerId,
        /// The connection's name from now on.
        connection: ConnectionId,
    },
    /// Drop that connection; nothing that it still answers is wanted.
    Disconnect {
        /// The leader.
        broker: BrokerId,
        /// The connection.
        connection: ConnectionId,
    },
    /// Send on that connection. Answer:
    /// [`handle_share_fetch`](crate::SessionCore::handle_share_fetch).
    ShareFetch {
        /// The connection.
        connection: ConnectionId,
        /// The body.
        request: ShareFetchRequest,
        /// Version to send.
        version: i16,
        /// Give up after this time.
        timeout: Duration,
    },
    /// Send on that connection. Answer:
    /// [`handle_share_acknowledge`](crate::SessionCore::handle_share_acknowledge).
    ShareAcknowledge {
        /// The connection.
        connection: ConnectionId,
        /// The body.
        request: ShareAcknowledgeRequest,
        /// Version to send.
        version: i16,
        /// Give up after this time.
        timeout: Duration,
    },
}

/// Versions to use with one broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerVersions {
    /// Of ShareFetch.
    pub share_fetch: i16,
    /// Of ShareAcknowledge.
    pub share_acknowledge: i16,
}

/// A request that got no answer from the broker.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{detail}")]
pub struct Failure {
    /// Text for people: what, and where.
    pub detail: String,
    /// The broker speaks no common version: share groups are unknown to it.
    pub unsupported: bool,
}

/// How records are acquired (KIP-1206).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AcquireMode {
    /// Whole batches, but by record where the credit is smaller than a usual batch.
    #[default]
    Auto,
    /// Whole producer batches; the record limit is soft.
    BatchOptimized,
    /// Never more records than asked for; needs brokers of 4.2 or later.
    RecordLimit,
}

/// Offsets acquired with one delivery count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcquiredRange {
    /// First offset, inclusive.
    pub first_offset: i64,
    /// Last offset, inclusive.
    pub last_offset: i64,
    /// 1 = first delivery.
    pub delivery_count: i16,
}

/// Records that are ours until they are settled or their lock ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Acquired {
    /// Name of the acquisition.
    pub id: AcquisitionId,
    /// The partition.
    pub partition: TopicPartition,
    /// The topic's name.
    pub topic: Arc<str>,
    /// Who granted it.
    pub broker: BrokerId,
    /// Record batches as the broker sent them; may hold records that aren't ours.
    pub records: Bytes,
    /// What is ours, ascending.
    pub ranges: Vec<AcquiredRange>,
    /// When the lock ends, at the latest (counted from the request's sending).
    pub deadline: Instant,
    /// Whether the lock can be renewed, as far as is known.
    pub renewable: bool,
}

/// Why an acknowledgement did not count, or may not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum AckFailure {
    /// The broker refused it.
    #[error("broker answered {0}")]
    Broker(ErrorCode),
    /// The share session ended before it was sent: it was never sent.
    #[error("share session ended before the acknowledgement was sent")]
    SessionEnded,
    /// It was sent and no answer came: it may or may not have counted.
    #[error("connection was lost before the broker answered; the acknowledgement may have counted")]
    Unknown,
    /// It was sent in time and the broker said yes, but only after the lock had ended. It says so also
    /// where somebody else has settled the record meanwhile: it may or may not have counted.
    #[error(
        "broker answered after the acquisition lock had ended; the acknowledgement may have counted"
    )]
    AnsweredLate,
    /// The lock had ended before it could be sent: it was never sent.
    #[error("acquisition lock had ended")]
    LockExpired,
    /// The record was acquired again; the older handle is void.
    #[error("record was acquired again")]
    Superseded,
}

/// What became of an acknowledged range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckOutcome {
    /// The acquisition.
    pub acquisition: AcquisitionId,
    /// The partition.
    pub partition: TopicPartition,
    /// First offset, inclusive.
    pub first_offset: i64,
    /// Last offset, inclusive.
    pub last_offset: i64,
    /// What was asked for.
    pub how: Acknowledgement,
    /// The commit it belongs to.
    pub commit: CommitId,
    /// The broker's answer.
    pub result: Result<(), AckFailure>,
}

/// Why records are no longer ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockLoss {
    /// The acquisition.
    pub acquisition: AcquisitionId,
    /// The partition.
    pub partition: TopicPartition,
    /// First offset, inclusive.
    pub first_offset: i64,
    /// Last offset, inclusive.
    pub last_offset: i64,
    /// Deliveries so far: at the group's limit the broker archives the records.
    pub delivery_count: i16,
    /// Why.
    pub why: AckFailure,
}

/// Why records were released without the application's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum ReleaseReason {
    /// The member closes, or leaves an application that doesn't poll; no application saw them.
    #[error("the consumer left its group before the application saw them")]
    Unseen,
    /// Their lock can't be renewed, and what is left of it is too short for the application to finish
    /// them: the next delivery has a whole lock. Only ever of a first delivery.
    #[error("too little of their lock was left, and it can't be renewed")]
    TooLate,
    /// The application dropped them unsettled.
    #[error("they were dropped unsettled")]
    Dropped,
    /// The member closes while the application has them.
    #[error("the consumer closed before they were settled")]
    Closing,
}

/// Records that are released without the application's word: available again at once, or archived if this
/// was their last allowed delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The acquisition.
    pub acquisition: AcquisitionId,
    /// The partition.
    pub partition: TopicPartition,
    /// First offset, inclusive.
    pub first_offset: i64,
    /// Last offset, inclusive.
    pub last_offset: i64,
    /// Deliveries so far: at the group's limit the broker archives the records.
    pub delivery_count: i16,
    /// Why.
    pub why: ReleaseReason,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The coordinator took us in, for the first time or again.
    Joined {
        /// Our epoch.
        member_epoch: MemberEpoch,
    },
    /// The partitions to fetch from changed.
    AssignmentChanged,
    /// Records arrived.
    Acquired(Acquired),
    /// The broker answered an acknowledgement, or it never will.
    Acknowledged(AckOutcome),
    /// Held records are no longer ours.
    LockLost(LockLoss),
    /// Held records are released without the application's word.
    Released(Release),
    /// The owner dropped records on their last allowed delivery: released, the broker would archive them.
    /// They stay held until whoever gets this settles them.
    LastDeliveryDropped(Release),
    /// A lock ran out before its records were settled. Nothing is acquired until
    /// [`application_alive`](crate::SessionCore::application_alive).
    Stalled,
    /// Locks of what is still held end later now.
    LockRenewed {
        /// The acquisition.
        acquisition: AcquisitionId,
        /// The new deadline.
        deadline: Instant,
        /// Offsets renewed.
        offsets: u64,
    },
    /// The lock of what is still held of an acquisition is not renewed any more, and ends at the last
    /// deadline told: it was held for the longest time allowed, or the broker refused and it can't be
    /// told why.
    LockNotRenewed {
        /// The acquisition.
        acquisition: AcquisitionId,
    },
    /// Renewal became impossible (refused by the group), or works again.
    RenewableChanged {
        /// Whether locks can be renewed.
        renewable: bool,
    },
    /// Every acknowledgement made before that commit has its outcome.
    Committed(CommitId),
    /// Something an operator may want to know; work goes on.
    Warning(Warning),
    /// The member can't go on.
    Fatal(FatalError),
    /// Acknowledgements flushed, sessions closed, group left.
    Closed,
}

/// A trouble that is retried.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Warning {
    /// A subscribed topic doesn't exist.
    #[error("topic {topic} does not exist; waiting for it")]
    TopicMissing {
        /// The topic.
        topic: String,
    },
    /// A request failed and is retried.
    #[error("{what}: {detail}; retrying")]
    Retrying {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        detail: String,
    },
    /// A share session ended; what was held is no longer ours.
    #[error("share session on broker {broker} ended: {detail}")]
    SessionLost {
        /// The leader.
        broker: BrokerId,
        /// Why.
        detail: String,
    },
    /// A partition answered an error and is fetched again later.
    #[error("partition {partition} of topic {topic} answered {error}; retrying")]
    Partition {
        /// Topic name, or id where the name is unknown.
        topic: String,
        /// Partition index.
        partition: i32,
        /// The error.
        error: ErrorCode,
    },
    /// The group refuses renewals, or the broker doesn't know them.
    #[error("acquisition locks can't be renewed: {detail}")]
    NotRenewable {
        /// Why.
        detail: String,
    },
    /// A lock that can't be renewed ended before its records were settled: they come again, until their deliveries
    /// are used up.
    #[error(
        "a lock of {} ended before its records were settled, and it can't be renewed: they are delivered again until their deliveries are used up; set a longer share.record.lock.duration.ms on the group, or share.renew.acknowledge.enable=true",
        show(*.lock)
    )]
    LockTooShort {
        /// The group's lock duration.
        lock: Duration,
    },
    /// The member was out of the group and joins again.
    #[error("member is joining again: {0}")]
    Rejoining(ErrorCode),
    /// Records were held for the longest time allowed and are not renewed any more.
    #[error("records of acquisition {} reached the longest hold; their locks are not renewed any more", acquisition.0)]
    HoldMax {
        /// The acquisition.
        acquisition: AcquisitionId,
    },
    /// The application didn't poll in time (`max.poll.interval.ms`).
    #[error(
        "the application has not polled for {} (max.poll.interval.ms): the member leaves its group, what it held goes to others; it joins again at the next poll",
        show(*.limit)
    )]
    NotPolled {
        /// The longest time allowed.
        limit: Duration,
    },
    /// A close was over before the broker had taken the member out of its group.
    #[error("the group was not left in time; it misses this member when its session ends")]
    NotLeft,
}

impl Warning {
    /// What is wrong, without what is done about it.
    #[must_use]
    pub fn cause(&self) -> String {
        match self {
            Self::Retrying { what, detail } => format!("{what}: {detail}"),
            Self::Partition {
                topic,
                partition,
                error,
            } => format!("partition {partition} of topic {topic} answered {error}"),
            other => other.to_string(),
        }
    }
}

/// Why a member can't go on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FatalError {
    /// Share groups are off or unknown.
    #[error(
        "share groups are off on this cluster (feature share.version is 0 or the broker is older than 4.1); \
         turn them on with: kafka-features.sh --bootstrap-server {bootstrap_servers} upgrade --feature share.version=1"
    )]
    ShareGroupsOff {
        /// The cluster, as the client was told of it.
        bootstrap_servers: String,
    },
    /// The id belongs to a group of another type.
    #[error(
        "group id {group_id} belongs to a group of another type (broker answered GROUP_ID_NOT_FOUND to a join); \
         choose another group id, or delete the old group"
    )]
    GroupIdTaken {
        /// The id.
        group_id: String,
    },
    /// A request that we made is not legal.
    #[error("{what} was refused: {error} {detail}")]
    Refused {
        /// What was asked.
        what: &'static str,
        /// The error.
        error: ErrorCode,
        /// The broker's text.
        detail: String,
    },
}

/// Where a member stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    /// Not yet taken in.
    Joining,
    /// In the group.
    Stable,
    /// Leaving.
    Leaving,
    /// Left, or gave up.
    Left,
}

/// One assigned partition, for status displays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionView {
    /// The partition.
    pub partition: TopicPartition,
    /// The topic's name, once known.
    pub topic: Option<Arc<str>>,
    /// Its leader, once known.
    pub leader: Option<BrokerId>,
    /// Whether its leader has answered a fetch since the partition joined the session.
    pub fetch_answered: bool,
    /// Whether its leader's last answered fetch acquired nothing at all.
    pub last_fetch_empty: bool,
    /// Offsets that are ours and not settled, or settled and not confirmed.
    pub records_held: u64,
}
