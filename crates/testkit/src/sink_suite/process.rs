//! A worker as a process of its own: killed in the middle, and looked at for its memory.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sharegroup_consumer::admin::Admin;
use sharegroup_sink::Registry;
use sharegroup_sink::config::{Properties, load};
use sharegroup_sink::worker::{Worker, WorkerOptions};
use tokio::time::sleep;

use super::report::{Checked, Ended, ensure};
use super::scene::{LOOK_AGAIN, Scene, recipes};
use super::target::{Recipe, Target};

/// How a worker is started as a process of its own.
///
/// Of a program that takes the two files as `sharegroup run` does:
///
/// ```
/// use std::process::Command;
///
/// use sharegroup_testkit::sink_suite::WorkerCommand;
///
/// let command = WorkerCommand::new(|worker, connector| {
///     let mut command = Command::new("sharegroup");
///     command.arg("run").arg(worker).arg(connector);
///     command
/// });
/// ```
///
/// Where there is no program with the sink, the test's own does it:
///
/// ```
/// use sharegroup_sink::Registry;
/// use sharegroup_testkit::sink_suite::{WorkerCommand, run_worker_process};
///
/// let command = WorkerCommand::this_program("worker_process");
///
/// // #[test]
/// fn worker_process() {
///     let registry = Registry::new(); // with the sink
///     run_worker_process(&registry).unwrap();
/// }
/// # worker_process();
/// ```
pub struct WorkerCommand(Box<MakeCommand>);

type MakeCommand = dyn Fn(&Path, &Path) -> io::Result<Command> + Send + Sync;

impl fmt::Debug for WorkerCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerCommand").finish_non_exhaustive()
    }
}

impl WorkerCommand {
    /// A command that is made of the paths of a worker's file and a connector's. It has to run until it is killed, and
    /// may write what it likes to its standard output and error, which are searched for secrets.
    pub fn new(command: impl Fn(&Path, &Path) -> Command + Send + Sync + 'static) -> Self {
        Self(Box::new(move |worker, connector| {
            Ok(command(worker, connector))
        }))
    }

    /// This test's own program, in which `test` is run once more: a test of this binary that calls
    /// [`run_worker_process`] first.
    pub fn this_program(test: &'static str) -> Self {
        Self(Box::new(move |worker, connector| {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["--exact", test, "--nocapture", "--include-ignored"]);
            command.env(WORKER, worker).env(CONNECTOR, connector);
            // The worker ends with its standard input, so that it outlives no suite.
            command.stdin(Stdio::piped());
            Ok(command)
        }))
    }
}

