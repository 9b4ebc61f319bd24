//! One turn of a task: what is due is put and flushed, and what fails is taken apart.
//!
//! Batches that arrived share a flush, so that an expensive one (an fsync) is paid once for many.
//! Nothing is accepted before the flush has returned. A put that fails as a whole, of a sink that
//! doesn't say which record is to blame, is repeated in halves until that record stands alone; each part
//! is flushed by itself. A turn ends early when the target seems to be down.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::breaker::Failed;
use super::call::{Ended, call};
use super::failure::{Now, Trouble, TroubleKind};
use super::flight::{Flight, Piece, one};
use super::judge::Flow;
use super::locks::{FLUSH_LOCK_PARTS, PUT_LOCK_PARTS, locks_over, within_locks};
use super::{ShareSinkTask, TaskFailure};
use crate::error::{PutError, chain};
use crate::outcome::Outcomes;
use crate::policy::{LockLeft, Tolerance, Tried, is_last_delivery};
use crate::source::{RecordSource, Settle, SourceBatch};

/// What has happened in a turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Whether anything was written.
    wrote: bool,
    /// How often the target seemed to be down since then.
    troubles: u32,
    /// Whether there is no time left, or the task fails anyway.
    is_over: bool,
}

impl Turn {
    /// Whether more puts make sense.
    const fn goes_on(&self) -> bool {
        let troubles_max = if self.wrote { TROUBLES_MAX } else { 1 };
        !self.is_over && self.troubles < troubles_max
    }
}

/// How a put ended.
#[derive(Debug)]
enum Said {
    /// With an answer for each record, be it good or bad.
    Answered,
    /// As a whole, for a reason that may lie in a single record.
    Failed(Trouble),
    /// It was cut off.
    CutOff,
}

impl<S: RecordSource> ShareSinkTask<S> {
    /// When something is to be put, if anything is.
    pub(super) fn turn_at(&self) -> Option<Instant> {
        let not_before = {
            let common = self.common.lock();
            if common.breaker.is_open() {
                return common.probe_at(self.lane);
            }
            common.breaker.not_before()
        };
        let first = self.held.iter().filter_map(Flight::put_at).min()?;
        Some(not_before.map_or(first, |at| first.max(at)))
    }

    /// Puts what is due, then decides about everything that failed.
    pub(super) async fn turn(&mut self) -> Result<Flow, TaskFailure> {
        let mut turn = Turn::default();
        self.turn_began = Instant::now();
        let began = self.common.lock().turn_began(self.lane);
        let Some(was_open) = began else {
            return Ok(Flow::Done);
        };
        self.turns += 1;
        self.spread = self.jitter.next();
        let put = if was_open {
            self.probe(&mut turn).await
        } else {
            self.put_due(&mut turn).await
        };
        let opens = {
            let breaker = &mut self.common.lock().breaker;
            let opens = breaker.turn_ended(Instant::now(), self.spread);
            let is_open = u64::from(breaker.is_open());
            self.shared.metrics.breaker_open.set(is_open);
            opens
        };
        if opens {
            tracing::error!(
                task = self.settings.name,
                held = self.common.lock().records_held(),
                "The target is down: nothing new is acquired, what is held stays held."
            );
        }
        put?;
        let flow = self.judge().await?;
        self.log_trouble();
        self.commit_if_wished().await?;
        self.publish();
        match self.failed_later.take() {
            Some(failure) => Err(failure),
            None => Ok(flow),
        }
    }

    /// Last deliveries first and alone, then what arrived, then what failed before: records that fail
    /// for ever must keep no other waiting.
    async fn put_due(&mut self, turn: &mut Turn) -> Result<(), TaskFailure> {
        let due = self.due();
        for flight in 0..self.held.len() {
            self.put_last_deliveries(flight, turn).await?;
        }
        self.put_fresh(turn).await?;
        for piece in due {
            if self.stopping() || !turn.goes_on() {
                break;
            }
            self.put_apart(piece, turn).await?;
        }
        Ok(())
    }

    /// The records whose next try has come.
    fn due(&self) -> Vec<Piece> {
        let now = Instant::now();
        let flights = self.held.iter().enumerate();
        let pieces = flights.flat_map(|(flight, held)| {
            let pieces = held.due(now).into_iter();
            pieces.map(move |indexes| Piece { flight, indexes })
        });
        pieces.collect()
    }

