//! Records that the application forgets, or that its group loses, in the log: gathered, so that thousands of
//! them are a few lines. A first loss is told at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::report::offsets;

/// How long what is told is gathered.
const GATHERED: Duration = Duration::from_secs(1);

/// Shortest time between two warnings of forgotten records.
const WARNED_EVERY: Duration = Duration::from_secs(60);

/// Most ranges of one line.
const RANGES_MAX: usize = 100;

/// Records with no delivery left, but for their offsets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Loss {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) delivery_count: i16,
    /// Why they are no longer ours; `None` = dropped, and rejected for it.
    pub(super) why: Option<String>,
}

type Ranges = Vec<(i64, i64)>;

#[derive(Debug, Default)]
pub(super) struct LossLog {
    losses: BTreeMap<Loss, Ranges>,
    losses_due: Option<Instant>,
    losses_told_at: Option<Instant>,
    forgotten: u64,
    forgotten_due: Option<Instant>,
    warned_at: Option<Instant>,
}

impl LossLog {
    /// The application dropped records without a word.
    pub(super) fn forgotten(&mut self, now: Instant, records: u64) {
        if records > 0 {
            self.forgotten += records;
            let warned = self.warned_at.map(|at| at + WARNED_EVERY);
            let due = (now + GATHERED).max(warned.unwrap_or(now));
            self.forgotten_due.get_or_insert(due);
        }
    }

    /// An ascending range has no delivery left.
    pub(super) fn lost(&mut self, now: Instant, loss: Loss, (first, last): (i64, i64)) {
        let ranges = self.losses.entry(loss).or_default();
        match ranges.last_mut() {
            Some(before) if before.1.saturating_add(1) == first => before.1 = last,
            _ => ranges.push((first, last)),
        }
        let next = self.losses_told_at.map_or(now, |at| at + GATHERED);
        let due = self.losses_due.get_or_insert(next);
        if ranges.len() >= RANGES_MAX {
            *due = now;
        }
    }

    /// When there is something to tell.
    pub(super) fn next_at(&self) -> Option<Instant> {
        [self.losses_due, self.forgotten_due]
            .into_iter()
            .flatten()
            .min()
    }

    /// Tells what is due, or all at the end.
    pub(super) fn tell(&mut self, now: Instant, is_end: bool, group_id: &str) {
        let is_due = |due: &mut Instant| is_end || *due <= now;
        if self.forgotten_due.take_if(is_due).is_some() {
            self.warned_at = Some(now);
            let records = std::mem::take(&mut self.forgotten);
            tracing::warn!(
                %group_id, records,
                "Records were dropped unsettled: they are delivered again after a delay, and rejected on their last allowed delivery. Accept or settle each, or say so with `release_later`."
            );
        }
        if self.losses_due.take_if(is_due).is_some() {
            self.losses_told_at = Some(now);
            for (loss, ranges) in std::mem::take(&mut self.losses) {
                ranges
                    .chunks(RANGES_MAX)
                    .for_each(|ranges| tell_loss(group_id, &loss, ranges));
            }
        }
    }
}

fn tell_loss(group_id: &str, loss: &Loss, ranges: &[(i64, i64)]) {
    let Loss {
        topic,
        partition,
        delivery_count,
        why,
    } = loss;
    let records: u64 = ranges
        .iter()
        .map(|(first, last)| offsets(*first, *last))
        .sum();
    let offsets = listed(ranges);
    match why {
        None => tracing::error!(
            %group_id, %topic, partition, records, offsets, delivery_count,
            "Records were dropped on their last allowed delivery; they are rejected. Accept or settle each record; ShareObserver::last_delivery can decide otherwise."
        ),
        Some(why) => tracing::error!(
            %group_id, %topic, partition, records, offsets, delivery_count, why,
            "Records are lost to this group unless another member has settled them: it was their last allowed delivery."
        ),
    }
}

fn listed(ranges: &[(i64, i64)]) -> String {
    let show = |(first, last): &(i64, i64)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(show).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss() -> Loss {
        Loss {
            topic: "t".into(),
            partition: 0,
            delivery_count: 5,
            why: None,
        }
    }

    #[test]
    fn neighbours_are_one_range_and_told_at_once_then_gathered() {
        let (mut log, now) = (LossLog::default(), Instant::now());
        for offset in (0..5000).chain(6000..6001) {
            log.lost(now, loss(), (offset, offset));
        }
        assert_eq!(log.losses[&loss()], [(0, 4999), (6000, 6000)]);
        assert_eq!(listed(&log.losses[&loss()]), "0-4999, 6000");
        assert_eq!(log.next_at(), Some(now));
        log.tell(now, false, "g");
        assert!(log.losses.is_empty() && log.next_at().is_none());
        log.lost(now, loss(), (7000, 7000));
        log.tell(now, false, "g");
        assert_eq!(log.losses.len(), 1, "not due yet");
        assert_eq!(log.next_at(), Some(now + GATHERED));
        log.tell(now + GATHERED, false, "g");
        assert!(log.losses.is_empty() && log.next_at().is_none());
    }

    #[test]
    fn scattered_offsets_do_not_gather_for_ever() {
        let (mut log, now) = (LossLog::default(), Instant::now());
        log.losses_told_at = Some(now);
        for offset in 0..RANGES_MAX as i64 {
            log.lost(now, loss(), (2 * offset, 2 * offset));
        }
        assert_eq!(log.next_at(), Some(now));
    }

    #[test]
    fn forgotten_records_are_warned_of_soon_and_then_once_a_minute() {
        let (mut log, now) = (LossLog::default(), Instant::now());
        log.forgotten(now, 0);
        assert_eq!(log.next_at(), None, "said so");
        log.forgotten(now, 1);
        log.forgotten(now, 2);
        let first = now + GATHERED;
        assert_eq!((log.next_at(), log.forgotten), (Some(first), 3));
        log.tell(first, false, "g");
        assert_eq!((log.next_at(), log.forgotten), (None, 0));
        log.forgotten(first, 4);
        assert_eq!(log.next_at(), Some(first + WARNED_EVERY));
        log.tell(first, true, "g");
        assert_eq!(log.next_at(), None, "all is told at the end");
    }
}
