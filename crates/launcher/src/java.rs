//! Java command lines for brokers and tools.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::jars::Jars;
use crate::process::{find_program, output_within};
use crate::{LaunchError, archive};

/// Compiles with the first compiler only and collects garbage on one thread: starts in two thirds of the time.
const FAST_START: [&str; 2] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];
const TOOL_HEAP: &str = "-Xmx256m";
const SERVICE_HEAP: &str = "-Xmx2G";
const TOOL_TIMEOUT: Duration = Duration::from_secs(120);

/// A Java runtime together with the jars of one Kafka version.
#[derive(Debug, Clone)]
pub(crate) struct Runtime {
    program: PathBuf,
    jars: Jars,
    class_path: OsString,
}

/// What a JVM is started for.
#[derive(Debug, Clone)]
pub(crate) struct Flags {
    pub(crate) heap: String,
    /// Both compilers and the default collector: slower to start, faster after a minute.
    pub(crate) full_jit: bool,
    pub(crate) archive: Archive,
}

/// The class archive: classes parsed and laid out once, mapped at each start.
#[derive(Debug, Clone)]
pub(crate) enum Archive {
    /// None.
    Without,
    /// Map this one. A file that does not fit this Java is ignored by it.
    Use(PathBuf),
    /// Write one when the JVM ends.
    Write(PathBuf),
}

impl Runtime {
    pub(crate) fn find(version: &str) -> Result<Self, LaunchError> {
        let program = find_java().ok_or(LaunchError::JavaMissing)?;
        let jars = Jars::fetch(version)?;
        let class_path = jars.class_path()?;
        Ok(Self {
            program,
            jars,
            class_path,
        })
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    pub(crate) const fn jars(&self) -> &Jars {
        &self.jars
    }

    /// `java` with everything up to the main class.
    ///
    /// The class path goes through the environment: a hundred jars would hide the rest of the command line.
    pub(crate) fn command(&self, flags: &Flags, log_config: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.env("CLASSPATH", &self.class_path).arg(&flags.heap);
        if !flags.full_jit {
            command.args(FAST_START);
        }
        match &flags.archive {
            Archive::Without => {}
            Archive::Use(file) => {
                command
                    .arg("-Xshare:auto")
                    .arg("-Xlog:disable")
                    .arg(joined("-XX:SharedArchiveFile=", file));
            }
            Archive::Write(file) => {
                command.arg(joined("-XX:ArchiveClassesAtExit=", file));
            }
        }
        command.arg(joined("-Dlog4j2.configurationFile=", log_config));
        command
    }
}

/// Kafka's command line tools of one version, without a broker of our own.
#[derive(Debug, Clone)]
pub struct Tools {
    runtime: Runtime,
    archive: Archive,
    log_config: PathBuf,
}

impl Tools {
    /// The tools of `version`; fetches the jars when they are not in the cache yet.
    ///
    /// # Errors
    /// [`LaunchError::JavaMissing`], [`LaunchError::MavenMissing`] and [`LaunchError::Fetch`]: see there for what to do.
    pub fn fetch(version: &str) -> Result<Self, LaunchError> {
        Self::new(Runtime::find(version)?)
    }

    pub(crate) fn new(runtime: Runtime) -> Result<Self, LaunchError> {
        let archive = archive::existing(&runtime).map_or(Archive::Without, Archive::Use);
        let log_config = runtime.jars().dir().join("tools-log4j2.xml");
        write_log_config(&log_config, LogTarget::Tool)?;
        Ok(Self {
            runtime,
            archive,
            log_config,
        })
    }

    /// The version of the jars.
    #[must_use]
    pub fn version(&self) -> &str {
        self.runtime.jars().version()
    }

    /// The command that runs the main class, for tools that run on or read their standard input.
    #[must_use]
    pub fn command<I, S>(&self, class: &str, args: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let flags = Flags {
            heap: TOOL_HEAP.to_owned(),
            full_jit: false,
            archive: self.archive.clone(),
        };
        let mut command = self.runtime.command(&flags, &self.log_config);
        command.arg(class).args(args);
        command
    }

    /// The command that runs the main class as a service is run, Kafka Connect for example: with the full JIT and room for 2 GiB, as
    /// its own script does.
    #[must_use]
    pub fn service<I, S>(&self, class: &str, args: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let flags = Flags {
            heap: SERVICE_HEAP.to_owned(),
            full_jit: true,
            archive: Archive::Without,
        };
        let mut command = self.runtime.command(&flags, &self.log_config);
        command.arg(class).args(args);
        command
    }

    /// `java` for a program of one's own, with its classes before the jars and no other option: unlike
    /// [`command`](Self::command) the JVM is as it is by default.
    #[must_use]
    pub fn java(&self, classes: &Path) -> Command {
        let mut path = classes.as_os_str().to_owned();
        path.push(":");
        path.push(self.class_path());
        let mut command = Command::new(self.runtime.program());
        command.env("CLASSPATH", path);
        command
    }

