//! The lanes of a task: with `share.concurrency`, several batches of one task are put at the same time.
//!
//! Each lane is the task loop with a sink of its own, in a tokio task of its own: a put that blocks its thread holds
//! up no other lane. The task is one all the same. It is one member of the group with one state, its counters
//! are those of all lanes, and it ends as one: where a lane fails, or a put of it has stalled, the others end what they
//! are at, which is accepted, and give back the rest.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::common::Common;
use super::give_back::Left;
use super::hub::LaneSource;
use super::{Control, ShareSinkTask, Sink, TaskSettings, panic_text};
use crate::source::RecordSource;
use crate::status::TaskShared;

/// A task with one lane or several.
pub(crate) enum AtWork<S: RecordSource> {
    /// As long as `share.concurrency` is 1.
    Alone(Box<ShareSinkTask<S>>),
    Lanes(Lanes<S>),
}

/// Several lanes over one source.
pub(crate) struct Lanes<S: RecordSource> {
    lanes: Vec<ShareSinkTask<LaneSource<S>>>,
    common: Arc<Common>,
    /// What the task is told, and where the lanes are.
    control: watch::Receiver<Control>,
    tell: watch::Sender<Control>,
    shared: Arc<TaskShared>,
    /// Of the task, for messages.
    name: String,
    shutdown_timeout: Duration,
}

impl<S: RecordSource + 'static> AtWork<S> {
    /// A task with a lane for each of `sinks`, at least one. Must be called within a tokio runtime.
    pub(crate) fn new(
        source: S,
        mut sinks: Vec<Sink>,
        control: watch::Receiver<Control>,
        shared: Arc<TaskShared>,
        settings: TaskSettings,
    ) -> Self {
        if sinks.len() == 1
            && let Some(sink) = sinks.pop()
        {
            let task = ShareSinkTask::new(source, sink, control, shared, settings);
            return Self::Alone(Box::new(task));
        }
        let common = Arc::new(Common::new(sinks.len(), &settings.failures));
        let (tell, told) = watch::channel(*control.borrow());
        let parts = LaneSource::split(source, sinks.len(), &common);
        let lanes = parts.into_iter().zip(sinks).enumerate();
        let lanes = lanes.map(|(lane, (part, sink))| {
            let (told, shared) = (told.clone(), Arc::clone(&shared));
            let place = (Arc::clone(&common), lane);
            ShareSinkTask::lane(part, sink, told, shared, settings.clone(), place)
        });
        Self::Lanes(Lanes {
            lanes: lanes.collect(),
            common: Arc::clone(&common),
            control,
            tell,
            shared: Arc::clone(&shared),
            name: settings.name.clone(),
            shutdown_timeout: settings.shutdown_timeout,
        })
    }

    /// [`ShareSinkTask::run`].
    pub(crate) async fn run(self) {
        match self {
            Self::Alone(task) => task.run().await,
            Self::Lanes(lanes) => lanes.run().await,
        }
    }
}

impl<S: RecordSource + 'static> Lanes<S> {
    async fn run(mut self) {
        let mut at_work = JoinSet::new();
        for lane in self.lanes.drain(..) {
            at_work.spawn(lane.live());
        }
        let mut left = Left::default();
        let mut has_worker = true;
        loop {
            tokio::select! {
                biased;
                ended = at_work.join_next() => match ended {
                    None => break,
                    Some(Ok(lane)) => self.ended(&mut left, lane),
                    Some(Err(error)) => {
                        let failure = Some(fault(error));
                        self.ended(&mut left, Left { failure, ..Left::default() });
                    }
                },
                () = self.common.failing() => self.end(),
                changed = self.control.changed(), if has_worker => {
                    has_worker = changed.is_ok();
                    self.follow(has_worker);
                }
            }
        }
        left.tell(&self.name, &self.shared);
    }

    /// The first failure is the task's.
    fn ended(&self, left: &mut Left, lane: Left) {
        if lane.failure.is_some() {
            self.end();
        }
        left.and(lane);
    }

    /// Tells the lanes what the task is told; to end, where nobody will tell it anything any more.
    fn follow(&mut self, has_worker: bool) {
        let control = *self.control.borrow_and_update();
        match control {
            Control::Run | Control::Pause if !has_worker => self.end(),
            Control::Run | Control::Pause if self.is_ending() => {}
            control => drop(self.tell.send_replace(control)),
        }
    }

    /// Lets the lanes end, as a task does that fails.
    fn end(&self) {
        if !self.is_ending() {
            let budget = self.shutdown_timeout;
            self.tell.send_replace(Control::Stop {
                deadline: Instant::now() + budget,
                budget,
            });
        }
    }

    fn is_ending(&self) -> bool {
        matches!(*self.tell.borrow(), Control::Stop { .. })
    }
}

fn fault(error: JoinError) -> String {
    let text = error.try_into_panic().map_or_else(
        |error| error.to_string(),
        |payload| panic_text(payload.as_ref()),
    );
    tracing::error!(
        error = text,
        "A lane of a task ended by a fault of the runtime."
    );
    format!("fault of the runtime: {text}")
}
