//! The keys that are known, what each may hold, and what it does here.
//!
//! Sources: the configuration definitions of Kafka 4.4's `WorkerConfig`, `ConnectorConfig`,
//! `SinkConnectorConfig` and `ConsumerConfig`, and the keys of this runtime (`share.*`).

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueKind {
    /// Any text.
    Text,
    /// Text that isn't empty.
    NonBlank,
    /// Items separated by commas.
    List,
    /// `true` or `false`.
    Bool,
    /// A whole number from `min` to `max`.
    Int {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// One of these words, in any case.
    OneOf(&'static [&'static str]),
    /// A secret: any text, never shown.
    Password,
}

impl ValueKind {
    /// A whole number of at least `min`.
    #[must_use]
    pub const fn at_least(min: i64) -> Self {
        Self::Int { min, max: i64::MAX }
    }

    /// Whether `value` is one of these.
    ///
    /// # Errors
    /// What the value should be, as the second half of a sentence.
    pub fn check(&self, value: &str) -> Result<(), String> {
        let ok = match self {
            Self::Text | Self::List | Self::Password => return Ok(()),
            Self::NonBlank => !value.trim().is_empty(),
            Self::Bool => parse_bool(value).is_some(),
            Self::Int { min, max } => value
                .trim()
                .parse::<i64>()
                .is_ok_and(|number| (*min..=*max).contains(&number)),
            Self::OneOf(words) => words
                .iter()
                .any(|word| word.eq_ignore_ascii_case(value.trim())),
        };
        if ok { Ok(()) } else { Err(self.expectation()) }
    }

    fn expectation(&self) -> String {
        match self {
            Self::Text | Self::List | Self::Password => String::new(),
            Self::NonBlank => "must not be empty".to_owned(),
            Self::Bool => "must be true or false".to_owned(),
            Self::Int { min, max: i64::MAX } => {
                format!("must be a whole number of at least {min}")
            }
            Self::Int { min, max } => format!("must be a whole number from {min} to {max}"),
            Self::OneOf(words) => format!("must be one of {}", words.join(", ")),
        }
    }
}

pub(super) fn parse_bool(value: &str) -> Option<bool> {
    let value = value.trim();
    if value.eq_ignore_ascii_case("true") {
        Some(true)
    } else if value.eq_ignore_ascii_case("false") {
        Some(false)
    } else {
        None
    }
}

/// One configuration key of a sink.
#[derive(Clone, Copy, Debug)]
pub struct KeyDef {
    /// The key.
    pub name: &'static str,
    /// What its value may be.
    pub kind: ValueKind,
    /// Whether it must be set.
    pub required: bool,
    /// Its value if it isn't set.
    pub default: Option<&'static str>,
    /// What it does, in a sentence.
    pub doc: &'static str,
}

impl KeyDef {
    /// A key that must be set.
    #[must_use]
    pub const fn required(name: &'static str, kind: ValueKind, doc: &'static str) -> Self {
        Self {
            name,
            kind,
            required: true,
            default: None,
            doc,
        }
    }

    /// A key with a default.
    #[must_use]
    pub const fn optional(
        name: &'static str,
        kind: ValueKind,
        default: &'static str,
        doc: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            required: false,
            default: Some(default),
            doc,
        }
    }
}

/// What setting a key does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// What its documentation says.
    Acts,
    /// Nothing, for good: the reason.
    Ignored(&'static str),
    /// Nothing yet: what works instead today.
    Later(&'static str),
    /// Work with it would go wrong: the reason, and what to do.
    Refused(&'static str),
}

/// A key of Kafka's or of this runtime. A name that ends in `*` stands for all keys that start
/// with what is before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) kind: ValueKind,
    pub(super) effect: Effect,
    /// With this value the key changes nothing, so nothing is said about it.
    pub(super) default: Option<&'static str>,
}

impl Known {
    pub(super) fn is(&self, key: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(prefix) => key.starts_with(prefix),
            None => key == self.name,
        }
    }

    pub(super) fn is_family(&self) -> bool {
        self.name.ends_with('*')
    }
}

