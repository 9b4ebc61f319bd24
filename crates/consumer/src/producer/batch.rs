//! A batch on its way.

use std::sync::Arc;

use bytes::Bytes;
use sharegroup_wire::compress::Compression;
use sharegroup_wire::record::{BuildError, RecordBatchBuilder};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::delivery::{BatchCell, BatchOutcome, DeliveryFuture};
use super::error::ProduceError;
use super::record::ProducerRecord;
use crate::error::ClientError;
use crate::topic_partition::TopicPartition;

/// Producer id, epoch and sequence number of a batch: by these a leader knows a batch that it has
/// already (idempotence).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) producer_id: i64,
    pub(super) epoch: i16,
    pub(super) sequence: i32,
}

impl Identity {
    /// The identity of what follows a batch of so many records. After 2³¹−1 comes 0.
    pub(super) fn after(self, record_count: usize) -> Self {
        let sequence = (i64::from(self.sequence) + record_count as i64) % (1 << 31);
        Self {
            sequence: i32::try_from(sequence).unwrap_or(0),
            ..self
        }
    }

    /// The next epoch, from sequence 0; `None` = the epochs of this producer id are used up.
    pub(super) fn next_epoch(self) -> Option<Self> {
        let epoch = self
            .epoch
            .checked_add(1)
            .filter(|epoch| *epoch < i16::MAX)?;
        Some(Self {
            epoch,
            sequence: 0,
            ..self
        })
    }
}

/// Records of one partition that travel together.
#[derive(Debug)]
pub(super) struct Batch {
    builder: RecordBatchBuilder,
    cell: Arc<BatchCell>,
    /// Room in the buffer, given back with the batch.
    room: OwnedSemaphorePermit,
    pub(super) created: Instant,
    /// Given at the first try; the same at each further one.
    pub(super) identity: Option<Identity>,
    /// The bytes for that identity.
    bytes: Option<Bytes>,
    /// Failed tries.
    pub(super) failures: u32,
    /// Whether a try ended without an answer: a leader may have written it.
    pub(super) may_have_been_written: bool,
    pub(super) last_failure: Option<Box<ClientError>>,
}

impl Batch {
    pub(super) fn new(
        partition: TopicPartition,
        compression: Compression,
        room: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            builder: RecordBatchBuilder::new(compression),
            cell: BatchCell::new(partition),
            room,
            created: Instant::now(),
            identity: None,
            bytes: None,
            failures: 0,
            may_have_been_written: false,
            last_failure: None,
        }
    }

    pub(super) const fn cell(&self) -> &Arc<BatchCell> {
        &self.cell
    }

    pub(super) fn partition(&self) -> &TopicPartition {
        self.cell.partition()
    }

    pub(super) fn len(&self) -> usize {
        self.builder.len()
    }

    /// Bytes before compression.
    pub(super) const fn size_bytes(&self) -> usize {
        self.builder.size_bytes()
    }

    /// Whether a record of this size still fits; an empty batch takes any.
    pub(super) const fn has_room_for(&self, size_bytes: usize, batch_bytes_max: usize) -> bool {
        self.builder.is_empty() || self.builder.size_bytes() + size_bytes <= batch_bytes_max
    }

    pub(super) fn push(
        &mut self,
        record: &ProducerRecord,
        timestamp_ms: i64,
        room: Option<OwnedSemaphorePermit>,
    ) -> Result<DeliveryFuture, BuildError> {
        let headers = record
            .headers
            .iter()
            .map(|header| (&*header.key, header.value.as_deref()));
        self.builder.push(
            timestamp_ms,
            record.key.as_deref(),
            record.value.as_deref(),
            headers,
        )?;
        if let Some(room) = room {
            self.room.merge(room);
        }
        // INVARIANT: a batch holds fewer than 2^31 records, the builder counts them in an i32.
        let index = u32::try_from(self.builder.len() - 1).unwrap_or(u32::MAX);
        Ok(DeliveryFuture::new(Arc::clone(&self.cell), index))
    }

    /// The bytes of the batch with its identity; made once.
    pub(super) fn bytes(&mut self) -> Result<Bytes, BuildError> {
        if let Some(bytes) = &self.bytes {
            return Ok(bytes.clone());
        }
        let identity = self.identity.unwrap_or(Identity {
            producer_id: -1,
            epoch: -1,
            sequence: -1,
        });
        let empty = RecordBatchBuilder::new(Compression::None);
        let builder = std::mem::replace(&mut self.builder, empty);
        self.builder = builder.producer(identity.producer_id, identity.epoch, identity.sequence);
        let bytes = self.builder.build(0)?;
        self.bytes = Some(bytes.clone());
        Ok(bytes)
    }

    /// Takes the identity away, so that the next try gets another.
    pub(super) fn forget_identity(&mut self) {
        self.identity = None;
        self.bytes = None;
    }

    /// The same batch, as if it never had an identity.
    pub(super) fn without_identity(mut self) -> Self {
        self.forget_identity();
        self
    }

    /// Ends the batch.
    pub(super) fn complete(self, outcome: BatchOutcome) {
        self.cell.complete(outcome);
    }
}

/// A batch that is dropped with its producer or its runtime was not confirmed.
impl Drop for Batch {
    fn drop(&mut self) {
        self.cell
            .complete(BatchOutcome::Failed(ProduceError::Closed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_wrap_to_zero() {
        let identity = Identity {
            producer_id: 1,
            epoch: 2,
            sequence: i32::MAX - 1,
        };
        assert_eq!(identity.after(1).sequence, i32::MAX);
        assert_eq!(identity.after(2).sequence, 0);
        assert_eq!(identity.after(5).sequence, 3);
    }

    #[test]
    fn epochs_end_before_they_overflow() {
        let identity = Identity {
            producer_id: 1,
            epoch: 0,
            sequence: 9,
        };
        assert_eq!(
            identity.next_epoch(),
            Some(Identity {
                producer_id: 1,
                epoch: 1,
                sequence: 0
            })
        );
        assert_eq!(
            Identity {
                epoch: i16::MAX - 1,
                ..identity
            }
            .next_epoch(),
            None
        );
    }
}
