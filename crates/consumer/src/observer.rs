//! Events for whoever watches a consumer.

use std::sync::Arc;

use sharegroup_session::{AckOutcome, LockLoss, Warning};

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
    /// A trouble that is retried. Without an observer the consumer logs it itself.
    Warning(Warning),
}

/// Watches a consumer. Called on the driver's thread: return at once, never block.
pub trait ShareObserver: Send + Sync + std::fmt::Debug {
    /// Something happened.
    fn event(&self, event: &ShareEvent);
}
