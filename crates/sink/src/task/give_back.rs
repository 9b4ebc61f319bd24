//! What a task that ends does with what it holds: it releases it, and lets nothing disappear.
//!
//! A record on its last allowed delivery is archived by the broker when it is released. So it gets a dead
//! letter where the worker keeps them; else it is named, in the log, in `share.loss.file` and in the task's
//! trace. A record that a put may have written all the same is counted: it may arrive twice.

use std::ops::Range;

use tokio::time::Instant;

use super::flight::{Fate, Flight, Run, one};
use super::judge::HeldCorrupt;
use super::letters::{Letter, LetterOf};
use super::{ShareSinkTask, TaskFailure};
use crate::policy::{LockLeft, SetAside, Tolerance, is_last_delivery};
use crate::source::{CorruptSource, RecordSource, Settle, SourceBatch};
use crate::status::{TaskShared, TaskState};

/// What a task left behind.
#[derive(Debug, Default)]
pub(super) struct GivenBack {
    /// Records that the group delivers no more, though nothing has them.
    lost: Vec<String>,
    /// Records with few deliveries left: at most one for each task of the connector.
    nearly: Vec<String>,
}

/// How a task ended, or a lane of it.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) failure: Option<String>,
    pub(super) given_back: GivenBack,
}

impl Left {
    /// As well as another lane, which ended later.
    pub(super) fn and(&mut self, later: Self) {
        self.failure = self.failure.take().or(later.failure);
        self.given_back.lost.extend(later.given_back.lost);
        self.given_back.nearly.extend(later.given_back.nearly);
    }

    /// Tells the task's state.
    pub(super) fn tell(self, task: &str, shared: &TaskShared) {
        let lost = self.given_back.lost();
        match self.failure {
            Some(text) => shared.fail(text),
            None if lost.is_none() => shared.set_state(TaskState::Stopped),
            None => {}
        }
        if let Some(lost) = lost {
            shared.fail_for_good(&lost);
        } else if let Some(nearly) = self.given_back.nearly_lost()
            && shared.start_no_more(&nearly)
        {
            tracing::error!(task, "The task stays FAILED: {nearly}.");
        }
    }
}

impl GivenBack {
    /// Why the task counts as failed, whatever ended it.
    pub(super) fn lost(&self) -> Option<String> {
        let places = listed(&self.lost)?;
        Some(format!(
            "{places} had to be given up on the last allowed delivery and won't be delivered to the group again; \
             the topic still has it"
        ))
    }

    /// Why the task is not to be started again by itself.
    pub(super) fn nearly_lost(&self) -> Option<String> {
        let places = listed(&self.nearly)?;
        Some(format!(
            "it is not started again by itself (task.restart.max), because the connector's tasks could take \
             {places} to its last allowed delivery: start it again (SIGHUP) once what failed it is mended"
        ))
    }
}

/// The first of some places.
fn listed(places: &[String]) -> Option<String> {
    let (first, more) = places.split_first()?;
    Some(match more.len() {
        0 => first.clone(),
        more => format!("{first} and {more} ranges more"),
    })
}

impl<S: RecordSource> ShareSinkTask<S> {
    /// Releases everything that is held. Letters take until `until` at most.
    pub(super) async fn give_back(
        &mut self,
        failure: Option<&TaskFailure>,
        until: Instant,
    ) -> GivenBack {
        // Whoever goes on acquiring gets it again at once.
        self.pause();
        let reason = failure.map_or(ENDED.to_owned(), |failure| {
            format!("{ENDED}: {}", failure.text)
        });
        let held = std::mem::take(&mut self.held);
        let mut corrupt = std::mem::take(&mut self.corrupt);
        let (lost, mut held): (Vec<_>, Vec<_>) = held
            .into_iter()
            .partition(|flight| flight.batch.lock() == LockLeft::Lost);
        for mut flight in lost {
            // The source names what was lost on its last delivery.
            for run in flight.take_runs() {
                self.note_perhaps_written(&flight, &run);
            }
        }
        if self.keeps_letters() {
            self.keep_last_deliveries(&mut held, &reason, until).await;
            corrupt = self.keep_corrupt(corrupt, until).await;
        }
        let mut given_back = GivenBack::default();
        for flight in held {
            self.release_flight(flight, &reason, &mut given_back);
        }
        for held in corrupt {
            self.release_corrupt(held, &reason, &mut given_back);
        }
        given_back
    }

    /// Whether letters are this worker's.
    fn keeps_letters(&self) -> bool {
        let failures = &self.settings.failures;
        let ours = [SetAside::DeadLetter, SetAside::DeadLetterAccepted];
        failures.tolerance == Tolerance::All && ours.contains(&failures.set_aside)
    }

    pub(super) fn is_last(&self, delivery_count: i16) -> bool {
        is_last_delivery(delivery_count, self.settings.delivery_count_limit)
    }

