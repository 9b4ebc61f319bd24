//! What a test wants to go wrong.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sharegroup_wire::ErrorCode;

use super::topics::Place;

/// What becomes of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it is answered.
    None,
    /// It is not looked at and answered with this error, at top level or in each of its entries.
    Error(ErrorCode),
    /// It is worked on at once and answered so much later; the connection waits.
    Delay(Duration),
    /// The connection is cut on receipt, before any effect.
    CutBefore,
    /// The connection is cut when the work is done, in place of the answer.
    CutAfter,
    /// It is worked on and never answered; the connection waits for ever.
    Withhold,
    /// It is answered twice.
    Duplicate,
}

/// The faults that are waiting.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    requests: BTreeMap<i16, VecDeque<Fault>>,
    partitions: BTreeMap<(i16, Place), (ErrorCode, u32)>,
}

impl Faults {
    /// What becomes of the next requests of an API, in their order. Behind them all goes well again.
    pub fn add(&mut self, api_key: i16, faults: impl IntoIterator<Item = Fault>) {
        self.requests.entry(api_key).or_default().extend(faults);
    }

    /// The next `count` times that an API touches a partition it fails with this error.
    pub fn fail(&mut self, api_key: i16, place: Place, error: ErrorCode, count: u32) {
        self.partitions.insert((api_key, place), (error, count));
    }

    /// All goes well again.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.partitions.clear();
    }

    /// The fault of a request that has come.
    pub(crate) fn next(&mut self, api_key: i16) -> Fault {
        let queue = self.requests.get_mut(&api_key);
        queue.and_then(VecDeque::pop_front).unwrap_or(Fault::None)
    }

    /// The error of a partition that an API is about to touch.
    pub(crate) fn partition(&mut self, api_key: i16, place: Place) -> Option<ErrorCode> {
        if self.partitions.is_empty() {
            return None;
        }
        let (error, count) = self.partitions.get_mut(&(api_key, place))?;
        let error = *error;
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.partitions.remove(&(api_key, place));
        }
        Some(error)
    }

    /// Whether a partition is going to fail.
    pub(crate) fn is_failing(&self, api_key: i16, place: Place) -> bool {
        self.partitions.contains_key(&(api_key, place))
    }
}
