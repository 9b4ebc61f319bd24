//! Seeded steps: whatever clients do that has to outlive a broker, as requests to a model.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a step that can't be made ends the test with its place"
)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use sharegroup_broker::model::config::Values;
use sharegroup_broker::model::topics::Place;
use sharegroup_broker::model::{LinkId, Model, Output};
use sharegroup_wire::compress::Compression;
use sharegroup_wire::frame::{decode_response, encode_request};
use sharegroup_wire::message::Request;
use sharegroup_wire::message::alter_share_group_offsets::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
};
use sharegroup_wire::message::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use sharegroup_wire::message::delete_groups::DeleteGroupsRequest;
use sharegroup_wire::message::delete_share_group_offsets::{
    DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequestTopic,
};
use sharegroup_wire::message::end_txn::EndTxnRequest;
use sharegroup_wire::message::init_producer_id::InitProducerIdRequest;
use sharegroup_wire::message::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData,
};
use sharegroup_wire::message::share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest,
};
use sharegroup_wire::message::share_fetch::{AcknowledgementBatch, FetchTopic, ShareFetchRequest};
use sharegroup_wire::message::share_group_heartbeat::ShareGroupHeartbeatRequest;
use sharegroup_wire::record::RecordBatchBuilder;
use sharegroup_wire::{BrokerId, CorrelationId, MemberEpoch, SessionEpoch, TopicId};

const MEMBERS: [&str; 2] = ["a", "b"];

/// A producer's id and epoch.
pub(crate) type ProducerEpoch = (i64, i16);

/// Makes steps, the same for the same seed.
#[derive(Debug)]
pub(crate) struct Steps {
    random: u64,
    correlation: i32,
    topics_made: u32,
    producer: Option<(ProducerEpoch, i32)>,
    links: Vec<LinkId>,
}

/// The topic that most steps are about.
pub(crate) fn orders(model: &Model) -> TopicId {
    model.topics.named("orders").unwrap().id
}

impl Steps {
    /// Makes a topic of two partitions and a group with members, dead letters and short locks.
    pub(crate) fn begin(seed: u64, model: &mut Model, now: Instant) -> Self {
        model.set_broker_values(values([(
            "group.share.min.record.lock.duration.ms",
            "1000",
        )]));
        model.set_group_values(
            "g",
            values([
                ("share.auto.offset.reset", "earliest"),
                ("share.isolation.level", "read_committed"),
                ("share.record.lock.duration.ms", "1000"),
                ("share.delivery.count.limit", "3"),
                ("errors.deadletterqueue.topic.name", "dlq.orders"),
            ]),
        );
        let id = model.create_topic("orders", 2, 1);
        model.set_topic_values(id, values([("retention.bytes", "1500")]));
        let dead = model.create_topic("dlq.orders", 1, 1);
        model.set_topic_values(
            dead,
            values([("errors.deadletterqueue.group.enable", "true")]),
        );
        let mut steps = Self {
            random: seed,
            correlation: 0,
            topics_made: 0,
            producer: None,
            links: Vec::new(),
        };
        for member in MEMBERS {
            steps.join(model, now, member);
        }
        steps
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % below
    }

    /// One step; the time goes on by up to its length.
    pub(crate) fn step(&mut self, model: &mut Model, now: &mut Instant) {
        match self.random(24) {
            0..=3 => self.produce_plain(model, *now),
            4..=6 => self.produce_idempotent(model, *now),
            7..=8 => self.transact(model, *now),
            9..=16 => self.fetch_and_acknowledge(model, *now),
            17..=18 => {
                *now += Duration::from_millis(self.random(600));
                model.handle_timeout(*now);
            }
            19 => {
                for link in std::mem::take(&mut self.links) {
                    model.disconnect(*now, link);
                }
            }
            20 if self.random(2) == 0 => model.restart(BrokerId(1)),
            20 => {
                let place = (orders(model), 0);
                let leader = model.topics.partition(place).unwrap().leader;
                model.move_leader(place, leader);
            }
            21 => self.make_and_delete(model, *now),
            22 => self.reset_offsets(model, *now),
            _ => {
                let count = self.random(5) + 3;
                let count = [("share.delivery.count.limit", &*count.to_string())];
                let mut changed = model.configs.groups["g"].clone();
                changed.extend(values(count));
                model.set_group_values("g", changed);
            }
        }
        while model.poll_output().is_some() {}
    }

