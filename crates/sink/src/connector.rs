//! What a sink implements, and how the runtime finds it.
//!
//! A *connector* knows its configuration keys and makes *tasks*; a task writes records. The names
//! and the life cycle are Kafka Connect's: `start`, `open`, then `put` and `flush` again and again,
//! at the end `close` and `stop`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::config::{ConfigProblem, ConnectorConfig, KeyDef};
use crate::error::{PutError, TaskError};
use crate::outcome::OutcomeSender;
use crate::record::SinkBatch;

/// Writes records to a target. One task is one member of the share group; its methods are never
/// called at the same time.
pub trait SinkTask: Send {
    /// Opens what the task needs. Called once, before the task joins the group: a task that can't
    /// start takes no records away from others.
    ///
    /// # Errors
    /// Whatever keeps the task from working; the task fails with that message.
    fn start(
        &mut self,
        context: &TaskContext,
    ) -> impl Future<Output = Result<(), TaskError>> + Send {
        let _ = context;
        async { Ok(()) }
    }

    /// Told once, before the first `put`, which topics records will come from. A share group has no
    /// partitions of a task's own, so nothing may depend on partitions.
    ///
    /// # Errors
    /// As [`SinkTask::start`].
    fn open(&mut self, topics: &[Arc<str>]) -> impl Future<Output = Result<(), TaskError>> + Send {
        let _ = topics;
        async { Ok(()) }
    }

    /// Writes the records of `batch`, or hands them to a buffer that the next [`SinkTask::flush`]
    /// writes out. Records it reports through `outcomes` have that outcome; for all others `Ok`
    /// means written and an error means not written.
    ///
    /// # Errors
    /// [`PutError::Retriable`]: called again, after a growing wait, with the records that have no
    /// outcome or one that asks for another try. [`PutError::Fatal`]: the task fails.
    ///
    /// # Cancel safety
    /// The future is dropped when the task must stop and the budget for that is used up: records
    /// without an outcome are then released and delivered again.
    fn put(
        &mut self,
        batch: SinkBatch,
        outcomes: &OutcomeSender,
    ) -> impl Future<Output = Result<(), PutError>> + Send;

    /// Makes everything that was put so far durable. Records are accepted after it has returned,
    /// never before.
    ///
    /// # Errors
    /// [`PutError::Retriable`]: everything put since the last successful flush is put again, then
    /// flushed again. [`PutError::Fatal`]: the task fails.
    fn flush(&mut self) -> impl Future<Output = Result<(), PutError>> + Send {
        async { Ok(()) }
    }

    /// Called about once a second while no records arrive, for tasks that do something by time.
    ///
    /// # Errors
    /// The task fails with that message.
    fn tick(&mut self) -> impl Future<Output = Result<(), TaskError>> + Send {
        async { Ok(()) }
    }

    /// The task gets no more records. Called once after the last `flush`, before [`SinkTask::stop`].
    ///
    /// # Errors
    /// Logged; the task stops all the same.
    fn close(&mut self) -> impl Future<Output = Result<(), TaskError>> + Send {
        async { Ok(()) }
    }

    /// Gives back what `start` opened. Called once, also after a failure.
    ///
    /// # Errors
    /// Logged; the task stops all the same.
    fn stop(&mut self) -> impl Future<Output = Result<(), TaskError>> + Send {
        async { Ok(()) }
    }
}

/// A boxed future of a [`DynSinkTask`] method.
pub type TaskFuture<'a, E> = Pin<Box<dyn Future<Output = Result<(), E>> + Send + 'a>>;

/// The object-safe twin of [`SinkTask`], implemented for every [`SinkTask`]: one allocation per
/// call, so per batch and not per record.
pub trait DynSinkTask: Send {
    /// [`SinkTask::start`].
    fn start<'a>(&'a mut self, context: &'a TaskContext) -> TaskFuture<'a, TaskError>;
    /// [`SinkTask::open`].
    fn open<'a>(&'a mut self, topics: &'a [Arc<str>]) -> TaskFuture<'a, TaskError>;
    /// [`SinkTask::put`].
    fn put<'a>(
        &'a mut self,
        batch: SinkBatch,
        outcomes: &'a OutcomeSender,
    ) -> TaskFuture<'a, PutError>;
    /// [`SinkTask::flush`].
    fn flush(&mut self) -> TaskFuture<'_, PutError>;
    /// [`SinkTask::tick`].
    fn tick(&mut self) -> TaskFuture<'_, TaskError>;
    /// [`SinkTask::close`].
    fn close(&mut self) -> TaskFuture<'_, TaskError>;
    /// [`SinkTask::stop`].
    fn stop(&mut self) -> TaskFuture<'_, TaskError>;
}

impl<T: SinkTask> DynSinkTask for T {
    fn start<'a>(&'a mut self, context: &'a TaskContext) -> TaskFuture<'a, TaskError> {
        Box::pin(SinkTask::start(self, context))
    }

    fn open<'a>(&'a mut self, topics: &'a [Arc<str>]) -> TaskFuture<'a, TaskError> {
        Box::pin(SinkTask::open(self, topics))
    }

