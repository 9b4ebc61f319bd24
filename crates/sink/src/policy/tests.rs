use super::*;

const HOLD_MAX: Duration = Duration::from_secs(300);
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
const SET_ASIDE: [SetAside; 4] = [
    SetAside::Nowhere,
    SetAside::Broker,
    SetAside::DeadLetter,
    SetAside::DeadLetterAccepted,
];
const LETTERS: [LetterState; 4] = [
    LetterState::Unwritten,
    LetterState::Confirmed,
    LetterState::Failed,
    LetterState::Impossible,
];

/// The place of each input in `all`'s count: the number of values it takes.
struct Dial(usize);

impl Dial {
    fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        let value = values[self.0 % values.len()];
        self.0 /= values.len();
        value
    }
}

/// Every combination of the inputs that are finite, and a few values of the others.
fn all(mut check: impl FnMut(&Situation, Decision)) {
    for number in 0.. {
        let mut dial = Dial(number);
        let situation = Situation {
            tried: dial.pick(&TRIED),
            fresh: false,
            cut_off: false,
            alone: dial.pick(&[false, true]),
            attempt: dial.pick(&[1, u32::MAX]),
            held_for: dial.pick(&[Duration::ZERO, HOLD_MAX]),
            others_written: dial.pick(&[false, true]),
            blocks_window: dial.pick(&[false, true]),
            breaker_open: dial.pick(&[false, true]),
            delivery_count: dial.pick(&[1, 5]),
            delivery_count_limit: 5,
            lock: dial.pick(&LOCKS),
            lock_reserve: RESERVE_MAX,
            tolerance: dial.pick(&[Tolerance::None, Tolerance::All]),
            set_aside: dial.pick(&SET_ASIDE),
            letter: dial.pick(&LETTERS),
            hold_max: HOLD_MAX,
            told: dial.pick(&[Told::Run, Told::Pause, Told::Stop]),
            after: dial.pick(&[None, Some(Duration::from_secs(2))]),
            stage_wait: dial.pick(&[None, Some(Duration::from_secs(9))]),
            put_time: dial.pick(&[Duration::ZERO, Duration::from_secs(20)]),
            jitter: 1.0,
        };
        if dial.0 > 0 {
            return;
        }
        check(&situation, decide(&situation));
        if situation.tried == Tried::Later {
            let fresh = Situation {
                fresh: true,
                ..situation
            };
            check(&fresh, decide(&fresh));
        }
        if situation.tried == Tried::Unknown {
            let cut_off = Situation {
                cut_off: true,
                ..situation
            };
            check(&cut_off, decide(&cut_off));
        }
    }
}

fn is_last(situation: &Situation) -> bool {
    situation.delivery_count >= situation.delivery_count_limit
}

/// Whether the record is to be put again, as far as the put alone tells.
fn may_be_written(situation: &Situation) -> bool {
    match situation.tried {
        Tried::Later | Tried::Unknown => true,
        Tried::Fatal => !situation.alone,
        Tried::Written | Tried::Refused => false,
    }
}

fn gives_way(situation: &Situation) -> bool {
    situation.blocks_window && situation.attempt >= TRIES_BEFORE_WINDOW
}

fn hold_is_over(situation: &Situation) -> bool {
    !situation.breaker_open
        && situation.others_written
        && (situation.held_for >= situation.hold_max || gives_way(situation))
}

const fn has_our_letters(situation: &Situation) -> bool {
    matches!(
        situation.set_aside,
        SetAside::DeadLetter | SetAside::DeadLetterAccepted
    )
}

#[test]
fn records_are_accepted_when_they_or_their_dead_letters_are_written_and_no_others() {
    all(|situation, decision| {
        if decision == Decision::Accept {
            let letter = situation.letter == LetterState::Confirmed
                && situation.set_aside == SetAside::DeadLetterAccepted
                && situation.tolerance == Tolerance::All;
            assert!(situation.tried == Tried::Written || letter, "{situation:?}");
            assert_ne!(situation.lock, LockLeft::Lost, "{situation:?}");
        }
        if situation.tried == Tried::Written && situation.lock != LockLeft::Lost {
            assert_eq!(decision, Decision::Accept, "{situation:?}");
        }
    });
}

