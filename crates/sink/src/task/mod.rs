//! The loop of one task: poll, put, flush, acknowledge.
//!
//! The task is one member of the share group. While it puts, the consumer fetches the next records
//! and renews locks by itself. Acknowledgements ride on those fetches; in explicit mode their
//! answers are awaited when too many are outstanding, when the task is idle, and at the end.

mod call;
mod flight;
mod round;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

pub(crate) use self::call::{Control, Ended, call, panic_text, stopped};
use self::flight::Flight;
use self::round::Flow;
use crate::connector::DynSinkTask;
use crate::error::chain;
use crate::loss::LossLog;
use crate::source::{RecordSource, SourceError};
use crate::status::{TaskShared, TaskState};

/// What a task is run with.
#[derive(Clone, Debug)]
pub(crate) struct TaskSettings {
    /// Connector and number, for messages: `orders-sink-0`.
    pub(crate) name: String,
    /// Whether the answers to acknowledgements are awaited.
    pub(crate) explicit: bool,
    /// Deliveries the group allows.
    pub(crate) delivery_count_limit: i16,
    /// Longest time between two flushes.
    pub(crate) flush_interval: Duration,
    /// Budget for ending after a failure.
    pub(crate) shutdown_timeout: Duration,
    /// Where lost records are named.
    pub(crate) loss: LossLog,
    /// The topics records come from.
    pub(crate) topics: Vec<Arc<str>>,
}

/// One task at work.
pub(crate) struct ShareSinkTask<S: RecordSource> {
    pub(crate) source: S,
    pub(crate) task: Box<dyn DynSinkTask>,
    pub(crate) control: watch::Receiver<Control>,
    pub(crate) shared: Arc<TaskShared>,
    pub(crate) settings: TaskSettings,
    /// Longest time a recent put with its flush took.
    put_time: Duration,
    jitter: Jitter,
    /// Whether records are waiting for another try.
    failing: bool,
    /// Whether the source has been paused.
    paused: bool,
    /// The source failed while a round was under way; the task fails once the round is over.
    failed_later: Option<TaskFailure>,
    published_at: Instant,
}

/// Why a task failed.
#[derive(Debug)]
pub(crate) struct TaskFailure {
    text: String,
    /// After a panic the sink's task is not called again, except to stop it.
    panicked: bool,
}

impl TaskFailure {
    fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            panicked: false,
        }
    }

    fn panicked(text: String) -> Self {
        Self {
            text,
            panicked: true,
        }
    }
}

impl From<SourceError> for TaskFailure {
    fn from(error: SourceError) -> Self {
        Self::new(error.to_string())
    }
}

impl<S: RecordSource> ShareSinkTask<S> {
    pub(crate) fn new(
        source: S,
        task: Box<dyn DynSinkTask>,
        control: watch::Receiver<Control>,
        shared: Arc<TaskShared>,
        settings: TaskSettings,
    ) -> Self {
        Self {
            source,
            task,
            control,
            shared,
            settings,
            put_time: Duration::ZERO,
            jitter: Jitter::random(),
            failing: false,
            paused: false,
            failed_later: None,
            published_at: Instant::now(),
        }
    }

    /// Works until the task is told to stop or fails; then releases what is held, leaves the group
    /// and stops the sink. The task's state tells how it ended.
    pub(crate) async fn run(mut self) {
        let result = self.work().await;
        if let Err(failure) = &result {
            tracing::error!(
                task = self.settings.name,
                error = failure.text,
                "The task failed; what it holds is released."
            );
        }
        let (deadline, budget) = match *self.control.borrow() {
            Control::Stop { deadline, budget } => (deadline, budget),
            Control::Run | Control::Pause => {
                let budget = self.settings.shutdown_timeout;
                (Instant::now() + budget, budget)
            }
        };
        let left = self.leave(deadline, budget).await;
        let panicked = matches!(&result, Err(failure) if failure.panicked);
        self.stop_sink(deadline, panicked).await;
        match (result, left) {
            (Err(failure), _) => self.shared.fail(failure.text),
            (Ok(()), Err(error)) => {
                tracing::error!(task = self.settings.name, %error, "Leaving the group failed.");
                self.shared.fail(error.to_string());
            }
            (Ok(()), Ok(())) => self.shared.set_state(TaskState::Stopped),
        }
    }

