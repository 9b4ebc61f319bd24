//! Offsets: where share groups stand, where logs begin and end.

use std::collections::{BTreeMap, BTreeSet};

use sharegroup_wire::id::TopicId;
use sharegroup_wire::message::Message;
use sharegroup_wire::message::alter_share_group_offsets::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic, AlterShareGroupOffsetsResponseTopic,
};
use sharegroup_wire::message::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic, DescribeShareGroupOffsetsResponseTopic,
};
use sharegroup_wire::message::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic, TIMESTAMP_EARLIEST,
    TIMESTAMP_LATEST,
};
use sharegroup_wire::{BrokerId, ErrorCode};

use super::Admin;
use super::error::{AdminError, Resource};
use crate::cluster::{Cluster, MetadataScope, Retry};
use crate::topic_partition::TopicPartition;

/// Where a share group stands on one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionOffsets {
    /// The topic's name.
    pub topic: String,
    /// The topic's id.
    pub topic_id: TopicId,
    /// Partition index.
    pub partition: i32,
    /// The first offset that is not yet settled for good (SPSO); `None` = not initialized.
    pub start_offset: Option<i64>,
    /// The leader's epoch that goes with it.
    pub leader_epoch: i32,
    /// Records that are not yet settled, those in flight included; `None` = unknown: not
    /// initialized, or a 4.1 broker.
    pub lag: Option<i64>,
}

/// A place in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogPosition {
    /// Offset of the first record.
    Earliest,
    /// Offset that the next record will get.
    Latest,
    /// Offset of the first record that is not older than this, in milliseconds since 1970-01-01 UTC; as
    /// [`LogPosition::Latest`] where all are.
    Since(i64),
}

/// An offset in a partition's log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogOffset {
    /// The partition.
    pub partition: TopicPartition,
    /// The offset.
    pub offset: i64,
}

impl LogOffset {
    /// Of a partition and an offset in it.
    #[must_use]
    pub const fn new(partition: TopicPartition, offset: i64) -> Self {
        Self { partition, offset }
    }
}

impl Admin {
    /// Where a share group stands: on the given partitions of topics, or on all that it has
    /// initialized (`None`). A group that doesn't exist has none.
    ///
    /// # Errors
    /// [`AdminError::Broker`] of the group, or of the first partition that has one.
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn share_group_offsets(
        &self,
        group_id: &str,
        topics: Option<&[(&str, &[i32])]>,
    ) -> Result<Vec<PartitionOffsets>, AdminError> {
        let operation = DescribeShareGroupOffsetsRequest::NAME;
        let topic = |(name, partitions): &(&str, &[i32])| DescribeShareGroupOffsetsRequestTopic {
            topic_name: (*name).to_owned(),
            partitions: partitions.to_vec(),
        };
        let request = &DescribeShareGroupOffsetsRequest {
            groups: vec![DescribeShareGroupOffsetsRequestGroup {
                group_id: group_id.to_owned(),
                topics: topics.map(|topics| topics.iter().map(topic).collect()),
            }],
        };
        let attempt = |cluster: Cluster| async move {
            let response = cluster.call_coordinator(group_id, request).await?;
            let resource = || Resource::Group(group_id.to_owned());
            let group = response
                .groups
                .into_iter()
                .find(|group| group.group_id == group_id);
            let group = group.ok_or_else(|| AdminError::PeerMisbehaved {
                operation,
                resource: resource(),
            })?;
            let refused =
                |code| AdminError::broker(operation, resource(), code, group.error_message);
            group.error_code.ok().map_err(refused)?;
            let offsets = group.topics.into_iter().flat_map(offsets_of_topic);
            offsets.collect::<Result<Vec<_>, _>>()
        };
        let mut offsets = self.with_retries(operation, Retry::Always, attempt).await?;
        offsets.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        Ok(offsets)
    }

