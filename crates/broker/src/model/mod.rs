//! The broker's brain: a cluster of brokers with one state, without clock, sockets or threads.
//!
//! Frames and the time go in, frames come out:
//!
//! ```
//! use std::time::Instant;
//! use sharegroup_broker::model::{Model, ModelConfig, Output};
//! use sharegroup_wire::frame::{decode_response, encode_request};
//! use sharegroup_wire::message::api_versions::ApiVersionsRequest;
//! use sharegroup_wire::{BrokerId, CorrelationId};
//!
//! let now = Instant::now();
//! let mut model = Model::new(now, ModelConfig::default());
//! let link = model.connect(BrokerId(1), "/127.0.0.1");
//! let frame = encode_request(&ApiVersionsRequest::default(), 3, CorrelationId(7), Some("me"));
//! model.handle_request(now, link, frame.slice(4..));
//! let Some(Output::Send { frame, .. }) = model.poll_output() else { panic!("no answer") };
//! let answer = decode_response::<ApiVersionsRequest>(&frame.slice(4..), 3)?;
//! assert!(answer.error_code.is_none());
//! # Ok::<(), sharegroup_wire::DecodeError>(())
//! ```

pub mod assignor;
pub mod config;
pub mod consumer_group;
pub mod damage;
pub mod fault_script;
pub mod faults;
pub mod group;
pub mod history;
pub mod journal;
pub mod limits;
pub mod log;
pub mod producer_state;
pub mod share_partition;
pub mod share_session;
pub mod telemetry;
pub mod topics;
pub mod transactions;

mod coordination;
mod dead_letter;
mod incidents;
pub(crate) mod links;
mod parked;
mod random;
mod share_fetch;
mod storage;
mod timers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use sharegroup_wire::{BrokerId, TopicId};

use self::config::Configs;
use self::consumer_group::ConsumerGroup;
use self::faults::Faults;
use self::group::Group;
use self::history::History;
use self::journal::{Entry, Journal};
use self::links::Link;
use self::parked::ParkedRequests;
use self::random::SplitMix64;
use self::share_session::ShareSessions;
use self::timers::Timers;
use self::topics::{Partition, Place, Topic, Topics};
use self::transactions::Transactions;

pub(crate) use links::Call;
pub(crate) use parked::{FetchWait, Parked, Wait};
pub(crate) use share_fetch::{AckResult, ShareFetchWait, lock_ms, text_of};

/// Names one connection to one broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// What the model wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send this frame, size included.
    Send {
        /// Where.
        link: LinkId,
        /// The frame.
        frame: Bytes,
    },
    /// Close the connection.
    Close {
        /// Which.
        link: LinkId,
    },
}

/// What a cluster starts with.
#[derive(Debug, Clone)]
pub struct ModelConfig {
    /// Where each broker says it listens.
    pub brokers: BTreeMap<BrokerId, (String, u16)>,
    /// Milliseconds since 1970 at the start.
    pub unix_ms: i64,
    /// Decides ids.
    pub seed: u64,
    /// User names and passwords for SASL PLAIN; empty = no authentication.
    pub users: BTreeMap<String, String>,
    /// Most bytes of all logs; what would exceed it is refused with KAFKA_STORAGE_ERROR.
    pub log_bytes_max: usize,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            brokers: BTreeMap::from([(BrokerId(1), ("localhost".to_owned(), 9092))]),
            unix_ms: 1_700_000_000_000,
            seed: 1,
            users: BTreeMap::new(),
            log_bytes_max: 1 << 30,
        }
    }
}

/// One broker of the cluster.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) sessions: ShareSessions,
    /// Whether it takes connections.
    pub(crate) is_up: bool,
}

