//! Keys of the file sink.

use std::path::PathBuf;

use sharegroup_sink::config::{ConfigProblem, KeyDef, ValueKind};
use sharegroup_sink::{ConnectorConfig, TaskContext};

use crate::line::Format;

/// Where and how a task writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileConfig {
    pub(super) path: PathBuf,
    pub(super) format: Format,
    /// Whether lines are forced to the disk before their records are accepted.
    pub(super) fsync: bool,
}

impl FileConfig {
    /// The settings of one task.
    pub(super) fn of(config: &ConnectorConfig, context: &TaskContext) -> Self {
        let file = config.own("file").unwrap_or_default();
        Self {
            path: PathBuf::from(file.replace(TASK, &context.task_index.to_string())),
            format: Format::parse(config.own("format").unwrap_or_default()),
            fsync: config
                .own("fsync")
                .is_some_and(|value| value.eq_ignore_ascii_case("true")),
        }
    }
}

/// What is wrong with the keys beyond their kinds.
pub(super) fn validate(config: &ConnectorConfig) -> Vec<ConfigProblem> {
    let file = config.own("file").unwrap_or_default();
    let mut problems = Vec::new();
    if file.replace(TASK, "0").contains("${") {
        let problem = config.problem("file", "holds a placeholder that isn't known");
        problems.push(problem.advice("only ${task}, the task's number, is replaced"));
    }
    problems
}

pub(super) const KEYS: &[KeyDef] = &[
    KeyDef::required(
        "file",
        ValueKind::NonBlank,
        "the file to append to, ${task} stands for the task's number (connector.class=console prints instead)",
    ),
    Format::KEY,
    KeyDef::optional(
        "fsync",
        ValueKind::Bool,
        "false",
        "true accepts records only after their lines are on the disk",
    ),
];

const TASK: &str = "${task}";
