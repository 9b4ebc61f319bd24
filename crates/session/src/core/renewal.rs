//! Renewal of acquisition locks (KIP-1222).
//!
//! What is held is renewed when half of its lock is left. A renewal fails as a whole where one of its
//! offsets isn't ours any more, and always where the group has renewal off
//! (`share.renew.acknowledge.enable`); the answer, INVALID_RECORD_STATE, is the same. So a failed
//! renewal is tried with ever fewer offsets. Where one offset fails alone it is suspected, and others
//! are tried: once a renewal succeeds the suspects are known to be stale; where several fail alone, one of them
//! of the newest acquisition, and none has succeeded within the last quarter of a lock, renewal is off, and what
//! is held stays ours until its lock ends.
//!
//! INVALID_REQUEST is the answer where an offset is past all that the leader has acquired (another leader did,
//! before): the last one and all after it are lost.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sharegroup_wire::{BrokerId, ErrorCode};

use super::SessionCore;
use crate::acquired::{AcquisitionId, Segment, State, TopicPartition, offsets};
use crate::event::{AckFailure, BrokerVersions, Event, Warning};
use crate::limits::RENEWAL_REFUSED_FOR;
use crate::share_session::{Link, RenewedByPartition, RenewedRange, ShareSession};
use crate::trouble::Subject;

/// ShareAcknowledge version that knows renewals.
const RENEW_SINCE: i16 = 2;

/// Offsets that must fail alone, without a success between, before renewal counts as off.
const SUSPECTS_MAX: usize = 3;

/// Doublings of the pause after which renewal is tried again, so that it can't overflow.
const REFUSALS_MAX: u32 = 16;

/// What is known about renewing.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    known: Known,
    /// Single offsets whose renewal failed since the last one that succeeded.
    suspects: Vec<RenewedRange>,
    /// Renewal was told to be impossible, and none has succeeded since.
    told_impossible: bool,
    /// How often renewal was found to be off, since the last that succeeded.
    refusals: u32,
    /// The caller wants no more of it.
    is_stopped: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Known {
    /// Not tried yet.
    #[default]
    Nothing,
    /// It worked, for a request sent at that time.
    Works { at: Instant },
    /// The group refuses it.
    Refused { until: Instant },
}

impl SessionCore {
    pub(super) fn is_renewable(&self, versions: BrokerVersions) -> bool {
        versions.share_acknowledge >= RENEW_SINCE
            && !self.renewal.is_stopped
            && !matches!(self.renewal.known, Known::Refused { .. })
    }

    /// Whether locks can be renewed everywhere, as far as is known.
    pub(super) fn may_renew(&self) -> bool {
        let knows = |session: &ShareSession| match session.link {
            Link::Up(_, versions) => versions.share_acknowledge >= RENEW_SINCE,
            _ => true,
        };
        !self.renewal.told_impossible
            && !self.renewal.is_stopped
            && self.sessions.values().all(knows)
    }

