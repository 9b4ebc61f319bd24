//! The model as a client meets it, under virtual time: frames in, frames out.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod world;

use std::time::Duration;

use proptest::prelude::*;
use sharegroup_broker::model::faults::Fault;
use sharegroup_broker::model::history::Event;
use sharegroup_wire::compress::DecompressLimits;
use sharegroup_wire::frame::encode_request;
use sharegroup_wire::message::api_versions::ApiVersionsRequest;
use sharegroup_wire::message::end_txn::EndTxnRequest;
use sharegroup_wire::message::init_producer_id::InitProducerIdRequest;
use sharegroup_wire::message::share_fetch::{ForgottenTopic, ShareFetchRequest};
use sharegroup_wire::record::RecordBatch;
use sharegroup_wire::{CorrelationId, ErrorCode};

use world::{World, only, ranges};

const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
const REJECT: i8 = 3;

#[test]
fn a_parked_fetch_is_answered_when_something_comes_and_at_its_end_if_nothing_does() {
    let mut world = World::new(1);
    let link = world.connect();
    let request = world.fetch("a", 0, Duration::from_secs(5));
    let id = world.send(link, &request, 2);
    world.pass(Duration::from_secs(1));
    assert!(world.answer::<ShareFetchRequest>(id, 2).is_none());
    world.produce(&["x", "y"]);
    assert_eq!(
        ranges(&only(world.answer::<ShareFetchRequest>(id, 2).unwrap())),
        [(0, 1, 1)]
    );
    let request = world.fetch("a", 1, Duration::from_secs(5));
    let id = world.send(link, &request, 2);
    world.pass(Duration::from_millis(4999));
    assert!(world.answer::<ShareFetchRequest>(id, 2).is_none());
    world.pass(Duration::from_millis(1));
    assert_eq!(
        ranges(&only(world.answer::<ShareFetchRequest>(id, 2).unwrap())),
        []
    );
}

#[test]
fn a_closed_socket_is_unseen_while_a_fetch_is_parked_and_one_delivery_is_burnt() {
    let mut world = World::new(1);
    let link = world.connect();
    let request = world.fetch("a", 0, Duration::from_secs(6));
    world.send(link, &request, 2);
    world.model.disconnect(world.now, link);
    world.produce(&["x"]);
    let other = world.connect();
    assert_eq!(ranges(&world.fetch_now(other, "b", 0)), [(0, 0, 2)]);
}

#[test]
fn what_a_member_held_is_free_when_its_connection_ends() {
    let mut world = World::new(1);
    world.produce(&["x", "y"]);
    let (a, b) = (world.connect(), world.connect());
    world.fetch_now(a, "a", 0);
    assert_eq!(ranges(&world.fetch_now(b, "b", 0)), []);
    world.model.disconnect(world.now, a);
    assert_eq!(ranges(&world.fetch_now(b, "b", 1)), [(0, 1, 2)]);
}

#[test]
fn a_forgotten_partition_is_not_released_at_close() {
    let mut world = World::new(1);
    world.produce(&["x"]);
    let (a, b) = (world.connect(), world.connect());
    world.fetch_now(a, "a", 0);
    world.fetch_now(b, "b", 0);
    let mut forget = world.fetch("a", 1, Duration::ZERO);
    forget.topics.clear();
    forget.forgotten_topics_data = vec![ForgottenTopic {
        topic_id: world.place.0,
        partitions: vec![0],
    }];
    world.call(a, &forget, 2);
    let mut close = world.fetch("a", -1, Duration::ZERO);
    close.topics.clear();
    world.call(a, &close, 2);
    assert_eq!(ranges(&world.fetch_now(b, "b", 1)), []);
    world.pass(Duration::from_secs(30));
    assert_eq!(ranges(&world.fetch_now(b, "b", 2)), [(0, 0, 2)]);
}

