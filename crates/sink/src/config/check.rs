//! Checks the keys of one file against the tables: known, ignored, misspelt or foreign.

use std::borrow::Cow;

use super::keys::{CONNECTOR, Effect, KeyDef, Known, SHARE, Table, WORKER, WORKER_CLIENT};
use super::keys::{find, names, nearest};
use super::layers::{CLIENTS, CONSUMERS, Client};
use super::problem::ConfigProblem;
use super::properties::Properties;
use super::security::SECURITY;

/// Keys of a worker file without the prefix of a client.
const OF_WORKER: &[Table] = &[WORKER, WORKER_CLIENT, SECURITY];
/// Keys of a connector file without the prefix of a client, beside the sink's own.
const OF_CONNECTOR: &[Table] = &[CONNECTOR, SHARE];

/// Checks every key of a worker file.
pub(super) fn worker_keys(file: &Properties, strict: bool, problems: &mut Vec<ConfigProblem>) {
    let mut seen = Vec::new();
    for (key, value) in file.iter() {
        let known = of_client(key, |client| client.of_worker).or_else(|| find(OF_WORKER, key));
        if let Some(known) = known {
            check_known(file, key, value, known, &mut seen, problems);
            continue;
        }
        // A client's key without a prefix is the consumers', and so is one with that of the other file.
        let (client, bare) = split(key, |client| client.overrides).unwrap_or((&CONSUMERS, key));
        let meant = find(client.tables, bare).map(|_| format!("{}{bare}", client.of_worker));
        let meant = meant.or_else(|| {
            let plain = names(OF_WORKER).map(Cow::Borrowed);
            nearest(key, plain.chain(prefixed(|client| client.of_worker)))
        });
        let elsewhere = find(&[CONNECTOR], key)
            .filter(|known| !known.is_family())
            .map(|_| "it belongs in a connector's file");
        problems.push(unknown(file, key, meant, elsewhere, strict));
    }
}

/// Checks every key of a connector file; `own` are the sink's own keys.
pub(super) fn connector_keys(
    file: &Properties,
    own: Option<&[KeyDef]>,
    strict: bool,
    problems: &mut Vec<ConfigProblem>,
) {
    let mut seen = Vec::new();
    let own_keys = own.unwrap_or(&[]);
    for (key, value) in file.iter() {
        if let Some(def) = own_keys.iter().find(|def| def.name == key) {
            if let Err(message) = def.kind.check(value) {
                problems.push(file.problem(key, message));
            }
            continue;
        }
        let known = of_client(key, |client| client.overrides).or_else(|| find(OF_CONNECTOR, key));
        if let Some(known) = known {
            check_known(file, key, value, known, &mut seen, problems);
            continue;
        }
        let (client, bare) = split(key, |client| client.of_worker).unwrap_or((&CONSUMERS, key));
        let meant = find(client.tables, bare).map(|_| match is_share(bare) {
            true => bare.to_owned(),
            false => format!("{}{bare}", client.overrides),
        });
        let meant = meant.or_else(|| {
            let own = own_keys.iter().map(|def| def.name);
            let plain = names(OF_CONNECTOR).chain(own).map(Cow::Borrowed);
            nearest(key, plain.chain(prefixed(|client| client.overrides)))
        });
        let elsewhere = find(&[WORKER], key)
            .filter(|known| !known.is_family())
            .map(|_| "it belongs in the worker's file");
        // Without the sink's own keys nothing can be said about a foreign one.
        if meant.is_some() || own.is_some() {
            problems.push(unknown(file, key, meant, elsewhere, strict));
        }
    }
    for def in own_keys.iter().filter(|def| def.required) {
        // What its kind refuses is said above.
        let is_missing = file
            .get(def.name)
            .is_none_or(|value| value.trim().is_empty() && def.kind.check(value).is_ok());
        if is_missing {
            problems.push(file.problem(def.name, format!("must be set: {}", def.doc)));
        }
    }
}

/// The definition of a key with the prefix of a client.
fn of_client(key: &str, prefix: impl Fn(&Client) -> &'static str) -> Option<&'static Known> {
    let (client, name) = split(key, prefix)?;
    find(client.tables, name)
}

/// The client whose prefix a key has, and the key without it.
fn split(key: &str, prefix: impl Fn(&Client) -> &'static str) -> Option<(&'static Client, &str)> {
    let mut clients = CLIENTS.into_iter();
    clients.find_map(|client| Some((client, key.strip_prefix(prefix(client))?)))
}

/// The keys of all clients with their prefixes. On a connector those of this runtime go without.
fn prefixed(prefix: impl Fn(&Client) -> &'static str) -> impl Iterator<Item = Cow<'static, str>> {
    CLIENTS.into_iter().flat_map(move |client| {
        let prefix = prefix(client);
        let has_plain = move |name: &str| prefix == CONSUMERS.overrides && is_share(name);
        let names = names(client.tables).filter(move |name| !has_plain(name));
        names.map(move |name| Cow::Owned(format!("{prefix}{name}")))
    })
}

fn is_share(name: &str) -> bool {
    find(&[SHARE], name).is_some()
}

fn check_known(
    file: &Properties,
    key: &str,
    value: &str,
    known: &'static Known,
    seen: &mut Vec<&'static str>,
    problems: &mut Vec<ConfigProblem>,
) {
    if known.is_default(value) {
        return;
    }
    if let Effect::Refused(advice) = known.effect {
        problems.push(file.problem(key, "can't be used here").advice(advice));
    }
    if let Err(message) = known.def.kind.check(value) {
        problems.push(file.problem(key, message));
        return;
    }
    let message = match known.effect {
        Effect::Acts | Effect::Refused(_) => return,
        Effect::Ignored(why) => format!("is ignored: {why}"),
        Effect::Later(now) => format!("has no effect yet: {now}"),
    };
    // One warning for a whole family.
    let name = known.def.name;
    if !seen.contains(&name) {
        seen.push(name);
        problems.push(file.problem(key, message).warning());
    }
}

fn unknown(
    file: &Properties,
    key: &str,
    meant: Option<String>,
    elsewhere: Option<&str>,
    strict: bool,
) -> ConfigProblem {
    if let Some(meant) = meant {
        return file
            .problem(key, "is not a key")
            .without_value()
            .advice(format!("did you mean {meant}?"));
    }
    let problem = match elsewhere {
        Some(place) => file.problem(key, "has no effect here").advice(place),
        None => file
            .problem(key, "is not a known key")
            .without_value()
            .advice("it has no effect"),
    };
    if strict { problem } else { problem.warning() }
}
