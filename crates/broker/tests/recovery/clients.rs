//! Clients that go on until the broker is gone.

use std::collections::BTreeMap;

use bytes::Bytes;
use sharegroup_wire::compress::Compression;
use sharegroup_wire::message::end_txn::EndTxnRequest;
use sharegroup_wire::message::init_producer_id::InitProducerIdRequest;
use sharegroup_wire::message::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData,
};
use sharegroup_wire::message::share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest,
};
use sharegroup_wire::message::share_fetch::{
    AcknowledgementBatch, FetchTopic, FetchedPartition, ShareFetchRequest,
};
use sharegroup_wire::message::share_group_heartbeat::ShareGroupHeartbeatRequest;
use sharegroup_wire::record::RecordBatchBuilder;
use sharegroup_wire::{ErrorCode, MemberEpoch, SessionEpoch, TopicId};

use crate::PARTITIONS;
use crate::ledger::{Known, Ledger};
use crate::raw::Raw;

const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
const REJECT: i8 = 3;
/// Records that have come so often are no longer released: none must run out of deliveries.
const DELIVERIES_MAX: i16 = 4;

/// Why a client ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The broker is gone.
    Gone,
    /// It was refused something.
    Refused(ErrorCode),
}

const fn ok(error: ErrorCode) -> Result<(), Ended> {
    match error {
        ErrorCode::None => Ok(()),
        error => Err(Ended::Refused(error)),
    }
}

/// Repeatable randomness.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % below
    }

    fn partition(&mut self) -> i32 {
        i32::try_from(self.below(PARTITIONS)).unwrap()
    }
}

/// Where a round's clients connect to.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) address: String,
    pub(crate) orders: TopicId,
    pub(crate) churn: TopicId,
}

/// An idempotent producer that outlives the broker: a batch without an answer is sent again, to the
/// next one.
#[derive(Debug)]
pub(crate) struct Producer {
    name: &'static str,
    random: Random,
    id: Option<(i64, i16)>,
    sequences: BTreeMap<i32, i32>,
    count: u64,
    /// Values, partition and bytes of the batch on its way.
    pending: Option<(Vec<String>, i32, Bytes)>,
}

impl Producer {
    pub(crate) fn new(name: &'static str, seed: u64) -> Self {
        Self {
            name,
            random: Random(seed),
            id: None,
            sequences: BTreeMap::new(),
            count: 0,
            pending: None,
        }
    }

    pub(crate) fn run(&mut self, target: &Target, ledger: &Ledger) -> Result<(), Ended> {
        let mut raw = Raw::try_connect(&target.address).ok_or(Ended::Gone)?;
        if self.id.is_none() {
            self.id = Some(init(&mut raw, ledger, None)?);
        }
        // One more each time: none may come twice.
        init(&mut raw, ledger, None)?;
        loop {
            let (values, partition, bytes) = match self.pending.take() {
                Some(pending) => pending,
                None => self.next_batch(),
            };
            self.pending = Some((values.clone(), partition, bytes.clone()));
            let got = produce(&mut raw, (target.orders, partition), bytes, None)?;
            self.pending = None;
            ledger.answered(|told| {
                for (value, offset) in values.into_iter().zip(got.base_offset..) {
                    told.produced.insert(value, (partition, offset));
                }
            });
        }
    }

    fn next_batch(&mut self) -> (Vec<String>, i32, Bytes) {
        let partition = self.random.partition();
        let count = self.random.below(10) + 1;
        let numbers = self.count..self.count + count;
        self.count += count;
        let values: Vec<String> = numbers.map(|n| format!("{}-{n}", self.name)).collect();
        let sequence = self.sequences.entry(partition).or_default();
        let producer = self.id.map(|(id, epoch)| (id, epoch, *sequence));
        *sequence += i32::try_from(count).unwrap();
        let bytes = batch(&values, producer, false);
        (values, partition, bytes)
    }
}

