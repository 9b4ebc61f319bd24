//! Membership in the share group (KIP-932 "ShareGroupHeartbeat").
//!
//! The member id is made once and kept over every rejoin. A heartbeat that joins, or that follows an
//! error or a new epoch without an assignment, carries all fields; the others send null for what didn't
//! change.

use std::time::{Duration, Instant};

use sharegroup_wire::message::share_group_heartbeat::{
    Assignment, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
};
use sharegroup_wire::text::visible;
use sharegroup_wire::{ErrorCode, MemberEpoch};

use crate::event::{FatalError, MemberState, Warning};
use crate::limits::{
    EARLY_HEARTBEAT_PAUSE, EARLY_HEARTBEATS_MAX, HEARTBEAT_INTERVAL_DEFAULT,
    HEARTBEAT_INTERVAL_MIN, THROTTLE_MAX, UNAUTHORIZED_BACKOFF,
};

/// What the answer to a heartbeat leads to.
#[derive(Debug, PartialEq)]
pub(crate) enum Heartbeat {
    /// In the group; `joined` for the first time since a join, a new assignment if there is one.
    Stable {
        joined: bool,
        assignment: Option<Assignment>,
    },
    /// Out of the group or not heard: goes on by itself.
    Trouble(Warning),
    /// The broker isn't the coordinator (any more).
    NotCoordinator,
    /// Left.
    Left,
    /// Can't go on: the cluster has no share groups.
    ShareGroupsOff,
    /// Can't go on.
    Fatal(FatalError),
}

/// The heartbeat that waits for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// With all fields, or with those that changed.
    Beat {
        full: bool,
    },
    Leave,
}

#[derive(Debug)]
pub(crate) struct Member {
    group_id: String,
    member_id: String,
    rack_id: Option<String>,
    topics: Vec<String>,
    pub(crate) state: MemberState,
    epoch: MemberEpoch,
    interval: Duration,
    next_at: Option<Instant>,
    in_flight: Option<Sent>,
    /// The next heartbeat carries all fields.
    full: bool,
    backoff: Duration,
    /// Heartbeats that may still come early: the first assignment is usually empty, and the
    /// coordinator tells the real one only when it is asked.
    early: u32,
}

impl Member {
    pub(crate) fn new(
        now: Instant,
        group_id: String,
        member_id: String,
        rack_id: Option<String>,
        topics: Vec<String>,
    ) -> Self {
        Self {
            group_id,
            member_id,
            rack_id,
            topics,
            state: MemberState::Joining,
            epoch: MemberEpoch::JOIN,
            interval: HEARTBEAT_INTERVAL_DEFAULT,
            next_at: Some(now),
            in_flight: None,
            full: true,
            backoff: Duration::from_millis(100),
            early: EARLY_HEARTBEATS_MAX,
        }
    }

    pub(crate) const fn epoch(&self) -> MemberEpoch {
        self.epoch
    }

