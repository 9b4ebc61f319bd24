//! From an acquisition's bytes to batches of records. Runs where the consumer is polled, not on the
//! driver's thread.
//!
//! Only offsets inside the acquired ranges are ours: the bytes hold whole producer batches (KIP-932).
//! An acquired offset that the bytes show to be empty (a control record, a compaction hole) is
//! acknowledged as a gap; one that the bytes don't reach is not: it is given back.

use std::ops::Range;
use std::sync::Arc;

use sharegroup_session::{Acknowledgement, Acquired, AcquiredRange, AcquisitionId};
use sharegroup_wire::compress::DecompressLimits;
use sharegroup_wire::record::{BatchError, RecordBatch, RecordBatches, RecordSpan};

use crate::batch::{Chunk, CorruptBatch, Entry, Records, ShareBatch};
use crate::metrics::add;
use crate::shared::{Arrival, Command, Shared};

/// What an acquisition turned out to hold.
#[derive(Debug)]
pub(crate) enum Decoded {
    Batch(ShareBatch),
    Corrupt(CorruptBatch),
}

/// Decodes an acquisition; batches hold at most `records_max` records each.
pub(crate) fn decode(arrival: Arrival, records_max: usize, shared: &Arc<Shared>) -> Vec<Decoded> {
    let Arrival { acquired, lock } = arrival;
    let scan = scan(&acquired, &DecompressLimits::default());
    settle_gaps(&acquired, &scan, shared);
    let mut decoded = Vec::new();
    let records = Arc::new(Records {
        id: acquired.id,
        topic: Arc::clone(&acquired.topic),
        topic_id: acquired.partition.topic_id,
        partition: acquired.partition.partition,
        chunks: scan.chunks,
        entries: scan.entries,
    });
    for range in cut(&records.entries, records_max, &scan.bad) {
        decoded.push(Decoded::Batch(ShareBatch::new(
            Arc::clone(&records),
            range,
            Arc::clone(&lock),
            Arc::clone(shared),
        )));
    }
    for bad in scan.bad {
        add(&shared.counters.corrupt_batches, 1);
        decoded.push(Decoded::Corrupt(CorruptBatch {
            id: acquired.id,
            topic: Arc::clone(&acquired.topic),
            partition: acquired.partition.partition,
            first_offset: bad.offsets.start,
            last_offset: bad.offsets.end - 1,
            error: bad.error,
            shared: Arc::clone(shared),
            settled: false,
        }));
    }
    decoded
}

