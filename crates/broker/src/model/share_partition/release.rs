//! Records that come back without an acknowledgement: locks that end, members that go.

use std::cmp::Reverse;
use std::time::Instant;

use super::acknowledge::give_back;
use super::in_flight::{InFlight, RecordState};
use super::{Limits, Lost, SharePartition};

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Released {
    /// Ranges that a member lost, with the deliveries until then.
    pub ranges: Vec<(i64, i64, i16)>,
    /// Those of them that are out of deliveries.
    pub lost: Vec<Lost>,
}

impl SharePartition {
    /// Ends the locks whose time is over.
    pub fn expire(&mut self, now: Instant, limits: &Limits) -> Released {
        let mut released = Released::default();
        let mut touched = Vec::new();
        while let Some(Reverse((end, first))) = self.locks.peek().copied() {
            if end > now {
                break;
            }
            self.locks.pop();
            if !touched.contains(&first) {
                touched.push(first);
            }
        }
        for first in touched {
            self.release_in(first, limits, &mut released, |state| state.is_overdue(now));
        }
        self.settle_released(released)
    }

    /// Takes away all that a member holds: its share session ended.
    pub fn release_member(&mut self, member_id: &str, limits: &Limits) -> Released {
        let mut released = Released::default();
        let firsts: Vec<i64> = self.in_flight.keys().copied().collect();
        for first in firsts {
            self.release_in(first, limits, &mut released, |state| {
                state.is_held_by(member_id)
            });
        }
        self.settle_released(released)
    }

    /// Takes one offset's lock away, as if its time were over.
    pub fn expire_offset(&mut self, offset: i64, limits: &Limits) -> Released {
        let mut released = Released::default();
        let batch = self.in_flight.range_mut(..=offset).next_back();
        if let Some((first, batch)) = batch.filter(|(_, batch)| batch.last_offset >= offset) {
            let first = *first;
            let record = batch
                .track_each(first)
                .get_mut(usize::try_from(offset - first).unwrap_or(usize::MAX));
            if let Some(record) =
                record.filter(|record| matches!(record.state, RecordState::Acquired { .. }))
            {
                take_back(record, offset, offset, limits, &mut released);
            }
        }
        self.settle_released(released)
    }

    fn release_in(
        &mut self,
        first: i64,
        limits: &Limits,
        released: &mut Released,
        is_due: impl Fn(&RecordState) -> bool,
    ) {
        let start = self.start_offset;
        let Some(batch) = self.in_flight.get_mut(&first) else {
            return;
        };
        for (first, last, record) in batch.runs_mut(first) {
            if is_due(&record.state) {
                take_back(record, first.max(start), last, limits, released);
            }
        }
    }

    fn settle_released(&mut self, released: Released) -> Released {
        if !released.ranges.is_empty() {
            self.look_back = true;
            self.store();
            self.advance();
        }
        released
    }
}

fn take_back(
    record: &mut InFlight,
    first: i64,
    last: i64,
    limits: &Limits,
    released: &mut Released,
) {
    released.ranges.push((first, last, record.delivery_count));
    released.lost.extend(give_back(record, first, last, limits));
}
