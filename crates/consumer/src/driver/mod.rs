//! Carries the session core: time and answers in, requests out. One future per consumer.

mod events;
mod losses;
mod requests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sharegroup_session::{
    AckFailure, AcquisitionId, CommitId, ConnectionId, MemberState, ReleaseReason, SessionCore,
    TopicPartition,
};
use sharegroup_wire::BrokerId;
use sharegroup_wire::net::Connection;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::losses::LossLog;
use self::requests::Completion;
use crate::cluster::Cluster;
use crate::error::PollError;
use crate::group_watch::GroupWatch;
use crate::lock::LockState;
use crate::observer::ShareObserver;
use crate::poll_interval::{PollInterval, Polls};
use crate::report::CommitReport;
use crate::shared::{Command, Shared};
use crate::status::ShareStatus;

/// Shortest time between two published snapshots.
const STATUS_PACE: Duration = Duration::from_millis(20);

pub(crate) struct Driver {
    core: SessionCore,
    cluster: Cluster,
    shared: Arc<Shared>,
    observer: Option<Arc<dyn ShareObserver>>,
    poll_interval: Option<PollInterval>,
    /// The application has asked for records. Nothing is acquired before: should it end without, each record had used
    /// up a delivery.
    asked: bool,
    paused: bool,
    #[cfg(feature = "telemetry")]
    telemetry: Option<crate::telemetry::Telemetry>,
    requests: JoinSet<Completion>,
    connections: HashMap<ConnectionId, Connection>,
    /// The coordinator's connection, which no fetch uses.
    heartbeats: Option<(BrokerId, Connection)>,
    locks: HashMap<AcquisitionId, Arc<LockState>>,
    locks_grew: bool,
    losses: LossLog,
    topics: HashMap<TopicPartition, Arc<str>>,
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
        mut core: SessionCore,
        cluster: Cluster,
        shared: Arc<Shared>,
        observer: Option<Arc<dyn ShareObserver>>,
    ) -> Self {
        core.pause();
        Self {
            group: None,
            core,
            cluster,
            shared,
            observer,
            poll_interval: None,
            asked: false,
            paused: false,
            #[cfg(feature = "telemetry")]
            telemetry: None,
            requests: JoinSet::new(),
            connections: HashMap::new(),
            heartbeats: None,
            locks: HashMap::new(),
            locks_grew: false,
            losses: LossLog::default(),
            topics: HashMap::new(),
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
        // What has arrived is told first: who waits for it wants no more.
        self.enter_events(now);
        if self.shared.wants_more(self.core.is_out_of_credit()) {
            self.core.wants_more();
        }
        while let Some(request) = self.core.poll_request(std_now) {
            self.send(request);
        }
        self.enter_events(now);
        self.losses.tell(now, false, &self.core.config().group_id);
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
        [core, closing, publish, poll, self.losses.next_at()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(now + Duration::from_secs(86_400))
    }

    fn obey(&mut self, now: Instant, command: Command) {
        let std_now = now.into_std();
        match command {
            Command::Settle(settling, reply) => {
                let settled = self.settle(now, settling);
                // What was lost before is told by its lock.
                if let Some(reply) = reply.filter(|_| settled > 0) {
                    let record = (settling.id, settling.first);
                    self.confirmations.insert(record, reply);
                }
            }
            Command::Drop {
                id,
                first,
                last,
                forgotten,
            } => {
                self.core.drop_held(std_now, id, first, last);
                // A close gives all back; who watches tells it in its own words.
                if self.closing.is_none() && self.observer.is_none() {
                    self.losses.forgotten(now, forgotten);
                }
            }
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
            Command::Take(at_once) => {
                self.core.take(at_once);
                self.asked = true;
                self.acquire();
            }
            Command::Pause => {
                self.paused = true;
                self.core.pause();
            }
            Command::Resume => {
                self.paused = false;
                self.acquire();
            }
            Command::AcquireOne => {
                self.paused = false;
                if self.asked {
                    self.core.acquire_one();
                }
            }
            Command::StopRenewals => {
                self.paused = true;
                self.core.pause();
                self.core.stop_renewals();
            }
            Command::Subscribe(topics) => self.core.subscribe(std_now, topics),
        }
    }

    fn acquire(&mut self) {
        if self.asked && !self.paused {
            self.core.resume();
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
            not_polled: self
                .poll_interval
                .as_ref()
                .is_some_and(PollInterval::is_overdue),
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
        let group_id = &self.core.config().group_id;
        self.losses.tell(Instant::now(), true, group_id);
        let unheard = self.shared.close_commands();
        for command in &unheard {
            if let Command::Settle(settling, _) = command {
                self.settle_lost(settling);
            }
        }
        let report = self.shared.reporter().take();
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
        for command in unheard {
            command.end(|| report.clone());
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
            self.locks.values().for_each(|lock| lock.ended());
            self.finish();
        }
    }
}
