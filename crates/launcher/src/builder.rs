//! What to start.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::broker::{Broker, Files, Setup};
use crate::cluster::Folder;
use crate::java::{Archive, Flags, LogTarget, Runtime, write_log_config};
use crate::process::text_of;
use crate::properties::{Node, render};
use crate::{DEFAULT_VERSION, Kafka, LaunchError, Tools, archive, cluster, ports};

/// Beside other JVMs on a small machine a start can take half a minute.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

/// How often other ports are tried when somebody took a chosen one before the broker did.
const PORT_ATTEMPTS_MAX: usize = 3;

/// Describes the Kafka to start. Made by [`Kafka::builder`].
#[derive(Debug, Clone)]
pub struct KafkaBuilder {
    version: String,
    brokers: u16,
    port: Option<u16>,
    settings: Vec<(String, String)>,
    data_dir: Option<PathBuf>,
    release_version: Option<String>,
    features: Vec<(String, u16)>,
    full_jit: bool,
    startup_timeout: Duration,
}

impl KafkaBuilder {
    pub(crate) fn new() -> Self {
        Self {
            version: DEFAULT_VERSION.to_owned(),
            brokers: 1,
            port: None,
            settings: Vec::new(),
            data_dir: None,
            release_version: None,
            features: Vec::new(),
            full_jit: false,
            startup_timeout: STARTUP_TIMEOUT,
        }
    }

    /// The Kafka version, as on Maven Central. Default: [`DEFAULT_VERSION`].
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// How many brokers, 1 (the default) or 3. Each is a controller too; topics get that many replicas.
    #[must_use]
    pub const fn brokers(mut self, brokers: u16) -> Self {
        self.brokers = brokers;
        self
    }

    /// The port of the first broker on 127.0.0.1; the others take the next ones. Default `None`: free ports.
    #[must_use]
    pub fn port(mut self, port: impl Into<Option<u16>>) -> Self {
        self.port = port.into();
        self
    }

