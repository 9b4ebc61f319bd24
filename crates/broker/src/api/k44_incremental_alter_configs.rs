//! IncrementalAlterConfigs (44): of topics, groups and brokers; in force at once.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::describe_configs::{RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC};
use sharegroup_wire::message::incremental_alter_configs::{
    AlterConfigsResource, AlterConfigsResourceResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, OPERATION_APPEND, OPERATION_DELETE, OPERATION_SET,
    OPERATION_SUBTRACT,
};

use super::k32_describe_configs::is_broker;
use super::{Reply, Serve};
use crate::model::config::{Change, Values, keys};
use crate::model::limits::GROUPS_MAX;
use crate::model::{Call, Model};

type Refusal = (ErrorCode, String);

impl Serve for IncrementalAlterConfigsRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=1;

    fn serve(self, model: &mut Model, _: &Call) -> Reply<IncrementalAlterConfigsResponse> {
        let mut responses = Vec::new();
        for resource in &self.resources {
            let changed = changed(model, resource).and_then(|values| {
                if self.validate_only {
                    Ok(())
                } else {
                    store(model, resource, values)
                }
            });
            let (error, text) = match changed {
                Ok(()) => (ErrorCode::None, None),
                Err((error, text)) => (error, Some(text)),
            };
            responses.push(response(resource, error, text));
        }
        Reply::Now(IncrementalAlterConfigsResponse {
            responses,
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> IncrementalAlterConfigsResponse {
        IncrementalAlterConfigsResponse {
            responses: self
                .resources
                .iter()
                .map(|resource| response(resource, error, None))
                .collect(),
            ..Default::default()
        }
    }
}

fn response(
    resource: &AlterConfigsResource,
    error_code: ErrorCode,
    error_message: Option<String>,
) -> AlterConfigsResourceResponse {
    AlterConfigsResourceResponse {
        error_code,
        error_message,
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.clone(),
    }
}

/// The resource's values with all changes, checked.
fn changed(model: &Model, resource: &AlterConfigsResource) -> Result<Values, Refusal> {
    let name = &resource.resource_name;
    let none = Values::new();
    let (table, values) = match resource.resource_type {
        RESOURCE_TOPIC => {
            let unknown = || {
                (
                    ErrorCode::UnknownTopicOrPartition,
                    format!("The topic '{name}' does not exist."),
                )
            };
            (
                keys::TOPIC,
                &model.topics.named(name).ok_or_else(unknown)?.values,
            )
        }
        RESOURCE_GROUP if !name.is_empty() => {
            (keys::GROUP, model.configs.groups.get(name).unwrap_or(&none))
        }
        RESOURCE_BROKER if is_broker(model, name) => (keys::BROKER, &model.configs.broker),
        kind => {
            let text = format!("resource type {kind} named '{name}' has no configuration here");
            return Err((ErrorCode::InvalidRequest, text));
        }
    };
    let mut changes = Vec::new();
    for config in &resource.configs {
        let value = config.value.as_deref();
        let change = match (config.config_operation, value) {
            (OPERATION_DELETE, _) => Change::Delete,
            (OPERATION_SET, Some(value)) => Change::Set(value),
            (OPERATION_APPEND, Some(value)) => Change::Append(value),
            (OPERATION_SUBTRACT, Some(value)) => Change::Subtract(value),
            _ => {
                return Err((
                    ErrorCode::InvalidRequest,
                    format!("Null value for {}", config.name),
                ));
            }
        };
        changes.push((config.name.as_str(), change));
    }
    let groups = &model.configs.groups;
    let is_new = resource.resource_type == RESOURCE_GROUP && !groups.contains_key(name);
    if is_new && groups.len() >= GROUPS_MAX {
        let text = format!("There are {GROUPS_MAX} groups with a configuration already.");
        return Err((ErrorCode::PolicyViolation, text));
    }
    let invalid = |text| (ErrorCode::InvalidConfig, text);
    let values = model
        .configs
        .changed(table, values, &changes)
        .map_err(invalid)?;
    if resource.resource_type == RESOURCE_GROUP {
        model.configs.check_group(&values).map_err(invalid)?;
    }
    Ok(values)
}

fn store(
    model: &mut Model,
    resource: &AlterConfigsResource,
    values: Values,
) -> Result<(), Refusal> {
    let name = &resource.resource_name;
    match resource.resource_type {
        RESOURCE_TOPIC => {
            let id = model.topics.named(name).map(|topic| topic.id);
            if let Some(id) = id {
                model.set_topic_values(id, values);
            }
        }
        RESOURCE_GROUP => model.set_group_values(name, values),
        _ => model.set_broker_values(values),
    }
    Ok(())
}
