//! Membership and share sessions: reported cases (B-…) and rules of the protocol (T-…).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use sharegroup_session::Acknowledgement::{Accept, Release};
use sharegroup_session::{AckFailure, Event, ReleaseReason, Warning};
use sharegroup_testkit::model::{Asked, Place};
use sharegroup_wire::message::share_fetch::ShareFetchRequest;
use sharegroup_wire::{BrokerId, ErrorCode, MemberEpoch, SessionEpoch};

use world::{Api, Fate, MS, SECOND, World};

fn offsets(end: i64) -> Vec<i64> {
    (0..end).collect()
}

fn carries_acknowledgements(request: &ShareFetchRequest) -> bool {
    let mut partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.any(|partition| !partition.acknowledgement_batches.is_empty())
}

fn forgets(request: &ShareFetchRequest, place: Place) -> bool {
    let mut topics = request.forgotten_topics_data.iter();
    topics.any(|topic| topic.topic_id == place.0 && topic.partitions.contains(&place.1))
}

fn metadata_requests(world: &World) -> usize {
    let requests = world.cluster.history().requests.iter();
    requests
        .filter(|logged| matches!(logged.asked, Asked::Metadata(_)))
        .count()
}

#[test]
fn records_are_accepted_and_the_member_leaves() {
    let (mut world, place) = World::with_client(2, |_| {});
    world.cluster.produce(place, 10);
    world.run_until_held(10);
    world.settle_all(Accept);
    world.run_for(100 * MS);
    assert_eq!(world.clients[0].told(place, Ok(Accept)), offsets(10));
    assert_eq!(world.cluster.start_offset(place), 10);
    world.close(0);
    assert_eq!(world.cluster.members().count(), 0);
    world.check();
}

#[test]
fn close_flushes_acknowledgements_releases_the_rest_and_ends_sessions() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.cluster.produce(place, 10);
    world.run_until_held(10);
    world.settle(0, (0, 3), Accept);
    let started = world.now;
    world.close(0);
    assert_eq!(world.clients[0].told(place, Ok(Accept)), offsets(4));
    assert_eq!(
        world.clients[0].told(place, Ok(Release)),
        (4..10).collect::<Vec<_>>()
    );
    assert!(world.now - started < SECOND);
    for broker in world.cluster.brokers() {
        assert!(world.cluster.sessions(broker).is_empty());
    }
    let (_, last) = world.cluster.history().acknowledges().last().unwrap();
    assert_eq!(last.share_session_epoch, SessionEpoch::CLOSE);
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
    for _ in 0..1000 {
        world.run_for(10 * MS);
        world.settle_all(Accept);
    }
    for place in places {
        assert_eq!(
            world.cluster.start_offset(place),
            world.cluster.log_end(place)
        );
    }
    world.close(0);
    world.check();
}

#[test]
fn b_026_epoch_0_never_carries_acknowledgements() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.cluster.produce(place, 10);
    world.run_until_held(10);
    let broker = world.leader(place);
    // While no answer comes, everything is settled; then the connection breaks.
    world
        .network
        .next_fates(Api::Fetch, [Fate::Delay(300 * MS)]);
    world.run_for(250 * MS);
    world.settle_all(Accept);
    world.cut(0, broker);
    world.run_until_held(10);
    assert_eq!(world.clients[0].failed(), 10);
    for (_, request) in world.cluster.history().fetches() {
        assert!(
            request.share_session_epoch != SessionEpoch::OPEN || !carries_acknowledgements(request)
        );
    }
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn b_027_full_broker_is_asked_again_with_backoff_and_one_warning() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.cluster.produce(place, 1);
    world
        .cluster
        .refusals
        .insert(78, [ErrorCode::ShareSessionLimitReached; 5].into());
    world.run_until_held(1);
    let opening: Vec<_> = world
        .cluster
        .history()
        .fetches()
        .map(|(logged, _)| logged.at)
        .take(6)
        .collect();
    assert!(
        opening.windows(2).all(|pair| pair[1] - pair[0] >= 100 * MS),
        "{opening:?}"
    );
    assert_eq!(world.clients[0].warnings.len(), 1);
    world.close(0);
    world.check();
}

