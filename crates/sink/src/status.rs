//! How a worker's connectors and tasks stand: what the progress line, the summary and (later) the
//! REST API show.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::RestartPolicy;
use crate::metrics::{Counter, TaskMetrics, TaskMetricsSnapshot};
use crate::source::{SourceCounters, SourceSnapshot};

/// State of a task, or of a connector, in Kafka Connect's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TaskState {
    /// Preparing: starting the sink, preparing and joining the group.
    #[default]
    Unassigned,
    /// At work.
    Running,
    /// Acquires nothing new, on request.
    Paused,
    /// Ended by an error, and to be started again after a pause (`task.restart.*`).
    Restarting,
    /// Ended by an error; [`TaskStatus::trace`] says which.
    Failed,
    /// Ended on request; a connector without tasks.
    Stopped,
}

impl TaskState {
    /// Whether the task has ended.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Failed | Self::Stopped)
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unassigned => "UNASSIGNED",
            Self::Running => "RUNNING",
            Self::Paused => "PAUSED",
            Self::Restarting => "RESTARTING",
            Self::Failed => "FAILED",
            Self::Stopped => "STOPPED",
        })
    }
}

/// A partition that is assigned to a task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionStatus {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
    /// Whether the partition's leader is known.
    pub leader_known: bool,
    /// Whether its leader has answered a fetch since it was assigned.
    pub fetch_answered: bool,
    /// Whether the last answered fetch acquired nothing.
    pub last_fetch_empty: bool,
    /// Records of it that are held now.
    pub records_held: u64,
}

/// Totals of a task, or of all tasks together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskCounters {
    /// Records acquired from the broker.
    pub acquired: u64,
    /// Of those, records on their second or a later delivery, as far as the broker counts: a delivery
    /// that ended with its session may not be counted.
    pub redelivered: u64,
    /// Records handed to the task loop.
    pub read: u64,
    /// Records put and flushed.
    pub written: u64,
    /// Records whose acceptance the broker has confirmed.
    pub acknowledged: u64,
    /// Records whose release the broker has confirmed.
    pub released: u64,
    /// Records whose rejection the broker has confirmed.
    pub rejected: u64,
    /// Records whose lock was renewed, each time.
    pub renewals: u64,
    /// Acknowledgements the broker has refused or that could not be sent.
    pub acknowledge_errors: u64,
    /// Records whose lock was lost while they were held.
    pub locks_lost: u64,
    /// Records written whose lock was lost before they could be accepted.
    pub duplicates_expected: u64,
    /// Records written whose acceptance the broker has refused, or never answered, or that could not be
    /// sent; [`duplicates_expected`](Self::duplicates_expected) among them.
    pub accepts_unconfirmed: u64,
    /// Records given up, or given back, that a put may have written: it was cut off, or panicked, or said
    /// that it didn't know.
    pub perhaps_written: u64,
    /// Failed puts and flushes.
    pub put_failures: u64,
    /// Records named as lost.
    pub named_as_lost: u64,
    /// Of those, records that the sink would not take and that were rejected without a dead letter, as
    /// `errors.tolerance=all` without a dead-letter topic has it.
    pub rejected_unkept: u64,
    /// Of those named, records that were rejected for the broker to keep in the group's dead-letter topic
    /// (`share.dead.letter=broker`): nobody confirms that it does.
    pub left_to_broker: u64,
    /// Dead letters of ours that were confirmed.
    pub dead_letters: u64,
}

impl TaskCounters {
    fn new(task: &TaskMetricsSnapshot, source: &SourceCounters) -> Self {
        Self {
            acquired: source.acquired,
            redelivered: source.redelivered,
            read: task.records_read,
            written: task.records_written,
            acknowledged: source.accepted,
            released: source.released,
            rejected: source.rejected,
            renewals: source.renewals,
            acknowledge_errors: source.acknowledge_errors,
            locks_lost: source.locks_lost,
            duplicates_expected: task.duplicates_expected,
            accepts_unconfirmed: source.accepts_unconfirmed,
            perhaps_written: task.perhaps_written,
            put_failures: task.put_failures,
            named_as_lost: task.named_as_lost,
            rejected_unkept: task.rejected_unkept,
            left_to_broker: task.left_to_broker,
            dead_letters: task.dead_letters.saturating_sub(task.dead_letter_failures),
        }
    }

