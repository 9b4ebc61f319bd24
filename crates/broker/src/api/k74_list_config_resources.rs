//! ListConfigResources (74).

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::describe_configs::{RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC};
use sharegroup_wire::message::list_config_resources::{
    ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse,
    RESOURCE_CLIENT_METRICS,
};

use super::{Reply, Serve};
use crate::model::{Call, Model};

impl Serve for ListConfigResourcesRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=1;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<ListConfigResourcesResponse> {
        let kinds = match call.version {
            0 => vec![RESOURCE_CLIENT_METRICS],
            _ if self.resource_types.is_empty() => {
                vec![RESOURCE_TOPIC, RESOURCE_BROKER, RESOURCE_GROUP]
            }
            _ => self.resource_types,
        };
        let mut config_resources = Vec::new();
        for kind in kinds {
            let names: Vec<String> = match kind {
                RESOURCE_TOPIC => model
                    .topics
                    .iter()
                    .map(|topic| topic.name.clone())
                    .collect(),
                RESOURCE_GROUP => model.configs.groups.keys().cloned().collect(),
                RESOURCE_BROKER => model.brokers().map(|broker| broker.to_string()).collect(),
                _ => Vec::new(),
            };
            config_resources.extend(names.into_iter().map(|resource_name| ConfigResource {
                resource_name,
                resource_type: kind,
            }));
        }
        Reply::Now(ListConfigResourcesResponse {
            config_resources,
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> ListConfigResourcesResponse {
        ListConfigResourcesResponse {
            error_code: error,
            ..Default::default()
        }
    }
}
