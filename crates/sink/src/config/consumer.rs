//! The settings of a connector's share consumers: worker `consumer.*`, then connector
//! `consumer.override.*` and plain `share.*`, later wins. Security keys of the worker without a
//! prefix come before all of them, since a cluster is rarely secured for some clients only.
//!
//! Its admin client prepares the group and looks at its lag, so that it speaks to the cluster of the
//! consumers, with their settings. Its security keys are its own where it has some: those of the
//! worker without a prefix, then worker `admin.*`, then connector `admin.override.*`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use sharegroup_consumer::client::ClientConfig;

use super::check::{ADMIN_OVERRIDE, OVERRIDE, WORKER_ADMIN, WORKER_CONSUMER};
use super::keys::{SHARE, find, parse_bool};
use super::problem::{self, ConfigProblem};
use super::properties::Properties;
use super::security::{self, SECURITY};
use super::worker::WorkerConfig;

/// How long an acknowledgement is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcknowledgementMode {
    /// The broker's answer to each acknowledgement is awaited before its records count as done.
    #[default]
    Explicit,
    /// Acknowledgements ride on the next fetch and nobody waits for their answers.
    Implicit,
}

/// Where a share group starts reading partitions it has no state for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartPosition {
    /// At the first record: Connect's default, and ours.
    #[default]
    Earliest,
    /// At the end: what is in the topic already is skipped.
    Latest,
    /// At records younger than an ISO-8601 duration (`by_duration:P1DT2H`).
    ByDuration(String),
    /// The group's own setting, or the broker's default, whatever it is.
    Broker,
}

impl StartPosition {
    /// The value of the group's `share.auto.offset.reset`; `None` for [`StartPosition::Broker`].
    #[must_use]
    pub fn group_value(&self) -> Option<String> {
        match self {
            Self::Earliest => Some("earliest".to_owned()),
            Self::Latest => Some("latest".to_owned()),
            Self::ByDuration(duration) => Some(format!("by_duration:{duration}")),
            Self::Broker => None,
        }
    }

    fn parse(value: &str) -> Option<Self> {
        match value.trim().to_ascii_lowercase().as_str() {
            "earliest" => Some(Self::Earliest),
            "latest" => Some(Self::Latest),
            "broker" => Some(Self::Broker),
            lower => {
                let duration = lower.strip_prefix("by_duration:")?.to_ascii_uppercase();
                is_iso_duration(&duration).then_some(Self::ByDuration(duration))
            }
        }
    }
}

/// `P` with days, or with `T` and hours, minutes, seconds: what Java's `Duration` reads, without
/// signs.
fn is_iso_duration(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('P') else {
        return false;
    };
    let (date, time) = rest
        .split_once('T')
        .map_or((rest, None), |(d, t)| (d, Some(t)));
    let parts = |mut text: &str, units: &str| {
        let mut allowed = units.chars();
        while !text.is_empty() {
            let digits = text.len()
                - text
                    .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
                    .len();
            let unit = text[digits..].chars().next();
            if digits == 0 || !unit.is_some_and(|unit| allowed.any(|next| next == unit)) {
                return false;
            }
            text = &text[digits + 1..];
        }
        true
    };
    !(date.is_empty() && time.is_none())
        && parts(date, "D")
        && time.is_none_or(|time| !time.is_empty() && parts(time, "HMS"))
}

/// Settings of the share consumers of one connector, after all layers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumerSettings {
    /// Where the cluster is found, as configured.
    pub bootstrap_servers: String,
    /// The clients' settings; a task's number is appended to the client id.
    pub client: ClientConfig,
    /// The admin client's settings.
    pub admin: ClientConfig,
    /// The share group.
    pub group_id: String,
    /// `client.rack`.
    pub client_rack: Option<String>,
    /// `max.poll.records`: most records in one put.
    pub max_poll_records: usize,
    /// `fetch.min.bytes`.
    pub fetch_min_bytes: Option<i32>,
    /// `fetch.max.bytes`.
    pub fetch_max_bytes: Option<i32>,
    /// `fetch.max.wait.ms`.
    pub fetch_max_wait: Option<Duration>,
    /// `share.acquire.mode`, in lower case; `None` for `auto`.
    pub acquire_mode: Option<String>,
    /// `share.acknowledgement.mode`.
    pub acknowledgement_mode: AcknowledgementMode,
    /// `share.ack.linger.ms`: longest wait of an acknowledgement for company.
    pub acknowledge_linger: Duration,
    /// `share.credit.records`: upper bound of what a task holds.
    pub records_held_max: Option<u32>,
    /// `share.group.prepare`: whether the group's settings are written where nobody has.
    pub prepare: bool,
    /// `share.auto.offset.reset`.
    pub start_position: StartPosition,
    /// Whether a file sets `share.auto.offset.reset`, or the default is meant.
    pub start_position_is_set: bool,
    /// `share.loss.file`: one line per record that was named as lost.
    pub loss_file: Option<PathBuf>,
    /// Every consumer setting of a file that is in force, as `key=value (place)`, for the log.
    pub in_force: Vec<String>,
}

