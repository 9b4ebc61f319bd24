//! DeleteGroups (42): share groups without members.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::delete_groups::{
    DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse,
};

use super::{Reply, Serve};
use crate::model::{Call, Model};

impl Serve for DeleteGroupsRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=3;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<DeleteGroupsResponse> {
        let mut results = Vec::new();
        for group_id in &self.groups_names {
            let error = if model.coordinator(group_id) == call.broker {
                let is_empty = match model.groups.get(group_id) {
                    Some(group) => Some(group.members.is_empty()),
                    None => model.consumer_groups.get(group_id).map(|_| true),
                };
                match is_empty {
                    None => ErrorCode::GroupIdNotFound,
                    Some(false) => ErrorCode::NonEmptyGroup,
                    Some(true) => {
                        model.delete_group(group_id);
                        ErrorCode::None
                    }
                }
            } else {
                ErrorCode::NotCoordinator
            };
            results.push(result(group_id, error));
        }
        Reply::Now(DeleteGroupsResponse {
            results,
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> DeleteGroupsResponse {
        DeleteGroupsResponse {
            results: self
                .groups_names
                .iter()
                .map(|group_id| result(group_id, error))
                .collect(),
            ..Default::default()
        }
    }
}

fn result(group_id: &str, error_code: ErrorCode) -> DeletableGroupResult {
    DeletableGroupResult {
        group_id: group_id.to_owned(),
        error_code,
        error_message: None,
    }
}
