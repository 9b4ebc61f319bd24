//! Mistakes that a client could make, planted between the cores and the network or the application:
//! a simulator that doesn't see them proves nothing.

use std::collections::{BTreeMap, BTreeSet};

use sharegroup_broker::model::topics::Place;
use sharegroup_session::{AckOutcome, Acknowledgement, Event};
use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::share_acknowledge::ShareAcknowledgeResponse;
use sharegroup_wire::message::share_fetch::{
    AcknowledgementBatch, ShareFetchRequest, ShareFetchResponse,
};

use super::acknowledges::Acknowledges;
use super::judge::RENEW;
use super::network::Number;
use super::run::World;

/// A mistake of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Acknowledgements of a session that ended are sent in the next one.
    AcknowledgeInNextSession,
    /// What was acknowledged is acknowledged again.
    AcknowledgeTwice,
    /// A handle of an earlier acquisition settles a later one.
    StaleHandleSettles,
    /// A record is accepted when it arrives.
    AcceptOnArrival,
    /// A release is sent as a rejection.
    RejectForRelease,
    /// An acknowledgement of a record that was released.
    AcceptAfterRelease,
    /// Renewals are never sent.
    NeverRenew,
    /// A renewal that failed moves the deadline.
    FailedRenewalCounts,
    /// Locks are taken to last three times as long.
    LockTooLong,
    /// Offsets without a record are not acknowledged.
    LoseGaps,
    /// Acknowledgements of partitions that were forgotten are dropped.
    LoseAcknowledgementsOfForgotten,
    /// Fetches wait at the broker while records are held.
    LongPollWhileHolding,
    /// As many records as there are.
    IgnoreCredit,
    /// Some batches never reach the application.
    SwallowRecords,
    /// Lost locks are not told.
    SwallowLosses,
    /// Every outcome is told as a success.
    TellSuccess,
    /// A close lets everything lie.
    CloseSilently,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::AcknowledgeInNextSession,
        Self::AcknowledgeTwice,
        Self::StaleHandleSettles,
        Self::AcceptOnArrival,
        Self::RejectForRelease,
        Self::AcceptAfterRelease,
        Self::NeverRenew,
        Self::FailedRenewalCounts,
        Self::LockTooLong,
        Self::LoseGaps,
        Self::LoseAcknowledgementsOfForgotten,
        Self::LongPollWhileHolding,
        Self::IgnoreCredit,
        Self::SwallowRecords,
        Self::SwallowLosses,
        Self::TellSuccess,
        Self::CloseSilently,
    ];
}

/// Makes the planted mistake.
#[derive(Debug)]
pub(super) struct Spoiler {
    planted: Option<Planted>,
    /// What was sent on a connection, or is to be sent on it.
    remembered: BTreeMap<Number, Vec<(Place, AcknowledgementBatch)>>,
    forgotten: BTreeSet<(Number, Place)>,
    acquired: u64,
}

impl Spoiler {
    pub(super) const fn new(planted: Option<Planted>) -> Self {
        Self {
            planted,
            remembered: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            acquired: 0,
        }
    }

