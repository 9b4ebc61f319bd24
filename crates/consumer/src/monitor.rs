//! A view of a share consumer for others than its owner.

use std::sync::Arc;

use tokio::sync::watch;

use crate::metrics::ShareMetrics;
use crate::shared::Shared;
use crate::status::ShareStatus;

/// What a [`ShareConsumer`](crate::ShareConsumer) does, also while
/// [`for_each_concurrent`](crate::ShareConsumer::for_each_concurrent) or
/// [`deliveries`](crate::ShareConsumer::deliveries) has it. A cheap handle for any thread; it keeps no member in
/// its group, and after the consumer's end shows the last state.
#[derive(Debug, Clone)]
pub struct Monitor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) status: watch::Receiver<ShareStatus>,
}

impl Monitor {
    /// Where the consumer stands.
    #[must_use]
    pub fn status(&self) -> ShareStatus {
        self.status.borrow().clone()
    }

    /// Where the consumer stands, as it changes.
    #[must_use]
    pub fn watch_status(&self) -> watch::Receiver<ShareStatus> {
        self.status.clone()
    }

    /// Counters since the consumer's start.
    #[must_use]
    pub fn metrics(&self) -> ShareMetrics {
        self.shared.counters.snapshot()
    }
}
