//! ShareGroupDescribe (77): groups and members, at the coordinator.

use std::ops::RangeInclusive;

use sharegroup_wire::message::share_group_describe::{
    Assignment, DescribedGroup, Member as DescribedMember, ShareGroupDescribeRequest,
    ShareGroupDescribeResponse, TopicPartitions,
};
use sharegroup_wire::{ErrorCode, MemberEpoch};

use super::k76_share_group_heartbeat::by_topic;
use super::{Reply, Serve};
use crate::model::group::{Group, Member};
use crate::model::{Call, Model};

impl Serve for ShareGroupDescribeRequest {
    const VERSIONS: RangeInclusive<i16> = 1..=1;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<ShareGroupDescribeResponse> {
        let describe = |group_id: &String| {
            if group_id.is_empty() {
                return failed(group_id, ErrorCode::InvalidGroupId, None);
            }
            if model.coordinator(group_id) != call.broker {
                return failed(group_id, ErrorCode::NotCoordinator, None);
            }
            let Some(group) = model.groups.get(group_id) else {
                let text = format!("Group {group_id} not found.");
                return failed(group_id, ErrorCode::GroupIdNotFound, Some(text));
            };
            described(model, group_id, group)
        };
        Reply::Now(ShareGroupDescribeResponse {
            groups: self.group_ids.iter().map(describe).collect(),
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> ShareGroupDescribeResponse {
        ShareGroupDescribeResponse {
            groups: self
                .group_ids
                .iter()
                .map(|group_id| failed(group_id, error, None))
                .collect(),
            ..Default::default()
        }
    }
}

fn failed(group_id: &str, error_code: ErrorCode, error_message: Option<String>) -> DescribedGroup {
    DescribedGroup {
        error_code,
        error_message,
        group_id: group_id.to_owned(),
        ..Default::default()
    }
}

fn described(model: &Model, group_id: &str, group: &Group) -> DescribedGroup {
    let member = |(id, member): (&String, &Member)| DescribedMember {
        member_id: id.clone(),
        rack_id: member.rack_id.clone(),
        member_epoch: MemberEpoch(member.epoch),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        subscribed_topic_names: member.topics.clone(),
        assignment: assignment(model, member),
    };
    DescribedGroup {
        group_id: group_id.to_owned(),
        group_state: group.state().to_owned(),
        group_epoch: group.epoch,
        assignment_epoch: group.assignment_epoch,
        assignor_name: "simple".to_owned(),
        members: group.members.iter().map(member).collect(),
        ..Default::default()
    }
}

fn assignment(model: &Model, member: &Member) -> Assignment {
    let topics = by_topic(&member.assigned)
        .into_iter()
        .filter_map(|(topic_id, partitions)| {
            let topic_name = model.topics.get(topic_id)?.name.clone();
            Some(TopicPartitions {
                topic_id,
                topic_name,
                partitions,
            })
        });
    Assignment {
        topic_partitions: topics.collect(),
    }
}
