//! `run`: a worker with its connectors.

mod idle;
mod lag;
mod progress;
mod reload;
mod service;
mod summary;
mod watch;

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use sharegroup_broker::Broker;
use sharegroup_sink::ConnectorConfig;
use sharegroup_sink::config::{ConfigProblem, Loaded};
use sharegroup_sink::listener::Listener;
use sharegroup_sink::worker::{TaskState, Worker, WorkerOptions, WorkerStatus};
use tokio::runtime::{Handle, Runtime};
use tokio::time::Instant;

use crate::duration;
use crate::embedded::{self, Place};
use crate::exit::{Exit, Problems};
use crate::number::per_second;
use crate::screen::Screen;
use crate::signals::{Sign, Signals};

use lag::ClusterLags;
use reload::{Files, Hangups, Reloads, tell_of_failures};
use service::Service;
use watch::{QUIET_MIN, Snapshot, Watched, watch};

use idle::Waiting;
pub(crate) use summary::show;
pub(crate) use watch::IdleOptions;

/// Run sinks: a worker file and a file for each connector, as connect-standalone takes them
///
/// Files are Java properties or JSON with Kafka Connect's keys. Each task is a member of the
/// connector's share group; run the same command on more machines for more throughput.
/// A record is accepted only after it is written and flushed.
///
/// SIGHUP reads the files again: connectors that are new, gone or changed are started, stopped or
/// started anew, failed tasks are started again, the others work on; with a file that is wrong
/// nothing changes. Metrics for Prometheus and health are at listeners, http://127.0.0.1:8083
/// unless set: /metrics, /health/live, /health/ready. As a service of systemd, use Type=notify or
/// notify-reload.
///
/// SIGTERM or Ctrl-C finishes what is held, releases the rest and leaves the group within
/// task.shutdown.graceful.timeout.ms (5 s by default); a second signal ends at once.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", crate::exit::EXIT_CODES))]
pub(crate) struct RunArgs {
    /// The worker's settings: bootstrap.servers and so on
    #[arg(value_name = "WORKER.properties")]
    worker: PathBuf,
    /// The connectors' settings, one file each; of a folder all *.properties and *.json files
    #[arg(value_name = "CONNECTOR.properties", required = true)]
    connectors: Vec<PathBuf>,
    /// End with code 0 when nothing has arrived for this long and the group has no lag
    ///
    /// Counted from when every connector has partitions assigned and their leaders have
    /// answered; everything written must be acknowledged, too. The lag is that of the whole
    /// group: with several processes in a group each ends when all is done. At least 500ms.
    #[arg(long, verbatim_doc_comment, value_name = "DURATION", value_parser = duration::parse)]
    exit_when_idle: Option<Duration>,
    /// End with code 3 when not idle, but no record arrived or was settled for this long
    #[arg(long, value_name = "DURATION", default_value = "120s", value_parser = duration::parse, requires = "exit_when_idle")]
    exit_when_idle_max: Duration,
    /// A task fails when it can't reach the cluster for this long at its start
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    startup_timeout: Duration,
    /// Keys that are not known are errors, not warnings
    #[arg(long)]
    strict: bool,
    /// Be the cluster, too, to try things out without one: an embedded broker with the topics
    ///
    /// It listens where bootstrap.servers says, on this machine, and has the topics of all
    /// connectors, with 4 partitions each and nothing in them: write to them from another
    /// terminal with `sharegroup produce --topic TOPIC`, or with Kafka's own tools. It is gone
    /// when this command ends.
    #[arg(long, verbatim_doc_comment)]
    embedded: bool,
}

const EXAMPLES: &str = "\
Examples:
  sharegroup run examples/worker.properties examples/file-sink.properties
  sharegroup run worker.properties orders.json --exit-when-idle 5s     drain a topic, then end
  sharegroup --log-format json run worker.properties sink.properties   for a log collector
  sharegroup run --embedded worker.properties sink.properties          needs no cluster; write to it from another terminal

The least that is needed:
  worker.properties   bootstrap.servers=localhost:9092
  sink.properties     name=orders
                      connector.class=file
                      topics=orders
                      tasks.max=2
                      file=/tmp/orders-${task}.txt
                      consumer.override.group.protocol=share";

