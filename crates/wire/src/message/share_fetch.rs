//! ShareFetch, key 78 (KIP-932; version 2: KIP-1206, KIP-1222), versions 1–2.

use bytes::Bytes;

use crate::ErrorCode;
use crate::id::{BrokerId, SessionEpoch, TopicId};
use crate::message::share_acknowledge::{AcknowledgePartition, AcknowledgeTopic};
use crate::message::{message, since};

/// Acquire whole batches; `max_records` is soft (KIP-1206).
pub const ACQUIRE_BATCH_OPTIMIZED: i8 = 0;
/// Never acquire more than `max_records` offsets (KIP-1206, version 2).
pub const ACQUIRE_RECORD_LIMIT: i8 = 1;

message! {
    /// Acquires records from a leader; carries acknowledgements of earlier ones.
    pub struct ShareFetchRequest (key 78, api "ShareFetch", versions 1..=2, flexible 0) -> ShareFetchResponse {
        /// The share group; null is INVALID_REQUEST.
        pub group_id: Option<String>,
        /// The member's id, the same as in the heartbeat.
        pub member_id: Option<String>,
        /// 0 opens a share session, n continues it, −1 closes it.
        pub share_session_epoch: SessionEpoch,
        /// Longest wait for data, in milliseconds.
        pub max_wait_ms: i32,
        /// Wait for this many bytes.
        pub min_bytes: i32,
        /// Most bytes, shared evenly among the partitions.
        pub max_bytes: i32 => 0x7fff_ffff,
        /// Most records for the whole request; 0 = fetch nothing; soft in batch-optimized mode.
        pub max_records: i32,
        /// Target size when the broker splits acquired ranges.
        pub batch_size: i32,
        /// [`ACQUIRE_BATCH_OPTIMIZED`] or [`ACQUIRE_RECORD_LIMIT`].
        pub share_acquire_mode: i8 = since(2),
        /// Must be true where any acknowledgement of type RENEW is inside.
        pub is_renew_ack: bool = since(2),
        /// Partitions to add to the session, and acknowledgements.
        pub topics: Vec<FetchTopic>,
        /// Partitions that leave the session.
        pub forgotten_topics_data: Vec<ForgottenTopic>,
    }

    /// Partitions of one topic; a topic stands once in a request.
    pub struct FetchTopic {
        /// The topic.
        pub topic_id: TopicId,
        /// Its partitions.
        pub partitions: Vec<FetchPartition>,
    }

    /// One partition; it stands once in its topic.
    pub struct FetchPartition {
        /// Partition index.
        pub partition_index: i32,
        /// Acknowledgements, ascending; empty = none.
        pub acknowledgement_batches: Vec<AcknowledgementBatch>,
    }

    /// Acknowledgement of a range of offsets.
    pub struct AcknowledgementBatch {
        /// First offset, inclusive.
        pub first_offset: i64,
        /// Last offset, inclusive.
        pub last_offset: i64,
        /// One type for the whole range, or exactly one per offset: 0 GAP, 1 ACCEPT, 2 RELEASE,
        /// 3 REJECT, 4 RENEW (version 2).
        pub acknowledge_types: Vec<i8>,
    }

    /// Partitions that leave the session.
    pub struct ForgottenTopic {
        /// The topic.
        pub topic_id: TopicId,
        /// Partition indexes.
        pub partitions: Vec<i32>,
    }

    /// Answer to [`ShareFetchRequest`].
    pub struct ShareFetchResponse (api "ShareFetch", versions 1..=2, flexible 0) {
        /// Quota delay in milliseconds; the broker has already muted the connection.
        pub throttle_time_ms: i32,
        /// Top-level error; nothing else is valid then.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
        /// The group's lock duration now, in milliseconds; ≤ 0 = unknown.
        pub acquisition_lock_timeout_ms: i32,
        /// All partitions at epoch 0, later only those with data, errors or acknowledgements.
        pub responses: Vec<FetchedTopic>,
        /// Addresses of the leaders named in the partitions.
        pub node_endpoints: Vec<NodeEndpoint>,
    }

    /// Partitions of one topic.
    pub struct FetchedTopic {
        /// The topic.
        pub topic_id: TopicId,
        /// Its partitions.
        pub partitions: Vec<FetchedPartition>,
    }

    /// What one partition gave.
    pub struct FetchedPartition {
        /// Partition index.
        pub partition_index: i32,
        /// Error of the fetch.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
        /// Error of the acknowledgements, independent of the fetch's.
        pub acknowledge_error_code: ErrorCode,
        /// Its text.
        pub acknowledge_error_message: Option<String>,
        /// Valid only with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH.
        pub current_leader: LeaderIdAndEpoch,
        /// Whole batches, possibly with others' records; the last may be cut. A slice of the frame.
        pub records: Bytes,
        /// The only offsets that are the member's.
        pub acquired_records: Vec<AcquiredRecords>,
    }

    /// A partition's leader, as far as the broker knows. 0/0 when unset.
    pub struct LeaderIdAndEpoch {
        /// Leader, −1 unknown.
        pub leader_id: BrokerId,
        /// Its epoch.
        pub leader_epoch: i32,
    }

    /// A range of offsets acquired by the member.
    pub struct AcquiredRecords {
        /// First offset, inclusive.
        pub first_offset: i64,
        /// Last offset, inclusive.
        pub last_offset: i64,
        /// 1 = first delivery.
        pub delivery_count: i16,
    }

    /// A broker's address.
    pub struct NodeEndpoint {
        /// The broker.
        pub node_id: BrokerId,
        /// Host name or address.
        pub host: String,
        /// TCP port.
        pub port: i32,
        /// Rack.
        pub rack: Option<String>,
    }
}

impl FetchTopic {
    /// Partitions to add to the session, without acknowledgements.
    #[must_use]
    pub fn of(topic_id: TopicId, partitions: impl IntoIterator<Item = i32>) -> Self {
        let partitions = partitions
            .into_iter()
            .map(|partition_index| FetchPartition {
                partition_index,
                acknowledgement_batches: Vec::new(),
            });
        Self {
            topic_id,
            partitions: partitions.collect(),
        }
    }
}

impl FetchedPartition {
    /// Acknowledges everything acquired with one type, see
    /// [`AcknowledgementBatch::acknowledge_types`]. Empty ranges are left out (a broker sends
    /// them where `batch_size` is 0): they would spoil the whole partition's acknowledgement.
    #[must_use]
    pub fn acknowledge(&self, topic_id: TopicId, acknowledge_type: i8) -> AcknowledgeTopic {
        let acquired = self.acquired_records.iter();
        let acquired = acquired.filter(|range| range.first_offset <= range.last_offset);
        let batches = acquired.map(|range| AcknowledgementBatch {
            first_offset: range.first_offset,
            last_offset: range.last_offset,
            acknowledge_types: vec![acknowledge_type],
        });
        AcknowledgeTopic {
            topic_id,
            partitions: vec![AcknowledgePartition {
                partition_index: self.partition_index,
                acknowledgement_batches: batches.collect(),
            }],
        }
    }
}
