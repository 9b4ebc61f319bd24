//! ListOffsets (2): offsets by time, at their leaders.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopic, ListOffsetsTopicResponse, TIMESTAMP_EARLIEST, TIMESTAMP_LATEST,
    TIMESTAMP_MAX,
};

use super::{Reply, Serve, Touches};
use crate::model::topics::{Partition, Place};
use crate::model::{Call, Model};

/// The start of what lies on the leader's own disk: everything here.
const TIMESTAMP_EARLIEST_LOCAL: i64 = -4;

impl Serve for ListOffsetsRequest {
    const VERSIONS: RangeInclusive<i16> = 1..=11;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<ListOffsetsResponse> {
        let topics = self.topics.iter().map(|topic| {
            let id = model.topics.named(&topic.name).map(|topic| topic.id);
            let answer = |asked: &ListOffsetsPartition| {
                let found = id
                    .ok_or(ErrorCode::UnknownTopicOrPartition)
                    .and_then(|id| led(model, call, (id, asked.partition_index)));
                answered(asked, found, self.isolation_level == 1)
            };
            ListOffsetsTopicResponse {
                name: topic.name.clone(),
                partitions: topic.partitions.iter().map(answer).collect(),
            }
        });
        Reply::Now(ListOffsetsResponse {
            topics: topics.collect(),
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> ListOffsetsResponse {
        let topic = |topic: &ListOffsetsTopic| ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions: topic
                .partitions
                .iter()
                .map(|asked| answered(asked, Err(error), false))
                .collect(),
        };
        ListOffsetsResponse {
            topics: self.topics.iter().map(topic).collect(),
            ..Default::default()
        }
    }

    fn touches(&self, model: &Model, _: &Call) -> Touches {
        let topics = self.topics.iter().filter_map(|topic| {
            let id = model.topics.named(&topic.name)?.id;
            let partitions = topic.partitions.iter();
            Some(partitions.map(move |partition| (id, partition.partition_index)))
        });
        topics
            .flatten()
            .map(|place| (Self::API_KEY, place))
            .collect()
    }
}

/// A partition that this broker leads.
fn led<'a>(model: &'a mut Model, call: &Call, place: Place) -> Result<&'a Partition, ErrorCode> {
    let fault = model.faults.partition(ListOffsetsRequest::API_KEY, place);
    let partition = model.topics.partition(place);
    match (fault, partition) {
        (Some(error), _) => Err(error),
        (None, None) => Err(ErrorCode::UnknownTopicOrPartition),
        (None, Some(partition)) if partition.leader != call.broker => {
            Err(ErrorCode::NotLeaderOrFollower)
        }
        (None, Some(partition)) => Ok(partition),
    }
}

fn answered(
    asked: &ListOffsetsPartition,
    partition: Result<&Partition, ErrorCode>,
    read_committed: bool,
) -> ListOffsetsPartitionResponse {
    let mut answer = ListOffsetsPartitionResponse {
        partition_index: asked.partition_index,
        ..Default::default()
    };
    let partition = match partition {
        Ok(partition) => partition,
        Err(error) => {
            answer.error_code = error;
            return answer;
        }
    };
    let log = &partition.log;
    let (offset, timestamp) = match asked.timestamp {
        TIMESTAMP_LATEST if read_committed => (log.last_stable_offset(), -1),
        TIMESTAMP_LATEST => (log.end_offset(), -1),
        TIMESTAMP_EARLIEST | TIMESTAMP_EARLIEST_LOCAL => (log.start_offset(), -1),
        TIMESTAMP_MAX => log.offset_of_max_timestamp().unwrap_or((-1, -1)),
        timestamp if timestamp >= 0 => log.offset_for_time(timestamp).unwrap_or((-1, -1)),
        _ => (-1, -1),
    };
    (answer.offset, answer.timestamp) = (offset, timestamp);
    if offset >= 0 {
        answer.leader_epoch = partition.leader_epoch;
    }
    answer
}