    /// The answer to a request on a new connection.
    pub(crate) fn call<R: Request>(
        &mut self,
        model: &mut Model,
        now: Instant,
        request: &R,
        version: i16,
    ) -> R::Response {
        let link = model.connect(BrokerId(1), "/127.0.0.1");
        self.call_on::<R>(model, now, link, request, version)
    }

    fn call_on<R: Request>(
        &mut self,
        model: &mut Model,
        now: Instant,
        on: LinkId,
        request: &R,
        version: i16,
    ) -> R::Response {
        while model.poll_output().is_some() {}
        self.correlation += 1;
        let id = CorrelationId(self.correlation);
        let frame = encode_request(request, version, id, Some("steps"));
        model.handle_request(now, on, frame.slice(4..));
        loop {
            if let Output::Send { link, frame } = model.poll_output().unwrap()
                && link == on
            {
                return decode_response::<R>(&frame.slice(4..), version).unwrap();
            }
        }
    }

    fn join(&mut self, model: &mut Model, now: Instant, member: &str) {
        let request = ShareGroupHeartbeatRequest {
            group_id: "g".into(),
            member_id: member.into(),
            member_epoch: MemberEpoch::JOIN,
            rack_id: None,
            subscribed_topic_names: Some(vec!["orders".into()]),
        };
        assert!(self.call(model, now, &request, 1).error_code.is_none());
    }

    pub(crate) fn produce(
        &mut self,
        model: &mut Model,
        now: Instant,
        (place, batch): (Place, Bytes),
        transactional_id: Option<&str>,
    ) -> PartitionProduceResponse {
        let data = PartitionProduceData {
            index: place.1,
            records: Some(batch),
        };
        let request = ProduceRequest {
            transactional_id: transactional_id.map(str::to_owned),
            acks: -1,
            timeout_ms: 1000,
            topic_data: vec![TopicProduceData {
                topic_id: place.0,
                partition_data: vec![data],
                ..Default::default()
            }],
        };
        let answer = self.call(model, now, &request, 13);
        answer.responses[0].partition_responses[0].clone()
    }

    fn any_place(&mut self, model: &Model) -> Place {
        (orders(model), i32::try_from(self.random(2)).unwrap())
    }

    fn produce_plain(&mut self, model: &mut Model, now: Instant) {
        let (place, count) = (self.any_place(model), self.random(5) + 1);
        let answer = self.produce(model, now, (place, batch(count, None)), None);
        assert!(answer.error_code.is_none(), "{answer:?}");
    }

    fn produce_idempotent(&mut self, model: &mut Model, now: Instant) {
        let (producer, sequence) = match self.producer {
            Some(known) => known,
            None => (self.new_producer(model, now, None), 0),
        };
        let place = (orders(model), 1);
        let batch = batch(2, Some((producer, sequence, false)));
        let answer = self.produce(model, now, (place, batch), None);
        assert!(answer.error_code.is_none(), "{answer:?}");
        self.producer = (self.random(8) > 0).then_some((producer, sequence + 2));
    }

    pub(crate) fn new_producer(
        &mut self,
        model: &mut Model,
        now: Instant,
        transactional_id: Option<&str>,
    ) -> ProducerEpoch {
        let request = InitProducerIdRequest {
            transactional_id: transactional_id.map(str::to_owned),
            transaction_timeout_ms: 60_000,
            producer_id: -1,
            producer_epoch: -1,
        };
        let answer = self.call(model, now, &request, 5);
        assert!(answer.error_code.is_none(), "{answer:?}");
        (answer.producer_id, answer.producer_epoch)
    }

    /// A transaction over both partitions that is committed, aborted or left open.
    fn transact(&mut self, model: &mut Model, now: Instant) {
        let id = if self.random(2) == 0 { "t" } else { "u" };
        let producer = self.new_producer(model, now, Some(id));
        for partition in 0..2 {
            let place = (orders(model), partition);
            let batch = batch(2, Some((producer, 0, true)));
            let answer = self.produce(model, now, (place, batch), Some(id));
            assert!(answer.error_code.is_none(), "{answer:?}");
        }
        match self.random(4) {
            0 => {}
            1 => self.end(model, now, (id, producer), true),
            _ => self.end(model, now, (id, producer), false),
        }
    }

    /// Ends a transaction.
    pub(crate) fn end(
        &mut self,
        model: &mut Model,
        now: Instant,
        (id, producer): (&str, ProducerEpoch),
        committed: bool,
    ) {
        let request = EndTxnRequest {
            transactional_id: id.into(),
            producer_id: producer.0,
            producer_epoch: producer.1,
            committed,
        };
        let answer = self.call(model, now, &request, 5);
        assert!(answer.error_code.is_none(), "{answer:?}");
    }

