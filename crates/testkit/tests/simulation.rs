//! The simulator itself: it finds nothing in the product, and everything in a product with a mistake.
#![cfg(feature = "simulation")]
#![allow(missing_docs, reason = "tests")]

use sharegroup_testkit::simulation::{Planted, Script, Step, run, run_with};

/// Seeds in which a mistake has to show.
const SEEDS: u64 = 60;

/// Seeds with one trouble in which a mistake has to show.
const SEEDS_WITH_IT: usize = 30;

#[test]
fn promises_hold_in_a_few_seeds() {
    for seed in 0..10 {
        let outcome = run(&Script::from_seed(seed));
        assert_eq!(outcome.violations, [], "seed {seed}");
    }
}

#[test]
fn a_request_left_behind_in_the_network_breaks_no_promise() {
    // An acknowledgement that a network held up for longer than its lock comes out of a connection that its
    // member has given up, and hits the same record in the member's next session at the same epoch.
    const LEFT_BEHIND: u64 = 84_509_105;
    let outcome = run(&of_one_topic(LEFT_BEHIND));
    assert_eq!(outcome.violations, []);
}

#[test]
fn an_assignment_that_went_to_a_heartbeat_left_behind_is_asked_for_again() {
    // The coordinator tells an assignment once, and told it to a heartbeat that its member had given up.
    const TAKEN_AWAY: u64 = 1_000_638;
    let outcome = run(&Script::from_seed(TAKEN_AWAY));
    assert_eq!(outcome.violations, []);
}

#[test]
fn metadata_that_comes_after_the_end_is_told_to_nobody() {
    // A topic is gone, and the answer that says so finds its member closed.
    const CLOSED_MEANWHILE: u64 = 1_001_440;
    let outcome = run(&Script::from_seed(CLOSED_MEANWHILE));
    assert_eq!(outcome.violations, []);
}

#[test]
fn a_subscription_that_changes_during_a_heartbeat_is_told() {
    // The heartbeat's answer must not count for what it didn't carry.
    const DURING_A_HEARTBEAT: u64 = 1_005_803;
    let outcome = run(&Script::from_seed(DURING_A_HEARTBEAT));
    assert_eq!(outcome.violations, []);
}

/// A leader moved: what it had granted before could not be renewed, while other leaders renewed.
#[test]
fn stale_records_of_one_leader_are_not_taken_for_a_group_without_renewals() {
    const STALE: u64 = 628_407_020;
    let outcome = run(&Script::from_seed(STALE));
    assert_eq!(outcome.violations, []);
}

/// A leader moved away and back: what is past all that it has acquired since is stale, and says nothing of renewals.
#[test]
fn records_past_the_leaders_end_are_not_taken_for_a_group_without_renewals() {
    const PAST_THE_END: u64 = 76_039;
    let outcome = run(&Script::from_seed(PAST_THE_END));
    assert_eq!(outcome.violations, []);
}

/// The script that a seed had while there was one topic, and nothing happened to it.
fn of_one_topic(seed: u64) -> Script {
    const LATER: [&str; 8] = [
        "RecreateTopic",
        "AddPartitions",
        "Subscribe",
        "SessionLimit",
        "GroupFull",
        "Throttle",
        "Deny",
        "DropDeliveries",
    ];
    let mut script = Script::from_seed(seed);
    script.setup.partitions_of_second = 0;
    let partitions = script.setup.partitions;
    script.steps.retain(|(_, step)| match step {
        Step::Produce { partition, .. } => *partition < partitions,
        step => !LATER.contains(&step.name().as_str()),
    });
    script
}

#[test]
fn run_of_a_seed_is_the_same_each_time() {
    let script = Script::from_seed(7);
    assert_eq!(run(&script), run(&script));
}

#[test]
fn every_script_is_long_and_rough_enough() {
    for seed in 0..1_000 {
        let script = Script::from_seed(seed);
        let offsets = script.steps.iter().map(|(_, step)| match step {
            Step::Produce { offsets, .. } => *offsets,
            _ => 0,
        });
        assert!(offsets.sum::<u64>() >= 2_000);
        let troubles = script.steps.iter().filter(|(_, step)| step.is_trouble());
        assert!(troubles.count() >= 5);
        assert!(script.setup.members >= 4);
        assert!(script.setup.length >= 3 * script.setup.lock);
    }
}

#[test]
fn each_planted_mistake_is_seen() {
    let mut unseen = Vec::new();
    for planted in Planted::ALL {
        let seen = (0..SEEDS).find_map(|seed| {
            let outcome = run_with(&Script::from_seed(seed), planted);
            outcome
                .violations
                .first()
                .map(|first| (seed, first.clone()))
        });
        match seen {
            Some((seed, violation)) => println!("{planted:?}: seed {seed}: {violation}"),
            None => unseen.push(planted),
        }
    }
    assert_eq!(unseen, [], "mistakes that nothing saw");
}

#[test]
fn each_trouble_alone_shows_the_mistake_that_is_made_with_it() {
    let pairs = [
        ("RecreateTopic", Planted::AcknowledgeToNamesake),
        ("AddPartitions", Planted::IgnoreNewPartitions),
        ("Subscribe", Planted::LoseAcknowledgementsOfUnsubscribed),
        ("Subscribe", Planted::KeepFirstSubscription),
        ("SessionLimit", Planted::SessionLimitIsTheEnd),
        ("GroupFull", Planted::FullGroupIsTheEnd),
        ("Lock", Planted::KeepFirstLock),
        ("SwitchRenewals", Planted::FailedRenewalCounts),
        ("Throttle", Planted::IgnoreThrottle),
        ("Deny", Planted::DeniedCountsAsApplied),
        ("DropDeliveries", Planted::ReleaseDroppedAtOnce),
        ("DropDeliveries", Planted::ReleaseLastDelivery),
        ("Hang", Planted::NeverStall),
    ];
    for (trouble, planted) in pairs {
        let with_it_alone = (0..).map(|seed| {
            let mut script = Script::from_seed(seed);
            let steps = &mut script.steps;
            steps.retain(|(_, step)| !step.is_trouble() || step.name() == trouble);
            script
        });
        let mut met = with_it_alone.filter(|script| {
            let mut steps = script.steps.iter();
            steps.any(|(_, step)| step.name() == trouble)
        });
        let seen = met.by_ref().take(SEEDS_WITH_IT).find_map(|script| {
            assert_eq!(run(&script).violations, [], "{script}");
            let outcome = run_with(&script, planted);
            let first = outcome.violations.into_iter().next();
            first.map(|first| (script.seed, first))
        });
        let Some((seed, violation)) = seen else {
            panic!("{trouble} doesn't show {planted:?}");
        };
        println!("{trouble}: {planted:?}: seed {seed}: {violation}");
    }
}
