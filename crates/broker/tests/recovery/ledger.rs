//! What clients were told, and whether the broker stands by it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard};

/// Partition and offset of a record.
pub(crate) type At = (i32, i64);

/// Where a record stands as far as its consumers know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// A member has it.
    Held,
    /// This member has sent an acknowledgement and no answer has come.
    Asked(u64),
    /// It was accepted or rejected.
    Settled,
    /// It was released after so many deliveries.
    Released(i16),
}

/// All that was told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Where records went that were acknowledged, by their value.
    pub(crate) produced: BTreeMap<String, At>,
    /// Records of transactions that were aborted, and were said to be.
    pub(crate) aborted: BTreeSet<At>,
    /// Records that consumers have met.
    pub(crate) records: BTreeMap<At, Known>,
    /// Producer ids that were given away.
    pub(crate) producer_ids: BTreeSet<i64>,
    /// The next offset of the topic that forgets.
    pub(crate) churn_end: i64,
    /// Answers of any kind.
    pub(crate) answers: u64,
    /// Deliveries of records that were released before.
    pub(crate) delivered_again: u64,
    /// What must not be.
    pub(crate) violations: Vec<String>,
}

/// Shared by all clients.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    told: Mutex<Told>,
    progress: Condvar,
}

impl Ledger {
    pub(crate) fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap()
    }

    /// An answer came.
    pub(crate) fn answered(&self, note: impl FnOnce(&mut Told)) {
        let mut told = self.told();
        note(&mut told);
        told.answers += 1;
        self.progress.notify_all();
    }

    /// Waits until so many answers have come.
    pub(crate) fn wait_for(&self, answers: u64) {
        let told = self.told();
        drop(
            self.progress
                .wait_while(told, |told| told.answers < answers)
                .unwrap(),
        );
    }
}

impl Told {
    /// A member was given a record.
    pub(crate) fn delivered(&mut self, at: At, delivery_count: i16) {
        match self.records.insert(at, Known::Held) {
            Some(Known::Settled) => {
                self.violations
                    .push(format!("{at:?} is settled and came again"));
            }
            Some(Known::Released(before)) => {
                self.delivered_again += 1;
                if delivery_count <= before {
                    self.violations.push(format!(
                        "{at:?} was delivered {before} times, and again as number {delivery_count}"
                    ));
                }
            }
            _ => {}
        }
        if self.aborted.contains(&at) {
            self.violations
                .push(format!("{at:?} was aborted and delivered"));
        }
    }

    /// A member's acknowledgement was answered.
    pub(crate) fn acknowledged(&mut self, at: At, member: u64, becomes: Known) {
        let known = self.records.get(&at).copied();
        if known == Some(Known::Asked(member)) {
            self.records.insert(at, becomes);
        } else if becomes == Known::Settled {
            self.violations.push(format!(
                "{at:?} was settled, and somebody else had it: {known:?}"
            ));
        }
    }
}
