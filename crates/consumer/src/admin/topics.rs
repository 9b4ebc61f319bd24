//! Topics.

use sharegroup_wire::id::TopicId;
use sharegroup_wire::message::Message;
use sharegroup_wire::message::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use sharegroup_wire::message::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use sharegroup_wire::message::metadata::{
    MetadataRequest, MetadataResponsePartition, MetadataResponseTopic,
};
use sharegroup_wire::{BrokerId, ErrorCode};

use super::Admin;
use super::error::{AdminError, Resource};
use crate::cluster::{Cluster, MetadataScope, Retry};

/// A topic that was created.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CreatedTopic {
    /// Its id.
    pub id: TopicId,
    /// Count of partitions.
    pub partition_count: i32,
    /// Replicas of each partition.
    pub replication_factor: i16,
}

/// A topic in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicListing {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: TopicId,
    /// Whether Kafka made it for itself.
    pub is_internal: bool,
    /// Count of partitions.
    pub partition_count: usize,
}

/// A topic with its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicDescription {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: TopicId,
    /// Whether Kafka made it for itself.
    pub is_internal: bool,
    /// Its partitions by index.
    pub partitions: Vec<PartitionDescription>,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionDescription {
    /// Partition index.
    pub partition: i32,
    /// The leader; `None` = there is none now.
    pub leader: Option<BrokerId>,
    /// The leader's epoch; −1 = unknown.
    pub leader_epoch: i32,
    /// All replicas, the preferred leader first.
    pub replicas: Vec<BrokerId>,
    /// Replicas in sync.
    pub in_sync: Vec<BrokerId>,
}

