//! A member: the production core with an application on top.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sharegroup_broker::model::topics::Place;
use sharegroup_session::limits::DROP_DELAY_MIN;
use sharegroup_session::{
    AckFailure, AckOutcome, Acknowledgement, AcquireMode, Acquired, AcquisitionId, BrokerVersions,
    ConnectionId, Failure, LockLoss, MetadataTopics, Release, ReleaseReason, Request, SessionCore,
};
use sharegroup_wire::BrokerId;
use sharegroup_wire::message::find_coordinator::FindCoordinatorRequest;
use sharegroup_wire::message::metadata::{MetadataRequest, MetadataRequestTopic};
use sharegroup_wire::message::{self as wire};

use super::acknowledges::Acknowledges;
use super::judge::{Delivery, DeliveryId, Grant, RENEW};
use super::network::{Answer, Asked, Number, Purpose};
use super::planted::Planted;
use super::run::{GROUP, World};

/// One round of a request that isn't a share session's, as in the driver.
const COLD_ROUND: Duration = Duration::from_secs(5);

/// What an application said about an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Settled(Acknowledgement),
    /// Dropped, or held at the close: released by the core itself.
    LeftToCore,
}

impl Said {
    /// The acknowledgement that goes out for it.
    pub(super) const fn wire_type(self) -> i8 {
        match self {
            Self::Settled(how) => how.wire_type(),
            Self::LeftToCore => Acknowledgement::Release.wire_type(),
        }
    }
}

/// What a handler does in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Settle(Acknowledgement),
    Drop,
}

/// One acquisition as its owner sees it.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) id: AcquisitionId,
    pub(super) place: Place,
    pub(super) deliveries: BTreeMap<i64, DeliveryId>,
    /// Offsets that are ours to settle.
    pub(super) held: BTreeSet<i64>,
    pub(super) said: BTreeMap<i64, Said>,
    /// When the lock ends, as the core told last.
    deadline: Instant,
    /// When the application dropped an offset.
    dropped_at: BTreeMap<i64, Instant>,
    /// Offsets whose fate was told, and what it was.
    pub(super) told: BTreeMap<i64, Result<Acknowledgement, AckFailure>>,
}

/// Where a member's process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Running,
    Closing,
    Closed,
    /// Killed, or its machine is gone.
    Dead,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) core: SessionCore,
    pub(super) life: Life,
    /// Of the share requests.
    pub(super) version: i16,
    pub(super) records_held_max: u64,
    /// `share.delivery.count.limit`, where it knows that.
    pub(super) delivery_count_limit: Option<i16>,
    /// Topics that its application asked for last.
    pub(super) subscribed: Vec<String>,
    /// Its application stands still until then.
    pub(super) hangs_until: Instant,
    /// Its application drops what it is given until then.
    pub(super) drops_until: Instant,
    /// A lock ran out on its application, which gave no sign of life since.
    pub(super) is_stalled: bool,
    pub(super) sessions: BTreeMap<ConnectionId, Number>,
    cold: BTreeMap<BrokerId, Number>,
    pub(super) holdings: Vec<Holding>,
    by_acquisition: BTreeMap<AcquisitionId, usize>,
    /// The last delivery of each offset that arrived.
    latest: BTreeMap<(Place, i64), DeliveryId>,
    /// When its core wants to be called.
    pub(super) wake_at: Option<Instant>,
    pub(super) is_touched: bool,
}

impl Member {
    pub(super) fn new(core: SessionCore, version: i16, now: Instant) -> Self {
        Self {
            id: core.config().member_id.clone(),
            delivery_count_limit: None,
            records_held_max: core.config().records_held_max.into(),
            subscribed: core.config().topics.clone(),
            core,
            life: Life::Running,
            version,
            hangs_until: now,
            drops_until: now,
            is_stalled: false,
            sessions: BTreeMap::new(),
            cold: BTreeMap::new(),
            holdings: Vec::new(),
            by_acquisition: BTreeMap::new(),
            latest: BTreeMap::new(),
            wake_at: Some(now),
            is_touched: true,
        }
    }

    pub(super) const fn is_live(&self) -> bool {
        matches!(self.life, Life::Running | Life::Closing)
    }

