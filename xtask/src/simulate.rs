//! `cargo xtask simulate`: production session cores, or whole sink workers, against the broker's model, seed by seed.

use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::run::{Context, Count};

/// Seeds that `cargo xtask test` plays.
const SEEDS_IN_TEST: u64 = 10_000;

/// Seeds of workers that it plays; tasks run in any order, so the same ones are played anew each time.
const WORKER_SEEDS_IN_TEST: u64 = 10_000;

/// What to play.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Play so many seeds
    #[arg(long, default_value_t = SEEDS_IN_TEST, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first of them; a random one, which is printed, when absent
    #[arg(long)]
    from: Option<u64>,
    /// Play this one alone
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Print what goes over the network in the first seed that fails, shrunk
    #[arg(long, conflicts_with = "sinks")]
    trace: bool,
    /// Play workers with sinks that fail, hang and panic instead of session cores
    #[arg(long)]
    sinks: bool,
}

/// Plays seeds; the program's own code is ours: 1 when a promise was broken.
pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    let context = Context::new(true)?;
    let mut simulate = if args.sinks {
        workers(&context, args.from.unwrap_or_else(random_seed), args.seeds)
    } else {
        simulator(&context)
    };
    match args.seed {
        Some(seed) if args.sinks => simulate.env("SINK_SEED", seed.to_string()),
        None if args.sinks => &mut simulate,
        Some(seed) => simulate.arg("--seed").arg(seed.to_string()),
        None => simulate.arg("--seeds").arg(args.seeds.to_string()),
    };
    if let Some(from) = args.from.filter(|_| !args.sinks) {
        simulate.arg("--from").arg(from.to_string());
    }
    if args.trace {
        simulate.arg("--trace");
    }
    let status = simulate.status()?;
    Ok(status.code().map_or(ExitCode::FAILURE, |code| {
        ExitCode::from(u8::try_from(code).unwrap_or(1))
    }))
}

/// The stage of `cargo xtask test`. The same seeds each time, so that what fails is the change; to look for more is
/// `cargo xtask simulate`.
pub(crate) fn check(context: &Context) -> anyhow::Result<Count> {
    let seeds = SEEDS_IN_TEST.to_string();
    let output = context.output(simulator(context).args(["--from", "0", "--seeds", &seeds]))?;
    println!("{}", output.lines().last().unwrap_or_default());
    let output = context.output(&mut workers(context, 0, WORKER_SEEDS_IN_TEST))?;
    let is_sum = |line: &&str| line.contains(&format!("seeds {WORKER_SEEDS_IN_TEST}: "));
    println!("{}", output.lines().find(is_sum).unwrap_or_default());
    Ok(Count::ONE.plus(Count::ONE))
}

/// Workers with troubled sinks: a test of the sink crate, with optimization.
fn workers(context: &Context, from: u64, seeds: u64) -> Command {
    let mut cargo = context.cargo(["test", "--release", "--quiet"]);
    cargo.args([
        "-p",
        "sharegroup-sink",
        "--lib",
        "simulation::",
        "--",
        "--nocapture",
    ]);
    cargo.env("SINK_SEED_FROM", from.to_string());
    cargo.env("SINK_SEEDS", seeds.to_string());
    cargo
}

/// Another one each time.
fn random_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() % 1_000_000_000)
}

/// With optimization: thousands of seeds are played.
fn simulator(context: &Context) -> Command {
    let mut cargo = context.cargo(["run", "--release", "--quiet"]);
    cargo.args(["-p", "sharegroup-testkit", "--no-default-features"]);
    cargo.args(["--features", "simulation", "--example", "simulate", "--"]);
    cargo
}
