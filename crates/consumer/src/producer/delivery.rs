//! The outcome of a batch, shared with those who wait for its records.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::produce::BatchIndexAndErrorMessage;

use super::error::ProduceError;
use super::record::RecordMetadata;
use crate::topic_partition::TopicPartition;

/// What became of a batch.
#[derive(Debug, Clone)]
pub(super) enum BatchOutcome {
    /// It is in the log.
    Written {
        /// Offset of its first record; negative = unknown.
        base_offset: i64,
        append_time_ms: i64,
    },
    /// The broker refused it.
    Refused(Refusal),
    /// Anything else; the same for each record.
    Failed(ProduceError),
}

/// A broker's refusal of a batch.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) code: ErrorCode,
    pub(super) message: Option<String>,
    /// The records at fault; empty = all, or not told.
    pub(super) records: Vec<BatchIndexAndErrorMessage>,
    pub(super) may_have_been_written: bool,
}

impl Refusal {
    /// The refusal as the failure of the batch as a whole.
    pub(super) fn of_batch(&self, partition: TopicPartition) -> ProduceError {
        let Self {
            code,
            message,
            may_have_been_written,
            ..
        } = self.clone();
        ProduceError::Broker {
            partition,
            code,
            message,
            may_have_been_written,
        }
    }

    fn of_record(&self, partition: TopicPartition, index: u32) -> ProduceError {
        let at_fault = self
            .records
            .iter()
            .find(|record| i64::from(record.batch_index) == i64::from(index));
        match at_fault.map(|record| record.batch_index_error_message.clone()) {
            Some(message) => Self {
                message: message.or_else(|| self.message.clone()),
                ..self.clone()
            }
            .of_batch(partition),
            // Nor is it certain that this one was not written by an earlier try.
            None if self.records.is_empty() || self.may_have_been_written => {
                self.of_batch(partition)
            }
            None => ProduceError::OtherRecordRefused {
                partition,
                code: self.code,
            },
        }
    }
}

/// Where the outcome of a batch appears. One allocation per batch, none per record.
#[derive(Debug)]
pub(super) struct BatchCell {
    partition: TopicPartition,
    state: Mutex<CellState>,
}

#[derive(Debug, Default)]
struct CellState {
    outcome: Option<BatchOutcome>,
    /// Who waits: for a record, by its index; for the batch, by a number above all indexes.
    waiting: BTreeMap<u64, Waker>,
    batch_waiters: u64,
}

impl BatchCell {
    pub(super) fn new(partition: TopicPartition) -> Arc<Self> {
        Arc::new(Self {
            partition,
            state: Mutex::default(),
        })
    }

    pub(super) const fn partition(&self) -> &TopicPartition {
        &self.partition
    }

    /// Sets the outcome; the first one stays.
    pub(super) fn complete(&self, outcome: BatchOutcome) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.outcome.is_some() {
            return;
        }
        state.outcome = Some(outcome);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_values().for_each(Waker::wake);
    }

    /// Waits until the fate of the batch is known.
    pub(super) async fn completed(&self) {
        let key = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.batch_waiters += 1;
            u64::from(u32::MAX) + state.batch_waiters
        };
        poll_fn(|context| self.poll(key, context, |_| ())).await;
    }

    fn poll<T>(
        &self,
        key: u64,
        context: &Context<'_>,
        read: impl FnOnce(&BatchOutcome) -> T,
    ) -> Poll<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(read(outcome));
        }
        state.waiting.insert(key, context.waker().clone());
        Poll::Pending
    }

    fn of_record(
        &self,
        outcome: &BatchOutcome,
        index: u32,
    ) -> Result<RecordMetadata, ProduceError> {
        match outcome {
            BatchOutcome::Written {
                base_offset,
                append_time_ms,
            } => Ok(RecordMetadata {
                partition: self.partition.clone(),
                offset: (*base_offset >= 0).then(|| base_offset.saturating_add(i64::from(index))),
                append_time_ms: (*append_time_ms >= 0).then_some(*append_time_ms),
            }),
            BatchOutcome::Refused(refusal) => Err(refusal.of_record(self.partition.clone(), index)),
            BatchOutcome::Failed(error) => Err(error.clone()),
        }
    }
}

/// Resolves when the fate of a record is known: written, refused, or not confirmed in time.
///
/// Dropping it changes nothing: the record is on its way, and
/// [`flush`](super::Producer::flush) tells of failures too.
#[derive(Debug)]
pub struct DeliveryFuture {
    cell: Arc<BatchCell>,
    index: u32,
}

impl DeliveryFuture {
    pub(super) const fn new(cell: Arc<BatchCell>, index: u32) -> Self {
        Self { cell, index }
    }
}

impl Future for DeliveryFuture {
    type Output = Result<RecordMetadata, ProduceError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.cell.poll(u64::from(self.index), context, |outcome| {
            self.cell.of_record(outcome, self.index)
        })
    }
}
