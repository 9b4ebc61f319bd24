//! The encoder of acknowledgements, against a map that random ranges were written into.

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use sharegroup_wire::acknowledgement::{AcknowledgedRun, acknowledgement_batches};
use sharegroup_wire::message::Message;
use sharegroup_wire::message::share_fetch::{
    AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest,
};

/// Bytes of a batch with one type.
const UNIFORM_BYTES: usize = 19;
/// Most offsets for which all ways to cut them are tried.
const TRIED_OFFSETS_MAX: usize = 300;

/// One step: an outcome for some offsets.
#[derive(Debug, Arbitrary)]
struct Step {
    first: u16,
    length: Length,
    /// 0–4 are types, anything else takes the outcomes back.
    kind: u8,
}

#[derive(Debug, Arbitrary)]
enum Length {
    One,
    Short(u8),
    Long(u32),
}

#[derive(Debug, Arbitrary)]
struct Steps {
    base: Base,
    /// Whether the encoder is given single offsets where that can be.
    is_split: bool,
    steps: Vec<Step>,
}

#[derive(Debug, Arbitrary)]
enum Base {
    Zero,
    Any(i64),
    /// Counted from the last offset there is.
    End(u16),
}

/// First offset → last offset and type; ranges don't overlap.
type Ranges = BTreeMap<i64, (i64, i8)>;

/// Applies ranges, encodes, and expands back: nothing else came out, in few bytes.
pub fn acknowledgements(data: &[u8]) {
    let Ok(steps) = Steps::arbitrary_take_rest(arbitrary::Unstructured::new(data)) else {
        return;
    };
    let ranges = merged(apply(&steps));
    let runs = runs(&ranges, steps.is_split);
    let batches = acknowledgement_batches(runs.iter().copied());
    assert_eq!(merged(expanded(&batches)), ranges);
    let bytes = encoded_bytes(&batches);
    assert!(bytes <= UNIFORM_BYTES * ranges.len());
    assert_smallest(&ranges, bytes);
}

fn apply(steps: &Steps) -> Ranges {
    let base = match steps.base {
        Base::Zero => 0,
        Base::Any(base) => base & i64::MAX,
        Base::End(back) => i64::MAX - i64::from(back),
    };
    let mut ranges = Ranges::new();
    for step in &steps.steps {
        let first = base.saturating_add(i64::from(step.first));
        let more = match step.length {
            Length::One => 0,
            Length::Short(more) => i64::from(more),
            Length::Long(more) => i64::from(more),
        };
        let last = first.saturating_add(more);
        clear(&mut ranges, first, last);
        if let Some(kind) = i8::try_from(step.kind).ok().filter(|kind| *kind <= 4) {
            ranges.insert(first, (last, kind));
        }
    }
    ranges
}

/// Takes the offsets out of the ranges that have them.
fn clear(ranges: &mut Ranges, first: i64, last: i64) {
    let touched: Vec<_> = ranges
        .range(..=last)
        .filter(|(_, (end, _))| *end >= first)
        .map(|(start, (end, kind))| (*start, *end, *kind))
        .collect();
    for (start, end, kind) in touched {
        ranges.remove(&start);
        if start < first {
            ranges.insert(start, (first - 1, kind));
        }
        if end > last {
            ranges.insert(last + 1, (end, kind));
        }
    }
}

/// Neighbours of one type as one range.
fn merged(ranges: Ranges) -> Ranges {
    let mut merged = Ranges::new();
    for (first, (last, kind)) in ranges {
        match merged.last_entry() {
            Some(mut before)
                if before.get().1 == kind && before.get().0.checked_add(1) == Some(first) =>
            {
                before.get_mut().0 = last;
            }
            _ => drop(merged.insert(first, (last, kind))),
        }
    }
    merged
}

fn runs(ranges: &Ranges, is_split: bool) -> Vec<AcknowledgedRun> {
    let run = |first_offset, last_offset, acknowledge_type| AcknowledgedRun {
        first_offset,
        last_offset,
        acknowledge_type,
    };
    let mut runs = Vec::new();
    for (first, (last, kind)) in ranges {
        if is_split && last - first < 1000 {
            runs.extend((*first..=*last).map(|offset| run(offset, offset, *kind)));
        } else {
            runs.push(run(*first, *last, *kind));
        }
    }
    runs
}

/// What a broker makes of the batches.
fn expanded(batches: &[AcknowledgementBatch]) -> Ranges {
    let mut ranges = Ranges::new();
    let mut end = None;
    for batch in batches {
        let (first, last) = (batch.first_offset, batch.last_offset);
        assert!(first <= last && end.is_none_or(|end| first > end));
        end = Some(last);
        if let [kind] = batch.acknowledge_types[..] {
            ranges.insert(first, (last, kind));
            continue;
        }
        let count = i64::try_from(batch.acknowledge_types.len()).expect("few types");
        assert_eq!(Some(count), (last - first).checked_add(1));
        for (offset, kind) in (first..=last).zip(&batch.acknowledge_types) {
            ranges.insert(offset, (offset, *kind));
        }
    }
    ranges
}

/// Bytes of the batches on the wire, without their count; and they survive it.
fn encoded_bytes(batches: &[AcknowledgementBatch]) -> usize {
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
    let (full, empty) = (request(batches.to_vec()), request(Vec::new()));
    let bytes = full.to_bytes(1);
    assert_eq!(ShareFetchRequest::from_bytes(&bytes, 1), Ok(full));
    bytes.len() - empty.to_bytes(1).len() - (length_bytes(batches.len()) - 1)
}

/// Bytes of a count.
const fn length_bytes(count: usize) -> usize {
    if count < 127 {
        1
    } else {
        2 + (count >= 16_383) as usize
    }
}

/// No other way to cut the offsets takes fewer bytes: dynamic programming over single offsets.
fn assert_smallest(ranges: &Ranges, bytes: usize) {
    let mut smallest = 0;
    let mut types: Vec<i8> = Vec::new();
    let mut end = None;
    for (first, (last, kind)) in ranges {
        if end != Some(*first) {
            smallest += smallest_stretch(&types);
            types.clear();
        }
        let room = TRIED_OFFSETS_MAX - types.len();
        let Some(count) = usize::try_from(last - first)
            .ok()
            .filter(|more| *more < room)
        else {
            return;
        };
        types.extend(std::iter::repeat_n(*kind, count + 1));
        end = last.checked_add(1);
    }
    smallest += smallest_stretch(&types);
    assert_eq!(bytes, smallest);
}

fn smallest_stretch(types: &[i8]) -> usize {
    let mut best = vec![0];
    for end in 1..=types.len() {
        let mut is_uniform = true;
        let ways = (0..end).rev().map(|start| {
            is_uniform &= types[start] == types[end - 1];
            let count = end - start;
            let mixed = 17 + length_bytes(count) + count;
            best[start] + if is_uniform { UNIFORM_BYTES } else { mixed }
        });
        let smallest = ways.min().expect("one way at least");
        best.push(smallest);
    }
    best[types.len()]
}
