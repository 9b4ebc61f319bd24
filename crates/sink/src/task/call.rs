//! Calls into a sink's task: a panic stays inside, and a call that outlives the budget for
//! stopping is cut off.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::connector::TaskFuture;

/// What a task is told to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Control {
    /// Work.
    #[default]
    Run,
    /// Finish what is held, acquire nothing new.
    Pause,
    /// End within the budget.
    Stop {
        /// When everything has to be over.
        deadline: Instant,
        /// The whole time that was given for it.
        budget: Duration,
    },
}

impl Control {
    /// The instant at which only `reserve` fifths of the budget for stopping are left.
    fn cut_off(self, reserve: u32) -> Option<Instant> {
        match self {
            Self::Stop { deadline, budget } => deadline.checked_sub(budget * reserve / 5),
            Self::Run | Self::Pause => None,
        }
    }
}

/// How a call ended.
#[derive(Debug)]
pub(crate) enum Ended<E> {
    /// By itself.
    Returned(Result<(), E>),
    /// It panicked, with this message.
    Panicked(String),
    /// The budget for stopping is used up; the call was dropped.
    CutOff,
}

/// Runs a call of a task to its end. While the task is told to stop, it gets the budget less
/// `reserve` fifths. `meanwhile` is called every quarter of a second.
pub(crate) async fn call<'a, E>(
    make: impl FnOnce() -> TaskFuture<'a, E>,
    control: &mut watch::Receiver<Control>,
    reserve: u32,
    mut meanwhile: impl FnMut(),
) -> Ended<E> {
    let mut future = match catch_unwind(AssertUnwindSafe(make)) {
        Ok(future) => future,
        Err(payload) => return Ended::Panicked(panic_text(payload.as_ref())),
    };
    let mut guarded = std::pin::pin!(poll_fn(move |context| {
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(result)) => Poll::Ready(Ended::Returned(result)),
            Err(payload) => Poll::Ready(Ended::Panicked(panic_text(payload.as_ref()))),
        }
    }));
    // Most calls end at once; they cost no timer.
    tokio::select! {
        biased;
        ended = &mut guarded => return ended,
        () = std::future::ready(()) => {}
    }
    let mut wake_at = Instant::now() + MEANWHILE;
    loop {
        let cut_off = control.borrow_and_update().cut_off(reserve);
        let next = cut_off.map_or(wake_at, |cut_off| cut_off.min(wake_at));
        tokio::select! {
            biased;
            ended = &mut guarded => return ended,
            changed = control.changed() => {
                if changed.is_err() {
                    return Ended::CutOff;
                }
            }
            () = sleep_until(next) => {
                if cut_off.is_some_and(|cut_off| cut_off <= Instant::now()) {
                    return Ended::CutOff;
                }
                meanwhile();
                wake_at = Instant::now() + MEANWHILE;
            }
        }
    }
}

/// Waits until the task is told to stop, and only `reserve` fifths of the budget for that are left.
pub(super) async fn cut_off(control: &mut watch::Receiver<Control>, reserve: u32) {
    stopped(control).await;
    let at = control.borrow().cut_off(reserve);
    if let Some(at) = at {
        sleep_until(at).await;
    }
}

/// Waits until the task is told to stop, or its worker is gone.
pub(crate) async fn stopped(control: &mut watch::Receiver<Control>) {
    let stop = |control: &Control| matches!(control, Control::Stop { .. });
    drop(control.wait_for(stop).await);
}

/// The message of a panic.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

const MEANWHILE: Duration = Duration::from_millis(250);