#[test]
fn b_028_old_leader_is_told_that_the_partition_left() {
    let (mut world, place) = World::with_client(2, |_| {});
    let other = world.cluster.places()[1];
    let (old, new) = (world.leader(place), world.leader(other));
    world.run_until(10 * SECOND, "session", |world| {
        !world.cluster.session_partitions(old, "member-0").is_empty()
    });
    world.cluster.move_leader(place, new);
    world.run_for(2 * SECOND);
    assert_eq!(
        world.cluster.session_partitions(old, "member-0"),
        BTreeSet::new()
    );
    assert!(
        world.cluster.sessions(old).is_empty(),
        "nothing is left to fetch there"
    );
    assert_eq!(
        world.cluster.session_partitions(new, "member-0"),
        BTreeSet::from([place, other])
    );
    world.cluster.produce(place, 5);
    world.run_until_held(5);
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn b_028_partition_of_a_session_that_goes_on_is_forgotten() {
    let (mut world, _) = World::with_client(4, |_| {});
    let places = world.cluster.places();
    // The first and the fourth have the same leader.
    let (moved, stays) = (places[0], places[3]);
    let old = world.leader(moved);
    world.run_until(10 * SECOND, "session", |world| {
        world.cluster.session_partitions(old, "member-0").len() == 2
    });
    world.cluster.move_leader(moved, BrokerId(2));
    world.run_for(2 * SECOND);
    assert_eq!(
        world.cluster.session_partitions(old, "member-0"),
        BTreeSet::from([stays])
    );
    assert!(
        world
            .cluster
            .history()
            .fetches()
            .any(|(_, request)| forgets(request, moved))
    );
    world.close(0);
    world.check();
}

#[test]
fn b_029_fenced_and_unknown_members_join_again_with_the_same_id_and_keep_what_they_hold() {
    for error in [
        ErrorCode::FencedMemberEpoch,
        ErrorCode::UnknownMemberId,
        ErrorCode::GroupIdNotFound,
    ] {
        let (mut world, place) = World::with_client(1, |_| {});
        world.cluster.produce(place, 10);
        world.run_until_held(10);
        world.cluster.refusals.insert(76, [error].into());
        world.run_until(20 * SECOND, "second join", |world| {
            world.clients[0].joined == 2
        });
        let joins: Vec<_> = world
            .cluster
            .history()
            .heartbeats()
            .filter(|request| request.member_epoch == MemberEpoch::JOIN)
            .collect();
        assert_eq!(joins.len(), 2, "{error}");
        assert_eq!(joins[0], joins[1], "{error}");
        assert_eq!(world.clients[0].losses, []);
        world.settle_all(Accept);
        world.run_for(SECOND);
        assert_eq!(
            world.clients[0].told(place, Ok(Accept)),
            offsets(10),
            "{error}"
        );
        world.close(0);
        world.check();
    }
}

#[test]
fn b_029_group_id_of_another_kind_of_group_is_fatal() {
    let (mut world, _) = World::with_client(1, |_| {});
    world
        .cluster
        .refusals
        .insert(76, [ErrorCode::GroupIdNotFound].into());
    world.run_for(SECOND);
    let fatal = world.clients[0].fatal.clone().expect("fatal");
    assert!(fatal.contains("another type"), "{fatal}");
    assert_eq!(world.cluster.history().heartbeats().count(), 1);
}

#[test]
fn b_034_recreated_topic_is_consumed_and_old_acknowledgements_fail_at_once() {
    let (mut world, old) = World::with_client(1, |_| {});
    world.cluster.produce(old, 5);
    world.run_until_held(5);
    let id = world.cluster.create_topic("orders", 1);
    let new = (id, 0);
    world.cluster.produce(new, 5);
    let at = world.now;
    world.settle_all(Accept);
    let before = metadata_requests(&world);
    world.run_until(SECOND, "failure", |world| world.clients[0].failed() == 5);
    let unknown = Err(AckFailure::Broker(ErrorCode::UnknownTopicId));
    assert_eq!(world.clients[0].told(old, unknown), offsets(5));
    world.run_until(20 * SECOND, "new topic", |world| {
        world.clients[0].holdings.len() == 2
    });
    let seconds = (world.now - at).as_secs() as usize + 1;
    assert!(metadata_requests(&world) - before < 5 * seconds);
    assert_eq!(world.clients[0].holdings[1].place, new);
    world.settle_all(Accept);
    world.run_for(SECOND);
    assert_eq!(world.clients[0].told(new, Ok(Accept)), offsets(5));
    for broker in world.cluster.brokers().collect::<Vec<_>>() {
        assert!(
            !world
                .cluster
                .session_partitions(broker, "member-0")
                .contains(&old),
            "T15: forgotten"
        );
    }
    world.close(0);
    world.check();
}

#[test]
fn t10_session_errors_at_every_request_end_in_progress_and_honest_failures() {
    for (api, error) in [
        (78, ErrorCode::ShareSessionNotFound),
        (78, ErrorCode::InvalidShareSessionEpoch),
        (78, ErrorCode::UnknownServerError),
        (79, ErrorCode::ShareSessionNotFound),
        (79, ErrorCode::InvalidShareSessionEpoch),
    ] {
        let (mut world, place) = World::with_client(1, |config| config.records_held_max = 10);
        world.cluster.produce(place, 10);
        world.run_until_held(10);
        world.cluster.refusals.insert(api, [error].into());
        if api == 79 {
            // Without a fetch to ride on they go alone.
            world.client().core.pause();
            world.run_for(SECOND);
        }
        world.settle(0, (0, 4), Accept);
        world.run_for(100 * MS);
        world.client().core.resume();
        world.run_until(20 * SECOND, "second delivery", |world| {
            world.clients[0].holdings.len() >= 2
        });
        assert_eq!(world.clients[0].failed(), 5, "{api} {error}");
        world.settle_all(Accept);
        world.run_for(SECOND);
        assert_eq!(world.cluster.start_offset(place), 10, "{api} {error}");
        world.close(0);
        world.check();
    }
}

#[test]
fn t11_moved_coordinator_is_found_and_nothing_else_stops() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.cluster.produce(place, 10);
    world.run_until_held(10);
    world.cluster.set_coordinator(BrokerId(2));
    world.run_for(20 * SECOND);
    assert_eq!(world.clients[0].joined, 1);
    world.settle_all(Accept);
    world.run_for(SECOND);
    assert_eq!(world.clients[0].told(place, Ok(Accept)), offsets(10));
    world.close(0);
    assert_eq!(world.cluster.members().count(), 0);
    world.check();
}

