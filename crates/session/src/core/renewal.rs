//! Renewal of acquisition locks (KIP-1222).
//!
//! What is held is renewed when half of its lock is left. A renewal fails as a whole where one of its
//! offsets isn't ours any more, and always where the group has renewal off
//! (`share.renew.acknowledge.enable`); the answer, INVALID_RECORD_STATE, is the same. So after a
//! failure one offset is renewed alone: if that works, the stale one is searched for, if it fails,
//! renewal is off.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sharegroup_wire::{BrokerId, ErrorCode};

use super::SessionCore;
use crate::acquired::{AcquisitionId, Segment, State, TopicPartition, offsets};
use crate::event::{AckFailure, BrokerVersions, Event, Warning};
use crate::limits::RENEWAL_REFUSED_FOR;
use crate::share_session::{RenewedByPartition, RenewedRange};

/// ShareAcknowledge version that knows renewals.
const RENEW_SINCE: i16 = 2;

/// What is known about renewing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Renewal {
    /// Not tried yet.
    #[default]
    Untried,
    /// It worked.
    Works,
    /// The group refuses it.
    Refused { until: Instant },
}

impl SessionCore {
    pub(super) fn is_renewable(&self, versions: BrokerVersions) -> bool {
        versions.share_acknowledge >= RENEW_SINCE
            && !matches!(self.renewal, Renewal::Refused { .. })
    }

    /// When to renew a lock that ends at `deadline`.
    pub(super) fn renew_at(&self, deadline: Instant, versions: BrokerVersions) -> Option<Instant> {
        self.is_renewable(versions)
            .then(|| deadline - self.lock / 2)
    }

    pub(super) fn note_versions(
        &mut self,
        now: Instant,
        broker: BrokerId,
        versions: BrokerVersions,
    ) {
        if versions.share_acknowledge < RENEW_SINCE {
            let detail = format!(
                "broker {broker} speaks ShareAcknowledge version {} only (before Kafka 4.2)",
                versions.share_acknowledge
            );
            self.warn(now, Warning::NotRenewable { detail });
        }
    }

    /// When something held from this leader is to be renewed.
    pub(super) fn renew_due(&self, broker: BrokerId, versions: BrokerVersions) -> Option<Instant> {
        if !self.is_renewable(versions) {
            return None;
        }
        let acquisitions = self.book.iter().map(|(_, acquisition)| acquisition);
        let held = acquisitions
            .filter(|acquisition| acquisition.broker == broker && acquisition.counts().held > 0);
        held.filter_map(|acquisition| acquisition.renew_at).min()
    }

    /// Takes what is to be renewed now, and what would be soon after.
    pub(super) fn take_renewals(&mut self, now: Instant, broker: BrokerId) -> RenewedByPartition {
        let soon = now + self.lock / 8;
        let hold_max = self.config.hold_max;
        let mut renewed = RenewedByPartition::new();
        // Partitions in which a stale offset is searched for: one acquisition at a time.
        let mut searching: BTreeSet<TopicPartition> = BTreeSet::new();
        let mut expired = Vec::new();
        for (id, acquisition) in self.book.iter_mut() {
            let due = acquisition.renew_at.is_some_and(|at| at <= soon);
            if acquisition.broker != broker || !due || acquisition.counts().held == 0 {
                continue;
            }
            if hold_max.is_some_and(|hold_max| now >= acquisition.acquired_at + hold_max) {
                acquisition.renew_at = None;
                expired.push(id);
                continue;
            }
            let limited = acquisition.renew_offsets_max < u64::MAX;
            if searching.contains(&acquisition.partition)
                || (limited && renewed.contains_key(&acquisition.partition))
            {
                continue;
            }
            if limited {
                searching.insert(acquisition.partition);
            }
            let ranges = soonest_held(acquisition.segments(), acquisition.renew_offsets_max);
            acquisition.renewing = true;
            let ranges = ranges.into_iter().map(|(first, last)| RenewedRange {
                acquisition: id,
                first,
                last,
            });
            renewed
                .entry(acquisition.partition)
                .or_default()
                .extend(ranges);
        }
        for ranges in renewed.values_mut() {
            ranges.sort_unstable_by_key(|range| range.first);
        }
        for acquisition in expired {
            self.warn(now, Warning::HoldMax { acquisition });
        }
        renewed
    }

    /// The answer for one partition's renewals.
    pub(super) fn resolve_renewal(
        &mut self,
        now: Instant,
        sent_at: Instant,
        ranges: &[RenewedRange],
        error: ErrorCode,
    ) {
        let ids: BTreeSet<_> = ranges.iter().map(|range| range.acquisition).collect();
        let total: u64 = ranges
            .iter()
            .map(|range| offsets(range.first, range.last))
            .sum();
        for (id, acquisition) in self.book.iter_mut() {
            if ids.contains(&id) {
                acquisition.renewing = false;
            }
        }
        match error {
            ErrorCode::None => self.renewed(sent_at, ranges, &ids),
            ErrorCode::InvalidRecordState | ErrorCode::InvalidRequest => {
                self.renewal_refused(now, ranges, total, &ids)
            }
            error
                if error.is_retriable()
                    && error != ErrorCode::NotLeaderOrFollower
                    && error != ErrorCode::UnknownTopicOrPartition =>
            {
                for (id, acquisition) in self.book.iter_mut() {
                    if ids.contains(&id) {
                        acquisition.renew_at = Some(now + self.config.retry_backoff_max / 4);
                    }
                }
            }
            error => {
                for range in ranges {
                    self.book.lose(
                        range.acquisition,
                        range.first,
                        range.last,
                        AckFailure::Broker(error),
                        is_held,
                    );
                }
            }
        }
    }

