//! One task from its first start to its end, with the restarts between.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::cluster::{Cluster, Preparation};
use super::join::make;
use crate::config::ConnectorConfig;
use crate::status::{TaskShared, TaskState};
use crate::task::{Control, panic_text, stopped};

/// Everything one task is made from.
pub(super) struct TaskSetup {
    pub(super) config: Arc<ConnectorConfig>,
    pub(super) preparation: Arc<Preparation>,
    pub(super) control: watch::Receiver<Control>,
    pub(super) shared: Arc<TaskShared>,
    pub(super) flush_interval: Duration,
    pub(super) shutdown_timeout: Duration,
    /// A task of the same number that has not ended yet: both would write to the same place.
    pub(super) after: Option<Ended>,
}

impl TaskSetup {
    /// `orders-0`.
    pub(super) fn name(&self) -> String {
        task_name(&self.config.name, self.shared.index)
    }
}

pub(super) fn task_name(connector: &str, index: u32) -> String {
    format!("{connector}-{index}")
}

/// Starts tasks on a cluster whose type is known to it alone.
pub(super) trait Starter: Send + Sync {
    /// Must be called within a tokio runtime.
    fn start(&self, setup: TaskSetup, control: watch::Sender<Control>) -> RunningTask;
}

/// The tasks of one worker on a cluster.
pub(super) struct OnCluster<C> {
    pub(super) cluster: Arc<C>,
    /// Tasks that have not ended.
    pub(super) at_work: watch::Sender<u32>,
}

impl<C: Cluster> Starter for OnCluster<C> {
    fn start(&self, setup: TaskSetup, control: watch::Sender<Control>) -> RunningTask {
        let shared = Arc::clone(&setup.shared);
        let (lives, ended) = watch::channel(());
        let at_work = self.at_work.clone();
        at_work.send_modify(|tasks| *tasks += 1);
        let cluster = Arc::clone(&self.cluster);
        tokio::spawn(async move {
            supervise(cluster, setup, &at_work).await;
            drop(lives);
        });
        RunningTask {
            shared,
            control,
            ended: Ended(ended),
        }
    }
}

/// A task that was started.
#[derive(Debug)]
pub(super) struct RunningTask {
    pub(super) shared: Arc<TaskShared>,
    control: watch::Sender<Control>,
    pub(super) ended: Ended,
}

impl RunningTask {
    /// Pauses or resumes it; one that was told to stop stays told so.
    pub(super) fn tell(&self, wanted: Control) {
        self.control.send_if_modified(|control| {
            let changes = !matches!(control, Control::Stop { .. }) && *control != wanted;
            if changes {
                *control = wanted;
            }
            changes
        });
    }

    pub(super) fn is_told_to_stop(&self) -> bool {
        matches!(*self.control.borrow(), Control::Stop { .. })
    }
}

/// Whether a task has ended.
#[derive(Clone, Debug)]
pub(super) struct Ended(watch::Receiver<()>);

impl Ended {
    pub(super) fn is_so(&self) -> bool {
        self.0.has_changed().is_err()
    }

    /// Waits for it. Cancel-safe.
    pub(super) async fn wait(&self) {
        let mut lives = self.0.clone();
        while lives.changed().await.is_ok() {}
    }
}

async fn supervise<C: Cluster>(
    cluster: Arc<C>,
    mut setup: TaskSetup,
    at_work: &watch::Sender<u32>,
) {
    if wait_for_predecessor(&mut setup).await {
        let setup = Arc::new(setup);
        loop {
            attempt(&cluster, &setup, at_work).await;
            if !pause(&setup).await {
                break;
            }
        }
    } else {
        setup.shared.set_state(TaskState::Stopped);
    }
    at_work.send_modify(|tasks| *tasks = tasks.saturating_sub(1));
}

/// `false` = told to stop meanwhile.
async fn wait_for_predecessor(setup: &mut TaskSetup) -> bool {
    let Some(earlier) = setup.after.take() else {
        return true;
    };
    if !earlier.is_so() {
        let note = "waiting for the earlier task of this number to end";
        setup.shared.set_note(Some(note.to_owned()));
    }
    tokio::select! {
        biased;
        () = stopped(&mut setup.control) => false,
        () = earlier.wait() => true,
    }
}

/// Runs a task once; a fault of this runtime's own fails it as well.
async fn attempt<C: Cluster>(
    cluster: &Arc<C>,
    setup: &Arc<TaskSetup>,
    at_work: &watch::Sender<u32>,
) {
    setup.shared.attempt();
    let started = tokio::spawn(drive(Arc::clone(cluster), Arc::clone(setup))).await;
    match started {
        Ok(Ok(())) => {}
        Ok(Err(trace)) => log_failed_start(setup, trace, at_work),
        Err(error) => {
            let text = error.try_into_panic().map_or_else(
                |error| error.to_string(),
                |payload| panic_text(payload.as_ref()),
            );
            tracing::error!(error = text, "A task ended by a fault of the runtime.");
            setup.shared.fail(format!("fault of the runtime: {text}"));
        }
    }
}

/// Runs a task. An error: it could not start.
async fn drive<C: Cluster>(cluster: Arc<C>, setup: Arc<TaskSetup>) -> Result<(), String> {
    match make(&*cluster, &setup).await {
        Ok(Some(task)) => task.run().await,
        Ok(None) => setup.shared.set_state(TaskState::Stopped),
        Err(trace) => {
            setup.shared.fail(trace.clone());
            return Err(trace);
        }
    }
    Ok(())
}

/// Waits until the task is to be started again. `false` = it has ended for good.
async fn pause(setup: &TaskSetup) -> bool {
    let Some(pause) = setup.shared.restart_after() else {
        return false;
    };
    tracing::warn!(
        task = setup.name(),
        after_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
        "The failed task will be started again."
    );
    let mut control = setup.control.clone();
    tokio::select! {
        biased;
        () = stopped(&mut control) => {
            setup.shared.stay_failed();
            false
        }
        () = sleep(pause) => {
            setup.shared.begin_again();
            true
        }
    }
}

/// Says why a task could not start, while others go on. Where all end, whoever runs the worker says why.
fn log_failed_start(setup: &TaskSetup, trace: String, at_work: &watch::Sender<u32>) {
    let task = setup.name();
    let mut at_work = at_work.subscribe();
    tokio::spawn(async move {
        let all_ended = at_work.wait_for(|tasks| *tasks == 0);
        if timeout(STARTS_APART, all_ended).await.is_err() {
            tracing::error!(task, error = trace, "The task could not start.");
        }
    });
}

/// Tasks that fail for the same reason fail within this time.
const STARTS_APART: Duration = Duration::from_secs(1);

/// Tells tasks to stop, with one budget for all of them, and waits for them. The answer: those that did not end
/// in time.
pub(super) async fn stop(tasks: &[Arc<RunningTask>], budget: Duration) -> Vec<Arc<RunningTask>> {
    let deadline = Instant::now() + budget;
    // What a task needs to end after its own deadline is kept free.
    let told = Control::Stop {
        deadline: Instant::now() + budget * 9 / 10,
        budget,
    };
    for task in tasks {
        task.tell(told);
    }
    let mut late = Vec::new();
    for task in tasks {
        let left = deadline.saturating_duration_since(Instant::now());
        if timeout(left, task.ended.wait()).await.is_err() {
            late.push(Arc::clone(task));
        }
    }
    late
}
