//! DeleteShareGroupOffsets (92): a group without members forgets whole topics.

use std::ops::RangeInclusive;

use sharegroup_wire::message::delete_share_group_offsets::{
    DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse, DeleteShareGroupOffsetsResponseTopic,
};
use sharegroup_wire::{ErrorCode, TopicId};

use super::{Reply, Serve};
use crate::model::journal::Entry;
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
        let Some(group) = model.groups.get(&self.group_id) else {
            return Reply::Now(DeleteShareGroupOffsetsResponse {
                error_message: Some(format!("Group {} not found.", self.group_id)),
                ..self.refuse(call, ErrorCode::GroupIdNotFound)
            });
        };
        if !group.members.is_empty() {
            return Reply::Now(self.refuse(call, ErrorCode::NonEmptyGroup));
        }
        let topics = self.topics.iter();
        let responses = topics.map(|asked| deleted(model, &self.group_id, asked));
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
    model: &mut Model,
    group_id: &str,
    asked: &DeleteShareGroupOffsetsRequestTopic,
) -> DeleteShareGroupOffsetsResponseTopic {
    let topic_id = model.topics.named(&asked.topic_name).map(|topic| topic.id);
    let (error_code, error_message) = match topic_id {
        Some(topic_id) if model.delete_share_state(group_id, topic_id) => (ErrorCode::None, None),
        Some(_) => {
            let text = "There is no offset information to delete.";
            (ErrorCode::UnknownTopicOrPartition, Some(text.to_owned()))
        }
        None => {
            let unknown = ErrorCode::UnknownTopicOrPartition;
            (unknown, text_of(unknown))
        }
    };
    DeleteShareGroupOffsetsResponseTopic {
        topic_name: asked.topic_name.clone(),
        topic_id: topic_id.unwrap_or_default(),
        error_code,
        error_message,
    }
}

impl Model {
    /// Lets a group forget where it stands on a topic; `false` where nothing was known.
    fn delete_share_state(&mut self, group_id: &str, topic_id: TopicId) -> bool {
        let group = self.groups.get_mut(group_id);
        let is_known = group.is_some_and(|group| group.delete_share_state(topic_id));
        if is_known {
            self.journal.note(|| Entry::ShareStateDeleted {
                group_id: group_id.to_owned(),
                topic_id,
            });
        }
        is_known
    }
}
