//! A share group at its coordinator: members, epochs, assignment, and the share partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sharegroup_wire::{ErrorCode, TopicId};

use super::assignor::{Targets, assign};
use super::share_partition::SharePartition;
use super::topics::{Place, Topics};

/// A member.
#[derive(Debug, Clone)]
pub struct Member {
    /// The epoch it was told last.
    pub epoch: i32,
    /// The one before: its last heartbeat's answer may be lost.
    pub previous_epoch: i32,
    /// Its rack.
    pub rack_id: Option<String>,
    /// Name of its client.
    pub client_id: String,
    /// Its address, in Java's form.
    pub client_host: String,
    /// The topics it asked for.
    pub topics: Vec<String>,
    /// What it was told to read.
    pub assigned: BTreeSet<Place>,
    /// When it is thrown out.
    pub session_end: Instant,
}

/// A share partition at its leader.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Its state.
    pub partition: SharePartition,
    /// When a timer will look at its locks.
    pub timer: Option<Instant>,
    /// Where the log was read last for it.
    pub read_at: Option<i64>,
}

impl Loaded {
    /// Of a share partition that nobody has read yet.
    #[must_use]
    pub const fn new(partition: SharePartition) -> Self {
        Self {
            partition,
            timer: None,
            read_at: None,
        }
    }
}

/// How a heartbeat is refused.
pub type Refusal = (ErrorCode, Option<String>);

/// What a heartbeat says.
#[derive(Debug, Clone)]
pub struct Beat<'a> {
    /// Who.
    pub member_id: &'a str,
    /// 0 joins, else the epoch it knows.
    pub epoch: i32,
    /// Null = unchanged.
    pub rack_id: Option<&'a str>,
    /// Null = unchanged.
    pub topics: Option<&'a [String]>,
    /// Name of its client.
    pub client_id: &'a str,
    /// Its address.
    pub client_host: &'a str,
    /// `share.session.timeout.ms`.
    pub session_timeout: Duration,
    /// `share.assignment.interval.ms`.
    pub assignment_interval: Duration,
    /// `group.share.max.size`.
    pub members_max: usize,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// The member's epoch.
    pub epoch: i32,
    /// Its partitions, where they changed or it asked for topics.
    pub assignment: Option<BTreeSet<Place>>,
    /// Partitions whose share state was made meanwhile.
    pub initialized: BTreeSet<Place>,
}

/// A share group.
#[derive(Debug, Clone)]
pub struct Group {
    /// Rises with each change of members or topics.
    pub epoch: i32,
    /// The epoch that the targets belong to.
    pub assignment_epoch: i32,
    /// Its members.
    pub members: BTreeMap<String, Member>,
    /// What each member is to read.
    pub targets: Targets,
    /// When the targets were computed.
    assigned_at: Option<Instant>,
    /// Partitions whose share state exists.
    pub initialized: BTreeSet<Place>,
    /// The share partitions that were read or whose offset was set.
    pub loaded: BTreeMap<Place, Loaded>,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            epoch: 1,
            assignment_epoch: 0,
            members: BTreeMap::new(),
            targets: Targets::new(),
            assigned_at: None,
            initialized: BTreeSet::new(),
            loaded: BTreeMap::new(),
        }
    }
}

