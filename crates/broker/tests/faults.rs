//! Scripted faults, as a client meets them.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::time::Duration;

use sharegroup_broker::Broker;
use sharegroup_broker::model::Model;
use sharegroup_broker::model::fault_script::FaultScript;
use sharegroup_wire::compress::Compression;
use sharegroup_wire::message::fetch::{self, FetchRequest};
use sharegroup_wire::message::find_coordinator::FindCoordinatorRequest;
use sharegroup_wire::message::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic, TIMESTAMP_LATEST,
};
use sharegroup_wire::message::metadata::MetadataRequest;
use sharegroup_wire::message::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use sharegroup_wire::message::share_acknowledge::ShareAcknowledgeRequest;
use sharegroup_wire::message::share_fetch::{
    AcknowledgementBatch, FetchTopic, FetchedPartition, ShareFetchRequest,
};
use sharegroup_wire::message::share_group_heartbeat::ShareGroupHeartbeatRequest;
use sharegroup_wire::net::{Address, CallError, Connection, ConnectionOptions};
use sharegroup_wire::record::RecordBatchBuilder;
use sharegroup_wire::{BrokerId, ErrorCode, MemberEpoch, SessionEpoch, TopicId};
use tokio::time::{Instant, sleep};

const ACCEPT: i8 = 1;

/// A cluster in memory with a topic of two partitions and a member of group `g`.
struct Cluster {
    broker: Broker,
    topic_id: TopicId,
}

impl Cluster {
    async fn start(brokers: i32, script: &str) -> Self {
        let broker = Broker::builder()
            .in_memory()
            .brokers(brokers)
            .topic("orders", 2)
            .group("g", "share.auto.offset.reset", "earliest")
            .faults(FaultScript::parse(script).unwrap())
            .start()
            .await
            .unwrap();
        let topic_id = broker.model(|model| model.topics.named("orders").unwrap().id);
        let cluster = Self { broker, topic_id };
        let coordinator = cluster.broker.model(|model| model.coordinator("g"));
        let joined = cluster.open(coordinator).await;
        assert_eq!(heartbeat(&joined).await, ErrorCode::None);
        cluster
    }

    fn leader(&self) -> BrokerId {
        let place = (self.topic_id, 0);
        let leader = |model: &mut Model| model.topics.partition(place).unwrap().leader;
        self.broker.model(leader)
    }

    async fn try_open(&self, broker: BrokerId) -> Option<Connection> {
        let servers = self.broker.bootstrap_servers().split(',');
        let index = usize::try_from(broker.0 - 1).unwrap();
        let address: Address = servers.collect::<Vec<_>>()[index].parse().unwrap();
        let options = ConnectionOptions {
            request_timeout: Duration::from_secs(60),
            ..ConnectionOptions::default()
        };
        let connector = self.broker.connector();
        Connection::open(&*connector, &address, &options).await.ok()
    }

    async fn open(&self, broker: BrokerId) -> Connection {
        self.try_open(broker).await.unwrap()
    }

    /// To the leader of partition 0.
    async fn connect(&self) -> Connection {
        self.open(self.leader()).await
    }

    async fn produce(&self, partition: i32) -> Result<ErrorCode, CallError> {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        builder.push(1000, None, Some(&b"x"[..]), []).unwrap();
        let data = PartitionProduceData {
            index: partition,
            records: Some(builder.build(0).unwrap()),
        };
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 1000,
            topic_data: vec![TopicProduceData {
                name: "orders".into(),
                topic_id: self.topic_id,
                partition_data: vec![data],
            }],
            ..Default::default()
        };
        let place = (self.topic_id, partition);
        let leader = |model: &mut Model| model.topics.partition(place).unwrap().leader;
        let leader = self.broker.model(leader);
        let answer = self.open(leader).await.call(&request).await?;
        Ok(answer.responses[0].partition_responses[0].error_code)
    }

    fn fetch(&self, epoch: i32, wait: Duration) -> ShareFetchRequest {
        ShareFetchRequest {
            group_id: Some("g".into()),
            member_id: Some("m".into()),
            share_session_epoch: SessionEpoch(epoch),
            max_wait_ms: i32::try_from(wait.as_millis()).unwrap(),
            min_bytes: 1,
            max_bytes: 1 << 20,
            max_records: 10,
            batch_size: 10,
            topics: vec![FetchTopic::of(self.topic_id, [0])],
            ..Default::default()
        }
    }

    async fn fetch_now(&self, link: &Connection, epoch: i32) -> FetchedPartition {
        let fetched = link.call(&self.fetch(epoch, Duration::ZERO)).await.unwrap();
        let partitions = fetched
            .responses
            .into_iter()
            .flat_map(|topic| topic.partitions);
        partitions.into_iter().next().unwrap_or_default()
    }

    fn acknowledge(&self, epoch: i32, got: &FetchedPartition) -> ShareAcknowledgeRequest {
        ShareAcknowledgeRequest {
            group_id: Some("g".into()),
            member_id: Some("m".into()),
            share_session_epoch: SessionEpoch(epoch),
            is_renew_ack: false,
            topics: vec![got.acknowledge(self.topic_id, ACCEPT)],
        }
    }
}

