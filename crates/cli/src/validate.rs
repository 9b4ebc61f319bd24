//! `validate`: what is wrong with configuration files.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use sharegroup_sink::config::{Loaded, unlike_connect};

use crate::exit::Exit;
use crate::run::split;
use crate::screen::{Screen, print};
use crate::signals::Signals;

/// Check the files of a worker and its connectors, without starting anything
///
/// Everything that is wrong with any of the files is said at once, with its file and line, the
/// nearest key that is known and what is allowed. No cluster is asked. What a configuration
/// provider gives is looked up, and never shown.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", crate::exit::EXIT_CODES))]
pub(crate) struct ValidateArgs {
    /// The worker's settings: bootstrap.servers and so on
    #[arg(value_name = "WORKER.properties")]
    worker: PathBuf,
    /// The connectors' settings, one file each
    #[arg(value_name = "CONNECTOR.properties")]
    connectors: Vec<PathBuf>,
    /// Keys that are not known are errors, not warnings
    #[arg(long)]
    strict: bool,
    /// What Kafka Connect would refuse, or read otherwise, is an error
    ///
    /// Names of sinks that are ours alone, and keys of TLS and SASL that a worker's consumers and
    /// producers inherit here, and don't there. For files that both are to run.
    #[arg(long, verbatim_doc_comment)]
    strict_connect: bool,
}

const EXAMPLES: &str = "\
Examples:
  sharegroup validate examples/worker.properties examples/file-sink.properties
  sharegroup validate --strict worker.properties sinks/*.json    in a build, before the files go anywhere
  sharegroup validate --strict-connect worker.properties a.json  for files that Kafka Connect runs, too
  sharegroup validate worker.properties                          the worker's file alone

`sharegroup describe worker` and `sharegroup describe connector NAME` show what the files may hold.";

/// Problems of each kind that are printed: more than anybody mends at once.
const SHOWN_MAX: usize = 200;

/// Runs the command.
pub(crate) async fn run(
    args: ValidateArgs,
    screen: &Screen,
    signals: &Signals,
) -> anyhow::Result<Exit> {
    // A file may be a pipe.
    let load = move || {
        let registry = sharegroup_connectors::registry();
        let loaded =
            sharegroup_sink::config::load(&args.worker, &args.connectors, args.strict, &registry)?;
        match args.strict_connect.then(|| unlike_connect(&loaded)) {
            Some(problems) if !problems.is_empty() => Err([loaded.warnings, problems].concat()),
            _ => Ok(loaded),
        }
    };
    let loaded = match signals.reading(load).await? {
        Ok(loaded) => loaded,
        Err(problems) => {
            let problems = split(&problems);
            problems.show_up_to(SHOWN_MAX, screen);
            let (errors, warnings) = (problems.errors.len(), problems.warnings.len());
            screen.note(&format!("{}: nothing would start", found(errors, warnings)));
            return Ok(Exit::Usage);
        }
    };
    split(&loaded.warnings).show_up_to(SHOWN_MAX, screen);
    print(&summary(&loaded))?;
    Ok(Exit::Done)
}

/// What would run.
fn summary(loaded: &Loaded) -> String {
    let mut text = String::new();
    for connector in &loaded.connectors {
        // Writing to a string never fails.
        let _written = writeln!(
            text,
            "{}: sink {}, topics {}, share group {}, {}",
            connector.name,
            connector.connector().name(),
            connector.subscription,
            connector.consumer.group_id,
            plural(connector.tasks_max as usize, "task"),
        );
    }
    text.push_str(&match loaded.warnings.len() {
        0 => "Nothing is wrong.\n".to_owned(),
        warnings => format!("No errors, {}.\n", plural(warnings, "warning")),
    });
    text
}

fn found(errors: usize, warnings: usize) -> String {
    let errors = plural(errors, "error");
    match warnings {
        0 => errors,
        warnings => format!("{errors} and {}", plural(warnings, "warning")),
    }
}

fn plural(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}
