//! Appends records to files, one line each.
//!
//! | key | default | meaning |
//! | --- | --- | --- |
//! | `file` | must be set | the file; `${task}` stands for the task's number |
//! | `format` | `value` | `value`: each value as it is; `jsonl`: one JSON object per record |
//! | `compression.type` | `none` | `gzip`, `lz4`, `zstd`: each put becomes a member or frame of its own |
//! | `rotate.bytes`, `rotate.interval.ms` | `0` | a file that would get larger, or is older when more is to be written, is renamed (`out.txt` to `out-000001.txt`) |
//! | `fsync` | `false` | `true`: records are accepted after their lines are on the disk; `finished`: a file is on the disk once it is rotated, moved away, or the task has ended |
//!
//! Tasks, and workers, may share a file: lines are appended whole. A file that is moved or removed
//! (logrotate) is made anew; records are accepted only when they are in the file that the path
//! leads to. A full disk is waited for, as a target that is down; one that is nearly full fails the
//! start. A limit (`ulimit -f`) or a missing right fails the task; the records stay available to the
//! group. What a worker that was killed left of a write is ended (lines) or cut off (compressed) by
//! whoever appends next.

mod check;
mod config;
mod member;
mod outcome;
mod request;
mod room;
mod rotation;
mod service;
#[cfg(test)]
mod tests;

use sharegroup_sink::config::{ConfigProblem, KeyDef};
use sharegroup_sink::{
    CheckFuture, Connector, ConnectorConfig, DynSinkTask, OutcomeSender, PutError, SinkBatch,
    SinkRecord, SinkTask, TaskContext, TaskError,
};
use tokio::task::spawn_blocking;

use self::config::{FileConfig, Fsync};
use self::outcome::TornWrite;
use self::request::Request;
use self::service::LineFile;
use crate::lent::Lent;

/// The sink `file`.
#[derive(Clone, Copy, Debug)]
pub struct FileConnector;

impl Connector for FileConnector {
    fn name(&self) -> &'static str {
        "file"
    }

    fn purpose(&self) -> &'static str {
        "appends records to files, one line each"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["org.apache.kafka.connect.file.FileStreamSinkConnector"]
    }

    fn keys(&self) -> &'static [KeyDef] {
        config::KEYS
    }

    fn validate(&self, config: &ConnectorConfig) -> Vec<ConfigProblem> {
        config::validate(config)
    }

    fn check<'a>(&'a self, config: &'a ConnectorConfig, _: &'a [String]) -> CheckFuture<'a> {
        Box::pin(async move {
            let config = config.clone();
            let looked = spawn_blocking(move || check::check(&config)).await;
            looked.unwrap_or_default()
        })
    }

    fn output(&self, config: &ConnectorConfig) -> Option<(&'static str, String)> {
        Some(("file", config.own("file")?.to_owned()))
    }

    fn is_concurrent(&self) -> bool {
        true
    }

    fn task(
        &self,
        config: &ConnectorConfig,
        context: &TaskContext,
    ) -> Result<Box<dyn DynSinkTask>, TaskError> {
        Ok(Box::new(FileTask::new(FileConfig::of(config, context))))
    }
}

/// Appends the records of one task.
#[derive(Debug)]
struct FileTask {
    config: FileConfig,
    /// From `start` to `stop`.
    desk: Option<Lent<Desk, Result<(), TornWrite>>>,
    /// Whether a value that isn't one line has been seen and said.
    broken_line_said: bool,
}

/// What a write needs.
#[derive(Debug)]
struct Desk {
    file: LineFile,
    /// Reused for every put.
    request: Request,
}

impl FileTask {
    const fn new(config: FileConfig) -> Self {
        Self {
            config,
            desk: None,
            broken_line_said: false,
        }
    }
}

fn open(config: &FileConfig) -> Result<LineFile, TaskError> {
    let mut file = LineFile::open(config)?;
    room::check(&file)?;
    file.begin()?;
    Ok(file)
}

impl SinkTask for FileTask {
    async fn start(&mut self, _: &TaskContext) -> Result<(), TaskError> {
        service::survive_file_size_limit()?;
        let config = self.config.clone();
        let opened = spawn_blocking(move || open(&config)).await;
        let file = opened.map_err(|error| TaskError::new(error.to_string()))??;
        self.desk = Some(Lent::new(Desk {
            file,
            request: Request::new(self.config.format),
        }));
        Ok(())
    }

    async fn put(&mut self, batch: SinkBatch, outcomes: &OutcomeSender) -> Result<(), PutError> {
        let desk = self.desk.as_mut().ok_or_else(not_open)?;
        let mut records = batch.records().peekable();
        while records.peek().is_some() {
            let request = &mut desk.value().await?.request;
            request.clear();
            while !request.is_full()
                && let Some(record) = records.next()
            {
                if !self.broken_line_said && self.config.format.is_broken_by(&record) {
                    self.broken_line_said = true;
                    warn_of_broken_line(&record);
                }
                request.push(&record);
            }
            let appended = desk.work(|desk| desk.file.append(&desk.request)).await?;
            let request = &desk.value().await?.request;
            appended.map_err(|torn| outcome::report(torn, request, outcomes))?;
            if records.peek().is_some()
                && let Some((first, last)) = request.offsets()
            {
                outcomes.written_range(first, last);
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), PutError> {
        if self.config.fsync != Fsync::Each {
            return Ok(());
        }
        let desk = self.desk.as_mut().ok_or_else(not_open)?;
        let synced = desk.work(|desk| Ok(desk.file.sync()?)).await?;
        synced.map_err(|torn| torn.trouble.into())
    }

    async fn stop(&mut self) -> Result<(), TaskError> {
        let Some(mut desk) = self.desk.take() else {
            return Ok(());
        };
        // A disk that hangs must not hold up the task's end.
        if self.config.fsync != Fsync::Finished || desk.is_at_work() {
            return Ok(());
        }
        let finished = desk.work(|desk| Ok(desk.file.finish()?)).await;
        match finished.map_err(|error| error.to_string()) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(torn)) => Err(torn.trouble.into()),
            Err(error) => Err(TaskError::new(error)),
        }
    }
}

fn warn_of_broken_line(record: &SinkRecord<'_>) {
    tracing::warn!(
        topic = %record.topic,
        partition = record.partition,
        offset = record.offset,
        "A value holds a newline and is written as it is, as several lines; format=jsonl keeps each record on one line."
    );
}

fn not_open() -> PutError {
    PutError::broken("the file isn't open")
}
