//! A running Kafka: its brokers, its tools and its folder.

use std::ffi::OsStr;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use crate::broker::STOP_TIMEOUT;
use crate::{Broker, Detached, DetachedBroker, KafkaBuilder, LaunchError, Tools};

/// A Kafka cluster on this machine. Dropping it ends its brokers and removes its temporary folder.
#[derive(Debug)]
pub struct Kafka {
    // Dropped in this order: no broker writes any more when the folder is removed.
    brokers: Vec<Broker>,
    tools: Tools,
    folder: Folder,
}

impl Kafka {
    /// Describes a new Kafka: one broker of [`DEFAULT_VERSION`](crate::DEFAULT_VERSION) on a free port, unless changed.
    #[must_use]
    pub fn builder() -> KafkaBuilder {
        KafkaBuilder::new()
    }

    pub(crate) const fn new(brokers: Vec<Broker>, tools: Tools, folder: Folder) -> Self {
        Self {
            brokers,
            tools,
            folder,
        }
    }

    /// `host:port` of all brokers, joined by commas.
    #[must_use]
    pub fn bootstrap_servers(&self) -> String {
        self.brokers
            .iter()
            .map(Broker::address)
            .collect::<Vec<_>>()
            .join(",")
    }

    /// The broker with this node id; ids start at 1.
    ///
    /// # Panics
    /// When there is no such broker.
    #[must_use]
    #[expect(
        clippy::panic,
        reason = "a wrong node id is a mistake in the calling test"
    )]
    pub fn broker(&self, node_id: i32) -> &Broker {
        let found = self
            .brokers
            .iter()
            .find(|broker| broker.node_id() == node_id);
        found.unwrap_or_else(|| panic!("no broker {node_id} among {}", self.brokers.len()))
    }

    /// All brokers, by node id.
    #[must_use]
    pub fn brokers(&self) -> &[Broker] {
        &self.brokers
    }

    /// The Kafka version.
    #[must_use]
    pub fn version(&self) -> &str {
        self.tools.version()
    }

    /// The folder with `node1`, `node2`, …: properties, log and data of each broker.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// The command line tools of the same version.
    #[must_use]
    pub const fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Runs one of Kafka's tools to its end; see [`Tools::run`]. `--bootstrap-server` is the caller's to give.
    ///
    /// # Errors
    /// As [`Tools::run`].
    pub fn tool<I, S>(&self, class: &str, args: I) -> Result<Output, LaunchError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.tools.run(class, args)
    }

    /// The command for a tool that runs on; see [`Tools::command`].
    #[must_use]
    pub fn tool_command<I, S>(&self, class: &str, args: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.tools.command(class, args)
    }

    /// Stops all brokers in order, at the same time, and kills those that still run after ten seconds.
    ///
    /// # Errors
    /// The first broker that could not be ended.
    pub fn stop(&self) -> Result<(), LaunchError> {
        let running: Vec<_> = self
            .brokers
            .iter()
            .filter(|broker| broker.is_running())
            .collect();
        for broker in &running {
            match broker.request_stop() {
                // It ended by itself meanwhile.
                Err(LaunchError::NotRunning { .. }) => {}
                other => other?,
            }
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        running
            .iter()
            .try_for_each(|broker| broker.await_stop(deadline))
    }

    /// Leaves the brokers running after this process. What is returned can stop them, here or in another process.
    #[must_use]
    pub fn detach(mut self) -> Detached {
        let brokers = self.brokers.iter().filter_map(|broker| {
            Some(DetachedBroker {
                pid: broker.release()?,
                properties: broker.properties().to_path_buf(),
            })
        });
        Detached {
            version: self.version().to_owned(),
            bootstrap_servers: self.bootstrap_servers(),
            brokers: brokers.collect(),
            temporary_dir: self.folder.keep(),
        }
    }

    pub(crate) fn start_all(&self) -> Result<(), LaunchError> {
        self.brokers.iter().try_for_each(Broker::spawn)?;
        let node_ids: Vec<_> = self.brokers.iter().map(Broker::node_id).collect();
        self.brokers
            .iter()
            .try_for_each(|broker| broker.wait_for_live(&node_ids))
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        // Data that stays deserves an orderly end; the rest is killed by the brokers' own drop.
        if self.folder.temporary().is_none()
            && let Err(error) = self.stop()
        {
            tracing::warn!(error = %error, "A broker did not stop.");
        }
    }
}

