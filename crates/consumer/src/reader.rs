//! From what arrives to what a poll gives. Runs where the consumer is polled.
//!
//! A bit may have flipped, or an answer have been cut, on one link alone: no record is rejected or released
//! for that. What can't be read of an acquisition stays held, and its offsets are read again from the
//! leader's log with a plain Fetch. What can be read then is delivered as any other part of the
//! acquisition; what can't is a [`CorruptBatch`]. Its neighbours wait for nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sharegroup_session::Acquired;
use sharegroup_wire::record::BatchError;
use tokio::time::Instant;

use crate::batch::{CorruptBatch, ShareBatch};
use crate::cluster::LogRead;
use crate::decode::{Decoded, Unread, clip, decode, is_cut};
use crate::error::ClientError;
use crate::lock::LockView;
use crate::metrics::add;
use crate::shared::{Arrival, Command, ReadId, Shared};

/// Second reads at a time; others wait. Bounds the bytes that were read and not yet polled.
const READS_MAX: usize = 4;

/// Longest time for a second read, waiting and tries included.
const READ_TIME: Duration = Duration::from_secs(5);

/// Bytes of a second read where it isn't known how many there are. A larger batch comes all the same.
const READ_BYTES: usize = 1024 * 1024;

/// What the next poll gives.
#[derive(Debug)]
pub(crate) enum Ready {
    Batch(ShareBatch),
    Corrupt(CorruptBatch),
}

impl Ready {
    /// Whether a record of it is no longer ours.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Batch(batch) => batch.is_lost(),
            Self::Corrupt(corrupt) => corrupt.lock().lost().is_some(),
        }
    }

    /// No application will see it.
    pub(crate) fn release_unseen(self) {
        match self {
            Self::Batch(batch) => batch.release_unseen(),
            Self::Corrupt(corrupt) => corrupt.release_unseen(),
        }
    }
}

/// A part of an acquisition that is to be read again.
#[derive(Debug)]
struct Part {
    /// Without bytes, and with the ranges of this part alone.
    acquired: Acquired,
    lock: LockView,
    /// The bad batch; `None` where the bytes didn't reach.
    error: Option<BatchError>,
    /// It isn't read after that.
    until: Instant,
}

impl Part {
    fn new(arrival: &Arrival, unread: Unread, shared: &Arc<Shared>) -> Self {
        let lock = LockView {
            state: Arc::clone(&arrival.lock),
            shared: Arc::clone(shared),
            first_offset: unread.first_offset,
            last_offset: unread.last_offset,
        };
        let now = Instant::now();
        // Where the lock ends by itself, somebody must have had time to settle before.
        let time = if lock.is_renewable() {
            READ_TIME
        } else {
            READ_TIME.min(lock.deadline().saturating_duration_since(now) / 2)
        };
        Self {
            acquired: Acquired {
                records: Bytes::new(),
                ranges: clip(&arrival.acquired.ranges, &unread),
                topic: Arc::clone(&arrival.acquired.topic),
                ..arrival.acquired
            },
            lock,
            error: unread.error,
            until: now + time,
        }
    }

    fn log_read(&self) -> LogRead {
        let size = self.error.as_ref().map(|error| error.bytes.len());
        LogRead {
            broker: self.acquired.broker,
            topic: self.acquired.topic.to_string(),
            partition: self.acquired.partition,
            offset: self.lock.first_offset,
            bytes_max: size.unwrap_or(READ_BYTES),
        }
    }

    /// It can't be read again: it is told as it came, or released later where it didn't come at all.
    fn give_up(self) -> Option<Ready> {
        match self.error {
            Some(error) => Some(Ready::Corrupt(CorruptBatch::new(
                &self.acquired,
                self.lock,
                error,
            ))),
            None => {
                self.drop_held();
                None
            }
        }
    }

    /// Released after the delay of what an application drops.
    fn drop_held(&self) {
        self.lock.shared.command(Command::Drop {
            id: self.acquired.id,
            first: self.lock.first_offset,
            last: self.lock.last_offset,
        });
    }

    /// No application will see it.
    fn release_unseen(&self) {
        self.lock.shared.command(Command::Unseen {
            id: self.acquired.id,
            first: self.lock.first_offset,
            last: self.lock.last_offset,
        });
    }
}

