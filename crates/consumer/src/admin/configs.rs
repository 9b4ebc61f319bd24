//! Configurations of groups and topics.

use std::collections::BTreeMap;
use std::time::Duration;

use sharegroup_wire::BrokerId;
use sharegroup_wire::message::Message;
use sharegroup_wire::message::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
    DescribeConfigsResponse, RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC, SOURCE_DEFAULT,
    SOURCE_DYNAMIC_BROKER, SOURCE_DYNAMIC_DEFAULT_BROKER, SOURCE_GROUP, SOURCE_STATIC_BROKER,
    SOURCE_TOPIC,
};
use sharegroup_wire::message::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, OPERATION_SET,
};

use tokio::time::{sleep, timeout};

use super::Admin;
use super::error::{AdminError, Resource};
use crate::backoff::Backoff;
use crate::cluster::{Cluster, MetadataScope, Retry};

/// Where a configuration value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigSource {
    /// Somebody set it on the topic.
    Topic,
    /// Somebody set it on the group (`DYNAMIC_GROUP_CONFIG`).
    Group,
    /// Somebody set it on the broker while it ran.
    DynamicBroker,
    /// Somebody set it for all brokers while they ran.
    DynamicDefaultBroker,
    /// It stands in the broker's file.
    StaticBroker,
    /// Nobody has set it.
    Default,
    /// A source that this crate doesn't know; the number is kept.
    Unknown(i8),
}

impl ConfigSource {
    const fn from_wire(source: i8) -> Self {
        match source {
            SOURCE_TOPIC => Self::Topic,
            SOURCE_GROUP => Self::Group,
            SOURCE_DYNAMIC_BROKER => Self::DynamicBroker,
            SOURCE_DYNAMIC_DEFAULT_BROKER => Self::DynamicDefaultBroker,
            SOURCE_STATIC_BROKER => Self::StaticBroker,
            SOURCE_DEFAULT => Self::Default,
            source => Self::Unknown(source),
        }
    }
}

/// A configuration value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigValue {
    /// The value; `None` where it is secret or unset.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: ConfigSource,
    /// Whether it can't be changed.
    pub is_read_only: bool,
}

impl ConfigValue {
    /// Whether somebody has set it on the group or topic itself.
    #[must_use]
    pub const fn is_set(&self) -> bool {
        matches!(self.source, ConfigSource::Topic | ConfigSource::Group)
    }
}

/// What a share group allows; `None` where no broker shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ShareLimits {
    /// Deliveries after which the brokers archive a record (`share.delivery.count.limit`).
    pub delivery_count: Option<i32>,
    /// Records of a partition that are locked at a time (`share.partition.max.record.locks`).
    pub record_locks: Option<i32>,
}

impl Admin {
    /// The configuration of a group, by key. The group need not exist.
    ///
    /// # Errors
    /// [`AdminError`]; GROUP_AUTHORIZATION_FAILED where DESCRIBE_CONFIGS on the group is not granted.
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn group_configs(
        &self,
        group_id: &str,
    ) -> Result<BTreeMap<String, ConfigValue>, AdminError> {
        self.configs(
            RESOURCE_GROUP,
            group_id,
            Resource::Group(group_id.to_owned()),
        )
        .await
    }

    /// The configuration of a topic, by key.
    ///
    /// # Errors
    /// [`AdminError`].
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn topic_configs(
        &self,
        topic: &str,
    ) -> Result<BTreeMap<String, ConfigValue>, AdminError> {
        self.configs(RESOURCE_TOPIC, topic, Resource::Topic(topic.to_owned()))
            .await
    }

    /// The configuration of each broker that is alive, by key: each is asked for its own.
    ///
    /// # Errors
    /// [`AdminError`] of the first broker that has one; CLUSTER_AUTHORIZATION_FAILED where
    /// DESCRIBE_CONFIGS on the cluster is not granted.
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn broker_configs(
        &self,
    ) -> Result<BTreeMap<BrokerId, BTreeMap<String, ConfigValue>>, AdminError> {
        let metadata = self.cluster.metadata(MetadataScope::Brokers).await?;
        let mut configs = BTreeMap::new();
        for broker in metadata.brokers.iter().map(|broker| broker.node_id) {
            let request = &describe(RESOURCE_BROKER, &broker.to_string(), None);
            let resource = &Resource::Broker(broker);
            let attempt = |cluster: Cluster| async move {
                let response = cluster.call_broker(broker, request).await?;
                described(response, resource)
            };
            let described = self
                .with_retries(DescribeConfigsRequest::NAME, Retry::Always, attempt)
                .await?;
            configs.insert(broker, described);
        }
        Ok(configs)
    }

    /// What a share group allows: its own configuration, and where that lacks a key (before Kafka 4.3) the
    /// brokers', the lowest where they differ.
    ///
    /// # Errors
    /// [`AdminError`]; GROUP_AUTHORIZATION_FAILED or CLUSTER_AUTHORIZATION_FAILED where DESCRIBE_CONFIGS is
    /// not granted.
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn share_limits(&self, group_id: &str) -> Result<ShareLimits, AdminError> {
        let of_group = self.group_configs(group_id).await?;
        self.share_limits_in(&of_group).await
    }