pub(super) fn find<'a>(tables: &[&'a [Known]], key: &str) -> Option<&'a Known> {
    // A key's own line before its family's.
    let all = || tables.iter().flat_map(|table| table.iter());
    all()
        .find(|known| !known.is_family() && known.is(key))
        .or_else(|| all().find(|known| known.is_family() && known.is(key)))
}

pub(super) const fn acts(name: &'static str, kind: ValueKind) -> Known {
    with(name, kind, Effect::Acts)
}

const fn with(name: &'static str, kind: ValueKind, effect: Effect) -> Known {
    Known {
        name,
        kind,
        effect,
        default: None,
    }
}

pub(super) const fn ignored(name: &'static str, why: &'static str) -> Known {
    with(name, ValueKind::Text, Effect::Ignored(why))
}

pub(super) const fn later(
    name: &'static str,
    kind: ValueKind,
    default: &'static str,
    now: &'static str,
) -> Known {
    Known {
        name,
        kind,
        effect: Effect::Later(now),
        default: Some(default),
    }
}

/// A key that must be empty.
const fn refused(name: &'static str, advice: &'static str) -> Known {
    Known {
        name,
        kind: ValueKind::Text,
        effect: Effect::Refused(advice),
        default: Some(""),
    }
}

/// A key whose presence alone is refused, as Kafka's share consumer does.
pub(super) const fn forbidden(name: &'static str, advice: &'static str) -> Known {
    with(name, ValueKind::Text, Effect::Refused(advice))
}

const MS: ValueKind = ValueKind::at_least(0);
const INT: ValueKind = ValueKind::Int {
    min: 0,
    max: i32::MAX as i64,
};
const POSITIVE: ValueKind = ValueKind::Int {
    min: 1,
    max: i32::MAX as i64,
};

const NO_WORKER_GROUP: &str = "workers don't form a group here: run as many as you like";
const NO_INTERNAL_TOPICS: &str = "there are no internal topics here: connectors come from files";
const NO_JVM: &str = "no Java classes are loaded";
pub(super) const NO_REST: &str = "there is no REST listener yet";
const SINKS_ONLY: &str = "only sinks run here";
const NO_PROVIDERS: &str = "configuration providers aren't available yet: write the value itself";
const RAW: &str = "keys, values and headers are passed on as the bytes they are";
const NO_DEAD_LETTERS: &str = "without dead letters a record that can't be written fails the task";

