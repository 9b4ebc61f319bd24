//! The acquisition lock as the application sees it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sharegroup_session::{AckFailure, LockLoss};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::hand_out::TimeLeft;
use crate::shared::Shared;

#[derive(Debug)]
struct Inner {
    deadline: Instant,
    /// How long it is from its beginning, or from its latest renewal.
    duration: Duration,
    /// Its renewal was asked for, out of turn.
    renewal_asked: bool,
    /// Lost ranges, with the reason.
    lost: Vec<(i64, i64, AckFailure)>,
    /// Of them, what the application has not settled since.
    unsettled: Vec<LockLoss>,
    /// Whether it is renewed, as far as this acquisition alone is concerned.
    renewable: bool,
}

/// The lock of one acquisition; the driver writes, the application reads.
#[derive(Debug)]
pub(crate) struct LockState {
    inner: Mutex<Inner>,
    changed: Notify,
}

impl LockState {
    pub(crate) fn new(deadline: Instant, duration: Duration, renewable: bool) -> Self {
        Self {
            inner: Mutex::new(Inner {
                deadline,
                duration,
                renewal_asked: false,
                lost: Vec::new(),
                unsettled: Vec::new(),
                renewable,
            }),
            changed: Notify::new(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why a record of a range is no longer ours, if one isn't.
    pub(crate) fn lost_in(&self, first: i64, last: i64) -> Option<AckFailure> {
        let inner = self.inner();
        let mut lost = inner.lost.iter();
        lost.find(|(lost_first, lost_last, _)| *lost_first <= last && first <= *lost_last)
            .map(|(_, _, why)| *why)
    }

    pub(crate) fn renewed(&self, deadline: Instant, duration: Duration) {
        let mut inner = self.inner();
        inner.deadline = deadline;
        inner.duration = duration;
        inner.renewal_asked = false;
    }

    /// Whether a renewal out of turn is to be asked for: `true` once, until it comes.
    pub(crate) fn ask_renewal(&self) -> bool {
        !std::mem::replace(&mut self.inner().renewal_asked, true)
    }

    /// How it stands in a group that allows renewals, or doesn't.
    pub(crate) fn time_left(&self, now: Instant, group_renews: bool) -> TimeLeft {
        let inner = self.inner();
        TimeLeft {
            left: inner.deadline.saturating_duration_since(now),
            whole: inner.duration,
            is_renewable: inner.renewable && group_renews,
        }
    }

    pub(crate) fn lost(&self, loss: &LockLoss) {
        let mut inner = self.inner();
        let lost = (loss.first_offset, loss.last_offset, loss.why);
        inner.lost.push(lost);
        inner.unsettled.push(loss.clone());
        drop(inner);
        self.changed.notify_waiters();
    }

    /// What of a range was lost before it is settled now. Gives each offset once.
    pub(crate) fn settle_lost(&self, first: i64, last: i64) -> Vec<LockLoss> {
        let mut settled = Vec::new();
        let unsettled = &mut self.inner().unsettled;
        let part = |loss: &LockLoss, first_offset, last_offset| {
            let part = LockLoss {
                first_offset,
                last_offset,
                ..loss.clone()
            };
            (first_offset <= last_offset).then_some(part)
        };
        for loss in std::mem::take(unsettled) {
            let (from, to) = (loss.first_offset, loss.last_offset);
            settled.extend(part(&loss, from.max(first), to.min(last)));
            unsettled.extend(part(&loss, from, to.min(first.saturating_sub(1))));
            unsettled.extend(part(&loss, from.max(last.saturating_add(1)), to));
        }
        settled
    }

    /// Nobody knows what it holds any more.
    pub(crate) fn ended(&self) {
        let all = (i64::MIN, i64::MAX, AckFailure::SessionEnded);
        self.inner().lost.push(all);
        self.changed.notify_waiters();
    }

    /// It ends at its deadline.
    pub(crate) fn not_renewed(&self) {
        self.inner().renewable = false;
        self.changed.notify_waiters();
    }

    /// The group began to refuse renewals, or stopped.
    pub(crate) fn renewability_changed(&self) {
        self.changed.notify_waiters();
    }
}

/// The acquisition lock of a batch. A cheap handle.
#[derive(Debug, Clone)]
pub struct LockView {
    pub(crate) state: Arc<LockState>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) first_offset: i64,
    pub(crate) last_offset: i64,
}

impl LockView {
    /// When the lock ends, at the latest known: counted from the sending of the request that
    /// acquired or renewed it (KIP-932 "Acquisition locks").
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.state.inner().deadline
    }

    /// How long the lock lasts from its acquisition or its last renewal, as the broker said it.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.state.inner().duration
    }

    /// Whether the lock is renewed while the batch is unsettled: the leader knows renewals (Kafka
    /// 4.2, KIP-1222), the group hasn't refused one (`share.renew.acknowledge.enable`), it wasn't
    /// held for the longest time allowed, and nothing of it is [`lost`](Self::lost). Else it ends at its
    /// [`deadline`](Self::deadline).
    #[must_use]
    pub fn is_renewable(&self) -> bool {
        let renewable =
            self.state.inner().renewable && self.shared.renewable.load(Ordering::Relaxed);
        renewable && self.lost().is_none()
    }

    /// Why a record of the batch is no longer ours, if one isn't: acknowledgements of it are
    /// reported, never sent, and it will come again. [`AckFailure::SessionEnded`] where the consumer was
    /// closed, which releases what is unsettled.
    #[must_use]
    pub fn lost(&self) -> Option<AckFailure> {
        self.state.lost_in(self.first_offset, self.last_offset)
    }

    /// Waits until a record of the batch is lost, or the lock can't be renewed.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn lost_or_refused(&self) {
        loop {
            let changed = self.state.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.lost().is_some() || !self.is_renewable() {
                return;
            }
            changed.await;
        }
    }
}