/// Runs the command.
pub(crate) async fn run(
    args: RunArgs,
    screen: &'static Screen,
    signals: Signals,
) -> anyhow::Result<Exit> {
    // First of all: until then a SIGHUP would end the process.
    let hangups = Hangups::listen()?;
    let idle = idle_options(args.exit_when_idle, args.exit_when_idle_max)?;
    let files = Files {
        worker: args.worker,
        connectors: args.connectors,
        strict: args.strict,
    };
    let again = files.clone();
    let loaded = signals.reading(move || files.load()).await?;
    let loaded = loaded.map_err(|problems| split(&problems))?;
    split(&loaded.warnings).show(screen);
    let _broker = if args.embedded {
        Some(start_broker(&loaded, screen).await?)
    } else {
        None
    };
    let listener = Listener::bind(&loaded.worker.listeners).await;
    let listener = listener.map_err(|error| Problems::one(error.to_string()))?;
    let job = Job {
        reloads: Some(Reloads::new(hangups, again, &loaded)),
        listener: Some(listener),
        loaded,
        idle,
        startup_timeout: args.startup_timeout,
    };
    let ended = drive(job, screen, &signals).await?;
    show(&ended, screen);
    Ok(ended.exit())
}

/// The cluster of all connectors, for `--embedded`.
async fn start_broker(loaded: &Loaded, screen: &Screen) -> anyhow::Result<Broker> {
    let mut topics: Vec<String> = Vec::new();
    for connector in &loaded.connectors {
        let new = |topic: &&String| !topics.contains(topic);
        let new: Vec<String> = connector.topics.iter().filter(new).cloned().collect();
        topics.extend(new);
    }
    let mut clients = loaded.connectors.iter().map(|c| &c.consumer.client);
    let Some(client) = clients.next() else {
        bail!("there is no connector");
    };
    if clients.any(|other| other.bootstrap_servers != client.bootstrap_servers) {
        return Err(Problems::one(
            "--embedded is one cluster, and the connectors' bootstrap.servers differ",
        )
        .into());
    }
    let place = Place {
        client,
        setting: "bootstrap.servers",
    };
    let broker = embedded::start_for(&place, &topics, |builder| builder, screen).await?;
    let commands = topics
        .iter()
        .map(|topic| format!("produce --topic {topic}"));
    embedded::note_commands(commands, &broker, screen);
    Ok(broker)
}

fn idle_options(quiet: Option<Duration>, max: Duration) -> Result<Option<IdleOptions>, Problems> {
    let Some(quiet) = quiet.map(|quiet| quiet.max(QUIET_MIN)) else {
        return Ok(None);
    };
    if max <= quiet {
        return Err(Problems::one(format!(
            "--exit-when-idle-max {} must be longer than --exit-when-idle {}: nobody could be idle before it is over",
            duration::show(max),
            duration::show(quiet)
        )));
    }
    Ok(Some(IdleOptions { quiet, max }))
}

/// Problems of configuration files as problems of the command.
pub(crate) fn split(problems: &[ConfigProblem]) -> Problems {
    let texts = |errors: bool| {
        let wanted = problems.iter().filter(move |p| p.is_error() == errors);
        wanted.map(ToString::to_string).collect()
    };
    Problems {
        errors: texts(true),
        warnings: texts(false),
    }
}

/// What a worker is to do.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) loaded: Loaded,
    /// Whether the files are read again, on request.
    pub(crate) reloads: Option<Reloads>,
    /// Where metrics and health are served.
    pub(crate) listener: Option<Listener>,
    /// When to end by itself.
    pub(crate) idle: Option<IdleOptions>,
    pub(crate) startup_timeout: Duration,
}

/// Why a worker ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// `--exit-when-idle`.
    Idle,
    /// `--exit-when-idle-max`; what was waited for, by connector.
    Stuck(Vec<(String, Waiting)>),
    /// No task can go on.
    AllFailed,
    /// A signal.
    Stopped(Sign),
}

/// How a worker ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) ending: Ending,
    /// The last status.
    pub(crate) status: WorkerStatus,
    /// From the start to the end of work: the last settled record where it ended idle, since waiting to be idle is no
    /// work. Stopping is left out.
    pub(crate) time: Duration,
    /// Acknowledgements that did not count, or may not have, while it stopped.
    pub(crate) unconfirmed: u64,
    /// Tasks that did not stop in time.
    pub(crate) late: Vec<String>,
}

impl Ended {
    /// Records written per second of [`time`](Self::time); joining the group is in it.
    pub(crate) fn records_per_second(&self) -> u64 {
        per_second(self.status.totals().written, self.time)
    }

