//! Produce (0): appends batches at their leaders.

use std::ops::RangeInclusive;

use bytes::Bytes;
use sharegroup_wire::message::produce::{
    ACKS_ALL, ACKS_LEADER, ACKS_NONE, LeaderIdAndEpoch, PartitionProduceData,
    PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData,
    TopicProduceResponse,
};
use sharegroup_wire::{ErrorCode, TopicId};

use super::{Reply, Serve, Touches};
use crate::model::log::Appended;
use crate::model::topics::Place;
use crate::model::{Call, Model};

/// The first version that makes partitions part of a transaction by itself (KIP-890).
const ADDS_PARTITIONS_SINCE: i16 = 12;
/// The first version whose batches may be zstd.
const ZSTD_SINCE: i16 = 7;

impl Serve for ProduceRequest {
    const VERSIONS: RangeInclusive<i16> = 3..=13;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<ProduceResponse> {
        let legal_acks = [ACKS_ALL, ACKS_LEADER, ACKS_NONE].contains(&self.acks);
        let mut leaders = Vec::new();
        let mut responses = Vec::new();
        let mut has_failed = false;
        for topic in &self.topic_data {
            let place_of = place_of(model, topic);
            let mut partition_responses = Vec::new();
            for partition in &topic.partition_data {
                let result = if legal_acks {
                    place_of(partition.index).and_then(|place| {
                        append(
                            model,
                            call,
                            self.transactional_id.as_deref(),
                            place,
                            partition,
                        )
                    })
                } else {
                    Err(ErrorCode::InvalidRequiredAcks)
                };
                has_failed |= result.is_err();
                let place = place_of(partition.index).ok();
                let answer = answered(model, place, partition.index, result);
                leaders.extend(
                    (answer.error_code == ErrorCode::NotLeaderOrFollower)
                        .then_some(answer.current_leader.leader_id),
                );
                partition_responses.push(answer);
            }
            responses.push(TopicProduceResponse {
                name: topic.name.clone(),
                topic_id: topic.topic_id,
                partition_responses,
            });
        }
        if self.acks == ACKS_NONE {
            // The only way to tell a client that asked for no answer.
            return if has_failed {
                Reply::Close
            } else {
                Reply::Nothing
            };
        }
        Reply::Now(ProduceResponse {
            responses,
            node_endpoints: model.endpoints(leaders),
            ..Default::default()
        })
    }

