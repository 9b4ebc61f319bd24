//! DeleteShareGroupOffsets (92): a group without members forgets whole topics.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::delete_share_group_offsets::{
    DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
};

use super::{Reply, Serve};
use crate::model::{Call, Model, text_of};

impl Serve for DeleteShareGroupOffsetsRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=0;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<DeleteShareGroupOffsetsResponse> {
        if self.group_id.is_empty() {
            return Reply::Now(self.refuse(call, ErrorCode::InvalidGroupId));
        }
        if model.coordinator(&self.group_id) != call.broker {
            return Reply::Now(self.refuse(call, ErrorCode::NotCoordinator));
        }
        let Some(group) = model.groups.get_mut(&self.group_id) else {
            return Reply::Now(self.refuse(call, ErrorCode::GroupIdNotFound));
        };
        if !group.members.is_empty() {
            return Reply::Now(self.refuse(call, ErrorCode::NonEmptyGroup));
        }
        let topics = &model.topics;
        let responses = self.topics.iter().map(|asked| {
            let topic = topics.named(&asked.topic_name);
            if let Some(topic) = topic {
                group.initialized.retain(|place| place.0 != topic.id);
                group.loaded.retain(|place, _| place.0 != topic.id);
            }
            let error_code = topic.map_or(ErrorCode::UnknownTopicOrPartition, |_| ErrorCode::None);
            DeleteShareGroupOffsetsResponseTopic {
                topic_name: asked.topic_name.clone(),
                topic_id: topic.map(|topic| topic.id).unwrap_or_default(),
                error_code,
                error_message: text_of(error_code),
            }
        });
        Reply::Now(DeleteShareGroupOffsetsResponse {
            responses: responses.collect(),
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> DeleteShareGroupOffsetsResponse {
        DeleteShareGroupOffsetsResponse {
            error_code: error,
            error_message: text_of(error),
            ..Default::default()
        }
    }
}
