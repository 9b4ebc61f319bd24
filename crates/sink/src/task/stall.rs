//! Watches over puts that give no outcome.
//!
//! The watch is a tokio task of its own, so that it sees a put that blocks its thread as well. After a
//! quarter of `share.put.stall.ms` it says so; at its end the task is shown as FAILED and the renewals
//! stop: the locks of what the put holds run out, the source names what is lost by that, and others
//! get the rest. Nothing is released meanwhile, for the put may still write it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sharegroup_wire::duration::show;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::common::Common;
use crate::outcome::Progress;
use crate::source::RenewalStop;
use crate::status::TaskShared;

/// The task's side. The watch ends when it is dropped.
#[derive(Debug)]
pub(super) struct StallWatch {
    put: Arc<Mutex<Option<Put>>>,
    shared: Arc<TaskShared>,
    /// Why the task failed, once a put has stalled.
    stalled: watch::Receiver<Option<String>>,
}

/// What the watch needs of its task.
pub(super) struct Watched {
    pub(super) task: String,
    pub(super) shared: Arc<TaskShared>,
    pub(super) renewals: RenewalStop,
    /// `share.put.stall.ms`.
    pub(super) stall: Duration,
    pub(super) common: Arc<Common>,
}

/// The put that is under way.
#[derive(Debug)]
struct Put {
    what: String,
    progress: Option<Progress>,
    reports: u64,
    /// When it began, or an outcome was last seen.
    since: Instant,
    warned: bool,
}

impl StallWatch {
    /// Must be called within a tokio runtime.
    pub(super) fn start(watched: Watched) -> Self {
        let put = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&watched.shared);
        let (tell, stalled) = watch::channel(None);
        tokio::spawn(watch_puts(watched, Arc::downgrade(&put), tell));
        Self {
            put,
            shared,
            stalled,
        }
    }

    /// A put or a flush begins.
    pub(super) fn began(&self, what: String, progress: Option<Progress>) {
        let put = Put {
            what,
            progress,
            reports: 0,
            since: Instant::now(),
            warned: false,
        };
        if lock(&self.put).replace(put).is_none() {
            self.shared.metrics.puts_active.add(1);
        }
    }

    /// It has ended. An error: it had stalled, and the task has failed of it.
    pub(super) fn ended(&self) -> Result<(), String> {
        self.no_put();
        self.stalled.borrow().clone().map_or(Ok(()), Err)
    }

    fn no_put(&self) {
        if lock(&self.put).take().is_some() {
            self.shared.metrics.puts_active.take(1);
        }
    }

    /// Waits until a put has stalled.
    pub(super) async fn stalled(&self) {
        let mut stalled = self.stalled.clone();
        if stalled.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        self.no_put();
    }
}

impl Put {
    /// Looks at the put. The answer: for how long it has given no outcome.
    fn look(&mut self) -> Duration {
        let reports = self.progress.as_ref().map_or(0, Progress::reports);
        if reports != self.reports {
            self.reports = reports;
            self.since = Instant::now();
            self.warned = false;
        }
        self.since.elapsed()
    }
}

async fn watch_puts(
    watched: Watched,
    put: Weak<Mutex<Option<Put>>>,
    tell: watch::Sender<Option<String>>,
) {
    let quarter = watched.stall / 4;
    let mut look_at = Instant::now() + quarter;
    // What the metric shows may be another lane's.
    let mut shown = false;
    loop {
        tokio::select! {
            () = sleep_until(look_at) => {}
            () = tell.closed() => return,
        }
        let Some(put) = put.upgrade() else {
            return;
        };
        let mut put = lock(&put);
        let Some(put) = put.as_mut() else {
            if std::mem::take(&mut shown) {
                watched.shared.metrics.put_stalled_ms.set(0);
            }
            look_at = Instant::now() + quarter;
            continue;
        };
        let silent = put.look();
        if silent >= watched.stall {
            tell.send_replace(Some(watched.fail(put)));
            return;
        }
        look_at = put.since + quarter;
        if silent >= quarter {
            watched.warn(put, silent);
            shown = true;
            look_at = (Instant::now() + quarter).min(put.since + watched.stall);
        }
    }
}

impl Watched {
    fn warn(&self, put: &mut Put, silent: Duration) {
        let silent_ms = u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
        self.shared.metrics.put_stalled_ms.set(silent_ms);
        if !std::mem::replace(&mut put.warned, true) {
            tracing::error!(
                task = self.task,
                what = put.what,
                silent_ms,
                fails_after_ms = u64::try_from(self.stall.as_millis()).unwrap_or(u64::MAX),
                "The sink says nothing of the records it was given; without a word the task fails."
            );
        }
    }

    fn fail(&self, put: &Put) -> String {
        let text = format!(
            "{} gave no outcome for {} (share.put.stall.ms)",
            put.what,
            show(self.stall)
        );
        if self.common.tells_failure() {
            tracing::error!(
                task = self.task,
                error = text,
                "The task failed; its locks run out."
            );
        }
        (self.renewals)();
        self.shared.fail(text.clone());
        text
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each write under the lock is whole, so a poisoned lock guards good data.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
