//! Fetch (1): reads a log without any group. Fetch sessions are not kept: an answer with session 0
//! tells the client to send all its partitions each time.

use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::BytesMut;
use sharegroup_wire::message::fetch::{
    AbortedTransaction, FetchPartition, FetchRequest, FetchResponse, FetchTopic,
    FetchableTopicResponse, PartitionData,
};
use sharegroup_wire::message::produce::LeaderIdAndEpoch;
use sharegroup_wire::{BrokerId, ErrorCode};

use super::{Reply, Serve, Touches};
use crate::model::topics::{Partition, Place};
use crate::model::{Call, FetchWait, Model, Parked, Wait};

impl Serve for FetchRequest {
    const VERSIONS: RangeInclusive<i16> = 4..=18;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<FetchResponse> {
        let wait = Duration::from_millis(u64::try_from(self.max_wait_ms).unwrap_or(0));
        if self.session_id != 0 {
            return Reply::Now(self.refuse(call, ErrorCode::FetchSessionIdNotFound));
        }
        if let Some(answer) = model.try_fetch(call.broker, call.version, &self, wait.is_zero()) {
            return Reply::Now(answer);
        }
        let places = self
            .topics
            .iter()
            .flat_map(|topic| model.places_of(call.version, topic));
        let places = places.collect();
        model.park(Parked {
            call: call.clone(),
            deadline: call.now + wait,
            wait: Wait::Fetch(FetchWait {
                request: self,
                places,
            }),
        });
        Reply::Parked
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> FetchResponse {
        FetchResponse {
            error_code: error,
            ..Default::default()
        }
    }

    fn touches(&self, model: &Model, call: &Call) -> Touches {
        let topics = self.topics.iter();
        let places = topics.flat_map(|topic| model.places_of(call.version, topic));
        places.map(|place| (Self::API_KEY, place)).collect()
    }
}

impl Model {
    /// Most bytes of records that a broker puts into an answer, but for a first batch that is larger.
    pub(super) fn fetch_bytes_max(&self) -> usize {
        usize::try_from(self.configs.broker_number("fetch.max.bytes")).unwrap_or(0)
    }

    fn places_of(&self, version: i16, topic: &FetchTopic) -> Vec<Place> {
        let found = if version >= 13 {
            self.topics.get(topic.topic_id)
        } else {
            self.topics.named(&topic.topic)
        };
        let id = found.map_or(topic.topic_id, |topic| topic.id);
        topic
            .partitions
            .iter()
            .map(|partition| (id, partition.partition))
            .collect()
    }

    /// Answers a fetch if there is enough to answer, or if its time `is_over`.
    pub(crate) fn try_fetch(
        &mut self,
        broker: BrokerId,
        version: i16,
        request: &FetchRequest,
        is_over: bool,
    ) -> Option<FetchResponse> {
        let mut left = usize::try_from(request.max_bytes).unwrap_or(0);
        left = left.min(self.fetch_bytes_max());
        let enough = usize::try_from(request.min_bytes).unwrap_or(0);
        let (mut bytes, mut has_failed) = (0, false);
        let mut leaders = Vec::new();
        let mut responses = Vec::new();
        for topic in &request.topics {
            let mut partitions = Vec::new();
            for (asked, place) in topic.partitions.iter().zip(self.places_of(version, topic)) {
                let data = self.fetch_one(broker, version, request, place, asked, left, bytes == 0);
                let size = data.records.as_ref().map_or(0, bytes::Bytes::len);
                bytes += size;
                left = left.saturating_sub(size);
                has_failed |= !data.error_code.is_none();
                if data.error_code == ErrorCode::NotLeaderOrFollower {
                    leaders.push(data.current_leader.leader_id);
                }
                partitions.push(data);
            }
            responses.push(FetchableTopicResponse {
                topic: topic.topic.clone(),
                topic_id: topic.topic_id,
                partitions,
            });
        }
        let is_ready = is_over || has_failed || bytes >= enough || request.topics.is_empty();
        if !is_ready {
            return None;
        }
        for (asked, response) in request.topics.iter().zip(&mut responses) {
            let places = self.places_of(version, asked);
            for (place, data) in places.into_iter().zip(&mut response.partitions) {
                let records = data.records.take();
                data.records =
                    records.map(|records| self.damaged(FetchRequest::API_KEY, place, records));
            }
        }
        Some(FetchResponse {
            responses,
            node_endpoints: self.endpoints(leaders),
            ..Default::default()
        })
    }

