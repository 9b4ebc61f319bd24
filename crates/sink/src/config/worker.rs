//! The worker file.

use std::collections::BTreeSet;
use std::time::Duration;

use super::check;
use super::problem::ConfigProblem;
use super::properties::Properties;

/// Settings of a worker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerConfig {
    /// `bootstrap.servers`: where the cluster is found, `host:port` separated by commas.
    pub bootstrap_servers: String,
    /// `offset.flush.interval.ms`: longest time between two flushes of a task.
    pub flush_interval: Duration,
    /// `task.shutdown.graceful.timeout.ms`: the budget for stopping all tasks.
    pub shutdown_timeout: Duration,
    /// `connector.client.config.override.policy`: which consumer settings a connector may override.
    pub override_policy: OverridePolicy,
    properties: Properties,
}

/// Which `consumer.override.` keys a connector may set.
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

    /// Whether a connector may set `consumer.override.<key>`.
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
        let Some(value) = file.get(POLICY) else {
            return Self::All;
        };
        let short = value.rsplit('.').next().unwrap_or(value);
        let short = short
            .strip_suffix("ConnectorClientConfigOverridePolicy")
            .unwrap_or(short);
        match short.to_ascii_lowercase().as_str() {
            "all" => Self::All,
            "principal" => Self::Principal,
            "none" => Self::None,
            "allowlist" => Self::Allowlist(
                list(
                    file.get("connector.client.config.override.allowlist")
                        .unwrap_or(""),
                )
                .map(str::to_owned)
                .collect(),
            ),
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
        let bootstrap = "bootstrap.servers";
        if properties.get(bootstrap).is_none() {
            problems.push(
                properties
                    .problem(bootstrap, "must be set")
                    .advice("for example bootstrap.servers=localhost:9092"),
            );
        }
        let millis = |key: &str, default: u64| {
            let value = properties
                .get(key)
                .and_then(|value| value.trim().parse().ok());
            Duration::from_millis(value.unwrap_or(default))
        };
        Self {
            bootstrap_servers: properties.get(bootstrap).unwrap_or("").trim().to_owned(),
            flush_interval: millis("offset.flush.interval.ms", 60_000),
            shutdown_timeout: millis("task.shutdown.graceful.timeout.ms", 5_000),
            override_policy: OverridePolicy::parse(&properties, problems),
            properties,
        }
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

/// The items of a list, without blanks around them and without empty ones.
pub(super) fn list(value: &str) -> impl Iterator<Item = &str> {
    value
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

const POLICY: &str = "connector.client.config.override.policy";
