//! The suite: which checks there are, and the run of them.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sharegroup_broker::Broker;
use tokio::time::Instant;

use super::heard::Heard;
use super::process::{ProcessPlan, WorkerCommand, killed_worker, memory_is_bounded};
use super::report::{CheckReport, Checked, Ended, Report, Verdict};
use super::scene::{Scene, cluster};
use super::target::{Target, Trouble};
use super::{task_checks as task, worker_checks as worker};

/// The checks of a sink, to be run on a [`Target`].
///
/// See the [module](super) for an example.
#[must_use]
pub struct SinkSuite<T> {
    target: T,
    servers: Option<String>,
    only: Vec<String>,
    patience: Duration,
    plan: ProcessPlan,
}

impl<T> fmt::Debug for SinkSuite<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkSuite")
            .field("servers", &self.servers)
            .field("only", &self.only)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

impl<T: Target> SinkSuite<T> {
    /// All checks, with workers on an embedded broker.
    pub fn new(target: T) -> Self {
        Self {
            target,
            servers: None,
            only: Vec::new(),
            patience: PATIENCE,
            plan: ProcessPlan::default(),
        }
    }

    /// Runs the workers on this cluster, which has share groups and lets everybody in.
    pub fn on(mut self, bootstrap_servers: impl Into<String>) -> Self {
        self.servers = Some(bootstrap_servers.into());
        self
    }

    /// Makes only checks of this name, or of others that were named so. A name that no check has fails the run.
    pub fn only(mut self, name: impl Into<String>) -> Self {
        self.only.push(name.into());
        self
    }

    /// Longest wait for anything that has to happen: a put to end, a target that is up again to be used,
    /// a group to be done. Default 60 s.
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How a worker is started as a process of its own, to be killed. Without it the checks that
    /// need one are skipped.
    pub fn worker_process(mut self, command: WorkerCommand) -> Self {
        self.plan.command = Some(command);
        self
    }

    /// How many records a worker is killed in the middle of. Default 100,000.
    pub const fn records(mut self, records: u64) -> Self {
        self.plan.records = records;
        self
    }

    /// By how much a worker's memory may grow while 160 MB of records go through it, in bytes. Default 64 MiB.
    pub const fn memory_growth_max(mut self, bytes: u64) -> Self {
        self.plan.memory_growth_max = bytes;
        self
    }

    /// Makes the checks one after the other, prints a line for each and then the sum. Needs a tokio runtime
    /// of several threads.
    ///
    /// # Cancel safety
    /// The target is left as it is, without [`Target::stop`].
    pub async fn run(mut self) -> Report {
        let heard = Heard::new(self.target.secrets());
        let mut report = Report::default();
        match self.open_cluster().await {
            Ok((servers, broker)) => {
                for check in self.checks() {
                    let done = self.check(check, &servers, &heard).await;
                    println!("{done}");
                    report.add(done);
                }
                drop(broker);
            }
            Err(broken) => report.add(done("cluster", Err(broken), Duration::ZERO)),
        }
        for name in self.unknown() {
            let broken = Ended::broken("the suite has a check of that name", "it has none");
            report.add(done("only", Err(broken), Duration::ZERO));
            println!("FAILED   {name}: there is no such check");
        }
        self.target.stop().await;
        println!("{report}");
        report
    }

    async fn open_cluster(&self) -> Checked<(String, Option<Broker>)> {
        if let Some(servers) = &self.servers {
            return Ok((servers.clone(), None));
        }
        let mut broker = Broker::builder();
        for (key, value) in SHORT_SESSIONS {
            broker = broker.set(key, value);
        }
        let broker = broker.start().await.map_err(cluster)?;
        Ok((broker.bootstrap_servers().to_owned(), Some(broker)))
    }

    fn checks(&self) -> impl Iterator<Item = Check> + use<T> {
        let only = self.only.clone();
        let wanted =
            move |check: &Check| only.is_empty() || only.iter().any(|name| name == check.name());
        Check::ALL.into_iter().filter(wanted)
    }

    fn unknown(&self) -> Vec<String> {
        let known = |name: &String| Check::ALL.iter().any(|check| check.name() == name);
        let unknown = self.only.iter().filter(|name| !known(name));
        unknown.cloned().collect()
    }

    async fn check(&mut self, check: Check, servers: &str, heard: &Heard) -> CheckReport {
        let began = Instant::now();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let number = since_1970.map_or(0, |time| time.as_micros());
        let topic = format!("{}_{number:x}", check.name());
        let started = self.target.start(&topic).await.map_err(Ended::from);
        let checked = match started {
            Ok(()) => {
                let scene = Scene {
                    target: &mut self.target,
                    topic,
                    servers,
                    heard,
                    patience: self.patience,
                };
                Box::pin(check.run(scene, &self.plan)).await
            }
            Err(ended) => Err(ended),
        };
        done(check.name(), checked, began.elapsed())
    }
}

fn done(name: &'static str, checked: Checked, took: Duration) -> CheckReport {
    let verdict = match checked {
        Ok(()) => Verdict::Kept,
        Err(Ended::Skipped(why)) => Verdict::Skipped(why),
        Err(Ended::Broken(broken)) => Verdict::Broken(broken),
    };
    CheckReport {
        name,
        verdict,
        took,
    }
}

