//! The loop of one task: poll, put, flush, acknowledge.
//!
//! The task is one member of the share group. While it puts, the consumer fetches the next records
//! and renews locks by itself. Acknowledgements ride on those fetches; in explicit mode their
//! answers are awaited when too many are outstanding, when the task is idle, and at the end.
//!
//! What is acquired and not settled is held as flights, one a batch. A *turn* (`turn.rs`) puts what is
//! due of them: records that arrived, and records whose next try has come. Then every record that
//! failed is *judged* (`judge.rs`): it stays for another try, goes to the dead letters, or fails the
//! task. A record that fails keeps no other waiting; a target that is down is left alone, but for a
//! probe (`breaker.rs`).
//!
//! With `share.concurrency` a task has several *lanes* (`lanes.rs`): each is this loop with a sink of its own, over one
//! consumer (`hub.rs`) and one breaker (`common.rs`).

mod breaker;
mod call;
mod common;
mod failure;
mod flight;
mod give_back;
mod hub;
mod judge;
mod lanes;
mod letters;
mod locks;
mod settings;
mod stages;
mod stall;
mod telling;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

pub(crate) use self::call::{Control, Ended, call, panic_text, stopped};
pub(crate) use self::lanes::AtWork;
pub(crate) use self::letters::{
    Answers, CorruptRange, DeadLetters, Letter, LetterError, LetterOf, SharedLetters,
};
pub(crate) use self::settings::{ErrorLog, FailureSettings, TaskSettings};

use self::common::{Acquiring, Common};
use self::flight::Flight;
use self::give_back::{GivenBack, Left};
use self::judge::{Flow, HeldCorrupt};
use self::locks::lock_trouble;
use self::stall::{StallWatch, Watched};
use crate::connector::{DynSinkTask, TaskContext};
use crate::error::chain;
use crate::source::{Polled, PolledBy, RecordSource, SourceError};
use crate::status::{TaskShared, TaskState};

/// One task at work.
pub(crate) struct ShareSinkTask<S: RecordSource> {
    source: S,
    sink: Sink,
    control: watch::Receiver<Control>,
    shared: Arc<TaskShared>,
    settings: TaskSettings,
    /// What is acquired, handed to the task, and not settled.
    held: Vec<Flight<S::Batch>>,
    corrupt: Vec<HeldCorrupt<S::Corrupt>>,
    /// What it shares with the task's other lanes, and its number among them.
    common: Arc<Common>,
    lane: usize,
    watch: StallWatch,
    /// The place of the last record that was a probe.
    probed: (u64, usize),
    /// Turns so far, and when the last of them began.
    turns: u64,
    turn_began: Instant,
    /// Spread of the waits of this turn.
    spread: f64,
    /// Records that were written when a put was last cut off by its lock and its records given back.
    cut_off_at: u64,
    /// Records of a put whose lock can't be renewed, at most: half of what was cut off, then ever more.
    put_max: usize,
    /// Outages of the target that are over.
    outages_seen: u64,
    /// Whether its status tells of a record that failed.
    in_trouble: bool,
    /// Longest time a recent put with its flush took.
    put_time: Duration,
    jitter: Jitter,
    /// Topics that the sink's task was told of.
    opened: BTreeSet<Arc<str>>,
    /// The source failed in the middle of a turn; the task fails once the turn is over.
    failed_later: Option<TaskFailure>,
    published_at: Instant,
}

/// The sink's side of a task.
pub(crate) struct Sink {
    /// Writes records.
    pub(crate) task: Box<dyn DynSinkTask>,
    /// What it was started with.
    pub(crate) context: TaskContext,
    /// Takes what it won't write; none where `FailureSettings::set_aside` says nowhere.
    pub(crate) dead_letters: Option<Box<dyn DeadLetters>>,
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
    /// A task of one lane. Must be called within a tokio runtime.
    pub(crate) fn new(
        source: S,
        sink: Sink,
        control: watch::Receiver<Control>,
        shared: Arc<TaskShared>,
        settings: TaskSettings,
    ) -> Self {
        let common = Arc::new(Common::new(1, &settings.failures));
        Self::lane(source, sink, control, shared, settings, (common, 0))
    }

