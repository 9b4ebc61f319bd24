//! OffsetCommit (8): from who is not a member, to a group without members. There are no others here.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
    OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};

use super::{Reply, Serve};
use crate::model::consumer_group::Committed;
use crate::model::{Call, Model};

impl Serve for OffsetCommitRequest {
    const VERSIONS: RangeInclusive<i16> = 8..=9;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<OffsetCommitResponse> {
        if model.coordinator(&self.group_id) != call.broker {
            return Reply::Now(self.refuse(call, ErrorCode::NotCoordinator));
        }
        let generation = self.generation_id_or_member_epoch;
        if let Err(error) = model.check_commit(&self.group_id, generation, &self.member_id) {
            return Reply::Now(self.refuse(call, error));
        }
        let topics = self.topics.iter();
        let topics = topics.map(|topic| committed_topic(model, &self.group_id, topic));
        Reply::Now(OffsetCommitResponse {
            topics: topics.collect(),
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> OffsetCommitResponse {
        let topics = self.topics.iter();
        OffsetCommitResponse {
            topics: topics.map(|topic| answer(topic, |_| error)).collect(),
            ..Default::default()
        }
    }
}

fn committed_topic(
    model: &mut Model,
    group_id: &str,
    asked: &OffsetCommitRequestTopic,
) -> OffsetCommitResponseTopic {
    let id = model.topics.named(&asked.name).map(|topic| topic.id);
    answer(asked, |partition| {
        let place = id.map(|id| (id, partition.partition_index));
        let Some(place) = place.filter(|place| model.topics.partition(*place).is_some()) else {
            return ErrorCode::UnknownTopicOrPartition;
        };
        let committed = Committed {
            offset: partition.committed_offset,
            leader_epoch: partition.committed_leader_epoch,
            metadata: partition.committed_metadata.clone().unwrap_or_default(),
        };
        model.commit_offset(group_id, place, committed);
        ErrorCode::None
    })
}

fn answer(
    asked: &OffsetCommitRequestTopic,
    mut result: impl FnMut(&OffsetCommitRequestPartition) -> ErrorCode,
) -> OffsetCommitResponseTopic {
    let partitions = asked.partitions.iter();
    let partitions = partitions.map(|partition| OffsetCommitResponsePartition {
        partition_index: partition.partition_index,
        error_code: result(partition),
    });
    OffsetCommitResponseTopic {
        name: asked.name.clone(),
        partitions: partitions.collect(),
    }
}
