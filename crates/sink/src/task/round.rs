//! One round of a task: batches are put, flushed together, and settled.
//!
//! A round starts with one batch and takes in what else is ready, within bounds, so that an
//! expensive flush (an fsync) is paid once for many batches. Nothing is accepted before the flush
//! has returned. What failed stays in the round and is put again, in place, until it is written,
//! its lock is lost, the task stops, or the task fails.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use sharegroup_wire::duration::show;
use tokio::time::{Instant, sleep, sleep_until};

use super::call::{Ended, call, stopped};
use super::flight::{Flight, Run, Trouble};
use super::{ShareSinkTask, TaskFailure};
use crate::error::{PutError, chain};
use crate::outcome::Outcomes;
use crate::policy::{
    Decision, FailReason, LockLeft, RESERVE_MIN, Situation, Tried, decide, is_last_delivery,
};
use crate::source::{RecordSource, Settle, SourceBatch};

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Everything is settled.
    Done,
    /// The task must stop and records that failed were released: nothing more is to be put.
    GaveUp,
}

impl<S: RecordSource> ShareSinkTask<S> {
    /// Works off a batch, and what else is ready.
    pub(super) async fn round(&mut self, first: S::Batch) -> Result<Flow, TaskFailure> {
        let mut flights = vec![self.take_in(first)];
        let result = self.work_off(&mut flights).await;
        if self.failing {
            self.failing = false;
            self.shared.set_note(None);
            self.follow_control();
        }
        for mut flight in flights {
            for run in flight.take_runs() {
                self.release(&mut flight, &run, "the task failed");
            }
        }
        self.shared.metrics.records_active.set(0);
        self.publish();
        result
    }

    async fn work_off(&mut self, flights: &mut Vec<Flight<S::Batch>>) -> Result<Flow, TaskFailure> {
        let mut attempt = 0;
        let mut trouble = self.put_all(flights, true).await?;
        loop {
            self.flush(flights, &mut trouble).await?;
            let progress = flights.iter().any(Flight::has_written);
            attempt = if progress { 1 } else { attempt + 1 };
            let jitter = self.jitter.next();
            let failed = trouble.take().unwrap_or_default();
            let judged = self.judge(flights, attempt, &failed, jitter)?;
            if flights.is_empty() {
                if judged.gave_up {
                    return Ok(Flow::GaveUp);
                }
                self.shared.metrics.failures_in_a_row.set(0);
                return Ok(Flow::Done);
            }
            self.report_failure(flights, attempt, &failed, judged.delay);
            self.wait(flights, attempt, &failed, jitter, judged.delay)
                .await?;
            if flights.is_empty() {
                let stopping = self.stopping();
                return Ok(if stopping { Flow::GaveUp } else { Flow::Done });
            }
            self.shared.metrics.retries.add(1);
            trouble = self.put_all(flights, false).await?;
        }
    }

    /// Puts every flight, in order, up to the first failure. The first time the round takes in
    /// further batches that are ready.
    async fn put_all(
        &mut self,
        flights: &mut Vec<Flight<S::Batch>>,
        first_time: bool,
    ) -> Result<Option<Trouble>, TaskFailure> {
        let started = Instant::now();
        let mut index = 0;
        while let Some(flight) = flights.get_mut(index) {
            index += 1;
            if flight.batch.lock() == LockLeft::Lost {
                for run in flight.take_runs() {
                    self.forget(flight, &run);
                }
                continue;
            }
            if let Some(trouble) = self.put(flights, index - 1).await? {
                return Ok(Some(trouble));
            }
            let held: usize = flights.iter().map(Flight::unsettled).sum();
            if first_time
                && index == flights.len()
                && held < ROUND_RECORDS_MAX
                && started.elapsed() < ROUND_TIME_MAX.min(self.settings.flush_interval)
                && !self.stopping()
            {
                match self.try_poll().await {
                    Ok(batch) => flights.extend(batch.map(|batch| self.take_in(batch))),
                    // What was put already is flushed and accepted first.
                    Err(failure) => self.failed_later = Some(failure),
                }
            }
        }
        Ok(None)
    }

