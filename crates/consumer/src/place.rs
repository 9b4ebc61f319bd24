//! Whether batches lie where they say.
//!
//! A batch's base offset is covered by no checksum. One flipped bit in it gives all its records other offsets:
//! what is done with them would be acknowledged for others, and those would be taken for gaps. But offsets go
//! on from batch to batch, and a batch that was moved doesn't fit in any more: it overlaps a neighbour, or at the
//! first or last place leaves a hole. Holes alone are no sign: compaction makes them.

use sharegroup_session::AcquiredRange;
use sharegroup_wire::record::{BatchError, RecordBatch};

/// Which batches may lie elsewhere. Ranges are what is acquired, ascending.
///
/// Nothing is seen of a batch that was moved so little that it still holds all that is acquired of it.
pub(crate) fn misplaced(
    batches: &[Result<RecordBatch, BatchError>],
    ranges: &[AcquiredRange],
) -> Vec<bool> {
    let places: Vec<Option<Place>> = batches.iter().map(Place::of).collect();
    let mut misplaced = vec![false; batches.len()];
    let mut last_good: Option<(usize, Place)> = None;
    for (index, place) in places.iter().enumerate() {
        let Some(place) = *place else { continue };
        if let Some((before, left)) = last_good
            && left.last_offset >= place.base_offset
        {
            mark(&mut misplaced, before);
            mark(&mut misplaced, index);
        }
        last_good = Some((index, place));
    }
    if is_first_misplaced(&places, ranges) {
        mark(&mut misplaced, 0);
    }
    if is_last_misplaced(&places, ranges) {
        mark(&mut misplaced, places.len() - 1);
    }
    misplaced
}

fn mark(misplaced: &mut [bool], index: usize) {
    if let Some(mark) = misplaced.get_mut(index) {
        *mark = true;
    }
}

/// The offsets that a batch says it has.
#[derive(Debug, Clone, Copy)]
struct Place {
    base_offset: i64,
    last_offset: i64,
}

impl Place {
    fn of(batch: &Result<RecordBatch, BatchError>) -> Option<Self> {
        batch.as_ref().ok().map(|batch| Self {
            base_offset: batch.base_offset(),
            last_offset: batch.last_offset(),
        })
    }
}

/// Whether the first batch doesn't begin with what is acquired, and leaves a hole behind it.
fn is_first_misplaced(places: &[Option<Place>], ranges: &[AcquiredRange]) -> bool {
    let (Some(Some(first)), Some(acquired)) = (places.first(), bounds(ranges)) else {
        return false;
    };
    let behind = match places.get(1) {
        None => acquired.last_offset.saturating_add(1),
        Some(Some(next)) => next.base_offset,
        // Where a bad one begins isn't known.
        Some(None) => return false,
    };
    first.base_offset != acquired.base_offset
        && is_acquired(ranges, first.last_offset.saturating_add(1), behind - 1)
}

/// Whether the last batch doesn't end with what is acquired, and leaves a hole before it.
fn is_last_misplaced(places: &[Option<Place>], ranges: &[AcquiredRange]) -> bool {
    let (Some((Some(last), others)), Some(acquired)) = (places.split_last(), bounds(ranges)) else {
        return false;
    };
    let before = match others.last() {
        None => acquired.base_offset.saturating_sub(1),
        Some(Some(before)) => before.last_offset,
        // Where a bad one ends isn't known.
        Some(None) => return false,
    };
    last.last_offset != acquired.last_offset
        && is_acquired(ranges, before.saturating_add(1), last.base_offset - 1)
}

/// From the first to the last acquired offset.
fn bounds(ranges: &[AcquiredRange]) -> Option<Place> {
    Some(Place {
        base_offset: ranges.first()?.first_offset,
        last_offset: ranges.last()?.last_offset,
    })
}

/// Whether any of these offsets is acquired.
fn is_acquired(ranges: &[AcquiredRange], first: i64, last: i64) -> bool {
    let mut ranges = ranges.iter();
    first <= last && ranges.any(|range| range.first_offset <= last && first <= range.last_offset)
}
