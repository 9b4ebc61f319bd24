//! AlterShareGroupOffsets (91): sets where a group without members goes on; makes the group.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::alter_share_group_offsets::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse, AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
};

use super::{Reply, Serve};
use crate::model::group::{Group, Loaded};
use crate::model::limits::GROUPS_MAX;
use crate::model::share_partition::SharePartition;
use crate::model::topics::{Place, Topics};
use crate::model::{Call, Model, text_of};

impl Serve for AlterShareGroupOffsetsRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=0;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<AlterShareGroupOffsetsResponse> {
        if self.group_id.is_empty() {
            return Reply::Now(self.refuse(call, ErrorCode::InvalidGroupId));
        }
        if model.coordinator(&self.group_id) != call.broker {
            return Reply::Now(self.refuse(call, ErrorCode::NotCoordinator));
        }
        if model.groups.len() >= GROUPS_MAX && !model.groups.contains_key(&self.group_id) {
            return Reply::Now(self.refuse(call, ErrorCode::GroupMaxSizeReached));
        }
        let group = model.groups.entry(self.group_id.clone()).or_default();
        if !group.members.is_empty() {
            return Reply::Now(self.refuse(call, ErrorCode::NonEmptyGroup));
        }
        let topics = &model.topics;
        let responses = self
            .topics
            .iter()
            .map(|topic| altered(topics, group, topic));
        Reply::Now(AlterShareGroupOffsetsResponse {
            responses: responses.collect(),
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> AlterShareGroupOffsetsResponse {
        AlterShareGroupOffsetsResponse {
            error_code: error,
            error_message: text_of(error),
            ..Default::default()
        }
    }
}

fn altered(
    topics: &Topics,
    group: &mut Group,
    asked: &AlterShareGroupOffsetsRequestTopic,
) -> AlterShareGroupOffsetsResponseTopic {
    let topic = topics.named(&asked.topic_name);
    let partitions = asked.partitions.iter().map(|partition| {
        let place = topic.map(|topic| (topic.id, partition.partition_index));
        let place = place.filter(|place| topics.partition(*place).is_some());
        let error_code = match place {
            Some(place) => {
                set(group, place, partition.start_offset);
                ErrorCode::None
            }
            None => ErrorCode::UnknownTopicOrPartition,
        };
        AlterShareGroupOffsetsResponsePartition {
            partition_index: partition.partition_index,
            error_code,
            error_message: text_of(error_code),
        }
    });
    AlterShareGroupOffsetsResponseTopic {
        topic_name: asked.topic_name.clone(),
        partitions: partitions.collect(),
        topic_id: topic.map(|topic| topic.id).unwrap_or_default(),
    }
}

fn set(group: &mut Group, place: Place, start_offset: i64) {
    group.initialized.insert(place);
    let partition = SharePartition::stored_at(start_offset);
    group.loaded.insert(place, Loaded::new(partition));
}
