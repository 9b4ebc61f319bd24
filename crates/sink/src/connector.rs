//! What a sink implements, and how the runtime finds it.
//!
//! A *connector* knows its configuration keys and makes *tasks*; a task writes records. The names
//! and the life cycle are Kafka Connect's: `start`, `open`, then `put` and `flush` again and again,
//! at the end `close` and `stop`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::check::Checked;
use crate::config::{ConfigProblem, ConnectorConfig, KeyDef};
use crate::error::{PutError, TaskError};
use crate::outcome::OutcomeSender;
use crate::record::{SinkBatch, SinkRecord};

/// Writes records to a target. One task is one member of the share group; its methods are never
/// called at the same time. With `share.concurrency`, a task has several instances of this, which are.
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

    /// Told before the first `put` which topics records will come from: once with all of them, and with
    /// `topics.regex` once more with each that matches later, before its first record. A share group has no
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
    /// outcome or one that asks for another try. [`PutError::Fatal`]: a record of the batch can't be
    /// written. In both cases a sink that says no more than that is called again with ever smaller parts
    /// of the batch, until the record to blame stands alone; what follows is up to `errors.tolerance`.
    /// [`PutError::Broken`], and a panic: the task fails.
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
    /// [`PutError::Retriable`] and [`PutError::Fatal`]: everything put since the last successful flush
    /// is put again, in ever smaller parts, each flushed by itself. [`PutError::Broken`], and a panic:
    /// the task fails.
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
    wishes: Arc<TaskWishes>,
    /// Milliseconds; 0 = not known yet.
    lock_duration: Arc<AtomicU64>,
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
            wishes: Arc::default(),
            lock_duration: Arc::default(),
        }
    }

    /// How long the group's broker locks records for a task, before a renewal: what a sink asks of its target should not
    /// outlast that. `None` until the first put: the broker says it with the first records.
    #[must_use]
    pub fn lock_duration(&self) -> Option<Duration> {
        let millis = self.lock_duration.load(Ordering::Relaxed);
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    /// Notes how long the group's locks last. The runtime does, before each put; so do tests of sinks.
    pub fn note_lock_duration(&self, lock: Duration) {
        let millis = u64::try_from(lock.as_millis()).unwrap_or(u64::MAX);
        self.lock_duration.store(millis, Ordering::Relaxed);
    }

    /// Where a task reports records that it can't write.
    #[must_use]
    pub fn errant_records(&self) -> ErrantRecords {
        ErrantRecords(Arc::clone(&self.wishes))
    }

    /// Takes what was reported through [`TaskContext::errant_records`]: offsets and reasons. For tests of
    /// sinks; in a worker the runtime takes it.
    #[must_use]
    pub fn take_reported(&self) -> Vec<(i64, String)> {
        let errant = self.wishes.take_errant().into_iter();
        errant.map(|errant| (errant.offset, errant.error)).collect()
    }

    /// Asks for the acknowledgement of everything written so far: it is sent and its answer awaited
    /// after the call that is under way, or at once where there is none.
    pub fn request_commit(&self) {
        self.wishes.wish(|wished| wished.commit = true);
    }

    /// Sets the next wait: until the records are put again, where the call under way fails with
    /// [`PutError::Retriable`] and asks for no wait of its own; else until the next
    /// [`SinkTask::tick`]. It holds once.
    pub fn timeout(&self, timeout: Duration) {
        self.wishes.wish(|wished| wished.timeout = Some(timeout));
    }

    /// Acquires nothing new until [`TaskContext::resume`]; what was fetched ahead is still put. The
    /// task's state stays as it is. With `share.concurrency`, one instance that wants this holds for all of the task. A share group has no partitions of a task's own, so there is no
    /// pausing of single ones, and no seeking.
    pub fn pause(&self) {
        self.wishes.wish(|wished| wished.paused = true);
    }

    /// Ends [`TaskContext::pause`].
    pub fn resume(&self) {
        self.wishes.wish(|wished| wished.paused = false);
    }

    pub(crate) fn wishes(&self) -> &Arc<TaskWishes> {
        &self.wishes
    }
}

/// Takes the records that a task can't write, whenever it finds out: in `put`, or later in `flush`.
///
/// A reported record counts as refused: under `errors.tolerance=all` it goes to the dead-letter topic
/// and is settled once its letter is confirmed, under `none` the task fails naming it. Either way it
/// is not put again.
#[derive(Clone, Debug)]
pub struct ErrantRecords(Arc<TaskWishes>);

impl ErrantRecords {
    /// Reports a record that was put and is not flushed yet; others are ignored.
    pub fn report(&self, record: &SinkRecord<'_>, error: impl Into<String>) {
        self.report_at(record.topic, record.partition, record.offset, error);
    }

