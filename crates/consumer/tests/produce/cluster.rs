//! A cluster in memory that takes produce requests: leaders with logs that check producer ids,
//! epochs and sequence numbers as Kafka's brokers do, and faults on demand.

#[path = "../../../wire/tests/scripted/mod.rs"]
mod scripted;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use scripted::Peer;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::ProducerConfig;
use sharegroup_wire::compress::DecompressLimits;
use sharegroup_wire::message::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use sharegroup_wire::message::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use sharegroup_wire::message::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use sharegroup_wire::message::produce::{
    PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse,
};
use sharegroup_wire::net::{Address, ConnectFuture, Connector};
use sharegroup_wire::record::RecordBatches;
use sharegroup_wire::{BrokerId, ErrorCode, TopicId};
use tokio::io::{AsyncWriteExt, DuplexStream};

/// What happens to a produce request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// All is well.
    None,
    /// The connection ends before anything is written.
    LoseRequest,
    /// All is written, then the connection ends.
    LoseAnswer,
    /// Nothing is written, every partition is answered with this code.
    Refuse(ErrorCode),
    /// All is written, every partition is answered with this code.
    WriteAndRefuse(ErrorCode),
    /// All is written, the answer never comes.
    Hang,
    /// Leadership of all partitions goes to another broker, which has the whole log.
    MoveLeaders,
}

/// A record in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Logged {
    pub(crate) key: Option<Bytes>,
    pub(crate) value: Bytes,
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    pub(crate) sequence: i32,
}

#[derive(Debug, Default)]
struct Partition {
    leader: i32,
    log: Vec<Logged>,
    producers: HashMap<i64, ProducerEntry>,
}

/// What a leader knows of a producer: its epoch and its last batches as (first sequence, last
/// sequence, base offset).
#[derive(Debug, Default)]
struct ProducerEntry {
    epoch: i16,
    batches: VecDeque<(i32, i32, i64)>,
}

#[derive(Debug, Default)]
struct State {
    brokers: i32,
    topics: HashMap<String, Vec<Partition>>,
    faults: VecDeque<Fault>,
    /// Every produce request gets this, when `faults` is empty.
    default_fault: Option<Fault>,
    producer_ids: i64,
    produce_requests: usize,
    requests_at_once: HashMap<i32, usize>,
    most_at_once: usize,
    answer_delay: Duration,
    open_connections: usize,
}

/// The cluster. A clone is another handle to the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cluster(Arc<Mutex<State>>);

impl Cluster {
    pub(crate) fn new(brokers: i32) -> Self {
        let cluster = Self::default();
        cluster.0.lock().unwrap().brokers = brokers;
        cluster
    }

    pub(crate) fn with_topic(self, name: &str, partitions: i32) -> Self {
        self.create_topic(name, partitions);
        self
    }

    pub(crate) fn create_topic(&self, name: &str, partitions: i32) {
        let mut state = self.0.lock().unwrap();
        let brokers = state.brokers;
        let partition = |index| Partition {
            leader: index % brokers,
            ..Partition::default()
        };
        state
            .topics
            .insert(name.to_owned(), (0..partitions).map(partition).collect());
    }

    pub(crate) fn faults(&self, faults: impl IntoIterator<Item = Fault>) {
        self.0.lock().unwrap().faults.extend(faults);
    }

    pub(crate) fn always(&self, fault: Option<Fault>) {
        self.0.lock().unwrap().default_fault = fault;
    }

    pub(crate) fn answer_after(&self, delay: Duration) {
        self.0.lock().unwrap().answer_delay = delay;
    }

    /// All producers are forgotten, as after the expiry of their ids.
    pub(crate) fn forget_producers(&self) {
        let mut state = self.0.lock().unwrap();
        state
            .topics
            .values_mut()
            .flatten()
            .for_each(|partition| partition.producers.clear());
    }

    pub(crate) fn log(&self, topic: &str, partition: usize) -> Vec<Logged> {
        self.0.lock().unwrap().topics[topic][partition].log.clone()
    }

    pub(crate) fn values(&self, topic: &str, partition: usize) -> Vec<String> {
        let log = self.log(topic, partition);
        log.into_iter()
            .map(|record| String::from_utf8(record.value.to_vec()).unwrap())
            .collect()
    }

    pub(crate) fn produce_requests(&self) -> usize {
        self.0.lock().unwrap().produce_requests
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.0.lock().unwrap().open_connections
    }

    pub(crate) fn most_requests_at_once(&self) -> usize {
        self.0.lock().unwrap().most_at_once
    }