    /// Records that were written, or may have been, and may arrive once more: their acceptance is not
    /// confirmed.
    #[must_use]
    pub const fn may_arrive_twice(&self) -> u64 {
        // What was written after its lock was lost is accepted all the same: it is among both.
        let unconfirmed = if self.duplicates_expected > self.accepts_unconfirmed {
            self.duplicates_expected
        } else {
            self.accepts_unconfirmed
        };
        unconfirmed + self.perhaps_written
    }

    /// Records that were given up though nobody has configured that, and no dead letter is to keep them.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        let as_configured = self.rejected_unkept + self.left_to_broker;
        self.named_as_lost.saturating_sub(as_configured)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.acquired += other.acquired;
        self.redelivered += other.redelivered;
        self.read += other.read;
        self.written += other.written;
        self.acknowledged += other.acknowledged;
        self.released += other.released;
        self.rejected += other.rejected;
        self.renewals += other.renewals;
        self.acknowledge_errors += other.acknowledge_errors;
        self.locks_lost += other.locks_lost;
        self.duplicates_expected += other.duplicates_expected;
        self.accepts_unconfirmed += other.accepts_unconfirmed;
        self.perhaps_written += other.perhaps_written;
        self.put_failures += other.put_failures;
        self.named_as_lost += other.named_as_lost;
        self.rejected_unkept += other.rejected_unkept;
        self.left_to_broker += other.left_to_broker;
        self.dead_letters += other.dead_letters;
    }
}

/// How a task stands. At most a quarter of a second old, unless the task's sink blocks its thread.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TaskStatus {
    /// Number of the task within its connector.
    pub index: u32,
    /// Its state.
    pub state: TaskState,
    /// Why it failed, if it has not run since.
    pub trace: Option<String>,
    /// How often it was started again after a failure.
    pub restarts: u64,
    /// What it waits for or struggles with.
    pub note: Option<String>,
    /// Its member id in the share group.
    pub member_id: Option<String>,
    /// The partitions assigned to it.
    pub assignment: Vec<PartitionStatus>,
    /// Records acquired and not settled.
    pub records_held: u64,
    /// Acknowledgements whose answer is outstanding.
    pub acknowledgements_pending: u64,
    /// Subscribed topics that don't exist.
    pub missing_topics: Vec<String>,
    /// When a record last arrived.
    pub last_record_at: Option<Instant>,
    /// When a record was last settled.
    pub last_settled_at: Option<Instant>,
    /// Totals.
    pub counters: TaskCounters,
    /// Counters under Kafka Connect's names.
    pub metrics: TaskMetricsSnapshot,
    /// For how long it has been at work, and paused, of how long it has been there.
    pub times: TaskTimes,
}

/// For how long a task was in its states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskTimes {
    /// Since its first start.
    pub total: Duration,
    /// RUNNING.
    pub running: Duration,
    /// PAUSED.
    pub paused: Duration,
}

/// How a connector stands.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ConnectorStatus {
    /// Its name.
    pub name: String,
    /// RUNNING, PAUSED, or STOPPED where it has no tasks. How its tasks fare changes nothing of it.
    pub state: TaskState,
    /// Its sink: `connector.class` as configured.
    pub class: String,
    /// Its share group.
    pub group_id: String,
    /// The topics it reads.
    pub topics: Vec<String>,
    /// Its tasks, by number.
    pub tasks: Vec<TaskStatus>,
    /// Totals of the tasks it had before: removed, or started again by hand.
    pub removed: TaskCounters,
    /// How many those are.
    pub tasks_destroyed: u64,
}

/// How a worker stands.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// Its connectors.
    pub connectors: Vec<ConnectorStatus>,
    /// Totals of connectors that were removed.
    pub removed: TaskCounters,
}

