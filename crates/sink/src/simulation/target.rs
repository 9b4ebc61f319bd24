//! A sink, and the target that it writes to.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};

use sharegroup_testkit::random::Random;
use tokio::time::{Duration, Instant, sleep};

use super::script::{Script, SinkScript};
use crate::config::ConnectorConfig;
use crate::connector::{Connector, DynSinkTask, SinkTask, TaskContext};
use crate::error::{PutError, TaskError};
use crate::outcome::OutcomeSender;
use crate::record::SinkBatch;

/// What a sink says when it panics.
pub(super) const PANIC: &str = "the sink panics, as its script has it";

/// Partition and offset.
pub(super) type Place = (i32, i64);

/// A mistake, to see that the judge finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Planted {
    /// The target forgets a record that it has taken.
    ForgetsOne,
    /// The target has a record twice.
    WritesTwice,
    /// A dead letter is gone.
    KeepsNoLetter,
}

/// A write that is durable.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write {
    pub(super) at: Instant,
    pub(super) place: Place,
}

/// What all workers of a run write to.
#[derive(Debug, Clone)]
pub(super) struct Target(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    script: SinkScript,
    lock: Duration,
    random: Random,
    seed: u64,
    down_until: Option<Instant>,
    /// From now on it takes everything but what it refuses for ever.
    healed: bool,
    /// Workers that were killed: nothing of theirs arrives any more.
    dead: BTreeSet<usize>,
    writes: Vec<Write>,
    tries: BTreeMap<Place, u32>,
    planted: Option<Planted>,
    seen: Seen,
}

/// What the sinks did.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) puts: u64,
    pub(super) failed: u64,
    pub(super) hung: u64,
    pub(super) never_returned: u64,
    pub(super) panicked: u64,
    pub(super) refused: u64,
    pub(super) down: u64,
}

/// How a flush ends.
type Flushed = Result<(), PutError>;

/// What becomes of a put.
enum Fate {
    Writes,
    Fails,
    Down,
    Hangs(Duration),
    NeverReturns,
    Panics,
}

