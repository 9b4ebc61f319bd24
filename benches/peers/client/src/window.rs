//! Which records are measured.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Args;

/// The time in which records are sent to be measured: it begins when traffic has flowed for a while since the
/// first record arrived, so that nobody's way into a group counts. Shared by consumer and producer.
#[derive(Debug)]
pub struct Window {
    origin: Instant,
    warm: Duration,
    length: Duration,
    from: OnceLock<Duration>,
    sent: AtomicU64,
}

impl Window {
    /// As the command line says.
    #[must_use]
    pub fn new(args: &Args) -> Self {
        Self {
            origin: Instant::now(),
            warm: Duration::from_secs(args.warm),
            length: Duration::from_secs(args.seconds),
            from: OnceLock::new(),
            sent: AtomicU64::new(u64::MAX),
        }
    }

    /// The time on this window's clock.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// The consumer has records.
    pub fn has_records(&self) {
        self.from.get_or_init(|| self.now() + self.warm);
    }

    /// Whether a record that was sent at a time is measured.
    #[must_use]
    pub fn holds(&self, sent: Duration) -> bool {
        let from = self.from.get();
        from.is_some_and(|from| (*from..*from + self.length).contains(&sent))
    }

    /// Whether nothing more is to be sent.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let from = self.from.get();
        from.is_some_and(|from| self.now() >= *from + self.length)
    }

    /// The producer sends no more than so many records.
    pub fn ends_with(&self, records: u64) {
        self.sent.store(records, Ordering::Release);
    }

    /// Whether so many records are all that were sent.
    #[must_use]
    pub fn is_complete(&self, records: u64) -> bool {
        records >= self.sent.load(Ordering::Acquire)
    }
}
