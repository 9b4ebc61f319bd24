//! Requests that wait for data: the broker's purgatory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use sharegroup_wire::frame::encode_response;
use sharegroup_wire::message::fetch::FetchRequest;
use sharegroup_wire::message::share_fetch::{ShareFetchRequest, ShareFetchResponse};

use super::timers::Timer;
use super::topics::Place;
use super::{Call, LinkId, Model, ShareFetchWait};

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) call: Call,
    pub(crate) deadline: Instant,
    pub(crate) wait: Wait,
}

/// What it waits for.
#[derive(Debug)]
pub(crate) enum Wait {
    /// Records that can be acquired.
    ShareFetch(ShareFetchWait),
    /// Records of a log.
    Fetch(FetchWait),
    /// Nothing but time: this is the answer.
    Time(ShareFetchResponse),
}

/// A plain fetch that waits.
#[derive(Debug)]
pub(crate) struct FetchWait {
    pub(crate) request: FetchRequest,
    pub(crate) places: Vec<Place>,
}

impl Wait {
    fn places(&self) -> &[Place] {
        match self {
            Self::ShareFetch(wait) => &wait.places,
            Self::Fetch(wait) => &wait.places,
            Self::Time(_) => &[],
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct ParkedRequests {
    requests: BTreeMap<u64, Parked>,
    /// Who waits for a partition, oldest first.
    watching: BTreeMap<Place, BTreeSet<u64>>,
    last_id: u64,
}

impl ParkedRequests {
    fn insert(&mut self, parked: Parked) -> u64 {
        self.last_id += 1;
        for place in parked.wait.places() {
            self.watching
                .entry(*place)
                .or_default()
                .insert(self.last_id);
        }
        self.requests.insert(self.last_id, parked);
        self.last_id
    }

    fn remove(&mut self, id: u64) -> Option<Parked> {
        let parked = self.requests.remove(&id)?;
        for place in parked.wait.places() {
            if let Some(ids) = self.watching.get_mut(place) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.watching.remove(place);
                }
            }
        }
        Some(parked)
    }

    pub(super) fn is_on(&self, link: LinkId) -> bool {
        self.requests
            .values()
            .any(|parked| parked.call.link == link)
    }

    pub(super) fn remove_on(&mut self, link: LinkId) {
        let on = self
            .requests
            .iter()
            .filter(|(_, parked)| parked.call.link == link);
        for id in on.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.remove(id);
        }
    }
}

impl Model {
    /// Lets a request wait.
    pub(crate) fn park(&mut self, parked: Parked) {
        let deadline = parked.deadline;
        let id = self.parked.insert(parked);
        self.timers.set(deadline, Timer::Parked(id));
    }

    /// Offers every waiting request whose partitions were touched an answer, oldest first.
    pub(super) fn complete_parked(&mut self, now: Instant) {
        while let Some(place) = self.touched.pop_first() {
            let ids = self
                .parked
                .watching
                .get(&place)
                .cloned()
                .unwrap_or_default();
            for id in ids {
                self.try_parked(now, id, false);
            }
        }
    }

    /// A request has waited long enough.
    pub(super) fn finish_parked(&mut self, now: Instant, id: u64) {
        self.try_parked(now, id, true);
    }

    fn try_parked(&mut self, now: Instant, id: u64, is_over: bool) {
        let Some(mut parked) = self.parked.requests.remove(&id) else {
            return;
        };
        let Call {
            version,
            correlation_id,
            link,
            ..
        } = parked.call;
        let frame = match &mut parked.wait {
            Wait::ShareFetch(wait) => {
                let broker = parked.call.broker;
                let fetched = self.try_share_fetch(now, broker, wait, is_over);
                let answer = fetched.map(|fetched| self.share_fetch_answer(broker, wait, fetched));
                answer.map(|answer| {
                    encode_response::<ShareFetchRequest>(&answer, version, correlation_id)
                })
            }
            Wait::Fetch(wait) => {
                let answer = self.try_fetch(parked.call.broker, version, &wait.request, is_over);
                answer
                    .map(|answer| encode_response::<FetchRequest>(&answer, version, correlation_id))
            }
            Wait::Time(answer) => is_over
                .then(|| encode_response::<ShareFetchRequest>(answer, version, correlation_id)),
        };
        self.parked.requests.insert(id, parked);
        if let Some(frame) = frame {
            self.parked.remove(id);
            self.resume(now, link, frame);
        }
    }
}
