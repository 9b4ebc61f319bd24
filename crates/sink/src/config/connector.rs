//! A connector file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use sharegroup_consumer::producer::ProducerConfig;

use super::check;
use super::consumer::{ConsumerSettings, missing_folder};
use super::converters::ConvertersConfig;
use super::delivery::{DeliveryConfig, RestartPolicy};
use super::errors::ErrorsConfig;
use super::keys::{CONNECTOR, ValueKind, nearest, parse_bool};
use super::layers::{CONSUMERS, LETTERS, Layers};
use super::problem::ConfigProblem;
use super::producer;
use super::properties::Properties;
use super::read::Reader;
use super::topics::Topics;
use super::worker::WorkerConfig;
use crate::connector::{Connector, Registry};

/// Settings of one connector.
#[derive(Clone)]
#[non_exhaustive]
pub struct ConnectorConfig {
    /// `name`.
    pub name: String,
    /// `connector.class`, as written.
    pub class: String,
    /// `tasks.max`: members of the share group that this worker runs. Default 1.
    pub tasks_max: u32,
    /// `topics`; none where there is a pattern.
    pub topics: Vec<String>,
    /// `topics` or `topics.regex`.
    pub subscription: Topics,
    /// Settings of its share consumers.
    pub consumer: ConsumerSettings,
    /// How records that fail are dealt with, and how many are put at a time.
    pub delivery: DeliveryConfig,
    /// What becomes of records that can't be converted, or that the sink refuses.
    pub errors: ErrorsConfig,
    /// Settings of the producer of dead letters.
    pub producer: ProducerConfig,
    /// How keys, values and header values are read.
    pub converters: ConvertersConfig,
    /// Whether failed tasks are started again.
    pub restart: RestartPolicy,
    connector: Arc<dyn Connector>,
    properties: Properties,
}

/// Without values that are secrets.
impl fmt::Debug for ConnectorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |key| self.properties.shown(key);
        let topics = shown("topics").or_else(|| shown("topics.regex"));
        f.debug_struct("ConnectorConfig")
            .field("name", &shown("name"))
            .field("class", &shown("connector.class"))
            .field("tasks_max", &self.tasks_max)
            .field("topics", &topics)
            .field("consumer", &self.consumer)
            .field("delivery", &self.delivery)
            .field("converters", &self.converters)
            .field("restart", &self.restart)
            .finish_non_exhaustive()
    }
}

impl ConnectorConfig {
    /// Reads the settings; what is wrong goes into `problems`. `None` if there is no usable
    /// connector in the file.
    pub(super) fn parse(
        mut properties: Properties,
        worker: &WorkerConfig,
        strict: bool,
        registry: &Registry,
        problems: &mut Vec<ConfigProblem>,
    ) -> Option<Self> {
        let connector = find_class(&properties, registry, problems);
        let own = connector.as_ref().map(|connector| connector.keys());
        for def in own.unwrap_or_default() {
            if def.kind == ValueKind::Password {
                properties.hide(def.name);
            }
        }
        check::connector_keys(&properties, own, strict, problems);
        let name = name(&properties, problems);
        let shown_name = name.as_deref().unwrap_or_default();
        let layers = Layers {
            worker: worker.properties(),
            connector: &properties,
            client: &CONSUMERS,
        };
        let share = Reader::new(CONSUMERS.tables, |key: &str| layers.value(key));
        let consumer = ConsumerSettings::resolve(shown_name, &properties, worker, problems);
        let polls_as_set = layers.find("max.poll.records").is_some();
        let subscription = Topics::parse(&properties, problems);
        let errors = ErrorsConfig::parse(&properties);
        let mut delivery = DeliveryConfig::parse(&share);
        let writer = delivery.dead_letter_writer;
        errors.check(&properties, &subscription, writer, problems);
        let is_concurrent = connector.as_ref().is_none_or(|sink| sink.is_concurrent());
        delivery.bound_concurrency(|key| layers.find(key), is_concurrent, problems);
        delivery.check(|key| layers.find(key), &errors, &subscription, problems);
        let letters = Layers {
            client: &LETTERS,
            ..layers
        };
        let producer = producer::resolve(shown_name, &letters, problems);
        let converters = ConvertersConfig::resolve(&properties, worker.properties(), problems);
        let restart = RestartPolicy::parse(&properties, problems);
        let values = Reader::new(&[CONNECTOR], |key: &str| properties.get(key));
        let mut config = Self {
            // A missing one is said already, and nothing starts.
            name: name.unwrap_or_default(),
            class: values.owned("connector.class")?,
            tasks_max: values.count("tasks.max"),
            topics: subscription.names().to_vec(),
            subscription,
            consumer: consumer?,
            delivery,
            errors,
            producer: producer?,
            converters,
            restart,
            connector: connector?,
            properties,
        };
        let wanted = config.connector.put_records_max(&config);
        if let Some(records) = wanted.filter(|_| !polls_as_set) {
            config.consumer.max_poll_records = records;
        }
        config.check_group(worker, problems);
        problems.extend(config.connector.validate(&config));
        Some(config)
    }

    /// A group that is the worker's own would be refused by Kafka Connect.
    fn check_group(&self, worker: &WorkerConfig, problems: &mut Vec<ConfigProblem>) {
        let group_id = self.consumer.group_id.as_str();
        if worker.get("group.id") != Some(group_id) {
            return;
        }
        let message = format!("uses the share group {group_id}, the worker's own group.id");
        let problem = self.problem("name", message);
        let advice = "Kafka Connect refuses that: give the connector another share.group.id";
        problems.push(problem.advice(advice).warning());
    }

    /// Keys whose values differ from those of another file, be it only because a provider says so; sorted.
    #[must_use]
    pub fn changed_keys(&self, other: &Self) -> Vec<String> {
        self.properties.changed_keys(&other.properties)
    }

