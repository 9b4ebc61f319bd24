//! What a test wants to go wrong, and what reached the brokers.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sharegroup_wire::BrokerId;
use tokio::time::Instant;

use crate::model::LinkId;

/// What becomes of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it is answered.
    None,
    /// The broker works on it at once and answers so much later; nothing else is read from the
    /// connection meanwhile.
    Delay(Duration),
    /// It is never worked on, and never answered.
    Silence,
    /// The connection is dropped on receipt.
    Drop,
    /// The connection is dropped when the work is done, in place of the answer.
    DropAfter,
    /// The answer asks the client to send nothing for so long. The broker does go on reading, so that
    /// a test sees what the client sends all the same.
    Throttle(Duration),
}

/// A request that reached a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Instant,
    /// On which connection.
    pub link: LinkId,
    /// At which broker.
    pub broker: BrokerId,
    /// The API's key.
    pub api_key: i16,
    /// The version of the request.
    pub api_version: i16,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    next: BTreeMap<i16, VecDeque<Fault>>,
    pub(super) arrivals: Vec<Arrival>,
}

impl Faults {
    pub(super) fn add(&mut self, api_key: i16, faults: impl IntoIterator<Item = Fault>) {
        self.next.entry(api_key).or_default().extend(faults);
    }

    /// Notes a request, and says what becomes of it.
    pub(super) fn arrived(&mut self, arrival: Arrival) -> Fault {
        self.arrivals.push(arrival);
        let next = self
            .next
            .get_mut(&arrival.api_key)
            .and_then(VecDeque::pop_front);
        next.unwrap_or(Fault::None)
    }
}
