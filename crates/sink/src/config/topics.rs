//! Which topics a connector reads.

use std::fmt;

use sharegroup_consumer::admin::{Admin, AdminError};

use super::keys::CONNECTOR;
use super::pattern::Pattern;
use super::problem::ConfigProblem;
use super::properties::Properties;
use super::read::Reader;

/// Which topics a connector reads.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Topics {
    /// `topics`: these.
    Named(Vec<String>),
    /// `topics.regex`: those whose whole names match, as far as they exist; new ones join them. Never
    /// Kafka's internal topics.
    Matching(Pattern),
}

impl Topics {
    /// Whether a topic of this name is read.
    #[must_use]
    pub fn read(&self, topic: &str) -> bool {
        match self {
            Self::Named(names) => names.iter().any(|name| name == topic),
            Self::Matching(pattern) => !INTERNAL.contains(&topic) && pattern.matches(topic),
        }
    }

    /// The names, where they are named.
    #[must_use]
    pub fn names(&self) -> &[String] {
        match self {
            Self::Named(names) => names,
            Self::Matching(_) => &[],
        }
    }

    /// Their names in the cluster, now: the named ones, or all that match.
    ///
    /// # Errors
    /// [`AdminError`]: the cluster can't be asked which topics there are.
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn resolve(&self, admin: &Admin) -> Result<Vec<String>, AdminError> {
        if let Self::Named(names) = self {
            return Ok(names.clone());
        }
        let listed = admin.list_topics().await?.into_iter();
        let read = listed.filter(|topic| !topic.is_internal && self.read(&topic.name));
        Ok(read.map(|topic| topic.name).collect())
    }

    pub(super) fn parse(file: &Properties, problems: &mut Vec<ConfigProblem>) -> Self {
        let values = Reader::new(&[CONNECTOR], |key: &str| file.get(key));
        let names: Vec<String> = values.list(TOPICS).map(str::to_owned).collect();
        let is_set = |key| file.get(key).is_some_and(|value| !value.trim().is_empty());
        match (names.is_empty(), is_set(REGEX)) {
            (true, false) => problems.push(
                file.problem(TOPICS, "must name at least one topic")
                    .advice("separate several with commas"),
            ),
            (false, true) => problems.push(
                file.problem(REGEX, format!("can't be set beside {TOPICS}"))
                    .advice("keep one of them"),
            ),
            _ => {}
        }
        check_names(file, &names, problems);
        // One that isn't a pattern is told by the check of its kind.
        let pattern = values.text(REGEX).and_then(|text| Pattern::new(text).ok());
        match pattern {
            Some(pattern) if names.is_empty() => Self::Matching(pattern),
            _ => Self::Named(names),
        }
    }
}

impl fmt::Display for Topics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(names) => f.write_str(&names.join(", ")),
            Self::Matching(pattern) => write!(f, "those that match {}", pattern.as_str()),
        }
    }
}

const TOPICS: &str = "topics";
const REGEX: &str = "topics.regex";

/// Topics that brokers keep their own state in.
const INTERNAL: [&str; 4] = [
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
];

fn check_names(file: &Properties, names: &[String], problems: &mut Vec<ConfigProblem>) {
    for (index, topic) in names.iter().enumerate() {
        if names.iter().take(index).any(|other| other == topic) {
            problems.push(file.problem(TOPICS, format!("names {topic} twice")));
        }
        check_name(file, TOPICS, topic, problems);
    }
}

/// Says so if a topic can't have this name.
pub(super) fn check_name(
    file: &Properties,
    key: &str,
    topic: &str,
    problems: &mut Vec<ConfigProblem>,
) {
    if !sharegroup_consumer::is_topic_name(topic) {
        let problem = file.problem(key, format!("\"{topic}\" is not a legal topic name"));
        problems.push(problem.advice("at most 249 letters, digits, dots, underscores and hyphens"));
    }
}
