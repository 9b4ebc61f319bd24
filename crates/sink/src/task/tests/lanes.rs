//! Tasks with several lanes.

use super::*;
use tracing::Level;

use crate::policy::{SetAside, Tolerance};
use crate::testing::Lines;

/// A sink that takes so long for each record.
fn per_record(time: Duration, offsets: std::ops::Range<i64>) -> SinkScript {
    SinkScript::default().poisoned(offsets, Step::WritesEvery(time))
}

fn start(lanes: usize, broker: &Broker, sink: SinkScript) -> Running {
    Running::start_lanes(lanes, broker, sink, None, |_| {})
}

fn sorted(mut offsets: Vec<i64>) -> Vec<i64> {
    offsets.sort_unstable();
    offsets
}

/// How long so many lanes take for 600 records of 5 ms, which arrive as one batch.
async fn time_of(lanes: usize) -> Duration {
    let broker = Broker::default();
    broker.deliver(0..600, 1);
    let running = start(lanes, &broker, per_record(5 * MS, 0..600));
    let started = Instant::now();
    while broker.accepted().len() < 600 {
        sleep(MS).await;
    }
    let time = started.elapsed();
    let (broker, sink, status) = running.stop().await;
    assert_eq!(sorted(broker.accepted()), offsets(0..600));
    assert_eq!(sorted(sink.written()), offsets(0..600));
    assert_eq!((status.counters.read, status.counters.written), (600, 600));
    time
}

#[tokio::test(start_paused = true)]
async fn six_lanes_share_a_batch_and_are_six_times_as_fast_as_one() {
    let (one, six) = (time_of(1).await, time_of(6).await);
    assert!((3000 * MS..3050 * MS).contains(&one), "{one:?}");
    assert!((500 * MS..550 * MS).contains(&six), "{six:?}");
}

#[tokio::test(start_paused = true)]
async fn each_lane_has_a_sink_of_its_own_that_is_opened_closed_and_stopped_once() {
    let broker = Broker::default();
    let running = start(3, &broker, SinkScript::default());
    broker.deliver(0..30, 1);
    sleep(S / 2).await;
    let (broker, sink, status) = running.stop().await;
    assert_eq!(status.state, TaskState::Stopped);
    assert_eq!(sorted(broker.accepted()), offsets(0..30));
    let count = |wanted: &Call| sink.calls().iter().filter(|call| *call == wanted).count();
    let open = Call::Open(vec!["orders".to_owned()]);
    assert_eq!(
        [&open, &Call::Close, &Call::Stop].map(count),
        [3, 3, 3],
        "{:?}",
        sink.calls()
    );
}

