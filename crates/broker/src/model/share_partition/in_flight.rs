//! What is known of the offsets between a share partition's start and end: one state for a whole
//! range that was acquired together, or one per offset once they differ.

use std::sync::Arc;
use std::time::Instant;

/// Where a record stands (KIP-932 "In-flight records").
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordState {
    /// Free for any member.
    Available,
    /// Locked to one member.
    Acquired {
        /// Its owner.
        member_id: Arc<str>,
        /// When the lock ends.
        lock_end: Instant,
    },
    /// Accepted: terminal.
    Acknowledged,
    /// Rejected, a gap, or out of deliveries: terminal.
    Archived,
}

impl RecordState {
    /// Whether the record is done with.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        matches!(self, Self::Acknowledged | Self::Archived)
    }

    /// Whether a member holds it.
    #[must_use]
    pub fn is_held_by(&self, member: &str) -> bool {
        matches!(self, Self::Acquired { member_id, .. } if **member_id == *member)
    }

    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        matches!(self, Self::Acquired { lock_end, .. } if *lock_end <= now)
    }
}

/// A record's state and how often it was handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlight {
    /// The state.
    pub state: RecordState,
    /// Deliveries so far.
    pub delivery_count: i16,
}

/// A range of offsets that was acquired together.
///
/// Its borders matter beyond the states inside: near the delivery limit the partition hands out
/// fractions of a range, and a range is split into single offsets only where it must be.
#[derive(Debug, Clone)]
pub(super) struct InFlightBatch {
    pub(super) last_offset: i64,
    pub(super) tracking: Tracking,
}

#[derive(Debug, Clone)]
pub(super) enum Tracking {
    /// One state for all offsets.
    Whole(InFlight),
    /// One state per offset, from the first on.
    Each(Vec<InFlight>),
}

impl InFlightBatch {
    /// Goes over to one state per offset.
    pub(super) fn track_each(&mut self, first_offset: i64) -> &mut Vec<InFlight> {
        if let Tracking::Whole(state) = &self.tracking {
            let count = usize::try_from(self.last_offset - first_offset + 1).unwrap_or(0);
            self.tracking = Tracking::Each(vec![state.clone(); count]);
        }
        match &mut self.tracking {
            Tracking::Each(states) => states,
            // INVARIANT: replaced above.
            Tracking::Whole(_) => unreachable!("a batch is tracked by offset"),
        }
    }

    /// The state of an offset inside the batch.
    pub(super) fn get(&self, first_offset: i64, offset: i64) -> Option<&InFlight> {
        match &self.tracking {
            Tracking::Whole(state) => Some(state),
            Tracking::Each(states) => states.get(usize::try_from(offset - first_offset).ok()?),
        }
    }

    /// The states with the ranges that have them, ascending.
    pub(super) fn runs(&self, first_offset: i64) -> impl Iterator<Item = (i64, i64, &InFlight)> {
        let (whole, each) = match &self.tracking {
            Tracking::Whole(state) => (Some((first_offset, self.last_offset, state)), None),
            Tracking::Each(states) => (None, Some(states)),
        };
        let each = each.into_iter().flatten().zip(first_offset..);
        whole
            .into_iter()
            .chain(each.map(|(state, offset)| (offset, offset, state)))
    }

    /// The states with the ranges that have them, to be changed.
    pub(super) fn runs_mut(
        &mut self,
        first_offset: i64,
    ) -> impl Iterator<Item = (i64, i64, &mut InFlight)> {
        let last_offset = self.last_offset;
        let (whole, each) = match &mut self.tracking {
            Tracking::Whole(state) => (Some((first_offset, last_offset, state)), None),
            Tracking::Each(states) => (None, Some(states)),
        };
        let each = each.into_iter().flatten().zip(first_offset..);
        whole
            .into_iter()
            .chain(each.map(|(state, offset)| (offset, offset, state)))
    }
}