    /// A handler settles a range, of which some may be lost. Returns what the core counted and what
    /// was ours.
    pub(super) fn act(
        &mut self,
        now: Instant,
        holding: usize,
        (first, last): (i64, i64),
        (act, is_hasty): (Act, bool),
    ) -> (u64, u64) {
        let holding = &mut self.holdings[holding];
        let ours: Vec<i64> = holding.held.range(first..=last).copied().collect();
        let settled = match act {
            Act::Settle(how) => self.core.acknowledge(now, holding.id, first, last, how),
            Act::Drop if is_hasty => {
                let (id, core) = (holding.id, &mut self.core);
                core.give_back(now, id, (first, last), ReleaseReason::Dropped);
                ours.len() as u64
            }
            Act::Drop => {
                self.core.drop_held(now, holding.id, first, last);
                ours.len() as u64
            }
        };
        let said = match act {
            Act::Settle(how) => Said::Settled(how),
            Act::Drop => Said::LeftToCore,
        };
        for offset in &ours {
            holding.held.remove(offset);
            holding.said.insert(*offset, said);
            if act == Act::Drop {
                holding.dropped_at.insert(*offset, now);
            }
        }
        (settled, ours.len() as u64)
    }

    /// What is wrong with sending something for an offset that the application dropped, if anything: it may
    /// be released after its delay, or for the need of a lock that nobody can renew, and never for the last time.
    fn gives_up(&self, now: Instant, delivery: &Delivery, offset: i64) -> Option<&'static str> {
        let holding = &self.holdings[delivery.holding?];
        let dropped_at = *holding.dropped_at.get(&offset)?;
        let is_last = |limit| delivery.count >= limit;
        let is_urgent = holding.deadline <= now + DROP_DELAY_MIN;
        match self.life {
            Life::Running if self.delivery_count_limit.is_some_and(is_last) => Some("for good"),
            Life::Running if !is_urgent && now < dropped_at + DROP_DELAY_MIN => Some("too soon"),
            _ => None,
        }
    }

    /// The application is told that it dropped what it can't get again, and rejects it.
    pub(super) fn reject_last(&mut self, now: Instant, dropped: &Release) {
        let (first, last) = (dropped.first_offset, dropped.last_offset);
        let (id, how) = (dropped.acquisition, Acknowledgement::Reject);
        self.core.acknowledge(now, id, first, last, how);
        if let Some(holding) = self.holding_mut(id) {
            for offset in first..=last {
                holding.said.insert(offset, Said::Settled(how));
                holding.dropped_at.remove(&offset);
            }
        }
    }

    /// Its application closes it.
    pub(super) fn close(&mut self, now: Instant) {
        self.life = Life::Closing;
        for holding in &mut self.holdings {
            let held = std::mem::take(&mut holding.held);
            let left = held.into_iter().map(|offset| (offset, Said::LeftToCore));
            holding.said.extend(left);
        }
        self.core.close(now);
    }

    pub(super) fn enter(&mut self, acquired: &Acquired, grants: &[Grant]) -> Option<usize> {
        let place = (acquired.partition.topic_id, acquired.partition.partition);
        let mut holding = Holding {
            id: acquired.id,
            place,
            deliveries: BTreeMap::new(),
            held: BTreeSet::new(),
            said: BTreeMap::new(),
            deadline: acquired.deadline,
            dropped_at: BTreeMap::new(),
            told: BTreeMap::new(),
        };
        let granted = grants.iter().filter(|grant| grant.place == place);
        for (offset, delivery) in granted.flat_map(|grant| &grant.deliveries) {
            let mut ranges = acquired.ranges.iter();
            if !ranges.any(|range| range.first_offset <= *offset && *offset <= range.last_offset) {
                continue;
            }
            holding.deliveries.insert(*offset, *delivery);
            self.latest.insert((place, *offset), *delivery);
            if self.life == Life::Running {
                holding.held.insert(*offset);
            } else {
                holding.said.insert(*offset, Said::LeftToCore);
            }
        }
        if holding.deliveries.is_empty() {
            return None;
        }
        self.by_acquisition.insert(acquired.id, self.holdings.len());
        self.holdings.push(holding);
        Some(self.holdings.len() - 1)
    }

    fn holding_mut(&mut self, id: AcquisitionId) -> Option<&mut Holding> {
        let index = *self.by_acquisition.get(&id)?;
        self.holdings.get_mut(index)
    }

    /// Its lock ends at another time now.
    pub(super) fn renewed(&mut self, id: AcquisitionId, deadline: Instant) {
        if let Some(holding) = self.holding_mut(id) {
            holding.deadline = deadline;
        }
    }

    /// Enters an outcome; what is wrong with it, if anything.
    pub(super) fn take_outcome(&mut self, outcome: &AckOutcome) -> Option<String> {
        let Some(holding) = self.holding_mut(outcome.acquisition) else {
            return Some(format!("outcome of nothing: {outcome:?}"));
        };
        for offset in outcome.first_offset..=outcome.last_offset {
            let said = holding.said.get(&offset);
            let expected = match said {
                Some(Said::Settled(how)) => Some(*how),
                Some(Said::LeftToCore) => Some(Acknowledgement::Release),
                None => None,
            };
            let told = outcome.result.map(|()| outcome.how);
            let before = holding.told.insert(offset, told);
            if expected != Some(outcome.how) || before.is_some() {
                return Some(format!(
                    "offset {offset}: said {said:?}, told {before:?} before: {outcome:?}"
                ));
            }
        }
        None
    }

    pub(super) fn take_loss(&mut self, loss: &LockLoss) -> Option<String> {
        let Some(holding) = self.holding_mut(loss.acquisition) else {
            return Some(format!("loss of nothing: {loss:?}"));
        };
        for offset in loss.first_offset..=loss.last_offset {
            let is_ours = holding.held.remove(&offset)
                || holding.said.get(&offset) == Some(&Said::LeftToCore);
            let before = holding.told.insert(offset, Err(loss.why));
            if !is_ours || before.is_some() {
                return Some(format!(
                    "offset {offset} was not held, {before:?}: {loss:?}"
                ));
            }
        }
        None
    }
}