    /// Puts the rest of a flight once, and notes what became of it.
    async fn put(
        &mut self,
        flights: &mut [Flight<S::Batch>],
        index: usize,
    ) -> Result<Option<Trouble>, TaskFailure> {
        let Some(flight) = flights.get(index) else {
            return Ok(None);
        };
        let batch = flight.remaining();
        let described = batch.describe();
        let records = batch.len();
        let outcomes = Outcomes::of(&batch);
        let sender = outcomes.sender();
        let started = Instant::now();
        let Self {
            task,
            control,
            source,
            shared,
            ..
        } = self;
        let put = call(
            || task.put(batch, &sender),
            control,
            PUT_RESERVE,
            || shared.publish(source.snapshot()),
        );
        let ended = before_locks_end(flights, PUT_LOCK_RESERVE, put).await;
        let time = started.elapsed();
        self.put_time = self.put_time.mul_f64(0.95).max(time);
        self.shared.metrics.put_ended(records, time);
        let (whole, trouble) = match ended {
            Ended::Returned(Ok(())) => (Tried::Written, None),
            Ended::Returned(Err(error)) => {
                self.shared.metrics.put_failed();
                let (tried, trouble) = read_error(&error, &format!("put of {described} failed"));
                (tried, Some(trouble))
            }
            Ended::CutOff => {
                let text = format!("put of {described} {CUT_OFF}");
                (Tried::Unknown, Some(Trouble { text, after: None }))
            }
            Ended::Panicked(text) => {
                self.shared.metrics.put_failed();
                return Err(TaskFailure::panicked(format!(
                    "put of {described} panicked: {text}"
                )));
            }
        };
        let by_record = match flights.get_mut(index) {
            Some(flight) => flight.note_put(whole, outcomes.take()),
            None => None,
        };
        if by_record.is_some() && trouble.is_none() {
            self.shared.metrics.put_failed();
        }
        Ok(trouble.or(by_record))
    }

    /// Flushes if anything was put; a failure sends all of that back to be put again.
    async fn flush(
        &mut self,
        flights: &mut [Flight<S::Batch>],
        trouble: &mut Option<Trouble>,
    ) -> Result<(), TaskFailure> {
        if !flights.iter().any(Flight::has_written) {
            return Ok(());
        }
        let started = Instant::now();
        let Self {
            task,
            control,
            source,
            shared,
            ..
        } = self;
        let flush = call(
            || task.flush(),
            control,
            FLUSH_RESERVE,
            || shared.publish(source.snapshot()),
        );
        let ended = before_locks_end(flights, FLUSH_LOCK_RESERVE, flush).await;
        self.put_time = self.put_time.max(started.elapsed());
        let (tried, failed) = match ended {
            Ended::Returned(Ok(())) => return Ok(()),
            Ended::Returned(Err(error)) => {
                let what = format!("flush after {} failed", describe(flights));
                read_error(&error, &what)
            }
            Ended::CutOff => {
                let text = format!("flush after {} {CUT_OFF}", describe(flights));
                (Tried::Unknown, Trouble { text, after: None })
            }
            Ended::Panicked(text) => {
                self.shared.metrics.put_failed();
                return Err(TaskFailure::panicked(format!("flush panicked: {text}")));
            }
        };
        self.shared.metrics.put_failed();
        for flight in flights {
            flight.note_flush_failed(tried);
        }
        Trouble::merge(trouble, failed);
        Ok(())
    }

    /// Decides about every record of the round and does what was decided; flights that are done
    /// are taken out.
    fn judge(
        &mut self,
        flights: &mut Vec<Flight<S::Batch>>,
        attempt: u32,
        trouble: &Trouble,
        jitter: f64,
    ) -> Result<Judged, TaskFailure> {
        let mut judged = Judged {
            delay: Duration::ZERO,
            gave_up: false,
        };
        let mut failure = None;
        let stopping = self.stopping();
        for flight in flights.iter_mut() {
            let lock = flight.batch.lock();
            for run in flight.take_runs() {
                let situation = Situation {
                    tried: run.tried,
                    attempt,
                    delivery_count: match run.tried {
                        Tried::Written => 1,
                        _ => flight.delivery_count(&run),
                    },
                    delivery_count_limit: self.settings.delivery_count_limit,
                    lock,
                    stopping,
                    after: trouble.after,
                    put_time: self.put_time,
                    jitter,
                };
                match decide(&situation) {
                    Decision::Accept => self.accept(flight, &run),
                    Decision::ReportDuplicate => self.report_duplicate(flight, &run),
                    Decision::Forget => self.forget(flight, &run),
                    Decision::Release { .. } => {
                        judged.gave_up = true;
                        self.release(flight, &run, "the task stopped before a retry");
                    }
                    Decision::RetryInPlace { delay } => {
                        judged.delay = judged.delay.max(delay);
                        flight.keep(run);
                    }
                    Decision::FailTask(reason) => {
                        let records = flight.records_of(&run).describe();
                        failure.get_or_insert_with(|| fail_text(reason, &records, &trouble.text));
                        flight.keep(run);
                    }
                }
            }
        }
        if let Some(text) = failure {
            return Err(TaskFailure::new(text));
        }
        flights.retain(|flight| !flight.is_done());
        Ok(judged)
    }

