//! Single steps of the ack book.

use sharegroup_wire::TopicId;

use super::*;

const PARTITION: TopicPartition = TopicPartition {
    topic_id: TopicId::ZERO,
    partition: 0,
};

fn grant(book: &mut AckBook, now: Instant, broker: i32, offsets: (i64, i64)) -> AcquisitionId {
    let ranges = [AcquiredRange {
        first_offset: offsets.0,
        last_offset: offsets.1,
        delivery_count: 1,
    }];
    let grant = Grant {
        partition: PARTITION,
        broker: BrokerId(broker),
        ranges: &ranges,
        bytes: 0,
        deadline: now + Duration::from_secs(30),
        renew_at: None,
    };
    book.acquire(now, &grant)
}

#[test]
fn part_of_a_sent_range_that_was_acquired_again_is_told_once() {
    // The clock is only a label here.
    #[allow(clippy::disallowed_methods)]
    let now = Instant::now();
    let mut book = AckBook::default();
    let old = grant(&mut book, now, 1, (0, 9));
    book.acknowledge(old, 0, 9, Acknowledgement::Accept);
    let sent = book.take_pending(now, BrokerId(1));
    // The leader moved; half comes again from the new one, and another acknowledgement waits.
    let new = grant(&mut book, now, 2, (5, 9));
    book.acknowledge(new, 5, 9, Acknowledgement::Accept);
    let commit = book.commit();
    book.resolve(now, PARTITION, &sent[&PARTITION], Verdict::Applied);
    let mut told = Vec::new();
    while let Some(event) = book.poll_event() {
        match event {
            Event::Acknowledged(outcome) => {
                told.push((outcome.first_offset, outcome.last_offset, outcome.result))
            }
            other => panic!("{commit:?} must not be told before its last outcome: {other:?}"),
        }
    }
    assert_eq!(told, [(5, 9, Err(AckFailure::Unknown)), (0, 4, Ok(()))]);
}

#[test]
fn answer_after_the_lock_has_ended_is_no_certain_success() {
    #[allow(clippy::disallowed_methods)]
    let now = Instant::now();
    let mut book = AckBook::default();
    let id = grant(&mut book, now, 1, (0, 9));
    book.acknowledge(id, 0, 9, Acknowledgement::Accept);
    let sent = book.take_pending(now, BrokerId(1));
    let late = now + Duration::from_secs(30);
    book.resolve(late, PARTITION, &sent[&PARTITION], Verdict::Applied);
    let Some(Event::Acknowledged(outcome)) = book.poll_event() else {
        panic!("no outcome");
    };
    assert_eq!(outcome.result, Err(AckFailure::AnsweredLate));
    assert_eq!(book.poll_event(), None);
}
