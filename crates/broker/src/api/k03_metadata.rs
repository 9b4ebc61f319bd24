//! Metadata (3): brokers, topics and leaders; makes topics that are asked for, where that is allowed.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker,
    MetadataResponsePartition, MetadataResponseTopic,
};

use super::{Reply, Serve};
use crate::model::limits::PARTITIONS_MAX;
use crate::model::topics::{Partition, Topic, check_name};
use crate::model::{Call, Model};

impl Serve for MetadataRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=13;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<MetadataResponse> {
        let topics = match &self.topics {
            Some(asked) if !(asked.is_empty() && call.version == 0) => {
                let may_create = call.version < 4 || self.allow_auto_topic_creation;
                asked
                    .iter()
                    .map(|asked| described(model, asked, may_create))
                    .collect()
            }
            _ => model.topics.iter().map(described_topic).collect(),
        };
        Reply::Now(MetadataResponse {
            brokers: brokers(model),
            cluster_id: Some(model.cluster_id.to_string()),
            controller_id: call.broker,
            topics,
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> MetadataResponse {
        // It concerns the broker, not a topic (KIP-1102).
        if error == ErrorCode::RebootstrapRequired {
            return MetadataResponse {
                error_code: error,
                ..Default::default()
            };
        }
        let asked = self.topics.iter().flatten();
        MetadataResponse {
            topics: asked.map(|asked| failed(asked, error)).collect(),
            ..Default::default()
        }
    }
}

fn brokers(model: &Model) -> Vec<MetadataResponseBroker> {
    let broker = |(id, node): (&_, &crate::model::Node)| MetadataResponseBroker {
        node_id: *id,
        host: node.host.clone(),
        port: i32::from(node.port),
        rack: None,
    };
    model.nodes.iter().map(broker).collect()
}

fn described(
    model: &mut Model,
    asked: &MetadataRequestTopic,
    may_create: bool,
) -> MetadataResponseTopic {
    let Some(name) = &asked.name else {
        let found = model.topics.get(asked.topic_id);
        return found.map_or_else(|| failed(asked, ErrorCode::UnknownTopicId), described_topic);
    };
    if let Some(found) = model.topics.named(name) {
        return described_topic(found);
    }
    if check_name(name).is_err() {
        return failed(asked, ErrorCode::InvalidTopicException);
    }
    if may_create && model.configs.broker_flag("auto.create.topics.enable") {
        let partitions = i32::try_from(model.configs.broker_number("num.partitions")).unwrap_or(1);
        let count = usize::try_from(partitions).unwrap_or(1);
        if model.topics.partition_count() + count > PARTITIONS_MAX {
            return failed(asked, ErrorCode::PolicyViolation);
        }
        let replicas = usize::try_from(model.configs.broker_number("default.replication.factor"));
        model.create_topic(name, partitions, replicas.unwrap_or(1));
    }
    // The next request finds it, as with a real broker.
    failed(asked, ErrorCode::UnknownTopicOrPartition)
}

fn failed(asked: &MetadataRequestTopic, error: ErrorCode) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: error,
        name: asked.name.clone(),
        topic_id: asked.topic_id,
        ..Default::default()
    }
}

fn described_topic(topic: &Topic) -> MetadataResponseTopic {
    let partition = |(index, partition): (i32, &Partition)| MetadataResponsePartition {
        partition_index: index,
        leader_id: partition.leader,
        leader_epoch: partition.leader_epoch,
        replica_nodes: partition.replicas.clone(),
        isr_nodes: partition.replicas.clone(),
        ..Default::default()
    };
    MetadataResponseTopic {
        name: Some(topic.name.clone()),
        topic_id: topic.id,
        partitions: (0..).zip(&topic.partitions).map(partition).collect(),
        ..Default::default()
    }
}