    /// Whether a task has been in its group.
    pub(crate) fn has_begun(&self) -> bool {
        self.status.tasks().any(|task| task.member_id.is_some())
    }

    /// The command's exit code.
    pub(crate) fn exit(&self) -> Exit {
        let failed = self.status.count(TaskState::Failed) > 0
            || !self.late.is_empty()
            || self.unconfirmed > 0
            || self.status.totals().lost() > 0;
        match self.ending {
            _ if failed => Exit::Failed,
            Ending::Stuck(_) => Exit::IdleMax,
            Ending::AllFailed => Exit::Failed,
            Ending::Stopped(sign) if !self.has_begun() => Exit::CutOff(sign),
            Ending::Idle | Ending::Stopped(_) => Exit::Done,
        }
    }
}

/// Runs a worker to its end. `run` and `quickstart` both do.
///
/// # Errors
/// The system gives no threads.
pub(crate) async fn drive(job: Job, screen: &Screen, signals: &Signals) -> io::Result<Ended> {
    let runtime = task_runtime(&job.loaded.connectors)?;
    let ended = drive_on(runtime.handle(), job, screen, signals).await;
    // A task that did not stop in time may hold its thread.
    runtime.shutdown_background();
    Ok(ended)
}

/// A runtime for the tasks alone. A sink may block its thread: then signals are heard all the same, and with a thread
/// for each task the others work on.
fn task_runtime(connectors: &[ConnectorConfig]) -> io::Result<Runtime> {
    let tasks = connectors.iter().map(|connector| connector.tasks_max);
    let tasks = usize::try_from(tasks.sum::<u32>()).unwrap_or(TASK_THREADS_MAX);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads((tasks + 1).clamp(cores.max(TASK_THREADS_MIN), cores.max(TASK_THREADS_MAX)))
        .thread_name("tasks")
        .enable_all()
        .build()
}

/// With room for tasks that a reload adds.
const TASK_THREADS_MIN: usize = 8;
const TASK_THREADS_MAX: usize = 64;

async fn drive_on(tasks: &Handle, job: Job, screen: &Screen, signals: &Signals) -> Ended {
    let start = Instant::now();
    let options = WorkerOptions::default().startup_timeout(job.startup_timeout);
    // What is blocked by a log that nobody reads can't end by itself.
    signals.end_within(2 * job.loaded.worker.shutdown_timeout + Duration::from_secs(10));
    let worker = {
        let _entered = tasks.enter();
        Arc::new(Worker::start(
            &job.loaded.worker,
            job.loaded.connectors,
            &options,
        ))
    };
    let busy = job.reloads.as_ref().map(Reloads::busy);
    let service = Service::from_environment();
    let attended = attend(&worker, job.listener, job.reloads, &service, screen);
    let mut attended = Box::pin(attended);
    let ending = tokio::select! {
        ending = Box::pin(end(&worker, job.idle, busy, signals)) => ending,
        never = &mut attended => match never {},
    };
    let before = worker.status();
    let time = match (&ending, before.last_settled_at()) {
        (Ending::Idle, Some(at)) => at.duration_since(start),
        _ => start.elapsed(),
    };
    let stop_within = worker.config().shutdown_timeout;
    if let Ending::Stopped(sign) = ending {
        tracing::info!(
            signal = sign.name(),
            within = %duration::show(stop_within),
            "Stopping: finishing what is held, releasing the rest, leaving the group; a second signal ends at once."
        );
    }
    service.stopping();
    let report = tokio::select! {
        report = worker.stop(stop_within) => report,
        never = &mut attended => match never {},
    };
    screen.clear();
    let status = worker.status();
    let unconfirmed = unconfirmed(&before, &status);
    if unconfirmed > 0 {
        tracing::error!(
            records = unconfirmed,
            "The cluster did not confirm what was settled before the end: these records may be delivered again."
        );
    }
    Ended {
        ending,
        status,
        time,
        unconfirmed,
        late: report.late,
    }
}

