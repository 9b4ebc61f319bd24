//! The settings of a connector's share consumers, after all layers.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sharegroup_consumer::client::ClientConfig;
use sharegroup_wire::duration::from_iso;

use super::STAND_IN;
use super::keys::{SHARE, find};
use super::layers::{CLIENTS, CONSUMERS, Layers, Setting};
use super::problem::ConfigProblem;
use super::properties::Properties;
use super::read::Reader;
use super::security;
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
                from_iso(&duration).map(|_| Self::ByDuration(duration))
            }
        }
    }
}

/// Settings of the share consumers of one connector, after all layers.
#[derive(Clone)]
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
    /// `max.poll.records`: most records in one put. Default 500.
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
    /// `share.credit.records`: most records that a task holds. Default what fits measured work.
    pub records_held_max: Option<u32>,
    /// `share.credit.bytes`: most bytes of records that a task holds. Default 32 MiB.
    pub bytes_held_max: u32,
    /// `share.group.prepare`: whether the group's settings are written where nobody has.
    pub prepare: bool,
    /// `share.auto.offset.reset`.
    pub start_position: StartPosition,
    /// Whether a file sets `share.auto.offset.reset`, or the default is meant.
    pub start_position_is_set: bool,
    /// `share.start.from.group`: the consumer group at whose committed offsets the share group begins.
    pub start_from_group: Option<String>,
    /// `share.loss.file`: one line per record that was named as lost.
    pub loss_file: Option<PathBuf>,
    /// Every consumer setting of a file that is in force, as `key=value (place)`, for the log.
    pub in_force: Vec<String>,
}

/// What is in force, without secrets.
impl fmt::Debug for ConsumerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerSettings")
            .field("in_force", &self.in_force)
            .finish_non_exhaustive()
    }
}

impl ConsumerSettings {
    /// Resolves the settings of a connector; what is wrong goes into `problems`.
    pub(super) fn resolve(
        name: &str,
        connector: &Properties,
        worker: &WorkerConfig,
        problems: &mut Vec<ConfigProblem>,
    ) -> Option<Self> {
        let layers = Layers {
            worker: worker.properties(),
            connector,
            client: &CONSUMERS,
        };
        check_policy(connector, worker, problems);
        check_written_twice(connector, problems);
        check_protocol(&layers, problems);
        let bootstrap_servers = layers.servers().map(|setting| setting.value.to_owned());
        let base = client(&format!("connector-consumer-{name}"), &layers, problems)?;
        let (mut client, mut admin) = (base.clone(), base);
        security::configure(&mut client, |key| layers.find(key), problems);
        security::configure(&mut admin, |key| layers.find_admin(key), problems);
        let values = Reader::new(CONSUMERS.tables, |key: &str| layers.value(key));
        let fetch_max_wait_ms = values.number("fetch.max.wait.ms");
        Some(Self {
            client,
            admin,
            bootstrap_servers: bootstrap_servers.unwrap_or_default(),
            group_id: group_id(name, &layers, problems),
            client_rack: values.owned("client.rack"),
            max_poll_records: values.count("max.poll.records"),
            fetch_min_bytes: values.number("fetch.min.bytes"),
            fetch_max_bytes: values.number("fetch.max.bytes"),
            fetch_max_wait: fetch_max_wait_ms.map(Duration::from_millis),
            acquire_mode: values
                .text("share.acquire.mode")
                .map(str::to_ascii_lowercase)
                .filter(|mode| mode != "auto"),
            acknowledgement_mode: if values.is("share.acknowledgement.mode", "implicit") {
                AcknowledgementMode::Implicit
            } else {
                AcknowledgementMode::Explicit
            },
            acknowledge_linger: values.millis("share.ack.linger.ms"),
            records_held_max: values.number("share.credit.records"),
            bytes_held_max: values.count("share.credit.bytes"),
            prepare: values.flag("share.group.prepare"),
            start_position: start_position(&layers, problems),
            start_position_is_set: layers.find(START).is_some(),
            start_from_group: values.owned("share.start.from.group"),
            loss_file: loss_file(&layers, problems),
            in_force: layers.in_force(),
        })
    }
}

const OVERRIDE: &str = CONSUMERS.overrides;
const FOR_ALL: &str = CONSUMERS.of_worker;
const START: &str = "share.auto.offset.reset";

fn start_position(layers: &Layers<'_>, problems: &mut Vec<ConfigProblem>) -> StartPosition {
    let Some(setting) = layers.find(START) else {
        return StartPosition::default();
    };
    StartPosition::parse(setting.value).unwrap_or_else(|| {
        problems.push(setting.file.problem(
            &setting.key,
            "must be earliest, latest, broker, or by_duration: and an ISO-8601 duration like P1DT2H",
        ));
        StartPosition::default()
    })
}

/// A client's settings before any key: servers, and its id. Where the servers are wrong or missing, which is in
/// `problems` then, others stand in for them, so that everything else is looked at, too.
pub(super) fn client(
    client_id: &str,
    layers: &Layers<'_>,
    problems: &mut Vec<ConfigProblem>,
) -> Option<ClientConfig> {
    let servers = layers.servers().and_then(|setting| {
        let client = ClientConfig::new(setting.value);
        client
            .map_err(|error| {
                let mut problem = setting.problem(Layers::SERVERS, &error);
                problem.message = format!("is not a list of servers: {}", problem.message);
                let problem = problem.advice("write host:port, several separated by commas");
                // What is empty is found by the check of its kind.
                if !setting.value.is_empty() && !problems.contains(&problem) {
                    problems.push(problem);
                }
            })
            .ok()
    });
    let mut client = servers.or_else(|| ClientConfig::new(STAND_IN).ok())?;
    client.client_id = Some(client_id.to_owned());
    Some(client)
}

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
    problems.extend(missing_folder(setting.file, &setting.key, &path));
    Some(path)
}

/// An error where the folder of a file isn't there: that is found at the start, not once the file is needed.
pub(super) fn missing_folder(file: &Properties, key: &str, path: &Path) -> Option<ConfigProblem> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())?;
    let shown = folder.display();
    let (message, advice) = match std::fs::metadata(folder) {
        Ok(there) if !there.is_dir() => (format!("{shown} is not a folder"), "name another"),
        Err(error) if error.kind() == ErrorKind::NotFound => (
            format!("the folder {shown} does not exist"),
            "create it, or name another",
        ),
        Err(error) if error.kind() == ErrorKind::NotADirectory => (
            format!("{shown} can't be a folder: a part of it is none"),
            "name another",
        ),
        _ => return None,
    };
    Some(file.problem(key, message).advice(advice))
}

fn check_policy(connector: &Properties, worker: &WorkerConfig, problems: &mut Vec<ConfigProblem>) {
    let policy = &worker.override_policy;
    for client in CLIENTS {
        let prefix = client.overrides;
        for (name, _) in connector.with_prefix(prefix) {
            if policy.permits(name) {
                continue;
            }
            let way_out = if name.starts_with("share.") {
                format!("write {name} without the prefix")
            } else {
                format!(
                    "set {}{name} in the worker's file, or change the policy there",
                    client.of_worker
                )
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
        "set {OVERRIDE}group.protocol=share in this connector's file, or {FOR_ALL}group.protocol=share in the worker's file for all connectors"
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
        Layers::at(worker, format!("{FOR_ALL}share.group.id")),
        Layers::at(worker, format!("{FOR_ALL}group.id")),
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
