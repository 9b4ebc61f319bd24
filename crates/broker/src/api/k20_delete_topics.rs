//! DeleteTopics (20).

use std::ops::RangeInclusive;

use sharegroup_wire::message::delete_topics::{
    DeletableTopicResult, DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse,
};
use sharegroup_wire::{ErrorCode, TopicId};

use super::{Reply, Serve};
use crate::model::{Call, Model, text_of};

impl Serve for DeleteTopicsRequest {
    const VERSIONS: RangeInclusive<i16> = 1..=6;

    fn serve(self, model: &mut Model, _: &Call) -> Reply<DeleteTopicsResponse> {
        let mut responses = Vec::new();
        for asked in asked(&self) {
            let found = match &asked.name {
                Some(name) => model
                    .topics
                    .named(name)
                    .ok_or(ErrorCode::UnknownTopicOrPartition),
                None => model
                    .topics
                    .get(asked.topic_id)
                    .ok_or(ErrorCode::UnknownTopicId),
            };
            responses.push(match found.map(|topic| (topic.id, topic.name.clone())) {
                Ok((topic_id, name)) => {
                    model.delete_topic(topic_id);
                    DeletableTopicResult {
                        name: Some(name),
                        topic_id,
                        ..Default::default()
                    }
                }
                Err(error) => failed(&asked, error),
            });
        }
        Reply::Now(DeleteTopicsResponse {
            responses,
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> DeleteTopicsResponse {
        DeleteTopicsResponse {
            responses: asked(self)
                .iter()
                .map(|asked| failed(asked, error))
                .collect(),
            ..Default::default()
        }
    }
}

/// The topics asked for, whatever the version.
fn asked(request: &DeleteTopicsRequest) -> Vec<DeleteTopicState> {
    let named = request.topic_names.iter().map(|name| DeleteTopicState {
        name: Some(name.clone()),
        topic_id: TopicId::ZERO,
    });
    request.topics.iter().cloned().chain(named).collect()
}

fn failed(asked: &DeleteTopicState, error: ErrorCode) -> DeletableTopicResult {
    DeletableTopicResult {
        name: asked.name.clone(),
        topic_id: asked.topic_id,
        error_code: error,
        error_message: text_of(error),
    }
}
