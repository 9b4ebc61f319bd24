//! OffsetFetch (9): what consumer groups have committed. As in Kafka a group that doesn't exist, or is of
//! another kind, has committed nothing.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchResponse,
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponseTopic,
};

use super::{Reply, Serve};
use crate::model::consumer_group::{Committed, ConsumerGroup};
use crate::model::topics::Topic;
use crate::model::{Call, Model};

impl Serve for OffsetFetchRequest {
    const VERSIONS: RangeInclusive<i16> = 8..=9;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<OffsetFetchResponse> {
        let groups = self.groups.iter().map(|asked| fetched(model, call, asked));
        Reply::Now(OffsetFetchResponse {
            groups: groups.collect(),
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> OffsetFetchResponse {
        let groups = self.groups.iter();
        OffsetFetchResponse {
            groups: groups.map(|asked| failed(asked, error)).collect(),
            ..Default::default()
        }
    }
}

fn failed(asked: &OffsetFetchRequestGroup, error_code: ErrorCode) -> OffsetFetchResponseGroup {
    OffsetFetchResponseGroup {
        group_id: asked.group_id.clone(),
        error_code,
        ..Default::default()
    }
}

fn fetched(
    model: &Model,
    call: &Call,
    asked: &OffsetFetchRequestGroup,
) -> OffsetFetchResponseGroup {
    if model.coordinator(&asked.group_id) != call.broker {
        return failed(asked, ErrorCode::NotCoordinator);
    }
    let none = ConsumerGroup::default();
    let group = model.consumer_groups.get(&asked.group_id).unwrap_or(&none);
    let topics = match &asked.topics {
        Some(topics) => {
            let topics = topics.iter();
            topics
                .map(|topic| asked_topic(model, group, topic))
                .collect()
        }
        None => {
            let topics = model.topics.iter().map(|topic| all_of(group, topic));
            topics
                .filter(|topic| !topic.partitions.is_empty())
                .collect()
        }
    };
    OffsetFetchResponseGroup {
        group_id: asked.group_id.clone(),
        topics,
        ..Default::default()
    }
}

fn asked_topic(
    model: &Model,
    group: &ConsumerGroup,
    asked: &OffsetFetchRequestTopic,
) -> OffsetFetchResponseTopic {
    let id = model.topics.named(&asked.name).map(|topic| topic.id);
    let partitions = asked.partition_indexes.iter().map(|index| {
        let committed = id.and_then(|id| group.committed.get(&(id, *index)));
        answer(*index, committed)
    });
    OffsetFetchResponseTopic {
        name: asked.name.clone(),
        partitions: partitions.collect(),
    }
}

fn all_of(group: &ConsumerGroup, topic: &Topic) -> OffsetFetchResponseTopic {
    let committed = group
        .committed
        .range((topic.id, i32::MIN)..=(topic.id, i32::MAX));
    OffsetFetchResponseTopic {
        name: topic.name.clone(),
        partitions: committed
            .map(|((_, index), committed)| answer(*index, Some(committed)))
            .collect(),
    }
}

fn answer(partition_index: i32, committed: Option<&Committed>) -> OffsetFetchResponsePartition {
    OffsetFetchResponsePartition {
        partition_index,
        committed_offset: committed.map_or(-1, |committed| committed.offset),
        committed_leader_epoch: committed.map_or(-1, |committed| committed.leader_epoch),
        metadata: Some(committed.map_or_else(String::new, |committed| committed.metadata.clone())),
        error_code: ErrorCode::None,
    }
}
