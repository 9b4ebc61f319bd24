//! From an acquisition's bytes to batches of records. Runs where the consumer is polled, not on the
//! driver's thread.
//!
//! Only offsets inside the acquired ranges are ours: the bytes hold whole producer batches (KIP-932).
//! An acquired offset that the bytes show to be empty (a control record, a compaction hole) is
//! acknowledged as a gap; one that the bytes don't reach is not.

use std::ops::Range;
use std::sync::Arc;

use sharegroup_session::{Acknowledgement, Acquired, AcquiredRange};
use sharegroup_wire::compress::DecompressLimits;
use sharegroup_wire::record::{BatchError, BatchErrorKind, RecordBatch, RecordBatches, RecordSpan};

use crate::batch::{Chunk, Entry, Records, ShareBatch};
use crate::place::misplaced;
use crate::shared::{Arrival, Command, Settling, Shared};

/// What an acquisition's bytes turned out to hold.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) batches: Vec<ShareBatch>,
    /// Ascending.
    pub(crate) unread: Vec<Unread>,
}

/// Acquired offsets of which it isn't known what is there.
#[derive(Debug)]
pub(crate) struct Unread {
    pub(crate) first_offset: i64,
    pub(crate) last_offset: i64,
    /// The bad batch; `None` where the bytes end before, or a batch may lie elsewhere than it says.
    pub(crate) error: Option<BatchError>,
}

/// Where an acquisition's bytes are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// From the ShareFetch that acquired it.
    First,
    /// From the log, read again: batches lie where they say.
    Again,
}

/// Decodes an acquisition; batches hold at most `records_max` records each.
pub(crate) fn decode(
    arrival: &Arrival,
    reading: Reading,
    records_max: usize,
    shared: &Arc<Shared>,
) -> Decoded {
    let Arrival { acquired, lock } = arrival;
    let scan = scan(acquired, reading, &DecompressLimits::default());
    settle_gaps(acquired, &scan, shared);
    let records = Arc::new(Records {
        id: acquired.id,
        topic: Arc::clone(&acquired.topic),
        topic_id: acquired.partition.topic_id,
        partition: acquired.partition.partition,
        chunks: scan.chunks,
        entries: scan.entries,
    });
    let batch = |range| {
        let (records, lock) = (Arc::clone(&records), Arc::clone(lock));
        ShareBatch::new(records, range, lock, Arc::clone(shared))
    };
    let ranges = cut(&records.entries, records_max, &scan.unread);
    Decoded {
        batches: ranges.into_iter().map(batch).collect(),
        unread: scan.unread,
    }
}

/// Whether a batch was cut off, and nothing that can be read comes behind it.
pub(crate) fn is_cut(error: &BatchError) -> bool {
    matches!(error.kind, BatchErrorKind::Cut { .. }) && error.last_offset.is_none()
}

/// What of acquired ranges is unread.
pub(crate) fn clip(ranges: &[AcquiredRange], unread: &Unread) -> Vec<AcquiredRange> {
    let clipped = ranges.iter().map(|range| AcquiredRange {
        first_offset: range.first_offset.max(unread.first_offset),
        last_offset: range.last_offset.min(unread.last_offset),
        ..*range
    });
    clipped
        .filter(|range| range.first_offset <= range.last_offset)
        .collect()
}

/// Index ranges of batches of at most `records_max` records. None spans a part that can't be read:
/// settling a batch settles everything between its first and its last offset.
fn cut(entries: &[Entry], records_max: usize, unread: &[Unread]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    for (index, pair) in entries.windows(2).enumerate() {
        let [left, right] = pair else { continue };
        let between = left.span.offset..right.span.offset;
        let splits = unread
            .iter()
            .any(|part| between.contains(&part.first_offset));
        if splits || index + 1 - start >= records_max.max(1) {
            ranges.push(start..index + 1);
            start = index + 1;
        }
    }
    if start < entries.len() {
        ranges.push(start..entries.len());
    }
    ranges
}

#[derive(Default)]
struct Scan {
    chunks: Vec<Chunk>,
    entries: Vec<Entry>,
    unread: Vec<Unread>,
    /// Everything below is known, or unread: `None` = no bytes at all.
    known_below: Option<i64>,
}