impl Admin {
    /// Creates a topic. `partitions` and `replication_factor` may be −1, the broker's default;
    /// `configs` are what differs from the defaults. Brokers may need a moment after that until all
    /// of them know the topic.
    ///
    /// # Errors
    /// [`AdminError::Broker`] with TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR and so on;
    /// [`AdminError::Client`], after which the topic exists or not where
    /// [`may_have_arrived`](crate::error::ClientError::may_have_arrived).
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn create_topic(
        &self,
        name: &str,
        partitions: i32,
        replication_factor: i16,
        configs: &[(&str, &str)],
    ) -> Result<CreatedTopic, AdminError> {
        let config = |(name, value): &(&str, &str)| CreatableTopicConfig {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        };
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: name.to_owned(),
                num_partitions: partitions,
                replication_factor,
                assignments: Vec::new(),
                configs: configs.iter().map(config).collect(),
            }],
            timeout_ms: self.request_timeout_ms(),
            validate_only: false,
        };
        let attempt = |cluster: Cluster| {
            let request = &request;
            async move {
                let response = cluster.call_any_with(request, Retry::Unsent).await?;
                let topic = response.topics.into_iter().find(|topic| topic.name == name);
                let topic = topic.ok_or_else(|| no_answer(CreateTopicsRequest::NAME, name))?;
                refused(
                    CreateTopicsRequest::NAME,
                    name,
                    topic.error_code,
                    topic.error_message,
                )?;
                Ok(CreatedTopic {
                    id: topic.topic_id,
                    partition_count: topic.num_partitions,
                    replication_factor: topic.replication_factor,
                })
            }
        };
        self.with_retries(CreateTopicsRequest::NAME, Retry::Unsent, attempt)
            .await
    }

    /// Deletes a topic. Brokers may need a moment after that until all of them have forgotten it.
    ///
    /// # Errors
    /// [`AdminError::Broker`] with UNKNOWN_TOPIC_OR_PARTITION where it doesn't exist;
    /// [`AdminError::Client`], after which the topic exists or not where
    /// [`may_have_arrived`](crate::error::ClientError::may_have_arrived).
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn delete_topic(&self, name: &str) -> Result<(), AdminError> {
        let request = DeleteTopicsRequest {
            topics: vec![DeleteTopicState {
                name: Some(name.to_owned()),
                topic_id: TopicId::ZERO,
            }],
            topic_names: vec![name.to_owned()],
            timeout_ms: self.request_timeout_ms(),
        };
        let response = self.cluster.call_any_with(&request, Retry::Unsent).await?;
        let topic = response.responses.into_iter().next();
        let topic = topic.ok_or_else(|| no_answer(DeleteTopicsRequest::NAME, name))?;
        refused(
            DeleteTopicsRequest::NAME,
            name,
            topic.error_code,
            topic.error_message,
        )
    }

    /// All topics that the client may see, by name.
    ///
    /// # Errors
    /// [`AdminError::Client`].
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn list_topics(&self) -> Result<Vec<TopicListing>, AdminError> {
        let response = self.cluster.metadata(MetadataScope::AllTopics).await?;
        let mut topics: Vec<_> = response
            .topics
            .into_iter()
            .filter_map(|topic| {
                Some(TopicListing {
                    name: topic.name?,
                    id: topic.topic_id,
                    is_internal: topic.is_internal,
                    partition_count: topic.partitions.len(),
                })
            })
            .collect();
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(topics)
    }

    /// Ids, partitions and leaders of topics, in the order of their names.
    ///
    /// # Errors
    /// [`AdminError::Broker`] of the first topic that has one: UNKNOWN_TOPIC_OR_PARTITION where it
    /// doesn't exist (any more, or not yet on the broker that was asked).
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn describe_topics(
        &self,
        names: &[&str],
    ) -> Result<Vec<TopicDescription>, AdminError> {
        let described = self.describe_each_topic(names).await?;
        described.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// One topic; `None` = it doesn't exist.
    ///
    /// # Errors
    /// As [`describe_topics`](Self::describe_topics), but for UNKNOWN_TOPIC_OR_PARTITION.
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn find_topic(&self, name: &str) -> Result<Option<TopicDescription>, AdminError> {
        match self.describe_topics(&[name]).await {
            Ok(topics) => Ok(topics.into_iter().next()),
            Err(error) if error.code() == Some(ErrorCode::UnknownTopicOrPartition) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`describe_topics`](Self::describe_topics), with an outcome for each name.
    ///
    /// # Errors
    /// [`AdminError::Client`].
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn describe_each_topic(
        &self,
        names: &[&str],
    ) -> Result<Vec<(String, Result<TopicDescription, AdminError>)>, AdminError> {
        let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        names.sort();
        names.dedup();
        let response = self
            .cluster
            .metadata(MetadataScope::Names(names.clone()))
            .await?;
        let mut topics = response.topics;
        let outcome_of = |name: String| {
            let index = topics
                .iter()
                .position(|topic| topic.name.as_deref() == Some(&name));
            let outcome = match index.map(|index| topics.swap_remove(index)) {
                Some(topic) => refused(MetadataRequest::NAME, &name, topic.error_code, None)
                    .map(|()| description(name.clone(), topic)),
                None => Err(no_answer(MetadataRequest::NAME, &name)),
            };
            (name, outcome)
        };
        Ok(names.into_iter().map(outcome_of).collect())
    }
}

fn no_answer(operation: &'static str, topic: &str) -> AdminError {
    AdminError::PeerMisbehaved {
        operation,
        resource: Resource::Topic(topic.to_owned()),
    }
}

fn refused(
    operation: &'static str,
    topic: &str,
    code: ErrorCode,
    message: Option<String>,
) -> Result<(), AdminError> {
    code.ok().map_err(|code| {
        AdminError::broker(operation, Resource::Topic(topic.to_owned()), code, message)
    })
}

fn description(name: String, topic: MetadataResponseTopic) -> TopicDescription {
    let partition = |partition: MetadataResponsePartition| PartitionDescription {
        partition: partition.partition_index,
        leader: (partition.leader_id.0 >= 0).then_some(partition.leader_id),
        leader_epoch: partition.leader_epoch,
        replicas: partition.replica_nodes,
        in_sync: partition.isr_nodes,
    };
    let mut partitions: Vec<_> = topic.partitions.into_iter().map(partition).collect();
    partitions.sort_by_key(|partition| partition.partition);
    TopicDescription {
        name,
        id: topic.topic_id,
        is_internal: topic.is_internal,
        partitions,
    }
}
