//! Configuration: a worker file and connector files, as `connect-standalone` takes them.
//!
//! Keys are Kafka Connect's; each file is Java properties or JSON. Everything that is
//! wrong is found at once, each problem with its file, key, value (never a secret) and what to do.
//! A key that is nearly a known one is an error that names the right one; a foreign key is a
//! warning, or an error in strict mode.

mod check;
mod connector;
mod consumer;
mod keys;
mod problem;
mod properties;
mod security;
#[cfg(test)]
mod tests;
mod text;
mod worker;

use std::path::{Path, PathBuf};

pub use connector::ConnectorConfig;
pub use consumer::{AcknowledgementMode, ConsumerSettings, StartPosition};
pub use keys::{KeyDef, ValueKind, nearest};
pub use problem::{ConfigProblem, Severity, without_passwords};
pub use properties::Properties;
pub use security::{Unsupported, unsupported_key};
pub use worker::{OverridePolicy, WorkerConfig};

use crate::connector::Registry;

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

/// Reads a worker file and its connector files. `strict` turns foreign keys into errors.
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
    let worker = read(worker, &mut problems);
    let connectors: Vec<_> = connectors
        .iter()
        .filter_map(|file| read(file, &mut problems))
        .collect();
    let Some(worker) = worker else {
        return Err(problems);
    };
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

fn parse(
    worker: Properties,
    connectors: Vec<Properties>,
    strict: bool,
    registry: &Registry,
    mut problems: Vec<ConfigProblem>,
) -> Result<Loaded, Vec<ConfigProblem>> {
    check_order(&worker, &connectors, &mut problems);
    if problems.iter().any(ConfigProblem::is_error) {
        return Err(problems);
    }
    let worker = WorkerConfig::parse(worker, strict, &mut problems);
    let connectors: Vec<_> = connectors
        .into_iter()
        .filter_map(|properties| {
            ConnectorConfig::parse(properties, &worker, strict, registry, &mut problems)
        })
        .collect();
    connector::check_together(&connectors, &mut problems);
    if problems.iter().any(ConfigProblem::is_error) {
        return Err(problems);
    }
    Ok(Loaded {
        worker,
        connectors,
        warnings: problems,
    })
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
