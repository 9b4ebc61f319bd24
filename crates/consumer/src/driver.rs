//! Carries the session core: time and answers in, requests out. One future per consumer.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use sharegroup_session::{
    AckFailure, AckOutcome, Acknowledgement, Acquired, AcquisitionId, BrokerVersions, CommitId,
    ConnectionId, Event, Failure, FatalError, MemberState, MetadataTopics, Release, ReleaseReason,
    Request, SessionCore, TopicPartition, Warning,
};
use sharegroup_wire::BrokerId;
use sharegroup_wire::message::metadata::MetadataResponse;
use sharegroup_wire::message::share_acknowledge::{
    ShareAcknowledgeRequest, ShareAcknowledgeResponse,
};
use sharegroup_wire::message::share_fetch::{ShareFetchRequest, ShareFetchResponse};
use sharegroup_wire::message::share_group_heartbeat::{
    ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
};
use sharegroup_wire::net::{CallError, Connection};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::cluster::{Cluster, LogRead, MetadataScope};
use crate::error::{ClientError, PollError};
use crate::group_watch::{GroupFact, GroupWatch, MEMBERS_EVERY};
use crate::lock::LockState;
use crate::metrics::add;
use crate::observer::{LastDelivery, ShareEvent, ShareObserver};
use crate::poll_interval::{PollInterval, Polls};
use crate::report::{CommitReport, Reporter, offsets};
use crate::shared::{Arrival, Command, ReadId, Shared};
use crate::status::ShareStatus;

/// One round of a cold request; the core tries again after it.
const COLD_ROUND: Duration = Duration::from_secs(5);

/// Shortest time between two published snapshots.
const STATUS_PACE: Duration = Duration::from_millis(20);

/// What a spawned request came to.
enum Completion {
    Metadata(Result<MetadataResponse, Failure>),
    Coordinator(Result<BrokerId, Failure>),
    Heartbeat(
        Option<(BrokerId, Connection)>,
        Result<ShareGroupHeartbeatResponse, Failure>,
    ),
    Connected(ConnectionId, Result<(Connection, BrokerVersions), Failure>),
    Disconnected(ConnectionId, String),
    Fetched(ConnectionId, Result<ShareFetchResponse, Failure>),
    Acknowledged(ConnectionId, Result<ShareAcknowledgeResponse, Failure>),
    Group(GroupFact),
    ReadAgain(ReadId, Result<Bytes, ClientError>),
}

pub(crate) struct Driver {
    core: SessionCore,
    cluster: Cluster,
    shared: Arc<Shared>,
    observer: Option<Arc<dyn ShareObserver>>,
    poll_interval: Option<PollInterval>,
    #[cfg(feature = "telemetry")]
    telemetry: Option<crate::telemetry::Telemetry>,
    requests: JoinSet<Completion>,
    connections: HashMap<ConnectionId, Connection>,
    /// The coordinator's connection, which no fetch uses.
    heartbeats: Option<(BrokerId, Connection)>,
    locks: HashMap<AcquisitionId, Arc<LockState>>,
    topics: HashMap<TopicPartition, Arc<str>>,
    reporter: Reporter,
    /// Who waits for the outcome of one record.
    confirmations: BTreeMap<(AcquisitionId, i64), oneshot::Sender<Result<(), AckFailure>>>,
    commits: BTreeMap<CommitId, Vec<oneshot::Sender<CommitReport>>>,
    closing: Option<(Instant, Vec<oneshot::Sender<CommitReport>>)>,
    /// Begins when the member has joined.
    group: Option<Arc<GroupWatch>>,
    last_record_at: Option<Instant>,
    last_settled_at: Option<Instant>,
    published_at: Option<Instant>,
    /// Something may have changed since.
    unpublished: bool,
    closed: bool,
}

