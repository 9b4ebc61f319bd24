//! One acquisition: the offsets that one fetch gave us of one partition, and what became of each.
//!
//! Offsets are kept as ranges (segments). An offset goes `Held → Pending → Sent → gone`; `Delayed`
//! is held by nobody and waits for its release.

use std::fmt;
use std::time::Instant;

use sharegroup_wire::{BrokerId, TopicId};

use crate::event::CommitId;

/// A partition, by topic id: a topic that was deleted and made again is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    /// The topic's id.
    pub topic_id: TopicId,
    /// Partition index.
    pub partition: i32,
}

/// Names one acquisition. A later acquisition of the same offset has another id, so that a stale
/// handle can't touch it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AcquisitionId(pub u64);

/// How an offset is settled. The numbers are the wire's (ShareAcknowledge, `AcknowledgeTypes`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Acknowledgement {
    /// No record at this offset (compacted away, or a control record); archived.
    Gap,
    /// Processed.
    Accept,
    /// Not processed; available again for another delivery, which this one isn't refunded.
    Release,
    /// Can't be processed; archived, or sent to the group's dead-letter topic.
    Reject,
}

impl Acknowledgement {
    /// The wire's number.
    #[must_use]
    pub const fn wire_type(self) -> i8 {
        match self {
            Self::Gap => 0,
            Self::Accept => 1,
            Self::Release => 2,
            Self::Reject => 3,
        }
    }
}

impl fmt::Display for Acknowledgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gap => "GAP",
            Self::Accept => "ACCEPT",
            Self::Release => "RELEASE",
            Self::Reject => "REJECT",
        })
    }
}

/// What became of a range of offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// With its owner.
    Held,
    /// Dropped by its owner; released at the given time.
    Delayed { release_at: Instant },
    /// Settled, not sent. `group` > 0: sent apart from the others, to find a stale offset.
    Pending {
        how: Acknowledgement,
        commit: CommitId,
        group: u32,
    },
    /// Sent, not answered.
    Sent {
        how: Acknowledgement,
        commit: CommitId,
    },
}

/// A range of offsets with one fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) delivery_count: i16,
    /// When the lock ends, at the latest.
    pub(crate) deadline: Instant,
    pub(crate) state: State,
}

impl Segment {
    pub(crate) fn offsets(&self) -> u64 {
        offsets(self.first, self.last)
    }
}

/// Offsets in an inclusive range.
pub(crate) fn offsets(first: i64, last: i64) -> u64 {
    u64::try_from(i128::from(last) - i128::from(first) + 1).unwrap_or(0)
}

/// Numbers of offsets by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Held or delayed: occupy credit and need renewal.
    pub(crate) held: u64,
    pub(crate) pending: u64,
    pub(crate) sent: u64,
}

/// One acquisition.
#[derive(Debug)]
pub(crate) struct Acquisition {
    pub(crate) partition: TopicPartition,
    pub(crate) broker: BrokerId,
    pub(crate) acquired_at: Instant,
    /// Size of the frame part that holds its records.
    pub(crate) bytes: u64,
    /// When to renew what is held; `None` = no renewal (any more).
    pub(crate) renew_at: Option<Instant>,
    /// A renewal is on its way.
    pub(crate) renewing: bool,
    /// Most offsets in one renewal: shrinks when one of them is stale, to find it.
    pub(crate) renew_offsets_max: u64,
    /// Ascending, without overlap.
    segments: Vec<Segment>,
    counts: Counts,
}

