//! Single records, each with the right to settle it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use sharegroup_session::{AckFailure, Acknowledgement};
use tokio::sync::oneshot;

use crate::batch::{Record, ShareBatch};
use crate::consumer::ShareConsumer;
use crate::error::PollError;
use crate::lock::LockView;

/// One acquired record, to be settled once, in any order and on any thread.
///
/// It is locked to this member until it is settled; the lock is renewed meanwhile. Dropped unsettled it
/// is held for a delay that grows with its delivery count (1 s, doubling, at most 60 s) and then released, with
/// a warning in the log; [`release_later`](Self::release_later) does the same without.
/// A delivery whose lock was lost can't touch a later delivery of the same record: its acknowledgement is
/// never sent.
#[derive(Debug)]
#[must_use = "a delivery that is dropped is released and delivered again"]
pub struct Delivery(pub(crate) ShareBatch);

impl Delivery {
    /// Topic name.
    #[must_use]
    pub fn topic(&self) -> &Arc<str> {
        self.0.topic()
    }

    /// Partition index.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.0.partition()
    }

    /// The record.
    #[must_use]
    #[allow(
        clippy::expect_used,
        reason = "INVARIANT: made of a batch's first record only, and a batch has one"
    )]
    pub fn record(&self) -> Record<'_> {
        self.0.record(0).expect("a delivery has one record")
    }

    /// The lock.
    #[must_use]
    pub fn lock(&self) -> LockView {
        self.0.lock()
    }

    /// Processed: once the broker has confirmed it, it never comes again. The acknowledgement travels whether or
    /// not its confirmation is awaited; awaiting each before the next record costs the linger and a request per
    /// record.
    pub fn accept(self) -> Confirmation {
        self.0.confirm(Acknowledgement::Accept)
    }

    /// Not processed: available again at once, to any member. Not for retries
    /// ([`Acknowledge::Release`](crate::Acknowledge::Release)): see [`release_later`](Self::release_later).
    pub fn release(self) -> Confirmation {
        self.0.confirm(Acknowledgement::Release)
    }

    /// Not processed: again later. Held for a delay that grows with its delivery count (1 s, doubling, at most
    /// 60 s), then released. What dropping it does, but said: no warning is logged. On its last allowed delivery
    /// it is settled as [`ShareObserver::last_delivery`](crate::ShareObserver::last_delivery) says.
    pub fn release_later(self) {
        self.0.release_later();
    }

    /// Can't be processed: archived by the broker, or written to the group's dead-letter topic.
    pub fn reject(self) -> Confirmation {
        self.0.confirm(Acknowledgement::Reject)
    }
}

/// What became of a [`Delivery`]'s acknowledgement: the broker's answer, or why there is none.
///
/// It comes after the linger (10 ms by default) and one request, or at once after
/// [`commit`](ShareConsumer::commit). Dropping it changes nothing.
///
/// # Errors
/// [`AckFailure`]: the acknowledgement did not count, or may not have.
#[derive(Debug)]
pub struct Confirmation {
    answer: oneshot::Receiver<Result<(), AckFailure>>,
    lock: LockView,
}

impl Confirmation {
    pub(crate) const fn new(
        answer: oneshot::Receiver<Result<(), AckFailure>>,
        lock: LockView,
    ) -> Self {
        Self { answer, lock }
    }
}

impl Future for Confirmation {
    type Output = Result<(), AckFailure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        // Without an answer it was never sent: the lock was lost before, or the consumer has ended.
        Poll::Ready(
            answer.unwrap_or_else(|_| Err(self.lock.lost().unwrap_or(AckFailure::SessionEnded))),
        )
    }
}

/// Records one by one: [`ShareConsumer::deliveries`].
#[derive(Debug)]
pub struct Deliveries<'a>(pub(crate) &'a mut ShareConsumer);

impl Stream for Deliveries<'_> {
    type Item = Result<Delivery, PollError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_delivery(cx).map(Result::transpose)
    }
}
