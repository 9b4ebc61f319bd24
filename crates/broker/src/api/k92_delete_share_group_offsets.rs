//! DeleteShareGroupOffsets (92): a group without members forgets whole topics.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::delete_share_group_offsets::{
    DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse, DeleteShareGroupOffsetsResponseTopic,
};

use super::{Reply, Serve};
use crate::model::group::Group;
use crate::model::topics::Topics;
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
            return Reply::Now(DeleteShareGroupOffsetsResponse {
                error_message: Some(format!("Group {} not found.", self.group_id)),
                ..self.refuse(call, ErrorCode::GroupIdNotFound)
            });
        };
        if !group.members.is_empty() {
            return Reply::Now(self.refuse(call, ErrorCode::NonEmptyGroup));
        }
        let topics = &model.topics;
        let responses = self
            .topics
            .iter()
            .map(|asked| deleted(topics, group, asked));
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

fn deleted(
    topics: &Topics,
    group: &mut Group,
    asked: &DeleteShareGroupOffsetsRequestTopic,
) -> DeleteShareGroupOffsetsResponseTopic {
    let topic_id = topics.named(&asked.topic_name).map(|topic| topic.id);
    let known = group.initialized.len();
    group.initialized.retain(|place| Some(place.0) != topic_id);
    group.loaded.retain(|place, _| Some(place.0) != topic_id);
    let (error_code, error_message) = if topic_id.is_none() {
        let unknown = ErrorCode::UnknownTopicOrPartition;
        (unknown, text_of(unknown))
    } else if group.initialized.len() == known {
        let text = "There is no offset information to delete.";
        (ErrorCode::UnknownTopicOrPartition, Some(text.to_owned()))
    } else {
        (ErrorCode::None, None)
    };
    DeleteShareGroupOffsetsResponseTopic {
        topic_name: asked.topic_name.clone(),
        topic_id: topic_id.unwrap_or_default(),
        error_code,
        error_message,
    }
}
