//! What to do with records after a `put`: a pure function of what is known about them.
//!
//! The rule above all: a release is not a retry. Each release uses up one of a record's few
//! deliveries, after the last one the broker archives it and tells nobody. So records that failed
//! are kept and put again under a lock that is renewed; they are released only when the task stops
//! or fails.

use std::time::Duration;

/// What the last `put` and `flush` said about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// Written, and flushed.
    Written,
    /// Not written; another try may work. Also a record whose turn hasn't come.
    Later,
    /// Perhaps written; another try settles it.
    Unknown,
    /// The target will never take this record.
    Refused,
    /// The sink can't go on at all.
    Fatal,
}

/// The lock under which a record is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockLeft {
    /// Renewed for as long as needed.
    Renewable,
    /// Can't be renewed; ends after this time.
    Ends(Duration),
    /// Over: the record belongs to somebody else, or soon will.
    Lost,
}

/// Everything the decision depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    pub(crate) tried: Tried,
    /// Tries that failed in a row, this one included; 1 after the first failure.
    pub(crate) attempt: u32,
    /// Deliveries of the record so far, this one included.
    pub(crate) delivery_count: i16,
    /// Deliveries the group allows.
    pub(crate) delivery_count_limit: i16,
    pub(crate) lock: LockLeft,
    /// Whether the task has been told to stop.
    pub(crate) stopping: bool,
    /// Shortest wait the target asked for.
    pub(crate) after: Option<Duration>,
    /// Longest time a recent `put` with its `flush` took.
    pub(crate) put_time: Duration,
    /// Spread of the wait, from 0 to 1.
    pub(crate) jitter: f64,
}

/// What to do with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Accept it.
    Accept,
    /// Hold it, wait, put it again.
    RetryInPlace {
        /// Wait before the next try, counted from the failure.
        delay: Duration,
    },
    /// Release it at once. On its last delivery it has to be named first.
    Release {
        /// Whether this was the last allowed delivery.
        named: bool,
    },
    /// Fail the task; the record is then released.
    FailTask(FailReason),
    /// It was written but can't be accepted any more: it will be delivered again.
    ReportDuplicate,
    /// Its lock is gone and it isn't written: drop it, others have it.
    Forget,
}

/// Why a record fails its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailReason {
    /// The target will never take it.
    Refused,
    /// The sink can't go on.
    Fatal,
    /// Its lock ends and can't be renewed.
    LockEnds,
}

/// Decides; see the module's documentation.
pub(crate) fn decide(situation: &Situation) -> Decision {
    let named = is_last_delivery(situation.delivery_count, situation.delivery_count_limit);
    match (situation.tried, situation.lock) {
        (Tried::Written, LockLeft::Lost) => Decision::ReportDuplicate,
        (Tried::Written, _) => Decision::Accept,
        (Tried::Refused, _) => Decision::FailTask(FailReason::Refused),
        (Tried::Fatal, _) => Decision::FailTask(FailReason::Fatal),
        (Tried::Later | Tried::Unknown, LockLeft::Lost) => Decision::Forget,
        (Tried::Later | Tried::Unknown, _) if situation.stopping => Decision::Release { named },
        (Tried::Later | Tried::Unknown, lock) => retry(situation, lock),
    }
}

/// Whether a record that isn't accepted now is never delivered again.
pub(crate) const fn is_last_delivery(delivery_count: i16, limit: i16) -> bool {
    delivery_count >= limit
}

/// 100 ms, doubled with each failure up to 60 s, spread by a fifth to both sides so that tasks
/// that failed together don't come back together.
pub(crate) fn backoff(attempt: u32, jitter: f64) -> Duration {
    let doublings = attempt.saturating_sub(1).min(16);
    let wait = BACKOFF_FIRST
        .saturating_mul(1 << doublings)
        .min(BACKOFF_MAX);
    wait.mul_f64(0.8 + 0.4 * jitter.clamp(0.0, 1.0))
        .min(BACKOFF_MAX)
}

fn retry(situation: &Situation, lock: LockLeft) -> Decision {
    let asked = situation.after.unwrap_or_default();
    let delay = backoff(situation.attempt, situation.jitter).max(asked);
    let LockLeft::Ends(left) = lock else {
        return Decision::RetryInPlace { delay };
    };
    // The next try must be over before the lock is, with the acknowledgement on its way.
    let reserve = situation.put_time.saturating_mul(2).max(RESERVE_MIN);
    let room = left.saturating_sub(reserve);
    if room < BACKOFF_FIRST.max(asked) {
        return Decision::FailTask(FailReason::LockEnds);
    }
    Decision::RetryInPlace {
        delay: delay.min(room),
    }
}