#[test]
fn t14_revoked_partition_is_forgotten_with_its_last_acknowledgements_and_fetched_no_more() {
    let (mut world, _) = World::with_client(4, |_| {});
    let places = world.cluster.places();
    let (revoked, kept) = (places[0], places[3]);
    let broker = world.leader(revoked);
    world.cluster.produce(revoked, 10);
    world.run_until_held(10);
    world
        .cluster
        .fix_assignment("member-0", Some(BTreeSet::from([kept])));
    let revoked_now = |world: &World| world.clients[0].core.assignment().len() == 1;
    world.run_until(10 * SECOND, "new assignment", revoked_now);
    world.settle_all(Accept);
    world.cluster.produce(revoked, 10);
    world.run_for(SECOND);
    assert_eq!(world.clients[0].told(revoked, Ok(Accept)), offsets(10));
    assert_eq!(
        world.clients[0].holdings.len(),
        1,
        "nothing more of it was fetched"
    );
    assert_eq!(
        world.cluster.session_partitions(broker, "member-0"),
        BTreeSet::from([kept])
    );
    assert_eq!(
        world
            .cluster
            .history()
            .fetches()
            .filter(|(_, request)| forgets(request, revoked))
            .count(),
        1
    );
    world.close(0);
    world.check();
}

#[test]
fn acknowledgements_of_a_partition_that_left_do_not_bring_it_back() {
    let (mut world, _) = World::with_client(4, |_| {});
    let places = world.cluster.places();
    let (revoked, kept) = (places[0], places[3]);
    let broker = world.leader(revoked);
    world.cluster.produce(revoked, 10);
    world.run_until_held(10);
    world
        .cluster
        .fix_assignment("member-0", Some(BTreeSet::from([kept])));
    world.run_for(10 * SECOND);
    assert_eq!(
        world.cluster.session_partitions(broker, "member-0"),
        BTreeSet::from([kept])
    );
    world.settle_all(Accept);
    world.run_for(SECOND);
    assert_eq!(world.clients[0].told(revoked, Ok(Accept)), offsets(10));
    assert_eq!(
        world.cluster.session_partitions(broker, "member-0"),
        BTreeSet::from([kept])
    );
    world.close(0);
    world.check();
}

