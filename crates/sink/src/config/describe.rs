//! The keys, as they are described: on a screen, in Kafka Connect's JSON, and in `docs/configuration.md`.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::converters::SETTINGS;
use super::keys::{
    CONNECTOR, CONSUMER, Effect, KeyDef, Known, PRODUCER, SHARE, Table, WORKER, WORKER_CLIENT, all,
};
use super::layers::{CONSUMERS, LETTERS};
use super::security::SECURITY;
use crate::connector::{Connector, Registry};

/// A key as it is written in a file, and what it is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Definition {
    /// The key with the prefix that it has in the file. One that ends in `*` stands for all keys that
    /// begin with what is before it.
    pub name: String,
    /// What its value may be, and what it does.
    pub key: KeyDef,
    /// What setting it does here.
    pub effect: Effect,
}

impl Definition {
    fn known(prefix: &str, known: &Known) -> Self {
        Self {
            name: format!("{prefix}{}", known.def.name),
            key: known.def,
            effect: known.effect,
        }
    }

    fn of_sink(key: &KeyDef) -> Self {
        Self {
            name: key.name.to_owned(),
            key: *key,
            effect: Effect::Acts,
        }
    }
}

fn of_tables(prefix: &str, tables: &[Table]) -> Vec<Definition> {
    let known = all(tables);
    known
        .map(|known| Definition::known(prefix, known))
        .collect()
}

/// Everything that a worker's file may hold, under its headings. Those of TLS and SASL are there once:
/// every client takes them behind its prefix, too.
#[must_use]
pub fn worker_definitions() -> Vec<Definition> {
    [
        of_tables("", &[WORKER, WORKER_CLIENT, SECURITY]),
        of_tables(CONSUMERS.of_worker, &[CONSUMER, SHARE]),
        of_tables(LETTERS.of_worker, &[PRODUCER]),
    ]
    .concat()
}

/// The keys of a sink's own.
#[must_use]
pub fn sink_definitions(sink: &dyn Connector) -> Vec<Definition> {
    sink.keys().iter().map(Definition::of_sink).collect()
}

/// Everything that a connector's file may hold: the sink's own keys first, where there is one.
#[must_use]
pub fn connector_definitions(sink: Option<&dyn Connector>) -> Vec<Definition> {
    [
        sink.map(sink_definitions).unwrap_or_default(),
        of_tables("", &[CONNECTOR, SHARE]),
        of_tables(CONSUMERS.overrides, &[CONSUMER, SECURITY]),
        of_tables(LETTERS.overrides, &[PRODUCER]),
    ]
    .concat()
}

/// The definitions as Kafka Connect's REST API writes them, with `effect` and `note` as ours.
#[must_use]
pub fn definitions_json(definitions: &[Definition]) -> String {
    let mut order = 0;
    let mut group = "";
    let objects: Vec<Value> = definitions
        .iter()
        .map(|definition| {
            let key = &definition.key;
            order = if key.group == group { order + 1 } else { 1 };
            group = key.group;
            let (effect, note) = match definition.effect {
                Effect::Acts => ("acts", None),
                Effect::Ignored(why) => ("ignored", Some(why)),
                Effect::Later(now) => ("later", Some(now)),
                Effect::Refused(advice) => ("refused", Some(advice)),
            };
            json!({
                "name": definition.name,
                "type": key.kind.type_name(),
                "required": key.required,
                "default_value": key.default,
                "importance": key.importance.name(),
                "documentation": key.doc,
                "group": key.group,
                "order_in_group": order,
                "width": "MEDIUM",
                "display_name": key.name,
                "dependents": [],
                "effect": effect,
                "note": note,
                "alias_of": key.alias_of,
            })
        })
        .collect();
    // A list of objects of texts can always be written.
    serde_json::to_string_pretty(&objects).unwrap_or_default()
}

