//! Puts that never end.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_put_that_gives_no_outcome_fails_the_task_and_holds_what_it_was_given() {
    let broker = Broker::default();
    let lock = broker.deliver(7..9, 1);
    let running = Running::start(&broker, SinkScript::puts([Step::Hangs]));
    sleep(151 * S).await;
    // A quarter of the time: a warning.
    assert!(running.shared.status().metrics.put_stalled_ms >= 150_000);
    assert_eq!(running.shared.state(), TaskState::Running);
    sleep(450 * S).await;
    let status = running.shared.status();
    assert_eq!(status.state, TaskState::Failed);
    let trace = status.trace.unwrap();
    assert!(
        trace.contains("put of orders-3 offsets 7 to 8 gave no outcome for"),
        "{trace}"
    );
    // Its lock is not over: others must not have the records yet.
    assert!(broker.released().is_empty());
    assert!(!running.handle.is_finished());
    lock.lose();
    let (broker, _, status) = running.ended().await;
    assert!(broker.released().is_empty());
    assert!(status.trace.unwrap().contains("gave no outcome"));
}

#[tokio::test(start_paused = true)]
async fn what_a_stalled_put_writes_after_all_is_accepted() {
    let broker = Broker::default();
    broker.deliver(7..9, 1);
    broker.deliver(9..10, 1);
    let running = Running::start(&broker, SinkScript::puts([Step::Slow(610 * S)]));
    let (broker, _, status) = running.ended().await;
    assert_eq!(status.state, TaskState::Failed);
    assert_eq!(
        (broker.accepted(), broker.released()),
        (vec![7, 8], vec![9])
    );
}

#[tokio::test(start_paused = true)]
async fn a_put_that_reports_outcomes_may_last_as_long_as_it_likes() {
    let broker = Broker::default();
    broker.deliver(0..10, 1);
    let running = Running::start(&broker, SinkScript::puts([Step::WritesEvery(300 * S)]));
    sleep(3500 * S).await;
    assert_eq!(running.shared.state(), TaskState::Running);
    let (broker, _, _) = running.stop().await;
    assert_eq!(broker.accepted(), offsets(0..10));
}
