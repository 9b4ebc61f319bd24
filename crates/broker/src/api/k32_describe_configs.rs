//! DescribeConfigs (32): of topics, groups and brokers.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
    DescribeConfigsResponse, DescribeConfigsResult, DescribeConfigsSynonym, RESOURCE_BROKER,
    RESOURCE_GROUP, RESOURCE_TOPIC, SOURCE_DEFAULT, SOURCE_DYNAMIC_DEFAULT_BROKER, SOURCE_GROUP,
    SOURCE_TOPIC,
};

use super::{Reply, Serve};
use crate::model::config::keys::Key;
use crate::model::config::{Values, keys};
use crate::model::{Call, Model};

impl Serve for DescribeConfigsRequest {
    const VERSIONS: RangeInclusive<i16> = 1..=4;

    fn serve(self, model: &mut Model, _: &Call) -> Reply<DescribeConfigsResponse> {
        let described = |resource: &DescribeConfigsResource| match configs(
            model,
            resource,
            self.include_synonyms,
        ) {
            Ok(configs) => DescribeConfigsResult {
                resource_type: resource.resource_type,
                resource_name: resource.resource_name.clone(),
                configs,
                ..Default::default()
            },
            Err(error) => failed(resource, error),
        };
        Reply::Now(DescribeConfigsResponse {
            results: self.resources.iter().map(described).collect(),
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> DescribeConfigsResponse {
        DescribeConfigsResponse {
            results: self
                .resources
                .iter()
                .map(|resource| failed(resource, error))
                .collect(),
            ..Default::default()
        }
    }
}

fn failed(resource: &DescribeConfigsResource, error: ErrorCode) -> DescribeConfigsResult {
    DescribeConfigsResult {
        error_code: error,
        error_message: Some(error.name().to_owned()),
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.clone(),
        ..Default::default()
    }
}

fn configs(
    model: &Model,
    resource: &DescribeConfigsResource,
    with_synonyms: bool,
) -> Result<Vec<DescribeConfigsResourceResult>, ErrorCode> {
    let name = &resource.resource_name;
    let none = Values::new();
    let wanted = |key: &&Key| {
        let keys = resource.configuration_keys.as_ref();
        keys.is_none_or(|keys| keys.iter().any(|wanted| wanted == key.name))
    };
    let (table, values, source) = match resource.resource_type {
        RESOURCE_TOPIC => {
            let topic = model
                .topics
                .named(name)
                .ok_or(ErrorCode::UnknownTopicOrPartition)?;
            (keys::TOPIC, &topic.values, SOURCE_TOPIC)
        }
        RESOURCE_GROUP => (
            keys::GROUP,
            model.configs.groups.get(name).unwrap_or(&none),
            SOURCE_GROUP,
        ),
        RESOURCE_BROKER if is_broker(model, name) => (
            keys::BROKER,
            &model.configs.broker,
            SOURCE_DYNAMIC_DEFAULT_BROKER,
        ),
        _ => return Err(ErrorCode::InvalidRequest),
    };
    let in_force = |key: &Key| match resource.resource_type {
        RESOURCE_TOPIC => model.configs.topic_text(values, key.name).to_owned(),
        RESOURCE_GROUP => model.configs.group_text(name, key.name),
        _ => model.configs.broker_text(key.name).to_owned(),
    };
    let described = table.iter().filter(wanted).map(|key| {
        let of_broker = keys::topic_default(key.name)
            .filter(|_| resource.resource_type == RESOURCE_TOPIC)
            .is_some_and(|key| model.configs.broker.contains_key(key.name));
        let config_source = match values.contains_key(key.name) {
            true => source,
            false if of_broker => SOURCE_DYNAMIC_DEFAULT_BROKER,
            false => SOURCE_DEFAULT,
        };
        let value = Some(in_force(key));
        let synonym = DescribeConfigsSynonym {
            name: key.name.to_owned(),
            value: value.clone(),
            source: config_source,
        };
        DescribeConfigsResourceResult {
            name: key.name.to_owned(),
            value,
            config_source,
            synonyms: if with_synonyms {
                vec![synonym]
            } else {
                Vec::new()
            },
            config_type: key.value_type as i8,
            ..Default::default()
        }
    });
    Ok(described.collect())
}

/// Whether a resource name means a broker: an id, or empty for all.
pub(super) fn is_broker(model: &Model, name: &str) -> bool {
    name.is_empty() || model.brokers().any(|broker| broker.to_string() == name)
}
