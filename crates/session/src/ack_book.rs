//! The ack book: the one owner of every acquired offset and of every acknowledgement.
//!
//! An acknowledgement is stamped with its acquisition, and so with the broker and the session that
//! granted it: acknowledgements of a session that ended are reported and never sent, since they could
//! hit the next delivery of the same record (peers.md R1, T2). A partition's acknowledgements are all
//! or nothing at the broker (KIP-932 "ShareAcknowledge"): where one stale offset spoils them, the book
//! halves the set until the stale one stands alone and the rest has gone through.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use sharegroup_wire::{BrokerId, ErrorCode};

use crate::acquired::{
    Acknowledgement, Acquisition, AcquisitionId, Counts, Segment, State, TopicPartition, offsets,
};
use crate::event::{
    AckFailure, AckOutcome, AcquiredRange, CommitId, Event, LockLoss, Release, ReleaseReason,
};
use crate::limits::{
    ACKNOWLEDGE_BACKOFF_MAX, ACKNOWLEDGE_BACKOFF_MIN, DROP_DELAY_MAX, DROP_DELAY_MIN, LOCK_MARGIN,
};

/// An acknowledged range on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SentRange {
    pub(crate) acquisition: AcquisitionId,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) how: Acknowledgement,
    pub(crate) commit: CommitId,
}

/// What is on its way, by partition, ascending by offset.
pub(crate) type SentByPartition = BTreeMap<TopicPartition, Vec<SentRange>>;

/// What a broker's answer to a partition's acknowledgements means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Applied.
    Applied,
    /// One of them was stale, for this reason: none was applied.
    Stale(ErrorCode),
    /// Not applied; the same may work later.
    Retry,
    /// Not applied, and never will be.
    Lost(AckFailure),
}

impl Verdict {
    /// Of a partition's error code (protocol: "Errors", levels A and SA).
    pub(crate) const fn of(error: ErrorCode) -> Self {
        match error {
            ErrorCode::None => Self::Applied,
            // The latter of what another leader acquired, before this one had acquired so far.
            ErrorCode::InvalidRecordState | ErrorCode::InvalidRequest => Self::Stale(error),
            // The share coordinator failed, or a right is missing: the lock still lives.
            ErrorCode::CoordinatorNotAvailable
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::NotCoordinator
            | ErrorCode::RequestTimedOut
            | ErrorCode::KafkaStorageError
            | ErrorCode::UnknownServerError
            | ErrorCode::TopicAuthorizationFailed => Self::Retry,
            error => Self::Lost(AckFailure::Broker(error)),
        }
    }
}

/// When a partition whose acknowledgements failed for a while is tried again.
#[derive(Debug, Clone, Copy)]
struct Retry {
    at: Instant,
    backoff: Duration,
}

/// What of the pending offsets must not or need not wait for its usual time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Again {
    /// Offsets that wait for their next try; not to be sent now.
    pub(crate) blocked: u64,
    /// When something is to be sent that was sent before.
    pub(crate) due: Option<Instant>,
}

/// What the passing of time did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    /// Something became ready to be sent.
    pub(crate) due: bool,
    /// A lock ran out while its records were with their owner.
    pub(crate) held_expired: bool,
    /// Nothing renewed such a lock.
    pub(crate) not_renewed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct AckBook {
    acquisitions: BTreeMap<AcquisitionId, Acquisition>,
    last_id: u64,
    /// The last suspect group; 0 = there is none.
    last_group: u32,
    retries: BTreeMap<TopicPartition, Retry>,
    /// The commit that acknowledgements made now belong to.
    commit: u64,
    /// Offsets without an outcome, by commit.
    unresolved: BTreeMap<CommitId, u64>,
    /// Commits whose completion is to be told.
    awaited: BTreeSet<CommitId>,
    events: VecDeque<Event>,
}

/// A new acquisition, before it has an id.
#[derive(Debug)]
pub(crate) struct Grant<'a> {
    pub(crate) partition: TopicPartition,
    pub(crate) broker: BrokerId,
    pub(crate) ranges: &'a [AcquiredRange],
    /// Size of the frame part that holds the records.
    pub(crate) bytes: u64,
    /// When the lock ends.
    pub(crate) deadline: Instant,
    /// When to renew it.
    pub(crate) renew_at: Option<Instant>,
}

