//! One member of one share group: the parts put together.

mod absence;
mod answers;
mod renewal;
mod requests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use sharegroup_wire::message::metadata::MetadataResponse;
use sharegroup_wire::message::share_group_heartbeat::{Assignment, ShareGroupHeartbeatResponse};
use sharegroup_wire::{BrokerId, MemberEpoch};

use crate::ack_book::AckBook;
use crate::acquired::{Acknowledgement, AcquisitionId, Counts, TopicPartition};
use crate::coordinator::Coordinator;
use crate::credit::Credit;
use crate::event::{
    AckFailure, AcquireMode, BrokerVersions, CommitId, ConnectionId, Event, Failure, FatalError,
    MemberState, PartitionView, ReleaseReason, Request, Warning,
};
use crate::group::Group;
use crate::limits::{FETCH_WAIT_MAX, LOCK_DEFAULT};
use crate::member::{Heartbeat, Member};
use crate::share_session::{Link, ShareSession};
use crate::topology::Topology;
use crate::trouble::{Subject, Troubles};

use self::absence::Afterwards;
use self::renewal::Renewal;

/// What is tried when a session's first request goes out.
const OPENING: &str = "opening a share session";

/// What a member is told at its start.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// The share group.
    pub group_id: String,
    /// 1–36 characters, made once per member and never used again after a restart of the process.
    pub member_id: String,
    /// Topics by name; not empty.
    pub topics: Vec<String>,
    /// Servers of the cluster, for advice in messages only. Default `HOST:PORT`.
    pub bootstrap_servers: String,
    /// Rack of the client; never the empty string.
    pub client_rack: Option<String>,
    /// Size at which the broker splits acquired ranges, in records.
    pub batch_records: u32,
    /// Most records held at a time. Soft by one producer batch per leader in batch-optimized mode.
    pub records_held_max: u32,
    /// Whether fewer are held where fewer are settled: about a second's worth, no more than were settled so far but
    /// at least 4, and at most our part of what the brokers lock of each partition. Else as many as allowed, always.
    pub credit_adapts: bool,
    /// Most bytes of frames whose records are held.
    pub bytes_held_max: u64,
    /// Longest long poll; cut to a quarter of the lock.
    pub fetch_wait_max: Duration,
    /// Least bytes that end a long poll.
    pub fetch_bytes_min: i32,
    /// Most bytes of one fetch.
    pub fetch_bytes_max: i32,
    /// How records are acquired.
    pub acquire_mode: AcquireMode,
    /// Longest wait of an acknowledgement for company; at most a quarter of a lock.
    pub acknowledge_linger: Duration,
    /// Deliveries after which the broker archives a record, where the caller knows
    /// (`share.delivery.count.limit`); else see [`SessionCore::set_group_limits`].
    pub delivery_count_limit: Option<i16>,
    /// Locks are renewed for no longer than this; `None` = without a bound.
    pub hold_max: Option<Duration>,
    /// A request without an answer for so long is lost.
    pub request_timeout: Duration,
    /// Longest pause between retries.
    pub retry_backoff_max: Duration,
}

