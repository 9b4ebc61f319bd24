//! SIGHUP: reads the files again and changes what has changed in them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use sharegroup_sink::config::{self, ConfigProblem, Loaded};
use sharegroup_sink::worker::{Worker, WorkerError, WorkerStatus};
use sharegroup_sink::{ConnectorConfig, StopReport, WorkerConfig};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;

use super::service::Service;

/// Where the configuration comes from.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) worker: PathBuf,
    pub(crate) connectors: Vec<PathBuf>,
    pub(crate) strict: bool,
}

impl Files {
    /// Reads them; a file may be a pipe, and block.
    pub(crate) fn load(&self) -> Result<Loaded, Vec<ConfigProblem>> {
        let registry = sharegroup_connectors::registry();
        config::load(&self.worker, &self.connectors, self.strict, &registry)
    }

    /// The same while the worker runs: files of connectors may be gone.
    fn load_again(&self) -> Result<Loaded, Vec<ConfigProblem>> {
        let registry = sharegroup_connectors::registry();
        config::load_again(&self.worker, &self.connectors, self.strict, &registry)
    }
}

/// SIGHUP, which ends a process that doesn't listen for it.
#[derive(Debug)]
pub(crate) struct Hangups(Signal);

impl Hangups {
    /// Listens from now on.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub(crate) fn listen() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }
}

/// Whoever waits for SIGHUP, and what is in force.
#[derive(Debug)]
pub(crate) struct Reloads {
    files: Files,
    hangups: Hangups,
    worker: WorkerConfig,
    connectors: BTreeMap<String, ConnectorConfig>,
    /// Whether a reload is under way, in which tasks may be between two lives.
    busy: watch::Sender<bool>,
}

impl Reloads {
    /// Of what has been read from these files.
    pub(crate) fn new(hangups: Hangups, files: Files, loaded: &Loaded) -> Self {
        Self {
            files,
            hangups,
            worker: loaded.worker.clone(),
            connectors: by_name(&loaded.connectors),
            busy: watch::Sender::new(false),
        }
    }

    /// Whether a reload is under way.
    pub(crate) fn busy(&self) -> watch::Receiver<bool> {
        self.busy.subscribe()
    }

    /// Reloads at each SIGHUP. Ends only by being dropped.
    pub(crate) async fn follow(mut self, worker: &Worker, service: &Service) -> Infallible {
        loop {
            if self.hangups.0.recv().await.is_none() {
                return std::future::pending().await;
            }
            service.reloading();
            self.busy.send_replace(true);
            self.reload(worker).await;
            self.busy.send_replace(false);
            service.reloaded();
        }
    }

    async fn reload(&mut self, worker: &Worker) {
        let files = self.files.clone();
        let reading = tokio::task::spawn_blocking(move || files.load_again());
        let Ok(Ok(read)) = timeout(READ_WITHIN, reading).await else {
            tracing::error!("Nothing is changed: the files could not be read in time.");
            return;
        };
        let loaded = match read {
            Ok(loaded) => loaded,
            Err(problems) => {
                for problem in problems.iter().filter(|problem| problem.is_error()) {
                    tracing::error!("Nothing is changed: {problem}.");
                }
                return;
            }
        };
        for warning in &loaded.warnings {
            tracing::warn!("{warning}.");
        }
        self.apply(loaded, worker).await;
    }

    async fn apply(&mut self, loaded: Loaded, worker: &Worker) {
        let everything = self.take_worker(loaded.worker, worker);
        let wanted = by_name(&loaded.connectors);
        let failed = failed(&worker.status());
        let plan = plan(&self.connectors, &wanted, everything, &failed);
        if plan.is_empty() {
            tracing::info!("Reloaded: no connector has changed.");
        }
        for (name, change) in plan {
            match carry_out(worker, &name, &change).await {
                Ok(report) => {
                    tracing::info!(connector = name, "Reloaded: {}.", change.done());
                    for task in report.late {
                        tracing::warn!(
                            task,
                            "The task did not stop in time; what it holds is delivered again when its locks end."
                        );
                    }
                }
                // Told to stop meanwhile.
                Err(error) => tracing::warn!(connector = name, %error, "It is not changed."),
            }
        }
        self.connectors = wanted;
        if self.connectors.is_empty() {
            tracing::warn!(
                "No connector is left; SIGHUP starts those whose files are there again."
            );
        }
    }

    /// Takes the worker's settings. The answer: whether every connector is made of other ones now.
    fn take_worker(&mut self, config: WorkerConfig, worker: &Worker) -> bool {
        let changed = self.worker.changed_keys(&config);
        let (at_start, others): (Vec<_>, Vec<_>) = changed
            .into_iter()
            .partition(|key| AT_START.contains(&key.as_str()));
        if !at_start.is_empty() {
            tracing::warn!(
                keys = at_start.join(", "),
                "These keys of the worker count from its next start."
            );
        }
        if !others.is_empty() {
            tracing::info!(
                keys = others.join(", "),
                "The worker's settings have changed."
            );
        }
        worker.set_config(config.clone());
        self.worker = config;
        !others.is_empty()
    }
}

/// Keys of the worker that are looked at once.
const AT_START: [&str; 1] = ["listeners"];
/// A file that is a pipe may never come.
const READ_WITHIN: Duration = Duration::from_secs(10);

fn by_name(connectors: &[ConnectorConfig]) -> BTreeMap<String, ConnectorConfig> {
    let named = connectors.iter().cloned();
    named.map(|config| (config.name.clone(), config)).collect()
}

