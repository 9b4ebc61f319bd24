//! One share partition: what a share group has done with the records of one partition.
//!
//! The leader of the partition keeps the states of the records between the start offset (SPSO) and
//! the end offset (SPEO): Available, Acquired, Acknowledged or Archived (KIP-932 "Share-partition
//! leader"). Below the start everything is settled, above the end nothing was handed out yet.
//!
//! ```text
//!            acquire                     ACCEPT
//! Available ─────────► Acquired ───────────────────────► Acknowledged
//!     ▲                 │  │ └─ REJECT, GAP ───────────► Archived
//!     └─ RELEASE, lock ─┘  └─── out of deliveries ─────► Archived
//! ```
//!
//! It knows neither time nor log: `now`, the group's [`Limits`] and the borders of the log's batches
//! are arguments. Compared with Kafka 4.4's `SharePartition`; where this page says *quirk*, the real
//! broker does so and clients meet it.

mod acknowledge;
mod acquire;
mod in_flight;
mod release;
mod stored;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

pub use acknowledge::{AckError, AckOutcome, Settlement, check_batches};
pub use acquire::{AcquireMode, AcquireTerms, Acquired};
pub use in_flight::{InFlight, RecordState};
pub use release::Released;
pub use stored::{StoredRange, StoredRecordState, StoredState};

use in_flight::InFlightBatch;

/// The group's settings that bear on its share partitions; may differ from call to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// `share.record.lock.duration.ms`.
    pub lock: Duration,
    /// `share.delivery.count.limit`.
    pub delivery_count_max: i16,
    /// `share.partition.max.record.locks`: most offsets between start and end.
    pub record_locks_max: i64,
    /// `share.renew.acknowledge.enable`.
    pub renew_enabled: bool,
}

/// A record that will never be delivered again without having been accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// First offset, inclusive.
    pub first_offset: i64,
    /// Last offset, inclusive.
    pub last_offset: i64,
    /// Deliveries until then.
    pub delivery_count: i16,
    /// Why.
    pub cause: LostCause,
}

/// Why a record is archived; a gap is no loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostCause {
    /// A member rejected it.
    Rejected,
    /// Given back on its last delivery.
    DeliveryCountExceeded,
}

/// What the share coordinator knows: what another leader would go on from, and what
/// DescribeShareGroupOffsets tells.
///
/// *Quirk*: a write carries the start offset from before the change that it records, so that the
/// stored start offset lags by one write; the count of settled records makes up for it (KIP-1226).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Start offset; −1 = nothing was written yet.
    pub start_offset: i64,
    /// Settled records at or above it.
    pub delivery_complete_count: i64,
}

impl Default for Stored {
    fn default() -> Self {
        Self {
            start_offset: -1,
            delivery_complete_count: 0,
        }
    }
}

/// The state of one share partition.
#[derive(Debug, Clone)]
pub struct SharePartition {
    start_offset: i64,
    end_offset: i64,
    /// By first offset, ascending, without overlap.
    in_flight: BTreeMap<i64, InFlightBatch>,
    /// Whether something below the end may be available.
    look_back: bool,
    /// Ends of locks with the first offset of their batch; may be outdated.
    locks: BinaryHeap<Reverse<(Instant, i64)>>,
    stored: Stored,
}

impl SharePartition {
    /// A share partition whose first record is to be `start_offset`.
    #[must_use]
    pub fn new(start_offset: i64) -> Self {
        Self {
            start_offset,
            end_offset: start_offset,
            in_flight: BTreeMap::new(),
            look_back: false,
            locks: BinaryHeap::new(),
            stored: Stored::default(),
        }
    }

    /// A share partition whose start offset an admin has set: stored from the beginning.
    #[must_use]
    pub fn stored_at(start_offset: i64) -> Self {
        let mut partition = Self::new(start_offset);
        partition.stored.start_offset = start_offset;
        partition
    }

    /// The first offset that isn't settled (SPSO).
    #[must_use]
    pub const fn start_offset(&self) -> i64 {
        self.start_offset
    }

    /// The last offset that was handed out (SPEO), or the start offset where none is in flight.
    #[must_use]
    pub const fn end_offset(&self) -> i64 {
        self.end_offset
    }

    /// What the share coordinator knows.
    #[must_use]
    pub const fn stored(&self) -> Stored {
        self.stored
    }

