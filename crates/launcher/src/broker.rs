//! One broker process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::java::{Flags, Runtime};
use crate::process::{POLL_INTERVAL, send_signal, wait_until};
use crate::{LaunchError, probe};

/// How long an orderly stop may take before the broker is killed. One of several nodes may wait for ever for a quorum
/// that is gone.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(10);

const LOG_TAIL_BYTES: u64 = 64 << 10;
const LOG_TAIL_LINES: usize = 40;

/// Kills the broker when the process that owns it is gone, however it ended: the pipe to the standard input of this
/// script closes then. Removes the temporary folder as well; a second try is for what the dying broker still wrote.
const WATCHDOG: &str = "read -r never; kill -s KILL \"$1\"; \
    if [ -n \"$2\" ]; then rm -rf \"$2\" || { sleep 1; rm -rf \"$2\"; }; fi";

/// One broker of a [`Kafka`](crate::Kafka): a process that can be stopped, killed, frozen and started again.
///
/// All methods take `&self` and may be called from several threads.
#[derive(Debug)]
pub struct Broker {
    setup: Setup,
    running: Mutex<Option<Running>>,
}

/// What all starts of a broker have in common.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) node_id: i32,
    pub(crate) port: u16,
    pub(crate) cluster_id: String,
    pub(crate) runtime: Runtime,
    pub(crate) flags: Flags,
    pub(crate) files: Files,
    pub(crate) startup_timeout: Duration,
    /// Removed by the watchdog.
    pub(crate) temporary: Option<PathBuf>,
}

/// The files of a node.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) properties: PathBuf,
    pub(crate) log_config: PathBuf,
    pub(crate) log: PathBuf,
}

#[derive(Debug)]
struct Running {
    child: Child,
    watchdog: Option<Child>,
}

impl Running {
    /// How the process ended; `None` while it runs.
    fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        if status.is_some() {
            self.end_watchdog();
        }
        Ok(status)
    }

    fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.end_watchdog();
        Ok(())
    }

    /// Ends the watchdog without letting it act: from here on the process id may belong to somebody else.
    ///
    /// It is killed while its standard input is still open (`Child::wait` closes it), so it can't wake up.
    fn end_watchdog(&mut self) {
        if let Some(mut watchdog) = self.watchdog.take()
            && let Err(error) = watchdog.kill().and_then(|()| watchdog.wait())
        {
            tracing::warn!(error = %error, "A watchdog may still run.");
        }
    }
}

impl Broker {
    pub(crate) const fn new(setup: Setup) -> Self {
        Self {
            setup,
            running: Mutex::new(None),
        }
    }

    /// The broker's node id, from 1 on.
    #[must_use]
    pub const fn node_id(&self) -> i32 {
        self.setup.node_id
    }