impl Driver {
    pub(crate) fn new(
        core: SessionCore,
        cluster: Cluster,
        shared: Arc<Shared>,
        observer: Option<Arc<dyn ShareObserver>>,
    ) -> Self {
        Self {
            group: None,
            core,
            cluster,
            shared,
            observer,
            poll_interval: None,
            #[cfg(feature = "telemetry")]
            telemetry: None,
            requests: JoinSet::new(),
            connections: HashMap::new(),
            heartbeats: None,
            locks: HashMap::new(),
            topics: HashMap::new(),
            reporter: Reporter::default(),
            confirmations: BTreeMap::new(),
            commits: BTreeMap::new(),
            closing: None,
            last_record_at: None,
            last_settled_at: None,
            published_at: None,
            unpublished: false,
            closed: false,
        }
    }

    /// With a longest time between two polls.
    pub(crate) fn with_poll_interval(mut self, limit: Option<Duration>) -> Self {
        self.poll_interval = limit.map(PollInterval::new);
        self
    }

    /// With metrics pushed to the broker.
    #[cfg(feature = "telemetry")]
    pub(crate) fn with_telemetry(mut self) -> Self {
        let config = self.core.config();
        let mut resource = vec![
            ("group_id", config.group_id.clone()),
            ("group_member_id", config.member_id.clone()),
        ];
        resource.extend(config.client_rack.clone().map(|rack| ("client_rack", rack)));
        let (cluster, shared) = (self.cluster.clone(), Arc::clone(&self.shared));
        self.telemetry = Some(crate::telemetry::Telemetry::start(
            cluster, shared, resource,
        ));
        self
    }

    #[cfg(feature = "telemetry")]
    async fn end_telemetry(&mut self) {
        let Some(telemetry) = self.telemetry.take() else {
            return;
        };
        let left = self
            .closing
            .as_ref()
            .map(|(deadline, _)| deadline.saturating_duration_since(Instant::now()));
        let within = crate::telemetry::LAST_PUSH_MAX;
        telemetry
            .end(left.map_or(within, |left| left.min(within)))
            .await;
    }

    /// Runs until the member has left.
    pub(crate) async fn run(mut self) {
        let mut commands = Vec::new();
        while !self.closed {
            // Looked for first: whoever held one has said all by then.
            let unused = self.unused_locks();
            self.shared.take_commands(&mut commands);
            let now = Instant::now();
            for command in commands.drain(..) {
                self.obey(now, command);
            }
            for id in unused {
                self.locks.remove(&id);
            }
            self.step(now);
            if self.closed {
                break;
            }
            let wake_at = self.wake_at(now);
            let shared = Arc::clone(&self.shared);
            tokio::select! {
                () = shared.commanded.notified() => {}
                Some(completion) = self.requests.join_next() => self.complete_all(completion),
                () = sleep_until(wake_at) => self.core.handle_timeout(Instant::now().into_std()),
            }
        }
        self.publish(Instant::now());
        #[cfg(feature = "telemetry")]
        self.end_telemetry().await;
        self.finish();
    }

    /// Lets the core do what can be done now.
    fn step(&mut self, now: Instant) {
        let std_now = now.into_std();
        if self
            .closing
            .as_ref()
            .is_some_and(|(deadline, _)| *deadline <= now)
        {
            self.core.abort();
        }
        self.watch_polls(now);
        self.core.handle_timeout(std_now);
        if self.shared.wants_more(self.core.is_out_of_credit()) {
            self.core.wants_more();
        }
        while let Some(request) = self.core.poll_request(std_now) {
            self.send(request);
        }
        self.enter_events(now);
        self.unpublished = self.published_at.is_some_and(|at| now < at + STATUS_PACE);
        if !self.unpublished {
            self.publish(now);
        }
    }

    /// A member whose application doesn't poll leaves its group until it does.
    fn watch_polls(&mut self, now: Instant) {
        let Some(interval) = &mut self.poll_interval else {
            return;
        };
        match interval.check(now, self.shared.polled_at()) {
            Polls::InTime => {}
            Polls::Ask => self.shared.wake(),
            Polls::Overdue => {
                interval.left();
                let limit = interval.limit();
                self.release_arrivals(now.into_std());
                self.core.step_out(now.into_std(), limit);
                self.shared.stall();
            }
        }
    }

