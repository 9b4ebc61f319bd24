//! A small seeded generator, for scripts that a seed makes.

use std::time::Duration;

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers of one concern of a seed: `salt` tells concerns apart, so that a change to what one
    /// of them draws leaves the others as they were.
    #[must_use]
    pub const fn of(seed: u64, salt: u64) -> Self {
        let mut random = Self(seed ^ salt.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.next() % if end == 0 { 1 } else { end }
    }

    /// True in `percent` of a hundred cases.
    pub const fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A time from `least` to `most`, by microseconds.
    pub fn duration(&mut self, least: Duration, most: Duration) -> Duration {
        let spread = most.saturating_sub(least).as_micros();
        let spread = u64::try_from(spread).unwrap_or(u64::MAX - 1);
        least + Duration::from_micros(self.below(spread + 1))
    }

    /// One of a few values.
    pub fn one_of<T: Copy>(&mut self, first: T, others: &[T]) -> T {
        match self.below(others.len() as u64 + 1) {
            0 => first,
            number => usize::try_from(number - 1)
                .ok()
                .and_then(|index| others.get(index))
                .copied()
                .unwrap_or(first),
        }
    }
}
