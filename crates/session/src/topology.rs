//! Which topic has which id, and which broker leads which partition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sharegroup_wire::message::metadata::{MetadataResponse, MetadataResponseTopic};
use sharegroup_wire::{BrokerId, ErrorCode, TopicId};

use crate::acquired::TopicPartition;
use crate::event::Warning;
use crate::limits::METADATA_AGE_MAX;

/// Shortest time between two metadata requests: below five a second (B-034).
const PACE_MIN: Duration = Duration::from_millis(250);

/// What to ask metadata for: never "all topics" (B-116).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetadataTopics {
    /// By name.
    Names(Vec<String>),
    /// By id: topics of the assignment that no name led to.
    Ids(Vec<TopicId>),
}

#[derive(Debug)]
struct Topic {
    name: Arc<str>,
    /// Leader and its epoch, by partition index.
    leaders: BTreeMap<i32, (BrokerId, i32)>,
}

#[derive(Debug)]
pub(crate) struct Topology {
    subscribed: Vec<String>,
    topics: BTreeMap<TopicId, Topic>,
    /// Ids that the coordinator assigned and that no answer has named yet.
    unnamed: BTreeSet<TopicId>,
    asked_for_names: bool,
    in_flight: bool,
    refresh_at: Instant,
    answered_at: Option<Instant>,
    pace: Duration,
    pub(crate) missing: BTreeSet<String>,
}

impl Topology {
    pub(crate) fn new(now: Instant, subscribed: Vec<String>) -> Self {
        Self {
            subscribed,
            topics: BTreeMap::new(),
            unnamed: BTreeSet::new(),
            asked_for_names: false,
            in_flight: false,
            refresh_at: now,
            answered_at: None,
            pace: PACE_MIN,
            missing: BTreeSet::new(),
        }
    }

    pub(crate) fn subscribe(&mut self, now: Instant, topics: Vec<String>) {
        self.subscribed = topics;
        self.missing.clear();
        self.refresh(now);
    }

    pub(crate) fn name(&self, id: TopicId) -> Option<&Arc<str>> {
        self.topics.get(&id).map(|topic| &topic.name)
    }

    pub(crate) fn leader(&self, partition: TopicPartition) -> Option<BrokerId> {
        let (leader, _) = self
            .topics
            .get(&partition.topic_id)?
            .leaders
            .get(&partition.partition)?;
        (*leader != BrokerId::NONE).then_some(*leader)
    }

    /// Takes note of what is assigned: asks for what isn't known.
    pub(crate) fn assigned(&mut self, now: Instant, assignment: &BTreeSet<TopicPartition>) {
        self.unnamed = assignment
            .iter()
            .map(|tp| tp.topic_id)
            .filter(|id| !self.topics.contains_key(id))
            .collect();
        if assignment.iter().any(|tp| self.leader(*tp).is_none()) {
            self.refresh(now);
        }
    }

    /// Asks again soon, but not faster than the pace.
    pub(crate) fn refresh(&mut self, now: Instant) {
        let at = self
            .answered_at
            .map_or(now, |answered| now.max(answered + self.pace));
        self.refresh_at = self.refresh_at.min(at);
    }

    pub(crate) fn next_at(&self) -> Option<Instant> {
        (!self.in_flight).then_some(self.refresh_at)
    }

    pub(crate) fn poll(&mut self, now: Instant) -> Option<MetadataTopics> {
        if self.next_at()? > now {
            return None;
        }
        self.in_flight = true;
        // Names first; ids that they don't lead to in the next round.
        if self.asked_for_names && !self.unnamed.is_empty() {
            self.asked_for_names = false;
            return Some(MetadataTopics::Ids(self.unnamed.iter().copied().collect()));
        }
        self.asked_for_names = true;
        Some(MetadataTopics::Names(self.subscribed.clone()))
    }

    pub(crate) fn handle_failure(&mut self, now: Instant) {
        self.in_flight = false;
        self.answered_at = Some(now);
        self.slow_down();
        self.refresh_at = now + self.pace;
    }

    fn slow_down(&mut self) {
        self.pace = (self.pace * 2).min(Duration::from_secs(2));
    }

    /// Takes an answer in. Returns what an operator should know.
    pub(crate) fn handle_response(
        &mut self,
        now: Instant,
        response: &MetadataResponse,
        assignment: &BTreeSet<TopicPartition>,
    ) -> Vec<Warning> {
        self.in_flight = false;
        self.answered_at = Some(now);
        let mut warnings = Vec::new();
        for topic in &response.topics {
            match (topic.error_code, &topic.name) {
                (ErrorCode::None, Some(name)) => {
                    self.missing.remove(name);
                    self.learn(name, topic);
                }
                (ErrorCode::UnknownTopicOrPartition, Some(name)) => {
                    if self.missing.insert(name.clone()) {
                        warnings.push(Warning::TopicMissing {
                            topic: name.clone(),
                        });
                    }
                }
                (error, name) => warnings.push(Warning::Retrying {
                    what: "metadata",
                    detail: format!(
                        "topic {}: {error}",
                        name.clone().unwrap_or_else(|| topic.topic_id.to_string())
                    ),
                }),
            }
        }
        self.unnamed = assignment
            .iter()
            .map(|tp| tp.topic_id)
            .filter(|id| !self.topics.contains_key(id))
            .collect();
        if self.missing.is_empty() && assignment.iter().all(|tp| self.leader(*tp).is_some()) {
            self.pace = PACE_MIN;
            self.refresh_at = now + METADATA_AGE_MAX;
        } else {
            self.refresh_at = now + self.pace;
            self.slow_down();
        }
        warnings
    }

    fn learn(&mut self, name: &str, topic: &MetadataResponseTopic) {
        let known = self.topics.entry(topic.topic_id).or_insert_with(|| Topic {
            name: name.into(),
            leaders: BTreeMap::new(),
        });
        for partition in &topic.partitions {
            let leader = known
                .leaders
                .entry(partition.partition_index)
                .or_insert((BrokerId::NONE, -1));
            // An older answer of a slow broker must not move a leader back.
            if partition.leader_epoch < 0 || partition.leader_epoch >= leader.1 {
                *leader = (partition.leader_id, partition.leader_epoch);
            }
        }
    }

    /// A leader named in an answer (KIP-951). Used only where its epoch is newer; an unset hint reads
    /// 0/0 (peers.md T17).
    pub(crate) fn hint(&mut self, partition: TopicPartition, leader: BrokerId, epoch: i32) -> bool {
        let Some(topic) = self.topics.get_mut(&partition.topic_id) else {
            return false;
        };
        let Some(known) = topic.leaders.get_mut(&partition.partition) else {
            return false;
        };
        let newer = leader.0 >= 0 && epoch > known.1;
        if newer {
            *known = (leader, epoch);
        }
        newer
    }

    /// The partition's leader refused us: unknown until metadata says more.
    pub(crate) fn forget_leader(&mut self, now: Instant, partition: TopicPartition, was: BrokerId) {
        if let Some(known) = self
            .topics
            .get_mut(&partition.topic_id)
            .and_then(|topic| topic.leaders.get_mut(&partition.partition))
            && known.0 == was
        {
            known.0 = BrokerId::NONE;
        }
        self.refresh(now);
    }
}
