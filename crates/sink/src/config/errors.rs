//! What becomes of records that can't be converted, or that the sink refuses: `errors.*`.

use std::time::Duration;

use super::delivery::DeadLetterWriter;
use super::keys::CONNECTOR;
use super::problem::ConfigProblem;
use super::properties::Properties;
use super::read::Reader;
use super::topics::{Topics, check_name};

/// `errors.*` of a connector. Defaults are Kafka Connect's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorsConfig {
    /// `errors.tolerance`. Default none.
    pub tolerance: ErrorTolerance,
    /// `errors.retry.timeout`: how long a record that a converter or a transformation can't take now is
    /// tried again; `None` = without end. Default zero: one attempt.
    pub retry_timeout: Option<Duration>,
    /// `errors.retry.delay.max.ms`: longest pause between two tries. Default 1 min.
    pub retry_delay_max: Duration,
    /// `errors.log.enable`: whether each record that fails for good has a line in the log. Default no.
    pub log: bool,
    /// `errors.log.include.messages`: whether that line names the record. Default no.
    pub log_records: bool,
    /// `errors.deadletterqueue.*`; `None` without a topic.
    pub dead_letters: Option<DeadLettersConfig>,
}

/// `errors.tolerance`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorTolerance {
    /// A record that can't be converted or written fails the task.
    #[default]
    None,
    /// It becomes a dead letter, or is named and rejected where there is no topic for them.
    All,
}

/// `errors.deadletterqueue.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLettersConfig {
    /// `errors.deadletterqueue.topic.name`.
    pub topic: String,
    /// `errors.deadletterqueue.topic.replication.factor`, where the topic is created. Default 3.
    pub replication_factor: i16,
    /// `errors.deadletterqueue.topic.partitions`, where the topic is created; beyond Kafka Connect. Default 1.
    pub partitions: i32,
    /// `errors.deadletterqueue.context.headers.enable`. Default no.
    pub context_headers: bool,
}

const TOLERANCE: &str = "errors.tolerance";
pub(super) const TOPIC: &str = "errors.deadletterqueue.topic.name";
const HEADERS: &str = "errors.deadletterqueue.context.headers.enable";
const REPLICATION: &str = "errors.deadletterqueue.topic.replication.factor";
const PARTITIONS: &str = "errors.deadletterqueue.topic.partitions";
const RETRY_TIMEOUT: &str = "errors.retry.timeout";

impl ErrorsConfig {
    pub(super) fn parse(file: &Properties) -> Self {
        let values = Reader::new(&[CONNECTOR], |key: &str| file.get(key));
        let letters = |topic| DeadLettersConfig {
            topic,
            replication_factor: values.count(REPLICATION),
            partitions: values.count(PARTITIONS),
            context_headers: values.flag(HEADERS),
        };
        let retry_timeout_ms: i64 = values.count(RETRY_TIMEOUT);
        Self {
            tolerance: if values.is(TOLERANCE, "all") {
                ErrorTolerance::All
            } else {
                ErrorTolerance::None
            },
            // -1 is the only negative one.
            retry_timeout: u64::try_from(retry_timeout_ms)
                .ok()
                .map(Duration::from_millis),
            retry_delay_max: values.millis("errors.retry.delay.max.ms"),
            log: values.flag("errors.log.enable"),
            log_records: values.flag("errors.log.include.messages"),
            dead_letters: values.owned(TOPIC).map(letters),
        }
    }

    /// What contradicts what.
    pub(super) fn check(
        &self,
        file: &Properties,
        topics: &Topics,
        writer: DeadLetterWriter,
        problems: &mut Vec<ConfigProblem>,
    ) {
        let Some(letters) = &self.dead_letters else {
            return self.check_without_letters(file, writer, problems);
        };
        check_name(file, TOPIC, &letters.topic, problems);
        if topics.read(&letters.topic) {
            let problem = file.problem(TOPIC, "is among the topics that are read");
            problems.push(
                problem.advice("dead letters would be read again and again: name another topic"),
            );
        }
        if self.tolerance == ErrorTolerance::None {
            let message =
                format!("a record that can't be written fails the task: {TOLERANCE} is none");
            let problem = file.problem(TOPIC, message);
            let advice = format!("set {TOLERANCE}=all to go on after a dead letter");
            problems.push(problem.advice(advice).warning());
        }
    }

    fn check_without_letters(
        &self,
        file: &Properties,
        writer: DeadLetterWriter,
        problems: &mut Vec<ConfigProblem>,
    ) {
        let advice = format!("set {TOPIC}");
        if self.tolerance == ErrorTolerance::All && writer == DeadLetterWriter::Worker {
            let message = "records that can't be written are rejected and not kept";
            let problem = file.problem(TOLERANCE, message);
            problems.push(problem.advice(format!("{advice} to keep them")).warning());
        }
        let message = "has no effect without a dead-letter topic";
        for key in [HEADERS, REPLICATION, PARTITIONS] {
            let values = Reader::new(&[CONNECTOR], |key: &str| file.get(key));
            if file.get(key).is_some() && !values.is(key, "false") {
                problems.push(file.problem(key, message).advice(advice.as_str()).warning());
            }
        }
    }
}