#[test]
fn the_history_tells_what_became_of_each_record() {
    let mut world = World::new(1);
    world.model.record_history();
    world.produce(&["x", "y"]);
    let link = world.connect();
    let mut got = world.fetch_now(link, "a", 0);
    got.acquired_records[0].last_offset = 0;
    world.acknowledge(link, "a", 1, &got, ACCEPT);
    world.pass(Duration::from_secs(30));
    let told = world
        .model
        .history
        .events()
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Acquired { ranges, .. } => Some(format!(
                "acquired {}-{}",
                ranges[0].first_offset, ranges[0].last_offset
            )),
            Event::Acknowledged { applied, .. } => Some(format!("acknowledged {applied:?}")),
            Event::Expired { ranges, .. } => Some(format!("expired {ranges:?}")),
            _ => None,
        });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            "acquired 0-1",
            "acknowledged [(0, 0, 1)]",
            "expired [(1, 1, 1)]"
        ]
    );
}

#[test]
fn a_late_accept_is_answered_with_success_once_the_start_has_passed() {
    let mut world = World::new(1);
    world.produce(&["x", "y"]);
    let (a, b) = (world.connect(), world.connect());
    let late = world.fetch_now(a, "a", 0);
    world.pass(Duration::from_secs(30));
    assert_eq!(
        world.acknowledge(a, "a", 1, &late, ACCEPT),
        ErrorCode::InvalidRecordState
    );
    let again = world.fetch_now(b, "b", 0);
    assert_eq!(
        world.acknowledge(b, "b", 1, &again, ACCEPT),
        ErrorCode::None
    );
    assert_eq!(world.acknowledge(a, "a", 2, &late, ACCEPT), ErrorCode::None);
}

#[test]
fn share_partitions_are_forgotten_with_the_last_session_of_their_group() {
    let mut world = World::new(1);
    world.produce(&["x"]);
    let a = world.connect();
    world.fetch_now(a, "a", 0);
    world.configure("share.auto.offset.reset", "latest");
    let mut close = world.fetch("a", -1, Duration::ZERO);
    close.topics.clear();
    world.call(a, &close, 2);
    // The release was stored, so that the place is known.
    assert_eq!(ranges(&world.fetch_now(a, "b", 0)), [(0, 0, 2)]);
}

#[test]
fn the_session_limit_is_told_after_the_wait() {
    let mut world = World::new(1);
    world
        .model
        .configs
        .broker
        .insert("group.share.max.share.sessions".into(), "1".into());
    let (a, b) = (world.connect(), world.connect());
    world.fetch_now(a, "a", 0);
    let request = world.fetch("b", 0, Duration::from_secs(1));
    let id = world.send(b, &request, 2);
    world.pass(Duration::from_millis(999));
    assert!(world.answer::<ShareFetchRequest>(id, 2).is_none());
    world.pass(Duration::from_millis(1));
    let answer = world.answer::<ShareFetchRequest>(id, 2).unwrap();
    assert_eq!(answer.error_code, ErrorCode::ShareSessionLimitReached);
}

#[test]
fn a_moved_leader_is_named_for_fetches_and_unknown_to_acknowledgements() {
    let mut world = World::new(2);
    world.produce(&["x"]);
    let link = world.connect();
    let got = world.fetch_now(link, "a", 0);
    let (old, place) = (world.leader(), world.place);
    let new = world.model.brokers().find(|broker| *broker != old).unwrap();
    world.model.move_leader(place, new);
    assert_eq!(
        world.acknowledge(link, "a", 1, &got, ACCEPT),
        ErrorCode::UnknownTopicOrPartition
    );
    let moved = world.fetch_now(link, "a", 2);
    assert_eq!(
        (moved.error_code, moved.current_leader.leader_id),
        (ErrorCode::NotLeaderOrFollower, new)
    );
    let link = world.connect();
    assert_eq!(
        ranges(&world.fetch_now(link, "a", 0)),
        [(0, 0, 1)],
        "the attempt is forgotten"
    );
}