/// Keys of the worker file.
pub(super) const WORKER: &[Known] = &[
    acts("bootstrap.servers", ValueKind::NonBlank),
    acts("offset.flush.interval.ms", POSITIVE),
    acts("offset.flush.timeout.ms", POSITIVE),
    acts("task.shutdown.graceful.timeout.ms", MS),
    acts(
        "connector.client.config.override.policy",
        ValueKind::NonBlank,
    ),
    acts(
        "connector.client.config.override.allowlist",
        ValueKind::List,
    ),
    later("key.converter", ValueKind::NonBlank, BYTES, RAW),
    later("value.converter", ValueKind::NonBlank, BYTES, RAW),
    later("header.converter", ValueKind::NonBlank, SIMPLE, RAW),
    ignored("key.converter.*", RAW),
    ignored("value.converter.*", RAW),
    ignored("header.converter.*", RAW),
    later("listeners", ValueKind::List, "", NO_REST),
    later("listeners.*", ValueKind::Text, "", NO_REST),
    later("admin.listeners", ValueKind::List, "", NO_REST),
    later("admin.listeners.*", ValueKind::Text, "", NO_REST),
    later("rest.advertised.*", ValueKind::Text, "", NO_REST),
    later("rest.port", INT, "", NO_REST),
    later("rest.host.name", ValueKind::Text, "", NO_REST),
    later("access.control.*", ValueKind::Text, "", NO_REST),
    later("response.http.headers.config", ValueKind::Text, "", NO_REST),
    later("topic.tracking.*", ValueKind::Bool, "true", NO_REST),
    refused("config.providers", NO_PROVIDERS),
    ignored("config.providers.*", NO_PROVIDERS),
    ignored("group.id", NO_WORKER_GROUP),
    ignored("session.timeout.ms", NO_WORKER_GROUP),
    ignored("heartbeat.interval.ms", NO_WORKER_GROUP),
    ignored("rebalance.timeout.ms", NO_WORKER_GROUP),
    ignored("scheduled.rebalance.max.delay.ms", NO_WORKER_GROUP),
    ignored("connect.protocol", NO_WORKER_GROUP),
    ignored("worker.sync.*", NO_WORKER_GROUP),
    ignored("worker.unsync.*", NO_WORKER_GROUP),
    ignored("inter.worker.*", NO_WORKER_GROUP),
    ignored("config.storage.*", NO_INTERNAL_TOPICS),
    ignored("status.storage.*", NO_INTERNAL_TOPICS),
    ignored("offset.storage.*", NO_INTERNAL_TOPICS),
    ignored(
        "internal.topics.automatic.creation.enable",
        NO_INTERNAL_TOPICS,
    ),
    ignored("internal.key.converter*", NO_INTERNAL_TOPICS),
    ignored("internal.value.converter*", NO_INTERNAL_TOPICS),
    ignored("exactly.once.source.support", SINKS_ONLY),
    ignored("topic.creation.*", SINKS_ONLY),
    ignored("plugin.path", NO_JVM),
    ignored("plugin.discovery", NO_JVM),
    ignored("rest.extension.classes", NO_JVM),
    ignored("metric.reporters", NO_JVM),
    ignored("auto.include.jmx.reporter", NO_JVM),
    ignored("metrics.*", "counters are kept as totals, without windows"),
    ignored("producer.*", NO_DEAD_LETTERS),
    ignored("admin.*", ADMIN),
];

/// Keys of Kafka's clients that a worker file may hold without prefix, for the worker's own
/// clients.
pub(super) const WORKER_CLIENT: &[Known] = &[
    ignored("client.id", OWN_CLIENT),
    ignored("client.dns.lookup", OWN_CLIENT),
    ignored("request.timeout.ms", OWN_CLIENT),
    ignored("retry.backoff.ms", OWN_CLIENT),
    ignored("retry.backoff.max.ms", OWN_CLIENT),
    ignored("reconnect.backoff.ms", OWN_CLIENT),
    ignored("reconnect.backoff.max.ms", OWN_CLIENT),
    ignored("connections.max.idle.ms", OWN_CLIENT),
    ignored("metadata.*", OWN_CLIENT),
    ignored("socket.connection.setup.timeout.ms", OWN_CLIENT),
    ignored("socket.connection.setup.timeout.max.ms", OWN_CLIENT),
    ignored("send.buffer.bytes", OWN_CLIENT),
    ignored("receive.buffer.bytes", OWN_CLIENT),
];

const OWN_CLIENT: &str =
    "it sets the worker's own group client, which does not exist here: use consumer.<key>";
const ADMIN: &str = "beside security.protocol, ssl.* and sasl.* the admin client takes the settings of the consumers";
const BYTES: &str = "org.apache.kafka.connect.converters.ByteArrayConverter";
const SIMPLE: &str = "org.apache.kafka.connect.storage.SimpleHeaderConverter";