    /// A record on its last delivery takes no other with it, and none takes it.
    async fn put_last_deliveries(
        &mut self,
        flight: usize,
        turn: &mut Turn,
    ) -> Result<(), TaskFailure> {
        let limit = self.settings.delivery_count_limit;
        let Some(held) = self.held.get(flight) else {
            return Ok(());
        };
        if !is_last_delivery(held.delivery_count_max, limit) {
            return Ok(());
        }
        let fresh = held.fresh().into_iter().flatten();
        let last: Vec<_> = fresh
            .filter(|index| is_last_delivery(held.delivery_count(*index), limit))
            .collect();
        for index in last {
            if !turn.goes_on() {
                break;
            }
            self.flush_shared(turn).await?;
            self.put_apart(single(flight, index), turn).await?;
        }
        Ok(())
    }

    /// Puts what arrived and, where that shares a flush, what else arrives meanwhile, within bounds; then flushes it.
    async fn put_fresh(&mut self, turn: &mut Turn) -> Result<(), TaskFailure> {
        let started = Instant::now();
        let time_max = ROUND_TIME_MAX.min(self.settings.flush_interval);
        let mut flight = 0;
        while turn.goes_on() && flight < self.held.len() {
            self.put_last_deliveries(flight, turn).await?;
            let is_too_late = |held: &Flight<_>| self.is_too_late(held);
            if turn.goes_on() && !self.held.get(flight).is_some_and(is_too_late) {
                self.put_rest(flight, turn).await?;
            }
            flight += 1;
            let has_room = !self.settings.writes_at_once
                && self.records_held() < ROUND_RECORDS_MAX
                && started.elapsed() < time_max;
            if flight == self.held.len() && has_room && turn.goes_on() && !self.stopping() {
                match self.try_poll().await {
                    Ok(polled) => polled.into_iter().for_each(|polled| self.arrived(polled)),
                    // What was put already is flushed and accepted first.
                    Err(failure) => self.failed_later = Some(failure),
                }
            }
        }
        self.flush_shared(turn).await
    }

    /// Puts what of a flight was not put yet.
    async fn put_rest(&mut self, flight: usize, turn: &mut Turn) -> Result<(), TaskFailure> {
        let Some(held) = self.held.get(flight) else {
            return Ok(());
        };
        let indexes = held.fresh();
        if indexes.is_empty() || self.is_lost(flight) {
            return Ok(());
        }
        let most = match held.batch.lock() {
            LockLeft::Ends(_) => self.put_max,
            LockLeft::Renewable | LockLeft::Lost => usize::MAX,
        };
        let piece = self.convert(Piece { flight, indexes }.first(most));
        match self.put(&piece).await? {
            Said::Answered => {
                self.note_answers(&piece, turn);
                Ok(())
            }
            Said::CutOff => {
                turn.is_over = true;
                Ok(())
            }
            Said::Failed(trouble) => {
                self.flush_shared(turn).await?;
                self.note_failed(&piece, &trouble, turn);
                self.take_apart(piece, &trouble, turn).await
            }
        }
    }

    /// Puts a piece by itself, and takes it apart if that fails.
    async fn put_apart(&mut self, piece: Piece, turn: &mut Turn) -> Result<(), TaskFailure> {
        match self.put_alone(&piece, turn).await? {
            None => Ok(()),
            Some((piece, trouble)) => self.take_apart(piece, &trouble, turn).await,
        }
    }

    /// Puts and flushes a piece by itself. The answer: what of it failed as a whole, and why.
    async fn put_alone(
        &mut self,
        piece: &Piece,
        turn: &mut Turn,
    ) -> Result<Option<(Piece, Trouble)>, TaskFailure> {
        if self.is_lost(piece.flight) {
            return Ok(None);
        }
        self.shared
            .metrics
            .retries
            .add(usize::from(self.was_tried(piece)));
        let piece = &self.convert(piece.clone());
        let said = self.put(piece).await?;
        let unflushed = self.unflushed(piece.flight);
        let flushed = self.flush(turn).await?;
        let (failed, trouble) = match (said, flushed) {
            (Said::Failed(trouble), _) => (piece.clone(), trouble),
            (_, Said::Failed(trouble)) => (unflushed, trouble),
            (Said::CutOff, _) | (_, Said::CutOff) => {
                turn.is_over = true;
                return Ok(None);
            }
            (Said::Answered, Said::Answered) => {
                self.note_answers(piece, turn);
                return Ok(None);
            }
        };
        self.note_failed(&failed, &trouble, turn);
        Ok(Some((failed, trouble)))
    }