    pub(crate) fn producer_config(&self) -> ProducerConfig {
        let mut client = ClientConfig::new("broker-0:9092").unwrap();
        client.connector = Arc::new(self.clone());
        client.seed = 7;
        ProducerConfig::new(client)
    }

    async fn serve(self, broker: i32, stream: DuplexStream) -> io::Result<()> {
        let mut peer = Peer(stream);
        while let Some(asked) = peer.next().await {
            let answer = match asked.header.api_key {
                ApiVersionsRequest::API_KEY => asked.answered::<ApiVersionsRequest>(&versions()),
                MetadataRequest::API_KEY => {
                    asked.answered::<MetadataRequest>(&self.metadata(&asked.decode()))
                }
                InitProducerIdRequest::API_KEY => {
                    asked.answered::<InitProducerIdRequest>(&self.init_producer_id())
                }
                ProduceRequest::API_KEY => match self.produce(broker, &asked.decode()).await {
                    Some(response) => asked.answered::<ProduceRequest>(&response),
                    None => break,
                },
                key => panic!("unexpected api key {key}"),
            };
            peer.0.write_all(&answer).await?;
        }
        Ok(())
    }

    fn metadata(&self, request: &MetadataRequest) -> MetadataResponse {
        let state = self.0.lock().unwrap();
        let broker = |id: i32| MetadataResponseBroker {
            node_id: BrokerId(id),
            host: format!("broker-{id}"),
            port: 9092,
            rack: None,
        };
        let names = request
            .topics
            .iter()
            .flatten()
            .filter_map(|topic| topic.name.clone());
        let topic = |name: String| match state.topics.get(&name) {
            Some(partitions) => MetadataResponseTopic {
                topic_id: topic_id(&name),
                name: Some(name),
                partitions: partitions
                    .iter()
                    .enumerate()
                    .map(|(index, partition)| MetadataResponsePartition {
                        partition_index: index as i32,
                        leader_id: BrokerId(partition.leader),
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            },
            None => MetadataResponseTopic {
                error_code: ErrorCode::UnknownTopicOrPartition,
                name: Some(name),
                ..Default::default()
            },
        };
        MetadataResponse {
            brokers: (0..state.brokers).map(broker).collect(),
            topics: names.map(topic).collect(),
            ..Default::default()
        }
    }

    fn init_producer_id(&self) -> InitProducerIdResponse {
        let mut state = self.0.lock().unwrap();
        state.producer_ids += 1;
        InitProducerIdResponse {
            producer_id: 1000 + state.producer_ids,
            ..Default::default()
        }
    }

    async fn produce(&self, broker: i32, request: &ProduceRequest) -> Option<ProduceResponse> {
        let (fault, delay) = {
            let mut state = self.0.lock().unwrap();
            state.produce_requests += 1;
            let at_once = state.requests_at_once.entry(broker).or_default();
            *at_once += 1;
            state.most_at_once = (*at_once).max(state.most_at_once);
            let fault = state
                .faults
                .pop_front()
                .or(state.default_fault)
                .unwrap_or(Fault::None);
            (fault, state.answer_delay)
        };
        tokio::time::sleep(delay).await;
        let response = self.apply(broker, request, fault)?;
        match fault {
            Fault::LoseAnswer => None,
            Fault::Hang => std::future::pending().await,
            Fault::WriteAndRefuse(code) => Some(answer_all(request, |_, _, _| (code, -1))),
            _ => Some(response),
        }
    }

    fn apply(
        &self,
        broker: i32,
        request: &ProduceRequest,
        fault: Fault,
    ) -> Option<ProduceResponse> {
        let mut state = self.0.lock().unwrap();
        *state.requests_at_once.get_mut(&broker).unwrap() -= 1;
        if fault == Fault::MoveLeaders {
            let brokers = state.brokers;
            state
                .topics
                .values_mut()
                .flatten()
                .for_each(|p| p.leader = (p.leader + 1) % brokers);
        }
        match fault {
            Fault::LoseRequest => None,
            Fault::Refuse(code) => Some(answer_all(request, |_, _, _| (code, -1))),
            _ => Some(answer_all(request, |topic, index, records| {
                state.append(broker, topic, index, records)
            })),
        }
    }
}

impl Connector for Cluster {
    fn connect<'a>(&'a self, address: &'a Address) -> ConnectFuture<'a> {
        let (ours, theirs) = tokio::io::duplex(1024 * 1024);
        let broker = address
            .host
            .strip_prefix("broker-")
            .unwrap()
            .parse()
            .unwrap();
        // A client that goes away is no failure of the broker.
        tokio::spawn({
            let cluster = self.clone();
            async move {
                cluster.0.lock().unwrap().open_connections += 1;
                drop(cluster.clone().serve(broker, theirs).await);
                cluster.0.lock().unwrap().open_connections -= 1;
            }
        });
        Box::pin(async move { Ok(Box::new(ours) as _) })
    }
}

impl State {
    /// The checks of Kafka's `ProducerAppendInfo`, then the append.
    fn append(
        &mut self,
        broker: i32,
        topic: &str,
        index: i32,
        records: &Bytes,
    ) -> (ErrorCode, i64) {
        let Some(partition) = self
            .topics
            .get_mut(topic)
            .and_then(|topic| topic.get_mut(index as usize))
        else {
            return (ErrorCode::UnknownTopicOrPartition, -1);
        };
        if partition.leader != broker {
            return (ErrorCode::NotLeaderOrFollower, -1);
        }
        let new = read_batch(records);
        let (first, last) = (new[0].clone(), new.last().unwrap().sequence);
        let entry = partition.producers.entry(first.producer_id).or_default();
        match entry.check(first.epoch, first.sequence, last) {
            Ok(None) => {}
            Ok(Some(offset)) => return (ErrorCode::None, offset),
            Err(code) => return (code, -1),
        }
        let offset = partition.log.len() as i64;
        entry.batches.push_back((first.sequence, last, offset));
        if entry.batches.len() > 5 {
            entry.batches.pop_front();
        }
        partition.log.extend(new);
        (ErrorCode::None, offset)
    }
}

impl ProducerEntry {
    /// Whether a batch may be appended; `Some` = it is in the log already, at this offset.
    fn check(&mut self, epoch: i16, first: i32, last: i32) -> Result<Option<i64>, ErrorCode> {
        if epoch < self.epoch {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        if epoch > self.epoch {
            if !self.batches.is_empty() && first != 0 {
                return Err(ErrorCode::OutOfOrderSequenceNumber);
            }
            *self = Self {
                epoch,
                ..Self::default()
            };
        }
        if let Some((_, _, offset)) = self
            .batches
            .iter()
            .find(|batch| (batch.0, batch.1) == (first, last))
        {
            return Ok(Some(*offset));
        }
        let expected = self
            .batches
            .back()
            .map(|batch| batch.1.checked_add(1).unwrap_or(0));
        match expected {
            Some(expected) if expected != first => Err(ErrorCode::OutOfOrderSequenceNumber),
            _ => Ok(None),
        }
    }
}

fn read_batch(records: &Bytes) -> Vec<Logged> {
    let batches: Vec<_> = RecordBatches::new(records.clone())
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(batches.len(), 1, "exactly one batch per partition");
    let batch = &batches[0];
    let limits = DecompressLimits::default();
    let mut sequence = batch.base_sequence();
    let mut logged = Vec::new();
    for record in batch.records(&limits).unwrap() {
        let record = record.unwrap();
        logged.push(Logged {
            key: record.key.map(Bytes::copy_from_slice),
            value: Bytes::copy_from_slice(record.value.unwrap_or_default()),
            producer_id: batch.producer_id(),
            epoch: batch.producer_epoch(),
            sequence,
        });
        sequence = sequence.checked_add(1).unwrap_or(0);
    }
    logged
}

fn answer_all(
    request: &ProduceRequest,
    mut answer: impl FnMut(&str, i32, &Bytes) -> (ErrorCode, i64),
) -> ProduceResponse {
    let topics = request.topic_data.iter().map(|topic| TopicProduceResponse {
        name: topic.name.clone(),
        partition_responses: topic
            .partition_data
            .iter()
            .map(|partition| {
                let (error_code, base_offset) = answer(
                    &topic.name,
                    partition.index,
                    partition.records.as_ref().unwrap(),
                );
                PartitionProduceResponse {
                    index: partition.index,
                    error_code,
                    base_offset,
                    ..Default::default()
                }
            })
            .collect(),
        ..Default::default()
    });
    ProduceResponse {
        responses: topics.collect(),
        ..Default::default()
    }
}

fn topic_id(name: &str) -> TopicId {
    let mut id = [0; 16];
    id.iter_mut()
        .zip(name.bytes())
        .for_each(|(slot, byte)| *slot = byte);
    TopicId(id)
}

fn versions() -> ApiVersionsResponse {
    let api = |api_key, min_version, max_version| ApiVersion {
        api_key,
        min_version,
        max_version,
    };
    // Produce up to version 12: by topic name.
    ApiVersionsResponse {
        api_keys: vec![api(0, 3, 12), api(3, 9, 13), api(18, 0, 5), api(22, 2, 5)],
        ..Default::default()
    }
}
