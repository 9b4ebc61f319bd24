//! ListGroups (16): the groups that this broker coordinates.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::list_groups::{ListGroupsRequest, ListGroupsResponse, ListedGroup};

use super::{Reply, Serve};
use crate::model::{Call, Model};

impl Serve for ListGroupsRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=5;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<ListGroupsResponse> {
        let has = |filter: &[String], word: &str| {
            filter.is_empty()
                || filter
                    .iter()
                    .any(|wanted| wanted.eq_ignore_ascii_case(word))
        };
        let groups = model.groups.iter().filter(|(id, group)| {
            model.coordinator(id) == call.broker
                && has(&self.states_filter, group.state())
                && has(&self.types_filter, "share")
        });
        let groups = groups.map(|(id, group)| ListedGroup {
            group_id: id.clone(),
            protocol_type: "share".to_owned(),
            group_state: group.state().to_owned(),
            group_type: "share".to_owned(),
        });
        let simple = model.consumer_groups.keys().filter(|id| {
            model.coordinator(id) == call.broker
                && has(&self.states_filter, "Empty")
                && has(&self.types_filter, "classic")
        });
        let simple = simple.map(|id| ListedGroup {
            group_id: id.clone(),
            protocol_type: String::new(),
            group_state: "Empty".to_owned(),
            group_type: "classic".to_owned(),
        });
        Reply::Now(ListGroupsResponse {
            groups: groups.chain(simple).collect(),
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> ListGroupsResponse {
        ListGroupsResponse {
            error_code: error,
            ..Default::default()
        }
    }
}
