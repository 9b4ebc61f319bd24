//! Damage to the records of an answer, as a bad link or a bad cache does it.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use sharegroup_wire::record::BATCH_HEADER_BYTES;

use super::Model;
use super::faults::Touch;
use super::random::SplitMix64;
use super::topics::Place;

/// What happens to the records of one partition in an answer. What was acquired is told as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// A bit flips that a batch's checksum covers: which one, and of which batch, is chance.
    FlipBit,
    /// They end in the middle of the last batch.
    CutBatch,
}

impl Damage {
    pub(super) fn apply(self, records: Bytes, random: &mut SplitMix64) -> Bytes {
        let batches = batches(&records);
        match self {
            Self::FlipBit => {
                let Some(batch) = batches.get(below(batches.len(), random)) else {
                    return records;
                };
                let covered = batch.start + CHECKED..batch.end;
                let at = covered.start + below(covered.len(), random);
                let mut bytes = BytesMut::from(&records[..]);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << below(8, random);
                }
                bytes.freeze()
            }
            Self::CutBatch => match batches.last() {
                Some(last) => records.slice(..last.start + last.len() / 2),
                None => records,
            },
        }
    }
}

/// The first byte of a batch that its checksum covers.
const CHECKED: usize = 21;

/// A number below `end`; 0 where there is none.
fn below(end: usize, random: &mut SplitMix64) -> usize {
    let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
    usize::try_from(random.next_u64() % end).unwrap_or(0)
}

/// Where the whole batches lie.
fn batches(records: &[u8]) -> Vec<Range<usize>> {
    let mut batches = Vec::new();
    let mut start = 0;
    while let Some(length) = records
        .get(start + 8..)
        .and_then(|rest| rest.first_chunk::<4>())
    {
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
        let end = start + 12 + length;
        if length + 12 < BATCH_HEADER_BYTES || end > records.len() {
            break;
        }
        batches.push(start..end);
        start = end;
    }
    batches
}

impl Model {
    /// The records of a partition in an answer, as they arrive.
    pub(crate) fn damaged(&mut self, api_key: i16, place: Place, records: Bytes) -> Bytes {
        if records.is_empty() || !self.faults.damages_records() {
            return records;
        }
        let Some(topic) = self.topics.get(place.0) else {
            return records;
        };
        let touch = Touch {
            api_key,
            topic: topic.name.clone(),
            place,
        };
        self.faults.damage(&touch, records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sharegroup_wire::compress::Compression;
    use sharegroup_wire::record::{RecordBatchBuilder, RecordBatches};

    fn records() -> Bytes {
        let batch = |base_offset| {
            let mut builder = RecordBatchBuilder::new(Compression::None);
            let none = std::iter::empty();
            builder.push(1000, None, Some(b"value"), none).unwrap();
            builder.build(base_offset).unwrap()
        };
        [batch(0), batch(1), batch(2)].concat().into()
    }

    #[test]
    fn a_flipped_bit_spoils_one_batch_and_every_batch_has_its_turn() {
        let mut bad = [0; 3];
        for seed in 0..100 {
            let records = Damage::FlipBit.apply(records(), &mut SplitMix64(seed));
            let read: Vec<bool> = RecordBatches::new(records).map(|b| b.is_err()).collect();
            assert_eq!(read.iter().filter(|is_bad| **is_bad).count(), 1, "{read:?}");
            read.iter()
                .zip(&mut bad)
                .for_each(|(is_bad, bad)| *bad += i32::from(*is_bad));
        }
        assert!(bad.iter().all(|count| *count > 10), "{bad:?}");
    }

    #[test]
    fn a_cut_leaves_the_batches_before_it_whole() {
        let cut = Damage::CutBatch.apply(records(), &mut SplitMix64(0));
        let mut read = RecordBatches::new(cut);
        assert!(read.by_ref().all(|batch| batch.is_ok()));
        assert_eq!(read.cut_base_offset(), Some(2));
        let nothing = Damage::CutBatch.apply(Bytes::new(), &mut SplitMix64(0));
        assert!(nothing.is_empty());
    }
}
