//! One of the two brokers, and what a history does to it. Every step gives a line of text: what the
//! broker answered, without what may differ.

use std::fmt::Write as _;
use std::thread::sleep;
use std::time::Duration;

use sharegroup_wire::compress::Compression;
use sharegroup_wire::message::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest,
};
use sharegroup_wire::message::describe_configs::RESOURCE_GROUP;
use sharegroup_wire::message::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequestGroup,
};
use sharegroup_wire::message::find_coordinator::FindCoordinatorRequest;
use sharegroup_wire::message::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use sharegroup_wire::message::metadata::{MetadataRequest, MetadataRequestTopic};
use sharegroup_wire::message::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use sharegroup_wire::message::share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest,
};
use sharegroup_wire::message::share_fetch::{
    AcknowledgementBatch, FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest,
    ShareFetchResponse,
};
use sharegroup_wire::message::share_group_heartbeat::ShareGroupHeartbeatRequest;
use sharegroup_wire::record::RecordBatchBuilder;
use sharegroup_wire::{BrokerId, ErrorCode, MemberEpoch, SessionEpoch, TopicId};

use crate::raw::Raw;

/// Partitions of the history's topic.
pub(crate) const PARTITIONS: i32 = 3;
/// How long a fetch waits where there is nothing.
pub(crate) const MAX_WAIT_MS: i32 = 250;

/// What a fetch asks for.
#[derive(Debug, Clone)]
pub(crate) struct Fetch {
    pub(crate) max_records: i32,
    pub(crate) max_bytes: i32,
    pub(crate) min_bytes: i32,
    pub(crate) batch_size: i32,
    pub(crate) acquire_mode: i8,
    pub(crate) acks: Vec<(i32, Vec<AcknowledgementBatch>)>,
    pub(crate) forgets: Vec<i32>,
    pub(crate) epoch_off_by: i32,
    /// How long to wait where there is nothing.
    pub(crate) max_wait_ms: i32,
}

impl Default for Fetch {
    /// One record by one.
    fn default() -> Self {
        Self {
            max_records: 1,
            max_bytes: 1000,
            min_bytes: 1,
            batch_size: 1,
            acquire_mode: 1,
            acks: Vec::new(),
            forgets: Vec::new(),
            epoch_off_by: 0,
            max_wait_ms: MAX_WAIT_MS,
        }
    }
}

/// Records that a member was given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Given {
    pub(crate) partition: i32,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

/// The partitions that a member fetches, in the order in which it asks for them.
pub(crate) const fn own_partitions(member: usize) -> &'static [i32] {
    match member {
        0 => &[0],
        1 => &[2, 1],
        2 => &[0, 1, 2],
        _ => &[1, 2, 0],
    }
}

struct Member {
    raw: Raw,
    id: String,
    epoch: SessionEpoch,
    /// Its partitions, in the order in which it asks for them.
    own: &'static [i32],
}

pub(crate) struct Target {
    /// To any broker.
    admin: Raw,
    /// To the broker that coordinates the group.
    coordinator: Raw,
    /// To the broker that leads the topic's partitions.
    leader: Raw,
    leader_address: String,
    name: String,
    topic_id: TopicId,
    members: Vec<Member>,
    /// Their sessions stay: with the last one of a group a broker forgets the share partitions.
    loaders: Vec<Member>,
}

impl Target {
    /// Makes a group and, where there is none yet with this id, a topic of the history's name.
    pub(crate) fn new(
        servers: &str,
        name: &str,
        topic_id: Option<TopicId>,
        lock: Duration,
        members: usize,
    ) -> Self {
        let address = servers.split(',').next().unwrap();
        let mut target = Self {
            admin: Raw::connect(address),
            coordinator: Raw::connect(address),
            leader: Raw::connect(address),
            leader_address: address.to_owned(),
            name: name.to_owned(),
            topic_id: topic_id.unwrap_or_default(),
            members: Vec::new(),
            loaders: Vec::new(),
        };
        if topic_id.is_none() {
            target.create_topic(servers.split(',').count());
        }
        target.leader_id();
        target.configure("share.auto.offset.reset", "earliest");
        target.configure(
            "share.record.lock.duration.ms",
            &lock.as_millis().to_string(),
        );
        target.join();
        target.load();
        for index in 0..members {
            let member = target.connect(format!("member-{index}"), own_partitions(index));
            target.members.push(member);
        }
        target
    }

    pub(crate) const fn topic_id(&self) -> TopicId {
        self.topic_id
    }

