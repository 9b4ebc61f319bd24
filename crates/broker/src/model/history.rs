//! What happened, for checks: off until a test asks for it, since it only ever grows.

use std::time::Instant;

use bytes::Bytes;
use sharegroup_wire::BrokerId;
use sharegroup_wire::message::share_fetch::AcquiredRecords;

use super::topics::Place;
use super::{LinkId, Model};

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A request reached a broker.
    Request {
        /// On which connection.
        link: LinkId,
        /// Which broker.
        broker: BrokerId,
        /// The API's key.
        api_key: i16,
        /// Its version.
        api_version: i16,
        /// The whole frame, without its size.
        frame: Bytes,
    },
    /// A member was given records.
    Acquired {
        /// Its group.
        group_id: String,
        /// The member.
        member_id: String,
        /// The partition.
        place: Place,
        /// The records.
        ranges: Vec<AcquiredRecords>,
    },
    /// A member's acknowledgements were applied, or renewed locks.
    Acknowledged {
        /// Its group.
        group_id: String,
        /// The member.
        member_id: String,
        /// The partition.
        place: Place,
        /// First and last offset, and the wire's type.
        applied: Vec<(i64, i64, i8)>,
    },
    /// Locks ended by time.
    Expired {
        /// The group.
        group_id: String,
        /// The partition.
        place: Place,
        /// First and last offset, and deliveries so far.
        ranges: Vec<(i64, i64, i16)>,
    },
    /// A share session ended, and what its member held came back.
    Released {
        /// Its group.
        group_id: String,
        /// The member.
        member_id: String,
        /// The partition.
        place: Place,
        /// First and last offset, and deliveries so far.
        ranges: Vec<(i64, i64, i16)>,
    },
}

/// Events in their order, each with its time.
#[derive(Debug, Clone, Default)]
pub struct History(Option<Vec<(Instant, Event)>>);

impl History {
    /// What happened since [`Model::record_history`].
    #[must_use]
    pub fn events(&self) -> &[(Instant, Event)] {
        self.0.as_deref().unwrap_or_default()
    }

    /// What happened since the last call; it is forgotten then.
    pub fn take(&mut self) -> Vec<(Instant, Event)> {
        self.0.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Notes an event, which is made only where somebody wants to know.
    pub(super) fn note(&mut self, at: Instant, event: impl FnOnce() -> Event) {
        if let Some(events) = &mut self.0 {
            events.push((at, event()));
        }
    }
}

impl Model {
    /// Notes from now on what happens; see [`history`](Self::history).
    pub fn record_history(&mut self) {
        self.history.0.get_or_insert_default();
    }
}
