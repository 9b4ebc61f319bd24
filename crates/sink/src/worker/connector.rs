//! One connector of a worker with its tasks.

use std::sync::Arc;

use tokio::sync::watch;

use super::cluster::Preparation;
use super::supervise::{Ended, RunningTask, Starter, TaskSetup};
use crate::config::{ConnectorConfig, WorkerConfig};
use crate::status::{ConnectorStatus, Startups, TaskCounters, TaskShared, TaskState};
use crate::task::Control;

/// What tasks are started with, beside their connector.
pub(super) struct Starts<'a> {
    pub(super) starter: &'a dyn Starter,
    pub(super) worker: Arc<WorkerConfig>,
    pub(super) startups: &'a Arc<Startups>,
    pub(super) changes: &'a watch::Sender<()>,
}

#[derive(Debug)]
pub(super) struct RunningConnector {
    pub(super) config: Arc<ConnectorConfig>,
    /// What its tasks are told, those to come as well: to run or to pause.
    wanted: Control,
    preparation: Arc<Preparation>,
    /// By number; the ones that were told to stop stay until they have ended.
    tasks: Vec<Arc<RunningTask>>,
    /// Totals of the tasks that are gone.
    pub(super) removed: TaskCounters,
    destroyed: u64,
}

impl RunningConnector {
    /// With its tasks.
    pub(super) fn start(config: ConnectorConfig, starts: &Starts<'_>) -> Self {
        let mut connector = Self {
            config: Arc::new(config),
            wanted: Control::Run,
            preparation: Arc::default(),
            tasks: Vec::new(),
            removed: TaskCounters::default(),
            destroyed: 0,
        };
        connector.log_start();
        connector.fill(starts);
        connector
    }

    fn log_start(&self) {
        let config = &self.config;
        tracing::info!(
            connector = config.name,
            sink = config.connector().name(),
            group = config.consumer.group_id,
            topics = %config.subscription,
            tasks = config.tasks_max,
            consumer = config.consumer.in_force.join(", "),
            "Starting a connector; its tasks are members of this worker, other workers add theirs."
        );
    }

    /// Other settings, for the tasks that are started from now on.
    pub(super) fn configure(&mut self, config: ConnectorConfig) {
        self.config = Arc::new(config);
        self.preparation = Arc::default();
        self.log_start();
    }

    /// Another number of tasks; which to stop, of those that are at work.
    pub(super) fn resize(&mut self, tasks: u32) -> Vec<Arc<RunningTask>> {
        let mut config = ConnectorConfig::clone(&self.config);
        config.tasks_max = tasks;
        self.config = Arc::new(config);
        let too_many = |task: &&Arc<RunningTask>| task.shared.index >= tasks;
        self.at_work().filter(too_many).cloned().collect()
    }

    /// Starts the tasks that it should have and hasn't.
    pub(super) fn fill(&mut self, starts: &Starts<'_>) {
        self.forget_ended();
        for index in 0..self.config.tasks_max {
            if !self.at_work().any(|task| task.shared.index == index) {
                let earlier = self.tasks.iter().rfind(|task| task.shared.index == index);
                let after = earlier.map(|task| task.ended.clone());
                let task = self.start_task(index, after, starts);
                self.tasks.push(Arc::new(task));
            }
        }
        self.tasks.sort_by_key(|task| task.shared.index);
    }

    fn start_task(&self, index: u32, after: Option<Ended>, starts: &Starts<'_>) -> RunningTask {
        let (control, seen) = watch::channel(self.wanted);
        let shared = TaskShared::new(index, starts.changes.clone())
            .restarting(self.config.restart)
            .counted_by(starts.startups);
        let setup = TaskSetup {
            config: Arc::clone(&self.config),
            preparation: Arc::clone(&self.preparation),
            control: seen,
            shared: Arc::new(shared),
            flush_interval: starts.worker.flush_interval,
            shutdown_timeout: starts.worker.shutdown_timeout,
            after,
        };
        starts.starter.start(setup, control)
    }

    /// Tasks that were not told to stop.
    fn at_work(&self) -> impl Iterator<Item = &Arc<RunningTask>> {
        self.tasks.iter().filter(|task| !task.is_told_to_stop())
    }

    /// All tasks that have not been forgotten.
    pub(super) fn tasks(&self) -> &[Arc<RunningTask>] {
        &self.tasks
    }

    /// Forgets tasks that were told to stop and have ended, but for their counts.
    pub(super) fn forget_ended(&mut self) {
        let is_over = |task: &RunningTask| task.is_told_to_stop() && task.ended.is_so();
        for task in self.tasks.extract_if(.., |task| is_over(task)) {
            self.removed.add(&task.shared.counters());
            self.destroyed += 1;
        }
    }

    /// Pauses or resumes its tasks, those to come as well.
    pub(super) fn tell(&mut self, wanted: Control) {
        self.wanted = wanted;
        for task in &self.tasks {
            task.tell(wanted);
        }
    }

    pub(super) fn status(&self) -> ConnectorStatus {
        let state = match self.wanted {
            _ if self.tasks.is_empty() => TaskState::Stopped,
            Control::Pause => TaskState::Paused,
            Control::Run | Control::Stop { .. } => TaskState::Running,
        };
        ConnectorStatus {
            name: self.config.name.clone(),
            state,
            class: self.config.class.clone(),
            group_id: self.config.consumer.group_id.clone(),
            topics: self.config.topics.clone(),
            tasks: self.tasks.iter().map(|task| task.shared.status()).collect(),
            removed: self.removed,
            tasks_destroyed: self.destroyed,
        }
    }
}
