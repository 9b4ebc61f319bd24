//! Takes steps away from a script that fails as long as it goes on failing.

use super::script::Script;
use super::{Outcome, run};

/// Runs that shrinking may take.
const RUNS_MAX: usize = 500;

/// A shorter script that breaks the same promise, and what comes of it.
#[must_use]
pub fn shrink(script: &Script) -> (Script, Outcome) {
    let (mut best, mut outcome) = (script.clone(), run(script));
    let Some(promise) = outcome.violations.first().map(|first| first.promise) else {
        return (best, outcome);
    };
    let mut piece = best.steps.len().div_ceil(2);
    let mut runs = 0;
    while piece > 0 && runs < RUNS_MAX {
        let mut from = 0;
        let mut is_shorter = false;
        while from < best.steps.len() && runs < RUNS_MAX {
            let mut shorter = best.clone();
            let to = (from + piece).min(shorter.steps.len());
            shorter.steps.drain(from..to);
            runs += 1;
            let of_shorter = run(&shorter);
            let mut violations = of_shorter.violations.iter();
            if violations.any(|violation| violation.promise == promise) {
                (best, outcome, is_shorter) = (shorter, of_shorter, true);
            } else {
                from = to;
            }
        }
        if !is_shorter || piece > best.steps.len() {
            piece /= 2;
        }
    }
    (best, outcome)
}
