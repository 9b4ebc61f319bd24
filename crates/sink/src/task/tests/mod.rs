//! The task loop against scripted sources and sinks, under paused time.

mod endings;
mod failures;
mod lanes;
mod letters;
mod random;
mod stages;
mod stalls;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{AtWork, Control, FailureSettings, SharedLetters, Sink, TaskSettings};
use crate::connector::TaskContext;
use crate::convert::Chain;
use crate::loss::LossLog;
use crate::outcome::Outcome;
use crate::status::{TaskShared, TaskState, TaskStatus};
use crate::testing::{Broker, Call, LetterBox, SinkScript, Step};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

struct Running {
    broker: Broker,
    sink: SinkScript,
    context: TaskContext,
    shared: Arc<TaskShared>,
    control: watch::Sender<Control>,
    handle: JoinHandle<()>,
}

impl Running {
    fn start(broker: &Broker, sink: SinkScript) -> Self {
        Self::start_with(broker, sink, |_| {})
    }

    fn start_with(
        broker: &Broker,
        sink: SinkScript,
        change: impl FnOnce(&mut TaskSettings),
    ) -> Self {
        Self::start_beside(broker, sink, None, change)
    }

    fn start_beside(
        broker: &Broker,
        sink: SinkScript,
        letters: Option<&LetterBox>,
        change: impl FnOnce(&mut TaskSettings),
    ) -> Self {
        Self::start_lanes(1, broker, sink, letters, change)
    }

    /// A task with so many lanes, all of which follow one script.
    fn start_lanes(
        lanes: usize,
        broker: &Broker,
        sink: SinkScript,
        letters: Option<&LetterBox>,
        change: impl FnOnce(&mut TaskSettings),
    ) -> Self {
        let (control, seen) = watch::channel(Control::Run);
        let shared = Arc::new(TaskShared::new(0, watch::Sender::new(())));
        let mut settings = settings();
        change(&mut settings);
        let one = || Sink {
            task: Box::new(sink.sink()),
            context: TaskContext::new("out", 0, 1, "g"),
            dead_letters: None,
        };
        let mut sinks: Vec<_> = std::iter::repeat_with(one).take(lanes).collect();
        let letters = letters.map(|letters| Box::new(letters.clone()) as Box<_>);
        SharedLetters::share(letters, &mut sinks);
        let context = sinks[0].context.clone();
        let task = AtWork::new(broker.source(), sinks, seen, Arc::clone(&shared), settings);
        let handle = tokio::spawn(task.run());
        Self {
            broker: broker.clone(),
            sink,
            context,
            shared,
            control,
            handle,
        }
    }

    fn tell_to_stop(&self) {
        let budget = 5 * S;
        self.control.send_replace(Control::Stop {
            deadline: Instant::now() + budget,
            budget,
        });
    }

    async fn stop(self) -> (Broker, SinkScript, TaskStatus) {
        self.tell_to_stop();
        self.ended().await
    }

    async fn ended(self) -> (Broker, SinkScript, TaskStatus) {
        self.handle.await.unwrap();
        assert!(
            self.broker.seen(|seen| seen.closed),
            "the group was not left"
        );
        assert_eq!(self.sink.calls().last(), Some(&Call::Stop));
        (self.broker, self.sink, self.shared.status())
    }
}

fn settings() -> TaskSettings {
    TaskSettings {
        name: "out-0".to_owned(),
        explicit: true,
        delivery_count_limit: 5,
        tasks: 1,
        writes_at_once: false,
        flush_interval: Duration::from_secs(60),
        shutdown_timeout: 5 * S,
        loss: LossLog {
            file: None,
            group_id: "g".to_owned(),
            task: "out-0".to_owned(),
        },
        topics: vec![Arc::from("orders")],
        chain: Chain::raw(),
        failures: FailureSettings::default(),
    }
}

fn offsets(range: std::ops::Range<i64>) -> Vec<i64> {
    range.collect()
}

