//! The whole state in entries.

use super::entry::{Entry, ProducerMeta};
use super::notes::{place_meta, share_state_entry, topic_entry, value_list};
use crate::model::Model;
use crate::model::consumer_group::{ConsumerGroup, committed_entry};
use crate::model::group::Group;
use crate::model::topics::{Partition, Topic};

impl Model {
    /// The state in entries, in an order in which [`restore`](Self::restore) takes them.
    pub fn snapshot(&self) -> impl Iterator<Item = Entry> {
        let cluster = [
            Entry::Cluster {
                cluster_id: self.cluster_id,
            },
            Entry::Ids {
                random: self.random.0.to_be_bytes(),
                last_producer_id: self.last_producer_id,
            },
            Entry::BrokerConfig {
                values: value_list(&self.configs.broker),
            },
        ];
        let configs = self.configs.groups.iter();
        let configs = configs.map(|(group_id, values)| Entry::GroupConfig {
            group_id: group_id.clone(),
            values: value_list(values),
        });
        let ids = self.transactions.by_id.keys();
        let transactions = ids.filter_map(|id| self.transaction_entry(id));
        cluster
            .into_iter()
            .chain(configs)
            .chain(self.topics.iter().flat_map(topic_entries))
            .chain(transactions)
            .chain(self.groups.iter().flat_map(group_entries))
            .chain(self.consumer_groups.iter().flat_map(commit_entries))
    }
}

fn topic_entries(topic: &Topic) -> impl Iterator<Item = Entry> {
    let logs = (0..).zip(&topic.partitions);
    let logs = logs.flat_map(|(index, partition)| log_entries(topic, index, partition));
    std::iter::once(topic_entry(topic)).chain(logs)
}

fn log_entries(topic: &Topic, index: i32, partition: &Partition) -> impl Iterator<Item = Entry> {
    let topic_id = topic.id;
    let batches = partition.log.batches().map(move |batch| Entry::Batch {
        topic_id,
        partition: index,
        bytes: batch.bytes.clone(),
    });
    let state = partition.log.state();
    let producers = state.producers.iter();
    let producers = producers.map(|(producer_id, producer)| ProducerMeta {
        producer_id,
        epoch: producer.epoch,
        batches: producer.batches.iter().copied().collect(),
        open_from: producer.open_from.unwrap_or(-1),
    });
    let state = Entry::LogState {
        topic_id,
        partition: index,
        start_offset: state.start_offset,
        end_offset: state.end_offset,
        producers: producers.collect(),
        aborted: state.aborted,
    };
    batches.chain(std::iter::once(state))
}

fn group_entries((group_id, group): (&String, &Group)) -> impl Iterator<Item = Entry> {
    let made = [
        Entry::Group {
            group_id: group_id.clone(),
            epoch: group.epoch,
        },
        Entry::ShareStateInitialized {
            group_id: group_id.clone(),
            places: group.initialized.iter().map(place_meta).collect(),
        },
    ];
    let written = group.loaded.iter();
    let written = written.filter(|(_, loaded)| loaded.partition.stored().start_offset >= 0);
    let written =
        written.map(|(place, loaded)| share_state_entry(group_id, *place, &loaded.partition));
    made.into_iter().chain(written)
}

fn commit_entries((group_id, group): (&String, &ConsumerGroup)) -> impl Iterator<Item = Entry> {
    let committed = group.committed.iter();
    committed.map(|(place, committed)| committed_entry(group_id, *place, committed))
}
