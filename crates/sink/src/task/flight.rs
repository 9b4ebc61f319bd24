//! A batch on its way through `put` and `flush`, with what is known about each of its records.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::failure::{Failure, Now, TOGETHER, Trouble, TroubleKind};
use super::letters::LetterError;
use crate::convert::{Chain, StageError};
use crate::outcome::Outcome;
use crate::policy::{LetterState, Tried, lock_reserve};
use crate::record::{SinkBatch, SinkRecord};
use crate::source::{Settle, SourceBatch};

/// A batch and its records that aren't settled yet.
#[derive(Debug)]
pub(super) struct Flight<B> {
    pub(super) batch: B,
    /// Number of the flight in its task.
    pub(super) number: u64,
    records: SinkBatch,
    /// Unsettled records in runs of the same fate, ascending and apart.
    runs: Vec<Run>,
    arrived_at: Instant,
    /// Highest delivery count of any record.
    pub(super) delivery_count_max: i16,
    /// The number of the last piece.
    pieces: u32,
}

/// Neighbouring records with the same fate.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    pub(super) indexes: Range<usize>,
    pub(super) fate: Fate,
}

/// What became of records so far.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fate {
    /// Not put yet.
    Fresh,
    /// Put, not flushed; what happened before, should the flush fail.
    Put(Option<Failure>),
    /// Not written.
    Failed(Failure),
}

impl Fate {
    /// The last try that failed.
    const fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            Self::Put(before) => before.as_ref(),
            Self::Fresh => None,
        }
    }

    /// Whether a put may have written the records, though nothing says so for good.
    pub(super) fn may_be_written(&self) -> bool {
        match self {
            Self::Fresh => false,
            Self::Put(_) => true,
            Self::Failed(failure) => failure.tried == Tried::Unknown,
        }
    }
}

/// Records of one flight that are put together.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// Index of the flight.
    pub(super) flight: usize,
    /// Ascending and apart.
    pub(super) indexes: Vec<Range<usize>>,
}

impl Piece {
    pub(super) fn len(&self) -> usize {
        self.indexes.iter().map(ExactSizeIterator::len).sum()
    }

    /// Its first records, so many.
    pub(super) fn first(self, most: usize) -> Self {
        let mut left = most;
        let indexes = self.indexes.into_iter().filter_map(|range| {
            let first = range.start..range.start + left.min(range.len());
            left -= first.len();
            (!first.is_empty()).then_some(first)
        });
        Self {
            flight: self.flight,
            indexes: indexes.collect(),
        }
    }

    /// Its first and its second half; of at least two records.
    pub(super) fn halves(&self) -> [Self; 2] {
        let mut left = self.len() / 2;
        let mut halves = [Vec::new(), Vec::new()];
        for range in &self.indexes {
            let cut = range.start + left.min(range.len());
            left -= cut - range.start;
            halves[0].extend((range.start < cut).then_some(range.start..cut));
            halves[1].extend((cut < range.end).then_some(cut..range.end));
        }
        halves.map(|indexes| Self {
            flight: self.flight,
            indexes,
        })
    }
}

impl<B: SourceBatch> Flight<B> {
    pub(super) fn new(batch: B, number: u64, chain: &Arc<Chain>) -> Self {
        let mut records = batch.records();
        records.prepare(chain);
        let counts = records.records().map(|record| record.delivery_count);
        let delivery_count_max = counts.max().unwrap_or(1);
        let run = Run {
            indexes: 0..records.len(),
            fate: Fate::Fresh,
        };
        Self {
            batch,
            number,
            records,
            runs: vec![run],
            arrived_at: Instant::now(),
            delivery_count_max,
            pieces: TOGETHER,
        }
    }

    /// Whether every record is settled.
    pub(super) fn is_done(&self) -> bool {
        self.runs.is_empty()
    }

    /// What a put leaves of its lock where that can't be renewed.
    pub(super) fn lock_reserve(&self) -> Duration {
        lock_reserve(self.batch.lock_duration())
    }

