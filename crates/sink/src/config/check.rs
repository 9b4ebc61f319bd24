//! Checks the keys of one file against the tables: known, ignored, misspelt or foreign.

use std::borrow::Cow;

use super::keys::{CONNECTOR, CONSUMER, Effect, KeyDef, Known, SHARE, WORKER, WORKER_CLIENT};
use super::keys::{find, nearest};
use super::problem::ConfigProblem;
use super::properties::Properties;
use super::security::SECURITY;

/// Prefix of consumer settings in a worker file.
pub(super) const WORKER_CONSUMER: &str = "consumer.";
/// Prefix of consumer settings in a connector file.
pub(super) const OVERRIDE: &str = "consumer.override.";
/// Prefix of the admin client's settings in a worker file.
pub(super) const WORKER_ADMIN: &str = "admin.";
/// Prefix of the admin client's settings in a connector file.
pub(super) const ADMIN_OVERRIDE: &str = "admin.override.";

/// What a consumer's key may be.
const OF_CONSUMER: [&[Known]; 3] = [CONSUMER, SECURITY, SHARE];

/// Checks every key of a worker file.
pub(super) fn worker_keys(file: &Properties, strict: bool, problems: &mut Vec<ConfigProblem>) {
    let mut seen = Vec::new();
    for (key, value) in file.iter() {
        unresolved(file, key, value, problems);
        let known = match key.strip_prefix(WORKER_CONSUMER) {
            Some(rest) => find(&OF_CONSUMER, rest),
            None => of_admin(key, WORKER_ADMIN)
                .or_else(|| find(&[WORKER, WORKER_CLIENT, SECURITY], key)),
        };
        if let Some(known) = known {
            check_known(file, key, value, known, &mut seen, problems);
            continue;
        }
        let meant = match key.strip_prefix(OVERRIDE) {
            Some(rest) => find(&OF_CONSUMER, rest).map(|_| format!("{WORKER_CONSUMER}{rest}")),
            None => find(&OF_CONSUMER, key).map(|_| format!("{WORKER_CONSUMER}{key}")),
        };
        let meant = meant.or_else(|| {
            let consumer =
                names(&OF_CONSUMER).map(|name| Cow::Owned(format!("{WORKER_CONSUMER}{name}")));
            nearest(
                key,
                names(&[WORKER, WORKER_CLIENT, SECURITY])
                    .map(Cow::Borrowed)
                    .chain(consumer),
            )
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
        unresolved(file, key, value, problems);
        if let Some(def) = own_keys.iter().find(|def| def.name == key) {
            if let Err(message) = def.kind.check(value) {
                problems.push(file.problem(key, message));
            }
            continue;
        }
        let known = match key.strip_prefix(OVERRIDE) {
            Some(rest) => find(&OF_CONSUMER, rest),
            None => of_admin(key, ADMIN_OVERRIDE).or_else(|| find(&[CONNECTOR, SHARE], key)),
        };
        if let Some(known) = known {
            check_known(file, key, value, known, &mut seen, problems);
            continue;
        }
        let bare = key.strip_prefix(WORKER_CONSUMER).unwrap_or(key);
        let meant = find(&[CONSUMER, SECURITY], bare).map(|_| format!("{OVERRIDE}{bare}"));
        let meant = meant.or_else(|| {
            let overrides =
                names(&[CONSUMER, SECURITY]).map(|name| Cow::Owned(format!("{OVERRIDE}{name}")));
            let plain = names(&[CONNECTOR, SHARE])
                .chain(own_keys.iter().map(|def| def.name))
                .map(Cow::Borrowed);
            nearest(key, plain.chain(overrides))
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
        if file
            .get(def.name)
            .is_none_or(|value| value.trim().is_empty())
        {
            problems.push(file.problem(def.name, format!("must be set: {}", def.doc)));
        }
    }
}

/// A key of the admin client that acts: those of security.
fn of_admin(key: &str, prefix: &str) -> Option<&'static Known> {
    find(&[SECURITY], key.strip_prefix(prefix)?)
}

fn names(tables: &[&'static [Known]]) -> impl Iterator<Item = &'static str> {
    let tables: Vec<&'static [Known]> = tables.to_vec();
    tables
        .into_iter()
        .flatten()
        .filter(|known| !known.is_family())
        .map(|known| known.name)
}

fn check_known(
    file: &Properties,
    key: &str,
    value: &str,
    known: &'static Known,
    seen: &mut Vec<&'static str>,
    problems: &mut Vec<ConfigProblem>,
) {
    if known
        .default
        .is_some_and(|default| default.eq_ignore_ascii_case(value))
    {
        return;
    }
    let once = !seen.contains(&known.name);
    match known.effect {
        Effect::Refused(advice) => {
            problems.push(file.problem(key, "can't be used here").advice(advice));
        }
        Effect::Acts => {}
        // One warning for a whole family.
        Effect::Ignored(why) if once => {
            seen.push(known.name);
            problems.push(file.problem(key, format!("is ignored: {why}")).warning());
        }
        Effect::Later(now) if once => {
            seen.push(known.name);
            problems.push(
                file.problem(key, format!("has no effect yet: {now}"))
                    .warning(),
            );
        }
        Effect::Ignored(_) | Effect::Later(_) => {}
    }
    if let Err(message) = known.kind.check(value) {
        problems.push(file.problem(key, message));
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

/// A reference like `${env:NAME}` would go on as literal text, perhaps as a password.
fn unresolved(file: &Properties, key: &str, value: &str, problems: &mut Vec<ConfigProblem>) {
    let reference = value.split("${").skip(1).any(|rest| {
        let name = rest.split([':', '}', '$']).next().unwrap_or(rest);
        !name.is_empty() && rest[name.len()..].starts_with(':') && rest.contains('}')
    });
    if reference {
        problems.push(
            file.problem(key, "refers to a configuration provider")
                .advice("providers aren't available yet: write the value itself"),
        );
    }
}
