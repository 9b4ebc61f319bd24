//! Acknowledgements as ranges: the shortest legal encoding.
//!
//! A range of offsets is written with one type for all of it, or with one type per offset
//! (KIP-932, `AcknowledgeTypes`). The first takes 19 bytes whatever its length, the second saves the
//! head of each further run of the same type at one byte per offset.

use crate::message::share_fetch::AcknowledgementBatch;

/// Bytes of a batch around its types: two offsets and an empty tagged section.
const FRAME: u64 = 17;
/// Bytes of a batch with one type.
const UNIFORM: u64 = FRAME + 2;
/// Most types whose count fits in one byte (`count + 1 < 128`).
const SHORT_TYPES_MAX: u64 = 126;
/// A run this long is never worth writing offset by offset: leaving a mixed batch, writing the run
/// alone and opening another costs less.
const MIXED_RUN_MAX: u64 = 2 * UNIFORM + 2;

/// Offsets of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcknowledgedRun {
    /// First offset, inclusive.
    pub first_offset: i64,
    /// Last offset, inclusive.
    pub last_offset: i64,
    /// The wire's type, 0–4.
    pub acknowledge_type: i8,
}

impl AcknowledgedRun {
    fn offsets(&self) -> u64 {
        self.last_offset
            .abs_diff(self.first_offset)
            .saturating_add(1)
    }
}

/// The shortest batches for runs that are ascending and don't overlap.
#[must_use]
pub fn acknowledgement_batches(
    runs: impl IntoIterator<Item = AcknowledgedRun>,
) -> Vec<AcknowledgementBatch> {
    let runs = merged(runs);
    let mut batches = Vec::new();
    for stretch in runs.chunk_by(|a, b| a.last_offset.checked_add(1) == Some(b.first_offset)) {
        encode_stretch(stretch, &mut batches);
    }
    batches
}

fn merged(runs: impl IntoIterator<Item = AcknowledgedRun>) -> Vec<AcknowledgedRun> {
    let mut merged: Vec<AcknowledgedRun> = Vec::new();
    for run in runs {
        match merged.last_mut() {
            Some(last)
                if last.acknowledge_type == run.acknowledge_type
                    && last.last_offset.checked_add(1) == Some(run.first_offset) =>
            {
                last.last_offset = run.last_offset;
            }
            _ => merged.push(run),
        }
    }
    merged
}

/// Runs without a hole between them: the cheapest way to cut them into batches, by dynamic
/// programming over where the last batch starts.
fn encode_stretch(runs: &[AcknowledgedRun], batches: &mut Vec<AcknowledgementBatch>) {
    // cheapest[i]: bytes of the first i runs, and where their last batch starts.
    let mut cheapest: Vec<(u64, usize)> = vec![(0, 0)];
    // The cheapest long mixed batch that is still open: its bytes without the closing, and its start.
    let mut long: Option<(u64, usize)> = None;
    for (index, run) in runs.iter().enumerate() {
        let before = cheapest.get(index).map_or(0, |(cost, _)| *cost);
        let mut best = (before + UNIFORM, index);
        let size = run.offsets();
        if size > MIXED_RUN_MAX {
            long = None;
        } else {
            let opened = (before + FRAME + 2 + size, index);
            let extended = long.map(|(cost, start)| (cost + size, start));
            long = Some(
                extended
                    .filter(|extended| *extended <= opened)
                    .unwrap_or(opened),
            );
            best = best.min(long.unwrap_or(opened));
            best = best.min(cheapest_short(runs, &cheapest, index));
        }
        cheapest.push(best);
    }
    let mut end = runs.len();
    let first_new = batches.len();
    while end > 0 {
        let start = cheapest.get(end).map_or(0, |(_, start)| *start);
        if let Some(batch) = runs.get(start..end).and_then(batch) {
            batches.push(batch);
        }
        end = start;
    }
    if let Some(new) = batches.get_mut(first_new..) {
        new.reverse();
    }
}

/// The cheapest mixed batch of at most [`SHORT_TYPES_MAX`] offsets that ends with run `last`.
fn cheapest_short(
    runs: &[AcknowledgedRun],
    cheapest: &[(u64, usize)],
    last: usize,
) -> (u64, usize) {
    let mut best = (u64::MAX, last);
    let mut total = 0;
    for (start, run) in runs.iter().enumerate().take(last + 1).rev() {
        total += run.offsets().min(SHORT_TYPES_MAX + 1);
        if total > SHORT_TYPES_MAX {
            break;
        }
        let before = cheapest.get(start).map_or(0, |(cost, _)| *cost);
        best = best.min((before + FRAME + 1 + total, start));
    }
    best
}

