//! What the destination has to hold, by what the sink promises.

use std::collections::{BTreeMap, BTreeSet};

use super::report::{Checked, Ended};
use super::target::{Arrived, Delivery, Recipe};

/// How often each record is in the destination.
#[derive(Clone, Debug, Default)]
pub(super) struct Found(BTreeMap<u64, u64>);

impl Found {
    pub(super) fn new(arrived: Vec<Arrived>) -> Self {
        let mut found = BTreeMap::new();
        for Arrived { number, times } in arrived {
            *found.entry(number).or_default() += times;
        }
        Self(found)
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.times(number) > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.values().all(|times| *times == 0)
    }

    fn times(&self, number: u64) -> u64 {
        self.0.get(&number).copied().unwrap_or(0)
    }

    /// Whether `written` was written as promised; `written` is in the order of offsets.
    pub(super) fn judge(&self, delivery: Delivery, written: &[Recipe]) -> Checked {
        let wanted = wanted(delivery, written);
        let missing = wanted.iter().filter(|number| !self.has(**number));
        complain(
            "every record that was accepted is in the destination",
            "records are missing",
            missing.copied().collect(),
        )?;
        let numbers: BTreeSet<u64> = written.iter().map(|recipe| recipe.number).collect();
        let is_foreign = |number: &&u64| !numbers.contains(*number) && self.has(**number);
        let foreign = self.0.keys().filter(is_foreign);
        complain(
            "nothing but what was put is in the destination",
            "there are records that nobody put",
            foreign.copied().collect(),
        )?;
        if delivery == Delivery::AtLeastOnce {
            return Ok(());
        }
        let older = numbers.difference(&wanted);
        complain(
            "of each key only the record with the highest offset is in the destination (idempotent by key)",
            "older records are there",
            older.filter(|number| self.has(**number)).copied().collect(),
        )?;
        let doubled = wanted.iter().filter(|number| self.times(**number) > 1);
        complain(
            "each record is in the destination once (idempotent)",
            "records are there more than once",
            doubled.copied().collect(),
        )
    }
}

fn complain(promised: &str, seen: &str, records: Vec<u64>) -> Checked {
    if records.is_empty() {
        return Ok(());
    }
    let seen = format!("{}: {seen}", records.len());
    Err(Ended::broken(promised, seen).about(records))
}

/// The records that have to be there.
fn wanted(delivery: Delivery, written: &[Recipe]) -> BTreeSet<u64> {
    if delivery != Delivery::IdempotentByKey {
        return written.iter().map(|recipe| recipe.number).collect();
    }
    let last: BTreeMap<u64, u64> = written
        .iter()
        .map(|recipe| (recipe.key, recipe.number))
        .collect();
    last.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(numbers: &[u64]) -> Found {
        let arrived = numbers.iter().map(|&number| Arrived { number, times: 1 });
        Found::new(arrived.collect())
    }

    /// Four records of two keys.
    fn written() -> Vec<Recipe> {
        let keyed = |number| Recipe {
            key: number % 2,
            ..Recipe::of(number)
        };
        (0..4).map(keyed).collect()
    }

    /// The records that a judgement names; none where all is well.
    fn blamed(found: &[u64], delivery: Delivery) -> Vec<u64> {
        match self::found(found).judge(delivery, &written()) {
            Ok(()) => Vec::new(),
            Err(Ended::Broken(broken)) => broken.records,
            Err(Ended::Skipped(why)) => unreachable!("{why}"),
        }
    }

    #[test]
    fn what_may_be_missing_older_or_doubled_is_up_to_the_promise() {
        for (found, delivery, expected) in [
            (&[0, 1, 2, 3, 3][..], Delivery::AtLeastOnce, &[][..]),
            (&[0, 2, 3], Delivery::AtLeastOnce, &[1]),
            (&[0, 1, 2, 3, 7], Delivery::AtLeastOnce, &[7]),
            (&[0, 1, 2, 3], Delivery::IdempotentById, &[]),
            (&[0, 1, 2, 2, 3], Delivery::IdempotentById, &[2]),
            (&[2, 3], Delivery::IdempotentByKey, &[]),
            (&[1, 2, 3], Delivery::IdempotentByKey, &[1]),
            (&[2], Delivery::IdempotentByKey, &[3]),
            (&[2, 3, 3], Delivery::IdempotentByKey, &[3]),
        ] {
            assert_eq!(blamed(found, delivery), expected, "{found:?} {delivery:?}");
        }
    }
}