    fn wake_at(&self, now: Instant) -> Instant {
        let core = self
            .core
            .poll_timeout(now.into_std())
            .map(Instant::from_std);
        let closing = self.closing.as_ref().map(|(deadline, _)| *deadline);
        let publish = self
            .published_at
            .filter(|_| self.unpublished)
            .map(|at| at + STATUS_PACE);
        let polled_at = self.shared.polled_at();
        let interval = self.poll_interval.as_ref();
        let poll = interval.and_then(|interval| interval.next_at(polled_at));
        // A day: nothing is due.
        [core, closing, publish, poll]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(now + Duration::from_secs(86_400))
    }

    fn obey(&mut self, now: Instant, command: Command) {
        let std_now = now.into_std();
        match command {
            Command::Settle {
                id,
                first,
                last,
                how,
            } => {
                self.settle(now, id, (first, last), how);
            }
            Command::Confirm {
                id,
                offset,
                how,
                reply,
            } => {
                let settled = self.settle(now, id, (offset, offset), how);
                // What was lost before is told by its lock.
                if settled > 0 {
                    self.confirmations.insert((id, offset), reply);
                }
            }
            Command::Drop { id, first, last } => self.core.drop_held(std_now, id, first, last),
            Command::GiveBack {
                id,
                first,
                last,
                why,
            } => self.core.give_back(std_now, id, (first, last), why),
            Command::Renew { id } => self.core.renew(std_now, id),
            Command::ReadAgain { id, read, until } => self.spawn_read_again(id, read, until),
            Command::Commit { reply } => {
                let commit = self.core.commit(std_now);
                self.commits.entry(commit).or_default().push(reply);
            }
            Command::Close { within, reply } => {
                let (_, replies) = self
                    .closing
                    .get_or_insert_with(|| (now + within, Vec::new()));
                replies.push(reply);
                self.poll_interval = None;
                self.release_arrivals(std_now);
                // What was dropped before on its last delivery is settled, not released.
                self.enter_events(now);
                self.core.close(std_now);
            }
            Command::Alive => {
                self.core.application_alive();
                self.core.rejoin(std_now);
            }
            Command::WantsMore => self.core.wants_more(),
            Command::WorkOn(at_a_time) => {
                self.core.work_on(at_a_time);
                if let Some(interval) = &mut self.poll_interval {
                    interval.handlers_run(now, at_a_time > 0);
                }
            }
            Command::Pause => self.core.pause(),
            Command::Resume => self.core.resume(),
            Command::Subscribe(topics) => self.core.subscribe(std_now, topics),
        }
    }

    /// What arrived and was never polled is released unseen.
    fn release_arrivals(&mut self, now: std::time::Instant) {
        for arrival in self.shared.take_arrivals() {
            let id = arrival.acquired.id;
            let all = (i64::MIN, i64::MAX);
            self.core.give_back(now, id, all, ReleaseReason::Unseen);
        }
    }

    // ---- requests

    fn send(&mut self, request: Request) {
        match request {
            Request::Metadata(topics) => self.spawn_metadata(topics),
            Request::FindCoordinator => self.spawn_find_coordinator(),
            Request::Heartbeat {
                coordinator,
                request,
            } => self.spawn_heartbeat(coordinator, request),
            Request::Connect { broker, connection } => self.spawn_connect(broker, connection),
            Request::Disconnect { connection, .. } => {
                if let Some(connection) = self.connections.remove(&connection) {
                    connection.close();
                }
            }
            Request::ShareFetch {
                connection,
                request,
                version,
                timeout,
            } => self.spawn_fetch(connection, request, version, timeout),
            Request::ShareAcknowledge {
                connection,
                request,
                version,
                timeout,
            } => {
                self.spawn_acknowledge(connection, request, version, timeout);
            }
        }
    }

