//! What became of each record: reported by the task while `put` runs.
//!
//! A task that can say more than "all fine" or "failed" reports record by record, as soon as it
//! knows. What was reported as written stays written when the rest of the batch fails: only the
//! rest is retried.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::record::SinkBatch;

/// What became of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The target has it. It is accepted once the task's next `flush` has returned.
    Written,
    /// The target can't take it now; try again, not before `after` if that is given.
    Later {
        /// Why, for the log.
        reason: String,
        /// Shortest wait before the next try, as the target asked for it.
        after: Option<Duration>,
    },
    /// The target will never take it.
    Refused {
        /// Why, for the log and the failed task's message.
        reason: String,
    },
    /// It may have been written or not (an answer that never came): written again on the next try.
    Unknown {
        /// Why, for the log.
        reason: String,
    },
}

/// Takes the outcomes of one `put`, record by record, from any thread.
///
/// Reports that come after the `put` has ended are ignored: the next try has a sender of its own.
#[derive(Clone, Debug)]
pub struct OutcomeSender {
    book: Arc<Mutex<Book>>,
}

impl OutcomeSender {
    /// When the `put` is cut off, as far as that is known by now: before the end of a lock that can't be renewed.
    /// What a sink can't finish by then it should not begin; a put that has no more to do until then may wait, and
    /// the records without an outcome are given back. `None`, as with most groups: locks are renewed.
    #[must_use]
    pub fn cut_off_at(&self) -> Option<Instant> {
        self.lock().cut_off_at
    }

    /// Reports the record at `offset` as [`Outcome::Written`].
    pub fn written(&self, offset: i64) {
        self.report(offset, Outcome::Written);
    }

    /// Reports all records of the batch from `first_offset` to `last_offset` (both included) as
    /// [`Outcome::Written`].
    pub fn written_range(&self, first_offset: i64, last_offset: i64) {
        self.lock()
            .set_range(first_offset, last_offset, &Outcome::Written);
    }

    /// Reports the record at `offset` as [`Outcome::Later`].
    pub fn later(&self, offset: i64, reason: impl Into<String>) {
        let outcome = Outcome::Later {
            reason: reason.into(),
            after: None,
        };
        self.report(offset, outcome);
    }

    /// Reports the record at `offset` as [`Outcome::Refused`].
    pub fn refused(&self, offset: i64, reason: impl Into<String>) {
        let outcome = Outcome::Refused {
            reason: reason.into(),
        };
        self.report(offset, outcome);
    }

    /// Reports the record at `offset` as [`Outcome::Unknown`].
    pub fn unknown(&self, offset: i64, reason: impl Into<String>) {
        let outcome = Outcome::Unknown {
            reason: reason.into(),
        };
        self.report(offset, outcome);
    }

    /// Reports the outcome of the record at `offset`. The last report of a record counts; offsets
    /// that aren't in the batch are ignored.
    pub fn report(&self, offset: i64, outcome: Outcome) {
        self.lock().set_range(offset, offset, &outcome);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Book> {
        // A poisoned book is still whole: every write to it is a single assignment.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receiving end of the outcomes of one `put`.
#[derive(Debug)]
pub struct Outcomes {
    book: Arc<Mutex<Book>>,
}

impl Outcomes {
    /// An empty book for the records of `batch`.
    #[must_use]
    pub fn of(batch: &SinkBatch) -> Self {
        Self {
            book: Arc::new(Mutex::new(Book {
                batch: batch.clone(),
                offsets: Vec::new(),
                slots: Vec::new(),
                reports: 0,
                cut_off_at: None,
            })),
        }
    }

    /// A sender that writes into this book.
    #[must_use]
    pub fn sender(&self) -> OutcomeSender {
        OutcomeSender {
            book: Arc::clone(&self.book),
        }
    }

    /// Tells the sender when the `put` is cut off; the runtime does, and so do tests of sinks.
    pub fn cut_off_at(&self, at: Option<Instant>) {
        self.book
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .cut_off_at = at;
    }

    /// Tells whether a `put` gets on, from any thread.
    pub(crate) fn progress(&self) -> Progress {
        Progress(Arc::clone(&self.book))
    }

    /// What was reported so far: `None` if nothing was, else one entry for each record of the
    /// batch in order, `None` for a record without report. The book is empty afterwards.
    #[must_use]
    pub fn take(&self) -> Option<Vec<Option<Outcome>>> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        if book.slots.is_empty() {
            return None;
        }
        Some(std::mem::take(&mut book.slots))
    }
}

/// How many outcomes were reported.
#[derive(Clone, Debug)]
pub(crate) struct Progress(Arc<Mutex<Book>>);

impl Progress {
    pub(crate) fn reports(&self) -> u64 {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .reports
    }
}

/// Outcomes by record. The tables are made by the first report: a task that only answers for the
/// whole batch costs nothing here.
#[derive(Debug)]
struct Book {
    batch: SinkBatch,
    offsets: Vec<i64>,
    slots: Vec<Option<Outcome>>,
    reports: u64,
    cut_off_at: Option<Instant>,
}

impl Book {
    fn set_range(&mut self, first_offset: i64, last_offset: i64, outcome: &Outcome) {
        self.reports += 1;
        if self.offsets.is_empty() {
            self.offsets = self.batch.records().map(|record| record.offset).collect();
        }
        if self.slots.is_empty() {
            self.slots = vec![None; self.offsets.len()];
        }
        let start = self
            .offsets
            .partition_point(|offset| *offset < first_offset);
        let end = self
            .offsets
            .partition_point(|offset| *offset <= last_offset);
        for slot in self.slots.iter_mut().take(end).skip(start) {
            *slot = Some(outcome.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use sharegroup_wire::TopicId;

    use super::*;
    use crate::record::OwnedRecord;

    fn batch(offsets: &[i64]) -> SinkBatch {
        let records = offsets
            .iter()
            .map(|offset| OwnedRecord {
                offset: *offset,
                delivery_count: 1,
                ..OwnedRecord::default()
            })
            .collect();
        SinkBatch::from_records("t", TopicId::ZERO, 0, records)
    }

    #[test]
    fn nothing_reported_is_none() {
        assert_eq!(Outcomes::of(&batch(&[1, 2])).take(), None);
    }

    #[test]
    fn the_last_report_of_a_record_counts_and_foreign_offsets_are_ignored() {
        let outcomes = Outcomes::of(&batch(&[5, 7, 9]));
        let sender = outcomes.sender();
        sender.later(7, "busy");
        sender.written(7);
        sender.written(6);
        sender.written_range(9, 1000);
        assert_eq!(
            outcomes.take(),
            Some(vec![None, Some(Outcome::Written), Some(Outcome::Written)])
        );
    }

    #[test]
    fn reports_address_the_selected_records_only() {
        let outcomes = Outcomes::of(&batch(&[5, 7, 9]).select(std::iter::once(2..3).collect()));
        outcomes.sender().written_range(0, 100);
        assert_eq!(outcomes.take(), Some(vec![Some(Outcome::Written)]));
    }
}
