//! Handing out records.

use std::sync::Arc;
use std::time::Instant;

use sharegroup_wire::message::share_fetch::AcquiredRecords;

use super::in_flight::{InFlight, InFlightBatch, RecordState, Tracking};
use super::{Limits, SharePartition};

/// How a fetch counts (KIP-1206).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcquireMode {
    /// Whole batches; the number of records is soft.
    BatchOptimized,
    /// Never more records than asked for.
    RecordLimit,
}

/// What a fetch asks of one partition.
#[derive(Debug, Clone)]
pub struct AcquireTerms {
    /// Who fetches.
    pub member_id: Arc<str>,
    /// How to count.
    pub mode: AcquireMode,
    /// Most records.
    pub records_max: i64,
    /// Target size of the ranges that are handed out together, in records.
    pub batch_size: i64,
}

/// What was handed out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Acquired {
    /// The ranges, ascending.
    pub ranges: Vec<AcquiredRecords>,
    /// Offsets inside them.
    pub count: i64,
}

impl Acquired {
    /// Adds an offset, joined to the last range from index `joins_from` on where it continues it.
    fn push_joined(&mut self, joins_from: usize, offset: i64, delivery_count: i16) {
        self.count += 1;
        let own = self.ranges.get_mut(joins_from..).unwrap_or_default();
        match own.last_mut() {
            Some(last)
                if last.last_offset + 1 == offset && last.delivery_count == delivery_count =>
            {
                last.last_offset = offset;
            }
            _ => self.ranges.push(AcquiredRecords {
                first_offset: offset,
                last_offset: offset,
                delivery_count,
            }),
        }
    }

    fn push(&mut self, first_offset: i64, last_offset: i64, delivery_count: i16) {
        self.count += last_offset - first_offset + 1;
        self.ranges.push(AcquiredRecords {
            first_offset,
            last_offset,
            delivery_count,
        });
    }
}

/// The borders of what was read from the log, and how much of it may be handed out.
struct Plan<'a> {
    terms: &'a AcquireTerms,
    limits: &'a Limits,
    lock_end: Instant,
    /// First and last offset of each batch read, ascending.
    batches: &'a [(i64, i64)],
    /// Base offset of the first batch read.
    first_offset: i64,
    last_offset: i64,
    records_max: i64,
}

impl SharePartition {
    /// How far [`acquire`](Self::acquire) looks when it is given what was read from `fetch_offset` on:
    /// batches that begin behind this offset make no difference to it.
    #[must_use]
    pub fn reach(&self, terms: &AcquireTerms, limits: &Limits, fetch_offset: i64) -> i64 {
        let records_max = terms.records_max.min(limits.record_locks_max);
        let new = fetch_offset.max(self.end_offset.saturating_add(1));
        new.saturating_add(records_max)
    }

    /// Acquires what the terms allow of the batches that were read from `fetch_offset` on, given by
    /// their first and last offsets.
    pub fn acquire(
        &mut self,
        now: Instant,
        terms: &AcquireTerms,
        limits: &Limits,
        fetch_offset: i64,
        batches: &[(i64, i64)],
    ) -> Acquired {
        let mut acquired = Acquired::default();
        let (Some((first_offset, _)), Some((_, last_offset))) = (batches.first(), batches.last())
        else {
            return acquired;
        };
        let (last_offset, records_max) =
            self.room(limits, fetch_offset, terms.records_max, *last_offset);
        if records_max <= 0 || last_offset < self.start_offset {
            return acquired;
        }
        let plan = Plan {
            terms,
            limits,
            lock_end: now + limits.lock,
            batches,
            first_offset: *first_offset,
            last_offset,
            records_max,
        };
        let mut next = plan.first_offset.max(self.start_offset);
        if self.acquire_again(&plan, &mut next, &mut acquired)
            && next <= plan.last_offset
            && acquired.count < plan.records_max
        {
            self.acquire_new(&plan, next, plan.last_offset, &mut acquired);
        }
        acquired
    }

