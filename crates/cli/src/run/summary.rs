//! What is said at the end of a run.

use std::collections::BTreeMap;

use sharegroup_sink::worker::TaskState;

use super::{Ended, Ending};
use crate::duration;
use crate::number::{count, plural};
use crate::screen::Screen;

/// Says why it ended, what was done, and which tasks failed: on a terminal for people, else in the log.
pub(crate) fn show(ended: &Ended, screen: &Screen) {
    let totals = ended.status.totals();
    if screen.is_terminal() {
        for trouble in troubles(ended) {
            screen.error(&trouble);
        }
        screen.line(&table(ended, screen));
        return;
    }
    for trouble in troubles(ended) {
        tracing::error!("{trouble}.");
    }
    tracing::info!(
        ending = word(&ended.ending),
        written = totals.written,
        acknowledged = totals.acknowledged,
        redelivered = totals.redelivered,
        released = totals.released,
        rejected = totals.rejected,
        may_arrive_twice = totals.may_arrive_twice(),
        outcome_unknown = outcome_unknown(ended),
        dead_letters = totals.dead_letters,
        left_to_broker = totals.left_to_broker,
        rejected_unkept = totals.rejected_unkept,
        named_as_lost = totals.named_as_lost,
        tasks = ended.status.tasks().count(),
        tasks_failed = ended.status.count(TaskState::Failed),
        seconds = format!("{:.1}", ended.time.as_secs_f64()),
        records_per_second = ended.records_per_second(),
        "Ended."
    );
}

/// What made it end with another code than 0.
fn troubles(ended: &Ended) -> Vec<String> {
    let mut troubles = Vec::new();
    // Tasks often fail together, for the same reason.
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (connector, task) in ended.status.failed() {
        let reason = task.trace.as_deref().unwrap_or("for no known reason");
        let name = format!("{}-{}", connector.name, task.index);
        reasons.entry(reason).or_default().push(name);
    }
    for (reason, tasks) in reasons {
        let s = if tasks.len() == 1 { "" } else { "s" };
        troubles.push(format!("task{s} {} failed: {reason}", tasks.join(", ")));
    }
    for task in &ended.late {
        troubles.push(format!(
            "task {task} did not stop in time; what it holds is delivered again when its locks end"
        ));
    }
    let lost = ended.status.totals().lost();
    if lost > 0 {
        let records = plural(lost, "record");
        troubles.push(format!(
            "{records} not written and given up: named in the log, and in share.loss.file where it is set"
        ));
    }
    if let Ending::Stuck(waiting) = &ended.ending {
        for (connector, waiting) in waiting {
            troubles.push(format!(
                "{connector} is not idle, and nothing moved for --exit-when-idle-max: {waiting}"
            ));
        }
    }
    troubles
}

const fn word(ending: &Ending) -> &'static str {
    match ending {
        Ending::Idle => "idle",
        Ending::Stuck(_) => "not idle in time",
        Ending::AllFailed => "all tasks failed",
        Ending::Stopped(_) => "stopped",
    }
}

fn sentence(ended: &Ended) -> String {
    let failed = ended.status.count(TaskState::Failed) as u64;
    let others = if failed > 0 {
        format!("; {} failed", plural(failed, "task"))
    } else {
        String::new()
    };
    match ended.ending {
        Ending::Idle if ended.status.totals().lost() > 0 => {
            format!("Idle, but records were lost{others}")
        }
        Ending::Idle => match set_aside(ended) {
            Some(records) => format!("Idle: {records}, all others written{others}"),
            None => format!("Idle: everything is written and acknowledged{others}"),
        },
        Ending::Stuck(_) => format!("Not idle, but nothing moves any more{others}"),
        Ending::AllFailed => "Every task has failed".to_owned(),
        Ending::Stopped(sign) if !ended.has_begun() => {
            format!("Stopped by {} before the work began{others}", sign.name())
        }
        Ending::Stopped(sign) => format!("Stopped by {}{others}", sign.name()),
    }
}

