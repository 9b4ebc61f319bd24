//! When a worker is idle: the rule of `--exit-when-idle`, as functions of what is known.
//!
//! Three steps, each only when the one before holds:
//! 1. [`joined`]: each connector's living tasks have joined, at least one partition is assigned to them, and the leader
//!    of each assigned partition has answered a fetch. A single task may have none, since a group may have more members
//!    than its topics have partitions; a whole connector without any waits, since an assignment comes a second or more
//!    after the join.
//! 2. [`settled`]: nothing is held and every acknowledgement has its outcome. (That nothing arrived for the time asked
//!    is watched beside it.)
//! 3. [`drained`]: the group has no lag on any partition of the connector's topics, whichever process reads it.
//!
//! A connector whose tasks have all ended waits for nothing.

use std::fmt;
use std::sync::Arc;

use sharegroup_sink::worker::{ConnectorStatus, TaskState, TaskStatus};

use crate::number;

/// What the rule looks at in one connector: its living tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Connector {
    pub(crate) name: String,
    pub(crate) tasks: Vec<Task>,
}

/// A living task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) is_joining: bool,
    pub(crate) missing_topics: Vec<String>,
    pub(crate) assignment: Vec<Partition>,
    pub(crate) records_held: u64,
    pub(crate) acknowledgements_pending: u64,
}

/// A partition that is assigned to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) fetch_answered: bool,
    pub(crate) last_fetch_empty: bool,
    pub(crate) records_held: u64,
}

impl Connector {
    /// Of a status; ended tasks are left out.
    pub(crate) fn new(status: &ConnectorStatus) -> Self {
        let living = status.tasks.iter().filter(|task| !task.state.has_ended());
        Self {
            name: status.name.clone(),
            tasks: living.map(Task::new).collect(),
        }
    }

    fn assignment(&self) -> impl Iterator<Item = &Partition> {
        self.tasks.iter().flat_map(|task| &task.assignment)
    }
}

impl Task {
    fn new(status: &TaskStatus) -> Self {
        let partitions = status.assignment.iter().map(|partition| Partition {
            topic: Arc::clone(&partition.topic),
            partition: partition.partition,
            fetch_answered: partition.fetch_answered,
            last_fetch_empty: partition.last_fetch_empty,
            records_held: partition.records_held,
        });
        Self {
            is_joining: matches!(status.state, TaskState::Unassigned | TaskState::Restarting),
            missing_topics: status.missing_topics.clone(),
            assignment: partitions.collect(),
            records_held: status.records_held,
            acknowledgements_pending: status.acknowledgements_pending,
        }
    }
}

/// What a worker that isn't idle waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Tasks that are not members yet.
    Joining { tasks: usize },
    /// Topics that don't exist.
    TopicsMissing { topics: Vec<String> },
    /// No partition is assigned to any task.
    NothingAssigned,
    /// A leader that has not answered a fetch since the partition was assigned.
    FetchUnanswered { partition: String },
    /// Less than the time asked has passed since the tasks joined, without a record.
    JustJoined,
    /// Records came within the time asked.
    RecordsArriving,
    /// Records that are not settled.
    RecordsHeld { records: u64 },
    /// Acknowledgements without an outcome.
    Acknowledgements { records: u64 },
    /// Records of the group that nobody has settled.
    Lag { partition: String, records: i64 },
    /// A partition whose lag the broker doesn't know, and about which nothing else is certain.
    LagUnknown { partition: String },
    /// Nobody answers what the lag is.
    LagUnreadable { error: String },
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joining { tasks } => {
                write!(
                    f,
                    "{} not in the group yet",
                    number::plural(*tasks as u64, "task")
                )
            }
            Self::TopicsMissing { topics } => {
                write!(f, "missing topics: {}", topics.join(", "))
            }
            Self::NothingAssigned => f.write_str("no partition is assigned yet"),
            Self::FetchUnanswered { partition } => {
                write!(f, "the leader of {partition} has not answered a fetch yet")
            }
            Self::JustJoined => f.write_str(
                "the tasks have had partitions for less than --exit-when-idle, and no record came",
            ),
            Self::RecordsArriving => f.write_str("records came less than --exit-when-idle ago"),
            Self::RecordsHeld { records } => {
                write!(f, "{} not settled yet", number::plural(*records, "record"))
            }
            Self::Acknowledgements { records } => write!(
                f,
                "{} not confirmed yet",
                number::plural(*records, "acknowledgement")
            ),
            Self::Lag { partition, records } => {
                write!(f, "the group has a lag of {records} on {partition}")
            }
            Self::LagUnknown { partition } => {
                write!(f, "the group's lag on {partition} is unknown")
            }
            Self::LagUnreadable { error } => write!(f, "the group's lag can't be read: {error}"),
        }
    }
}

