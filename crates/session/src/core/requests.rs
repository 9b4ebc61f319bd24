//! What to send next.

use std::time::{Duration, Instant};

use sharegroup_wire::{BrokerId, SessionEpoch};

use super::{Phase, SessionCore};
use crate::ack_book::SentByPartition;
use crate::acquired::Counts;
use crate::event::{AcquireMode, BrokerVersions, ConnectionId, MemberState, Request};
use crate::fetch_plan::{Plan, Situation, plan};
use crate::share_session::{
    FetchTerms, Identity, InFlight, Link, RenewedByPartition, Sending, ShareSession,
};
use crate::trouble::Subject;

/// Below this credit `AcquireMode::Auto` asks by record: whole producer batches would overshoot it.
const RECORD_LIMIT_BELOW: u32 = 64;

impl SessionCore {
    /// The next thing to do, until `None`.
    pub fn poll_request(&mut self, now: Instant) -> Option<Request> {
        if let Some(request) = self.disconnects.pop_front() {
            return Some(request);
        }
        if self.phase == Phase::Closed || self.member.state == MemberState::Left {
            return None;
        }
        if self.coordinator.poll(now) {
            return Some(Request::FindCoordinator);
        }
        if let Some(coordinator) = self.coordinator.known()
            && let Some(request) = self.member.poll_heartbeat(now)
        {
            return Some(Request::Heartbeat {
                coordinator,
                request,
            });
        }
        if self.phase == Phase::Running
            && let Some(topics) = self.topology.poll(now)
        {
            return Some(Request::Metadata(topics));
        }
        // Where the credit is too small for all, the one that waits longest goes first.
        let mut brokers: Vec<_> = self
            .sessions
            .iter()
            .map(|(broker, session)| (session.fetched_at, *broker))
            .collect();
        brokers.sort_unstable();
        brokers
            .into_iter()
            .map(|(_, broker)| broker)
            .find_map(|broker| self.poll_session(now, broker))
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) and poll again, if nothing else happens.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        if self.phase == Phase::Closed || self.member.state == MemberState::Left {
            return None;
        }
        let heartbeat = self.coordinator.known().and_then(|_| self.member.next_at());
        let metadata = (self.phase == Phase::Running)
            .then(|| self.topology.next_at())
            .flatten();
        let sessions = self
            .sessions
            .keys()
            .filter_map(|broker| self.session_next_at(now, *broker));
        let cold = [
            self.coordinator.next_at(),
            heartbeat,
            metadata,
            self.book.next_time(),
            self.refusal_ends_at(),
        ];
        cold.into_iter().flatten().chain(sessions).min()
    }

    fn session_next_at(&self, now: Instant, broker: BrokerId) -> Option<Instant> {
        let session = self.sessions.get(&broker)?;
        match session.link {
            Link::Down { retry_at } => self.wants_connection(session).then_some(retry_at),
            Link::Connecting(_) => None,
            Link::Up(..) if session.in_flight.is_some() => None,
            Link::Up(_, versions) => match plan(&self.situation(now, broker, session, versions)) {
                Plan::Wait(at) => at,
                _ => Some(now),
            },
        }
    }

    fn poll_session(&mut self, now: Instant, broker: BrokerId) -> Option<Request> {
        let session = self.sessions.get(&broker)?;
        match session.link {
            Link::Down { retry_at } => self.poll_connect(now, broker, retry_at),
            Link::Connecting(_) => None,
            Link::Up(..) if session.in_flight.is_some() => None,
            Link::Up(connection, versions) => {
                let plan = plan(&self.situation(now, broker, session, versions));
                self.carry_out(now, broker, plan, connection, versions)
            }
        }
    }

    fn poll_connect(
        &mut self,
        now: Instant,
        broker: BrokerId,
        retry_at: Instant,
    ) -> Option<Request> {
        let session = self.sessions.get(&broker)?;
        if session.wanted.is_empty() || self.phase != Phase::Running {
            self.sessions.remove(&broker);
            let leader = Subject::Leader(broker);
            self.troubles.over(|subject| *subject == leader);
            return None;
        }
        if retry_at > now || !self.wants_connection(session) {
            return None;
        }
        let session = self.sessions.get_mut(&broker)?;
        self.last_connection += 1;
        let connection = ConnectionId(self.last_connection);
        session.link = Link::Connecting(connection);
        Some(Request::Connect { broker, connection })
    }

    /// Whether there is anything to ask a leader for that has no connection.
    fn wants_connection(&self, session: &ShareSession) -> bool {
        let acquires = self.phase == Phase::Running && !self.paused && !self.stalled;
        acquires && !session.wanted.is_empty()
    }

    fn situation(
        &self,
        now: Instant,
        broker: BrokerId,
        session: &ShareSession,
        versions: BrokerVersions,
    ) -> Situation {
        let Counts { held, pending, .. } =
            self.book.counts(|acquisition| acquisition.broker == broker);
        let pending_rides = self.book.iter().all(|(_, acquisition)| {
            acquisition.broker != broker
                || acquisition.counts().pending == 0
                || session.wanted.contains(&acquisition.partition)
                || session.contains.contains(&acquisition.partition)
        });
        let held_anywhere = self.records_held();
        let held_max = self.records_held_max();
        let again = self.book.again(now, broker);
        let pending = pending.saturating_sub(again.blocked);
        let pending_due = session.pending_due.filter(|_| pending > 0);
        Situation {
            now,
            open: session.is_open(),
            closing: self.phase != Phase::Running,
            paused: self.paused || self.stalled,
            assigned: !session.wanted.is_empty(),
            changed: session.is_changed(),
            credit: self.credit(held_anywhere),
            credit_min: self.credit_min(held_max),
            crowded: u64::from(held_max) < self.leaders(),
            held,
            held_anywhere,
            pending,
            blocked: again.blocked,
            pending_due: pending_due.into_iter().chain(again.due).min(),
            pending_rides,
            renew_due: self.renew_due(broker, versions),
            muted_until: session.muted_until,
            backoff_until: session.backoff_until,
            pace_until: session.pace_until,
            wait_max: self.config.fetch_wait_max.min(self.lock / 4),
        }
    }

    /// Most records to hold now.
    pub(super) fn records_held_max(&self) -> u32 {
        let ours = self.group.part_of(self.assignment.iter());
        let leaders = u32::try_from(self.leaders()).unwrap_or(u32::MAX);
        let bound = self.config.records_held_max;
        let credit = self.credit.records(bound, ours, leaders);
        if self.may_renew() {
            credit
        } else {
            credit.min(self.credit.settled_within(self.lock / 2))
        }
    }

    /// Records that one more fetch may ask for: what is held and what other leaders were asked for
    /// is taken off, and nothing is asked for beyond the bound on bytes.
    fn credit(&self, held: u64) -> u32 {
        let bytes: u64 = self
            .book
            .iter()
            .filter(|(_, acquisition)| acquisition.counts().held > 0)
            .map(|(_, acquisition)| acquisition.bytes)
            .sum();
        if bytes >= self.config.bytes_held_max {
            return 0;
        }
        let asked: u64 = self
            .sessions
            .values()
            .filter_map(|session| match session.in_flight.as_ref()?.sending {
                Sending::Fetch { records_max, .. } => Some(u64::from(records_max)),
                _ => None,
            })
            .sum();
        let held_max = self.records_held_max();
        let most = self.held_enough.unwrap_or(u64::MAX).min(held_max.into());
        let left = most.saturating_sub(held).saturating_sub(asked);
        let share = self.share_of_leader(held_max);
        u32::try_from(left).unwrap_or(u32::MAX).min(share)
    }

    /// Each leader may ask for its share, so that one long poll doesn't starve the others.
    fn share_of_leader(&self, held_max: u32) -> u32 {
        let share = u64::from(held_max) / self.leaders();
        u32::try_from(share).unwrap_or(u32::MAX).max(1)
    }

    /// Less credit is not worth a fetch while something is held, unless the application waits for it.
    pub(super) fn credit_min(&self, held_max: u32) -> u32 {
        if self.wants_more || self.held_enough.is_some() {
            return 1;
        }
        (held_max / 4).max(1).min(self.share_of_leader(held_max))
    }

    /// Leaders with partitions of ours, at least 1.
    fn leaders(&self) -> u64 {
        let wanted = |session: &&ShareSession| !session.wanted.is_empty();
        (self.sessions.values().filter(wanted).count() as u64).max(1)
    }

    fn carry_out(
        &mut self,
        now: Instant,
        broker: BrokerId,
        plan: Plan,
        connection: ConnectionId,
        versions: BrokerVersions,
    ) -> Option<Request> {
        match plan {
            Plan::Wait(_) => None,
            Plan::Drop => {
                self.sessions.remove(&broker);
                self.disconnects
                    .push_back(Request::Disconnect { broker, connection });
                self.advance_close(now);
                self.disconnects.pop_front()
            }
            Plan::Fetch { wait, records_max } => {
                Some(self.send_fetch(now, broker, wait, records_max, connection, versions)?)
            }
            Plan::Acknowledge => {
                let acknowledged = self.book.take_pending(now, broker);
                self.send_acknowledge(
                    now,
                    broker,
                    acknowledged,
                    RenewedByPartition::new(),
                    connection,
                    versions,
                )
            }
            Plan::Renew => {
                let renewed = self.take_renewals(now, broker);
                self.send_acknowledge(
                    now,
                    broker,
                    SentByPartition::new(),
                    renewed,
                    connection,
                    versions,
                )
            }
            Plan::Close => self.send_close(now, broker, connection, versions),
        }
    }

    fn send_fetch(
        &mut self,
        now: Instant,
        broker: BrokerId,
        wait: Duration,
        records_max: u32,
        connection: ConnectionId,
        versions: BrokerVersions,
    ) -> Option<Request> {
        let open = self.sessions.get(&broker)?.is_open();
        // Epoch 0 must not carry acknowledgements (KIP-932, B-026).
        let acknowledged = if open {
            self.book.take_pending(now, broker)
        } else {
            SentByPartition::new()
        };
        let record_limit = match self.config.acquire_mode {
            AcquireMode::Auto => records_max < RECORD_LIMIT_BELOW,
            AcquireMode::BatchOptimized => false,
            AcquireMode::RecordLimit => true,
        };
        let fetching = records_max > 0;
        let terms = FetchTerms {
            wait,
            records_max,
            batch_records: self.config.batch_records,
            bytes_min: if fetching {
                self.config.fetch_bytes_min
            } else {
                0
            },
            bytes_max: if fetching {
                self.config.fetch_bytes_max
            } else {
                0
            },
            record_limit: record_limit && versions.share_fetch >= 2,
        };
        let identity = Identity {
            group_id: &self.config.group_id,
            member_id: &self.config.member_id,
        };
        let session = self.sessions.get_mut(&broker)?;
        session.fetched_at = now;
        let (request, added, forgotten) = session.build_fetch(identity, terms, &acknowledged);
        session.pending_due = session
            .pending_due
            .filter(|_| !open || acknowledged.is_empty());
        session.in_flight = Some(InFlight {
            sending: Sending::Fetch { records_max },
            sent_at: now,
            acknowledged,
            renewed: RenewedByPartition::new(),
            forgotten,
            added,
        });
        let timeout = self.config.request_timeout + wait;
        Some(Request::ShareFetch {
            connection,
            request,
            version: versions.share_fetch,
            timeout,
        })
    }

    fn send_acknowledge(
        &mut self,
        now: Instant,
        broker: BrokerId,
        acknowledged: SentByPartition,
        renewed: RenewedByPartition,
        connection: ConnectionId,
        versions: BrokerVersions,
    ) -> Option<Request> {
        let identity = Identity {
            group_id: &self.config.group_id,
            member_id: &self.config.member_id,
        };
        let session = self.sessions.get_mut(&broker)?;
        if renewed.is_empty() {
            session.pending_due = None;
        }
        if acknowledged.is_empty() && renewed.is_empty() {
            return None;
        }
        let request =
            ShareSession::build_acknowledge(identity, session.epoch, &acknowledged, &renewed);
        session.in_flight = Some(InFlight {
            sending: Sending::Acknowledge,
            sent_at: now,
            acknowledged,
            renewed,
            forgotten: Vec::new(),
            added: Vec::new(),
        });
        let timeout = self.config.request_timeout;
        Some(Request::ShareAcknowledge {
            connection,
            request,
            version: versions.share_acknowledge,
            timeout,
        })
    }

    fn send_close(
        &mut self,
        now: Instant,
        broker: BrokerId,
        connection: ConnectionId,
        versions: BrokerVersions,
    ) -> Option<Request> {
        let identity = Identity {
            group_id: &self.config.group_id,
            member_id: &self.config.member_id,
        };
        let session = self.sessions.get_mut(&broker)?;
        let nothing = SentByPartition::new();
        let request = ShareSession::build_acknowledge(
            identity,
            SessionEpoch::CLOSE,
            &nothing,
            &RenewedByPartition::new(),
        );
        session.in_flight = Some(InFlight {
            sending: Sending::Close,
            sent_at: now,
            acknowledged: nothing,
            renewed: RenewedByPartition::new(),
            forgotten: Vec::new(),
            added: Vec::new(),
        });
        let timeout = self.config.request_timeout;
        Some(Request::ShareAcknowledge {
            connection,
            request,
            version: versions.share_acknowledge,
            timeout,
        })
    }
}
