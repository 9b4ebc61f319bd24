//! Acknowledgements: reported cases (B-…), rules of the protocol (T-…), what a commit means.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod world;

use sharegroup_session::Acknowledgement::{Accept, Gap, Reject, Release};
use sharegroup_session::{AckFailure, Event};
use sharegroup_testkit::model::{Place, Slot};
use sharegroup_wire::{BrokerId, ErrorCode};

use world::{Api, Fate, MS, SECOND, World};

const UNKNOWN: AckFailure = AckFailure::Unknown;

fn offsets(end: i64) -> Vec<i64> {
    (0..end).collect()
}

/// A world whose client holds `count` records of one partition and fetches no more, so that
/// acknowledgements go alone.
fn holding(count: usize) -> (World, Place) {
    let (mut world, place) = World::with_client(1, |config| config.records_held_max = count as u32);
    world.cluster.produce(place, count);
    world.run_until_held(count as u64);
    world.client().core.pause();
    world.run_for(SECOND);
    (world, place)
}

fn acknowledge_requests(world: &World) -> usize {
    world.cluster.history().acknowledges().count()
}

/// Types of acknowledgement that reached a broker, by offset.
fn applied_types(world: &World, offset: i64) -> Vec<i8> {
    let applied = world.cluster.history().applied.iter();
    applied
        .filter(|applied| applied.offset == offset)
        .map(|applied| applied.acknowledge_type)
        .collect()
}

fn commit(world: &mut World) -> sharegroup_session::CommitId {
    let now = world.now;
    world.client().core.commit(now)
}

#[test]
fn b_036_restarted_broker_fails_each_acknowledgement_once_and_the_records_come_again() {
    let (mut world, place) = holding(3);
    let broker = world.leader(place);
    world.settle_all(Accept);
    let commit = commit(&mut world);
    world.restart(broker);
    world.client().core.resume();
    world.run_for(SECOND);
    assert_eq!(world.clients[0].failed(), 3);
    assert_eq!(world.clients[0].committed, [commit]);
    world.run_until_held(3);
    world.settle_all(Accept);
    world.run_for(SECOND);
    assert_eq!(world.clients[0].told(place, Ok(Accept)), offsets(3));
    world.close(0);
    world.check();
}

#[test]
fn b_038_acknowledgements_made_during_a_request_go_with_the_next() {
    let (mut world, place) = World::with_client(1, |config| config.records_held_max = 10);
    world.cluster.produce(place, 10);
    world.run_until_held(10);
    world
        .network
        .next_fates(Api::Fetch, [Fate::Delay(300 * MS)]);
    world.settle(0, (0, 4), Accept);
    world.run_for(100 * MS);
    world.settle(0, (5, 5), Accept);
    world.settle(0, (8, 8), Accept);
    world.run_for(350 * MS);
    let accepted = [0, 1, 2, 3, 4, 5, 8];
    assert_eq!(world.clients[0].told(place, Ok(Accept)), accepted);
    let applied: Vec<i64> = world
        .cluster
        .history()
        .applied
        .iter()
        .map(|applied| applied.offset)
        .collect();
    assert_eq!(applied, accepted);
    world.close(0);
    world.check();
}

