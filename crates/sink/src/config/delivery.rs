//! How records that fail are dealt with, and how many are in work: the part of `share.*` that isn't
//! the group's, and `task.restart.*`.

use std::time::Duration;

use super::errors::{self, ErrorsConfig};
use super::keys::CONNECTOR;
use super::layers::Setting;
use super::problem::ConfigProblem;
use super::properties::Properties;
use super::read::Reader;
use super::topics::{Topics, check_name};

/// How a task deals with records that fail, and how many it puts at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeliveryConfig {
    /// `share.hold.max.ms`: how long one record that fails while others succeed is held. Default 5 min.
    pub hold_max: Duration,
    /// `share.breaker.failures`: failures in a row after which the target counts as down. Default 5.
    pub breaker_failures: u32,
    /// `share.breaker.probe.ms`: time between two probes of a target that is down. Default 1 s.
    pub breaker_probe: Duration,
    /// `share.put.stall.ms`: how long a put may go without any outcome. Default 10 min.
    pub put_stall: Duration,
    /// `share.concurrency`: batches of one task in `put` at the same time; 1 where the sink allows no more. Default 1.
    pub concurrency: u32,
    /// `share.dead.letter`. Default the worker.
    pub dead_letter_writer: DeadLetterWriter,
    /// `share.dead.letter.net.topic`: the group's own dead-letter topic, as a net. Default none.
    pub dead_letter_net_topic: Option<String>,
}

/// Who writes dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadLetterWriter {
    /// This runtime: confirmed before the record is settled.
    #[default]
    Worker,
    /// The broker (KIP-1191), after a REJECT: nobody confirms that it is written.
    Broker,
}

const CONCURRENCY: &str = "share.concurrency";
const WRITER: &str = "share.dead.letter";
const NET: &str = "share.dead.letter.net.topic";

impl DeliveryConfig {
    pub(super) fn parse<'a>(values: &Reader<'_, impl Fn(&str) -> Option<&'a str>>) -> Self {
        Self {
            hold_max: values.millis("share.hold.max.ms"),
            breaker_failures: values.count("share.breaker.failures"),
            breaker_probe: values.millis("share.breaker.probe.ms"),
            put_stall: values.millis("share.put.stall.ms"),
            concurrency: values.count(CONCURRENCY),
            dead_letter_writer: if values.is(WRITER, "broker") {
                DeadLetterWriter::Broker
            } else {
                DeadLetterWriter::Worker
            },
            dead_letter_net_topic: values.owned(NET),
        }
    }

    /// A sink that isn't concurrent puts one batch at a time, whatever is set.
    pub(super) fn bound_concurrency<'a>(
        &mut self,
        find: impl Fn(&str) -> Option<Setting<'a>>,
        is_concurrent: bool,
        problems: &mut Vec<ConfigProblem>,
    ) {
        if self.concurrency > 1
            && !is_concurrent
            && let Some(Setting { file, key, .. }) = find(CONCURRENCY)
        {
            let problem = file.problem(&key, "has no effect: this sink puts one batch at a time");
            let advice = "for more at the same time raise tasks.max";
            problems.push(problem.advice(advice).warning());
            self.concurrency = 1;
        }
    }

    /// What contradicts what; `find` tells where a key is set.
    pub(super) fn check<'a>(
        &self,
        find: impl Fn(&str) -> Option<Setting<'a>>,
        errors: &ErrorsConfig,
        topics: &Topics,
        problems: &mut Vec<ConfigProblem>,
    ) {
        if let (Some(topic), Some(Setting { file, key, .. })) =
            (&self.dead_letter_net_topic, find(NET))
        {
            check_name(file, &key, topic, problems);
            if topics.read(topic) {
                let problem = file.problem(&key, "is among the topics that are read");
                problems.push(problem.advice("dead letters would be read again and again"));
            }
            if errors
                .dead_letters
                .as_ref()
                .is_some_and(|letters| letters.topic == *topic)
            {
                let message = format!("is {} as well", errors::TOPIC);
                let problem = file.problem(&key, message);
                problems.push(problem.advice(
                    "the broker's letters and those of this runtime differ: name two topics",
                ));
            }
        }
        if self.dead_letter_writer == DeadLetterWriter::Broker
            && let Some(Setting { file, key, .. }) = find(WRITER)
        {
            if self.dead_letter_net_topic.is_none() {
                let problem = file.problem(&key, format!("needs {NET}"));
                problems.push(problem.advice("name the dead-letter topic of the group there, so that it can be checked at the start"));
            }
            if errors.dead_letters.is_some() {
                let message = format!("leaves {} without letters", errors::TOPIC);
                let problem = file.problem(&key, message);
                problems.push(problem.advice("keep one of them").warning());
            }
        }
    }
}

/// `task.restart.*`: whether failed tasks are started again by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestartPolicy {
    /// `task.restart.max`: how often in a row. Default 0: never.
    pub restarts_max: u32,
    /// `task.restart.backoff.ms`: pause before the first; it doubles with each one. Default 1 s.
    pub backoff: Duration,
    /// `task.restart.max.ms`: longest such pause. Default 1 min.
    pub backoff_max: Duration,
}

impl RestartPolicy {
    pub(super) fn parse(file: &Properties, problems: &mut Vec<ConfigProblem>) -> Self {
        let values = Reader::new(&[CONNECTOR], |key: &str| file.get(key));
        let (first, longest) = ("task.restart.backoff.ms", "task.restart.max.ms");
        let policy = Self {
            restarts_max: values.count("task.restart.max"),
            backoff: values.millis(first),
            backoff_max: values.millis(longest),
        };
        if policy.backoff > policy.backoff_max {
            let set = [longest, first].into_iter();
            let key = set.clone().find(|key| file.get(key).is_some());
            let message = format!("{first} is longer than {longest}");
            problems.extend(key.map(|key| file.problem(key, message)));
        }
        policy
    }
}