    /// Whether the tasks beside this one could take a record that it releases to its last delivery, each failing
    /// for it once.
    fn is_nearly_last(&self, delivery_count: i16) -> bool {
        let further = self.settings.tasks.max(1);
        !self.is_last(delivery_count) && self.is_last(delivery_count.saturating_add(further))
    }

    /// How a record is settled whose letter is confirmed.
    fn kept(&self) -> Settle {
        match self.settings.failures.set_aside {
            SetAside::DeadLetterAccepted => Settle::Accept,
            SetAside::DeadLetter | SetAside::Broker | SetAside::Nowhere => Settle::Reject,
        }
    }

    /// Writes the letters of what is on its last delivery, and settles what has one.
    async fn keep_last_deliveries(
        &mut self,
        held: &mut [Flight<S::Batch>],
        reason: &str,
        until: Instant,
    ) {
        let (mut places, mut letters) = (Vec::new(), Vec::new());
        for (number, flight) in held.iter().enumerate() {
            for (index, why) in flight.unsettled_records() {
                if self.is_last(flight.delivery_count(index)) {
                    let record = flight.select(one(index));
                    let place = record.describe();
                    let why = why.map_or_else(|| format!("{place}: {reason}"), str::to_owned);
                    places.push((number, index));
                    letters.push(Letter {
                        of: LetterOf::Record(record),
                        error: format!("{why}; this was its last allowed delivery"),
                        stage: None,
                    });
                }
            }
        }
        if letters.is_empty() {
            return;
        }
        let answers = self.write(&letters, Some(until)).await;
        let kept = self.kept();
        for ((number, index), answer) in places.into_iter().zip(answers) {
            if let Some(flight) = held.get_mut(number).filter(|_| answer.is_ok()) {
                self.given_up(&flight.select(one(index)), None);
                self.shared.metrics.records_skipped.add(1);
                flight.take_out(index, kept);
            }
        }
    }

    /// The same of records that can't be read. The answer: those that have no letter.
    async fn keep_corrupt(
        &mut self,
        corrupt: Vec<HeldCorrupt<S::Corrupt>>,
        until: Instant,
    ) -> Vec<HeldCorrupt<S::Corrupt>> {
        let mut left = Vec::new();
        for held in corrupt {
            let letter = held.letter();
            let is_kept = self.is_last(held.range.delivery_count)
                && self.write(&[letter], Some(until)).await == [Ok(())];
            if is_kept {
                held.corrupt.settle(self.kept());
            } else {
                left.push(held);
            }
        }
        left
    }

    fn release_flight(
        &mut self,
        mut flight: Flight<S::Batch>,
        reason: &str,
        given_back: &mut GivenBack,
    ) {
        // The source names what was lost on its last delivery; naming others takes its time.
        let is_lost = flight.batch.lock() == LockLeft::Lost;
        for run in flight.take_runs() {
            let reason = match &run.fate {
                Fate::Failed(failure) => format!("{ENDED}: {}", failure.why),
                Fate::Fresh | Fate::Put(_) => reason.to_owned(),
            };
            self.note_perhaps_written(&flight, &run);
            if is_lost {
                continue;
            }
            let last = apart(&flight, &run.indexes, |count| self.is_last(count));
            let last = (!last.is_empty()).then(|| flight.select(last));
            let nearly = apart(&flight, &run.indexes, |count| self.is_nearly_last(count));
            if !nearly.is_empty() {
                given_back.nearly.push(flight.select(nearly).describe());
            }
            // Before it is named: a lock that ends meanwhile would have it named twice.
            flight.settle(run.indexes, Settle::Release);
            if let Some(records) = last {
                given_back.lost.push(records.describe());
                self.name(&records, &reason);
            }
        }
    }

    fn release_corrupt(
        &mut self,
        held: HeldCorrupt<S::Corrupt>,
        reason: &str,
        given_back: &mut GivenBack,
    ) {
        if self.is_last(held.range.delivery_count) {
            given_back.lost.push(held.range.describe());
            self.name_corrupt(&held.range, reason);
        } else if self.is_nearly_last(held.range.delivery_count) {
            given_back.nearly.push(held.range.describe());
        }
        held.corrupt.settle(Settle::Release);
    }

    /// Counts and names records that are given up though a put may have written them.
    pub(super) fn note_perhaps_written(&self, flight: &Flight<S::Batch>, run: &Run) {
        if !run.fate.may_be_written() {
            return;
        }
        self.shared.metrics.perhaps_written.add(run.indexes.len());
        tracing::warn!(
            task = self.settings.name,
            records = %flight.select(vec![run.indexes.clone()]).describe(),
            "Records may have been written, and will be delivered again: their put gave no answer."
        );
    }
}

/// Those of some records whose delivery count is such.
fn apart<B: SourceBatch>(
    flight: &Flight<B>,
    indexes: &Range<usize>,
    is_such: impl Fn(i16) -> bool,
) -> Vec<Range<usize>> {
    let indexes = indexes.clone();
    let such = indexes.filter(|index| is_such(flight.delivery_count(*index)));
    such.map(|index| index..index + 1).collect()
}

const ENDED: &str = "the task ended before the record was written";
