//! What becomes of the records that failed: asks the policy, and does what it says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sharegroup_wire::duration::show;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::call::cut_off;
use super::failure::Failure;
use super::flight::{Fate, Flight, Run, one};
use super::letters::{CorruptRange, Letter, LetterError, LetterOf};
use super::{Control, ShareSinkTask, TaskFailure};
use crate::loss::LostRange;
use crate::policy::{
    Decision, FailReason, LetterState, LockLeft, RESERVE_MAX, SetAside, Situation, Told, Tried,
    decide,
};
use crate::record::SinkBatch;
use crate::source::{CorruptSource, RecordSource, Settle, SourceBatch};

/// How judging went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// What is to be written can be.
    Done,
    /// The task must not hold what failed, and has released it but for what is on its last delivery: nothing
    /// more is to be put.
    GaveUp,
}

/// Records that can't be read, and how far their letter is.
#[derive(Debug)]
pub(super) struct HeldCorrupt<C> {
    pub(super) corrupt: C,
    pub(super) range: CorruptRange,
    failure: Option<Failure>,
}

impl<C: CorruptSource> HeldCorrupt<C> {
    pub(super) fn new(corrupt: C) -> Self {
        let range = corrupt.range();
        Self {
            corrupt,
            range,
            failure: None,
        }
    }

    pub(super) fn letter(&self) -> Letter {
        Letter {
            of: LetterOf::Corrupt(self.range.clone()),
            error: self.range.error.clone(),
            stage: None,
        }
    }
}

#[derive(Debug, Default)]
struct Judged {
    gave_up: bool,
    /// Records that were cut off and given back.
    cut_off: usize,
    /// All that is not settled of the flight in question, where its lock ends.
    ending: String,
    /// Why the task fails.
    failure: Option<String>,
}

impl<S: RecordSource> ShareSinkTask<S> {
    /// Decides about everything that failed, and does what was decided; flights that are done are
    /// taken out.
    pub(super) async fn judge(&mut self) -> Result<Flow, TaskFailure> {
        let mut judged = Judged::default();
        let now = Instant::now();
        let mut held = std::mem::take(&mut self.held);
        for flight in &mut held {
            flight.letters_are_due(now);
            self.judge_flight(flight, &mut judged);
        }
        // A task that fails keeps no letter that its next start would write again.
        if judged.failure.is_none() && self.write_letters(&mut held).await {
            for flight in &mut held {
                self.judge_flight(flight, &mut judged);
            }
        }
        held.retain(|flight| !flight.is_done());
        self.held = held;
        self.judge_corrupt(&mut judged).await;
        if judged.cut_off > 0 {
            self.cut_off_at = self.common.lock().written;
            self.put_max = (judged.cut_off / 2).max(1);
        }
        self.show_held();
        self.show_trouble();
        if let Some(text) = judged.failure {
            return Err(TaskFailure::new(text));
        }
        Ok(if judged.gave_up {
            Flow::GaveUp
        } else {
            Flow::Done
        })
    }

    fn judge_flight(&mut self, flight: &mut Flight<S::Batch>, judged: &mut Judged) {
        let lock = flight.batch.lock();
        if let LockLeft::Ends(_) = lock {
            judged.ending = flight.remaining().describe();
        }
        for run in flight.take_runs() {
            let (situation, failure) = match &run.fate {
                Fate::Failed(failure) => {
                    let situation = self.situation(flight, &run, failure, lock);
                    (situation, Some(failure.clone()))
                }
                // It waits for its first put, at worst until its lock ends.
                Fate::Fresh | Fate::Put(_) => match lock {
                    LockLeft::Lost => (self.unput(flight, &run, lock), None),
                    LockLeft::Ends(_) if self.told() == Told::Run => {
                        let mut situation = self.unput(flight, &run, lock);
                        situation.others_written |= judged.cut_off > 0;
                        (situation, None)
                    }
                    LockLeft::Ends(_) | LockLeft::Renewable => {
                        flight.keep(run);
                        continue;
                    }
                },
            };
            let decision = decide(&situation);
            self.carry_out(flight, run, failure, decision, judged);
        }
    }