#[test]
fn records_are_rejected_after_their_letter_is_confirmed_or_named_where_nothing_keeps_them() {
    all(|situation, decision| {
        if let Decision::Reject { named } = decision {
            assert_eq!(situation.tolerance, Tolerance::All, "{situation:?}");
            match situation.set_aside {
                SetAside::Nowhere | SetAside::Broker => assert!(named, "{situation:?}"),
                SetAside::DeadLetter => {
                    assert!(!named, "{situation:?}");
                    assert_eq!(situation.letter, LetterState::Confirmed, "{situation:?}");
                }
                SetAside::DeadLetterAccepted => panic!("{situation:?}"),
            }
        }
    });
}

#[test]
fn nothing_is_released_to_be_retried() {
    all(|situation, decision| {
        if matches!(decision, Decision::Release { .. }) && situation.told == Told::Run {
            let is_too_late = situation.fresh || situation.cut_off;
            let lock_ends = matches!(situation.lock, LockLeft::Ends(_));
            assert!(is_too_late && lock_ends, "{situation:?}");
        }
    });
}

#[test]
fn nothing_is_released_on_its_last_delivery_but_at_a_stop_and_named() {
    all(|situation, decision| {
        if let Decision::Release { named } = decision {
            assert_eq!(named, is_last(situation), "{situation:?}");
            if named {
                assert_eq!(situation.told, Told::Stop, "{situation:?}");
            }
        }
    });
}

#[test]
fn nothing_is_put_again_while_stopping_or_without_a_lock() {
    all(|situation, decision| {
        if matches!(decision, Decision::RetryInPlace { .. }) {
            assert_ne!(situation.told, Told::Stop, "{situation:?}");
            assert_ne!(situation.lock, LockLeft::Lost, "{situation:?}");
        }
    });
}

#[test]
fn a_record_that_cannot_be_written_fails_the_task_unless_errors_are_tolerated() {
    all(|situation, decision| {
        if situation.tolerance == Tolerance::None {
            let refused = situation.tried == Tried::Refused
                || situation.tried == Tried::Fatal && situation.alone;
            if refused {
                assert_eq!(decision, Decision::FailTask(FailReason::Refused));
            }
            let set_aside = matches!(decision, Decision::WriteLetter | Decision::Reject { .. });
            assert!(!set_aside, "{situation:?}");
        } else {
            let for_the_record = matches!(
                decision,
                Decision::FailTask(
                    FailReason::Refused | FailReason::HoldOver | FailReason::BlocksWindow
                )
            );
            assert!(!for_the_record, "{situation:?}");
        }
    });
}

#[test]
fn only_what_stands_alone_is_blamed() {
    all(|situation, decision| {
        let blamed = matches!(
            decision,
            Decision::WriteLetter
                | Decision::Reject { .. }
                | Decision::FailTask(
                    FailReason::Refused
                        | FailReason::HoldOver
                        | FailReason::BlocksWindow
                        | FailReason::NoLetter
                )
        );
        if blamed && situation.tried != Tried::Refused {
            assert!(situation.alone, "{situation:?}");
        }
    });
}

#[test]
fn an_outage_or_a_target_that_wrote_nothing_ends_no_hold() {
    all(|situation, decision| {
        let holds = may_be_written(situation)
            && situation.lock == LockLeft::Renewable
            && situation.told == Told::Run
            && (situation.breaker_open || !situation.others_written);
        if holds {
            let retried = matches!(decision, Decision::RetryInPlace { .. });
            assert!(retried, "{situation:?} {decision:?}");
        }
    });
}

#[test]
fn a_hold_that_is_over_sets_the_record_aside_once_it_stands_alone() {
    all(|situation, decision| {
        if !may_be_written(situation)
            || !hold_is_over(situation)
            || situation.lock == LockLeft::Lost
            || situation.told != Told::Run
        {
            return;
        }
        if !situation.alone {
            let delay = Duration::ZERO;
            assert_eq!(decision, Decision::RetryInPlace { delay }, "{situation:?}");
        } else if situation.tolerance == Tolerance::None {
            let reason = if situation.held_for >= HOLD_MAX {
                FailReason::HoldOver
            } else {
                FailReason::BlocksWindow
            };
            assert_eq!(decision, Decision::FailTask(reason), "{situation:?}");
        } else if situation.letter == LetterState::Unwritten && has_our_letters(situation) {
            assert_eq!(decision, Decision::WriteLetter, "{situation:?}");
        }
    });
}

