//! A batch on its way through `put` and `flush`, with what is known about each of its records.

use std::ops::Range;

use crate::outcome::Outcome;
use crate::policy::Tried;
use crate::record::SinkBatch;
use crate::source::{Settle, SourceBatch};

/// A batch and its records that aren't settled yet.
#[derive(Debug)]
pub(super) struct Flight<B> {
    pub(super) batch: B,
    records: SinkBatch,
    /// Unsettled records in runs of the same fate, ascending and apart.
    runs: Vec<Run>,
}

/// Neighbouring records with the same fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) indexes: Range<usize>,
    pub(super) tried: Tried,
}

/// Why records of a batch were not written.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble {
    /// The first reason, with the records it stands for.
    pub(super) text: String,
    /// Longest of the waits the target asked for.
    pub(super) after: Option<std::time::Duration>,
}

impl Trouble {
    /// Keeps the first text and the longest wait.
    pub(super) fn merge(into: &mut Option<Self>, other: Self) {
        match into {
            None => *into = Some(other),
            Some(first) => first.after = first.after.max(other.after),
        }
    }
}

impl<B: SourceBatch> Flight<B> {
    pub(super) fn new(batch: B) -> Self {
        let records = batch.records();
        let len = records.len();
        Self {
            batch,
            records,
            runs: vec![Run {
                indexes: 0..len,
                tried: Tried::Later,
            }],
        }
    }

    /// Whether every record is settled.
    pub(super) fn is_done(&self) -> bool {
        self.runs.is_empty()
    }

    /// Number of records that aren't settled.
    pub(super) fn unsettled(&self) -> usize {
        self.runs.iter().map(|run| run.indexes.len()).sum()
    }

    /// Whether `flush` has something to make durable.
    pub(super) fn has_written(&self) -> bool {
        self.runs.iter().any(|run| run.tried == Tried::Written)
    }

    /// The unsettled records.
    pub(super) fn remaining(&self) -> SinkBatch {
        let ranges: Vec<_> = self.runs.iter().map(|run| run.indexes.clone()).collect();
        if ranges.len() == 1 && ranges.first().map(Range::len) == Some(self.records.len()) {
            return self.records.clone();
        }
        self.records.select(ranges)
    }

    /// The records of a run.
    pub(super) fn records_of(&self, run: &Run) -> SinkBatch {
        self.records.select(vec![run.indexes.clone()])
    }

    /// Highest delivery count in a run.
    pub(super) fn delivery_count(&self, run: &Run) -> i16 {
        let records = self.records_of(run);
        records
            .records()
            .map(|record| record.delivery_count)
            .max()
            .unwrap_or(1)
    }

    /// Notes what a put of [`Flight::remaining`] said: `whole` for the records without an outcome
    /// of their own. The answer is the first reason of a record that wasn't written.
    pub(super) fn note_put(
        &mut self,
        whole: Tried,
        outcomes: Option<Vec<Option<Outcome>>>,
    ) -> Option<Trouble> {
        let Some(outcomes) = outcomes else {
            for run in &mut self.runs {
                run.tried = whole;
            }
            self.merge_runs();
            return None;
        };
        let remaining = self.remaining();
        let mut trouble = None;
        let mut runs: Vec<Run> = Vec::new();
        for (index, outcome) in remaining.indexes().zip(outcomes) {
            let (tried, reason) = match outcome {
                None => (whole, None),
                Some(Outcome::Written) => (Tried::Written, None),
                Some(Outcome::Later { reason, after }) => (Tried::Later, Some((reason, after))),
                Some(Outcome::Refused { reason }) => (Tried::Refused, Some((reason, None))),
                Some(Outcome::Unknown { reason }) => (Tried::Unknown, Some((reason, None))),
            };
            if let Some((reason, after)) = reason {
                let offset = remaining
                    .record_at(index)
                    .map_or(-1, |record| record.offset);
                let text = format!(
                    "{}-{} offset {offset}: {reason}",
                    remaining.topic(),
                    remaining.partition()
                );
                Trouble::merge(&mut trouble, Trouble { text, after });
            }
            match runs.last_mut() {
                Some(run) if run.tried == tried && run.indexes.end == index => {
                    run.indexes.end = index + 1;
                }
                _ => runs.push(Run {
                    indexes: index..index + 1,
                    tried,
                }),
            }
        }
        self.runs = runs;
        trouble
    }

    /// A flush has failed: what was written since the last one has to be put again.
    pub(super) fn note_flush_failed(&mut self, tried: Tried) {
        for run in &mut self.runs {
            if run.tried == Tried::Written {
                run.tried = tried;
            }
        }
        self.merge_runs();
    }

    /// The unsettled runs, to be decided about; those that stay come back through
    /// [`Flight::keep`].
    pub(super) fn take_runs(&mut self) -> Vec<Run> {
        std::mem::take(&mut self.runs)
    }

    /// Puts a run back.
    pub(super) fn keep(&mut self, run: Run) {
        self.runs.push(run);
    }

    /// Settles the records of a run.
    pub(super) fn settle(&mut self, run: &Run, how: Settle) {
        self.batch.settle(run.indexes.clone(), how);
    }

    fn merge_runs(&mut self) {
        let runs = std::mem::take(&mut self.runs);
        for run in runs {
            match self.runs.last_mut() {
                Some(last) if last.tried == run.tried && last.indexes.end == run.indexes.start => {
                    last.indexes.end = run.indexes.end;
                }
                _ => self.runs.push(run),
            }
        }
    }
}
