//! The worker: runs every connector's tasks, each a share group member of its own.
//!
//! Nothing but configuration and status goes between a worker and its tasks: a task that fails, or
//! panics, takes no other task with it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OnceCell, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::config::{AcknowledgementMode, ConnectorConfig, ConsumerSettings, WorkerConfig};
use crate::connector::{DynSinkTask, TaskContext};
use crate::error::{TaskError, chain};
use crate::loss::LossLog;
use crate::prepare::Prepared;
use crate::share::KafkaCluster;
use crate::source::RecordSource;
use crate::status::TaskShared;
pub use crate::status::{
    ConnectorStatus, PartitionStatus, TaskCounters, TaskState, TaskStatus, WorkerStatus,
};
use crate::task::{Control, Ended, ShareSinkTask, TaskSettings, call, panic_text, stopped};

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
#[derive(Debug)]
pub struct Worker {
    connectors: Vec<RunningConnector>,
    changes: watch::Receiver<()>,
}

#[derive(Debug)]
struct RunningConnector {
    config: Arc<ConnectorConfig>,
    tasks: Vec<RunningTask>,
}

#[derive(Debug)]
struct RunningTask {
    shared: Arc<TaskShared>,
    control: watch::Sender<Control>,
    handle: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

/// How stopping a worker went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopReport {
    /// Tasks that did not end within the budget, as `name-0`: what they hold is delivered again
    /// once its locks end.
    pub late: Vec<String>,
}