    /// The port on 127.0.0.1; the same after each start.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.setup.port
    }

    /// `host:port` of the broker's listener.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.setup.port)
    }

    /// The process id while the broker runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.lock().as_ref().map(|running| running.child.id())
    }

    /// Whether the process runs; true for a frozen one.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.lock()
            .as_mut()
            .is_some_and(|running| matches!(running.status(), Ok(None)))
    }

    /// Starts the broker on its data and port and waits until it is ready.
    ///
    /// With three brokers at least two have to run before one gets ready: use [`spawn`](Self::spawn) for the first.
    ///
    /// # Errors
    /// [`LaunchError::AlreadyRunning`], or why it did not start: [`LaunchError::Exited`], [`LaunchError::NotReady`].
    pub fn start(&self) -> Result<(), LaunchError> {
        self.spawn()?;
        self.wait_ready()
    }

    /// Starts the process and does not wait for it to be ready.
    ///
    /// # Errors
    /// [`LaunchError::AlreadyRunning`] or [`LaunchError::Io`].
    pub fn spawn(&self) -> Result<(), LaunchError> {
        let mut guard = self.lock();
        if guard
            .as_mut()
            .is_some_and(|running| matches!(running.status(), Ok(None)))
        {
            return Err(LaunchError::AlreadyRunning {
                node_id: self.setup.node_id,
            });
        }
        let log = self.open_log()?;
        let errors = log
            .try_clone()
            .map_err(LaunchError::io("opening", &self.setup.files.log))?;
        let mut command = self
            .setup
            .runtime
            .command(&self.setup.flags, &self.setup.files.log_config);
        command.arg("kafka.Kafka").arg(&self.setup.files.properties);
        // A group of its own: Ctrl-C in a terminal is for the program that uses the broker.
        command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0);
        let child = command
            .spawn()
            .map_err(LaunchError::io("running", self.setup.runtime.program()))?;
        let watchdog = watch(child.id(), self.setup.temporary.as_deref());
        if let Err(error) = &watchdog {
            tracing::warn!(error = %error, "No watchdog: the broker outlives this process if that is killed.");
        }
        *guard = Some(Running {
            child,
            watchdog: watchdog.ok(),
        });
        Ok(())
    }

    /// Waits until the broker serves requests and counts itself among the live brokers.
    ///
    /// # Errors
    /// [`LaunchError::NotRunning`], [`LaunchError::Exited`] or, at the start-up timeout, [`LaunchError::NotReady`].
    pub fn wait_ready(&self) -> Result<(), LaunchError> {
        let node_id = self.setup.node_id;
        self.wait_for_live(&[node_id])
    }

    /// Waits until the broker sees all these nodes alive.
    pub(crate) fn wait_for_live(&self, node_ids: &[i32]) -> Result<(), LaunchError> {
        let node_id = self.setup.node_id;
        let timeout = self.setup.startup_timeout;
        let deadline = Instant::now() + timeout;
        loop {
            let status = match self.lock().as_mut() {
                None => return Err(LaunchError::NotRunning { node_id }),
                Some(running) => running
                    .status()
                    .map_err(LaunchError::io("waiting for", Path::new("java")))?,
            };
            if let Some(status) = status {
                return Err(LaunchError::Exited {
                    node_id,
                    status,
                    log_tail: self.log_tail(LOG_TAIL_LINES),
                });
            }
            if let Ok(live) = probe::live_brokers(self.setup.port, &self.setup.cluster_id)
                && node_ids.iter().all(|id| live.contains(id))
            {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(LaunchError::NotReady {
                    node_id,
                    timeout,
                    log_tail: self.log_tail(LOG_TAIL_LINES),
                });
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Kills the process (SIGKILL) and waits until it is gone.
    ///
    /// # Errors
    /// [`LaunchError::NotRunning`] when nothing was started, [`LaunchError::Io`] when the system refuses.
    pub fn kill(&self) -> Result<(), LaunchError> {
        self.take()?
            .kill()
            .map_err(LaunchError::io("killing", Path::new("java")))
    }

    /// Stops the broker in order (SIGTERM): it hands over what it leads first. Killed after ten seconds.
    ///
    /// # Errors
    /// As for [`kill`](Self::kill).
    pub fn stop(&self) -> Result<(), LaunchError> {
        self.request_stop()?;
        self.await_stop(Instant::now() + STOP_TIMEOUT)
    }

    /// Freezes the process (SIGSTOP): its connections stay open and silent.
    ///
    /// # Errors
    /// As for [`kill`](Self::kill).
    pub fn freeze(&self) -> Result<(), LaunchError> {
        self.signal("STOP")
    }

    /// Lets a frozen process go on (SIGCONT).
    ///
    /// # Errors
    /// As for [`kill`](Self::kill).
    pub fn thaw(&self) -> Result<(), LaunchError> {
        self.signal("CONT")
    }

    /// The file that holds everything the broker printed, over all its starts.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.setup.files.log
    }

    /// The last lines of the log, at most `lines_max` of them and 64 KiB.
    #[must_use]
    pub fn log_tail(&self, lines_max: usize) -> String {
        let text =
            read_end(&self.setup.files.log).unwrap_or_else(|error| format!("(no log: {error})"));
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(lines_max)..].join("\n")
    }

    /// Sends SIGTERM; a frozen process goes on, so that it can obey.
    pub(crate) fn request_stop(&self) -> Result<(), LaunchError> {
        self.signal("TERM")?;
        self.signal("CONT")
    }

    /// Waits for the process to end and kills it at the deadline.
    pub(crate) fn await_stop(&self, deadline: Instant) -> Result<(), LaunchError> {
        let mut running = self.take()?;
        let stopped = wait_until(&mut running.child, deadline)
            .map_err(LaunchError::io("stopping", Path::new("java")))?;
        if stopped.is_none() {
            tracing::warn!(
                node_id = self.setup.node_id,
                "Killing a broker that did not stop in time."
            );
        }
        // Kills nothing when the process was waited for already.
        running
            .kill()
            .map_err(LaunchError::io("killing", Path::new("java")))
    }

    /// Gives the process up: it runs on, and nothing here ends it any more.
    pub(crate) fn release(&self) -> Option<u32> {
        let mut running = self.lock().take()?;
        running.end_watchdog();
        Some(running.child.id())
    }

    pub(crate) fn properties(&self) -> &Path {
        &self.setup.files.properties
    }

    fn signal(&self, signal: &str) -> Result<(), LaunchError> {
        // The lock is held: nobody can reap the process meanwhile, so its id can't belong to another one.
        let mut guard = self.lock();
        let node_id = self.setup.node_id;
        let running = guard.as_mut().ok_or(LaunchError::NotRunning { node_id })?;
        if !matches!(running.status(), Ok(None)) {
            return Err(LaunchError::NotRunning { node_id });
        }
        send_signal(running.child.id(), signal)
            .map_err(LaunchError::io("signalling", Path::new("java")))
    }

    fn take(&self) -> Result<Running, LaunchError> {
        self.lock().take().ok_or(LaunchError::NotRunning {
            node_id: self.setup.node_id,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_log(&self) -> Result<File, LaunchError> {
        let path = &self.setup.files.log;
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(LaunchError::io("opening", path))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.lock().is_some()
            && let Err(error) = self.kill()
        {
            tracing::warn!(node_id = self.setup.node_id, error = %error, "A broker may still run.");
        }
    }
}

/// Starts the watchdog of a broker. It ends by itself when the broker's owner ends.
fn watch(pid: u32, temporary: Option<&Path>) -> io::Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", WATCHDOG, "kafka-watchdog", &pid.to_string()]);
    command.arg(temporary.unwrap_or_else(|| Path::new("")));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}

fn read_end(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let size = fs::metadata(path)?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
