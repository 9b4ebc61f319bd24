//! Offsets that consumer groups have committed.

use std::collections::BTreeMap;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::Message;
use sharegroup_wire::message::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
    OffsetCommitResponseTopic,
};
use sharegroup_wire::message::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponseTopic,
};

use super::Admin;
use super::error::{AdminError, Resource};
use super::offsets::LogOffset;
use crate::cluster::{Cluster, Retry};
use crate::topic_partition::TopicPartition;

impl Admin {
    /// The offsets that a consumer group has committed, by topic and partition: of each the offset of the
    /// next record that it would read. Partitions without a commit are left out, so that a group that doesn't
    /// exist, or is of another type, has none. Offsets of transactions that are open are waited for
    /// (KIP-447; OffsetFetch 8, KIP-709).
    ///
    /// # Errors
    /// [`AdminError::Broker`] of the group, or of the first partition that has one.
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn consumer_group_offsets(
        &self,
        group_id: &str,
    ) -> Result<Vec<LogOffset>, AdminError> {
        let operation = OffsetFetchRequest::NAME;
        let request = &OffsetFetchRequest {
            groups: vec![OffsetFetchRequestGroup {
                group_id: group_id.to_owned(),
                ..Default::default()
            }],
            require_stable: true,
        };
        let attempt = |cluster: Cluster| async move {
            let response = cluster.call_coordinator(group_id, request).await?;
            let resource = || Resource::Group(group_id.to_owned());
            let mut groups = response.groups.into_iter();
            let group = groups.find(|group| group.group_id == group_id);
            let group = group.ok_or_else(|| AdminError::PeerMisbehaved {
                operation,
                resource: resource(),
            })?;
            let refused = |code| AdminError::broker(operation, resource(), code, None);
            group.error_code.ok().map_err(refused)?;
            let offsets = group.topics.into_iter().flat_map(committed_of_topic);
            offsets.collect::<Result<Vec<_>, _>>()
        };
        let mut offsets = self.with_retries(operation, Retry::Always, attempt).await?;
        offsets.retain(|committed| committed.offset >= 0);
        offsets.sort_by(|a, b| a.partition.cmp(&b.partition));
        Ok(offsets)
    }

    /// Commits offsets in the name of a consumer group without members. A group that doesn't exist is made.
    ///
    /// # Errors
    /// [`AdminError::Broker`] of the first partition that has one: UNKNOWN_MEMBER_ID where the group has
    /// members.
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn alter_consumer_group_offsets(
        &self,
        group_id: &str,
        offsets: &[LogOffset],
    ) -> Result<(), AdminError> {
        let mut topics: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for LogOffset { partition, offset } in offsets {
            let partitions = topics.entry(&partition.topic).or_default();
            partitions.push(OffsetCommitRequestPartition {
                partition_index: partition.partition,
                committed_offset: *offset,
                ..Default::default()
            });
        }
        let topic = |(name, partitions): (&str, _)| OffsetCommitRequestTopic {
            name: name.to_owned(),
            partitions,
        };
        let request = &OffsetCommitRequest {
            group_id: group_id.to_owned(),
            topics: topics.into_iter().map(topic).collect(),
            ..Default::default()
        };
        let attempt = |cluster: Cluster| async move {
            let response = cluster.call_coordinator(group_id, request).await?;
            response.topics.into_iter().try_for_each(committed_topic)
        };
        self.with_retries(OffsetCommitRequest::NAME, Retry::Always, attempt)
            .await
    }
}

fn committed_of_topic(
    topic: OffsetFetchResponseTopic,
) -> impl Iterator<Item = Result<LogOffset, AdminError>> {
    let name = topic.name;
    topic.partitions.into_iter().map(move |partition| {
        let place = TopicPartition::new(name.clone(), partition.partition_index);
        match partition.error_code.ok() {
            Ok(()) => Ok(LogOffset::new(place, partition.committed_offset)),
            Err(code) => Err(refused(OffsetFetchRequest::NAME, place, code)),
        }
    })
}

fn committed_topic(topic: OffsetCommitResponseTopic) -> Result<(), AdminError> {
    for partition in topic.partitions {
        let place = TopicPartition::new(topic.name.clone(), partition.partition_index);
        let refused = |code| refused(OffsetCommitRequest::NAME, place, code);
        partition.error_code.ok().map_err(refused)?;
    }
    Ok(())
}

fn refused(operation: &'static str, place: TopicPartition, code: ErrorCode) -> AdminError {
    AdminError::broker(operation, Resource::Partition(place), code, None)
}