    /// Waits for the next try. Ends early, with the flights released, when the task must stop;
    /// decides anew when a lock is lost or can't be renewed any longer.
    async fn wait(
        &mut self,
        flights: &mut Vec<Flight<S::Batch>>,
        attempt: u32,
        trouble: &Trouble,
        jitter: f64,
        delay: Duration,
    ) -> Result<(), TaskFailure> {
        let mut retry_at = Instant::now() + delay;
        while !flights.is_empty() && Instant::now() < retry_at {
            let publish_at = Instant::now() + PUBLISH_EVERY;
            let must_judge = tokio::select! {
                biased;
                () = stopped(&mut self.control) => true,
                () = lock_trouble(flights) => true,
                () = sleep_until(retry_at.min(publish_at)) => false,
            };
            self.publish();
            if must_judge {
                let judged = self.judge(flights, attempt, trouble, jitter)?;
                retry_at = retry_at.min(Instant::now() + judged.delay);
            }
        }
        Ok(())
    }

    fn accept(&self, flight: &mut Flight<S::Batch>, run: &Run) {
        self.shared.metrics.records_written.add(run.indexes.len());
        flight.settle(run, Settle::Accept);
    }

    fn report_duplicate(&self, flight: &mut Flight<S::Batch>, run: &Run) {
        let metrics = &self.shared.metrics;
        metrics.records_written.add(run.indexes.len());
        metrics.duplicates_expected.add(run.indexes.len());
        tracing::warn!(
            task = self.settings.name,
            records = %flight.records_of(run).describe(),
            "Records were written, but their lock was lost before: they will be delivered again."
        );
        // The source sends nothing for what is lost, only for what it still holds.
        flight.settle(run, Settle::Accept);
    }

    /// Gives up records whose lock is lost: others get them, if any delivery is left. The source names
    /// those on their last.
    fn forget(&self, flight: &Flight<S::Batch>, run: &Run) {
        tracing::warn!(
            task = self.settings.name,
            records = %flight.records_of(run).describe(),
            "Records lost their lock before they were written: they will be delivered again."
        );
    }

    /// Releases records at once; those on their last delivery are named first.
    pub(super) fn release(&self, flight: &mut Flight<S::Batch>, run: &Run, reason: &str) {
        self.name_last_deliveries(flight, run, reason);
        flight.settle(run, Settle::Release);
    }

    fn name_last_deliveries(&self, flight: &Flight<S::Batch>, run: &Run, reason: &str) {
        let limit = self.settings.delivery_count_limit;
        let records = flight.records_of(run);
        let last: Vec<_> = records
            .indexes()
            .zip(records.records())
            .filter(|(_, record)| is_last_delivery(record.delivery_count, limit))
            .map(|(index, _)| index..index + 1)
            .collect();
        self.shared.metrics.named_as_lost.add(last.len());
        self.settings.loss.name(&records.select(last), reason);
    }