impl Group {
    /// Kafka's word for the group's state.
    #[must_use]
    pub fn state(&self) -> &'static str {
        if self.members.is_empty() {
            "Empty"
        } else {
            "Stable"
        }
    }

    /// A member's heartbeat.
    ///
    /// # Errors
    /// UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED, INVALID_REQUEST.
    pub fn heartbeat(
        &mut self,
        now: Instant,
        topics: &Topics,
        beat: &Beat<'_>,
    ) -> Result<Told, Refusal> {
        let joins = beat.epoch == 0;
        if joins {
            self.join(now, beat)?;
        }
        let Some(member) = self.members.get_mut(beat.member_id) else {
            return Err((ErrorCode::UnknownMemberId, None));
        };
        if !joins {
            check_epoch(member, beat.epoch)?;
        }
        member.session_end = now + beat.session_timeout;
        if let Some(rack) = beat.rack_id {
            member.rack_id = Some(rack.to_owned());
        }
        if let Some(topics) = beat.topics
            && member.topics != topics
        {
            topics.clone_into(&mut member.topics);
            self.epoch += 1;
        }
        self.reassign(now, topics, beat.assignment_interval);
        let initialized = self.initialize(topics);
        Ok(Told {
            initialized,
            ..self.tell(beat, joins || beat.topics.is_some())
        })
    }

    fn join(&mut self, now: Instant, beat: &Beat<'_>) -> Result<(), Refusal> {
        if beat.topics.is_none_or(<[String]>::is_empty) {
            let text = "SubscribedTopicNames must be set in first request.".to_owned();
            return Err((ErrorCode::InvalidRequest, Some(text)));
        }
        if self.members.contains_key(beat.member_id) {
            return Ok(());
        }
        if self.members.len() >= beat.members_max {
            let text = format!(
                "The share group has reached its maximum capacity of {} members.",
                beat.members_max
            );
            return Err((ErrorCode::GroupMaxSizeReached, Some(text)));
        }
        let member = Member {
            epoch: self.assignment_epoch,
            previous_epoch: self.assignment_epoch,
            rack_id: None,
            client_id: beat.client_id.to_owned(),
            client_host: beat.client_host.to_owned(),
            topics: Vec::new(),
            assigned: BTreeSet::new(),
            session_end: now + beat.session_timeout,
        };
        self.members.insert(beat.member_id.to_owned(), member);
        Ok(())
    }

    /// Computes the targets where they are old, at most once per `interval`.
    ///
    /// *Quirk*: a partition is assigned only when its share state exists, which is made after the
    /// heartbeat that subscribes to it; so a new group's first assignment is empty.
    fn reassign(&mut self, now: Instant, topics: &Topics, interval: Duration) {
        let assigned: BTreeSet<Place> = self.targets.values().flatten().copied().collect();
        let is_pending = self.epoch == self.assignment_epoch
            && self
                .wanted(topics)
                .values()
                .flatten()
                .any(|place| !assigned.contains(place));
        let has_vanished = assigned
            .iter()
            .any(|place| topics.partition(*place).is_none());
        if is_pending || has_vanished && self.epoch == self.assignment_epoch {
            self.epoch += 1;
        }
        let is_due = self.assigned_at.is_none_or(|at| now >= at + interval);
        if self.epoch > self.assignment_epoch && is_due {
            self.targets = assign(&self.wanted(topics), &self.targets);
            self.assignment_epoch = self.epoch;
            self.assigned_at = Some(now);
        }
    }

    /// What each member could read now.
    fn wanted(&self, topics: &Topics) -> Targets {
        let places = |member: &Member| {
            let subscribed = member.topics.iter().filter_map(|name| topics.named(name));
            let places = subscribed.flat_map(|topic| {
                (0..)
                    .take(topic.partitions.len())
                    .map(|index| (topic.id, index))
            });
            places
                .filter(|place| self.initialized.contains(place))
                .collect()
        };
        self.members
            .iter()
            .map(|(id, member)| (id.clone(), places(member)))
            .collect()
    }

    /// Makes the share state of what is subscribed to; returns what is new.
    fn initialize(&mut self, topics: &Topics) -> BTreeSet<Place> {
        let names: BTreeSet<&String> = self
            .members
            .values()
            .flat_map(|member| &member.topics)
            .collect();
        let mut new = BTreeSet::new();
        for topic in names.into_iter().filter_map(|name| topics.named(name)) {
            let places = (0..)
                .take(topic.partitions.len())
                .map(|index| (topic.id, index));
            new.extend(places.filter(|place| !self.initialized.contains(place)));
        }
        self.initialized.extend(&new);
        new
    }

    fn tell(&mut self, beat: &Beat<'_>, is_full: bool) -> Told {
        let target = self
            .targets
            .get(beat.member_id)
            .cloned()
            .unwrap_or_default();
        let assignment_epoch = self.assignment_epoch;
        let Some(member) = self.members.get_mut(beat.member_id) else {
            return Told::default();
        };
        if member.epoch != assignment_epoch {
            (member.previous_epoch, member.epoch) = (member.epoch, assignment_epoch);
        }
        let has_changed = member.assigned != target;
        if has_changed {
            member.assigned.clone_from(&target);
        }
        Told {
            epoch: member.epoch,
            assignment: (has_changed || is_full).then_some(target),
            initialized: BTreeSet::new(),
        }
    }

    /// A member leaves or is thrown out; `false` where it isn't there. Its locks stay.
    pub fn remove(&mut self, member_id: &str) -> bool {
        if self.members.remove(member_id).is_none() {
            return false;
        }
        self.targets.remove(member_id);
        self.epoch += 1;
        if self.members.is_empty() {
            self.assignment_epoch = self.epoch;
            self.targets.clear();
        }
        true
    }

    /// A share partition is loaded anew, here or by another leader. What was never stored is
    /// forgotten; where nothing was, it starts where the group's configuration says then.
    pub fn reload(&mut self, place: Place) {
        let Some(loaded) = self.loaded.get_mut(&place) else {
            return;
        };
        if loaded.partition.stored().start_offset < 0 {
            self.loaded.remove(&place);
        } else {
            loaded.partition.reload();
            loaded.read_at = None;
        }
    }

    /// Forgets where it stands on a topic; `false` where nothing was known.
    pub fn delete_share_state(&mut self, topic_id: TopicId) -> bool {
        let known = self.initialized.len();
        self.initialized.retain(|place| place.0 != topic_id);
        self.loaded.retain(|place, _| place.0 != topic_id);
        self.initialized.len() < known
    }

    /// Forgets everything about a topic that is gone.
    pub fn forget_topic(&mut self, topics: &Topics) {
        self.initialized
            .retain(|place| topics.partition(*place).is_some());
        self.loaded
            .retain(|place, _| topics.partition(*place).is_some());
    }
}