    /// The class path of all jars, also for a compiler.
    #[must_use]
    pub fn class_path(&self) -> &OsStr {
        &self.runtime.class_path
    }

    /// A folder with one more jar of the same version alone, such as `connect-file`: for `plugin.path` of Kafka Connect.
    /// Fetches it when it is not in the cache yet.
    ///
    /// # Errors
    /// [`LaunchError::MavenMissing`] and [`LaunchError::Fetch`], also where there is no such artifact.
    pub fn plugin(&self, artifact: &str) -> Result<PathBuf, LaunchError> {
        self.runtime.jars().fetch_plugin(artifact)
    }

    /// A folder with the jar of another project and all that it needs, for `plugin.path` of Kafka Connect. `without`: artifacts
    /// as `group:name` that are left out, since the worker's own would clash with them. Fetches it when it is not in the cache
    /// yet.
    ///
    /// # Errors
    /// [`LaunchError::MavenMissing`] and [`LaunchError::Fetch`], also where there is no such artifact.
    pub fn foreign_plugin(
        &self,
        [group, artifact, version]: [&str; 3],
        without: &[&str],
    ) -> Result<PathBuf, LaunchError> {
        let jars = self.runtime.jars();
        jars.fetch_foreign_plugin([group, artifact, version], without)
    }

    /// Runs the main class to its end, at most two minutes. A status other than success is not an error here.
    ///
    /// A call takes one to three seconds: the JVM starts anew each time.
    ///
    /// # Errors
    /// [`LaunchError::ToolTimeout`] when it was killed, [`LaunchError::Io`] when `java` could not be started.
    pub fn run<I, S>(&self, class: &str, args: I) -> Result<Output, LaunchError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        output_within(&mut self.command(class, args), TOOL_TIMEOUT)
            .map_err(LaunchError::io("running", &self.runtime.program))?
            .ok_or_else(|| LaunchError::ToolTimeout {
                class: class.to_owned(),
                timeout: TOOL_TIMEOUT,
            })
    }
}

/// Who writes the log.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LogTarget {
    /// A broker: everything from INFO on, into the file that its standard output is.
    Broker,
    /// A tool: warnings and errors, apart from its output.
    Tool,
}

/// Writes a log4j2 configuration, in one step: another process may be reading the file.
pub(crate) fn write_log_config(path: &Path, target: LogTarget) -> Result<(), LaunchError> {
    let (stream, level) = match target {
        LogTarget::Broker => ("SYSTEM_OUT", "INFO"),
        LogTarget::Tool => ("SYSTEM_ERR", "WARN"),
    };
    let text = include_str!("../templates/log4j2.xml")
        .replace("@TARGET@", stream)
        .replace("@LEVEL@", level);
    if fs::read_to_string(path).is_ok_and(|existing| existing == text) {
        return Ok(());
    }
    let part = path.with_extension(format!("{}.part", std::process::id()));
    fs::write(&part, text).map_err(LaunchError::io("writing", &part))?;
    fs::rename(&part, path).map_err(LaunchError::io("renaming", &part))
}

/// `$JAVA_HOME/bin/java` where that exists, else `java` on the path.
fn find_java() -> Option<PathBuf> {
    let home = std::env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin").join("java"));
    home.filter(|java| java.is_file())
        .or_else(|| find_program("java"))
}

fn joined(prefix: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(prefix);
    argument.push(path);
    argument
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(full_jit: bool, archive: Archive) -> Vec<String> {
        let jars = Jars::of_dir("4.4.0", Path::new("/c"));
        let runtime = Runtime {
            program: PathBuf::from("java"),
            jars,
            class_path: OsString::from("/c/a.jar"),
        };
        let command = runtime.command(
            &Flags {
                heap: "-Xmx512m".to_owned(),
                full_jit,
                archive,
            },
            Path::new("/l.xml"),
        );
        command
            .get_args()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn fast_start_is_the_default_and_full_jit_leaves_it_out() {
        assert!(arguments(false, Archive::Without).contains(&"-XX:TieredStopAtLevel=1".to_owned()));
        assert_eq!(
            arguments(true, Archive::Without),
            ["-Xmx512m", "-Dlog4j2.configurationFile=/l.xml"]
        );
    }

    #[test]
    fn archive_is_mapped_or_written() {
        let mapped = arguments(false, Archive::Use(PathBuf::from("/c/k.jsa")));
        assert!(mapped.contains(&"-XX:SharedArchiveFile=/c/k.jsa".to_owned()));
        let written = arguments(false, Archive::Write(PathBuf::from("/c/k.jsa")));
        assert!(written.contains(&"-XX:ArchiveClassesAtExit=/c/k.jsa".to_owned()));
    }
}