    /// Each partition on all brokers, led by the first.
    fn create_topic(&mut self, brokers: usize) {
        let assignment = |partition_index| CreatableReplicaAssignment {
            partition_index,
            broker_ids: (1..).take(brokers).map(BrokerId).collect(),
        };
        let topic = CreatableTopic {
            name: self.name.clone(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: (0..PARTITIONS).map(assignment).collect(),
            ..Default::default()
        };
        let request = CreateTopicsRequest {
            topics: vec![topic],
            ..Default::default()
        };
        let made = self.admin.call(&request, 7);
        assert!(made.topics[0].error_code.is_none(), "{made:?}");
        self.topic_id = made.topics[0].topic_id;
    }

    fn connect(&self, id: String, own: &'static [i32]) -> Member {
        Member {
            raw: Raw::connect(&self.leader_address),
            id,
            epoch: SessionEpoch::OPEN,
            own,
        }
    }

    /// Connects to the broker that leads all partitions, and returns its id; they have one leader.
    fn leader_id(&mut self) -> i32 {
        loop {
            let asked = MetadataRequestTopic {
                name: Some(self.name.clone()),
                ..Default::default()
            };
            let request = MetadataRequest {
                topics: Some(vec![asked]),
                ..Default::default()
            };
            let metadata = self.admin.call(&request, 12);
            let partitions = &metadata.topics[0].partitions;
            let leader = partitions.first().map_or(-1, |first| first.leader_id.0);
            let leads_all = partitions.iter().all(|one| one.leader_id.0 == leader);
            let broker = metadata.brokers.iter().find(|one| one.node_id.0 == leader);
            if let Some(broker) = broker.filter(|_| leads_all)
                && partitions.len() == PARTITIONS as usize
            {
                self.leader_address = format!("{}:{}", broker.host, broker.port);
                self.leader = Raw::connect(&self.leader_address);
                return leader;
            }
            sleep(Duration::from_millis(20));
        }
    }

    fn find_coordinator(&mut self) {
        let find = FindCoordinatorRequest {
            coordinator_keys: vec![self.name.clone()],
            ..Default::default()
        };
        loop {
            let answer = self.admin.call(&find, 6);
            let found = &answer.coordinators[0];
            if found.error_code.is_none() {
                self.coordinator = Raw::connect(&format!("{}:{}", found.host, found.port));
                return;
            }
            sleep(Duration::from_millis(100));
        }
    }

    /// Joins the group until it has partitions: then their share state exists.
    fn join(&mut self) {
        self.find_coordinator();
        let mut epoch = 0;
        for _ in 0..300 {
            let answer = self.coordinator.call(
                &ShareGroupHeartbeatRequest {
                    group_id: self.name.clone(),
                    member_id: "joiner".into(),
                    member_epoch: MemberEpoch(epoch),
                    rack_id: None,
                    subscribed_topic_names: (epoch == 0).then(|| vec![self.name.clone()]),
                },
                1,
            );
            if answer.error_code.is_none() {
                epoch = answer.member_epoch.0;
            }
            if answer
                .assignment
                .is_some_and(|assignment| !assignment.topic_partitions.is_empty())
            {
                return;
            }
            sleep(Duration::from_millis(100));
        }
        panic!("the group got no partitions");
    }

    /// Lets the leader load the share partitions: a real one needs a moment, in which a fetch finds
    /// nothing.
    fn load(&mut self) {
        let fetch = Fetch::default();
        let loader = self.connect("loader".into(), &[0, 1, 2]);
        self.members.insert(0, loader);
        let mut quiet = 0;
        while quiet < 3 {
            let (line, _) = self.fetch(0, &fetch);
            quiet = if line.ends_with(": None") {
                quiet + 1
            } else {
                0
            };
            if quiet == 1 {
                sleep(Duration::from_millis(300));
            }
        }
        self.loaders = vec![self.members.remove(0)];
    }

    pub(crate) fn configure(&mut self, key: &str, value: &str) -> String {
        let config = AlterableConfig {
            name: key.into(),
            config_operation: 0,
            value: Some(value.into()),
        };
        let resource = AlterConfigsResource {
            resource_type: RESOURCE_GROUP,
            resource_name: self.name.clone(),
            configs: vec![config],
        };
        let request = IncrementalAlterConfigsRequest {
            resources: vec![resource],
            validate_only: false,
        };
        let answer = self.admin.call(&request, 1);
        // A real broker hears of it a moment later.
        sleep(Duration::from_millis(200));
        format!(
            "configure {key}={value}: {:?}",
            answer.responses[0].error_code
        )
    }

    pub(crate) fn produce(&mut self, partition: i32, records: usize) -> String {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        for index in 0..records {
            builder
                .push(1000, None, Some(format!("value-{index:04}").as_bytes()), [])
                .unwrap();
        }
        let data = PartitionProduceData {
            index: partition,
            records: Some(builder.build(0).unwrap()),
        };
        let topic = TopicProduceData {
            topic_id: self.topic_id,
            partition_data: vec![data],
            ..Default::default()
        };
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 5000,
            topic_data: vec![topic],
            ..Default::default()
        };
        let answer = self.leader.call(&request, 13);
        let answer = &answer.responses[0].partition_responses[0];
        format!(
            "produce {partition} {records}: {:?} at {}",
            answer.error_code, answer.base_offset
        )
    }

