//! `init NAME`: files for a sink, to be edited.

mod starter;

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use self::starter::Starter;
use crate::exit::{Exit, Problems};
use crate::screen::print;
use crate::sinks;

/// Write a worker's file and a sink's, commented, with what is to be edited first
///
/// The sink's file begins with the lines that only you can fill in; what follows works as it is, and
/// what is rarely needed is commented out with its default. No file is overwritten: a
/// worker.properties that is there already is used as it is.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_help = EXAMPLES)]
pub(crate) struct InitArgs {
    /// The sink: its short name, or the Java class that it replaces; `sharegroup list` has all
    name: String,
    /// The folder for the files; left out, the current one
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Where Kafka is, for the worker's file
    #[arg(long, value_name = "HOST:PORT", default_value = "localhost:9092")]
    bootstrap_server: String,
}

const EXAMPLES: &str = "\
Example:
  sharegroup init postgres                                               writes worker.properties and postgres.properties
  (edit the lines that it names)
  sharegroup validate --connect worker.properties postgres.properties   is everything there, and does it let me in?
  sharegroup run worker.properties postgres.properties";

/// Runs the command.
pub(crate) fn run(args: &InitArgs) -> anyhow::Result<Exit> {
    let registry = sharegroup_connectors::registry();
    let sink = sinks::find(&registry, &args.name)?;
    let starter = Starter::of(sink.as_ref());
    let folder = args.dir.clone().unwrap_or_default();
    let worker = folder.join("worker.properties");
    let connector = folder.join(format!("{}.properties", sink.name()));
    let text = starter.connector();
    if !write_new(&connector, &text)? {
        let shown = connector.display();
        let message = format!(
            "{shown} is there already, and nothing is overwritten; move it away, or name another folder with --dir"
        );
        return Err(Problems::one(message).into());
    }
    let is_new = write_new(&worker, &starter::worker(&args.bootstrap_server))?;
    print(&next_steps(&worker, is_new, &connector, &starter))?;
    Ok(Exit::Done)
}

/// Whether there was no such file.
fn write_new(path: &Path, text: &str) -> anyhow::Result<bool> {
    let mut file = match File::create_new(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        Err(error) => {
            return Err(error).with_context(|| format!("{} can't be made", path.display()));
        }
    };
    let written = file.write_all(text.as_bytes());
    written.with_context(|| format!("{} can't be written", path.display()))?;
    Ok(true)
}

fn next_steps(worker: &Path, is_new: bool, connector: &Path, starter: &Starter<'_>) -> String {
    let (worker, connector) = (worker.display(), connector.display());
    let first = match is_new {
        true => format!("{worker} and {connector} are written."),
        false => format!("{connector} is written, {worker} was there and stays as it is."),
    };
    let lines = match starter.edits().len() {
        1 => "Edit one line".to_owned(),
        2 => "Edit two lines".to_owned(),
        count => format!("Edit {count} lines"),
    };
    let edits = starter.edits().into_iter().map(|(key, example)| {
        let line = format!("{key}=");
        format!("  {line:<17} for example {example}\n")
    });
    let edits: String = edits.collect();
    format!(
        "{first}\n\n{lines} of {connector}:\n{edits}\nThen:\n  sharegroup validate --connect {worker} {connector}\n  \
         sharegroup run {worker} {connector}\n"
    )
}

#[cfg(test)]
mod tests {
    use sharegroup_sink::Registry;
    use sharegroup_sink::config::{ConfigProblem, Properties, load_properties};

    use super::*;

    fn validated(registry: &Registry, connector: &str) -> Result<(), Vec<String>> {
        let parse = |name: &str, text: &str| {
            Properties::parse(Path::new(name), text, &mut Vec::new()).unwrap()
        };
        let worker = parse("worker.properties", &starter::worker("localhost:9092"));
        let connector = parse("sink.properties", connector);
        let texts = |problems: &[ConfigProblem]| -> Vec<_> {
            problems.iter().map(ToString::to_string).collect()
        };
        let loaded = load_properties(worker, vec![connector], true, registry);
        let loaded = loaded.map_err(|problems| texts(&problems))?;
        assert_eq!(texts(&loaded.warnings), [""; 0]);
        Ok(())
    }

    #[test]
    fn files_pass_once_they_are_edited_and_not_before() {
        let registry = sharegroup_connectors::registry();
        for name in registry.names() {
            let sink = registry.find(name).unwrap();
            let starter = Starter::of(sink.as_ref());
            let mut text = starter.connector();
            let problems = validated(&registry, &text).unwrap_err();
            for (key, example) in starter.edits() {
                let is_named = problems
                    .iter()
                    .any(|problem| problem.contains(&format!(": {key}=")));
                assert!(is_named, "{name}: {key}: {problems:?}");
                let line = format!("\n{key}=\n");
                assert_eq!(text.matches(&line).count(), 1, "{name}: {key}");
                text = text.replace(&line, &format!("\n{key}={example}\n"));
            }
            assert_eq!(validated(&registry, &text), Ok(()), "{name}:\n{text}");
        }
    }

    /// Each line may be taken out of its comment by itself.
    #[test]
    fn what_is_commented_out_are_keys_of_the_sink() {
        let registry = sharegroup_connectors::registry();
        for name in registry.names() {
            let sink = registry.find(name).unwrap();
            let text = Starter::of(sink.as_ref()).connector();
            let (_, rest) = text.split_once(starter::RARELY).unwrap();
            let keys = rest
                .lines()
                .filter_map(|line| line.strip_prefix("#")?.split_once('='));
            for (key, value) in keys.filter(|(key, _)| !key.contains(' ')) {
                let known = sink.keys().iter().find(|def| def.name == key);
                let is_default = known.is_none_or(|def| def.default.unwrap_or("") == value);
                assert!(is_default, "{name}: {key}={value}");
            }
        }
    }
}
