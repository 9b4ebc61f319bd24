//! Topics, their partitions and leaders.

use std::collections::BTreeMap;

use sharegroup_wire::{BrokerId, TopicId};

use super::config::Values;
use super::group::java_hash;
use super::log::PartitionLog;

/// A partition by topic id.
pub type Place = (TopicId, i32);

/// A partition.
#[derive(Debug, Clone)]
pub struct Partition {
    /// Who leads it.
    pub leader: BrokerId,
    /// Rises with each new leader.
    pub leader_epoch: i32,
    /// Who is said to have a copy; all share one log.
    pub replicas: Vec<BrokerId>,
    /// Its records.
    pub log: PartitionLog,
}

/// A topic.
#[derive(Debug, Clone)]
pub struct Topic {
    /// Its id, never used again.
    pub id: TopicId,
    /// Its name.
    pub name: String,
    /// What its configuration sets.
    pub values: Values,
    /// Its partitions.
    pub partitions: Vec<Partition>,
}

/// All topics of the cluster.
#[derive(Debug, Clone, Default)]
pub struct Topics {
    by_id: BTreeMap<TopicId, Topic>,
    by_name: BTreeMap<String, TopicId>,
}

impl Topics {
    /// Adds a topic; its name and id are new.
    pub fn insert(&mut self, topic: Topic) {
        self.by_name.insert(topic.name.clone(), topic.id);
        self.by_id.insert(topic.id, topic);
    }

    /// Removes a topic.
    pub fn remove(&mut self, id: TopicId) -> Option<Topic> {
        let topic = self.by_id.remove(&id)?;
        self.by_name.remove(&topic.name);
        Some(topic)
    }

    /// By name.
    pub fn iter(&self) -> impl Iterator<Item = &Topic> {
        self.by_name.values().filter_map(|id| self.by_id.get(id))
    }

    /// A topic by its id.
    #[must_use]
    pub fn get(&self, id: TopicId) -> Option<&Topic> {
        self.by_id.get(&id)
    }

    /// A topic by its id, to be changed.
    pub fn get_mut(&mut self, id: TopicId) -> Option<&mut Topic> {
        self.by_id.get_mut(&id)
    }

    /// A topic by its name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Topic> {
        self.get(*self.by_name.get(name)?)
    }

    /// A partition.
    #[must_use]
    pub fn partition(&self, place: Place) -> Option<&Partition> {
        let index = usize::try_from(place.1).ok()?;
        self.get(place.0)?.partitions.get(index)
    }

    /// A partition, to be changed.
    pub fn partition_mut(&mut self, place: Place) -> Option<&mut Partition> {
        let index = usize::try_from(place.1).ok()?;
        self.get_mut(place.0)?.partitions.get_mut(index)
    }

    /// Where a partition comes among up to four in a real broker's hash tables: some orders there that
    /// a client can see are theirs. (Five and more lie in another kind of table.)
    #[must_use]
    pub fn hash_order(&self, place: Place) -> (i32, i32) {
        let (id, partition) = place;
        let mix = |hash: i32, next: i32| hash.wrapping_mul(31).wrapping_add(next);
        let word = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |word, byte| word << 8 | i32::from(*byte))
        };
        let id =
            id.0.chunks_exact(4)
                .fold(0, |hash, bytes| hash ^ word(bytes));
        let name = self.get(place.0).map_or(0, |topic| java_hash(&topic.name));
        let hash = mix(mix(1, id), mix(mix(1, partition), name));
        let hash = hash ^ (hash.cast_unsigned() >> 16).cast_signed();
        (hash & 15, hash)
    }

    /// Every partition.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.iter().flat_map(|topic| {
            let id = topic.id;
            (0..)
                .take(topic.partitions.len())
                .map(move |index| (id, index))
        })
    }

    /// How many partitions there are.
    #[must_use]
    pub fn partition_count(&self) -> usize {
        self.by_id
            .values()
            .map(|topic| topic.partitions.len())
            .sum()
    }

    /// Bytes of all logs.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let partitions = self.by_id.values().flat_map(|topic| &topic.partitions);
        partitions.map(|partition| partition.log.size_bytes()).sum()
    }
}

/// Whether Kafka allows the name.
///
/// # Errors
/// The text for INVALID_TOPIC_EXCEPTION.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.is_empty() {
        return Err("Topic name is invalid: the empty string is not allowed".to_owned());
    }
    if name == "." || name == ".." {
        return Err("Topic name is invalid: '.' or '..' is not allowed".to_owned());
    }
    if name.len() > 249 {
        return Err(format!(
            "Topic name is invalid: the length of '{name}' is longer than the max allowed length 249"
        ));
    }
    if !name.bytes().all(is_legal) {
        return Err(format!(
            "Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        ));
    }
    Ok(())
}
