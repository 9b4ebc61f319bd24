//! The configuration keys of brokers, topics and groups, with Kafka 4.4's defaults.

/// How a key's value is written, as DescribeConfigs numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// `true`, `false`.
    Boolean = 1,
    /// Text.
    String = 2,
    /// 32 bits.
    Int = 3,
    /// 64 bits.
    Long = 5,
    /// A fraction.
    Double = 6,
    /// Comma-separated.
    List = 7,
}

/// What values a key takes.
#[derive(Debug, Clone, Copy)]
pub enum Allowed {
    /// Whatever its type allows.
    Any,
    /// Numbers, inclusive.
    Range(i64, i64),
    /// Words.
    OneOf(&'static [&'static str]),
    /// Numbers from the first one on, and between the values of two broker keys, inclusive.
    Between(i64, &'static str, &'static str),
    /// `latest`, `earliest` or `by_duration:` and an ISO 8601 duration.
    OffsetReset,
    /// A topic that isn't Kafka's own.
    DeadLetterTopic,
}

/// A configuration key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its default.
    pub default: &'static str,
    /// How its value is written.
    pub value_type: ValueType,
    /// What values it takes.
    pub allowed: Allowed,
    /// Whether this broker does something with it. The others are told and kept only.
    pub is_in_use: bool,
}

const fn key(name: &'static str, default: &'static str, value_type: ValueType) -> Key {
    Key {
        name,
        default,
        value_type,
        allowed: Allowed::Any,
        is_in_use: false,
    }
}

impl Key {
    const fn used(mut self) -> Self {
        self.is_in_use = true;
        self
    }

    const fn range(mut self, min: i64, max: i64) -> Self {
        self.allowed = Allowed::Range(min, max);
        self
    }

    const fn one_of(mut self, words: &'static [&'static str]) -> Self {
        self.allowed = Allowed::OneOf(words);
        self
    }

    const fn between(mut self, least: i64, min: &'static str, max: &'static str) -> Self {
        self.allowed = Allowed::Between(least, min, max);
        self
    }

    const fn allowed(mut self, allowed: Allowed) -> Self {
        self.allowed = allowed;
        self
    }
}

use ValueType::{Boolean, Double, Int, List, Long, String};

const INT_MAX: i64 = i32::MAX as i64;
const LONG_MAX: &str = "9223372036854775807";

/// Keys of topics.
pub static TOPIC: &[Key] = &[
    key("cleanup.policy", "delete", List),
    key("compression.gzip.level", "-1", Int).range(-1, 9),
    key("compression.lz4.level", "9", Int).range(1, 17),
    key("compression.type", "producer", String).one_of(&[
        "uncompressed",
        "zstd",
        "lz4",
        "snappy",
        "gzip",
        "producer",
    ]),
    key("compression.zstd.level", "3", Int).range(-131_072, 22),
    key("delete.retention.ms", "86400000", Long).range(0, i64::MAX),
    key("errors.deadletterqueue.group.enable", "false", Boolean).used(),
    key("file.delete.delay.ms", "60000", Long).range(0, i64::MAX),
    key("flush.messages", LONG_MAX, Long).range(1, i64::MAX),
    key("flush.ms", LONG_MAX, Long).range(0, i64::MAX),
    key("follower.replication.throttled.replicas", "", List),
    key("index.interval.bytes", "4096", Int).range(0, INT_MAX),
    key("leader.replication.throttled.replicas", "", List),
    key("local.retention.bytes", "-2", Long).range(-2, i64::MAX),
    key("local.retention.ms", "-2", Long).range(-2, i64::MAX),
    key("max.compaction.lag.ms", LONG_MAX, Long).range(1, i64::MAX),
    key("max.message.bytes", "1048588", Int)
        .range(0, INT_MAX)
        .used(),
    key("message.timestamp.after.max.ms", "3600000", Long)
        .range(0, i64::MAX)
        .used(),
    key("message.timestamp.before.max.ms", LONG_MAX, Long).range(0, i64::MAX),
    key("message.timestamp.type", "CreateTime", String)
        .one_of(&["CreateTime", "LogAppendTime"])
        .used(),
    key("min.cleanable.dirty.ratio", "0.5", Double),
    key("min.compaction.lag.ms", "0", Long).range(0, i64::MAX),
    key("min.insync.replicas", "1", Int).range(1, INT_MAX),
    key("preallocate", "false", Boolean),
    key("remote.log.copy.disable", "false", Boolean),
    key("remote.log.delete.on.disable", "false", Boolean),
    key("remote.storage.enable", "false", Boolean).one_of(&["false"]),
    key("retention.bytes", "-1", Long)
        .range(-1, i64::MAX)
        .used(),
    key("retention.ms", "604800000", Long).range(-1, i64::MAX),
    key("segment.bytes", "1073741824", Int).range(1_048_576, INT_MAX),
    key("segment.index.bytes", "10485760", Int).range(4, INT_MAX),
    key("segment.jitter.ms", "0", Long).range(0, i64::MAX),
    key("segment.ms", "604800000", Long).range(1, i64::MAX),
    key("unclean.leader.election.enable", "false", Boolean),
];