    fn spawn_metadata(&mut self, topics: MetadataTopics) {
        let cluster = self.cluster.until(Instant::now() + COLD_ROUND);
        let scope = match topics {
            MetadataTopics::Names(names) => MetadataScope::Names(names),
            MetadataTopics::Ids(ids) => MetadataScope::Ids(ids),
        };
        self.requests.spawn(async move {
            Completion::Metadata(
                cluster
                    .metadata(scope)
                    .await
                    .map_err(|error| client_failure(&error)),
            )
        });
    }

    fn spawn_find_coordinator(&mut self) {
        let cluster = self.cluster.until(Instant::now() + COLD_ROUND);
        let group_id = self.core.config().group_id.clone();
        cluster.forget_coordinator(&group_id);
        self.requests.spawn(async move {
            Completion::Coordinator(
                cluster
                    .find_coordinator(&group_id)
                    .await
                    .map_err(|error| client_failure(&error)),
            )
        });
    }

    fn spawn_heartbeat(&mut self, coordinator: BrokerId, request: ShareGroupHeartbeatRequest) {
        add(&self.shared.counters.heartbeats, 1);
        let live = self
            .heartbeats
            .take()
            .filter(|(broker, connection)| *broker == coordinator && !connection.is_closed());
        let cluster = self.cluster.until(Instant::now() + COLD_ROUND);
        self.requests.spawn(async move {
            let connection = match live {
                Some((_, connection)) => connection,
                None => match cluster.open_connection(coordinator, None).await {
                    Ok(connection) => connection,
                    Err(error) => return Completion::Heartbeat(None, Err(client_failure(&error))),
                },
            };
            let result = connection
                .call(&request)
                .await
                .map_err(|error| call_failure(&error));
            Completion::Heartbeat(Some((coordinator, connection)), result)
        });
    }

    /// Asks what the group allows and who is in it, now and from time to time.
    fn watch_group(&mut self, now: Instant) {
        if self.group.is_none() {
            let watch = GroupWatch::new(&self.cluster, &self.core.config().group_id);
            self.group = Some(Arc::new(watch));
            self.spawn_limits(now);
            self.spawn_members(now);
        }
    }

    fn spawn_limits(&mut self, at: Instant) {
        if let Some(group) = self.group.clone() {
            self.requests
                .spawn(async move { Completion::Group(group.limits(at).await) });
        }
    }

    fn spawn_members(&mut self, at: Instant) {
        if let Some(group) = self.group.clone() {
            self.requests
                .spawn(async move { Completion::Group(group.members(at).await) });
        }
    }

    /// What can't be asked stays as it was.
    fn learn_of_group(&mut self, now: Instant, fact: GroupFact) {
        match fact {
            GroupFact::Limits(limits) => {
                match limits {
                    Ok(limits) => self
                        .core
                        .set_group_limits(limits.delivery_count, limits.record_locks),
                    Err(error) => tracing::debug!(%error, "What the group allows is not known."),
                }
                self.spawn_limits(now + self.cluster.config().metadata_max_age);
            }
            GroupFact::Members(members) => {
                match members {
                    Ok(members) => self.core.set_members(members),
                    Err(error) => tracing::debug!(%error, "The group's members are not known."),
                }
                self.spawn_members(now + MEMBERS_EVERY);
            }
        }
    }

    fn spawn_connect(&mut self, broker: BrokerId, id: ConnectionId) {
        let cluster = self.cluster.until(Instant::now() + COLD_ROUND);
        self.requests.spawn(async move {
            let result = match cluster.open_connection(broker, None).await {
                Ok(connection) => versions(&connection)
                    .map(|versions| (connection, versions))
                    .map_err(|error| call_failure(&error)),
                Err(error) => Err(client_failure(&error)),
            };
            Completion::Connected(id, result)
        });
    }