/// What a reload does with one connector.
#[derive(Debug)]
enum Change {
    Add(Box<ConnectorConfig>),
    Remove,
    Resize(u32),
    /// Its failed tasks, for the others work on.
    Restart(Vec<String>),
    /// Its keys that have changed; none where the worker's have.
    Reconfigure(Box<ConnectorConfig>, Vec<String>),
}

impl Change {
    fn done(&self) -> String {
        match self {
            Self::Add(_) => "added".to_owned(),
            Self::Remove => "removed".to_owned(),
            Self::Resize(tasks) => format!("tasks.max is {tasks}"),
            Self::Restart(tasks) => format!("failed tasks started again: {}", tasks.join(", ")),
            Self::Reconfigure(_, keys) if keys.is_empty() => {
                "started with the worker's new settings".to_owned()
            }
            Self::Reconfigure(_, keys) => {
                format!("started with other settings: {}", keys.join(", "))
            }
        }
    }
}

/// The tasks that have failed for good, by connector.
fn failed(status: &WorkerStatus) -> BTreeMap<String, Vec<String>> {
    let mut failed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (connector, task) in status.failed() {
        let task = format!("{}-{}", connector.name, task.index);
        failed.entry(connector.name.clone()).or_default().push(task);
    }
    failed
}

/// Says of each task that fails while others work on how it is started again. Ends only by being dropped.
pub(super) async fn tell_of_failures(worker: &Worker) -> Infallible {
    let mut told = BTreeMap::new();
    loop {
        worker.until(|status| failed(status) != told).await;
        let status = worker.status();
        let now = failed(&status);
        let was_told = |task: &&String| told.values().flatten().any(|told| told == *task);
        let new = now.values().flatten().filter(|task| !was_told(task));
        let has_others = status.tasks().any(|task| !task.state.has_ended());
        for task in new.filter(|_| has_others) {
            tracing::warn!(
                task,
                "The task stays FAILED while the others work on; mend what failed it, then send SIGHUP to start it again."
            );
        }
        told = now;
    }
}

/// New connectors come first, so that there is always one.
fn plan(
    now: &BTreeMap<String, ConnectorConfig>,
    wanted: &BTreeMap<String, ConnectorConfig>,
    everything: bool,
    failed: &BTreeMap<String, Vec<String>>,
) -> Vec<(String, Change)> {
    let mut plan = Vec::new();
    let added = wanted.iter().filter(|(name, _)| !now.contains_key(*name));
    plan.extend(added.map(|(name, config)| (name.clone(), Change::Add(Box::new(config.clone())))));
    for (name, config) in now {
        let Some(new) = wanted.get(name) else {
            plan.push((name.clone(), Change::Remove));
            continue;
        };
        let changed = config.changed_keys(new);
        let mut restart = failed.get(name).cloned().map(Change::Restart);
        match changed.as_slice() {
            [] if !everything => {}
            [key] if key == "tasks.max" && !everything => {
                plan.push((name.clone(), Change::Resize(new.tasks_max)));
            }
            _ => restart = Some(Change::Reconfigure(Box::new(new.clone()), changed)),
        }
        plan.extend(restart.map(|change| (name.clone(), change)));
    }
    plan
}

async fn carry_out(
    worker: &Worker,
    name: &str,
    change: &Change,
) -> Result<StopReport, WorkerError> {
    match change {
        Change::Add(config) => {
            let added = worker.add(ConnectorConfig::clone(config)).await;
            added.map(|()| StopReport::default())
        }
        Change::Remove => worker.remove(name).await,
        Change::Restart(_) => worker.restart(name, true).await,
        Change::Resize(tasks) => worker.set_tasks(name, *tasks).await,
        Change::Reconfigure(config, _) => worker.reconfigure(ConnectorConfig::clone(config)).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sharegroup_sink::config::{Properties, load_properties};

    fn connector(name: &str, tasks: &str, topics: &str) -> ConnectorConfig {
        let mut worker = Properties::new("worker.properties");
        worker.set("bootstrap.servers", "localhost:9092");
        worker.set("consumer.group.protocol", "share");
        let mut file = Properties::new("sink.properties");
        for (key, value) in [
            ("name", name),
            ("connector.class", "console"),
            ("topics", topics),
            ("tasks.max", tasks),
        ] {
            file.set(key, value);
        }
        let registry = sharegroup_connectors::registry();
        let mut loaded = load_properties(worker, vec![file], false, &registry).unwrap();
        loaded.connectors.remove(0)
    }

    #[test]
    fn only_what_changed_or_failed_is_changed_and_new_connectors_come_first() {
        let now = [
            connector("gone", "1", "t"),
            connector("more", "1", "t"),
            connector("other", "1", "t"),
            connector("same", "1", "t"),
        ];
        let wanted = [
            connector("more", "3", "t"),
            connector("new", "1", "t"),
            connector("other", "2", "u"),
            connector("same", "1", "t"),
        ];
        let said = |everything| -> Vec<String> {
            let failed = ["more", "other", "same"];
            let failed = failed.map(|name| (name.to_owned(), vec![format!("{name}-0")]));
            let plan = plan(
                &by_name(&now),
                &by_name(&wanted),
                everything,
                &failed.into(),
            );
            let said = plan
                .iter()
                .map(|(name, change)| format!("{name}: {}", change.done()));
            said.collect()
        };
        assert_eq!(
            said(false),
            [
                "new: added",
                "gone: removed",
                "more: tasks.max is 3",
                "more: failed tasks started again: more-0",
                "other: started with other settings: tasks.max, topics",
                "same: failed tasks started again: same-0",
            ]
        );
        assert_eq!(
            said(true)[2..],
            [
                "more: started with other settings: tasks.max",
                "other: started with other settings: tasks.max, topics",
                "same: started with the worker's new settings",
            ]
        );
    }
}