/// A cluster. See the module's documentation.
#[derive(Debug)]
pub struct Model {
    /// Configurations; change them at will.
    pub configs: Configs,
    /// What is to go wrong.
    pub faults: Faults,
    /// Topics and their logs.
    pub topics: Topics,
    /// Share groups.
    pub groups: BTreeMap<String, Group>,
    /// Consumer groups: committed offsets alone.
    pub consumer_groups: BTreeMap<String, ConsumerGroup>,
    /// Transactional ids.
    pub transactions: Transactions,
    /// What happened, where that is recorded.
    pub history: History,
    /// Metrics of clients.
    pub telemetry: telemetry::Telemetry,
    pub(crate) journal: Journal,
    pub(crate) nodes: BTreeMap<BrokerId, Node>,
    pub(crate) users: BTreeMap<String, String>,
    pub(crate) cluster_id: TopicId,
    pub(crate) log_bytes_max: usize,
    /// Bytes of answers that may be given yet; 0 once one was too large, and its connection cut.
    pub(crate) answer_bytes_left: usize,
    /// Coordinators that a test has moved.
    coordinators: BTreeMap<String, BrokerId>,
    links: BTreeMap<LinkId, Link>,
    last_link: u64,
    outputs: VecDeque<Output>,
    parked: ParkedRequests,
    /// Partitions where a parked request may find something.
    touched: BTreeSet<Place>,
    timers: Timers,
    start: (Instant, i64),
    random: SplitMix64,
    last_producer_id: i64,
    /// What was noted last could not be written.
    is_storage_down: bool,
}

impl Model {
    /// A cluster without topics.
    #[must_use]
    pub fn new(now: Instant, config: ModelConfig) -> Self {
        let node = |(id, (host, port))| {
            let node = Node {
                host,
                port,
                sessions: ShareSessions::default(),
                is_up: true,
            };
            (id, node)
        };
        let mut model = Self {
            configs: Configs::default(),
            faults: Faults::default(),
            topics: Topics::default(),
            groups: BTreeMap::new(),
            consumer_groups: BTreeMap::new(),
            transactions: Transactions::default(),
            history: History::default(),
            telemetry: telemetry::Telemetry::default(),
            journal: Journal::default(),
            nodes: config.brokers.into_iter().map(node).collect(),
            users: config.users,
            cluster_id: TopicId::ZERO,
            log_bytes_max: config.log_bytes_max,
            answer_bytes_left: usize::MAX,
            coordinators: BTreeMap::new(),
            links: BTreeMap::new(),
            last_link: 0,
            outputs: VecDeque::new(),
            parked: ParkedRequests::default(),
            touched: BTreeSet::new(),
            timers: Timers::default(),
            start: (now, config.unix_ms),
            random: SplitMix64(config.seed),
            last_producer_id: -1,
            is_storage_down: false,
        };
        model.cluster_id = model.random_id();
        model
    }

    /// Milliseconds since 1970 at `now`.
    #[must_use]
    pub fn unix_ms(&self, now: Instant) -> i64 {
        let (start, unix_ms) = self.start;
        let passed = now.saturating_duration_since(start).as_millis();
        let before = start.saturating_duration_since(now).as_millis();
        unix_ms
            .saturating_add(i64::try_from(passed).unwrap_or(i64::MAX))
            .saturating_sub(i64::try_from(before).unwrap_or(i64::MAX))
    }

    /// The brokers' ids.
    pub fn brokers(&self) -> impl Iterator<Item = BrokerId> {
        self.nodes.keys().copied()
    }

    /// Where a broker says it listens.
    pub fn set_address(&mut self, broker: BrokerId, host: &str, port: u16) {
        if let Some(node) = self.nodes.get_mut(&broker) {
            host.clone_into(&mut node.host);
            node.port = port;
        }
    }

    /// Lets a broker refuse connections, or take them again. Those that are open stay.
    pub fn set_up(&mut self, broker: BrokerId, is_up: bool) {
        if let Some(node) = self.nodes.get_mut(&broker) {
            node.is_up = is_up;
        }
    }

    /// Whether a broker takes connections.
    #[must_use]
    pub fn is_up(&self, broker: BrokerId) -> bool {
        self.nodes.get(&broker).is_some_and(|node| node.is_up)
    }

    /// The next thing to be done.
    pub fn poll_output(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front();
        if let Some(Output::Send { link, .. }) = &output {
            self.forget_asked(*link);
        }
        output
    }

    /// Makes a topic; partitions go to the brokers in turn. Nothing is checked.
    pub fn create_topic(&mut self, name: &str, partitions: i32, replicas: usize) -> TopicId {
        let id = self.random_id();
        let brokers: Vec<BrokerId> = self.brokers().collect();
        let from = usize::try_from(self.random.0 % 64).unwrap_or(0);
        let partition = |index: usize| {
            let order = brokers
                .iter()
                .cycle()
                .skip((from + index) % brokers.len().max(1));
            let replicas: Vec<BrokerId> = order
                .take(replicas.clamp(1, brokers.len().max(1)))
                .copied()
                .collect();
            Partition {
                leader: replicas.first().copied().unwrap_or(BrokerId::NONE),
                leader_epoch: 0,
                replicas,
                log: log::PartitionLog::default(),
            }
        };
        let count = usize::try_from(partitions).unwrap_or(0);
        self.topics.insert(Topic {
            id,
            name: name.to_owned(),
            values: BTreeMap::new(),
            partitions: (0..count).map(partition).collect(),
        });
        self.note_ids();
        self.note_topic(id);
        id
    }

