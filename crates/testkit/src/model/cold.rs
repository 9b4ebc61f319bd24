//! What a member asks besides.

use std::time::Instant;

use sharegroup_wire::message::api_versions::{
    ApiVersion, ApiVersionsResponse, FinalizedFeatureKey,
};
use sharegroup_wire::message::find_coordinator::{
    Coordinator, FindCoordinatorRequest, FindCoordinatorResponse,
};
use sharegroup_wire::message::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use sharegroup_wire::{BrokerId, ErrorCode};

use super::{Asked, Logged, ModelCluster, Topic};

/// Versions of the APIs other than ShareFetch and ShareAcknowledge: key, oldest, newest.
const VERSIONS: [(i16, i16, i16); 4] = [(3, 0, 13), (10, 0, 6), (18, 0, 5), (76, 1, 1)];

impl ModelCluster {
    /// Answers ApiVersions at a broker.
    #[must_use]
    pub fn api_versions(&self, broker: BrokerId) -> ApiVersionsResponse {
        let newest = self.share_version(broker);
        let share = [(78, 1, newest), (79, 1, newest)];
        ApiVersionsResponse {
            api_keys: VERSIONS
                .iter()
                .chain(&share)
                .map(|(api_key, min_version, max_version)| ApiVersion {
                    api_key: *api_key,
                    min_version: *min_version,
                    max_version: *max_version,
                })
                .collect(),
            finalized_features_epoch: 1,
            finalized_features: vec![FinalizedFeatureKey {
                name: "share.version".to_owned(),
                max_version_level: i16::from(self.settings.share_groups_on),
                min_version_level: i16::from(self.settings.share_groups_on),
            }],
            ..Default::default()
        }
    }

    /// Where a broker listens: a name that only the in-memory network knows.
    #[must_use]
    pub fn host(broker: BrokerId) -> String {
        format!("broker-{broker}")
    }

    /// The port of every broker.
    pub const PORT: u16 = 9092;

    /// Answers FindCoordinator.
    pub fn find_coordinator(
        &mut self,
        now: Instant,
        request: &FindCoordinatorRequest,
    ) -> FindCoordinatorResponse {
        self.history.requests.push(Logged {
            at: now,
            link: None,
            asked: Asked::FindCoordinator,
        });
        let (node_id, host, port) = (
            self.coordinator,
            Self::host(self.coordinator),
            i32::from(Self::PORT),
        );
        let keys = request.coordinator_keys.iter();
        let coordinators = keys.map(|key| Coordinator {
            key: key.clone(),
            node_id,
            host: host.clone(),
            port,
            ..Default::default()
        });
        let coordinators = coordinators.collect();
        FindCoordinatorResponse {
            node_id,
            host,
            port,
            coordinators,
            ..Default::default()
        }
    }

    /// Answers Metadata.
    pub fn metadata(&mut self, now: Instant, request: &MetadataRequest) -> MetadataResponse {
        let asked = Asked::Metadata(request.topics.as_ref().map(Vec::len));
        self.history.requests.push(Logged {
            at: now,
            link: None,
            asked,
        });
        let topics = match &request.topics {
            None => self.topics.iter().map(described).collect(),
            Some(topics) => {
                let topics = topics.iter().map(|asked| {
                    let found = self.topics.iter().find(|topic| match &asked.name {
                        Some(name) => topic.name == *name,
                        None => topic.id == asked.topic_id,
                    });
                    found.map_or_else(|| unknown(asked), described)
                });
                topics.collect()
            }
        };
        let brokers = self.brokers.keys().map(|broker| MetadataResponseBroker {
            node_id: *broker,
            host: Self::host(*broker),
            port: i32::from(Self::PORT),
            rack: None,
        });
        MetadataResponse {
            brokers: brokers.collect(),
            cluster_id: Some("model".to_owned()),
            controller_id: BrokerId(1),
            topics,
            ..Default::default()
        }
    }
}

fn unknown(
    asked: &sharegroup_wire::message::metadata::MetadataRequestTopic,
) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: if asked.name.is_some() {
            ErrorCode::UnknownTopicOrPartition
        } else {
            ErrorCode::UnknownTopicId
        },
        name: asked.name.clone(),
        topic_id: asked.topic_id,
        ..Default::default()
    }
}

fn described(topic: &Topic) -> MetadataResponseTopic {
    let partitions = topic
        .partitions
        .iter()
        .enumerate()
        .map(|(index, partition)| MetadataResponsePartition {
            partition_index: index as i32,
            leader_id: partition.leader,
            leader_epoch: partition.leader_epoch,
            replica_nodes: vec![partition.leader],
            isr_nodes: vec![partition.leader],
            ..Default::default()
        });
    MetadataResponseTopic {
        name: Some(topic.name.clone()),
        topic_id: topic.id,
        partitions: partitions.collect(),
        ..Default::default()
    }
}