/// Index ranges of batches of at most `records_max` records. None spans a part that can't be read:
/// settling a batch settles everything between its first and its last offset.
fn cut(entries: &[Entry], records_max: usize, bad: &[Bad]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    for (index, pair) in entries.windows(2).enumerate() {
        let [left, right] = pair else { continue };
        let between = left.span.offset..right.span.offset;
        let splits = bad.iter().any(|bad| between.contains(&bad.offsets.start));
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

struct Bad {
    /// Acquired offsets that it may cover, from the first to behind the last.
    offsets: Range<i64>,
    error: BatchError,
}

#[derive(Default)]
struct Scan {
    chunks: Vec<Chunk>,
    entries: Vec<Entry>,
    bad: Vec<Bad>,
    /// Everything below is known: a record, or nothing. `None` = no bytes at all.
    known_below: Option<i64>,
}

fn scan(acquired: &Acquired, limits: &DecompressLimits) -> Scan {
    let mut scan = Scan::default();
    let Some(last) = acquired.ranges.last().map(|range| range.last_offset) else {
        return scan;
    };
    let mut spans: Vec<RecordSpan> = Vec::new();
    let mut cursor = RangeCursor {
        ranges: &acquired.ranges,
        index: 0,
    };
    for batch in RecordBatches::new(acquired.records.clone()).expecting(last) {
        let result = batch.and_then(|batch| {
            // Control records mark transactions and are nobody's (B-014).
            if !batch.is_control() {
                scan.index(&batch, limits, &mut spans, &mut cursor)?;
            }
            Ok(batch.last_offset())
        });
        match result {
            Ok(last_offset) => {
                scan.known_below = scan.known_below.max(Some(last_offset.saturating_add(1)))
            }
            Err(error) => scan.enter_bad(acquired, error),
        }
    }
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

    /// What of the acquisition a bad batch may cover.
    fn enter_bad(&mut self, acquired: &Acquired, error: BatchError) {
        // Its own base offset is covered by no checksum: it begins where the last good batch ends.
        let first = self.known_below.unwrap_or(i64::MIN);
        let last = error.last_offset.unwrap_or(i64::MAX - 1);
        let parts = acquired
            .ranges
            .iter()
            .filter(|range| range.first_offset <= last && first <= range.last_offset);
        let start = parts
            .clone()
            .map(|range| range.first_offset.max(first))
            .min();
        let end = parts.map(|range| range.last_offset.min(last)).max();
        if let (Some(start), Some(end)) = (start, end) {
            self.known_below = self.known_below.max(Some(end + 1));
            self.bad.push(Bad {
                offsets: start..end + 1,
                error,
            });
        }
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

fn settle_gaps(acquired: &Acquired, scan: &Scan, shared: &Shared) {
    let settle = |id: AcquisitionId, first: i64, last: i64| {
        shared.command(Command::Settle {
            id,
            first,
            last,
            how: Acknowledgement::Gap,
        });
    };
    let records = scan
        .entries
        .iter()
        .map(|entry| (entry.span.offset, entry.span.offset));
    let bad = scan
        .bad
        .iter()
        .map(|bad| (bad.offsets.start, bad.offsets.end - 1));
    let mut covered: Vec<(i64, i64)> = records.chain(bad).collect();
    covered.sort_unstable();
    let mut covered = covered.into_iter().peekable();
    for range in &acquired.ranges {
        let mut next = range.first_offset;
        // What the bytes don't reach is not empty: it was not delivered.
        let known_last = scan
            .known_below
            .map_or(i64::MIN, |below| below - 1)
            .min(range.last_offset);
        while let Some((first, last)) = covered.next_if(|(first, _)| *first <= range.last_offset) {
            if next < first {
                settle(acquired.id, next, first - 1);
            }
            next = next.max(last + 1);
        }
        if next <= known_last {
            settle(acquired.id, next, known_last);
            next = known_last + 1;
        }
        if next <= range.last_offset {
            tracing::warn!(
                topic = %acquired.topic, partition = acquired.partition.partition, first_offset = next, last_offset = range.last_offset,
                "Broker acquired records for us and did not send them; they are given back."
            );
            shared.command(Command::Drop {
                id: acquired.id,
                first: next,
                last: range.last_offset,
            });
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
    use sharegroup_session::TopicPartition;
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

    /// Offsets by batch, bad ranges, and what was said to the driver.
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
        let decoded = decode(Arrival { acquired, lock }, 100, &shared);
        let mut commands = Vec::new();
        shared.take_commands(&mut commands);
        let commands = commands
            .iter()
            .map(|command| match command {
                Command::Settle {
                    first, last, how, ..
                } => format!("{how} {first}-{last}"),
                Command::Drop { first, last, .. } => format!("drop {first}-{last}"),
                other => format!("{other:?}"),
            })
            .collect();
        let (mut batches, mut bad) = (Vec::new(), Vec::new());
        for delivery in decoded {
            match delivery {
                Decoded::Batch(batch) => {
                    batches.push(batch.records().map(|record| record.offset).collect())
                }
                Decoded::Corrupt(corrupt) => bad.push((corrupt.first_offset, corrupt.last_offset)),
            }
        }
        (batches, bad, commands)
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
    fn offsets_that_the_bytes_do_not_reach_are_given_back_and_never_archived() {
        let (batches, _, commands) = decoded(&[batch(0, 3)], &[(0, 11)]);
        assert_eq!(batches, [[0, 1, 2]]);
        assert_eq!(commands, ["drop 3-11"]);
        let (batches, _, commands) = decoded(&[], &[(0, 5)]);
        assert!(batches.is_empty());
        assert_eq!(commands, ["drop 0-5"]);
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
        let (batches, _, commands) = decoded(&[batch(0, 2)], &[(0, i64::MAX - 1)]);
        assert_eq!(batches, [[0, 1]]);
        assert_eq!(commands, [format!("drop 2-{}", i64::MAX - 1)]);
    }
}