    /// A broker setting, over our own and Kafka's defaults.
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((key.into(), value.into()));
        self
    }

    /// The folder that keeps the data, created when missing, and stays. Default `None`: a temporary one that goes away
    /// with the [`Kafka`]. A folder of an earlier run is used as it is.
    #[must_use]
    pub fn data_dir(mut self, data_dir: impl Into<Option<PathBuf>>) -> Self {
        self.data_dir = data_dir.into();
        self
    }

    /// Formats new data with the features of this release, for example `4.1-IV1`, instead of the version's own.
    #[must_use]
    pub fn release_version(mut self, release_version: impl Into<String>) -> Self {
        self.release_version = Some(release_version.into());
        self
    }

    /// Formats new data with this level of a feature, for example `share.version` 0 (share groups off).
    ///
    /// Share groups are on by default: on Kafka 4.1, where they are not by themselves, this crate adds `share.version`
    /// 1 when neither a feature nor a release version is given.
    #[must_use]
    pub fn feature(mut self, name: impl Into<String>, level: u16) -> Self {
        self.features.push((name.into(), level));
        self
    }

    /// Both compilers, the default garbage collector and 1 GiB of heap, for benches. Default: a fast start with the
    /// first compiler, the serial collector and 512 MiB.
    #[must_use]
    pub const fn full_jit(mut self, full_jit: bool) -> Self {
        self.full_jit = full_jit;
        self
    }

    /// How long a broker may take to get ready. Default: 60 s.
    #[must_use]
    pub const fn startup_timeout(mut self, startup_timeout: Duration) -> Self {
        self.startup_timeout = startup_timeout;
        self
    }

    /// Starts the brokers and waits until all are ready. The first start of a version fetches its jars.
    ///
    /// # Errors
    /// [`LaunchError::JavaMissing`] and [`LaunchError::MavenMissing`] when this machine lacks something,
    /// [`LaunchError::Invalid`] for what can't be, [`LaunchError::PortTaken`] for a port that was asked for,
    /// [`LaunchError::Fetch`], [`LaunchError::Format`], [`LaunchError::Exited`] and [`LaunchError::NotReady`] with the
    /// output that tells why.
    pub fn start(self) -> Result<Kafka, LaunchError> {
        self.check()?;
        let runtime = Runtime::find(&self.version)?;
        let archive = archive::ensure(&runtime);
        self.start_with(&runtime, &archive)
    }

    /// As [`start`](Self::start), for tests: `Ok(None)` where this machine has no Java or Maven, with a line that
    /// begins `SKIPPED:` on standard error (not captured by the test harness). With `CI=true` that is an error.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_or_skip(self) -> Result<Option<Kafka>, LaunchError> {
        match self.start() {
            Err(error)
                if error.is_missing_requirement()
                    && std::env::var_os("CI").is_none_or(|ci| ci != "true") =>
            {
                let test = thread::current().name().unwrap_or("a test").to_owned();
                drop(writeln!(
                    std::io::stderr(),
                    "SKIPPED: {test} needs a real Kafka: {error}"
                ));
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    pub(crate) fn start_with(
        self,
        runtime: &Runtime,
        archive: &Archive,
    ) -> Result<Kafka, LaunchError> {
        for _ in 1..PORT_ATTEMPTS_MAX {
            match self.attempt(runtime, archive) {
                Err(LaunchError::Exited { log_tail, .. })
                    if self.port.is_none() && is_port_clash(&log_tail) => {}
                other => return other,
            }
        }
        self.attempt(runtime, archive)
    }

    fn check(&self) -> Result<(), LaunchError> {
        let invalid = |setting, reason: &str| {
            Err(LaunchError::Invalid {
                setting,
                reason: reason.to_owned(),
            })
        };
        if self.brokers != 1 && self.brokers != 3 {
            return invalid("brokers", "one or three can be started");
        }
        let Some(port) = self.port else { return Ok(()) };
        if port == 0 || port.checked_add(self.brokers - 1).is_none() {
            return invalid("port", "not a port a broker can listen on");
        }
        let mut wanted = port..=port + (self.brokers - 1);
        wanted
            .find(|&port| !ports::is_free(port))
            .map_or(Ok(()), |port| Err(LaunchError::PortTaken { port }))
    }

    fn attempt(&self, runtime: &Runtime, archive: &Archive) -> Result<Kafka, LaunchError> {
        let folder = Folder::open(self.data_dir.as_deref())?;
        let cluster_id = cluster::cluster_id(folder.path())?;
        let nodes = self.nodes(folder.path())?;
        let tools = Tools::new(runtime.clone())?;
        let heap = if self.full_jit { "-Xmx1g" } else { "-Xmx512m" }.to_owned();
        let flags = Flags {
            heap,
            full_jit: self.full_jit,
            archive: archive.clone(),
        };
        let mut brokers = Vec::new();
        for node in &nodes {
            brokers.push(Broker::new(Setup {
                node_id: node.node_id,
                port: node.port,
                cluster_id: cluster_id.clone(),
                runtime: runtime.clone(),
                flags: flags.clone(),
                files: self.write_files(node, &nodes)?,
                startup_timeout: self.startup_timeout,
                temporary: folder.temporary().map(Path::to_path_buf),
            }));
        }
        let kafka = Kafka::new(brokers, tools, folder);
        self.format(&kafka, &nodes, &cluster_id)?;
        kafka.start_all()?;
        Ok(kafka)
    }

    fn nodes(&self, dir: &Path) -> Result<Vec<Node>, LaunchError> {
        let count = usize::from(self.brokers);
        let mut ports: Vec<u16> = self.port.map_or_else(Vec::new, |port| {
            (port..=port + (self.brokers - 1)).collect()
        });
        let chosen = ports::choose(2 * count - ports.len(), &ports)?;
        ports.extend(chosen);
        let nodes = (1..).zip(ports.iter().zip(&ports[count..]));
        Ok(nodes
            .map(|(node_id, (&port, &controller_port))| {
                let data = dir.join(format!("node{node_id}")).join("data");
                Node {
                    node_id,
                    port,
                    controller_port,
                    data,
                }
            })
            .collect())
    }

    fn write_files(&self, node: &Node, nodes: &[Node]) -> Result<Files, LaunchError> {
        let dir = node.data.parent().unwrap_or(&node.data);
        fs::create_dir_all(dir).map_err(LaunchError::io("creating", dir))?;
        let files = Files {
            properties: dir.join("server.properties"),
            log_config: dir.join("log4j2.xml"),
            log: dir.join("broker.log"),
        };
        let text = render(node, nodes, &self.settings);
        fs::write(&files.properties, text)
            .map_err(LaunchError::io("writing", &files.properties))?;
        write_log_config(&files.log_config, LogTarget::Broker)?;
        Ok(files)
    }

    /// Formats the data folders that are not formatted yet, all at the same time.
    fn format(&self, kafka: &Kafka, nodes: &[Node], cluster_id: &str) -> Result<(), LaunchError> {
        let features = self.format_arguments();
        let format_one = |broker: &Broker| {
            let mut arguments = vec!["format".into(), "-t".into(), cluster_id.into(), "-c".into()];
            arguments.push(broker.properties().as_os_str().to_owned());
            arguments.extend(features.iter().map(Into::into));
            let output = kafka.tools().run("kafka.tools.StorageTool", &arguments)?;
            if output.status.success() {
                return Ok(());
            }
            Err(LaunchError::Format {
                node_id: broker.node_id(),
                output: text_of(&output),
            })
        };
        thread::scope(|scope| {
            let new = nodes
                .iter()
                .zip(kafka.brokers())
                .filter(|(node, _)| !node.data.join("meta.properties").exists());
            let running: Vec<_> = new
                .map(|(_, broker)| scope.spawn(|| format_one(broker)))
                .collect();
            running
                .into_iter()
                .try_for_each(|thread| match thread.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
        })
    }

    fn format_arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        if let Some(release) = &self.release_version {
            arguments.extend(["--release-version".to_owned(), release.clone()]);
        }
        let mut features = self.features.clone();
        if self.version.starts_with("4.1.") && features.is_empty() && self.release_version.is_none()
        {
            features.push(("share.version".to_owned(), 1));
        }
        for (name, level) in features {
            arguments.extend(["--feature".to_owned(), format!("{name}={level}")]);
        }
        arguments
    }
}

fn is_port_clash(log: &str) -> bool {
    log.contains("Address already in use") || log.contains("BindException")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_groups_are_turned_on_where_they_are_off_by_default() {
        let of = |builder: KafkaBuilder| builder.format_arguments().join(" ");
        assert_eq!(of(Kafka::builder()), "");
        assert_eq!(
            of(Kafka::builder().version("4.1.2")),
            "--feature share.version=1"
        );
        assert_eq!(
            of(Kafka::builder()
                .version("4.1.2")
                .feature("share.version", 0)),
            "--feature share.version=0"
        );
        assert_eq!(
            of(Kafka::builder().version("4.1.2").release_version("4.1-IV1")),
            "--release-version 4.1-IV1"
        );
    }

    #[test]
    fn impossible_cluster_is_refused_before_anything_starts() {
        let refused =
            |builder: KafkaBuilder| matches!(builder.check(), Err(LaunchError::Invalid { .. }));
        assert!(refused(Kafka::builder().brokers(2)));
        assert!(refused(Kafka::builder().port(0)));
        assert!(refused(Kafka::builder().brokers(3).port(u16::MAX)));
    }

    #[test]
    fn asked_for_port_in_use_is_named() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let taken = listener.local_addr().unwrap().port();
        let error = Kafka::builder().port(taken).check().unwrap_err();
        assert!(matches!(error, LaunchError::PortTaken { port } if port == taken));
    }

    #[test]
    fn nodes_take_ports_in_a_row_and_controllers_others() {
        let port = ports::choose(1, &[]).unwrap()[0];
        let nodes = Kafka::builder()
            .brokers(3)
            .port(port)
            .nodes(Path::new("/d"))
            .unwrap();
        assert_eq!(
            nodes.iter().map(|node| node.port).collect::<Vec<_>>(),
            [port, port + 1, port + 2]
        );
        assert!(
            nodes
                .iter()
                .all(|node| !(port..port + 3).contains(&node.controller_port))
        );
        assert_eq!(nodes[2].data, Path::new("/d/node3/data"));
    }
}
