//! Where a task's records come from: a seam, so that the task loop runs against a scripted source
//! under paused time as well as against a share group.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::{Duration, Instant};

use crate::policy::LockLeft;
use crate::record::SinkBatch;
use crate::status::PartitionStatus;
use crate::task::CorruptRange;

/// A member of a share group, as the task loop sees it.
pub(crate) trait RecordSource: Send + Sync {
    /// Records of one partition, acquired together.
    type Batch: SourceBatch;
    /// Acquired records that can't be read.
    type Corrupt: CorruptSource;

    /// What arrives next, of records at most `records_max`. `None` once the source is closed. Pending: the
    /// task that polled last is woken when there may be something.
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        records_max: usize,
    ) -> Poll<Result<Option<PolledBy<Self>>, SourceError>>;

    /// What arrives next; waits until there is something. `None` once the source is closed. Cancel-safe.
    fn poll(&mut self) -> impl Future<Output = Result<Option<PolledBy<Self>>, SourceError>> + Send {
        poll_fn(|cx| self.poll_next(cx, usize::MAX))
    }

    /// Sends all acknowledgements and waits for the broker's answers. Others may poll meanwhile.
    fn commit(&mut self) -> impl Future<Output = Result<(), SourceError>> + Send + use<Self>;

    /// Sends all acknowledgements, releases what is held, leaves the group.
    fn close(&mut self, budget: Duration) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Acquires nothing new; what is held stays held.
    fn pause(&mut self);

    /// Goes on acquiring.
    fn resume(&mut self);

    /// Acquires one record more than is held, until it is paused or resumed.
    fn acquire_one(&mut self);

    /// The topics that records come from, where these are other than the configured ones: with a pattern, those
    /// that match it now.
    fn topics(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    /// Lets the locks of everything that is held run out. For any thread: the task may be stuck.
    fn renewal_stop(&self) -> RenewalStop;

    /// Records acquired and not settled; a moment old.
    fn records_held(&self) -> u64;

    /// How things stand.
    fn snapshot(&self) -> SourceSnapshot;
}

/// Ends all renewals of a source.
pub(crate) type RenewalStop = Box<dyn Fn() + Send + Sync>;

/// What a source gives.
pub(crate) type PolledBy<S> = Polled<<S as RecordSource>::Batch, <S as RecordSource>::Corrupt>;

/// What arrives at a task.
#[derive(Debug)]
pub(crate) enum Polled<B, C> {
    /// Records.
    Batch(B),
    /// Records that can't be read.
    Corrupt(C),
}

/// Acquired records that can't be read, settled all together.
pub(crate) trait CorruptSource: Send + Sync {
    /// Which, and their bytes.
    fn range(&self) -> CorruptRange;

    /// Settles them.
    fn settle(self, how: Settle)
    where
        Self: Sized;

    /// Their lock, now.
    fn lock(&self) -> LockLeft;
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

    /// How long the lock of the batch lasts at most without a renewal.
    fn lock_duration(&self) -> Duration;

    /// Waits until the lock is lost or turns out not to be renewable; forever if neither happens.
    fn lock_trouble(&self) -> impl Future<Output = ()> + Send;
}

/// How a record is settled. A transaction's acceptance comes with KIP-1289.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settle {
    Accept,
    Release,
    Reject,
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

impl SourceCounters {
    /// Adds those of another source.
    pub(crate) const fn add(&mut self, other: &Self) {
        self.acquired += other.acquired;
        self.redelivered += other.redelivered;
        self.accepted += other.accepted;
        self.released += other.released;
        self.rejected += other.rejected;
        self.renewals += other.renewals;
        self.acknowledge_errors += other.acknowledge_errors;
        self.accepts_unconfirmed += other.accepts_unconfirmed;
        self.locks_lost += other.locks_lost;
    }
}