/// Transactions over two partitions, committed or aborted, until the broker is gone.
pub(crate) fn transact(target: &Target, ledger: &Ledger, seed: u64) -> Result<(), Ended> {
    let mut random = Random(seed);
    let mut raw = Raw::try_connect(&target.address).ok_or(Ended::Gone)?;
    let mut producer = init(&mut raw, ledger, Some("transactions"))?;
    for number in 0.. {
        let mut places = Vec::new();
        for partition in 0..2 {
            let values = [format!("transaction-{seed}-{number}-{partition}")];
            let of = Some((producer.0, producer.1, 0));
            let bytes = batch(&values, of, true);
            let place = (target.orders, partition);
            let got = produce(&mut raw, place, bytes, Some("transactions"))?;
            places.push((values, (partition, got.base_offset)));
        }
        let committed = random.below(2) == 0;
        let end = EndTxnRequest {
            transactional_id: "transactions".into(),
            producer_id: producer.0,
            producer_epoch: producer.1,
            committed,
        };
        let ended = raw.try_call(&end, 5).ok_or(Ended::Gone)?;
        ok(ended.error_code)?;
        producer = (ended.producer_id, ended.producer_epoch);
        ledger.answered(|told| {
            for ([value], at) in places {
                if committed {
                    told.produced.insert(value, at);
                } else {
                    told.aborted.insert(at);
                }
            }
        });
    }
    Ok(())
}

/// Large batches to a topic that keeps little, so that the journal is made anew now and then.
pub(crate) fn churn(target: &Target, ledger: &Ledger) -> Result<(), Ended> {
    let mut raw = Raw::try_connect(&target.address).ok_or(Ended::Gone)?;
    loop {
        churn_once(&mut raw, target, ledger)?;
    }
}

pub(crate) fn churn_once(raw: &mut Raw, target: &Target, ledger: &Ledger) -> Result<(), Ended> {
    let bytes = batch(&["x".repeat(60_000)], None, false);
    let got = produce(raw, (target.churn, 0), bytes, None)?;
    ledger.answered(|told| {
        if got.base_offset < told.churn_end {
            let end = told.churn_end;
            told.violations
                .push(format!("offset {} again, behind {end}", got.base_offset));
        }
        told.churn_end = got.base_offset + 1;
    });
    Ok(())
}

/// A producer's id and epoch.
pub(crate) fn init(raw: &mut Raw, ledger: &Ledger, id: Option<&str>) -> Result<(i64, i16), Ended> {
    let request = InitProducerIdRequest {
        transactional_id: id.map(str::to_owned),
        transaction_timeout_ms: 60_000,
        producer_id: -1,
        producer_epoch: -1,
    };
    let given = raw.try_call(&request, 5).ok_or(Ended::Gone)?;
    ok(given.error_code)?;
    ledger.answered(|told| {
        if !told.producer_ids.insert(given.producer_id) && id.is_none() {
            told.violations
                .push(format!("producer id {} was given twice", given.producer_id));
        }
    });
    Ok((given.producer_id, given.producer_epoch))
}

fn produce(
    raw: &mut Raw,
    (topic_id, partition): (TopicId, i32),
    bytes: Bytes,
    transactional_id: Option<&str>,
) -> Result<PartitionProduceResponse, Ended> {
    let data = PartitionProduceData {
        index: partition,
        records: Some(bytes),
    };
    let request = ProduceRequest {
        transactional_id: transactional_id.map(str::to_owned),
        acks: -1,
        timeout_ms: 5000,
        topic_data: vec![TopicProduceData {
            topic_id,
            partition_data: vec![data],
            ..Default::default()
        }],
    };
    let mut answer = raw.try_call(&request, 13).ok_or(Ended::Gone)?;
    let partitions = answer
        .responses
        .pop()
        .map(|mut topic| topic.partition_responses.pop());
    let got = partitions.flatten().ok_or(Ended::Gone)?;
    ok(got.error_code)?;
    Ok(got)
}

fn batch(values: &[String], producer: Option<(i64, i16, i32)>, is_transactional: bool) -> Bytes {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    if let Some((id, epoch, sequence)) = producer {
        builder = builder
            .producer(id, epoch, sequence)
            .transactional(is_transactional);
    }
    for value in values {
        builder
            .push(1000, None, Some(value.as_bytes()), [])
            .unwrap();
    }
    builder.build(0).unwrap()
}

/// How a member settles what it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settles {
    /// Some of it, in any way.
    AtRandom,
    /// All of it, until nothing comes any more.
    All,
}

/// A member of the share group.
#[derive(Debug)]
pub(crate) struct Consumer<'a> {
    pub(crate) target: &'a Target,
    pub(crate) ledger: &'a Ledger,
    /// Its number, never used again.
    pub(crate) member: u64,
    pub(crate) settles: Settles,
}

