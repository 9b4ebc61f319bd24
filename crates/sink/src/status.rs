//! How a worker's connectors and tasks stand: what the progress line, the summary and (later) the
//! REST API show.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::metrics::{TaskMetrics, TaskMetricsSnapshot};
use crate::source::{SourceCounters, SourceSnapshot};

/// State of a task, in Kafka Connect's words.
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
    /// Ended by an error; [`TaskStatus::trace`] says which.
    Failed,
    /// Ended on request.
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
    /// Acknowledgements the broker has refused or that could not be sent.
    pub acknowledge_errors: u64,
    /// Records whose lock was lost while they were held.
    pub locks_lost: u64,
    /// Records written whose lock was lost before they could be accepted.
    pub duplicates_expected: u64,
    /// Records written whose acceptance the broker has refused, or never answered, or that could not be
    /// sent.
    pub accepts_unconfirmed: u64,
    /// Failed puts and flushes.
    pub put_failures: u64,
    /// Records named as lost.
    pub named_as_lost: u64,
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
            acknowledge_errors: source.acknowledge_errors,
            locks_lost: source.locks_lost,
            duplicates_expected: task.duplicates_expected,
            accepts_unconfirmed: source.accepts_unconfirmed,
            put_failures: task.put_failures,
            named_as_lost: task.named_as_lost,
        }
    }

    /// Records that were written and may arrive once more: their acceptance is not confirmed.
    #[must_use]
    pub const fn may_arrive_twice(&self) -> u64 {
        self.duplicates_expected
            .saturating_add(self.accepts_unconfirmed)
    }

    fn add(&mut self, other: &Self) {
        self.acquired += other.acquired;
        self.redelivered += other.redelivered;
        self.read += other.read;
        self.written += other.written;
        self.acknowledged += other.acknowledged;
        self.released += other.released;
        self.rejected += other.rejected;
        self.acknowledge_errors += other.acknowledge_errors;
        self.locks_lost += other.locks_lost;
        self.duplicates_expected += other.duplicates_expected;
        self.accepts_unconfirmed += other.accepts_unconfirmed;
        self.put_failures += other.put_failures;
        self.named_as_lost += other.named_as_lost;
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
    /// Why it failed.
    pub trace: Option<String>,
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
}

/// How a connector stands.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ConnectorStatus {
    /// Its name.
    pub name: String,
    /// Its sink: `connector.class` as configured.
    pub class: String,
    /// Its share group.
    pub group_id: String,
    /// The topics it reads.
    pub topics: Vec<String>,
    /// Its tasks, by number.
    pub tasks: Vec<TaskStatus>,
}

/// How a worker stands.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// Its connectors.
    pub connectors: Vec<ConnectorStatus>,
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

    /// The totals of all tasks.
    #[must_use]
    pub fn totals(&self) -> TaskCounters {
        let mut totals = TaskCounters::default();
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
    inner: Mutex<Inner>,
    /// Told of each change of state.
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Inner {
    state: TaskState,
    trace: Option<String>,
    note: Option<String>,
    source: SourceSnapshot,
}

impl TaskShared {
    pub(crate) fn new(index: u32, changes: watch::Sender<()>) -> Self {
        Self {
            index,
            metrics: TaskMetrics::default(),
            inner: Mutex::default(),
            changes,
        }
    }

    pub(crate) fn state(&self) -> TaskState {
        self.lock().state
    }

    /// Changes the state. An ended task stays ended.
    pub(crate) fn set_state(&self, state: TaskState) {
        let mut inner = self.lock();
        if inner.state == state || inner.state.has_ended() {
            return;
        }
        inner.state = state;
        drop(inner);
        self.changes.send_replace(());
    }

    pub(crate) fn fail(&self, trace: String) {
        let mut inner = self.lock();
        inner.note = None;
        inner.trace = Some(trace);
        drop(inner);
        self.set_state(TaskState::Failed);
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

    pub(crate) fn status(&self) -> TaskStatus {
        let metrics = self.metrics.snapshot();
        let inner = self.lock();
        let source = &inner.source;
        TaskStatus {
            index: self.index,
            state: inner.state,
            trace: inner.trace.clone(),
            note: inner.note.clone().or_else(|| source.problem.clone()),
            member_id: source.member_id.clone(),
            assignment: source.assignment.clone(),
            records_held: source.records_held,
            acknowledgements_pending: source.acknowledgements_pending,
            missing_topics: source.missing_topics.clone(),
            last_record_at: source.last_record_at,
            last_settled_at: source.last_settled_at,
            counters: TaskCounters::new(&metrics, &source.counters),
            metrics,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each write under the lock is whole, so a poisoned lock guards good data.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_task_stays_ended() {
        let shared = TaskShared::new(0, watch::Sender::new(()));
        shared.set_state(TaskState::Running);
        shared.fail("broken".to_owned());
        shared.set_state(TaskState::Stopped);
        let status = shared.status();
        assert_eq!(status.state, TaskState::Failed);
        assert_eq!(status.trace.as_deref(), Some("broken"));
        assert_eq!(status.state.to_string(), "FAILED");
    }
}