#[tokio::test(start_paused = true)]
async fn a_lane_whose_put_never_returns_fails_the_task_and_what_others_have_ended_is_accepted() {
    let broker = Broker::default();
    let stuck = broker.deliver(0..1, 1);
    let sink = SinkScript::default().poisoned([0], Step::Hangs);
    let running = Running::start_lanes(3, &broker, sink, None, |settings| {
        settings.failures.put_stall = 20 * S;
    });
    sleep(S).await;
    for first in [10, 20, 30] {
        broker.deliver(first..first + 10, 1);
        sleep(S).await;
    }
    assert_eq!(broker.accepted(), offsets(10..40));
    sleep(17 * S).await;
    // The others have ended, and it is not yet over.
    assert_eq!(running.shared.state(), TaskState::Failed);
    assert!(broker.released().is_empty() && !running.handle.is_finished());
    stuck.lose();
    let (broker, _, status) = running.ended().await;
    let trace = status.trace.unwrap();
    assert!(
        trace.contains("put of orders-3 offset 0 gave no outcome"),
        "{trace}"
    );
    assert!(broker.released().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_fails_ends_the_task_and_others_end_what_they_are_at() {
    let broker = Broker::default();
    let sink = SinkScript::default()
        .poisoned([0], Step::Broken)
        .poisoned([10], Step::Slow(2 * S));
    let running = start(2, &broker, sink);
    broker.deliver(10..12, 1);
    sleep(S).await;
    broker.deliver(0..2, 1);
    broker.deliver(20..22, 1);
    let (broker, sink, status) = running.ended().await;
    assert_eq!(status.state, TaskState::Failed);
    assert!(status.trace.unwrap().contains("the target is gone"));
    assert_eq!(sorted(broker.accepted()), [10, 11]);
    assert_eq!(sorted(broker.released()), [0, 1, 20, 21]);
    assert_eq!(sorted(sink.put_offsets().concat()), [0, 1, 10, 11]);
}

#[tokio::test(start_paused = true)]
async fn lanes_that_fail_together_are_one_failure_in_the_log() {
    let lines = Lines::of(Level::ERROR);
    let _kept = lines.keep();
    let broker = Broker::default();
    for first in [0, 10, 20] {
        broker.deliver(first..first + 2, 1);
    }
    let running = start(
        3,
        &broker,
        SinkScript::default().poisoned(0..30, Step::Broken),
    );
    running.ended().await;
    let lines = lines.all();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("The task failed"), "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_stall_is_one_failure_in_the_log_whatever_ends_behind_it() {
    for lanes in [1, 3] {
        let lines = Lines::of(Level::ERROR);
        let _kept = lines.keep();
        let broker = Broker::default();
        let stuck = broker.deliver(0..1, 1);
        let sink = SinkScript::default().poisoned([0], Step::Hangs);
        let running = Running::start_lanes(lanes, &broker, sink, None, |settings| {
            settings.failures.put_stall = 20 * S;
        });
        sleep(30 * S).await;
        stuck.lose();
        running.ended().await;
        let lines = lines.all();
        let failures = lines.iter().filter(|line| line.contains("The task failed"));
        assert_eq!(failures.count(), 1, "{lanes}: {lines:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_panics_fails_the_task_and_loses_nothing() {
    let broker = Broker::default();
    let sink = SinkScript::default().poisoned([7], Step::Panics);
    let running = start(4, &broker, sink);
    broker.deliver(0..20, 1);
    let (broker, sink, status) = running.ended().await;
    assert!(status.trace.unwrap().contains("a bug in the sink"));
    let (accepted, released) = (broker.accepted(), broker.released());
    assert!(sink.durable().into_iter().eq(sorted(accepted.clone())));
    assert_eq!(sorted([accepted, released].concat()), offsets(0..20));
}

#[tokio::test(start_paused = true)]
async fn poison_among_lanes_has_one_letter_each_and_everything_else_is_written_once() {
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    let sink = SinkScript::default().poisoned([5, 55, 155], Step::Fatal);
    let running = Running::start_lanes(4, &broker, sink, Some(&letters), |settings| {
        settings.failures.tolerance = Tolerance::All;
        settings.failures.set_aside = SetAside::DeadLetter;
    });
    for first in [0, 100] {
        broker.deliver(first..first + 100, 1);
    }
    sleep(60 * S).await;
    let (broker, sink, status) = running.stop().await;
    assert_eq!(status.state, TaskState::Stopped);
    let is_poison = |offset: &i64| [5, 55, 155].contains(offset);
    assert_eq!(sorted(letters.offsets()), [5, 55, 155]);
    assert_eq!(sorted(broker.rejected()), [5, 55, 155]);
    let good: Vec<_> = (0..200).filter(|offset| !is_poison(offset)).collect();
    assert_eq!(sorted(broker.accepted()), good);
    assert_eq!(sorted(sink.written()), good);
}

#[tokio::test(start_paused = true)]
async fn while_the_target_is_down_nothing_is_acquired_and_one_lane_makes_each_probe() {
    let broker = Broker::default();
    let sink = SinkScript::default().poisoned(0..1000, Step::Fails);
    let running = start(6, &broker, sink.clone());
    for first in (0..120).step_by(10) {
        broker.deliver(first..first + 10, 1);
    }
    sleep(8 * S).await;
    let metrics = running.shared.status().metrics;
    assert_eq!(metrics.breaker_open, 1);
    assert!(broker.seen(|seen| seen.paused && !seen.acquires_one));
    assert!(broker.released().is_empty());
    assert_eq!(metrics.records_active + broker.unpolled().len() as u64, 120);
    let before = sink.put_times().len();
    sleep(20 * S).await;
    let probes = sink.put_times().len() - before;
    assert!((19..=21).contains(&probes), "{probes} probes in 20 s");
    sink.cure();
    sleep(3 * S).await;
    assert!(broker.seen(|seen| !seen.paused));
    let (broker, sink, status) = running.stop().await;
    assert_eq!(sorted(broker.accepted()), offsets(0..120));
    assert_eq!(sorted(sink.written()), offsets(0..120));
    assert_eq!(status.note, None);
}

#[tokio::test(start_paused = true)]
async fn every_record_of_every_lane_was_a_probe_in_vain_before_one_more_is_acquired() {
    let broker = Broker::default();
    let sink = SinkScript::default().poisoned(0..10, Step::Fails);
    let running = start(3, &broker, sink);
    broker.deliver(0..4, 1);
    sleep(60 * S).await;
    assert!(broker.seen(|seen| seen.acquires_one));
    broker.deliver(20..21, 1);
    sleep(3 * S).await;
    // The target is fine: only these four can't be written.
    assert_eq!(broker.accepted(), [20]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_fails_for_ever_keeps_no_other_lane_waiting() {
    let broker = Broker::default();
    let sink = SinkScript::default().poisoned([0], Step::Fails);
    let running = Running::start_lanes(3, &broker, sink, None, |settings| {
        settings.failures.tolerance = Tolerance::All;
        settings.failures.hold_max = 30 * S;
    });
    for first in 0..100 {
        broker.deliver(first..first + 1, 1);
        sleep(S).await;
    }
    let status = running.shared.status();
    assert_eq!(status.metrics.breaker_open, 0);
    assert_eq!(sorted(broker.accepted()), offsets(1..100));
    assert_eq!(broker.rejected(), [0]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_for_all_lanes_until_the_end_of_it() {
    let broker = Broker::default();
    let sink = per_record(100 * MS, 0..40);
    let running = start(4, &broker, sink);
    broker.deliver(0..40, 1);
    sleep(S / 4).await;
    running.control.send_replace(Control::Pause);
    sleep(5 * S).await;
    assert_eq!(running.shared.state(), TaskState::Paused);
    assert!(broker.seen(|seen| seen.paused));
    // What was there is written.
    assert_eq!(sorted(broker.accepted()), offsets(0..40));
    running.control.send_replace(Control::Run);
    broker.deliver(40..50, 1);
    sleep(S).await;
    assert!(broker.seen(|seen| !seen.paused));
    assert_eq!(running.shared.state(), TaskState::Running);
    assert_eq!(sorted(broker.accepted()), offsets(0..50));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_wants_nothing_new_holds_for_all_of_its_task() {
    let broker = Broker::default();
    let running = start(3, &broker, SinkScript::default());
    running.context.pause();
    sleep(S).await;
    assert!(broker.seen(|seen| seen.paused));
    running.context.resume();
    sleep(S).await;
    assert!(broker.seen(|seen| !seen.paused));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_all_lanes_put_what_is_there_and_gives_back_what_takes_too_long() {
    let broker = Broker::default();
    let sink = per_record(100 * MS, 0..40).poisoned([0], Step::Hangs);
    let running = start(4, &broker, sink);
    for first in [0, 10, 20, 30] {
        broker.deliver(first..first + 10, 1);
    }
    sleep(S / 4).await;
    let (broker, sink, status) = running.stop().await;
    assert_eq!(status.state, TaskState::Stopped);
    let (accepted, released) = (broker.accepted(), broker.released());
    assert_eq!(sorted(accepted.clone()), sorted(sink.written()));
    assert!(
        accepted.len() >= 30 && released.contains(&0),
        "{accepted:?}"
    );
    assert_eq!(sorted([accepted, released].concat()), offsets(0..40));
}

#[tokio::test(start_paused = true)]
async fn lanes_end_when_nobody_is_left_to_tell_them() {
    let broker = Broker::default();
    broker.deliver(0..10, 1);
    let running = start(3, &broker, SinkScript::default());
    sleep(S).await;
    let Running {
        control, handle, ..
    } = running;
    drop(control);
    handle.await.unwrap();
    assert!(broker.seen(|seen| seen.closed));
    assert_eq!(sorted(broker.accepted()), offsets(0..10));
}
