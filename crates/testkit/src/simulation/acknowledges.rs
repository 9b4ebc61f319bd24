//! What ShareFetch and ShareAcknowledge have in common: they acknowledge.

use std::fmt::Debug;

use sharegroup_broker::model::topics::Place;
use sharegroup_wire::message::share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest,
};
use sharegroup_wire::message::share_fetch::{
    AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest,
};

/// A request that acknowledges.
pub(super) trait Acknowledges: Debug {
    /// The batches of each partition.
    fn batches(&mut self) -> Vec<(Place, &mut Vec<AcknowledgementBatch>)>;

    /// Acknowledges one batch more.
    fn add(&mut self, place: Place, batch: AcknowledgementBatch);
}

impl Acknowledges for ShareFetchRequest {
    fn batches(&mut self) -> Vec<(Place, &mut Vec<AcknowledgementBatch>)> {
        let topics = self.topics.iter_mut();
        let batches = topics.flat_map(|topic| {
            let topic_id = topic.topic_id;
            let partitions = topic.partitions.iter_mut();
            partitions.map(move |partition| {
                let place = (topic_id, partition.partition_index);
                (place, &mut partition.acknowledgement_batches)
            })
        });
        batches.collect()
    }

    fn add(&mut self, (topic_id, partition_index): Place, batch: AcknowledgementBatch) {
        self.topics.push(FetchTopic {
            topic_id,
            partitions: vec![FetchPartition {
                partition_index,
                acknowledgement_batches: vec![batch],
            }],
        });
    }
}

impl Acknowledges for ShareAcknowledgeRequest {
    fn batches(&mut self) -> Vec<(Place, &mut Vec<AcknowledgementBatch>)> {
        let topics = self.topics.iter_mut();
        let batches = topics.flat_map(|topic| {
            let topic_id = topic.topic_id;
            let partitions = topic.partitions.iter_mut();
            partitions.map(move |partition| {
                let place = (topic_id, partition.partition_index);
                (place, &mut partition.acknowledgement_batches)
            })
        });
        batches.collect()
    }

    fn add(&mut self, (topic_id, partition_index): Place, batch: AcknowledgementBatch) {
        self.topics.push(AcknowledgeTopic {
            topic_id,
            partitions: vec![AcknowledgePartition {
                partition_index,
                acknowledgement_batches: vec![batch],
            }],
        });
    }
}
