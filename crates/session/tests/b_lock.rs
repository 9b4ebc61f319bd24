//! Acquisition locks: renewal, its refusal, expiry, delays of dropped records.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod world;

use std::time::Duration;

use sharegroup_session::Acknowledgement::{Accept, Release};
use sharegroup_session::limits::DROP_DELAY_MIN;
use sharegroup_session::{AckFailure, Event, Warning};
use sharegroup_testkit::model::{Place, Slot};
use sharegroup_wire::{BrokerId, ErrorCode};

use world::{MS, SECOND, World};

const LOCK: Duration = SECOND.saturating_mul(4);

/// A world with a lock of 4 s whose client holds `count` records.
fn holding(count: usize, configure: impl FnOnce(&mut World)) -> (World, Place) {
    let (mut world, place) = World::with_client(1, |_| {});
    world.cluster.settings.lock = LOCK;
    configure(&mut world);
    world.cluster.produce(place, count);
    world.run_until_held(count as u64);
    (world, place)
}

fn renewals(world: &World) -> usize {
    world
        .cluster
        .history()
        .acknowledges()
        .filter(|(_, request)| request.is_renew_ack)
        .count()
}

fn not_renewable_warnings(world: &World) -> usize {
    world.clients[0]
        .warnings
        .iter()
        .filter(|(_, warning)| matches!(warning, Warning::NotRenewable { .. }))
        .count()
}

fn delivery_counts(world: &World, place: Place) -> Vec<i16> {
    (0..world.cluster.log_end(place))
        .map(|offset| world.cluster.delivery_count(place, offset))
        .collect()
}

#[test]
fn locks_are_renewed_while_a_handler_works_for_ten_lock_times() {
    let (mut world, place) = holding(500, |_| {});
    world.run_for(10 * LOCK);
    assert_eq!(world.clients[0].losses, []);
    assert!(
        renewals(&world) >= 20 && renewals(&world) <= 25,
        "{} renewals",
        renewals(&world)
    );
    world.settle_all(Accept);
    world.run_for(SECOND);
    assert_eq!(world.clients[0].told(place, Ok(Accept)).len(), 500);
    assert!(world.cluster.history().expired.is_empty());
    world.close(0);
    world.check();
}

