//! What is known of the group beyond our own membership.

use std::collections::BTreeMap;

use crate::acquired::TopicPartition;
use crate::limits::RECORD_LOCKS_DEFAULT;

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) delivery_count_limit: Option<i16>,
    record_locks_max: u32,
    /// By partition.
    pub(crate) members: BTreeMap<TopicPartition, u32>,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            delivery_count_limit: None,
            record_locks_max: RECORD_LOCKS_DEFAULT,
            members: BTreeMap::new(),
        }
    }
}

impl Group {
    pub(crate) fn set_limits(&mut self, delivery_count: Option<i32>, record_locks: Option<i32>) {
        self.delivery_count_limit = delivery_count.and_then(|limit| limit.try_into().ok());
        let locks = record_locks.and_then(|locks| u32::try_from(locks).ok());
        self.record_locks_max = locks.unwrap_or(RECORD_LOCKS_DEFAULT);
    }

    /// Records that we may hold of these partitions: our part of what the brokers lock. Who is alone
    /// leaves half to the next who comes.
    pub(crate) fn part_of<'a>(&self, ours: impl Iterator<Item = &'a TopicPartition>) -> u32 {
        let parts = ours.map(|partition| {
            let members = self.members.get(partition).copied().unwrap_or_default();
            self.record_locks_max / members.max(2)
        });
        parts.fold(0, u32::saturating_add).max(1)
    }
}

#[cfg(test)]
mod tests {
    use sharegroup_wire::TopicId;

    use super::*;

    #[test]
    fn a_partition_is_shared_by_the_members_it_has() {
        let [first, second] = [0, 1].map(|partition| TopicPartition {
            topic_id: TopicId::ZERO,
            partition,
        });
        let mut group = Group::default();
        assert_eq!(group.part_of([first, second].iter()), 2000, "not known yet");
        group.members = BTreeMap::from([(first, 1), (second, 5)]);
        assert_eq!(group.part_of([first, second].iter()), 1000 + 400);
        group.set_limits(None, Some(100));
        assert_eq!(group.part_of([second].iter()), 20);
        assert_eq!(group.part_of([].iter()), 1);
    }
}
