//! The model under virtual time: frames in, frames out.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "each test uses its part, and stops at the first failure"
)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use sharegroup_broker::model::topics::Place;
use sharegroup_broker::model::{LinkId, Model, ModelConfig, Output};
use sharegroup_wire::compress::Compression;
use sharegroup_wire::frame::{decode_response, encode_request, response_correlation_id};
use sharegroup_wire::message::Request;
use sharegroup_wire::message::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use sharegroup_wire::message::share_acknowledge::ShareAcknowledgeRequest;
use sharegroup_wire::message::share_fetch::{
    FetchTopic, FetchedPartition, ShareFetchRequest, ShareFetchResponse,
};
use sharegroup_wire::message::share_group_heartbeat::ShareGroupHeartbeatRequest;
use sharegroup_wire::record::RecordBatchBuilder;
use sharegroup_wire::{BrokerId, CorrelationId, ErrorCode, MemberEpoch, SessionEpoch};

/// A model, the time, and what it sent.
pub(crate) struct World {
    pub(crate) model: Model,
    pub(crate) now: Instant,
    pub(crate) answers: Vec<(LinkId, Bytes)>,
    pub(crate) closed: Vec<LinkId>,
    correlation: i32,
    pub(crate) place: Place,
}

impl World {
    pub(crate) fn new(brokers: i32) -> Self {
        Self::with_partitions(brokers, 1)
    }

    /// The topic with so many partitions.
    pub(crate) fn with_partitions(brokers: i32, partitions: i32) -> Self {
        let now = Instant::now();
        let address = |id| (BrokerId(id), (format!("broker-{id}"), 9092));
        let config = ModelConfig {
            brokers: (1..=brokers).map(address).collect(),
            ..ModelConfig::default()
        };
        let mut model = Model::new(now, config);
        let id = model.create_topic("orders", partitions, 1);
        let mut world = Self {
            model,
            now,
            answers: Vec::new(),
            closed: Vec::new(),
            correlation: 0,
            place: (id, 0),
        };
        world.configure("share.auto.offset.reset", "earliest");
        world.join();
        world
    }

    pub(crate) fn configure(&mut self, key: &str, value: &str) {
        let values = self.model.configs.groups.entry("g".to_owned()).or_default();
        values.insert(key.to_owned(), value.to_owned());
    }

    pub(crate) fn leader(&self) -> BrokerId {
        self.model.topics.partition(self.place).unwrap().leader
    }

    pub(crate) fn connect(&mut self) -> LinkId {
        let leader = self.leader();
        self.model.connect(leader, "/127.0.0.1")
    }

    pub(crate) fn drain(&mut self) {
        while let Some(output) = self.model.poll_output() {
            match output {
                Output::Send { link, frame } => self.answers.push((link, frame.slice(4..))),
                Output::Close { link } => self.closed.push(link),
            }
        }
    }

