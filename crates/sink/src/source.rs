//! Where a task's records come from: a seam, so that the task loop runs against a scripted source
//! under paused time as well as against a share group.

use std::future::Future;
use std::ops::Range;

use tokio::time::{Duration, Instant};

use crate::policy::LockLeft;
use crate::record::SinkBatch;
use crate::status::PartitionStatus;

/// A member of a share group, as the task loop sees it.
pub(crate) trait RecordSource: Send + Sync {
    /// Records of one partition, acquired together.
    type Batch: SourceBatch;

    /// The next batch; waits until there is one. `None` once the source is closed. Cancel-safe.
    fn poll(&mut self) -> impl Future<Output = Result<Option<Self::Batch>, SourceError>> + Send;

    /// Sends all acknowledgements and waits for the broker's answers.
    fn commit(&mut self) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Sends all acknowledgements, releases what is held, leaves the group.
    fn close(&mut self, budget: Duration) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Acquires nothing new; what is held stays held.
    fn pause(&mut self);

    /// Goes on acquiring.
    fn resume(&mut self);

    /// How things stand.
    fn snapshot(&self) -> SourceSnapshot;
}

/// A batch that has to be settled record by record. Settled records can't be settled again; what
/// lost its lock is reported by the source and never sent.
pub(crate) trait SourceBatch: Send + Sync {
    /// All records of the batch.
    fn records(&self) -> SinkBatch;

    /// Settles the records at these indexes.
    fn settle(&mut self, indexes: Range<usize>, how: Settle);

    /// The lock of the batch, now.
    fn lock(&self) -> LockLeft;

    /// Waits until the lock is lost or turns out not to be renewable; forever if neither happens.
    fn lock_trouble(&self) -> impl Future<Output = ()> + Send;
}

/// How a record is settled. Rejecting comes with dead letters, and a transaction's acceptance with
/// KIP-1289.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settle {
    Accept,
    Release,
}

/// The source can't go on; the task fails with this message.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SourceError(pub(crate) String);

/// State and counters of a source.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceSnapshot {
    pub(crate) member_id: Option<String>,
    pub(crate) assignment: Vec<PartitionStatus>,
    pub(crate) records_held: u64,
    pub(crate) acknowledgements_pending: u64,
    pub(crate) last_record_at: Option<Instant>,
    pub(crate) last_settled_at: Option<Instant>,
    pub(crate) missing_topics: Vec<String>,
    pub(crate) problem: Option<String>,
    pub(crate) counters: SourceCounters,
}

/// What the broker has confirmed, and what went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceCounters {
    pub(crate) acquired: u64,
    pub(crate) redelivered: u64,
    pub(crate) accepted: u64,
    pub(crate) released: u64,
    pub(crate) rejected: u64,
    pub(crate) renewals: u64,
    pub(crate) acknowledge_errors: u64,
    /// Of those, acceptances.
    pub(crate) accepts_unconfirmed: u64,
    pub(crate) locks_lost: u64,
}
