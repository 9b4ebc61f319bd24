//! Benches that start what they need: `cargo xtask bench share`.

mod broker;
mod client;
mod clients;
mod figures;
mod machine;
mod plot;
mod profile;
mod report;
mod scenario;
mod share;

use std::process::ExitCode;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Share consumers side by side on a real broker; results go to benches/results
    Share(ShareArgs),
    /// A flame graph of our share consumer, and where its time goes
    Profile(profile::ProfileArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ShareArgs {
    /// The few figures that matter most, in under eight minutes once the clients are built
    #[arg(long)]
    quick: bool,
    /// Rounds, each client once in each [default: 7, with --quick 3]
    #[arg(long)]
    rounds: Option<u32>,
    /// This scenario only; may be given several times
    #[arg(long, value_name = "SCENARIO")]
    only: Vec<String>,
    /// At most so many records in a topic, to try something out
    #[arg(long)]
    records: Option<u64>,
    /// Print the scenarios, run nothing
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Share(args) => share::run(&args),
        Command::Profile(args) => profile::run(&args),
    }
}