fn scan(acquired: &Acquired, reading: Reading, limits: &DecompressLimits) -> Scan {
    let mut scan = Scan::default();
    let Some(last) = acquired.ranges.last().map(|range| range.last_offset) else {
        return scan;
    };
    let batches = RecordBatches::new(acquired.records.clone()).expecting(last);
    let batches: Vec<Result<RecordBatch, BatchError>> = batches.collect();
    let misplaced = match reading {
        Reading::First => misplaced(&batches, &acquired.ranges),
        Reading::Again => vec![false; batches.len()],
    };
    let mut spans: Vec<RecordSpan> = Vec::new();
    let mut bad: Vec<BatchError> = Vec::new();
    // Whether one of those since the last good batch may lie elsewhere.
    let mut is_lost = false;
    let mut cursor = RangeCursor {
        ranges: &acquired.ranges,
        index: 0,
    };
    for (batch, is_misplaced) in batches.into_iter().zip(misplaced) {
        is_lost |= is_misplaced;
        if is_misplaced {
            continue;
        }
        let result = batch.and_then(|batch| {
            // Control records mark transactions and are nobody's (B-014).
            if !batch.is_control() {
                scan.index(&batch, limits, &mut spans, &mut cursor)?;
            }
            Ok((batch.base_offset(), batch.last_offset()))
        });
        match result {
            Ok((base_offset, last_offset)) => {
                let bad = std::mem::take(&mut bad);
                if std::mem::take(&mut is_lost) {
                    scan.enter_unread(acquired, base_offset - 1, None);
                } else {
                    scan.enter_bad(acquired, bad, Some(base_offset));
                }
                scan.known_below = scan.known_below.max(Some(last_offset.saturating_add(1)));
            }
            Err(error) => bad.push(error),
        }
    }
    if !is_lost {
        scan.enter_bad(acquired, bad, None);
    }
    // What the bytes don't reach.
    scan.enter_unread(acquired, i64::MAX - 1, None);
    scan
}

impl Scan {
    fn index(
        &mut self,
        batch: &RecordBatch,
        limits: &DecompressLimits,
        spans: &mut Vec<RecordSpan>,
        cursor: &mut RangeCursor<'_>,
    ) -> Result<(), BatchError> {
        // A range of the acquisition reaches into this batch, or its bytes need not be looked at.
        if !cursor.overlaps(batch.base_offset(), batch.last_offset()) {
            return Ok(());
        }
        spans.clear();
        let mut counts = Vec::new();
        let mut wanted = cursor.clone();
        let payload = batch.index_into(limits, spans, |offset| {
            match wanted.delivery_count(offset) {
                Some(count) => {
                    counts.push(count);
                    true
                }
                None => false,
            }
        })?;
        *cursor = wanted;
        if spans.is_empty() {
            return Ok(());
        }
        let chunk = u32::try_from(self.chunks.len()).unwrap_or(u32::MAX);
        self.chunks.push(Chunk {
            payload,
            timestamp_type: batch.timestamp_type(),
        });
        self.entries.reserve(spans.len());
        let entries = spans
            .iter()
            .zip(counts)
            .map(|(span, delivery_count)| Entry {
                span: *span,
                chunk,
                delivery_count,
            });
        // Offsets ascend within a batch and over batches; what doesn't is the broker's nonsense and
        // would break the search by offset.
        let last = self
            .entries
            .last()
            .map_or(i64::MIN, |entry| entry.span.offset);
        self.entries
            .extend(entries.filter(|entry| entry.span.offset > last));
        Ok(())
    }

    /// Bad batches in a row, and where the good one behind them begins.
    fn enter_bad(&mut self, acquired: &Acquired, bad: Vec<BatchError>, end: Option<i64>) {
        let mut bad = bad.into_iter().peekable();
        while let Some(error) = bad.next() {
            // What a bad batch says of its own offsets counts least.
            let acquired_first = acquired.ranges.first().map(|range| range.first_offset);
            let first = self.known_below.or(acquired_first).unwrap_or(i64::MIN);
            let is_behind = |offset: &i64| *offset > first;
            let next = bad.peek().map(|next| next.base_offset);
            let next = next.filter(is_behind).or(end.filter(is_behind));
            let own = own_last_offset(&error).filter(|last| *last >= first);
            let last = next.map(|next| next - 1).or(own).unwrap_or(i64::MAX - 1);
            let end = end.filter(is_behind).unwrap_or(i64::MAX);
            self.enter_unread(acquired, last.min(end - 1), Some(error));
        }
    }

