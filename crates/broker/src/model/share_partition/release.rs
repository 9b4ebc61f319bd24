//! Records that come back without an acknowledgement: locks that end, members that go.

use std::cmp::Reverse;
use std::time::Instant;

use sharegroup_wire::message::share_fetch::AcquiredRecords;

use super::acknowledge::give_back;
use super::in_flight::{InFlight, RecordState, Tracking};
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

    /// Archives what was just acquired of aborted transactions, given by their batches; returns the
    /// ranges without them (`share.isolation.level=read_committed`).
    pub fn archive_aborted(
        &mut self,
        acquired: &[AcquiredRecords],
        aborted: &[(i64, i64)],
    ) -> Vec<AcquiredRecords> {
        let mut left = Vec::new();
        for range in acquired {
            let mut next = range.first_offset;
            for (first, last) in aborted {
                let (first, last) = ((*first).max(next), (*last).min(range.last_offset));
                if first > last {
                    continue;
                }
                push_range(&mut left, range, next, first - 1);
                self.archive(first, last);
                next = last + 1;
            }
            push_range(&mut left, range, next, range.last_offset);
        }
        self.store();
        self.advance();
        left
    }

    fn archive(&mut self, first_offset: i64, last_offset: i64) {
        let floor = self.in_flight.range(..=first_offset).next_back();
        let from = floor.map_or(first_offset, |(first, _)| *first);
        for (first, batch) in self.in_flight.range_mut(from..=last_offset) {
            let is_whole = *first >= first_offset && batch.last_offset <= last_offset;
            if let (true, Tracking::Whole(record)) = (is_whole, &mut batch.tracking) {
                record.state = RecordState::Archived;
                continue;
            }
            for (offset, record) in (*first..).zip(batch.track_each(*first)) {
                if (first_offset..=last_offset).contains(&offset) {
                    record.state = RecordState::Archived;
                }
            }
        }
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

fn push_range(ranges: &mut Vec<AcquiredRecords>, of: &AcquiredRecords, first: i64, last: i64) {
    if first <= last {
        ranges.push(AcquiredRecords {
            first_offset: first,
            last_offset: last,
            delivery_count: of.delivery_count,
        });
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