    /// Does what was decided about a run.
    fn carry_out(
        &mut self,
        flight: &mut Flight<S::Batch>,
        run: Run,
        failure: Option<Failure>,
        decision: Decision,
        judged: &mut Judged,
    ) {
        let records = flight.select(vec![run.indexes.clone()]);
        let why = failure.as_ref().map_or("", |failure| &*failure.why);
        match decision {
            Decision::Accept => {
                self.shared.metrics.records_skipped.add(records.len());
                flight.settle(run.indexes, Settle::Accept);
            }
            Decision::Reject { named } => {
                if named {
                    self.given_up(&records, failure.as_ref());
                    self.name(&records, &format!("{}: {why}", self.rejected()));
                    self.count_rejected(records.len() as u64);
                }
                self.shared.metrics.records_skipped.add(records.len());
                flight.settle(run.indexes, Settle::Reject);
            }
            Decision::ReportDuplicate | Decision::Forget => {
                self.note_perhaps_written(flight, &run);
                self.forget(&records);
            }
            Decision::Release { named } => {
                judged.gave_up = true;
                if named {
                    flight.keep(run);
                    return;
                }
                // Whoever goes on acquiring gets it again at once.
                self.pause();
                self.note_perhaps_written(flight, &run);
                if self.told() == Told::Run {
                    self.note_too_late(&records, flight.batch.lock());
                    if failure.is_some() {
                        judged.cut_off += records.len();
                    }
                }
                flight.settle(run.indexes, Settle::Release);
            }
            Decision::WriteLetter => flight.keep_for_letter(run),
            Decision::RetryInPlace { delay } => flight.keep_until(run, delay),
            Decision::FailTask(reason) => {
                let place = match reason {
                    FailReason::LockEnds => judged.ending.clone(),
                    _ => records.describe(),
                };
                self.given_up(&records, failure.as_ref());
                let of_stage = failure
                    .as_ref()
                    .is_some_and(|failure| failure.stage.is_some());
                judged.failure.get_or_insert_with(|| match reason {
                    FailReason::Refused if of_stage => format!("the record can't be put: {why}"),
                    _ => fail_text(reason, &place, why),
                });
                flight.keep(run);
            }
        }
    }

    /// Counts records that failed for good, and gives each its line.
    pub(super) fn given_up(&self, records: &SinkBatch, failure: Option<&Failure>) {
        self.shared.metrics.record_errors.add(records.len());
        if let Some(failure) = failure {
            self.log_given_up(records, failure);
        }
    }

    fn situation(
        &self,
        flight: &Flight<S::Batch>,
        run: &Run,
        failure: &Failure,
        lock: LockLeft,
    ) -> Situation {
        let held_since = failure.letter_failed_at.unwrap_or(failure.first_at);
        let written = self.common.lock().written;
        Situation {
            tried: failure.tried,
            alone: failure.alone,
            attempt: failure.attempts,
            held_for: held_since.elapsed(),
            cut_off: failure.cut_off,
            others_written: match failure.cut_off {
                // Fewer of them may be in time.
                true if !failure.alone => written > 0,
                true => written > self.cut_off_at,
                false => failure.written > failure.written_before,
            },
            blocks_window: self.blocks_window(flight, run),
            letter: failure.letter,
            after: failure.after,
            stage_wait: failure.stage_wait(),
            ..self.unput(flight, run, lock)
        }
    }

    /// The situation of records of a flight that were not put yet.
    fn unput(&self, flight: &Flight<S::Batch>, run: &Run, lock: LockLeft) -> Situation {
        let indexes = run.indexes.clone();
        let deliveries = indexes.map(|index| flight.delivery_count(index));
        Situation {
            fresh: run.fate == Fate::Fresh,
            lock_reserve: flight.lock_reserve(),
            others_written: self.has_written_under(flight, lock),
            delivery_count: deliveries.max().unwrap_or(1),
            ..self.waiting(lock)
        }
    }

    /// Whether anything was written since a lock that can't be renewed began.
    fn has_written_under(&self, flight: &Flight<S::Batch>, lock: LockLeft) -> bool {
        let LockLeft::Ends(left) = lock else {
            return false;
        };
        let age = flight.batch.lock_duration().saturating_sub(left);
        let written_at = self.common.lock().written_at;
        written_at.is_some_and(|at| at.elapsed() < age)
    }

    /// Whether what a flight has that was not put yet came too late: its lock ends too soon.
    pub(super) fn is_too_late(&self, flight: &Flight<S::Batch>) -> bool {
        let lock = flight.batch.lock();
        let fresh = flight.fresh().into_iter().map(|indexes| Run {
            indexes,
            fate: Fate::Fresh,
        });
        let mut decisions = fresh.map(|run| decide(&self.unput(flight, &run, lock)));
        matches!(lock, LockLeft::Ends(_))
            && self.told() == Told::Run
            && decisions.any(|decision| matches!(decision, Decision::Release { .. }))
    }

