//! Consumer groups without members: what a consumer that assigns its own partitions, or an admin, has
//! committed.

use std::collections::BTreeMap;

use sharegroup_wire::{ErrorCode, TopicId};

use super::Model;
use super::journal::Entry;
use super::limits::GROUPS_MAX;
use super::topics::Place;

/// A consumer group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConsumerGroup {
    /// What it has committed.
    pub committed: BTreeMap<Place, Committed>,
}

/// What is committed of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Offset of the next record to read.
    pub offset: i64,
    /// Leader epoch of the last record read; −1 = unknown.
    pub leader_epoch: i32,
    /// Kept with it.
    pub metadata: String,
}

impl Model {
    /// Whether somebody who isn't a member may commit to this group.
    ///
    /// # Errors
    /// GROUP_ID_NOT_FOUND for a share group, UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION for who says that it is a
    /// member, GROUP_MAX_SIZE_REACHED. As with Kafka the empty id is one like others.
    pub(crate) fn check_commit(
        &self,
        group_id: &str,
        generation: i32,
        member_id: &str,
    ) -> Result<(), ErrorCode> {
        let is_known = self.consumer_groups.contains_key(group_id);
        if self.groups.contains_key(group_id) {
            Err(ErrorCode::GroupIdNotFound)
        } else if generation >= 0 && !is_known {
            Err(ErrorCode::IllegalGeneration)
        } else if generation >= 0 || !member_id.is_empty() {
            Err(ErrorCode::UnknownMemberId)
        } else if !is_known && self.consumer_groups.len() >= GROUPS_MAX {
            Err(ErrorCode::GroupMaxSizeReached)
        } else {
            Ok(())
        }
    }

    /// Commits an offset; makes the group.
    pub(crate) fn commit_offset(&mut self, group_id: &str, place: Place, committed: Committed) {
        self.journal
            .note(|| committed_entry(group_id, place, &committed));
        let group = self.consumer_groups.entry(group_id.to_owned()).or_default();
        group.committed.insert(place, committed);
    }

    /// Forgets what was committed of a topic that is gone.
    pub(super) fn forget_commits(&mut self, topic_id: TopicId) {
        for group in self.consumer_groups.values_mut() {
            group.committed.retain(|place, _| place.0 != topic_id);
        }
    }
}

pub(super) fn committed_entry(group_id: &str, place: Place, committed: &Committed) -> Entry {
    Entry::OffsetCommitted {
        group_id: group_id.to_owned(),
        topic_id: place.0,
        partition: place.1,
        offset: committed.offset,
        leader_epoch: committed.leader_epoch,
        metadata: committed.metadata.clone(),
    }
}
