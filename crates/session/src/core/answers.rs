//! Answers of leaders: ShareFetch and ShareAcknowledge.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sharegroup_wire::duration::show;
use sharegroup_wire::message::share_acknowledge::ShareAcknowledgeResponse;
use sharegroup_wire::message::share_fetch::{
    AcquiredRecords, FetchedPartition, LeaderIdAndEpoch, ShareFetchResponse,
};
use sharegroup_wire::text::visible;
use sharegroup_wire::{BrokerId, ErrorCode};

use super::renewal::lock_of;
use super::{OPENING, SessionCore};
use crate::ack_book::{Grant, Verdict};
use crate::acquired::TopicPartition;
use crate::event::{
    AckFailure, Acquired, AcquiredRange, BrokerVersions, ConnectionId, Event, Failure,
    ReleaseReason, Warning,
};
use crate::limits::{HOLDING_PACE_MAX, HOLDING_PACE_MIN, THROTTLE_MAX, UNAUTHORIZED_BACKOFF};
use crate::share_session::{FetchProgress, InFlight, Link, Sending};
use crate::trouble::Subject;

/// Results of acknowledgements, by partition.
type Results = BTreeMap<TopicPartition, (ErrorCode, LeaderIdAndEpoch)>;

impl SessionCore {
    /// Answer to [`Request::ShareFetch`](crate::Request::ShareFetch). Answers of a dropped connection
    /// are ignored.
    pub fn handle_share_fetch(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        result: Result<ShareFetchResponse, Failure>,
    ) {
        let Some(Answered {
            broker,
            versions,
            in_flight,
            response,
        }) = self.take_answer(now, connection, result)
        else {
            return;
        };
        self.enter_acknowledged(now, broker, &in_flight, &acknowledge_results(&response));
        let fetched =
            matches!(in_flight.sending, Sending::Fetch { records_max } if records_max > 0);
        let mut acquired = false;
        let mut trouble = None;
        if fetched {
            self.fetches_go_well(broker);
        }
        for topic in response.responses {
            for partition in topic.partitions {
                let tp = TopicPartition {
                    topic_id: topic.topic_id,
                    partition: partition.partition_index,
                };
                match partition.error_code {
                    ErrorCode::None => {
                        acquired |=
                            self.enter_acquired(now, broker, versions, &in_flight, tp, partition)
                    }
                    error => {
                        trouble = trouble.max(Some(self.enter_fetch_error(
                            now,
                            broker,
                            tp,
                            error,
                            partition.current_leader,
                        )))
                    }
                }
            }
        }
        self.pace(now, broker, acquired, fetched, trouble);
        self.advance_close(now);
    }

    /// Answer to [`Request::ShareAcknowledge`](crate::Request::ShareAcknowledge). Answers of a dropped
    /// connection are ignored.
    pub fn handle_share_acknowledge(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        result: Result<ShareAcknowledgeResponse, Failure>,
    ) {
        let Some(Answered {
            broker,
            in_flight,
            response,
            ..
        }) = self.take_answer(now, connection, result)
        else {
            return;
        };
        if in_flight.sending == Sending::Close {
            return self.closed_session(now, broker);
        }
        let results = response.responses.iter().flat_map(|topic| {
            topic.partitions.iter().map(|partition| {
                let tp = TopicPartition {
                    topic_id: topic.topic_id,
                    partition: partition.partition_index,
                };
                (tp, (partition.error_code, partition.current_leader.clone()))
            })
        });
        let results: Results = results.collect();
        for (partition, ranges) in &in_flight.renewed {
            // No result is no renewal: the old deadline stands.
            let error = results
                .get(partition)
                .map_or(ErrorCode::UnknownServerError, |(error, _)| *error);
            self.resolve_renewal(now, in_flight.sent_at, ranges, error);
        }
        self.enter_acknowledged(now, broker, &in_flight, &results);
        self.advance_close(now);
    }

