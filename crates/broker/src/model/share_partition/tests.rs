//! The promises of KIP-932, and what was measured on Kafka 4.4.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sharegroup_wire::message::share_fetch::{AcknowledgementBatch, AcquiredRecords};

use super::acknowledge::ack_type::{ACCEPT, GAP, REJECT, RELEASE, RENEW};
use super::*;

const LIMITS: Limits = Limits {
    lock: Duration::from_secs(30),
    delivery_count_max: 5,
    record_locks_max: 2000,
    renew_enabled: true,
};

fn terms(member: &str, records_max: i64) -> AcquireTerms {
    AcquireTerms {
        member_id: Arc::from(member),
        mode: AcquireMode::BatchOptimized,
        records_max,
        batch_size: 500,
    }
}

/// Fetches as the leader does: from the next offset on, in batches of the log.
fn fetch(
    partition: &mut SharePartition,
    now: Instant,
    terms: &AcquireTerms,
    log: &[(i64, i64)],
) -> Vec<(i64, i64, i16)> {
    let from = partition.next_fetch_offset();
    let read: Vec<_> = log
        .iter()
        .copied()
        .filter(|(_, last)| *last >= from)
        .collect();
    let acquired = partition.acquire(now, terms, &LIMITS, from, &read);
    let range =
        |range: &AcquiredRecords| (range.first_offset, range.last_offset, range.delivery_count);
    acquired.ranges.iter().map(range).collect()
}

fn ack(first_offset: i64, last_offset: i64, types: &[i8]) -> AcknowledgementBatch {
    AcknowledgementBatch {
        first_offset,
        last_offset,
        acknowledge_types: types.to_vec(),
    }
}

#[test]
fn accepted_records_move_the_start_past_them() {
    let now = Instant::now();
    let mut partition = SharePartition::new(0);
    assert_eq!(
        fetch(&mut partition, now, &terms("a", 500), &[(0, 9)]),
        [(0, 9, 1)]
    );
    partition
        .acknowledge(now, "a", &[ack(0, 4, &[ACCEPT])], &LIMITS)
        .unwrap();
    assert_eq!(partition.start_offset(), 5);
    partition
        .acknowledge(now, "a", &[ack(5, 9, &[GAP])], &LIMITS)
        .unwrap();
    assert_eq!(
        (partition.start_offset(), partition.in_flight_count()),
        (10, 0)
    );
    assert_eq!(partition.next_fetch_offset(), 10);
}

#[test]
fn release_makes_record_available_again() {
    let now = Instant::now();
    let mut partition = SharePartition::new(0);
    fetch(&mut partition, now, &terms("a", 500), &[(0, 9)]);
    let outcome = partition
        .acknowledge(now, "a", &[ack(3, 3, &[RELEASE])], &LIMITS)
        .unwrap();
    assert!(outcome.released && outcome.lost.is_empty());
    assert_eq!(
        fetch(&mut partition, now, &terms("b", 500), &[(0, 9)]),
        [(3, 3, 2)]
    );
}

#[test]
fn a_lock_ends_at_its_time_and_not_before() {
    let now = Instant::now();
    let mut partition = SharePartition::new(0);
    fetch(&mut partition, now, &terms("a", 500), &[(0, 9)]);
    assert_eq!(partition.next_lock_end(), Some(now + LIMITS.lock));
    let early = partition.expire(now + LIMITS.lock - Duration::from_millis(1), &LIMITS);
    assert_eq!(early, Released::default());
    let ended = partition.expire(now + LIMITS.lock, &LIMITS);
    assert_eq!(ended.ranges, [(0, 9, 1)]);
    let late = partition.acknowledge(now + LIMITS.lock, "a", &[ack(0, 9, &[ACCEPT])], &LIMITS);
    assert_eq!(late, Err(AckError::BatchNotAcquired));
}

#[test]
fn renewal_starts_a_lock_anew() {
    let now = Instant::now();
    let mut partition = SharePartition::new(0);
    fetch(&mut partition, now, &terms("a", 500), &[(0, 9)]);
    let later = now + Duration::from_secs(20);
    partition
        .acknowledge(later, "a", &[ack(0, 9, &[RENEW])], &LIMITS)
        .unwrap();
    assert_eq!(partition.expire(now + LIMITS.lock, &LIMITS).ranges, []);
    assert_eq!(
        partition.expire(later + LIMITS.lock, &LIMITS).ranges,
        [(0, 9, 1)]
    );
}

