//! ShareGroupHeartbeat (76): joins, stays, leaves; at the group's coordinator.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use sharegroup_wire::message::share_group_heartbeat::{
    Assignment, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, TopicPartitions,
};
use sharegroup_wire::{ErrorCode, MemberEpoch, TopicId};

use super::{Reply, Serve};
use crate::model::group::{Beat, Refusal};
use crate::model::limits::GROUPS_MAX;
use crate::model::topics::Place;
use crate::model::{Call, Model};

/// Longest member id, in characters.
const MEMBER_ID_MAX: usize = 36;

impl Serve for ShareGroupHeartbeatRequest {
    const VERSIONS: RangeInclusive<i16> = 1..=1;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<ShareGroupHeartbeatResponse> {
        Reply::Now(match beat(model, call, &self) {
            Ok(response) => response,
            Err((error_code, error_message)) => ShareGroupHeartbeatResponse {
                error_code,
                error_message,
                ..Default::default()
            },
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> ShareGroupHeartbeatResponse {
        ShareGroupHeartbeatResponse {
            error_code: error,
            ..Default::default()
        }
    }
}

fn check(request: &ShareGroupHeartbeatRequest) -> Result<(), Refusal> {
    let invalid = |text: &str| Err((ErrorCode::InvalidRequest, Some(text.to_owned())));
    let length = request.member_id.chars().count();
    if length == 0 || length > MEMBER_ID_MAX {
        return Err((ErrorCode::InvalidRequest, None));
    }
    if request.group_id.trim().is_empty() {
        return invalid("GroupId can't be empty.");
    }
    if request.rack_id.as_deref().is_some_and(str::is_empty) {
        return invalid("RackId can't be empty.");
    }
    if request.member_epoch.0 < MemberEpoch::LEAVE.0 {
        return invalid("MemberEpoch is invalid.");
    }
    if request.member_epoch == MemberEpoch::JOIN
        && request
            .subscribed_topic_names
            .as_ref()
            .is_none_or(Vec::is_empty)
    {
        return invalid("SubscribedTopicNames must be set in first request.");
    }
    Ok(())
}

fn beat(
    model: &mut Model,
    call: &Call,
    request: &ShareGroupHeartbeatRequest,
) -> Result<ShareGroupHeartbeatResponse, Refusal> {
    check(request)?;
    let (group_id, member_id) = (&request.group_id, &request.member_id);
    if model.coordinator(group_id) != call.broker {
        return Err((ErrorCode::NotCoordinator, None));
    }
    let joins = request.member_epoch == MemberEpoch::JOIN;
    if !joins && !model.groups.contains_key(group_id) {
        let text = format!("Share group {group_id} not found.");
        return Err((ErrorCode::GroupIdNotFound, Some(text)));
    }
    if model.groups.len() >= GROUPS_MAX && !model.groups.contains_key(group_id) {
        let text = format!("There are {GROUPS_MAX} groups already.");
        return Err((ErrorCode::GroupMaxSizeReached, Some(text)));
    }
    let stranger = || {
        let text = format!("Member {member_id} is not a member of group {group_id}.");
        (ErrorCode::UnknownMemberId, Some(text))
    };
    if request.member_epoch == MemberEpoch::LEAVE {
        let group = model.groups.get_mut(group_id);
        if !group.is_some_and(|group| group.remove(member_id)) {
            return Err(stranger());
        }
        model.note_group(group_id, None);
        return Ok(ShareGroupHeartbeatResponse {
            member_id: Some(member_id.clone()),
            member_epoch: MemberEpoch::LEAVE,
            ..Default::default()
        });
    }
    let rules = model.configs.group(group_id);
    let members_max = model.configs.broker_number("group.share.max.size");
    let beat = Beat {
        member_id,
        epoch: request.member_epoch.0,
        rack_id: request.rack_id.as_deref(),
        topics: request.subscribed_topic_names.as_deref(),
        client_id: &call.client_id,
        client_host: &call.peer,
        session_timeout: rules.session_timeout,
        assignment_interval: rules.assignment_interval,
        members_max: usize::try_from(members_max).unwrap_or(usize::MAX),
    };
    let epoch_before = model.groups.get(group_id).map(|group| group.epoch);
    let group = model.groups.entry(group_id.clone()).or_default();
    let told = group.heartbeat(call.now, &model.topics, &beat);
    model.note_group(group_id, epoch_before);
    let told = told.map_err(|(error, text)| {
        if error == ErrorCode::UnknownMemberId {
            stranger()
        } else {
            (error, text)
        }
    })?;
    model.note_initialized(group_id, &told.initialized);
    model.watch_member(call.now, group_id, member_id, rules.session_timeout);
    let interval = rules.heartbeat_interval.as_millis();
    Ok(ShareGroupHeartbeatResponse {
        member_id: Some(member_id.clone()),
        member_epoch: MemberEpoch(told.epoch),
        heartbeat_interval_ms: i32::try_from(interval).unwrap_or(i32::MAX),
        assignment: told.assignment.map(|places| assignment(&places)),
        ..Default::default()
    })
}

fn assignment(places: &BTreeSet<Place>) -> Assignment {
    let topic_partitions =
        by_topic(places)
            .into_iter()
            .map(|(topic_id, partitions)| TopicPartitions {
                topic_id,
                partitions,
            });
    Assignment {
        topic_partitions: topic_partitions.collect(),
    }
}

/// Partition indexes by topic.
pub(super) fn by_topic(places: &BTreeSet<Place>) -> BTreeMap<TopicId, Vec<i32>> {
    let mut topics: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
    for (topic_id, partition) in places {
        topics.entry(*topic_id).or_default().push(*partition);
    }
    topics
}