impl Target {
    pub(super) fn new(script: &Script) -> Self {
        Self(Arc::new(Mutex::new(State {
            script: script.sink.clone(),
            lock: script.lock,
            random: Random::of(script.seed, 5),
            seed: script.seed,
            down_until: None,
            healed: false,
            dead: BTreeSet::new(),
            writes: Vec::new(),
            tries: BTreeMap::new(),
            planted: script.planted,
            seen: Seen::default(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(super) fn down(&self, time: Duration) {
        self.state().down_until = Some(Instant::now() + time);
    }

    pub(super) fn heal(&self) {
        let mut state = self.state();
        state.healed = true;
        state.down_until = None;
    }

    pub(super) fn kill(&self, worker: usize) {
        self.state().dead.insert(worker);
    }

    pub(super) fn writes(&self) -> Vec<Write> {
        self.state().writes.clone()
    }

    pub(super) fn seen(&self) -> Seen {
        self.state().seen
    }

    /// Whether it refuses this record for ever.
    pub(super) fn is_poison(&self, place: Place) -> bool {
        self.state().is(place, 0, |script| script.poison)
    }
}

impl State {
    /// Whether a record is one of so many of a thousand.
    fn is(
        &self,
        (partition, offset): Place,
        salt: u64,
        share: impl Fn(&SinkScript) -> u64,
    ) -> bool {
        let number = (u64::from(partition.unsigned_abs()) << 32) ^ offset.unsigned_abs();
        let mut random = Random::of(self.seed ^ (salt << 56), number);
        random.below(1000) < share(&self.script)
    }

    fn fate(&mut self) -> Fate {
        self.seen.puts += 1;
        if self.down_until.is_some_and(|until| Instant::now() < until) {
            self.seen.down += 1;
            return Fate::Down;
        }
        if self.healed {
            return Fate::Writes;
        }
        let mut left = self.random.below(1000);
        let mut falls = |share: u64| {
            let falls = left < share;
            left = left.saturating_sub(share);
            falls
        };
        if falls(self.script.fails) {
            self.seen.failed += 1;
            Fate::Fails
        } else if falls(self.script.hangs) {
            self.seen.hung += 1;
            Fate::Hangs(self.random.duration(self.lock / 4, 4 * self.lock))
        } else if falls(self.script.never_returns) {
            self.seen.never_returned += 1;
            Fate::NeverReturns
        } else if falls(self.script.panics) {
            self.seen.panicked += 1;
            Fate::Panics
        } else {
            Fate::Writes
        }
    }

    /// What was taken becomes durable. `None`: nobody ever hears of it.
    fn flush(&mut self, worker: usize, taken: Vec<Place>, fails: bool) -> Option<Flushed> {
        if self.dead.contains(&worker) {
            return None;
        }
        if fails {
            return Some(Err(PutError::retriable("a flush that fails")));
        }
        let at = Instant::now();
        for place in taken {
            self.writes.push(Write { at, place });
            match self.planted {
                Some(Planted::ForgetsOne) => drop(self.writes.pop()),
                Some(Planted::WritesTwice) => self.writes.push(Write { at, place }),
                _ => continue,
            }
            self.planted = None;
        }
        Some(Ok(()))
    }

    fn time(&mut self, most: Duration) -> Duration {
        self.random.duration(Duration::ZERO, most)
    }
}

/// A task of one worker.
struct TroubledSink {
    target: Target,
    worker: usize,
    /// Taken, and not durable.
    buffer: Vec<Place>,
}

impl SinkTask for TroubledSink {
    async fn put(&mut self, batch: SinkBatch, outcomes: &OutcomeSender) -> Result<(), PutError> {
        let (fate, time, is_dead) = {
            let mut state = self.target.state();
            let most = state.script.put_max;
            (
                state.fate(),
                state.time(most),
                state.dead.contains(&self.worker),
            )
        };
        sleep(time).await;
        match fate {
            _ if is_dead => pending().await,
            Fate::Fails => return Err(PutError::retriable("a put that fails")),
            Fate::Down => return Err(PutError::retriable("the target is down")),
            Fate::Hangs(time) => sleep(time).await,
            Fate::NeverReturns => pending().await,
            Fate::Panics => panic!("{PANIC}"),
            Fate::Writes => {}
        }
        self.take(&batch, outcomes)
    }

    async fn flush(&mut self) -> Result<(), PutError> {
        let (time, fails) = {
            let mut state = self.target.state();
            let most = state.script.flush_max;
            let time = state.time(most);
            let fails = state.random.below(1000) < state.script.flush_fails && !state.healed;
            (time, fails)
        };
        sleep(time).await;
        let buffer = std::mem::take(&mut self.buffer);
        let flushed = self.target.state().flush(self.worker, buffer, fails);
        match flushed {
            Some(flushed) => flushed,
            None => pending().await,
        }
    }
}

impl TroubledSink {
    /// Takes what the target will have, record by record or as a whole.
    fn take(&mut self, batch: &SinkBatch, outcomes: &OutcomeSender) -> Result<(), PutError> {
        let mut state = self.target.state();
        let places: Vec<Place> = batch.records().map(|r| (r.partition, r.offset)).collect();
        let healed = state.healed;
        let mut taken = Vec::new();
        for place in places {
            if state.is(place, 0, |script| script.poison) {
                state.seen.refused += 1;
                if state.script.whole {
                    return Err(PutError::fatal("a record that the target refuses"));
                }
                outcomes.refused(place.1, "the target refuses it");
                continue;
            }
            let later = state.is(place, 1, |script| script.later);
            let unknown = state.is(place, 2, |script| script.unknown);
            let tries = state.tries.entry(place).or_default();
            *tries += 1;
            let is_early = *tries <= 3 && !healed && (later || unknown);
            if is_early && state.script.whole {
                return Err(PutError::retriable(
                    "a record that the target can't take yet",
                ));
            }
            if is_early && later {
                outcomes.later(place.1, "the target can't take it yet");
                continue;
            }
            taken.push(place);
            if is_early {
                outcomes.unknown(place.1, "no answer");
            } else if !state.script.whole {
                outcomes.written(place.1);
            }
        }
        self.buffer.extend(taken);
        Ok(())
    }
}

/// Makes the tasks of one worker.
#[derive(Debug, Clone)]
pub(super) struct TroubledConnector {
    pub(super) target: Target,
    pub(super) worker: usize,
}

impl Connector for TroubledConnector {
    fn name(&self) -> &'static str {
        "troubled"
    }

    fn is_concurrent(&self) -> bool {
        true
    }

    fn task(
        &self,
        _: &ConnectorConfig,
        _: &TaskContext,
    ) -> Result<Box<dyn DynSinkTask>, TaskError> {
        Ok(Box::new(TroubledSink {
            target: self.target.clone(),
            worker: self.worker,
            buffer: Vec::new(),
        }))
    }
}