impl Consumer<'_> {
    pub(crate) fn run(&self) -> Result<(), Ended> {
        let mut random = Random(self.member);
        let mut raw = Raw::try_connect(&self.target.address).ok_or(Ended::Gone)?;
        let member_id = format!("member-{}", self.member);
        let join = ShareGroupHeartbeatRequest {
            group_id: "g".into(),
            member_id: member_id.clone(),
            member_epoch: MemberEpoch::JOIN,
            rack_id: None,
            subscribed_topic_names: Some(vec!["orders".into()]),
        };
        let joined = raw.try_call(&join, 1).ok_or(Ended::Gone)?;
        ok(joined.error_code)?;
        let mut epoch = SessionEpoch::OPEN;
        loop {
            let partitions = 0..i32::try_from(PARTITIONS).unwrap();
            let fetch = ShareFetchRequest {
                group_id: Some("g".into()),
                member_id: Some(member_id.clone()),
                share_session_epoch: epoch,
                max_wait_ms: 200,
                min_bytes: 1,
                max_records: 100,
                batch_size: 100,
                topics: vec![FetchTopic::of(self.target.orders, partitions)],
                ..Default::default()
            };
            let fetched = raw.try_call(&fetch, 2).ok_or(Ended::Gone)?;
            ok(fetched.error_code)?;
            let partitions = fetched.responses.into_iter();
            let partitions: Vec<FetchedPartition> =
                partitions.flat_map(|topic| topic.partitions).collect();
            let is_empty = partitions.iter().all(|got| got.acquired_records.is_empty());
            if is_empty && self.settles == Settles::All {
                return Ok(());
            }
            let chosen: Vec<_> = partitions
                .iter()
                .map(|got| self.choose(got, &mut random))
                .collect();
            let acknowledge = ShareAcknowledgeRequest {
                group_id: Some("g".into()),
                member_id: Some(member_id.clone()),
                share_session_epoch: epoch.next(),
                is_renew_ack: false,
                topics: vec![AcknowledgeTopic {
                    topic_id: self.target.orders,
                    partitions: chosen.iter().map(acknowledgements).collect(),
                }],
            };
            let answer = raw.try_call(&acknowledge, 2).ok_or(Ended::Gone)?;
            ok(answer.error_code)?;
            let results = answer.responses.iter().flat_map(|topic| &topic.partitions);
            for (result, (partition, kinds)) in results.zip(chosen) {
                ok(result.error_code)?;
                self.ledger.answered(|told| {
                    for (offset, delivery_count, kind) in kinds {
                        let becomes = match kind {
                            RELEASE => Known::Released(delivery_count),
                            _ => Known::Settled,
                        };
                        told.acknowledged((partition, offset), self.member, becomes);
                    }
                });
            }
            epoch = epoch.next().next();
        }
    }

    /// Notes what came and what is going to be asked of it.
    fn choose(&self, got: &FetchedPartition, random: &mut Random) -> Chosen {
        let mut kinds = Vec::new();
        let mut told = self.ledger.told();
        for range in &got.acquired_records {
            for offset in range.first_offset..=range.last_offset {
                let at = (got.partition_index, offset);
                told.delivered(at, range.delivery_count);
                let kind = match (self.settles, random.below(10)) {
                    (Settles::All, _) | (_, 0..=5) => Some(ACCEPT),
                    (_, 6) => Some(REJECT),
                    (_, 7 | 8) if range.delivery_count < DELIVERIES_MAX => Some(RELEASE),
                    _ => None,
                };
                if let Some(kind) = kind {
                    told.records.insert(at, Known::Asked(self.member));
                    kinds.push((offset, range.delivery_count, kind));
                }
            }
        }
        (got.partition_index, kinds)
    }
}

/// A partition, and offset, deliveries and acknowledge type of its records.
type Chosen = (i32, Vec<(i64, i16, i8)>);

fn acknowledgements((partition, kinds): &Chosen) -> AcknowledgePartition {
    let batches = kinds.iter().map(|(offset, _, kind)| AcknowledgementBatch {
        first_offset: *offset,
        last_offset: *offset,
        acknowledge_types: vec![*kind],
    });
    AcknowledgePartition {
        partition_index: *partition,
        acknowledgement_batches: batches.collect(),
    }
}
