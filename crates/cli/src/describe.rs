//! `describe worker|connector|sink`: the keys of configuration files.

use std::borrow::Cow;
use std::fmt::Write as _;

use clap::{Args, Subcommand};
use serde_json::json;
use sharegroup_sink::config::{
    Definition, Effect, connector_definitions, definitions_json, nearest, sink_definitions,
    worker_definitions,
};
use sharegroup_sink::{Connector, Registry};

use crate::exit::{Exit, Problems};
use crate::screen::print;
use crate::sinks::find;

/// Whose keys.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum DescribeCommand {
    /// The keys of a worker's file
    Worker(WorkerArgs),
    /// The keys of a connector's file; without a name, the sinks that there are
    Connector(ConnectorArgs),
    /// What a sink does, its class, and the keys of its own
    Sink(SinkArgs),
}

const EXAMPLES: &str = "\
Examples:
  sharegroup describe sink file                         what a sink does, and its own keys
  sharegroup describe sink postgres pk fields           those with one of these words in them
  sharegroup describe connector                         the sinks
  sharegroup describe connector file                    all keys of a file sink
  sharegroup describe connector file share.hold.max.ms  one of them
  sharegroup describe connector file share errors       those with one of these words in them
  sharegroup describe worker --json                     definitions as Kafka Connect's REST API writes them";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WorkerArgs {
    /// Keys, or parts of them; all keys when none is given
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    /// As JSON, in the form of Kafka Connect's REST API
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConnectorArgs {
    /// The sink, as in connector.class: its short name, or the Java class that it replaces
    name: Option<String>,
    /// Keys, or parts of them; all keys when none is given
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    /// As JSON, in the form of Kafka Connect's REST API
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SinkArgs {
    /// The sink: its short name, or the Java class that it replaces; `sharegroup list` has all
    name: String,
    /// Keys, or parts of them; all keys when none is given
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(command: &DescribeCommand) -> anyhow::Result<Exit> {
    let registry = sharegroup_connectors::registry();
    let text = match command {
        DescribeCommand::Worker(args) => keys(worker_definitions(), &args.keys, args.json)?,
        DescribeCommand::Connector(args) => match &args.name {
            None => sinks(&registry, args.json)?,
            Some(name) => {
                let sink = find(&registry, name)?;
                let definitions = connector_definitions(Some(sink.as_ref()));
                keys(definitions, &args.keys, args.json)?
            }
        },
        DescribeCommand::Sink(args) => {
            let sink = find(&registry, &args.name)?;
            of_sink(sink.as_ref(), &args.keys, args.json)?
        }
    };
    print(&text)?;
    Ok(Exit::Done)
}

/// What it is, and its own keys.
fn of_sink(sink: &dyn Connector, wanted: &[String], as_json: bool) -> anyhow::Result<String> {
    let keys = keys(sink_definitions(sink), wanted, as_json)?;
    let name = sink.name();
    if as_json {
        let keys: serde_json::Value = serde_json::from_str(&keys)?;
        let sink = json!({
            "name": name,
            "purpose": sink.purpose(),
            "classes": sink.aliases(),
            "keys": keys,
        });
        return Ok(format!("{}\n", serde_json::to_string_pretty(&sink)?));
    }
    if !wanted.is_empty() {
        return Ok(keys);
    }
    let classes = match sink.aliases() {
        [] => String::new(),
        aliases => format!(
            "Also, with or without its package: {}\n",
            aliases.join(", ")
        ),
    };
    Ok(format!(
        "connector.class={name}: {}\n{classes}\n{keys}\nEvery connector has more keys: `sharegroup describe connector {name}`. \
         Files to begin with: `sharegroup init {name}`.\n",
        sink.purpose()
    ))
}

/// The sinks that there are.
fn sinks(registry: &Registry, as_json: bool) -> anyhow::Result<String> {
    let names = registry.names().into_iter();
    let sinks = names.filter_map(|name| Some((name, registry.find(name)?)));
    if as_json {
        let sinks: Vec<_> = sinks
            .map(|(name, sink)| json!({"class": name, "type": "sink", "aliases": sink.aliases()}))
            .collect();
        return Ok(format!("{}\n", serde_json::to_string_pretty(&sinks)?));
    }
    let mut text = String::new();
    for (name, sink) in sinks {
        writeln!(text, "{name:<12} {}", sink.aliases().join(", "))?;
    }
    text.push_str("\n`sharegroup describe connector NAME` shows the keys of one.\n");
    Ok(text)
}

/// The definitions that are asked for.
fn keys(all: Vec<Definition>, wanted: &[String], as_json: bool) -> anyhow::Result<String> {
    for part in wanted {
        if !all.iter().any(|definition| matches(definition, part)) {
            let names = all
                .iter()
                .map(|definition| Cow::Borrowed(&*definition.name));
            let meant = nearest(part, names);
            let advice = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
            return Err(Problems::one(format!("{part} is in no key{advice}")).into());
        }
    }
    let is_wanted = |definition: &Definition| {
        wanted.is_empty() || wanted.iter().any(|part| matches(definition, part))
    };
    let (definitions, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_wanted);
    if as_json {
        return Ok(format!("{}\n", definitions_json(&definitions)));
    }
    let aliases = definitions.iter().chain(&others);
    let aliases = aliases.filter_map(|alias| Some((alias.key.alias_of?, alias.key.name)));
    Ok(written(
        &definitions,
        &aliases.collect::<Vec<_>>(),
        wanted.is_empty(),
    )?)
}

/// Whether a key has this in it, or is of the family with that name.
fn matches(definition: &Definition, part: &str) -> bool {
    let family = definition.name.strip_suffix('*');
    definition.name.contains(part) || family.is_some_and(|family| part.starts_with(family))
}

/// Under their headings; where all are asked for, those without meaning in a line at the end.
fn written(
    definitions: &[Definition],
    aliases: &[(&str, &str)],
    is_short: bool,
) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    let mut ignored = Vec::new();
    let mut group = "";
    for definition in definitions {
        if is_short && matches!(definition.effect, Effect::Ignored(_)) {
            ignored.push(definition.name.as_str());
            continue;
        }
        // It is told of with the key that it is another name of.
        if is_short && definition.key.alias_of.is_some() {
            continue;
        }
        if definition.key.group != group {
            let space = if group.is_empty() { "" } else { "\n" };
            group = definition.key.group;
            writeln!(text, "{space}{group}")?;
        }
        write_key(&mut text, definition)?;
        let names = aliases.iter().filter(|(of, _)| *of == definition.name);
        let names: Vec<_> = names.map(|(_, name)| *name).collect();
        if !names.is_empty() {
            writeln!(text, "      also {}", names.join(", "))?;
        }
    }
    if !ignored.is_empty() {
        writeln!(text, "\nAccepted without effect: {}", ignored.join(", "))?;
        writeln!(text, "`describe ... KEY` says why.")?;
    }
    Ok(text)
}

fn write_key(text: &mut String, definition: &Definition) -> std::fmt::Result {
    let key = &definition.key;
    let value = match key.default {
        _ if key.required => " (must be set)".to_owned(),
        None | Some("") => String::new(),
        Some(default) => format!("={default}"),
    };
    let kind = key.kind.type_name().to_ascii_lowercase();
    writeln!(text, "  {}{value}  [{kind}]", definition.name)?;
    match definition.effect {
        Effect::Ignored(why) => writeln!(text, "      ignored: {why}"),
        Effect::Refused(advice) => writeln!(text, "      refused: {advice}"),
        Effect::Acts => described(text, definition),
        Effect::Later(now) => {
            described(text, definition)?;
            writeln!(text, "      no effect yet: {now}")
        }
    }
}

fn described(text: &mut String, definition: &Definition) -> std::fmt::Result {
    let key = &definition.key;
    writeln!(text, "      {}", key.doc)?;
    match key.kind.allowed() {
        Some(allowed) => writeln!(text, "      {allowed}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `UPDATE_DOCS=1 cargo test -p sharegroup-cli page_of_configuration` writes it. The page has all sinks.
    #[cfg(all(feature = "http", feature = "postgres"))]
    #[test]
    fn page_of_configuration_is_what_the_definitions_say() {
        use std::path::Path;

        use sharegroup_sink::config::reference;

        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        let page = reference(&sharegroup_connectors::registry());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&file, &page).unwrap();
        }
        let there = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            there == page,
            "docs/configuration.md is stale: UPDATE_DOCS=1 cargo test -p sharegroup-cli page_of_configuration"
        );
    }

    /// A sink's own key would hide that of the runtime.
    #[test]
    fn no_sink_has_a_key_of_the_runtime() {
        let registry = sharegroup_connectors::registry();
        let runtime = connector_definitions(None);
        for name in registry.names() {
            for own in registry.find(name).unwrap().keys() {
                let same = runtime.iter().find(|key| key.name == own.name);
                assert!(same.is_none(), "{name}: {}", own.name);
            }
        }
    }

    #[test]
    fn keys_are_found_by_their_parts_and_families() {
        let found = |part: &str| {
            let keys = keys(worker_definitions(), &[part.to_owned()], false);
            keys.unwrap_or_else(|error| error.to_string())
        };
        assert!(
            found("offset.flush.interval.ms").contains("  offset.flush.interval.ms=60000  [int")
        );
        let family = found("config.storage.topic");
        assert!(
            family.contains(
                "config.storage.*  [string]\n      ignored: there are no internal topics"
            )
        );
        let wrong = found("offset.flush.intervall.ms");
        assert!(
            wrong.ends_with("did you mean offset.flush.interval.ms?"),
            "{wrong}"
        );
    }
}
