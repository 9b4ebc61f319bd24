//! `validate`: what is wrong with configuration files, and with what they connect to.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sharegroup_sink::Checked;
use sharegroup_sink::config::{ConfigProblem, Loaded, unlike_connect};

use crate::duration;
use crate::exit::{Exit, Interrupted};
use crate::run::split;
use crate::screen::{Screen, print};
use crate::signals::Signals;

/// Check the files of a worker and its connectors, without starting anything
///
/// Everything that is wrong with any of the files is said at once, with its file and line, the
/// nearest key that is known and what is allowed. Without --connect no cluster is asked. What a
/// configuration provider gives is looked up, and never shown.
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
    /// Also ask the cluster and the targets, and change nothing there
    ///
    /// Whether the brokers can be reached, let this client in and have share groups; whether the
    /// topics are there and may be read, and the group is a share group; whether the target can be
    /// reached, lets this client in, and has what the sink writes to, with the rights for it. What
    /// can't be told before records are written is said. Exit code 1 where something would fail.
    #[arg(long, verbatim_doc_comment)]
    connect: bool,
    /// How long the cluster, and each target, may take to answer
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse, requires = "connect")]
    connect_timeout: Duration,
}

const EXAMPLES: &str = "\
Examples:
  sharegroup validate examples/worker.properties examples/file-sink.properties
  sharegroup validate --connect worker.properties sink.properties  before the first start
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
    let within = args.connect.then_some(args.connect_timeout);
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
            screen.note(&format!("{}: nothing would start", said(errors, warnings)));
            return Ok(Exit::Usage);
        }
    };
    split(&loaded.warnings).show_up_to(SHOWN_MAX, screen);
    let Some(within) = within else {
        print(&summary(&loaded, &[]))?;
        print(&verdict(loaded.warnings.len()))?;
        return Ok(Exit::Done);
    };
    tokio::select! {
        checked = loaded.check(within) => tell(&loaded, &checked, screen),
        sign = signals.first() => Err(Interrupted(sign).into()),
    }
}

/// What the look at the cluster and the targets has found.
fn tell(loaded: &Loaded, checked: &[Checked], screen: &Screen) -> anyhow::Result<Exit> {
    // What is said of the cluster is the same for all of its connectors.
    let mut found: Vec<ConfigProblem> = Vec::new();
    for problem in checked.iter().flat_map(|checked| &checked.problems) {
        if !found.contains(problem) {
            found.push(problem.clone());
        }
    }
    print(&summary(loaded, checked))?;
    let problems = split(&found);
    problems.show_up_to(SHOWN_MAX, screen);
    let warnings = problems.warnings.len() + loaded.warnings.len();
    if problems.errors.is_empty() {
        print(&verdict(warnings))?;
        return Ok(Exit::Done);
    }
    let found = said(problems.errors.len(), warnings);
    screen.note(&format!("{found}: it would not work"));
    Ok(Exit::Failed)
}

/// What would run, and what is known of its cluster and its target.
fn summary(loaded: &Loaded, checked: &[Checked]) -> String {
    let mut text = String::new();
    for (index, connector) in loaded.connectors.iter().enumerate() {
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
        let notes = checked.get(index).map_or(&[][..], |checked| &checked.notes);
        for note in notes {
            let _written = writeln!(text, "  {note}");
        }
    }
    text
}

fn verdict(warnings: usize) -> String {
    match warnings {
        0 => "Nothing is wrong.\n".to_owned(),
        warnings => format!("No errors, {}.\n", plural(warnings, "warning")),
    }
}

fn said(errors: usize, warnings: usize) -> String {
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