    fn wants_answer(&self) -> bool {
        self.acks != ACKS_NONE
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> ProduceResponse {
        let refused = |partition: &PartitionProduceData| PartitionProduceResponse {
            index: partition.index,
            error_code: error,
            base_offset: -1,
            ..Default::default()
        };
        let topic = |topic: &TopicProduceData| TopicProduceResponse {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partition_responses: topic.partition_data.iter().map(refused).collect(),
        };
        ProduceResponse {
            responses: self.topic_data.iter().map(topic).collect(),
            ..Default::default()
        }
    }

    fn touches(&self, model: &Model, _: &Call) -> Touches {
        let topics = self.topic_data.iter().flat_map(|topic| {
            let place_of = place_of(model, topic);
            let partitions = topic.partition_data.iter();
            partitions.filter_map(move |partition| place_of(partition.index).ok())
        });
        topics.map(|place| (Self::API_KEY, place)).collect()
    }
}

/// The partitions of a topic that is named by name or by id.
fn place_of(
    model: &Model,
    topic: &TopicProduceData,
) -> impl Fn(i32) -> Result<Place, ErrorCode> + use<> {
    let by_id = topic.topic_id != TopicId::ZERO;
    let found = if by_id {
        model.topics.get(topic.topic_id)
    } else {
        model.topics.named(&topic.name)
    };
    let known = found.map(|topic| (topic.id, topic.partitions.len()));
    move |index| match known {
        None if by_id => Err(ErrorCode::UnknownTopicId),
        Some((id, count)) if usize::try_from(index).is_ok_and(|index| index < count) => {
            Ok((id, index))
        }
        _ => Err(ErrorCode::UnknownTopicOrPartition),
    }
}

fn append(
    model: &mut Model,
    call: &Call,
    transactional_id: Option<&str>,
    place: Place,
    data: &PartitionProduceData,
) -> Result<Appended, ErrorCode> {
    const KEY: i16 = ProduceRequest::API_KEY;
    if let Some(error) = model.faults.partition(KEY, place) {
        return Err(error);
    }
    let records = data.records.clone().unwrap_or_default();
    if call.version < ZSTD_SINCE && is_zstd(&records) {
        return Err(ErrorCode::UnsupportedCompressionType);
    }
    let unix_ms = model.unix_ms(call.now);
    let is_full = model.topics.size_bytes().saturating_add(records.len()) > model.log_bytes_max;
    let topic = model.topics.get(place.0);
    let rules = topic.map(|topic| model.configs.log_rules(&topic.values));
    let (Some(rules), Some(partition)) = (rules, model.topics.partition(place)) else {
        return Err(ErrorCode::UnknownTopicOrPartition);
    };
    if partition.leader != call.broker {
        return Err(ErrorCode::NotLeaderOrFollower);
    }
    if is_full {
        return Err(ErrorCode::KafkaStorageError);
    }
    let transaction = transactional_id.zip(transactional_producer(&records));
    if let Some((id, producer)) = transaction {
        if call.version >= ADDS_PARTITIONS_SINCE {
            model.add_to_transaction(call.now, id, producer, [place])?;
        } else {
            model.transactions.verify(id, producer, place)?;
        }
    }
    let partition = model.topics.partition_mut(place);
    let partition = partition.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let before = partition.log.bounds();
    let appended = partition
        .log
        .produce(unix_ms, partition.leader_epoch, records, &rules)?;
    model.note_log(place, before);
    model.touch(place);
    Ok(appended)
}

/// The producer of a batch that belongs to a transaction.
fn transactional_producer(records: &Bytes) -> Option<(i64, i16)> {
    const LOW_ATTRIBUTES: usize = 22;
    const PRODUCER: usize = 43;
    const TRANSACTIONAL: u8 = 1 << 4;
    if records.get(LOW_ATTRIBUTES)? & TRANSACTIONAL == 0 {
        return None;
    }
    let (id, rest) = records.get(PRODUCER..)?.split_first_chunk::<8>()?;
    let epoch = rest.first_chunk::<2>()?;
    Some((i64::from_be_bytes(*id), i16::from_be_bytes(*epoch)))
}

fn is_zstd(records: &Bytes) -> bool {
    const LOW_ATTRIBUTES: usize = 22;
    records
        .get(LOW_ATTRIBUTES)
        .is_some_and(|attributes| attributes & 0b111 == 4)
}

fn answered(
    model: &Model,
    place: Option<Place>,
    index: i32,
    result: Result<Appended, ErrorCode>,
) -> PartitionProduceResponse {
    let partition = place.and_then(|place| model.topics.partition(place));
    let log_start_offset = partition.map_or(-1, |partition| partition.log.start_offset());
    match result {
        Ok(appended) => PartitionProduceResponse {
            index,
            base_offset: appended.base_offset,
            log_append_time_ms: appended.log_append_time_ms,
            log_start_offset,
            ..Default::default()
        },
        Err(error_code) => {
            let leader = partition.filter(|_| error_code == ErrorCode::NotLeaderOrFollower);
            PartitionProduceResponse {
                index,
                error_code,
                base_offset: -1,
                current_leader: leader.map_or_else(LeaderIdAndEpoch::default, |partition| {
                    LeaderIdAndEpoch {
                        leader_id: partition.leader,
                        leader_epoch: partition.leader_epoch,
                    }
                }),
                ..Default::default()
            }
        }
    }
}