/// Keys of a connector file, beside the sink's own and `share.*`.
pub(super) const CONNECTOR: &[Known] = &[
    acts("name", ValueKind::NonBlank),
    acts("connector.class", ValueKind::NonBlank),
    acts("tasks.max", ValueKind::Int { min: 1, max: 1024 }),
    acts("topics", ValueKind::List),
    refused(
        "topics.regex",
        "name the topics in `topics`: patterns aren't available yet",
    ),
    ignored(
        "tasks.max.enforce",
        "the number of tasks is always tasks.max",
    ),
    ignored(
        "connector.plugin.version",
        "there is one version of each sink",
    ),
    ignored(
        "key.converter.plugin.version",
        "there is one version of each converter",
    ),
    ignored(
        "value.converter.plugin.version",
        "there is one version of each converter",
    ),
    ignored(
        "header.converter.plugin.version",
        "there is one version of each converter",
    ),
    later("key.converter", ValueKind::NonBlank, BYTES, RAW),
    later("value.converter", ValueKind::NonBlank, BYTES, RAW),
    later("header.converter", ValueKind::NonBlank, SIMPLE, RAW),
    ignored("key.converter.*", RAW),
    ignored("value.converter.*", RAW),
    ignored("header.converter.*", RAW),
    refused("transforms", NO_TRANSFORMS),
    ignored("transforms.*", NO_TRANSFORMS),
    refused("predicates", NO_TRANSFORMS),
    ignored("predicates.*", NO_TRANSFORMS),
    later(
        "config.action.reload",
        ValueKind::OneOf(&["none", "restart"]),
        "restart",
        NO_PROVIDERS,
    ),
    later(
        "errors.retry.timeout",
        ValueKind::at_least(-1),
        "0",
        RETRIES,
    ),
    later(
        "errors.retry.delay.max.ms",
        ValueKind::at_least(1),
        "60000",
        RETRIES,
    ),
    later(
        "errors.tolerance",
        ValueKind::OneOf(&["none", "all"]),
        "none",
        NO_DEAD_LETTERS,
    ),
    later(
        "errors.log.enable",
        ValueKind::Bool,
        "false",
        "failures are always logged",
    ),
    later(
        "errors.log.include.messages",
        ValueKind::Bool,
        "false",
        "failures are always logged",
    ),
    later(
        "errors.deadletterqueue.topic.name",
        ValueKind::Text,
        "",
        NO_DEAD_LETTERS,
    ),
    later(
        "errors.deadletterqueue.topic.replication.factor",
        POSITIVE,
        "3",
        NO_DEAD_LETTERS,
    ),
    later(
        "errors.deadletterqueue.context.headers.enable",
        ValueKind::Bool,
        "false",
        NO_DEAD_LETTERS,
    ),
    later("task.restart.max", INT, "0", "a failed task stays failed"),
    later(
        "task.restart.backoff.ms",
        MS,
        "1000",
        "a failed task stays failed",
    ),
    later(
        "task.restart.max.ms",
        MS,
        "60000",
        "a failed task stays failed",
    ),
    ignored("producer.override.*", NO_DEAD_LETTERS),
    ignored("admin.override.*", ADMIN),
];

const NO_TRANSFORMS: &str = "transforms aren't available yet, and without them other records would be written than you mean";
const RETRIES: &str = "a put that fails is retried with growing waits until the task stops";

/// Keys of this runtime: on a connector under their plain name, or with `consumer.override.`; for
/// all connectors of a worker with `consumer.`.
pub(super) const SHARE: &[Known] = &[
    acts("share.group.id", ValueKind::NonBlank),
    acts("share.group.prepare", ValueKind::Bool),
    acts("share.auto.offset.reset", ValueKind::NonBlank),
    acts(
        "share.acknowledgement.mode",
        ValueKind::OneOf(&["explicit", "implicit"]),
    ),
    acts(
        "share.acquire.mode",
        ValueKind::OneOf(&["auto", "batch_optimized", "record_limit"]),
    ),
    acts("share.credit.records", POSITIVE),
    acts("share.ack.linger.ms", MS),
    acts("share.loss.file", ValueKind::NonBlank),
    refused(
        "share.start.from.group",
        "starting where a consumer group stands isn't available yet: without it records that group has read would be written again",
    ),
    later(
        "share.credit.bytes",
        POSITIVE,
        "33554432",
        "share.credit.records bounds what is held",
    ),
    later(
        "share.hold.max.ms",
        MS,
        "300000",
        "a record that fails is retried until the task stops",
    ),
    later(
        "share.breaker.failures",
        POSITIVE,
        "5",
        "nothing new is acquired while a put fails",
    ),
    later(
        "share.breaker.probe.ms",
        MS,
        "1000",
        "nothing new is acquired while a put fails",
    ),
    later(
        "share.put.stall.ms",
        MS,
        "600000",
        "a put is waited for as long as it takes",
    ),
    later(
        "share.concurrency",
        POSITIVE,
        "1",
        "each task writes one batch at a time",
    ),
    later(
        "share.dead.letter",
        ValueKind::OneOf(&["worker", "broker"]),
        "worker",
        NO_DEAD_LETTERS,
    ),
    later(
        "share.dead.letter.net.topic",
        ValueKind::Text,
        "",
        NO_DEAD_LETTERS,
    ),
];

