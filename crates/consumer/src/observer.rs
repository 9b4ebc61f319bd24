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

/// Watches a consumer. Called on the driver's thread: return at once, never block.
pub trait ShareObserver: Send + Sync + std::fmt::Debug {
    /// Something happened.
    fn event(&self, event: &ShareEvent);
}