impl AckBook {
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn get(&self, id: AcquisitionId) -> Option<&Acquisition> {
        self.acquisitions.get(&id)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (AcquisitionId, &mut Acquisition)> {
        self.acquisitions
            .iter_mut()
            .map(|(id, acquisition)| (*id, acquisition))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (AcquisitionId, &Acquisition)> {
        self.acquisitions
            .iter()
            .map(|(id, acquisition)| (*id, acquisition))
    }

    /// Numbers of offsets of the acquisitions that pass `filter`.
    pub(crate) fn counts(&self, filter: impl Fn(&Acquisition) -> bool) -> Counts {
        self.acquisitions
            .values()
            .filter(|acquisition| filter(acquisition))
            .fold(Counts::default(), |sum, acquisition| {
                let counts = acquisition.counts();
                Counts {
                    held: sum.held.saturating_add(counts.held),
                    pending: sum.pending.saturating_add(counts.pending),
                    sent: sum.sent.saturating_add(counts.sent),
                }
            })
    }

    /// Enters a new acquisition. Older acquisitions of the same offsets are void from now on.
    pub(crate) fn acquire(&mut self, now: Instant, grant: &Grant<'_>) -> AcquisitionId {
        for range in grant.ranges {
            self.supersede(grant.partition, range);
        }
        self.last_id += 1;
        let id = AcquisitionId(self.last_id);
        let segments = grant
            .ranges
            .iter()
            .map(|range| Segment {
                first: range.first_offset,
                last: range.last_offset,
                delivery_count: range.delivery_count,
                deadline: grant.deadline,
                state: State::Held,
            })
            .collect();
        let mut acquisition = Acquisition::new(grant.partition, grant.broker, now, segments);
        acquisition.renew_at = grant.renew_at;
        acquisition.bytes = grant.bytes;
        self.acquisitions.insert(id, acquisition);
        id
    }

    fn supersede(&mut self, partition: TopicPartition, range: &AcquiredRange) {
        let older: Vec<_> = self
            .iter()
            .filter(|(_, old)| old.partition == partition)
            .map(|(id, _)| id)
            .collect();
        for id in older {
            self.lose(
                id,
                range.first_offset,
                range.last_offset,
                AckFailure::Superseded,
                |_| true,
            );
        }
    }

    /// Settles what is still held of a range. Returns the number of offsets that were.
    pub(crate) fn acknowledge(
        &mut self,
        id: AcquisitionId,
        first: i64,
        last: i64,
        how: Acknowledgement,
    ) -> u64 {
        let commit = CommitId(self.commit);
        let Some(acquisition) = self.acquisitions.get_mut(&id) else {
            return 0;
        };
        let mut settled = 0;
        acquisition.change(first, last, |segment| match segment.state {
            State::Held | State::Delayed { .. } => {
                settled += segment.offsets();
                Some(Segment {
                    state: State::Pending {
                        how,
                        commit,
                        group: 0,
                    },
                    ..segment
                })
            }
            State::Pending { .. } | State::Sent { .. } => Some(segment),
        });
        if settled > 0 {
            *self.unresolved.entry(commit).or_default() += settled;
        }
        settled
    }

    /// Holds what the owner dropped for a delay that grows with its delivery count, then releases it:
    /// releasing at once would burn all its deliveries in milliseconds (M2). What has no delivery left stays
    /// held, and is told.
    pub(crate) fn drop_held(
        &mut self,
        now: Instant,
        id: AcquisitionId,
        (first, last): (i64, i64),
        delivery_count_limit: Option<i16>,
    ) {
        let Some(acquisition) = self.acquisitions.get_mut(&id) else {
            return;
        };
        let partition = acquisition.partition;
        acquisition.change(first, last, |segment| {
            let is_last = delivery_count_limit.is_some_and(|limit| segment.delivery_count >= limit);
            if is_last && segment.state == State::Held {
                self.events.push_back(Event::LastDeliveryDropped(Release {
                    acquisition: id,
                    partition,
                    first_offset: segment.first,
                    last_offset: segment.last,
                    delivery_count: segment.delivery_count,
                    why: ReleaseReason::Dropped,
                }));
                return Some(segment);
            }
            let state = if segment.state == State::Held {
                let release_at = now + drop_delay(segment.delivery_count);
                State::Delayed { release_at }
            } else {
                segment.state
            };
            Some(Segment { state, ..segment })
        });
    }

    /// Releases what is still held of a range without its owner's word, and tells so. Returns the number
    /// of offsets.
    pub(crate) fn release(
        &mut self,
        id: AcquisitionId,
        first: i64,
        last: i64,
        why: ReleaseReason,
    ) -> u64 {
        let Some(acquisition) = self.acquisitions.get(&id) else {
            return 0;
        };
        let held = acquisition.segments().iter().filter(|segment| {
            matches!(segment.state, State::Held | State::Delayed { .. })
                && segment.first <= last
                && first <= segment.last
        });
        let released = held.map(|segment| {
            Event::Released(Release {
                acquisition: id,
                partition: acquisition.partition,
                first_offset: segment.first.max(first),
                last_offset: segment.last.min(last),
                delivery_count: segment.delivery_count,
                why,
            })
        });
        self.events.extend(released);
        self.acknowledge(id, first, last, Acknowledgement::Release)
    }

    /// Releases all that is held; for the end.
    pub(crate) fn release_all(&mut self) {
        let ids: Vec<_> = self.acquisitions.keys().copied().collect();
        for id in ids {
            self.release(id, i64::MIN, i64::MAX, ReleaseReason::Closing);
        }
    }

    /// Asks for a [`Event::Committed`] once everything acknowledged so far has its outcome.
    pub(crate) fn commit(&mut self) -> CommitId {
        let id = CommitId(self.commit);
        self.commit += 1;
        self.awaited.insert(id);
        self.finish_commits();
        id
    }

    /// Takes what is to be sent to `broker` now: of each partition either one suspect group or all
    /// that is above suspicion, ascending.
    pub(crate) fn take_pending(&mut self, now: Instant, broker: BrokerId) -> SentByPartition {
        let mut groups: BTreeMap<TopicPartition, u32> = BTreeMap::new();
        for acquisition in self.acquisitions.values().filter(|acquisition| {
            acquisition.broker == broker && !self.is_blocked(now, acquisition.partition)
        }) {
            for segment in acquisition.segments() {
                if let State::Pending { group, .. } = segment.state {
                    let chosen = groups.entry(acquisition.partition).or_insert(group);
                    // Suspects first, the oldest group first.
                    if *chosen == 0 || (group > 0 && group < *chosen) {
                        *chosen = group;
                    }
                }
            }
        }
        let mut sent = SentByPartition::new();
        for (id, acquisition) in &mut self.acquisitions {
            let Some(chosen) = groups
                .get(&acquisition.partition)
                .filter(|_| acquisition.broker == broker)
            else {
                continue;
            };
            if acquisition.counts().pending == 0 {
                continue;
            }
            let ranges = sent.entry(acquisition.partition).or_default();
            acquisition.change(i64::MIN, i64::MAX, |segment| match segment.state {
                State::Pending { how, commit, group }
                    if group == *chosen && segment.deadline > now + LOCK_MARGIN =>
                {
                    ranges.push(SentRange {
                        acquisition: *id,
                        first: segment.first,
                        last: segment.last,
                        how,
                        commit,
                    });
                    Some(Segment {
                        state: State::Sent { how, commit },
                        ..segment
                    })
                }
                _ => Some(segment),
            });
        }
        sent.retain(|_, ranges| {
            ranges.sort_unstable_by_key(|range| range.first);
            !ranges.is_empty()
        });
        sent
    }

    fn is_blocked(&self, now: Instant, partition: TopicPartition) -> bool {
        self.retries
            .get(&partition)
            .is_some_and(|retry| now < retry.at)
    }

    /// What is pending for `broker` that was sent before and failed.
    pub(crate) fn again(&self, now: Instant, broker: BrokerId) -> Again {
        let mut again = Again::default();
        if self.retries.is_empty() && self.last_group == 0 {
            return again;
        }
        let pending = |acquisition: &&Acquisition| {
            acquisition.broker == broker && acquisition.counts().pending > 0
        };
        for acquisition in self.acquisitions.values().filter(pending) {
            let retry = self.retries.get(&acquisition.partition);
            let due = match retry {
                Some(retry) => Some(retry.at),
                None => has_suspects(acquisition).then_some(now),
            };
            if self.is_blocked(now, acquisition.partition) {
                again.blocked = again.blocked.saturating_add(acquisition.counts().pending);
            }
            again.due = again.due.into_iter().chain(due).min();
        }
        again
    }

    /// Enters the broker's answer for one partition's acknowledgements.
    pub(crate) fn resolve(
        &mut self,
        now: Instant,
        partition: TopicPartition,
        ranges: &[SentRange],
        verdict: Verdict,
    ) {
        let backoff = self.retries.remove(&partition).map(|retry| retry.backoff);
        match verdict {
            // The broker says yes to a late one, too, where somebody else has settled the record.
            Verdict::Applied => self.finish(ranges, |segment| {
                if segment.deadline > now {
                    Ok(())
                } else {
                    Err(AckFailure::AnsweredLate)
                }
            }),
            Verdict::Lost(why) => self.finish(ranges, |_| Err(why)),
            Verdict::Retry => {
                let backoff = backoff.map_or(ACKNOWLEDGE_BACKOFF_MIN, |last| {
                    (last * 2).min(ACKNOWLEDGE_BACKOFF_MAX)
                });
                let at = now + backoff;
                self.retries.insert(partition, Retry { at, backoff });
                self.send_again(ranges, 0);
            }
            Verdict::Stale(why) => {
                if why == ErrorCode::InvalidRequest {
                    self.past_the_end_of(partition, ranges);
                }
                self.halve(ranges, why);
            }
        }
        if self.last_group > 0 && !self.acquisitions.values().any(has_suspects) {
            self.last_group = 0;
        }
    }

    /// One of these is stale: each half is tried alone.
    fn halve(&mut self, ranges: &[SentRange], why: ErrorCode) {
        let sizes = ranges.iter().map(|range| offsets(range.first, range.last));
        let total = sizes.sum::<u64>();
        if total == 1 {
            return self.finish(ranges, |_| Err(AckFailure::Broker(why)));
        }
        let (left, right) = halves(ranges, total / 2);
        for half in [left, right] {
            self.last_group += 1;
            self.send_again(&half, self.last_group);
        }
    }

    /// The leader answered INVALID_REQUEST: it has acquired nothing from the last of these on. What was acquired of
    /// that before was another leader's.
    fn past_the_end_of(&mut self, partition: TopicPartition, ranges: &[SentRange]) {
        let why = AckFailure::Broker(ErrorCode::InvalidRequest);
        let (Some(newest), Some(range)) = (
            ranges.iter().map(|range| range.acquisition).max(),
            ranges.iter().max_by_key(|range| range.last),
        ) else {
            return;
        };
        let last = SentRange {
            first: range.last,
            ..*range
        };
        self.finish(&[last], |_| Err(why));
        self.past_the_end(partition, newest, range.last);
    }

    /// Loses what was acquired of a partition from this offset on, by this acquisition and older ones.
    pub(crate) fn past_the_end(
        &mut self,
        partition: TopicPartition,
        newest: AcquisitionId,
        first: i64,
    ) {
        let why = AckFailure::Broker(ErrorCode::InvalidRequest);
        let older = self.acquisitions.range(..=newest);
        let of_partition = older.filter(|(_, acquisition)| acquisition.partition == partition);
        for id in of_partition.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.lose(id, first, i64::MAX, why, |_| true);
        }
    }

    fn finish(
        &mut self,
        ranges: &[SentRange],
        result_of: impl Fn(&Segment) -> Result<(), AckFailure>,
    ) {
        for range in ranges {
            let Some(acquisition) = self.acquisitions.get_mut(&range.acquisition) else {
                continue;
            };
            let partition = acquisition.partition;
            // A part may have been acquired again and reported meanwhile.
            let mut finished: Vec<(SentRange, Result<(), AckFailure>)> = Vec::new();
            acquisition.change(range.first, range.last, |segment| {
                if !matches!(segment.state, State::Sent { .. }) {
                    return Some(segment);
                }
                let Segment { first, last, .. } = segment;
                let result = result_of(&segment);
                match finished.last_mut() {
                    Some((part, same))
                        if *same == result && part.last.checked_add(1) == Some(first) =>
                    {
                        part.last = last;
                    }
                    _ => {
                        let part = SentRange {
                            first,
                            last,
                            ..*range
                        };
                        finished.push((part, result));
                    }
                }
                None
            });
            if acquisition.is_empty() {
                self.acquisitions.remove(&range.acquisition);
            }
            for (part, result) in finished {
                self.report(partition, part, result);
            }
        }
        self.finish_commits();
    }

    fn send_again(&mut self, ranges: &[SentRange], group: u32) {
        for range in ranges {
            let Some(acquisition) = self.acquisitions.get_mut(&range.acquisition) else {
                continue;
            };
            acquisition.change(range.first, range.last, |segment| match segment.state {
                State::Sent { how, commit } => Some(Segment {
                    state: State::Pending { how, commit, group },
                    ..segment
                }),
                _ => Some(segment),
            });
        }
    }

    fn report(
        &mut self,
        partition: TopicPartition,
        range: SentRange,
        result: Result<(), AckFailure>,
    ) {
        if let Some(count) = self.unresolved.get_mut(&range.commit) {
            *count = count.saturating_sub(offsets(range.first, range.last));
            if *count == 0 {
                self.unresolved.remove(&range.commit);
            }
        }
        self.events.push_back(Event::Acknowledged(AckOutcome {
            acquisition: range.acquisition,
            partition,
            first_offset: range.first,
            last_offset: range.last,
            how: range.how,
            commit: range.commit,
            result,
        }));
    }

    fn finish_commits(&mut self) {
        let oldest = self.unresolved.keys().next().copied();
        while let Some(commit) = self.awaited.first().copied() {
            if oldest.is_some_and(|oldest| oldest <= commit) {
                break;
            }
            self.awaited.remove(&commit);
            self.events.push_back(Event::Committed(commit));
        }
    }

    /// Removes the offsets of a range that pass `filter` and reports each as lost.
    pub(crate) fn lose(
        &mut self,
        id: AcquisitionId,
        first: i64,
        last: i64,
        why: AckFailure,
        filter: impl Fn(&Segment) -> bool,
    ) {
        let Some(acquisition) = self.acquisitions.get_mut(&id) else {
            return;
        };
        let partition = acquisition.partition;
        let mut lost = Vec::new();
        acquisition.change(first, last, |segment| {
            if filter(&segment) {
                lost.push(segment);
                None
            } else {
                Some(segment)
            }
        });
        if acquisition.is_empty() {
            self.acquisitions.remove(&id);
        }
        for segment in lost {
            let Segment {
                first,
                last,
                state,
                delivery_count,
                ..
            } = segment;
            match state {
                State::Held | State::Delayed { .. } => {
                    self.events.push_back(Event::LockLost(LockLoss {
                        acquisition: id,
                        partition,
                        first_offset: first,
                        last_offset: last,
                        delivery_count,
                        why,
                    }))
                }
                State::Pending { how, commit, .. } => {
                    self.report(
                        partition,
                        SentRange {
                            acquisition: id,
                            first,
                            last,
                            how,
                            commit,
                        },
                        Err(why),
                    );
                }
                State::Sent { how, commit } => {
                    let range = SentRange {
                        acquisition: id,
                        first,
                        last,
                        how,
                        commit,
                    };
                    self.report(partition, range, Err(AckFailure::Unknown));
                }
            }
        }
        self.finish_commits();
    }

    /// Loses everything that passes `filter`: its session ended.
    pub(crate) fn lose_all(&mut self, why: AckFailure, filter: impl Fn(&Acquisition) -> bool) {
        let ids: Vec<_> = self
            .iter()
            .filter(|(_, acquisition)| filter(acquisition))
            .map(|(id, _)| id)
            .collect();
        for id in ids {
            self.lose(id, i64::MIN, i64::MAX, why, |_| true);
        }
    }

    /// Reports what lost its lock to time and releases what waited for it.
    pub(crate) fn pass_time(&mut self, now: Instant) -> Passed {
        if self.next_time().is_none_or(|at| at > now) {
            return Passed::default();
        }
        let ids: Vec<_> = self.acquisitions.keys().copied().collect();
        let mut due = Vec::new();
        let mut passed = Passed::default();
        for id in ids {
            let held_expired = Cell::new(false);
            let renew_at = self.get(id).and_then(|acquisition| acquisition.renew_at);
            self.lose(id, i64::MIN, i64::MAX, AckFailure::LockExpired, |segment| {
                let expired = !matches!(segment.state, State::Sent { .. })
                    && segment.deadline <= now + LOCK_MARGIN;
                if expired && segment.state == State::Held {
                    held_expired.set(true);
                }
                expired
            });
            passed.held_expired |= held_expired.get();
            passed.not_renewed |= held_expired.get() && renew_at.is_none();
            let Some(acquisition) = self.acquisitions.get(&id) else {
                continue;
            };
            due.extend(
                acquisition
                    .segments()
                    .iter()
                    .filter(|segment| {
                        release_time(acquisition, segment).is_some_and(|at| at <= now)
                    })
                    .map(|segment| (id, segment.first, segment.last)),
            );
        }
        for (id, first, last) in &due {
            self.release(*id, *first, *last, ReleaseReason::Dropped);
        }
        passed.due = !due.is_empty();
        passed
    }

    /// When [`pass_time`](Self::pass_time) has something to do next.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        let times = |acquisition: &'_ Acquisition| {
            let segments = acquisition.segments().iter();
            let unsent = segments.filter(|segment| !matches!(segment.state, State::Sent { .. }));
            let times = unsent.map(|segment| {
                let end = segment.deadline - LOCK_MARGIN;
                release_time(acquisition, segment).map_or(end, |at| at.min(end))
            });
            times.min()
        };
        self.acquisitions.values().filter_map(times).min()
    }
}