    fn is(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    pub(super) fn closes_silently(&self) -> bool {
        self.is(Planted::CloseSilently)
    }

    /// Whether the application never hears of it.
    pub(super) fn swallows(&mut self, event: &Event) -> bool {
        match event {
            Event::Acquired(_) if self.is(Planted::SwallowRecords) => {
                self.acquired += 1;
                self.acquired.is_multiple_of(10)
            }
            Event::LockLost(_) => self.is(Planted::SwallowLosses),
            _ => false,
        }
    }

    pub(super) fn spoil_outcome(&self, outcome: &mut AckOutcome) {
        if self.is(Planted::TellSuccess) {
            outcome.result = Ok(());
        }
    }

    pub(super) fn spoil_fetched(&mut self, number: Number, response: &mut ShareFetchResponse) {
        if self.is(Planted::LockTooLong) {
            response.acquisition_lock_timeout_ms *= 3;
        }
        for topic in &mut response.responses {
            for partition in &mut topic.partitions {
                if self.is(Planted::FailedRenewalCounts) {
                    partition.acknowledge_error_code = ErrorCode::None;
                }
                let place = (topic.topic_id, partition.partition_index);
                if self.is(Planted::AcceptOnArrival) {
                    let first = partition.acquired_records.first();
                    let batches = first.map(|range| batch(range.first_offset, 1));
                    let batches = batches.map(|batch| (place, batch));
                    self.remembered.entry(number).or_default().extend(batches);
                }
            }
        }
    }

    pub(super) fn spoil_acknowledged(&self, response: &mut ShareAcknowledgeResponse) {
        if self.is(Planted::LockTooLong) {
            response.acquisition_lock_timeout_ms *= 3;
        }
        if self.is(Planted::FailedRenewalCounts) {
            let topics = response.responses.iter_mut();
            for partition in topics.flat_map(|topic| &mut topic.partitions) {
                partition.error_code = ErrorCode::None;
            }
        }
    }

    /// What is to be acknowledged besides, in a request on `number`; `ended` are the connections that
    /// came before it.
    fn remembered(
        &mut self,
        number: Number,
        ended: &[Number],
    ) -> Vec<(Place, AcknowledgementBatch)> {
        match self.planted {
            Some(Planted::AcknowledgeInNextSession) => {
                let ended = ended.iter();
                let remembered = ended.filter_map(|other| self.remembered.remove(other));
                remembered.flatten().collect()
            }
            Some(
                Planted::AcknowledgeTwice | Planted::AcceptAfterRelease | Planted::AcceptOnArrival,
            ) => self.remembered.remove(&number).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    fn spoil_batches(
        &mut self,
        planted: Planted,
        number: Number,
        place: Place,
        batches: &mut Vec<AcknowledgementBatch>,
    ) {
        let is_type = |wire_type: i8| {
            move |batch: &AcknowledgementBatch| {
                batch.acknowledge_types.iter().all(|one| *one == wire_type)
            }
        };
        match planted {
            Planted::AcknowledgeInNextSession | Planted::AcknowledgeTwice => {
                let accepted = batches.iter().filter(|batch| is_type(1)(batch));
                let accepted = accepted.map(|batch| (place, batch.clone()));
                self.remembered.entry(number).or_default().extend(accepted);
            }
            Planted::AcceptAfterRelease => {
                let released = batches.iter().filter(|batch| is_type(2)(batch));
                let accepted = released.map(|released| {
                    let mut accepted = batch(released.first_offset, 1);
                    accepted.last_offset = released.last_offset;
                    (place, accepted)
                });
                self.remembered.entry(number).or_default().extend(accepted);
            }
            Planted::RejectForRelease => {
                let types = batches.iter_mut().flat_map(|b| &mut b.acknowledge_types);
                types.filter(|one| **one == 2).for_each(|one| *one = 3);
            }
            Planted::NeverRenew => batches.retain(|batch| !is_type(RENEW)(batch)),
            Planted::LoseGaps => batches.retain(|batch| !is_type(0)(batch)),
            Planted::LoseAcknowledgementsOfForgotten
                if self.forgotten.contains(&(number, place)) =>
            {
                batches.clear();
            }
            _ => {}
        }
    }
}

impl World {
    /// The connections of the same member to the same broker that have ended.
    fn ended_before(&self, number: Number) -> Vec<Number> {
        let this = &self.network.connections[number];
        let before = self.network.connections.iter().enumerate().take(number);
        let before = before.filter(|(_, other)| {
            other.member == this.member && other.broker == this.broker && !other.is_open
        });
        before.map(|(number, _)| number).collect()
    }

    pub(super) fn spoil_fetch(&mut self, number: Number, request: &mut ShareFetchRequest) {
        for topic in &request.forgotten_topics_data {
            for partition in &topic.partitions {
                let place = (topic.topic_id, *partition);
                self.planted.forgotten.insert((number, place));
            }
        }
        let is_open = request.share_session_epoch.0 > 0;
        match self.planted.planted {
            Some(Planted::LongPollWhileHolding) if is_open => {
                request.max_wait_ms = 60_000;
                request.min_bytes = i32::MAX;
            }
            Some(Planted::IgnoreCredit) => {
                request.max_records = 10_000;
                request.share_acquire_mode = 0;
            }
            _ => {}
        }
        if is_open {
            self.spoil(number, request);
        }
    }

    /// Changes what a request acknowledges.
    pub(super) fn spoil(&mut self, number: Number, request: &mut impl Acknowledges) {
        let Some(planted) = self.planted.planted else {
            return;
        };
        let ended = self.ended_before(number);
        let added = self.planted.remembered(number, &ended);
        for (place, batches) in request.batches() {
            self.planted.spoil_batches(planted, number, place, batches);
        }
        for (place, batch) in added {
            request.add(place, batch);
        }
    }

    /// A handler of an acquisition that is over settles what was acquired again since.
    pub(super) fn spoil_stale(&mut self, index: usize, holding: usize, range: (i64, i64)) {
        if !self.planted.is(Planted::StaleHandleSettles) {
            return;
        }
        let now = self.now;
        let member = &mut self.members[index];
        let place = member.holdings[holding].place;
        for later in member.holdings.iter().skip(holding + 1) {
            if later.place == place {
                let accept = Acknowledgement::Accept;
                member
                    .core
                    .acknowledge(now, later.id, range.0, range.1, accept);
            }
        }
    }
}

fn batch(offset: i64, wire_type: i8) -> AcknowledgementBatch {
    AcknowledgementBatch {
        first_offset: offset,
        last_offset: offset,
        acknowledge_types: vec![wire_type],
    }
}
