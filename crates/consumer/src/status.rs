//! Where a share consumer stands.

use std::sync::Arc;

use sharegroup_session::{MemberState, PartitionView};
use tokio::time::Instant;

/// Where a share consumer stands; a snapshot, at most 20 ms old while things move.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShareStatus {
    /// Made by the client, 22 characters of base64.
    pub member_id: String,
    /// The member's epoch; 0 until it has joined.
    pub member_epoch: i32,
    /// Where the member stands. [`MemberState::Left`] after a close, and for now while it is
    /// [`not_polled`](Self::not_polled).
    pub state: MemberState,
    /// The member left its group because the application doesn't poll
    /// ([`max_poll_interval`](crate::ShareConsumerBuilder::max_poll_interval)); the next poll joins again.
    pub not_polled: bool,
    /// Partitions to fetch from. Empty for a second or more after a join: that isn't "nothing to do".
    pub assignment: Vec<PartitionView>,
    /// Offsets that are ours and not settled.
    pub records_held: u64,
    /// Settled offsets whose outcome isn't known yet.
    pub acknowledgements_pending: u64,
    /// When records last arrived.
    pub last_record_at: Option<Instant>,
    /// When an acknowledgement last got its outcome.
    pub last_settled_at: Option<Instant>,
    /// Subscribed topics that don't exist.
    pub missing_topics: Vec<String>,
    /// The latest trouble that is retried; `None` once it is over.
    pub problem: Option<Arc<str>>,
}

impl ShareStatus {
    pub(crate) fn joining(member_id: String) -> Self {
        Self {
            member_id,
            member_epoch: 0,
            state: MemberState::Joining,
            not_polled: false,
            assignment: Vec::new(),
            records_held: 0,
            acknowledgements_pending: 0,
            last_record_at: None,
            last_settled_at: None,
            missing_topics: Vec::new(),
            problem: None,
        }
    }
}
