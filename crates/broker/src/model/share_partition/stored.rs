//! What is written of a share partition, and a share partition as it is loaded again.

use std::collections::{BTreeMap, BinaryHeap};

use super::in_flight::{InFlight, InFlightBatch, RecordState, Tracking};
use super::{SharePartition, Stored};

/// What outlives the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredState {
    /// What the share coordinator tells of it.
    pub stored: Stored,
    /// The first offset that isn't settled.
    pub start_offset: i64,
    /// What is known of the offsets from there on, ascending.
    pub ranges: Vec<StoredRange>,
}

/// Offsets in the same state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredRange {
    /// First offset, inclusive.
    pub first_offset: i64,
    /// Last offset, inclusive.
    pub last_offset: i64,
    /// Whether a member may get them.
    pub state: StoredRecordState,
    /// Deliveries so far.
    pub delivery_count: i16,
}

/// Where a record stands when nobody holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredRecordState {
    /// Free for any member.
    Available,
    /// Accepted.
    Acknowledged,
    /// Rejected, a gap, or out of deliveries.
    Archived,
}

impl SharePartition {
    /// What is written of it. Acquisitions never are: a record that is held counts as available, with
    /// one delivery less, and as never seen where it was the first.
    #[must_use]
    pub fn stored_state(&self) -> StoredState {
        let mut ranges: Vec<StoredRange> = Vec::new();
        let runs = self
            .in_flight
            .iter()
            .flat_map(|(first, batch)| batch.runs(*first));
        for (first, last, record) in runs {
            let Some(range) = stored_range(first.max(self.start_offset), last, record) else {
                continue;
            };
            // The share coordinator joins what it stores.
            match ranges.last_mut() {
                Some(before) if before.continues_in(&range) => before.last_offset = last,
                _ => ranges.push(range),
            }
        }
        StoredState {
            stored: self.stored,
            start_offset: self.start_offset,
            ranges,
        }
    }

    /// A share partition that goes on from what was written.
    #[must_use]
    pub fn load(state: &StoredState) -> Self {
        let mut in_flight = BTreeMap::new();
        for range in &state.ranges {
            let state = match range.state {
                StoredRecordState::Available => RecordState::Available,
                StoredRecordState::Acknowledged => RecordState::Acknowledged,
                StoredRecordState::Archived => RecordState::Archived,
            };
            let record = InFlight {
                state,
                delivery_count: range.delivery_count,
            };
            let batch = InFlightBatch {
                last_offset: range.last_offset,
                tracking: Tracking::Whole(record),
            };
            in_flight.insert(range.first_offset, batch);
        }
        let last = state.ranges.last();
        let mut partition = Self {
            start_offset: state.start_offset,
            end_offset: last.map_or(state.start_offset, |range| range.last_offset),
            in_flight,
            look_back: true,
            locks: BinaryHeap::new(),
            stored: state.stored,
        };
        partition.advance();
        partition
    }

    /// Another leader takes over, or the broker starts anew: what was acquired is available, and
    /// those attempts are forgotten, since acquisitions are never stored.
    pub fn reload(&mut self) {
        *self = Self::load(&self.stored_state());
    }
}

impl StoredRange {
    fn continues_in(&self, next: &Self) -> bool {
        self.last_offset + 1 == next.first_offset
            && (self.state, self.delivery_count) == (next.state, next.delivery_count)
    }
}

/// `None` where nothing is written of it.
fn stored_range(first_offset: i64, last_offset: i64, record: &InFlight) -> Option<StoredRange> {
    let (state, delivery_count) = match record.state {
        RecordState::Available => (StoredRecordState::Available, record.delivery_count),
        RecordState::Acquired { .. } => (StoredRecordState::Available, record.delivery_count - 1),
        RecordState::Acknowledged => (StoredRecordState::Acknowledged, record.delivery_count),
        RecordState::Archived => (StoredRecordState::Archived, record.delivery_count),
    };
    let is_known = state != StoredRecordState::Available || delivery_count > 0;
    (is_known && first_offset <= last_offset).then_some(StoredRange {
        first_offset,
        last_offset,
        state,
        delivery_count,
    })
}
