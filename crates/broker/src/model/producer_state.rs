//! What one partition remembers of its idempotent and transactional producers (KIP-98).

use std::collections::{BTreeMap, VecDeque};

use sharegroup_wire::ErrorCode;
use sharegroup_wire::record::RecordBatch;

use super::limits::PRODUCERS_MAX;
use super::log::Appended;

/// Batches of one producer that are remembered, for duplicates: Kafka's number.
const BATCHES_REMEMBERED: usize = 5;

/// How a batch stands to those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sequenced {
    /// It is the next one.
    New,
    /// It was appended before, there.
    Duplicate(Appended),
}

/// What is known of one producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    /// Its epoch.
    pub epoch: i16,
    /// The last batches.
    pub batches: VecDeque<Sequence>,
    /// First offset of the open transaction.
    pub open_from: Option<i64>,
}

/// A batch with sequence numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequence {
    /// Of its first record.
    pub first: i32,
    /// Of its last record.
    pub last: i32,
    /// Where it went.
    pub appended: Appended,
}

/// The producers of one partition.
#[derive(Debug, Clone, Default)]
pub struct ProducerState {
    producers: BTreeMap<i64, Producer>,
}

impl ProducerState {
    /// Whether a batch may be appended.
    ///
    /// # Errors
    /// INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER.
    pub fn check(&self, batch: &RecordBatch) -> Result<Sequenced, ErrorCode> {
        if batch.producer_id() < 0 {
            return Ok(Sequenced::New);
        }
        let Some(producer) = self.producers.get(&batch.producer_id()) else {
            return Ok(Sequenced::New);
        };
        if batch.producer_epoch() < producer.epoch {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        let (first, last) = sequences(batch);
        if batch.producer_epoch() > producer.epoch {
            return if first == 0 {
                Ok(Sequenced::New)
            } else {
                Err(ErrorCode::OutOfOrderSequenceNumber)
            };
        }
        let same = |known: &&Sequence| (known.first, known.last) == (first, last);
        if let Some(known) = producer.batches.iter().find(same) {
            return Ok(Sequenced::Duplicate(known.appended));
        }
        match producer.batches.back() {
            Some(before) if after(before.last, 1) != first => {
                Err(ErrorCode::OutOfOrderSequenceNumber)
            }
            _ => Ok(Sequenced::New),
        }
    }

    /// Notes a batch that was appended.
    pub fn appended(&mut self, batch: &RecordBatch, appended: Appended) {
        if batch.producer_id() < 0 {
            return;
        }
        let is_new = !self.producers.contains_key(&batch.producer_id());
        if is_new && self.producers.len() >= PRODUCERS_MAX {
            self.forget_one();
        }
        let producer = self.producer(batch.producer_id(), batch.producer_epoch());
        let (first, last) = sequences(batch);
        producer.batches.push_back(Sequence {
            first,
            last,
            appended,
        });
        if producer.batches.len() > BATCHES_REMEMBERED {
            producer.batches.pop_front();
        }
        if batch.is_transactional() {
            producer.open_from.get_or_insert(appended.base_offset);
        }
    }

    /// Forgets the producer without an open transaction that wrote longest ago.
    fn forget_one(&mut self) {
        let closed = self
            .producers
            .iter()
            .filter(|(_, producer)| producer.open_from.is_none());
        let last_write = |producer: &Producer| {
            let last = producer.batches.back();
            last.map(|last| last.appended.base_offset)
        };
        let oldest = closed
            .min_by_key(|(_, producer)| last_write(producer))
            .map(|(id, _)| *id);
        if let Some(oldest) = oldest {
            self.producers.remove(&oldest);
        }
    }

    /// The producer under this epoch; an older one's batches are forgotten.
    fn producer(&mut self, producer_id: i64, epoch: i16) -> &mut Producer {
        let producer = self.producers.entry(producer_id).or_insert(Producer {
            epoch,
            batches: VecDeque::new(),
            open_from: None,
        });
        if producer.epoch != epoch {
            producer.epoch = epoch;
            producer.batches.clear();
        }
        producer
    }

    /// Ends a producer's open transaction; returns its first offset.
    pub fn end_transaction(&mut self, producer_id: i64, epoch: i16) -> Option<i64> {
        self.producer(producer_id, epoch).open_from.take()
    }

    /// The producers by id.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &Producer)> {
        self.producers.iter().map(|(id, producer)| (*id, producer))
    }

    /// The first offset of any open transaction.
    #[must_use]
    pub fn first_open_offset(&self) -> Option<i64> {
        self.producers
            .values()
            .filter_map(|producer| producer.open_from)
            .min()
    }
}

impl FromIterator<(i64, Producer)> for ProducerState {
    fn from_iter<T: IntoIterator<Item = (i64, Producer)>>(producers: T) -> Self {
        Self {
            producers: producers.into_iter().collect(),
        }
    }
}

fn sequences(batch: &RecordBatch) -> (i32, i32) {
    let first = batch.base_sequence();
    (first, after(first, batch.last_offset_delta()))
}

/// Sequence numbers go on with 0 after 2³¹−1.
const fn after(sequence: i32, by: i32) -> i32 {
    sequence.wrapping_add(by) & i32::MAX
}