    #[expect(clippy::too_many_arguments, reason = "one step of `try_fetch`")]
    fn fetch_one(
        &mut self,
        broker: BrokerId,
        version: i16,
        request: &FetchRequest,
        place: Place,
        asked: &FetchPartition,
        left: usize,
        is_first: bool,
    ) -> PartitionData {
        let fault = self.faults.partition(FetchRequest::API_KEY, place);
        let partition = self.topics.partition(place);
        let unknown = if version >= 13 && self.topics.get(place.0).is_none() {
            ErrorCode::UnknownTopicId
        } else {
            ErrorCode::UnknownTopicOrPartition
        };
        let mut data = PartitionData {
            partition_index: place.1,
            high_watermark: -1,
            records: Some(bytes::Bytes::new()),
            ..Default::default()
        };
        let checked = partition
            .ok_or(unknown)
            .and_then(|partition| check(broker, partition, asked).map_or(Ok(partition), Err));
        match (fault, checked) {
            (Some(error), _) | (None, Err(error)) => {
                data.error_code = error;
                let leader = partition.filter(|_| error == ErrorCode::NotLeaderOrFollower);
                if let Some(partition) = leader {
                    data.current_leader = LeaderIdAndEpoch {
                        leader_id: partition.leader,
                        leader_epoch: partition.leader_epoch,
                    };
                }
            }
            (None, Ok(partition)) => read(&mut data, partition, request, asked, left, is_first),
        }
        data
    }
}

fn check(broker: BrokerId, partition: &Partition, asked: &FetchPartition) -> Option<ErrorCode> {
    let log = &partition.log;
    if partition.leader != broker {
        return Some(ErrorCode::NotLeaderOrFollower);
    }
    if asked.current_leader_epoch >= 0 && asked.current_leader_epoch < partition.leader_epoch {
        return Some(ErrorCode::FencedLeaderEpoch);
    }
    if asked.current_leader_epoch > partition.leader_epoch {
        return Some(ErrorCode::UnknownLeaderEpoch);
    }
    let is_inside = (log.start_offset()..=log.end_offset()).contains(&asked.fetch_offset);
    (!is_inside).then_some(ErrorCode::OffsetOutOfRange)
}

fn read(
    data: &mut PartitionData,
    partition: &Partition,
    request: &FetchRequest,
    asked: &FetchPartition,
    left: usize,
    is_first: bool,
) {
    let log = &partition.log;
    data.high_watermark = log.end_offset();
    data.last_stable_offset = log.last_stable_offset();
    data.log_start_offset = log.start_offset();
    let read_committed = request.isolation_level == 1;
    let end = if read_committed {
        log.last_stable_offset()
    } else {
        log.end_offset()
    };
    let bytes_max = left.min(usize::try_from(asked.partition_max_bytes).unwrap_or(0));
    let mut bytes = BytesMut::new();
    let mut last_offset = asked.fetch_offset;
    for batch in log.read(asked.fetch_offset, end, bytes_max, is_first) {
        bytes.extend_from_slice(&batch.bytes);
        last_offset = batch.last_offset;
    }
    if read_committed {
        let aborted = log.aborted(asked.fetch_offset, last_offset);
        data.aborted_transactions = Some(
            aborted
                .map(|aborted| AbortedTransaction {
                    producer_id: aborted.producer_id,
                    first_offset: aborted.first_offset,
                })
                .collect(),
        );
    }
    data.records = Some(bytes.freeze());
}
