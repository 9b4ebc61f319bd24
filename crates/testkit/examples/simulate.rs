//! Plays the scripts of many seeds: `simulate --seeds N [--from S]`, or of one: `simulate --seed S`.
//!
//! Ends with code 1 when a promise was broken; the script of the first such seed is printed, shrunk.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use sharegroup_testkit::simulation::{Script, Tally, Violation, run, shrink, trace};

/// Failing seeds that are shown.
const SHOWN_MAX: usize = 10;

#[derive(Debug, Default)]
struct Total {
    seeds: u64,
    virtual_time: Duration,
    tally: Tally,
    failed: Vec<(u64, Vec<Violation>)>,
}

fn main() -> ExitCode {
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(what) => {
            eprintln!("error: {what}; usage: simulate [--seeds N [--from S] | --seed S] [--trace]");
            return ExitCode::from(2);
        }
    };
    let Arguments { from, seeds, .. } = arguments;
    println!("seeds {from} to {}", from.wrapping_add(seeds - 1));
    let total = play(from, seeds);
    print!("{}", total.tally);
    for (seed, violations) in total.failed.iter().take(SHOWN_MAX) {
        println!("seed {seed}:");
        violations
            .iter()
            .for_each(|violation| println!("  {violation}"));
    }
    if let Some((seed, _)) = total.failed.first() {
        let (script, outcome) = shrink(&Script::from_seed(*seed));
        if arguments.is_traced {
            drop(trace(&script));
        }
        println!("shrunk: {script}");
        outcome
            .violations
            .iter()
            .for_each(|violation| println!("  {violation}"));
        println!("again: cargo xtask simulate --seed {seed}");
    }
    let violations: usize = total
        .failed
        .iter()
        .map(|(_, violations)| violations.len())
        .sum();
    println!(
        "seeds {}, virtual hours {:.1}, events {}, violations {violations}",
        total.seeds,
        total.virtual_time.as_secs_f64() / 3600.0,
        total.tally.events
    );
    if violations == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

struct Arguments {
    from: u64,
    seeds: u64,
    /// Print what happens with the shrunk script.
    is_traced: bool,
}

impl Arguments {
    fn read() -> Result<Self, String> {
        let mut arguments = std::env::args().skip(1);
        let (mut from, mut seeds, mut is_traced) = (None, None, false);
        while let Some(name) = arguments.next() {
            if name == "--trace" {
                is_traced = true;
                continue;
            }
            let value = arguments
                .next()
                .ok_or_else(|| format!("{name} has no value"))?;
            let value: u64 = value
                .parse()
                .map_err(|_| format!("{name} {value} is no number"))?;
            match name.as_str() {
                "--seeds" => seeds = Some(value.max(1)),
                "--from" => from = Some(value),
                "--seed" => (from, seeds) = (Some(value), Some(1)),
                _ => return Err(format!("{name} is unknown")),
            }
        }
        Ok(Self {
            from: from.unwrap_or_else(by_clock),
            seeds: seeds.unwrap_or(1_000),
            is_traced,
        })
    }
}

fn by_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(1, |since| u64::from(since.subsec_nanos()))
}

fn play(from: u64, seeds: u64) -> Total {
    let next = AtomicU64::new(0);
    let total = Mutex::new(Total::default());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut own = Total::default();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= seeds {
                        break;
                    }
                    let seed = from.wrapping_add(number);
                    let outcome = run(&Script::from_seed(seed));
                    own.seeds += 1;
                    own.virtual_time += outcome.virtual_time;
                    own.tally.add(&outcome.tally);
                    if !outcome.violations.is_empty() {
                        own.failed.push((seed, outcome.violations));
                    }
                }
                if let Ok(mut total) = total.lock() {
                    total.seeds += own.seeds;
                    total.virtual_time += own.virtual_time;
                    total.tally.add(&own.tally);
                    total.failed.extend(own.failed);
                }
            });
        }
    });
    let mut total = total.into_inner().unwrap_or_default();
    total.failed.sort_by_key(|(seed, _)| *seed);
    total
}