    /// The value of a key as it is in the file.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.properties.get(key).map(str::trim)
    }

    /// The value of one of the sink's own keys: from the file, or the key's default.
    #[must_use]
    pub fn own(&self, key: &str) -> Option<&str> {
        let default = || {
            let def = self.connector.keys().iter().find(|def| def.name == key)?;
            def.default
        };
        self.get(key).or_else(default)
    }

    /// Whether one of the sink's own keys is `true`.
    #[must_use]
    pub fn own_flag(&self, key: &str) -> bool {
        self.own(key).and_then(parse_bool).unwrap_or_default()
    }

    /// The number of one of the sink's own keys; `None` where it has no default.
    #[must_use]
    pub fn own_number<T: FromStr>(&self, key: &str) -> Option<T> {
        self.own(key)?.parse().ok()
    }

    /// An error about `key`, with its place and value filled in.
    pub fn problem(&self, key: &str, message: impl Into<String>) -> ConfigProblem {
        self.properties.problem(key, message)
    }

    /// An error about `key` where the folder of the file that it names isn't there.
    #[must_use]
    pub fn missing_folder(&self, key: &str, file: &Path) -> Option<ConfigProblem> {
        missing_folder(&self.properties, key, file)
    }

    /// An error about the servers of its consumers, at the key that names them, be it in the worker's file.
    pub(crate) fn problem_of_servers(
        &self,
        worker: &WorkerConfig,
        message: impl Into<String>,
    ) -> ConfigProblem {
        let layers = Layers {
            worker: worker.properties(),
            connector: &self.properties,
            client: &CONSUMERS,
        };
        match layers.servers() {
            Some(setting) => setting.file.problem(&setting.key, message),
            None => worker.properties().problem(Layers::SERVERS, message),
        }
    }

    pub(super) const fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The sink.
    #[must_use]
    pub fn connector(&self) -> &Arc<dyn Connector> {
        &self.connector
    }
}

/// Problems that only show when all connectors are looked at: names used twice, and groups that
/// two connectors share.
pub(super) fn check_together(connectors: &[ConnectorConfig], problems: &mut Vec<ConfigProblem>) {
    let mut names: BTreeMap<&str, &ConnectorConfig> = BTreeMap::new();
    let mut groups: BTreeMap<&str, &ConnectorConfig> = BTreeMap::new();
    let mut outputs: BTreeMap<(&str, String), &ConnectorConfig> = BTreeMap::new();
    for config in connectors {
        let sink = config.connector.name();
        if let Some((key, output)) = config.connector.output(config)
            && let Some(first) = outputs.insert((sink, output), config)
            && first.name != config.name
        {
            let message = format!("is where the connector {} writes as well", first.name);
            let advice = "give each connector its own unless you mean that";
            problems.push(config.problem(key, message).advice(advice).warning());
        }
        if config.consumer.start_from_group.as_deref() == Some(&config.consumer.group_id) {
            let message = format!(
                "is the share group's own id: {} can't be both groups",
                config.consumer.group_id
            );
            let problem = config.problem("share.start.from.group", message);
            problems.push(problem.advice(
                "set share.group.id to another one; delete nothing, the offsets are needed",
            ));
        }
        if config.name.is_empty() {
            continue;
        }
        if let Some(first) = names.insert(&config.name, config) {
            let message = format!(
                "is the name of {} as well",
                first.properties.file().display()
            );
            problems.push(
                config
                    .problem("name", message)
                    .advice("give each connector its own name"),
            );
        } else if let Some(first) = groups.insert(&config.consumer.group_id, config) {
            let message = format!(
                "shares the group {} with the connector {}: each record goes to one of the two",
                config.consumer.group_id, first.name
            );
            let advice = "give each connector its own share.group.id unless you mean that";
            problems.push(config.problem("name", message).advice(advice).warning());
        }
    }
}

fn find_class(
    properties: &Properties,
    registry: &Registry,
    problems: &mut Vec<ConfigProblem>,
) -> Option<Arc<dyn Connector>> {
    let key = "connector.class";
    let known = format!("known here: {}", registry.names().join(", "));
    let Some(class) = properties.get(key) else {
        problems.push(properties.problem(key, "must be set").advice(known));
        return None;
    };
    let class = class.trim();
    // That it is empty is found by the check of its kind.
    if class.is_empty() {
        return None;
    }
    let found = registry.find(class);
    if found.is_none() {
        let simple = class.rsplit('.').next().unwrap_or(class);
        let problem = properties.problem(key, "is not a known sink");
        let meant = || nearest(simple, registry.classes().map(Cow::Borrowed));
        problems.push(if let Some(sink) = sink_of_source(simple, registry) {
            let problem = properties.problem(key, "is a source, and only sinks run here");
            problem.advice(format!("the sink of that name is {sink}"))
        } else if let Some(meant) = meant() {
            problem.advice(format!("did you mean {meant}?"))
        } else {
            problem.advice(known)
        });
    }
    found
}

/// The sink beside a source: `FileStreamSink` of `FileStreamSource`.
fn sink_of_source(class: &str, registry: &Registry) -> Option<String> {
    let sink = class.replace("Source", "Sink");
    (sink != class && registry.find(&sink).is_some()).then_some(sink)
}

fn name(properties: &Properties, problems: &mut Vec<ConfigProblem>) -> Option<String> {
    let Some(name) = properties.get("name") else {
        problems.push(properties.problem("name", "must be set"));
        return None;
    };
    if name.chars().any(char::is_control) {
        problems.push(properties.problem("name", "must not hold control characters"));
    }
    // An empty name is found by the check of its kind.
    Some(name.trim().to_owned())
}