    /// The steps that both answers begin with. `None`: it isn't wanted, or the request failed as a whole.
    fn take_answer<R: Answer>(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        result: Result<R, Failure>,
    ) -> Option<Answered<R>> {
        let (broker, versions) = self.answering(connection)?;
        let response = match result {
            Ok(response) => response,
            Err(failure) => {
                self.end_session(now, broker, &failure.detail);
                return None;
            }
        };
        let head = response.head();
        self.throttle(now, broker, head.throttle_time_ms);
        if !head.error.is_none() {
            self.refused(now, broker, head.error, head.message);
            return None;
        }
        let in_flight = self.answered(broker)?;
        if let Some(lock) = lock_of(head.lock_timeout_ms) {
            self.lock = lock;
        }
        Some(Answered {
            broker,
            versions,
            in_flight,
            response,
        })
    }

    fn answering(&self, connection: ConnectionId) -> Option<(BrokerId, BrokerVersions)> {
        self.sessions
            .iter()
            .find_map(|(broker, session)| match session.link {
                Link::Up(up, versions) if up == connection && session.in_flight.is_some() => {
                    Some((*broker, versions))
                }
                _ => None,
            })
    }

    /// The session accepted its request: it counts, and its partitions changed.
    fn answered(&mut self, broker: BrokerId) -> Option<InFlight> {
        let session = self.sessions.get_mut(&broker)?;
        let in_flight = session.in_flight.take()?;
        session.succeeded();
        let leader = Subject::Leader(broker);
        self.troubles.over(|subject| *subject == leader);
        for partition in &in_flight.added {
            session.contains.insert(*partition);
            session
                .progress
                .insert(*partition, FetchProgress::default());
        }
        for partition in &in_flight.forgotten {
            session.contains.remove(partition);
            session.progress.remove(partition);
        }
        Some(in_flight)
    }

    /// Until the answer says otherwise: a partition without records isn't in it.
    fn fetches_go_well(&mut self, broker: BrokerId) {
        let Some(session) = self.sessions.get(&broker) else {
            return;
        };
        self.troubles.over(|subject| match subject {
            Subject::Fetch(partition) => session.contains.contains(partition),
            _ => false,
        });
    }

    fn closed_session(&mut self, now: Instant, broker: BrokerId) {
        if let Some(connection) = self
            .sessions
            .remove(&broker)
            .and_then(|session| session.connection())
        {
            self.disconnects
                .push_back(crate::event::Request::Disconnect { broker, connection });
        }
        // Partitions may have come back while the close was on its way.
        self.distribute(now);
        self.advance_close(now);
    }

    /// KIP-219: the broker has muted the connection for this time.
    fn throttle(&mut self, now: Instant, broker: BrokerId, throttle_time_ms: i32) {
        let Some(time) = lock_of(throttle_time_ms) else {
            let quota = Subject::Quota(broker);
            return self.troubles.over(|subject| *subject == quota);
        };
        if let Some(session) = self.sessions.get_mut(&broker) {
            let until = now + time.min(THROTTLE_MAX);
            session.muted_until = session.muted_until.max(until);
        }
        self.warn(
            now,
            Subject::Quota(broker),
            Warning::Retrying {
                what: "quota",
                detail: format!("broker {broker} throttles fetches for {}", show(time)),
            },
        );
    }

    /// A top-level error: the session is over, whatever the broker made of the request.
    fn refused(
        &mut self,
        now: Instant,
        broker: BrokerId,
        error: ErrorCode,
        message: Option<String>,
    ) {
        let detail = message.map_or_else(
            || error.to_string(),
            |message| format!("{error}: {}", visible(&message)),
        );
        match error {
            ErrorCode::UnsupportedVersion => return self.fail_share_groups_off(),
            ErrorCode::ShareSessionLimitReached => {
                // No session was made; the connection is fine (B-027).
                let most = self.config.retry_backoff_max;
                if let Some(session) = self.sessions.get_mut(&broker) {
                    session.in_flight = None;
                    session.back_off(now, Duration::ZERO, most);
                }
                return self.warn(
                    now,
                    Subject::Leader(broker),
                    Warning::Retrying {
                        what: OPENING,
                        detail: format!("broker {broker}: {detail}"),
                    },
                );
            }
            _ => {}
        }
        let denied = matches!(
            error,
            ErrorCode::GroupAuthorizationFailed | ErrorCode::TopicAuthorizationFailed
        );
        self.end_session(now, broker, &detail);
        if let Some(session) = self.sessions.get_mut(&broker) {
            let least = if denied {
                UNAUTHORIZED_BACKOFF
            } else {
                Duration::ZERO
            };
            session.back_off(now, least, self.config.retry_backoff_max);
        }
    }