/// Runs a worker, in a process that [`WorkerCommand::this_program`] has started, until a task fails or the suite ends.
/// In any other process it returns `false` at once.
///
/// # Errors
/// What keeps the worker from working.
pub fn run_worker_process(registry: &Registry) -> io::Result<bool> {
    let (Some(worker), Some(connector)) = (std::env::var_os(WORKER), std::env::var_os(CONNECTOR))
    else {
        return Ok(false);
    };
    let loaded = load(Path::new(&worker), &[connector.into()], false, registry);
    let loaded = loaded.map_err(|problems| {
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        io::Error::other(problems.join("; "))
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(|| {
        let ended = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(i32::from(ended.is_err()));
    });
    runtime.block_on(async {
        let options = WorkerOptions::default();
        let worker = Worker::start(&loaded.worker, loaded.connectors, &options);
        worker.any_failed().await;
        Err(io::Error::other(format!("{:?}", worker.status())))
    })
}

/// What the checks with processes need.
#[derive(Debug)]
pub(super) struct ProcessPlan {
    pub(super) command: Option<WorkerCommand>,
    pub(super) records: u64,
    pub(super) memory_growth_max: u64,
}

impl Default for ProcessPlan {
    fn default() -> Self {
        Self {
            command: None,
            records: 100_000,
            memory_growth_max: 64 << 20,
        }
    }
}

/// A worker is killed while records are produced and written; the next one writes everything.
pub(super) async fn killed_worker<T: Target>(
    scene: &mut Scene<'_, T>,
    plan: &ProcessPlan,
) -> Checked {
    let folder = Folder::of(scene, plan)?;
    scene.create_topic(PARTITIONS).await?;
    let written = recipes(0..plan.records);
    let admin = scene.admin()?;
    let mut parts = written.chunks(usize::try_from(plan.records / PARTS).unwrap_or(1).max(1));
    let mut produced = 0;
    let mut worker = folder.start(scene, plan, "killed.log")?;
    for part in parts.by_ref() {
        scene.produce_good(part).await?;
        produced += part.len();
        if is_at_work(scene, &admin, produced).await? && 2 * produced >= written.len() {
            break;
        }
        worker.is_running()?;
    }
    worker.until_at_work(scene, &admin, produced).await?;
    worker.kill()?;
    for part in parts {
        scene.produce_good(part).await?;
    }
    let worker = folder.start(scene, plan, "next.log")?;
    worker.until_settled(scene).await?;
    worker.kill()?;
    folder.listen(scene);
    scene.judge(&written).await
}

/// Whether the group has settled some of so many records.
async fn is_at_work<T: Target>(
    scene: &Scene<'_, T>,
    admin: &Admin,
    produced: usize,
) -> Checked<bool> {
    let produced = i64::try_from(produced).unwrap_or(i64::MAX);
    Ok(scene
        .unsettled(admin)
        .await?
        .is_some_and(|left| left < produced))
}

/// A worker's memory doesn't grow with what goes through it.
pub(super) async fn memory_is_bounded<T: Target>(
    scene: &mut Scene<'_, T>,
    plan: &ProcessPlan,
) -> Checked {
    const WARM_UP: u64 = 8_000;
    const RECORDS: u64 = 48_000;
    let folder = Folder::of(scene, plan)?;
    if !Path::new("/proc/self/status").exists() {
        let why = "the memory of another process can't be looked at on this system";
        return Err(Ended::Skipped(why.to_owned()));
    }
    scene.create_topic(PARTITIONS).await?;
    let large = |number| Recipe {
        bytes: 4096,
        ..Recipe::of(number)
    };
    let written: Vec<_> = (0..RECORDS).map(large).collect();
    let (warm_up, rest) = written.split_at(usize::try_from(WARM_UP).unwrap_or(0));
    scene.produce_good(warm_up).await?;
    let worker = folder.start(scene, plan, "memory.log")?;
    worker.until_settled(scene).await?;
    let before = worker.memory_max()?;
    for part in rest.chunks(10_000) {
        scene.produce_good(part).await?;
    }
    worker.until_settled(scene).await?;
    let grown = worker.memory_max()?.saturating_sub(before);
    worker.kill()?;
    folder.listen(scene);
    ensure(
        grown <= plan.memory_growth_max,
        "a worker's memory does not grow with what goes through it",
        || {
            let through = (RECORDS - WARM_UP) * 4096;
            let (grown, through) = (grown >> 20, through >> 20);
            format!(
                "it grew by {grown} MiB while {through} MiB went through it, to begin with at {} MiB",
                before >> 20
            )
        },
    )
}

/// A folder of the workers' files and logs, removed at the end.
struct Folder(PathBuf);

impl Folder {
    /// Of a worker with the sink under test.
    fn of<T: Target>(scene: &Scene<'_, T>, plan: &ProcessPlan) -> Checked<Self> {
        if plan.command.is_none() {
            let why =
                "the suite was not told how to start a worker process (SinkSuite::worker_process)";
            return Err(Ended::Skipped(why.to_owned()));
        }
        // What is wrong with the keys is told here, not by a process.
        scene.load(&[])?;
        let (worker, connector) = scene.files(&[("consumer.override.max.poll.records", "500")]);
        let name = format!("sink-suite-{}-{}", std::process::id(), scene.topic);
        let folder = Self(std::env::temp_dir().join(name));
        let write = || {
            fs::create_dir_all(&folder.0)?;
            fs::write(folder.worker(), text(&worker))?;
            fs::write(folder.connector(), text(&connector))
        };
        write().map_err(process)?;
        Ok(folder)
    }

    fn worker(&self) -> PathBuf {
        self.0.join("worker.properties")
    }

    fn connector(&self) -> PathBuf {
        self.0.join("connector.properties")
    }

    fn start<T: Target>(
        &self,
        scene: &Scene<'_, T>,
        plan: &ProcessPlan,
        log: &str,
    ) -> Checked<WorkerProcess> {
        let Some(WorkerCommand(command)) = &plan.command else {
            return Err(Ended::Skipped("no worker process".to_owned()));
        };
        let log = self.0.join(log);
        let start = || {
            let mut command = command(&self.worker(), &self.connector())?;
            let output = File::create(&log)?;
            command.stdout(output.try_clone()?).stderr(output).spawn()
        };
        Ok(WorkerProcess {
            child: start().map_err(process)?,
            log,
            patience: scene.patience * 4,
        })
    }

    /// Listens to what the workers have said.
    fn listen<T: Target>(&self, scene: &Scene<'_, T>) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                scene
                    .heard
                    .hear("the output of a worker process", &tail(&path, usize::MAX));
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left in a folder of temporary files harms nobody.
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A worker at work, killed at the latest when this is dropped.
struct WorkerProcess {
    child: Child,
    log: PathBuf,
    patience: Duration,
}

impl WorkerProcess {
    /// Kills it at once (SIGKILL), as a crash would.
    fn kill(mut self) -> Checked {
        self.is_running()?;
        self.child.kill().map_err(process)?;
        self.child.wait().map(drop).map_err(process)
    }

    fn is_running(&mut self) -> Checked {
        let ended = self.child.try_wait().map_err(process)?;
        ensure(
            ended.is_none(),
            "the worker process works until it is killed",
            || format!("it has ended by itself: {}", tail(&self.log, TAIL)),
        )
    }

    async fn until_at_work<T: Target>(
        &mut self,
        scene: &Scene<'_, T>,
        admin: &Admin,
        produced: usize,
    ) -> Checked {
        let mut waits = self.patience.as_millis() / LOOK_AGAIN.as_millis();
        while !is_at_work(scene, admin, produced).await? {
            self.is_running()?;
            waits = waits.saturating_sub(1);
            ensure(waits > 0, "the worker process writes records", || {
                format!("it writes none: {}", tail(&self.log, TAIL))
            })?;
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    async fn until_settled<T: Target>(&self, scene: &Scene<'_, T>) -> Checked {
        let said = || tail(&self.log, TAIL);
        scene.settled_within(self.patience, said).await
    }

    /// The most memory that it has had, in bytes.
    fn memory_max(&self) -> Checked<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).map_err(process)?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        let kibibytes = kibibytes.ok_or_else(|| process("/proc tells no VmHWM"))?;
        Ok(kibibytes << 10)
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn process(error: impl fmt::Display) -> Ended {
    let promised = "a worker can be run as a process";
    Ended::broken(promised, error.to_string())
}

/// The end of a log.
fn tail(log: &Path, bytes: usize) -> String {
    let text = fs::read(log).unwrap_or_default();
    let end = text.get(text.len().saturating_sub(bytes)..);
    String::from_utf8_lossy(end.unwrap_or_default()).into_owned()
}

/// A properties file.
fn text(properties: &Properties) -> String {
    let escaped = |value: &str| {
        let value = value.replace('\\', "\\\\").replace('\n', "\\n");
        let value = value.replace('\r', "\\r").replace('\t', "\\t");
        // Blanks at the start would be skipped.
        match value.strip_prefix(' ') {
            Some(rest) => format!("\\ {rest}"),
            None => value,
        }
    };
    let line = |(key, value): (&str, &str)| format!("{key}={}\n", escaped(value));
    properties.iter().map(line).collect()
}

const WORKER: &str = "SINK_SUITE_WORKER";
const CONNECTOR: &str = "SINK_SUITE_CONNECTOR";
const PARTITIONS: i32 = 4;
/// In how many parts records are produced.
const PARTS: u64 = 10;
/// Bytes of a log that are shown.
const TAIL: usize = 2_000;
