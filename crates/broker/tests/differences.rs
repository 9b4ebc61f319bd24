//! What the histories of `tests/differential` and the Java program found: each difference from a real
//! broker, as a test of the model.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod world;

use std::time::Duration;

use sharegroup_wire::message::delete_share_group_offsets::{
    DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequestTopic,
};
use sharegroup_wire::message::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequestGroup,
};
use sharegroup_wire::message::share_fetch::{
    AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest, ShareFetchResponse,
};
use sharegroup_wire::{ErrorCode, SessionEpoch};

use world::World;

const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;

/// A topic of three partitions.
fn world() -> World {
    World::with_partitions(1, 3)
}

/// A fetch of one record, without waiting; acknowledges the first offsets of partitions with these types.
fn fetch(world: &World, epoch: i32, acks: &[(i32, &[i8])]) -> ShareFetchRequest {
    let partitions = acks.iter().map(|(index, types)| FetchPartition {
        partition_index: *index,
        acknowledgement_batches: vec![AcknowledgementBatch {
            first_offset: 0,
            last_offset: i64::try_from(types.len()).unwrap() - 1,
            acknowledge_types: types.to_vec(),
        }],
    });
    let topics = match epoch {
        0 => vec![FetchTopic::of(world.place.0, [0, 1, 2])],
        _ if acks.is_empty() => Vec::new(),
        _ => vec![FetchTopic {
            topic_id: world.place.0,
            partitions: partitions.collect(),
        }],
    };
    ShareFetchRequest {
        max_records: 1,
        batch_size: 1,
        topics,
        ..world.fetch("a", epoch, Duration::ZERO)
    }
}

/// The partitions that were handed records.
fn served(answer: &ShareFetchResponse) -> Vec<i32> {
    assert!(answer.error_code.is_none(), "{answer:?}");
    let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
    let served = partitions.filter(|partition| !partition.acquired_records.is_empty());
    served.map(|partition| partition.partition_index).collect()
}

#[test]
fn partitions_whose_records_went_out_come_last_next_time() {
    let mut world = world();
    for partition in 0..3 {
        for _ in 0..3 {
            world.produce_to(partition, &["x"]);
        }
    }
    let link = world.connect();
    let mut next = |epoch| {
        let request = fetch(&world, epoch, &[]);
        served(&world.call(link, &request, 2))
    };
    assert_eq!(next(0), [0]);
    // From partition 1 on, which then goes to the end.
    assert_eq!(next(1), [1]);
    // Of 0, 2, 1 the last one comes first; but it was read elsewhere before, and so comes after the others.
    assert_eq!(next(2), [0]);
}

#[test]
fn a_fetch_gets_what_the_first_of_its_acknowledgements_frees_and_no_more() {
    let mut world = world();
    world.produce_to(1, &["x", "y"]);
    world.produce_to(2, &["x", "y"]);
    let link = world.connect();
    let mut request = fetch(&world, 0, &[]);
    request.max_records = 10;
    assert_eq!(served(&world.call(link, &request, 2)), [1, 2]);
    let types = [ACCEPT, RELEASE];
    let mut request = fetch(&world, 1, &[(1, &types), (2, &types)]);
    request.max_records = 10;
    let order = |partition| world.model.topics.hash_order((world.place.0, partition));
    let first = if order(1) < order(2) { 1 } else { 2 };
    assert_eq!(served(&world.call(link, &request, 2)), [first]);
}

#[test]
fn what_is_released_wakes_a_fetch_that_waits_only_where_the_start_moves_too() {
    for (types, wakes) in [
        ([RELEASE, RELEASE], false),
        ([RELEASE, ACCEPT], false),
        ([ACCEPT, RELEASE], true),
    ] {
        let mut world = world();
        world.produce(&["x", "y"]);
        let (holder, waiter) = (world.connect(), world.connect());
        let request = fetch(&world, 0, &[]);
        assert_eq!(served(&world.call(holder, &request, 2)), [0]);
        let request = world.fetch("b", 0, Duration::from_secs(1));
        let waiting = world.send(waiter, &request, 2);
        let mut request = fetch(&world, 1, &[(0, &types)]);
        request.max_records = 0;
        world.call(holder, &request, 2);
        let at_once = world.answer::<ShareFetchRequest>(waiting, 2);
        assert_eq!(at_once.is_some(), wakes, "{types:?}");
        if !wakes {
            world.pass(Duration::from_secs(1));
            let in_the_end = world.answer::<ShareFetchRequest>(waiting, 2).unwrap();
            assert_eq!(served(&in_the_end), [0]);
        }
    }
}

