//! Committed offsets of consumer groups without members.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod world;

use std::time::Instant;

use sharegroup_broker::model::journal::Entry;
use sharegroup_broker::model::{LinkId, Model, ModelConfig};
use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use sharegroup_wire::message::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic,
};
use world::World;

fn commit(world: &mut World, link: LinkId, request: &OffsetCommitRequest) -> ErrorCode {
    let answer = world.call(link, request, 9);
    answer.topics[0].partitions[0].error_code
}

fn at(group_id: &str, partition_index: i32, committed_offset: i64) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: group_id.into(),
        topics: vec![OffsetCommitRequestTopic {
            name: "orders".into(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index,
                committed_offset,
                committed_metadata: Some("kept".into()),
                ..Default::default()
            }],
        }],
        ..Default::default()
    }
}

/// Partition, offset and metadata of what is committed.
fn committed(
    world: &mut World,
    link: LinkId,
    group_id: &str,
    partitions: Option<&[i32]>,
) -> Vec<(i32, i64, String)> {
    let topic = |partitions: &[i32]| OffsetFetchRequestTopic {
        name: "orders".into(),
        partition_indexes: partitions.to_vec(),
    };
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: group_id.into(),
            topics: partitions.map(|partitions| vec![topic(partitions)]),
            ..Default::default()
        }],
        ..Default::default()
    };
    let group = world.call(link, &request, 9).groups.remove(0);
    assert!(group.error_code.is_none());
    let partitions = group.topics.into_iter().flat_map(|topic| topic.partitions);
    let committed = partitions.map(|partition| {
        let metadata = partition.metadata.unwrap();
        (
            partition.partition_index,
            partition.committed_offset,
            metadata,
        )
    });
    committed.collect()
}

#[test]
fn who_is_no_member_commits_to_a_group_without_members() {
    let mut world = World::with_partitions(1, 2);
    let link = world.connect();
    assert_eq!(committed(&mut world, link, "old", None), []);
    assert_eq!(commit(&mut world, link, &at("old", 1, 7)), ErrorCode::None);
    assert_eq!(
        committed(&mut world, link, "old", None),
        [(1, 7, "kept".to_owned())]
    );
    assert_eq!(
        committed(&mut world, link, "old", Some(&[0, 1])),
        [(0, -1, String::new()), (1, 7, "kept".to_owned())]
    );
    let with = |generation_id_or_member_epoch, member_id: &str, group_id| OffsetCommitRequest {
        generation_id_or_member_epoch,
        member_id: member_id.into(),
        ..at(group_id, 0, 1)
    };
    for (request, code) in [
        (with(3, "m", "old"), ErrorCode::UnknownMemberId),
        (with(3, "m", "new"), ErrorCode::IllegalGeneration),
        (at("g", 0, 1), ErrorCode::GroupIdNotFound),
        (at("old", 9, 1), ErrorCode::UnknownTopicOrPartition),
    ] {
        assert_eq!(commit(&mut world, link, &request), code, "{request:?}");
    }
}

#[test]
fn commits_outlive_the_process_and_go_with_their_topic_or_group() {
    let mut world = World::with_partitions(1, 2);
    let link = world.connect();
    for group_id in ["old", "other"] {
        commit(&mut world, link, &at(group_id, 0, 7));
    }
    let entries: Vec<Entry> = world.model.snapshot().collect();
    let mut restored = Model::new(Instant::now(), ModelConfig::default());
    for entry in entries {
        restored.restore(entry).unwrap();
    }
    assert_eq!(restored.consumer_groups, world.model.consumer_groups);
    assert_eq!(restored.consumer_groups.len(), 2);
    let deleted = Entry::GroupDeleted {
        group_id: "other".into(),
    };
    restored.restore(deleted).unwrap();
    assert_eq!(restored.consumer_groups.len(), 1);
    world.model.delete_topic(world.place.0);
    let groups = world.model.consumer_groups.values();
    assert!(groups.into_iter().all(|group| group.committed.is_empty()));
}