    /// Rounds until the task is told to stop.
    async fn work(&mut self) -> Result<(), TaskFailure> {
        self.open().await?;
        let mut tick_at = Instant::now() + TICK;
        loop {
            self.follow_control();
            if self.stopping() {
                return self.drain().await;
            }
            tokio::select! {
                biased;
                changed = self.control.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                }
                polled = self.source.poll() => {
                    let batch = polled?.ok_or_else(|| TaskFailure::new("the consumer was closed"))?;
                    let flow = self.round(batch).await?;
                    if let Some(failure) = self.failed_later.take() {
                        return Err(failure);
                    }
                    if flow == Flow::GaveUp {
                        return Ok(());
                    }
                    self.bound_acknowledgements().await?;
                    tick_at = Instant::now() + TICK;
                }
                () = sleep_until(tick_at.min(self.published_at + PUBLISH_IDLE)) => {
                    self.shared.publish(self.source.snapshot());
                    self.published_at = Instant::now();
                    if tick_at <= self.published_at {
                        self.tick().await?;
                        tick_at = Instant::now() + TICK;
                    }
                }
            }
        }
    }

    async fn open(&mut self) -> Result<(), TaskFailure> {
        let Self {
            task,
            control,
            settings,
            ..
        } = self;
        match call(
            || task.open(&settings.topics),
            control,
            FLUSH_RESERVE,
            || {},
        )
        .await
        {
            Ended::Returned(Ok(())) | Ended::CutOff => Ok(()),
            Ended::Returned(Err(error)) => Err(TaskFailure::new(chain(&error))),
            Ended::Panicked(text) => Err(TaskFailure::panicked(format!("open panicked: {text}"))),
        }
    }

    /// Told to stop: nothing new is acquired, what was fetched ahead is still put, for at most half
    /// of the budget.
    async fn drain(&mut self) -> Result<(), TaskFailure> {
        self.set_paused(true);
        let Control::Stop { deadline, budget } = *self.control.borrow() else {
            return Ok(());
        };
        while Instant::now() + budget / 2 < deadline {
            let Some(batch) = self.try_poll().await? else {
                break;
            };
            if self.round(batch).await? == Flow::GaveUp {
                break;
            }
        }
        Ok(())
    }

    /// Releases what was fetched ahead, then leaves the group.
    async fn leave(&mut self, deadline: Instant, budget: Duration) -> Result<(), SourceError> {
        self.set_paused(true);
        while let Ok(Some(batch)) = self.try_poll().await {
            let mut flight = self.take_in(batch);
            for run in flight.take_runs() {
                self.release(
                    &mut flight,
                    &run,
                    "the task ended before the record was put",
                );
            }
        }
        self.shared.metrics.records_active.set(0);
        let left = deadline
            .saturating_duration_since(Instant::now())
            .max(budget / 5);
        let closed = self.source.close(left).await;
        self.shared.publish(self.source.snapshot());
        closed
    }

    async fn stop_sink(&mut self, deadline: Instant, panicked: bool) {
        let left = deadline
            .saturating_duration_since(Instant::now())
            .max(STOP_MIN);
        let name = self.settings.name.clone();
        let Self { task, control, .. } = self;
        let work = async {
            if !panicked {
                let closed = call(|| task.close(), control, 0, || {}).await;
                log_end(&name, "close", closed);
            }
            let stopped = call(|| task.stop(), control, 0, || {}).await;
            log_end(&name, "stop", stopped);
        };
        if timeout(left, work).await.is_err() {
            tracing::warn!(task = name, "The sink did not stop in time.");
        }
    }

    /// Idle for a second: settles accounts with the broker, and lets the sink act by time.
    async fn tick(&mut self) -> Result<(), TaskFailure> {
        if self.settings.explicit && self.source.snapshot().acknowledgements_pending > 0 {
            self.source.commit().await?;
            self.shared.publish(self.source.snapshot());
        }
        let Self { task, control, .. } = self;
        match call(|| task.tick(), control, FLUSH_RESERVE, || {}).await {
            Ended::Returned(Ok(())) | Ended::CutOff => Ok(()),
            Ended::Returned(Err(error)) => Err(TaskFailure::new(chain(&error))),
            Ended::Panicked(text) => Err(TaskFailure::panicked(format!("tick panicked: {text}"))),
        }
    }

    /// In explicit mode, waits for the broker when too many answers are outstanding.
    async fn bound_acknowledgements(&mut self) -> Result<(), TaskFailure> {
        if self.settings.explicit && self.shared.acknowledgements_pending() > PENDING_MAX {
            self.source.commit().await?;
            self.shared.publish(self.source.snapshot());
        }
        Ok(())
    }

    /// A batch if one is there already.
    async fn try_poll(&mut self) -> Result<Option<S::Batch>, TaskFailure> {
        tokio::select! {
            biased;
            polled = self.source.poll() => Ok(polled?),
            () = std::future::ready(()) => Ok(None),
        }
    }

    fn take_in(&self, batch: S::Batch) -> Flight<S::Batch> {
        let flight = Flight::new(batch);
        self.shared.metrics.records_read.add(flight.unsettled());
        self.shared.metrics.records_active.add(flight.unsettled());
        flight
    }

    /// Pauses or resumes the source as told, and shows the state.
    fn follow_control(&mut self) {
        let control = *self.control.borrow_and_update();
        self.set_paused(self.failing || control != Control::Run);
        match control {
            Control::Run => self.shared.set_state(TaskState::Running),
            Control::Pause => self.shared.set_state(TaskState::Paused),
            Control::Stop { .. } => {}
        }
    }

    fn set_paused(&mut self, paused: bool) {
        if self.paused != paused {
            self.paused = paused;
            if paused {
                self.source.pause();
            } else {
                self.source.resume();
            }
        }
    }

    /// Told to stop, or left alone by a worker that is gone.
    fn stopping(&self) -> bool {
        matches!(*self.control.borrow(), Control::Stop { .. })
            || self.control.has_changed().is_err()
    }

    /// Shows how the source stands, unless that was done a moment ago.
    fn publish(&mut self) {
        if self.published_at.elapsed() >= PUBLISH_BUSY {
            self.shared.publish(self.source.snapshot());
            self.published_at = Instant::now();
        }
    }
}