    fn spawn_fetch(
        &mut self,
        id: ConnectionId,
        request: ShareFetchRequest,
        version: i16,
        timeout: Duration,
    ) {
        let Some(connection) = self.connections.get(&id).cloned() else {
            return;
        };
        add(&self.shared.counters.fetches, 1);
        self.requests.spawn(async move {
            let result = connection.call_with(&request, version, timeout).await;
            Completion::Fetched(id, result.map_err(|error| call_failure(&error)))
        });
    }

    fn spawn_acknowledge(
        &mut self,
        id: ConnectionId,
        request: ShareAcknowledgeRequest,
        version: i16,
        timeout: Duration,
    ) {
        let Some(connection) = self.connections.get(&id).cloned() else {
            return;
        };
        add(&self.shared.counters.acknowledge_requests, 1);
        self.requests.spawn(async move {
            let result = connection.call_with(&request, version, timeout).await;
            Completion::Acknowledged(id, result.map_err(|error| call_failure(&error)))
        });
    }

    /// Over a connection that no ShareFetch uses: the link may be what damages bytes.
    fn spawn_read_again(&mut self, id: ReadId, read: LogRead, until: Instant) {
        let cluster = self.cluster.until(until);
        self.requests
            .spawn(async move { Completion::ReadAgain(id, cluster.read_log(&read).await) });
    }

    // ---- answers

    fn complete_all(&mut self, first: Result<Completion, tokio::task::JoinError>) {
        let mut next = Some(first);
        while let Some(completion) = next {
            match completion {
                Ok(completion) => self.complete(completion),
                // A request's task never panics and is never aborted while the driver runs.
                Err(error) => tracing::error!(%error, "A request ended without an answer."),
            }
            next = self.requests.try_join_next();
        }
    }

    fn complete(&mut self, completion: Completion) {
        let now = Instant::now().into_std();
        match completion {
            Completion::Metadata(Ok(response)) => self.core.handle_metadata(now, Ok(&response)),
            Completion::Metadata(Err(failure)) => self.core.handle_metadata(now, Err(failure)),
            Completion::Coordinator(result) => self.core.handle_coordinator(now, result),
            Completion::Heartbeat(connection, result) => {
                self.heartbeats = connection;
                match result {
                    Ok(response) => self.core.handle_heartbeat(now, Ok(&response)),
                    Err(failure) => self.core.handle_heartbeat(now, Err(failure)),
                }
            }
            Completion::Connected(id, Ok((connection, versions))) => {
                let watched = connection.clone();
                self.requests.spawn(async move {
                    Completion::Disconnected(id, watched.closed().await.to_string())
                });
                self.connections.insert(id, connection);
                self.core.handle_connected(now, id, Ok(versions));
            }
            Completion::Connected(id, Err(failure)) => {
                self.core.handle_connected(now, id, Err(failure))
            }
            Completion::Disconnected(id, why) => {
                self.connections.remove(&id);
                self.core.handle_disconnected(now, id, &why);
            }
            Completion::Fetched(id, result) => self.core.handle_share_fetch(now, id, result),
            Completion::Acknowledged(id, result) => {
                self.core.handle_share_acknowledge(now, id, result)
            }
            Completion::Group(fact) => self.learn_of_group(Instant::from_std(now), fact),
            Completion::ReadAgain(id, answer) => {
                self.shared
                    .tell(|outbox| outbox.reads.push_back((id, answer)));
            }
        }
    }

    // ---- events

    fn enter_events(&mut self, now: Instant) {
        while let Some(event) = self.core.poll_event() {
            self.enter(now, event);
        }
    }

