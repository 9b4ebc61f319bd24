//! Mistakes that a client could make, planted between the cores and the network or the application:
//! a simulator that doesn't see them proves nothing.

use std::collections::{BTreeMap, BTreeSet};

use sharegroup_broker::model::topics::Place;
use sharegroup_session::{AckOutcome, Acknowledgement, Event};
use sharegroup_wire::message::metadata::MetadataResponse;
use sharegroup_wire::message::share_acknowledge::ShareAcknowledgeResponse;
use sharegroup_wire::message::share_fetch::{
    AcknowledgementBatch, ShareFetchRequest, ShareFetchResponse,
};
use sharegroup_wire::message::share_group_heartbeat::{
    ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
};
use sharegroup_wire::{ErrorCode, TopicId};

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
    /// Acknowledgements of a topic that was deleted go to the topic that has its name now.
    AcknowledgeToNamesake,
    /// Partitions that a topic got later are not fetched.
    IgnoreNewPartitions,
    /// Acknowledgements of topics that aren't subscribed to any more are dropped.
    LoseAcknowledgementsOfUnsubscribed,
    /// The coordinator is not told of a new subscription.
    KeepFirstSubscription,
    /// A member gives up where a broker takes no more share sessions.
    SessionLimitIsTheEnd,
    /// A member gives up where the group takes nobody in.
    FullGroupIsTheEnd,
    /// The lock duration that was told first counts for good.
    KeepFirstLock,
    /// Requests go on where a broker throttles.
    IgnoreThrottle,
    /// Acknowledgements that were refused for want of a right count as applied.
    DeniedCountsAsApplied,
    /// What was dropped is released at once.
    ReleaseDroppedAtOnce,
    /// What was dropped on its last delivery is released like any other.
    ReleaseLastDelivery,
    /// An application on which a lock ran out is given more.
    NeverStall,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 29] = [
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
        Self::AcknowledgeToNamesake,
        Self::IgnoreNewPartitions,
        Self::LoseAcknowledgementsOfUnsubscribed,
        Self::KeepFirstSubscription,
        Self::SessionLimitIsTheEnd,
        Self::FullGroupIsTheEnd,
        Self::KeepFirstLock,
        Self::IgnoreThrottle,
        Self::DeniedCountsAsApplied,
        Self::ReleaseDroppedAtOnce,
        Self::ReleaseLastDelivery,
        Self::NeverStall,
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
    /// What was told first.
    first_lock_ms: Option<i32>,
    first_subscriptions: BTreeMap<String, Vec<String>>,
    first_partitions: BTreeMap<TopicId, usize>,
}

impl Spoiler {
    pub(super) const fn new(planted: Option<Planted>) -> Self {
        Self {
            planted,
            remembered: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            acquired: 0,
            first_lock_ms: None,
            first_subscriptions: BTreeMap::new(),
            first_partitions: BTreeMap::new(),
        }
    }

    pub(super) fn is(&self, planted: Planted) -> bool {
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
        self.spoil_head(
            &mut response.error_code,
            &mut response.acquisition_lock_timeout_ms,
            &mut response.throttle_time_ms,
        );
        for topic in &mut response.responses {
            for partition in &mut topic.partitions {
                self.spoil_result(&mut partition.acknowledge_error_code);
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

    pub(super) fn spoil_acknowledged(&mut self, response: &mut ShareAcknowledgeResponse) {
        self.spoil_head(
            &mut response.error_code,
            &mut response.acquisition_lock_timeout_ms,
            &mut response.throttle_time_ms,
        );
        let topics = response.responses.iter_mut();
        for partition in topics.flat_map(|topic| &mut topic.partitions) {
            self.spoil_result(&mut partition.error_code);
        }
    }

    /// What both answers of share sessions begin with.
    fn spoil_head(&mut self, error: &mut ErrorCode, lock_ms: &mut i32, throttle_ms: &mut i32) {
        match self.planted {
            Some(Planted::LockTooLong) => *lock_ms *= 3,
            Some(Planted::KeepFirstLock) if *lock_ms > 0 => {
                *lock_ms = *self.first_lock_ms.get_or_insert(*lock_ms);
            }
            Some(Planted::IgnoreThrottle) => *throttle_ms = 0,
            Some(Planted::SessionLimitIsTheEnd)
                if *error == ErrorCode::ShareSessionLimitReached =>
            {
                *error = ErrorCode::UnsupportedVersion;
            }
            _ => {}
        }
    }

    fn spoil_result(&self, error: &mut ErrorCode) {
        match self.planted {
            Some(Planted::FailedRenewalCounts) => *error = ErrorCode::None,
            Some(Planted::DeniedCountsAsApplied)
                if *error == ErrorCode::TopicAuthorizationFailed =>
            {
                *error = ErrorCode::None;
            }
            _ => {}
        }
    }

    pub(super) fn spoil_heartbeat(&mut self, request: &mut ShareGroupHeartbeatRequest) {
        if self.is(Planted::KeepFirstSubscription)
            && let Some(topics) = &mut request.subscribed_topic_names
        {
            let member = request.member_id.clone();
            let first = self.first_subscriptions.entry(member);
            topics.clone_from(first.or_insert_with(|| topics.clone()));
        }
    }

    pub(super) fn spoil_beaten(&self, response: &mut ShareGroupHeartbeatResponse) {
        let is_full = response.error_code == ErrorCode::GroupMaxSizeReached;
        if self.is(Planted::FullGroupIsTheEnd) && is_full {
            response.error_code = ErrorCode::InvalidRequest;
        }
    }

    pub(super) fn spoil_metadata(&mut self, response: &mut MetadataResponse) {
        if self.is(Planted::IgnoreNewPartitions) {
            for topic in &mut response.topics {
                let count = topic.partitions.len();
                let first = self.first_partitions.entry(topic.topic_id);
                topic.partitions.truncate(*first.or_insert(count));
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
        let mut added = self.planted.remembered(number, &ended);
        match planted {
            Planted::LoseAcknowledgementsOfUnsubscribed => {
                let member = &self.members[self.network.connections[number].member];
                for (place, batches) in request.batches() {
                    let topic = self.model.topics.get(place.0);
                    if topic.is_some_and(|topic| !member.subscribed.contains(&topic.name)) {
                        batches.clear();
                    }
                }
            }
            Planted::AcknowledgeToNamesake => {
                for (place, batches) in request.batches() {
                    if let Some(namesake) = self.namesake(place) {
                        added.extend(batches.drain(..).map(|batch| (namesake, batch)));
                    }
                }
            }
            _ => {}
        }
        for (place, batches) in request.batches() {
            self.planted.spoil_batches(planted, number, place, batches);
        }
        for (place, batch) in added {
            request.add(place, batch);
        }
    }

    /// The partition that stands in for one whose topic was deleted.
    fn namesake(&self, (id, index): Place) -> Option<Place> {
        let name = self.topic_names.get(&id)?;
        let present = self.model.topics.named(name)?.id;
        (present != id).then_some((present, index))
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