    /// Lets all locks run out, for good: the caller can't answer for what it holds any more. Acquire
    /// nothing new as well ([`SessionCore::pause`]).
    pub fn stop_renewals(&mut self) {
        self.renewal.is_stopped = true;
        if !std::mem::replace(&mut self.renewal.told_impossible, true) {
            self.events
                .push_back(Event::RenewableChanged { renewable: false });
        }
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
            self.warn(now, Subject::Notice, Warning::NotRenewable { detail });
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
        let mut not_renewed = Vec::new();
        for (id, acquisition) in self.book.iter_mut() {
            let due = acquisition.renew_at.is_some_and(|at| at <= soon);
            if acquisition.broker != broker || !due || acquisition.counts().held == 0 {
                continue;
            }
            if hold_max.is_some_and(|hold_max| now >= acquisition.acquired_at + hold_max) {
                acquisition.renew_at = None;
                expired.push(id);
                not_renewed.push(id);
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
            let suspects = &self.renewal.suspects;
            let held = held_parts(acquisition.segments(), id, suspects);
            let ranges = match acquisition.renew_offsets_max {
                1 => one_held(&held, suspects.len()),
                most => soonest_held(held, most),
            };
            if ranges.is_empty() {
                // Suspects only: their locks end, or a success elsewhere tells more.
                acquisition.renew_at = None;
                not_renewed.push(id);
                continue;
            }
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
        let not_renewed = not_renewed.into_iter();
        self.events
            .extend(not_renewed.map(|acquisition| Event::LockNotRenewed { acquisition }));
        for acquisition in expired {
            self.warn(now, Subject::Notice, Warning::HoldMax { acquisition });
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
            ErrorCode::InvalidRecordState => self.renewal_refused(now, ranges, total, &ids),
            ErrorCode::InvalidRequest => self.past_the_end(now, ranges, total, &ids),
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
        self.renewal.known = Known::Works { at: sent_at };
        self.renewal.refusals = 0;
        if !self.renewal.is_stopped && std::mem::take(&mut self.renewal.told_impossible) {
            self.events
                .push_back(Event::RenewableChanged { renewable: true });
        }
        let stale = AckFailure::Broker(ErrorCode::InvalidRecordState);
        for suspect in std::mem::take(&mut self.renewal.suspects) {
            self.book.lose(
                suspect.acquisition,
                suspect.first,
                suspect.last,
                stale,
                is_held,
            );
        }
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
                // It may end earlier than before: the group's lock may have become shorter.
                Some(Segment {
                    deadline,
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
        let mut most = total / 2;
        if total == 1 {
            self.renewal.suspects.extend(ranges);
            if self.renewal.suspects.len() >= SUSPECTS_MAX {
                // It worked a moment ago: these are stale, each by itself.
                if matches!(self.renewal.known, Known::Works { at } if now < at + self.lock / 4) {
                    return self.leave_to_end(ids);
                }
                let Some(newest) = self.newest_unsuspected() else {
                    return self.turn_off(now);
                };
                // Later than what is taken with it.
                self.renew_by(ids, 1, now + self.lock / 4);
                return self.renew_by(&[newest].into(), 1, now);
            }
            most = 1;
        } else if self.renewal.known == Known::Nothing {
            // One alone tells whether renewal works at all.
            most = 1;
        }
        self.renew_by(ids, most, now);
    }

    /// These are renewed at that time, at most so many offsets of each at once.
    fn renew_by(&mut self, ids: &BTreeSet<AcquisitionId>, most: u64, at: Instant) {
        for (_, acquisition) in self.book.iter_mut().filter(|(id, _)| ids.contains(id)) {
            acquisition.renew_offsets_max = most;
            acquisition.renew_at = Some(at);
        }
    }

    /// The newest of what is held, which is the last to be stale, where none of it is suspected yet.
    fn newest_unsuspected(&self) -> Option<AcquisitionId> {
        let is_reached = |broker| {
            let session = self.sessions.get(&broker);
            session.is_some_and(|session| match session.link {
                Link::Up(_, versions) => self.is_renewable(versions),
                _ => false,
            })
        };
        let held = self.book.iter().filter(|(_, acquisition)| {
            acquisition.counts().held > 0 && is_reached(acquisition.broker)
        });
        let newest = held.map(|(id, _)| id).max()?;
        let mut suspected = self
            .renewal
            .suspects
            .iter()
            .map(|suspect| suspect.acquisition);
        (!suspected.any(|id| id == newest)).then_some(newest)
    }

    /// The leader has acquired nothing from the last of these on. What is below may be ours.
    fn past_the_end(
        &mut self,
        now: Instant,
        ranges: &[RenewedRange],
        total: u64,
        ids: &BTreeSet<AcquisitionId>,
    ) {
        let last = ranges.iter().max_by_key(|range| range.last);
        let partition = ids
            .iter()
            .find_map(|id| self.book.get(*id))
            .map(|a| a.partition);
        if let (Some(last), Some(newest), Some(partition)) = (last, ids.last(), partition) {
            self.book.past_the_end(partition, *newest, last.last);
        }
        self.renew_by(ids, (total / 2).max(1), now);
    }

    /// These acquisitions are not renewed any more; their locks end, or have ended.
    fn leave_to_end(&mut self, ids: &BTreeSet<AcquisitionId>) {
        let suspects = &mut self.renewal.suspects;
        suspects.retain(|suspect| !ids.contains(&suspect.acquisition));
        for (id, acquisition) in self.book.iter_mut().filter(|(id, _)| ids.contains(id)) {
            acquisition.renew_at = None;
            self.events
                .push_back(Event::LockNotRenewed { acquisition: id });
        }
    }

    /// The group refuses renewals.
    fn turn_off(&mut self, now: Instant) {
        self.renewal.suspects.clear();
        let pause = self.lock / 4 * 2_u32.saturating_pow(self.renewal.refusals);
        self.renewal.refusals = (self.renewal.refusals + 1).min(REFUSALS_MAX);
        self.renewal.known = Known::Refused {
            until: now + pause.min(RENEWAL_REFUSED_FOR),
        };
        for (_, acquisition) in self.book.iter_mut() {
            acquisition.renew_at = None;
        }
        if !std::mem::replace(&mut self.renewal.told_impossible, true) {
            self.events
                .push_back(Event::RenewableChanged { renewable: false });
        }
        let detail = "the group refuses renewals (share.renew.acknowledge.enable=false)".to_owned();
        self.warn(now, Subject::Notice, Warning::NotRenewable { detail });
    }

    pub(super) fn refusal_ends_at(&self) -> Option<Instant> {
        match self.renewal.known {
            Known::Refused { until } => Some(until),
            _ => None,
        }
    }

    /// After a while renewal is tried again, with what is held: it may have been off for a moment only.
    /// It counts as impossible until it works.
    pub(super) fn forget_refusal(&mut self, now: Instant) {
        if self.refusal_ends_at().is_some_and(|until| until <= now) {
            self.renewal.known = Known::Nothing;
            for (_, acquisition) in self.book.iter_mut() {
                acquisition.renew_at = Some(now);
            }
        }
    }
}

fn is_held(segment: &Segment) -> bool {
    matches!(segment.state, State::Held | State::Delayed { .. })
}

/// What is held of an acquisition, without the suspects.
fn held_parts(segments: &[Segment], id: AcquisitionId, suspects: &[RenewedRange]) -> Vec<Segment> {
    let held = segments.iter().filter(|segment| is_held(segment));
    let mut parts: Vec<Segment> = held.copied().collect();
    for suspect in suspects.iter().filter(|suspect| suspect.acquisition == id) {
        let rest = parts
            .into_iter()
            .flat_map(|part| without(part, suspect.first));
        parts = rest.collect();
    }
    parts
}

/// A segment's parts on both sides of an offset.
fn without(part: Segment, offset: i64) -> impl Iterator<Item = Segment> {
    let parts = if (part.first..=part.last).contains(&offset) {
        let before = (part.first < offset).then(|| Segment {
            last: offset - 1,
            ..part
        });
        let behind = (offset < part.last).then(|| Segment {
            first: offset + 1,
            ..part
        });
        [before, behind]
    } else {
        [Some(part), None]
    };
    parts.into_iter().flatten()
}

/// One held offset alone: of the first three tries each takes another place.
fn one_held(held: &[Segment], tries: usize) -> Vec<(i64, i64)> {
    let first = held.iter().min_by_key(|segment| segment.deadline);
    let offset = match tries {
        0 => first.map(|segment| segment.first),
        1 => held.last().map(|segment| segment.last),
        _ => held
            .get(held.len() / 2)
            .map(|segment| segment.first + (segment.last - segment.first) / 2),
    };
    offset.map(|offset| (offset, offset)).into_iter().collect()
}

/// Up to `most` held offsets, those first whose lock ends first, as ranges.
fn soonest_held(mut held: Vec<Segment>, most: u64) -> Vec<(i64, i64)> {
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