    /// One lane of a task, with its number among those that have this in common.
    fn lane(
        source: S,
        sink: Sink,
        control: watch::Receiver<Control>,
        shared: Arc<TaskShared>,
        settings: TaskSettings,
        (common, lane): (Arc<Common>, usize),
    ) -> Self {
        let watch = StallWatch::start(Watched {
            task: settings.name.clone(),
            shared: Arc::clone(&shared),
            renewals: source.renewal_stop(),
            stall: settings.failures.put_stall,
            common: Arc::clone(&common),
        });
        Self {
            source,
            sink,
            control,
            shared,
            held: Vec::new(),
            corrupt: Vec::new(),
            common,
            lane,
            watch,
            probed: (0, 0),
            turns: 0,
            turn_began: Instant::now(),
            spread: 0.0,
            cut_off_at: 0,
            put_max: usize::MAX,
            outages_seen: 0,
            in_trouble: false,
            put_time: Duration::ZERO,
            jitter: Jitter::random(),
            opened: BTreeSet::new(),
            failed_later: None,
            published_at: Instant::now(),
            settings,
        }
    }

    /// Works until the task is told to stop or fails; then releases what is held, leaves the group
    /// and stops the sink. The task's state tells how it ended.
    pub(crate) async fn run(self) {
        let shared = Arc::clone(&self.shared);
        let name = self.settings.name.clone();
        self.live().await.tell(&name, &shared);
    }

    /// The same, but for the state.
    async fn live(mut self) -> Left {
        let result = self.work().await;
        if let Err(failure) = &result {
            self.common.fail();
            let (task, error) = (&self.settings.name, &failure.text);
            if self.common.tells_failure() {
                tracing::error!(task, error, "The task failed; what it holds is released.");
            } else {
                tracing::debug!(task, error, "A lane of the failed task ended.");
            }
        }
        let (deadline, budget) = match *self.control.borrow() {
            Control::Stop { deadline, budget } => (deadline, budget),
            Control::Run | Control::Pause => {
                let budget = self.settings.shutdown_timeout;
                (Instant::now() + budget, budget)
            }
        };
        let (left, given_back) = self.leave(deadline, budget, result.as_ref().err()).await;
        let panicked = matches!(&result, Err(failure) if failure.panicked);
        self.stop_sink(deadline, panicked).await;
        let failure = match (result, left) {
            (Err(failure), _) => Some(failure.text),
            (Ok(()), Err(error)) => {
                if self.common.tells_failure() {
                    tracing::error!(task = self.settings.name, %error, "Leaving the group failed.");
                }
                Some(error.to_string())
            }
            (Ok(()), Ok(())) => None,
        };
        Left {
            failure,
            given_back,
        }
    }

    /// Turns until the task is told to stop.
    async fn work(&mut self) -> Result<(), TaskFailure> {
        self.open().await?;
        let mut tick_at = Instant::now() + TICK;
        loop {
            self.follow_control();
            self.begin_anew_after_outage();
            if self.stopping() {
                return self.drain().await;
            }
            if self.turn_at().is_some_and(|at| at <= Instant::now()) {
                if self.turn().await? == Flow::GaveUp && self.stopping() {
                    return Ok(());
                }
                self.bound_acknowledgements().await?;
                tick_at = Instant::now() + TICK;
                continue;
            }
            match self.next(tick_at).await? {
                Next::Look => {}
                Next::Ended => return Ok(()),
                Next::Judge => {
                    self.judge().await?;
                }
                Next::Arrived(polled) => {
                    self.arrived(polled);
                    self.open_new().await?;
                }
                Next::Wished => {
                    self.commit_if_wished().await?;
                    if let Some(wait) = self.sink.context.wishes().take_timeout() {
                        tick_at = tick_at.min(Instant::now() + wait);
                    }
                }
                Next::Tick => {
                    self.tick().await?;
                    tick_at = Instant::now() + TICK;
                }
            }
        }
    }

