//! DescribeShareGroupOffsets (90): where a share group stands, as the share coordinator knows it
//! (lag: KIP-1226).

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic, DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup, DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
};

use super::{Reply, Serve};
use crate::model::group::Group;
use crate::model::topics::{Place, Topic};
use crate::model::{Call, Model, text_of};

impl Serve for DescribeShareGroupOffsetsRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=1;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<DescribeShareGroupOffsetsResponse> {
        let groups = self
            .groups
            .iter()
            .map(|asked| described(model, call, asked));
        Reply::Now(DescribeShareGroupOffsetsResponse {
            groups: groups.collect(),
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> DescribeShareGroupOffsetsResponse {
        DescribeShareGroupOffsetsResponse {
            groups: self
                .groups
                .iter()
                .map(|asked| failed(asked, error))
                .collect(),
            ..Default::default()
        }
    }
}

fn failed(
    asked: &DescribeShareGroupOffsetsRequestGroup,
    error_code: ErrorCode,
) -> DescribeShareGroupOffsetsResponseGroup {
    DescribeShareGroupOffsetsResponseGroup {
        group_id: asked.group_id.clone(),
        error_code,
        error_message: text_of(error_code),
        ..Default::default()
    }
}

fn described(
    model: &Model,
    call: &Call,
    asked: &DescribeShareGroupOffsetsRequestGroup,
) -> DescribeShareGroupOffsetsResponseGroup {
    if model.coordinator(&asked.group_id) != call.broker {
        return failed(asked, ErrorCode::NotCoordinator);
    }
    // Whether the group exists is nobody's question here.
    let none = Group::default();
    let group = model.groups.get(&asked.group_id).unwrap_or(&none);
    let topics = match &asked.topics {
        Some(topics) => topics
            .iter()
            .map(|topic| asked_topic(model, group, topic))
            .collect(),
        None => {
            let known = model.topics.iter();
            let topics = known.map(|topic| {
                let indexes = (0..).take(topic.partitions.len());
                let indexes =
                    indexes.filter(|index| group.initialized.contains(&(topic.id, *index)));
                answer(model, group, topic, &indexes.collect::<Vec<_>>())
            });
            topics
                .filter(|topic| !topic.partitions.is_empty())
                .collect()
        }
    };
    DescribeShareGroupOffsetsResponseGroup {
        group_id: asked.group_id.clone(),
        topics,
        ..Default::default()
    }
}

fn asked_topic(
    model: &Model,
    group: &Group,
    asked: &DescribeShareGroupOffsetsRequestTopic,
) -> DescribeShareGroupOffsetsResponseTopic {
    if let Some(topic) = model.topics.named(&asked.topic_name) {
        return answer(model, group, topic, &asked.partitions);
    }
    let unknown = |index: &i32| DescribeShareGroupOffsetsResponsePartition {
        partition_index: *index,
        start_offset: -1,
        error_code: ErrorCode::UnknownTopicOrPartition,
        error_message: text_of(ErrorCode::UnknownTopicOrPartition),
        ..Default::default()
    };
    DescribeShareGroupOffsetsResponseTopic {
        topic_name: asked.topic_name.clone(),
        partitions: asked.partitions.iter().map(unknown).collect(),
        ..Default::default()
    }
}

fn answer(
    model: &Model,
    group: &Group,
    topic: &Topic,
    indexes: &[i32],
) -> DescribeShareGroupOffsetsResponseTopic {
    let partitions = indexes
        .iter()
        .map(|index| described_partition(model, group, (topic.id, *index)));
    DescribeShareGroupOffsetsResponseTopic {
        topic_name: topic.name.clone(),
        topic_id: topic.id,
        partitions: partitions.collect(),
    }
}

fn described_partition(
    model: &Model,
    group: &Group,
    place: Place,
) -> DescribeShareGroupOffsetsResponsePartition {
    let stored = group
        .loaded
        .get(&place)
        .map(|loaded| loaded.partition.stored());
    let stored = stored.unwrap_or_default();
    let partition = model.topics.partition(place);
    let end = partition.map_or(0, |partition| partition.log.end_offset());
    let is_known = stored.start_offset >= 0;
    DescribeShareGroupOffsetsResponsePartition {
        partition_index: place.1,
        start_offset: stored.start_offset,
        leader_epoch: partition
            .filter(|_| is_known)
            .map_or(0, |partition| partition.leader_epoch),
        lag: if is_known {
            (end - stored.start_offset - stored.delivery_complete_count).max(0)
        } else {
            -1
        },
        ..Default::default()
    }
}
