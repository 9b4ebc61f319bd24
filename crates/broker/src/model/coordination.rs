//! Which broker coordinates what, and members that time out.

use std::time::{Duration, Instant};

use sharegroup_wire::BrokerId;

use super::Model;
use super::group::java_hash;
use super::journal::Entry;
use super::timers::Timer;

/// Partitions of `__consumer_offsets`, which decide who coordinates a group.
const COORDINATOR_PARTITIONS: i32 = 50;

impl Model {
    /// The coordinator of a group or of a transactional id.
    #[must_use]
    pub fn coordinator(&self, key: &str) -> BrokerId {
        if let Some(moved) = self.coordinators.get(key) {
            return *moved;
        }
        let partition = (java_hash(key) & i32::MAX) % COORDINATOR_PARTITIONS;
        let count = self.nodes.len().max(1);
        let index = usize::try_from(partition).unwrap_or(0) % count;
        self.nodes
            .keys()
            .nth(index)
            .copied()
            .unwrap_or(BrokerId::NONE)
    }

    /// Moves the coordinator of a group or of a transactional id.
    pub fn move_coordinator(&mut self, key: &str, broker: BrokerId) {
        self.coordinators.insert(key.to_owned(), broker);
    }

    /// Deletes a group with its share state or its committed offsets.
    pub(crate) fn delete_group(&mut self, group_id: &str) {
        self.groups.remove(group_id);
        self.consumer_groups.remove(group_id);
        self.journal.note(|| Entry::GroupDeleted {
            group_id: group_id.to_owned(),
        });
    }

    /// Watches a member's session.
    pub(crate) fn watch_member(
        &mut self,
        now: Instant,
        group_id: &str,
        member_id: &str,
        timeout: Duration,
    ) {
        let timer = Timer::Member(group_id.to_owned(), member_id.to_owned());
        self.timers.set(now + timeout, timer);
    }

    /// Throws out a member that gave no sign of life. Its locks stay until they end.
    pub(super) fn expire_member(&mut self, now: Instant, group_id: &str, member_id: &str) {
        let Some(group) = self.groups.get_mut(group_id) else {
            return;
        };
        let member = group.members.get(member_id);
        if member.is_some_and(|member| member.session_end <= now) {
            group.remove(member_id);
            self.note_group(group_id, None);
        }
    }
}