#[test]
fn partition_that_comes_back_while_its_session_closes_is_fetched_again() {
    let (mut world, place) = World::with_client(1, |_| {});
    let broker = world.leader(place);
    world.run_until(10 * SECOND, "session", |world| {
        !world.cluster.sessions(broker).is_empty()
    });
    // The answer to the close takes longer than the partition is away.
    world
        .network
        .next_fates(Api::Acknowledge, [Fate::Delay(12 * SECOND)]);
    world
        .cluster
        .fix_assignment("member-0", Some(BTreeSet::new()));
    world.run_until(20 * SECOND, "close", |world| {
        world.cluster.sessions(broker).is_empty()
    });
    world.cluster.fix_assignment("member-0", None);
    world.cluster.produce(place, 5);
    world.run_for(25 * SECOND);
    assert_eq!(world.clients[0].core.records_held(), 5);
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn t16_partition_assigned_before_metadata_knows_it_is_consumed() {
    let mut world = World::new(3);
    world.add_client(|_| {});
    world.run_for(SECOND);
    assert!(matches!(
        world.clients[0].warnings.last(),
        Some((_, Warning::TopicMissing { .. }))
    ));
    let id = world.cluster.create_topic("orders", 1);
    world.cluster.produce((id, 0), 5);
    world.run_until(20 * SECOND, "records", |world| {
        world.clients[0].core.records_held() == 5
    });
    assert_eq!(world.clients[0].core.missing_topics().count(), 0);
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn t17_absent_leader_hint_moves_nothing() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.cluster.settings.leader_hints = false;
    let old = world.leader(place);
    world.run_until(10 * SECOND, "session", |world| {
        !world.cluster.sessions(old).is_empty()
    });
    world.cluster.move_leader(place, BrokerId(3));
    world.cluster.produce(place, 5);
    world.run_until_held(5);
    let leaders: Vec<_> = world.clients[0]
        .core
        .assignment()
        .iter()
        .map(|view| view.leader)
        .collect();
    assert_eq!(leaders, [Some(BrokerId(3))]);
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn one_failing_partition_does_not_slow_the_others_of_its_leader() {
    let (mut world, _) = World::with_client(4, |config| config.records_held_max = 10);
    let places = world.cluster.places();
    // Same leader; the first answers an error to every fetch.
    let good = places[3];
    world
        .cluster
        .fetch_errors
        .insert(places[0], ErrorCode::TopicAuthorizationFailed);
    for _ in 0..50 {
        world.cluster.produce(good, 10);
    }
    for _ in 0..200 {
        world.run_for(10 * MS);
        let now = world.now;
        for holding in std::mem::take(&mut world.client().fresh) {
            world
                .client()
                .settle(now, holding, (i64::MIN, i64::MAX), Accept);
        }
    }
    let done = world.clients[0].told(good, Ok(Accept)).len();
    assert!(done >= 400, "{done} of 500 within two seconds");
}

#[test]
fn b_112_nothing_is_sent_on_a_throttled_connection() {
    let (mut world, place) = World::with_client(1, |config| config.records_held_max = 10);
    world.cluster.produce(place, 10);
    world.run_until_held(10);
    world.settle(0, (0, 0), Accept);
    world.network.tamper = Some(|response| response.throttle_time_ms = 3000);
    let throttles = |world: &World| {
        world.clients[0]
            .warnings
            .iter()
            .any(|(_, warning)| matches!(warning, Warning::Retrying { what: "quota", .. }))
    };
    world.cluster.produce(place, 1);
    world.settle(0, (1, 8), Accept);
    world.run_until(10 * SECOND, "throttling", throttles);
    world.network.tamper = None;
    let throttled_at = world.now;
    let before =
        world.cluster.history().fetches().count() + world.cluster.history().acknowledges().count();
    world.settle_all(Accept);
    let now = world.now;
    world.client().core.commit(now);
    world.run_for(2990 * MS);
    let after =
        world.cluster.history().fetches().count() + world.cluster.history().acknowledges().count();
    assert_eq!(
        after,
        before,
        "requests within the throttle time, from {:?}",
        throttled_at - world.start
    );
    world.run_for(SECOND);
    assert_eq!(
        world.cluster.start_offset(place),
        world.cluster.log_end(place)
    );
    world.close(0);
    world.check();
}

#[test]
fn share_groups_that_are_off_are_fatal_with_advice() {
    let (mut world, _) = World::with_client(1, |_| {});
    world.cluster.settings.share_groups_on = false;
    world.run_for(SECOND);
    let fatal = world.clients[0].fatal.clone().expect("fatal");
    assert!(fatal.contains("share.version"), "{fatal}");
}

#[test]
fn paused_member_acquires_nothing_and_stays() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.client().core.pause();
    world.cluster.produce(place, 5);
    world.run_for(60 * SECOND);
    assert_eq!(world.clients[0].core.records_held(), 0);
    assert_eq!(world.clients[0].joined, 1);
    world.client().core.resume();
    world.run_until_held(5);
    assert!(
        world.clients[0]
            .events
            .iter()
            .any(|event| matches!(event, Event::Acquired(_)))
    );
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

fn releases(world: &World) -> Vec<(i64, i64, i16, ReleaseReason)> {
    let releases = world.clients[0].releases.iter();
    let parts = releases.map(|release| {
        (
            release.first_offset,
            release.last_offset,
            release.delivery_count,
            release.why,
        )
    });
    parts.collect()
}

#[test]
fn records_that_arrive_while_the_member_closes_are_told_released_unseen() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.cluster.produce(place, 5);
    world
        .network
        .next_fates(Api::Fetch, [Fate::Delay(2 * SECOND)]);
    world.run_until(20 * SECOND, "the grant", |world| {
        world.cluster.delivery_count(place, 0) == 1
    });
    assert_eq!(world.clients[0].core.records_held(), 0);
    world.close(0);
    assert_eq!(releases(&world), [(0, 4, 1, ReleaseReason::Unseen)]);
    assert_eq!(world.clients[0].told(place, Ok(Release)).len(), 5);
    world.check();
}

#[test]
fn every_release_without_the_applications_word_is_told_and_no_other() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.cluster.produce(place, 10);
    world.run_until_held(10);
    world.client().core.pause();
    let (now, id) = (world.now, world.clients[0].holdings[0].id);
    world.client().drop_held(now, 0, (0, 1));
    world.settle(0, (2, 3), Release);
    world.settle(0, (4, 5), Accept);
    world.run_for(5 * SECOND);
    world
        .client()
        .core
        .give_back(now, id, (6, 7), ReleaseReason::Unseen);
    let unseen = world.clients[0].holdings[0].held.split_off(&6);
    let left_to_core = unseen
        .into_iter()
        .map(|offset| (offset, world::Said::LeftToCore));
    world.clients[0].holdings[0].said.extend(left_to_core);
    world.close(0);
    assert_eq!(
        releases(&world),
        [
            (0, 1, 1, ReleaseReason::Dropped),
            (6, 7, 1, ReleaseReason::Unseen),
            (8, 9, 1, ReleaseReason::Closing),
        ]
    );
    assert_eq!(world.clients[0].told(place, Ok(Release)).len(), 8);
    world.check();
}