/// Keys of groups (KIP-932, KIP-1240, KIP-1191), all of them in use.
pub static GROUP: &[Key] = &[
    key(
        "errors.deadletterqueue.copy.record.enable",
        "false",
        Boolean,
    )
    .used(),
    key("errors.deadletterqueue.topic.name", "", String)
        .allowed(Allowed::DeadLetterTopic)
        .used(),
    key("share.assignment.interval.ms", "1000", Int)
        .between(
            0,
            "group.share.min.assignment.interval.ms",
            "group.share.max.assignment.interval.ms",
        )
        .used(),
    key("share.auto.offset.reset", "latest", String)
        .allowed(Allowed::OffsetReset)
        .used(),
    key("share.delivery.count.limit", "5", Int)
        .between(
            2,
            "group.share.min.delivery.count.limit",
            "group.share.max.delivery.count.limit",
        )
        .used(),
    key("share.heartbeat.interval.ms", "5000", Int)
        .between(
            1,
            "group.share.min.heartbeat.interval.ms",
            "group.share.max.heartbeat.interval.ms",
        )
        .used(),
    key("share.isolation.level", "read_uncommitted", String)
        .one_of(&["read_committed", "read_uncommitted"])
        .used(),
    key("share.partition.max.record.locks", "2000", Int)
        .between(
            100,
            "group.share.min.partition.max.record.locks",
            "group.share.max.partition.max.record.locks",
        )
        .used(),
    key("share.record.lock.duration.ms", "30000", Int)
        .between(
            1000,
            "group.share.min.record.lock.duration.ms",
            "group.share.max.record.lock.duration.ms",
        )
        .used(),
    key("share.renew.acknowledge.enable", "true", Boolean).used(),
    key("share.session.timeout.ms", "45000", Int)
        .between(
            1,
            "group.share.min.session.timeout.ms",
            "group.share.max.session.timeout.ms",
        )
        .used(),
];

/// Keys of brokers: those that mean something here, and those that clients ask for.
pub static BROKER: &[Key] = &[
    key("auto.create.topics.enable", "true", Boolean).used(),
    key("default.replication.factor", "1", Int)
        .range(1, INT_MAX)
        .used(),
    key(
        "errors.deadletterqueue.auto.create.topics.enable",
        "false",
        Boolean,
    )
    .used(),
    key("errors.deadletterqueue.topic.name.prefix", "dlq.", String).used(),
    key("fetch.max.bytes", "57671680", Int)
        .range(1024, INT_MAX)
        .used(),
    key("group.share.assignment.interval.ms", "1000", Int)
        .range(0, INT_MAX)
        .used(),
    key("group.share.delivery.count.limit", "5", Int)
        .range(2, 10)
        .used(),
    key("group.share.heartbeat.interval.ms", "5000", Int)
        .range(1, INT_MAX)
        .used(),
    key("group.share.max.assignment.interval.ms", "15000", Int)
        .range(0, INT_MAX)
        .used(),
    key("group.share.max.delivery.count.limit", "10", Int)
        .range(5, 25)
        .used(),
    key("group.share.max.heartbeat.interval.ms", "15000", Int)
        .range(1, INT_MAX)
        .used(),
    key("group.share.max.partition.max.record.locks", "4000", Int)
        .range(2000, 10_000)
        .used(),
    key("group.share.max.record.lock.duration.ms", "60000", Int)
        .range(30_000, 3_600_000)
        .used(),
    key("group.share.max.session.timeout.ms", "60000", Int)
        .range(1, INT_MAX)
        .used(),
    key("group.share.max.share.sessions", "2000", Int)
        .range(1, INT_MAX)
        .used(),
    key("group.share.max.size", "200", Int)
        .range(1, 1000)
        .used(),
    key("group.share.min.assignment.interval.ms", "0", Int)
        .range(0, INT_MAX)
        .used(),
    key("group.share.min.delivery.count.limit", "2", Int)
        .range(2, 5)
        .used(),
    key("group.share.min.heartbeat.interval.ms", "5000", Int)
        .range(1, INT_MAX)
        .used(),
    key("group.share.min.partition.max.record.locks", "100", Int)
        .range(100, 2000)
        .used(),
    key("group.share.min.record.lock.duration.ms", "15000", Int)
        .range(1000, 30_000)
        .used(),
    key("group.share.min.session.timeout.ms", "45000", Int)
        .range(1, INT_MAX)
        .used(),
    key("group.share.partition.max.record.locks", "2000", Int)
        .range(100, 10_000)
        .used(),
    key("group.share.record.lock.duration.ms", "30000", Int)
        .range(1000, 3_600_000)
        .used(),
    key("group.share.session.timeout.ms", "45000", Int)
        .range(1, INT_MAX)
        .used(),
    key("message.max.bytes", "1048588", Int)
        .range(0, INT_MAX)
        .used(),
    key("num.partitions", "1", Int).range(1, INT_MAX).used(),
    key("offsets.topic.replication.factor", "1", Int).range(1, INT_MAX),
    key("transaction.max.timeout.ms", "900000", Int)
        .range(1, INT_MAX)
        .used(),
];

/// The broker key that gives a group key its default.
#[must_use]
pub fn broker_default(group_key: &str) -> Option<&'static Key> {
    BROKER
        .iter()
        .find(|key| key.name.strip_prefix("group.") == Some(group_key))
}

/// The broker key that gives a topic key its default.
#[must_use]
pub fn topic_default(topic_key: &str) -> Option<&'static Key> {
    let of_broker = match topic_key {
        "max.message.bytes" => "message.max.bytes",
        _ => return None,
    };
    BROKER.iter().find(|key| key.name == of_broker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_bounds_exist() {
        for table in [TOPIC, GROUP, BROKER] {
            assert!(table.is_sorted_by_key(|key| key.name));
        }
        for key in GROUP {
            if let Allowed::Between(_, min, max) = key.allowed {
                let known = |name| BROKER.iter().any(|key| key.name == name);
                assert!(known(min) && known(max), "{}", key.name);
            }
        }
        assert_eq!(
            broker_default("share.record.lock.duration.ms")
                .unwrap()
                .default,
            "30000"
        );
    }
}
