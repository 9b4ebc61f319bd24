//! Says which records arrived on their last allowed delivery.
//!
//! A broker hands out what has failed before in ever smaller parts, in the end record by record, so that an arrival is
//! no measure for a line: the first one is told at once, what follows within [`INTERVAL`] in one line together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The last deliveries of one task.
#[derive(Debug)]
pub(super) struct LastDeliveries {
    task: String,
    delivery_count_limit: i16,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    told_at: Option<Instant>,
    /// By topic and partition.
    untold: BTreeMap<(Arc<str>, i32), Ranges>,
}

/// First and last offsets.
type Ranges = Vec<(i64, i64)>;

impl LastDeliveries {
    pub(super) fn new(task: &str, delivery_count_limit: i16) -> Self {
        Self {
            task: task.to_owned(),
            delivery_count_limit,
            state: Mutex::default(),
        }
    }

    /// These arrived.
    pub(super) fn arrived(
        &self,
        topic: &Arc<str>,
        partition: i32,
        ranges: impl Iterator<Item = (i64, i64)>,
    ) {
        let mut ranges = ranges.peekable();
        if ranges.peek().is_some() {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let place = (Arc::clone(topic), partition);
            state.untold.entry(place).or_default().extend(ranges);
        }
    }

    /// Says what has not been said, unless a line was written a moment ago.
    pub(super) fn tell_if_due(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_early = state.told_at.is_some_and(|at| at.elapsed() < INTERVAL);
        if !is_early {
            self.tell(&mut state);
        }
    }

    fn tell(&self, state: &mut State) {
        if state.untold.is_empty() {
            return;
        }
        state.told_at = Some(Instant::now());
        let untold = std::mem::take(&mut state.untold);
        let places: Vec<_> = untold
            .iter()
            .map(|((topic, partition), ranges)| {
                format!("{topic}-{partition} offsets {}", list(ranges))
            })
            .collect();
        tracing::warn!(
            task = self.task,
            records = places.join("; "),
            delivery_count_limit = self.delivery_count_limit,
            "Records arrived on their last allowed delivery: if they aren't accepted this time the broker archives them."
        );
    }
}

/// What has not been said by then is said at the end.
impl Drop for LastDeliveries {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let mut state = std::mem::take(state.unwrap_or_else(PoisonError::into_inner));
        self.tell(&mut state);
    }
}

/// `1-5, 9-9 and 3 ranges more`; ranges that touch are one.
fn list(ranges: &[(i64, i64)]) -> String {
    let mut merged: Vec<(i64, i64)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if before.1.saturating_add(1) == *first => before.1 = *last,
            _ => merged.push((*first, *last)),
        }
    }
    let shown = merged.iter().take(RANGES_LISTED_MAX);
    let shown: Vec<_> = shown
        .map(|(first, last)| format!("{first}-{last}"))
        .collect();
    match merged.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} ranges more", shown.join(", ")),
    }
}

/// Shortest time between two lines.
const INTERVAL: Duration = Duration::from_secs(1);
/// Ranges of a partition that one line names.
const RANGES_LISTED_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::testing::Lines;

    #[tokio::test(start_paused = true)]
    async fn records_that_arrive_one_by_one_share_a_line() {
        let lines = Lines::of(Level::WARN);
        let _kept = lines.keep();
        let last = LastDeliveries::new("out-0", 5);
        let (orders, other) = (Arc::from("orders"), Arc::from("other"));
        for offset in 0..1000 {
            last.arrived(&orders, 3, [(offset, offset)].into_iter());
            last.tell_if_due();
        }
        last.arrived(&other, 0, [(7, 9), (11, 11)].into_iter());
        last.arrived(&other, 1, std::iter::empty());
        last.tell_if_due();
        let told = lines.all();
        assert_eq!(told.len(), 1, "{told:#?}");
        assert!(told[0].contains("orders-3 offsets 0-0"), "{told:#?}");
        tokio::time::advance(INTERVAL).await;
        last.tell_if_due();
        last.arrived(&orders, 3, [(2000, 2000)].into_iter());
        last.tell_if_due();
        let told = lines.all();
        assert_eq!(told.len(), 2, "{told:#?}");
        let both = "orders-3 offsets 1-999; other-0 offsets 7-9, 11-11";
        assert!(told[1].contains(both), "{told:#?}");
        drop(last);
        let told = lines.all();
        assert!(told[2].contains("orders-3 offsets 2000-2000"), "{told:#?}");
    }

    #[test]
    fn ranges_are_listed_without_end_only_in_number() {
        assert_eq!(
            list(&[(0, 4), (5, 5), (9, i64::MAX)]),
            format!("0-5, 9-{}", i64::MAX)
        );
        let many: Vec<_> = (0..100).map(|n| (3 * n, 3 * n)).collect();
        let text = list(&many);
        assert!(text.ends_with("57-57 and 80 ranges more"), "{text}");
    }
}