impl World {
    /// Carries a core's requests out and takes its events.
    pub(super) fn pump(&mut self, index: usize) {
        let now = self.now;
        for _ in 0..1_000 {
            let member = &mut self.members[index];
            if !member.is_live() {
                return;
            }
            member.is_touched = false;
            member.core.handle_timeout(now);
            if member.hangs_until <= now || self.planted.is(Planted::NeverStall) {
                member.core.application_alive();
            }
            member.is_stalled &= member.hangs_until > now;
            let mut is_busy = false;
            while let Some(request) = self.members[index].core.poll_request(now) {
                self.carry(index, request);
                is_busy = true;
            }
            is_busy |= self.take_events(index, &[]);
            if !is_busy {
                let member = &mut self.members[index];
                member.wake_at = member.core.poll_timeout(now);
                if member.wake_at.is_some_and(|at| at <= now) {
                    member.wake_at = None;
                    let what = format!("member {index} has something due and doesn't do it");
                    self.judge.object("spin", what);
                    return;
                }
                let (held, most) = (member.core.records_held(), member.records_held_max);
                // By record the limit is hard. Else each leader may give a whole batch more, and what
                // was acquired together and came back is such a batch.
                let is_hard = member.core.config().acquire_mode == AcquireMode::RecordLimit
                    && member.version >= 2;
                let slack = if is_hard {
                    0
                } else {
                    self.judge.largest_grant * 3
                };
                if held > most + slack {
                    let what = format!("member {index} holds {held} of {most}");
                    self.judge.object("S5", what);
                }
                return;
            }
        }
        self.judge.object("spin", format!("member {index} spins"));
        self.members[index].wake_at = None;
    }

    fn carry(&mut self, index: usize, request: Request) {
        match request {
            Request::Metadata(topics) => {
                let request = metadata_request(topics);
                self.ask_any(index, Asked::Metadata, &request);
            }
            Request::FindCoordinator => {
                let request = FindCoordinatorRequest {
                    coordinator_keys: vec![GROUP.to_owned()],
                    ..FindCoordinatorRequest::default()
                };
                self.ask_any(index, Asked::Coordinator, &request);
            }
            Request::Heartbeat {
                coordinator,
                mut request,
            } => {
                self.planted.spoil_heartbeat(&mut request);
                self.ask_cold(index, coordinator, Asked::Heartbeat, &request);
            }
            Request::Connect { broker, connection } => {
                let number = self.connect(index, broker, Purpose::Session(connection));
                self.members[index].sessions.insert(connection, number);
            }
            Request::Disconnect { connection, .. } => {
                if let Some(number) = self.members[index].sessions.remove(&connection) {
                    self.hang_up(number);
                }
            }
            Request::ShareFetch {
                connection,
                mut request,
                version,
                timeout,
            } => {
                if let Some(number) = self.members[index].sessions.get(&connection).copied() {
                    self.spoil_fetch(number, &mut request);
                    self.tally.fetches += 1;
                    if self.members[index].is_stalled && request.max_records > 0 {
                        let what = format!("member {index} hangs and asks for more");
                        self.judge.object("S8", what);
                    }
                    self.ask_session(number, Asked::Fetch, (request, version), timeout);
                }
            }
            Request::ShareAcknowledge {
                connection,
                mut request,
                version,
                timeout,
            } => {
                if let Some(number) = self.members[index].sessions.get(&connection).copied() {
                    self.spoil(number, &mut request);
                    self.tally.acknowledges += 1;
                    self.ask_session(number, Asked::Acknowledge, (request, version), timeout);
                }
            }
        }
    }