    /// When the next heartbeat is due.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        if self.in_flight.is_some() || self.state == MemberState::Left {
            None
        } else {
            self.next_at
        }
    }

    /// A new subscription is told at once.
    pub(crate) fn subscribe(&mut self, now: Instant, topics: Vec<String>) {
        self.topics = topics;
        self.full = true;
        self.next_at = Some(now);
    }

    /// Leaves with the next heartbeat.
    pub(crate) fn leave(&mut self, now: Instant) {
        if self.state == MemberState::Left {
            return;
        }
        if self.epoch == MemberEpoch::JOIN && self.in_flight.is_none() {
            // Never taken in: nobody knows us.
            self.state = MemberState::Left;
            return;
        }
        self.state = MemberState::Leaving;
        self.next_at = Some(now);
    }

    /// Joins again after it has left, under the same id.
    pub(crate) fn join_again(&mut self, now: Instant) {
        self.state = MemberState::Joining;
        self.epoch = MemberEpoch::JOIN;
        self.full = true;
        self.next_at = Some(now);
        self.early = EARLY_HEARTBEATS_MAX;
    }

    pub(crate) fn give_up(&mut self) {
        self.state = MemberState::Left;
    }

    pub(crate) fn poll_heartbeat(&mut self, now: Instant) -> Option<ShareGroupHeartbeatRequest> {
        if self.next_at()? > now {
            return None;
        }
        let leaving = self.state == MemberState::Leaving;
        // What changes while it is on its way goes with the next one.
        let full = std::mem::take(&mut self.full) && !leaving;
        self.in_flight = Some(if leaving {
            Sent::Leave
        } else {
            Sent::Beat { full }
        });
        Some(ShareGroupHeartbeatRequest {
            group_id: self.group_id.clone(),
            member_id: self.member_id.clone(),
            member_epoch: if leaving {
                MemberEpoch::LEAVE
            } else {
                self.epoch
            },
            rack_id: self.rack_id.clone().filter(|_| full),
            subscribed_topic_names: full.then(|| self.topics.clone()),
        })
    }

    /// The heartbeat got no answer.
    pub(crate) fn handle_failure(&mut self, now: Instant, retry_backoff_max: Duration) {
        self.in_flight = None;
        self.full = true;
        self.back_off(now, retry_backoff_max);
    }

    fn back_off(&mut self, now: Instant, retry_backoff_max: Duration) {
        self.next_at = Some(now + self.backoff);
        self.backoff = (self.backoff * 2).min(retry_backoff_max);
    }

    pub(crate) fn handle_response(
        &mut self,
        now: Instant,
        response: &ShareGroupHeartbeatResponse,
        retry_backoff_max: Duration,
    ) -> Heartbeat {
        let sent = self.in_flight.take();
        if self.state == MemberState::Leaving && matches!(sent, Some(Sent::Beat { .. })) {
            // It was on its way when we decided to go: the leave follows.
            return Heartbeat::Stable {
                joined: false,
                assignment: None,
            };
        }
        if self.state == MemberState::Leaving {
            // UNKNOWN_MEMBER_ID or GROUP_ID_NOT_FOUND mean "already gone".
            return match response.error_code {
                ErrorCode::CoordinatorLoadInProgress
                | ErrorCode::CoordinatorNotAvailable
                | ErrorCode::NotCoordinator => {
                    self.back_off(now, retry_backoff_max);
                    Heartbeat::NotCoordinator
                }
                _ => {
                    self.state = MemberState::Left;
                    Heartbeat::Left
                }
            };
        }
        match response.error_code {
            ErrorCode::None => {
                let full = sent == Some(Sent::Beat { full: true });
                self.stable(now, full, response)
            }
            error => {
                self.full = true;
                self.handle_error(now, error, response, retry_backoff_max)
            }
        }
    }

    /// Whether the next heartbeat comes early.
    fn waits_for_partitions(
        &mut self,
        joined: bool,
        response: &ShareGroupHeartbeatResponse,
    ) -> bool {
        let assignment = response.assignment.as_ref();
        let assigned = assignment.is_some_and(|assignment| !assignment.topic_partitions.is_empty());
        self.early = if assigned {
            0
        } else if joined {
            EARLY_HEARTBEATS_MAX
        } else {
            self.early.saturating_sub(1)
        };
        self.early > 0
    }

    fn stable(
        &mut self,
        now: Instant,
        full: bool,
        response: &ShareGroupHeartbeatResponse,
    ) -> Heartbeat {
        let joined = self.state == MemberState::Joining;
        self.state = MemberState::Stable;
        let subscribed_meanwhile = self.full;
        // A heartbeat that was left behind in the network may come after this one: then the epoch is a new one, the
        // subscription may be an old one, and the assignment, which goes out once, may be lost. One with all fields
        // settles both.
        let is_new = self.epoch != response.member_epoch;
        self.full |= is_new && (!full || response.assignment.is_none());
        self.epoch = response.member_epoch;
        self.backoff = Duration::from_millis(100);
        if let Some(interval) = u64::try_from(response.heartbeat_interval_ms)
            .ok()
            .filter(|ms| *ms > 0)
        {
            self.interval = Duration::from_millis(interval).max(HEARTBEAT_INTERVAL_MIN);
        }
        let throttled =
            Duration::from_millis(u64::try_from(response.throttle_time_ms).unwrap_or(0))
                .min(THROTTLE_MAX);
        let pause = if self.waits_for_partitions(joined, response) {
            self.interval.min(EARLY_HEARTBEAT_PAUSE)
        } else {
            self.interval
        };
        let pause = if subscribed_meanwhile {
            Duration::ZERO
        } else {
            pause
        };
        self.next_at = Some(now + pause.max(throttled));
        Heartbeat::Stable {
            joined,
            assignment: response.assignment.clone(),
        }
    }

    fn handle_error(
        &mut self,
        now: Instant,
        error: ErrorCode,
        response: &ShareGroupHeartbeatResponse,
        retry_backoff_max: Duration,
    ) -> Heartbeat {
        let detail = response
            .error_message
            .as_deref()
            .map_or_else(String::new, visible);
        let joining = self.epoch == MemberEpoch::JOIN;
        match error {
            // Same id, epoch 0, all fields; sessions and what is held go on (KIP-932, B-029).
            ErrorCode::FencedMemberEpoch | ErrorCode::UnknownMemberId => {
                self.rejoin(now, error, retry_backoff_max)
            }
            ErrorCode::GroupIdNotFound if !joining => self.rejoin(now, error, retry_backoff_max),
            ErrorCode::GroupIdNotFound => {
                self.state = MemberState::Left;
                Heartbeat::Fatal(FatalError::GroupIdTaken {
                    group_id: self.group_id.clone(),
                })
            }
            ErrorCode::UnsupportedVersion => {
                self.state = MemberState::Left;
                Heartbeat::ShareGroupsOff
            }
            ErrorCode::NotCoordinator
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::CoordinatorLoadInProgress => {
                self.back_off(now, retry_backoff_max);
                Heartbeat::NotCoordinator
            }
            // The right may be granted, room may be made.
            ErrorCode::GroupAuthorizationFailed
            | ErrorCode::TopicAuthorizationFailed
            | ErrorCode::GroupMaxSizeReached => {
                self.next_at = Some(now + UNAUTHORIZED_BACKOFF);
                Heartbeat::Trouble(Warning::Retrying {
                    what: "joining the group",
                    detail: format!("{error}: {detail}"),
                })
            }
            ErrorCode::InvalidRequest | ErrorCode::InvalidGroupId => {
                self.state = MemberState::Left;
                Heartbeat::Fatal(FatalError::Refused {
                    what: "ShareGroupHeartbeat",
                    error,
                    detail,
                })
            }
            error => {
                self.back_off(now, retry_backoff_max);
                Heartbeat::Trouble(Warning::Retrying {
                    what: "heartbeat",
                    detail: format!("{error}: {detail}"),
                })
            }
        }
    }

    fn rejoin(&mut self, now: Instant, error: ErrorCode, retry_backoff_max: Duration) -> Heartbeat {
        if self.epoch == MemberEpoch::JOIN {
            // Refused at a join already: don't spin.
            self.back_off(now, retry_backoff_max);
        } else {
            self.next_at = Some(now);
        }
        self.epoch = MemberEpoch::JOIN;
        self.state = MemberState::Joining;
        Heartbeat::Trouble(Warning::Rejoining(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(now: Instant) -> Member {
        let topics = vec!["orders".to_owned()];
        Member::new(now, "group".to_owned(), "me".to_owned(), None, topics)
    }

    #[test]
    fn a_subscription_that_changes_while_a_heartbeat_is_on_its_way_is_told_by_the_next() {
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        let mut member = member(now);
        assert!(member.poll_heartbeat(now).is_some());
        member.subscribe(now, vec!["refunds".to_owned()]);
        let response = ShareGroupHeartbeatResponse {
            member_epoch: MemberEpoch(1),
            assignment: Some(Assignment::default()),
            ..Default::default()
        };
        member.handle_response(now, &response, Duration::from_secs(1));
        let next = member.poll_heartbeat(now).expect("at once");
        assert_eq!(
            next.subscribed_topic_names,
            Some(vec!["refunds".to_owned()])
        );
    }

    #[test]
    fn a_new_epoch_has_the_subscription_told_again_and_asks_for_the_assignment() {
        // The clock is only a label here.
        #[allow(clippy::disallowed_methods)]
        let mut now = Instant::now();
        let mut member = member(now);
        let mut beat = |member_epoch, assignment: Option<Assignment>| {
            now += Duration::from_secs(5);
            let asked = member.poll_heartbeat(now).expect("a heartbeat is due");
            let response = ShareGroupHeartbeatResponse {
                member_epoch: MemberEpoch(member_epoch),
                assignment,
                ..Default::default()
            };
            member.handle_response(now, &response, Duration::from_secs(1));
            asked.subscribed_topic_names.is_some()
        };
        let assignment = Some(Assignment::default());
        assert!(beat(1, assignment.clone()), "the join");
        assert!(!beat(1, None));
        assert!(!beat(2, assignment.clone()));
        assert!(beat(2, assignment.clone()), "the subscription may be old");
        assert!(!beat(3, None));
        assert!(beat(4, None), "what epoch 3 assigned may be lost");
        assert!(beat(4, assignment), "and what epoch 4 did");
        assert!(!beat(4, None));
    }
}