/// What became of records that were not written, as it is configured.
fn set_aside(ended: &Ended) -> Option<String> {
    let totals = ended.status.totals();
    let kinds = [
        (totals.dead_letters, "in dead letters"),
        (totals.left_to_broker, "left to the broker's dead letters"),
        (totals.rejected_unkept, "rejected and kept nowhere"),
    ];
    let kinds = kinds.into_iter().filter(|(records, _)| *records > 0);
    let kinds: Vec<_> = kinds
        .map(|(records, where_to)| format!("{} {where_to}", plural(records, "record")))
        .collect();
    (!kinds.is_empty()).then(|| kinds.join(", "))
}

fn table(ended: &Ended, screen: &Screen) -> String {
    let sentence = sentence(ended);
    let head = match ended.exit().code() {
        0 => screen.green(&sentence),
        _ => screen.red(&sentence),
    };
    let mut text = format!(
        "{head} after {} ({} records/s).\n",
        duration::show(ended.time),
        count(ended.records_per_second())
    );
    text.push_str(&counts(ended));
    text.trim_end().to_owned()
}

/// Records that the sinks of late tasks have in hand: written or not, nobody has heard.
fn outcome_unknown(ended: &Ended) -> u64 {
    let is_late = |connector: &str, index: u32| {
        let name = format!("{connector}-{index}");
        ended.late.contains(&name)
    };
    let connectors = ended.status.connectors.iter();
    let late = connectors.flat_map(|connector| {
        let tasks = connector.tasks.iter();
        tasks.filter(move |task| is_late(&connector.name, task.index))
    });
    late.map(|task| task.metrics.records_active).sum()
}

