//! Records that fail while others are written, and targets that are down.

use std::collections::BTreeMap;

use super::*;
use crate::policy::{SetAside, Tolerance};

fn sorted(mut offsets: Vec<i64>) -> Vec<i64> {
    offsets.sort_unstable();
    offsets
}

/// How often each record was written.
fn times_written(sink: &SinkScript) -> BTreeMap<i64, usize> {
    let mut times = BTreeMap::new();
    for offset in sink.written() {
        *times.entry(offset).or_default() += 1;
    }
    times
}

#[tokio::test(start_paused = true)]
async fn b_059_one_poison_row_costs_a_handful_of_puts_and_fails_the_task_naming_it() {
    let broker = Broker::default();
    broker.deliver(0..500, 1);
    let sink = SinkScript::default().poisoned([123], Step::Fatal);
    let (broker, sink, status) = Running::start(&broker, sink).ended().await;
    let trace = status.trace.unwrap();
    assert!(
        trace.contains("the sink refused orders-3 offset 123:"),
        "{trace}"
    );
    assert!(
        sink.put_offsets().len() <= 20,
        "{}",
        sink.put_offsets().len()
    );
    assert_eq!(times_written(&sink).len(), 499);
    assert!(times_written(&sink).values().all(|times| *times == 1));
    assert_eq!(broker.accepted().len(), 499);
    assert_eq!(broker.released(), [123]);
}