impl WorkerStatus {
    /// All tasks.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskStatus> {
        self.connectors
            .iter()
            .flat_map(|connector| &connector.tasks)
    }

    /// Number of tasks in a state.
    #[must_use]
    pub fn count(&self, state: TaskState) -> usize {
        self.tasks().filter(|task| task.state == state).count()
    }

    /// The failed tasks with their connectors.
    pub fn failed(&self) -> impl Iterator<Item = (&ConnectorStatus, &TaskStatus)> {
        self.connectors
            .iter()
            .flat_map(|connector| connector.tasks.iter().map(move |task| (connector, task)))
            .filter(|(_, task)| task.state == TaskState::Failed)
    }

    /// The totals of all tasks, those of removed ones among them.
    #[must_use]
    pub fn totals(&self) -> TaskCounters {
        let mut totals = self.removed;
        for connector in &self.connectors {
            totals.add(&connector.removed);
        }
        for task in self.tasks() {
            totals.add(&task.counters);
        }
        totals
    }

    /// When a record last arrived at any task.
    #[must_use]
    pub fn last_record_at(&self) -> Option<Instant> {
        self.tasks().filter_map(|task| task.last_record_at).max()
    }

    /// When a record of any task was last settled.
    #[must_use]
    pub fn last_settled_at(&self) -> Option<Instant> {
        self.tasks().filter_map(|task| task.last_settled_at).max()
    }
}

/// What a task shares with its worker.
#[derive(Debug)]
pub(crate) struct TaskShared {
    pub(crate) index: u32,
    pub(crate) metrics: TaskMetrics,
    restart: Option<RestartPolicy>,
    startups: Arc<Startups>,
    inner: Mutex<Inner>,
    /// Told of each change of state.
    changes: watch::Sender<()>,
}

/// How starts of tasks went, in the whole worker.
#[derive(Debug, Default)]
pub(crate) struct Startups {
    pub(crate) attempts: Counter,
    pub(crate) successes: Counter,
    pub(crate) failures: Counter,
}

#[derive(Debug)]
struct Inner {
    state: TaskState,
    /// Since when it is in that state.
    since: Instant,
    times: TaskTimes,
    trace: Option<String>,
    note: Option<String>,
    /// Restarts since it last ran well, and in all.
    restarts_in_a_row: u32,
    restarts: u64,
    source: SourceSnapshot,
    /// What the sources of earlier attempts have counted.
    before: SourceCounters,
}

impl Inner {
    fn enter(&mut self, state: TaskState) {
        let times = self.times();
        self.times = times;
        self.since = Instant::now();
        self.state = state;
    }

    fn times(&self) -> TaskTimes {
        let TaskTimes {
            mut total,
            mut running,
            mut paused,
        } = self.times;
        let here = self.since.elapsed();
        if !self.state.has_ended() {
            total += here;
        }
        match self.state {
            TaskState::Running => running += here,
            TaskState::Paused => paused += here,
            _ => {}
        }
        TaskTimes {
            total,
            running,
            paused,
        }
    }

    /// Whether a failure now is to be followed by another start.
    fn may_restart(&mut self, policy: &RestartPolicy) -> bool {
        let well = policy.backoff_max.max(RUNS_WELL_AFTER);
        if self.state == TaskState::Running && self.since.elapsed() >= well {
            self.restarts_in_a_row = 0;
        }
        self.restarts_in_a_row < policy.restarts_max
    }
}

/// A task that ran for so long, and for the longest pause between restarts, has recovered: its restarts are
/// counted anew.
const RUNS_WELL_AFTER: Duration = Duration::from_secs(60);

impl TaskShared {
    pub(crate) fn new(index: u32, changes: watch::Sender<()>) -> Self {
        Self {
            index,
            metrics: TaskMetrics::default(),
            restart: None,
            startups: Arc::default(),
            inner: Mutex::new(Inner {
                state: TaskState::Unassigned,
                since: Instant::now(),
                times: TaskTimes::default(),
                trace: None,
                note: None,
                restarts_in_a_row: 0,
                restarts: 0,
                source: SourceSnapshot::default(),
                before: SourceCounters::default(),
            }),
            changes,
        }
    }

    /// The same with restarts after failures.
    pub(crate) const fn restarting(mut self, policy: RestartPolicy) -> Self {
        self.restart = Some(policy);
        self
    }

    /// The same with its starts counted there.
    pub(crate) fn counted_by(mut self, startups: &Arc<Startups>) -> Self {
        self.startups = Arc::clone(startups);
        self
    }

    pub(crate) fn state(&self) -> TaskState {
        self.lock().state
    }

    /// An attempt begins.
    pub(crate) fn attempt(&self) {
        self.startups.attempts.add(1);
    }

