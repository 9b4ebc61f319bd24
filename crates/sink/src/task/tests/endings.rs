//! What a task does with records on their last delivery, and with what a put may have written, when it ends.

use super::*;
use crate::policy::{SetAside, Tolerance};

fn keeps_letters(settings: &mut TaskSettings) {
    settings.failures.tolerance = Tolerance::All;
    settings.failures.set_aside = SetAside::DeadLetter;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_keeps_what_is_on_its_last_delivery_in_dead_letters_and_releases_the_rest()
 {
    let broker = Broker::default();
    broker.deliver(0..2, 4);
    broker.deliver(2..4, 5);
    broker.deliver_corrupt(9..11, 5);
    let letters = LetterBox::default();
    let sink = SinkScript::puts([Step::Broken]);
    let running = Running::start_beside(&broker, sink, Some(&letters), keeps_letters);
    let (broker, _, status) = running.ended().await;
    assert_eq!(status.state, TaskState::Failed);
    assert_eq!(broker.rejected(), [2, 3, 9, 10]);
    assert_eq!(broker.released(), [0, 1]);
    assert_eq!(letters.all().len(), 3);
    assert_eq!(status.counters.named_as_lost, 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_stops_while_a_last_delivery_fails_keeps_it_in_a_dead_letter() {
    let broker = Broker::default();
    broker.deliver(0..1, 5);
    let letters = LetterBox::default();
    let sink = SinkScript::puts(vec![Step::Fails; 100]);
    let running = Running::start_beside(&broker, sink, Some(&letters), keeps_letters);
    sleep(S).await;
    let (broker, _, status) = running.stop().await;
    assert_eq!((broker.rejected(), broker.released()), (vec![0], vec![]));
    assert_eq!(status.state, TaskState::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_stops_and_has_to_give_up_a_last_delivery_counts_as_failed_and_names_it() {
    let broker = Broker::default();
    broker.deliver(7..8, 5);
    let running = Running::start(&broker, SinkScript::puts(vec![Step::Fails; 100]));
    sleep(S).await;
    let (broker, _, status) = running.stop().await;
    assert_eq!(broker.released(), [7]);
    assert_eq!(status.counters.named_as_lost, 1);
    assert_eq!(status.state, TaskState::Failed);
    let trace = status.trace.unwrap();
    let named = "orders-3 offset 7 had to be given up on the last allowed delivery";
    assert!(trace.starts_with(named), "{trace}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_on_the_last_delivery_fails_the_task_naming_the_record() {
    let broker = Broker::default();
    let lock = broker.deliver(7..8, 5);
    let running = Running::start(&broker, SinkScript::puts(vec![Step::Fails; 100]));
    sleep(S).await;
    lock.lose();
    let (broker, _, status) = running.ended().await;
    assert!(broker.released().is_empty());
    let trace = status.trace.unwrap();
    let named = "orders-3 offset 7 lost the lock on the last allowed delivery";
    assert!(trace.starts_with(named), "{trace}");
}

#[tokio::test(start_paused = true)]
async fn what_a_put_that_was_cut_off_may_have_written_is_counted_and_what_was_not_put_is_not() {
    for (step, fails) in [(Step::Hangs, false), (Step::Panics, true)] {
        let broker = Broker::default();
        broker.deliver(0..2, 1);
        broker.deliver(2..5, 1);
        let running = Running::start(&broker, SinkScript::puts([step]));
        sleep(S).await;
        let (broker, _, status) = running.stop().await;
        assert_eq!(broker.released(), offsets(0..5));
        assert_eq!(status.state == TaskState::Failed, fails);
        assert_eq!(status.counters.may_arrive_twice(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_put_and_not_flushed_may_arrive_twice() {
    let broker = Broker::default();
    broker.deliver(0..2, 1);
    let running = Running::start(&broker, SinkScript::default().flushes([Step::Hangs]));
    sleep(S).await;
    let (broker, _, status) = running.stop().await;
    assert_eq!(broker.released(), [0, 1]);
    assert_eq!(status.counters.may_arrive_twice(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_short_lock_without_renewal_leaves_a_put_most_of_its_time() {
    let broker = Broker::default();
    broker.deliver(0..2, 1).end_after(S);
    let running = Running::start(&broker, SinkScript::puts([Step::Slow(500 * MS)]));
    sleep(2 * S).await;
    let (broker, _, status) = running.stop().await;
    assert_eq!(broker.accepted(), [0, 1]);
    assert_eq!(status.state, TaskState::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_task_is_told_how_long_locks_last_with_its_first_put() {
    let broker = Broker::default();
    let running = Running::start(&broker, SinkScript::default());
    sleep(S).await;
    assert_eq!(running.context.lock_duration(), None);
    broker.deliver(0..1, 1);
    sleep(S).await;
    assert_eq!(running.context.lock_duration(), Some(30 * S));
    broker.deliver(1..2, 1).end_after(15 * S);
    sleep(S).await;
    assert_eq!(running.context.lock_duration(), Some(15 * S));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_too_late_for_its_short_lock_is_given_back_unput_while_others_are_in_time() {
    let broker = Broker::default();
    for first in [0, 2, 4] {
        broker.deliver(first..first + 2, 1).end_after(S);
    }
    let running = Running::start_with(
        &broker,
        SinkScript::puts([Step::Slow(350 * MS), Step::Slow(350 * MS)]),
        // Each batch is flushed by itself.
        |settings| settings.flush_interval = Duration::ZERO,
    );
    sleep(2 * S).await;
    assert_eq!(running.shared.state(), TaskState::Running);
    let (broker, sink, status) = running.stop().await;
    assert_eq!(sink.put_offsets(), [[0, 1], [2, 3]]);
    assert_eq!(
        (broker.accepted(), broker.released()),
        (vec![0, 1, 2, 3], vec![4, 5])
    );
    assert_eq!(status.counters.may_arrive_twice(), 0);
}
