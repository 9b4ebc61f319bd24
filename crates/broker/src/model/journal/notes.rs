//! What is noted of each part of the state.

use std::collections::BTreeSet;

use sharegroup_wire::TopicId;

use super::entry::{Entry, PartitionMeta, PlaceMeta, Value};
use crate::model::Model;
use crate::model::config::Values;
use crate::model::share_partition::SharePartition;
use crate::model::topics::{Place, Topic};

impl Model {
    /// A topic was made or changed.
    pub(crate) fn note_topic(&mut self, id: TopicId) {
        if let Some(topic) = self.topics.get(id) {
            self.journal.note(|| topic_entry(topic));
        }
    }

    /// A log has changed; it had these first and next offsets before.
    pub(crate) fn note_log(&mut self, place: Place, before: (i64, i64)) {
        if !self.journal.is_kept() {
            return;
        }
        let Some(partition) = self.topics.partition(place) else {
            return;
        };
        let (topic_id, partition_index) = place;
        let (start_offset, end_offset) = before;
        for batch in partition.log.read(end_offset, i64::MAX, usize::MAX, true) {
            self.journal.note(|| Entry::Batch {
                topic_id,
                partition: partition_index,
                bytes: batch.bytes.clone(),
            });
        }
        if partition.log.start_offset() != start_offset {
            self.journal.note(|| Entry::LogStart {
                topic_id,
                partition: partition_index,
                start_offset: partition.log.start_offset(),
            });
        }
    }

    /// Ids were given away.
    pub(crate) fn note_ids(&mut self) {
        let (random, last_producer_id) = (self.random.0, self.last_producer_id);
        self.journal.note(|| Entry::Ids {
            random: random.to_be_bytes(),
            last_producer_id,
        });
    }

    /// A transactional id has changed.
    pub(crate) fn note_transaction(&mut self, id: &str) {
        if self.journal.is_kept()
            && let Some(entry) = self.transaction_entry(id)
        {
            self.journal.note(|| entry);
        }
    }

    pub(super) fn transaction_entry(&self, id: &str) -> Option<Entry> {
        let known = self.transactions.by_id.get(id)?;
        let began = known.open.as_ref().map(|(began, _)| self.unix_ms(*began));
        let open = known.open.iter().flat_map(|(_, places)| places);
        Some(Entry::Transaction {
            transactional_id: id.to_owned(),
            producer_id: known.producer.0,
            producer_epoch: known.producer.1,
            timeout_ms: i64::try_from(known.timeout.as_millis()).unwrap_or(i64::MAX),
            began_ms: began.unwrap_or(-1),
            places: open.map(place_meta).collect(),
        })
    }

    /// A group was made, or has another epoch than before.
    pub(crate) fn note_group(&mut self, group_id: &str, epoch_before: Option<i32>) {
        let group = self.groups.get(group_id);
        if let Some(epoch) = group.map(|group| group.epoch)
            && epoch_before != Some(epoch)
        {
            self.journal.note(|| Entry::Group {
                group_id: group_id.to_owned(),
                epoch,
            });
        }
    }

    /// Share state was made.
    pub(crate) fn note_initialized(&mut self, group_id: &str, places: &BTreeSet<Place>) {
        if !places.is_empty() {
            self.journal.note(|| Entry::ShareStateInitialized {
                group_id: group_id.to_owned(),
                places: places.iter().map(place_meta).collect(),
            });
        }
    }

    /// A share partition was written.
    pub(crate) fn note_share_state(&mut self, group_id: &str, place: Place) {
        if !self.journal.is_kept() {
            return;
        }
        let group = self.groups.get(group_id);
        if let Some(loaded) = group.and_then(|group| group.loaded.get(&place)) {
            self.journal
                .note(|| share_state_entry(group_id, place, &loaded.partition));
        }
    }
}

pub(super) fn topic_entry(topic: &Topic) -> Entry {
    let partitions = topic.partitions.iter().map(|partition| PartitionMeta {
        leader: partition.leader,
        leader_epoch: partition.leader_epoch,
        replicas: partition.replicas.clone(),
    });
    Entry::Topic {
        topic_id: topic.id,
        name: topic.name.clone(),
        values: value_list(&topic.values),
        partitions: partitions.collect(),
    }
}

pub(super) fn share_state_entry(group_id: &str, place: Place, partition: &SharePartition) -> Entry {
    let state = partition.stored_state();
    Entry::ShareState {
        group_id: group_id.to_owned(),
        topic_id: place.0,
        partition: place.1,
        stored: state.stored,
        start_offset: state.start_offset,
        ranges: state.ranges,
    }
}

pub(in crate::model) fn value_list(values: &Values) -> Vec<Value> {
    let list = values.iter().map(|(key, value)| Value {
        key: key.clone(),
        value: value.clone(),
    });
    list.collect()
}

pub(super) const fn place_meta(place: &Place) -> PlaceMeta {
    PlaceMeta {
        topic_id: place.0,
        partition: place.1,
    }
}
