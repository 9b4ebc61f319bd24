//! What Kafka Connect would refuse in files that are right here, or would read otherwise.

use std::collections::BTreeSet;

use super::layers::{CONSUMERS, Client, LETTERS, Layers};
use super::problem::ConfigProblem;
use super::{ConnectorConfig, Loaded};
use crate::connector::name_matches;

/// What Kafka Connect would refuse in these files, or would read otherwise: sinks under names of ours, and keys of
/// TLS and SASL that a worker's clients inherit here, and don't there. Keys that Connect doesn't know are no
/// problem to it, it passes over them.
#[must_use]
pub fn unlike_connect(loaded: &Loaded) -> Vec<ConfigProblem> {
    let mut problems: Vec<_> = loaded.connectors.iter().filter_map(class).collect();
    let (mut consumers, mut letters) = (BTreeSet::new(), BTreeSet::new());
    for connector in &loaded.connectors {
        consumers.extend(inherited(loaded, connector, &CONSUMERS));
        if connector.errors.dead_letters.is_some() {
            letters.extend(inherited(loaded, connector, &LETTERS));
        }
    }
    let worker = loaded.worker.properties();
    for (client, keys) in [(&CONSUMERS, consumers), (&LETTERS, letters)] {
        problems.extend(keys.into_iter().map(|key| {
            let name = format!("{}{key}", client.of_worker);
            let message = format!("stands for {name} here; Kafka Connect inherits nothing there");
            worker
                .problem(key, message)
                .advice(format!("set {name}, too"))
        }));
    }
    problems
}

/// Of a sink that Connect doesn't know by this name.
fn class(config: &ConnectorConfig) -> Option<ConfigProblem> {
    let aliases = config.connector().aliases();
    if aliases
        .iter()
        .any(|alias| name_matches(alias, &config.class))
    {
        return None;
    }
    let advice = match aliases.first() {
        Some(class) => format!("write {class}"),
        None => "it has no such sink".to_owned(),
    };
    let problem = config.problem("connector.class", "is no class of Kafka Connect's");
    Some(problem.advice(advice))
}

/// Keys of the worker itself that such a client has no own value of.
fn inherited<'a>(
    loaded: &'a Loaded,
    connector: &'a ConnectorConfig,
    client: &'static Client,
) -> Vec<&'a str> {
    let worker = loaded.worker.properties();
    let layers = Layers {
        worker,
        connector: connector.properties(),
        client,
    };
    let is_inherited = |key: &&str| layers.find(key).is_some_and(|found| found.key == *key);
    let keys = worker.iter().map(|(key, _)| key);
    keys.filter(is_inherited).collect()
}