/// A check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    WrittenBeforeAccepted,
    BadRecordIsNamed,
    Redelivered,
    Reordered,
    PutIsCancelled,
    RecordsAreLetGo,
    PutWhile(Trouble),
    Metrics,
    BadRecordStandsAlone,
    BadRecordFailsTheTask,
    DownAtStart,
    WorkerWhile(Trouble),
    WrongCredentials,
    SeveralTasks,
    ShutdownWhile(Trouble),
    KilledWorker,
    MemoryIsBounded,
    Secrets,
}

impl Check {
    const ALL: [Self; 29] = [
        Self::WrittenBeforeAccepted,
        Self::BadRecordIsNamed,
        Self::Redelivered,
        Self::Reordered,
        Self::PutIsCancelled,
        Self::RecordsAreLetGo,
        Self::PutWhile(Trouble::Down),
        Self::PutWhile(Trouble::Refusing),
        Self::PutWhile(Trouble::Slow),
        Self::PutWhile(Trouble::Silent),
        Self::PutWhile(Trouble::Full),
        Self::PutWhile(Trouble::Restarted),
        Self::Metrics,
        Self::BadRecordStandsAlone,
        Self::BadRecordFailsTheTask,
        Self::DownAtStart,
        Self::WorkerWhile(Trouble::Down),
        Self::WorkerWhile(Trouble::Refusing),
        Self::WorkerWhile(Trouble::Slow),
        Self::WorkerWhile(Trouble::Silent),
        Self::WorkerWhile(Trouble::Full),
        Self::WorkerWhile(Trouble::Restarted),
        Self::WrongCredentials,
        Self::SeveralTasks,
        Self::ShutdownWhile(Trouble::Slow),
        Self::ShutdownWhile(Trouble::Silent),
        Self::KilledWorker,
        Self::MemoryIsBounded,
        // The last: it looks at what all others have heard.
        Self::Secrets,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::WrittenBeforeAccepted => "written_before_accepted",
            Self::BadRecordIsNamed => "bad_record_is_named",
            Self::Redelivered => "redelivered",
            Self::Reordered => "reordered",
            Self::PutIsCancelled => "put_is_cancelled",
            Self::RecordsAreLetGo => "records_are_let_go",
            Self::PutWhile(Trouble::Down) => "put_while_down",
            Self::PutWhile(Trouble::Refusing) => "put_while_refusing",
            Self::PutWhile(Trouble::Slow) => "put_while_slow",
            Self::PutWhile(Trouble::Silent) => "put_while_silent",
            Self::PutWhile(Trouble::Full) => "put_while_full",
            Self::PutWhile(Trouble::Restarted) => "put_after_restart",
            Self::Metrics => "metrics",
            Self::BadRecordStandsAlone => "bad_record_stands_alone",
            Self::BadRecordFailsTheTask => "bad_record_fails_the_task",
            Self::DownAtStart => "down_at_start",
            Self::WorkerWhile(Trouble::Down) => "down_in_the_middle",
            Self::WorkerWhile(Trouble::Refusing) => "refusing_connections",
            Self::WorkerWhile(Trouble::Slow) => "slow",
            Self::WorkerWhile(Trouble::Silent) => "silent",
            Self::WorkerWhile(Trouble::Full) => "full",
            Self::WorkerWhile(Trouble::Restarted) => "restarted",
            Self::WrongCredentials => "wrong_credentials",
            Self::SeveralTasks => "several_tasks",
            Self::ShutdownWhile(Trouble::Silent) => "shutdown_while_silent",
            Self::ShutdownWhile(_) => "shutdown_in_put",
            Self::KilledWorker => "killed_worker",
            Self::MemoryIsBounded => "memory_is_bounded",
            Self::Secrets => "secrets",
        }
    }

    async fn run<T: Target>(self, scene: Scene<'_, T>, plan: &ProcessPlan) -> Checked {
        let scene = &mut { scene };
        match self {
            Self::WrittenBeforeAccepted => task::written_before_accepted(scene).await,
            Self::BadRecordIsNamed => task::bad_record_is_named(scene).await,
            Self::Redelivered => task::redelivered(scene).await,
            Self::Reordered => task::reordered(scene).await,
            Self::PutIsCancelled => task::put_is_cancelled(scene).await,
            Self::RecordsAreLetGo => task::records_are_let_go(scene).await,
            Self::PutWhile(trouble) => task::put_in_trouble(scene, trouble).await,
            Self::Metrics => worker::metrics(scene).await,
            Self::BadRecordStandsAlone => worker::bad_record_stands_alone(scene).await,
            Self::BadRecordFailsTheTask => worker::bad_record_fails_the_task(scene).await,
            Self::DownAtStart => worker::down_at_start(scene).await,
            Self::WorkerWhile(trouble) => worker::trouble_in_the_middle(scene, trouble).await,
            Self::WrongCredentials => worker::wrong_credentials(scene).await,
            Self::SeveralTasks => worker::several_tasks(scene).await,
            Self::ShutdownWhile(trouble) => worker::shutdown_in_put(scene, trouble).await,
            Self::KilledWorker => killed_worker(scene, plan).await,
            Self::MemoryIsBounded => memory_is_bounded(scene, plan).await,
            Self::Secrets => worker::secrets(scene).await,
        }
    }
}

/// So that a worker that was killed is missed soon.
const SHORT_SESSIONS: [(&str, &str); 4] = [
    ("group.share.min.session.timeout.ms", "1000"),
    ("group.share.session.timeout.ms", "6000"),
    ("group.share.min.heartbeat.interval.ms", "500"),
    ("group.share.heartbeat.interval.ms", "1000"),
];
const PATIENCE: Duration = Duration::from_secs(60);
