//! Events for whoever watches a consumer.

use std::sync::Arc;

use sharegroup_session::{AckOutcome, AcquiredRange, LockLoss, Release, Warning};

/// Something that happened to a consumer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ShareEvent {
    /// The coordinator took the member in, for the first time or again.
    Joined {
        /// The member's epoch.
        member_epoch: i32,
    },
    /// The assigned partitions changed.
    AssignmentChanged,
    /// Records arrived, and are fetched ahead of the application.
    Acquired {
        /// Topic name.
        topic: Arc<str>,
        /// Partition index.
        partition: i32,
        /// Which, ascending. The broker's word: never walk a range to its end.
        ranges: Vec<AcquiredRange>,
    },
    /// Records are released without the application's word: it never saw them, or dropped them.
    Released {
        /// Topic name.
        topic: Arc<str>,
        /// Which, and why.
        release: Release,
    },
    /// The application dropped records on their last allowed delivery, and they were settled as
    /// [`ShareObserver::last_delivery`] said.
    LastDeliveryDropped {
        /// Topic name.
        topic: Arc<str>,
        /// Which, and why.
        release: Release,
        /// How they were settled.
        settled: LastDelivery,
    },
    /// An acknowledgement has its outcome.
    Acknowledged {
        /// Topic name.
        topic: Arc<str>,
        /// The outcome.
        outcome: AckOutcome,
    },
    /// Held records are no longer ours and will come again.
    LockLost {
        /// Topic name.
        topic: Arc<str>,
        /// Which, and why.
        loss: LockLoss,
    },
    /// A lock ran out before its records were settled: nothing is acquired until the application polls or
    /// settles.
    Stalled,
    /// A trouble that is retried. Without an observer the consumer logs it itself.
    Warning(Warning),
}

/// How records are settled that the application dropped on their last allowed delivery: it can't have
/// them once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LastDelivery {
    /// Archived by the broker, or written to the group's dead-letter topic (KIP-1191).
    #[default]
    Reject,
    /// Done; for who has put them somewhere else.
    Accept,
    /// Archived by the broker, as if the lock had run out.
    Release,
}

/// Watches a consumer. Called on the driver's thread: return at once, never block.
pub trait ShareObserver: Send + Sync + std::fmt::Debug {
    /// Something happened.
    fn event(&self, event: &ShareEvent);

    /// How to settle records that were dropped on their last allowed delivery.
    fn last_delivery(&self, topic: &Arc<str>, release: &Release) -> LastDelivery {
        let _ = (topic, release);
        LastDelivery::Reject
    }
}
