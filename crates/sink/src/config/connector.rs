//! A connector file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::check;
use super::consumer::ConsumerSettings;
use super::keys::nearest;
use super::problem::ConfigProblem;
use super::properties::Properties;
use super::worker::{WorkerConfig, list};
use crate::connector::{Connector, Registry};

/// Settings of one connector.
#[derive(Clone)]
#[non_exhaustive]
pub struct ConnectorConfig {
    /// `name`.
    pub name: String,
    /// `connector.class`, as written.
    pub class: String,
    /// `tasks.max`: members of the share group that this worker runs.
    pub tasks_max: u32,
    /// `topics`.
    pub topics: Vec<String>,
    /// Settings of its share consumers.
    pub consumer: ConsumerSettings,
    connector: Arc<dyn Connector>,
    properties: Properties,
}

impl fmt::Debug for ConnectorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectorConfig")
            .field("name", &self.name)
            .field("class", &self.class)
            .field("tasks_max", &self.tasks_max)
            .field("topics", &self.topics)
            .field("consumer", &self.consumer)
            .finish_non_exhaustive()
    }
}

impl ConnectorConfig {
    /// Reads the settings; what is wrong goes into `problems`. `None` if there is no usable
    /// connector in the file.
    pub(super) fn parse(
        properties: Properties,
        worker: &WorkerConfig,
        strict: bool,
        registry: &Registry,
        problems: &mut Vec<ConfigProblem>,
    ) -> Option<Self> {
        let connector = find_class(&properties, registry, problems);
        let own = connector.as_ref().map(|connector| connector.keys());
        check::connector_keys(&properties, own, strict, problems);
        let name = name(&properties, problems);
        let topics = topics(&properties, problems);
        let consumer =
            ConsumerSettings::resolve(name.as_deref().unwrap_or(""), &properties, worker, problems);
        let config = Self {
            name: name?,
            class: properties.get("connector.class")?.trim().to_owned(),
            tasks_max: properties
                .get("tasks.max")
                .and_then(|value| value.trim().parse().ok())
                .unwrap_or(1),
            topics,
            consumer: consumer?,
            connector: connector?,
            properties,
        };
        if worker.get("group.id") == Some(config.consumer.group_id.as_str()) {
            problems.push(
                config
                    .properties
                    .problem(
                        "name",
                        format!(
                            "uses the share group {}, the worker's own group.id",
                            config.consumer.group_id
                        ),
                    )
                    .advice("Kafka Connect refuses that: give the connector another share.group.id")
                    .warning(),
            );
        }
        problems.extend(config.connector.validate(&config));
        Some(config)
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

    /// An error about `key`, with its place and value filled in.
    pub fn problem(&self, key: &str, message: impl Into<String>) -> ConfigProblem {
        self.properties.problem(key, message)
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
    for config in connectors {
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

fn topics(properties: &Properties, problems: &mut Vec<ConfigProblem>) -> Vec<String> {
    let topics: Vec<String> = list(properties.get("topics").unwrap_or(""))
        .map(str::to_owned)
        .collect();
    let has_regex = properties
        .get("topics.regex")
        .is_some_and(|regex| !regex.trim().is_empty());
    if topics.is_empty() && !has_regex {
        problems.push(
            properties
                .problem("topics", "must name at least one topic")
                .advice("separate several with commas"),
        );
    }
    for (index, topic) in topics.iter().enumerate() {
        if topics.iter().take(index).any(|other| other == topic) {
            problems.push(properties.problem("topics", format!("names {topic} twice")));
        }
        if !sharegroup_consumer::is_topic_name(topic) {
            let message = format!("\"{topic}\" is not a legal topic name");
            problems.push(
                properties
                    .problem("topics", message)
                    .advice("at most 249 letters, digits, dots, underscores and hyphens"),
            );
        }
    }
    topics
}
