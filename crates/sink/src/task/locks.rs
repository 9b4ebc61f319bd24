//! How long a put or a flush may take: until the locks of what it holds end, where these can't be renewed.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::call::Ended;
use super::flight::Flight;
use super::stall::StallWatch;
use crate::outcome::Outcomes;
use crate::policy::LockLeft;
use crate::source::SourceBatch;

/// Lets a call end by itself, but cuts it off when of a lock that can't be renewed only its reserve, divided by
/// `parts`, is left: what it holds must be given up before another member gets it. A call that has stalled may
/// still write, so that it goes on until `over`.
pub(super) async fn within_locks<B: SourceBatch, E>(
    flights: &[&Flight<B>],
    (parts, told): (u32, Option<&Outcomes>),
    (watch, over): (&StallWatch, impl Future<Output = ()>),
    call: impl Future<Output = Ended<E>>,
) -> Ended<E> {
    let mut call = std::pin::pin!(call);
    if let Some(outcomes) = told {
        tell(outcomes, least_left(flights, parts));
    }
    tokio::select! {
        biased;
        ended = &mut call => return ended,
        () = watch.stalled() => {}
        () = locks_end(flights, parts, told) => return Ended::CutOff,
    }
    tokio::select! {
        biased;
        ended = &mut call => ended,
        () = over => Ended::CutOff,
    }
}

/// Waits until the lock of each of these is over.
pub(super) async fn locks_over<B: SourceBatch>(flights: &[Flight<B>]) {
    for flight in flights {
        loop {
            match flight.batch.lock() {
                LockLeft::Lost | LockLeft::Ends(Duration::ZERO) => break,
                LockLeft::Ends(left) => sleep(left).await,
                LockLeft::Renewable => flight.batch.lock_trouble().await,
            }
        }
    }
}

/// Waits until of a lock that can't be renewed only its reserve, divided by `parts`, is left. Locks may become
/// such, or last longer, meanwhile; the sink is told.
async fn locks_end<B: SourceBatch>(flights: &[&Flight<B>], parts: u32, told: Option<&Outcomes>) {
    loop {
        let least = least_left(flights, parts);
        if let Some(outcomes) = told {
            tell(outcomes, least);
        }
        match least {
            Some(Duration::ZERO) => return,
            Some(left) => tokio::select! {
                () = sleep(left) => {}
                () = lock_trouble(flights.iter().copied()) => {}
            },
            None => lock_trouble(flights.iter().copied()).await,
        }
    }
}

/// What is left of the locks that can't be renewed, without their reserves.
fn least_left<B: SourceBatch>(flights: &[&Flight<B>], parts: u32) -> Option<Duration> {
    let locks = flights.iter().map(|flight| match flight.batch.lock() {
        LockLeft::Ends(left) => Some(left.saturating_sub(flight.lock_reserve() / parts)),
        LockLeft::Renewable | LockLeft::Lost => None,
    });
    locks.flatten().min()
}

/// Tells a sink when its put is cut off.
fn tell(outcomes: &Outcomes, left: Option<Duration>) {
    outcomes.cut_off_at(left.map(|left| Instant::now() + left));
}

/// Waits until one of the locks that are renewed is lost or refused renewal.
pub(super) async fn lock_trouble<'a, B: SourceBatch + 'a>(
    flights: impl IntoIterator<Item = &'a Flight<B>>,
) {
    let mut troubles: Vec<Pin<Box<dyn Future<Output = ()> + Send + 'a>>> = Vec::new();
    for flight in flights {
        if flight.batch.lock() == LockLeft::Renewable {
            troubles.push(Box::pin(flight.batch.lock_trouble()));
        }
    }
    poll_fn(|context| {
        let any = troubles
            .iter_mut()
            .any(|trouble| trouble.as_mut().poll(context).is_ready());
        if any { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// A put leaves all of the reserve of a lock that can't be renewed: for the flush, and for the acknowledgement to
/// travel.
pub(super) const PUT_LOCK_PARTS: u32 = 1;
/// A flush leaves half of it: the acknowledgement has to travel.
pub(super) const FLUSH_LOCK_PARTS: u32 = 2;