/// Decodes what arrives, and has read again what can't be decoded.
#[derive(Debug)]
pub(crate) struct Reader {
    shared: Arc<Shared>,
    /// Most records of a batch.
    records_max: usize,
    waiting: VecDeque<Part>,
    reading: BTreeMap<ReadId, Part>,
    last_read: ReadId,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>, records_max: usize) -> Self {
        Self {
            shared,
            records_max,
            waiting: VecDeque::new(),
            reading: BTreeMap::new(),
            last_read: ReadId(0),
        }
    }

    /// What can be read of an arrival.
    pub(crate) fn read(&mut self, arrival: &Arrival) -> Vec<Ready> {
        let Decoded { batches, unread } = decode(arrival, self.records_max, &self.shared);
        let mut ready: Vec<Ready> = batches.into_iter().map(Ready::Batch).collect();
        for mut part in unread {
            warn_unread(&arrival.acquired, &part);
            // Of the half of a batch nothing is known.
            part.error = part.error.filter(|error| !is_cut(error));
            self.waiting
                .push_back(Part::new(arrival, part, &self.shared));
        }
        self.read_waiting(&mut ready);
        ready
    }

    /// What can be read of a part now that its offsets were read again.
    pub(crate) fn enter_read(
        &mut self,
        id: ReadId,
        answer: Result<Bytes, ClientError>,
    ) -> Vec<Ready> {
        let mut ready = Vec::new();
        match (self.reading.remove(&id), answer) {
            (Some(part), _) if part.lock.lost().is_some() => part.drop_held(),
            (Some(part), Ok(bytes)) => self.decode_again(part, bytes, &mut ready),
            (Some(part), Err(error)) => {
                let (topic, partition) = (&part.acquired.topic, part.acquired.partition.partition);
                let first_offset = part.lock.first_offset;
                tracing::warn!(%topic, partition, first_offset, %error, "Offsets could not be read again.");
                ready.extend(part.give_up());
            }
            (None, _) => {}
        }
        self.read_waiting(&mut ready);
        ready
    }

    fn decode_again(&mut self, part: Part, bytes: Bytes, ready: &mut Vec<Ready>) {
        let arrival = Arrival {
            lock: Arc::clone(&part.lock.state),
            acquired: Acquired {
                records: bytes,
                ..part.acquired
            },
        };
        let Decoded { batches, unread } = decode(&arrival, self.records_max, &self.shared);
        ready.extend(batches.into_iter().map(Ready::Batch));
        for mut left in unread {
            let error = left.error.as_ref();
            let is_end = error.is_none_or(|error| error.last_offset.is_none());
            if is_end && left.first_offset > part.lock.first_offset {
                // It didn't fit in, or its end did not: now it comes first.
                left.error = None;
                self.waiting
                    .push_front(Part::new(&arrival, left, &self.shared));
                continue;
            }
            left.error = left.error.or_else(|| part.error.clone());
            ready.extend(Part::new(&arrival, left, &self.shared).give_up());
        }
    }

    /// Has the next ones read, as many as may be at a time.
    fn read_waiting(&mut self, ready: &mut Vec<Ready>) {
        while self.reading.len() < READS_MAX
            && let Some(part) = self.waiting.pop_front()
        {
            if part.lock.lost().is_some() {
                part.drop_held();
            } else if part.until <= Instant::now() {
                ready.extend(part.give_up());
            } else {
                self.last_read.0 += 1;
                add(&self.shared.counters.batches_read_again, 1);
                self.shared.command(Command::ReadAgain {
                    id: self.last_read,
                    read: part.log_read(),
                    until: part.until,
                });
                self.reading.insert(self.last_read, part);
            }
        }
    }

    /// No application will see what is still to be read.
    pub(crate) fn release_unseen(&mut self) {
        let reading = std::mem::take(&mut self.reading).into_values();
        for part in reading.chain(self.waiting.drain(..)) {
            part.release_unseen();
        }
    }
}

fn warn_unread(acquired: &Acquired, unread: &Unread) {
    let (first_offset, last_offset) = (unread.first_offset, unread.last_offset);
    let error = unread.error.as_ref().map(tracing::field::display);
    tracing::warn!(
        topic = %acquired.topic, partition = acquired.partition.partition, first_offset, last_offset, error,
        "Acquired records can't be read; their offsets are read again."
    );
}