    /// The last offset and the number of records that may be acquired: the window leaves room for
    /// some, or is full and only what is inside it can be handed out again.
    fn room(&self, limits: &Limits, fetch_offset: i64, wanted: i64, last: i64) -> (i64, i64) {
        let room = wanted.min(limits.record_locks_max - self.in_flight_count());
        if room > 0 || fetch_offset > self.end_offset {
            return (last, room);
        }
        let inside = self.end_offset - fetch_offset + 1;
        (last.min(self.end_offset), wanted.min(inside))
    }

    /// Hands out again what is available below the end. Moves `next` behind what it has looked at;
    /// returns whether new records may follow.
    fn acquire_again(&mut self, plan: &Plan<'_>, next: &mut i64, acquired: &mut Acquired) -> bool {
        let before = self.in_flight.range(..=plan.first_offset).next_back();
        let from = before
            .filter(|(_, batch)| batch.last_offset >= plan.first_offset)
            .map_or(plan.first_offset, |(first, _)| *first);
        let firsts = self.in_flight.range(from..=plan.last_offset);
        let firsts: Vec<i64> = firsts.map(|(first, _)| *first).collect();
        for first in firsts {
            if acquired.count >= plan.records_max {
                return false;
            }
            // What another leader never stored lies between ranges that it did.
            if *next < first {
                self.acquire_new(plan, *next, first - 1, acquired);
                if acquired.count >= plan.records_max {
                    return false;
                }
            }
            let Some(batch) = self.in_flight.get_mut(&first) else {
                continue;
            };
            *next = (*next).max(batch.last_offset + 1);
            let narrow = must_narrow(batch, first, plan);
            // What is narrowed travels alone.
            if narrow && acquired.count > 0 {
                return false;
            }
            let count = acquire_batch(batch, first, plan, narrow, acquired);
            if count > 0 {
                self.watch_lock(plan.lock_end, first);
                if narrow {
                    return false;
                }
            }
        }
        true
    }

    /// Hands out offsets for the first time.
    fn acquire_new(&mut self, plan: &Plan<'_>, first: i64, last: i64, acquired: &mut Acquired) {
        let left = plan.records_max - acquired.count;
        let mut last_acquired = last;
        if left < last - first + 1 {
            last_acquired = batch_end(plan.batches, first + left - 1).min(last);
        }
        if self.in_flight.is_empty() {
            self.start_offset = first;
        }
        self.end_offset = self.end_offset.max(last_acquired);
        if plan.terms.mode == AcquireMode::RecordLimit && last_acquired - first + 1 > left {
            self.split_new(plan, first, last_acquired, left, acquired);
            return;
        }
        let mut range_first = first;
        if plan.terms.mode == AcquireMode::BatchOptimized
            && last_acquired - first + 1 > plan.terms.batch_size
        {
            for (base, _) in plan.batches {
                if *base > last_acquired {
                    break;
                }
                if base - range_first >= plan.terms.batch_size && *base > range_first {
                    self.add_range(plan, range_first, base - 1, acquired);
                    range_first = *base;
                }
            }
        }
        self.add_range(plan, range_first, last_acquired, acquired);
    }

    fn add_range(&mut self, plan: &Plan<'_>, first: i64, last: i64, acquired: &mut Acquired) {
        let batch = InFlightBatch {
            last_offset: last,
            tracking: Tracking::Whole(plan.delivered(0)),
        };
        self.in_flight.insert(first, batch);
        self.watch_lock(plan.lock_end, first);
        acquired.push(first, last, 1);
    }

    /// *Quirk*: record-limit takes the whole batch into flight; what exceeds the limit is available
    /// to the next fetch with a delivery count of zero.
    fn split_new(
        &mut self,
        plan: &Plan<'_>,
        first: i64,
        last: i64,
        left: i64,
        acquired: &mut Acquired,
    ) {
        let mut batch = InFlightBatch {
            last_offset: last,
            tracking: Tracking::Whole(InFlight {
                state: RecordState::Available,
                delivery_count: 0,
            }),
        };
        let taken = usize::try_from(left).unwrap_or(0);
        for record in batch.track_each(first).iter_mut().take(taken) {
            *record = plan.delivered(0);
        }
        self.in_flight.insert(first, batch);
        self.look_back = true;
        self.watch_lock(plan.lock_end, first);
        acquired.push(first, first + left - 1, 1);
    }
}

