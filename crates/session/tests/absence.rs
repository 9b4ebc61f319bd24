//! A member whose application doesn't poll is out of its group for a while.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod world;

use std::time::Duration;

use sharegroup_session::Acknowledgement::Accept;
use sharegroup_session::{AckFailure, MemberState, Warning};
use sharegroup_wire::MemberEpoch;

use world::{Api, MS, SECOND, World};

const LIMIT: Duration = Duration::from_secs(300);

fn step_out(world: &mut World) {
    let now = world.now;
    world.client().core.step_out(now, LIMIT);
}

fn rejoin(world: &mut World) {
    let now = world.now;
    world.client().core.rejoin(now);
}

fn assert_gone(world: &World) {
    assert_eq!(world.cluster.members().count(), 0);
    for broker in world.cluster.brokers() {
        assert!(world.cluster.sessions(broker).is_empty());
    }
}

#[test]
fn member_leaves_with_nothing_held_and_joins_again_under_its_id() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.cluster.produce(place, 10);
    world.run_until_held(10);
    world.settle(0, (0, 3), Accept);
    step_out(&mut world);
    world.run_for(10 * SECOND);
    assert_gone(&world);
    let client = &world.clients[0];
    assert_eq!(client.told(place, Ok(Accept)), [0, 1, 2, 3]);
    let lost = client.told(place, Err(AckFailure::SessionEnded));
    assert_eq!(lost, [4, 5, 6, 7, 8, 9]);
    assert!(world.cluster.held("member-0").is_empty());
    assert_eq!(client.core.member_state(), MemberState::Left);
    assert!(client.core.assignment().is_empty());
    assert!(!client.closed);
    let warned = client.warnings.iter().map(|(_, warning)| warning);
    let warned: Vec<_> = warned
        .filter(|w| matches!(w, Warning::NotPolled { .. }))
        .collect();
    assert_eq!(warned, [&Warning::NotPolled { limit: LIMIT }]);
    assert!(
        warned[0]
            .to_string()
            .contains("5 min (max.poll.interval.ms)")
    );

    rejoin(&mut world);
    world.run_until_held(6);
    assert_eq!(world.clients[0].joined, 2);
    world.settle_all(Accept);
    world.run_for(100 * MS);
    assert_eq!(world.cluster.start_offset(place), 10);
    world.close(0);
    assert_gone(&world);
    world.check();
}

#[test]
fn sign_of_life_while_the_member_leaves_lets_it_join_as_soon_as_it_is_out() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.cluster.produce(place, 10);
    world.run_until_held(10);
    step_out(&mut world);
    rejoin(&mut world);
    assert_ne!(world.clients[0].core.member_state(), MemberState::Joining);
    world.run_until_held(10);
    assert_eq!(world.clients[0].joined, 2);
    world.settle_all(Accept);
    world.close(0);
    assert_eq!(world.cluster.start_offset(place), 10);
    world.check();
}

#[test]
fn close_while_the_member_leaves_or_is_out_is_its_end() {
    for out_for in [MS, 10 * SECOND] {
        let (mut world, place) = World::with_client(1, |_| {});
        world.cluster.produce(place, 10);
        world.run_until_held(10);
        step_out(&mut world);
        world.run_for(out_for);
        world.close(0);
        assert_gone(&world);
        rejoin(&mut world);
        world.run_for(SECOND);
        assert!(world.clients[0].closed);
        assert_eq!(world.clients[0].core.member_epoch(), MemberEpoch(1));
        world.check();
    }
}

#[test]
fn member_that_steps_out_while_it_connects_leaves_no_connection_behind() {
    let (mut world, _) = World::with_client(3, |_| {});
    world.run_until(10 * SECOND, "a connection", |world| {
        world.network.sent.contains_key(&Api::Connect)
    });
    step_out(&mut world);
    world.run_for(10 * SECOND);
    assert_gone(&world);
    assert_eq!(world.clients[0].wires.len(), 0);
}
