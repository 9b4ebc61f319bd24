//! Hours of a cluster and its consumers in a second: production session cores against the embedded
//! broker's model, under virtual time, a seeded network, and a script of troubles.
//!
//! A seed makes a [`Script`]; [`run`] plays it and judges what came of it:
//!
//! | promise | what is checked |
//! | --- | --- |
//! | S1 | what the broker applies is what the owner of that delivery said |
//! | S2 | every record ends settled, or its last delivery was told of; every delivery is told one fate |
//! | S3 | no delivery is settled twice, and what an application is told is true |
//! | S4 | nothing is sent after its lock ran out, in another session, or for another delivery |
//! | S5 | what a member holds stays within its limit |
//! | S6 | what is released comes again: with S2, since all runs end drained |
//! | S7 | after a close the broker holds nothing for the member |
//! | S8 | no lock runs out on a member to whom nothing happened; what was dropped isn't released too soon, and an application that hangs is given no more |
//! | work | in the end each running member is in the group with its subscription, and fetches all that it is assigned |
//! | quota | nothing is sent to a broker that throttles |
//!
//! [`shrink`] takes steps away from a script that fails as long as it goes on failing.

mod acknowledges;
#[allow(clippy::indexing_slicing)]
mod application;
#[allow(clippy::indexing_slicing)]
mod end;
// What these modules index is numbered by themselves: a wrong number is a bug to be seen.
#[allow(clippy::indexing_slicing)]
mod judge;
#[allow(clippy::indexing_slicing)]
mod member;
#[allow(clippy::indexing_slicing)]
mod network;
#[allow(clippy::indexing_slicing)]
mod planted;
#[allow(clippy::indexing_slicing)]
mod run;
mod script;
mod shrink;
#[allow(clippy::indexing_slicing)]
mod steps;
mod tally;

use std::time::Duration;

pub use judge::Violation;
pub use planted::Planted;
pub use script::{BROKERS, Script, Setup, Step, Subscription};
pub use shrink::shrink;
pub use tally::Tally;

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How long it took in virtual time.
    pub virtual_time: Duration,
    /// Promises that were broken; a run ends at the first moment that breaks one.
    pub violations: Vec<Violation>,
    /// What it met.
    pub tally: Tally,
}

/// Plays a script.
#[must_use]
pub fn run(script: &Script) -> Outcome {
    run::World::new(script.clone(), None).run()
}

/// Plays a script and prints what goes over the network and what members are told.
#[must_use]
pub fn trace(script: &Script) -> Outcome {
    let mut world = run::World::new(script.clone(), None);
    world.is_traced = true;
    world.run()
}

/// Plays a script with a mistake between the cores and the network: proof that the judge sees it.
#[must_use]
pub fn run_with(script: &Script, planted: Planted) -> Outcome {
    run::World::new(script.clone(), Some(planted)).run()
}