    /// Whether none of its unsettled records was put yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.runs.iter().all(|run| run.fate == Fate::Fresh)
    }

    /// Number of records that aren't settled.
    pub(super) fn unsettled(&self) -> usize {
        self.runs.iter().map(|run| run.indexes.len()).sum()
    }

    pub(super) fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.runs.iter().filter_map(|run| match &run.fate {
            Fate::Failed(failure) => Some(failure),
            Fate::Fresh | Fate::Put(_) => None,
        })
    }

    pub(super) fn failures_mut(&mut self) -> impl Iterator<Item = &mut Failure> {
        self.runs.iter_mut().filter_map(|run| match &mut run.fate {
            Fate::Failed(failure) => Some(failure),
            Fate::Fresh | Fate::Put(_) => None,
        })
    }

    /// The unsettled records, and why the last try of each failed.
    pub(super) fn unsettled_records(&self) -> impl Iterator<Item = (usize, Option<&str>)> {
        self.runs.iter().flat_map(|run| {
            let why = run.fate.failure().map(|failure| &*failure.why);
            run.indexes.clone().map(move |index| (index, why))
        })
    }

    /// The unsettled records.
    pub(super) fn remaining(&self) -> SinkBatch {
        self.select(self.runs.iter().map(|run| run.indexes.clone()).collect())
    }

    /// The records at these indexes.
    pub(super) fn select(&self, indexes: Vec<Range<usize>>) -> SinkBatch {
        match indexes.as_slice() {
            [all] if all.len() == self.records.len() => self.records.clone(),
            _ => self.records.select(indexes),
        }
    }

    /// The delivery count of a record.
    pub(super) fn delivery_count(&self, index: usize) -> i16 {
        let record = self.records.record_at(index);
        record.map_or(1, |record| record.delivery_count)
    }

    /// The offset of a record.
    pub(super) fn offset(&self, index: usize) -> i64 {
        self.records
            .record_at(index)
            .map_or(-1, |record| record.offset)
    }

    /// Topic, partition and last offset.
    pub(super) fn end(&self) -> (&Arc<str>, i32, i64) {
        let last = self.records.last_offset().unwrap_or(-1);
        (self.records.topic(), self.records.partition(), last)
    }

    /// Index of a record that was put and not flushed.
    pub(super) fn unflushed_at(&self, offset: i64) -> Option<usize> {
        let mut indexes = self.unflushed().into_iter().flatten();
        indexes.find(|index| self.offset(*index) == offset)
    }

    /// When the next of its records is to be put.
    pub(super) fn put_at(&self) -> Option<Instant> {
        let times = self.runs.iter().filter_map(|run| match &run.fate {
            Fate::Failed(failure) if failure.tried == Tried::Refused => None,
            Fate::Failed(failure) => Some(failure.retry_at),
            Fate::Fresh => Some(self.arrived_at),
            Fate::Put(_) => None,
        });
        times.min()
    }

    /// The records that another put may write, as number of the flight and index.
    pub(super) fn to_be_put(&self) -> impl Iterator<Item = (u64, usize)> {
        let runs = self.runs.iter().filter(|run| match &run.fate {
            Fate::Fresh => true,
            Fate::Failed(failure) => failure.tried != Tried::Refused,
            Fate::Put(_) => false,
        });
        runs.flat_map(|run| run.indexes.clone().map(|index| (self.number, index)))
    }

    /// Whether a record failed and may be put again.
    pub(super) fn may_be_put_again(&self, index: usize) -> bool {
        let failure = self.failure_at(index);
        failure.is_some_and(|failure| matches!(failure.tried, Tried::Later | Tried::Unknown))
    }

    /// Whether a record failed before.
    pub(super) fn was_tried(&self, index: usize) -> bool {
        self.failure_at(index).is_some()
    }

    /// Its runs, to come back to by [`Flight::reset`].
    pub(super) fn mark(&self) -> Vec<Run> {
        self.runs.clone()
    }

    /// Undoes what was noted since [`Flight::mark`]; nothing was settled since.
    pub(super) fn reset(&mut self, runs: Vec<Run>) {
        self.runs = runs;
    }

    /// Takes the records at `wanted` through the chain, those that have not passed it before. What it
    /// drops is accepted; of what fails, `failed` makes the failure. The answer: which have passed.
    pub(super) fn convert(
        &mut self,
        wanted: &[Range<usize>],
        chain: &Chain,
        mut failed: impl FnMut(&SinkRecord<'_>, Option<Failure>, StageError) -> Failure,
    ) -> Vec<Range<usize>> {
        let mut passed = Vec::new();
        let mut dropped = Vec::new();
        let mut runs = Vec::with_capacity(self.runs.len());
        for run in std::mem::take(&mut self.runs) {
            if !overlaps(wanted, &run.indexes) {
                runs.push(run);
                continue;
            }
            for index in run.indexes {
                let is_wanted = overlaps(wanted, &(index..index + 1));
                let converted = match is_wanted {
                    true => self.records.convert(index, chain),
                    false => Ok(true),
                };
                let fate = match (converted, self.records.record_at(index)) {
                    (Ok(false), _) => {
                        extend(&mut dropped, index);
                        continue;
                    }
                    (Err(error), Some(record)) => {
                        let before = run.fate.failure().cloned();
                        Fate::Failed(failed(&record, before, error))
                    }
                    (Ok(true), _) | (Err(_), None) => {
                        if is_wanted {
                            extend(&mut passed, index);
                        }
                        run.fate.clone()
                    }
                };
                push(&mut runs, index..index + 1, fate);
            }
        }
        self.runs = runs;
        for indexes in dropped {
            self.settle(indexes, Settle::Accept);
        }
        passed
    }

    /// Where records have not been put yet.
    pub(super) fn fresh(&self) -> Vec<Range<usize>> {
        let fresh = self.runs.iter().filter(|run| run.fate == Fate::Fresh);
        fresh.map(|run| run.indexes.clone()).collect()
    }

    /// Where records were put and not flushed.
    pub(super) fn unflushed(&self) -> Vec<Range<usize>> {
        let put = |run: &&Run| matches!(run.fate, Fate::Put(_));
        let put = self.runs.iter().filter(put);
        put.map(|run| run.indexes.clone()).collect()
    }

    /// The failed records that are to be put again by now, in pieces.
    pub(super) fn due(&self, now: Instant) -> Vec<Vec<Range<usize>>> {
        let mut pieces: Vec<(u32, Vec<Range<usize>>)> = Vec::new();
        for run in &self.runs {
            let Fate::Failed(failure) = &run.fate else {
                continue;
            };
            if failure.retry_at > now || failure.tried == Tried::Refused {
                continue;
            }
            let indexes = run.indexes.clone();
            let known = pieces.iter_mut().find(|(id, _)| *id == failure.piece);
            match known {
                Some((_, ranges)) => ranges.push(indexes),
                None => pieces.push((failure.piece, vec![indexes])),
            }
        }
        pieces.into_iter().map(|(_, ranges)| ranges).collect()
    }

    /// The first and the last record at `indexes` that failed retriably, where none of them was written.
    pub(super) fn all_failed(&self, indexes: &[Range<usize>]) -> Option<[usize; 2]> {
        let mut failed: Option<[usize; 2]> = None;
        for index in indexes.iter().flat_map(Clone::clone) {
            let run = self.run_at(index)?;
            match &run.fate {
                Fate::Fresh | Fate::Put(_) => return None,
                Fate::Failed(_) if !self.may_be_put_again(index) => {}
                Fate::Failed(_) => failed = Some([failed.map_or(index, |[first, _]| first), index]),
            }
        }
        failed
    }

    /// Whether a record at `indexes` failed.
    pub(super) fn has_failed(&self, indexes: &[Range<usize>]) -> bool {
        let mut failed = self
            .runs
            .iter()
            .filter(|run| matches!(run.fate, Fate::Failed(_)));
        failed.any(|run| overlaps(indexes, &run.indexes))
    }

    /// Notes what a put of the records at `indexes` said: the outcomes of single records, and for the
    /// others `whole`, or written where that is `None`. The answer: whether nothing of it was written and
    /// nothing said of single records.
    pub(super) fn note_put(
        &mut self,
        indexes: &[Range<usize>],
        whole: Option<&Trouble>,
        outcomes: Option<Vec<Option<Outcome>>>,
        now: Now,
    ) -> bool {
        let Some(outcomes) = outcomes else {
            match whole {
                None => self.note_written(indexes),
                Some(trouble) => self.note_failed(indexes, trouble, now),
            }
            return whole.is_some();
        };
        let mut runs = Vec::new();
        let rest = self.new_piece();
        let alone = outcomes.iter().filter(|outcome| outcome.is_none()).count() == 1;
        let all = indexes.iter().flat_map(Clone::clone);
        for (index, outcome) in all.zip(outcomes) {
            let before = self.failure_at(index).cloned();
            let fate = match (outcome, whole) {
                (Some(Outcome::Written), _) | (None, None) => Fate::Put(before),
                (None, Some(trouble)) => Fate::Failed(Failure {
                    alone,
                    ..Failure::after(before, trouble, rest, now)
                }),
                (Some(outcome), _) => {
                    let trouble = self.single(index, outcome);
                    Fate::Failed(Failure::after(before, &trouble, TOGETHER, now))
                }
            };
            push(&mut runs, index..index + 1, fate);
        }
        self.replace(runs);
        false
    }

    /// What a sink said of one record.
    fn single(&self, index: usize, outcome: Outcome) -> Trouble {
        let (tried, reason, after) = match outcome {
            Outcome::Later { reason, after } => (Tried::Later, reason, after),
            Outcome::Refused { reason } => (Tried::Refused, reason, None),
            Outcome::Unknown { reason } => (Tried::Unknown, reason, None),
            Outcome::Written => (Tried::Written, String::new(), None),
        };
        let place = self.select(one(index)).describe();
        Trouble {
            tried,
            why: format!("{place}: {reason}").into(),
            after,
            kind: TroubleKind::Answer,
        }
    }

    fn note_written(&mut self, indexes: &[Range<usize>]) {
        let runs = self.change(indexes, Fate::Put);
        self.replace(runs);
    }

    /// The records at `indexes` failed together, and are a piece from now on.
    pub(super) fn note_failed(&mut self, indexes: &[Range<usize>], trouble: &Trouble, now: Now) {
        let piece = self.new_piece();
        let alone = indexes.iter().map(ExactSizeIterator::len).sum::<usize>() == 1;
        let runs = self.change(indexes, |before| {
            Fate::Failed(Failure {
                alone,
                ..Failure::after(before, trouble, piece, now)
            })
        });
        self.replace(runs);
    }

    /// Records that failed are a piece of their own from now on.
    pub(super) fn part(&mut self, indexes: &[Range<usize>]) {
        let piece = self.new_piece();
        let runs = self.change(indexes, |before| match before {
            Some(failure) => Fate::Failed(Failure { piece, ..failure }),
            None => Fate::Fresh,
        });
        self.replace(runs);
    }

    fn new_piece(&mut self) -> u32 {
        self.pieces = self.pieces.wrapping_add(1).max(TOGETHER + 1);
        self.pieces
    }

    /// One record is refused, whatever was said of it before.
    pub(super) fn refuse(&mut self, index: usize, why: Arc<str>, now: Now) {
        let trouble = Trouble {
            tried: Tried::Refused,
            why,
            after: None,
            kind: TroubleKind::Answer,
        };
        let before = self.failure_at(index).cloned();
        self.replace(vec![Run {
            indexes: index..index + 1,
            fate: Fate::Failed(Failure::after(before, &trouble, TOGETHER, now)),
        }]);
    }

    /// Takes out what was put, for it has been flushed.
    pub(super) fn take_flushed(&mut self) -> Vec<Range<usize>> {
        let flushed = self.unflushed();
        self.runs.retain(|run| !matches!(run.fate, Fate::Put(_)));
        flushed
    }

    /// The unsettled runs, to be decided about; those that stay come back through
    /// [`Flight::keep`].
    pub(super) fn take_runs(&mut self) -> Vec<Run> {
        std::mem::take(&mut self.runs)
    }

    /// Puts a run back, behind those that are there.
    pub(super) fn keep(&mut self, run: Run) {
        push(&mut self.runs, run.indexes, run.fate);
    }

    /// Puts a run back that waits for its next try.
    pub(super) fn keep_until(&mut self, mut run: Run, delay: Duration) {
        if let Fate::Failed(failure) = &mut run.fate {
            failure.wait(delay);
        }
        self.keep(run);
    }

    /// Puts a run back that won't be put any more: its letters are to be written.
    pub(super) fn keep_for_letter(&mut self, mut run: Run) {
        if let Fate::Failed(failure) = &mut run.fate {
            failure.tried = Tried::Refused;
        }
        self.keep(run);
    }

    /// The records whose letter is to be written, and why.
    pub(super) fn letters(&self) -> impl Iterator<Item = (usize, &Failure)> {
        self.runs.iter().flat_map(|run| {
            let failure = match &run.fate {
                Fate::Failed(failure) if failure.needs_letter() => Some(failure),
                _ => None,
            };
            let indexes = run.indexes.clone();
            failure
                .into_iter()
                .flat_map(move |failure| indexes.clone().map(move |index| (index, failure)))
        })
    }

    /// When a letter is to be written, for the first time or again.
    pub(super) fn letters_at(&self) -> Option<Instant> {
        let letters = self
            .failures()
            .filter(|failure| failure.needs_letter() || failure.letter == LetterState::Failed);
        letters.map(|failure| failure.retry_at).min()
    }

    /// Letters that could not be written are to be written again, where it is time.
    pub(super) fn letters_are_due(&mut self, now: Instant) {
        for failure in self.failures_mut() {
            if failure.letter == LetterState::Failed && failure.retry_at <= now {
                failure.letter = LetterState::Unwritten;
            }
        }
    }

    /// Notes what became of a letter.
    pub(super) fn note_letter(
        &mut self,
        index: usize,
        answer: Result<(), LetterError>,
        now: Instant,
    ) {
        if let Some(failure) = self.failure_at(index) {
            let mut failure = failure.clone();
            failure.note_letter(answer, now);
            self.replace(vec![Run {
                indexes: index..index + 1,
                fate: Fate::Failed(failure),
            }]);
        }
    }

    /// Settles a record, whatever was to become of it.
    pub(super) fn take_out(&mut self, index: usize, how: Settle) {
        let mut runs = Vec::with_capacity(self.runs.len() + 1);
        for Run { indexes, fate } in std::mem::take(&mut self.runs) {
            let before = indexes.start..indexes.end.min(index);
            let behind = indexes.start.max(index + 1)..indexes.end;
            for rest in [before, behind].into_iter().filter(|rest| !rest.is_empty()) {
                push(&mut runs, rest, fate.clone());
            }
        }
        self.runs = runs;
        self.settle(index..index + 1, how);
    }

    /// Settles records.
    pub(super) fn settle(&mut self, indexes: Range<usize>, how: Settle) {
        self.batch.settle(indexes, how);
    }

    fn run_at(&self, index: usize) -> Option<&Run> {
        let run = self.runs.partition_point(|run| run.indexes.end <= index);
        self.runs.get(run).filter(|run| run.indexes.start <= index)
    }

    fn failure_at(&self, index: usize) -> Option<&Failure> {
        self.run_at(index)?.fate.failure()
    }

    /// The records at `indexes` with a new fate that depends on what happened before.
    fn change(&self, indexes: &[Range<usize>], fate: impl Fn(Option<Failure>) -> Fate) -> Vec<Run> {
        let mut changed = Vec::new();
        for range in indexes {
            let first = self
                .runs
                .partition_point(|run| run.indexes.end <= range.start);
            let runs = self.runs.iter().skip(first);
            for run in runs.take_while(|run| run.indexes.start < range.end) {
                let both = run.indexes.start.max(range.start)..run.indexes.end.min(range.end);
                let before = self.failure_at(both.start).cloned();
                push(&mut changed, both, fate(before));
            }
        }
        changed
    }

    /// Puts runs in the place of what is there. Ascending and apart, all of unsettled records.
    fn replace(&mut self, new: Vec<Run>) {
        let mut runs = Vec::with_capacity(self.runs.len() + new.len());
        let mut new = new.into_iter().peekable();
        let mut start = 0;
        for Run { indexes, fate } in std::mem::take(&mut self.runs) {
            start = start.max(indexes.start);
            while let Some(part) = new.next_if(|part| part.indexes.start < indexes.end) {
                if start < part.indexes.start {
                    push(&mut runs, start..part.indexes.start, fate.clone());
                }
                start = start.max(part.indexes.end);
                push(&mut runs, part.indexes, part.fate);
            }
            if start < indexes.end {
                push(&mut runs, start..indexes.end, fate);
            }
        }
        self.runs = runs;
    }
}

/// One record.
pub(super) fn one(index: usize) -> Vec<Range<usize>> {
    std::iter::once(index..index + 1).collect()
}

/// Whether records are among those at `indexes`.
fn overlaps(indexes: &[Range<usize>], records: &Range<usize>) -> bool {
    let mut indexes = indexes.iter();
    indexes.any(|range| range.start < records.end && records.start < range.end)
}

/// Adds a record behind the last range, or to it.
fn extend(ranges: &mut Vec<Range<usize>>, index: usize) {
    match ranges.last_mut() {
        Some(last) if last.end == index => last.end += 1,
        _ => ranges.push(index..index + 1),
    }
}

/// Adds records behind the last run, or to it.
fn push(runs: &mut Vec<Run>, indexes: Range<usize>, fate: Fate) {
    match runs.last_mut() {
        Some(last) if last.indexes.end == indexes.start && last.fate == fate => {
            last.indexes.end = indexes.end;
        }
        _ => runs.push(Run { indexes, fate }),
    }
}
