//! The circuit breaker: tells a target that is down from records that can't be written.
//!
//! One failing put says nothing: a single record of it may be to blame. Two failing puts without a
//! record in common, and nothing written between, say that the target is in trouble. A turn in which
//! that happened counts as a failure; after `share.breaker.failures` in a row the breaker opens. While
//! it is open, nothing new is put and a probe is made every `share.breaker.probe.ms`. Whatever is written
//! closes it.
//!
//! The lanes of a task have one breaker. Turns of theirs that overlap count as one failure, and one of them makes the
//! probe.

use std::time::Duration;

use tokio::time::Instant;

use crate::policy::backoff;

#[derive(Debug)]
pub(super) struct Breaker {
    /// Failures that open it.
    failures_max: u32,
    /// Time between two probes.
    probe: Duration,
    /// Turns in a row in which the target was in trouble.
    failures: u32,
    /// The next put is made no sooner.
    not_before: Option<Instant>,
    /// The put that failed last, with nothing written since.
    last_failed: Option<Failed>,
    /// Whether the turn, or one beside it, has counted already.
    counted: bool,
    opened_at: Option<Instant>,
}

/// A put that failed as a whole: records of one batch.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    /// Number of the batch.
    pub(super) batch: u64,
    /// Ascending and apart.
    pub(super) offsets: Vec<(i64, i64)>,
}

impl Failed {
    fn is_apart_from(&self, other: &Self) -> bool {
        self.batch != other.batch
            || self.offsets.iter().all(|(first, last)| {
                let mut theirs = other.offsets.iter();
                theirs.all(|(other_first, other_last)| last < other_first || other_last < first)
            })
    }
}

impl Breaker {
    pub(super) const fn new(failures_max: u32, probe: Duration) -> Self {
        Self {
            failures_max,
            probe,
            failures: 0,
            not_before: None,
            last_failed: None,
            counted: false,
            opened_at: None,
        }
    }

    /// Whether the target is down.
    pub(super) const fn is_open(&self) -> bool {
        self.failures >= self.failures_max
    }

    /// When the next put may be made, if not at once.
    pub(super) const fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    /// Something was written. The answer: for how long the breaker was open, if it was.
    pub(super) fn written(&mut self) -> Option<Duration> {
        self.failures = 0;
        self.not_before = None;
        self.last_failed = None;
        self.opened_at.take().map(|at| at.elapsed())
    }

    /// A lane would make a probe. The answer: whether none was made by another just now.
    pub(super) fn probe(&mut self, now: Instant) -> bool {
        let is_due = self.not_before.is_none_or(|at| at <= now);
        if is_due {
            self.not_before = Some(now + self.probe);
        }
        is_due
    }

    /// A put of a turn that began then failed as a whole. The answer: whether another did before, with other
    /// records.
    pub(super) fn failed(&mut self, failed: Failed, began: Instant) -> bool {
        let before = self.last_failed.replace(failed);
        let (Some(before), Some(now)) = (&before, &self.last_failed) else {
            return false;
        };
        let in_trouble = before.is_apart_from(now);
        // What began before the last wait was over says nothing new.
        let is_new = self.not_before.is_none_or(|at| at <= began);
        if in_trouble && is_new && !self.counted {
            self.counted = true;
            self.failures = self.failures.saturating_add(1);
        }
        in_trouble
    }

    /// A turn or a probe is over. The answer: whether it opened the breaker.
    pub(super) fn turn_ended(&mut self, now: Instant, jitter: f64) -> bool {
        let opens = self.is_open() && self.opened_at.is_none();
        if self.is_open() {
            self.opened_at.get_or_insert(now);
            self.not_before = Some(now + self.probe);
        } else if std::mem::take(&mut self.counted) && self.failures > 0 {
            self.not_before = Some(now + backoff(self.failures, jitter));
        }
        self.counted = false;
        opens
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn failed(batch: u64, first: i64, last: i64) -> Failed {
        Failed {
            batch,
            offsets: vec![(first, last)],
        }
    }

    fn breaker() -> Breaker {
        Breaker::new(2, Duration::from_secs(1))
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_failed_with_both_halves_counts_once_a_turn() {
        let mut breaker = breaker();
        assert!(!breaker.failed(failed(1, 0, 9), Instant::now()));
        assert!(!breaker.failed(failed(1, 0, 4), Instant::now()));
        assert!(breaker.failed(failed(1, 5, 9), Instant::now()));
        assert!(breaker.failed(failed(1, 0, 4), Instant::now()));
        breaker.turn_ended(Instant::now(), 0.5);
        assert!(!breaker.is_open());
        assert_eq!(
            breaker.not_before(),
            Some(Instant::now() + Duration::from_millis(100))
        );
        advance(Duration::from_millis(100)).await;
        assert!(breaker.failed(failed(1, 5, 9), Instant::now()));
        breaker.turn_ended(Instant::now(), 0.5);
        assert!(breaker.is_open());
        assert_eq!(
            breaker.not_before(),
            Some(Instant::now() + Duration::from_secs(1))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn turns_beside_each_other_count_as_one_failure_and_one_of_them_makes_the_probe() {
        let mut breaker = Breaker::new(2, Duration::from_secs(1));
        for _ in 0..2 {
            advance(Duration::from_secs(1)).await;
            assert!(!breaker.is_open());
            let began = Instant::now();
            for batch in 0..6 {
                breaker.failed(failed(batch, 0, 9), began);
                breaker.failed(failed(batch, 10, 19), began);
                breaker.turn_ended(Instant::now(), 0.5);
            }
        }
        assert!(breaker.is_open());
        assert!(!breaker.probe(Instant::now()));
        advance(Duration::from_secs(1)).await;
        assert!(breaker.probe(Instant::now()));
        assert!(!breaker.probe(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn one_record_that_fails_for_ever_never_counts() {
        let mut breaker = breaker();
        for _ in 0..100 {
            assert!(!breaker.failed(failed(1, 3, 3), Instant::now()));
            breaker.turn_ended(Instant::now(), 0.5);
        }
        assert_eq!(breaker.not_before(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_is_written_closes_it() {
        let mut breaker = breaker();
        for batch in 0..10 {
            breaker.failed(failed(batch, 0, 0), Instant::now());
            breaker.turn_ended(Instant::now(), 0.5);
            advance(Duration::from_secs(1)).await;
        }
        assert!(breaker.is_open());
        assert!(breaker.written().is_some());
        assert!(!breaker.is_open());
        assert_eq!(breaker.not_before(), None);
        assert!(breaker.written().is_none());
    }
}
