//! One cluster with one share group, sans-io: requests in, answers out, time as an argument.
//!
//! It does what KIP-932 and measurements on Kafka 4.4 say a broker does with
//! ShareGroupHeartbeat, ShareFetch and ShareAcknowledge (and what a member needs of Metadata,
//! FindCoordinator and ApiVersions): locks with deadlines, delivery counts, sessions tied to
//! connections, acknowledgements that stand or fall together, releases on disconnect. It writes a
//! [`History`] of what happened, with every illegal request in it.
//!
//! Not modelled: start offsets other than the earliest, isolation, dead letters, the narrowing of
//! late deliveries, the share coordinator.

mod cold;
mod group;
mod history;
mod partition;
mod session;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sharegroup_wire::compress::Compression;
use sharegroup_wire::message::share_acknowledge::ShareAcknowledgeResponse;
use sharegroup_wire::message::share_fetch::ShareFetchResponse;
use sharegroup_wire::record::RecordBatchBuilder;
use sharegroup_wire::{BrokerId, ErrorCode, TopicId};

pub use history::{Applied, Asked, History, Logged};
pub use partition::{Delivery, Slot};

use group::Group;
use partition::SharePartition;
use session::{Parked, Session};

/// Names one connection to one broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// A partition by topic id.
pub type Place = (TopicId, i32);

/// Settings of the group and the brokers; may be changed at any time.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `share.record.lock.duration.ms`.
    pub lock: Duration,
    /// `share.delivery.count.limit`.
    pub delivery_count_limit: i16,
    /// `share.partition.max.record.locks`.
    pub record_locks_max: i64,
    /// `share.renew.acknowledge.enable`.
    pub renew_enabled: bool,
    /// `share.heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
    /// Share sessions that one broker takes.
    pub sessions_max: usize,
    /// `share.version`: off when false.
    pub share_groups_on: bool,
    /// Whether NOT_LEADER_OR_FOLLOWER names the new leader; if not it reads 0/0.
    pub leader_hints: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lock: Duration::from_secs(30),
            delivery_count_limit: 5,
            record_locks_max: 2000,
            renew_enabled: true,
            heartbeat_interval: Duration::from_secs(5),
            sessions_max: 2000,
            share_groups_on: true,
            leader_hints: true,
        }
    }
}

#[derive(Debug)]
struct Topic {
    name: String,
    id: TopicId,
    partitions: Vec<SharePartition>,
}

#[derive(Debug)]
struct Broker {
    /// Newest version of ShareFetch and ShareAcknowledge.
    share_version_max: i16,
    sessions: BTreeMap<String, Session>,
}

#[derive(Debug)]
struct Link {
    broker: BrokerId,
    /// The member whose session this connection carries.
    member_id: Option<String>,
    open: bool,
}

/// What a share request leads to.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer<T> {
    /// The answer.
    Now(T),
    /// None yet: a long poll. It comes out of [`ModelCluster::poll_parked`].
    Parked,
}

/// The answer to a fetch, with the names of the deliveries in it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fetched {
    /// The answer.
    pub response: ShareFetchResponse,
    /// Each granted offset and its delivery.
    pub deliveries: Vec<(Place, i64, Delivery)>,
}

/// The model of a cluster. See the module's documentation.
#[derive(Debug)]
pub struct ModelCluster {
    /// Settings; change them at will.
    pub settings: Settings,
    /// Errors that the next requests get at top level, by API key; first in, first out.
    pub refusals: BTreeMap<i16, VecDeque<ErrorCode>>,
    /// Errors that the next acknowledgements of any partition get instead of being looked at.
    pub acknowledge_errors: VecDeque<ErrorCode>,
    /// Partitions whose fetches answer an error.
    pub fetch_errors: BTreeMap<Place, ErrorCode>,
    topics: Vec<Topic>,
    brokers: BTreeMap<BrokerId, Broker>,
    coordinator: BrokerId,
    links: BTreeMap<LinkId, Link>,
    last_link: u64,
    last_topic: u8,
    last_delivery: u64,
    parked: Vec<Parked>,
    group: Group,
    history: History,
}

