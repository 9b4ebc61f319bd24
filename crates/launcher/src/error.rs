//! The errors of this crate.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

/// Why a broker or a tool could not be started or reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// No `java` in `$JAVA_HOME/bin` or on the path. Install a JRE, 17 or newer.
    #[error("java not found: install a Java runtime (17 or newer) or set JAVA_HOME")]
    JavaMissing,
    /// No `mvn` on the path and the jars are not in the cache yet. Install Maven, or copy a filled cache here.
    #[error("mvn not found: install Maven to fetch the jars of Kafka {version}, or put them into {}", lib.display())]
    MavenMissing {
        /// The version that was asked for.
        version: String,
        /// The folder where the jars are looked for.
        lib: PathBuf,
    },
    /// None of `SHAREGROUP_CACHE`, `XDG_CACHE_HOME` and `HOME` is set. Set the first.
    #[error("no cache folder: set SHAREGROUP_CACHE or HOME")]
    NoCacheFolder,
    /// The builder was given something that can't work. The caller's to correct.
    #[error("invalid {setting}: {reason}")]
    Invalid {
        /// The builder's method.
        setting: &'static str,
        /// What is wrong with its value.
        reason: String,
    },
    /// Maven could not fetch the jars: an unknown version, or the network. Holds Maven's output.
    #[error("fetching the jars of Kafka {version} failed:\n{output}")]
    Fetch {
        /// The version that was asked for.
        version: String,
        /// What Maven printed.
        output: String,
    },
    /// The fixed port of a broker is in use. Stop what listens there or choose another port.
    #[error("port {port} on 127.0.0.1 is in use")]
    PortTaken {
        /// The port.
        port: u16,
    },
    /// Kafka's storage tool refused to format the data folder, for example for an unknown feature or setting.
    #[error("formatting the data folder of broker {node_id} failed:\n{output}")]
    Format {
        /// The node.
        node_id: i32,
        /// What the tool printed.
        output: String,
    },
    /// The broker ended before it was ready. Holds the end of its log.
    #[error("broker {node_id} ended while starting ({status}); its log ends with:\n{log_tail}")]
    Exited {
        /// The node.
        node_id: i32,
        /// How the process ended.
        status: ExitStatus,
        /// The last lines of the log.
        log_tail: String,
    },
    /// The broker runs but did not become ready in time. Holds the end of its log.
    #[error("broker {node_id} not ready within {} s; its log ends with:\n{log_tail}", timeout.as_secs_f64())]
    NotReady {
        /// The node.
        node_id: i32,
        /// How long was waited.
        timeout: Duration,
        /// The last lines of the log.
        log_tail: String,
    },
    /// The broker does not run, so it can't be signalled or waited for.
    #[error("broker {node_id} is not running")]
    NotRunning {
        /// The node.
        node_id: i32,
    },
    /// The broker runs already, so it can't be started.
    #[error("broker {node_id} is running already")]
    AlreadyRunning {
        /// The node.
        node_id: i32,
    },
    /// A tool did not end in time and was killed. Use [`Tools::command`](crate::Tools::command) for those that run on.
    #[error("{class} did not end within {} s", timeout.as_secs_f64())]
    ToolTimeout {
        /// The tool's main class.
        class: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// A file or process operation failed.
    #[error("{action} {}", path.display())]
    Io {
        /// What was tried, for example `writing`.
        action: &'static str,
        /// The file, folder or program.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl LaunchError {
    /// Whether the same call can succeed later without any change by the caller.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        matches!(
            self,
            Self::Fetch { .. }
                | Self::NotReady { .. }
                | Self::PortTaken { .. }
                | Self::ToolTimeout { .. }
        )
    }

    /// Whether this machine lacks what starting Kafka needs (Java, Maven), so that a test may skip.
    #[must_use]
    pub const fn is_missing_requirement(&self) -> bool {
        matches!(self, Self::JavaMissing | Self::MavenMissing { .. })
    }

    /// For `map_err` on file and process operations.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}
