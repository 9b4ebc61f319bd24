//! Records that are set aside.

use super::*;
use crate::policy::{SetAside, Tolerance};
use crate::task::{LetterError, LetterOf};

fn tolerant(broker: &Broker, sink: SinkScript, letters: &LetterBox) -> Running {
    Running::start_beside(broker, sink, Some(letters), |settings| {
        settings.failures.tolerance = Tolerance::All;
        settings.failures.set_aside = SetAside::DeadLetter;
    })
}

fn down() -> Option<LetterError> {
    Some(LetterError {
        text: "no leader".to_owned(),
        is_retriable: true,
    })
}

#[tokio::test(start_paused = true)]
async fn one_poison_record_in_each_of_200_batches_makes_200_letters() {
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    (0..200).for_each(|number| drop(broker.deliver(100 * number..100 * (number + 1), 1)));
    let poison: Vec<i64> = (0..200).map(|number| 100 * number + number % 100).collect();
    let sink = SinkScript::default().poisoned(poison.clone(), Step::Fatal);
    let running = tolerant(&broker, sink, &letters);
    sleep(60 * S).await;
    let (broker, sink, status) = running.stop().await;
    assert_eq!(status.state, TaskState::Stopped);
    assert_eq!(letters.offsets(), poison);
    assert_eq!(broker.rejected(), poison);
    let mut written = sink.written();
    written.sort_unstable();
    let good: Vec<_> = offsets(0..20_000)
        .into_iter()
        .filter(|o| !poison.contains(o))
        .collect();
    assert_eq!(written, good);
    assert_eq!(broker.accepted().len(), good.len());
    assert!(broker.released().is_empty());
    let metrics = status.metrics;
    assert_eq!(
        (
            metrics.record_errors,
            metrics.records_skipped,
            metrics.dead_letters
        ),
        (200, 200, 200)
    );
    assert_eq!(
        (metrics.dead_letter_failures, metrics.named_as_lost),
        (0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn b_059_nine_rows_once_and_one_dead_letter() {
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    broker.deliver(0..10, 1);
    let sink = SinkScript::default().poisoned([4], Step::Fatal);
    let running = tolerant(&broker, sink, &letters);
    sleep(S).await;
    let (broker, sink, _) = running.stop().await;
    let mut written = sink.written();
    written.sort_unstable();
    assert_eq!(written, [0, 1, 2, 3, 5, 6, 7, 8, 9]);
    assert_eq!((letters.offsets(), broker.rejected()), (vec![4], vec![4]));
    let (_, error) = letters.letters().remove(0);
    assert!(
        error.contains("put of orders-3 offset 4 failed: the table is gone"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn b_078_a_refused_record_is_dead_lettered_and_the_task_runs_on() {
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    broker.deliver(0..4, 1);
    let refused = Outcome::Refused {
        reason: "no such column".to_owned(),
    };
    let sink = SinkScript::puts([Step::Reports(vec![(2, refused)], true)]);
    let running = tolerant(&broker, sink, &letters);
    sleep(S).await;
    assert_eq!(running.shared.state(), TaskState::Running);
    let (broker, sink, _) = running.stop().await;
    assert_eq!(sink.put_offsets().len(), 1);
    assert_eq!(
        (broker.accepted(), broker.rejected()),
        (vec![0, 1, 3], vec![2])
    );
    assert_eq!(
        letters.letters(),
        [(2, "orders-3 offset 2: no such column".to_owned())]
    );
}

#[tokio::test(start_paused = true)]
async fn b_064_a_refused_record_is_not_put_again_when_the_flush_of_its_neighbours_fails() {
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    broker.deliver(0..4, 1);
    let refused = Outcome::Refused {
        reason: "400".to_owned(),
    };
    let reports = Step::Reports(vec![(2, refused)], true);
    let sink =
        SinkScript::puts([Step::Fails, Step::Fine, reports]).flushes([Step::Fine, Step::Fails]);
    let running = tolerant(&broker, sink, &letters);
    sleep(S).await;
    let (broker, sink, _) = running.stop().await;
    assert_eq!(
        sink.put_offsets(),
        [vec![0, 1, 2, 3], vec![0, 1], vec![2, 3], vec![3]]
    );
    assert_eq!(
        (broker.accepted(), broker.rejected()),
        (vec![0, 1, 3], vec![2])
    );
}

#[tokio::test(start_paused = true)]
async fn a_record_that_the_task_reports_as_errant_is_dead_lettered() {
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    broker.deliver(0..4, 1);
    let running = tolerant(&broker, SinkScript::puts([Step::Slow(S)]), &letters);
    sleep(500 * MS).await;
    let errant = running.context.errant_records();
    errant.report_at(&Arc::from("orders"), 3, 1, "no such column");
    // Not of this task: ignored.
    errant.report_at(&Arc::from("orders"), 4, 2, "?");
    sleep(S).await;
    let (broker, _, _) = running.stop().await;
    assert_eq!(
        (broker.accepted(), broker.rejected()),
        (vec![0, 2, 3], vec![1])
    );
    assert_eq!(
        letters.letters(),
        [(1, "orders-3 offset 1: no such column".to_owned())]
    );
}

#[tokio::test(start_paused = true)]
async fn where_the_group_has_a_net_the_record_is_accepted_after_its_letter() {
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    broker.deliver(0..2, 1);
    let sink = SinkScript::default().poisoned([1], Step::Fatal);
    let running = Running::start_beside(&broker, sink, Some(&letters), |settings| {
        settings.failures.tolerance = Tolerance::All;
        settings.failures.set_aside = SetAside::DeadLetterAccepted;
    });
    sleep(S).await;
    let (broker, _, status) = running.stop().await;
    assert_eq!((broker.accepted(), broker.rejected()), (vec![0, 1], vec![]));
    assert_eq!(letters.offsets(), [1]);
    assert_eq!(status.metrics.records_written, 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_dead_letter_topic_the_rejected_record_is_named() {
    let broker = Broker::default();
    let file = std::env::temp_dir().join(format!("sink-rejected-{}", std::process::id()));
    broker.deliver(0..3, 1);
    let sink = SinkScript::default().poisoned([1], Step::Fatal);
    let path = Some(file.clone());
    let running = Running::start_with(&broker, sink, |settings| {
        settings.failures.tolerance = Tolerance::All;
        settings.loss.file = path;
    });
    sleep(S).await;
    let (broker, _, status) = running.stop().await;
    let line = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let line: serde_json::Value = serde_json::from_str(line.trim()).unwrap();
    assert_eq!(line["offset"], 1);
    let reason = line["reason"].as_str().unwrap();
    assert!(reason.contains("the table is gone"), "{reason}");
    assert_eq!(
        (broker.accepted(), broker.rejected()),
        (vec![0, 2], vec![1])
    );
    assert_eq!(status.counters.named_as_lost, 1);
}

#[tokio::test(start_paused = true)]
async fn one_record_that_fails_for_ever_is_dead_lettered_after_its_hold_and_no_other_waits() {
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    let sink = SinkScript::default().poisoned([77], Step::Fails);
    broker.deliver(0..100, 1);
    let running = tolerant(&broker, sink, &letters);
    for number in 1..9 {
        sleep(30 * S).await;
        broker.deliver(100 * number..100 * (number + 1), 1);
        sleep(MS).await;
        assert_eq!(broker.accepted().len() as i64, 100 * (number + 1) - 1);
        assert!(!broker.seen(|seen| seen.paused));
    }
    assert!(letters.offsets().is_empty());
    sleep(61 * S).await;
    let (broker, _, status) = running.stop().await;
    assert_eq!((letters.offsets(), broker.rejected()), (vec![77], vec![77]));
    assert_eq!(broker.accepted().len(), 899);
    assert_eq!(status.state, TaskState::Stopped);
}

#[tokio::test(start_paused = true)]
async fn of_100_000_records_one_that_fails_for_ever_is_dead_lettered_and_the_others_are_written() {
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    let sink = SinkScript::default().poisoned([50_077], Step::Fails);
    let running = tolerant(&broker, sink, &letters);
    for number in 0..200 {
        broker.deliver(500 * number..500 * (number + 1), 1);
        sleep(10 * MS).await;
    }
    // It blocks its partition's window long before its hold is over.
    sleep(30 * S).await;
    assert_eq!(running.shared.status().metrics.breaker_open, 0);
    assert_eq!(
        (letters.offsets(), broker.rejected()),
        (vec![50_077], vec![50_077])
    );
    let (_, sink, status) = running.stop().await;
    assert_eq!(sink.written().len(), 99_999);
    assert_eq!(
        (status.counters.written, status.metrics.records_skipped),
        (99_999, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_cannot_be_written_is_retried_while_others_are_written() {
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    letters.fail(down());
    broker.deliver(0..3, 5);
    let sink = SinkScript::default().poisoned([1], Step::Fatal);
    let running = tolerant(&broker, sink, &letters);
    sleep(100 * S).await;
    broker.deliver(3..5, 1);
    sleep(S).await;
    assert_eq!(broker.accepted(), [0, 2, 3, 4]);
    assert!(broker.rejected().is_empty() && broker.released().is_empty());
    letters.fail(None);
    sleep(61 * S).await;
    assert_eq!((letters.offsets(), broker.rejected()), (vec![1], vec![1]));
    let (_, sink, status) = running.stop().await;
    // It was put once.
    let puts = sink.put_offsets();
    assert_eq!(puts.iter().filter(|put| put.contains(&1)).count(), 1);
    assert!(status.metrics.dead_letter_failures > 3);
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_cannot_be_written_fails_the_task_at_the_end_of_the_hold_or_at_once() {
    for (is_retriable, seconds) in [(true, 300), (false, 0)] {
        let broker = Broker::default();
        let letters = LetterBox::beside(&broker);
        letters.fail(Some(LetterError {
            text: "record too large".to_owned(),
            is_retriable,
        }));
        broker.deliver(0..3, 1);
        let sink = SinkScript::default().poisoned([1], Step::Fatal);
        let started = Instant::now();
        let (broker, _, status) = tolerant(&broker, sink, &letters).ended().await;
        let trace = status.trace.unwrap();
        assert!(
            trace.contains("the dead letter of orders-3 offset 1 can't be written"),
            "{trace}"
        );
        assert!(trace.contains("record too large"), "{trace}");
        assert!(started.elapsed() >= seconds * S && started.elapsed() <= (seconds + 61) * S);
        assert_eq!(broker.released(), [1]);
    }
}

#[tokio::test(start_paused = true)]
async fn records_that_cannot_be_read_fail_the_task_naming_the_range() {
    let broker = Broker::default();
    broker.deliver(0..3, 1);
    broker.deliver_corrupt(3..6, 1);
    let (broker, _, status) = Running::start(&broker, SinkScript::default()).ended().await;
    assert_eq!(
        status.trace.as_deref(),
        Some("offsets 3-5 of orders-3 can't be read")
    );
    assert_eq!(
        (broker.accepted(), broker.released()),
        (vec![0, 1, 2], vec![3, 4, 5])
    );
}

#[tokio::test(start_paused = true)]
async fn records_that_cannot_be_read_are_dead_lettered_as_they_came_and_rejected_alone() {
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    letters.fail(down());
    broker.deliver(0..3, 1);
    broker.deliver_corrupt(3..6, 1);
    broker.deliver(6..8, 1);
    let running = tolerant(&broker, SinkScript::default(), &letters);
    sleep(10 * S).await;
    assert_eq!(broker.accepted(), [0, 1, 2, 6, 7]);
    assert!(broker.rejected().is_empty());
    letters.fail(None);
    sleep(20 * S).await;
    let (broker, _, _) = running.stop().await;
    assert_eq!(broker.rejected(), [3, 4, 5]);
    let [letter] = letters.all().try_into().unwrap();
    let LetterOf::Corrupt(range) = letter.of else {
        panic!("{letter:?}");
    };
    assert_eq!((range.first_offset, range.last_offset), (3, 5));
    assert_eq!(&*range.bytes, b"rubbish");
}

#[tokio::test(start_paused = true)]
async fn records_that_cannot_be_read_and_are_given_up_on_their_last_delivery_are_named() {
    let broker = Broker::default();
    broker.deliver_corrupt(3..6, 5);
    let (broker, _, status) = Running::start(&broker, SinkScript::default()).ended().await;
    assert_eq!(status.counters.named_as_lost, 3);
    assert_eq!(broker.released(), [3, 4, 5]);
}