    /// Nothing is known of what is acquired from the last known offset on, up to `last_offset`.
    fn enter_unread(&mut self, acquired: &Acquired, last_offset: i64, error: Option<BatchError>) {
        let part = Unread {
            first_offset: self.known_below.unwrap_or(i64::MIN),
            last_offset,
            error,
        };
        let ranges = clip(&acquired.ranges, &part);
        if let (Some(first), Some(last)) = (ranges.first(), ranges.last()) {
            self.known_below = Some(last.last_offset + 1);
            self.unread.push(Unread {
                first_offset: first.first_offset,
                last_offset: last.last_offset,
                ..part
            });
        }
    }
}

/// The last offset that a bad batch may have, as far as it can be believed.
fn own_last_offset(error: &BatchError) -> Option<i64> {
    match error.kind {
        // Its records are not those of its header.
        BatchErrorKind::RecordCount { .. } | BatchErrorKind::Record(_) => None,
        _ => error.last_offset,
    }
}

/// Walks the acquired ranges beside ascending offsets.
#[derive(Clone)]
struct RangeCursor<'a> {
    ranges: &'a [AcquiredRange],
    index: usize,
}

impl RangeCursor<'_> {
    fn overlaps(&self, first: i64, last: i64) -> bool {
        let rest = self.ranges.get(self.index..).unwrap_or_default();
        rest.iter()
            .any(|range| range.first_offset <= last && first <= range.last_offset)
    }

    fn delivery_count(&mut self, offset: i64) -> Option<i16> {
        while let Some(range) = self.ranges.get(self.index) {
            if offset <= range.last_offset {
                return (range.first_offset <= offset).then_some(range.delivery_count);
            }
            self.index += 1;
        }
        None
    }
}

