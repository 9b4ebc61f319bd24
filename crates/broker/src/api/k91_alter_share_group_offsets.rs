//! AlterShareGroupOffsets (91): sets where a group without members goes on; makes the group.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::alter_share_group_offsets::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse, AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
};

use super::{Reply, Serve};
use crate::model::group::Loaded;
use crate::model::limits::GROUPS_MAX;
use crate::model::share_partition::SharePartition;
use crate::model::topics::Place;
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
        let epoch_before = model.groups.get(&self.group_id).map(|group| group.epoch);
        let group = model.groups.entry(self.group_id.clone()).or_default();
        if !group.members.is_empty() {
            return Reply::Now(self.refuse(call, ErrorCode::NonEmptyGroup));
        }
        model.note_group(&self.group_id, epoch_before);
        let topics = self.topics.iter();
        let responses = topics.map(|topic| altered(model, &self.group_id, topic));
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
    model: &mut Model,
    group_id: &str,
    asked: &AlterShareGroupOffsetsRequestTopic,
) -> AlterShareGroupOffsetsResponseTopic {
    let id = model.topics.named(&asked.topic_name).map(|topic| topic.id);
    let partitions = asked.partitions.iter().map(|partition| {
        let place = id.map(|id| (id, partition.partition_index));
        let place = place.filter(|place| model.topics.partition(*place).is_some());
        let error_code = match place {
            Some(place) => {
                model.set_start_offset(group_id, place, partition.start_offset);
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
        topic_id: id.unwrap_or_default(),
    }
}

impl Model {
    /// Lets a group go on at an offset, whatever it has settled.
    fn set_start_offset(&mut self, group_id: &str, place: Place, start_offset: i64) {
        let Some(group) = self.groups.get_mut(group_id) else {
            return;
        };
        let initialized = group.initialized.insert(place);
        let partition = SharePartition::stored_at(start_offset);
        group.loaded.insert(place, Loaded::new(partition));
        if initialized {
            self.note_initialized(group_id, &BTreeSet::from([place]));
        }
        self.note_share_state(group_id, place);
    }
}
