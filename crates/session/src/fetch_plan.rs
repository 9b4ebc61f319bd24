//! What to send next to one leader: a pure function of where things stand.
//!
//! A share session takes one request at a time, so an acknowledgement can't overtake a fetch that
//! waits (KIP-932, peers.md R3). Therefore nobody long-polls while records are held or
//! acknowledgements are pending: such fetches return at once and are paced.

use std::time::{Duration, Instant};

use crate::limits::HOLDING_PACE_MAX;

/// Where things stand with one leader.
#[derive(Debug, Clone)]
pub(crate) struct Situation {
    pub(crate) now: Instant,
    /// A share session is open.
    pub(crate) open: bool,
    /// The member is going.
    pub(crate) closing: bool,
    /// Acquire nothing new.
    pub(crate) paused: bool,
    /// The leader has partitions of ours.
    pub(crate) assigned: bool,
    /// The session's partitions differ from ours.
    pub(crate) changed: bool,
    /// Records that may be asked for.
    pub(crate) credit: u32,
    /// Not worth a fetch below this, while something is held.
    pub(crate) credit_min: u32,
    /// There are more leaders than records may be held: a long poll of one would keep the others waiting.
    pub(crate) crowded: bool,
    /// Offsets held from this leader.
    pub(crate) held: u64,
    /// Offsets held from any leader.
    pub(crate) held_anywhere: u64,
    /// Offsets settled and not sent, that may be sent now.
    pub(crate) pending: u64,
    /// Offsets settled that wait for their next try.
    pub(crate) blocked: u64,
    /// When they are to be sent, fetch or not.
    pub(crate) pending_due: Option<Instant>,
    /// They may ride on a fetch: all of them belong to partitions of the session.
    pub(crate) pending_rides: bool,
    /// When a lock is to be renewed.
    pub(crate) renew_due: Option<Instant>,
    /// Nothing is sent before.
    pub(crate) muted_until: Instant,
    /// No fetch before, after an error.
    pub(crate) backoff_until: Instant,
    /// No fetch before while something is held, the leaders take turns or long polls are short, after an empty one.
    pub(crate) pace_until: Instant,
    /// Longest long poll.
    pub(crate) wait_max: Duration,
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    /// ShareFetch; acknowledgements ride along where the session is open.
    Fetch { wait: Duration, records_max: u32 },
    /// ShareAcknowledge with what is pending.
    Acknowledge,
    /// ShareAcknowledge with renewals.
    Renew,
    /// ShareAcknowledge at epoch −1.
    Close,
    /// The connection has no use any more.
    Drop,
    /// Nothing before the given time.
    Wait(Option<Instant>),
}

pub(crate) fn plan(situation: &Situation) -> Plan {
    let Situation {
        now, open, pending, ..
    } = *situation;
    let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
    if now < situation.muted_until {
        return Plan::Wait(Some(situation.muted_until));
    }
    if situation.closing {
        return match (open, pending) {
            (false, _) => Plan::Drop,
            (true, 0) if situation.blocked == 0 => Plan::Close,
            (true, _) if due(situation.pending_due) => Plan::Acknowledge,
            (true, _) => Plan::Wait(situation.pending_due),
        };
    }
    let owes = pending > 0 || situation.blocked > 0 || situation.held > 0;
    if !situation.assigned && !owes {
        return if open { Plan::Close } else { Plan::Drop };
    }
    if open && due(situation.renew_due) {
        return Plan::Renew;
    }
    // Acknowledgements of partitions that left go alone and first: on a fetch they would join the session
    // again, for good (peers.md R9).
    let alone = open && pending > 0 && !situation.pending_rides;
    if alone && due(situation.pending_due) {
        return Plan::Acknowledge;
    }
    if let Some(fetch) = plan_fetch(situation) {
        return if alone { Plan::Acknowledge } else { fetch };
    }
    if open && due(situation.pending_due) {
        return Plan::Acknowledge;
    }
    Plan::Wait(next(situation))
}

fn wants_fetch(situation: &Situation) -> bool {
    let worth = situation.credit >= situation.credit_min || situation.held_anywhere == 0;
    situation.assigned && !situation.paused && situation.credit > 0 && worth
}

fn fetch_at(situation: &Situation) -> Instant {
    // Without a long poll nothing else slows an idle member down.
    let parks = situation.wait_max >= HOLDING_PACE_MAX && !situation.crowded;
    if situation.held > 0 || situation.blocked > 0 || !parks {
        situation.backoff_until.max(situation.pace_until)
    } else {
        situation.backoff_until
    }
}

fn plan_fetch(situation: &Situation) -> Option<Plan> {
    let now = situation.now;
    if wants_fetch(situation) && now >= fetch_at(situation) {
        let idle = situation.held == 0 && situation.pending == 0 && situation.blocked == 0;
        let wait = if idle && !situation.crowded {
            situation.wait_max
        } else {
            Duration::ZERO
        };
        return Some(Plan::Fetch {
            wait,
            records_max: situation.credit,
        });
    }
    // Only tells which partitions belong to the session.
    let tells = situation.open && situation.changed && now >= situation.backoff_until;
    tells.then_some(Plan::Fetch {
        wait: Duration::ZERO,
        records_max: 0,
    })
}

