//! `list`: what a configuration can name.

use std::fmt::Write as _;

use clap::Args;
use serde_json::{Value, json};
use sharegroup_sink::Registry;
use sharegroup_sink::built_in::{BuiltIn, CONVERTERS, PROVIDERS};

use crate::exit::Exit;
use crate::screen::print;

/// List what is built in: sinks, converters, configuration providers
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ListArgs {
    /// As JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  sharegroup list                     what connector.class, the converters and config.providers can name
  sharegroup list --json
  sharegroup describe sink postgres   the keys of a sink
  sharegroup init postgres            files for it, to be edited";

/// Runs the command.
pub(crate) fn run(args: &ListArgs) -> anyhow::Result<Exit> {
    let registry = sharegroup_connectors::registry();
    let text = match args.json {
        true => serde_json::to_string_pretty(&as_json(&registry))? + "\n",
        false => as_text(&registry)?,
    };
    print(&text)?;
    Ok(Exit::Done)
}

/// Name, purpose and Java classes.
type Line = (&'static str, &'static str, Vec<&'static str>);

fn sinks(registry: &Registry) -> Vec<Line> {
    let found = registry.names().into_iter().filter_map(|name| {
        let sink = registry.find(name)?;
        Some((name, sink.purpose(), sink.aliases().to_vec()))
    });
    found.collect()
}

fn built_in(all: &[BuiltIn]) -> Vec<Line> {
    let line = |one: &BuiltIn| (one.name, one.purpose, vec![one.class]);
    all.iter().map(line).collect()
}

fn as_text(registry: &Registry) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    for (heading, lines) in [
        ("Sinks (connector.class)", sinks(registry)),
        (
            "Converters (key.converter, value.converter, header.converter)",
            built_in(CONVERTERS),
        ),
        (
            "Configuration providers (config.providers)",
            built_in(PROVIDERS),
        ),
    ] {
        writeln!(text, "{heading}")?;
        for (name, purpose, classes) in lines {
            let simple = |class: &&'static str| class.rsplit('.').next().unwrap_or(class);
            // Several packages have a class of the same name.
            let mut classes: Vec<_> = classes.iter().map(simple).collect();
            classes.dedup();
            let classes = match classes.is_empty() {
                true => String::new(),
                false => format!(" ({})", classes.join(", ")),
            };
            writeln!(text, "  {name:<10} {purpose}{classes}")?;
        }
        text.push('\n');
    }
    text.push_str(
        "Transformations: none yet.\n\n`sharegroup describe sink NAME` shows a sink's keys, `sharegroup init NAME` writes files for it.\n",
    );
    Ok(text)
}

fn as_json(registry: &Registry) -> Value {
    let all = |lines: Vec<Line>| -> Value {
        let objects = lines.into_iter().map(|(name, purpose, classes)| {
            json!({"name": name, "purpose": purpose, "classes": classes})
        });
        objects.collect()
    };
    json!({
        "sinks": all(sinks(registry)),
        "converters": all(built_in(CONVERTERS)),
        "config_providers": all(built_in(PROVIDERS)),
        "transformations": [],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_has_a_line_and_says_what_it_does() {
        let text = as_text(&sharegroup_connectors::registry()).unwrap();
        for line in [
            "  file       appends records to files, one line each (FileStreamSinkConnector)\n",
            "  json       JSON, with its schema",
            "  env        variables of the environment: ${env:NAME} (EnvVarConfigProvider)\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        for sink in sharegroup_connectors::registry().names() {
            let found = sharegroup_connectors::registry().find(sink).unwrap();
            assert!(!found.purpose().is_empty(), "{sink}");
        }
    }
}