    fn topics(
        &self,
        member: usize,
        acks: &[(i32, Vec<AcknowledgementBatch>)],
        opens: bool,
    ) -> Vec<FetchTopic> {
        let mut partitions: Vec<FetchPartition> = acks
            .iter()
            .map(|(partition, batches)| FetchPartition {
                partition_index: *partition,
                acknowledgement_batches: batches.clone(),
            })
            .collect();
        if opens {
            let missing = self.members[member]
                .own
                .iter()
                .filter(|index| acks.iter().all(|(partition, _)| partition != *index));
            partitions.extend(missing.map(|index| FetchPartition {
                partition_index: *index,
                ..Default::default()
            }));
        }
        if partitions.is_empty() {
            return Vec::new();
        }
        vec![FetchTopic {
            topic_id: self.topic_id,
            partitions,
        }]
    }

    pub(crate) fn fetch(&mut self, member: usize, fetch: &Fetch) -> (String, Vec<Given>) {
        self.send_fetch(member, fetch);
        self.receive_fetch(member)
    }

    /// Sends a fetch without waiting for its answer.
    pub(crate) fn send_fetch(&mut self, member: usize, fetch: &Fetch) {
        let current = self.members[member].epoch;
        let opens = current == SessionEpoch::OPEN;
        let topics = self.topics(member, &fetch.acks, opens);
        let forgotten = ForgottenTopic {
            topic_id: self.topic_id,
            partitions: fetch.forgets.clone(),
        };
        let request = ShareFetchRequest {
            group_id: Some(self.name.clone()),
            member_id: Some(self.members[member].id.clone()),
            share_session_epoch: SessionEpoch(current.0 + fetch.epoch_off_by),
            max_wait_ms: fetch.max_wait_ms,
            min_bytes: fetch.min_bytes,
            max_bytes: fetch.max_bytes,
            max_records: fetch.max_records,
            batch_size: fetch.batch_size,
            share_acquire_mode: fetch.acquire_mode,
            is_renew_ack: false,
            topics,
            forgotten_topics_data: if fetch.forgets.is_empty() {
                Vec::new()
            } else {
                vec![forgotten]
            },
        };
        // A real broker lets go of a partition a moment after it has answered the last fetch.
        sleep(Duration::from_millis(10));
        self.members[member].raw.send(&request, 2);
    }

    pub(crate) fn receive_fetch(&mut self, member: usize) -> (String, Vec<Given>) {
        let state = &mut self.members[member];
        let answer = state.raw.receive::<ShareFetchRequest>(2);
        let current = state.epoch;
        state.epoch = match answer.error_code {
            ErrorCode::None => current.next(),
            ErrorCode::InvalidRequest => current,
            _ => SessionEpoch::OPEN,
        };
        tell(member, &answer, current == SessionEpoch::OPEN)
    }

