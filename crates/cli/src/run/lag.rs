//! Asks the cluster for the lag of the connectors' groups.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sharegroup_consumer::TopicPartition;
use sharegroup_consumer::admin::{Admin, AdminError, LogPosition};
use sharegroup_sink::ConnectorConfig;
use sharegroup_sink::worker::Worker;

use super::idle::PartitionLag;
use super::watch::Lags;

/// The groups of a worker's connectors.
#[derive(Debug)]
pub(crate) struct ClusterLags<'a> {
    worker: &'a Worker,
    groups: Mutex<BTreeMap<String, Arc<Group>>>,
}

#[derive(Debug)]
struct Group {
    /// What it is made of.
    connector: Arc<ConnectorConfig>,
    admin: Admin,
}

/// A question that gets no answer is asked anew by the next look.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

impl<'a> ClusterLags<'a> {
    /// Of the worker's connectors; connections are opened when lags are asked for.
    pub(crate) const fn new(worker: &'a Worker) -> Self {
        Self {
            worker,
            groups: Mutex::new(BTreeMap::new()),
        }
    }

    fn group(&self, connector: &str) -> Option<Arc<Group>> {
        let configs = self.worker.connectors();
        let config = configs
            .into_iter()
            .find(|config| config.name == connector)?;
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = groups.get(connector)
            && Arc::ptr_eq(&group.connector, &config)
        {
            return Some(Arc::clone(group));
        }
        let group = Arc::new(Group::new(config));
        groups.insert(connector.to_owned(), Arc::clone(&group));
        Some(group)
    }
}

impl Lags for ClusterLags<'_> {
    async fn lags(&self, connector: &str) -> Result<Vec<PartitionLag>, String> {
        let group = self.group(connector).ok_or("no such connector")?;
        group.lags().await.map_err(|error| error.to_string())
    }
}

impl Group {
    fn new(connector: Arc<ConnectorConfig>) -> Self {
        let mut client = connector.consumer.admin.clone();
        client.default_api_timeout = ANSWER_WITHIN;
        Self {
            admin: Admin::new(client),
            connector,
        }
    }

    async fn lags(&self) -> Result<Vec<PartitionLag>, AdminError> {
        let names = self.connector.subscription.resolve(&self.admin).await?;
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let topics = self.admin.describe_topics(&names).await?;
        let partitions: Vec<(&str, Vec<i32>)> = topics
            .iter()
            .map(|topic| {
                let indexes = topic.partitions.iter().map(|partition| partition.partition);
                (topic.name.as_str(), indexes.collect())
            })
            .collect();
        let wanted: Vec<_> = partitions
            .iter()
            .map(|(topic, indexes)| (*topic, indexes.as_slice()))
            .collect();
        let offsets = self
            .admin
            .share_group_offsets(&self.connector.consumer.group_id, Some(&wanted))
            .await?;
        let mut lags: Vec<_> = partitions
            .iter()
            .flat_map(|(topic, indexes)| indexes.iter().map(move |index| (*topic, *index)))
            .map(|(topic, partition)| {
                let known = offsets
                    .iter()
                    .find(|offset| offset.topic == topic && offset.partition == partition);
                PartitionLag {
                    topic: topic.to_owned(),
                    partition,
                    lag: known.and_then(|known| known.lag),
                    start_offset: known.and_then(|known| known.start_offset),
                    log: None,
                }
            })
            .collect();
        self.fill_logs(&mut lags).await?;
        Ok(lags)
    }

    /// Looks into the logs of the partitions whose lag is unknown.
    async fn fill_logs(&self, lags: &mut [PartitionLag]) -> Result<(), AdminError> {
        let unknown: Vec<_> = lags
            .iter()
            .filter(|lag| lag.lag.is_none())
            .map(|lag| TopicPartition::new(lag.topic.as_str(), lag.partition))
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let earliest = self.admin.log_offsets(&unknown, LogPosition::Earliest);
        let latest = self.admin.log_offsets(&unknown, LogPosition::Latest);
        let (earliest, latest) = (earliest.await?, latest.await?);
        let unknown = lags.iter_mut().filter(|lag| lag.lag.is_none());
        for ((lag, earliest), latest) in unknown.zip(&earliest).zip(&latest) {
            lag.log = Some((earliest.offset, latest.offset));
        }
        Ok(())
    }
}