/// Keys of the share consumer: `consumer.` in the worker file, `consumer.override.` on a connector.
pub(super) const CONSUMER: &[Known] = &[
    acts("bootstrap.servers", ValueKind::NonBlank),
    acts("group.id", ValueKind::NonBlank),
    acts(
        "group.protocol",
        ValueKind::OneOf(&["share", "consumer", "classic"]),
    ),
    acts("client.id", ValueKind::Text),
    acts("client.rack", ValueKind::Text),
    acts("max.poll.records", POSITIVE),
    acts("fetch.min.bytes", INT),
    acts("fetch.max.bytes", POSITIVE),
    acts("fetch.max.wait.ms", INT),
    acts("request.timeout.ms", POSITIVE),
    acts("retry.backoff.ms", MS),
    acts("retry.backoff.max.ms", MS),
    acts("reconnect.backoff.ms", MS),
    acts("reconnect.backoff.max.ms", MS),
    acts("metadata.max.age.ms", POSITIVE),
    acts(
        "metadata.recovery.strategy",
        ValueKind::OneOf(&["rebootstrap", "none"]),
    ),
    acts("metadata.recovery.rebootstrap.trigger.ms", MS),
    acts("socket.connection.setup.timeout.ms", POSITIVE),
    ignored(
        "max.partition.fetch.bytes",
        "a share fetch has no such limit; use fetch.max.bytes",
    ),
    ignored(
        "max.poll.interval.ms",
        "a put may take as long as it takes: locks are renewed",
    ),
    ignored(
        "default.api.timeout.ms",
        "each request has request.timeout.ms",
    ),
    ignored("check.crcs", "checksums are always checked"),
    ignored(
        "allow.auto.create.topics",
        "topics are never created by reading",
    ),
    ignored("exclude.internal.topics", "topics are always named"),
    ignored("key.deserializer", RAW),
    ignored("value.deserializer", RAW),
    ignored("connections.max.idle.ms", TUNED),
    ignored("socket.connection.setup.timeout.max.ms", TUNED),
    ignored("client.dns.lookup", TUNED),
    ignored("metadata.cluster.check.enable", TUNED),
    ignored("bootstrap.resolve.timeout.ms", TUNED),
    ignored("send.buffer.bytes", TUNED),
    ignored("receive.buffer.bytes", TUNED),
    ignored("metric.reporters", NO_JVM),
    ignored("metrics.*", "counters are kept as totals, without windows"),
    ignored("auto.include.jmx.reporter", NO_JVM),
    ignored("enable.metrics.push", "metrics aren't pushed to the broker"),
    ignored("share.acquire.record.limit", TUNED),
    forbidden(
        "auto.offset.reset",
        "where a share group starts is a setting of the group: use share.auto.offset.reset on the connector",
    ),
    forbidden(
        "isolation.level",
        "isolation is a setting of the share group: kafka-configs.sh --entity-type groups --entity-name GROUP --alter --add-config share.isolation.level=read_committed",
    ),
    forbidden(
        "enable.auto.commit",
        "each record is acknowledged after it is written: use share.acknowledgement.mode; remove this key",
    ),
    forbidden(
        "auto.commit.interval.ms",
        "each record is acknowledged after it is written: use share.acknowledgement.mode; remove this key",
    ),
    forbidden(
        "group.instance.id",
        "share groups have no static members; remove this key",
    ),
    forbidden(
        "partition.assignment.strategy",
        "the broker assigns a share group's partitions; remove this key",
    ),
    forbidden(
        "group.remote.assignor",
        "the broker chooses a share group's assignor (group.share.assignors); remove this key",
    ),
    forbidden(
        "interceptor.classes",
        "interceptors aren't supported by share consumers; remove this key",
    ),
    forbidden(
        "session.timeout.ms",
        "it is a setting of the share group: kafka-configs.sh --entity-type groups --entity-name GROUP --alter --add-config share.session.timeout.ms=…",
    ),
    forbidden(
        "heartbeat.interval.ms",
        "it is a setting of the share group: kafka-configs.sh --entity-type groups --entity-name GROUP --alter --add-config share.heartbeat.interval.ms=…",
    ),
];

