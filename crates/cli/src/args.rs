//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::exit::EXIT_CODES;
use crate::{broker, consume, describe, init, list, produce, quickstart, run, topics, validate};

/// Moves records from Kafka share groups (KIP-932) into sinks; no JVM, Kafka Connect's files
#[derive(Debug, Parser)]
#[command(
    name = "sharegroup",
    version,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_help = EXAMPLES,
    after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"),
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  sharegroup quickstart                              see it work, from a broker to files
  sharegroup broker --topic orders:4                 a broker on localhost:9092 for trying things out
  sharegroup run worker.properties sink.properties   the work; files as for connect-standalone
  sharegroup validate worker.properties sink.properties   what is wrong with the files, without starting anything;
                                                     with --connect, also whether cluster and target are ready
  sharegroup init postgres                           files for a sink, with what is to be edited first
  sharegroup list                                    the sinks and converters that there are
  sharegroup describe sink file                      what a sink does, and its keys
  sharegroup consume --topic orders                  print a topic as a member of a share group
  sharegroup produce --topic orders < lines.txt      one record per line
  sharegroup topics create --topic orders --partitions 4

`sharegroup COMMAND --help` shows more of each.";

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::RunArgs),
    Init(init::InitArgs),
    Validate(validate::ValidateArgs),
    List(list::ListArgs),
    /// Show sinks and the keys of configuration files: their defaults, what they may be and do
    #[command(subcommand)]
    Describe(describe::DescribeCommand),
    Consume(consume::ConsumeArgs),
    Produce(produce::ProduceArgs),
    /// Create, list, describe and delete topics
    #[command(subcommand)]
    Topics(topics::TopicsCommand),
    Broker(broker::BrokerArgs),
    Quickstart(quickstart::QuickstartArgs),
    /// Print the version
    Version,
}

impl Command {
    /// What is logged where nobody says otherwise.
    pub(crate) const fn log_level(&self) -> &'static str {
        match self {
            Self::Run(_) => "info",
            // A real Kafka that has just started refuses much at first.
            Self::Quickstart(_) => "error",
            _ => "warn",
        }
    }
}

/// Where logs go is fixed: standard error.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub(crate) struct LogArgs {
    /// How logs are written to standard error
    #[arg(long = "log-format", global = true, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub(crate) format: LogFormat,
    /// error, warn, info, debug, trace, or a filter as RUST_LOG takes it
    #[arg(long = "log-level", global = true, value_name = "FILTER")]
    pub(crate) level: Option<String>,
}

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// How tables are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Table,
    Json,
}

/// `KEY=VALUE`; the value may hold further equal signs, blanks around the key don't count.
pub(crate) fn key_value(argument: &str) -> Result<(String, String), String> {
    let (key, value) = argument
        .split_once('=')
        .ok_or("has no `=`; write KEY=VALUE")?;
    let key = key.trim();
    if key.is_empty() {
        return Err("has no key; write KEY=VALUE".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn arguments_are_defined_without_contradiction() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_teaches_with_an_example() {
        for command in Cli::command().get_subcommands() {
            if command.get_name() != "version" {
                let help = command
                    .get_after_help()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                assert!(help.contains("Example"), "{}", command.get_name());
            }
        }
    }

    #[test]
    fn values_keep_further_equal_signs() {
        assert_eq!(key_value("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(key_value("a="), Ok(("a".to_owned(), String::new())));
        for wrong in ["a", "=b", ""] {
            assert!(key_value(wrong).is_err(), "{wrong}");
        }
    }
}
