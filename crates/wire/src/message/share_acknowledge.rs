//! ShareAcknowledge, key 79 (KIP-932; version 2: KIP-1222), versions 1–2.

use crate::ErrorCode;
use crate::id::{SessionEpoch, TopicId};
use crate::message::share_fetch::{AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint};
use crate::message::{message, since};

message! {
    /// Acknowledges records without fetching.
    pub struct ShareAcknowledgeRequest (key 79, api "ShareAcknowledge", versions 1..=2, flexible 0)
        -> ShareAcknowledgeResponse
    {
        /// The share group.
        pub group_id: Option<String>,
        /// The member's id.
        pub member_id: Option<String>,
        /// n continues the session, −1 closes it; 0 is an error.
        pub share_session_epoch: SessionEpoch,
        /// True where any acknowledgement of type RENEW is inside.
        pub is_renew_ack: bool = since(2),
        /// The acknowledgements.
        pub topics: Vec<AcknowledgeTopic>,
    }

    /// Partitions of one topic.
    pub struct AcknowledgeTopic {
        /// The topic.
        pub topic_id: TopicId,
        /// Its partitions.
        pub partitions: Vec<AcknowledgePartition>,
    }

    /// Acknowledgements of one partition.
    pub struct AcknowledgePartition {
        /// Partition index.
        pub partition_index: i32,
        /// Ascending.
        pub acknowledgement_batches: Vec<AcknowledgementBatch>,
    }

    /// Answer to [`ShareAcknowledgeRequest`].
    pub struct ShareAcknowledgeResponse (api "ShareAcknowledge", versions 1..=2, flexible 0) {
        /// Quota delay in milliseconds.
        pub throttle_time_ms: i32,
        /// Top-level error.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
        /// Lock duration of a renewal made now, in milliseconds.
        pub acquisition_lock_timeout_ms: i32 = since(2),
        /// One entry per topic.
        pub responses: Vec<AcknowledgedTopic>,
        /// Addresses of the leaders named in the partitions.
        pub node_endpoints: Vec<NodeEndpoint>,
    }

    /// Results of one topic.
    pub struct AcknowledgedTopic {
        /// The topic.
        pub topic_id: TopicId,
        /// Its partitions.
        pub partitions: Vec<AcknowledgedPartition>,
    }

    /// Result of one partition's acknowledgements, all or nothing.
    pub struct AcknowledgedPartition {
        /// Partition index.
        pub partition_index: i32,
        /// The result.
        pub error_code: ErrorCode,
        /// Its text.
        pub error_message: Option<String>,
        /// Valid only with NOT_LEADER_OR_FOLLOWER.
        pub current_leader: LeaderIdAndEpoch,
    }
}

impl ShareAcknowledgeResponse {
    /// The first error, of the whole request or of a partition.
    ///
    /// # Errors
    /// That error.
    pub fn ok(&self) -> Result<(), ErrorCode> {
        self.error_code.ok()?;
        let mut partitions = self.responses.iter().flat_map(|topic| &topic.partitions);
        partitions.try_for_each(|partition| partition.error_code.ok())
    }
}