#[test]
fn a_problem_ends_with_what_it_is_about() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.cluster.produce(place, 5);
    world.run_until_held(5);
    assert_eq!(world.clients[0].core.problem(), None);
    world.cut(0, BrokerId(1));
    world.run_until(60 * SECOND, "a problem", |world| {
        world.clients[0].core.problem().is_some()
    });
    world.run_until(60 * SECOND, "its end", |world| {
        world.clients[0].core.problem().is_none()
    });
    world.run_until_held(5);
    world.settle_all(Accept);
    world.close(0);
    world.check();
}

#[test]
fn a_share_session_that_never_opens_is_warned_of_by_its_second_failure() {
    let refused = |error| {
        move |world: &mut World| {
            world.cluster.refusals.insert(78, [error; 40].into());
        }
    };
    let lost = |fate| move |world: &mut World| world.network.next_fates(Api::Fetch, [fate; 40]);
    type Break = Box<dyn Fn(&mut World)>;
    let faults: [(&str, Break); 5] = [
        (
            "SHARE_SESSION_NOT_FOUND",
            Box::new(refused(ErrorCode::ShareSessionNotFound)),
        ),
        (
            "UNKNOWN_SERVER_ERROR",
            Box::new(refused(ErrorCode::UnknownServerError)),
        ),
        ("", Box::new(lost(Fate::CutBefore))),
        ("", Box::new(lost(Fate::CutAfter))),
        ("", Box::new(lost(Fate::LoseAnswer))),
    ];
    for (cause, fault) in faults {
        let (mut world, _) = World::with_client(1, |config| {
            config.request_timeout = SECOND;
        });
        fault(&mut world);
        // The join, then two tries at the most.
        world.run_for(4 * SECOND);
        let client = &world.clients[0];
        let problem = client.core.problem().map(ToString::to_string);
        let problem = problem.expect("a problem");
        assert!(
            problem.contains("share session") && problem.contains(cause),
            "{problem}"
        );
        assert_eq!(client.warnings.len(), 1, "{:?}", client.warnings);
        world.run_for(20 * SECOND);
        assert_eq!(world.clients[0].warnings.len(), 1, "thinned");
    }
}

