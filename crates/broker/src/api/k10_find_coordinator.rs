//! FindCoordinator (10): who coordinates a group or a transactional id.

use std::ops::RangeInclusive;

use sharegroup_wire::message::find_coordinator::{
    Coordinator, FindCoordinatorRequest, FindCoordinatorResponse, KEY_TYPE_GROUP,
    KEY_TYPE_TRANSACTION,
};
use sharegroup_wire::{BrokerId, ErrorCode};

use super::{Reply, Serve};
use crate::model::{Call, Model};

impl Serve for FindCoordinatorRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=6;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<FindCoordinatorResponse> {
        if ![KEY_TYPE_GROUP, KEY_TYPE_TRANSACTION].contains(&self.key_type) {
            return Reply::Now(self.refuse(call, ErrorCode::InvalidRequest));
        }
        let find = |key: &String| {
            let node_id = model.coordinator(key);
            let node = model.nodes.get(&node_id);
            Coordinator {
                key: key.clone(),
                node_id,
                host: node.map_or_else(String::new, |node| node.host.clone()),
                port: node.map_or(-1, |node| i32::from(node.port)),
                ..Default::default()
            }
        };
        let one = find(&self.key);
        Reply::Now(FindCoordinatorResponse {
            node_id: one.node_id,
            host: one.host,
            port: one.port,
            coordinators: self.coordinator_keys.iter().map(find).collect(),
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> FindCoordinatorResponse {
        let failed = |key: &String| Coordinator {
            key: key.clone(),
            node_id: BrokerId::NONE,
            port: -1,
            error_code: error,
            error_message: Some(error.name().to_owned()),
            ..Default::default()
        };
        FindCoordinatorResponse {
            error_code: error,
            node_id: BrokerId::NONE,
            port: -1,
            coordinators: self.coordinator_keys.iter().map(failed).collect(),
            ..Default::default()
        }
    }
}