    fn enter(&mut self, now: Instant, event: Event) {
        match event {
            Event::Joined { member_epoch } => {
                if let Some(interval) = &mut self.poll_interval {
                    interval.joined(now);
                }
                self.shared.tell(|outbox| outbox.joined = true);
                self.watch_group(now);
                self.observe(&ShareEvent::Joined {
                    member_epoch: member_epoch.0,
                });
            }
            Event::AssignmentChanged => {
                if let Some(group) = &self.group {
                    group.assignment_changed();
                }
                self.observe(&ShareEvent::AssignmentChanged);
            }
            Event::Acquired(acquired) => self.enter_acquired(now, acquired),
            Event::Acknowledged(outcome) => self.enter_outcome(now, outcome),
            Event::Released(release) => {
                let topic = self.topic(release.partition);
                self.name_last_delivery(
                    &topic,
                    release.first_offset..=release.last_offset,
                    release.delivery_count,
                    &release.why,
                );
                self.observe(&ShareEvent::Released { topic, release });
            }
            Event::LastDeliveryDropped(release) => self.settle_last_delivery(now, release),
            Event::LockLost(loss) => {
                add(
                    &self.shared.counters.locks_lost,
                    offsets(loss.first_offset, loss.last_offset),
                );
                if let Some(lock) = self.locks.get(&loss.acquisition) {
                    lock.lost(&loss);
                }
                self.shared.wake();
                let topic = self.topic(loss.partition);
                self.name_last_delivery(
                    &topic,
                    loss.first_offset..=loss.last_offset,
                    loss.delivery_count,
                    &loss.why,
                );
                self.observe(&ShareEvent::LockLost { topic, loss });
            }
            Event::Stalled => {
                self.shared.stall();
                self.observe(&ShareEvent::Stalled);
            }
            Event::LockRenewed {
                acquisition,
                deadline,
                offsets,
            } => {
                add(&self.shared.counters.records_renewed, offsets);
                if let Some(lock) = self.locks.get(&acquisition) {
                    lock.renewed(Instant::from_std(deadline), self.core.lock_duration());
                }
                self.shared.wake();
            }
            Event::LockNotRenewed { acquisition } => {
                if let Some(lock) = self.locks.get(&acquisition) {
                    lock.not_renewed();
                }
                self.shared.wake();
            }
            Event::RenewableChanged { renewable } => {
                self.shared.renewable.store(renewable, Ordering::Relaxed);
                self.locks
                    .values()
                    .for_each(|lock| lock.renewability_changed());
                self.shared.wake();
            }
            Event::Committed(commit) => {
                let report = self.reporter.take();
                for reply in self.commits.remove(&commit).unwrap_or_default() {
                    // The caller may have stopped waiting.
                    drop(reply.send(report.clone()));
                }
            }
            Event::Warning(warning) => self.enter_warning(warning),
            Event::Fatal(error) => self.fail(error),
            Event::Closed => self.closed = true,
            _ => {}
        }
    }

    fn enter_acquired(&mut self, now: Instant, acquired: Acquired) {
        let counters = &self.shared.counters;
        for range in &acquired.ranges {
            let count = offsets(range.first_offset, range.last_offset);
            add(&counters.records_acquired, count);
            if range.delivery_count > 1 {
                add(&counters.records_redelivered, count);
            }
        }
        add(&counters.bytes_fetched, acquired.records.len() as u64);
        self.last_record_at = Some(now);
        if self.observer.is_some() {
            self.observe(&ShareEvent::Acquired {
                topic: Arc::clone(&acquired.topic),
                partition: acquired.partition.partition,
                ranges: acquired.ranges.clone(),
            });
        }
        self.topics
            .entry(acquired.partition)
            .or_insert_with(|| Arc::clone(&acquired.topic));
        let lock = Arc::new(LockState::new(
            Instant::from_std(acquired.deadline),
            self.core.lock_duration(),
            acquired.renewable,
        ));
        self.locks.insert(acquired.id, Arc::clone(&lock));
        self.shared
            .tell(|outbox| outbox.arrivals.push_back(Arrival { acquired, lock }));
    }