fn log_end(task: &str, what: &str, ended: Ended<crate::error::TaskError>) {
    match ended {
        Ended::Returned(Ok(())) | Ended::CutOff => {}
        Ended::Returned(Err(error)) => {
            tracing::warn!(task, error = chain(&error), "The sink's {what} failed.");
        }
        Ended::Panicked(error) => tracing::warn!(task, error, "The sink's {what} panicked."),
    }
}

/// Numbers from 0 to 1 that differ between tasks (SplitMix64).
#[derive(Debug)]
struct Jitter(u64);

impl Jitter {
    fn random() -> Self {
        Self(RandomState::new().hash_one(0_u8))
    }

    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        f64::from((z >> 32) as u32) / f64::from(u32::MAX)
    }
}

/// Time between two ticks of an idle task.
const TICK: Duration = Duration::from_secs(1);
/// How fresh the status of an idle task is.
const PUBLISH_IDLE: Duration = Duration::from_millis(250);
/// How fresh the status of a busy task is.
const PUBLISH_BUSY: Duration = Duration::from_millis(100);
/// Acknowledgements outstanding above which explicit mode waits for the broker.
const PENDING_MAX: u64 = 20_000;
/// Fifths of the budget for stopping that a tick leaves free.
const FLUSH_RESERVE: u32 = 2;
/// Shortest time given to the sink to stop.
const STOP_MIN: Duration = Duration::from_millis(500);
