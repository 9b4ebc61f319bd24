//! What runs met.

use std::collections::BTreeMap;
use std::fmt;

use sharegroup_session::AckFailure;
use sharegroup_wire::ErrorCode;

use super::script::Step;

/// Counts of what a run, or many, met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Things that happened.
    pub events: u64,
    /// Offsets produced.
    pub records: u64,
    /// Deliveries granted.
    pub deliveries: u64,
    /// ShareFetch requests.
    pub fetches: u64,
    /// ShareAcknowledge requests.
    pub acknowledges: u64,
    /// Answers that throttle.
    pub throttled: u64,
    /// Steps taken, by name.
    pub steps: BTreeMap<String, u64>,
    /// Error codes of answers and of their partitions.
    pub errors: BTreeMap<String, u64>,
    /// Why acknowledgements and locks were lost.
    pub failures: BTreeMap<String, u64>,
}

impl Tally {
    pub(super) fn step(&mut self, step: &Step) {
        *self.steps.entry(step.name()).or_default() += 1;
    }

    pub(super) fn met(&mut self, error: ErrorCode) {
        if !error.is_none() {
            *self.errors.entry(error.to_string()).or_default() += 1;
        }
    }

    pub(super) fn failed(&mut self, failure: AckFailure) {
        *self.failures.entry(failure.to_string()).or_default() += 1;
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.records += other.records;
        self.deliveries += other.deliveries;
        self.fetches += other.fetches;
        self.acknowledges += other.acknowledges;
        self.throttled += other.throttled;
        let tables = [
            (&mut self.steps, &other.steps),
            (&mut self.errors, &other.errors),
            (&mut self.failures, &other.failures),
        ];
        for (own, others) in tables {
            for (name, count) in others {
                *own.entry(name.clone()).or_default() += count;
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            records,
            deliveries,
            fetches,
            acknowledges,
            throttled,
            ..
        } = self;
        writeln!(
            f,
            "{records} records, {deliveries} deliveries, {fetches} ShareFetch, {acknowledges} ShareAcknowledge, {throttled} answers throttled"
        )?;
        let tables = [
            ("steps", &self.steps),
            ("errors", &self.errors),
            ("failed", &self.failures),
        ];
        for (title, table) in tables {
            let entries = table.iter().map(|(name, count)| format!("{name} {count}"));
            let entries: Vec<String> = entries.collect();
            writeln!(f, "{title}: {}", entries.join(", "))?;
        }
        Ok(())
    }
}
