//! The worker: runs every connector's tasks, each a share group member of its own.
//!
//! Nothing but configuration and status goes between a worker and its tasks: a task that fails, or
//! panics, takes no other task with it. Connectors and tasks come and go while the others work on.

mod cluster;
mod connector;
mod join;
mod supervise;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::watch;

pub(crate) use self::cluster::{Cluster, TaskPlace};
use self::connector::{RunningConnector, Starts};
use self::supervise::{OnCluster, RunningTask, Starter, task_name};
use crate::config::{ConnectorConfig, WorkerConfig};
use crate::metrics::{self, Lag, Shown};
use crate::share::KafkaCluster;
use crate::status::Startups;
pub use crate::status::{
    ConnectorStatus, PartitionStatus, TaskCounters, TaskState, TaskStatus, TaskTimes, WorkerStatus,
};
use crate::task::Control;

/// What a worker is started with, beside its configuration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerOptions {
    /// How long a task waits for the cluster before it fails. Default 60 s.
    pub startup_timeout: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            startup_timeout: Duration::from_secs(60),
        }
    }
}

impl WorkerOptions {
    /// Sets how long a task waits for the cluster before it fails.
    #[must_use]
    pub const fn startup_timeout(mut self, timeout: Duration) -> Self {
        self.startup_timeout = timeout;
        self
    }
}

/// A running worker. When it is dropped without [`Worker::stop`], its tasks stop by themselves, as
/// long as the runtime goes on.
///
/// Connectors are added, changed and removed, and tasks too, one change after another; whoever else
/// wants a change waits for the one under way.
pub struct Worker {
    /// Where tasks run.
    runtime: Handle,
    starter: Box<dyn Starter>,
    startups: Arc<Startups>,
    changes: watch::Sender<()>,
    /// Whose turn it is to change something.
    turn: tokio::sync::Mutex<()>,
    inner: Mutex<Inner>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Inner {
    config: Arc<WorkerConfig>,
    connectors: Vec<RunningConnector>,
    connectors_started: u64,
    /// Totals of connectors that are gone.
    removed: TaskCounters,
    /// Tasks that did not end when they had to, of connectors that are gone.
    late: Vec<Arc<RunningTask>>,
    /// Whether tasks are stopped only for others to take their place.
    is_changing: bool,
    is_stopped: bool,
}

/// How stopping a worker, a connector or some of its tasks went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopReport {
    /// Tasks that did not end within the budget, as `name-0`: what they hold is delivered again
    /// once its locks end.
    pub late: Vec<String>,
}

impl StopReport {
    fn of(connector: &str, late: &[Arc<RunningTask>]) -> Self {
        let names = late
            .iter()
            .map(|task| task_name(connector, task.shared.index));
        Self {
            late: names.collect(),
        }
    }
}

/// Why a worker can't be changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// There is no connector of that name: the caller's mistake.
    #[error("there is no connector {0}")]
    NoSuchConnector(String),
    /// There is a connector of that name already: the caller's mistake.
    #[error("there is a connector {0} already")]
    ConnectorExists(String),
    /// The worker was told to stop.
    #[error("the worker is stopping")]
    Stopping,
}

impl Worker {
    /// Starts all tasks of all connectors and returns at once; how they fare is in
    /// [`Worker::status`]. Must be called within a tokio runtime: there the tasks run, later ones as well.
    #[must_use]
    pub fn start(
        worker: &WorkerConfig,
        connectors: Vec<ConnectorConfig>,
        options: &WorkerOptions,
    ) -> Self {
        let cluster = KafkaCluster {
            startup_timeout: options.startup_timeout,
            driver_on_current: false,
        };
        Self::start_on(Arc::new(cluster), worker, connectors)
    }

    pub(crate) fn start_on<C: Cluster>(
        cluster: Arc<C>,
        config: &WorkerConfig,
        connectors: Vec<ConnectorConfig>,
    ) -> Self {
        let worker = Self {
            runtime: Handle::current(),
            starter: Box::new(OnCluster {
                cluster,
                at_work: watch::Sender::new(0),
            }),
            startups: Arc::default(),
            changes: watch::Sender::new(()),
            turn: tokio::sync::Mutex::default(),
            inner: Mutex::new(Inner {
                config: Arc::new(config.clone()),
                connectors: Vec::new(),
                connectors_started: 0,
                removed: TaskCounters::default(),
                late: Vec::new(),
                is_changing: false,
                is_stopped: false,
            }),
        };
        for connector in connectors {
            worker.start_connector(&mut worker.lock(), connector);
        }
        worker
    }