fn next(situation: &Situation) -> Option<Instant> {
    let fetch = wants_fetch(situation).then(|| fetch_at(situation));
    let changed = (situation.open && situation.changed).then_some(situation.backoff_until);
    let renew = situation.renew_due.filter(|_| situation.open);
    let send = situation.pending_due.filter(|_| situation.open);
    [fetch, changed, renew, send].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle() -> Situation {
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        Situation {
            now,
            open: true,
            closing: false,
            paused: false,
            assigned: true,
            changed: false,
            credit: 1000,
            credit_min: 250,
            crowded: false,
            held: 0,
            held_anywhere: 0,
            pending: 0,
            blocked: 0,
            pending_due: None,
            pending_rides: true,
            renew_due: None,
            muted_until: now,
            backoff_until: now,
            pace_until: now,
            wait_max: Duration::from_millis(500),
        }
    }

    #[test]
    fn only_an_idle_member_long_polls() {
        assert_eq!(
            plan(&idle()),
            Plan::Fetch {
                wait: Duration::from_millis(500),
                records_max: 1000
            }
        );
        let holding = Situation {
            held: 1,
            held_anywhere: 1,
            ..idle()
        };
        assert_eq!(
            plan(&holding),
            Plan::Fetch {
                wait: Duration::ZERO,
                records_max: 1000
            }
        );
        let pending = Situation {
            pending: 1,
            pending_due: Some(idle().now + Duration::from_secs(1)),
            ..idle()
        };
        assert_eq!(
            plan(&pending),
            Plan::Fetch {
                wait: Duration::ZERO,
                records_max: 1000
            }
        );
    }

    #[test]
    fn without_long_polls_an_idle_member_is_paced() {
        let pace_until = idle().now + Duration::from_millis(50);
        let short = Situation {
            wait_max: Duration::ZERO,
            pace_until,
            ..idle()
        };
        assert_eq!(plan(&short), Plan::Wait(Some(pace_until)));
    }

    #[test]
    fn pace_holds_fetches_back_only_while_records_are_held() {
        let pace_until = idle().now + Duration::from_millis(50);
        let holding = Situation {
            held: 1,
            held_anywhere: 1,
            pace_until,
            ..idle()
        };
        assert_eq!(plan(&holding), Plan::Wait(Some(pace_until)));
        assert!(matches!(
            plan(&Situation {
                pace_until,
                ..idle()
            }),
            Plan::Fetch { .. }
        ));
    }

    #[test]
    fn leaders_that_take_turns_are_asked_without_a_wait_and_paced() {
        let situation = Situation {
            credit: 1,
            credit_min: 1,
            crowded: true,
            ..idle()
        };
        let at_once = Plan::Fetch {
            wait: Duration::ZERO,
            records_max: 1,
        };
        assert_eq!(plan(&situation), at_once);
        let pace_until = situation.now + Duration::from_millis(200);
        let paced = Situation {
            pace_until,
            ..situation
        };
        assert_eq!(plan(&paced), Plan::Wait(Some(pace_until)));
    }

    #[test]
    fn without_credit_acknowledgements_go_alone_when_due() {
        let now = idle().now;
        let full = Situation {
            credit: 0,
            held: 9,
            held_anywhere: 9,
            pending: 5,
            ..idle()
        };
        let later = now + Duration::from_millis(10);
        assert_eq!(
            plan(&Situation {
                pending_due: Some(later),
                ..full.clone()
            }),
            Plan::Wait(Some(later))
        );
        assert_eq!(
            plan(&Situation {
                pending_due: Some(now),
                ..full
            }),
            Plan::Acknowledge
        );
    }

    #[test]
    fn renewal_goes_before_everything_else() {
        let situation = Situation {
            held: 1,
            held_anywhere: 1,
            renew_due: Some(idle().now),
            ..idle()
        };
        assert_eq!(plan(&situation), Plan::Renew);
    }

    #[test]
    fn acknowledgements_of_partitions_that_left_never_ride_on_a_fetch() {
        let now = idle().now;
        let later = now + Duration::from_secs(1);
        let pending = Situation {
            pending: 1,
            pending_rides: false,
            ..idle()
        };
        let due = Situation {
            pending_due: Some(now),
            ..pending.clone()
        };
        assert_eq!(plan(&due), Plan::Acknowledge);
        for bits in 0..64_u32 {
            let is = |bit: u32| bits & 1 << bit != 0;
            let situation = Situation {
                paused: is(0),
                assigned: is(1),
                changed: is(2),
                credit: if is(3) { 1000 } else { 0 },
                held: u64::from(is(4)),
                pending_due: Some(if is(5) { now } else { later }),
                ..pending.clone()
            };
            let plan = plan(&situation);
            assert!(
                !matches!(plan, Plan::Fetch { .. }),
                "{situation:?}: {plan:?}"
            );
        }
    }

    #[test]
    fn closing_flushes_then_closes_then_drops() {
        let closing = Situation {
            closing: true,
            ..idle()
        };
        let now = closing.now;
        assert_eq!(
            plan(&Situation {
                pending: 3,
                pending_due: Some(now),
                ..closing.clone()
            }),
            Plan::Acknowledge
        );
        assert_eq!(plan(&closing), Plan::Close);
        assert_eq!(
            plan(&Situation {
                open: false,
                ..closing
            }),
            Plan::Drop
        );
    }

    #[test]
    fn paused_member_acquires_nothing_but_keeps_its_session() {
        assert_eq!(
            plan(&Situation {
                paused: true,
                ..idle()
            }),
            Plan::Wait(None)
        );
    }
}