#[tokio::test(start_paused = true)]
async fn records_are_accepted_only_after_put_and_flush_returned() {
    let broker = Broker::default();
    broker.deliver(0..3, 1);
    let sink = SinkScript::puts([Step::Slow(2 * S)]).flushes([Step::Slow(2 * S)]);
    let running = Running::start(&broker, sink);
    sleep(3 * S).await;
    assert!(broker.accepted().is_empty());
    sleep(2 * S).await;
    assert_eq!(broker.accepted(), [0, 1, 2]);
    let (_, sink, status) = running.stop().await;
    assert_eq!(status.state, TaskState::Stopped);
    let calls: Vec<_> = sink
        .calls()
        .into_iter()
        .filter(|call| *call != Call::Tick)
        .collect();
    assert_eq!(
        calls,
        [
            Call::Open(vec!["orders".to_owned()]),
            Call::Put(vec![0, 1, 2]),
            Call::Flush,
            Call::Close,
            Call::Stop
        ]
    );
    assert_eq!((status.counters.read, status.counters.written), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn open_names_the_topics_that_match_and_later_each_new_one_before_its_first_put() {
    let broker = Broker::default();
    broker.set_topics(&["a", "b"]);
    let running = Running::start(&broker, SinkScript::default());
    for (offset, topic) in (0..).zip(["b", "c", "c"]) {
        broker.deliver_of(topic, offset..offset + 1, 1);
        sleep(S).await;
    }
    let (_, sink, _) = running.stop().await;
    let open = |topics: &[&str]| Call::Open(topics.iter().copied().map(str::to_owned).collect());
    let put = |offset| Call::Put(vec![offset]);
    let calls = sink.calls().into_iter();
    let calls: Vec<_> = calls
        .filter(|call| matches!(call, Call::Open(_) | Call::Put(_)))
        .collect();
    assert_eq!(
        calls,
        [open(&["a", "b"]), put(0), open(&["c"]), put(1), put(2)]
    );
}

#[tokio::test(start_paused = true)]
async fn batches_that_are_ready_share_a_flush() {
    let broker = Broker::default();
    for first in [0, 10, 20] {
        broker.deliver(first..first + 10, 1);
    }
    let running = Running::start(&broker, SinkScript::default());
    sleep(S).await;
    let (broker, sink, _) = running.stop().await;
    assert_eq!(broker.accepted(), offsets(0..30));
    assert_eq!(
        sink.calls()
            .iter()
            .filter(|call| **call == Call::Flush)
            .count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_writes_at_once_has_each_put_accepted_before_the_next_begins() {
    let broker = Broker::default();
    for first in [0, 10] {
        broker.deliver(first..first + 10, 1);
    }
    let sink = SinkScript::puts([Step::Slow(2 * S), Step::Slow(2 * S)]);
    let running = Running::start_with(&broker, sink, |settings| settings.writes_at_once = true);
    sleep(3 * S).await;
    assert_eq!(broker.accepted(), offsets(0..10));
    sleep(2 * S).await;
    assert_eq!(broker.accepted(), offsets(0..20));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_put_is_retried_in_place_with_growing_waits_and_never_released() {
    let broker = Broker::default();
    broker.deliver(0..1, 1);
    let running = Running::start(&broker, SinkScript::puts(vec![Step::Fails; 12]));
    sleep(300 * S).await;
    let (broker, sink, status) = running.stop().await;
    assert_eq!(broker.accepted(), [0]);
    assert!(broker.released().is_empty());
    assert_eq!(sink.put_offsets(), vec![vec![0]; 13]);
    let waits: Vec<_> = sink
        .put_times()
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .collect();
    for (index, wait) in waits.iter().enumerate() {
        let middle = (100 * MS * (1 << index)).min(60 * S);
        assert!(
            *wait >= middle.mul_f64(0.79) && *wait <= middle.mul_f64(1.21) + MS,
            "{index}: {wait:?}"
        );
    }
    assert_eq!(status.metrics.put_failures, 12);
    assert_eq!(status.metrics.failures_in_a_row, 0);
}

#[tokio::test(start_paused = true)]
async fn while_the_target_is_down_nothing_new_is_acquired_and_the_status_says_so() {
    let broker = Broker::default();
    broker.deliver(0..4, 1);
    let sink = SinkScript::default().poisoned(0..100, Step::Fails);
    let running = Running::start(&broker, sink);
    sleep(5 * S).await;
    assert!(broker.seen(|seen| seen.paused));
    let status = running.shared.status();
    assert_eq!(status.state, TaskState::Running);
    assert_eq!(status.metrics.breaker_open, 1);
    let note = status.note.unwrap();
    assert!(note.contains("failed: the target is down"), "{note}");
    assert!(note.contains("nothing new is acquired"), "{note}");
    assert!(status.metrics.failures_in_a_row >= 10);
    running.sink.cure();
    sleep(2 * S).await;
    assert!(!broker.seen(|seen| seen.paused));
    let status = running.shared.status();
    assert_eq!(
        (
            status.note,
            status.metrics.breaker_open,
            status.metrics.failures_in_a_row
        ),
        (None, 0, 0)
    );
    let (broker, _, _) = running.stop().await;
    assert!(broker.released().is_empty());
    let mut accepted = broker.accepted();
    accepted.sort_unstable();
    assert_eq!(accepted, [0, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn what_was_written_before_a_put_failed_is_accepted_and_only_the_rest_is_retried() {
    let broker = Broker::default();
    broker.deliver(0..5, 1);
    let written = vec![(0, Outcome::Written), (3, Outcome::Written)];
    let running = Running::start(&broker, SinkScript::puts([Step::Reports(written, false)]));
    sleep(50 * MS).await;
    assert_eq!(broker.accepted(), [0, 3]);
    sleep(S).await;
    let (broker, sink, _) = running.stop().await;
    assert_eq!(sink.put_offsets(), [vec![0, 1, 2, 3, 4], vec![1, 2, 4]]);
    assert_eq!(broker.accepted(), [0, 3, 1, 2, 4]);
    assert!(broker.released().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_record_for_later_waits_as_long_as_the_target_asked() {
    let broker = Broker::default();
    broker.deliver(0..2, 1);
    let later = Outcome::Later {
        reason: "slow down".to_owned(),
        after: Some(7 * S),
    };
    let running = Running::start(
        &broker,
        SinkScript::puts([Step::Reports(vec![(1, later)], true)]),
    );
    sleep(10 * S).await;
    let (broker, sink, _) = running.stop().await;
    assert_eq!(sink.put_offsets(), [vec![0, 1], vec![1]]);
    let times = sink.put_times();
    assert!(times[1] - times[0] >= 7 * S);
    assert_eq!(broker.accepted(), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_flush_sends_back_everything_put_since_the_last_one() {
    let broker = Broker::default();
    broker.deliver(0..2, 1);
    broker.deliver(2..4, 1);
    let running = Running::start(&broker, SinkScript::default().flushes([Step::Fails]));
    sleep(S).await;
    let (broker, sink, _) = running.stop().await;
    assert_eq!(
        sink.put_offsets(),
        [vec![0, 1], vec![2, 3], vec![0, 1], vec![2, 3]]
    );
    assert_eq!(broker.accepted(), [0, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn b_067_a_stop_in_the_middle_of_a_retry_releases_and_does_not_put_again() {
    let broker = Broker::default();
    broker.deliver(0..3, 1);
    let running = Running::start(&broker, SinkScript::puts(vec![Step::Fails; 100]));
    sleep(20 * S).await;
    let puts = running.sink.put_offsets().len();
    broker.deliver(3..5, 1);
    let told = Instant::now();
    let (broker, sink, status) = running.stop().await;
    assert!(told.elapsed() < S);
    assert_eq!(sink.put_offsets().len(), puts);
    assert_eq!(broker.released(), offsets(0..5));
    assert!(broker.accepted().is_empty());
    assert_eq!(status.state, TaskState::Stopped);
}

#[tokio::test(start_paused = true)]
async fn b_067_a_fatal_put_fails_the_task_names_the_records_and_does_not_put_them_again() {
    let broker = Broker::default();
    broker.deliver(4..9, 1);
    broker.deliver(9..12, 1);
    let sink = SinkScript::default().poisoned(0..100, Step::Fatal);
    let (broker, sink, status) = Running::start(&broker, sink).ended().await;
    assert_eq!(status.state, TaskState::Failed);
    let trace = status.trace.unwrap();
    assert!(
        trace.contains("the sink refused orders-3 offset 4:"),
        "{trace}"
    );
    assert!(trace.contains("the table is gone"), "{trace}");
    // The batch, its halves, and the record that stands alone.
    assert_eq!(
        sink.put_offsets(),
        [
            vec![4, 5, 6, 7, 8],
            vec![4, 5],
            vec![6, 7, 8],
            vec![4],
            vec![5]
        ]
    );
    // What was fetched ahead is released as well.
    assert_eq!(broker.released(), offsets(4..12));
}

#[tokio::test(start_paused = true)]
async fn a_refused_record_fails_the_task_and_costs_its_neighbours_nothing() {
    let broker = Broker::default();
    broker.deliver(0..4, 1);
    let refused = Outcome::Refused {
        reason: "no such column".to_owned(),
    };
    let running = Running::start(
        &broker,
        SinkScript::puts([Step::Reports(vec![(2, refused)], true)]),
    );
    let (broker, _, status) = running.ended().await;
    let trace = status.trace.unwrap();
    assert!(
        trace.contains("refused orders-3 offset 2") && trace.contains("no such column"),
        "{trace}"
    );
    assert_eq!(broker.accepted(), [0, 1, 3]);
    assert_eq!(broker.released(), [2]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_the_task_and_releases_what_it_holds() {
    let broker = Broker::default();
    broker.deliver(0..2, 1);
    let running = Running::start(&broker, SinkScript::puts([Step::Panics]));
    let (broker, sink, status) = running.ended().await;
    assert_eq!(status.state, TaskState::Failed);
    let trace = status.trace.unwrap();
    assert!(trace.contains("panicked: a bug in the sink"), "{trace}");
    assert_eq!(broker.released(), [0, 1]);
    assert_eq!(
        sink.calls(),
        [
            Call::Open(vec!["orders".to_owned()]),
            Call::Put(vec![0, 1]),
            Call::Stop
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_lock_lost_during_a_put_is_reported_and_never_acknowledged() {
    let broker = Broker::default();
    let lock = broker.deliver(0..2, 1);
    let running = Running::start(&broker, SinkScript::puts([Step::Slow(2 * S)]));
    sleep(S).await;
    lock.lose();
    sleep(2 * S).await;
    let (broker, _, status) = running.stop().await;
    assert_eq!((broker.accepted(), broker.released()), (vec![], vec![]));
    assert_eq!(status.counters.duplicates_expected, 2);
}

#[tokio::test(start_paused = true)]
async fn records_whose_lock_is_lost_while_they_wait_are_not_put_again() {
    let broker = Broker::default();
    let lock = broker.deliver(0..2, 1);
    let sink = SinkScript::default().poisoned(0..2, Step::Fails);
    let running = Running::start(&broker, sink);
    sleep(5 * S).await;
    let puts = running.sink.put_offsets().len();
    lock.lose();
    broker.deliver(2..4, 1);
    sleep(60 * S).await;
    let (broker, sink, status) = running.stop().await;
    let later = sink.put_offsets().split_off(puts);
    assert!(
        later.iter().flatten().all(|offset| *offset >= 2),
        "{later:?}"
    );
    assert_eq!(broker.accepted(), [2, 3]);
    assert_eq!(status.state, TaskState::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_cannot_be_renewed_fails_the_task_before_its_end_naming_the_records() {
    let broker = Broker::default();
    broker.deliver(7..9, 1).end_after(30 * S);
    let started = Instant::now();
    let running = Running::start(&broker, SinkScript::puts(vec![Step::Fails; 1000]));
    let (broker, sink, status) = running.ended().await;
    let trace = status.trace.unwrap();
    assert!(
        trace.contains("orders-3 offsets 7 to 8 could not be written before their lock ends"),
        "{trace}"
    );
    assert!(trace.contains("the target is down"), "{trace}");
    let last_put = *sink.put_times().last().unwrap() - started;
    assert!(last_put > 25 * S && last_put < 30 * S, "{last_put:?}");
    assert!(started.elapsed() < 30 * S);
    assert_eq!(broker.released(), [7, 8]);
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_renewal_is_refused_in_the_middle_of_a_wait_is_noticed() {
    let broker = Broker::default();
    let lock = broker.deliver(0..1, 1);
    let running = Running::start(&broker, SinkScript::puts(vec![Step::Fails; 1000]));
    // In the middle of a wait of about a minute.
    sleep(130 * S).await;
    lock.end_after(20 * S);
    let refused = Instant::now();
    let (broker, _, status) = running.ended().await;
    assert!(refused.elapsed() < 20 * S);
    assert_eq!(status.state, TaskState::Failed);
    assert_eq!(broker.released(), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_put_that_hangs_is_cut_off_before_its_lock_ends_and_the_second_in_a_row_fails_the_task() {
    let broker = Broker::default();
    broker.deliver(7..9, 1).end_after(30 * S);
    broker.deliver(9..12, 1).end_after(30 * S);
    let started = Instant::now();
    let sink = SinkScript::puts([Step::Fine, Step::Hangs, Step::Hangs]);
    let running = Running::start(&broker, sink);
    sleep(30 * S).await;
    // What was put before is flushed and accepted in time; what hung may be too much for one lock.
    assert_eq!(running.shared.state(), TaskState::Running);
    assert_eq!(broker.accepted(), [7, 8]);
    assert_eq!(broker.released(), [9, 10, 11]);
    // The next put is smaller, and so small that it can't be the number.
    broker.deliver(19..22, 2).end_after(30 * S);
    let (broker, sink, status) = running.ended().await;
    assert!(started.elapsed() > 58 * S && started.elapsed() < 60 * S);
    assert_eq!(status.state, TaskState::Failed);
    let trace = status.trace.unwrap();
    assert!(
        trace.contains("could not be written before their lock ends"),
        "{trace}"
    );
    assert_eq!(broker.released(), [9, 10, 11, 19, 20, 21]);
    assert!(broker.seen(|seen| seen.paused && seen.reported.is_empty()));
    assert_eq!(sink.put_offsets().last(), Some(&vec![19]));
    assert_eq!(status.counters.may_arrive_twice(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_renewal_is_refused_in_the_middle_of_a_put_is_noticed() {
    let broker = Broker::default();
    let lock = broker.deliver(0..2, 1);
    let running = Running::start(&broker, SinkScript::puts([Step::Hangs]));
    sleep(500 * S).await;
    assert_eq!(running.shared.state(), TaskState::Running);
    lock.end_after(20 * S);
    let refused = Instant::now();
    let (broker, _, status) = running.ended().await;
    assert!(refused.elapsed() > 18 * S && refused.elapsed() < 20 * S);
    assert_eq!(status.state, TaskState::Failed);
    assert_eq!(broker.released(), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_flush_that_hangs_is_cut_off_before_the_lock_ends() {
    let broker = Broker::default();
    broker.deliver(0..2, 1).end_after(30 * S);
    let started = Instant::now();
    let sink = SinkScript::default().flushes([Step::Hangs]);
    let (broker, _, status) = Running::start(&broker, sink).ended().await;
    assert!(started.elapsed() > 28 * S && started.elapsed() < 30 * S);
    let trace = status.trace.unwrap();
    assert!(trace.contains("orders-3 offsets 0 to 1"), "{trace}");
    assert_eq!(broker.released(), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_put_may_last_as_long_as_its_lock_is_renewed() {
    let broker = Broker::default();
    let lock = broker.deliver(0..2, 1);
    let running = Running::start(&broker, SinkScript::puts([Step::Slow(100 * S)]));
    sleep(S).await;
    // Not renewable for a while, then renewed after all.
    lock.end_after(30 * S);
    sleep(10 * S).await;
    lock.end_after(1000 * S);
    sleep(200 * S).await;
    let (broker, _, status) = running.stop().await;
    assert_eq!(broker.accepted(), [0, 1]);
    assert_eq!(status.state, TaskState::Stopped);
}

#[tokio::test(start_paused = true)]
async fn records_on_their_last_delivery_are_named_when_they_are_given_up() {
    let file = std::env::temp_dir().join(format!("sink-loss-{}", std::process::id()));
    let broker = Broker::default();
    broker.deliver(0..2, 4);
    broker.deliver(2..4, 5);
    let path = Some(PathBuf::from(&file));
    let running = Running::start_with(
        &broker,
        SinkScript::puts([Step::Fine, Step::Broken]),
        |settings| {
            settings.loss.file = path;
        },
    );
    broker.deliver(10..11, 5);
    let (broker, _, status) = running.ended().await;
    let lines = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let named: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let offsets: Vec<_> = named
        .iter()
        .map(|line| line["offset"].as_i64().unwrap())
        .collect();
    assert_eq!(offsets, [2, 3, 10]);
    assert_eq!(named[0]["topic"], "orders");
    assert_eq!(named[0]["partition"], 3);
    assert_eq!(named[0]["delivery_count"], 5);
    assert_eq!(broker.accepted(), [0, 1]);
    assert_eq!(broker.released(), [2, 3, 10]);
    assert_eq!(status.counters.named_as_lost, 3);
}

#[tokio::test(start_paused = true)]
async fn a_stop_finishes_what_was_fetched_ahead() {
    let broker = Broker::default();
    broker.deliver(0..2, 1);
    let running = Running::start(&broker, SinkScript::puts([Step::Slow(S)]));
    sleep(500 * MS).await;
    running.tell_to_stop();
    broker.deliver(2..4, 1);
    let (broker, _, _) = running.ended().await;
    assert_eq!(broker.accepted(), offsets(0..4));
    assert!(broker.released().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_put_that_outlives_the_budget_for_stopping_is_cut_off_and_released() {
    let broker = Broker::default();
    broker.deliver(0..2, 1);
    let running = Running::start(&broker, SinkScript::puts([Step::Hangs]));
    sleep(S).await;
    let told = Instant::now();
    let (broker, _, status) = running.stop().await;
    assert!(told.elapsed() <= 5 * S, "{:?}", told.elapsed());
    assert_eq!(broker.released(), [0, 1]);
    assert_eq!(status.state, TaskState::Stopped);
}

#[tokio::test(start_paused = true)]
async fn an_idle_task_ticks_and_in_explicit_mode_awaits_outstanding_answers() {
    for explicit in [true, false] {
        let broker = Broker::default();
        broker.seen(|seen| seen.pending = 3);
        let running = Running::start_with(&broker, SinkScript::default(), |settings| {
            settings.explicit = explicit
        });
        sleep(3500 * MS).await;
        let (broker, sink, _) = running.stop().await;
        assert_eq!(
            sink.calls()
                .iter()
                .filter(|call| **call == Call::Tick)
                .count(),
            3
        );
        assert_eq!(broker.seen(|seen| seen.commits), usize::from(explicit));
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_outstanding_answers_are_awaited_before_the_next_put() {
    let broker = Broker::default();
    let running = Running::start(&broker, SinkScript::default());
    broker.seen(|seen| seen.pending = 50_000);
    sleep(300 * MS).await;
    broker.deliver(0..1, 1);
    sleep(100 * MS).await;
    assert_eq!(broker.seen(|seen| seen.commits), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_task_acquires_nothing_and_stays() {
    let broker = Broker::default();
    let running = Running::start(&broker, SinkScript::default());
    sleep(S).await;
    running.control.send_replace(Control::Pause);
    sleep(S).await;
    assert_eq!(running.shared.state(), TaskState::Paused);
    assert!(broker.seen(|seen| seen.paused && !seen.closed));
    running.control.send_replace(Control::Run);
    sleep(S).await;
    assert_eq!(running.shared.state(), TaskState::Running);
    assert!(!broker.seen(|seen| seen.paused));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_cannot_go_on_fails_the_task() {
    let broker = Broker::default();
    broker.fail("the member was fenced");
    let running = Running::start(&broker, SinkScript::default());
    let (_, _, status) = running.ended().await;
    assert_eq!(status.state, TaskState::Failed);
    assert_eq!(status.trace.as_deref(), Some("the member was fenced"));
}

#[tokio::test(start_paused = true)]
async fn b_068_an_outage_shows_how_long_it_lasts() {
    let broker = Broker::default();
    broker.deliver(0..1, 1);
    let running = Running::start(&broker, SinkScript::puts(vec![Step::Fails; 1000]));
    sleep(300 * S).await;
    let metrics = running.shared.status().metrics;
    assert!(metrics.failures_in_a_row > 10);
    assert_eq!(metrics.failures_in_a_row, metrics.put_failures);
    assert!(
        metrics
            .named()
            .contains(&("consecutive-failures", metrics.failures_in_a_row))
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_put_is_accepted_before_a_consumer_that_failed_meanwhile_fails_the_task() {
    let broker = Broker::default();
    broker.deliver(0..3, 1);
    broker.fail("the member was fenced");
    let running = Running::start(&broker, SinkScript::default());
    let (broker, _, status) = running.ended().await;
    assert_eq!(status.state, TaskState::Failed);
    assert_eq!(broker.accepted(), [0, 1, 2]);
}