    /// How the connectors and their tasks stand.
    #[must_use]
    pub fn status(&self) -> WorkerStatus {
        let inner = self.lock();
        let mut removed = inner.removed;
        for task in &inner.late {
            removed.add(&task.shared.counters());
        }
        WorkerStatus {
            connectors: inner
                .connectors
                .iter()
                .map(RunningConnector::status)
                .collect(),
            removed,
        }
    }

    /// The settings it runs with.
    #[must_use]
    pub fn config(&self) -> Arc<WorkerConfig> {
        Arc::clone(&self.lock().config)
    }

    /// The settings of its connectors, with the tasks they have now.
    #[must_use]
    pub fn connectors(&self) -> Vec<Arc<ConnectorConfig>> {
        let inner = self.lock();
        let configs = inner.connectors.iter().map(|c| Arc::clone(&c.config));
        configs.collect()
    }

    /// Its metrics in Prometheus' text format, version 0.0.4: Kafka Connect's under the names that the JMX exporter
    /// gives them, KIP-1302's, and `share_*`.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.metrics_with(&[])
    }

    /// The same with lags.
    pub(crate) fn metrics_with(&self, lags: &[Lag]) -> String {
        let connectors_started = self.lock().connectors_started;
        metrics::show(&Shown {
            status: &self.status(),
            configs: &self.connectors(),
            connectors_started,
            startups: &self.startups,
            lags,
        })
    }

    /// Waits until a task changes its state, from now on.
    ///
    /// # Cancel safety
    /// Safe; changes between two calls are missed, look at [`Worker::status`] as well.
    pub async fn changed(&self) {
        let mut changes = self.changes.subscribe();
        next(&mut changes).await;
    }

    /// Waits until a task has failed for good.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn any_failed(&self) {
        self.wait_for(|inner| inner.states().any(|state| state == TaskState::Failed))
            .await;
    }

    /// Waits until every task has joined its group, or has failed to.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn all_decided(&self) {
        self.wait_for(|inner| inner.states().all(|state| state != TaskState::Unassigned))
            .await;
    }

    /// Waits until every task has failed or stopped, while nothing is being changed.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn all_ended(&self) {
        self.wait_for(|inner| !inner.is_changing && inner.states().all(TaskState::has_ended))
            .await;
    }

    /// Waits until the worker stands so.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn until(&self, is_so: impl Fn(&WorkerStatus) -> bool) {
        let mut changes = self.changes.subscribe();
        while !is_so(&self.status()) {
            next(&mut changes).await;
        }
    }

    /// Pauses the tasks of a connector: they finish what they hold, acquire nothing new and stay in
    /// the group. `false` = there is no such connector.
    pub fn pause(&self, connector: &str) -> bool {
        self.tell(connector, Control::Pause)
    }

    /// Resumes the tasks of a connector. `false` = there is no such connector.
    pub fn resume(&self, connector: &str) -> bool {
        self.tell(connector, Control::Run)
    }

    fn tell(&self, connector: &str, wanted: Control) -> bool {
        let mut inner = self.lock();
        let found = inner.find(connector);
        found.map(|connector| connector.tell(wanted)).is_ok()
    }

    /// Gives a connector another number of tasks; the others work on. A task too many acquires nothing new,
    /// finishes what it can within `task.shutdown.graceful.timeout.ms`, releases the rest and leaves the group.
    /// Without tasks the connector counts as stopped.
    ///
    /// # Errors
    /// [`WorkerError::NoSuchConnector`], [`WorkerError::Stopping`].
    ///
    /// # Cancel safety
    /// The change may be made all the same.
    pub async fn set_tasks(&self, connector: &str, tasks: u32) -> Result<StopReport, WorkerError> {
        let _turn = self.turn.lock().await;
        let (leaving, budget) = {
            let mut inner = self.lock_for_change()?;
            let starts = self.starts(&inner.config);
            let budget = starts.worker.shutdown_timeout;
            let found = inner.find(connector)?;
            let leaving = found.resize(tasks);
            self.within(|| found.fill(&starts));
            (leaving, budget)
        };
        let late = supervise::stop(&leaving, budget).await;
        if let Ok(connector) = self.lock().find(connector) {
            connector.forget_ended();
        }
        self.changes.send_replace(());
        Ok(StopReport::of(connector, &late))
    }

    /// Adds a connector and starts its tasks.
    ///
    /// # Errors
    /// [`WorkerError::ConnectorExists`], [`WorkerError::Stopping`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn add(&self, connector: ConnectorConfig) -> Result<(), WorkerError> {
        let _turn = self.turn.lock().await;
        let mut inner = self.lock_for_change()?;
        if inner.find(&connector.name).is_ok() {
            return Err(WorkerError::ConnectorExists(connector.name));
        }
        self.start_connector(&mut inner, connector);
        drop(inner);
        self.changes.send_replace(());
        Ok(())
    }

    /// Stops the tasks of a connector, as [`set_tasks`](Self::set_tasks) does, and forgets it.
    ///
    /// # Errors
    /// [`WorkerError::NoSuchConnector`], [`WorkerError::Stopping`].
    ///
    /// # Cancel safety
    /// Its tasks stop all the same; call again to remove it.
    pub async fn remove(&self, connector: &str) -> Result<StopReport, WorkerError> {
        let _turn = self.turn.lock().await;
        let change = Change::begin(self);
        let late = self.stop_tasks(connector).await?;
        {
            let mut inner = self.lock();
            let mut connectors = inner.connectors.iter();
            let place = connectors.position(|running| running.config.name == connector);
            if let Some(mut gone) = place.map(|place| inner.connectors.remove(place)) {
                gone.forget_ended();
                inner.removed.add(&gone.removed);
                inner.late.extend(gone.tasks().iter().cloned());
            }
        }
        drop(change);
        Ok(StopReport::of(connector, &late))
    }

    /// Gives a connector other settings: its tasks stop, as [`set_tasks`](Self::set_tasks) has them stop, and
    /// start with the new ones. What else the worker does goes on.
    ///
    /// # Errors
    /// [`WorkerError::NoSuchConnector`], [`WorkerError::Stopping`].
    ///
    /// # Cancel safety
    /// Not safe: its tasks may be left stopped.
    pub async fn reconfigure(&self, connector: ConnectorConfig) -> Result<StopReport, WorkerError> {
        let _turn = self.turn.lock().await;
        let change = Change::begin(self);
        let name = connector.name.clone();
        let late = self.stop_tasks(&name).await?;
        {
            let mut inner = self.lock_for_change()?;
            let starts = self.starts(&inner.config);
            let found = inner.find(&name)?;
            found.configure(connector);
            self.within(|| found.fill(&starts));
        }
        drop(change);
        Ok(StopReport::of(&name, &late))
    }

    /// Starts a connector's tasks again: all, or only those that have failed. The others work on.
    ///
    /// # Errors
    /// [`WorkerError::NoSuchConnector`], [`WorkerError::Stopping`].
    ///
    /// # Cancel safety
    /// Not safe: its tasks may be left stopped.
    pub async fn restart(
        &self,
        connector: &str,
        only_failed: bool,
    ) -> Result<StopReport, WorkerError> {
        let _turn = self.turn.lock().await;
        let change = Change::begin(self);
        let (tasks, budget) = {
            let mut inner = self.lock_for_change()?;
            let budget = inner.config.shutdown_timeout;
            let tasks = inner.find(connector)?.tasks().iter();
            let wanted =
                |task: &&Arc<RunningTask>| !only_failed || task.shared.state() == TaskState::Failed;
            (tasks.filter(wanted).cloned().collect::<Vec<_>>(), budget)
        };
        let late = supervise::stop(&tasks, budget).await;
        {
            let mut inner = self.lock_for_change()?;
            let starts = self.starts(&inner.config);
            let found = inner.find(connector)?;
            self.within(|| found.fill(&starts));
        }
        drop(change);
        Ok(StopReport::of(connector, &late))
    }

    /// Other settings of the worker, for the tasks that are started from now on and for how long stopping
    /// may take.
    pub fn set_config(&self, config: WorkerConfig) {
        self.lock().config = Arc::new(config);
    }

    /// Stops all tasks, with one budget for all of them: each acquires nothing new, finishes what
    /// it can, releases the rest and leaves its group. Nothing is started any more.
    ///
    /// # Cancel safety
    /// The tasks stop all the same; call again to wait for them.
    pub async fn stop(&self, budget: Duration) -> StopReport {
        let tasks: Vec<_> = {
            let mut inner = self.lock();
            inner.is_stopped = true;
            let named = |connector: &RunningConnector| {
                let name = connector.config.name.clone();
                let tasks = connector.tasks().to_vec();
                tasks.into_iter().map(move |task| (name.clone(), task))
            };
            inner.connectors.iter().flat_map(named).collect()
        };
        let (names, tasks): (Vec<_>, Vec<_>) = tasks.into_iter().unzip();
        let late = supervise::stop(&tasks, budget).await;
        let is_late = |task: &Arc<RunningTask>| late.iter().any(|late| Arc::ptr_eq(late, task));
        let late = names.iter().zip(&tasks).filter(|(_, task)| is_late(task));
        StopReport {
            late: late
                .map(|(connector, task)| task_name(connector, task.shared.index))
                .collect(),
        }
    }

    async fn stop_tasks(&self, connector: &str) -> Result<Vec<Arc<RunningTask>>, WorkerError> {
        let (tasks, budget) = {
            let mut inner = self.lock_for_change()?;
            let budget = inner.config.shutdown_timeout;
            (inner.find(connector)?.tasks().to_vec(), budget)
        };
        Ok(supervise::stop(&tasks, budget).await)
    }

    fn start_connector(&self, inner: &mut Inner, config: ConnectorConfig) {
        let starts = self.starts(&inner.config);
        let connector = self.within(|| RunningConnector::start(config, &starts));
        inner.connectors.push(connector);
        inner.connectors_started += 1;
    }

    fn starts(&self, worker: &Arc<WorkerConfig>) -> Starts<'_> {
        Starts {
            starter: &*self.starter,
            worker: Arc::clone(worker),
            startups: &self.startups,
            changes: &self.changes,
        }
    }

    /// Tasks run where the worker was started, whoever starts them.
    fn within<T>(&self, start: impl FnOnce() -> T) -> T {
        let _entered = self.runtime.enter();
        start()
    }

    async fn wait_for(&self, reached: impl Fn(&Inner) -> bool) {
        let mut changes = self.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if reached(&self.lock()) {
                return;
            }
            next(&mut changes).await;
        }
    }

    fn lock_for_change(&self) -> Result<MutexGuard<'_, Inner>, WorkerError> {
        let inner = self.lock();
        if inner.is_stopped {
            return Err(WorkerError::Stopping);
        }
        Ok(inner)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each write under the lock is whole, so a poisoned lock guards good data.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn find(&mut self, connector: &str) -> Result<&mut RunningConnector, WorkerError> {
        let mut connectors = self.connectors.iter_mut();
        let found = connectors.find(|running| running.config.name == connector);
        found.ok_or_else(|| WorkerError::NoSuchConnector(connector.to_owned()))
    }

    fn states(&self) -> impl Iterator<Item = TaskState> {
        let tasks = self.connectors.iter().flat_map(RunningConnector::tasks);
        tasks.map(|task| task.shared.state())
    }
}

async fn next(changes: &mut watch::Receiver<()>) {
    let changed = changes.changed().await;
    // INVARIANT: the worker that waits has the sender.
    debug_assert!(changed.is_ok());
}

/// A change under way, in which tasks may stop without being at an end.
struct Change<'a>(&'a Worker);

impl<'a> Change<'a> {
    fn begin(worker: &'a Worker) -> Self {
        worker.lock().is_changing = true;
        Self(worker)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.lock().is_changing = false;
        self.0.changes.send_replace(());
    }
}