    /// Records that are no longer ours had no delivery left: the broker archives them. Who watches tells
    /// it in its own words.
    fn name_last_delivery(
        &self,
        topic: &str,
        offsets: RangeInclusive<i64>,
        delivery_count: i16,
        why: &dyn Display,
    ) {
        let limit = self.core.delivery_count_limit();
        if self.observer.is_none() && limit.is_some_and(|limit| delivery_count >= limit) {
            tracing::error!(
                group_id = %self.core.config().group_id, topic,
                first_offset = offsets.start(), last_offset = offsets.end(), delivery_count, %why,
                "Records are lost to this group unless another member has settled them: it was their last allowed delivery."
            );
        }
    }

    /// Records have no delivery left, and their owner has dropped them.
    fn settle_last_delivery(&mut self, now: Instant, release: Release) {
        let topic = self.topic(release.partition);
        let ask = |observer: &Arc<dyn ShareObserver>| observer.last_delivery(&topic, &release);
        let settled = match &self.observer {
            Some(observer) => catch_unwind(AssertUnwindSafe(|| ask(observer))).unwrap_or_default(),
            None => {
                tracing::error!(
                    group_id = %self.core.config().group_id, %topic, partition = release.partition.partition,
                    first_offset = release.first_offset, last_offset = release.last_offset,
                    delivery_count = release.delivery_count,
                    "Records were dropped on their last allowed delivery; they are rejected."
                );
                LastDelivery::Reject
            }
        };
        let how = match settled {
            LastDelivery::Reject => Acknowledgement::Reject,
            LastDelivery::Accept => Acknowledgement::Accept,
            LastDelivery::Release => Acknowledgement::Release,
        };
        let (first, last) = (release.first_offset, release.last_offset);
        self.core
            .acknowledge(now.into_std(), release.acquisition, first, last, how);
        self.observe(&ShareEvent::LastDeliveryDropped {
            topic,
            release,
            settled,
        });
    }

    /// Settles offsets of an acquisition; returns how many of them were held. The acknowledgement of what was
    /// lost before is never sent, which is reported: its loss was told.
    fn settle(
        &mut self,
        now: Instant,
        id: AcquisitionId,
        (first, last): (i64, i64),
        how: Acknowledgement,
    ) -> u64 {
        let settled = self.core.acknowledge(now.into_std(), id, first, last, how);
        let lock = self.locks.get(&id);
        let lost = lock.map_or(Vec::new(), |lock| lock.settle_lost(first, last));
        for loss in lost {
            let topic = self.topic(loss.partition);
            self.reporter.enter_late(&topic, &loss);
        }
        settled
    }

    fn unused_locks(&self) -> Vec<AcquisitionId> {
        let unused = |(id, lock): (&AcquisitionId, &Arc<LockState>)| {
            (Arc::strong_count(lock) == 1).then_some(*id)
        };
        self.locks.iter().filter_map(unused).collect()
    }

    fn enter_outcome(&mut self, now: Instant, outcome: AckOutcome) {
        let counters = &self.shared.counters;
        let count = offsets(outcome.first_offset, outcome.last_offset);
        let counter = match (outcome.result, outcome.how) {
            (Ok(()), Acknowledgement::Accept) => &counters.accepted,
            (Ok(()), Acknowledgement::Release) => &counters.released,
            (Ok(()), Acknowledgement::Reject) => &counters.rejected,
            (Ok(()), Acknowledgement::Gap) => &counters.gaps,
            (Err(AckFailure::Broker(_)), _) => &counters.acknowledge_errors,
            (Err(_), _) => &counters.acknowledgements_lost,
        };
        add(counter, count);
        if outcome.result.is_err() && outcome.how == Acknowledgement::Accept {
            add(&counters.accepts_unconfirmed, count);
        }
        self.last_settled_at = Some(now);
        self.confirm(&outcome);
        let topic = self.topic(outcome.partition);
        self.reporter.enter(&topic, &outcome);
        self.observe(&ShareEvent::Acknowledged { topic, outcome });
    }