#[test]
fn locks_of_several_acquisitions_are_renewed_together() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.cluster.settings.lock = LOCK;
    for _ in 0..20 {
        world.cluster.produce(place, 10);
        world.run_for(20 * MS);
    }
    assert_eq!(world.clients[0].core.records_held(), 200);
    world.run_for(5 * LOCK);
    assert_eq!(world.clients[0].losses, []);
    assert!(renewals(&world) <= 15, "{} renewals", renewals(&world));
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn b_055_version_1_broker_gets_no_renewal_and_the_expiry_is_told() {
    let (mut world, place) = holding(5, |world| world.cluster.set_share_version(BrokerId(1), 1));
    assert_eq!(not_renewable_warnings(&world), 1);
    let (now, id) = (world.now, world.clients[0].holdings[0].id);
    world.client().core.renew(now, id);
    world.settle(0, (0, 1), Accept);
    world.run_for(LOCK);
    assert_eq!(renewals(&world), 0);
    assert_eq!(world.clients[0].told(place, Ok(Accept)), [0, 1]);
    assert_eq!(
        world.clients[0].told(place, Err(AckFailure::LockExpired)),
        [2, 3, 4]
    );
    // They come again; nothing was settled behind anybody's back.
    world.run_until_held(3);
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn b_056_refused_renewal_is_seen_once_and_not_tried_in_a_loop() {
    let (mut world, place) = holding(10, |world| world.cluster.settings.renew_enabled = false);
    world.client().core.pause();
    world.run_for(3 * LOCK);
    assert!(renewals(&world) <= 8, "{} renewals", renewals(&world));
    assert_eq!(not_renewable_warnings(&world), 1);
    let refused = Event::RenewableChanged { renewable: false };
    assert_eq!(
        world.clients[0]
            .events
            .iter()
            .filter(|event| **event == refused)
            .count(),
        1
    );
    assert_eq!(
        world.clients[0]
            .told(place, Err(AckFailure::LockExpired))
            .len(),
        10
    );
    // After a while it is tried again: an operator may have turned it on.
    world.cluster.settings.renew_enabled = true;
    world.client().core.resume();
    world.run_until_held(10);
    world.run_for(60 * SECOND);
    world.settle_all(Accept);
    world.run_until_held(0);
    world.cluster.produce(place, 10);
    world.run_until(120 * SECOND, "renewal works again", |world| {
        world.clients[0]
            .events
            .iter()
            .any(|event| matches!(event, Event::LockRenewed { .. }))
    });
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn renewals_that_were_off_for_a_moment_cost_no_delivery() {
    let (mut world, place) = holding(5, |_| {});
    world.run_for(LOCK);
    world.client().core.pause();
    world.cluster.settings.renew_enabled = false;
    world.run_until(LOCK, "refusal", |world| not_renewable_warnings(world) == 1);
    world.cluster.settings.renew_enabled = true;
    let before = renewals(&world);
    world.run_for(5 * LOCK);
    assert_eq!(world.clients[0].losses, []);
    let tried = renewals(&world) - before;
    assert!(tried <= 20, "{tried} renewals");
    world.settle_all(Accept);
    world.run_for(SECOND);
    assert_eq!(world.clients[0].told(place, Ok(Accept)).len(), 5);
    world.close(0);
    world.check();
}

#[test]
fn what_is_dropped_while_renewals_are_off_keeps_its_delay_once_they_work() {
    let (mut world, place) = holding(5, |_| {});
    let now = world.now;
    world.client().drop_held(now, 0, (0, 4));
    world.run_until(5 * SECOND, "second delivery", |world| {
        world.clients[0].holdings.len() == 2
    });
    world.client().core.pause();
    world.cluster.settings.renew_enabled = false;
    world.run_until(LOCK, "refusal", |world| not_renewable_warnings(world) == 1);
    world.cluster.settings.renew_enabled = true;
    let now = world.now;
    let last = world.clients[0].holdings.len() - 1;
    world.client().drop_held(now, last, (0, 4));
    world.run_until(5 * SECOND, "release", |world| {
        world.cluster.slot(place, 0) == Slot::Available
    });
    // Half of the lock is left, which is less than the delay of a second delivery.
    let waited = world.now - now;
    assert!(waited >= 2 * DROP_DELAY_MIN, "{waited:?}");
    world.close(0);
    world.check();
}

#[test]
fn refusal_is_known_after_five_requests_though_a_newer_acquisition_is_of_the_same_partition() {
    let (mut world, place) = holding(50, |world| world.cluster.settings.renew_enabled = false);
    world.run_for(LOCK / 4);
    world.cluster.produce(place, 20);
    world.run_until_held(70);
    world.client().core.pause();
    world.run_until(LOCK, "refusal", |world| not_renewable_warnings(world) == 1);
    assert!(renewals(&world) <= 5, "{} renewals", renewals(&world));
    world.settle_all(Accept);
    world.run_for(SECOND);
    assert_eq!(world.clients[0].told(place, Ok(Accept)).len(), 70);
    world.close(0);
    world.check();
}

#[test]
fn stale_offset_does_not_stop_the_renewal_of_the_others() {
    let (mut world, place) = holding(200, |_| {});
    world.run_for(LOCK);
    world.steal(place, 77);
    world.run_for(5 * LOCK);
    let lost = Err(AckFailure::Broker(ErrorCode::InvalidRecordState));
    // Either the search for it found it, or it was acquired again before.
    let stale = world.clients[0].told(place, lost).len()
        + world.clients[0]
            .told(place, Err(AckFailure::Superseded))
            .len();
    assert_eq!(stale, 1);
    assert_eq!(world.clients[0].losses.len(), 1);
    world.settle_all(Accept);
    world.run_for(SECOND);
    assert_eq!(world.cluster.start_offset(place), 200);
    world.close(0);
    world.check();
}

#[test]
fn stale_offset_is_found_though_renewal_was_never_tried_before() {
    let (mut world, place) = holding(200, |_| {});
    world.client().core.pause();
    world.run_for(10 * MS);
    world.steal(place, 0);
    world.run_for(5 * LOCK);
    assert_eq!(
        world.clients[0].losses.len(),
        1,
        "{:?}",
        world.clients[0].losses
    );
    assert_eq!(world.clients[0].core.records_held(), 199);
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn renewal_switched_off_at_run_time_takes_no_record_away_before_its_lock_ends() {
    let (mut world, place) = holding(500, |_| {});
    world.run_for(LOCK);
    world.client().core.pause();
    world.cluster.settings.renew_enabled = false;
    let before = renewals(&world);
    world.run_until(LOCK, "refusal", |world| not_renewable_warnings(world) == 1);
    world.run_for(500 * MS);
    assert_eq!(world.clients[0].losses, []);
    assert!(
        renewals(&world) - before <= 15,
        "{} renewals",
        renewals(&world) - before
    );
    world.settle_all(Accept);
    world.run_for(SECOND);
    assert_eq!(world.clients[0].told(place, Ok(Accept)).len(), 500);
    world.close(0);
    world.check();
}

#[test]
fn many_stale_offsets_do_not_switch_renewal_off() {
    let (mut world, place) = holding(200, |_| {});
    world.client().core.pause();
    world.run_for(LOCK);
    for offset in 20..40 {
        world.steal(place, offset);
    }
    world.run_for(5 * LOCK);
    assert_eq!(not_renewable_warnings(&world), 0);
    assert_eq!(world.clients[0].core.records_held(), 180);
    world.client().core.resume();
    world.run_until_held(200);
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn stale_acquisition_does_not_switch_renewal_off_for_a_newer_one() {
    let (mut world, place) = holding(3, |_| {});
    world.run_for(LOCK * 3 / 10);
    world.cluster.produce(place, 3);
    world.run_until_held(6);
    world.client().core.pause();
    for offset in 0..3 {
        world.steal(place, offset);
    }
    world.run_for(5 * LOCK);
    assert_eq!(not_renewable_warnings(&world), 0);
    let newer = (3..6).map(|offset| world.cluster.slot(place, offset));
    assert!(
        newer
            .into_iter()
            .all(|slot| matches!(slot, Slot::Acquired { .. }))
    );
    assert!(renewals(&world) <= 25, "{} renewals", renewals(&world));
    world.client().core.resume();
    world.run_until(LOCK, "all of them", |world| {
        world.clients[0].core.records_held() == 6
    });
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn offsets_that_the_leader_has_not_acquired_at_all_are_lost_after_few_renewals() {
    let (mut world, place) = World::with_client(2, |_| {});
    world.cluster.settings.lock = LOCK;
    world.cluster.produce(place, 100);
    world.run_until_held(100);
    world.client().core.pause();
    // The fetch that waits at the leader ends.
    world.run_for(SECOND);
    let leader = world.leader(place);
    // There and back before the client asks again: what was acquired is nobody's now.
    for to in [BrokerId(3 - leader.0), leader] {
        world.cluster.move_leader(place, to);
    }
    world.run_for(LOCK / 2);
    assert_eq!(not_renewable_warnings(&world), 0);
    assert_eq!(world.clients[0].core.records_held(), 0);
    assert!(renewals(&world) <= 8, "{} renewals", renewals(&world));
    world.client().core.resume();
    world.run_until_held(100);
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn t28_deadlines_follow_the_groups_lock_duration() {
    let (mut world, place) = holding(5, |world| world.cluster.settings.lock = 30 * SECOND);
    let first = world.clients[0].holdings[0].deadline - world.now;
    assert!(first > 29 * SECOND && first <= 30 * SECOND, "{first:?}");
    world.cluster.settings.lock = 2 * SECOND;
    world.cluster.produce(place, 5);
    world.run_until_held(10);
    let second = world.clients[0].holdings[1].deadline - world.now;
    assert!(second <= 2 * SECOND, "{second:?}");
    assert_eq!(world.clients[0].core.lock_duration(), 2 * SECOND);
    world.run_for(60 * SECOND);
    assert_eq!(world.clients[0].losses, []);
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn deadline_counts_from_the_request_and_never_ends_after_the_brokers() {
    let (world, place) = holding(5, |world| world.network.latency = (30 * MS, 30 * MS));
    let Slot::Acquired { deadline, .. } = world.cluster.slot(place, 0) else {
        panic!("acquired")
    };
    let known = world.clients[0].holdings[0].deadline;
    assert!(
        known <= deadline && deadline - known <= 600 * MS,
        "{:?}",
        deadline - known
    );
}

#[test]
fn dropped_record_comes_again_after_a_delay_that_doubles() {
    let (mut world, place) = holding(1, |world| world.cluster.settings.delivery_count_limit = 10);
    for delay in [1, 2, 4, 8] {
        let (now, count) = (world.now, world.clients[0].holdings.len());
        world.client().drop_held(now, count - 1, (0, 0));
        world.run_until(120 * SECOND, "next delivery", |world| {
            world.clients[0].holdings.len() == count + 1
        });
        let waited = world.now - now;
        assert!(
            waited >= delay * SECOND && waited < delay * SECOND + 100 * MS,
            "{waited:?} instead of {delay} s"
        );
    }
    assert_eq!(delivery_counts(&world, place), [5]);
    assert!(
        world.cluster.history().expired.is_empty(),
        "held under renewal meanwhile"
    );
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn dropped_record_is_released_before_its_lock_ends_where_nothing_renews_it() {
    let (mut world, place) = holding(1, |world| world.cluster.set_share_version(BrokerId(1), 1));
    let at = world.now;
    for _ in 0..3 {
        let (now, last) = (world.now, world.clients[0].holdings.len() - 1);
        world.client().drop_held(now, last, (0, 0));
        world.run_until(60 * SECOND, "next delivery", |world| {
            world.clients[0].holdings.len() == last + 2
        });
    }
    assert!(world.now - at < 1 * SECOND + 2 * SECOND + LOCK + SECOND);
    assert!(world.cluster.history().expired.is_empty());
    world.settle_all(Accept);
    world.run_for(SECOND);
    assert_eq!(world.cluster.start_offset(place), 1);
    world.close(0);
    world.check();
}

#[test]
fn dropped_records_are_released_at_once_by_a_close() {
    let (mut world, place) = holding(5, |_| {});
    let now = world.now;
    world.client().drop_held(now, 0, (0, 4));
    world.close(0);
    assert!(world.now - now < SECOND);
    assert_eq!(world.clients[0].told(place, Ok(Release)).len(), 5);
    assert_eq!(delivery_counts(&world, place), [1; 5]);
    world.check();
}

#[test]
fn renewals_that_the_caller_stops_end_for_good_and_the_loss_is_told() {
    let (mut world, place) = holding(20, |_| {});
    world.run_for(LOCK);
    let before = renewals(&world);
    assert!(before > 0);
    world.client().core.pause();
    world.client().core.stop_renewals();
    let at = world.now;
    world.run_until(2 * LOCK, "loss", |world| {
        !world.clients[0].losses.is_empty()
    });
    assert!(world.now - at <= LOCK);
    world.run_for(2 * LOCK);
    let lost = world.clients[0].told(place, Err(AckFailure::LockExpired));
    assert_eq!(lost.len(), 20);
    // One may have been on its way.
    assert!(renewals(&world) <= before + 1);
    assert_eq!(not_renewable_warnings(&world), 0);
    world.close(0);
    world.check();
}

#[test]
fn hold_max_ends_renewals_with_a_warning_and_the_loss_is_told() {
    let (mut world, place) = World::with_client(1, |config| config.hold_max = Some(10 * SECOND));
    world.cluster.settings.lock = LOCK;
    world.cluster.produce(place, 5);
    world.run_until_held(5);
    world.client().core.pause();
    let at = world.now;
    world.run_until(60 * SECOND, "loss", |world| {
        !world.clients[0].losses.is_empty()
    });
    let held = world.now - at;
    assert!(held > 10 * SECOND && held < 10 * SECOND + LOCK, "{held:?}");
    let warned = world.clients[0]
        .warnings
        .iter()
        .filter(|(_, warning)| matches!(warning, Warning::HoldMax { .. }));
    assert_eq!(warned.count(), 1);
    assert_eq!(
        world.clients[0]
            .told(place, Err(AckFailure::LockExpired))
            .len(),
        5
    );
    world.client().core.resume();
    world.run_until_held(5);
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn acknowledgement_that_its_lock_would_outrun_is_reported_and_never_sent() {
    let (mut world, place) = holding(5, |world| world.cluster.set_share_version(BrokerId(1), 1));
    // A fetch keeps the session busy until the lock is over.
    world
        .network
        .next_fates(world::Api::Fetch, [world::Fate::Delay(5 * SECOND)]);
    world.run_for(SECOND);
    world.settle_all(Accept);
    world.run_for(LOCK);
    assert_eq!(
        world.clients[0]
            .told(place, Err(AckFailure::LockExpired))
            .len(),
        5
    );
    assert!(world.cluster.history().applied.is_empty());
    world.run_for(5 * SECOND);
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn records_that_arrive_with_their_lock_over_are_told_lost() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.cluster.settings.lock = LOCK;
    world.cluster.produce(place, 5);
    world
        .network
        .next_fates(world::Api::Fetch, [world::Fate::Delay(5 * SECOND)]);
    world.run_until(20 * SECOND, "loss", |world| {
        !world.clients[0].losses.is_empty()
    });
    assert_eq!(
        world.clients[0]
            .told(place, Err(AckFailure::LockExpired))
            .len(),
        5
    );
    world.run_until_held(5);
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn leader_change_during_a_hold_is_told_and_the_record_comes_again_from_the_new_leader() {
    let (mut world, place) = holding(5, |_| {});
    world.cluster.move_leader(place, BrokerId(3));
    world.run_until(30 * SECOND, "second delivery", |world| {
        world.clients[0].holdings.len() == 2
    });
    world.run_for(3 * LOCK);
    assert_eq!(world.clients[0].core.records_held(), 5);
    assert_eq!(
        world.clients[0]
            .losses
            .iter()
            .map(|loss| loss.last_offset - loss.first_offset + 1)
            .sum::<i64>(),
        5
    );
    world.settle_all(Accept);
    world.run_for(SECOND);
    assert_eq!(world.cluster.start_offset(place), 5);
    world.close(0);
    world.check();
}

#[test]
fn stalled_application_costs_each_record_one_delivery() {
    let (mut world, place) = holding(10, |world| world.cluster.settings.renew_enabled = false);
    world.client().polls = false;
    world.run_for(10 * LOCK);
    assert_eq!(delivery_counts(&world, place), [1; 10]);
    let stalled = |world: &World| {
        let events = world.clients[0].events.iter();
        events.filter(|event| **event == Event::Stalled).count()
    };
    assert_eq!(stalled(&world), 1);
    // It lives again: everything comes again, once.
    world.client().core.application_alive();
    world.run_for(10 * LOCK);
    assert_eq!(delivery_counts(&world, place), [2; 10]);
    // So does whoever settles, though nothing is left to settle.
    let now = world.now;
    let old = world.clients[0].holdings[0].id;
    world.client().core.acknowledge(now, old, 0, 9, Accept);
    world.run_until_held(10);
    world.settle_all(Accept);
    world.run_for(SECOND);
    assert_eq!(world.cluster.start_offset(place), 10);
    world.close(0);
    world.check();
}

#[test]
fn lock_lost_to_the_end_of_a_session_is_no_stall() {
    let (mut world, place) = holding(10, |_| {});
    world.client().polls = false;
    world.cluster.move_leader(place, BrokerId(3));
    world.run_until(30 * SECOND, "second delivery", |world| {
        world.clients[0].holdings.len() == 2
    });
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn too_few_offsets_to_tell_why_renewal_fails_are_told_not_to_be_renewed() {
    for count in [1, 2] {
        let (mut world, _) = holding(count, |world| world.cluster.settings.renew_enabled = false);
        world.client().core.pause();
        let id = world.clients[0].holdings[0].id;
        let deadline = world.clients[0].holdings[0].deadline;
        world.run_until(LOCK, "the core gives up renewing", |world| {
            let mut events = world.clients[0].events.iter();
            events.any(|event| *event == Event::LockNotRenewed { acquisition: id })
        });
        assert!(deadline - world.now > LOCK / 4, "{count}");
        world.settle_all(Accept);
        world.close(0);
        world.check();
    }
}

#[test]
fn refused_renewal_counts_as_possible_again_only_once_one_succeeded() {
    let (mut world, _) = holding(10, |world| {
        world.cluster.settings.renew_enabled = false;
        world.cluster.settings.lock = 200 * SECOND;
    });
    let changes = |world: &World| {
        let events = world.clients[0].events.iter();
        let changes = events.filter_map(|event| match event {
            Event::RenewableChanged { renewable } => Some(*renewable),
            _ => None,
        });
        changes.collect::<Vec<_>>()
    };
    world.run_for(120 * SECOND);
    assert_eq!(changes(&world), [false]);
    // What is held is tried again, and again in vain.
    world.run_for(62 * SECOND);
    assert_eq!(changes(&world), [false]);
    world.cluster.settings.renew_enabled = true;
    world.settle_all(Accept);
    let place = world.clients[0].holdings[0].place;
    world.cluster.produce(place, 10);
    world.run_for(62 * SECOND);
    assert_eq!(changes(&world), [false, true]);
    world.settle_all(Accept);
    world.close(0);
    world.check();
}