#[test]
fn a_partitions_acknowledgements_stand_or_fall_together_but_for_renewals() {
    let now = Instant::now();
    let mut partition = SharePartition::new(0);
    fetch(&mut partition, now, &terms("a", 500), &[(0, 9)]);
    partition
        .acknowledge(now, "a", &[ack(5, 5, &[RELEASE])], &LIMITS)
        .unwrap();
    let later = now + Duration::from_secs(20);
    let acks = [ack(0, 0, &[RENEW]), ack(1, 5, &[ACCEPT])];
    let refused = partition.acknowledge(later, "a", &acks, &LIMITS);
    assert_eq!(refused, Err(AckError::OffsetNotAcquired));
    assert!(partition.record(1).unwrap().state.is_held_by("a"));
    let expired = partition.expire(now + LIMITS.lock, &LIMITS).ranges;
    assert!(expired.iter().all(|(first, ..)| *first != 0), "{expired:?}");
}

#[test]
fn a_border_offset_that_repeats_is_refused() {
    let now = Instant::now();
    let mut partition = SharePartition::new(0);
    fetch(&mut partition, now, &terms("a", 500), &[(0, 9)]);
    let acks = [ack(0, 5, &[ACCEPT]), ack(5, 9, &[ACCEPT])];
    assert_eq!(check_batches(&acks, 2, false), Ok(()));
    let refused = partition.acknowledge(now, "a", &acks, &LIMITS);
    assert_eq!(refused, Err(AckError::InTransition));
    assert_eq!(partition.start_offset(), 0);
}

#[test]
fn offsets_below_the_start_are_accepted_and_those_behind_the_end_are_not() {
    let now = Instant::now();
    let mut partition = SharePartition::new(0);
    fetch(&mut partition, now, &terms("a", 500), &[(0, 9), (10, 19)]);
    partition
        .acknowledge(now, "a", &[ack(0, 9, &[ACCEPT])], &LIMITS)
        .unwrap();
    let late = partition.acknowledge(now, "b", &[ack(0, 9, &[ACCEPT])], &LIMITS);
    assert_eq!(late, Ok(AckOutcome::default()));
    let past = partition.acknowledge(now, "a", &[ack(10, 20, &[ACCEPT])], &LIMITS);
    assert_eq!(past, Err(AckError::LastPastEnd));
    let past = partition.acknowledge(now, "a", &[ack(30, 30, &[ACCEPT])], &LIMITS);
    assert_eq!(past, Err(AckError::FirstPastEnd));
    let foreign = partition.acknowledge(now, "b", &[ack(10, 10, &[ACCEPT])], &LIMITS);
    assert_eq!(foreign, Err(AckError::NotOwner));
}

#[test]
fn deliveries_narrow_near_the_limit_as_measured() {
    let now = Instant::now();
    let mut partition = SharePartition::new(0);
    let mut seen = Vec::new();
    loop {
        let got = fetch(&mut partition, now, &terms("a", 500), &[(0, 9)]);
        let Some((first, last, count)) = got.first().copied() else {
            break;
        };
        assert_eq!(got.len(), 1);
        seen.push((first, last, count));
        partition
            .acknowledge(now, "a", &[ack(first, last, &[RELEASE])], &LIMITS)
            .unwrap();
    }
    let mut expected = vec![(0, 9, 1), (0, 9, 2), (0, 9, 3), (0, 4, 4)];
    expected.extend((0..5).map(|offset| (offset, offset, 5)));
    expected.push((5, 9, 4));
    expected.extend((5..10).map(|offset| (offset, offset, 5)));
    assert_eq!(seen, expected);
    assert_eq!(partition.start_offset(), 10);
}

