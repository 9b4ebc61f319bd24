//! One consumer for all lanes of a task.
//!
//! Whichever lane asks next gets what arrives next, but not more than its part of all that is held: a consumer holds
//! about one second's worth, and one lane with all of it would leave nothing to the others. The consumer is closed
//! by the lane that ends last.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::common::Common;
use crate::source::{PolledBy, RecordSource, RenewalStop, SourceError, SourceSnapshot};

struct Hub<S> {
    shared: Mutex<Shared<S>>,
    waiting: Arc<Waiting>,
    lanes: usize,
}

struct Shared<S> {
    /// `None` once the last lane has it, to close it.
    source: Option<S>,
    /// Lanes that have not ended.
    lanes: usize,
}

impl<S> Hub<S> {
    fn lock(&self) -> MutexGuard<'_, Shared<S>> {
        // Each write under the lock is whole, so a poisoned lock guards good data.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lanes that wait for records, by number. A source wakes whoever polled last: all of them are woken then.
struct Waiting(Mutex<Vec<Option<Waker>>>);

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Vec<Option<Waker>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waits(&self, lane: usize, waker: &Waker) {
        if let Some(waiting) = self.lock().get_mut(lane) {
            *waiting = Some(waker.clone());
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let woken: Vec<Waker> = self.lock().iter_mut().filter_map(Option::take).collect();
        woken.into_iter().for_each(Waker::wake);
    }
}

/// A lane's part of the consumer.
pub(crate) struct LaneSource<S> {
    hub: Arc<Hub<S>>,
    lane: usize,
    common: Arc<Common>,
    has_left: bool,
    /// With the lane that ended last.
    closed: Option<S>,
}

impl<S: RecordSource> LaneSource<S> {
    /// Parts of a consumer for so many lanes.
    pub(super) fn split(source: S, lanes: usize, common: &Arc<Common>) -> Vec<Self> {
        let hub = Arc::new(Hub {
            shared: Mutex::new(Shared {
                source: Some(source),
                lanes,
            }),
            waiting: Arc::new(Waiting(Mutex::new(vec![None; lanes]))),
            lanes,
        });
        let parts = (0..lanes).map(|lane| Self {
            hub: Arc::clone(&hub),
            lane,
            common: Arc::clone(common),
            has_left: false,
            closed: None,
        });
        parts.collect()
    }
}

impl<S> LaneSource<S> {
    /// The lane ends. The answer: the source, if it is the last.
    fn leave(&mut self) -> Option<S> {
        if std::mem::replace(&mut self.has_left, true) {
            return None;
        }
        let mut shared = self.hub.lock();
        shared.lanes -= 1;
        match shared.lanes {
            0 => shared.source.take(),
            _ => None,
        }
    }

    fn with<T>(&self, call: impl FnOnce(&mut S) -> T) -> Option<T> {
        self.hub.lock().source.as_mut().map(call)
    }
}

impl<S> Drop for LaneSource<S> {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

impl<S: RecordSource> RecordSource for LaneSource<S> {
    type Batch = S::Batch;
    type Corrupt = S::Corrupt;

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        records_max: usize,
    ) -> Poll<Result<Option<PolledBy<Self>>, SourceError>> {
        self.hub.waiting.waits(self.lane, cx.waker());
        let waker = Waker::from(Arc::clone(&self.hub.waiting));
        let lanes = self.hub.lanes;
        let polled = self.with(|source| {
            let part = usize::try_from(source.records_held()).unwrap_or(usize::MAX);
            let part = part.div_ceil(lanes).max(1);
            source.poll_next(&mut Context::from_waker(&waker), part.min(records_max))
        });
        polled.unwrap_or(Poll::Ready(Ok(None)))
    }

    fn commit(&mut self) -> impl Future<Output = Result<(), SourceError>> + Send + use<S> {
        let committed = self.with(S::commit);
        async {
            match committed {
                Some(committed) => committed.await,
                None => Ok(()),
            }
        }
    }

    async fn close(&mut self, budget: Duration) -> Result<(), SourceError> {
        let Some(source) = self.leave() else {
            return Ok(());
        };
        self.closed.insert(source).close(budget).await
    }

    fn pause(&mut self) {
        self.with(S::pause);
    }

    fn resume(&mut self) {
        self.with(S::resume);
    }

    fn acquire_one(&mut self) {
        self.with(S::acquire_one);
    }

    fn topics(&self) -> Vec<Arc<str>> {
        self.with(|source| source.topics()).unwrap_or_default()
    }

    /// A lane that is stuck ends the task: what the others hold is not renewed either, and they end at once.
    fn renewal_stop(&self) -> RenewalStop {
        let stop = self.with(|source| source.renewal_stop());
        let common = Arc::clone(&self.common);
        Box::new(move || {
            if let Some(stop) = &stop {
                stop();
            }
            common.fail();
        })
    }

    fn records_held(&self) -> u64 {
        self.with(|source| source.records_held()).unwrap_or(0)
    }

    fn snapshot(&self) -> SourceSnapshot {
        match &self.closed {
            Some(source) => source.snapshot(),
            None => self.with(|source| source.snapshot()).unwrap_or_default(),
        }
    }
}