    fn is_lost(&self, flight: usize) -> bool {
        let held = self.held.get(flight);
        held.is_none_or(|held| held.batch.lock() == LockLeft::Lost)
    }

    /// What of a flight was put and not flushed.
    fn unflushed(&self, flight: usize) -> Piece {
        let held = self.held.get(flight);
        Piece {
            flight,
            indexes: held.map(Flight::unflushed).unwrap_or_default(),
        }
    }

    /// Repeats a put that failed as a whole in halves, until the records to blame stand alone.
    async fn take_apart(
        &mut self,
        piece: Piece,
        trouble: &Trouble,
        turn: &mut Turn,
    ) -> Result<(), TaskFailure> {
        let is_fatal = trouble.tried == Tried::Fatal;
        let one_is_enough = self.settings.failures.tolerance == Tolerance::None && is_fatal;
        let mut failed = vec![(piece, trouble.clone())];
        while let Some((piece, trouble)) = failed.pop() {
            if piece.len() < 2 {
                turn.is_over |= one_is_enough;
                continue;
            }
            let halves = piece.halves();
            if trouble.after.is_some() {
                // Not now: the halves are put when the target wants them.
                self.part(&halves);
                continue;
            }
            let mut again = Vec::new();
            for half in halves {
                if self.stopping() || !turn.goes_on() {
                    return Ok(());
                }
                again.extend(self.put_alone(&half, turn).await?);
            }
            failed.extend(again.into_iter().rev());
        }
        Ok(())
    }