/// A value, and where it was written.
pub(super) struct Setting<'a> {
    pub(super) value: &'a str,
    pub(super) file: &'a Properties,
    pub(super) key: String,
}

/// The layers of one connector's consumer settings.
pub(super) struct Layers<'a> {
    worker: &'a Properties,
    connector: &'a Properties,
}

impl<'a> Layers<'a> {
    pub(super) const SERVERS: &'static str = "bootstrap.servers";

    fn find(&self, name: &str) -> Option<Setting<'a>> {
        self.own(name).or_else(|| {
            let worker = self.of_worker(name)?;
            let overrides = self.connector.with_prefix(OVERRIDE);
            let own = overrides.chain(self.worker.with_prefix(WORKER_CONSUMER));
            security::inherits(name, own.map(|(own, _)| own)).then_some(worker)
        })
    }

    /// What is written for the consumers themselves.
    fn own(&self, name: &str) -> Option<Setting<'a>> {
        let plain = name.starts_with("share.").then(|| name.to_owned());
        plain
            .into_iter()
            .chain([format!("{OVERRIDE}{name}")])
            .find_map(|key| Self::at(self.connector, key))
            .or_else(|| Self::at(self.worker, format!("{WORKER_CONSUMER}{name}")))
    }

    /// A security key of the worker itself. Where the consumers have servers of their own it isn't
    /// theirs: a password must not go to another cluster.
    fn of_worker(&self, name: &str) -> Option<Setting<'a>> {
        let is_shared = self.own(Self::SERVERS).is_none() && find(&[SECURITY], name).is_some();
        is_shared.then(|| Self::at(self.worker, name.to_owned()))?
    }

    /// What the admin client is told.
    fn find_admin(&self, name: &str) -> Option<Setting<'a>> {
        if find(&[SECURITY], name).is_none() {
            return self.find(name);
        }
        let own = Self::at(self.connector, format!("{ADMIN_OVERRIDE}{name}"))
            .or_else(|| Self::at(self.worker, format!("{WORKER_ADMIN}{name}")))
            .or_else(|| self.of_worker(name));
        own.or_else(|| {
            let overrides = self.connector.with_prefix(ADMIN_OVERRIDE);
            let own = overrides.chain(self.worker.with_prefix(WORKER_ADMIN));
            let workers = self.worker.iter().map(|(key, _)| key);
            let workers = workers.filter(|key| self.of_worker(key).is_some());
            security::inherits(name, own.map(|(own, _)| own).chain(workers))
                .then(|| self.find(name))?
        })
    }

    fn at(file: &'a Properties, key: String) -> Option<Setting<'a>> {
        let value = file.get(&key)?.trim();
        Some(Setting { value, file, key })
    }

    fn text(&self, name: &str) -> Option<String> {
        self.find(name)
            .map(|setting| setting.value.to_owned())
            .filter(|value| !value.is_empty())
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.find(name)?.value.parse().ok()
    }

    fn millis(&self, name: &str) -> Option<Duration> {
        self.number(name).map(Duration::from_millis)
    }

    /// Everything that is set, for the log at start.
    fn in_force(&self) -> Vec<String> {
        let worker = self.worker.with_prefix(WORKER_CONSUMER);
        let overrides = self.connector.with_prefix(OVERRIDE);
        let plain = self
            .connector
            .iter()
            .filter(|(key, _)| find(&[SHARE], key).is_some());
        let inherited = self
            .worker
            .iter()
            .filter(|(key, _)| self.of_worker(key).is_some());
        let names: BTreeSet<&str> = worker
            .chain(overrides)
            .chain(plain)
            .chain(inherited)
            .map(|(name, _)| name)
            .collect();
        names
            .into_iter()
            .filter_map(|name| {
                let setting = self.find(name)?;
                let value = if problem::is_secret(name) {
                    problem::HIDDEN.into()
                } else {
                    problem::shown(setting.value)
                };
                let place = setting.file.file().display();
                // Kafka Connect would leave it out.
                let is_inherited = find(&[SECURITY], &setting.key).is_some();
                let whose = if is_inherited {
                    ", the worker's own"
                } else {
                    ""
                };
                Some(format!("{name}={value} ({place}{whose})"))
            })
            .collect()
    }
}