    /// Moves the start offsets of a share group: what lies before is never delivered, what lies behind is,
    /// again where it was settled already. A group that doesn't exist is made. It may have no members
    /// (KIP-932; Kafka 4.1 and later).
    ///
    /// # Errors
    /// [`AdminError::Broker`] of the group, with NON_EMPTY_GROUP where it has members, or of the first partition
    /// that has one.
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn alter_share_group_offsets(
        &self,
        group_id: &str,
        offsets: &[LogOffset],
    ) -> Result<(), AdminError> {
        let operation = AlterShareGroupOffsetsRequest::NAME;
        let mut topics: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for LogOffset { partition, offset } in offsets {
            let partitions = topics.entry(&partition.topic).or_default();
            partitions.push(AlterShareGroupOffsetsRequestPartition {
                partition_index: partition.partition,
                start_offset: *offset,
            });
        }
        let topic = |(name, partitions): (&str, _)| AlterShareGroupOffsetsRequestTopic {
            topic_name: name.to_owned(),
            partitions,
        };
        let request = &AlterShareGroupOffsetsRequest {
            group_id: group_id.to_owned(),
            topics: topics.into_iter().map(topic).collect(),
        };
        let attempt = |cluster: Cluster| async move {
            let response = cluster.call_coordinator(group_id, request).await?;
            let resource = || Resource::Group(group_id.to_owned());
            let refused =
                |code| AdminError::broker(operation, resource(), code, response.error_message);
            response.error_code.ok().map_err(refused)?;
            response.responses.into_iter().try_for_each(altered_topic)
        };
        self.with_retries(operation, Retry::Always, attempt).await
    }