    /// Adds partitions to a topic, up to `count`.
    pub(crate) fn add_partitions(&mut self, id: TopicId, count: usize) {
        let brokers: Vec<BrokerId> = self.brokers().collect();
        let Some(topic) = self.topics.get_mut(id) else {
            return;
        };
        let replicas = topic
            .partitions
            .first()
            .map_or(1, |first| first.replicas.len());
        for index in topic.partitions.len()..count {
            let order = brokers.iter().cycle().skip(index % brokers.len().max(1));
            let replicas: Vec<BrokerId> = order.take(replicas).copied().collect();
            topic.partitions.push(Partition {
                leader: replicas.first().copied().unwrap_or(BrokerId::NONE),
                leader_epoch: 0,
                replicas,
                log: log::PartitionLog::default(),
            });
        }
        self.note_topic(id);
    }

    /// Deletes a topic with everything that groups know of it.
    pub fn delete_topic(&mut self, id: TopicId) {
        let places: Vec<Place> = self.topics.places().filter(|place| place.0 == id).collect();
        self.touched.extend(places);
        self.topics.remove(id);
        for group in self.groups.values_mut() {
            group.forget_topic(&self.topics);
        }
        self.forget_commits(id);
        self.journal.note(|| Entry::TopicDeleted { topic_id: id });
    }

    /// Moves a partition to another leader; share partitions are loaded anew there.
    pub fn move_leader(&mut self, place: Place, leader: BrokerId) {
        let Some(partition) = self.topics.partition_mut(place) else {
            return;
        };
        partition.leader = leader;
        partition.leader_epoch += 1;
        self.note_topic(place.0);
        self.reload(place);
    }

    /// A broker comes back with another address, as metadata tells from now on; see
    /// [`restart`](Self::restart). In memory it is reached there alone.
    pub fn readdress(&mut self, broker: BrokerId, host: &str, port: u16) {
        self.restart(broker);
        if let Some(node) = self.nodes.get_mut(&broker) {
            (node.host, node.port) = (host.to_owned(), port);
        }
    }

    /// A broker stops and starts: its connections and share sessions are gone, its share partitions
    /// are loaded anew. Deliveries that were never stored are forgotten.
    pub fn restart(&mut self, broker: BrokerId) {
        let links = self.links.iter().filter(|(_, link)| link.broker == broker);
        let links: Vec<LinkId> = links.map(|(id, _)| *id).collect();
        if let Some(node) = self.nodes.get_mut(&broker) {
            node.sessions.clear();
        }
        for link in links {
            self.drop_link(link);
        }
        let led = self.topics.places().filter(|place| {
            self.topics
                .partition(*place)
                .is_some_and(|partition| partition.leader == broker)
        });
        let led: Vec<Place> = led.collect();
        for place in &led {
            if let Some(partition) = self.topics.partition_mut(*place) {
                partition.leader_epoch += 1;
            }
            self.reload(*place);
        }
        let topics: BTreeSet<TopicId> = led.iter().map(|place| place.0).collect();
        for id in topics {
            self.note_topic(id);
        }
    }

    fn reload(&mut self, place: Place) {
        for group in self.groups.values_mut() {
            group.reload(place);
        }
        self.touched.insert(place);
    }

    /// A producer id that nobody has.
    pub(crate) fn next_producer_id(&mut self) -> i64 {
        self.last_producer_id += 1;
        self.note_ids();
        self.last_producer_id
    }

    /// Notes that a parked request may find something here.
    pub(crate) fn touch(&mut self, place: Place) {
        self.touched.insert(place);
    }

    pub(crate) fn random_id(&mut self) -> TopicId {
        let (high, low) = (self.random.next_u64(), self.random.next_u64());
        let mut bytes = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        // A leading 0 bit: printed, an id never begins with a dash.
        bytes[0] &= 0x7f;
        TopicId(bytes)
    }
}
