//! Entries go back into a model.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use sharegroup_wire::record::BatchError;
use sharegroup_wire::{BrokerId, TopicId};

use super::entry::{Entry, PartitionMeta, PlaceMeta, ProducerMeta, Value};
use crate::model::Model;
use crate::model::config::Values;
use crate::model::consumer_group::Committed;
use crate::model::group::{Group, Loaded};
use crate::model::log::{LogState, PartitionLog};
use crate::model::producer_state::Producer;
use crate::model::random::SplitMix64;
use crate::model::share_partition::{SharePartition, StoredState};
use crate::model::topics::{Partition, Place, Topic};
use crate::model::transactions::Transaction;

/// Why an entry can't go back: it isn't from this journal, or not in its place.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum RestoreError {
    /// It is about a partition that doesn't exist.
    UnknownPartition,
    /// Its batch is none.
    Batch(BatchError),
    /// Its offsets aren't ascending.
    Offsets,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPartition => f.write_str("entry about an unknown partition"),
            Self::Batch(error) => write!(f, "entry with a bad batch: {error}"),
            Self::Offsets => f.write_str("entry with offsets out of order"),
        }
    }
}

impl std::error::Error for RestoreError {}

impl From<BatchError> for RestoreError {
    fn from(error: BatchError) -> Self {
        Self::Batch(error)
    }
}

impl Model {
    /// Takes an entry back. A fresh model and all entries of a journal, in their order, give what was
    /// there; then comes [`finish_restore`](Self::finish_restore).
    ///
    /// # Errors
    /// [`RestoreError`]: nothing has changed.
    pub fn restore(&mut self, entry: Entry) -> Result<(), RestoreError> {
        match entry {
            Entry::Cluster { cluster_id } => self.cluster_id = cluster_id,
            Entry::Ids {
                random,
                last_producer_id,
            } => {
                self.random = SplitMix64(u64::from_be_bytes(random));
                self.last_producer_id = last_producer_id;
            }
            Entry::BrokerConfig { values } => self.configs.broker = value_map(values),
            Entry::GroupConfig { group_id, values } => {
                self.set_group_values(&group_id, value_map(values));
            }
            Entry::Topic {
                topic_id,
                name,
                values,
                partitions,
            } => self.restore_topic(topic_id, name, value_map(values), partitions),
            Entry::TopicDeleted { topic_id } => self.delete_topic(topic_id),
            Entry::Batch { .. } | Entry::LogStart { .. } | Entry::LogState { .. } => {
                return self.restore_log(entry);
            }
            Entry::Transaction { .. } => self.restore_transaction(entry),
            Entry::Group { group_id, epoch } => self.restored_group(group_id).epoch = epoch,
            Entry::GroupDeleted { group_id } => {
                self.groups.remove(&group_id);
                self.consumer_groups.remove(&group_id);
            }
            Entry::OffsetCommitted {
                group_id,
                topic_id,
                partition,
                offset,
                leader_epoch,
                metadata,
            } => {
                let committed = Committed {
                    offset,
                    leader_epoch,
                    metadata,
                };
                let group = self.consumer_groups.entry(group_id).or_default();
                group.committed.insert((topic_id, partition), committed);
            }
            Entry::ShareStateInitialized { group_id, places } => {
                let places = places.iter().map(place);
                self.restored_group(group_id).initialized.extend(places);
            }
            Entry::ShareState { .. } => return self.restore_share_state(entry),
            Entry::ShareStateDeleted { group_id, topic_id } => {
                self.restored_group(group_id).delete_share_state(topic_id);
            }
        }
        Ok(())
    }

    /// Goes on where the journal ended. Leaders are elected anew, as when a real broker comes back:
    /// each partition has a new epoch, and a partition of a broker that is no more has another leader.
    /// Open transactions stay open until their producer or their timeout ends them.
    pub fn finish_restore(&mut self, now: Instant) {
        let brokers: Vec<BrokerId> = self.brokers().collect();
        let ids: Vec<TopicId> = self.topics.iter().map(|topic| topic.id).collect();
        for id in ids {
            let partitions = self.topics.get_mut(id).map(|topic| &mut topic.partitions);
            for (index, partition) in partitions.into_iter().flatten().enumerate() {
                elect(partition, index, &brokers);
            }
            self.note_topic(id);
        }
        let ids: Vec<String> = self.transactions.by_id.keys().cloned().collect();
        for id in ids {
            self.watch_transaction(&id);
        }
        for group in self.groups.values_mut() {
            group.assignment_epoch = group.epoch;
        }
        self.handle_timeout(now);
    }