#[test]
fn a_full_window_hands_out_only_what_is_inside_it() {
    let now = Instant::now();
    let log: Vec<_> = (0..30)
        .map(|batch| (batch * 100, batch * 100 + 99))
        .collect();
    let mut partition = SharePartition::new(0);
    let first = fetch(&mut partition, now, &terms("a", 5000), &log);
    assert_eq!(first.last().map(|(_, last, _)| *last), Some(1999));
    assert!(!partition.can_acquire(&LIMITS));
    partition
        .acknowledge(now, "a", &[ack(100, 199, &[ACCEPT])], &LIMITS)
        .unwrap();
    assert!(
        !partition.can_acquire(&LIMITS),
        "the record at the front holds the window"
    );
    partition
        .acknowledge(now, "a", &[ack(0, 99, &[RELEASE])], &LIMITS)
        .unwrap();
    assert!(partition.can_acquire(&LIMITS));
    assert_eq!(
        fetch(&mut partition, now, &terms("a", 5000), &log),
        [(0, 99, 2)]
    );
}

#[test]
fn record_limit_splits_a_batch_and_leaves_the_rest_to_others() {
    let now = Instant::now();
    let strict = |member| AcquireTerms {
        mode: AcquireMode::RecordLimit,
        ..terms(member, 7)
    };
    let mut partition = SharePartition::new(0);
    assert_eq!(
        fetch(&mut partition, now, &strict("a"), &[(0, 99)]),
        [(0, 6, 1)]
    );
    assert_eq!(
        fetch(&mut partition, now, &strict("b"), &[(0, 99)]),
        [(7, 13, 1)]
    );
    assert_eq!(partition.end_offset(), 99);
}

#[test]
fn another_leader_forgets_attempts_that_were_never_stored() {
    let now = Instant::now();
    let mut partition = SharePartition::new(0);
    fetch(&mut partition, now, &terms("a", 500), &[(0, 9)]);
    partition
        .acknowledge(
            now,
            "a",
            &[ack(2, 3, &[ACCEPT]), ack(5, 5, &[RELEASE])],
            &LIMITS,
        )
        .unwrap();
    partition.reload();
    let again = fetch(&mut partition, now, &terms("b", 500), &[(0, 9)]);
    assert_eq!(again, [(0, 1, 1), (4, 4, 1), (5, 5, 2), (6, 9, 1)]);
}

#[test]
fn what_is_stored_lags_one_write_and_its_count_makes_up_for_it() {
    let now = Instant::now();
    let mut partition = SharePartition::new(0);
    fetch(&mut partition, now, &terms("a", 500), &[(0, 9)]);
    assert_eq!(partition.stored(), Stored::default());
    partition
        .acknowledge(now, "a", &[ack(0, 9, &[ACCEPT])], &LIMITS)
        .unwrap();
    let stored = partition.stored();
    assert_eq!(
        (stored.start_offset, stored.delivery_complete_count),
        (0, 10)
    );
}

#[test]
fn illegal_batches_are_refused() {
    let refused = |batches: &[AcknowledgementBatch], version, renew| {
        check_batches(batches, version, renew).is_err()
    };
    assert!(refused(&[ack(5, 4, &[ACCEPT])], 2, false));
    assert!(refused(
        &[ack(5, 9, &[ACCEPT]), ack(0, 4, &[ACCEPT])],
        2,
        false
    ));
    assert!(refused(&[ack(0, 4, &[])], 2, false));
    assert!(refused(&[ack(0, 4, &[ACCEPT, ACCEPT])], 2, false));
    assert!(refused(&[ack(0, i64::MAX, &[ACCEPT, ACCEPT])], 2, false));
    assert!(refused(&[ack(0, 4, &[RENEW])], 2, false));
    assert!(refused(&[ack(0, 4, &[RENEW])], 1, true));
    assert!(refused(&[ack(0, 4, &[5])], 2, true));
    assert!(!refused(&[ack(0, 4, &[RENEW])], 2, true));
    assert!(!refused(&[ack(0, 1, &[GAP, REJECT])], 1, false));
}

/// One step of a random history.
#[derive(Debug, Clone)]
enum Step {
    Fetch {
        member: usize,
        records: i64,
        strict: bool,
    },
    Ack {
        member: usize,
        first: i64,
        length: i64,
        kind: i8,
    },
    Wait(u64),
    Close(usize),
    Reload,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_usize, 1..40_i64, any::<bool>())
            .prop_map(|(member, records, strict)| Step::Fetch { member, records, strict }),
        6 => (0..3_usize, 0..120_i64, 1..20_i64, 0..5_i8)
            .prop_map(|(member, first, length, kind)| Step::Ack { member, first, length, kind }),
        2 => (1..20_u64).prop_map(Step::Wait),
        1 => (0..3_usize).prop_map(Step::Close),
        1 => Just(Step::Reload),
    ]
}