    fn ask_session<R: wire::Request + Acknowledges>(
        &mut self,
        number: Number,
        asked: Asked,
        (mut request, version): (R, i16),
        timeout: Duration,
    ) {
        let connection = &self.network.connections[number];
        let index = connection.member;
        if connection.throttled_until > self.now {
            let what = format!("member {index} asks a broker that throttles it");
            self.judge.object("quota", what);
        }
        let member = &self.members[index];
        for (place, batches) in request.batches() {
            for batch in batches {
                for offset in batch.first_offset..=batch.last_offset {
                    let delivery = member.latest.get(&(place, offset)).copied();
                    self.judge.sent(number, (place, offset), delivery);
                    let is_renewal = batch.acknowledge_types.contains(&RENEW);
                    let delivery = delivery.filter(|_| !is_renewal);
                    let delivery = delivery.map(|id| &self.judge.deliveries[id]);
                    let wrong = delivery.and_then(|it| member.gives_up(self.now, it, offset));
                    if let Some(wrong) = wrong {
                        let what = format!("member {index} releases offset {offset} {wrong}");
                        self.judge.object("S8", what);
                    }
                }
            }
        }
        self.trace(index, || format!("[{number}] sends {request:?}"));
        self.ask(number, asked, (&request, version), timeout);
    }

    // ---- requests that aren't a share session's

    fn ask_any<R: wire::Request>(&mut self, index: usize, asked: Asked, request: &R) {
        let brokers = self.brokers_up();
        match self.network.any(&brokers) {
            Some(broker) => self.ask_cold(index, broker, asked, request),
            None => self.fail_cold(index, asked),
        }
    }

    fn ask_cold<R: wire::Request>(
        &mut self,
        index: usize,
        broker: BrokerId,
        asked: Asked,
        request: &R,
    ) {
        let open = self.members[index].cold.get(&broker).copied();
        let number = open.unwrap_or_else(|| self.connect(index, broker, Purpose::Cold));
        self.members[index].cold.insert(broker, number);
        self.ask(number, asked, (request, R::VERSION_MAX), COLD_ROUND);
    }

    fn fail_cold(&mut self, index: usize, asked: Asked) {
        let (now, core) = (self.now, &mut self.members[index].core);
        match asked {
            Asked::Metadata => core.handle_metadata(now, Err(failure("no answer"))),
            Asked::Coordinator => core.handle_coordinator(now, Err(failure("no answer"))),
            Asked::Heartbeat => core.handle_heartbeat(now, Err(failure("no answer"))),
            // Of a share session: failed by its connection.
            Asked::Fetch | Asked::Acknowledge => {}
        }
    }

    // ---- what comes back

    pub(super) fn connected(&mut self, number: Number) {
        let connection = &mut self.network.connections[number];
        if !connection.is_open || connection.is_silent {
            return;
        }
        connection.is_connected = true;
        let index = connection.member;
        self.members[index].is_touched = true;
        match connection.purpose {
            Purpose::Cold => {
                for frame in std::mem::take(&mut connection.waiting) {
                    self.send_up(number, frame);
                }
            }
            Purpose::Session(id) => {
                let member = &mut self.members[index];
                let versions = BrokerVersions {
                    share_fetch: member.version,
                    share_acknowledge: member.version,
                };
                member.core.handle_connected(self.now, id, Ok(versions));
            }
        }
    }