/// When a dropped record is released: after its delay, or before the end of a lock that nothing renews.
fn release_time(acquisition: &Acquisition, segment: &Segment) -> Option<Instant> {
    let State::Delayed { release_at } = segment.state else {
        return None;
    };
    let renews = acquisition.renew_at.is_some() || acquisition.renewing;
    let end = (!renews).then(|| segment.deadline - 10 * LOCK_MARGIN);
    Some(end.map_or(release_at, |end| release_at.min(end)))
}

fn has_suspects(acquisition: &Acquisition) -> bool {
    let mut segments = acquisition.segments().iter();
    segments.any(|segment| matches!(segment.state, State::Pending { group, .. } if group > 0))
}

fn drop_delay(delivery_count: i16) -> Duration {
    let doublings = u32::try_from(delivery_count.max(1) - 1)
        .unwrap_or(0)
        .min(16);
    (DROP_DELAY_MIN * 2_u32.pow(doublings)).min(DROP_DELAY_MAX)
}

/// Cuts a set of ranges after `count` offsets.
fn halves(ranges: &[SentRange], mut count: u64) -> (Vec<SentRange>, Vec<SentRange>) {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for range in ranges {
        let size = offsets(range.first, range.last);
        if size <= count {
            left.push(*range);
            count -= size;
        } else if count == 0 {
            right.push(*range);
        } else {
            // INVARIANT: 0 < count < size, so the border lies inside the range.
            let border = range
                .first
                .saturating_add(i64::try_from(count).unwrap_or(i64::MAX));
            left.push(SentRange {
                last: border - 1,
                ..*range
            });
            right.push(SentRange {
                first: border,
                ..*range
            });
            count = 0;
        }
    }
    (left, right)
}

#[cfg(test)]
mod tests;