#[test]
fn a_letter_that_cannot_be_written_is_retried_for_as_long_as_a_record_may_be_held() {
    all(|situation, decision| {
        let waits = situation.tried == Tried::Refused
            && situation.tolerance == Tolerance::All
            && has_our_letters(situation)
            && situation.letter == LetterState::Failed
            && situation.told != Told::Stop
            && situation.lock == LockLeft::Renewable;
        if !waits {
            return;
        }
        if situation.held_for >= HOLD_MAX {
            assert_eq!(decision, Decision::FailTask(FailReason::NoLetter));
        } else {
            assert!(matches!(decision, Decision::RetryInPlace { .. }));
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
            Decision::RetryInPlace { delay } if !delay.is_zero() => {
                let puts = if situation.fresh { 0 } else { 2 };
                let reserve = (situation.put_time * puts).max(RESERVE_MAX);
                assert!(delay + reserve <= left, "{situation:?} {delay:?}");
                assert!(
                    situation.after.is_none_or(|after| delay >= after),
                    "{situation:?}"
                );
            }
            Decision::FailTask(FailReason::LockEnds) => {
                assert_ne!(situation.told, Told::Stop, "{situation:?}");
            }
            _ => {}
        }
    });
}

#[test]
fn a_lost_lock_is_reported_for_what_was_written_and_forgotten_for_what_comes_again() {
    all(|situation, decision| {
        if situation.lock != LockLeft::Lost {
            return;
        }
        match situation.tried {
            Tried::Written => assert_eq!(decision, Decision::ReportDuplicate),
            _ if may_be_written(situation) || situation.tolerance == Tolerance::All => {
                let expected = match is_last(situation) {
                    true => Decision::FailTask(FailReason::LastLockLost),
                    false => Decision::Forget,
                };
                assert_eq!(decision, expected, "{situation:?}");
            }
            _ => assert_eq!(decision, Decision::FailTask(FailReason::Refused)),
        }
    });
}

#[test]
fn a_second_of_a_lock_is_kept_free_or_a_quarter_of_a_short_one() {
    let kept = |ms| lock_reserve(Duration::from_millis(ms)).as_millis();
    assert_eq!([kept(30_000), kept(4000), kept(1000)], [1000, 1000, 250]);
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

#[test]
fn a_stage_is_tried_again_as_kafka_connect_tries_it() {
    let retries = |timeout_ms: Option<u64>, delay_max_ms| StageRetries {
        timeout: timeout_ms.map(Duration::from_millis),
        delay_max: Duration::from_millis(delay_max_ms),
    };
    let wait = |retries, failures, tried_for_ms, jitter| {
        let wait = stage_retry(
            retries,
            failures,
            Duration::from_millis(tried_for_ms),
            jitter,
        );
        wait.map(|wait| wait.as_millis())
    };
    // No time: one attempt.
    assert_eq!(wait(retries(Some(0), 60_000), 1, 0, 0.5), None);
    let waits: Vec<_> = (1..=10)
        .map(|failures| wait(retries(None, 60_000), failures, 0, 0.5))
        .collect();
    let doubled = [
        300, 600, 1200, 2400, 4800, 9600, 19_200, 38_400, 30_000, 30_000,
    ];
    assert_eq!(waits, doubled.map(Some));
    // The last try comes at the end of the time, and is the last.
    assert_eq!(wait(retries(Some(1000), 60_000), 2, 700, 0.5), Some(300));
    assert_eq!(wait(retries(Some(1000), 60_000), 3, 1000, 0.5), None);
    // Never less than a millisecond, never more than the longest.
    assert_eq!(wait(retries(None, 100), u32::MAX, 0, 0.0), Some(1));
    assert_eq!(wait(retries(None, 100), u32::MAX, 0, 1.0), Some(100));
}