fn check_epoch(member: &Member, epoch: i32) -> Result<(), Refusal> {
    if epoch == member.epoch || epoch == member.previous_epoch {
        return Ok(());
    }
    let (how, known) = (
        if epoch > member.epoch {
            "greater"
        } else {
            "smaller"
        },
        member.epoch,
    );
    let text = format!(
        "The share group member has a {how} member epoch ({epoch}) than the one known by the group coordinator \
         ({known}). The member must abandon all its partitions and rejoin."
    );
    Err((ErrorCode::FencedMemberEpoch, Some(text)))
}

/// Java's `String.hashCode`: it decides which broker coordinates a group.
#[must_use]
pub fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0, |hash: i32, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::topics::{Partition, Topic};
    use sharegroup_wire::{BrokerId, TopicId};

    fn topics() -> Topics {
        let partition = Partition {
            leader: BrokerId(1),
            leader_epoch: 0,
            replicas: vec![BrokerId(1)],
            log: super::super::log::PartitionLog::default(),
        };
        let mut topics = Topics::default();
        topics.insert(Topic {
            id: TopicId([1; 16]),
            name: "t".to_owned(),
            values: BTreeMap::new(),
            partitions: vec![partition.clone(), partition],
        });
        topics
    }

    fn beat<'a>(member_id: &'a str, epoch: i32, topics: Option<&'a [String]>) -> Beat<'a> {
        Beat {
            member_id,
            epoch,
            rack_id: None,
            topics,
            client_id: "c",
            client_host: "/127.0.0.1",
            session_timeout: Duration::from_secs(45),
            assignment_interval: Duration::from_secs(1),
            members_max: 3,
        }
    }

    fn indexes(told: &Told) -> Option<Vec<i32>> {
        let assignment = told.assignment.as_ref()?;
        Some(assignment.iter().map(|(_, index)| *index).collect())
    }

    /// The history of epochs and assignments that a real 4.4 coordinator gave.
    #[test]
    fn epochs_and_assignments_go_as_measured() {
        let (topics, names) = (topics(), ["t".to_owned()]);
        let mut now = Instant::now();
        let mut group = Group::default();
        let say = |group: &mut Group, now, member, epoch, joins: bool| {
            let told = group
                .heartbeat(
                    now,
                    &topics,
                    &beat(member, epoch, joins.then_some(&names[..])),
                )
                .unwrap();
            (told.epoch, indexes(&told))
        };
        assert_eq!(say(&mut group, now, "a", 0, true), (2, Some(vec![])));
        now += Duration::from_millis(500);
        assert_eq!(say(&mut group, now, "a", 2, false), (2, None));
        assert_eq!((group.epoch, group.assignment_epoch), (3, 2));
        now += Duration::from_millis(500);
        assert_eq!(say(&mut group, now, "a", 2, false), (3, Some(vec![0, 1])));
        assert_eq!(say(&mut group, now, "b", 0, true), (3, Some(vec![])));
        now += Duration::from_secs(1);
        assert_eq!(say(&mut group, now, "b", 3, false), (4, Some(vec![0])));
        assert_eq!(say(&mut group, now, "a", 3, false), (4, Some(vec![1])));
        assert_eq!(
            say(&mut group, now, "a", 3, false),
            (4, None),
            "a lost answer"
        );
        assert_eq!(
            say(&mut group, now, "a", 0, true),
            (4, Some(vec![1])),
            "a rejoin"
        );
        assert!(group.remove("a") && group.remove("b") && !group.remove("b"));
        assert_eq!(
            (group.state(), group.epoch, group.assignment_epoch),
            ("Empty", 6, 6)
        );
    }

    #[test]
    fn strangers_and_old_epochs_are_refused() {
        let (topics, names) = (topics(), ["t".to_owned()]);
        let now = Instant::now();
        let mut group = Group::default();
        let mut code = |member, epoch, names: Option<&[String]>| {
            group
                .heartbeat(now, &topics, &beat(member, epoch, names))
                .err()
                .map(|(code, _)| code)
        };
        assert_eq!(code("a", 1, None), Some(ErrorCode::UnknownMemberId));
        assert_eq!(code("a", 0, None), Some(ErrorCode::InvalidRequest));
        assert_eq!(code("a", 0, Some(&[])), Some(ErrorCode::InvalidRequest));
        for member in ["a", "b", "c"] {
            assert_eq!(code(member, 0, Some(&names)), None);
        }
        assert_eq!(
            code("d", 0, Some(&names)),
            Some(ErrorCode::GroupMaxSizeReached)
        );
        assert_eq!(code("a", 99, None), Some(ErrorCode::FencedMemberEpoch));
    }

    #[test]
    fn hash_is_javas() {
        assert_eq!(java_hash("orders"), -1_008_770_331);
        assert_eq!(java_hash(""), 0);
    }
}
