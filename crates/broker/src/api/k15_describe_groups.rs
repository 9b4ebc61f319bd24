//! DescribeGroups (15): classic groups. Here they have no members.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::describe_groups::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup,
};

use super::{Reply, Serve};
use crate::model::{Call, Model};

impl Serve for DescribeGroupsRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=6;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<DescribeGroupsResponse> {
        let described = |group_id: &String| {
            if model.coordinator(group_id) != call.broker {
                return failed(group_id, ErrorCode::NotCoordinator, None);
            }
            if model.consumer_groups.contains_key(group_id) {
                return DescribedGroup {
                    group_id: group_id.clone(),
                    group_state: "Empty".to_owned(),
                    ..Default::default()
                };
            }
            // Before version 6 an unknown group was a dead one.
            let error = if call.version >= 6 {
                ErrorCode::GroupIdNotFound
            } else {
                ErrorCode::None
            };
            let text = match model.groups.get(group_id) {
                Some(_) => format!("Group {group_id} is not a classic group."),
                None => format!("Group {group_id} not found."),
            };
            failed(group_id, error, Some(text))
        };
        Reply::Now(DescribeGroupsResponse {
            groups: self.groups.iter().map(described).collect(),
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> DescribeGroupsResponse {
        DescribeGroupsResponse {
            groups: self
                .groups
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
        group_state: if error_code == ErrorCode::NotCoordinator {
            String::new()
        } else {
            "Dead".to_owned()
        },
        ..Default::default()
    }
}