#[test]
fn what_a_closed_session_held_wakes_nobody() {
    let mut world = world();
    world.produce(&["x"]);
    let (holder, waiter) = (world.connect(), world.connect());
    let request = fetch(&world, 0, &[]);
    assert_eq!(served(&world.call(holder, &request, 2)), [0]);
    let request = world.fetch("b", 0, Duration::from_secs(1));
    let waiting = world.send(waiter, &request, 2);
    world.model.disconnect(world.now, holder);
    world.pass(Duration::from_millis(999));
    assert!(world.answer::<ShareFetchRequest>(waiting, 2).is_none());
    world.pass(Duration::from_millis(1));
    let answer = world.answer::<ShareFetchRequest>(waiting, 2).unwrap();
    assert_eq!(served(&answer), [0]);
}

#[test]
fn an_unknown_acquire_mode_fails_a_fetch_after_its_acknowledgements() {
    let mut world = world();
    world.produce(&["x"]);
    let link = world.connect();
    let request = fetch(&world, 0, &[]);
    assert_eq!(served(&world.call(link, &request, 2)), [0]);
    let mut request = fetch(&world, 1, &[(0, &[ACCEPT])]);
    request.share_acquire_mode = 5;
    let answer = world.call(link, &request, 2);
    assert_eq!(answer.error_code, ErrorCode::UnknownServerError);
    let loaded = &world.model.groups["g"].loaded[&world.place];
    assert_eq!(loaded.partition.start_offset(), 1);
}

#[test]
fn bytes_that_are_waited_for_count_up_to_each_partitions_share() {
    let mut world = world();
    world.produce(&["x".repeat(1000).as_str()]);
    let link = world.connect();
    let mut request = fetch(&world, 0, &[]);
    (request.max_bytes, request.min_bytes, request.max_wait_ms) = (300, 150, 1000);
    let id = world.send(link, &request, 2);
    assert!(
        world.answer::<ShareFetchRequest>(id, 2).is_none(),
        "a share is 100 bytes"
    );
    world.pass(Duration::from_secs(1));
    assert_eq!(
        served(&world.answer::<ShareFetchRequest>(id, 2).unwrap()),
        [0]
    );
}

#[test]
fn nobody_waits_for_more_bytes_than_may_be_sent() {
    let mut world = world();
    for partition in 0..3 {
        world.produce_to(partition, &["x".repeat(1000).as_str()]);
    }
    let link = world.connect();
    let mut request = fetch(&world, 0, &[]);
    (request.max_bytes, request.min_bytes, request.max_wait_ms) = (300, 10_000, 1000);
    assert_eq!(served(&world.call(link, &request, 2)), [0]);
}

#[test]
fn a_partition_that_is_new_in_a_session_is_named_once_without_records() {
    let mut world = world();
    let link = world.connect();
    let mut request = fetch(&world, 0, &[]);
    request.topics = vec![FetchTopic::of(world.place.0, [0])];
    world.call(link, &request, 2);
    let mut named = |epoch, partitions: &[i32]| -> Vec<i32> {
        request.share_session_epoch = SessionEpoch(epoch);
        request.topics = vec![FetchTopic::of(world.place.0, partitions.iter().copied())];
        let answer = world.call(link, &request, 2);
        let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
        partitions
            .map(|partition| partition.partition_index)
            .collect()
    };
    assert_eq!(named(1, &[1]), [1]);
    assert_eq!(named(2, &[1]), [] as [i32; 0]);
}

#[test]
fn acknowledging_over_the_start_with_nothing_in_flight_fails_the_whole_fetch() {
    let mut world = world();
    world.produce(&["x"]);
    let link = world.connect();
    let request = fetch(&world, 0, &[]);
    assert_eq!(served(&world.call(link, &request, 2)), [0]);
    let request = fetch(&world, 1, &[(0, &[ACCEPT])]);
    assert_eq!(served(&world.call(link, &request, 2)), [] as [i32; 0]);
    let request = fetch(&world, 2, &[(0, &[ACCEPT, ACCEPT])]);
    let answer = world.call(link, &request, 2);
    assert_eq!(answer.error_code, ErrorCode::UnknownServerError);
}

#[test]
fn offsets_of_a_group_that_is_not_there_are_an_empty_list() {
    let mut world = world();
    let link = world.connect();
    let group = DescribeShareGroupOffsetsRequestGroup {
        group_id: "nobody".into(),
        topics: None,
    };
    let request = DescribeShareGroupOffsetsRequest {
        groups: vec![group],
    };
    let answer = world.call(link, &request, 1);
    assert!(answer.groups[0].error_code.is_none() && answer.groups[0].topics.is_empty());
}

#[test]
fn offsets_that_are_not_there_cannot_be_deleted() {
    let mut world = world();
    let link = world.connect();
    world.model.groups.get_mut("g").unwrap().remove("joiner");
    let request = DeleteShareGroupOffsetsRequest {
        group_id: "g".into(),
        topics: vec![DeleteShareGroupOffsetsRequestTopic {
            topic_name: "orders".into(),
        }],
    };
    let mut delete = || world.call(link, &request, 0).responses[0].error_code;
    assert_eq!(delete(), ErrorCode::None);
    assert_eq!(delete(), ErrorCode::UnknownTopicOrPartition);
}