#[tokio::test(start_paused = true)]
async fn a_row_whose_flush_fails_is_found_as_well() {
    let broker = Broker::default();
    broker.deliver(0..2, 1);
    broker.deliver(2..4, 1);
    // The shared flush, the first batch's own, the second's, and that of its second half.
    let flushes = [
        Step::Fatal,
        Step::Fine,
        Step::Fatal,
        Step::Fine,
        Step::Fatal,
    ];
    let sink = SinkScript::default().flushes(flushes);
    let (broker, _, status) = Running::start(&broker, sink).ended().await;
    let trace = status.trace.unwrap();
    assert!(
        trace.contains("the sink refused orders-3 offset 3:"),
        "{trace}"
    );
    assert_eq!(sorted(broker.accepted()), [0, 1, 2]);
    assert_eq!(broker.released(), [3]);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_cannot_go_on_fails_the_task_at_once_whatever_is_tolerated() {
    let broker = Broker::default();
    broker.deliver(0..10, 1);
    let sink = SinkScript::puts([Step::Broken]);
    let running = Running::start_with(&broker, sink, |settings| {
        settings.failures.tolerance = Tolerance::All;
    });
    let (broker, sink, status) = running.ended().await;
    assert!(status.trace.unwrap().contains("the target is gone"));
    assert_eq!(sink.put_offsets().len(), 1);
    assert_eq!(broker.released(), offsets(0..10));
}

#[tokio::test(start_paused = true)]
async fn what_a_sink_wrote_before_it_broke_is_accepted() {
    let broker = Broker::default();
    broker.deliver(0..2, 1);
    broker.deliver(2..6, 1);
    let written = vec![(2, Outcome::Written), (3, Outcome::Written)];
    let sink = SinkScript::puts([Step::Fine, Step::BreaksAfter(written)]);
    let (broker, _, status) = Running::start(&broker, sink).ended().await;
    assert!(status.trace.unwrap().contains("the target is gone"));
    assert_eq!(broker.accepted(), [0, 1, 2, 3]);
    assert_eq!(broker.released(), [4, 5]);
}

#[tokio::test(start_paused = true)]
async fn b_064_a_record_that_fails_twice_is_retried_and_keeps_no_other_waiting() {
    let broker = Broker::default();
    broker.deliver(0..1, 1);
    let running = Running::start(&broker, SinkScript::puts([Step::Fails]));
    sleep(50 * MS).await;
    broker.deliver(1..3, 1);
    sleep(10 * MS).await;
    assert_eq!(broker.accepted(), [1, 2]);
    assert!(!broker.seen(|seen| seen.paused));
    sleep(S).await;
    let (broker, sink, status) = running.stop().await;
    assert_eq!(broker.accepted(), [1, 2, 0]);
    assert_eq!(sink.put_offsets(), [vec![0], vec![1, 2], vec![0]]);
    assert_eq!(status.metrics.retries, 1);
}

#[tokio::test(start_paused = true)]
async fn b_065_the_wait_that_the_target_asks_for_is_kept() {
    let broker = Broker::default();
    broker.deliver(0..4, 1);
    let running = Running::start(&broker, SinkScript::puts(vec![Step::FailsFor(5 * S); 4]));
    sleep(60 * S).await;
    let (broker, sink, _) = running.stop().await;
    assert_eq!(sorted(broker.accepted()), [0, 1, 2, 3]);
    let puts = sink.put_offsets().into_iter().zip(sink.put_times());
    let mut last: BTreeMap<i64, Instant> = BTreeMap::new();
    for (offsets, at) in puts {
        for offset in offsets {
            let before = last.insert(offset, at);
            assert!(before.is_none_or(|before| at - before >= 5 * S), "{offset}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_sets_its_own_wait_before_the_next_try() {
    let broker = Broker::default();
    let running = Running::start(&broker, SinkScript::puts([Step::Fails]));
    running.context.timeout(Duration::from_secs(7));
    sleep(MS).await;
    // That was an idle task's wait, and holds once.
    running.context.timeout(7 * S);
    broker.deliver(0..1, 1);
    sleep(20 * S).await;
    let (_, sink, _) = running.stop().await;
    assert_eq!(sink.put_offsets().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_outage_burns_no_delivery_and_is_probed_once_a_second_with_one_record_after_the_other() {
    let broker = Broker::default();
    broker.deliver(0..300, 1);
    let sink = SinkScript::default().poisoned(0..1000, Step::Fails);
    let running = Running::start(&broker, sink);
    sleep(60 * S).await;
    let before = running.sink.put_offsets().len();
    sleep(60 * S).await;
    let puts = running.sink.put_offsets();
    let probes = &puts[before..];
    assert!((59..=61).contains(&probes.len()), "{}", probes.len());
    assert!(probes.iter().all(|put| put.len() == 1));
    assert!(probes.windows(2).all(|pair| pair[1][0] == pair[0][0] + 1));
    running.sink.cure();
    sleep(2 * S).await;
    let (broker, sink, _) = running.stop().await;
    assert_eq!(sorted(broker.accepted()), offsets(0..300));
    assert!(broker.released().is_empty());
    assert!(times_written(&sink).values().all(|times| *times == 1));
}

#[tokio::test(start_paused = true)]
async fn an_outage_outlasts_the_hold_and_fails_nothing() {
    let broker = Broker::default();
    broker.deliver(0..2, 4);
    let sink = SinkScript::default().poisoned(0..1000, Step::Fails);
    let running = Running::start(&broker, sink);
    sleep(3600 * S).await;
    assert_eq!(running.shared.state(), TaskState::Running);
    running.sink.cure();
    sleep(2 * S).await;
    let (broker, _, _) = running.stop().await;
    assert_eq!(sorted(broker.accepted()), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_two_bad_records_opened_lets_others_in_and_closes() {
    let broker = Broker::default();
    broker.deliver(0..1, 1);
    broker.deliver(1..2, 1);
    let sink = SinkScript::default().poisoned([0, 1], Step::Fails);
    let running = Running::start(&broker, sink);
    sleep(30 * S).await;
    assert_eq!(running.shared.status().metrics.breaker_open, 1);
    // Every record that is held was a probe: the next may come.
    assert!(broker.seen(|seen| !seen.paused && seen.acquires_one));
    broker.deliver(2..5, 1);
    sleep(5 * S).await;
    assert_eq!(sorted(broker.accepted()), [2, 3, 4]);
    broker.deliver(5..300, 1);
    sleep(15 * S).await;
    assert_eq!(broker.accepted().len(), 298);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lone_record_of_a_silent_topic_is_held_for_as_long_as_nothing_else_is_written() {
    let broker = Broker::default();
    broker.deliver(0..1, 1);
    let sink = SinkScript::default().poisoned([0], Step::Fails);
    let running = Running::start(&broker, sink);
    sleep(3600 * S).await;
    assert_eq!(running.shared.state(), TaskState::Running);
    // Now it is to blame, and has been held for long enough.
    broker.deliver(1..2, 1);
    let (broker, _, status) = running.ended().await;
    let trace = status.trace.unwrap();
    assert!(
        trace.contains("orders-3 offset 0 could not be written for as long"),
        "{trace}"
    );
    assert_eq!((broker.accepted(), broker.released()), (vec![1], vec![0]));
}

#[tokio::test(start_paused = true)]
async fn a_record_that_fails_while_others_are_written_fails_the_task_at_the_end_of_its_hold() {
    let broker = Broker::default();
    broker.deliver(0..10, 1);
    let started = Instant::now();
    let sink = SinkScript::default().poisoned([3], Step::Fails);
    let (broker, _, status) = Running::start(&broker, sink).ended().await;
    let trace = status.trace.unwrap();
    assert!(
        trace.contains("orders-3 offset 3 could not be written for as long"),
        "{trace}"
    );
    assert!(started.elapsed() >= 300 * S && started.elapsed() < 302 * S);
    assert_eq!(sorted(broker.accepted()), [0, 1, 2, 4, 5, 6, 7, 8, 9]);
    assert_eq!(broker.released(), [3]);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_blocks_half_of_the_window_is_given_up_after_a_few_tries() {
    let broker = Broker::default();
    let started = Instant::now();
    (0..20).for_each(|number| drop(broker.deliver(100 * number..100 * (number + 1), 1)));
    let sink = SinkScript::default().poisoned([3], Step::Fails);
    let (_, sink, status) = Running::start(&broker, sink).ended().await;
    let trace = status.trace.unwrap();
    assert!(
        trace.contains("offset 3 could not be written and blocks half"),
        "{trace}"
    );
    assert!(started.elapsed() > 2 * S && started.elapsed() < 10 * S);
    assert_eq!(times_written(&sink).len(), 1999);
}

#[tokio::test(start_paused = true)]
async fn a_record_on_its_last_delivery_is_put_first_and_alone() {
    let broker = Broker::default();
    broker.deliver(0..3, 1);
    broker.deliver(3..5, 5);
    let running = Running::start(&broker, SinkScript::puts([Step::Slow(S)]));
    sleep(5 * S).await;
    broker.deliver(5..7, 5);
    broker.deliver(7..9, 1);
    sleep(5 * S).await;
    let (broker, sink, _) = running.stop().await;
    assert_eq!(
        sink.put_offsets(),
        [
            vec![0, 1, 2],
            vec![3],
            vec![4],
            vec![5],
            vec![6],
            vec![7, 8]
        ]
    );
    assert_eq!(sorted(broker.accepted()), offsets(0..9));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_gave_everything_back_while_the_target_was_in_trouble_acquires_again() {
    // The breaker is closed yet; it has opened.
    for (after, open) in [(20 * MS, 0), (20 * S, 1)] {
        let broker = Broker::default();
        broker.deliver(0..2, 1);
        broker.deliver(2..4, 1);
        let running = Running::start(&broker, SinkScript::puts(vec![Step::Fails; 1000]));
        sleep(after).await;
        assert_eq!(running.shared.status().metrics.breaker_open, open);
        running.control.send_replace(Control::Pause);
        sleep(S).await;
        assert_eq!(sorted(broker.released()), [0, 1, 2, 3]);
        running.control.send_replace(Control::Run);
        sleep(S).await;
        assert!(!broker.seen(|seen| seen.paused));
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_releases_what_fails_but_not_what_is_on_its_last_delivery() {
    let broker = Broker::default();
    broker.deliver(0..1, 1);
    broker.deliver(1..2, 5);
    let sink = SinkScript::default().poisoned([0, 1], Step::Fails);
    let running = Running::start(&broker, sink);
    sleep(S).await;
    running.control.send_replace(Control::Pause);
    sleep(10 * S).await;
    assert_eq!(running.shared.state(), TaskState::Paused);
    assert_eq!(broker.released(), [0]);
    assert!(broker.seen(|seen| seen.paused && !seen.closed));
    running.sink.cure();
    sleep(60 * S).await;
    assert_eq!(broker.accepted(), [1]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_may_ask_for_a_commit_and_for_a_pause() {
    let broker = Broker::default();
    let running = Running::start(&broker, SinkScript::default());
    sleep(10 * MS).await;
    running.context.request_commit();
    sleep(10 * MS).await;
    assert_eq!(broker.seen(|seen| seen.commits), 1);
    running.context.pause();
    sleep(10 * MS).await;
    assert!(broker.seen(|seen| seen.paused));
    assert_eq!(running.shared.state(), TaskState::Running);
    running.context.resume();
    sleep(10 * MS).await;
    assert!(!broker.seen(|seen| seen.paused));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_record_is_to_blame_only_for_a_put_of_its_own_also_where_taking_apart_is_broken_off() {
    let broker = Broker::default();
    broker.deliver(0..2, 1);
    let letters = LetterBox::default();
    // Both together are refused; then the target is down as the first one is put alone.
    let sink = SinkScript::puts([Step::Fatal, Step::Fails]);
    let running = Running::start_beside(&broker, sink, Some(&letters), |settings| {
        settings.failures.tolerance = Tolerance::All;
        settings.failures.set_aside = SetAside::DeadLetter;
    });
    sleep(60 * S).await;
    let (broker, _, _) = running.stop().await;
    assert_eq!(sorted(broker.accepted()), [0, 1]);
    assert_eq!(letters.all().len(), 0);
}