    /// An answer arrives. One that nobody waits for ends the connection.
    pub(super) fn answered(&mut self, number: Number, correlation: i32, answer: Option<Answer>) {
        let connection = &mut self.network.connections[number];
        if !connection.is_open || connection.is_silent {
            return;
        }
        let open = connection.open.iter();
        let waiting = open
            .take_while(|open| open.correlation != correlation)
            .count();
        let open = connection.open.remove(waiting);
        let (Some(_), Some(answer)) = (open, answer) else {
            return self.lose(number, "an answer that nobody waits for");
        };
        let (index, purpose) = (connection.member, connection.purpose);
        let now = self.now;
        self.trace(index, || format!("[{number}] gets {}", answer.brief()));
        let connection = &mut self.network.connections[number];
        let throttle_time_ms = match &answer {
            Answer::Fetch(response, _) => response.throttle_time_ms,
            Answer::Acknowledge(response) => response.throttle_time_ms,
            _ => 0,
        };
        let throttled = Duration::from_millis(u64::try_from(throttle_time_ms).unwrap_or(0));
        connection.throttled_until = now + throttled;
        let member = &mut self.members[index];
        member.is_touched = true;
        match (answer, purpose) {
            (Answer::Metadata(mut response), _) => {
                self.planted.spoil_metadata(&mut response);
                member.core.handle_metadata(now, Ok(&response));
            }
            (Answer::Coordinator(response), _) => {
                let found = response.coordinators.first();
                let found = found.filter(|found| found.error_code.is_none());
                let result = found.map(|found| found.node_id);
                let result = result.ok_or_else(|| failure("no coordinator"));
                member.core.handle_coordinator(now, result);
            }
            (Answer::Heartbeat(mut response), _) => {
                self.planted.spoil_beaten(&mut response);
                member.core.handle_heartbeat(now, Ok(&response));
            }
            (Answer::Fetch(mut response, grants), Purpose::Session(id)) => {
                self.planted.spoil_fetched(number, &mut response);
                for (_, delivery) in grants.iter().flat_map(|grant| &grant.deliveries) {
                    self.judge.deliveries[*delivery].connection = Some(number);
                }
                member.core.handle_share_fetch(now, id, Ok(response));
                self.take_events(index, &grants);
            }
            (Answer::Acknowledge(mut response), Purpose::Session(id)) => {
                self.planted.spoil_acknowledged(&mut response);
                member.core.handle_share_acknowledge(now, id, Ok(response));
            }
            (Answer::Fetch(..) | Answer::Acknowledge(_), Purpose::Cold) => {}
        }
        self.take_events(index, &[]);
    }

    /// A request has no answer in time: the member gives its connection up.
    pub(super) fn timed_out(&mut self, number: Number, correlation: i32) {
        let connection = &self.network.connections[number];
        let mut open = connection.open.iter();
        if connection.is_open && open.any(|open| open.correlation == correlation) {
            self.lose(number, "no answer in time");
        }
    }

    /// A connection ends at the member.
    pub(super) fn lose(&mut self, number: Number, why: &str) {
        let connection = &mut self.network.connections[number];
        if !connection.is_open {
            return;
        }
        let open = std::mem::take(&mut connection.open);
        let was_connected = connection.is_connected;
        let (index, broker, purpose) = (connection.member, connection.broker, connection.purpose);
        self.trace(index, || format!("[{number}] ends: {why}"));
        self.hang_up(number);
        let now = self.now;
        let member = &mut self.members[index];
        if !member.is_live() {
            return;
        }
        member.is_touched = true;
        match purpose {
            Purpose::Cold => {
                member.cold.remove(&broker);
                for open in open {
                    self.fail_cold(index, open.asked);
                }
            }
            Purpose::Session(id) => {
                for open in open {
                    if open.asked == Asked::Fetch {
                        member.core.handle_share_fetch(now, id, Err(failure(why)));
                    } else {
                        let core = &mut member.core;
                        core.handle_share_acknowledge(now, id, Err(failure(why)));
                    }
                }
                if was_connected {
                    member.core.handle_disconnected(now, id, why);
                } else {
                    member.core.handle_connected(now, id, Err(failure(why)));
                }
                member.sessions.remove(&id);
            }
        }
        self.take_events(index, &[]);
    }
}

fn metadata_request(topics: MetadataTopics) -> MetadataRequest {
    let named = |name| MetadataRequestTopic {
        name: Some(name),
        ..MetadataRequestTopic::default()
    };
    let by_id = |topic_id| MetadataRequestTopic {
        topic_id,
        name: None,
    };
    let topics = match topics {
        MetadataTopics::Names(names) => names.into_iter().map(named).collect(),
        MetadataTopics::Ids(ids) => ids.into_iter().map(by_id).collect(),
    };
    MetadataRequest {
        topics: Some(topics),
        ..MetadataRequest::default()
    }
}

fn failure(detail: &str) -> Failure {
    Failure {
        detail: detail.to_owned(),
        unsupported: false,
    }
}
