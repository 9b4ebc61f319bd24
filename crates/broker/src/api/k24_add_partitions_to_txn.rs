//! AddPartitionsToTxn (24): makes partitions part of an open transaction, for producers of the first
//! transaction version. Versions 4 and 5 are for brokers among themselves.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::add_partitions_to_txn::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
};

use super::{Reply, Serve};
use crate::model::{Call, Model};

impl Serve for AddPartitionsToTxnRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=3;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<AddPartitionsToTxnResponse> {
        let id = &self.v3_and_below_transactional_id;
        if model.coordinator(id) != call.broker {
            return Reply::Now(self.refuse(call, ErrorCode::NotCoordinator));
        }
        let mut places = Vec::new();
        for topic in &self.v3_and_below_topics {
            let known = model.topics.named(&topic.name);
            for index in &topic.partitions {
                let place = known.map(|topic| (topic.id, *index));
                match place.filter(|place| model.topics.partition(*place).is_some()) {
                    Some(place) => places.push(place),
                    None => {
                        return Reply::Now(self.refuse(call, ErrorCode::UnknownTopicOrPartition));
                    }
                }
            }
        }
        let producer = (
            self.v3_and_below_producer_id,
            self.v3_and_below_producer_epoch,
        );
        let added = model.add_to_transaction(call.now, id, producer, places);
        Reply::Now(self.refuse(call, added.err().unwrap_or(ErrorCode::None)))
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> AddPartitionsToTxnResponse {
        let result = |partition_index: &i32| AddPartitionsToTxnPartitionResult {
            partition_index: *partition_index,
            partition_error_code: error,
        };
        let topics = self
            .v3_and_below_topics
            .iter()
            .map(|topic| AddPartitionsToTxnTopicResult {
                name: topic.name.clone(),
                results_by_partition: topic.partitions.iter().map(result).collect(),
            });
        AddPartitionsToTxnResponse {
            results_by_topic_v3_and_below: topics.collect(),
            ..Default::default()
        }
    }
}
