//! Whether enough of a lock is left to hand its records out.
//!
//! What the application can't finish in time would be done twice: the broker delivers it again. So a
//! lock of which little is left is renewed first. Where locks can't be renewed, the time that the
//! application takes for a record decides: what fits is handed out, and what doesn't is given back
//! while it is fresh. Giving back burns a delivery, so a record that was delivered before is never
//! given back for this reason.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What becomes of acquired records that the application asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandOut {
    /// The application gets so many of them, the first ones.
    First(usize),
    /// They wait for the renewal of their lock.
    Renewed,
    /// They are released: the next delivery has a whole lock.
    TooLate,
}

/// How a lock stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeLeft {
    /// Until it ends, at the latest known.
    pub(crate) left: Duration,
    /// Of the lock from its beginning.
    pub(crate) whole: Duration,
    pub(crate) is_renewable: bool,
}

/// Decides about so many records of one lock, at least one, of which the application takes `pace`
/// each, if that is known.
pub(crate) fn hand_out(
    time: TimeLeft,
    records: usize,
    is_first_delivery: impl FnOnce() -> bool,
    pace: Option<Duration>,
) -> HandOut {
    let TimeLeft { left, whole, .. } = time;
    if time.is_renewable {
        // Half a lock is as much as renewing at half of it keeps; below a quarter the renewal is overdue.
        let wanted = pace.map_or(Duration::ZERO, |pace| times(pace, records));
        return if left < wanted.clamp(whole / 4, whole / 2) {
            HandOut::Renewed
        } else {
            HandOut::First(records)
        };
    }
    let Some(pace) = pace.filter(|pace| !pace.is_zero()) else {
        return HandOut::First(records);
    };
    // The acknowledgement has to travel.
    let reserve = RESERVE_MAX.min(whole / 4);
    let fit = left.saturating_sub(reserve).as_nanos() / pace.as_nanos();
    match usize::try_from(fit).unwrap_or(usize::MAX) {
        // A whole lock, less the way to us, must be enough: else the record would only move on.
        0 if pace < whole / 4 * 3 && is_first_delivery() => HandOut::TooLate,
        0 => HandOut::First(1),
        fit => HandOut::First(fit.min(records)),
    }
}

/// What is kept free at most of a lock that can't be renewed.
const RESERVE_MAX: Duration = Duration::from_secs(1);

fn times(pace: Duration, records: usize) -> Duration {
    pace.saturating_mul(u32::try_from(records).unwrap_or(u32::MAX))
}

/// The time that the application takes for a record, in nanoseconds; 0 = not known. It follows a
/// slower one at once and a faster one by and by.
#[derive(Debug, Default)]
pub(crate) struct Pace(AtomicU64);

impl Pace {
    /// So many records, at least one, were settled so long after they were handed out together.
    pub(crate) fn measured(&self, took: Duration, records: usize) {
        let each = took.as_nanos() / records.max(1) as u128;
        let each = u64::try_from(each).unwrap_or(u64::MAX).max(1);
        let before = self.0.load(Ordering::Relaxed);
        // Whichever of two measurements at once is lost: the next one follows.
        self.0
            .store(each.max(before - before / 8), Ordering::Relaxed);
    }

    pub(crate) fn per_record(&self) -> Option<Duration> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn of_30(left: u32, is_renewable: bool) -> TimeLeft {
        TimeLeft {
            left: left * SECOND,
            whole: 30 * SECOND,
            is_renewable,
        }
    }

    #[test]
    fn what_can_be_renewed_is_handed_out_while_its_renewal_is_not_overdue() {
        let decide = |left, pace| hand_out(of_30(left, true), 10, || true, pace);
        assert_eq!(decide(8, None), HandOut::First(10));
        assert_eq!(decide(7, None), HandOut::Renewed);
        // 12 s of work in all: 11 s are not enough.
        assert_eq!(decide(11, Some(SECOND * 6 / 5)), HandOut::Renewed);
        assert_eq!(decide(12, Some(SECOND * 6 / 5)), HandOut::First(10));
        // Work that is longer than a lock begins as soon as the lock was renewed.
        assert_eq!(decide(15, Some(60 * SECOND)), HandOut::First(10));
    }

    #[test]
    fn of_what_can_not_be_renewed_as_much_is_handed_out_as_fits() {
        let decide = |left, pace| hand_out(of_30(left, false), 10, || true, pace);
        assert_eq!(decide(1, None), HandOut::First(10), "nothing is known yet");
        assert_eq!(decide(20, Some(SECOND)), HandOut::First(10));
        assert_eq!(decide(7, Some(2 * SECOND)), HandOut::First(3));
    }

    #[test]
    fn what_does_not_fit_is_given_back_once_and_only_where_that_helps() {
        let decide = |first, pace| hand_out(of_30(3, false), 10, || first, Some(pace));
        assert_eq!(decide(true, 4 * SECOND), HandOut::TooLate);
        assert_eq!(decide(false, 4 * SECOND), HandOut::First(1));
        assert_eq!(decide(true, 40 * SECOND), HandOut::First(1), "never fits");
    }

    #[test]
    fn pace_rises_at_once_and_falls_by_and_by() {
        let pace = Pace::default();
        assert_eq!(pace.per_record(), None);
        pace.measured(10 * SECOND, 10);
        assert_eq!(pace.per_record(), Some(SECOND));
        pace.measured(SECOND, 100);
        assert_eq!(pace.per_record(), Some(SECOND * 7 / 8));
        for _ in 0..200 {
            pace.measured(SECOND, 100);
        }
        assert_eq!(pace.per_record(), Some(SECOND / 100));
    }
}