/// The folder of a cluster; a temporary one is removed when dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    is_temporary: bool,
}

impl Folder {
    /// Opens the given folder, or makes a temporary one.
    pub(crate) fn open(given: Option<&Path>) -> Result<Self, LaunchError> {
        if let Some(path) = given {
            fs::create_dir_all(path).map_err(LaunchError::io("creating", path))?;
            let path = fs::canonicalize(path).map_err(LaunchError::io("opening", path))?;
            return Ok(Self {
                path,
                is_temporary: false,
            });
        }
        let path = std::env::temp_dir().join(format!("sharegroup-kafka-{}", random_hex()));
        // Fails where the folder exists: what is removed later must be ours.
        fs::create_dir(&path).map_err(LaunchError::io("creating", &path))?;
        Ok(Self {
            path,
            is_temporary: true,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn temporary(&self) -> Option<&Path> {
        self.is_temporary.then_some(self.path.as_path())
    }

    /// Keeps a temporary folder; returns it, since somebody else has to remove it now.
    fn keep(&mut self) -> Option<PathBuf> {
        let temporary = self.temporary().map(Path::to_path_buf);
        self.is_temporary = false;
        temporary
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_temporary
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(dir = %self.path.display(), error = %error, "Could not remove a temporary folder.");
        }
    }
}

/// The cluster id kept in the folder; a new one for a new folder.
pub(crate) fn cluster_id(dir: &Path) -> Result<String, LaunchError> {
    let file = dir.join("cluster.id");
    if file.exists() {
        let id = fs::read_to_string(&file).map_err(LaunchError::io("reading", &file))?;
        return Ok(id.trim().to_owned());
    }
    let id = base64_url(random_u128());
    fs::write(&file, &id).map_err(LaunchError::io("writing", &file))?;
    Ok(id)
}

/// Kafka writes a UUID as 22 characters of URL-safe base64 without padding.
fn base64_url(mut bits: u128) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    // 128 bits and 4 zero bits of padding at the end.
    let mut digits = vec![ALPHABET[usize::from(bits.to_le_bytes()[0] & 3) << 4]];
    bits >>= 2;
    for _ in 1..22 {
        digits.push(ALPHABET[usize::from(bits.to_le_bytes()[0] & 63)]);
        bits >>= 6;
    }
    digits
        .iter()
        .rev()
        .map(|&digit| char::from(digit))
        .collect()
}

fn random_u128() -> u128 {
    // Keys from the system's random source, made anew for each state.
    let random = || u128::from(RandomState::new().hash_one(std::process::id()));
    // The first bit is cleared: an id that began with a minus sign would look like an option to the tools.
    ((random() << 64) | random()) >> 1
}

fn random_hex() -> String {
    format!("{:016x}", random_u128() >> 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_id_is_base64_of_sixteen_bytes() {
        assert_eq!(base64_url(0), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(base64_url(u128::MAX), "_____________________w");
        assert_eq!(
            base64_url(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
            "AQIDBAUGBwgJCgsMDQ4PEA"
        );
    }

    #[test]
    fn folder_keeps_its_cluster_id() {
        let folder = Folder::open(None).unwrap();
        let first = cluster_id(folder.path()).unwrap();
        assert_eq!(first.len(), 22);
        assert_eq!(cluster_id(folder.path()).unwrap(), first);
    }

    #[test]
    fn temporary_folder_is_removed_and_a_given_one_stays() {
        let temporary = Folder::open(None).unwrap();
        let path = temporary.path().to_path_buf();
        let given = path.join("given");
        drop(Folder::open(Some(&given)).unwrap());
        assert!(given.is_dir());
        drop(temporary);
        assert!(!path.exists());
    }
}
