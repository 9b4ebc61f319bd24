//! Out of the group for a while: an application that doesn't poll holds partitions that others could
//! serve (`max.poll.interval.ms`).
//!
//! Leaving goes the way of a close: acknowledgements are flushed, the sessions closed, the group left. But
//! the core lives on, and joins again under the same member id.

use std::time::{Duration, Instant};

use super::{Phase, SessionCore};
use crate::acquired::State;
use crate::event::{AckFailure, Event, Warning};
use crate::trouble::Subject;

/// What follows once the group is left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Afterwards {
    /// The member's end.
    #[default]
    End,
    /// Nothing, until the application shows life.
    Wait,
    /// It has shown life while the member was leaving.
    Rejoin,
}

impl SessionCore {
    /// Leaves the group until [`rejoin`](Self::rejoin), since the application has not polled for `limit`. What
    /// it holds counts as lost ([`Event::LockLost`]): the broker gives it to others when the sessions close.
    /// Acknowledgements made before are flushed.
    pub fn step_out(&mut self, now: Instant, limit: Duration) {
        if self.phase != Phase::Running {
            return;
        }
        self.phase = Phase::Closing;
        self.afterwards = Afterwards::Wait;
        self.lose_held();
        if !self.assignment.is_empty() {
            self.assignment.clear();
            self.topology.assigned(now, &self.assignment);
            self.events.push_back(Event::AssignmentChanged);
        }
        self.warn(now, Subject::Membership, Warning::NotPolled { limit });
        self.flush(now);
        self.advance_close(now);
    }

    fn lose_held(&mut self) {
        let ids: Vec<_> = self.book.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.book.lose(
                id,
                i64::MIN,
                i64::MAX,
                AckFailure::SessionEnded,
                |segment| matches!(segment.state, State::Held | State::Delayed { .. }),
            );
        }
    }

    /// Joins the group again after [`step_out`](Self::step_out); at once, or as soon as it is left.
    pub fn rejoin(&mut self, now: Instant) {
        match self.phase {
            Phase::Away => {
                self.phase = Phase::Running;
                self.afterwards = Afterwards::End;
                self.member.join_again(now);
                self.topology.refresh(now);
            }
            Phase::Closing | Phase::Leaving if self.afterwards == Afterwards::Wait => {
                self.afterwards = Afterwards::Rejoin;
            }
            _ => {}
        }
    }

    /// The group is left.
    pub(super) fn left(&mut self, now: Instant) {
        match self.afterwards {
            Afterwards::End => self.end(),
            Afterwards::Wait => self.phase = Phase::Away,
            Afterwards::Rejoin => {
                self.phase = Phase::Away;
                self.rejoin(now);
            }
        }
    }
}