impl Worker {
    /// Starts all tasks of all connectors and returns at once; how they fare is in
    /// [`Worker::status`]. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(
        worker: &WorkerConfig,
        connectors: Vec<ConnectorConfig>,
        options: &WorkerOptions,
    ) -> Self {
        let cluster = KafkaCluster {
            startup_timeout: options.startup_timeout,
        };
        Self::start_on(Arc::new(cluster), worker, connectors)
    }

    pub(crate) fn start_on<C: Cluster>(
        cluster: Arc<C>,
        worker: &WorkerConfig,
        connectors: Vec<ConnectorConfig>,
    ) -> Self {
        let (changes, seen) = watch::channel(());
        let tasks: u32 = connectors.iter().map(|config| config.tasks_max).sum();
        let at_work = watch::Sender::new(tasks);
        let connectors = connectors
            .into_iter()
            .map(|config| start_connector(&cluster, worker, config, &changes, &at_work))
            .collect();
        Self {
            connectors,
            changes: seen,
        }
    }

    /// How the connectors and their tasks stand.
    #[must_use]
    pub fn status(&self) -> WorkerStatus {
        WorkerStatus {
            connectors: self
                .connectors
                .iter()
                .map(|connector| ConnectorStatus {
                    name: connector.config.name.clone(),
                    class: connector.config.class.clone(),
                    group_id: connector.config.consumer.group_id.clone(),
                    topics: connector.config.topics.clone(),
                    tasks: connector
                        .tasks
                        .iter()
                        .map(|task| task.shared.status())
                        .collect(),
                })
                .collect(),
        }
    }

    /// Waits until a task changes its state, from now on.
    ///
    /// # Cancel safety
    /// Safe; changes between two calls are missed, look at [`Worker::status`] as well.
    pub async fn changed(&self) {
        let mut changes = self.changes.clone();
        changes.mark_unchanged();
        // A worker without tasks has nobody to tell of changes.
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until a task has failed.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn any_failed(&self) {
        self.wait_for(|worker| worker.states().any(|state| state == TaskState::Failed))
            .await;
    }

    /// Waits until every task has failed or stopped.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn all_ended(&self) {
        self.wait_for(|worker| worker.states().all(TaskState::has_ended))
            .await;
    }

    /// Pauses the tasks of a connector: they finish what they hold, acquire nothing new and stay in
    /// the group. `false` = there is no such connector.
    pub fn pause(&self, connector: &str) -> bool {
        self.control(connector, Control::Pause)
    }

    /// Resumes the tasks of a connector. `false` = there is no such connector.
    pub fn resume(&self, connector: &str) -> bool {
        self.control(connector, Control::Run)
    }

    /// Stops all tasks, with one budget for all of them: each acquires nothing new, finishes what
    /// it can, releases the rest and leaves its group.
    ///
    /// # Cancel safety
    /// The tasks stop all the same; call again to wait for them.
    pub async fn stop(&self, budget: Duration) -> StopReport {
        let deadline = Instant::now() + budget;
        // What a task needs to end after its own deadline is kept free.
        let own_deadline = Instant::now() + budget * 9 / 10;
        let tasks = || {
            self.connectors
                .iter()
                .flat_map(|connector| connector.tasks.iter().map(move |task| (connector, task)))
        };
        for (_, task) in tasks() {
            task.control.send_if_modified(|control| {
                let running = !matches!(control, Control::Stop { .. });
                if running {
                    *control = Control::Stop {
                        deadline: own_deadline,
                        budget,
                    };
                }
                running
            });
        }
        let mut report = StopReport::default();
        for (connector, task) in tasks() {
            let mut handle = task.handle.lock().await;
            if let Some(running) = handle.as_mut() {
                if timeout_at(deadline, running).await.is_ok() {
                    *handle = None;
                } else {
                    report
                        .late
                        .push(task_name(&connector.config, task.shared.index));
                }
            }
        }
        report
    }

    fn control(&self, connector: &str, wanted: Control) -> bool {
        let Some(connector) = self.connectors.iter().find(|c| c.config.name == connector) else {
            return false;
        };
        for task in &connector.tasks {
            task.control.send_if_modified(|control| {
                let changes = !matches!(control, Control::Stop { .. }) && *control != wanted;
                if changes {
                    *control = wanted;
                }
                changes
            });
        }
        true
    }

    fn states(&self) -> impl Iterator<Item = TaskState> {
        self.connectors
            .iter()
            .flat_map(|connector| &connector.tasks)
            .map(|task| task.shared.state())
    }

    async fn wait_for(&self, reached: impl Fn(&Self) -> bool) {
        let mut changes = self.changes.clone();
        loop {
            changes.borrow_and_update();
            if reached(self) {
                return;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Where groups are prepared and members opened; a seam for tests.
pub(crate) trait Cluster: Send + Sync + 'static {
    /// A member.
    type Source: RecordSource + 'static;

    /// Prepares the group of a connector.
    fn prepare(
        &self,
        settings: &ConsumerSettings,
    ) -> impl Future<Output = Result<Prepared, String>> + Send;

    /// Joins the group of a connector as a member for one task.
    fn open(
        &self,
        connector: &ConnectorConfig,
        task: TaskPlace<'_>,
    ) -> impl Future<Output = Result<Self::Source, String>> + Send;
}

/// Which task joins, and what it knows of its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskPlace<'a> {
    /// The task: `name-0`.
    pub(crate) name: &'a str,
    /// Its number in the connector.
    pub(crate) index: u32,
    /// Deliveries the group allows.
    pub(crate) delivery_count_limit: i16,
    /// Where what becomes of its records is counted.
    pub(crate) shared: &'a Arc<TaskShared>,
}

/// Everything one task is made from.
struct TaskSetup<C> {
    cluster: Arc<C>,
    config: Arc<ConnectorConfig>,
    /// The group is prepared once, by whichever task comes first.
    prepared: Arc<OnceCell<Result<Prepared, String>>>,
    control: watch::Receiver<Control>,
    shared: Arc<TaskShared>,
    flush_interval: Duration,
    shutdown_timeout: Duration,
}

fn start_connector<C: Cluster>(
    cluster: &Arc<C>,
    worker: &WorkerConfig,
    config: ConnectorConfig,
    changes: &watch::Sender<()>,
    at_work: &watch::Sender<u32>,
) -> RunningConnector {
    let config = Arc::new(config);
    tracing::info!(
        connector = config.name,
        sink = config.connector().name(),
        group = config.consumer.group_id,
        topics = config.topics.join(","),
        tasks = config.tasks_max,
        consumer = config.consumer.in_force.join(", "),
        "Starting a connector; its tasks are members of this worker, other workers add theirs."
    );
    let prepared = Arc::new(OnceCell::new());
    let tasks = (0..config.tasks_max)
        .map(|index| {
            let (control, seen) = watch::channel(Control::Run);
            let shared = Arc::new(TaskShared::new(index, changes.clone()));
            let setup = TaskSetup {
                cluster: Arc::clone(cluster),
                config: Arc::clone(&config),
                prepared: Arc::clone(&prepared),
                control: seen,
                shared: Arc::clone(&shared),
                flush_interval: worker.flush_interval,
                shutdown_timeout: worker.shutdown_timeout,
            };
            let handle = tokio::spawn(run_task(setup, at_work.clone()));
            let handle = tokio::sync::Mutex::new(Some(handle));
            RunningTask {
                shared,
                control,
                handle,
            }
        })
        .collect();
    RunningConnector { config, tasks }
}

/// Runs a task to its end; a fault of this runtime's own fails the task as well.
async fn run_task<C: Cluster>(setup: TaskSetup<C>, at_work: watch::Sender<u32>) {
    let shared = Arc::clone(&setup.shared);
    let name = task_name(&setup.config, shared.index);
    let started = tokio::spawn(drive(setup)).await;
    at_work.send_modify(|tasks| *tasks = tasks.saturating_sub(1));
    match started {
        Ok(Ok(())) => {}
        Ok(Err(trace)) => log_failed_start(&name, &trace, &at_work).await,
        Err(error) => {
            let text = error.try_into_panic().map_or_else(
                |error| error.to_string(),
                |payload| panic_text(payload.as_ref()),
            );
            tracing::error!(error = text, "A task ended by a fault of the runtime.");
            shared.fail(format!("fault of the runtime: {text}"));
        }
    }
}

/// Runs a task. An error: it could not start.
async fn drive<C: Cluster>(setup: TaskSetup<C>) -> Result<(), String> {
    match make(&setup).await {
        Ok(Some(task)) => task.run().await,
        Ok(None) => setup.shared.set_state(TaskState::Stopped),
        Err(trace) => {
            setup.shared.fail(trace.clone());
            return Err(trace);
        }
    }
    Ok(())
}

/// Says why a task could not start, while others go on. Where all end, whoever runs the worker says why.
async fn log_failed_start(task: &str, trace: &str, at_work: &watch::Sender<u32>) {
    let mut at_work = at_work.subscribe();
    let all_ended = at_work.wait_for(|tasks| *tasks == 0);
    if timeout(STARTS_APART, all_ended).await.is_err() {
        tracing::error!(task, error = trace, "The task could not start.");
    }
}

/// Tasks that fail for the same reason fail within this time.
const STARTS_APART: Duration = Duration::from_secs(1);

/// Starts the sink, prepares and joins the group. `None` = told to stop meanwhile.
async fn make<C: Cluster>(
    setup: &TaskSetup<C>,
) -> Result<Option<ShareSinkTask<C::Source>>, String> {
    let config = Arc::clone(&setup.config);
    let index = setup.shared.index;
    let name = task_name(&config, index);
    let context = TaskContext::new(
        config.name.as_str(),
        index,
        config.tasks_max,
        config.consumer.group_id.as_str(),
    );
    // A sink that can't start must not take records away from others: it starts first.
    let mut sink = config
        .connector()
        .task(&config, &context)
        .map_err(|error| chain(&error))?;
    let mut control = setup.control.clone();
    let started = call(|| sink.start(&context), &mut control, 0, || {}).await;
    if !ended_well("start", started)? {
        return Ok(None);
    }
    let joined = {
        let mut joining = pin!(join(setup, &config, &name));
        tokio::select! {
            biased;
            () = stopped(&mut control) => {
                leave_once_joined(joining, &control).await;
                None
            }
            joined = &mut joining => Some(joined),
        }
    };
    let (source, prepared) = match joined {
        Some(Ok(joined)) => joined,
        Some(Err(error)) => {
            stop_sink(&mut sink, &mut control).await;
            return Err(error);
        }
        None => {
            stop_sink(&mut sink, &mut control).await;
            return Ok(None);
        }
    };
    let settings = TaskSettings {
        loss: LossLog {
            file: config.consumer.loss_file.clone(),
            group_id: config.consumer.group_id.clone(),
            task: name.clone(),
        },
        name,
        explicit: config.consumer.acknowledgement_mode == AcknowledgementMode::Explicit,
        delivery_count_limit: prepared.delivery_count_limit,
        flush_interval: setup.flush_interval,
        shutdown_timeout: setup.shutdown_timeout,
        topics: config
            .topics
            .iter()
            .map(|topic| Arc::from(topic.as_str()))
            .collect(),
    };
    let shared = Arc::clone(&setup.shared);
    Ok(Some(ShareSinkTask::new(
        source,
        sink,
        setup.control.clone(),
        shared,
        settings,
    )))
}

async fn join<C: Cluster>(
    setup: &TaskSetup<C>,
    config: &ConnectorConfig,
    name: &str,
) -> Result<(C::Source, Prepared), String> {
    let servers = &config.consumer.bootstrap_servers;
    setup
        .shared
        .set_note(Some(format!("waiting for the cluster at {servers}")));
    let prepare = || setup.cluster.prepare(&config.consumer);
    let prepared = setup.prepared.get_or_init(prepare).await.clone()?;
    let place = TaskPlace {
        name,
        index: setup.shared.index,
        delivery_count_limit: prepared.delivery_count_limit,
        shared: &setup.shared,
    };
    let source = setup.cluster.open(config, place).await?;
    setup.shared.set_note(None);
    Ok((source, prepared))
}

/// The group may have taken the member in already, without our knowing: what is told to stop while it
/// joins gets a moment to end that properly. A member that just goes is missed only after its session.
async fn leave_once_joined<S: RecordSource>(
    joining: impl Future<Output = Result<(S, Prepared), String>>,
    control: &watch::Receiver<Control>,
) {
    let Control::Stop { deadline, budget } = *control.borrow() else {
        return;
    };
    if let Ok(Ok((mut source, _))) = timeout(JOIN_MAX.min(budget / 2), joining).await {
        let left = deadline.saturating_duration_since(Instant::now());
        if let Err(error) = source.close(left).await {
            tracing::warn!(%error, "Leaving the group failed.");
        }
    }
}

/// Longest wait for a join that is under way when the task must stop.
const JOIN_MAX: Duration = Duration::from_secs(1);

async fn stop_sink(sink: &mut Box<dyn DynSinkTask>, control: &mut watch::Receiver<Control>) {
    let stopped = call(|| sink.stop(), control, 0, || {}).await;
    if let Err(error) = ended_well("stop", stopped) {
        tracing::warn!(error, "The sink's stop failed.");
    }
}

/// `false` if the call was cut off because the task must stop.
pub(crate) fn ended_well(what: &str, ended: Ended<TaskError>) -> Result<bool, String> {
    match ended {
        Ended::Returned(Ok(())) => Ok(true),
        Ended::Returned(Err(error)) => Err(chain(&error)),
        Ended::Panicked(text) => Err(format!("the sink's {what} panicked: {text}")),
        Ended::CutOff => Ok(false),
    }
}

fn task_name(config: &ConnectorConfig, index: u32) -> String {
    format!("{}-{index}", config.name)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::sleep;

    use super::*;
    use crate::testing::{Broker, Call, ScriptedConnector, ScriptedSource, SinkScript, Step, load};

    /// One scripted broker per task.
    struct FakeCluster {
        brokers: Vec<Broker>,
        prepared: AtomicUsize,
        /// How long preparing takes, and what it says.
        preparing: (Duration, Result<Prepared, String>),
    }

    impl Cluster for FakeCluster {
        type Source = ScriptedSource;

        async fn prepare(&self, _: &ConsumerSettings) -> Result<Prepared, String> {
            self.prepared.fetch_add(1, Ordering::SeqCst);
            sleep(self.preparing.0).await;
            self.preparing.1.clone()
        }

        async fn open(
            &self,
            _: &ConnectorConfig,
            task: TaskPlace<'_>,
        ) -> Result<ScriptedSource, String> {
            Ok(self.brokers[task.index as usize].source())
        }
    }

    struct Setup {
        cluster: Arc<FakeCluster>,
        scripts: Vec<SinkScript>,
        worker: Worker,
    }

    fn start(
        scripts: Vec<SinkScript>,
        tasks: usize,
        preparing: (Duration, Result<Prepared, String>),
    ) -> Setup {
        let loaded = load(
            ScriptedConnector(scripts.clone()),
            &format!("tasks.max={tasks}\n"),
        );
        let cluster = Arc::new(FakeCluster {
            brokers: (0..tasks).map(|_| Broker::default()).collect(),
            prepared: AtomicUsize::new(0),
            preparing,
        });
        let worker = Worker::start_on(Arc::clone(&cluster), &loaded.worker, loaded.connectors);
        Setup {
            cluster,
            scripts,
            worker,
        }
    }

    fn at_once() -> (Duration, Result<Prepared, String>) {
        (
            Duration::ZERO,
            Ok(Prepared {
                delivery_count_limit: 10,
            }),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_fails_or_panics_takes_no_other_with_it() {
        let scripts = vec![
            SinkScript::puts([Step::Panics]),
            SinkScript::default(),
            SinkScript::puts([Step::Fatal]),
        ];
        let setup = start(scripts, 4, at_once());
        for broker in &setup.cluster.brokers {
            broker.deliver(0..3, 1);
        }
        setup.worker.any_failed().await;
        sleep(Duration::from_secs(10)).await;
        let status = setup.worker.status();
        let states: Vec<_> = status.tasks().map(|task| task.state).collect();
        let (failed, running) = (TaskState::Failed, TaskState::Running);
        assert_eq!(states, [failed, running, failed, failed]);
        assert_eq!(
            status.connectors[0].tasks[3].trace.as_deref(),
            Some("there is no script for this task")
        );
        assert_eq!(status.failed().count(), 3);
        assert_eq!(setup.cluster.brokers[0].released(), [0, 1, 2]);
        assert_eq!(setup.cluster.brokers[1].accepted(), [0, 1, 2]);
        assert_eq!(status.totals().written, 3);
        assert_eq!(
            setup.worker.stop(Duration::from_secs(5)).await,
            StopReport::default()
        );
        setup.worker.all_ended().await;
        assert_eq!(setup.worker.status().count(TaskState::Stopped), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_group_is_prepared_once_and_before_anybody_joins() {
        let (prepared_in, limit) = (
            Duration::from_secs(3),
            Ok(Prepared {
                delivery_count_limit: 10,
            }),
        );
        let setup = start(
            (0..3).map(|_| SinkScript::default()).collect(),
            3,
            (prepared_in, limit),
        );
        sleep(Duration::from_secs(1)).await;
        let status = setup.worker.status();
        assert_eq!(status.count(TaskState::Unassigned), 3);
        let note = status.connectors[0].tasks[0].note.clone().unwrap();
        assert_eq!(note, "waiting for the cluster at localhost:9092");
        sleep(Duration::from_secs(3)).await;
        assert_eq!(setup.worker.status().count(TaskState::Running), 3);
        assert_eq!(setup.cluster.prepared.load(Ordering::SeqCst), 1);
        setup.worker.stop(Duration::from_secs(5)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_that_cannot_be_used_fails_every_task_and_stops_its_sink() {
        let no = Err("group id connect-out belongs to a consumer group".to_owned());
        let setup = start(
            vec![SinkScript::default(), SinkScript::default()],
            2,
            (Duration::ZERO, no),
        );
        setup.worker.all_ended().await;
        for (_, task) in setup.worker.status().failed() {
            assert!(
                task.trace
                    .as_deref()
                    .unwrap()
                    .contains("belongs to a consumer group")
            );
        }
        for script in &setup.scripts {
            assert_eq!(script.calls(), [Call::Start, Call::Stop]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_stops_while_it_waits_for_the_cluster() {
        let never = (Duration::from_secs(10_000), Err(String::new()));
        let setup = start(vec![SinkScript::default()], 1, never);
        sleep(Duration::from_secs(1)).await;
        let told = Instant::now();
        assert_eq!(
            setup.worker.stop(Duration::from_secs(5)).await,
            StopReport::default()
        );
        assert!(told.elapsed() <= JOIN_MAX);
        assert_eq!(setup.worker.status().count(TaskState::Stopped), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_is_stopped_while_it_joins_leaves_the_group() {
        let (_, prepared) = at_once();
        let joins_late = (Duration::from_millis(500), prepared);
        let setup = start(vec![SinkScript::default()], 1, joins_late);
        sleep(Duration::from_millis(100)).await;
        let report = setup.worker.stop(Duration::from_secs(5)).await;
        assert_eq!(report, StopReport::default());
        assert!(setup.cluster.brokers[0].seen(|seen| seen.closed));
    }

    #[tokio::test(start_paused = true)]
    async fn stopping_takes_no_longer_than_its_budget() {
        let setup = start(
            vec![SinkScript::puts([Step::Hangs]), SinkScript::default()],
            2,
            at_once(),
        );
        setup.cluster.brokers[0].deliver(0..3, 1);
        sleep(Duration::from_secs(1)).await;
        let told = Instant::now();
        assert_eq!(
            setup.worker.stop(Duration::from_secs(5)).await,
            StopReport::default()
        );
        assert!(told.elapsed() <= Duration::from_secs(5));
        assert_eq!(setup.cluster.brokers[0].released(), [0, 1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_of_a_dropped_worker_stop_by_themselves() {
        let setup = start(vec![SinkScript::puts(vec![Step::Fails; 100])], 1, at_once());
        let broker = setup.cluster.brokers[0].clone();
        broker.deliver(0..3, 1);
        sleep(Duration::from_secs(20)).await;
        drop(setup.worker);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(broker.released(), [0, 1, 2]);
        assert!(broker.seen(|seen| seen.closed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connector_is_paused_and_resumed_by_name() {
        let setup = start(vec![SinkScript::default()], 1, at_once());
        sleep(Duration::from_secs(1)).await;
        assert!(!setup.worker.pause("other"));
        assert!(setup.worker.pause("out"));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(setup.worker.status().count(TaskState::Paused), 1);
        assert!(setup.worker.resume("out"));
        setup.worker.changed().await;
        assert_eq!(setup.worker.status().count(TaskState::Running), 1);
        setup.worker.stop(Duration::from_secs(5)).await;
    }
}