    /// Changes the state. An ended task stays ended, one that failed waits for its restart.
    pub(crate) fn set_state(&self, state: TaskState) {
        let mut inner = self.lock();
        let is_over = inner.state.has_ended() || inner.state == TaskState::Restarting;
        if inner.state == state || is_over {
            return;
        }
        let works = matches!(state, TaskState::Running | TaskState::Paused);
        if works && inner.state == TaskState::Unassigned {
            self.startups.successes.add(1);
            inner.trace = None;
        }
        inner.enter(state);
        drop(inner);
        self.changes.send_replace(());
    }

    /// It has failed; it stays so, unless the policy has it started again.
    pub(crate) fn fail(&self, trace: String) {
        let mut inner = self.lock();
        // What fails behind the first failure, of another lane or while the task ends, is not its cause.
        if inner.state.has_ended() || inner.state == TaskState::Restarting {
            return;
        }
        inner.note = None;
        inner.trace = Some(trace);
        if inner.state == TaskState::Unassigned {
            self.startups.failures.add(1);
        }
        let restarts = self.restart.as_ref();
        let state = match restarts.is_some_and(|policy| inner.may_restart(policy)) {
            true => TaskState::Restarting,
            false => TaskState::Failed,
        };
        inner.enter(state);
        drop(inner);
        self.changes.send_replace(());
    }

    /// How long to wait before the task is started again; `None` = it isn't.
    pub(crate) fn restart_after(&self) -> Option<Duration> {
        let inner = self.lock();
        let policy = self.restart.as_ref()?;
        let doubled = 1_u32
            .checked_shl(inner.restarts_in_a_row)
            .unwrap_or(u32::MAX);
        let pause = policy.backoff.saturating_mul(doubled);
        (inner.state == TaskState::Restarting).then(|| pause.min(policy.backoff_max))
    }

    /// The pause is over: it begins anew, and goes on counting.
    pub(crate) fn begin_again(&self) {
        let mut inner = self.lock();
        inner.restarts_in_a_row += 1;
        inner.restarts += 1;
        inner.keep_counts();
        inner.enter(TaskState::Unassigned);
        self.metrics.begin_again();
        drop(inner);
        self.changes.send_replace(());
    }

    /// It has failed, whatever else it did, and is not started again by itself.
    pub(crate) fn fail_for_good(&self, why: &str) {
        self.fail_also(why, |state| state != TaskState::Stopped);
    }

    /// If it has failed and would be started again by itself, it is not. The answer: whether that was so.
    pub(crate) fn start_no_more(&self, why: &str) -> bool {
        self.fail_also(why, |state| state == TaskState::Restarting)
    }

    fn fail_also(&self, why: &str, is_such: impl Fn(TaskState) -> bool) -> bool {
        let mut inner = self.lock();
        if !is_such(inner.state) {
            return false;
        }
        inner.trace = Some(match inner.trace.take() {
            Some(trace) => format!("{trace}; {why}"),
            None => why.to_owned(),
        });
        inner.note = None;
        inner.enter(TaskState::Failed);
        drop(inner);
        self.changes.send_replace(());
        true
    }

    /// Told to stop while it waited for its restart: it stays as it was, failed.
    pub(crate) fn stay_failed(&self) {
        self.lock().enter(TaskState::Failed);
        self.changes.send_replace(());
    }

    pub(crate) fn set_note(&self, note: Option<String>) {
        self.lock().note = note;
    }

    pub(crate) fn publish(&self, source: SourceSnapshot) {
        self.lock().source = source;
    }

    pub(crate) fn acknowledgements_pending(&self) -> u64 {
        self.lock().source.acknowledgements_pending
    }

    pub(crate) fn counters(&self) -> TaskCounters {
        let inner = self.lock();
        TaskCounters::new(&self.metrics.snapshot(), &inner.counters())
    }