    /// From now on each of these is a piece of its own.
    fn part(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            if let Some(flight) = self.held.get_mut(piece.flight) {
                flight.part(&piece.indexes);
            }
        }
    }

    /// Puts one more of the records that are held, to see whether the target is back.
    async fn probe(&mut self, turn: &mut Turn) -> Result<(), TaskFailure> {
        let Some((number, index)) = self.next_probe() else {
            return Ok(());
        };
        let Some(flight) = self.held.iter().position(|held| held.number == number) else {
            return Ok(());
        };
        self.probed = (number, index);
        self.common.lock().probes += 1;
        let before = self.held.get(flight).map(Flight::mark);
        self.put_alone(&single(flight, index), turn).await?;
        // A probe that failed says nothing of its record.
        if let (Some(held), Some(before)) = (self.held.get_mut(flight), before)
            && held.may_be_put_again(index)
        {
            held.reset(before);
        }
        Ok(())
    }

    /// The next record in turn.
    fn next_probe(&self) -> Option<(u64, usize)> {
        let held = self.held.iter();
        let held = held.filter(|flight| flight.batch.lock() != LockLeft::Lost);
        let places: Vec<_> = held.flat_map(Flight::to_be_put).collect();
        let next = places.iter().find(|place| **place > self.probed);
        next.or_else(|| places.first()).copied()
    }

    fn was_tried(&self, piece: &Piece) -> bool {
        let first = piece.indexes.first();
        let flight = self.held.get(piece.flight);
        flight
            .zip(first)
            .is_some_and(|(flight, first)| flight.was_tried(first.start))
    }

    /// Puts a piece once, and notes what became of it.
    async fn put(&mut self, piece: &Piece) -> Result<Said, TaskFailure> {
        let flight = self.held.get(piece.flight);
        let Some(flight) = flight.filter(|_| piece.len() > 0) else {
            return Ok(Said::Answered);
        };
        let batch = flight.select(piece.indexes.clone());
        let lock = flight.batch.lock_duration();
        self.sink.context.note_lock_duration(lock);
        let (described, records) = (batch.describe(), batch.len());
        let outcomes = Outcomes::of(&batch);
        let sender = outcomes.sender();
        let what = format!("put of {described}");
        self.watch.began(what.clone(), Some(outcomes.progress()));
        let started = Instant::now();
        let Self {
            sink,
            control,
            source,
            shared,
            held,
            watch,
            ..
        } = self;
        let put = call(
            || sink.task.put(batch, &sender),
            control,
            PUT_RESERVE,
            || shared.publish(source.snapshot()),
        );
        let its_lock = held.get(piece.flight..=piece.flight).unwrap_or_default();
        let stalled = (&*watch, locks_over(its_lock));
        // What was not put yet may lose its lock meanwhile: nothing of it is at the target.
        let at_work = held.iter().enumerate();
        let at_work = at_work.filter(|(number, held)| *number == piece.flight || !held.is_fresh());
        let at_work: Vec<_> = at_work.map(|(_, held)| held).collect();
        let ended = within_locks(&at_work, (PUT_LOCK_PARTS, Some(&outcomes)), stalled, put).await;
        let time = started.elapsed();
        self.put_time = self.put_time.mul_f64(0.95).max(time);
        self.shared.metrics.put_ended(records, time);
        let stalled = self.watch.ended();
        let trouble = match self.read(&what, ended) {
            Ok(trouble) => trouble,
            Err(failure) => {
                self.note_panicked(piece, &failure);
                return Err(failure);
            }
        };
        let as_one = self.note_put(piece, trouble.as_ref(), &outcomes);
        let failure = stalled.err().or_else(|| broken(trouble.as_ref()));
        if let Some(failure) = failure {
            // What was written all the same is accepted.
            self.flush(&mut Turn::default()).await?;
            return Err(TaskFailure::new(failure));
        }
        Ok(match trouble {
            Some(trouble) if trouble.kind == TroubleKind::CutOff => Said::CutOff,
            Some(trouble) if as_one => Said::Failed(trouble),
            Some(_) | None => Said::Answered,
        })
    }

    /// Notes what became of a put's records. The answer: whether it failed without a word of single ones.
    fn note_put(&mut self, piece: &Piece, trouble: Option<&Trouble>, outcomes: &Outcomes) -> bool {
        let now = self.now();
        let Some(flight) = self.held.get_mut(piece.flight) else {
            return false;
        };
        let outcomes = outcomes.take();
        let said_more = outcomes.is_some();
        let as_one = flight.note_put(&piece.indexes, trouble, outcomes, now);
        if trouble.is_some() || said_more && flight.has_failed(&piece.indexes) {
            self.shared.metrics.put_failed();
        }
        self.note_errant();
        as_one
    }

    /// Nobody knows what was written before a put panicked.
    fn note_panicked(&mut self, piece: &Piece, failure: &TaskFailure) {
        let now = self.now();
        if let Some(flight) = self.held.get_mut(piece.flight) {
            flight.note_failed(&piece.indexes, &Trouble::panicked(&failure.text), now);
        }
    }

    /// What a call said, if it failed.
    fn read(&self, what: &str, ended: Ended<PutError>) -> Result<Option<Trouble>, TaskFailure> {
        let error = match ended {
            Ended::Returned(Ok(())) => return Ok(None),
            Ended::Returned(Err(error)) => error,
            Ended::CutOff => return Ok(Some(Trouble::cut_off(what))),
            Ended::Panicked(text) => {
                self.shared.metrics.put_failed();
                return Err(TaskFailure::panicked(format!("{what} panicked: {text}")));
            }
        };
        let why = Arc::from(format!("{what} failed: {}", chain(&error)));
        let (tried, after, kind) = match error {
            PutError::Retriable { after, .. } => {
                let asked = after.or_else(|| self.sink.context.wishes().take_timeout());
                (Tried::Later, asked, TroubleKind::Answer)
            }
            PutError::Fatal { .. } => (Tried::Fatal, None, TroubleKind::Answer),
            // What it had written it has reported.
            PutError::Broken { .. } => (Tried::Later, None, TroubleKind::Broken),
        };
        Ok(Some(Trouble {
            tried,
            why,
            after,
            kind,
        }))
    }

    /// Flushes what several batches share. If that fails, each is put again by itself.
    async fn flush_shared(&mut self, turn: &mut Turn) -> Result<(), TaskFailure> {
        let pieces = (0..self.held.len()).map(|flight| self.unflushed(flight));
        let mut pieces: Vec<_> = pieces.filter(|piece| !piece.indexes.is_empty()).collect();
        let trouble = match self.flush(turn).await? {
            Said::Answered => return Ok(()),
            Said::CutOff => {
                turn.is_over = true;
                return Ok(());
            }
            Said::Failed(trouble) => trouble,
        };
        if let [_] = pieces.as_slice()
            && let Some(piece) = pieces.pop()
        {
            self.note_failed(&piece, &trouble, turn);
            return self.take_apart(piece, &trouble, turn).await;
        }
        for piece in pieces {
            if trouble.after.is_some() || self.stopping() || !turn.goes_on() {
                break;
            }
            self.put_apart(piece, turn).await?;
        }
        Ok(())
    }

    /// Flushes if anything was put, and accepts it.
    async fn flush(&mut self, turn: &mut Turn) -> Result<Said, TaskFailure> {
        if self.held.iter().all(|held| held.unflushed().is_empty()) {
            return Ok(Said::Answered);
        }
        let what = format!("flush after {}", describe(&self.held));
        self.watch.began(what.clone(), None);
        let started = Instant::now();
        let Self {
            sink,
            control,
            source,
            shared,
            held,
            watch,
            ..
        } = self;
        let flush = call(
            || sink.task.flush(),
            control,
            FLUSH_RESERVE,
            || shared.publish(source.snapshot()),
        );
        let stalled = (&*watch, locks_over(held));
        let at_work: Vec<_> = held.iter().filter(|held| !held.is_fresh()).collect();
        let ended = within_locks(&at_work, (FLUSH_LOCK_PARTS, None), stalled, flush).await;
        self.put_time = self.put_time.max(started.elapsed());
        let stalled = self.watch.ended();
        let trouble = self.read(&what, ended)?;
        self.note_errant();
        match &trouble {
            None => self.accept_flushed(turn),
            Some(trouble) => self.note_flush_failed(trouble),
        }
        if let Some(failure) = stalled.err().or_else(|| broken(trouble.as_ref())) {
            return Err(TaskFailure::new(failure));
        }
        Ok(match trouble {
            None => Said::Answered,
            Some(trouble) if trouble.kind == TroubleKind::CutOff => Said::CutOff,
            Some(trouble) => Said::Failed(trouble),
        })
    }

    /// What was put since the last flush is to be put again.
    fn note_flush_failed(&mut self, trouble: &Trouble) {
        self.shared.metrics.put_failed();
        let now = self.now();
        for flight in &mut self.held {
            let indexes = flight.unflushed();
            flight.note_failed(&indexes, trouble, now);
        }
    }

    /// Accepts what was flushed, or reports it where its lock is gone.
    fn accept_flushed(&mut self, turn: &mut Turn) {
        let mut written = 0;
        for flight in &mut self.held {
            let lost = flight.batch.lock() == LockLeft::Lost;
            for indexes in flight.take_flushed() {
                written += indexes.len();
                if lost {
                    let metrics = &self.shared.metrics;
                    metrics.duplicates_expected.add(indexes.len());
                    tracing::warn!(
                        task = self.settings.name,
                        records = %flight.select(vec![indexes.clone()]).describe(),
                        "Records were written, but their lock was lost before: they will be delivered again."
                    );
                }
                // The source sends nothing for what is lost, only for what it still holds.
                flight.settle(indexes, Settle::Accept);
            }
        }
        if written == 0 {
            return;
        }
        self.put_max = self.put_max.saturating_add(self.put_max / 8 + 1);
        self.shared.metrics.records_written.add(written);
        self.shared.metrics.failures_in_a_row.set(0);
        turn.wrote = true;
        turn.troubles = 0;
        let outage = self.common.lock().wrote(written);
        if let Some(outage) = outage {
            self.log_target_is_back(outage);
            self.begin_anew_after_outage();
        }
    }

    fn log_target_is_back(&self, outage: Duration) {
        tracing::info!(
            task = self.settings.name,
            held = self.common.lock().records_held(),
            outage_ms = u64::try_from(outage.as_millis()).unwrap_or(u64::MAX),
            "The target takes records again."
        );
    }

    /// What failed while the target was down is put again, as if it had not failed before.
    pub(super) fn begin_anew_after_outage(&mut self) {
        let outage = self.common.lock().outage_since(&mut self.outages_seen);
        if let Some(outage) = outage {
            let failures = self.held.iter_mut().flat_map(Flight::failures_mut);
            failures.for_each(|failure| failure.begin_anew(outage));
        }
    }

    /// Records that the task has reported as errant are refused.
    fn note_errant(&mut self) {
        let now = self.now();
        for errant in self.sink.context.wishes().take_errant() {
            for flight in &mut self.held {
                let (topic, partition, _) = flight.end();
                if *topic == errant.topic
                    && partition == errant.partition
                    && let Some(index) = flight.unflushed_at(errant.offset)
                {
                    let (topic, partition) = (&errant.topic, errant.partition);
                    let place = format!("{topic}-{partition} offset {}", errant.offset);
                    flight.refuse(index, format!("{place}: {}", errant.error).into(), now);
                }
            }
        }
    }

    /// Tells the breaker of a put that failed as a whole.
    fn note_failed(&mut self, piece: &Piece, trouble: &Trouble, turn: &mut Turn) {
        if trouble.tried == Tried::Fatal {
            return;
        }
        let indexes = piece.indexes.clone();
        self.tell_breaker(piece.flight, indexes, turn);
    }

    /// Tells the breaker of a put of which the sink said that it wrote nothing.
    fn note_answers(&mut self, piece: &Piece, turn: &mut Turn) {
        let Some(flight) = self.held.get(piece.flight) else {
            return;
        };
        if let Some(failed) = flight.all_failed(&piece.indexes) {
            for index in failed {
                self.tell_breaker(piece.flight, one(index), turn);
            }
        }
    }

    fn tell_breaker(&mut self, flight: usize, indexes: Vec<Range<usize>>, turn: &mut Turn) {
        let Some(flight) = self.held.get(flight) else {
            return;
        };
        let offsets = indexes
            .iter()
            .map(|range| (flight.offset(range.start), flight.offset(range.end - 1)));
        let failed = Failed {
            batch: flight.number,
            offsets: offsets.collect(),
        };
        let failed_before = self.common.lock().breaker.failed(failed, self.turn_began);
        if failed_before {
            turn.troubles += 1;
        }
    }

    pub(super) fn now(&self) -> Now {
        Now {
            at: Instant::now(),
            written: self.common.lock().written,
            turn: self.turns,
        }
    }
}

