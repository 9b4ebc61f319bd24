//! Growing pauses between tries.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Pauses that double from try to try, up to a maximum (or the first, where that is longer), spread by ±20 % as Kafka's clients do, so
/// that many clients don't come back at the same instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) max: Duration,
}

impl Backoff {
    /// The pause after `failures` failures in a row (1 = the first).
    pub(crate) fn delay(&self, failures: u32, jitter: &Jitter) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        let base = self
            .first
            .saturating_mul(1 << doublings)
            .min(self.max.max(self.first));
        // Never zero, whatever is configured: a failing loop must not spin.
        base.mul_f64(0.8 + 0.4 * jitter.fraction())
            .max(Duration::from_millis(1))
    }
}

/// A small seeded generator (SplitMix64), shared without a lock.
#[derive(Debug)]
pub(crate) struct Jitter(AtomicU64);

impl Jitter {
    pub(crate) const fn seeded(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A number that differs from process to process.
    pub(crate) fn random_seed() -> u64 {
        RandomState::new().hash_one(0_u8)
    }

    pub(crate) fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// At least 0, below 1.
    pub(crate) fn fraction(&self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum_within_a_fifth() {
        let backoff = Backoff {
            first: Duration::from_millis(100),
            max: Duration::from_secs(1),
        };
        let jitter = Jitter::seeded(7);
        for (failures, expected) in [
            (0, 100),
            (1, 100),
            (2, 200),
            (3, 400),
            (4, 800),
            (5, 1000),
            (u32::MAX, 1000),
        ] {
            for _ in 0..100 {
                let delay = backoff.delay(failures, &jitter).as_millis();
                assert!(
                    (expected * 8 / 10..=expected * 12 / 10).contains(&delay),
                    "{failures}: {delay}"
                );
            }
        }
    }

    #[test]
    fn a_first_pause_above_the_maximum_stays() {
        let backoff = Backoff {
            first: Duration::from_secs(60),
            max: Duration::from_secs(30),
        };
        let delay = backoff.delay(5, &Jitter::seeded(7)).as_secs();
        assert!((48..=72).contains(&delay), "{delay}");
    }

    #[test]
    fn a_seed_repeats_its_sequence() {
        let (a, b) = (Jitter::seeded(1), Jitter::seeded(1));
        assert!((0..10).all(|_| a.next() == b.next()));
        assert_ne!(Jitter::seeded(1).next(), Jitter::seeded(2).next());
    }
}