#[test]
fn a_share_session_that_is_lost_again_and_again_is_warned_of_once_a_minute() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.cluster.produce(place, 5);
    world.run_until_held(5);
    for _ in 0..20 {
        world.cut(0, BrokerId(1));
        world.run_for(2 * SECOND);
    }
    let warnings = &world.clients[0].warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[test]
fn a_close_that_is_given_up_says_that_the_group_was_not_left() {
    for (patience, warnings) in [(SECOND, 0), (Duration::ZERO, 1)] {
        let (mut world, _) = World::with_client(1, |_| {});
        world.run_for(10 * SECOND);
        let now = world.now;
        world.client().core.close(now);
        world.run_for(patience);
        let core = &mut world.client().core;
        core.abort();
        let events = std::iter::from_fn(|| core.poll_event());
        let not_left = events.filter(|event| *event == Event::Warning(Warning::NotLeft));
        assert_eq!(not_left.count(), warnings, "{patience:?}");
    }
}

#[test]
fn b_114_idle_connection_that_a_broker_closes_is_no_trouble_and_opened_again_on_demand() {
    let (mut world, place) = World::with_client(1, |_| {});
    world.cluster.produce(place, 3);
    world.run_until_held(3);
    world.settle_all(Accept);
    world.run_for(SECOND);
    world.client().core.pause();
    world.run_for(2 * SECOND);
    let leader = world.leader(place);
    world.cut(0, leader);
    world.run_for(60 * SECOND);
    assert_eq!(world.clients[0].warnings, []);
    world.client().core.resume();
    world.cluster.produce(place, 2);
    world.run_until_held(2);
    world.settle_all(Accept);
    world.run_for(SECOND);
    assert_eq!(world.clients[0].told(place, Ok(Accept)).len(), 5);
    assert_eq!(world.clients[0].warnings, []);
    world.close(0);
    world.check();
}
