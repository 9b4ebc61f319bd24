//! What to do with records after a `put`: a pure function of what is known about them.
//!
//! The rule above all: a release is not a retry. Each release uses up one of a record's few
//! deliveries, after the last one the broker archives it and tells nobody. So records that failed
//! are kept and put again under a lock that is renewed; they are released only when the task stops,
//! is paused, or fails. What was not put at all, or not to its end, is released where its lock ends too soon.

use std::time::Duration;

/// What the last `put` and `flush` said about records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// Written, and flushed.
    Written,
    /// Not written; another try may work.
    Later,
    /// Perhaps written; another try settles it.
    Unknown,
    /// The target will never take this record.
    Refused,
    /// The put failed for good without saying which record was to blame.
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

/// What the task has been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// To work.
    Run,
    /// To hold nothing that isn't written, as far as that loses nothing.
    Pause,
    /// To end.
    Stop,
}

/// `errors.tolerance`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tolerance {
    /// A record that can't be written fails the task.
    #[default]
    None,
    /// It is set aside, and the task goes on.
    All,
}

/// Where records go that are set aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SetAside {
    /// Nowhere: they are named and rejected.
    #[default]
    Nowhere,
    /// To the group's own dead-letter topic, by the broker: they are named, since nobody confirms that
    /// letter, and rejected.
    Broker,
    /// To the worker's dead-letter topic; then they are rejected.
    DeadLetter,
    /// To the worker's dead-letter topic; then they are accepted, because the group has a
    /// dead-letter topic of the broker's and a rejection would write a second letter.
    DeadLetterAccepted,
}

/// How far the dead letter of a record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LetterState {
    /// Not written yet.
    #[default]
    Unwritten,
    /// The broker has it.
    Confirmed,
    /// It could not be written; another try may work.
    Failed,
    /// It will never be written.
    Impossible,
}

/// Everything the decision depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    pub(crate) tried: Tried,
    /// Whether it was not put yet.
    pub(crate) fresh: bool,
    /// Whether its put was cut off, for its lock ended or the task had to.
    pub(crate) cut_off: bool,
    /// Whether the record was put alone, so that nothing else can be to blame.
    pub(crate) alone: bool,
    /// Tries that failed in a row, this one included; 1 after the first failure.
    pub(crate) attempt: u32,
    /// Time since the first of them, without outages of the target and times in which it wrote nothing else.
    pub(crate) held_for: Duration,
    /// Whether others were written before it failed again; of what is fresh, under its lock; of what was cut off
    /// alone, since the last time that something was; of many that were cut off, at any time.
    pub(crate) others_written: bool,
    /// Whether so much was delivered behind the record that it blocks half of the partition's window.
    pub(crate) blocks_window: bool,
    /// Whether the target is known to be down.
    pub(crate) breaker_open: bool,
    /// Deliveries of the record so far, this one included.
    pub(crate) delivery_count: i16,
    /// Deliveries the group allows.
    pub(crate) delivery_count_limit: i16,
    pub(crate) lock: LockLeft,
    /// What is kept free before the end of a lock that can't be renewed; see [`lock_reserve`].
    pub(crate) lock_reserve: Duration,
    pub(crate) tolerance: Tolerance,
    pub(crate) set_aside: SetAside,
    pub(crate) letter: LetterState,
    /// `share.hold.max.ms`.
    pub(crate) hold_max: Duration,
    pub(crate) told: Told,
    /// Shortest wait the target asked for.
    pub(crate) after: Option<Duration>,
    /// Wait before a stage ahead of the put is tried again, in place of the back-off of puts; see
    /// [`stage_retry`].
    pub(crate) stage_wait: Option<Duration>,
    /// Longest time a recent `put` with its `flush` took.
    pub(crate) put_time: Duration,
    /// Spread of the wait, from 0 to 1.
    pub(crate) jitter: f64,
}

