//! Development commands of this workspace: `cargo xtask --help`.

mod bench;
mod binaries;
mod fuzz;
mod kafka;
mod proofs;
mod run;
mod simulate;
mod stages;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// Development commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start and stop a real Kafka, run its tools
    #[command(subcommand)]
    Kafka(kafka::Command),
    /// Check everything that has to hold: style, layers, tests, documentation, real Kafka
    Test(StageArgs),
    /// Show what takes too long for `test`
    Prove(StageArgs),
    /// Measure beside what others would use
    #[command(subcommand)]
    Bench(bench::Command),
    /// Look for inputs that break a promise
    Fuzz(fuzz::FuzzArgs),
    /// Play clusters and consumers under virtual time, with troubles by seed, and judge what comes of it
    Simulate(simulate::SimulateArgs),
}

#[derive(Debug, Args)]
struct StageArgs {
    /// Run these only; all when none is named
    names: Vec<String>,
    /// Print the names and what they do, run nothing
    #[arg(long)]
    list: bool,
    /// Show the output of successful stages too
    #[arg(long, short)]
    verbose: bool,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Kafka(command) => kafka::run(command),
        Command::Test(args) => run_stages(stages::STAGES, &args),
        Command::Prove(args) => run_stages(proofs::PROOFS, &args),
        Command::Bench(command) => bench::run(command),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Simulate(args) => simulate::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run_stages(table: &[run::Stage], args: &StageArgs) -> anyhow::Result<ExitCode> {
    if args.list {
        for stage in table {
            println!("{:<14} {}", stage.name, stage.what);
        }
        return Ok(ExitCode::SUCCESS);
    }
    run::run(table, &args.names, &run::Context::new(args.verbose)?)
}