    /// A member opens a session, gets what there is, and settles some of it.
    fn fetch_and_acknowledge(&mut self, model: &mut Model, now: Instant) {
        let member = MEMBERS[usize::try_from(self.random(2)).unwrap()];
        let link = model.connect(BrokerId(1), "/127.0.0.1");
        self.links.push(link);
        let request = ShareFetchRequest {
            group_id: Some("g".into()),
            member_id: Some(member.into()),
            min_bytes: 0,
            max_bytes: 1 << 20,
            max_records: 20,
            batch_size: 5,
            topics: vec![FetchTopic::of(orders(model), [0, 1])],
            ..Default::default()
        };
        let fetched = self.call_on(model, now, link, &request, 2);
        assert!(fetched.error_code.is_none(), "{fetched:?}");
        let mut topics = Vec::new();
        for topic in &fetched.responses {
            let mut partitions = Vec::new();
            for partition in &topic.partitions {
                let mut batches = Vec::new();
                for range in &partition.acquired_records {
                    let types = 1 + u8::try_from(self.random(4)).unwrap();
                    let last = range.last_offset - self.random(2).cast_signed();
                    if types <= 3 && range.first_offset <= last {
                        batches.push(AcknowledgementBatch {
                            first_offset: range.first_offset,
                            last_offset: last,
                            acknowledge_types: vec![types.cast_signed()],
                        });
                    }
                }
                partitions.push(AcknowledgePartition {
                    partition_index: partition.partition_index,
                    acknowledgement_batches: batches,
                });
            }
            topics.push(AcknowledgeTopic {
                topic_id: topic.topic_id,
                partitions,
            });
        }
        let request = ShareAcknowledgeRequest {
            group_id: Some("g".into()),
            member_id: Some(member.into()),
            share_session_epoch: SessionEpoch(1),
            topics,
            ..Default::default()
        };
        let answer = self.call_on(model, now, link, &request, 2);
        assert!(answer.error_code.is_none(), "{answer:?}");
    }

    /// Topics and groups come and go.
    fn make_and_delete(&mut self, model: &mut Model, now: Instant) {
        let name = |number| format!("topic-{number}");
        self.topics_made += 1;
        model.create_topic(&name(self.topics_made), 1, 1);
        let request = CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic {
                name: name(self.topics_made),
                count: 3,
                assignments: None,
            }],
            ..Default::default()
        };
        let answer = self.call(model, now, &request, 3);
        assert!(answer.results[0].error_code.is_none(), "{answer:?}");
        let old = model.topics.named(&name(self.topics_made / 2));
        if let Some(id) = old.map(|topic| topic.id) {
            model.delete_topic(id);
        }
        let request = DeleteGroupsRequest {
            groups_names: vec!["h".into()],
        };
        self.call(model, now, &request, 2);
    }

    /// An admin sets where a group without members goes on, or lets it forget that.
    fn reset_offsets(&mut self, model: &mut Model, now: Instant) {
        let request = AlterShareGroupOffsetsRequest {
            group_id: "h".into(),
            topics: vec![AlterShareGroupOffsetsRequestTopic {
                topic_name: "orders".into(),
                partitions: vec![AlterShareGroupOffsetsRequestPartition {
                    partition_index: 0,
                    start_offset: self.random(20).cast_signed(),
                }],
            }],
        };
        let answer = self.call(model, now, &request, 0);
        assert!(answer.error_code.is_none(), "{answer:?}");
        if self.random(2) == 0 {
            let request = DeleteShareGroupOffsetsRequest {
                group_id: "h".into(),
                topics: vec![DeleteShareGroupOffsetsRequestTopic {
                    topic_name: "orders".into(),
                }],
            };
            let answer = self.call(model, now, &request, 0);
            assert!(answer.responses[0].error_code.is_none(), "{answer:?}");
        }
    }
}

/// A batch of so many records: of nobody, or with a producer, a sequence number, and whether it is
/// part of a transaction.
pub(crate) fn batch(count: u64, of: Option<(ProducerEpoch, i32, bool)>) -> Bytes {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    if let Some(((id, epoch), sequence, is_transactional)) = of {
        builder = builder
            .producer(id, epoch, sequence)
            .transactional(is_transactional);
    }
    for _ in 0..count {
        builder
            .push(1000, Some(b"key"), Some(b"value"), [])
            .unwrap();
    }
    builder.build(0).unwrap()
}

fn values<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Values {
    let pairs = pairs.into_iter();
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
