//! What the lanes of a task have in common.
//!
//! They write to one target, so one breaker tells whether it is down, and whatever one of them writes closes
//! it; and they share one consumer, so they have one word on what it acquires. A task of one lane has all of this for
//! itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Control;
use super::breaker::Breaker;
use super::settings::FailureSettings;
use super::telling::Telling;
use crate::source::RecordSource;

#[derive(Debug)]
pub(super) struct Common {
    state: Mutex<State>,
    /// Told once a lane can't go on: the task ends.
    failing: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) breaker: Breaker,
    /// Probes that failed since the target is down and the last record came.
    pub(super) probes: usize,
    /// Number of the last flight.
    flights: u64,
    /// Records written so far, and when the last of them were.
    pub(super) written: u64,
    pub(super) written_at: Option<Instant>,
    /// Highest offset seen of each partition.
    ends: BTreeMap<(Arc<str>, i32), i64>,
    /// How the source has been told to acquire.
    acquiring: Acquiring,
    lanes: Vec<LaneState>,
    /// How often the target came back, and how long it was away then.
    outages: (u64, Duration),
    /// Number of the last probe.
    last_probe: u64,
    /// Whether a failure of the task has been told.
    failure_is_told: bool,
    /// What is said of records that aren't written.
    pub(super) telling: Telling,
}

/// What one lane adds.
#[derive(Clone, Debug, Default)]
struct LaneState {
    /// Records it holds.
    held: usize,
    /// Its sink wants nothing new.
    is_paused: bool,
    /// It waits for something to do.
    is_idle: bool,
    /// Number of the last probe that it made.
    last_probe: u64,
}

/// What is acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acquiring {
    Nothing,
    /// One record more than is held, to see whether the target would take it.
    One,
    Freely,
    /// The task ends.
    NothingAnyMore,
}

impl Common {
    pub(super) fn new(lanes: usize, settings: &FailureSettings) -> Self {
        Self {
            state: Mutex::new(State {
                breaker: Breaker::new(settings.breaker_failures, settings.breaker_probe),
                probes: 0,
                flights: 0,
                written: 0,
                written_at: None,
                ends: BTreeMap::new(),
                acquiring: Acquiring::Freely,
                lanes: vec![LaneState::default(); lanes],
                outages: (0, Duration::ZERO),
                last_probe: 0,
                failure_is_told: false,
                telling: Telling::default(),
            }),
            failing: Notify::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Each write under the lock is whole, so a poisoned lock guards good data.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lane can't go on.
    pub(super) fn fail(&self) {
        self.failing.notify_one();
    }

    /// Whether this is the first failure of the task: lanes often fail together, for the same reason, and what fails
    /// behind the first is rarely of use.
    pub(super) fn tells_failure(&self) -> bool {
        !std::mem::replace(&mut self.lock().failure_is_told, true)
    }

    /// Waits until a lane can't go on. Cancel-safe.
    pub(super) async fn failing(&self) {
        self.failing.notified().await;
    }
}

impl State {
    /// The number of the next flight of any lane.
    pub(super) fn next_flight(&mut self) -> u64 {
        self.flights += 1;
        self.flights
    }

    /// A batch of so many records, which end there, came to a lane.
    pub(super) fn arrived(
        &mut self,
        lane: usize,
        records: usize,
        (topic, partition, end): (&Arc<str>, i32, i64),
    ) {
        self.probes = 0;
        let known = self.ends.entry((Arc::clone(topic), partition));
        let known = known.or_insert(end);
        *known = end.max(*known);
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.held += records;
        }
    }

    /// Highest offset seen of a partition.
    pub(super) fn end(&self, topic: &Arc<str>, partition: i32) -> Option<i64> {
        self.ends.get(&(Arc::clone(topic), partition)).copied()
    }

    /// A lane holds so many records now.
    pub(super) fn hold(&mut self, lane: usize, records: usize) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.held = records;
        }
    }

    /// Records that all lanes hold.
    pub(super) fn records_held(&self) -> usize {
        self.lanes.iter().map(|lane| lane.held).sum()
    }

    /// So many records were written. The answer: for how long the target was down, if it was.
    pub(super) fn wrote(&mut self, records: usize) -> Option<Duration> {
        self.written += records as u64;
        self.written_at = Some(Instant::now());
        let outage = self.breaker.written()?;
        self.telling.over();
        self.probes = 0;
        self.outages = (self.outages.0 + 1, outage);
        Some(outage)
    }

    /// The outage that is over, if a lane has not `seen` as many.
    pub(super) fn outage_since(&self, seen: &mut u64) -> Option<Duration> {
        let (outages, last) = self.outages;
        (std::mem::replace(seen, outages) != outages).then_some(last)
    }

    /// A lane waits for something to do, or does not any more.
    pub(super) fn idle(&mut self, lane: usize, is_idle: bool) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.is_idle = is_idle;
        }
    }

    /// When a lane is to make the next probe of a target that is down: those that can take turns, so that every
    /// record is one in the end.
    pub(super) fn probe_at(&self, lane: usize) -> Option<Instant> {
        let lanes = self.lanes.iter().enumerate();
        let able =
            lanes.filter(|(number, state)| state.held > 0 && (state.is_idle || *number == lane));
        let next = able.min_by_key(|(_, state)| state.last_probe)?;
        let not_before = self.breaker.not_before();
        not_before.filter(|_| next.0 == lane)
    }

    /// A turn of a lane begins. The answer: whether it is a probe; `None` where another lane makes that.
    pub(super) fn turn_began(&mut self, lane: usize) -> Option<bool> {
        if !self.breaker.is_open() {
            return Some(false);
        }
        if !self.breaker.probe(Instant::now()) {
            return None;
        }
        self.last_probe += 1;
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.last_probe = self.last_probe;
        }
        Some(true)
    }

    /// Whether something new may come: not while the target is in trouble.
    pub(super) fn takes(&self) -> bool {
        if self.breaker.is_open() {
            return self.needs_another_probe();
        }
        let not_before = self.breaker.not_before();
        not_before.is_none_or(|at| at <= Instant::now())
    }

    /// Whether every record that is held has been a probe in vain: perhaps the target is fine, and would
    /// take another one.
    fn needs_another_probe(&self) -> bool {
        self.breaker.is_open() && self.probes >= self.records_held()
    }

    /// Notes whether a lane's sink wants nothing new. The answer: what the task acquires.
    pub(super) fn wanted(&mut self, lane: usize, is_paused: bool, control: Control) -> Acquiring {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.is_paused = is_paused;
        }
        // What is held is tried first; where nothing is, something new has to tell.
        let waits = self.breaker.not_before().is_some() && self.records_held() > 0;
        let in_trouble = !self.takes() || (waits && !self.breaker.is_open());
        let is_paused = self.lanes.iter().any(|lane| lane.is_paused);
        if in_trouble || is_paused || control != Control::Run {
            Acquiring::Nothing
        } else if self.breaker.is_open() {
            Acquiring::One
        } else {
            Acquiring::Freely
        }
    }

    /// Tells the source what to acquire, where that is new.
    pub(super) fn acquire(&mut self, acquiring: Acquiring, source: &mut impl RecordSource) {
        if self.acquiring == acquiring || self.acquiring == Acquiring::NothingAnyMore {
            return;
        }
        self.acquiring = acquiring;
        match acquiring {
            Acquiring::Nothing | Acquiring::NothingAnyMore => source.pause(),
            Acquiring::One => source.acquire_one(),
            Acquiring::Freely => source.resume(),
        }
    }
}