    pub(crate) fn acknowledge(
        &mut self,
        member: usize,
        partition: i32,
        batches: Vec<AcknowledgementBatch>,
        is_renew_ack: bool,
        closes: bool,
    ) -> String {
        let epoch = if closes {
            SessionEpoch::CLOSE
        } else {
            self.members[member].epoch
        };
        let of = |batch: &AcknowledgementBatch| {
            format!(
                "{}-{}:{:?}",
                batch.first_offset, batch.last_offset, batch.acknowledge_types
            )
        };
        let told = format!(
            "{partition} {}",
            batches.iter().map(of).collect::<Vec<_>>().join(" ")
        );
        let acks = AcknowledgePartition {
            partition_index: partition,
            acknowledgement_batches: batches,
        };
        let topics = if acks.acknowledgement_batches.is_empty() && closes {
            Vec::new()
        } else {
            vec![AcknowledgeTopic {
                topic_id: self.topic_id,
                partitions: vec![acks],
            }]
        };
        let request = ShareAcknowledgeRequest {
            group_id: Some(self.name.clone()),
            member_id: Some(self.members[member].id.clone()),
            share_session_epoch: epoch,
            is_renew_ack,
            topics,
        };
        let answer = self.members[member].raw.call(&request, 2);
        self.members[member].epoch = match answer.error_code {
            ErrorCode::None if closes => SessionEpoch::OPEN,
            ErrorCode::None => epoch.next(),
            ErrorCode::InvalidRequest => epoch,
            _ => SessionEpoch::OPEN,
        };
        let mut line = format!(
            "acknowledge {told} by {member} closing {closes}: {:?}",
            answer.error_code
        );
        for partition in answer.responses.iter().flat_map(|topic| &topic.partitions) {
            write!(
                line,
                " {} {:?}",
                partition.partition_index, partition.error_code
            )
            .unwrap();
        }
        line
    }

    /// Cuts a member's connection; the broker releases what it held.
    pub(crate) fn cut(&mut self, member: usize) -> String {
        self.reconnect(member);
        sleep(Duration::from_millis(200));
        format!("cut {member}")
    }

    fn reconnect(&mut self, member: usize) {
        let id = self.members[member].id.clone();
        self.members[member] = self.connect(id, self.members[member].own);
    }

    /// All members go to another leader, once it leads.
    pub(crate) fn follow(&mut self, leader: i32) {
        while self.leader_id() != leader {
            sleep(Duration::from_millis(100));
        }
        for member in 0..self.members.len() {
            self.reconnect(member);
        }
        self.loaders.clear();
    }

    /// Another member, for one partition, that lets a new leader load it; returns its number.
    pub(crate) fn begin_loading(&mut self, partition: i32) -> usize {
        let own: [&'static [i32]; 3] = [&[0], &[1], &[2]];
        let id = format!("loader-{partition}");
        self.members.push(self.connect(id, own[partition as usize]));
        self.members.len() - 1
    }

    pub(crate) fn end_loading(&mut self) {
        self.loaders.extend(self.members.pop());
    }

    pub(crate) fn offsets(&mut self) -> String {
        // What a closed session held a real broker writes a moment later.
        sleep(Duration::from_millis(200));
        let group = DescribeShareGroupOffsetsRequestGroup {
            group_id: self.name.clone(),
            topics: None,
        };
        let answer = self.coordinator.call(
            &DescribeShareGroupOffsetsRequest {
                groups: vec![group],
            },
            1,
        );
        let mut line = format!("offsets: {:?}", answer.groups[0].error_code);
        let mut partitions: Vec<_> = answer.groups[0]
            .topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .collect();
        partitions.sort_by_key(|partition| partition.partition_index);
        for partition in partitions {
            write!(
                line,
                " {} start {} lag {}",
                partition.partition_index, partition.start_offset, partition.lag
            )
            .unwrap();
        }
        line
    }
}

fn tell(member: usize, answer: &ShareFetchResponse, opens: bool) -> (String, Vec<Given>) {
    let mut line = format!("fetch by {member}: {:?}", answer.error_code);
    let mut given = Vec::new();
    let mut partitions: Vec<_> = answer
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions)
        .collect();
    partitions.sort_by_key(|partition| partition.partition_index);
    for partition in partitions {
        let index = partition.partition_index;
        // The answer to an opening request has partitions without anything in them, or not.
        let is_empty = partition.error_code.is_none() && partition.acquired_records.is_empty();
        if opens && is_empty && partition.acknowledge_error_code.is_none() {
            continue;
        }
        write!(
            line,
            " {index} {:?} {:?} {} bytes [",
            partition.error_code,
            partition.acknowledge_error_code,
            partition.records.len()
        )
        .unwrap();
        if partition.error_code == ErrorCode::NotLeaderOrFollower {
            let leader = &partition.current_leader;
            write!(
                line,
                " led by {:?} in {}",
                leader.leader_id, leader.leader_epoch
            )
            .unwrap();
        }
        for range in &partition.acquired_records {
            write!(
                line,
                " {}-{}x{}",
                range.first_offset, range.last_offset, range.delivery_count
            )
            .unwrap();
            given.push(Given {
                partition: index,
                first: range.first_offset,
                last: range.last_offset,
            });
        }
        line.push(']');
    }
    (line, given)
}