/// Wait after the first failure.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
/// Longest wait between two tries.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// What is kept free before the end of a lock that can't be renewed.
pub(crate) const RESERVE_MIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: [LockLeft; 5] = [
        LockLeft::Renewable,
        LockLeft::Ends(Duration::from_secs(30)),
        LockLeft::Ends(Duration::from_millis(1050)),
        LockLeft::Ends(Duration::ZERO),
        LockLeft::Lost,
    ];
    const TRIED: [Tried; 5] = [
        Tried::Written,
        Tried::Later,
        Tried::Unknown,
        Tried::Refused,
        Tried::Fatal,
    ];

    /// Every combination of the inputs that are finite, and a few values of the others.
    fn all(mut check: impl FnMut(&Situation, Decision)) {
        for tried in TRIED {
            for lock in LOCKS {
                for stopping in [false, true] {
                    for delivery_count in [1, 4, 5, 6] {
                        for attempt in [1, 2, 10, u32::MAX] {
                            for after in [None, Some(Duration::from_secs(2))] {
                                for put_time in [Duration::ZERO, Duration::from_secs(20)] {
                                    for jitter in [0.0, 0.5, 1.0] {
                                        let situation = Situation {
                                            tried,
                                            attempt,
                                            delivery_count,
                                            delivery_count_limit: 5,
                                            lock,
                                            stopping,
                                            after,
                                            put_time,
                                            jitter,
                                        };
                                        check(&situation, decide(&situation));
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn written_records_are_accepted_and_no_others() {
        all(|situation, decision| {
            let accepts = decision == Decision::Accept;
            let should = situation.tried == Tried::Written && situation.lock != LockLeft::Lost;
            assert_eq!(accepts, should, "{situation:?}");
        });
    }

    #[test]
    fn nothing_is_released_to_be_retried() {
        all(|situation, decision| {
            if matches!(decision, Decision::Release { .. }) {
                assert!(situation.stopping, "{situation:?}");
            }
        });
    }

    #[test]
    fn nothing_is_retried_while_stopping_or_without_a_lock() {
        all(|situation, decision| {
            if matches!(decision, Decision::RetryInPlace { .. }) {
                assert!(!situation.stopping, "{situation:?}");
                assert_ne!(situation.lock, LockLeft::Lost, "{situation:?}");
            }
        });
    }

    #[test]
    fn what_is_released_on_its_last_delivery_is_named() {
        all(|situation, decision| {
            if let Decision::Release { named } = decision {
                assert_eq!(named, situation.delivery_count >= 5, "{situation:?}");
            }
        });
    }

    #[test]
    fn refused_records_and_fatal_errors_fail_the_task_whatever_else() {
        all(|situation, decision| match situation.tried {
            Tried::Refused => assert_eq!(decision, Decision::FailTask(FailReason::Refused)),
            Tried::Fatal => assert_eq!(decision, Decision::FailTask(FailReason::Fatal)),
            _ => {}
        });
    }

    #[test]
    fn a_lock_that_is_renewed_is_held_without_end() {
        all(|situation, decision| {
            if matches!(situation.tried, Tried::Later | Tried::Unknown)
                && situation.lock == LockLeft::Renewable
                && !situation.stopping
            {
                assert!(
                    matches!(decision, Decision::RetryInPlace { .. }),
                    "{situation:?}"
                );
            }
        });
    }

    #[test]
    fn under_a_lock_that_ends_the_next_try_fits_or_the_task_fails() {
        all(|situation, decision| {
            let LockLeft::Ends(left) = situation.lock else {
                return;
            };
            match decision {
                Decision::RetryInPlace { delay } => {
                    let reserve = (situation.put_time * 2).max(Duration::from_secs(1));
                    assert!(delay + reserve <= left, "{situation:?} {delay:?}");
                    assert!(
                        situation.after.is_none_or(|after| delay >= after),
                        "{situation:?}"
                    );
                }
                Decision::FailTask(FailReason::LockEnds) => {
                    assert!(!situation.stopping, "{situation:?}");
                }
                _ => {}
            }
        });
    }

    #[test]
    fn a_lost_lock_is_reported_for_what_was_written_and_forgotten_for_the_rest() {
        all(|situation, decision| {
            if situation.lock == LockLeft::Lost {
                match situation.tried {
                    Tried::Written => assert_eq!(decision, Decision::ReportDuplicate),
                    Tried::Later | Tried::Unknown => {
                        assert_eq!(decision, Decision::Forget);
                    }
                    Tried::Refused | Tried::Fatal => {}
                }
            }
        });
    }

    #[test]
    fn the_wait_doubles_from_100_ms_to_a_minute_and_is_spread_by_a_fifth() {
        let middle: Vec<u128> = (1..=12).map(|n| backoff(n, 0.5).as_millis()).collect();
        assert_eq!(
            middle,
            [
                100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 60000, 60000
            ]
        );
        assert_eq!(backoff(1, 0.0), Duration::from_millis(80));
        assert_eq!(backoff(1, 1.0), Duration::from_millis(120));
        assert_eq!(backoff(u32::MAX, 1.0), Duration::from_secs(60));
    }
}