impl SessionConfig {
    /// Defaults: those of Kafka's own share consumer where it has them.
    #[must_use]
    pub fn new(
        group_id: impl Into<String>,
        member_id: impl Into<String>,
        topics: Vec<String>,
    ) -> Self {
        Self {
            group_id: group_id.into(),
            member_id: member_id.into(),
            topics,
            bootstrap_servers: "HOST:PORT".to_owned(),
            client_rack: None,
            batch_records: 500,
            records_held_max: 10_000,
            credit_adapts: true,
            bytes_held_max: 32 * 1024 * 1024,
            fetch_wait_max: FETCH_WAIT_MAX,
            fetch_bytes_min: 1,
            fetch_bytes_max: 50 * 1024 * 1024,
            acquire_mode: AcquireMode::Auto,
            acknowledge_linger: Duration::from_millis(10),
            delivery_count_limit: None,
            hold_max: Some(Duration::from_secs(3600)),
            request_timeout: Duration::from_secs(30),
            retry_backoff_max: Duration::from_secs(1),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// Sessions flush and close.
    Closing,
    /// Sessions are closed; the group is being left.
    Leaving,
    /// Out of the group until the application shows life.
    Away,
    Closed,
}

/// One member of one share group. See the crate's documentation.
#[derive(Debug)]
pub struct SessionCore {
    config: SessionConfig,
    member: Member,
    coordinator: Coordinator,
    topology: Topology,
    book: AckBook,
    credit: Credit,
    group: Group,
    assignment: BTreeSet<TopicPartition>,
    sessions: BTreeMap<BrokerId, ShareSession>,
    disconnects: VecDeque<Request>,
    events: VecDeque<Event>,
    /// The group's lock duration, from the latest answer.
    lock: Duration,
    renewal: Renewal,
    phase: Phase,
    afterwards: Afterwards,
    paused: bool,
    /// With [`SessionCore::acquire_one`]: nothing is acquired while so many records are held.
    held_enough: Option<u64>,
    /// The application waits, and has all that was held when it said so.
    wants_more: bool,
    /// A lock ran out before its records were settled, and the application gave no sign of life since.
    stalled: bool,
    last_connection: u64,
    troubles: Troubles,
}

impl SessionCore {
    /// A member that starts to join as soon as it is polled.
    #[must_use]
    pub fn new(config: SessionConfig, now: Instant) -> Self {
        Self {
            member: Member::new(
                now,
                config.group_id.clone(),
                config.member_id.clone(),
                config.client_rack.clone(),
                config.topics.clone(),
            ),
            coordinator: Coordinator::new(now),
            topology: Topology::new(now, config.topics.clone()),
            book: AckBook::default(),
            credit: Credit::new(config.credit_adapts),
            group: Group::default(),
            assignment: BTreeSet::new(),
            sessions: BTreeMap::new(),
            disconnects: VecDeque::new(),
            events: VecDeque::new(),
            lock: LOCK_DEFAULT,
            renewal: Renewal::default(),
            phase: Phase::Running,
            afterwards: Afterwards::default(),
            paused: false,
            held_enough: None,
            wants_more: false,
            stalled: false,
            last_connection: 0,
            troubles: Troubles::default(),
            config,
        }
    }

    // ---- getters

    /// What it was told at its start.
    #[must_use]
    pub const fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// Where the member stands.
    #[must_use]
    pub const fn member_state(&self) -> MemberState {
        self.member.state
    }

    /// The member's epoch.
    #[must_use]
    pub const fn member_epoch(&self) -> MemberEpoch {
        self.member.epoch()
    }

    /// The group's lock duration, from the latest answer.
    #[must_use]
    pub const fn lock_duration(&self) -> Duration {
        self.lock
    }

    /// Deliveries after which the broker archives a record, as far as is known.
    #[must_use]
    pub fn delivery_count_limit(&self) -> Option<i16> {
        self.config
            .delivery_count_limit
            .or(self.group.delivery_count_limit)
    }

    /// Offsets that are ours and not settled.
    #[must_use]
    pub fn records_held(&self) -> u64 {
        self.book.counts(|_| true).held
    }

    /// Settled offsets whose outcome isn't known yet.
    #[must_use]
    pub fn acknowledgements_pending(&self) -> u64 {
        let Counts { pending, sent, .. } = self.book.counts(|_| true);
        pending.saturating_add(sent)
    }

    /// Subscribed topics that don't exist.
    pub fn missing_topics(&self) -> impl Iterator<Item = &str> {
        self.topology.missing.iter().map(String::as_str)
    }

    /// The latest trouble that is retried and isn't over.
    #[must_use]
    pub fn problem(&self) -> Option<&Warning> {
        self.troubles.latest(|subject| match subject {
            Subject::Leader(broker) | Subject::Quota(broker) => self.sessions.contains_key(broker),
            _ => true,
        })
    }

    /// The assigned partitions and how far they are.
    #[must_use]
    pub fn assignment(&self) -> Vec<PartitionView> {
        self.assignment
            .iter()
            .map(|tp| {
                let leader = self.topology.leader(*tp);
                let progress = leader
                    .and_then(|leader| self.sessions.get(&leader))
                    .and_then(|session| session.progress.get(tp))
                    .copied()
                    .unwrap_or_default();
                let counts = self.book.counts(|acquisition| acquisition.partition == *tp);
                PartitionView {
                    partition: *tp,
                    topic: self.topology.name(tp.topic_id).cloned(),
                    leader,
                    fetch_answered: progress.answered,
                    last_fetch_empty: progress.empty,
                    records_held: counts.held + counts.pending + counts.sent,
                }
            })
            .collect()
    }

    // ---- mutators

    /// Settles what is still held of a range of an acquisition; returns how many offsets that were.
    /// Offsets that were lost, settled before or belong to another acquisition are left alone.
    pub fn acknowledge(
        &mut self,
        now: Instant,
        id: AcquisitionId,
        first_offset: i64,
        last_offset: i64,
        how: Acknowledgement,
    ) -> u64 {
        self.application_alive();
        let settled = self.book.acknowledge(id, first_offset, last_offset, how);
        self.settled(now, id, settled);
        settled
    }

    /// Releases at once what no application sees of a range of offsets, both inclusive, and tells so
    /// ([`Event::Released`]).
    pub fn give_back(
        &mut self,
        now: Instant,
        id: AcquisitionId,
        (first, last): (i64, i64),
        why: ReleaseReason,
    ) {
        let settled = self.book.release(id, first, last, why);
        self.settled(now, id, settled);
    }

    /// Offsets of an acquisition were settled: they are sent after a while, at the end at once.
    fn settled(&mut self, now: Instant, id: AcquisitionId, offsets: u64) {
        if offsets == 0 {
            return;
        }
        self.credit.settled(now, offsets);
        let linger = if self.phase == Phase::Running {
            self.config.acknowledge_linger.min(self.lock / 4)
        } else {
            Duration::ZERO
        };
        self.pending_due_of(id, now + linger);
    }

    fn pending_due_of(&mut self, id: AcquisitionId, due: Instant) {
        let Some(broker) = self.book.get(id).map(|acquisition| acquisition.broker) else {
            return;
        };
        if let Some(session) = self.sessions.get_mut(&broker) {
            session.pending_due = Some(session.pending_due.map_or(due, |earlier| earlier.min(due)));
        }
    }

    /// The owner dropped these offsets without settling them: they are held for a delay that grows
    /// with their delivery count, then released. On their last allowed delivery they stay held and are
    /// told instead ([`Event::LastDeliveryDropped`]).
    pub fn drop_held(
        &mut self,
        now: Instant,
        id: AcquisitionId,
        first_offset: i64,
        last_offset: i64,
    ) {
        self.application_alive();
        if self.phase == Phase::Running {
            let limit = self.delivery_count_limit();
            let range = (first_offset, last_offset);
            self.book.drop_held(now, id, range, limit);
        } else {
            let range = (first_offset, last_offset);
            self.give_back(now, id, range, ReleaseReason::Dropped);
        }
    }

    /// Renews the lock of an acquisition now instead of when it is due.
    pub fn renew(&mut self, now: Instant, id: AcquisitionId) {
        for (other, acquisition) in self.book.iter_mut() {
            if other == id && acquisition.renew_at.is_some() {
                acquisition.renew_at = Some(now);
            }
        }
    }

    /// Sends all acknowledgements now; [`Event::Committed`] tells when each has its outcome.
    pub fn commit(&mut self, now: Instant) -> CommitId {
        self.flush(now);
        self.book.commit()
    }

    fn flush(&mut self, now: Instant) {
        for (broker, session) in &mut self.sessions {
            if self
                .book
                .counts(|acquisition| acquisition.broker == *broker)
                .pending
                > 0
            {
                session.pending_due = Some(now);
            }
        }
    }

    /// The application polls, settles or otherwise shows that it isn't stuck.
    ///
    /// Once a lock has run out before its records were settled, nothing new is acquired until then: an
    /// application that hangs costs each record one delivery, where it would otherwise burn them all
    /// and have the broker archive the records.
    pub const fn application_alive(&mut self) {
        self.stalled = false;
    }

    /// The application takes up to so many records at once. Until this is known it is given few: what it has not
    /// seen when it ends has used up a delivery.
    pub fn take(&mut self, at_once: u32) {
        self.credit.take(at_once);
    }

    /// The application works on so many records at a time: at least as many are held, within the other bounds.
    /// 0 = it doesn't say.
    pub fn work_on(&mut self, at_a_time: u32) {
        self.credit.work_on(at_a_time);
    }

    /// Whether so many records are held that nothing is fetched.
    #[must_use]
    pub fn is_out_of_credit(&self) -> bool {
        let (held, held_max) = (self.records_held(), self.records_held_max());
        let left = u64::from(held_max).saturating_sub(held);
        held > 0 && left < u64::from(self.credit_min(held_max))
    }

    /// The application has all that is held, and waits for more without having settled it.
    pub fn wants_more(&mut self) {
        if self.is_out_of_credit() {
            self.wants_more = true;
            self.credit.wants_more(self.records_held());
        }
    }

    /// What the group allows, where it is known: deliveries of a record (`share.delivery.count.limit`), and
    /// locked records of a partition (`share.partition.max.record.locks`).
    pub fn set_group_limits(&mut self, delivery_count: Option<i32>, record_locks: Option<i32>) {
        self.group.set_limits(delivery_count, record_locks);
    }

    /// How many members of the group each partition has.
    pub fn set_members(&mut self, members: BTreeMap<TopicPartition, u32>) {
        self.group.members = members;
    }

    /// Acquires nothing new until [`SessionCore::resume`]; membership and what is held go on.
    pub const fn pause(&mut self) {
        self.paused = true;
        self.held_enough = None;
    }

    /// Acquires again.
    pub const fn resume(&mut self) {
        self.paused = false;
        self.held_enough = None;
    }

    /// Acquires one record more than is held, within the credit, or a whole batch where the leader knows no other
    /// way (before Kafka 4.2, or [`AcquireMode::BatchOptimized`]), and then nothing until [`SessionCore::resume`].
    pub fn acquire_one(&mut self) {
        self.paused = false;
        self.held_enough = Some(self.records_held() + 1);
    }

    /// Subscribes to other topics.
    pub fn subscribe(&mut self, now: Instant, topics: Vec<String>) {
        self.member.subscribe(now, topics.clone());
        self.topology.subscribe(now, topics);
    }

    /// Flushes acknowledgements, releases what is held, closes the sessions, leaves the group;
    /// [`Event::Closed`] tells the end.
    pub fn close(&mut self, now: Instant) {
        self.afterwards = Afterwards::End;
        match self.phase {
            Phase::Running => {
                self.phase = Phase::Closing;
                self.book.release_all();
                self.flush(now);
                self.advance_close(now);
            }
            Phase::Away => self.end(),
            Phase::Closing | Phase::Leaving => self.advance_close(now),
            Phase::Closed => {}
        }
    }

    /// Gives up what a close could not finish: everything without an outcome is reported as such.
    pub fn abort(&mut self) {
        self.book.lose_all(AckFailure::SessionEnded, |_| true);
        if self.member.state != MemberState::Left {
            self.events.push_back(Event::Warning(Warning::NotLeft));
        }
        self.member.give_up();
        self.sessions.clear();
        self.phase = Phase::Closed;
        self.drain_book();
        self.events.push_back(Event::Closed);
    }

    /// Closing goes on from the sessions to the member to the end.
    fn advance_close(&mut self, now: Instant) {
        if self.phase == Phase::Closing {
            // The connections of the others end with the core, if it ends.
            let ends = self.afterwards == Afterwards::End;
            self.sessions.retain(|_, session| {
                session.is_open()
                    || session.in_flight.is_some()
                    || (!ends && session.connection().is_some())
            });
            if self.sessions.is_empty() {
                // What an ended session left behind has no session to be sent on.
                self.book.lose_all(AckFailure::SessionEnded, |_| true);
                self.phase = Phase::Leaving;
                self.member.leave(now);
            }
        }
        if self.phase == Phase::Leaving && self.member.state == MemberState::Left {
            self.left(now);
        }
    }

    fn end(&mut self) {
        self.phase = Phase::Closed;
        self.drain_book();
        self.events.push_back(Event::Closed);
    }

    // ---- answers of the cold requests

    /// Answer to [`Request::Metadata`].
    pub fn handle_metadata(&mut self, now: Instant, result: Result<&MetadataResponse, Failure>) {
        match result {
            Ok(response) => {
                self.troubles.over(|subject| *subject == Subject::Metadata);
                for warning in self
                    .topology
                    .handle_response(now, response, &self.assignment)
                {
                    self.warn(now, Subject::Metadata, warning);
                }
                self.distribute(now);
            }
            Err(failure) => {
                self.topology.handle_failure(now);
                self.warn(
                    now,
                    Subject::Metadata,
                    Warning::Retrying {
                        what: "metadata",
                        detail: failure.detail,
                    },
                );
            }
        }
    }

    /// Answer to [`Request::FindCoordinator`].
    pub fn handle_coordinator(&mut self, now: Instant, result: Result<BrokerId, Failure>) {
        match result {
            Ok(broker) => {
                self.troubles
                    .over(|subject| *subject == Subject::Coordinator);
                self.coordinator.found(broker);
            }
            Err(failure) => {
                self.coordinator.lost(now, self.config.retry_backoff_max);
                self.warn(
                    now,
                    Subject::Coordinator,
                    Warning::Retrying {
                        what: "finding the coordinator",
                        detail: failure.detail,
                    },
                );
            }
        }
    }

    /// Answer to [`Request::Heartbeat`].
    pub fn handle_heartbeat(
        &mut self,
        now: Instant,
        result: Result<&ShareGroupHeartbeatResponse, Failure>,
    ) {
        let backoff_max = self.config.retry_backoff_max;
        match result {
            Err(failure) if failure.unsupported => self.fail_share_groups_off(),
            Err(failure) => {
                self.member.handle_failure(now, backoff_max);
                self.coordinator.lost(now, backoff_max);
                self.warn(
                    now,
                    Subject::Membership,
                    Warning::Retrying {
                        what: "heartbeat",
                        detail: failure.detail,
                    },
                );
            }
            Ok(response) => match self.member.handle_response(now, response, backoff_max) {
                Heartbeat::Stable { joined, assignment } => {
                    self.troubles
                        .over(|subject| *subject == Subject::Membership);
                    if joined {
                        self.events.push_back(Event::Joined {
                            member_epoch: self.member.epoch(),
                        });
                    }
                    if let Some(assignment) = assignment {
                        self.assign(now, &assignment);
                    }
                }
                Heartbeat::Trouble(warning) => self.warn(now, Subject::Membership, warning),
                Heartbeat::NotCoordinator => self.coordinator.lost(now, backoff_max),
                Heartbeat::Left => {}
                Heartbeat::ShareGroupsOff => self.fail_share_groups_off(),
                Heartbeat::Fatal(error) => self.fail(error),
            },
        }
        self.advance_close(now);
    }

    fn assign(&mut self, now: Instant, assignment: &Assignment) {
        let assigned = assignment
            .topic_partitions
            .iter()
            .flat_map(|topic| {
                topic.partitions.iter().map(|partition| TopicPartition {
                    topic_id: topic.topic_id,
                    partition: *partition,
                })
            })
            .collect();
        if assigned == self.assignment {
            return;
        }
        self.assignment = assigned;
        self.topology.assigned(now, &self.assignment);
        self.distribute(now);
        self.events.push_back(Event::AssignmentChanged);
    }

    /// Gives every assigned partition to its leader's session.
    fn distribute(&mut self, now: Instant) {
        if self.phase != Phase::Running {
            return;
        }
        let assignment = &self.assignment;
        self.troubles.over(|subject| match subject {
            Subject::Fetch(partition) => !assignment.contains(partition),
            _ => false,
        });
        for session in self.sessions.values_mut() {
            session.wanted.clear();
        }
        for partition in &self.assignment {
            if let Some(leader) = self
                .topology
                .leader(*partition)
                .filter(|_| self.topology.name(partition.topic_id).is_some())
            {
                self.sessions
                    .entry(leader)
                    .or_insert_with(|| ShareSession::new(now))
                    .wanted
                    .insert(*partition);
            }
        }
    }

    // ---- connections

    /// Answer to [`Request::Connect`].
    pub fn handle_connected(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        result: Result<BrokerVersions, Failure>,
    ) {
        let Some(broker) = self.broker_of(connection) else {
            return;
        };
        match result {
            Ok(versions) => {
                if let Some(session) = self.sessions.get_mut(&broker) {
                    session.link = Link::Up(connection, versions);
                }
                self.note_versions(now, broker, versions);
            }
            Err(failure) if failure.unsupported => self.fail_share_groups_off(),
            Err(failure) => {
                if let Some(session) = self.sessions.get_mut(&broker) {
                    session.end(now);
                }
                self.topology.refresh(now);
                self.warn(
                    now,
                    Subject::Leader(broker),
                    Warning::Retrying {
                        what: "connecting",
                        detail: failure.detail,
                    },
                );
            }
        }
        self.advance_close(now);
    }

    /// The connection is gone, for whatever reason.
    pub fn handle_disconnected(&mut self, now: Instant, connection: ConnectionId, detail: &str) {
        if let Some(broker) = self.broker_of(connection) {
            self.end_session(now, broker, detail);
        }
    }

    fn broker_of(&self, connection: ConnectionId) -> Option<BrokerId> {
        self.sessions
            .iter()
            .find(|(_, session)| session.connection() == Some(connection))
            .map(|(broker, _)| *broker)
    }

    /// A session ended: what it held and had not confirmed is reported, its connection dropped.
    fn end_session(&mut self, now: Instant, broker: BrokerId, detail: &str) {
        let Some(session) = self.sessions.get_mut(&broker) else {
            return;
        };
        let was_open = session.is_open();
        let asked = session.in_flight.is_some();
        if let Some(connection) = session.end(now) {
            self.disconnects
                .push_back(Request::Disconnect { broker, connection });
        }
        let Counts {
            held,
            pending,
            sent,
        } = self.book.counts(|acquisition| acquisition.broker == broker);
        // Brokers close what is idle (`connections.max.idle.ms`).
        let was_idle = !asked && held + pending + sent == 0;
        self.book.lose_all(AckFailure::SessionEnded, |acquisition| {
            acquisition.broker == broker
        });
        self.troubles
            .over(|subject| matches!(subject, Subject::Acknowledgements(_)));
        self.topology.refresh(now);
        if self.phase == Phase::Running && !was_idle {
            let detail = detail.to_owned();
            let warning = if was_open {
                Warning::SessionLost { broker, detail }
            } else {
                Warning::Retrying {
                    what: OPENING,
                    detail: format!("broker {broker}: {detail}"),
                }
            };
            self.warn(now, Subject::Leader(broker), warning);
        }
        self.advance_close(now);
    }

    // ---- time, events

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.phase == Phase::Closed {
            return;
        }
        let passed = self.book.pass_time(now);
        if passed.due {
            self.flush(now);
        }
        if passed.not_renewed {
            self.credit.expired();
            self.warn(
                now,
                Subject::Notice,
                Warning::LockTooShort { lock: self.lock },
            );
        }
        if passed.held_expired && self.phase == Phase::Running && !self.stalled {
            self.stalled = true;
            self.drain_book();
            self.events.push_back(Event::Stalled);
        }
        self.forget_refusal(now);
    }

    /// What happened, until `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.drain_book();
        self.events.pop_front()
    }

    fn drain_book(&mut self) {
        while let Some(event) = self.book.poll_event() {
            self.events.push_back(event);
        }
    }

    fn fail(&mut self, error: FatalError) {
        self.member.give_up();
        self.events.push_back(Event::Fatal(error));
    }

    fn fail_share_groups_off(&mut self) {
        let bootstrap_servers = self.config.bootstrap_servers.clone();
        self.fail(FatalError::ShareGroupsOff { bootstrap_servers });
    }

    /// Warns, but of the same thing at most once a minute, and of nothing after the end.
    fn warn(&mut self, now: Instant, subject: Subject, warning: Warning) {
        if self.phase != Phase::Closed && self.troubles.enter(now, subject, &warning) {
            self.events.push_back(Event::Warning(warning));
        }
    }
}
