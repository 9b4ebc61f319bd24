//! When something is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use sharegroup_wire::BrokerId;

use super::LinkId;
use super::faults::RuleId;
use super::topics::Place;

/// What may be due. A timer may come up for nothing: whoever handles it looks first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A lock of a share partition ends.
    Lock(String, Place),
    /// A member's session ends.
    Member(String, String),
    /// A transaction has been open for too long.
    Transaction(String),
    /// A parked request has waited long enough.
    Parked(u64),
    /// An answer that a fault held back goes out.
    Answer(LinkId),
    /// A scripted rule looks.
    Rule(RuleId),
    /// A broker that crashed takes connections again.
    Up(BrokerId),
}

#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Instant, Timer)>>);

impl Timers {
    pub(super) fn set(&mut self, at: Instant, timer: Timer) {
        self.0.push(Reverse((at, timer)));
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    pub(super) fn due(&mut self, now: Instant) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, timer))| timer)
    }
}