const MEMBERS: [&str; 3] = ["a", "b", "c"];

proptest! {
    /// Whatever happens: nobody gets what somebody holds, no record is delivered more often than
    /// allowed, the window is kept, and a refused acknowledgement changes nothing but locks.
    #[test]
    fn every_history_keeps_the_promises(steps in prop::collection::vec(step(), 1..120)) {
        let limits = Limits { record_locks_max: 100, ..LIMITS };
        let log: Vec<_> = (0..12).map(|batch| (batch * 10, batch * 10 + 9)).collect();
        let mut now = Instant::now();
        let mut partition = SharePartition::new(0);
        for step in steps {
            let before = partition.clone();
            match step {
                Step::Fetch { member, records, strict } => {
                    let from = partition.next_fetch_offset();
                    let read: Vec<_> = log.iter().copied().filter(|(_, last)| *last >= from).collect();
                    let mode = if strict { AcquireMode::RecordLimit } else { AcquireMode::BatchOptimized };
                    let terms = AcquireTerms { mode, ..terms(MEMBERS[member], records) };
                    let reach = partition.reach(&terms, &limits, from);
                    let near: Vec<_> = read.iter().copied().filter(|(base, _)| *base <= reach).collect();
                    let mut by_near = partition.clone();
                    let acquired_by_near = by_near.acquire(now, &terms, &limits, from, &near);
                    let acquired = partition.acquire(now, &terms, &limits, from, &read);
                    prop_assert_eq!(format!("{by_near:?}"), format!("{partition:?}"), "what is out of reach counts");
                    prop_assert_eq!(acquired_by_near.ranges, acquired.ranges.clone());
                    prop_assert!(!strict || acquired.count <= records);
                    let offsets = acquired.ranges.iter().flat_map(|range| range.first_offset..=range.last_offset);
                    prop_assert_eq!(offsets.clone().count() as i64, acquired.count);
                    for offset in offsets {
                        let free = before.record(offset).is_none_or(|record| record.state == RecordState::Available);
                        prop_assert!(free, "{offset} was {:?}", before.record(offset));
                        prop_assert!(partition.record(offset).unwrap().state.is_held_by(MEMBERS[member]));
                    }
                }
                Step::Ack { member, first, length, kind } => {
                    let acks = [ack(first, first + length - 1, &[kind])];
                    if partition.acknowledge(now, MEMBERS[member], &acks, &limits).is_err() {
                        let counts = |partition: &SharePartition| -> Vec<_> {
                            partition.records().map(|(offset, record)| {
                                let held = matches!(record.state, RecordState::Acquired { .. });
                                (offset, held, record.delivery_count)
                            }).collect()
                        };
                        prop_assert_eq!(counts(&before), counts(&partition));
                    }
                }
                Step::Wait(seconds) => {
                    now += Duration::from_secs(seconds);
                    partition.expire(now, &limits);
                    let overdue = partition.records().any(|(_, record)| record.state.is_overdue(now));
                    prop_assert!(!overdue);
                }
                Step::Close(member) => {
                    partition.release_member(MEMBERS[member], &limits);
                    let held = partition.records().any(|(_, record)| record.state.is_held_by(MEMBERS[member]));
                    prop_assert!(!held);
                }
                Step::Reload => partition.reload(),
            }
            prop_assert!(partition.start_offset() >= before.start_offset());
            prop_assert!(partition.in_flight_count() <= limits.record_locks_max + 9, "whole batches only");
            for (offset, record) in partition.records() {
                prop_assert!((0..=5).contains(&record.delivery_count), "{offset}: {record:?}");
                prop_assert!(record.delivery_count > 0 || record.state == RecordState::Available);
            }
            if let Some(first) = partition.record(partition.start_offset()) {
                prop_assert!(!first.state.is_terminal());
            }
        }
    }
}