/// The page `docs/configuration.md`, with the sinks of a registry.
#[must_use]
pub fn reference(registry: &Registry) -> String {
    let mut page = INTRODUCTION.to_owned();
    heading(&mut page, "##", "Worker file");
    sections(&mut page, &of_tables("", &[WORKER, WORKER_CLIENT]));
    heading(&mut page, "##", "Connector file");
    sections(&mut page, &of_tables("", &[CONNECTOR, SHARE]));
    heading(&mut page, "##", "Converters");
    page.push_str(CONVERTERS);
    let settings: Vec<_> = SETTINGS.iter().map(Definition::of_sink).collect();
    table(&mut page, &settings);
    heading(&mut page, "##", "Sinks");
    for name in registry.names() {
        let Some(sink) = registry.find(name) else {
            continue;
        };
        heading(&mut page, "###", &format!("`connector.class={name}`"));
        if !sink.purpose().is_empty() {
            page.push_str(&format!("It {}.\n\n", sink.purpose()));
        }
        if !sink.aliases().is_empty() {
            let aliases = sink.aliases().join("`, `");
            page.push_str(&format!(
                "Also `{aliases}`, with or without the package.\n\n"
            ));
        }
        table(&mut page, &sink_definitions(sink.as_ref()));
    }
    heading(&mut page, "##", "Clients");
    page.push_str(CLIENTS);
    sections(&mut page, &of_tables("", &[CONSUMER, PRODUCER, SECURITY]));
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

const INTRODUCTION: &str = "\
# Configuration

Generated from the definitions of the keys; the tests fail when it is stale. The same is shown by `sharegroup describe worker` and
`sharegroup describe connector NAME`, a sink's own keys alone by `sharegroup describe sink NAME`. `sharegroup init NAME` writes files to
begin with; `sharegroup validate WORKER CONNECTOR...` checks files without starting anything, with `--connect` also the cluster and the targets.

A worker has one file, each connector another: Java properties, or JSON as `{\"key\": \"value\"}` or `{\"name\": ..., \"config\": {...}}`.
Keys are Kafka Connect's, and `share.*` and `task.restart.*` are ours. A key that is nearly a known one is an error, a foreign one
a warning, and with `--strict` an error, too. Values of passwords, and whatever a provider gave, are never shown as values; names of topics and groups are.

With `config.providers=env`, `config.providers.env.class=EnvVarConfigProvider` and so on in the worker's file, values in all files may
hold `${env:NAME}`, `${file:/path:key}` (a key of a properties file) and `${dir:/path:file}` (a file's whole text; its last line's end
stays unless `config.providers.dir.param.trim=true`). What can't be resolved is an error.

`share.*` keys stand in a connector's file under their plain name, or for all connectors in the worker's file behind `consumer.`.
";

const CONVERTERS: &str = "\
Behind `key.converter.`, `value.converter.` or `header.converter.`, in the file that names the converter: where a connector's file
names none, the worker's converter works with the worker's settings. What a converter has no use for has no effect.

";

const CLIENTS: &str = "\
In the worker's file behind `consumer.` and `producer.`, for all connectors; in a connector's file behind `consumer.override.` and
`producer.override.`, as far as `connector.client.config.override.policy` allows it. Keys of TLS and SASL also without a prefix in
the worker's file, for every client that has none of its own, and behind `admin.` and `admin.override.`.

";

fn heading(page: &mut String, level: &str, text: &str) {
    // Writing to a string never fails.
    let _written = write!(page, "\n{level} {text}\n\n");
}

/// A table for each heading.
fn sections(page: &mut String, definitions: &[Definition]) {
    for section in definitions.chunk_by(|a, b| a.key.group == b.key.group) {
        if let Some(first) = section.first() {
            heading(page, "###", first.key.group);
            table(page, section);
        }
    }
    while page.contains("\n\n\n") {
        *page = page.replace("\n\n\n", "\n\n");
    }
}

fn table(page: &mut String, definitions: &[Definition]) {
    let common = common_note(definitions);
    if let Some(now) = common {
        page.push_str(&format!("No effect yet: {now}.\n\n"));
    }
    page.push_str("| key | default | what it does |\n| --- | --- | --- |\n");
    for definition in definitions {
        let key = &definition.key;
        let default = match key.default {
            _ if key.required => "must be set".to_owned(),
            None | Some("") => String::new(),
            Some(default) => format!("`{}`", short(default).replace('|', "\\|")),
        };
        let allowed = key.kind.allowed();
        let allowed = allowed.map_or_else(String::new, |allowed| format!(" ({allowed})"));
        let doc = match definition.effect {
            Effect::Ignored(why) => format!("ignored: {why}"),
            Effect::Refused(advice) => format!("refused: {advice}"),
            Effect::Later(now) if common.is_none() => {
                format!("{}{allowed}. No effect yet: {now}", key.doc)
            }
            Effect::Acts | Effect::Later(_) => format!("{}{allowed}", key.doc),
        };
        let doc = doc.replace('<', "\\<").replace('|', "\\|");
        page.push_str(&format!("| `{}` | {default} | {doc} |\n", definition.name));
    }
    page.push('\n');
}

/// What works instead of all these keys today, where that is the same for all.
fn common_note(definitions: &[Definition]) -> Option<&'static str> {
    let note = |definition: &Definition| match definition.effect {
        Effect::Later(now) => Some(now),
        _ => None,
    };
    let first = note(definitions.first()?)?;
    let is_same = |definition| note(definition) == Some(first);
    definitions.iter().all(is_same).then_some(first)
}

/// A class without its package.
fn short(default: &str) -> &str {
    let class = default
        .starts_with("org.")
        .then(|| default.rsplit('.').next());
    class.flatten().unwrap_or(default)
}