    fn put<'a>(
        &'a mut self,
        batch: SinkBatch,
        outcomes: &'a OutcomeSender,
    ) -> TaskFuture<'a, PutError> {
        Box::pin(SinkTask::put(self, batch, outcomes))
    }

    fn flush(&mut self) -> TaskFuture<'_, PutError> {
        Box::pin(SinkTask::flush(self))
    }

    fn tick(&mut self) -> TaskFuture<'_, TaskError> {
        Box::pin(SinkTask::tick(self))
    }

    fn close(&mut self) -> TaskFuture<'_, TaskError> {
        Box::pin(SinkTask::close(self))
    }

    fn stop(&mut self) -> TaskFuture<'_, TaskError> {
        Box::pin(SinkTask::stop(self))
    }
}

/// What a task knows about itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskContext {
    /// Name of the connector.
    pub connector: Arc<str>,
    /// Number of the task, from 0 to `tasks_max` - 1.
    pub task_index: u32,
    /// How many tasks this worker runs for the connector.
    pub tasks_max: u32,
    /// The share group.
    pub group_id: Arc<str>,
}

impl TaskContext {
    /// The context of task `task_index` of `tasks_max`. The runtime makes these; so do tests of
    /// sinks.
    pub fn new(
        connector: impl Into<Arc<str>>,
        task_index: u32,
        tasks_max: u32,
        group_id: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            connector: connector.into(),
            task_index,
            tasks_max,
            group_id: group_id.into(),
        }
    }
}

/// A kind of sink: its names, its configuration keys, and how to make a task of it.
pub trait Connector: Send + Sync {
    /// The name in `connector.class`, for example `file`.
    fn name(&self) -> &'static str;

    /// Other names that mean the same: the Java class it replaces, in full and short.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// Its own configuration keys, beside those that every connector has.
    fn keys(&self) -> &'static [KeyDef];

    /// Everything that is wrong with the values of its own keys; empty if nothing is.
    fn validate(&self, config: &ConnectorConfig) -> Vec<ConfigProblem>;

    /// Makes a task. Called once per task, after [`Connector::validate`] found nothing.
    ///
    /// # Errors
    /// What makes the configuration unusable; the task fails with that message.
    fn task(
        &self,
        config: &ConnectorConfig,
        context: &TaskContext,
    ) -> Result<Box<dyn DynSinkTask>, TaskError>;
}

/// The sinks that `connector.class` can name.
#[derive(Clone, Default)]
pub struct Registry {
    connectors: Vec<Arc<dyn Connector>>,
}

impl Registry {
    /// A registry without sinks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a sink.
    #[must_use]
    pub fn with(mut self, connector: impl Connector + 'static) -> Self {
        self.connectors.push(Arc::new(connector));
        self
    }

    /// The sink that `class` names: by its name, one of its aliases, the last part of an alias, or
    /// that part without `Connector`, as Kafka Connect looks classes up.
    #[must_use]
    pub fn find(&self, class: &str) -> Option<Arc<dyn Connector>> {
        self.connectors
            .iter()
            .find(|connector| names(connector.as_ref()).any(|name| name_matches(name, class)))
            .cloned()
    }

    /// The short names of all sinks, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.connectors.iter().map(|c| c.name()).collect();
        names.sort_unstable();
        names
    }
}

impl Registry {
    /// Every name without a package that `connector.class` may have.
    pub(crate) fn classes(&self) -> impl Iterator<Item = &'static str> {
        self.connectors.iter().flat_map(|connector| {
            let simple = |name: &'static str| name.rsplit('.').next().unwrap_or(name);
            let alias = connector.aliases().iter().map(move |name| simple(name));
            let short = alias
                .clone()
                .filter_map(|name| name.strip_suffix("Connector"));
            std::iter::once(connector.name()).chain(short).chain(alias)
        })
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registry").field(&self.names()).finish()
    }
}

fn names(connector: &dyn Connector) -> impl Iterator<Item = &'static str> {
    std::iter::once(connector.name()).chain(connector.aliases().iter().copied())
}

fn name_matches(name: &str, class: &str) -> bool {
    let simple = name.rsplit('.').next().unwrap_or(name);
    class == name || class == simple || simple.strip_suffix("Connector") == Some(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named;

    impl Connector for Named {
        fn name(&self) -> &'static str {
            "file"
        }
        fn aliases(&self) -> &'static [&'static str] {
            &["org.apache.kafka.connect.file.FileStreamSinkConnector"]
        }
        fn keys(&self) -> &'static [KeyDef] {
            &[]
        }
        fn validate(&self, _: &ConnectorConfig) -> Vec<ConfigProblem> {
            Vec::new()
        }
        fn task(
            &self,
            _: &ConnectorConfig,
            _: &TaskContext,
        ) -> Result<Box<dyn DynSinkTask>, TaskError> {
            Err(TaskError::new("not a real sink"))
        }
    }

    #[test]
    fn a_class_is_found_by_its_full_simple_and_short_name() {
        let registry = Registry::new().with(Named);
        for class in [
            "file",
            "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "FileStreamSinkConnector",
            "FileStreamSink",
        ] {
            assert!(registry.find(class).is_some(), "{class}");
        }
        assert!(registry.find("FileStream").is_none());
        assert!(
            registry
                .find("org.apache.kafka.connect.file.FileStreamSink")
                .is_none()
        );
    }
}
