//! Whether what a configuration names is there and lets it in, before anything is started.

use std::time::Duration;

use tokio::time::timeout;

use crate::config::{ConfigProblem, ConnectorConfig, Loaded, Topics, WorkerConfig};
use crate::prepare::check_kafka;

/// What a look at a target has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// What is as it should be, and what can't be told before records are written: a line each.
    pub notes: Vec<String>,
    /// What keeps records from being written, or is odd.
    pub problems: Vec<ConfigProblem>,
}

impl Checked {
    /// Adds something that is as it should be, or that can't be told.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds a problem.
    pub fn problem(&mut self, problem: ConfigProblem) {
        self.problems.push(problem);
    }

    /// This with only that problem.
    #[must_use]
    pub fn failed(problem: ConfigProblem) -> Self {
        Self {
            notes: Vec::new(),
            problems: vec![problem],
        }
    }

    fn append(&mut self, other: Self) {
        self.notes.extend(other.notes);
        self.problems.extend(other.problems);
    }
}

impl Loaded {
    /// Looks at the cluster and the target of each connector, in the order of [`Loaded::connectors`], and changes
    /// nothing. Each of the two may take as long as `within`.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn check(&self, within: Duration) -> Vec<Checked> {
        let mut all = Vec::new();
        for connector in &self.connectors {
            let mut checked = check(&self.worker, connector, within).await;
            for text in &mut checked.notes {
                self.hide(text);
            }
            for problem in &mut checked.problems {
                self.hide_in(problem);
            }
            all.push(checked);
        }
        all
    }
}

async fn check(worker: &WorkerConfig, connector: &ConnectorConfig, within: Duration) -> Checked {
    let (mut checked, topics) = check_kafka(worker, connector, within).await;
    // Where the cluster can't be asked, those that are named.
    let topics = topics.unwrap_or_else(|| connector.topics.clone());
    if topics.is_empty() && matches!(connector.subscription, Topics::Matching(_)) {
        checked.note("what the target has for topics can't be told as long as none matches");
    }
    let sink = connector.connector();
    match timeout(within, sink.check(connector, &topics)).await {
        Ok(target) => checked.append(target),
        Err(_) => {
            let message = format!("the target has not been looked at within {within:?}");
            let problem = connector.problem("connector.class", message);
            let advice = "look whether it can be reached from here, or allow more time";
            checked.problem(problem.advice(advice));
        }
    }
    checked
}