impl Acquisition {
    pub(crate) fn new(
        partition: TopicPartition,
        broker: BrokerId,
        acquired_at: Instant,
        segments: Vec<Segment>,
    ) -> Self {
        let mut acquisition = Self {
            partition,
            broker,
            acquired_at,
            bytes: 0,
            renew_at: None,
            renewing: false,
            renew_offsets_max: u64::MAX,
            segments,
            counts: Counts::default(),
        };
        acquisition.recount();
        acquisition
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Passes every part of a segment inside `first..=last` to `change`, which returns what it
    /// becomes; `None` removes it.
    pub(crate) fn change(
        &mut self,
        first: i64,
        last: i64,
        mut change: impl FnMut(Segment) -> Option<Segment>,
    ) {
        let start = self
            .segments
            .partition_point(|segment| segment.last < first);
        let end = start
            + self
                .segments
                .get(start..)
                .unwrap_or_default()
                .partition_point(|segment| segment.first <= last);
        let mut changed = Vec::with_capacity(end - start + 2);
        for segment in self.segments.drain(start..end) {
            if segment.first < first {
                push_merged(
                    &mut changed,
                    Segment {
                        last: first - 1,
                        ..segment
                    },
                );
            }
            let inside = Segment {
                first: segment.first.max(first),
                last: segment.last.min(last),
                ..segment
            };
            if let Some(inside) = change(inside) {
                push_merged(&mut changed, inside);
            }
            if segment.last > last {
                push_merged(
                    &mut changed,
                    Segment {
                        first: last + 1,
                        ..segment
                    },
                );
            }
        }
        self.segments.splice(start..start, changed.iter().copied());
        self.merge_around(start, start + changed.len());
        self.recount();
    }

    /// Merges the neighbours at both borders of a changed stretch.
    fn merge_around(&mut self, start: usize, end: usize) {
        for right in [end, start] {
            let Some(left) = right.checked_sub(1) else {
                continue;
            };
            if let (Some(&a), Some(&b)) = (self.segments.get(left), self.segments.get(right))
                && let Some(merged) = merged(a, b)
            {
                self.segments.splice(left..=right, [merged]);
            }
        }
    }

    fn recount(&mut self) {
        let mut counts = Counts::default();
        for segment in &self.segments {
            *match segment.state {
                State::Held | State::Delayed { .. } => &mut counts.held,
                State::Pending { .. } => &mut counts.pending,
                State::Sent { .. } => &mut counts.sent,
            } += segment.offsets();
        }
        self.counts = counts;
    }
}

fn push_merged(segments: &mut Vec<Segment>, segment: Segment) {
    if let Some(last) = segments.last_mut()
        && let Some(merged) = merged(*last, segment)
    {
        *last = merged;
    } else {
        segments.push(segment);
    }
}

fn merged(a: Segment, b: Segment) -> Option<Segment> {
    let same = a.last.checked_add(1) == Some(b.first)
        && a.delivery_count == b.delivery_count
        && a.deadline == b.deadline
        && a.state == b.state;
    same.then_some(Segment { last: b.last, ..a })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquisition(first: i64, last: i64) -> Acquisition {
        // The clock is only a label here.
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        let segment = Segment {
            first,
            last,
            delivery_count: 1,
            deadline: now,
            state: State::Held,
        };
        let partition = TopicPartition {
            topic_id: TopicId::ZERO,
            partition: 0,
        };
        Acquisition::new(partition, BrokerId(1), now, vec![segment])
    }

    fn accept(segment: Segment) -> Option<Segment> {
        Some(Segment {
            state: State::Pending {
                how: Acknowledgement::Accept,
                commit: CommitId(0),
                group: 0,
            },
            ..segment
        })
    }

    #[test]
    fn single_offsets_settled_in_any_order_merge_into_one_range() {
        let mut acquisition = acquisition(10, 19);
        for offset in [14, 10, 19, 12, 11, 13, 18, 15, 17] {
            acquisition.change(offset, offset, accept);
        }
        assert_eq!(
            acquisition.counts(),
            Counts {
                held: 1,
                pending: 9,
                sent: 0
            }
        );
        assert_eq!(acquisition.segments().len(), 3);
        acquisition.change(16, 16, accept);
        assert_eq!(acquisition.segments().len(), 1);
    }

    #[test]
    fn removed_offsets_leave_a_hole() {
        let mut acquisition = acquisition(0, 9);
        acquisition.change(3, 5, |_| None);
        assert_eq!(acquisition.counts().held, 7);
        acquisition.change(i64::MIN, i64::MAX, |_| None);
        assert!(acquisition.is_empty());
    }

    #[test]
    fn hostile_range_is_counted_without_being_walked() {
        assert_eq!(acquisition(0, i64::MAX).counts().held, 1 << 63);
    }
}