impl ConsumerSettings {
    /// Resolves the settings of a connector; what is wrong goes into `problems`. `None` without
    /// usable servers.
    pub(super) fn resolve(
        name: &str,
        connector: &Properties,
        worker: &WorkerConfig,
        problems: &mut Vec<ConfigProblem>,
    ) -> Option<Self> {
        let layers = Layers {
            worker: worker.properties(),
            connector,
        };
        check_policy(connector, worker, problems);
        check_written_twice(connector, problems);
        check_protocol(&layers, problems);
        let start = layers.find("share.auto.offset.reset");
        let start_position = start.as_ref().and_then(|setting| {
            let position = StartPosition::parse(setting.value);
            if position.is_none() {
                problems.push(setting.file.problem(
                    &setting.key,
                    "must be earliest, latest, broker, or by_duration: and an ISO-8601 duration like P1DT2H",
                ));
            }
            position
        });
        let bootstrap_servers = layers
            .text(Layers::SERVERS)
            .unwrap_or_else(|| worker.bootstrap_servers.clone());
        let base = client(name, &bootstrap_servers, &layers, problems)?;
        let (mut client, mut admin) = (base.clone(), base);
        security::configure(&mut client, |key| layers.find(key), problems);
        security::configure(&mut admin, |key| layers.find_admin(key), problems);
        Some(Self {
            client,
            admin,
            bootstrap_servers,
            group_id: group_id(name, &layers, problems),
            client_rack: layers.text("client.rack"),
            max_poll_records: layers.number("max.poll.records").unwrap_or(500),
            fetch_min_bytes: layers.number("fetch.min.bytes"),
            fetch_max_bytes: layers.number("fetch.max.bytes"),
            fetch_max_wait: layers.millis("fetch.max.wait.ms"),
            acquire_mode: layers
                .text("share.acquire.mode")
                .map(|mode| mode.to_ascii_lowercase())
                .filter(|mode| mode != "auto"),
            acknowledgement_mode: match layers.text("share.acknowledgement.mode") {
                Some(mode) if mode.eq_ignore_ascii_case("implicit") => {
                    AcknowledgementMode::Implicit
                }
                _ => AcknowledgementMode::Explicit,
            },
            acknowledge_linger: layers
                .millis("share.ack.linger.ms")
                .unwrap_or(Duration::from_millis(10)),
            records_held_max: layers.number("share.credit.records"),
            prepare: layers
                .text("share.group.prepare")
                .and_then(|value| parse_bool(&value))
                .unwrap_or(true),
            start_position: start_position.unwrap_or_default(),
            start_position_is_set: start.is_some(),
            loss_file: loss_file(&layers, problems),
            in_force: layers.in_force(),
        })
    }
}

/// The clients' settings before any key: servers, and the name of the connector as the client id.
fn client(
    name: &str,
    bootstrap_servers: &str,
    layers: &Layers<'_>,
    problems: &mut Vec<ConfigProblem>,
) -> Option<ClientConfig> {
    let setting = layers
        .find(Layers::SERVERS)
        .or_else(|| Layers::at(layers.worker, Layers::SERVERS.to_owned()))?;
    let mut client = match ClientConfig::new(bootstrap_servers) {
        Ok(client) => client,
        Err(error) => {
            let problem = setting
                .file
                .problem(&setting.key, format!("is not a list of servers: {error}"))
                .advice("write host:port, several separated by commas");
            if !problems.contains(&problem) {
                problems.push(problem);
            }
            return None;
        }
    };
    client.client_id = Some(format!("connector-consumer-{name}"));
    Some(client)
}

/// The file, unless it is a pipe or a device: where nobody reads, it would hold up the task that fails.
fn loss_file(layers: &Layers<'_>, problems: &mut Vec<ConfigProblem>) -> Option<PathBuf> {
    let setting = layers.find("share.loss.file")?;
    if setting.value.is_empty() {
        return None;
    }
    let path = PathBuf::from(setting.value);
    if std::fs::metadata(&path).is_ok_and(|there| !there.is_file()) {
        let problem = setting.file.problem(&setting.key, "is no regular file");
        problems.push(problem);
    }
    Some(path)
}