const TUNED: &str = "the client tunes this itself";

/// The known key that `key` most resembles, if one is close enough to be meant.
///
/// Case and the separators `_`, `-` and `.` don't count; beyond that one slip is allowed in short
/// keys and two in keys of more than five characters.
#[must_use]
pub fn nearest<'a>(
    key: &str,
    candidates: impl Iterator<Item = std::borrow::Cow<'a, str>>,
) -> Option<String> {
    let plain = |text: &str| text.to_ascii_lowercase().replace(['_', '-'], ".");
    let wanted: Vec<char> = plain(key).chars().collect();
    let slips_max = if wanted.len() > 5 { 2 } else { 1 };
    candidates
        .map(|candidate| {
            let characters: Vec<char> = plain(&candidate).chars().collect();
            (slips(&wanted, &characters, slips_max), candidate)
        })
        .filter(|(slips, _)| *slips <= slips_max)
        .min_by(|a, b| a.cmp(b))
        .map(|(_, candidate)| candidate.into_owned())
}

/// Characters to insert, delete, replace or swap with their neighbour to make one of the other
/// (optimal string alignment distance); any number above `slips_max` once it is above.
fn slips(a: &[char], b: &[char], slips_max: usize) -> usize {
    if a.len().abs_diff(b.len()) > slips_max {
        return slips_max + 1;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(x != y);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::super::security::SECURITY;
    use super::*;

    #[test]
    fn nearest_finds_slips_and_not_foreign_words() {
        let known = ["tasks.max", "topics", "connector.class", "file", "name"];
        let near = |key: &str| nearest(key, known.iter().map(|name| Cow::Borrowed(*name)));
        for (key, right) in [
            ("task.max", "tasks.max"),
            ("tasks_max", "tasks.max"),
            ("TASKS.MAX", "tasks.max"),
            ("topic", "topics"),
            ("tpoics", "topics"),
            ("conector.clas", "connector.class"),
            ("files", "file"),
        ] {
            assert_eq!(near(key).as_deref(), Some(right), "{key}");
        }
        for foreign in ["mode", "my.own.key", "class", "table.name.format"] {
            assert_eq!(near(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn values_are_checked_by_kind() {
        let port = ValueKind::Int { min: 1, max: 9 };
        assert!(port.check(" 9 ").is_ok());
        assert_eq!(
            port.check("10").unwrap_err(),
            "must be a whole number from 1 to 9"
        );
        assert_eq!(
            ValueKind::at_least(1).check("x").unwrap_err(),
            "must be a whole number of at least 1"
        );
        assert!(ValueKind::Bool.check("True").is_ok());
        assert!(ValueKind::Bool.check("yes").is_err());
        assert_eq!(
            ValueKind::OneOf(&["a", "b"]).check("c").unwrap_err(),
            "must be one of a, b"
        );
    }

    #[test]
    fn no_key_is_in_a_table_twice() {
        for table in [WORKER, WORKER_CLIENT, CONNECTOR, SHARE, CONSUMER, SECURITY] {
            let mut names: Vec<_> = table.iter().map(|known| known.name).collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }
}