impl ModelCluster {
    /// A cluster of brokers 1 to `brokers`; the first is the group's coordinator.
    #[must_use]
    pub fn new(brokers: i32) -> Self {
        let broker = |id| {
            (
                BrokerId(id),
                Broker {
                    share_version_max: 2,
                    sessions: BTreeMap::new(),
                },
            )
        };
        Self {
            settings: Settings::default(),
            refusals: BTreeMap::new(),
            acknowledge_errors: VecDeque::new(),
            fetch_errors: BTreeMap::new(),
            topics: Vec::new(),
            brokers: (1..=brokers.max(1)).map(broker).collect(),
            coordinator: BrokerId(1),
            links: BTreeMap::new(),
            last_link: 0,
            last_topic: 0,
            last_delivery: 0,
            parked: Vec::new(),
            group: Group::default(),
            history: History::default(),
        }
    }

    /// What happened so far.
    #[must_use]
    pub const fn history(&self) -> &History {
        &self.history
    }

    /// Notes a request that no client may send.
    pub fn note_illegal(&mut self, what: &str) {
        self.history.illegal.push(what.to_owned());
    }

    /// The brokers' ids.
    pub fn brokers(&self) -> impl Iterator<Item = BrokerId> {
        self.brokers.keys().copied()
    }

    /// Sets the newest version of ShareFetch and ShareAcknowledge that a broker speaks, 1 or 2.
    pub fn set_share_version(&mut self, broker: BrokerId, version: i16) {
        if let Some(broker) = self.brokers.get_mut(&broker) {
            broker.share_version_max = version;
        }
    }

    /// The newest version of ShareFetch and ShareAcknowledge that a broker speaks.
    #[must_use]
    pub fn share_version(&self, broker: BrokerId) -> i16 {
        self.brokers
            .get(&broker)
            .map_or(0, |broker| broker.share_version_max)
    }

    /// The group's coordinator.
    #[must_use]
    pub const fn coordinator(&self) -> BrokerId {
        self.coordinator
    }

    /// Moves the group's coordinator.
    pub const fn set_coordinator(&mut self, broker: BrokerId) {
        self.coordinator = broker;
    }

    // ---- topics and records

    /// Makes a topic; partition `i` is led by the `i`-th broker, round and round. A topic of the same
    /// name that exists is deleted first.
    pub fn create_topic(&mut self, name: &str, partitions: usize) -> TopicId {
        self.topics.retain(|topic| topic.name != name);
        self.last_topic += 1;
        let id = TopicId([self.last_topic; 16]);
        let leaders: Vec<BrokerId> = self.brokers.keys().copied().collect();
        let partitions = leaders
            .iter()
            .cycle()
            .take(partitions)
            .map(|leader| SharePartition::new(*leader))
            .collect();
        self.topics.push(Topic {
            name: name.to_owned(),
            id,
            partitions,
        });
        id
    }

    /// Deletes a topic.
    pub fn delete_topic(&mut self, id: TopicId) {
        self.topics.retain(|topic| topic.id != id);
    }

    /// The id of a living topic.
    #[must_use]
    pub fn topic_id(&self, name: &str) -> Option<TopicId> {
        self.topics
            .iter()
            .find(|topic| topic.name == name)
            .map(|topic| topic.id)
    }