    /// The situation of a record that was not put yet.
    fn waiting(&self, lock: LockLeft) -> Situation {
        let failures = &self.settings.failures;
        Situation {
            tried: Tried::Later,
            fresh: false,
            cut_off: false,
            alone: false,
            attempt: 1,
            held_for: Duration::ZERO,
            others_written: false,
            blocks_window: false,
            breaker_open: self.common.lock().breaker.is_open(),
            delivery_count: 1,
            delivery_count_limit: self.settings.delivery_count_limit,
            lock,
            lock_reserve: RESERVE_MAX,
            tolerance: failures.tolerance,
            set_aside: failures.set_aside,
            letter: LetterState::Unwritten,
            hold_max: failures.hold_max,
            told: self.told(),
            after: None,
            stage_wait: None,
            put_time: self.put_time,
            jitter: self.spread,
        }
    }

    fn told(&self) -> Told {
        match *self.control.borrow() {
            _ if self.stopping() => Told::Stop,
            Control::Pause => Told::Pause,
            Control::Run | Control::Stop { .. } => Told::Run,
        }
    }

    /// Whether so much was delivered behind a record that the broker will soon deliver nothing more.
    fn blocks_window(&self, flight: &Flight<S::Batch>, run: &Run) -> bool {
        let (topic, partition, _) = flight.end();
        let end = self.common.lock().end(topic, partition);
        let first = flight.offset(run.indexes.start);
        let half = i64::from(self.settings.failures.record_locks_max / 2);
        end.is_some_and(|end| end.saturating_sub(first) >= half)
    }

    /// Writes the letters that are due. The answer: whether there were any.
    async fn write_letters(&mut self, held: &mut [Flight<S::Batch>]) -> bool {
        let mut places = Vec::new();
        let mut letters = Vec::new();
        for (number, flight) in held.iter().enumerate() {
            for (index, failure) in flight.letters() {
                if failure.letter_failed_at.is_none() {
                    self.given_up(&flight.select(one(index)), Some(failure));
                }
                places.push((number, index));
                letters.push(Letter {
                    of: LetterOf::Record(flight.select(one(index))),
                    error: failure.why.to_string(),
                    stage: failure.stage.as_ref().map(|stage| Arc::clone(&stage.error)),
                });
            }
        }
        if letters.is_empty() {
            return false;
        }
        let answers = self.write(&letters, None).await;
        let now = Instant::now();
        for ((number, index), answer) in places.into_iter().zip(answers) {
            if let Some(flight) = held.get_mut(number) {
                flight.note_letter(index, answer, now);
            }
        }
        true
    }

    /// Writes letters, until then or as long as stopping allows; one answer for each.
    pub(super) async fn write(
        &mut self,
        letters: &[Letter],
        until: Option<Instant>,
    ) -> Vec<Result<(), LetterError>> {
        let not_written = |text: &str| LetterError {
            text: text.to_owned(),
            is_retriable: true,
        };
        // What is begun now may arrive though nobody waits for it, and the record would get another letter.
        let is_late = timeout(Duration::ZERO, time_is_up(&mut self.control, until)).await;
        let mut answers = match &mut self.sink.dead_letters {
            _ if is_late.is_ok() => Vec::new(),
            Some(dead_letters) => tokio::select! {
                biased;
                answers = dead_letters.write(letters) => answers,
                () = time_is_up(&mut self.control, until) => Vec::new(),
            },
            None => Vec::new(),
        };
        answers.resize(letters.len(), Err(not_written("no answer")));
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        self.shared.metrics.dead_letters.add(letters.len());
        self.shared.metrics.dead_letter_failures.add(failed);
        self.log_letters(letters, &answers);
        answers
    }

    /// One line for all that were confirmed, one for all that were not.
    fn log_letters(&self, letters: &[Letter], answers: &[Result<(), LetterError>]) {
        let task = &self.settings.name;
        let answered = || letters.iter().zip(answers);
        if let Some((first, _)) = answered().find(|(_, answer)| answer.is_ok()) {
            tracing::warn!(
                task,
                error = first.error,
                letters = answers.iter().filter(|answer| answer.is_ok()).count(),
                "Records were not written; their dead letters are. The first of them is named."
            );
        }
        if let Some((first, Err(error))) = answered().find(|(_, answer)| answer.is_err()) {
            tracing::error!(
                task,
                error = first.error,
                letter_error = error.text,
                letters = answers.iter().filter(|answer| answer.is_err()).count(),
                "Records were not written, and their dead letters could not be; they are held. The first of them is named."
            );
        }
    }