    fn restored_group(&mut self, group_id: String) -> &mut Group {
        self.groups.entry(group_id).or_default()
    }

    /// Logs of partitions that were there stay.
    fn restore_topic(
        &mut self,
        id: TopicId,
        name: String,
        values: Values,
        partitions: Vec<PartitionMeta>,
    ) {
        let known = self.topics.remove(id);
        let logs = known.into_iter().flat_map(|topic| topic.partitions);
        let mut logs = logs.map(|partition| partition.log);
        let partitions = partitions.into_iter().map(|meta| Partition {
            leader: meta.leader,
            leader_epoch: meta.leader_epoch,
            replicas: meta.replicas,
            log: logs.next().unwrap_or_default(),
        });
        let partitions = partitions.collect();
        self.topics.insert(Topic {
            id,
            name,
            values,
            partitions,
        });
    }

    fn restored_log(&mut self, place: Place) -> Result<&mut PartitionLog, RestoreError> {
        let partition = self.topics.partition_mut(place);
        let partition = partition.ok_or(RestoreError::UnknownPartition)?;
        Ok(&mut partition.log)
    }

    fn restore_log(&mut self, entry: Entry) -> Result<(), RestoreError> {
        match entry {
            Entry::Batch {
                topic_id,
                partition,
                bytes,
            } => self.restored_log((topic_id, partition))?.restore(&bytes)?,
            Entry::LogStart {
                topic_id,
                partition,
                start_offset,
            } => self
                .restored_log((topic_id, partition))?
                .delete_before(start_offset),
            Entry::LogState {
                topic_id,
                partition,
                start_offset,
                end_offset,
                producers,
                aborted,
            } => self
                .restored_log((topic_id, partition))?
                .set_state(LogState {
                    start_offset,
                    end_offset,
                    producers: producers.into_iter().map(producer).collect(),
                    aborted,
                }),
            _ => {}
        }
        Ok(())
    }

    fn restore_transaction(&mut self, entry: Entry) {
        let Entry::Transaction {
            transactional_id,
            producer_id,
            producer_epoch,
            timeout_ms,
            began_ms,
            places,
        } = entry
        else {
            return;
        };
        let (start, unix_ms) = self.start;
        let age = u64::try_from(unix_ms.saturating_sub(began_ms)).unwrap_or(0);
        let began = start.checked_sub(Duration::from_millis(age));
        let places = places.iter().map(place).collect();
        let transaction = Transaction {
            producer: (producer_id, producer_epoch),
            timeout: Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0)),
            open: (began_ms >= 0).then_some((began.unwrap_or(start), places)),
        };
        self.transactions
            .by_id
            .insert(transactional_id, transaction);
    }

    fn restore_share_state(&mut self, entry: Entry) -> Result<(), RestoreError> {
        let Entry::ShareState {
            group_id,
            topic_id,
            partition,
            stored,
            start_offset,
            ranges,
        } = entry
        else {
            return Ok(());
        };
        let mut next = start_offset;
        for range in &ranges {
            if range.first_offset < next || range.last_offset < range.first_offset {
                return Err(RestoreError::Offsets);
            }
            let last = range.last_offset.checked_add(1);
            next = last.ok_or(RestoreError::Offsets)?;
        }
        let state = StoredState {
            stored,
            start_offset,
            ranges,
        };
        let loaded = Loaded::new(SharePartition::load(&state));
        let group = self.restored_group(group_id);
        group.loaded.insert((topic_id, partition), loaded);
        Ok(())
    }
}

/// A new epoch, and a leader that exists.
fn elect(partition: &mut Partition, index: usize, brokers: &[BrokerId]) {
    let known: BTreeSet<&BrokerId> = brokers.iter().collect();
    partition.leader_epoch = partition.leader_epoch.saturating_add(1);
    partition.replicas.retain(|replica| known.contains(replica));
    if partition.replicas.is_empty() {
        let in_turn = brokers.get(index % brokers.len().max(1));
        partition.replicas.extend(in_turn);
    }
    if !known.contains(&partition.leader) {
        let first = partition.replicas.first().copied();
        partition.leader = first.unwrap_or(BrokerId::NONE);
    }
}

fn producer(meta: ProducerMeta) -> (i64, Producer) {
    let producer = Producer {
        epoch: meta.epoch,
        batches: meta.batches.into(),
        open_from: (meta.open_from >= 0).then_some(meta.open_from),
    };
    (meta.producer_id, producer)
}

fn value_map(values: Vec<Value>) -> Values {
    let map = values.into_iter().map(|value| (value.key, value.value));
    map.collect()
}

const fn place(meta: &PlaceMeta) -> Place {
    (meta.topic_id, meta.partition)
}