    pub(crate) fn status(&self) -> TaskStatus {
        let metrics = self.metrics.snapshot();
        let inner = self.lock();
        let source = &inner.source;
        TaskStatus {
            index: self.index,
            state: inner.state,
            trace: inner.trace.clone(),
            restarts: inner.restarts,
            note: inner.note.clone().or_else(|| source.problem.clone()),
            member_id: source.member_id.clone(),
            assignment: source.assignment.clone(),
            records_held: source.records_held,
            acknowledgements_pending: source.acknowledgements_pending,
            missing_topics: source.missing_topics.clone(),
            last_record_at: source.last_record_at,
            last_settled_at: source.last_settled_at,
            counters: TaskCounters::new(&metrics, &inner.counters()),
            metrics,
            times: inner.times(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each write under the lock is whole, so a poisoned lock guards good data.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn counters(&self) -> SourceCounters {
        let mut counters = self.before;
        counters.add(&self.source.counters);
        counters
    }

    /// Before another source takes the place of the one there was.
    fn keep_counts(&mut self) {
        self.before = self.counters();
        self.source = SourceSnapshot {
            last_record_at: self.source.last_record_at,
            last_settled_at: self.source.last_settled_at,
            ..SourceSnapshot::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> TaskShared {
        TaskShared::new(0, watch::Sender::new(()))
    }

    #[test]
    fn an_ended_task_stays_ended() {
        let shared = shared();
        shared.set_state(TaskState::Running);
        shared.fail("broken".to_owned());
        shared.set_state(TaskState::Stopped);
        let status = shared.status();
        assert_eq!(status.state, TaskState::Failed);
        assert_eq!(status.trace.as_deref(), Some("broken"));
        assert_eq!(status.state.to_string(), "FAILED");
    }

    #[tokio::test(start_paused = true)]
    async fn restarts_back_off_and_are_counted_anew_after_a_good_run() {
        let seconds = Duration::from_secs;
        let shared = shared().restarting(RestartPolicy {
            restarts_max: 3,
            backoff: seconds(1),
            backoff_max: seconds(3),
        });
        let fails = || {
            shared.set_state(TaskState::Running);
            shared.fail("broken".to_owned());
            let pause = shared.restart_after();
            if pause.is_some() {
                shared.begin_again();
            }
            pause.map(|pause| pause.as_secs())
        };
        assert_eq!([fails(), fails(), fails()], [Some(1), Some(2), Some(3)]);
        shared.set_state(TaskState::Running);
        tokio::time::advance(RUNS_WELL_AFTER).await;
        assert_eq!([fails(), fails(), fails()], [Some(1), Some(2), Some(3)]);
        assert_eq!(fails(), None);
        let status = shared.status();
        assert_eq!((status.state, status.restarts), (TaskState::Failed, 6));
    }

    #[test]
    fn the_first_cause_of_a_failure_stays_while_the_task_waits_for_its_restart() {
        let shared = shared().restarting(RestartPolicy {
            restarts_max: 1,
            backoff: Duration::ZERO,
            backoff_max: Duration::ZERO,
        });
        let trace = || shared.status().trace;
        shared.set_state(TaskState::Running);
        shared.fail("a put stalled".to_owned());
        shared.fail("another lane lost its locks".to_owned());
        assert_eq!(trace().as_deref(), Some("a put stalled"));
        shared.begin_again();
        shared.fail("the next failure".to_owned());
        assert_eq!(trace().as_deref(), Some("the next failure"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_begins_again_goes_on_counting() {
        let shared = shared().restarting(RestartPolicy {
            restarts_max: 1,
            backoff: Duration::ZERO,
            backoff_max: Duration::ZERO,
        });
        let counted = |acquired| SourceSnapshot {
            counters: SourceCounters {
                acquired,
                ..SourceCounters::default()
            },
            records_held: 4,
            ..SourceSnapshot::default()
        };
        shared.set_state(TaskState::Running);
        shared.publish(counted(7));
        shared.fail("broken".to_owned());
        shared.begin_again();
        assert_eq!(shared.status().records_held, 0);
        shared.publish(counted(5));
        assert_eq!(shared.status().counters.acquired, 12);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_in_each_state_is_known() {
        let shared = shared();
        let second = Duration::from_secs(1);
        for (state, seconds) in [
            (TaskState::Running, 3),
            (TaskState::Paused, 2),
            (TaskState::Stopped, 9),
        ] {
            tokio::time::advance(second).await;
            shared.set_state(state);
            tokio::time::advance(seconds * second).await;
        }
        let times = shared.status().times;
        // What lies between two states belongs to the earlier one.
        assert_eq!(times.total, 8 * second);
        assert_eq!(times.running, 4 * second);
        assert_eq!(times.paused, 3 * second);
    }
}