#[test]
fn a_rejected_record_becomes_a_dead_letter_of_the_broker() {
    let mut world = World::new(1);
    let dlq = world.model.create_topic("dlq.orders", 1, 1);
    let values = &mut world.model.topics.get_mut(dlq).unwrap().values;
    values.insert("errors.deadletterqueue.group.enable".into(), "true".into());
    world.configure("errors.deadletterqueue.topic.name", "dlq.orders");
    world.configure("errors.deadletterqueue.copy.record.enable", "true");
    world.produce(&["fine", "poison"]);
    let link = world.connect();
    let mut got = world.fetch_now(link, "a", 0);
    got.acquired_records[0].first_offset = 1;
    assert_eq!(
        world.acknowledge(link, "a", 1, &got, REJECT),
        ErrorCode::None
    );
    let log = &world.model.topics.partition((dlq, 0)).unwrap().log;
    let batch = RecordBatch::read(log.batches().next().unwrap().bytes.clone()).unwrap();
    let record = batch
        .records(&DecompressLimits::default())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(record.value, Some(&b"poison"[..]));
    let headers: Vec<_> = record
        .headers
        .map(|header| String::from_utf8_lossy(header.value.unwrap()).into_owned())
        .collect();
    assert_eq!(
        headers,
        ["orders", "0", "1", "g", "1", "Offset rejected by client."]
    );
}

#[test]
fn a_record_out_of_deliveries_is_archived_with_a_dead_letter_where_one_is_wanted() {
    let mut world = World::new(1);
    world.model.configs.broker.insert(
        "errors.deadletterqueue.auto.create.topics.enable".into(),
        "true".into(),
    );
    world.configure("errors.deadletterqueue.topic.name", "dlq.orders");
    world.produce(&["x"]);
    let link = world.connect();
    for round in 0..5 {
        let got = world.fetch_now(link, "a", round * 2);
        assert_eq!(ranges(&got), [(0, 0, i16::try_from(round).unwrap() + 1)]);
        world.acknowledge(link, "a", round * 2 + 1, &got, RELEASE);
    }
    assert_eq!(ranges(&world.fetch_now(link, "a", 10)), []);
    let dlq = world.model.topics.named("dlq.orders").unwrap();
    assert_eq!(dlq.partitions[0].log.end_offset(), 1);
}

#[test]
fn a_read_committed_group_gets_what_was_committed_and_nothing_that_was_aborted() {
    for (level, expected) in [
        ("read_committed", vec![(0, 1, 1), (3, 5, 1)]),
        (
            "read_uncommitted",
            vec![(0, 1, 1), (2, 3, 1), (4, 4, 1), (5, 5, 1)],
        ),
    ] {
        let mut world = World::new(1);
        world.configure("share.isolation.level", level);
        let link = world.connect();
        let init = InitProducerIdRequest {
            transactional_id: Some("t".into()),
            transaction_timeout_ms: 60_000,
            ..Default::default()
        };
        let producer = world.call(link, &init, 5);
        let mut epoch = producer.producer_epoch;
        for (value, committed) in [("first", true), ("second", false), ("third", true)] {
            world.produce_as(&[value], Some((producer.producer_id, epoch, 0)));
            let reader = world.connect();
            if level == "read_committed" && value == "first" {
                assert_eq!(
                    ranges(&world.fetch_now(reader, "early", 0)),
                    [],
                    "nothing is stable yet"
                );
            }
            let end = EndTxnRequest {
                transactional_id: "t".into(),
                producer_id: producer.producer_id,
                producer_epoch: epoch,
                committed,
            };
            let ended = world.call(link, &end, 5);
            assert!(ended.error_code.is_none());
            epoch = ended.producer_epoch;
        }
        let mut request = world.fetch("a", 0, Duration::ZERO);
        request.batch_size = 1;
        let reader = world.connect();
        let got = only(world.call(reader, &request, 2));
        let offsets = |ranges: &[(i64, i64, i16)]| -> Vec<i64> {
            ranges
                .iter()
                .flat_map(|(first, last, _)| *first..=*last)
                .collect()
        };
        assert_eq!(offsets(&ranges(&got)), offsets(&expected), "{level}");
    }
}

