//! Which broker coordinates the group.

use std::time::{Duration, Instant};

use sharegroup_wire::BrokerId;

#[derive(Debug)]
enum State {
    Unknown { ask_at: Instant },
    Asked,
    Known(BrokerId),
}

#[derive(Debug)]
pub(crate) struct Coordinator {
    state: State,
    backoff: Duration,
}

impl Coordinator {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            state: State::Unknown { ask_at: now },
            backoff: Duration::from_millis(100),
        }
    }

    pub(crate) const fn known(&self) -> Option<BrokerId> {
        match self.state {
            State::Known(broker) => Some(broker),
            _ => None,
        }
    }

    /// When to ask.
    pub(crate) const fn next_at(&self) -> Option<Instant> {
        match self.state {
            State::Unknown { ask_at } => Some(ask_at),
            _ => None,
        }
    }

    /// Whether to ask now; if so it counts as asked.
    pub(crate) fn poll(&mut self, now: Instant) -> bool {
        let due = self.next_at().is_some_and(|at| at <= now);
        if due {
            self.state = State::Asked;
        }
        due
    }

    pub(crate) fn found(&mut self, broker: BrokerId) {
        self.state = State::Known(broker);
        self.backoff = Duration::from_millis(100);
    }

    /// Look it up again, after a pause that grows with every failure.
    pub(crate) fn lost(&mut self, now: Instant, backoff_max: Duration) {
        if matches!(self.state, State::Unknown { .. }) {
            return;
        }
        self.state = State::Unknown {
            ask_at: now + self.backoff,
        };
        self.backoff = (self.backoff * 2).min(backoff_max);
    }
}