    /// Waits for something to do.
    async fn next(&mut self, tick_at: Instant) -> Result<Next<S>, TaskFailure> {
        let (takes, not_before) = {
            let mut common = self.common.lock();
            common.idle(self.lane, true);
            (common.takes(), common.breaker.not_before())
        };
        let judge_at = self.letters_at();
        let idle_at = self.published_at + PUBLISH_IDLE;
        let not_before = not_before.filter(|at| *at > Instant::now());
        let wake_at = [self.turn_at(), not_before, judge_at];
        let wake_at = wake_at.into_iter().flatten().fold(idle_at, Instant::min);
        let next = tokio::select! {
            biased;
            changed = self.control.changed() => match changed {
                Ok(()) => Next::Judge,
                Err(_) => Next::Ended,
            },
            () = self.sink.context.wishes().changed() => Next::Wished,
            () = lock_trouble(&self.held) => Next::Judge,
            polled = self.source.poll(), if takes => {
                let polled = polled?.ok_or_else(|| TaskFailure::new("the consumer was closed"))?;
                Next::Arrived(polled)
            }
            () = sleep_until(wake_at.min(tick_at)) => Next::Look,
        };
        self.common.lock().idle(self.lane, false);
        let now = Instant::now();
        if self.published_at + PUBLISH_IDLE <= now {
            self.shared.publish(self.source.snapshot());
            self.published_at = now;
        }
        Ok(match next {
            Next::Look if judge_at.is_some_and(|at| at <= now) => Next::Judge,
            Next::Look if tick_at <= now => Next::Tick,
            next => next,
        })
    }

    fn records_held(&self) -> usize {
        self.held.iter().map(Flight::unsettled).sum()
    }

    /// Tells the other lanes how much this one holds, and the metrics how much they all hold.
    fn show_held(&self) {
        let mut common = self.common.lock();
        common.hold(self.lane, self.records_held());
        let all = common.records_held() as u64;
        self.shared.metrics.records_active.set(all);
    }

    /// Takes in what was polled; a batch is put with the next turn.
    fn arrived(&mut self, polled: PolledBy<S>) {
        match polled {
            Polled::Batch(batch) => {
                let number = self.common.lock().next_flight();
                let flight = Flight::new(batch, number, &self.settings.chain);
                let records = flight.unsettled();
                self.shared.metrics.records_read.add(records);
                let mut common = self.common.lock();
                common.arrived(self.lane, records, flight.end());
                self.shared.metrics.records_active.add(records);
                drop(common);
                self.held.push(flight);
            }
            Polled::Corrupt(corrupt) => self.corrupt.push(HeldCorrupt::new(corrupt)),
        }
    }

    /// After the sink has asked for it, sends all acknowledgements and awaits the answers.
    async fn commit_if_wished(&mut self) -> Result<(), TaskFailure> {
        if self.sink.context.wishes().take_commit() {
            self.commit().await?;
        }
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), TaskFailure> {
        let began = Instant::now();
        let committed = self.source.commit().await;
        let metrics = &self.shared.metrics;
        metrics.commit_time.observe(began.elapsed());
        if committed.is_err() {
            metrics.commit_failures.add(1);
        }
        Ok(committed?)
    }

    /// Before the first put, with the topics that are known.
    async fn open(&mut self) -> Result<(), TaskFailure> {
        let matching = self.source.topics();
        let topics = match matching.is_empty() {
            true => self.settings.topics.clone(),
            false => matching,
        };
        self.open_topics(topics).await
    }

    /// Before the first put of a topic that came later.
    async fn open_new(&mut self) -> Result<(), TaskFailure> {
        let of_last = self.held.last().map(|flight| Arc::clone(flight.end().0));
        match of_last.filter(|topic| !self.opened.contains(topic)) {
            Some(topic) => self.open_topics(vec![topic]).await,
            None => Ok(()),
        }
    }

    async fn open_topics(&mut self, topics: Vec<Arc<str>>) -> Result<(), TaskFailure> {
        let Self { sink, control, .. } = self;
        let opened = call(|| sink.task.open(&topics), control, FLUSH_RESERVE, || {}).await;
        self.opened.extend(topics);
        match opened {
            Ended::Returned(Ok(())) | Ended::CutOff => Ok(()),
            Ended::Returned(Err(error)) => Err(TaskFailure::new(chain(&error))),
            Ended::Panicked(text) => Err(TaskFailure::panicked(format!("open panicked: {text}"))),
        }
    }