    /// While a put fails, nothing new is acquired: other members can have it.
    fn report_failure(
        &mut self,
        flights: &[Flight<S::Batch>],
        attempt: u32,
        trouble: &Trouble,
        delay: Duration,
    ) {
        self.failing = true;
        self.set_paused(true);
        let failures = self.shared.metrics.failures_in_a_row.value();
        self.shared.set_note(Some(format!(
            "{}; failed {failures} times in a row, next try in {}",
            trouble.text,
            show(delay)
        )));
        if attempt.is_power_of_two() {
            tracing::warn!(
                task = self.settings.name,
                error = trouble.text,
                held = %describe(flights),
                attempt,
                delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
                "Records were not written; they are held and put again."
            );
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Judged {
    /// Wait before the next try, if anything is left.
    delay: Duration,
    /// Whether records were released because the task must stop.
    gave_up: bool,
}

fn read_error(error: &PutError, what: &str) -> (Tried, Trouble) {
    let text = format!("{what}: {}", chain(error));
    match error {
        PutError::Retriable { after, .. } => (
            Tried::Later,
            Trouble {
                text,
                after: *after,
            },
        ),
        PutError::Fatal { .. } => (Tried::Fatal, Trouble { text, after: None }),
    }
}

fn fail_text(reason: FailReason, records: &str, trouble: &str) -> String {
    match reason {
        FailReason::Refused => format!("the sink refused {records}: {trouble}"),
        FailReason::Fatal => format!("{records} can't be written: {trouble}"),
        FailReason::LockEnds => format!(
            "{records} could not be written before their lock ends, and it can't be renewed: {trouble}"
        ),
    }
}

fn describe<B: SourceBatch>(flights: &[Flight<B>]) -> String {
    let parts: Vec<_> = flights
        .iter()
        .take(4)
        .map(|flight| flight.remaining().describe())
        .collect();
    let more = flights.len().saturating_sub(parts.len());
    let and_more = if more > 0 {
        format!(" and {more} batches more")
    } else {
        String::new()
    };
    format!("{}{and_more}", parts.join(", "))
}

/// Lets a call end by itself, but cuts it off when of a lock that can't be renewed only `reserve` is
/// left: what it holds must be given up before another member gets it.
async fn before_locks_end<B: SourceBatch, E>(
    flights: &[Flight<B>],
    reserve: Duration,
    call: impl Future<Output = Ended<E>>,
) -> Ended<E> {
    tokio::select! {
        biased;
        ended = call => ended,
        () = locks_end(flights, reserve) => Ended::CutOff,
    }
}

/// Waits until of a lock that can't be renewed only `reserve` is left. Locks may become such, or last
/// longer, meanwhile.
async fn locks_end<B: SourceBatch>(flights: &[Flight<B>], reserve: Duration) {
    loop {
        let locks = flights.iter().map(|flight| match flight.batch.lock() {
            LockLeft::Ends(left) => Some(left.saturating_sub(reserve)),
            LockLeft::Renewable | LockLeft::Lost => None,
        });
        match locks.flatten().min() {
            Some(Duration::ZERO) => return,
            Some(left) => tokio::select! {
                () = sleep(left) => {}
                () = lock_trouble(flights) => {}
            },
            None => lock_trouble(flights).await,
        }
    }
}

/// Waits until one of the locks that are renewed is lost or refused renewal.
async fn lock_trouble<B: SourceBatch>(flights: &[Flight<B>]) {
    let mut troubles: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = Vec::new();
    for flight in flights {
        if flight.batch.lock() == LockLeft::Renewable {
            troubles.push(Box::pin(flight.batch.lock_trouble()));
        }
    }
    poll_fn(|context| {
        let any = troubles
            .iter_mut()
            .any(|trouble| trouble.as_mut().poll(context).is_ready());
        if any { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Most records that one round takes in before it flushes.
const ROUND_RECORDS_MAX: usize = 10_000;
/// Longest time a round takes in batches before it flushes.
const ROUND_TIME_MAX: Duration = Duration::from_millis(200);
/// Fifths of the budget for stopping that a put leaves to the flush and to leaving the group.
const PUT_RESERVE: u32 = 2;
/// Fifths of the budget for stopping that a flush leaves to leaving the group.
const FLUSH_RESERVE: u32 = 1;
/// What a put leaves of a lock that can't be renewed: for the flush, and for the acknowledgement to travel.
const PUT_LOCK_RESERVE: Duration = RESERVE_MIN;
/// What a flush leaves of such a lock: the acknowledgement has to travel.
const FLUSH_LOCK_RESERVE: Duration = Duration::from_millis(500);
const CUT_OFF: &str = "did not end in the time it had";
/// Longest time between two looks at the source while waiting.
const PUBLISH_EVERY: Duration = Duration::from_millis(250);
