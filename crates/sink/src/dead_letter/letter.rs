//! A record as a dead letter.

use std::error::Error;
use std::fmt;

use bytes::Bytes;
use sharegroup_consumer::producer::{ProducerHeader, ProducerRecord};

use crate::convert::StageError;
use crate::record::SinkRecord;
use crate::task::CorruptRange;

/// Who gives records up.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The connector's name.
    pub(crate) connector: String,
    /// Index of the task.
    pub(crate) task: usize,
    /// The share group.
    pub(crate) group_id: String,
}

/// A record that is given up, ready to be written.
#[derive(Clone, Debug)]
pub(crate) struct DeadLetter {
    /// `topic-partition@offset` of the record, for messages.
    pub(crate) place: String,
    key: Option<Bytes>,
    value: Option<Bytes>,
    timestamp_ms: Option<i64>,
    headers: Vec<ProducerHeader>,
    context: Vec<ProducerHeader>,
}

impl DeadLetter {
    /// The letter of a record that failed. `origin` is given where context headers are wanted.
    ///
    /// A record that was a dead letter before, and was produced again, has the context of that time. The
    /// new context replaces it, so that headers don't grow with each round. Other headers of such names
    /// are the user's and stay.
    pub(crate) fn of(
        record: &SinkRecord<'_>,
        failure: &StageError,
        origin: Option<&Origin>,
    ) -> Self {
        let headers: Vec<ProducerHeader> = record
            .headers()
            .map(|(key, value)| ProducerHeader {
                key: Bytes::copy_from_slice(key),
                value: value.map(Bytes::copy_from_slice),
            })
            .collect();
        let place = Place {
            topic: record.topic,
            partition: record.partition,
            offset: record.offset,
            delivery_count: record.delivery_count,
        };
        let (headers, context) = match origin {
            Some(origin) => (
                without_context(&headers),
                context_of(&place, failure, origin),
            ),
            None => (headers, Vec::new()),
        };
        Self {
            place: place.to_string(),
            key: record.key_bytes(),
            value: record.value_bytes(),
            timestamp_ms: Some(record.timestamp).filter(|timestamp| *timestamp >= 0),
            headers,
            context,
        }
    }

    /// The letter of records that can't be read: their bytes as they came are its value, its place is that of
    /// the first of them.
    pub(crate) fn of_corrupt(
        range: &CorruptRange,
        failure: &StageError,
        origin: Option<&Origin>,
    ) -> Self {
        let place = Place {
            topic: &range.topic,
            partition: range.partition,
            offset: range.first_offset,
            delivery_count: range.delivery_count,
        };
        let context = origin.map(|origin| context_of(&place, failure, origin));
        Self {
            place: place.to_string(),
            key: None,
            value: Some(range.bytes.clone()),
            timestamp_ms: None,
            headers: Vec::new(),
            context: context.unwrap_or_default(),
        }
    }

    /// The record to produce.
    pub(crate) fn record(&self, topic: &str) -> ProducerRecord {
        let mut record = ProducerRecord::new(topic);
        record.key.clone_from(&self.key);
        record.value.clone_from(&self.value);
        record.timestamp_ms = self.timestamp_ms;
        record.headers = [&self.headers[..], &self.context].concat();
        record
    }

    /// The same without the texts that may be long, for a letter that is too large with them. `None` =
    /// it has none.
    pub(crate) fn trimmed(&self) -> Option<Self> {
        let mut trimmed = self.clone();
        let long = [EXCEPTION_MESSAGE, EXCEPTION_STACKTRACE].map(named);
        trimmed.context.retain(|header| !long.contains(&header.key));
        (trimmed.context.len() < self.context.len()).then_some(trimmed)
    }
}

/// Where a record was read, and how often it has been delivered.
struct Place<'a> {
    topic: &'a str,
    partition: i32,
    offset: i64,
    delivery_count: i16,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}@{}", self.topic, self.partition, self.offset)
    }
}

/// Connect's context headers in Connect's order, then ours.
fn context_of(place: &Place<'_>, failure: &StageError, origin: &Origin) -> Vec<ProducerHeader> {
    let error: &(dyn Error + 'static) = &*failure.error;
    let message = cut(error.to_string(), MESSAGE_BYTES_MAX);
    let stacktrace = cut(causes(error), STACKTRACE_BYTES_MAX);
    let values = [
        (TOPIC, Some(place.topic.to_owned())),
        ("partition", Some(place.partition.to_string())),
        ("offset", Some(place.offset.to_string())),
        ("connector.name", Some(origin.connector.clone())),
        ("task.id", Some(origin.task.to_string())),
        ("stage", Some(failure.stage.to_string())),
        ("class.name", Some(failure.class_name.clone().into_owned())),
        (
            "exception.class.name",
            Some(failure.error_class.clone().into_owned()),
        ),
        (
            EXCEPTION_MESSAGE,
            Some(message).filter(|text| !text.is_empty()),
        ),
        (EXCEPTION_STACKTRACE, Some(stacktrace)),
        ("group", Some(origin.group_id.clone())),
        (DELIVERY_COUNT, Some(place.delivery_count.to_string())),
    ];
    let header = |(name, value): (&str, Option<String>)| ProducerHeader {
        key: named(name),
        value: value.map(Bytes::from),
    };
    values.into_iter().map(header).collect()
}

/// Takes out the contexts of earlier letters, of ours or of Connect's: headers of the context's names in
/// a row and in order, at least those that Connect always writes. One alone is the user's.
fn without_context(headers: &[ProducerHeader]) -> Vec<ProducerHeader> {
    let names = CONTEXT.map(named);
    let mut kept = Vec::with_capacity(headers.len());
    let mut rest = headers;
    while let Some((first, behind)) = rest.split_first() {
        let mut ordered = names.iter();
        let of_context = |header: &&ProducerHeader| ordered.any(|name| *name == header.key);
        let length = rest.iter().take_while(of_context).count();
        if first.key == names[0] && length >= CONTEXT_SHORTEST {
            rest = rest.get(length..).unwrap_or_default();
        } else {
            kept.push(first.clone());
            rest = behind;
        }
    }
    kept
}

fn named(name: &str) -> Bytes {
    Bytes::from(format!("{PREFIX}{name}"))
}

/// An error and what it comes from, a line each; a cause whose text is there already is left out.
fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next
        && text.len() <= STACKTRACE_BYTES_MAX
    {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str("\nCaused by: ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// At most so many bytes of a text, with a word where it was cut.
fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max - CUT.len()));
        text.push_str(CUT);
    }
    text
}

const PREFIX: &str = "__connect.errors.";
const TOPIC: &str = "topic";
const EXCEPTION_MESSAGE: &str = "exception.message";
const EXCEPTION_STACKTRACE: &str = "exception.stacktrace";
const DELIVERY_COUNT: &str = "delivery.count";

/// Names of the context in order; the last two are ours, Connect leaves out those of the exception where
/// there is none.
const CONTEXT: [&str; 12] = [
    TOPIC,
    "partition",
    "offset",
    "connector.name",
    "task.id",
    "stage",
    "class.name",
    "exception.class.name",
    EXCEPTION_MESSAGE,
    EXCEPTION_STACKTRACE,
    "group",
    DELIVERY_COUNT,
];

/// What Connect always writes: up to the class.
const CONTEXT_SHORTEST: usize = 7;

/// Longest `exception.message`, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 4 * 1024;

/// Longest `exception.stacktrace`, in bytes.
pub(super) const STACKTRACE_BYTES_MAX: usize = 8 * 1024;

const CUT: &str = "… (cut)";
