//! How long things take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Counter;

/// Upper bounds of the buckets, inclusive, in seconds; above the last one there is another bucket.
pub(crate) const BOUNDS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0,
];

/// Times, counted in buckets; one writes, others read.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum_micros: Counter,
    max_micros: Counter,
}

/// The times seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistogramSnapshot {
    /// Times by bucket, each on its own: at most 1 ms, 5 ms, 10 ms, 50 ms, 100 ms, 500 ms, 1 s, 5 s,
    /// 10 s, 30 s, 1 min, 5 min, and longer.
    pub buckets: [u64; BOUNDS.len() + 1],
    /// Their sum.
    pub sum: Duration,
    /// The longest.
    pub max: Duration,
}

impl Histogram {
    pub(crate) fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let place = BOUNDS.iter().position(|bound| seconds <= *bound);
        if let Some(bucket) = self.buckets.get(place.unwrap_or(BOUNDS.len())) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros.add_wide(micros);
        self.max_micros.raise(micros);
    }

    pub(crate) fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            buckets: self
                .buckets
                .each_ref()
                .map(|bucket| bucket.load(Ordering::Relaxed)),
            sum: Duration::from_micros(self.sum_micros.value()),
            max: Duration::from_micros(self.max_micros.value()),
        }
    }
}

impl HistogramSnapshot {
    /// How many times were seen.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their average; zero where there are none.
    #[must_use]
    pub fn average(&self) -> Duration {
        let count = self.count().max(1);
        self.sum.div_f64(count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_that_reaches_it() {
        let histogram = Histogram::default();
        for ms in [1, 2, 5, 400_000] {
            histogram.observe(Duration::from_millis(ms));
        }
        let seen = histogram.snapshot();
        assert_eq!(seen.buckets, [1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((seen.count(), seen.max.as_secs()), (4, 400));
        assert_eq!(seen.average(), Duration::from_millis(100_002));
        assert_eq!(HistogramSnapshot::default().average(), Duration::ZERO);
    }
}
