//! How often failures are told of: the first at once, then a line a minute, however many there are meanwhile.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Telling {
    told_at: Option<Instant>,
    /// Failures since then.
    untold: u64,
}

impl Telling {
    /// Something has failed. The answer, where a line is due: how many failures it stands for, this one included.
    pub(super) fn failed(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        if self.told_at.is_some_and(|told_at| now < told_at + INTERVAL) {
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }

    /// It is over: the next failure is told at once.
    pub(super) fn over(&mut self) {
        *self = Self::default();
    }
}

const INTERVAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_told_at_once_and_then_one_a_minute() {
        let start = Instant::now();
        let mut telling = Telling::default();
        let told: Vec<_> = (0..130)
            .filter_map(|second| telling.failed(start + Duration::from_secs(second)))
            .collect();
        assert_eq!(told, [1, 60, 60]);
        telling.over();
        assert_eq!(telling.failed(start + Duration::from_secs(131)), Some(1));
    }
}
