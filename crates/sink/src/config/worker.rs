//! The worker file.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::check;
use super::keys::WORKER;
use super::listeners::Listeners;
use super::problem::ConfigProblem;
use super::properties::Properties;
use super::read::Reader;

/// Settings of a worker.
#[derive(Clone)]
#[non_exhaustive]
pub struct WorkerConfig {
    /// `bootstrap.servers`: where the cluster is found, `host:port` separated by commas.
    pub bootstrap_servers: String,
    /// `offset.flush.interval.ms`: longest time between two flushes of a task. Default 1 min.
    pub flush_interval: Duration,
    /// `offset.flush.timeout.ms`: longest time of a flush. Default 5 s.
    pub flush_timeout: Duration,
    /// `task.shutdown.graceful.timeout.ms`: the budget for stopping all tasks. Default 5 s.
    pub shutdown_timeout: Duration,
    /// `connector.client.config.override.policy`: which consumer settings a connector may override.
    pub override_policy: OverridePolicy,
    /// `listeners`: where metrics and health are served. Default 127.0.0.1:8083.
    pub listeners: Listeners,
    properties: Properties,
}

/// Without values that are secrets.
impl fmt::Debug for WorkerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerConfig")
            .field("bootstrap_servers", &self.properties.shown(SERVERS))
            .field("flush_interval", &self.flush_interval)
            .field("flush_timeout", &self.flush_timeout)
            .field("shutdown_timeout", &self.shutdown_timeout)
            .field("override_policy", &self.override_policy)
            .finish_non_exhaustive()
    }
}

/// Which `consumer.override.`, `producer.override.` and `admin.override.` keys a connector may set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OverridePolicy {
    /// All: Connect's default.
    All,
    /// Those that say who the client is: `sasl.jaas.config`, `sasl.mechanism`, `security.protocol`.
    Principal,
    /// Those in `connector.client.config.override.allowlist`.
    Allowlist(BTreeSet<String>),
    /// None.
    None,
}

impl OverridePolicy {
    /// The policy's name, as written in the worker file.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::All => "All",
            Self::Principal => "Principal",
            Self::Allowlist(_) => "Allowlist",
            Self::None => "None",
        }
    }

    /// Whether a connector may set `consumer.override.<key>` and so on.
    #[must_use]
    pub fn permits(&self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Principal => {
                ["sasl.jaas.config", "sasl.mechanism", "security.protocol"].contains(&key)
            }
            Self::Allowlist(keys) => keys.contains(key),
        }
    }

    fn parse(file: &Properties, problems: &mut Vec<ConfigProblem>) -> Self {
        let values = Reader::new(&[WORKER], |key: &str| file.get(key));
        let value = values.text(POLICY).unwrap_or_default();
        let short = value.rsplit('.').next().unwrap_or(value);
        let short = short
            .strip_suffix("ConnectorClientConfigOverridePolicy")
            .unwrap_or(short);
        match short.to_ascii_lowercase().as_str() {
            "all" => Self::All,
            "principal" => Self::Principal,
            "none" => Self::None,
            "allowlist" => Self::Allowlist(values.list(ALLOWLIST).map(str::to_owned).collect()),
            _ => {
                problems
                    .push(file.problem(POLICY, "must be one of All, Principal, Allowlist, None"));
                Self::All
            }
        }
    }
}

impl WorkerConfig {
    /// Reads the settings; what is wrong goes into `problems` and the default is taken.
    pub(super) fn parse(
        properties: Properties,
        strict: bool,
        problems: &mut Vec<ConfigProblem>,
    ) -> Self {
        check::worker_keys(&properties, strict, problems);
        if properties.get(SERVERS).is_none() {
            problems.push(
                properties
                    .problem(SERVERS, "must be set")
                    .advice("for example bootstrap.servers=localhost:9092"),
            );
        }
        let values = Reader::new(&[WORKER], |key: &str| properties.get(key));
        Self {
            bootstrap_servers: values.owned(SERVERS).unwrap_or_default(),
            flush_interval: values.millis("offset.flush.interval.ms"),
            flush_timeout: values.millis("offset.flush.timeout.ms"),
            shutdown_timeout: values.millis("task.shutdown.graceful.timeout.ms"),
            override_policy: OverridePolicy::parse(&properties, problems),
            listeners: Listeners::parse(&properties, problems),
            properties,
        }
    }

    /// Keys whose values differ from those of another file, be it only because a provider says so; sorted.
    #[must_use]
    pub fn changed_keys(&self, other: &Self) -> Vec<String> {
        self.properties.changed_keys(&other.properties)
    }

    /// The value of a key as it is in the file.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.properties.get(key)
    }

    pub(super) const fn properties(&self) -> &Properties {
        &self.properties
    }
}

const SERVERS: &str = "bootstrap.servers";
const POLICY: &str = "connector.client.config.override.policy";
const ALLOWLIST: &str = "connector.client.config.override.allowlist";