/// Step 1 for a connector with living tasks.
pub(crate) fn joined(connector: &Connector) -> Result<(), Waiting> {
    let tasks = connector
        .tasks
        .iter()
        .filter(|task| task.is_joining)
        .count();
    if tasks > 0 {
        return Err(Waiting::Joining { tasks });
    }
    let missing = connector.tasks.iter().flat_map(|task| &task.missing_topics);
    let mut topics: Vec<_> = missing.cloned().collect();
    topics.sort();
    topics.dedup();
    if !topics.is_empty() {
        return Err(Waiting::TopicsMissing { topics });
    }
    if connector.assignment().next().is_none() {
        return Err(Waiting::NothingAssigned);
    }
    match connector
        .assignment()
        .find(|partition| !partition.fetch_answered)
    {
        Some(partition) => Err(Waiting::FetchUnanswered {
            partition: format!("{}-{}", partition.topic, partition.partition),
        }),
        None => Ok(()),
    }
}

/// Step 2 for a connector with living tasks.
pub(crate) fn settled(connector: &Connector) -> Result<(), Waiting> {
    let tasks = &connector.tasks;
    let records = tasks.iter().map(|task| task.records_held).sum();
    if records > 0 {
        return Err(Waiting::RecordsHeld { records });
    }
    let records = tasks.iter().map(|task| task.acknowledgements_pending).sum();
    if records > 0 {
        return Err(Waiting::Acknowledgements { records });
    }
    Ok(())
}

/// What the cluster says about one partition and a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionLag {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    /// Records not settled; `None` = unknown.
    pub(crate) lag: Option<i64>,
    /// First offset not settled; `None` = the group has none there.
    pub(crate) start_offset: Option<i64>,
    /// Where the log begins and ends; only asked for where the lag is unknown.
    pub(crate) log: Option<(i64, i64)>,
}

/// Step 3 for a connector with living tasks. `lags` are all partitions of its topics.
pub(crate) fn drained(connector: &Connector, lags: &[PartitionLag]) -> Result<(), Waiting> {
    for lag in lags {
        let partition = || format!("{}-{}", lag.topic, lag.partition);
        match lag.lag {
            Some(records) if records > 0 => {
                return Err(Waiting::Lag {
                    partition: partition(),
                    records,
                });
            }
            Some(_) => {}
            None if is_drained_without_lag(connector, lag) => {}
            None => {
                return Err(Waiting::LagUnknown {
                    partition: partition(),
                });
            }
        }
    }
    Ok(())
}