/// One line per number that says something.
fn counts(ended: &Ended) -> String {
    let totals = ended.status.totals();
    let always = [
        ("written", totals.written),
        ("acknowledged", totals.acknowledged),
        ("redelivered", totals.redelivered),
    ];
    let sometimes = [
        ("released", totals.released),
        ("rejected", totals.rejected),
        ("may arrive twice", totals.may_arrive_twice()),
        ("outcome unknown", outcome_unknown(ended)),
        ("acknowledgement errors", totals.acknowledge_errors),
        ("dead letters", totals.dead_letters),
        ("left to the broker", totals.left_to_broker),
        ("rejected, not kept", totals.rejected_unkept),
        ("named as lost", totals.named_as_lost),
    ];
    let shown = always
        .into_iter()
        .chain(sometimes.into_iter().filter(|(_, number)| *number > 0));
    shown
        .map(|(name, number)| format!("  {name:<22} {:>13}\n", count(number)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sharegroup_sink::worker::{ConnectorStatus, TaskStatus, WorkerStatus};

    use super::*;
    use crate::exit::Exit;
    use crate::run::Waiting;
    use crate::signals::Sign;

    fn ended(ending: Ending, states: &[TaskState], late: &[&str]) -> Ended {
        let mut connector = ConnectorStatus::default();
        for state in states {
            let mut task = TaskStatus::default();
            task.state = *state;
            task.member_id = Some("m".to_owned());
            connector.tasks.push(task);
        }
        let mut status = WorkerStatus::default();
        status.connectors.push(connector);
        Ended {
            ending,
            status,
            time: Duration::from_secs(1),
            unconfirmed: 0,
            late: late.iter().map(|task| (*task).to_owned()).collect(),
        }
    }

    #[test]
    fn what_a_stuck_sink_has_in_hand_is_not_claimed_either_way() {
        let mut ended = ended(
            Ending::Stopped(Sign::Terminate),
            &[TaskState::Running, TaskState::Stopped],
            &["out-0"],
        );
        let connector = &mut ended.status.connectors[0];
        connector.name = "out".to_owned();
        connector.tasks[1].index = 1;
        for task in &mut connector.tasks {
            task.metrics.records_active = 20;
            task.counters.duplicates_expected = 1;
            task.counters.accepts_unconfirmed = 2;
        }
        let text = counts(&ended);
        assert!(
            text.contains("outcome unknown                   20"),
            "{text}"
        );
        assert!(
            text.contains("may arrive twice                   4"),
            "{text}"
        );
    }

    #[test]
    fn exit_code_tells_how_it_ended() {
        let stuck = || Ending::Stuck(vec![("c".to_owned(), Waiting::NothingAssigned)]);
        let stopped = || Ending::Stopped(Sign::Terminate);
        let (ran, failed) = (TaskState::Stopped, TaskState::Failed);
        for (ending, states, late, exit) in [
            (Ending::Idle, vec![ran, ran], vec![], Exit::Done),
            (Ending::Idle, vec![ran, failed], vec![], Exit::Failed),
            (stuck(), vec![ran], vec![], Exit::IdleMax),
            (stuck(), vec![ran, failed], vec![], Exit::Failed),
            (Ending::AllFailed, vec![failed], vec![], Exit::Failed),
            (stopped(), vec![ran], vec![], Exit::Done),
            (stopped(), vec![ran], vec!["c-0"], Exit::Failed),
            (stopped(), vec![failed, ran], vec![], Exit::Failed),
        ] {
            let ended = ended(ending, &states, &late);
            assert_eq!(ended.exit(), exit, "{ended:?}");
        }
    }

    #[test]
    fn a_signal_before_any_task_was_in_its_group_cuts_off() {
        let sign = Sign::Interrupt;
        let mut ended = ended(Ending::Stopped(sign), &[TaskState::Stopped; 2], &[]);
        let tasks = &mut ended.status.connectors[0].tasks;
        tasks[0].member_id = None;
        assert_eq!(ended.exit(), Exit::Done, "the other one was");
        ended.status.connectors[0].tasks[1].member_id = None;
        assert_eq!(ended.exit(), Exit::CutOff(sign));
        assert!(sentence(&ended).contains("before the work began"));
    }

    #[test]
    fn a_run_that_lost_records_does_not_end_well() {
        let mut ended = ended(Ending::Idle, &[TaskState::Stopped], &[]);
        ended.status.connectors[0].tasks[0].counters.named_as_lost = 3;
        assert_eq!(ended.exit(), Exit::Failed);
        assert!(troubles(&ended)[0].starts_with("3 records not written and given up"));
        assert!(sentence(&ended).starts_with("Idle, but"));
    }

    #[test]
    fn records_in_dead_letters_are_counted_and_not_lost() {
        let mut ended = ended(Ending::Idle, &[TaskState::Stopped], &[]);
        let counters = &mut ended.status.connectors[0].tasks[0].counters;
        (counters.named_as_lost, counters.left_to_broker) = (2, 2);
        counters.dead_letters = 3;
        assert_eq!(ended.exit(), Exit::Done);
        assert_eq!(troubles(&ended), Vec::<String>::new());
        assert_eq!(
            sentence(&ended),
            "Idle: 3 records in dead letters, 2 records left to the broker's dead letters, all others written"
        );
        let counts = counts(&ended);
        assert!(counts.contains("dead letters"), "{counts}");
        assert!(counts.contains("left to the broker"), "{counts}");
        // One more that nobody was to keep.
        ended.status.connectors[0].tasks[0].counters.named_as_lost = 3;
        assert_eq!(ended.exit(), Exit::Failed);
    }

    #[test]
    fn records_rejected_as_configured_are_counted_and_the_run_ends_well() {
        let mut ended = ended(Ending::Idle, &[TaskState::Stopped], &[]);
        let counters = &mut ended.status.connectors[0].tasks[0].counters;
        (counters.named_as_lost, counters.rejected_unkept) = (3, 3);
        assert_eq!(ended.exit(), Exit::Done);
        assert_eq!(troubles(&ended), Vec::<String>::new());
        assert!(sentence(&ended).starts_with("Idle: 3 records rejected and kept nowhere"));
        assert!(counts(&ended).contains("rejected, not kept"));
    }
}