/// Every acquired offset is now known or unread; those that are neither a record nor unread are gaps.
fn settle_gaps(acquired: &Acquired, scan: &Scan, shared: &Shared) {
    let settle = |first: i64, last: i64| {
        let gap = Settling {
            id: acquired.id,
            first,
            last,
            how: Acknowledgement::Gap,
        };
        shared.command(Command::Settle(gap, None));
    };
    let records = scan.entries.iter().map(|entry| entry.span.offset);
    let unread = scan.unread.iter();
    let mut covered: Vec<(i64, i64)> = records
        .map(|offset| (offset, offset))
        .chain(unread.map(|part| (part.first_offset, part.last_offset)))
        .collect();
    covered.sort_unstable();
    let mut covered = covered.into_iter().peekable();
    // The end of what was looked at: an unread part may span several ranges.
    let mut next = i64::MIN;
    for range in &acquired.ranges {
        next = next.max(range.first_offset);
        while let Some((first, last)) = covered.next_if(|(first, _)| *first <= range.last_offset) {
            if next < first {
                settle(next, first - 1);
            }
            next = next.max(last + 1);
        }
        if next <= range.last_offset {
            settle(next, range.last_offset);
            next = range.last_offset + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lock::LockState;
    use crate::status::ShareStatus;
    use bytes::{Bytes, BytesMut};
    use sharegroup_session::{AcquisitionId, TopicPartition};
    use sharegroup_wire::compress::Compression;
    use sharegroup_wire::record::RecordBatchBuilder;
    use sharegroup_wire::{BrokerId, TopicId};
    use tokio::time::Instant;

    fn batch(base_offset: i64, count: usize) -> Bytes {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        for index in 0..count {
            let value = format!("v{}", base_offset + index as i64);
            builder
                .push(1000, None, Some(value.as_bytes()), std::iter::empty())
                .unwrap();
        }
        builder.build(base_offset).unwrap()
    }

    /// Offsets by batch, what is unread, and what was said to the driver.
    type Read = (Vec<Vec<i64>>, Vec<(i64, i64)>, Vec<String>);

    fn decoded(records: &[Bytes], ranges: &[(i64, i64)]) -> Read {
        let mut bytes = BytesMut::new();
        records
            .iter()
            .for_each(|batch| bytes.extend_from_slice(batch));
        let deadline = Instant::now();
        let acquired = Acquired {
            id: AcquisitionId(1),
            partition: TopicPartition {
                topic_id: TopicId::ZERO,
                partition: 0,
            },
            topic: "t".into(),
            broker: BrokerId(1),
            records: bytes.freeze(),
            ranges: ranges
                .iter()
                .map(|(first_offset, last_offset)| AcquiredRange {
                    first_offset: *first_offset,
                    last_offset: *last_offset,
                    delivery_count: 1,
                })
                .collect(),
            deadline: deadline.into_std(),
            renewable: true,
        };
        let shared = Shared::new(ShareStatus::joining(String::new()));
        let lock = Arc::new(LockState::new(deadline, Duration::from_secs(30), true));
        let decoded = decode(&Arrival { acquired, lock }, Reading::First, 100, &shared);
        let mut commands = Vec::new();
        shared.take_commands(&mut commands);
        let commands = commands.iter().map(|command| match command {
            Command::Settle(settling, _) => {
                let Settling {
                    first, last, how, ..
                } = settling;
                format!("{how} {first}-{last}")
            }
            other => format!("{other:?}"),
        });
        let offsets = |batch: &ShareBatch| batch.records().map(|record| record.offset).collect();
        let unread = decoded.unread.iter();
        (
            decoded.batches.iter().map(offsets).collect(),
            unread
                .map(|part| (part.first_offset, part.last_offset))
                .collect(),
            commands.collect(),
        )
    }

    #[test]
    fn b_024_only_acquired_offsets_are_delivered() {
        let (batches, bad, commands) = decoded(&[batch(0, 10)], &[(4, 6)]);
        assert_eq!(batches, [[4, 5, 6]]);
        assert!(bad.is_empty() && commands.is_empty(), "{commands:?}");
    }

    #[test]
    fn b_015_holes_between_and_inside_batches_are_gaps() {
        let (batches, _, commands) = decoded(&[batch(0, 3), batch(10, 2)], &[(0, 11)]);
        assert_eq!(batches, [[0, 1, 2, 10, 11]]);
        assert_eq!(commands, ["GAP 3-9"]);
    }

    #[test]
    fn offsets_that_the_bytes_do_not_reach_are_unread_and_never_archived() {
        let (batches, unread, commands) = decoded(&[batch(0, 3)], &[(0, 11)]);
        assert_eq!((batches, unread), (vec![vec![0, 1, 2]], vec![(3, 11)]));
        assert!(commands.is_empty(), "{commands:?}");
        let (batches, unread, commands) = decoded(&[], &[(0, 5)]);
        assert!(batches.is_empty() && commands.is_empty());
        assert_eq!(unread, [(0, 5)]);
    }

    #[test]
    fn one_corrupt_batch_leaves_its_neighbours_alone() {
        let mut broken = batch(3, 3).to_vec();
        let end = broken.len() - 1;
        broken[end] ^= 1;
        let (batches, bad, commands) =
            decoded(&[batch(0, 3), broken.into(), batch(6, 2)], &[(0, 7)]);
        assert_eq!(
            batches,
            [vec![0, 1, 2], vec![6, 7]],
            "accepting one batch must not accept what lies between them"
        );
        assert_eq!(bad, [(3, 5)]);
        assert_eq!(commands, Vec::<String>::new());
    }

    #[test]
    fn damaged_base_offset_makes_no_gap() {
        let mut broken = batch(3, 3).to_vec();
        let end = broken.len() - 1;
        broken[end] ^= 1;
        // Not covered by the checksum: 3 becomes 5.
        broken[7] = 5;
        let (batches, bad, commands) =
            decoded(&[batch(0, 3), broken.into(), batch(6, 2)], &[(0, 7)]);
        assert_eq!(batches, [vec![0, 1, 2], vec![6, 7]]);
        assert_eq!(bad, [(3, 5)]);
        assert_eq!(commands, Vec::<String>::new());
    }

    #[test]
    fn b_020_cut_batch_behind_the_acquired_ranges_is_no_error() {
        let cut = batch(3, 3).slice(..20);
        let (batches, bad, commands) = decoded(&[batch(0, 3), cut], &[(0, 2)]);
        assert_eq!(batches, [[0, 1, 2]]);
        assert!(bad.is_empty() && commands.is_empty());
    }

    #[test]
    fn hostile_range_is_neither_walked_nor_archived() {
        let (batches, unread, commands) = decoded(&[batch(0, 2)], &[(0, i64::MAX - 1)]);
        assert_eq!(batches, [[0, 1]]);
        assert_eq!(unread, [(2, i64::MAX - 1)]);
        assert!(commands.is_empty(), "{commands:?}");
    }

    #[test]
    fn b_020_a_batch_that_was_cut_off_is_unread_from_its_beginning() {
        let whole = batch(3, 3);
        for left in [1, 16, 17, 60, whole.len() - 1] {
            let records = [batch(0, 3), whole.slice(..left)];
            let (batches, unread, commands) = decoded(&records, &[(0, 8)]);
            assert_eq!(batches, [[0, 1, 2]]);
            assert_eq!(unread, [(3, 8)], "{left} bytes left");
            assert!(commands.is_empty(), "{commands:?}");
        }
    }

    #[test]
    fn what_is_unread_is_no_gap_though_it_spans_ranges() {
        let mut broken = batch(3, 6).to_vec();
        broken[61] ^= 1;
        let records = [batch(0, 3), broken.into(), batch(9, 2)];
        let (batches, unread, commands) = decoded(&records, &[(1, 4), (6, 7), (10, 12)]);
        assert_eq!(batches, [vec![1, 2], vec![10]]);
        assert_eq!(unread, [(3, 7), (11, 12)]);
        assert!(commands.is_empty(), "{commands:?}");
    }

    #[test]
    fn two_bad_batches_in_a_row_leave_the_good_ones_alone() {
        let bad = |base_offset| {
            let mut bytes = batch(base_offset, 3).to_vec();
            bytes[61] ^= 1;
            Bytes::from(bytes)
        };
        let records = [batch(0, 3), bad(3), bad(6), batch(9, 3), bad(12)];
        let (batches, unread, commands) = decoded(&records, &[(0, 14)]);
        assert_eq!(batches, [[0, 1, 2], [9, 10, 11]]);
        assert_eq!(unread, [(3, 5), (6, 8), (12, 14)]);
        assert!(commands.is_empty(), "{commands:?}");
    }

    #[test]
    fn what_a_bad_batch_says_of_its_own_offsets_makes_no_gap() {
        for last_offset_delta in [0, 1, -1, 100] {
            let mut bytes = batch(3, 3).to_vec();
            bytes[23..27].copy_from_slice(&i32::to_be_bytes(last_offset_delta));
            // More records than there are.
            bytes[57..61].copy_from_slice(&i32::to_be_bytes(4));
            let crc = crc32c::crc32c(&bytes[21..]);
            bytes[17..21].copy_from_slice(&crc.to_be_bytes());
            let records = [batch(0, 3), bytes.into(), batch(6, 3)];
            let (batches, unread, commands) = decoded(&records, &[(0, 8)]);
            assert!(commands.is_empty(), "{commands:?}");
            if last_offset_delta < 3 {
                assert_eq!(batches, [[0, 1, 2], [6, 7, 8]]);
                assert_eq!(unread, [(3, 5)], "{last_offset_delta}");
            } else {
                // Which of the two lies elsewhere nobody knows.
                assert_eq!((batches, unread), (vec![vec![0, 1, 2]], vec![(3, 8)]));
            }
        }
    }

    #[test]
    fn holes_of_compaction_need_no_second_read() {
        let log = [batch(0, 2), batch(5, 2), batch(9, 3), batch(20, 1)];
        let (batches, unread, commands) = decoded(&log, &[(0, 20)]);
        assert_eq!(batches, [[0, 1, 5, 6, 9, 10, 11, 20]]);
        assert!(unread.is_empty(), "{unread:?}");
        assert_eq!(commands, ["GAP 2-4", "GAP 7-8", "GAP 12-19"]);
    }

    #[test]
    fn a_batch_that_may_lie_elsewhere_is_unread_with_the_hole_that_it_leaves() {
        // The middle one, which lies at 3, up and down; then the last one and the first one.
        for (moved, records) in [
            ((3, 8), [batch(0, 3), batch(4, 3), batch(6, 3)]),
            ((0, 5), [batch(0, 3), batch(2, 3), batch(6, 3)]),
            ((3, 8), [batch(0, 3), batch(3 << 40, 3), batch(6, 3)]),
            ((6, 8), [batch(0, 3), batch(3, 3), batch(7, 3)]),
            ((0, 5), [batch(1, 3), batch(3, 3), batch(6, 3)]),
        ] {
            let (batches, unread, commands) = decoded(&records, &[(0, 8)]);
            assert_eq!(unread, [moved]);
            let rest: Vec<i64> = (0..9).filter(|o| *o < moved.0 || *o > moved.1).collect();
            assert_eq!(batches, [rest]);
            assert!(commands.is_empty(), "{commands:?}");
        }
    }
}