    /// As [`share_limits`](Self::share_limits), where the group's configuration is known already.
    pub(crate) async fn share_limits_in(
        &self,
        of_group: &BTreeMap<String, ConfigValue>,
    ) -> Result<ShareLimits, AdminError> {
        let mut limits = ShareLimits {
            delivery_count: number(of_group, "share.delivery.count.limit"),
            record_locks: number(of_group, "share.partition.max.record.locks"),
        };
        if limits.delivery_count.is_none() || limits.record_locks.is_none() {
            let of_brokers = self.broker_configs().await?;
            let least = |key| {
                of_brokers
                    .values()
                    .filter_map(|configs| number(configs, key))
                    .min()
            };
            let key = "group.share.delivery.count.limit";
            limits.delivery_count = limits.delivery_count.or_else(|| least(key));
            let key = "group.share.partition.max.record.locks";
            limits.record_locks = limits.record_locks.or_else(|| least(key));
        }
        Ok(limits)
    }

    async fn configs(
        &self,
        resource_type: i8,
        name: &str,
        resource: Resource,
    ) -> Result<BTreeMap<String, ConfigValue>, AdminError> {
        let (request, resource) = (&describe(resource_type, name, None), &resource);
        let attempt = |cluster: Cluster| async move {
            let response = cluster.call_any(request).await?;
            described(response, resource)
        };
        self.with_retries(DescribeConfigsRequest::NAME, Retry::Always, attempt)
            .await
    }

    /// Sets one key of a group's configuration, such as `share.auto.offset.reset`. The group need
    /// not exist. One key per request: a broker refuses a whole request for one bad key.
    ///
    /// Returns when the brokers that can be asked show the value, or after 5 s: the controller
    /// answers before they have it. They show it before they act on it: a new group that joins at once may begin
    /// where it did before the change, so use [`begin_share_group`](Self::begin_share_group) as well.
    ///
    /// # Errors
    /// [`AdminError`]: INVALID_CONFIG for a key or value that the broker doesn't accept,
    /// GROUP_AUTHORIZATION_FAILED where ALTER_CONFIGS on the group is not granted.
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn set_group_config(
        &self,
        group_id: &str,
        key: &str,
        value: &str,
    ) -> Result<(), AdminError> {
        let operation = IncrementalAlterConfigsRequest::NAME;
        let resource = &Resource::GroupConfig {
            group_id: group_id.to_owned(),
            key: key.to_owned(),
        };
        let request = &IncrementalAlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type: RESOURCE_GROUP,
                resource_name: group_id.to_owned(),
                configs: vec![AlterableConfig {
                    name: key.to_owned(),
                    config_operation: OPERATION_SET,
                    value: Some(value.to_owned()),
                }],
            }],
            validate_only: false,
        };
        let attempt = |cluster: Cluster| async move {
            let response = cluster.call_any(request).await?;
            let result = response.responses.into_iter().next();
            let result = result.ok_or_else(|| AdminError::PeerMisbehaved {
                operation,
                resource: resource.clone(),
            })?;
            let refused =
                |code| AdminError::broker(operation, resource.clone(), code, result.error_message);
            result.error_code.ok().map_err(refused)
        };
        self.with_retries(operation, Retry::Always, attempt).await?;
        if timeout(
            VISIBLE_WITHIN,
            self.group_config_visible(group_id, key, value),
        )
        .await
        .is_err()
        {
            tracing::warn!(
                group_id,
                key,
                value,
                "Not every broker shows the new group configuration yet."
            );
        }
        Ok(())
    }

    /// Waits until each broker shows the value; one that can't be asked doesn't count.
    async fn group_config_visible(&self, group_id: &str, key: &str, value: &str) {
        let request = describe(RESOURCE_GROUP, group_id, Some(key));
        let resource = Resource::Group(group_id.to_owned());
        // Who has just begun knows no broker but those of its bootstrap servers.
        if let Err(error) = self.cluster.metadata(MetadataScope::Brokers).await {
            tracing::debug!(%error, "The brokers can't be looked up.");
        }
        for broker in self.cluster.brokers() {
            let mut tries = 0;
            while let Ok(response) = self.cluster.call_broker(broker, &request).await
                && let Ok(configs) = described(response, &resource)
                && configs
                    .get(key)
                    .is_some_and(|found| found.value.as_deref() != Some(value))
            {
                tries += 1;
                sleep(self.cluster.delay(VISIBLE_BACKOFF, tries)).await;
            }
        }
    }
}

/// Longest wait until brokers show a new group configuration.
const VISIBLE_WITHIN: Duration = Duration::from_secs(5);

const VISIBLE_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(10),
    max: Duration::from_millis(200),
};

fn number(configs: &BTreeMap<String, ConfigValue>, key: &str) -> Option<i32> {
    configs.get(key)?.value.as_deref()?.trim().parse().ok()
}

fn describe(resource_type: i8, name: &str, key: Option<&str>) -> DescribeConfigsRequest {
    DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type,
            resource_name: name.to_owned(),
            configuration_keys: key.map(|key| vec![key.to_owned()]),
        }],
        ..Default::default()
    }
}

fn described(
    response: DescribeConfigsResponse,
    resource: &Resource,
) -> Result<BTreeMap<String, ConfigValue>, AdminError> {
    let operation = DescribeConfigsRequest::NAME;
    let result = response.results.into_iter().next();
    let result = result.ok_or_else(|| AdminError::PeerMisbehaved {
        operation,
        resource: resource.clone(),
    })?;
    let refused =
        |code| AdminError::broker(operation, resource.clone(), code, result.error_message);
    result.error_code.ok().map_err(refused)?;
    let value = |config: DescribeConfigsResourceResult| {
        let source = ConfigSource::from_wire(config.config_source);
        (
            config.name,
            ConfigValue {
                value: config.value,
                source,
                is_read_only: config.read_only,
            },
        )
    };
    Ok(result.configs.into_iter().map(value).collect())
}