    /// Where an offset stands; `None` outside what is in flight.
    #[must_use]
    pub fn record(&self, offset: i64) -> Option<&InFlight> {
        let (first, batch) = self.in_flight.range(..=offset).next_back()?;
        if offset > batch.last_offset || offset < self.start_offset {
            return None;
        }
        batch.get(*first, offset)
    }

    /// Every offset in flight with its state, ascending.
    pub fn records(&self) -> impl Iterator<Item = (i64, &InFlight)> {
        let start = self.start_offset;
        self.in_flight
            .iter()
            .flat_map(|(first, batch)| batch.runs(*first))
            .flat_map(|(first, last, state)| (first..=last).map(move |offset| (offset, state)))
            .filter(move |(offset, _)| *offset >= start)
    }

    /// When the next lock may end; [`expire`](Self::expire) then.
    #[must_use]
    pub fn next_lock_end(&self) -> Option<Instant> {
        self.locks.peek().map(|Reverse((end, _))| *end)
    }

    /// Offsets between start and end: what counts against [`Limits::record_locks_max`].
    #[must_use]
    pub fn in_flight_count(&self) -> i64 {
        if self.in_flight.is_empty() {
            0
        } else {
            self.end_offset - self.start_offset + 1
        }
    }

    /// The offset to read next: the first one that is available, else the one behind the end.
    pub fn next_fetch_offset(&mut self) -> i64 {
        if self.in_flight.is_empty() {
            self.look_back = false;
            return self.end_offset;
        }
        if self.look_back {
            if let Some(offset) = self.first_available() {
                return offset;
            }
            self.look_back = false;
        }
        self.end_offset + 1
    }

    fn first_available(&self) -> Option<i64> {
        let mut next = self.start_offset;
        for (first, batch) in &self.in_flight {
            if next < *first {
                return Some(next);
            }
            next = next.max(batch.last_offset + 1);
            let mut runs = batch.runs(*first);
            let available = runs.find(|(_, last, record)| {
                record.state == RecordState::Available && *last >= self.start_offset
            });
            if let Some((offset, ..)) = available {
                return Some(offset.max(self.start_offset));
            }
        }
        None
    }

    /// Whether a fetch may get anything: something is available, or the window has room.
    pub fn can_acquire(&mut self, limits: &Limits) -> bool {
        self.next_fetch_offset() <= self.end_offset && !self.in_flight.is_empty()
            || self.in_flight_count() < limits.record_locks_max
    }

    /// The log begins at `log_start_offset` now: what was below is gone.
    pub fn cut_front(&mut self, log_start_offset: i64) {
        if log_start_offset <= self.start_offset {
            return;
        }
        self.start_offset = log_start_offset;
        self.in_flight
            .retain(|_, batch| batch.last_offset >= log_start_offset);
        if self.in_flight.is_empty() {
            self.end_offset = self.end_offset.max(log_start_offset);
        }
        self.advance();
    }

    /// Notes a write to the share coordinator; before [`advance`](Self::advance).
    fn store(&mut self) {
        let settled = self
            .in_flight
            .iter()
            .flat_map(|(first, batch)| batch.runs(*first));
        let settled = settled.filter(|(_, _, record)| record.state.is_terminal());
        let start = self.start_offset;
        let settled = settled.map(|(first, last, _)| (last - first.max(start) + 1).max(0));
        self.stored = Stored {
            start_offset: start,
            delivery_complete_count: settled.sum(),
        };
    }

    /// Moves the start past everything that is settled at the front.
    fn advance(&mut self) {
        let Some(settled) = self.last_settled_in_front() else {
            return;
        };
        self.start_offset = settled + 1;
        self.in_flight
            .retain(|_, batch| batch.last_offset > settled);
        if self.in_flight.is_empty() {
            self.end_offset = self.start_offset;
        }
    }

    fn last_settled_in_front(&self) -> Option<i64> {
        let mut settled = None;
        let mut next = self.start_offset;
        for (first, batch) in &self.in_flight {
            if *first > next {
                break;
            }
            for (_, last, record) in batch.runs(*first) {
                if last < self.start_offset {
                    continue;
                }
                if !record.state.is_terminal() {
                    return settled;
                }
                settled = Some(last);
            }
            next = batch.last_offset + 1;
        }
        settled
    }

    fn watch_lock(&mut self, end: Instant, first_offset: i64) {
        self.locks.push(Reverse((end, first_offset)));
    }
}
