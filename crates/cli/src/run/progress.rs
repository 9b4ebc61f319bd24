//! What is shown of a worker while it runs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use sharegroup_sink::worker::{TaskState, TaskStatus, Worker, WorkerStatus};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::number::{count, per_second, plural};
use crate::screen::Screen;
use crate::topics::{creation, missing};

/// How often the progress line is drawn.
const REDRAW_EVERY: Duration = Duration::from_millis(250);
/// How often numbers are logged where no line is drawn.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// The rate is that of the last seconds.
const RATE_OVER: Duration = Duration::from_secs(2);
/// What a task waits for at its start is said when it lasts longer than this.
const PATIENCE: Duration = Duration::from_secs(2);

/// Draws the progress line, logs what tasks wait for. Ends only by being dropped.
pub(crate) async fn show(worker: &Worker, screen: &Screen) -> Infallible {
    let start = Instant::now();
    let mut ticks = interval(REDRAW_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut rate = Rate::default();
    let mut waits = Waits::default();
    let mut logged = (start, 0);
    loop {
        ticks.tick().await;
        let status = worker.status();
        let now = Instant::now();
        let totals = status.totals();
        waits.log(&status, now);
        waits.advise(&status, worker);
        if screen.is_terminal() {
            screen.progress(&line(&status, rate.update(totals.written, now)));
        } else if now.duration_since(logged.0) >= LOG_EVERY {
            if totals.written != logged.1 {
                tracing::info!(
                    written = totals.written,
                    acknowledged = totals.acknowledged,
                    redelivered = totals.redelivered,
                    records_per_second = per_second(totals.written - logged.1, now - logged.0),
                    "Working."
                );
            }
            logged = (now, totals.written);
        }
    }
}

/// `2 tasks running; written 12, acknowledged 12, redelivered 0`
pub(super) fn counted(status: &WorkerStatus) -> String {
    let totals = status.totals();
    format!(
        "{}; written {}, acknowledged {}, redelivered {}",
        tasks(status),
        totals.written,
        totals.acknowledged,
        totals.redelivered
    )
}

/// `81,300 records/s · written 1,234,567 · …`
fn line(status: &WorkerStatus, records_per_second: u64) -> String {
    let totals = status.totals();
    let mut line = format!(
        "{} records/s · written {} · acknowledged {} · redelivered {} · {}",
        count(records_per_second),
        count(totals.written),
        count(totals.acknowledged),
        count(totals.redelivered),
        tasks(status),
    );
    if totals.may_arrive_twice() > 0 {
        let twice = count(totals.may_arrive_twice());
        line.push_str(&format!(" · {twice} may arrive twice"));
    }
    if let Some(note) = note(status) {
        line.push_str(" · ");
        line.push_str(&note);
    }
    line
}

/// `2 tasks running, 1 failed`
fn tasks(status: &WorkerStatus) -> String {
    let total = status.tasks().count() as u64;
    let states = [
        (TaskState::Running, "running"),
        (TaskState::Unassigned, "joining"),
        (TaskState::Paused, "paused"),
        (TaskState::Restarting, "restarting"),
        (TaskState::Failed, "failed"),
        (TaskState::Stopped, "stopped"),
    ];
    let states: Vec<_> = states
        .into_iter()
        .map(|(state, word)| (status.count(state), word))
        .filter(|(number, _)| *number > 0)
        .collect();
    match states.as_slice() {
        [(_, word)] => format!("{} {word}", plural(total, "task")),
        several => {
            let several = several
                .iter()
                .map(|(number, word)| format!("{number} {word}"));
            format!(
                "{}: {}",
                plural(total, "task"),
                several.collect::<Vec<_>>().join(", ")
            )
        }
    }
}

/// What the first task that waits waits for.
fn note(status: &WorkerStatus) -> Option<String> {
    let own = status.tasks().find_map(|task| match task.state {
        TaskState::Running if !task.missing_topics.is_empty() => Some(format!(
            "waiting for topic {}",
            task.missing_topics.join(", ")
        )),
        TaskState::Unassigned => task.note.clone(),
        TaskState::Running if task.counters.put_failures > 0 => task.note.clone(),
        _ => None,
    });
    let is_unassigned =
        |task: &TaskStatus| task.state == TaskState::Running && task.assignment.is_empty();
    own.or_else(|| {
        status
            .tasks()
            .all(is_unassigned)
            .then(|| "waiting for partitions".to_owned())
    })
}

/// Written records per second over the last moments.
#[derive(Debug, Default)]
struct Rate {
    samples: VecDeque<(Instant, u64)>,
}

impl Rate {
    fn update(&mut self, written: u64, now: Instant) -> u64 {
        self.samples.push_back((now, written));
        while self.samples.len() > 2
            && self
                .samples
                .get(1)
                .is_some_and(|(at, _)| now.duration_since(*at) >= RATE_OVER)
        {
            self.samples.pop_front();
        }
        let (at, before) = self.samples.front().copied().unwrap_or((now, written));
        per_second(written.saturating_sub(before), now.duration_since(at))
    }
}

/// Logs what tasks wait for before they run, once for each thing.
#[derive(Debug, Default)]
struct Waits {
    since: BTreeMap<String, (String, Instant, bool)>,
    /// Topics whose creation was advised.
    advised: BTreeSet<String>,
}

impl Waits {
    fn log(&mut self, status: &WorkerStatus, now: Instant) {
        for connector in &status.connectors {
            for task in &connector.tasks {
                let name = format!("{}-{}", connector.name, task.index);
                match waits_for(task) {
                    Some(note) => self.wait(name, note, now),
                    None => drop(self.since.remove(&name)),
                }
            }
        }
    }

    /// That a topic is missing is logged already; here is what to do about it.
    fn advise(&mut self, status: &WorkerStatus, worker: &Worker) {
        for connector in &status.connectors {
            let tasks = connector.tasks.iter();
            for topic in tasks.flat_map(|task| &task.missing_topics) {
                let configs = worker.connectors();
                let config = configs.iter().find(|config| config.name == connector.name);
                if let Some(config) = config
                    && self.advised.insert(topic.clone())
                {
                    let servers = &config.consumer.bootstrap_servers;
                    tracing::warn!("{}; {}.", missing(topic), creation(topic, servers));
                }
            }
        }
    }

    fn wait(&mut self, task: String, note: String, now: Instant) {
        let (known, since, said) = self
            .since
            .entry(task.clone())
            .or_insert_with(|| (note.clone(), now, false));
        if *known != note {
            (*known, *since, *said) = (note, now, false);
        }
        if !*said && now.duration_since(*since) >= PATIENCE {
            *said = true;
            tracing::warn!(task, "Not in the group yet: {known}.");
        }
    }
}

fn waits_for(task: &TaskStatus) -> Option<String> {
    task.note
        .clone()
        .filter(|_| task.state == TaskState::Unassigned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sharegroup_sink::worker::ConnectorStatus;

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let start = Instant::now();
        let mut rate = Rate::default();
        assert_eq!(rate.update(0, start), 0);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(rate.update(1_000, at(1)), 1_000);
        for second in 2..10 {
            rate.update(1_000, at(second));
        }
        assert_eq!(rate.update(1_000, at(10)), 0);
    }

    #[test]
    fn the_line_counts_tasks_by_state() {
        let mut connector = ConnectorStatus::default();
        for state in [TaskState::Running, TaskState::Failed, TaskState::Running] {
            let mut task = TaskStatus::default();
            task.state = state;
            task.counters.written = 1_000;
            task.note = Some("broken".to_owned());
            connector.tasks.push(task);
        }
        let mut status = WorkerStatus::default();
        status.connectors.push(connector);
        assert_eq!(
            line(&status, 5_000),
            "5,000 records/s · written 3,000 · acknowledged 0 · redelivered 0 · 3 tasks: 2 running, 1 failed"
        );
    }
}