    /// The same for records that can't be read.
    async fn judge_corrupt(&mut self, judged: &mut Judged) {
        for mut held in std::mem::take(&mut self.corrupt) {
            let now = Instant::now();
            if let Some(failure) = &mut held.failure
                && failure.letter == LetterState::Failed
                && failure.retry_at <= now
            {
                failure.letter = LetterState::Unwritten;
            }
            let mut decision = decide(&self.corrupt_situation(&held));
            if decision == Decision::WriteLetter && judged.failure.is_none() {
                let is_first = held.failure.is_none();
                self.shared.metrics.record_errors.add(usize::from(is_first));
                let answers = self.write(&[held.letter()], None).await;
                let answer = answers.into_iter().next().unwrap_or(Ok(()));
                let now = self.now();
                let failure = held
                    .failure
                    .get_or_insert_with(|| Failure::refused(&held.range.error, now));
                failure.note_letter(answer, now.at);
                decision = decide(&self.corrupt_situation(&held));
            }
            match decision {
                Decision::Accept => held.corrupt.settle(Settle::Accept),
                Decision::Reject { named } => {
                    if named {
                        let named = self.name_corrupt(&held.range, self.rejected());
                        self.count_rejected(named);
                    }
                    held.corrupt.settle(Settle::Reject);
                }
                Decision::Release { named } => {
                    judged.gave_up = true;
                    self.pause();
                    if named {
                        self.corrupt.push(held);
                    } else {
                        held.corrupt.settle(Settle::Release);
                    }
                }
                Decision::RetryInPlace { delay } => {
                    if let Some(failure) = &mut held.failure {
                        failure.wait(delay);
                    }
                    self.corrupt.push(held);
                }
                Decision::FailTask(reason) => {
                    let text = match (reason, &held.failure) {
                        (FailReason::Refused, _) | (_, None) => held.range.error.clone(),
                        (_, Some(failure)) => {
                            let place = held.range.describe();
                            fail_text(reason, &place, &failure.why)
                        }
                    };
                    judged.failure.get_or_insert(text);
                    self.corrupt.push(held);
                }
                Decision::WriteLetter => self.corrupt.push(held),
                // Its lock is gone.
                Decision::Forget | Decision::ReportDuplicate => {}
            }
        }
    }

    fn corrupt_situation(&self, held: &HeldCorrupt<S::Corrupt>) -> Situation {
        let failure = held.failure.as_ref();
        let failed_at = failure.and_then(|failure| failure.letter_failed_at);
        Situation {
            tried: Tried::Refused,
            alone: true,
            attempt: failure.map_or(1, |failure| failure.attempts),
            held_for: failed_at.map_or(Duration::ZERO, |at| at.elapsed()),
            delivery_count: held.range.delivery_count,
            letter: failure.map_or(LetterState::Unwritten, |failure| failure.letter),
            ..self.waiting(held.corrupt.lock())
        }
    }

    /// When the next try of a letter is due.
    pub(super) fn letters_at(&self) -> Option<Instant> {
        let records = self.held.iter().filter_map(Flight::letters_at);
        let corrupt = self.corrupt.iter();
        let corrupt = corrupt.map(|held| {
            let failure = held.failure.as_ref();
            failure.map_or_else(Instant::now, |failure| failure.retry_at)
        });
        records.chain(corrupt).min()
    }

    /// Says that records are released because their lock ends too soon.
    fn note_too_late(&self, records: &SinkBatch, lock: LockLeft) {
        if let LockLeft::Ends(left) = lock {
            tracing::warn!(
                task = self.settings.name,
                records = %records.describe(),
                left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
                "Records are given back: their lock ends too soon and can't be renewed."
            );
        }
    }

    /// Gives up records whose lock is lost: others get them, if any delivery is left. The source names
    /// those on their last.
    fn forget(&self, records: &SinkBatch) {
        tracing::warn!(
            task = self.settings.name,
            records = %records.describe(),
            "Records lost their lock before they were written: they will be delivered again."
        );
    }