async fn heartbeat(link: &Connection) -> ErrorCode {
    let request = ShareGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: "m".into(),
        member_epoch: MemberEpoch::JOIN,
        rack_id: None,
        subscribed_topic_names: Some(vec!["orders".into()]),
    };
    link.call(&request).await.unwrap().error_code
}

fn ranges(got: &FetchedPartition) -> Vec<(i64, i64, i16)> {
    let ranges = got.acquired_records.iter();
    ranges
        .map(|range| (range.first_offset, range.last_offset, range.delivery_count))
        .collect()
}

const SECOND: Duration = Duration::from_secs(1);

/// Lets time pass, and what is due at its end happen.
async fn pass(time: Duration) {
    sleep(time + Duration::from_millis(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_fault_strikes_a_parked_fetch_when_it_is_answered() {
    for (fault, answers, takes) in [
        ("delay 3s", true, 8 * SECOND),
        ("duplicate", true, 5 * SECOND),
        ("cut after", false, 5 * SECOND),
        ("withhold", false, 60 * SECOND),
        ("cut before", false, Duration::ZERO),
        ("error GROUP_AUTHORIZATION_FAILED", true, Duration::ZERO),
    ] {
        let cluster = Cluster::start(1, &format!("ShareFetch first 1: {fault}")).await;
        let link = cluster.connect().await;
        let began = Instant::now();
        let answer = link.call(&cluster.fetch(0, 5 * SECOND)).await;
        let took = began.elapsed();
        assert_eq!(answer.is_ok(), answers, "{fault}: {answer:?}");
        assert!(
            took >= takes && took < takes + Duration::from_millis(20),
            "{fault}: {took:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn before_its_effect_a_cut_leaves_nothing_and_after_it_all() {
    for (fault, end) in [("cut before", 0), ("cut after", 1), ("withhold", 1)] {
        let script = format!("Produce orders-0 first 1: {fault}");
        let cluster = Cluster::start(1, &script).await;
        assert!(cluster.produce(0).await.is_err(), "{fault}");
        let place = (cluster.topic_id, 0);
        let log_end = cluster
            .broker
            .model(|model| model.topics.partition(place).unwrap().log.end_offset());
        assert_eq!(log_end, end, "{fault}");
        assert_eq!(cluster.produce(0).await.unwrap(), ErrorCode::None);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_one_partition_leaves_the_others_alone() {
    let script = "Produce orders-0 first 1: error NOT_ENOUGH_REPLICAS\n\
                  Fetch orders-0 first 1: error NOT_LEADER_OR_FOLLOWER\n\
                  ListOffsets orders-0 first 1: error LEADER_NOT_AVAILABLE\n\
                  ShareFetch orders-0 first 1: error UNKNOWN_TOPIC_OR_PARTITION";
    let cluster = Cluster::start(1, script).await;
    assert_eq!(cluster.produce(1).await.unwrap(), ErrorCode::None);
    for error in [ErrorCode::NotEnoughReplicas, ErrorCode::None] {
        assert_eq!(cluster.produce(0).await.unwrap(), error);
    }
    let link = cluster.connect().await;
    for error in [ErrorCode::NotLeaderOrFollower, ErrorCode::None] {
        let request = fetch(cluster.topic_id);
        let answer = link.call(&request).await.unwrap();
        let told = |index: usize| answer.responses[0].partitions[index].error_code;
        assert_eq!((told(0), told(1)), (error, ErrorCode::None));
    }
    for error in [ErrorCode::LeaderNotAvailable, ErrorCode::None] {
        let answer = link.call(&list_offsets()).await.unwrap();
        let told = |index: usize| answer.topics[0].partitions[index].error_code;
        assert_eq!((told(0), told(1)), (error, ErrorCode::None));
    }
    let failed = cluster.fetch_now(&link, 0).await;
    assert_eq!(failed.error_code, ErrorCode::UnknownTopicOrPartition);
    assert_eq!(ranges(&cluster.fetch_now(&link, 1).await), [(0, 0, 1)]);
}

fn fetch(topic_id: TopicId) -> FetchRequest {
    let partition = |partition| fetch::FetchPartition {
        partition,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    FetchRequest {
        max_wait_ms: 100,
        max_bytes: 1 << 20,
        topics: vec![fetch::FetchTopic {
            topic: "orders".into(),
            topic_id,
            partitions: vec![partition(0), partition(1)],
        }],
        ..Default::default()
    }
}

fn list_offsets() -> ListOffsetsRequest {
    let partition = |partition_index| ListOffsetsPartition {
        partition_index,
        timestamp: TIMESTAMP_LATEST,
        ..Default::default()
    };
    ListOffsetsRequest {
        topics: vec![ListOffsetsTopic {
            name: "orders".into(),
            partitions: vec![partition(0), partition(1)],
        }],
        ..Default::default()
    }
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_fail_on_either_api() {
    let script = "ShareAcknowledge orders-0 first 2: error NOT_LEADER_OR_FOLLOWER";
    let cluster = Cluster::start(1, script).await;
    cluster.produce(0).await.unwrap();
    let link = cluster.connect().await;
    let got = cluster.fetch_now(&link, 0).await;
    let alone = cluster.acknowledge(1, &got);
    let answer = link.call(&alone).await.unwrap();
    let error = ErrorCode::NotLeaderOrFollower;
    assert_eq!(answer.responses[0].partitions[0].error_code, error);
    let mut with_fetch = cluster.fetch(2, Duration::ZERO);
    with_fetch.topics[0].partitions[0].acknowledgement_batches = vec![AcknowledgementBatch {
        first_offset: 0,
        last_offset: 0,
        acknowledge_types: vec![ACCEPT],
    }];
    let answer = link.call(&with_fetch).await.unwrap();
    let partition = &answer.responses[0].partitions[0];
    assert_eq!(partition.acknowledge_error_code, error);
    with_fetch.share_session_epoch = SessionEpoch(3);
    let answer = link.call(&with_fetch).await.unwrap();
    let partition = &answer.responses[0].partitions[0];
    assert_eq!(partition.acknowledge_error_code, ErrorCode::None);
}

#[tokio::test(start_paused = true)]
async fn a_crash_forgets_delivery_counts_and_a_cut_connection_does_not() {
    for (incident, count) in [("crash 1", 1), ("crash 1 for 2s", 1), ("withhold", 2)] {
        let script = format!("Metadata first 1: {incident}");
        let cluster = Cluster::start(1, &script).await;
        cluster.produce(0).await.unwrap();
        let link = cluster.connect().await;
        assert_eq!(ranges(&cluster.fetch_now(&link, 0).await), [(0, 0, 1)]);
        let asked = link.call(&MetadataRequest::default()).await;
        assert!(asked.is_err(), "{incident}: {asked:?}");
        if incident.ends_with("2s") {
            assert!(cluster.try_open(BrokerId(1)).await.is_none());
            pass(2 * SECOND).await;
        }
        let link = cluster.connect().await;
        let again = cluster.fetch_now(&link, 0).await;
        assert_eq!(ranges(&again), [(0, 0, count)], "{incident}");
    }
}

#[tokio::test(start_paused = true)]
async fn leaders_and_coordinators_move_at_their_time() {
    let script = "at 5s: move leader orders-0 to next\n\
                  at 5s: move coordinator g to next\n\
                  every 10s first 2: move leader orders-1 to next";
    let cluster = Cluster::start(3, script).await;
    let find = FindCoordinatorRequest {
        key: "g".into(),
        key_type: 0,
        coordinator_keys: vec!["g".into()],
    };
    let ask = async || {
        let link = cluster.open(BrokerId(1)).await;
        link.call(&find).await.unwrap().coordinators[0].node_id
    };
    let (leader, coordinator) = (cluster.leader(), ask().await);
    let next = |broker: BrokerId| BrokerId(broker.0 % 3 + 1);
    pass(5 * SECOND).await;
    assert_eq!(cluster.leader(), next(leader));
    assert_eq!(ask().await, next(coordinator));
    let old = cluster.open(coordinator).await;
    assert_eq!(heartbeat(&old).await, ErrorCode::NotCoordinator);
    let new = cluster.open(next(coordinator)).await;
    assert_eq!(heartbeat(&new).await, ErrorCode::None);
    let old = cluster.open(leader).await;
    let refused = cluster.fetch_now(&old, 0).await;
    assert_eq!(refused.error_code, ErrorCode::NotLeaderOrFollower);
    assert_eq!(refused.current_leader.leader_id, next(leader));
    let epoch = || {
        let place = (cluster.topic_id, 1);
        let epoch = |model: &mut Model| model.topics.partition(place).unwrap().leader_epoch;
        cluster.broker.model(epoch)
    };
    let mut epochs = Vec::new();
    for _ in 0..4 {
        pass(10 * SECOND).await;
        epochs.push(epoch());
    }
    assert_eq!(epochs, [1, 2, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_lock_duration_counts_from_then_on() {
    let script = "at 1s: set group g share.record.lock.duration.ms=20000";
    let cluster = Cluster::start(1, script).await;
    let link = cluster.connect().await;
    let told = async |epoch| {
        let request = cluster.fetch(epoch, Duration::ZERO);
        let answer = link.call(&request).await.unwrap();
        answer.acquisition_lock_timeout_ms
    };
    assert_eq!(told(0).await, 30_000);
    pass(SECOND).await;
    assert_eq!(told(1).await, 20_000);
}