    /// The same for a task that has kept the record's place alone.
    pub fn report_at(
        &self,
        topic: &Arc<str>,
        partition: i32,
        offset: i64,
        error: impl Into<String>,
    ) {
        let errant = Errant {
            topic: Arc::clone(topic),
            partition,
            offset,
            error: error.into(),
        };
        self.0.lock().errant.push(errant);
    }
}

/// What a task wants of the runtime.
#[derive(Debug, Default)]
pub(crate) struct TaskWishes {
    wished: Mutex<Wished>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Wished {
    commit: bool,
    paused: bool,
    timeout: Option<Duration>,
    errant: Vec<Errant>,
}

/// A record that was reported as errant.
#[derive(Debug)]
pub(crate) struct Errant {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) error: String,
}

impl TaskWishes {
    pub(crate) fn take_commit(&self) -> bool {
        std::mem::take(&mut self.lock().commit)
    }

    pub(crate) fn take_timeout(&self) -> Option<Duration> {
        self.lock().timeout.take()
    }

    pub(crate) fn take_errant(&self) -> Vec<Errant> {
        std::mem::take(&mut self.lock().errant)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.lock().paused
    }

    /// Waits for a new wish. Cancel-safe.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn wish(&self, change: impl FnOnce(&mut Wished)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Wished> {
        // Each write under the lock is whole, so a poisoned lock guards good data.
        self.wished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What [`Connector::check`] gives.
pub type CheckFuture<'a> = Pin<Box<dyn Future<Output = Checked> + Send + 'a>>;

/// A kind of sink: its names, its configuration keys, and how to make a task of it.
pub trait Connector: Send + Sync {
    /// The name in `connector.class`, for example `file`.
    fn name(&self) -> &'static str;

    /// Other names that mean the same: the Java class it replaces, in full and short.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// What it does, in a line without capital and full stop: `appends records to files`.
    fn purpose(&self) -> &'static str {
        ""
    }

    /// Its own configuration keys, beside those that every connector has. Default none.
    fn keys(&self) -> &'static [KeyDef] {
        &[]
    }

    /// Everything that is wrong with the values of its own keys, beyond their kinds; empty, as by default, if nothing is.
    /// Looks at nothing outside this machine.
    fn validate(&self, config: &ConnectorConfig) -> Vec<ConfigProblem> {
        let _ = config;
        Vec::new()
    }

    /// Looks whether the target would take records: that it can be reached, lets this configuration in, has what records of
    /// `topics` need, and allows it. Changes nothing there. Called by `validate --connect` after [`Connector::validate`]
    /// found nothing, and dropped where it takes too long. Default: nothing is looked at, nothing found.
    fn check<'a>(&'a self, config: &'a ConnectorConfig, topics: &'a [String]) -> CheckFuture<'a> {
        let _ = (config, topics);
        Box::pin(async { Checked::default() })
    }

    /// The key that says where it writes, and that place: two connectors of one sink that have the same are named in a
    /// warning. `None`, as by default: nothing would be odd about that.
    fn output(&self, config: &ConnectorConfig) -> Option<(&'static str, String)> {
        let _ = config;
        None
    }

    /// Whether a task may have several instances that write at the same time, each made by
    /// [`Connector::task`] with the same task number, and none of them knowing of the others
    /// (`share.concurrency`). Default no: a task may call something its own that its number names. Where a
    /// sink says no, a configuration that asks for more than one gets a warning, and one.
    fn is_concurrent(&self) -> bool {
        false
    }

    /// Whether what [`SinkTask::put`] reports as written is durable when it returns, and [`SinkTask::flush`] does nothing.
    /// Records are then accepted after each put, so that the next ones are acquired during the put that follows.
    /// Default no: several puts share a flush, and are accepted after it.
    fn writes_at_once(&self) -> bool {
        false
    }

    /// Most records that one put should have, where no file sets `max.poll.records`. Default: what that key has by default.
    fn put_records_max(&self, config: &ConnectorConfig) -> Option<usize> {
        let _ = config;
        None
    }

    /// Makes a task. Called once per task, or `share.concurrency` times for a sink that
    /// [is concurrent](Connector::is_concurrent), after [`Connector::validate`] found nothing.
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

pub(crate) fn name_matches(name: &str, class: &str) -> bool {
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
        fn task(
            &self,
            _: &ConnectorConfig,
            _: &TaskContext,
        ) -> Result<Box<dyn DynSinkTask>, TaskError> {
            Err(TaskError::new("not a real sink"))
        }
    }

    #[test]
    fn what_is_reported_as_errant_can_be_taken_once() {
        let context = TaskContext::new("out", 0, 1, "g");
        let topic = Arc::from("orders");
        context
            .errant_records()
            .report_at(&topic, 3, 7, "no such column");
        assert_eq!(context.take_reported(), [(7, "no such column".to_owned())]);
        assert!(context.take_reported().is_empty());
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
