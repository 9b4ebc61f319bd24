//! DescribeTopicPartitions (75): topics in pages.

use std::ops::RangeInclusive;

use sharegroup_wire::message::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use sharegroup_wire::{ErrorCode, TopicId};

use super::{Reply, Serve};
use crate::model::topics::{Partition, Topic};
use crate::model::{Call, Model};

/// Most partitions of one page, whatever is asked: Kafka's default.
const PARTITIONS_MAX: usize = 2000;

impl Serve for DescribeTopicPartitionsRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=0;

    fn serve(self, model: &mut Model, _: &Call) -> Reply<DescribeTopicPartitionsResponse> {
        let mut names: Vec<String> = self.topics.iter().map(|topic| topic.name.clone()).collect();
        if names.is_empty() {
            names = model
                .topics
                .iter()
                .map(|topic| topic.name.clone())
                .collect();
        }
        names.sort_unstable();
        names.dedup();
        let limit = usize::try_from(self.response_partition_limit).unwrap_or(0);
        let mut left = limit.clamp(1, PARTITIONS_MAX);
        let mut response = DescribeTopicPartitionsResponse::default();
        let from = self.cursor.as_ref();
        names.retain(|name| from.is_none_or(|cursor| *name >= cursor.topic_name));
        for name in names {
            let cursor = from.filter(|cursor| cursor.topic_name == name);
            let first = cursor.map_or(0, |cursor| {
                usize::try_from(cursor.partition_index).unwrap_or(0)
            });
            if left == 0 {
                response.next_cursor = Some(Cursor {
                    topic_name: name,
                    partition_index: 0,
                });
                break;
            }
            let Some(topic) = model.topics.named(&name) else {
                response
                    .topics
                    .push(failed(&name, ErrorCode::UnknownTopicOrPartition));
                continue;
            };
            let described = described(topic, first, left);
            let next = first + described.partitions.len();
            left -= described.partitions.len();
            response.topics.push(described);
            if next < topic.partitions.len() {
                let partition_index = i32::try_from(next).unwrap_or(i32::MAX);
                response.next_cursor = Some(Cursor {
                    topic_name: name,
                    partition_index,
                });
                break;
            }
        }
        Reply::Now(response)
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> DescribeTopicPartitionsResponse {
        DescribeTopicPartitionsResponse {
            topics: self
                .topics
                .iter()
                .map(|topic| failed(&topic.name, error))
                .collect(),
            ..Default::default()
        }
    }
}

fn failed(name: &str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic {
        error_code: error,
        name: Some(name.to_owned()),
        topic_id: TopicId::ZERO,
        ..Default::default()
    }
}

fn described(topic: &Topic, first: usize, count: usize) -> DescribeTopicPartitionsResponseTopic {
    let partition =
        |(index, partition): (i32, &Partition)| DescribeTopicPartitionsResponsePartition {
            partition_index: index,
            leader_id: partition.leader,
            leader_epoch: partition.leader_epoch,
            replica_nodes: partition.replicas.clone(),
            isr_nodes: partition.replicas.clone(),
            eligible_leader_replicas: Some(Vec::new()),
            last_known_elr: Some(Vec::new()),
            ..Default::default()
        };
    DescribeTopicPartitionsResponseTopic {
        name: Some(topic.name.clone()),
        topic_id: topic.id,
        partitions: (0..)
            .zip(&topic.partitions)
            .skip(first)
            .take(count)
            .map(partition)
            .collect(),
        ..Default::default()
    }
}