/// What goes on beside the work: progress, metrics, reloads, word to the service manager.
async fn attend(
    worker: &Arc<Worker>,
    listener: Option<Listener>,
    reloads: Option<Reloads>,
    service: &Service,
    screen: &Screen,
) -> Infallible {
    let serve = async {
        match listener {
            Some(listener) => listener.serve(worker).await,
            None => std::future::pending().await,
        }
    };
    let reload = async {
        match reloads {
            Some(reloads) => tokio::select! {
                never = reloads.follow(worker, service) => never,
                never = tell_of_failures(worker) => never,
            },
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        never = progress::show(worker, screen) => never,
        never = serve => never,
        never = reload => never,
        never = service.follow(worker) => never,
    }
}

/// Waits for the end of the work. `busy`: whether a reload is under way, in which nothing is at an end.
async fn end(
    worker: &Worker,
    idle: Option<IdleOptions>,
    busy: Option<Busy>,
    signals: &Signals,
) -> Ending {
    let is_busy = || busy.as_ref().is_some_and(|busy| *busy.borrow());
    let snapshot = || match is_busy() {
        true => Snapshot::of_change(),
        false => Snapshot::new(&worker.status()),
    };
    let lags = ClusterLags::new(worker);
    let idle = async {
        match idle {
            Some(options) => Box::pin(watch(snapshot, &lags, options)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        sign = signals.first() => Ending::Stopped(sign),
        () = all_ended(worker, busy.clone()) => Ending::AllFailed,
        watched = idle => match watched {
            Watched::Idle => Ending::Idle,
            Watched::Stuck(waiting) => Ending::Stuck(waiting),
        },
    }
}

type Busy = tokio::sync::watch::Receiver<bool>;

/// Waits until no task works any more. A worker whose connectors a reload has all removed waits for others.
async fn all_ended(worker: &Worker, busy: Option<Busy>) {
    loop {
        worker.until(|status| status.tasks().next().is_some()).await;
        worker.all_ended().await;
        if worker.status().tasks().next().is_none() {
            continue;
        }
        let Some(mut busy) = busy.clone().filter(|busy| *busy.borrow()) else {
            return;
        };
        // Whoever reloads lives as long as this.
        drop(busy.wait_for(|busy| !busy).await);
    }
}

/// Acknowledgements that failed while the worker stopped, or have no outcome. What failed earlier, or lost its lock, counts
/// only where the cluster is out of reach since: otherwise those records have come again, or will.
fn unconfirmed(before: &WorkerStatus, after: &WorkerStatus) -> u64 {
    let totals = after.totals();
    let failed = (totals.acknowledge_errors).saturating_sub(before.totals().acknowledge_errors);
    let pending: u64 = after
        .tasks()
        .map(|task| task.acknowledgements_pending)
        .sum();
    let unknown = if after.tasks().any(|task| task.note.is_some()) {
        totals.written.saturating_sub(totals.acknowledged)
    } else {
        0
    };
    (failed + pending).max(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_while_stopping_or_since_the_cluster_is_gone_is_unconfirmed() {
        use sharegroup_sink::worker::{ConnectorStatus, TaskCounters, TaskStatus};
        let status = |change: &dyn Fn(&mut TaskStatus, &mut TaskCounters)| {
            let (mut task, mut counters) = (TaskStatus::default(), TaskCounters::default());
            // One was refused once, and came again.
            (counters.written, counters.acknowledged) = (11, 10);
            counters.acknowledge_errors = 1;
            change(&mut task, &mut counters);
            task.counters = counters;
            let mut connector = ConnectorStatus::default();
            connector.tasks.push(task);
            let mut status = WorkerStatus::default();
            status.connectors.push(connector);
            status
        };
        let before = status(&|_, _| {});
        assert_eq!(unconfirmed(&before, &before), 0);
        let failed = status(&|_, counters| counters.acknowledge_errors += 2);
        assert_eq!(unconfirmed(&before, &failed), 2);
        let pending = status(&|task, _| task.acknowledgements_pending = 3);
        assert_eq!(unconfirmed(&before, &pending), 3);
        let gone = status(&|task, _| task.note = Some("no answer".to_owned()));
        assert_eq!(unconfirmed(&before, &gone), 1);
        // Its lock went with the cluster.
        let lost = status(&|task, counters| {
            task.note = Some("no answer".to_owned());
            counters.duplicates_expected = 1;
        });
        assert_eq!(unconfirmed(&before, &lost), 1);
    }

    #[test]
    fn idle_must_be_possible_before_the_longest_time() {
        let seconds = Duration::from_secs;
        assert_eq!(idle_options(None, seconds(1)).unwrap(), None);
        assert!(idle_options(Some(seconds(2)), seconds(3)).is_ok());
        for (quiet, max) in [(seconds(3), seconds(3)), (seconds(0), QUIET_MIN)] {
            let problems = idle_options(Some(quiet), max).unwrap_err();
            assert!(
                problems.errors[0].contains("must be longer than"),
                "{problems}"
            );
        }
    }
}
