//! Configuration: a worker file and connector files, as `connect-standalone` takes them.
//!
//! Keys are Kafka Connect's; each file is Java properties or JSON. Everything that is
//! wrong is found at once, each problem with its file, key, value (never a secret) and what to do.
//! A key that is nearly a known one is an error that names the right one; a foreign key is a
//! warning, or an error in strict mode.

mod check;
mod connector;
mod consumer;
mod converters;
mod delivery;
mod describe;
mod errors;
mod folder;
mod keys;
mod layers;
mod listeners;
mod pattern;
mod problem;
mod producer;
mod properties;
mod providers;
mod read;
mod security;
#[cfg(test)]
mod tests;
mod text;
mod topics;
mod unlike;
mod worker;

use std::ops::Range;
use std::path::{Path, PathBuf};

pub use connector::ConnectorConfig;
pub use consumer::{AcknowledgementMode, ConsumerSettings, StartPosition};
pub use converters::{ConverterConfig, ConvertersConfig};
pub use delivery::{DeadLetterWriter, DeliveryConfig, RestartPolicy};
pub use describe::{
    Definition, connector_definitions, definitions_json, reference, worker_definitions,
};
pub use errors::{DeadLettersConfig, ErrorTolerance, ErrorsConfig};
pub use keys::{Effect, Importance, KeyDef, ValueKind, nearest};
pub use listeners::Listeners;
pub use pattern::Pattern;
pub use problem::{ConfigProblem, Severity, without_passwords};
pub use properties::Properties;
pub use security::{Unsupported, unsupported_key};
pub use topics::Topics;
pub use unlike::unlike_connect;
pub use worker::{OverridePolicy, WorkerConfig};

use crate::connector::Registry;
use providers::Providers;

/// A configuration without errors.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The worker's settings.
    pub worker: WorkerConfig,
    /// The connectors, in the order of their files.
    pub connectors: Vec<ConnectorConfig>,
    /// Everything odd that doesn't keep work from starting; to be logged.
    pub warnings: Vec<ConfigProblem>,
}

/// Reads a worker file and its connector files; of a folder all its `*.properties` and `*.json` files.
/// `strict` turns foreign keys into errors.
///
/// # Errors
/// Every problem found in any of the files, warnings included; at least one of them is an error.
pub fn load(
    worker: &Path,
    connectors: &[PathBuf],
    strict: bool,
    registry: &Registry,
) -> Result<Loaded, Vec<ConfigProblem>> {
    let mut problems = Vec::new();
    let read_worker = read(worker, &mut problems);
    let connectors = folder::with_files_of_folders(connectors, &mut problems);
    let connectors: Vec<_> = connectors
        .iter()
        .filter_map(|file| read(file, &mut problems))
        .collect();
    let worker = read_worker.unwrap_or_else(|| stand_in(worker));
    parse(worker, connectors, strict, registry, problems)
}

/// The same from properties in memory.
///
/// # Errors
/// As [`load`].
pub fn load_properties(
    worker: Properties,
    connectors: Vec<Properties>,
    strict: bool,
    registry: &Registry,
) -> Result<Loaded, Vec<ConfigProblem>> {
    parse(worker, connectors, strict, registry, Vec::new())
}

fn read(file: &Path, problems: &mut Vec<ConfigProblem>) -> Option<Properties> {
    match Properties::read(file, problems) {
        Ok(properties) => Some(properties),
        Err(problem) => {
            problems.push(*problem);
            None
        }
    }
}

/// A worker's file in the place of one that can't be read, so that the connectors' are looked at all
/// the same.
fn stand_in(file: &Path) -> Properties {
    let mut worker = Properties::new(file);
    worker.set("bootstrap.servers", "localhost:9092");
    worker.set("consumer.group.protocol", "share");
    worker
}

fn parse(
    mut worker: Properties,
    mut connectors: Vec<Properties>,
    strict: bool,
    registry: &Registry,
    mut problems: Vec<ConfigProblem>,
) -> Result<Loaded, Vec<ConfigProblem>> {
    let read_problems = problems.len();
    check_order(&worker, &connectors, &mut problems);
    if problems.len() > read_problems {
        return Err(problems);
    }
    let files: Vec<_> = std::iter::once(&worker)
        .chain(&connectors)
        .map(|file| file.file().to_owned())
        .collect();
    let mut providers = Providers::of(&worker, &mut problems);
    let resolving = problems.len();
    for file in std::iter::once(&mut worker).chain(&mut connectors) {
        file.resolve(&mut providers, &mut problems);
    }
    let unresolved = resolving..problems.len();
    let worker = WorkerConfig::parse(worker, strict, &mut problems);
    let connectors: Vec<_> = connectors
        .into_iter()
        .filter_map(|properties| {
            ConnectorConfig::parse(properties, &worker, strict, registry, &mut problems)
        })
        .collect();
    connector::check_together(&connectors, &mut problems);
    without_followers(&mut problems, unresolved);
    for problem in &mut problems {
        problem.hide(&providers);
    }
    let place = |problem: &ConfigProblem| files.iter().position(|file| *file == problem.file);
    problems.sort_by_key(|problem| (place(problem), problem.line));
    if problems.iter().any(ConfigProblem::is_error) {
        return Err(problems);
    }
    Ok(Loaded {
        worker,
        connectors,
        warnings: problems,
    })
}

/// Takes out what was found about keys whose values could not be had: it was found about their references.
fn without_followers(problems: &mut Vec<ConfigProblem>, unresolved: Range<usize>) {
    let behind = problems.split_off(unresolved.end);
    let of_same = |problem: &ConfigProblem, other: &ConfigProblem| {
        problem.file == other.file && problem.key == other.key
    };
    let follows = |problem: &ConfigProblem| {
        let mut unresolved = problems[unresolved.clone()].iter();
        unresolved.any(|before| of_same(before, problem))
    };
    let others: Vec<_> = behind
        .into_iter()
        .filter(|problem| !follows(problem))
        .collect();
    problems.extend(others);
}

/// A worker's file where a connector's is expected, and the other way round: what else is wrong with
/// it would hide that.
fn check_order(worker: &Properties, connectors: &[Properties], problems: &mut Vec<ConfigProblem>) {
    let of = |properties: &Properties| {
        let has = |key| properties.get(key).is_some();
        (has("bootstrap.servers"), has("connector.class"))
    };
    let order = "the worker's file comes first, then the connectors'";
    if of(worker) == (false, true) {
        let message = "is a connector's file in the place of the worker's";
        problems.push(ConfigProblem::of_file(worker.file(), message).advice(order));
    }
    for connector in connectors {
        if of(connector) == (true, false) {
            let message = "is a worker's file in the place of a connector's";
            problems.push(ConfigProblem::of_file(connector.file(), message).advice(order));
        }
    }
}
