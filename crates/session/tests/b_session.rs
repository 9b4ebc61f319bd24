//! Share sessions and membership, as reported cases and rules of the protocol demand.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code
)]

mod world;

use sharegroup_session::Acknowledgement::{Accept, Release};

use sharegroup_wire::MemberEpoch;
use world::{Api, Fate, MS, SECOND, World};

#[test]
fn records_are_accepted_and_the_member_leaves() {
    let (mut world, place) = World::with_client(2, |_| {});
    world.cluster.produce(place, 10);
    world.run_until_held(10);
    world.settle_all(Accept);
    world.run_for(100 * MS);
    assert_eq!(
        world.clients[0].told(place, Ok(Accept)),
        (0..10).collect::<Vec<_>>()
    );
    assert_eq!(world.cluster.start_offset(place), 10);
    world.close(0);
    assert_eq!(world.cluster.members().count(), 0);
    world.check();
}

#[test]
fn close_releases_what_is_held_and_ends_sessions() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.cluster.produce(place, 10);
    world.run_until_held(10);
    world.settle(0, (0, 3), Accept);
    world.close(0);
    assert_eq!(world.cluster.start_offset(place), 4);
    assert_eq!(
        world.clients[0].told(place, Ok(Release)),
        (4..10).collect::<Vec<_>>()
    );
    assert!(world.now - world.start < 10 * SECOND);
    for broker in world.cluster.brokers() {
        assert!(world.cluster.sessions(broker).is_empty());
    }
    world.check();
}

#[test]
fn close_during_a_heartbeat_still_leaves_the_group() {
    let (mut world, _) = World::with_client(1, |_| {});
    world
        .network
        .next_fates(Api::Heartbeat, [Fate::Carry, Fate::Delay(500 * MS)]);
    world.run_until(10 * SECOND, "second heartbeat", |world| {
        world.cluster.history().heartbeats().count() == 2
    });
    world.close(0);
    assert_eq!(world.cluster.members().count(), 0);
    assert_eq!(
        world
            .cluster
            .history()
            .heartbeats()
            .last()
            .unwrap()
            .member_epoch,
        MemberEpoch::LEAVE
    );
    world.check();
}

#[test]
fn close_during_the_join_still_leaves_the_group() {
    let (mut world, _) = World::with_client(1, |_| {});
    world
        .network
        .next_fates(Api::Heartbeat, [Fate::Delay(500 * MS)]);
    world.run_until(10 * SECOND, "join", |world| {
        world.cluster.history().heartbeats().count() == 1
    });
    world.close(0);
    assert_eq!(world.cluster.members().count(), 0);
    world.check();
}

#[test]
fn leaders_take_turns_when_only_one_record_may_be_held() {
    let (mut world, _) = World::with_client(3, |config| config.records_held_max = 1);
    // The first partition stays empty: its leader's long polls must not keep the others away.
    let places = world.cluster.places();
    world.cluster.produce(places[1], 3);
    world.cluster.produce(places[2], 3);
    let drained = |world: &World| {
        places
            .iter()
            .all(|place| world.cluster.start_offset(*place) == world.cluster.log_end(*place))
    };
    for _ in 0..1000 {
        world.run_for(10 * MS);
        world.settle_all(Accept);
    }
    assert!(drained(&world));
    world.close(0);
    world.check();
}