    fn enter_acknowledged(
        &mut self,
        now: Instant,
        broker: BrokerId,
        in_flight: &InFlight,
        results: &Results,
    ) {
        for (partition, ranges) in &in_flight.acknowledged {
            let Some((error, hint)) = results.get(partition) else {
                // A partition without a result: unknown (protocol, trap 10).
                let unknown = Verdict::Lost(AckFailure::Unknown);
                self.book.resolve(now, *partition, ranges, unknown);
                continue;
            };
            let verdict = Verdict::of(*error);
            let acknowledgements = Subject::Acknowledgements(*partition);
            self.troubles.over(|subject| *subject == acknowledgements);
            self.book.resolve(now, *partition, ranges, verdict);
            match error {
                ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch => {
                    self.leader_moved(now, broker, *partition, hint)
                }
                ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId => {
                    self.topology.refresh(now)
                }
                _ => {}
            }
            if verdict == Verdict::Retry {
                let detail = format!("partition {}: {error}", partition.partition);
                self.warn(
                    now,
                    acknowledgements,
                    Warning::Retrying {
                        what: "acknowledging",
                        detail,
                    },
                );
            }
        }
    }

    fn leader_moved(
        &mut self,
        now: Instant,
        broker: BrokerId,
        partition: TopicPartition,
        hint: &LeaderIdAndEpoch,
    ) {
        if !self
            .topology
            .hint(partition, hint.leader_id, hint.leader_epoch)
        {
            self.topology.forget_leader(now, partition, broker);
        }
        self.topology.refresh(now);
        self.distribute(now);
    }

    /// A partition's fetch failed. Returns how long to wait at least.
    fn enter_fetch_error(
        &mut self,
        now: Instant,
        broker: BrokerId,
        partition: TopicPartition,
        error: ErrorCode,
        hint: LeaderIdAndEpoch,
    ) -> Duration {
        match error {
            ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch => {
                self.leader_moved(now, broker, partition, &hint);
                return Duration::ZERO;
            }
            ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::InconsistentTopicId => {
                self.topology.refresh(now);
            }
            _ => {}
        }
        let topic = self
            .topology
            .name(partition.topic_id)
            .map_or_else(|| partition.topic_id.to_string(), |name| name.to_string());
        self.warn(
            now,
            Subject::Fetch(partition),
            Warning::Partition {
                topic,
                partition: partition.partition,
                error,
            },
        );
        if error == ErrorCode::TopicAuthorizationFailed {
            UNAUTHORIZED_BACKOFF
        } else {
            Duration::ZERO
        }
    }

    /// Takes acquired records in. Returns whether there are any.
    fn enter_acquired(
        &mut self,
        now: Instant,
        broker: BrokerId,
        versions: BrokerVersions,
        in_flight: &InFlight,
        partition: TopicPartition,
        fetched: FetchedPartition,
    ) -> bool {
        let ranges = sane_ranges(&fetched.acquired_records);
        if ranges.is_empty() {
            return false;
        }
        // Counted from the sending: never too late, at most one wait too early.
        let deadline = in_flight.sent_at + self.lock;
        let renewable = self.is_renewable(versions);
        let renew_at = self.renew_at(deadline, versions);
        let bytes = fetched.records.len() as u64;
        self.wants_more = false;
        if self.records_held() == 0 {
            self.credit.work_begins(now);
        }
        let id = self.book.acquire(
            now,
            &Grant {
                partition,
                broker,
                ranges: &ranges,
                bytes,
                deadline,
                renew_at,
            },
        );
        self.drain_book();
        let topic = self
            .topology
            .name(partition.topic_id)
            .cloned()
            .unwrap_or_else(|| partition.topic_id.to_string().into());
        let records = fetched.records;
        self.events.push_back(Event::Acquired(Acquired {
            id,
            partition,
            topic,
            broker,
            records,
            ranges,
            deadline,
            renewable,
        }));
        if self.phase != super::Phase::Running {
            // Arrived while closing: nobody will process it.
            let all = (i64::MIN, i64::MAX);
            self.give_back(now, id, all, ReleaseReason::Unseen);
        }
        true
    }