/// A partition without a known lag (nothing acknowledged there yet, or a 4.1 broker) is drained when its log is empty,
/// when the group's start offset stands at its end, or when the last fetch that its leader answered acquired nothing and
/// nothing of it is held.
fn is_drained_without_lag(connector: &Connector, lag: &PartitionLag) -> bool {
    let all_settled = lag.log.is_some_and(|(earliest, latest)| {
        earliest >= latest || lag.start_offset.is_some_and(|start| start >= latest)
    });
    let here = |partition: &&Partition| {
        *partition.topic == *lag.topic && partition.partition == lag.partition
    };
    // Several tasks may share a partition: none may hold any of it.
    let mut views = connector.assignment().filter(here).peekable();
    all_settled
        || (views.peek().is_some()
            && views.all(|partition| partition.last_fetch_empty && partition.records_held == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(partition: i32) -> Partition {
        Partition {
            topic: Arc::from("t"),
            partition,
            fetch_answered: true,
            last_fetch_empty: true,
            records_held: 0,
        }
    }

    fn task(assignment: Vec<Partition>) -> Task {
        Task {
            assignment,
            ..Task::default()
        }
    }

    fn connector(tasks: Vec<Task>) -> Connector {
        Connector {
            name: "c".to_owned(),
            tasks,
        }
    }

    #[test]
    fn joined_once_something_is_assigned_and_every_leader_has_answered() {
        let joining = Task {
            is_joining: true,
            ..Task::default()
        };
        let missing = Task {
            missing_topics: vec!["u".to_owned()],
            ..task(vec![partition(0)])
        };
        let unanswered = Partition {
            fetch_answered: false,
            ..partition(1)
        };
        for (tasks, expected) in [
            (
                vec![joining, task(vec![partition(0)])],
                Err(Waiting::Joining { tasks: 1 }),
            ),
            (
                vec![missing],
                Err(Waiting::TopicsMissing {
                    topics: vec!["u".to_owned()],
                }),
            ),
            (
                vec![task(vec![]), task(vec![])],
                Err(Waiting::NothingAssigned),
            ),
            (
                vec![task(vec![partition(0)]), task(vec![unanswered])],
                Err(Waiting::FetchUnanswered {
                    partition: "t-1".to_owned(),
                }),
            ),
            // More members than partitions.
            (vec![task(vec![partition(0)]), task(vec![])], Ok(())),
            (vec![task(vec![partition(0), partition(1)])], Ok(())),
        ] {
            assert_eq!(joined(&connector(tasks.clone())), expected, "{tasks:?}");
        }
    }

    #[test]
    fn settled_once_nothing_is_held_and_every_acknowledgement_is_confirmed() {
        let held = Task {
            records_held: 3,
            ..Task::default()
        };
        let pending = Task {
            acknowledgements_pending: 2,
            ..Task::default()
        };
        let of = |tasks| settled(&connector(tasks));
        assert_eq!(
            of(vec![held.clone(), held]),
            Err(Waiting::RecordsHeld { records: 6 })
        );
        assert_eq!(
            of(vec![pending]),
            Err(Waiting::Acknowledgements { records: 2 })
        );
        assert_eq!(of(vec![Task::default()]), Ok(()));
    }

    #[test]
    fn drained_by_lag_or_else_by_log_start_offset_or_an_empty_fetch() {
        let busy = Partition {
            last_fetch_empty: false,
            ..partition(0)
        };
        let holding = Partition {
            records_held: 1,
            ..partition(0)
        };
        let here = || vec![task(vec![partition(0)])];
        let elsewhere = || vec![task(vec![partition(1)])];
        // lag, start offset, log, tasks, whether drained
        for (lag, start, log, tasks, expected) in [
            (Some(0), Some(5), None, here(), true),
            (Some(0), Some(5), None, elsewhere(), true),
            (Some(1), Some(5), None, here(), false),
            (Some(1), Some(5), None, elsewhere(), false),
            (None, None, Some((0, 0)), elsewhere(), true),
            (None, None, Some((7, 7)), elsewhere(), true),
            (None, None, Some((0, 9)), elsewhere(), false),
            (None, Some(9), Some((0, 9)), elsewhere(), true),
            (None, Some(8), Some((0, 9)), elsewhere(), false),
            (None, None, Some((0, 9)), here(), true),
            (
                None,
                None,
                Some((0, 9)),
                vec![task(vec![busy.clone()])],
                false,
            ),
            (
                None,
                None,
                Some((0, 9)),
                vec![task(vec![holding.clone()])],
                false,
            ),
            (
                None,
                None,
                Some((0, 9)),
                vec![task(vec![partition(0)]), task(vec![holding])],
                false,
            ),
            (None, None, Some((0, 0)), vec![task(vec![busy])], true),
            (None, None, None, here(), true),
            (None, None, None, elsewhere(), false),
        ] {
            let lag = PartitionLag {
                topic: "t".to_owned(),
                partition: 0,
                lag,
                start_offset: start,
                log,
            };
            let outcome = drained(&connector(tasks.clone()), std::slice::from_ref(&lag));
            assert_eq!(outcome.is_ok(), expected, "{lag:?} {tasks:?}");
        }
    }

    #[test]
    fn what_is_waited_for_names_the_partition() {
        let lag = PartitionLag {
            topic: "t".to_owned(),
            partition: 3,
            lag: Some(12),
            start_offset: None,
            log: None,
        };
        let waiting = drained(&Connector::default(), &[lag]).unwrap_err();
        assert_eq!(waiting.to_string(), "the group has a lag of 12 on t-3");
    }
}