    /// Makes a share group without members begin here on those partitions of topics that it hasn't begun to
    /// read. Returns these; none where the group has members, or all is begun.
    ///
    /// `share.auto.offset.reset` alone doesn't do it for a group that joins at once: the change is answered before
    /// the leaders act on it, and where they don't yet a partition begins at its end, so that what is there already
    /// is never delivered. It is for the partitions that come later.
    ///
    /// # Errors
    /// As [`alter_share_group_offsets`](Self::alter_share_group_offsets), but for NON_EMPTY_GROUP. Topics
    /// that don't exist are left out.
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn begin_share_group(
        &self,
        group_id: &str,
        topics: &[&str],
        position: LogPosition,
    ) -> Result<Vec<LogOffset>, AdminError> {
        let mut partitions = BTreeSet::new();
        for (name, described) in self.describe_each_topic(topics).await? {
            match described {
                Ok(topic) => partitions.extend(
                    topic
                        .partitions
                        .iter()
                        .map(|partition| TopicPartition::new(&name, partition.partition)),
                ),
                Err(error) if error.code() == Some(ErrorCode::UnknownTopicOrPartition) => {}
                Err(error) => return Err(error),
            }
        }
        let begun = self.share_group_offsets(group_id, None).await;
        let begun = match begun {
            // A group that isn't there has begun nothing.
            Err(error) if error.code() == Some(ErrorCode::GroupIdNotFound) => Vec::new(),
            begun => begun?,
        };
        for offsets in begun.iter().filter(|found| found.start_offset.is_some()) {
            partitions.remove(&TopicPartition::new(&offsets.topic, offsets.partition));
        }
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        let partitions: Vec<_> = partitions.into_iter().collect();
        let offsets = self.log_offsets(&partitions, position).await?;
        match self.alter_share_group_offsets(group_id, &offsets).await {
            Ok(()) => Ok(offsets),
            Err(error) if error.code() == Some(ErrorCode::NonEmptyGroup) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Places in the logs of partitions, asked of their leaders, in the order of partitions.
    ///
    /// # Errors
    /// [`AdminError`] of the first partition that has one.
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn log_offsets(
        &self,
        partitions: &[TopicPartition],
        position: LogPosition,
    ) -> Result<Vec<LogOffset>, AdminError> {
        let attempt = |cluster: Cluster| async move {
            let mut found = log_offsets(&cluster, partitions, position).await?;
            // Nothing is so young.
            let older = found.iter().filter(|found| found.offset < 0);
            let older: Vec<_> = older.map(|found| found.partition.clone()).collect();
            let ends = log_offsets(&cluster, &older, LogPosition::Latest).await?;
            let missing = found.iter_mut().filter(|found| found.offset < 0);
            missing
                .zip(ends)
                .for_each(|(found, end)| found.offset = end.offset);
            Ok(found)
        };
        self.with_retries(ListOffsetsRequest::NAME, Retry::Always, attempt)
            .await
    }
}

fn altered_topic(topic: AlterShareGroupOffsetsResponseTopic) -> Result<(), AdminError> {
    for partition in topic.partitions {
        let place = TopicPartition::new(topic.topic_name.clone(), partition.partition_index);
        let refused = |code| {
            AdminError::broker(
                AlterShareGroupOffsetsRequest::NAME,
                Resource::Partition(place),
                code,
                partition.error_message,
            )
        };
        partition.error_code.ok().map_err(refused)?;
    }
    Ok(())
}

fn offsets_of_topic(
    topic: DescribeShareGroupOffsetsResponseTopic,
) -> impl Iterator<Item = Result<PartitionOffsets, AdminError>> {
    let (name, topic_id) = (topic.topic_name, topic.topic_id);
    topic
        .partitions
        .into_iter()
        .map(move |partition| match partition.error_code.ok() {
            Ok(()) => Ok(PartitionOffsets {
                topic: name.clone(),
                topic_id,
                partition: partition.partition_index,
                start_offset: (partition.start_offset >= 0).then_some(partition.start_offset),
                leader_epoch: partition.leader_epoch,
                lag: (partition.lag >= 0).then_some(partition.lag),
            }),
            Err(code) => Err(AdminError::broker(
                DescribeShareGroupOffsetsRequest::NAME,
                Resource::Partition(TopicPartition::new(name.clone(), partition.partition_index)),
                code,
                partition.error_message,
            )),
        })
}

async fn log_offsets(
    cluster: &Cluster,
    partitions: &[TopicPartition],
    position: LogPosition,
) -> Result<Vec<LogOffset>, AdminError> {
    let mut offsets = BTreeMap::new();
    for (leader, partitions) in by_leader(cluster, partitions).await? {
        let mut topics: Vec<ListOffsetsTopic> = Vec::new();
        for TopicPartition { topic, partition } in partitions {
            let partition = ListOffsetsPartition {
                partition_index: partition,
                timestamp: match position {
                    LogPosition::Earliest => TIMESTAMP_EARLIEST,
                    LogPosition::Latest => TIMESTAMP_LATEST,
                    LogPosition::Since(timestamp) => timestamp.max(0),
                },
                ..Default::default()
            };
            match topics.iter_mut().find(|entry| entry.name == topic) {
                Some(entry) => entry.partitions.push(partition),
                None => topics.push(ListOffsetsTopic {
                    name: topic,
                    partitions: vec![partition],
                }),
            }
        }
        let timeout_ms =
            i32::try_from(cluster.config().request_timeout.as_millis()).unwrap_or(i32::MAX);
        let request = ListOffsetsRequest {
            topics,
            timeout_ms,
            ..Default::default()
        };
        let response = cluster.call_broker(leader, &request).await?;
        for topic in response.topics {
            for answer in topic.partitions {
                let partition = TopicPartition::new(topic.name.clone(), answer.partition_index);
                refused(&partition, answer.error_code)?;
                offsets.insert(partition, answer.offset);
            }
        }
    }
    let found = |partition: &TopicPartition| match offsets.get(partition) {
        Some(offset) => Ok(LogOffset {
            partition: partition.clone(),
            offset: *offset,
        }),
        None => Err(AdminError::PeerMisbehaved {
            operation: ListOffsetsRequest::NAME,
            resource: Resource::Partition(partition.clone()),
        }),
    };
    partitions.iter().map(found).collect()
}

fn refused(partition: &TopicPartition, code: ErrorCode) -> Result<(), AdminError> {
    let resource = || Resource::Partition(partition.clone());
    code.ok()
        .map_err(|code| AdminError::broker(ListOffsetsRequest::NAME, resource(), code, None))
}

/// Partitions by their leader, as metadata says now.
async fn by_leader(
    cluster: &Cluster,
    partitions: &[TopicPartition],
) -> Result<BTreeMap<BrokerId, Vec<TopicPartition>>, AdminError> {
    let mut names: Vec<String> = partitions
        .iter()
        .map(|partition| partition.topic.clone())
        .collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let metadata = cluster.metadata(MetadataScope::Names(names)).await?;
    let mut leaders: BTreeMap<BrokerId, Vec<TopicPartition>> = BTreeMap::new();
    for wanted in partitions {
        let topic = metadata
            .topics
            .iter()
            .find(|topic| topic.name.as_deref() == Some(&wanted.topic));
        refused(
            wanted,
            topic.map_or(ErrorCode::UnknownTopicOrPartition, |topic| topic.error_code),
        )?;
        let known = topic.and_then(|topic| {
            topic
                .partitions
                .iter()
                .find(|p| p.partition_index == wanted.partition)
        });
        match known.map(|partition| partition.leader_id) {
            Some(leader) if leader.0 >= 0 => {
                leaders.entry(leader).or_default().push(wanted.clone())
            }
            Some(_) => refused(wanted, ErrorCode::LeaderNotAvailable)?,
            None => refused(wanted, ErrorCode::UnknownTopicOrPartition)?,
        }
    }
    Ok(leaders)
}
