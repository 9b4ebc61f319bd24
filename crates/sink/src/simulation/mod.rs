//! Workers over real consumers against the embedded broker, under virtual time: with sinks that fail, hang and
//! panic, workers that are killed, and a cluster in trouble.
//!
//! A seed makes a [`Script`]; [`run`] plays it, heals everything, lets the last worker finish, and judges what came
//! of it by the broker's own history and by what the target has:
//!
//! | promise | what is checked |
//! | --- | --- |
//! | S1 | a record is accepted only after the target has it, written in that very delivery, and rejected only if it is one that the target refuses for ever, or that nobody would get again, after its dead letter |
//! | S2 | every record ends written, in a dead letter, or named by a task that failed; none is archived without a word |
//! | S3 | where nothing happened but what a sink may answer, each record is written once, and has one dead letter at most |
//! | S5 | a task holds no more than `share.credit.records` |
//! | S6 | nothing is released as a retry; on its last delivery only what a task that failed names, where no dead letters are kept |
//! | S7 | a worker that stopped in time leaves nothing held |
//! | S8 | no lock runs out where nothing happened but what a sink may answer |
//! | work | everything is settled in the end, and a task that fails says why |
//!
//! S4 is the session's: the simulation of `sharegroup-testkit` looks at that.
//!
//! `SINK_SEEDS=N` and `SINK_SEED_FROM=S` choose the seeds, `SINK_SEED=S` plays one and prints what happened.

mod judge;
#[path = "../../tests/network/mod.rs"]
mod network;
mod operator;
mod script;
mod target;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use self::judge::Verdict;
use self::script::Script;

/// Seeds of a run that asks for no number.
const SEEDS: u64 = 10;

/// Seeds in which a mistake has to show.
const SEEDS_WITH_MISTAKE: u64 = 40;

/// So many seeds meet every trouble.
const SEEDS_OF_ALL_TROUBLES: u64 = 1_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect(name))
}

/// Plays one seed on a runtime of its own.
fn run(seed: u64) -> Verdict {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let script = Script::from_seed(seed);
    let played = AssertUnwindSafe(|| runtime.block_on(operator::play(&script)));
    catch_unwind(played).unwrap_or_else(|_| Verdict::broken(format!("seed {seed} panicked")))
}

#[test]
fn promises_hold_for_tasks_with_sinks_that_fail_hang_and_panic() {
    if let Some(seed) = number("SINK_SEED") {
        println!("{:#?}", Script::from_seed(seed));
        let verdict = run(seed);
        println!("{verdict:#?}");
        assert_eq!(verdict.violations, Vec::<String>::new());
        return;
    }
    // Sinks panic by the thousand.
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        if !text.contains(target::PANIC) {
            eprintln!("{text}");
        }
    }));
    let first = number("SINK_SEED_FROM").unwrap_or(0);
    let end = first + number("SINK_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(first);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let play = || {
        let mut sum = Verdict::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return sum;
            }
            let verdict = run(seed);
            for violation in &verdict.violations {
                println!("seed {seed}: {violation}");
            }
            sum.add(verdict);
        }
    };
    let sum = thread::scope(|scope| {
        let players: Vec<_> = (0..threads).map(|_| scope.spawn(play)).collect();
        let verdicts = players.into_iter().map(|player| player.join().unwrap());
        verdicts.fold(Verdict::default(), |mut sum, verdict| {
            sum.add(verdict);
            sum
        })
    });
    println!("seeds {}: {:?}", end - first, sum.tally);
    assert_eq!(sum.violations, Vec::<String>::new());
    if end - first >= SEEDS_OF_ALL_TROUBLES {
        sum.tally.assert_met();
    }
}

#[test]
fn judge_sees_an_acceptance_without_a_write_a_lost_record_and_a_write_too_many() {
    for (planted, promise) in [
        (target::Planted::ForgetsOne, "S1"),
        (target::Planted::WritesTwice, "S3"),
        (target::Planted::KeepsNoLetter, "S2"),
    ] {
        let seen = (0..SEEDS_WITH_MISTAKE).any(|seed| {
            let mut script = Script::from_seed(seed);
            script.planted = Some(planted);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            let verdict = runtime.block_on(operator::play(&script));
            verdict
                .violations
                .iter()
                .any(|violation| violation.contains(promise))
        });
        assert!(seen, "{planted:?} is not seen");
    }
}