    /// Told to stop: nothing new is acquired, what was fetched ahead is still put, for at most half
    /// of the budget; what failed before is given back.
    async fn drain(&mut self) -> Result<(), TaskFailure> {
        self.pause();
        let Control::Stop { deadline, budget } = *self.control.borrow() else {
            return Ok(());
        };
        let mut flow = self.judge().await?;
        while flow == Flow::Done && Instant::now() + budget / 2 < deadline {
            if self.common.lock().breaker.is_open() {
                break;
            }
            if self.held.is_empty() {
                let Some(polled) = self.try_poll().await? else {
                    break;
                };
                self.arrived(polled);
                self.open_new().await?;
            }
            flow = self.turn().await?;
        }
        Ok(())
    }

    /// Releases what is held and what was fetched ahead, then leaves the group.
    async fn leave(
        &mut self,
        deadline: Instant,
        budget: Duration,
        failure: Option<&TaskFailure>,
    ) -> (Result<(), SourceError>, GivenBack) {
        self.acquire(Acquiring::NothingAnyMore);
        while let Ok(Some(polled)) = self.try_poll().await {
            self.arrived(polled);
        }
        let until = (deadline - budget / 5).max(Instant::now() + budget / 10);
        let given_back = self.give_back(failure, until).await;
        self.show_held();
        let left = deadline
            .saturating_duration_since(Instant::now())
            .max(budget / 5);
        let closed = self.source.close(left).await;
        self.shared.publish(self.source.snapshot());
        (closed, given_back)
    }

    async fn stop_sink(&mut self, deadline: Instant, panicked: bool) {
        let left = deadline
            .saturating_duration_since(Instant::now())
            .max(STOP_MIN);
        let name = self.settings.name.clone();
        let Self { sink, control, .. } = self;
        let task = &mut sink.task;
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
            self.commit().await?;
            self.shared.publish(self.source.snapshot());
        }
        let Self { sink, control, .. } = self;
        match call(|| sink.task.tick(), control, FLUSH_RESERVE, || {}).await {
            Ended::Returned(Ok(())) | Ended::CutOff => Ok(()),
            Ended::Returned(Err(error)) => Err(TaskFailure::new(chain(&error))),
            Ended::Panicked(text) => Err(TaskFailure::panicked(format!("tick panicked: {text}"))),
        }
    }

    /// In explicit mode, waits for the broker when too many answers are outstanding.
    async fn bound_acknowledgements(&mut self) -> Result<(), TaskFailure> {
        if self.settings.explicit && self.shared.acknowledgements_pending() > PENDING_MAX {
            self.commit().await?;
            self.shared.publish(self.source.snapshot());
        }
        Ok(())
    }

    /// What is there already.
    async fn try_poll(&mut self) -> Result<Option<PolledBy<S>>, TaskFailure> {
        tokio::select! {
            biased;
            polled = self.source.poll() => Ok(polled?),
            () = std::future::ready(()) => Ok(None),
        }
    }

    /// Pauses or resumes the source as told, and shows the state.
    fn follow_control(&mut self) {
        let is_paused = self.sink.context.wishes().is_paused();
        let mut common = self.common.lock();
        let control = *self.control.borrow_and_update();
        let wanted = common.wanted(self.lane, is_paused, control);
        common.acquire(wanted, &mut self.source);
        drop(common);
        match control {
            Control::Run => self.shared.set_state(TaskState::Running),
            Control::Pause => self.shared.set_state(TaskState::Paused),
            Control::Stop { .. } => {}
        }
    }

    fn pause(&mut self) {
        self.acquire(Acquiring::Nothing);
    }

    fn acquire(&mut self, acquiring: Acquiring) {
        let mut common = self.common.lock();
        common.acquire(acquiring, &mut self.source);
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

/// What a task does next.
enum Next<S: RecordSource> {
    /// It looks whether something is due.
    Look,
    /// It has been left alone.
    Ended,
    /// Something has changed for what it holds.
    Judge,
    /// It has new records.
    Arrived(PolledBy<S>),
    /// The sink wants something.
    Wished,
    /// It is idle.
    Tick,
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