impl Plan<'_> {
    /// The state of a record that is handed out after so many deliveries.
    fn delivered(&self, delivery_count: i16) -> InFlight {
        InFlight {
            state: RecordState::Acquired {
                member_id: Arc::clone(&self.terms.member_id),
                lock_end: self.lock_end,
            },
            delivery_count: delivery_count.saturating_add(1),
        }
    }

    fn contains(&self, offset: i64) -> bool {
        (self.first_offset..=self.last_offset).contains(&offset)
    }
}

/// From this count on a range is handed out in ever smaller parts, so that one record that kills
/// its consumers doesn't take the others with it.
fn narrow_from(limits: &Limits) -> i16 {
    let half = limits.delivery_count_max.saturating_add(1) / 2;
    half.max(2)
}

fn must_narrow(batch: &InFlightBatch, first: i64, plan: &Plan<'_>) -> bool {
    let threshold = narrow_from(plan.limits);
    match &batch.tracking {
        Tracking::Whole(record) => {
            record.state == RecordState::Available && record.delivery_count >= threshold
        }
        Tracking::Each(_) => batch.runs(first).any(|(offset, _, record)| {
            plan.contains(offset)
                && record.state == RecordState::Available
                && record.delivery_count >= threshold
        }),
    }
}

/// Acquires what is available of one batch; returns how many offsets.
fn acquire_batch(
    batch: &mut InFlightBatch,
    first: i64,
    plan: &Plan<'_>,
    narrow: bool,
    acquired: &mut Acquired,
) -> i64 {
    let size = batch.last_offset - first + 1;
    let is_inside = first >= plan.first_offset && batch.last_offset <= plan.last_offset;
    let exceeds =
        plan.terms.mode == AcquireMode::RecordLimit && size > plan.records_max - acquired.count;
    if let Tracking::Whole(record) = &mut batch.tracking {
        if record.state != RecordState::Available {
            return 0;
        }
        if is_inside && !exceeds && !narrow {
            *record = plan.delivered(record.delivery_count);
            acquired.push(first, batch.last_offset, record.delivery_count);
            return size;
        }
    }
    acquire_each(batch.track_each(first), first, plan, acquired)
}

/// Acquires what is available offset by offset, in the order of the log.
fn acquire_each(
    records: &mut [InFlight],
    first: i64,
    plan: &Plan<'_>,
    acquired: &mut Acquired,
) -> i64 {
    let limit = plan.limits.delivery_count_max;
    let threshold = narrow_from(plan.limits);
    let left = plan.records_max - acquired.count;
    let size = i64::try_from(records.len()).unwrap_or(i64::MAX);
    let joins_from = acquired.ranges.len();
    let mut part: Option<i64> = None;
    let mut count = 0;
    for (offset, record) in (first..).zip(records) {
        if !plan.contains(offset) || record.state != RecordState::Available {
            continue;
        }
        let delivered = record.delivery_count;
        // A last delivery travels alone, where there are more than two.
        let is_last = limit > 2 && delivered + 1 == limit;
        if is_last && count > 0 {
            break;
        }
        if delivered >= threshold && part.is_none() {
            let halvings = u32::try_from(delivered - threshold + 1).unwrap_or(0);
            part = Some(size.checked_shr(halvings).unwrap_or(0).max(1));
        }
        *record = plan.delivered(delivered);
        acquired.push_joined(joins_from, offset, record.delivery_count);
        count += 1;
        let is_full = plan.terms.mode == AcquireMode::RecordLimit && count == left;
        if is_last || is_full || part == Some(count) {
            break;
        }
    }
    count
}

/// The last offset of the batch that holds `offset`, or `offset` where none does.
fn batch_end(batches: &[(i64, i64)], offset: i64) -> i64 {
    let index = batches.partition_point(|(base, _)| *base <= offset);
    let batch = index.checked_sub(1).and_then(|index| batches.get(index));
    batch.map_or(offset, |(_, last)| offset.max(*last))
}
