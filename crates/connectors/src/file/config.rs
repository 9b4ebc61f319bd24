//! Keys of the file sink.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sharegroup_sink::config::{ConfigProblem, KeyDef, ValueKind};
use sharegroup_sink::{ConnectorConfig, TaskContext};
use sharegroup_wire::compress::Compression;

use super::rotation::Rotation;
use super::service::not_a_file;
use crate::line::Format;

/// Where and how a task writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileConfig {
    pub(super) path: PathBuf,
    pub(super) format: Format,
    pub(super) compression: Compression,
    pub(super) fsync: Fsync,
    pub(super) rotation: Rotation,
}

/// When lines are forced to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fsync {
    /// When the operating system does it.
    #[default]
    Never,
    /// When a file is finished: rotated, moved away, or at the task's end.
    Finished,
    /// Before their records are accepted.
    Each,
}

impl FileConfig {
    /// The settings of one task.
    pub(super) fn of(config: &ConnectorConfig, context: &TaskContext) -> Self {
        let own = |key: &KeyDef| config.own(key.name).unwrap_or_default().trim();
        let number = |key| own(key).parse().ok().filter(|number| *number > 0);
        let file = config.own("file").unwrap_or_default();
        Self {
            path: of_task(file, context.task_index),
            format: Format::parse(config.own("format").unwrap_or_default()),
            compression: own(&COMPRESSION)
                .to_ascii_lowercase()
                .parse()
                .unwrap_or_default(),
            fsync: match own(&FSYNC).to_ascii_lowercase().as_str() {
                "true" => Fsync::Each,
                "finished" => Fsync::Finished,
                _ => Fsync::Never,
            },
            rotation: Rotation {
                bytes_max: number(&ROTATE_BYTES),
                age_max: number(&ROTATE_MS).map(Duration::from_millis),
            },
        }
    }
}

/// The file of one task.
fn of_task(file: &str, task: u32) -> PathBuf {
    PathBuf::from(file.replace(TASK, &task.to_string()))
}

/// What is wrong with the keys beyond their kinds.
pub(super) fn validate(config: &ConnectorConfig) -> Vec<ConfigProblem> {
    let file = config.own("file").unwrap_or_default();
    let mut problems = Vec::new();
    if file.replace(TASK, "0").contains("${") {
        let problem = config.problem("file", "holds a placeholder that isn't known");
        problems.push(problem.advice("only ${task}, the task's number, is replaced"));
        return problems;
    }
    let files = (0..config.tasks_max).map(|task| of_task(file, task));
    let mut wrong = files.filter_map(|file| {
        let missing = config.missing_folder("file", &file);
        missing.or_else(|| other_than_a_file(config, &file))
    });
    problems.extend(wrong.next());
    problems
}

/// An error where something stands at the path that is no file.
fn other_than_a_file(config: &ConnectorConfig, path: &Path) -> Option<ConfigProblem> {
    let what = not_a_file(std::fs::metadata(path).ok()?.file_type())?;
    let message = format!("{} is {what}", path.display());
    let advice = "name a regular file, or one that is to be made; connector.class=console prints";
    Some(config.problem("file", message).advice(advice))
}

const FSYNC: KeyDef = KeyDef::optional(
    "fsync",
    ValueKind::OneOf(&["false", "true", "finished"]),
    "false",
    "true accepts records only after their lines are on the disk, finished forces a file to the disk when it is rotated, moved away or the task ends",
);
const COMPRESSION: KeyDef = KeyDef::optional(
    "compression.type",
    ValueKind::OneOf(&["none", "gzip", "lz4", "zstd"]),
    "none",
    "how lines are compressed: each put becomes a member (gzip) or frame of its own, so that the file can be read at any time",
);
const ROTATE_BYTES: KeyDef = KeyDef::optional(
    "rotate.bytes",
    ValueKind::at_least(0),
    "0",
    "a file that would get larger than this many bytes is renamed to NAME-000001.EXT and so on, and a new one begun; 0 for never",
);
const ROTATE_MS: KeyDef = KeyDef::optional(
    "rotate.interval.ms",
    ValueKind::at_least(0),
    "0",
    "the same for a file that is older than this many milliseconds when more is to be written; 0 for never",
);

pub(super) const KEYS: &[KeyDef] = &[
    KeyDef::required(
        "file",
        ValueKind::NonBlank,
        "the file to append to, ${task} stands for the task's number (connector.class=console prints instead)",
    ),
    Format::KEY,
    COMPRESSION,
    ROTATE_BYTES,
    ROTATE_MS,
    FSYNC,
];

const TASK: &str = "${task}";