#[test]
fn b_040_acknowledgement_to_an_old_leader_fails_without_a_loop_and_others_commit() {
    let (mut world, _) = World::with_client(4, |_| {});
    let places = world.cluster.places();
    let (moved, stays) = (places[0], places[3]);
    world.cluster.produce(moved, 5);
    world.cluster.produce(stays, 5);
    world.run_until_held(10);
    world.client().core.pause();
    world.run_for(SECOND);
    world.cluster.move_leader(moved, BrokerId(2));
    let before = acknowledge_requests(&world);
    world.settle_all(Accept);
    world.run_for(SECOND);
    let refused = Err(AckFailure::Broker(ErrorCode::UnknownTopicOrPartition));
    assert_eq!(world.clients[0].told(moved, refused), offsets(5));
    assert_eq!(world.clients[0].told(stays, Ok(Accept)), offsets(5));
    assert_eq!(acknowledge_requests(&world) - before, 1);
    world.client().core.resume();
    world.run_until_held(5);
    assert_eq!(world.clients[0].holdings.last().unwrap().place, moved);
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn b_040_acknowledgements_of_another_leaders_locks_fail_without_those_of_this_one() {
    let (mut world, place) = World::with_client(2, |_| {});
    world.cluster.produce(place, 100);
    world.run_until_held(100);
    world.client().core.pause();
    world.run_for(SECOND);
    // There and back before the client asks again; this one has acquired the first ten by now.
    let leader = world.leader(place);
    for to in [BrokerId(3 - leader.0), leader] {
        world.cluster.move_leader(place, to);
    }
    world.cluster.settings.record_locks_max = 10;
    world.client().core.resume();
    world.run_until(SECOND, "the first come again", |world| {
        world.clients[0].holdings.len() > 1
    });
    world.client().core.pause();
    world.run_for(SECOND);
    let before = acknowledge_requests(&world);
    world.settle_all(Accept);
    world.run_for(SECOND);
    assert_eq!(world.clients[0].told(place, Ok(Accept)), offsets(10));
    let past_the_end = Err(AckFailure::Broker(ErrorCode::InvalidRequest));
    let failed = world.clients[0].told(place, past_the_end);
    assert_eq!(failed, (10..100).collect::<Vec<_>>());
    let requests = acknowledge_requests(&world) - before;
    assert!(requests <= 16, "{requests} requests");
    world.cluster.settings.record_locks_max = 2000;
    world.client().core.resume();
    world.run_until_held(90);
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn b_041_connection_that_drops_during_the_acknowledgement_is_told_and_work_goes_on() {
    for fate in [
        Fate::CutBefore,
        Fate::CutAfter,
        Fate::LoseRequest,
        Fate::LoseAnswer,
    ] {
        let (mut world, place) = holding(10);
        world.network.next_fates(Api::Acknowledge, [fate]);
        world.settle_all(Accept);
        let commit = commit(&mut world);
        world.run_for(MS / 10);
        world.client().core.resume();
        world.run_until(31 * SECOND, "commit", |world| {
            world.clients[0].committed == [commit]
        });
        assert_eq!(
            world.clients[0].told(place, Err(UNKNOWN)),
            offsets(10),
            "{fate:?}"
        );
        world.cluster.produce(place, 1);
        // What was not applied comes again.
        for _ in 0..20 {
            world.run_for(100 * MS);
            world.settle_all(Accept);
        }
        world.run_for(SECOND);
        assert_eq!(world.cluster.start_offset(place), 11, "{fate:?}");
        world.close(0);
        world.check();
    }
}

#[test]
fn b_043_gaps_are_sent_though_no_record_is_pending() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.cluster.produce_marker(place);
    world.cluster.produce_hole(place, 5);
    world.cluster.produce_marker(place);
    world.run_until_held(7);
    world.settle_all(Gap);
    world.run_for(100 * MS);
    assert_eq!(world.cluster.start_offset(place), 7);
    world.run_for(70 * SECOND);
    assert_eq!(world.clients[0].holdings.len(), 1, "nothing came again");
    world.close(0);
    world.check();
}

#[test]
fn b_047_renewal_never_replaces_a_terminal_acknowledgement() {
    let (mut world, place) = holding(2);
    let (now, id) = (world.now, world.clients[0].holdings[0].id);
    world.settle(0, (0, 0), Accept);
    world.client().core.renew(now, id);
    world.run_for(SECOND);
    // The renewal went for the other record only.
    assert_eq!(applied_types(&world, 0), [1]);
    assert_eq!(applied_types(&world, 1), [4]);
    let now = world.now;
    world.client().core.renew(now, id);
    world.settle(0, (1, 1), Accept);
    world.run_for(SECOND);
    assert_eq!(
        applied_types(&world, 1),
        [4, 1],
        "T21: one accept, and no second renewal"
    );
    assert_eq!(world.clients[0].told(place, Ok(Accept)), [0, 1]);
    world.close(0);
    world.check();
}

#[test]
fn t21_acknowledgement_made_during_a_renewal_stands() {
    let (mut world, place) = holding(3);
    let (now, id) = (world.now, world.clients[0].holdings[0].id);
    world
        .network
        .next_fates(Api::Acknowledge, [Fate::Delay(200 * MS)]);
    world.client().core.renew(now, id);
    world.run_for(50 * MS);
    world.settle(0, (1, 1), Reject);
    world.run_for(SECOND);
    assert_eq!(applied_types(&world, 1), [4, 3]);
    assert_eq!(world.clients[0].told(place, Ok(Reject)), [1]);
    assert_eq!(world.clients[0].core.records_held(), 2);
    world.close(0);
    world.check();
}

#[test]
fn b_049_stale_partition_fails_alone() {
    let (mut world, _) = World::with_client(4, |_| {});
    let places = world.cluster.places();
    let (stale, fine) = (places[0], places[3]);
    world.cluster.produce(stale, 5);
    world.cluster.produce(fine, 5);
    world.run_until_held(10);
    world.client().core.pause();
    world.run_for(SECOND);
    for offset in 0..5 {
        world.steal(stale, offset);
    }
    world.settle_all(Accept);
    let commit = commit(&mut world);
    world.run_for(SECOND);
    assert_eq!(world.clients[0].committed, [commit]);
    let refused = Err(AckFailure::Broker(ErrorCode::InvalidRecordState));
    assert_eq!(world.clients[0].told(stale, refused), offsets(5));
    assert_eq!(world.clients[0].told(fine, Ok(Accept)), offsets(5));
    world.client().core.resume();
    world.run_until_held(5);
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn t2_acknowledgements_of_a_dead_session_never_hit_the_next_delivery() {
    let (mut world, place) = holding(20);
    let broker = world.leader(place);
    // Ten are on their way when the connection breaks, five are made and not sent.
    world
        .network
        .next_fates(Api::Acknowledge, [Fate::LoseRequest]);
    world.settle(0, (10, 19), Accept);
    world.run_for(50 * MS);
    world.settle(0, (5, 9), Release);
    world.client().core.resume();
    world.cut(0, broker);
    world.run_until(10 * SECOND, "second delivery", |world| {
        world.clients[0].holdings.len() == 2
    });
    assert_eq!(
        world.clients[0].told(place, Err(UNKNOWN)),
        (10..20).collect::<Vec<_>>()
    );
    assert_eq!(
        world.clients[0].told(place, Err(AckFailure::SessionEnded)),
        offsets(10)
    );
    // A late word of the first owner changes nothing.
    let (now, first) = (world.now, world.clients[0].holdings[0].id);
    assert_eq!(
        world.client().core.acknowledge(now, first, 0, 19, Release),
        0
    );
    world.run_for(10 * SECOND);
    assert!(matches!(
        world.cluster.slot(place, 0),
        Slot::Acquired { .. }
    ));
    assert!(
        world
            .cluster
            .history()
            .applied
            .iter()
            .all(|applied| applied.acknowledge_type == 4)
    );
    world.settle_all(Accept);
    world.run_for(SECOND);
    assert_eq!(world.clients[0].told(place, Ok(Accept)), offsets(20));
    world.close(0);
    world.check();
}

#[test]
fn t12_one_expired_offset_among_500_costs_only_itself() {
    let (mut world, place) = holding(500);
    world.steal(place, 123);
    world.settle_all(Accept);
    let before = acknowledge_requests(&world);
    world.run_for(SECOND);
    let refused = Err(AckFailure::Broker(ErrorCode::InvalidRecordState));
    assert_eq!(world.clients[0].told(place, refused), [123]);
    assert_eq!(world.clients[0].told(place, Ok(Accept)).len(), 499);
    let requests = acknowledge_requests(&world) - before;
    assert!(
        requests <= 20,
        "{requests} requests: about two for each halving"
    );
    world.close(0);
    world.check();
}

#[test]
fn t12_expired_offset_does_not_hold_up_a_close() {
    let (mut world, place) = holding(500);
    world.steal(place, 123);
    world.settle(0, (0, 250), Accept);
    let started = world.now;
    world.close(0);
    assert!(world.now - started < SECOND);
    assert_eq!(world.clients[0].told(place, Ok(Accept)).len(), 250);
    assert_eq!(world.clients[0].told(place, Ok(Release)).len(), 249);
    world.check();
}

#[test]
fn t13_lower_offset_acknowledged_during_a_request_goes_in_ascending_order() {
    let (mut world, place) = holding(10);
    world
        .network
        .next_fates(Api::Acknowledge, [Fate::Delay(200 * MS)]);
    world.settle(0, (5, 5), Accept);
    world.run_for(50 * MS);
    for offset in [9, 2, 7, 0, 8, 1] {
        world.settle(
            0,
            (offset, offset),
            if offset % 2 == 0 { Accept } else { Reject },
        );
    }
    world.run_for(SECOND);
    assert_eq!(world.clients[0].told(place, Ok(Accept)), [0, 2, 5, 8]);
    assert_eq!(world.clients[0].told(place, Ok(Reject)), [1, 7, 9]);
    world.close(0);
    world.check();
}

#[test]
fn t19_hostile_ranges_cost_neither_time_nor_memory() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.network.tamper = Some(|response| {
        use sharegroup_wire::message::share_fetch::AcquiredRecords;
        for partition in response
            .responses
            .iter_mut()
            .flat_map(|topic| &mut topic.partitions)
        {
            let range = |first_offset, last_offset| AcquiredRecords {
                first_offset,
                last_offset,
                delivery_count: 1,
            };
            if !partition.acquired_records.is_empty() {
                partition.acquired_records = vec![
                    range(7, 3),
                    range(0, i64::MAX),
                    range(5, 9),
                    range(0, i64::MAX),
                    range(i64::MIN, 4),
                ];
            }
        }
    });
    world.cluster.produce(place, 10);
    world.run_until_held(10);
    assert_eq!(world.clients[0].core.records_held(), i64::MAX as u64);
    let (now, id) = (world.now, world.clients[0].holdings[0].id);
    let settled = world
        .client()
        .core
        .acknowledge(now, id, i64::MIN, i64::MAX, Accept);
    assert_eq!(settled, i64::MAX as u64);
    while world.client().core.poll_request(now).is_some() {}
    world.client().core.abort();
    assert_eq!(world.clients[0].core.acknowledgements_pending(), 0);
}

#[test]
fn commit_is_told_after_the_outcome_of_everything_before_it_and_once() {
    let (mut world, place) = holding(30);
    world.settle(0, (0, 9), Accept);
    let first = commit(&mut world);
    world.settle(0, (10, 19), Release);
    let second = commit(&mut world);
    world.settle(0, (20, 20), Accept);
    world.run_for(SECOND);
    assert_eq!(world.clients[0].committed, [first, second]);
    for commit in [first, second] {
        let events = &world.clients[0].events;
        let told = events
            .iter()
            .position(|event| *event == Event::Committed(commit))
            .unwrap();
        let last = events
            .iter()
            .rposition(|event| matches!(event, Event::Acknowledged(o) if o.commit <= commit));
        assert!(last.unwrap() < told);
    }
    // Nothing to wait for: told at once.
    let third = commit(&mut world);
    world.run_for(MS);
    assert_eq!(world.clients[0].committed, [first, second, third]);
    assert_eq!(
        world.clients[0].told(place, Ok(Release)),
        (10..20).collect::<Vec<_>>()
    );
    world.close(0);
    world.check();
}

#[test]
fn acknowledgement_without_a_commit_is_sent_after_its_linger() {
    let (mut world, place) = holding(100);
    let before = acknowledge_requests(&world);
    for offset in 0..50 {
        world.settle(0, (offset, offset), Accept);
        world.run_for(MS / 10);
    }
    world.run_for(50 * MS);
    assert_eq!(world.clients[0].told(place, Ok(Accept)), offsets(50));
    assert_eq!(acknowledge_requests(&world) - before, 1);
    world.close(0);
    world.check();
}

#[test]
fn refused_acknowledgement_is_tried_again_with_backoff_while_its_lock_lives() {
    let (mut world, place) = holding(5);
    world.cluster.acknowledge_errors = [ErrorCode::CoordinatorNotAvailable; 4].into();
    world.settle_all(Accept);
    let commit = commit(&mut world);
    let before = acknowledge_requests(&world);
    world.run_until(20 * SECOND, "commit", |world| {
        world.clients[0].committed == [commit]
    });
    assert_eq!(world.clients[0].told(place, Ok(Accept)), offsets(5));
    let at: Vec<_> = world
        .cluster
        .history()
        .acknowledges()
        .skip(before)
        .map(|(logged, _)| logged.at)
        .collect();
    assert_eq!(at.len(), 5);
    assert!(
        at.windows(2).all(|pair| pair[1] - pair[0] >= 90 * MS),
        "{at:?}"
    );
    world.close(0);
    world.check();
}

#[test]
fn refused_partition_holds_up_no_other() {
    let (mut world, _) = World::with_client(4, |_| {});
    let places = world.cluster.places();
    let (refused, fine) = (places[0], places[3]);
    world.cluster.produce(refused, 5);
    world.run_until_held(5);
    world.client().core.pause();
    world.run_for(SECOND);
    world.cluster.acknowledge_errors = [ErrorCode::CoordinatorNotAvailable; 1].into();
    world.settle_all(Accept);
    world.run_for(20 * MS);
    world.cluster.produce(fine, 5);
    world.client().core.resume();
    world.run_until_held(5);
    world.settle_all(Accept);
    world.run_for(30 * MS);
    assert_eq!(world.clients[0].told(fine, Ok(Accept)), offsets(5));
    world.run_for(SECOND);
    assert_eq!(world.clients[0].told(refused, Ok(Accept)), offsets(5));
    world.close(0);
    world.check();
}

#[test]
fn acknowledgement_without_a_result_is_told_as_unknown_and_waits_for_nothing() {
    let (mut world, place) = World::with_client(1, |config| config.records_held_max = 10);
    world.cluster.produce(place, 10);
    world.run_until_held(10);
    // It rides on a fetch whose answer says nothing about the partition.
    world.network.tamper = Some(|response| response.responses.clear());
    world.settle_all(Accept);
    let commit = commit(&mut world);
    world.run_for(100 * MS);
    world.network.tamper = None;
    assert_eq!(world.clients[0].committed, [commit]);
    assert_eq!(world.clients[0].told(place, Err(UNKNOWN)), offsets(10));
    world.run_for(SECOND);
    world.close(0);
    world.check();
}