    fn pace(
        &mut self,
        now: Instant,
        broker: BrokerId,
        acquired: bool,
        fetched: bool,
        trouble: Option<Duration>,
    ) {
        let most = self.config.retry_backoff_max;
        let Some(session) = self.sessions.get_mut(&broker) else {
            return;
        };
        if fetched && trouble.is_none() {
            for progress in session.progress.values_mut() {
                *progress = FetchProgress {
                    answered: true,
                    empty: !acquired,
                };
            }
        }
        match trouble {
            // One bad partition must not slow its neighbours.
            Some(least) if !acquired => session.back_off(now, least, most),
            _ => session.end_backoff(),
        }
        if acquired {
            session.pace = Duration::ZERO;
        } else if fetched {
            session.pace = (session.pace * 2).clamp(HOLDING_PACE_MIN, HOLDING_PACE_MAX);
        }
        session.pace_until = now + session.pace;
    }
}

/// An answer that a share session accepted.
struct Answered<R> {
    broker: BrokerId,
    versions: BrokerVersions,
    in_flight: InFlight,
    response: R,
}

/// What both answers say about the request as a whole.
struct Head {
    throttle_time_ms: i32,
    error: ErrorCode,
    message: Option<String>,
    lock_timeout_ms: i32,
}

trait Answer {
    fn head(&self) -> Head;
}

impl Answer for ShareFetchResponse {
    fn head(&self) -> Head {
        Head {
            throttle_time_ms: self.throttle_time_ms,
            error: self.error_code,
            message: self.error_message.clone(),
            lock_timeout_ms: self.acquisition_lock_timeout_ms,
        }
    }
}

impl Answer for ShareAcknowledgeResponse {
    fn head(&self) -> Head {
        Head {
            throttle_time_ms: self.throttle_time_ms,
            error: self.error_code,
            message: self.error_message.clone(),
            lock_timeout_ms: self.acquisition_lock_timeout_ms,
        }
    }
}

fn acknowledge_results(response: &ShareFetchResponse) -> Results {
    let topics = response.responses.iter();
    let partitions = topics.flat_map(|topic| {
        topic
            .partitions
            .iter()
            .map(|partition| (topic.topic_id, partition))
    });
    partitions
        .map(|(topic_id, partition)| {
            let tp = TopicPartition {
                topic_id,
                partition: partition.partition_index,
            };
            // An acknowledgement's error carries no hint in a fetch (protocol, trap 4).
            (
                tp,
                (
                    partition.acknowledge_error_code,
                    LeaderIdAndEpoch {
                        leader_id: BrokerId::NONE,
                        leader_epoch: -1,
                    },
                ),
            )
        })
        .collect()
}

/// Ranges as they should be: ascending, without overlap, none inverted (peers.md T19). The number of
/// ranges is bounded by the frame; their length is never walked.
fn sane_ranges(acquired: &[AcquiredRecords]) -> Vec<AcquiredRange> {
    let mut ranges: Vec<AcquiredRange> = acquired
        .iter()
        .filter(|range| 0 <= range.first_offset && range.first_offset <= range.last_offset)
        .map(|range| AcquiredRange {
            first_offset: range.first_offset,
            last_offset: range.last_offset.min(i64::MAX - 1),
            delivery_count: range.delivery_count.max(1),
        })
        .collect();
    ranges.sort_by_key(|range| (range.first_offset, range.last_offset));
    let mut next = 0;
    ranges.retain_mut(|range| {
        range.first_offset = range.first_offset.max(next);
        next = next.max(range.last_offset.saturating_add(1));
        range.first_offset <= range.last_offset
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquired(first_offset: i64, last_offset: i64) -> AcquiredRecords {
        AcquiredRecords {
            first_offset,
            last_offset,
            delivery_count: 1,
        }
    }

    #[test]
    fn strange_ranges_are_put_right() {
        let ranges = sane_ranges(&[
            acquired(50, 59),
            acquired(0, 9),
            acquired(5, 14),
            acquired(0, 9),
            acquired(9, 3),
            acquired(-5, 2),
            acquired(100, i64::MAX),
            acquired(i64::MAX, i64::MAX),
        ]);
        let ranges: Vec<_> = ranges
            .iter()
            .map(|range| (range.first_offset, range.last_offset))
            .collect();
        assert_eq!(ranges, [(0, 9), (10, 14), (50, 59), (100, i64::MAX - 1)]);
    }
}