    /// Tells those who wait for one of these records.
    fn confirm(&mut self, outcome: &AckOutcome) {
        let id = outcome.acquisition;
        let records = (id, outcome.first_offset)..=(id, outcome.last_offset);
        for (_, reply) in self.confirmations.extract_if(records, |_, _| true) {
            // The caller may have stopped waiting.
            let _stopped = reply.send(outcome.result);
        }
    }

    fn topic(&self, partition: TopicPartition) -> Arc<str> {
        self.topics
            .get(&partition)
            .cloned()
            .unwrap_or_else(|| partition.topic_id.to_string().into())
    }

    fn enter_warning(&mut self, warning: Warning) {
        // Who watches tells it in its own words.
        if self.observer.is_none() {
            let config = self.core.config();
            tracing::warn!(group_id = %config.group_id, member_id = %config.member_id, "{warning}.");
        }
        self.observe(&ShareEvent::Warning(warning));
    }

    fn fail(&mut self, error: FatalError) {
        tracing::error!(group_id = %self.core.config().group_id, "{error}.");
        self.shared.tell(|outbox| {
            outbox.fatal = Some(error.clone());
            outbox.failed = Some(PollError::Fatal(error));
        });
        self.core.abort();
    }

    fn observe(&self, event: &ShareEvent) {
        if let Some(observer) = &self.observer
            && catch_unwind(AssertUnwindSafe(|| observer.event(event))).is_err()
        {
            tracing::error!("An observer panicked; the consumer goes on.");
        }
    }

    fn publish(&mut self, now: Instant) {
        self.published_at = Some(now);
        let core = &self.core;
        let status = ShareStatus {
            member_id: core.config().member_id.clone(),
            member_epoch: core.member_epoch().0,
            state: if self.closed {
                MemberState::Left
            } else {
                core.member_state()
            },
            assignment: core.assignment(),
            records_held: core.records_held(),
            acknowledgements_pending: core.acknowledgements_pending(),
            last_record_at: self.last_record_at,
            last_settled_at: self.last_settled_at,
            missing_topics: core.missing_topics().map(str::to_owned).collect(),
            problem: core.problem().map(|problem| problem.cause().into()),
        };
        self.shared.status.send_if_modified(|current| {
            let changed = *current != status;
            *current = status;
            changed
        });
    }

    /// Tells everybody who waits.
    fn finish(&mut self) {
        let report = self.reporter.take();
        let waiting = self
            .closing
            .take()
            .map(|(_, replies)| replies)
            .unwrap_or_default();
        for reply in std::mem::take(&mut self.commits)
            .into_values()
            .flatten()
            .chain(waiting)
        {
            drop(reply.send(report.clone()));
        }
        for command in self.shared.close_commands() {
            command.end(report.clone());
        }
        self.shared.tell(|outbox| outbox.closed = true);
        for connection in self.connections.values() {
            connection.close();
        }
    }
}

/// A driver that is dropped before its end (its runtime ended, or it panicked) leaves nobody waiting.
impl Drop for Driver {
    fn drop(&mut self) {
        if !self.closed {
            self.shared
                .tell(|outbox| outbox.failed = Some(PollError::Bug));
            self.finish();
        }
    }
}

fn versions(connection: &Connection) -> Result<BrokerVersions, CallError> {
    Ok(BrokerVersions {
        share_fetch: connection.version::<ShareFetchRequest>()?,
        share_acknowledge: connection.version::<ShareAcknowledgeRequest>()?,
    })
}

fn call_failure(error: &CallError) -> Failure {
    Failure {
        detail: error.to_string(),
        unsupported: matches!(error, CallError::Unsupported { .. }),
    }
}

fn client_failure(error: &ClientError) -> Failure {
    match error {
        ClientError::Call(error) => call_failure(error),
        error => Failure {
            detail: error.to_string(),
            unsupported: false,
        },
    }
}