    /// Lets time pass, stopping wherever something is due.
    pub(crate) fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(due) = self.model.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.model.handle_timeout(self.now);
        }
        self.now = end;
        self.drain();
    }

    pub(crate) fn send<R: Request>(
        &mut self,
        link: LinkId,
        request: &R,
        version: i16,
    ) -> CorrelationId {
        self.correlation += 1;
        let id = CorrelationId(self.correlation);
        let frame = encode_request(request, version, id, Some("test")).slice(4..);
        self.model.handle_request(self.now, link, frame);
        self.drain();
        id
    }

    /// The answer to a request, if it has come.
    pub(crate) fn answer<R: Request>(
        &mut self,
        id: CorrelationId,
        version: i16,
    ) -> Option<R::Response> {
        let found = self
            .answers
            .iter()
            .position(|(_, frame)| response_correlation_id(frame) == Ok(id))?;
        let (_, frame) = self.answers.remove(found);
        Some(decode_response::<R>(&frame, version).unwrap())
    }

    pub(crate) fn call<R: Request>(
        &mut self,
        link: LinkId,
        request: &R,
        version: i16,
    ) -> R::Response {
        let id = self.send(link, request, version);
        self.answer::<R>(id, version).expect("an answer at once")
    }

    pub(crate) fn join(&mut self) {
        let coordinator = self.model.coordinator("g");
        let link = self.model.connect(coordinator, "/127.0.0.1");
        let request = ShareGroupHeartbeatRequest {
            group_id: "g".into(),
            member_id: "joiner".into(),
            member_epoch: MemberEpoch::JOIN,
            rack_id: None,
            subscribed_topic_names: Some(vec!["orders".into()]),
        };
        assert!(self.call(link, &request, 1).error_code.is_none());
    }

    pub(crate) fn produce(&mut self, values: &[&str]) {
        self.produce_as(values, None);
    }

    /// Produces a batch to another partition than the first.
    pub(crate) fn produce_to(&mut self, partition: i32, values: &[&str]) {
        let first = std::mem::replace(&mut self.place.1, partition);
        self.produce(values);
        self.place.1 = first;
    }

    /// Produces a batch, in a transaction where a producer is given.
    pub(crate) fn produce_as(&mut self, values: &[&str], producer: Option<(i64, i16, i32)>) {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        if let Some((id, epoch, sequence)) = producer {
            builder = builder.producer(id, epoch, sequence).transactional(true);
        }
        for value in values {
            builder
                .push(1000, None, Some(value.as_bytes()), [])
                .unwrap();
        }
        let data = PartitionProduceData {
            index: self.place.1,
            records: Some(builder.build(0).unwrap()),
        };
        let topic = TopicProduceData {
            topic_id: self.place.0,
            partition_data: vec![data],
            ..Default::default()
        };
        let request = ProduceRequest {
            transactional_id: producer.map(|_| "t".to_owned()),
            acks: -1,
            timeout_ms: 1000,
            topic_data: vec![topic],
        };
        let link = self.connect();
        let answer = self.call(link, &request, 13);
        assert!(
            answer.responses[0].partition_responses[0]
                .error_code
                .is_none(),
            "{answer:?}"
        );
    }

    pub(crate) fn fetch(&self, member: &str, epoch: i32, wait: Duration) -> ShareFetchRequest {
        ShareFetchRequest {
            group_id: Some("g".into()),
            member_id: Some(member.into()),
            share_session_epoch: SessionEpoch(epoch),
            max_wait_ms: i32::try_from(wait.as_millis()).unwrap(),
            min_bytes: 1,
            max_bytes: 1 << 20,
            max_records: 500,
            batch_size: 500,
            topics: vec![FetchTopic::of(self.place.0, [0])],
            ..Default::default()
        }
    }

    pub(crate) fn fetch_now(&mut self, link: LinkId, member: &str, epoch: i32) -> FetchedPartition {
        let request = self.fetch(member, epoch, Duration::ZERO);
        only(self.call(link, &request, 2))
    }

    pub(crate) fn acknowledge(
        &mut self,
        link: LinkId,
        member: &str,
        epoch: i32,
        got: &FetchedPartition,
        kind: i8,
    ) -> ErrorCode {
        let request = ShareAcknowledgeRequest {
            group_id: Some("g".into()),
            member_id: Some(member.into()),
            share_session_epoch: SessionEpoch(epoch),
            is_renew_ack: false,
            topics: vec![got.acknowledge(self.place.0, kind)],
        };
        self.call(link, &request, 2)
            .ok()
            .err()
            .unwrap_or(ErrorCode::None)
    }
}

/// The first partition of an answer without an error.
pub(crate) fn only(answer: ShareFetchResponse) -> FetchedPartition {
    assert!(answer.error_code.is_none(), "{answer:?}");
    let partitions = answer
        .responses
        .into_iter()
        .flat_map(|topic| topic.partitions);
    partitions.into_iter().next().unwrap_or_default()
}

/// First offset, last offset and delivery count of what was handed out.
pub(crate) fn ranges(got: &FetchedPartition) -> Vec<(i64, i64, i16)> {
    let range = got.acquired_records.iter();
    range
        .map(|range| (range.first_offset, range.last_offset, range.delivery_count))
        .collect()
}