fn batch(runs: &[AcknowledgedRun]) -> Option<AcknowledgementBatch> {
    let (first, last) = (runs.first()?, runs.last()?);
    let acknowledge_types = if runs.len() == 1 {
        vec![first.acknowledge_type]
    } else {
        // Bounded: a mixed batch holds runs of at most MIXED_RUN_MAX offsets.
        let types = runs.iter().map(|run| {
            (
                run.acknowledge_type,
                usize::try_from(run.offsets()).unwrap_or(0),
            )
        });
        types
            .flat_map(|(kind, count)| std::iter::repeat_n(kind, count))
            .collect()
    };
    Some(AcknowledgementBatch {
        first_offset: first.first_offset,
        last_offset: last.last_offset,
        acknowledge_types,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use crate::message::share_fetch::{FetchPartition, FetchTopic, ShareFetchRequest};
    use proptest::prelude::*;

    fn run(first_offset: i64, last_offset: i64, acknowledge_type: i8) -> AcknowledgedRun {
        AcknowledgedRun {
            first_offset,
            last_offset,
            acknowledge_type,
        }
    }

    fn bytes(batches: &[AcknowledgementBatch]) -> usize {
        let request = |acknowledgement_batches| ShareFetchRequest {
            topics: vec![FetchTopic {
                partitions: vec![FetchPartition {
                    partition_index: 0,
                    acknowledgement_batches,
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        // Without the array's own count.
        let count = if batches.len() < 127 { 1 } else { 2 };
        request(batches.to_vec()).to_bytes(1).len() - request(vec![]).to_bytes(1).len() + 1 - count
    }

    /// The cheapest cut by trying all of them.
    fn smallest(types: &[i8]) -> usize {
        let mut best = vec![0_usize];
        for end in 1..=types.len() {
            let ways = (0..end).map(|start| {
                let slice = &types[start..end];
                let uniform = slice.iter().all(|kind| *kind == slice[0]);
                let count = if slice.len() < 127 { 1 } else { 2 };
                best[start]
                    + if uniform {
                        19
                    } else {
                        17 + count + slice.len()
                    }
            });
            let cheapest = ways.min().unwrap();
            best.push(cheapest);
        }
        best[types.len()]
    }

    #[test]
    fn contiguous_runs_of_one_type_become_one_range() {
        let batches = acknowledgement_batches([run(0, 4, 1), run(5, 9, 1), run(20, 29, 1)]);
        assert_eq!(batches.len(), 2);
        assert_eq!((batches[0].first_offset, batches[0].last_offset), (0, 9));
        assert_eq!(batches[0].acknowledge_types, [1]);
    }

    #[test]
    fn alternating_types_share_one_batch() {
        let batches = acknowledgement_batches(
            (0..500).map(|offset| run(offset, offset, 1 + (offset % 2) as i8)),
        );
        assert_eq!(batches.len(), 1);
        assert_eq!(batches[0].acknowledge_types.len(), 500);
    }

    #[test]
    fn hostile_range_is_one_range() {
        assert_eq!(acknowledgement_batches([run(0, i64::MAX, 1)]).len(), 1);
    }

    proptest! {
        #[test]
        fn no_smaller_encoding_exists(runs in prop::collection::vec((1_usize..50, 0_i8..4), 1..12)) {
            let types: Vec<i8> = runs.iter().flat_map(|(length, kind)| vec![*kind; *length]).collect();
            let singles = types.iter().enumerate().map(|(offset, kind)| run(offset as i64, offset as i64, *kind));
            let batches = acknowledgement_batches(singles);
            let decoded: Vec<i8> = batches
                .iter()
                .flat_map(|batch| {
                    let length = (batch.last_offset - batch.first_offset + 1) as usize;
                    if batch.acknowledge_types.len() == 1 { vec![batch.acknowledge_types[0]; length] } else { batch.acknowledge_types.clone() }
                })
                .collect();
            prop_assert_eq!(&decoded, &types);
            prop_assert_eq!(bytes(&batches), smallest(&types));
        }
    }
}
