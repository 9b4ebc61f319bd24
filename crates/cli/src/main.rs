//! The program `sharegroup`: moves records of Kafka share groups into sinks, and the small commands around that.

mod args;
mod broker;
mod client;
mod consume;
mod describe;
mod duration;
mod embedded;
mod exit;
mod init;
mod list;
mod logs;
mod number;
mod process;
mod produce;
mod quickstart;
mod run;
mod screen;
mod signals;
mod sinks;
mod topics;
mod validate;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Cli, Command};
use crate::exit::{Exit, Interrupted, Problems, with_causes};
use crate::screen::Screen;
use crate::signals::Signals;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let screen = Screen::stderr(cli.log.format);
    if let Err(error) = logs::start(&cli.log, cli.command.log_level(), screen) {
        screen.error(&format!("{error:#}"));
        return Exit::Usage.into();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            screen.error(&format!("the runtime could not be started: {error}"));
            return Exit::Failed.into();
        }
    };
    let exit = runtime.block_on(execute(cli.command, screen));
    screen.clear();
    // A thread that still reads standard input must not keep the process.
    runtime.shutdown_background();
    exit.into()
}

async fn execute(command: Command, screen: &'static Screen) -> Exit {
    let outcome = match Signals::listen(screen) {
        Ok(signals) => dispatch(command, screen, signals).await,
        Err(error) => Err(error.into()),
    };
    outcome.unwrap_or_else(|error| {
        if let Some(problems) = error.downcast_ref::<Problems>() {
            problems.show(screen);
            return Exit::Usage;
        }
        if let Some(Interrupted(sign)) = error.downcast_ref() {
            return Exit::CutOff(*sign);
        }
        screen.error(&with_causes(&error));
        Exit::Failed
    })
}

async fn dispatch(
    command: Command,
    screen: &'static Screen,
    signals: Signals,
) -> anyhow::Result<Exit> {
    match command {
        Command::Run(args) => run::run(args, screen, signals).await,
        Command::Validate(args) => validate::run(args, screen, &signals).await,
        Command::Describe(command) => describe::run(&command),
        Command::List(args) => list::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Consume(args) => consume::run(args, screen, signals).await,
        Command::Produce(args) => produce::run(args, screen, signals).await,
        Command::Topics(command) => topics::run(command, screen, signals).await,
        Command::Broker(args) => broker::run(args, screen, signals).await,
        Command::Quickstart(args) => quickstart::run(args, screen, signals).await,
        Command::Version => {
            screen::print(concat!("sharegroup ", env!("CARGO_PKG_VERSION"), "\n"))?;
            Ok(Exit::Done)
        }
    }
}