/// Why the task fails, if the sink can't go on.
fn broken(trouble: Option<&Trouble>) -> Option<String> {
    let broken = trouble.filter(|trouble| trouble.kind == TroubleKind::Broken);
    broken.map(|trouble| trouble.why.to_string())
}

fn single(flight: usize, index: usize) -> Piece {
    Piece {
        flight,
        indexes: one(index),
    }
}

fn describe<B: SourceBatch>(flights: &[Flight<B>]) -> String {
    let put = flights
        .iter()
        .map(|flight| flight.select(flight.unflushed()))
        .filter(|batch| !batch.is_empty());
    let (mut parts, mut more) = (Vec::new(), 0);
    for batch in put {
        if parts.len() < BATCHES_DESCRIBED_MAX {
            parts.push(batch.describe());
        } else {
            more += 1;
        }
    }
    let and_more = if more > 0 {
        format!(" and {more} batches more")
    } else {
        String::new()
    };
    format!("{}{and_more}", parts.join(", "))
}

/// Most records that a turn takes in before it flushes.
const ROUND_RECORDS_MAX: usize = 10_000;
/// Longest time a turn takes in batches before it flushes.
const ROUND_TIME_MAX: Duration = Duration::from_millis(200);
/// How often the target may seem to be down, with nothing written between, in a turn that wrote before.
const TROUBLES_MAX: u32 = 5;
/// Fifths of the budget for stopping that a put leaves to the flush and to leaving the group.
const PUT_RESERVE: u32 = 2;
/// Fifths of the budget for stopping that a flush leaves to leaving the group.
const FLUSH_RESERVE: u32 = 1;
const BATCHES_DESCRIBED_MAX: usize = 4;
