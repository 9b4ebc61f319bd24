//! Appends records to files, one line each.
//!
//! | key | default | meaning |
//! | --- | --- | --- |
//! | `file` | must be set | the file; `${task}` stands for the task's number |
//! | `format` | `value` | `value`: each value as it is; `jsonl`: one JSON object per record |
//! | `fsync` | `false` | `true`: records are accepted after their lines are on the disk |
//!
//! Tasks, and workers, may share a file: lines are appended whole. A full disk fails the task; the
//! records stay available to the group.

mod config;
mod outcome;
mod request;
mod service;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sharegroup_sink::config::{ConfigProblem, KeyDef};
use sharegroup_sink::{
    Connector, ConnectorConfig, DynSinkTask, OutcomeSender, PutError, SinkBatch, SinkTask,
    TaskContext, TaskError,
};

use self::config::FileConfig;
use self::request::Request;
use self::service::LineFile;

/// The sink `file`.
#[derive(Clone, Copy, Debug)]
pub struct FileConnector;

impl Connector for FileConnector {
    fn name(&self) -> &'static str {
        "file"
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
    /// Open from `start` to `stop`.
    file: Option<Arc<LineFile>>,
    /// Reused for every put.
    request: Request,
    /// Whether a value that isn't one line has been seen and said.
    broken_line_said: bool,
}

impl FileTask {
    fn new(config: FileConfig) -> Self {
        let request = Request::new(config.format);
        Self {
            config,
            file: None,
            request,
            broken_line_said: false,
        }
    }

    fn file(&self) -> Result<Arc<LineFile>, PutError> {
        self.file
            .clone()
            .ok_or_else(|| PutError::fatal("the file isn't open"))
    }
}

impl SinkTask for FileTask {
    async fn start(&mut self, _: &TaskContext) -> Result<(), TaskError> {
        service::survive_file_size_limit()?;
        self.file = Some(Arc::new(LineFile::open(&self.config.path)?));
        Ok(())
    }

    async fn put(&mut self, batch: SinkBatch, outcomes: &OutcomeSender) -> Result<(), PutError> {
        let file = self.file()?;
        let mut records = batch.records().peekable();
        while records.peek().is_some() {
            self.request.clear();
            while !self.request.is_full()
                && let Some(record) = records.next()
            {
                if !self.broken_line_said && self.config.format.is_broken_by(&record) {
                    self.broken_line_said = true;
                    tracing::warn!(
                        topic = %record.topic,
                        partition = record.partition,
                        offset = record.offset,
                        "A value holds a newline and is written as it is, as several lines; format=jsonl keeps each record on one line."
                    );
                }
                self.request.push(&record);
            }
            if let Err(torn) = file.append(&self.request) {
                return Err(outcome::report(
                    torn,
                    &self.request,
                    &self.config.path,
                    outcomes,
                ));
            }
            if records.peek().is_some()
                && let Some((first, last)) = self.request.offsets()
            {
                outcomes.written_range(first, last);
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), PutError> {
        if !self.config.fsync {
            return Ok(());
        }
        let file = self.file()?;
        let synced = tokio::task::spawn_blocking(move || file.sync()).await;
        let error = match synced {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(error) => std::io::Error::other(error),
        };
        Err(outcome::classify(&error, &self.config.path))
    }

    async fn stop(&mut self) -> Result<(), TaskError> {
        self.file = None;
        Ok(())
    }
}
