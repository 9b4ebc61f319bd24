//! ShareAcknowledge (79): settles records without fetching.

use std::ops::RangeInclusive;

use sharegroup_wire::message::share_acknowledge::{
    AcknowledgedPartition, AcknowledgedTopic, ShareAcknowledgeRequest, ShareAcknowledgeResponse,
};
use sharegroup_wire::{ErrorCode, SessionEpoch};

use super::{Reply, Serve, Touches};
use crate::model::share_session::{Admission, SessionKey};
use crate::model::{Call, Model, text_of};

impl Serve for ShareAcknowledgeRequest {
    const VERSIONS: RangeInclusive<i16> = 1..=2;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<ShareAcknowledgeResponse> {
        let admitted = check(&self).and_then(|key| {
            let admission = model.admit(call, &key, self.share_session_epoch)?;
            Ok((key, admission))
        });
        let (key, admission) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => return Reply::Now(self.refuse(call, error)),
        };
        let response = acknowledge(model, call, &self, &key);
        let mut partitions = response
            .responses
            .iter()
            .flat_map(|topic| &topic.partitions);
        if partitions.any(|partition| partition.error_code == ErrorCode::UnknownServerError) {
            return Reply::Now(self.refuse(call, ErrorCode::UnknownServerError));
        }
        if admission == Admission::Closing {
            model.close_session(call, &key);
        }
        Reply::Now(response)
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> ShareAcknowledgeResponse {
        ShareAcknowledgeResponse {
            error_code: error,
            error_message: Some(error.name().to_owned()),
            ..Default::default()
        }
    }

    fn touches(&self, _: &Model, _: &Call) -> Touches {
        let topics = self.topics.iter().flat_map(|topic| {
            let partitions = topic.partitions.iter();
            partitions.map(|partition| (topic.topic_id, partition.partition_index))
        });
        topics.map(|place| (Self::API_KEY, place)).collect()
    }
}

fn check(request: &ShareAcknowledgeRequest) -> Result<SessionKey, ErrorCode> {
    let (Some(group_id), Some(member_id)) = (&request.group_id, &request.member_id) else {
        return Err(ErrorCode::InvalidRequest);
    };
    if member_id.is_empty() || member_id.chars().count() > 36 {
        return Err(ErrorCode::InvalidRequest);
    }
    if request.share_session_epoch == SessionEpoch::OPEN {
        return Err(ErrorCode::InvalidShareSessionEpoch);
    }
    Ok((group_id.clone(), member_id.clone()))
}

fn acknowledge(
    model: &mut Model,
    call: &Call,
    request: &ShareAcknowledgeRequest,
    key: &SessionKey,
) -> ShareAcknowledgeResponse {
    let mut leaders = Vec::new();
    let mut responses = Vec::new();
    for topic in &request.topics {
        let mut partitions = Vec::new();
        for partition in &topic.partitions {
            let place = (topic.topic_id, partition.partition_index);
            let fault = model
                .faults
                .partition(ShareAcknowledgeRequest::API_KEY, place);
            let asked = (
                &partition.acknowledgement_batches[..],
                call.version,
                request.is_renew_ack,
            );
            let result = match fault {
                Some(error) => Err(error),
                None => model.look_at_acknowledgements(call.now, call.broker, key, place, asked),
            };
            let error_code = match result {
                Ok(settlement) => {
                    model.settle(call.now, key, place, settlement);
                    ErrorCode::None
                }
                Err(error) => error,
            };
            let current_leader = model.leader_hint(place, error_code);
            leaders.extend(
                (error_code == ErrorCode::NotLeaderOrFollower).then_some(current_leader.leader_id),
            );
            partitions.push(AcknowledgedPartition {
                partition_index: partition.partition_index,
                error_code,
                error_message: text_of(error_code),
                current_leader,
            });
        }
        responses.push(AcknowledgedTopic {
            topic_id: topic.topic_id,
            partitions,
        });
    }
    ShareAcknowledgeResponse {
        acquisition_lock_timeout_ms: model.lock_ms(&key.0),
        responses,
        node_endpoints: model.endpoints(leaders),
        ..Default::default()
    }
}