    fn renewed(
        &mut self,
        sent_at: Instant,
        ranges: &[RenewedRange],
        ids: &BTreeSet<AcquisitionId>,
    ) {
        self.renewal = Renewal::Works;
        let deadline = sent_at + self.lock;
        let half = self.lock / 2;
        for range in ranges {
            let Some((_, acquisition)) = self
                .book
                .iter_mut()
                .find(|(id, _)| *id == range.acquisition)
            else {
                continue;
            };
            acquisition.change(range.first, range.last, |segment| {
                Some(Segment {
                    deadline: segment.deadline.max(deadline),
                    ..segment
                })
            });
        }
        let mut events = Vec::new();
        for (id, acquisition) in self.book.iter_mut().filter(|(id, _)| ids.contains(id)) {
            acquisition.renew_offsets_max = acquisition.renew_offsets_max.saturating_mul(8);
            let held = acquisition
                .segments()
                .iter()
                .filter(|segment| is_held(segment));
            // Of several parts the one that ends first counts.
            if let Some(earliest) = held.map(|segment| segment.deadline).min() {
                acquisition.renew_at = Some(earliest - half);
                let offsets = ranges
                    .iter()
                    .filter(|range| range.acquisition == id)
                    .map(|range| offsets(range.first, range.last))
                    .sum();
                events.push(Event::LockRenewed {
                    acquisition: id,
                    deadline: earliest,
                    offsets,
                });
            }
        }
        self.events.extend(events);
    }

    fn renewal_refused(
        &mut self,
        now: Instant,
        ranges: &[RenewedRange],
        total: u64,
        ids: &BTreeSet<AcquisitionId>,
    ) {
        if total > 1 {
            // Known to work: halve. Untried: one offset alone tells.
            let most = if self.renewal == Renewal::Works {
                total / 2
            } else {
                1
            };
            for (_, acquisition) in self.book.iter_mut().filter(|(id, _)| ids.contains(id)) {
                acquisition.renew_offsets_max = most;
                acquisition.renew_at = Some(now);
            }
            return;
        }
        if self.renewal == Renewal::Works {
            let stale = AckFailure::Broker(ErrorCode::InvalidRecordState);
            for range in ranges {
                self.book
                    .lose(range.acquisition, range.first, range.last, stale, is_held);
            }
            return;
        }
        self.renewal = Renewal::Refused {
            until: now + RENEWAL_REFUSED_FOR,
        };
        for (_, acquisition) in self.book.iter_mut() {
            acquisition.renew_at = None;
        }
        self.events
            .push_back(Event::RenewableChanged { renewable: false });
        let detail = "the group refuses renewals (share.renew.acknowledge.enable=false)".to_owned();
        self.warn(now, Warning::NotRenewable { detail });
    }

    pub(super) fn refusal_ends_at(&self) -> Option<Instant> {
        match self.renewal {
            Renewal::Refused { until } => Some(until),
            _ => None,
        }
    }

    /// After a while renewal is tried again.
    pub(super) fn forget_refusal(&mut self, now: Instant) {
        if self.refusal_ends_at().is_some_and(|until| until <= now) {
            self.renewal = Renewal::Untried;
            self.events
                .push_back(Event::RenewableChanged { renewable: true });
        }
    }
}

fn is_held(segment: &Segment) -> bool {
    matches!(segment.state, State::Held | State::Delayed { .. })
}

/// Up to `most` held offsets, those first whose lock ends first, as ranges.
fn soonest_held(segments: &[Segment], most: u64) -> Vec<(i64, i64)> {
    let mut held: Vec<&Segment> = segments.iter().filter(|segment| is_held(segment)).collect();
    if most < u64::MAX {
        held.sort_by_key(|segment| segment.deadline);
    }
    let mut left = most;
    let mut ranges = Vec::new();
    for segment in held {
        if left == 0 {
            break;
        }
        let count = segment.offsets().min(left);
        let last = segment
            .first
            .saturating_add(i64::try_from(count - 1).unwrap_or(i64::MAX))
            .min(segment.last);
        ranges.push((segment.first, last));
        left -= count;
    }
    ranges
}

/// The lock that an answer names, if it names one.
pub(super) fn lock_of(timeout_ms: i32) -> Option<Duration> {
    u64::try_from(timeout_ms)
        .ok()
        .filter(|ms| *ms > 0)
        .map(Duration::from_millis)
}