    /// What becomes of a record that is rejected and has no letter of ours.
    const fn rejected(&self) -> &'static str {
        match self.settings.failures.set_aside {
            SetAside::Broker => "rejected, for the broker to write its dead letter",
            _ => "rejected without a dead letter",
        }
    }

    /// Counts what is rejected without a letter of ours.
    fn count_rejected(&self, records: u64) {
        let metrics = &self.shared.metrics;
        match self.settings.failures.set_aside {
            SetAside::Broker => metrics.left_to_broker.add_wide(records),
            _ => metrics.rejected_unkept.add_wide(records),
        }
    }

    pub(super) fn name(&self, records: &SinkBatch, reason: &str) {
        self.shared.metrics.named_as_lost.add(records.len());
        self.settings.loss.name(records, reason);
    }

    /// The answer: how many.
    pub(super) fn name_corrupt(&self, range: &CorruptRange, reason: &str) -> u64 {
        let count = range.last_offset.saturating_sub(range.first_offset);
        let count = u64::try_from(count).unwrap_or(0).saturating_add(1);
        self.shared.metrics.named_as_lost.add_wide(count);
        self.settings.loss.name_range(&LostRange {
            topic: Arc::clone(&range.topic),
            partition: range.partition,
            first_offset: range.first_offset,
            last_offset: range.last_offset,
            delivery_count: range.delivery_count,
            reason: format!("{reason}: {}", range.error),
        });
        count
    }

    /// Says what the task struggles with: in its status always, in the log with a growing distance.
    fn show_trouble(&mut self) {
        let failures = self.held.iter().flat_map(Flight::failures);
        let failure = failures.max_by_key(|failure| failure.last_at);
        let had_trouble = std::mem::replace(&mut self.in_trouble, failure.is_some());
        let Some(failure) = failure else {
            // The note may be another lane's.
            if had_trouble {
                self.shared.set_note(None);
            }
            return;
        };
        let puts_in_a_row = self.shared.metrics.failures_in_a_row.value();
        let stage = failure.stage.as_ref();
        let in_a_row = stage.map_or(puts_in_a_row, |stage| stage.failures.into());
        let next = self.turn_at().unwrap_or(failure.retry_at);
        let wait = next.saturating_duration_since(Instant::now());
        let down = if self.common.lock().breaker.is_open() {
            "; the target is down, nothing new is acquired"
        } else {
            ""
        };
        self.shared.set_note(Some(format!(
            "{}; failed {in_a_row} times in a row, next try in {}{down}",
            failure.why,
            show(wait)
        )));
    }

    /// Logs what failed in this turn, but no more than a line a minute.
    pub(super) fn log_trouble(&self) {
        let failures = self.held.iter().flat_map(Flight::failures);
        let mut failures = failures.filter(|failure| failure.turn == self.turns);
        let Some(failure) = failures.next() else {
            return;
        };
        let Some(count) = self.common.lock().telling.failed(Instant::now()) else {
            return;
        };
        let wait = failure.retry_at.saturating_duration_since(Instant::now());
        tracing::warn!(
            task = self.settings.name,
            error = %failure.why,
            held = self.records_held(),
            attempt = failure.attempts,
            failures = count,
            wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            "Records were not written; they are held and put again."
        );
    }
}

/// Waits for the end of the time for letters.
async fn time_is_up(control: &mut watch::Receiver<Control>, until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => cut_off(control, LETTERS_RESERVE).await,
    }
}

fn fail_text(reason: FailReason, place: &str, why: &str) -> String {
    struct Because<'a>(FailReason, &'a str);
    impl fmt::Display for Because<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Self(reason, place) = self;
            match reason {
                FailReason::Refused => write!(f, "the sink refused {place}"),
                FailReason::HoldOver => write!(
                    f,
                    "{place} could not be written for as long as a record is held (share.hold.max.ms), while \
                     others were"
                ),
                FailReason::BlocksWindow => write!(
                    f,
                    "{place} could not be written and blocks half of the records that its partition may have \
                     in delivery"
                ),
                FailReason::NoLetter => write!(f, "the dead letter of {place} can't be written"),
                FailReason::LockEnds => write!(
                    f,
                    "{place} could not be written before their lock ends, and it can't be renewed"
                ),
                FailReason::LastLockLost => write!(
                    f,
                    "{place} lost the lock on the last allowed delivery and won't be delivered to the group again"
                ),
            }
        }
    }
    let because = Because(reason, place);
    if why.is_empty() {
        because.to_string()
    } else {
        format!("{because}: {why}")
    }
}

/// Fifths of the budget for stopping that letters leave to leaving the group.
const LETTERS_RESERVE: u32 = 2;