fn check_policy(connector: &Properties, worker: &WorkerConfig, problems: &mut Vec<ConfigProblem>) {
    let policy = &worker.override_policy;
    for (prefix, of_worker) in [(OVERRIDE, WORKER_CONSUMER), (ADMIN_OVERRIDE, WORKER_ADMIN)] {
        for (name, _) in connector.with_prefix(prefix) {
            if policy.permits(name) {
                continue;
            }
            let way_out = if name.starts_with("share.") {
                format!("write {name} without the prefix")
            } else {
                format!("set {of_worker}{name} in the worker's file, or change the policy there")
            };
            let refused = format!(
                "is refused by connector.client.config.override.policy={} of the worker",
                policy.name()
            );
            let problem = connector.problem(&format!("{prefix}{name}"), refused);
            problems.push(problem.advice(way_out));
        }
    }
}

/// A `share.` key under both of its names, with different values.
fn check_written_twice(connector: &Properties, problems: &mut Vec<ConfigProblem>) {
    for (name, value) in connector.with_prefix(OVERRIDE) {
        if let Some(plain) = connector.get(name)
            && find(&[SHARE], name).is_some()
            && plain.trim() != value.trim()
        {
            problems.push(
                connector
                    .problem(name, format!("contradicts {OVERRIDE}{name}={value}"))
                    .advice("both mean the same: keep one of them"),
            );
        }
    }
}

fn check_protocol(layers: &Layers<'_>, problems: &mut Vec<ConfigProblem>) {
    let setting = layers.find("group.protocol");
    if setting
        .as_ref()
        .is_some_and(|setting| setting.value.eq_ignore_ascii_case("share"))
    {
        return;
    }
    let advice = format!(
        "set {OVERRIDE}group.protocol=share in this connector's file, or {WORKER_CONSUMER}group.protocol=share in the worker's file for all connectors"
    );
    problems.push(match setting {
        Some(setting) => setting
            .file
            .problem(
                &setting.key,
                "consumer groups aren't supported, only share groups",
            )
            .advice(advice),
        None => layers
            .connector
            .problem(
                &format!("{OVERRIDE}group.protocol"),
                "is not set, which means a consumer group, and only share groups are supported",
            )
            .advice(advice),
    });
}

/// Connector `share.group.id`, then `consumer.override.group.id`, then the worker's, then
/// `connect-<name>`.
fn group_id(name: &str, layers: &Layers<'_>, problems: &mut Vec<ConfigProblem>) -> String {
    let (worker, connector) = (layers.worker, layers.connector);
    let share = Layers::at(connector, "share.group.id".to_owned())
        .or_else(|| Layers::at(connector, format!("{OVERRIDE}share.group.id")));
    let own = pick(
        share,
        Layers::at(connector, format!("{OVERRIDE}group.id")),
        problems,
    );
    if let Some(id) = own {
        return id;
    }
    let for_all = pick(
        Layers::at(worker, format!("{WORKER_CONSUMER}share.group.id")),
        Layers::at(worker, format!("{WORKER_CONSUMER}group.id")),
        problems,
    );
    for_all.unwrap_or_else(|| format!("connect-{name}"))
}

/// One of two settings of the same level: both may be there, but not with different values.
fn pick(
    first: Option<Setting<'_>>,
    second: Option<Setting<'_>>,
    problems: &mut Vec<ConfigProblem>,
) -> Option<String> {
    if let (Some(first), Some(second)) = (&first, &second)
        && first.value != second.value
    {
        let problem = second
            .file
            .problem(
                &second.key,
                format!("contradicts {}={}", first.key, first.value),
            )
            .advice("both name the share group: keep one of them");
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    first
        .or(second)
        .map(|setting| setting.value.to_owned())
        .filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_positions_are_read_as_the_broker_writes_them() {
        assert_eq!(
            StartPosition::parse("Earliest"),
            Some(StartPosition::Earliest)
        );
        assert_eq!(StartPosition::parse("latest"), Some(StartPosition::Latest));
        assert_eq!(StartPosition::parse("broker"), Some(StartPosition::Broker));
        for duration in ["P1D", "PT1H", "P1DT2H3M4.5S", "PT30S"] {
            let text = format!("by_duration:{duration}");
            assert_eq!(
                StartPosition::parse(&text).and_then(|position| position.group_value()),
                Some(text)
            );
        }
        for wrong in [
            "",
            "none",
            "by_duration:",
            "by_duration:P",
            "by_duration:PT",
            "by_duration:1D",
            "by_duration:P1H",
        ] {
            assert_eq!(StartPosition::parse(wrong), None, "{wrong}");
        }
    }
}
