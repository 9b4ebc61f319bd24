//! Describing a cluster and starting it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sharegroup_wire::BrokerId;
use sharegroup_wire::net::Address;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::folder::{Folder, FolderError};
use super::limits::ServerLimits;
use super::shared::{Shared, now};
use super::{Broker, listen, tick};
use crate::model::config::{Change, Values, keys};
use crate::model::fault_script::{FaultScript, ScriptError};
use crate::model::topics::check_name;
use crate::model::{Model, ModelConfig};

/// Why a cluster doesn't start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address can't be listened on: another port, or 0 for a free one.
    #[error("broker {broker} can't listen on {address}")]
    Bind {
        /// Which broker.
        broker: BrokerId,
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// A key or a value that Kafka would refuse.
    #[error("configuration: {0}")]
    Config(String),
    /// A topic that Kafka would refuse.
    #[error("topic {name}: {why}")]
    Topic {
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
    /// Faults that this cluster can't have: every line that is wrong.
    #[error("faults: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Faults(Vec<ScriptError>),
    /// The folder for its state can't be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

/// Describes a cluster.
#[derive(Debug, Clone)]
#[must_use]
pub struct BrokerBuilder {
    brokers: i32,
    host: String,
    port: u16,
    listens: bool,
    topics: Vec<(String, i32)>,
    values: Vec<(String, String)>,
    groups: Vec<(String, String, String)>,
    users: BTreeMap<String, String>,
    seed: Option<u64>,
    faults: FaultScript,
    dir: Option<PathBuf>,
    limits: ServerLimits,
}

impl Default for BrokerBuilder {
    fn default() -> Self {
        Self {
            brokers: 1,
            host: "127.0.0.1".to_owned(),
            port: 0,
            listens: true,
            topics: Vec::new(),
            values: Vec::new(),
            groups: Vec::new(),
            users: BTreeMap::new(),
            seed: None,
            faults: FaultScript::default(),
            dir: None,
            limits: ServerLimits::default(),
        }
    }
}

impl BrokerBuilder {
    /// So many brokers, with ids from 1 on. Default 1.
    pub const fn brokers(mut self, count: i32) -> Self {
        self.brokers = count;
        self
    }

    /// Listens on this address, and tells it to clients; an IPv6 address has no brackets. Default 127.0.0.1.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = host.into();
        self
    }

    /// The first broker's port; the others take those behind it. Default 0: free ones.
    pub const fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Doesn't listen at all: only [`Broker::connector`] leads to it. For tests under paused time.
    pub const fn in_memory(mut self) -> Self {
        self.listens = false;
        self
    }

    /// Makes a topic at the start, unless [`dir`](Self::dir) has it already.
    pub fn topic(mut self, name: impl Into<String>, partitions: i32) -> Self {
        self.topics.push((name.into(), partitions));
        self
    }

    /// Sets a broker's configuration key, such as `group.share.min.record.lock.duration.ms`.
    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.values.push((key.into(), value.into()));
        self
    }

    /// Sets a group's configuration key, such as `share.auto.offset.reset`.
    pub fn group(
        mut self,
        group_id: impl Into<String>,
        key: impl Into<String>,
        value: impl Into<String>,
    ) -> Self {
        self.groups
            .push((group_id.into(), key.into(), value.into()));
        self
    }

    /// A user who may authenticate by SASL PLAIN. With any, everybody must.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.users.insert(name.into(), password.into());
        self
    }

    /// Makes ids repeatable. Default: another one each time.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// What is to go wrong from the start on.
    pub fn faults(mut self, script: FaultScript) -> Self {
        self.faults = script;
        self
    }

    /// Keeps everything in this folder, which is made where it isn't there, and goes on from what is in
    /// it. Without, everything is in memory alone.
    ///
    /// Topics with their ids and configurations, batches, producers and transactions, groups with their
    /// share state survive the end of the process, also by `kill -9`: they are written before they are
    /// acknowledged. Members have to join anew, and what they held is available again. As Kafka by
    /// default, the broker doesn't force the disk (`fsync`): when the whole machine goes down, the last
    /// seconds may be lost.
    ///
    /// What the builder says is set again at each start: [`set`](Self::set) and [`group`](Self::group)
    /// win over what was altered at run time. Where the folder can't be written any more, as on a full
    /// disk, requests are refused with KAFKA_STORAGE_ERROR until it can. The same where it was deleted, or
    /// replaced by another, while it was in use: each write is looked for at its path before it is
    /// acknowledged.
    ///
    /// A journal whose last block is torn loses that block, which is kept beside it. One that is damaged
    /// further ahead is [refused](FolderError::Damaged) and left as it is.
    pub fn dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.dir = Some(path.into());
        self
    }

    /// What clients can make it use.
    pub const fn limits(mut self, limits: ServerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Starts the cluster on the current runtime.
    ///
    /// # Errors
    /// [`StartError`]: nothing is left running.
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing running.
    pub async fn start(self) -> Result<Broker, StartError> {
        let mut listeners = Vec::new();
        let mut brokers = BTreeMap::new();
        for id in 1..=self.brokers.max(1) {
            let (broker, offset) = (BrokerId(id), u16::try_from(id - 1).unwrap_or(0));
            if self.listens {
                let port = if self.port == 0 {
                    0
                } else {
                    self.port.saturating_add(offset)
                };
                let (listener, address) = self.bind(broker, port).await?;
                brokers.insert(broker, (self.host.clone(), address.port()));
                listeners.push((broker, listener, address));
            } else {
                brokers.insert(broker, (format!("broker-{id}"), 9092));
            }
        }
        let bootstrap = bootstrap_servers(&brokers);
        let (mut model, folder) = self.model(brokers)?;
        self.faults.check(&model).map_err(StartError::Faults)?;
        model.faults.seed(self.faults.seed);
        model.script(now(), self.faults.rules.into_iter().map(|(_, rule)| rule));
        let shared = Arc::new(Shared::new(model, folder, self.limits));
        let mut tasks = JoinSet::new();
        tasks.spawn(tick(Arc::clone(&shared)));
        let mut addresses = Vec::new();
        for (broker, listener, address) in listeners {
            addresses.push((broker, address));
            tasks.spawn(listen(Arc::clone(&shared), broker, listener));
        }
        Ok(Broker {
            shared,
            addresses,
            bootstrap,
            _tasks: tasks,
        })
    }

    async fn bind(
        &self,
        broker: BrokerId,
        port: u16,
    ) -> Result<(TcpListener, SocketAddr), StartError> {
        let failed = |source| StartError::Bind {
            broker,
            address: Address::new(&self.host, port).to_string(),
            source,
        };
        let listener = TcpListener::bind((self.host.as_str(), port))
            .await
            .map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok((listener, address))
    }

    /// The model, and the folder where it is kept.
    fn model(
        &self,
        brokers: BTreeMap<BrokerId, (String, u16)>,
    ) -> Result<(Model, Option<Folder>), StartError> {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let nanos = u64::try_from(since.as_nanos() & u128::from(u64::MAX)).unwrap_or(1);
        let mut model = Model::new(
            now(),
            ModelConfig {
                brokers,
                unix_ms: i64::try_from(since.as_millis()).unwrap_or(0),
                seed: self.seed.unwrap_or(nanos),
                users: self.users.clone(),
                log_bytes_max: self.limits.log_bytes_max,
            },
        );
        let folder = self.dir.as_ref();
        let mut folder = folder
            .map(|dir| Folder::open(dir, &mut model, now()))
            .transpose()?;
        self.apply(&mut model)?;
        if let Some(folder) = &mut folder {
            folder.begin(&mut model)?;
        }
        Ok((model, folder))
    }

    /// Sets what was asked for.
    fn apply(&self, model: &mut Model) -> Result<(), StartError> {
        for (key, value) in &self.values {
            let changed = model.configs.changed(
                keys::BROKER,
                &model.configs.broker,
                &[(key, Change::Set(value))],
            );
            model.set_broker_values(changed.map_err(StartError::Config)?);
        }
        for (group_id, key, value) in &self.groups {
            let none = Values::new();
            let values = model.configs.groups.get(group_id).unwrap_or(&none);
            let changed = model
                .configs
                .changed(keys::GROUP, values, &[(key, Change::Set(value))]);
            let values = changed.map_err(StartError::Config)?;
            model.set_group_values(group_id, values);
        }
        for (name, partitions) in &self.topics {
            let refused = |why: String| StartError::Topic {
                name: name.clone(),
                why,
            };
            check_name(name).map_err(refused)?;
            if !(1..=10_000).contains(partitions) {
                return Err(refused(format!("{partitions} partitions")));
            }
            if model.topics.named(name).is_none() {
                model.create_topic(name, *partitions, 1);
            }
        }
        Ok(())
    }
}

/// Addresses as clients read them.
fn bootstrap_servers(brokers: &BTreeMap<BrokerId, (String, u16)>) -> String {
    let addresses = brokers
        .values()
        .map(|(host, port)| Address::new(host, *port).to_string());
    addresses.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bootstrap_servers_are_read_back_by_clients() {
        let broker = |id, host: &str, port| (BrokerId(id), (host.to_owned(), port));
        let brokers = BTreeMap::from([broker(1, "::1", 9092), broker(2, "localhost", 9093)]);
        let servers = bootstrap_servers(&brokers);
        assert_eq!(servers, "[::1]:9092,localhost:9093");
        let read = Address::parse_list(&servers).unwrap();
        assert_eq!(
            read,
            [Address::new("::1", 9092), Address::new("localhost", 9093)]
        );
    }
}