/// What to do with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Accept it: it is written, or its dead letter is.
    Accept,
    /// Hold it, wait, try again: to put it, or to write its dead letter.
    RetryInPlace {
        /// Wait before the next try, counted from the failure.
        delay: Duration,
    },
    /// Release it at once. On its last delivery it has to be named first.
    Release {
        /// Whether this was the last allowed delivery.
        named: bool,
    },
    /// Write its dead letter, then decide again.
    WriteLetter,
    /// Reject it. Without a dead letter that is confirmed it has to be named first.
    Reject {
        /// Whether nothing is known to keep it.
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
    /// It failed for as long as it may be held, while others were written.
    HoldOver,
    /// It blocked the others.
    BlocksWindow,
    /// Its dead letter can't be written.
    NoLetter,
    /// Its lock ends and can't be renewed.
    LockEnds,
    /// Its lock was lost on its last delivery, so that nobody gets it any more.
    LastLockLost,
}

/// Decides; see the module's documentation.
pub(crate) fn decide(situation: &Situation) -> Decision {
    match (situation.tried, situation.lock) {
        (Tried::Written, LockLeft::Lost) => Decision::ReportDuplicate,
        (Tried::Written, _) => Decision::Accept,
        (Tried::Refused, _) => set_aside(situation, FailReason::Refused),
        (Tried::Fatal, _) if situation.alone => set_aside(situation, FailReason::Refused),
        (_, LockLeft::Lost) => forget(situation),
        _ => hold(situation),
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

/// For how long, and how often, a converter or a transformation that failed retriably is tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StageRetries {
    /// `errors.retry.timeout`; `None` = without end.
    pub(crate) timeout: Option<Duration>,
    /// `errors.retry.delay.max.ms`.
    pub(crate) delay_max: Duration,
}

/// The wait before such a stage is tried once more, `tried_for` after its first failure, or `None` if it
/// is not: 300 ms, doubled with each failure, and anything below the longest where it would be more; the
/// last try comes at the end of the time. As Connect's `RetryWithToleranceOperator`; of what it calls
/// for ever, `share.hold.max.ms` is the end while other records are written.
pub(crate) fn stage_retry(
    retries: StageRetries,
    failures: u32,
    tried_for: Duration,
    jitter: f64,
) -> Option<Duration> {
    let left = retries.timeout.unwrap_or(Duration::MAX);
    let left = left.checked_sub(tried_for)?;
    let doublings = failures.saturating_sub(1).min(16);
    let mut wait = STAGE_WAIT_FIRST.saturating_mul(1 << doublings);
    if wait > retries.delay_max {
        wait = retries.delay_max.mul_f64(jitter.clamp(0.0, 1.0));
    }
    let wait = wait.max(STAGE_WAIT_MIN).min(left);
    (!left.is_zero()).then_some(wait)
}

/// A record that another try may write.
fn hold(situation: &Situation) -> Decision {
    let last = is_last_delivery(situation.delivery_count, situation.delivery_count_limit);
    match situation.told {
        Told::Stop => return Decision::Release { named: last },
        Told::Pause if !last => return Decision::Release { named: false },
        Told::Pause | Told::Run => {}
    }
    match hold_over(situation) {
        Some(reason) if situation.alone => set_aside(situation, reason),
        // Whichever of them is to blame has to be found first.
        Some(_) => Decision::RetryInPlace {
            delay: Duration::ZERO,
        },
        None => retry(situation),
    }
}

/// Whether a record may be held no longer. While the target is down, or nothing shows that it is up, the
/// record isn't to blame.
fn hold_over(situation: &Situation) -> Option<FailReason> {
    if situation.breaker_open || !situation.others_written {
        None
    } else if situation.held_for >= situation.hold_max {
        Some(FailReason::HoldOver)
    } else {
        let blocks = situation.blocks_window && situation.attempt >= TRIES_BEFORE_WINDOW;
        blocks.then_some(FailReason::BlocksWindow)
    }
}

/// A record that belongs to somebody else, or, after its last delivery, to nobody.
fn forget(situation: &Situation) -> Decision {
    match is_last_delivery(situation.delivery_count, situation.delivery_count_limit) {
        true => Decision::FailTask(FailReason::LastLockLost),
        false => Decision::Forget,
    }
}

/// A record that won't be written by this task.
fn set_aside(situation: &Situation, reason: FailReason) -> Decision {
    let last = is_last_delivery(situation.delivery_count, situation.delivery_count_limit);
    if situation.tolerance == Tolerance::None {
        return Decision::FailTask(reason);
    }
    if situation.lock == LockLeft::Lost {
        return forget(situation);
    }
    match (situation.set_aside, situation.letter) {
        (SetAside::Nowhere | SetAside::Broker, _) => Decision::Reject { named: true },
        (SetAside::DeadLetter, LetterState::Confirmed) => Decision::Reject { named: false },
        (SetAside::DeadLetterAccepted, LetterState::Confirmed) => Decision::Accept,
        (_, LetterState::Unwritten) => Decision::WriteLetter,
        (_, LetterState::Impossible) => Decision::FailTask(FailReason::NoLetter),
        (_, LetterState::Failed) if situation.told == Told::Stop => {
            Decision::Release { named: last }
        }
        (_, LetterState::Failed) if situation.held_for >= situation.hold_max => {
            Decision::FailTask(FailReason::NoLetter)
        }
        (_, LetterState::Failed) => retry(situation),
    }
}

fn retry(situation: &Situation) -> Decision {
    let asked = situation.after.unwrap_or_default();
    let backoff = || backoff(situation.attempt, situation.jitter);
    let mut delay = situation.stage_wait.unwrap_or_else(backoff);
    if !situation.breaker_open && situation.others_written {
        // The end of the hold finds the record freshly tried.
        let hold_left = situation.hold_max.saturating_sub(situation.held_for);
        delay = delay.min(hold_left.max(BACKOFF_FIRST));
    }
    let delay = delay.max(asked);
    let LockLeft::Ends(left) = situation.lock else {
        return Decision::RetryInPlace { delay };
    };
    // The next try must be over before the lock is, with the acknowledgement on its way.
    // For a first put the source has seen to it that it fits.
    let put_time = if situation.fresh {
        Duration::ZERO
    } else {
        situation.put_time
    };
    let reserve = put_time.saturating_mul(2).max(situation.lock_reserve);
    let room = left.saturating_sub(reserve);
    if room < BACKOFF_FIRST.max(asked) {
        return too_late(situation);
    }
    Decision::RetryInPlace {
        delay: delay.min(room),
    }
}

/// What a put leaves of a lock that can't be renewed, for the flush and for the acknowledgement to travel: a
/// second, or a quarter of a short lock.
pub(crate) fn lock_reserve(lock: Duration) -> Duration {
    RESERVE_MAX.min(lock / 4)
}

/// A record for which too little is left of a lock that can't be renewed. Where others were in time it only came
/// too late, or with too many: the source learns to hand out less.
fn too_late(situation: &Situation) -> Decision {
    let last = is_last_delivery(situation.delivery_count, situation.delivery_count_limit);
    let is_spared = situation.fresh || situation.cut_off;
    if is_spared && situation.others_written && !last {
        return Decision::Release { named: false };
    }
    Decision::FailTask(FailReason::LockEnds)
}

/// Wait after the first failure.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
/// Wait after the first failure of a stage ahead of the put.
const STAGE_WAIT_FIRST: Duration = Duration::from_millis(300);
/// A random wait may be none, and none would spin.
const STAGE_WAIT_MIN: Duration = Duration::from_millis(1);
/// Longest wait between two tries.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Tries of a record before it is given up for the sake of those behind it: about three seconds, in which
/// a fast sink writes half a window many times over.
pub(crate) const TRIES_BEFORE_WINDOW: u32 = 6;
/// What is kept free at most before the end of a lock that can't be renewed.
pub(crate) const RESERVE_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
