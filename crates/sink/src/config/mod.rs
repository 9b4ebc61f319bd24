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

use std::path::{Path, PathBuf};

pub use connector::ConnectorConfig;
pub use consumer::{AcknowledgementMode, ConsumerSettings, StartPosition};
pub use converters::{ConverterConfig, ConvertersConfig};
pub use delivery::{DeadLetterWriter, DeliveryConfig, RestartPolicy};
pub use describe::{
    Definition, connector_definitions, definitions_json, reference, sink_definitions,
    worker_definitions,
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
    providers: Providers,
}

impl Loaded {
    /// The text without what configuration providers have given.
    pub(crate) fn hide(&self, text: &mut String) {
        if let Some(hidden) = self.providers.without_values(text) {
            *text = hidden;
        }
    }

    /// The same of a problem's texts.
    pub(crate) fn hide_in(&self, problem: &mut ConfigProblem) {
        problem.hide(&self.providers);
    }
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
    let files = folder::with_files_of_folders(connectors, &mut problems);
    load_files(worker, &files, strict, registry, problems)
}

/// The same while a worker runs: connector files that are gone are left out, and so is every file of a folder that has
/// none any more. Where neither a file nor a folder is left they are missing, as in [`load`].
///
/// # Errors
/// As [`load`].
pub fn load_again(
    worker: &Path,
    connectors: &[PathBuf],
    strict: bool,
    registry: &Registry,
) -> Result<Loaded, Vec<ConfigProblem>> {
    let mut problems = Vec::new();
    let files = folder::with_files_that_are_left(connectors, &mut problems);
    load_files(worker, &files, strict, registry, problems)
}

fn load_files(
    worker: &Path,
    connectors: &[PathBuf],
    strict: bool,
    registry: &Registry,
    mut problems: Vec<ConfigProblem>,
) -> Result<Loaded, Vec<ConfigProblem>> {
    let read_worker = read(worker, &mut problems);
    let connectors: Vec<_> = connectors
        .iter()
        .filter_map(|file| read(file, &mut problems))
        .collect();
    parse(worker, read_worker, connectors, strict, registry, problems)
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
    let file = worker.file().to_owned();
    parse(
        &file,
        Some(worker),
        connectors,
        strict,
        registry,
        Vec::new(),
    )
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

/// A worker's file in the place of one that can't be used, so that the connectors' are looked at all
/// the same.
fn stand_in(file: &Path) -> Properties {
    let mut worker = Properties::new(file);
    worker.set("bootstrap.servers", STAND_IN);
    worker.set("consumer.group.protocol", "share");
    worker
}

/// Servers in the place of those that are wrong, and said to be: nothing is started with them.
const STAND_IN: &str = "localhost:9092";

/// `worker` is `None` where the file can't be read, and that is said already.
fn parse(
    worker_file: &Path,
    worker: Option<Properties>,
    mut connectors: Vec<Properties>,
    strict: bool,
    registry: &Registry,
    mut problems: Vec<ConfigProblem>,
) -> Result<Loaded, Vec<ConfigProblem>> {
    let files: Vec<_> = std::iter::once(worker_file)
        .chain(connectors.iter().map(Properties::file))
        .map(Path::to_owned)
        .collect();
    let worker = worker.filter(|worker| is_workers(worker, &mut problems));
    connectors.retain(|connector| is_connectors(connector, &mut problems));
    let mut providers = match &worker {
        Some(worker) => Providers::of(worker, &mut problems),
        None => Providers::not_known(),
    };
    let mut worker = worker.unwrap_or_else(|| stand_in(worker_file));
    let mut unresolved = Vec::new();
    for file in std::iter::once(&mut worker).chain(&mut connectors) {
        let keys = file.resolve(&mut providers, &mut problems);
        unresolved.extend(keys.into_iter().map(|key| (file.file().to_owned(), key)));
    }
    let resolved = problems.len();
    let worker = WorkerConfig::parse(worker, strict, &mut problems);
    let connectors: Vec<_> = connectors
        .into_iter()
        .filter_map(|properties| {
            ConnectorConfig::parse(properties, &worker, strict, registry, &mut problems)
        })
        .collect();
    connector::check_together(&connectors, &mut problems);
    without_followers(&mut problems, resolved, &unresolved);
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
        providers,
    })
}

/// Takes out what was found, from `resolved` on, about keys whose values could not be had: it was found about their
/// references.
fn without_followers(
    problems: &mut Vec<ConfigProblem>,
    resolved: usize,
    unresolved: &[(PathBuf, String)],
) {
    let follows = |problem: &ConfigProblem| {
        let mut unresolved = unresolved.iter();
        unresolved.any(|(file, key)| problem.file == *file && problem.key.as_ref() == Some(key))
    };
    let mut behind = problems.split_off(resolved);
    behind.retain(|problem| !follows(problem));
    problems.append(&mut behind);
}

/// Whether the file in the place of the worker's can be one: what else would be said of a connector's there would hide
/// that it is one.
fn is_workers(file: &Properties, problems: &mut Vec<ConfigProblem>) -> bool {
    let misplaced = has_servers_and_class(file) == (false, true);
    if misplaced {
        let message = "is a connector's file in the place of the worker's";
        problems.push(ConfigProblem::of_file(file.file(), message).advice(ORDER));
    }
    !misplaced
}

/// The same of a connector's.
fn is_connectors(file: &Properties, problems: &mut Vec<ConfigProblem>) -> bool {
    let misplaced = has_servers_and_class(file) == (true, false);
    if misplaced {
        let message = "is a worker's file in the place of a connector's";
        problems.push(ConfigProblem::of_file(file.file(), message).advice(ORDER));
    }
    !misplaced
}

fn has_servers_and_class(file: &Properties) -> (bool, bool) {
    let has = |key| file.get(key).is_some();
    (has("bootstrap.servers"), has("connector.class"))
}

const ORDER: &str = "the worker's file comes first, then the connectors'";
