//! Brokers that outlive the process that started them.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use crate::LaunchError;
use crate::broker::STOP_TIMEOUT;
use crate::process::{POLL_INTERVAL, command_line, send_signal};

/// Brokers that run on by themselves: plain data, to be written down and used by another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detached {
    /// The Kafka version.
    pub version: String,
    /// `host:port` of all brokers, joined by commas.
    pub bootstrap_servers: String,
    /// The processes.
    pub brokers: Vec<DetachedBroker>,
    /// The folder that [`stop`](Self::stop) removes, where the data was meant to go away.
    pub temporary_dir: Option<PathBuf>,
}

/// One broker that runs on by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachedBroker {
    /// The process id at the time of writing. It counts only while that process was started with `properties`.
    pub pid: u32,
    /// The broker's `server.properties`.
    pub properties: PathBuf,
}

impl Detached {
    /// How many of the brokers still run.
    #[must_use]
    pub fn running_count(&self) -> usize {
        self.brokers
            .iter()
            .filter(|broker| broker.is_running())
            .count()
    }

    /// Stops the brokers in order, kills those that still run after ten seconds, and removes the temporary folder.
    ///
    /// # Errors
    /// [`LaunchError::Io`] when a process can't be signalled or the folder can't be removed.
    pub fn stop(&self) -> Result<(), LaunchError> {
        self.signal("TERM")?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        while self.running_count() > 0 && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        self.signal("KILL")?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        while self.running_count() > 0 && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        match &self.temporary_dir {
            Some(dir) if dir.exists() => {
                fs::remove_dir_all(dir).map_err(LaunchError::io("removing", dir))
            }
            _ => Ok(()),
        }
    }

    fn signal(&self, signal: &str) -> Result<(), LaunchError> {
        for broker in self.brokers.iter().filter(|broker| broker.is_running()) {
            match send_signal(broker.pid, signal) {
                Err(error) if broker.is_running() => {
                    return Err(LaunchError::io("signalling", Path::new("java"))(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl DetachedBroker {
    /// Whether the process runs and is this broker: process ids are used again.
    #[must_use]
    pub fn is_running(&self) -> bool {
        command_line(self.pid)
            .is_some_and(|line| line.ends_with(&*self.properties.to_string_lossy()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_process_is_never_taken_for_a_broker() {
        let broker = DetachedBroker {
            pid: std::process::id(),
            properties: PathBuf::from("/none/server.properties"),
        };
        assert!(!broker.is_running());
        let detached = Detached {
            version: "4.4.0".to_owned(),
            bootstrap_servers: "127.0.0.1:1".to_owned(),
            brokers: vec![broker],
            temporary_dir: None,
        };
        detached.stop().unwrap();
        assert_eq!(detached.running_count(), 0);
    }
}