#[test]
fn a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced() {
    let mut world = World::new(1);
    let link = world.connect();
    let init = InitProducerIdRequest {
        transactional_id: Some("t".into()),
        transaction_timeout_ms: 10_000,
        ..Default::default()
    };
    let producer = world.call(link, &init, 5);
    world.produce_as(
        &["x"],
        Some((producer.producer_id, producer.producer_epoch, 0)),
    );
    world.pass(Duration::from_secs(10));
    let log = &world.model.topics.partition(world.place).unwrap().log;
    assert_eq!((log.end_offset(), log.last_stable_offset()), (2, 2));
    let end = EndTxnRequest {
        transactional_id: "t".into(),
        producer_id: producer.producer_id,
        producer_epoch: producer.producer_epoch,
        committed: true,
    };
    assert_eq!(
        world.call(link, &end, 5).error_code,
        ErrorCode::ProducerFenced
    );
}

#[test]
fn scripted_faults_happen_once_and_in_their_order() {
    let mut world = World::new(1);
    let link = world.connect();
    let key = ApiVersionsRequest::API_KEY;
    world.model.faults.add(
        key,
        [
            Fault::Error(ErrorCode::RequestTimedOut),
            Fault::Delay(Duration::from_secs(3)),
            Fault::Duplicate,
            Fault::CutAfter,
        ],
    );
    let ask = ApiVersionsRequest::default();
    assert_eq!(
        world.call(link, &ask, 3).error_code,
        ErrorCode::RequestTimedOut
    );
    let delayed = world.send(link, &ask, 3);
    let behind = world.send(link, &ask, 3);
    world.pass(Duration::from_millis(2999));
    assert!(world.answers.is_empty());
    world.pass(Duration::from_millis(1));
    assert!(world.answer::<ApiVersionsRequest>(delayed, 3).is_some());
    assert!(world.answer::<ApiVersionsRequest>(behind, 3).is_some());
    assert!(
        world.answer::<ApiVersionsRequest>(behind, 3).is_some(),
        "the same again"
    );
    world.send(link, &ask, 3);
    assert_eq!((world.answers.len(), world.closed.clone()), (0, vec![link]));
}

#[test]
fn a_version_that_is_not_served_is_told_in_version_0() {
    let mut world = World::new(1);
    let link = world.connect();
    let mut frame = encode_request(&ApiVersionsRequest::default(), 3, CorrelationId(9), None)
        .slice(4..)
        .to_vec();
    frame[3] = 99;
    world.model.handle_request(world.now, link, frame.into());
    world.drain();
    let answer = world
        .answer::<ApiVersionsRequest>(CorrelationId(9), 0)
        .unwrap();
    assert_eq!(
        (answer.error_code, answer.api_keys.len()),
        (ErrorCode::UnsupportedVersion, 1)
    );
}

proptest! {
    /// A hostile client's bytes end its connection or get an answer; they never panic.
    #[test]
    fn no_bytes_abort(
        key in prop::sample::select(vec![0_i16, 1, 2, 3, 10, 15, 16, 17, 18, 19, 20, 22, 24, 26, 32, 36, 37, 42, 44, 60, 71, 72, 74, 75, 76, 77, 78, 79, 90, 91, 92, 93, -1]),
        version in 0_i16..14,
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut world = World::new(1);
        let link = world.connect();
        let mut frame = Vec::new();
        frame.extend_from_slice(&key.to_be_bytes());
        frame.extend_from_slice(&version.to_be_bytes());
        frame.extend_from_slice(&[0, 0, 0, 1, 0xff, 0xff]);
        frame.extend_from_slice(&body);
        world.model.handle_request(world.now, link, frame.into());
        world.pass(Duration::from_secs(100));
        world.model.handle_request(world.now, link, body.into());
        world.drain();
    }
}