    /// Every partition of every living topic.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        let of = |topic: &Topic| {
            let id = topic.id;
            (0..topic.partitions.len())
                .map(move |index| (id, index as i32))
                .collect::<Vec<_>>()
        };
        self.topics.iter().flat_map(of).collect()
    }

    /// Appends one producer batch of `count` records; their values are `p<partition>-<offset>`.
    pub fn produce(&mut self, place: Place, count: usize) {
        let Some(partition) = self.partition_mut(place) else {
            return;
        };
        let base = partition.log_end();
        let mut builder = RecordBatchBuilder::new(Compression::None);
        for offset in base..base + count as i64 {
            let value = format!("p{}-{offset}", place.1);
            // A batch of small records is never too large.
            if builder
                .push(1000, None, Some(value.as_bytes()), std::iter::empty())
                .is_err()
            {
                return;
            }
        }
        if let Ok(bytes) = builder.build(base) {
            partition.append(base + count as i64 - 1, bytes);
        }
    }

    /// Appends the marker of a transaction: one offset without a record for anybody.
    pub fn produce_marker(&mut self, place: Place) {
        let Some(partition) = self.partition_mut(place) else {
            return;
        };
        let base = partition.log_end();
        let mut builder = RecordBatchBuilder::new(Compression::None)
            .producer(9, 0, -1)
            .transactional(true)
            .control(true);
        let marker = builder.push(
            1000,
            Some(b"\0\0\0\x01"),
            Some(b"\0\0\0\0\0\0"),
            std::iter::empty(),
        );
        if let (Ok(()), Ok(bytes)) = (marker, builder.build(base)) {
            partition.append(base, bytes);
        }
    }

    /// Appends `count` offsets that compaction has emptied; the next batch comes after them.
    pub fn produce_hole(&mut self, place: Place, count: usize) {
        if let Some(partition) = self.partition_mut(place) {
            partition.append(partition.log_end() + count as i64 - 1, Bytes::new());
        }
    }

    /// Appends bytes that stand for `count` offsets, whatever they are.
    pub fn produce_bytes(&mut self, place: Place, count: usize, bytes: Bytes) {
        if let Some(partition) = self.partition_mut(place) {
            partition.append(partition.log_end() + count as i64 - 1, bytes);
        }
    }

    fn topic(&self, id: TopicId) -> Option<&Topic> {
        self.topics.iter().find(|topic| topic.id == id)
    }

    fn partition(&self, place: Place) -> Option<&SharePartition> {
        self.topic(place.0)?
            .partitions
            .get(usize::try_from(place.1).ok()?)
    }

    fn partition_mut(&mut self, place: Place) -> Option<&mut SharePartition> {
        let topic = self.topics.iter_mut().find(|topic| topic.id == place.0)?;
        topic.partitions.get_mut(usize::try_from(place.1).ok()?)
    }

    /// Next offset of the log.
    #[must_use]
    pub fn log_end(&self, place: Place) -> i64 {
        self.partition(place).map_or(0, SharePartition::log_end)
    }

    /// The share-partition start offset: everything below is settled.
    #[must_use]
    pub fn start_offset(&self, place: Place) -> i64 {
        self.partition(place)
            .map_or(0, SharePartition::start_offset)
    }

    /// Where an offset stands.
    #[must_use]
    pub fn slot(&self, place: Place, offset: i64) -> Slot {
        self.partition(place)
            .map_or(Slot::Available, |partition| partition.slot(offset))
    }

    /// Deliveries of an offset so far; 0 once it is settled.
    #[must_use]
    pub fn delivery_count(&self, place: Place, offset: i64) -> i16 {
        self.partition(place)
            .map_or(0, |partition| partition.delivery_count(offset))
    }

    /// Offsets of a partition that pass `filter`.
    pub fn offsets(&self, place: Place, filter: impl Fn(&Slot) -> bool) -> Vec<i64> {
        (0..self.log_end(place))
            .filter(|offset| filter(&self.slot(place, *offset)))
            .collect()
    }

    /// What a member holds, with the connection that it was granted on.
    #[must_use]
    pub fn held(&self, member_id: &str) -> Vec<(Place, i64, LinkId)> {
        let of = |place: Place| {
            let held = self
                .partition(place)
                .into_iter()
                .flat_map(|partition| partition.held(member_id));
            held.map(|(offset, link)| (place, offset, link))
                .collect::<Vec<_>>()
        };
        self.places().into_iter().flat_map(of).collect()
    }

    /// A partition's leader.
    #[must_use]
    pub fn leader(&self, place: Place) -> Option<BrokerId> {
        self.partition(place).map(|partition| partition.leader)
    }

    /// Moves a partition to another leader.
    pub fn move_leader(&mut self, place: Place, leader: BrokerId) {
        if let Some(partition) = self.partition_mut(place) {
            partition.leader = leader;
            partition.leader_epoch += 1;
            partition.reload();
        }
    }

    /// Takes an offset's lock away, as if it had run out.
    pub fn expire_lock(&mut self, place: Place, offset: i64) {
        let settings = self.settings.clone();
        let Slot::Acquired { delivery, .. } = self.slot(place, offset) else {
            return;
        };
        if let Some(partition) = self.partition_mut(place) {
            partition.free(
                &settings,
                |slot| matches!(slot, Slot::Acquired { delivery: other, .. } if *other == delivery),
            );
        }
        self.history.expired.push((place, offset, delivery));
    }

    // ---- time and connections

    /// Ends the locks whose time is over.
    pub fn pass_time(&mut self, now: Instant) {
        let settings = self.settings.clone();
        for topic in &mut self.topics {
            for (index, partition) in topic.partitions.iter_mut().enumerate() {
                let expired = partition.expire(now, &settings);
                let place = (topic.id, index as i32);
                self.history.expired.extend(
                    expired
                        .into_iter()
                        .map(|(offset, delivery)| (place, offset, delivery)),
                );
            }
        }
    }

    /// When [`pass_time`](Self::pass_time) or [`poll_parked`](Self::poll_parked) has something to do.
    #[must_use]
    pub fn next_time(&self) -> Option<Instant> {
        let partitions = self.topics.iter().flat_map(|topic| &topic.partitions);
        let locks = partitions.filter_map(SharePartition::next_time);
        locks
            .chain(self.parked.iter().map(|parked| parked.deadline))
            .min()
    }

    /// Opens a connection to a broker.
    pub fn connect(&mut self, broker: BrokerId) -> LinkId {
        self.last_link += 1;
        let id = LinkId(self.last_link);
        self.links.insert(
            id,
            Link {
                broker,
                member_id: None,
                open: true,
            },
        );
        id
    }

    /// The connection ended. The broker notices at once, unless a fetch is parked on it.
    pub fn disconnect(&mut self, now: Instant, link: LinkId) {
        self.pass_time(now);
        if let Some(open) = self.links.get_mut(&link) {
            open.open = false;
        }
        if !self.parked.iter().any(|parked| parked.link == link) {
            self.end_link(link);
        }
    }

    /// A broker stops and starts: its sessions, its connections and the locks it granted are gone.
    pub fn restart(&mut self, broker: BrokerId) -> Vec<LinkId> {
        let links = self
            .links
            .iter()
            .filter(|(_, link)| link.broker == broker)
            .map(|(id, _)| *id);
        let links: Vec<LinkId> = links.collect();
        for id in &links {
            self.links.remove(id);
        }
        self.parked.retain(|parked| !links.contains(&parked.link));
        if let Some(broker) = self.brokers.get_mut(&broker) {
            broker.sessions.clear();
        }
        for topic in &mut self.topics {
            for partition in topic
                .partitions
                .iter_mut()
                .filter(|partition| partition.leader == broker)
            {
                partition.reload();
            }
        }
        links
    }

    /// Offers every parked fetch an answer; returns one that is due. Answers on connections that
    /// have ended are swallowed.
    pub fn poll_parked(&mut self, now: Instant) -> Option<(LinkId, Fetched)> {
        self.pass_time(now);
        loop {
            let index = self
                .parked
                .iter()
                .position(|parked| parked.deadline <= now || self.is_ready(parked))?;
            let parked = self.parked.remove(index);
            let link = parked.link;
            let fetched = self.finish_parked(now, parked);
            if self.links.get(&link).is_some_and(|link| link.open) {
                return Some((link, fetched));
            }
            // The client is gone: what the fetch has just acquired is released, one delivery burnt.
            self.end_link(link);
        }
    }

    fn refusal(&mut self, api_key: i16) -> Option<ErrorCode> {
        self.refusals.get_mut(&api_key)?.pop_front()
    }
}

/// The top-level answer to an acknowledgement that is refused.
fn refused_acknowledge(error_code: ErrorCode) -> ShareAcknowledgeResponse {
    ShareAcknowledgeResponse {
        error_code,
        ..Default::default()
    }
}
