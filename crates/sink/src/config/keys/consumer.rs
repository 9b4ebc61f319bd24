//! Keys of the share consumer.

use super::{
    INT, Known, MS, NO_JVM, POSITIVE, TOTALS, TUNED, Table, ValueKind, acts, forbidden, ignored,
    under,
};

/// Keys of the share consumer: `consumer.` in the worker file, `consumer.override.` on a connector.
pub(in super::super) const CONSUMER: Table = &[
    &under("Consumers", ACTING),
    &under("Consumers: without meaning here", MEANINGLESS),
    &under("Consumers: refused by share groups", REFUSED),
];

const ACTING: [Known; 22] = [
    acts(
        "group.protocol",
        ValueKind::OneOf(&["share", "consumer", "classic"]),
        "share selects share groups, the only kind that runs here yet",
    )
    .or("consumer")
    .high(),
    acts(
        "bootstrap.servers",
        ValueKind::NonBlank,
        "first contacts of the cluster that is read; left out, the worker's",
    ),
    acts(
        "group.id",
        ValueKind::NonBlank,
        "the same as share.group.id",
    )
    .low(),
    acts(
        "client.id",
        ValueKind::Text,
        "name of the clients for the broker's logs and quotas; left out, connector-consumer-<name>",
    )
    .low(),
    acts(
        "client.rack",
        ValueKind::Text,
        "rack or zone of this worker, for brokers that assign partitions by it",
    )
    .or("")
    .low(),
    acts("max.poll.records", POSITIVE, "most records of one put").or("500"),
    acts(
        "fetch.min.bytes",
        INT,
        "bytes that the broker waits for before it answers a fetch",
    )
    .low(),
    acts("fetch.max.bytes", POSITIVE, "most bytes of one fetch").low(),
    acts(
        "fetch.max.wait.ms",
        INT,
        "longest wait of the broker for records, in milliseconds",
    )
    .low(),
    acts(
        "request.timeout.ms",
        POSITIVE,
        "time for one request and its answer, in milliseconds",
    )
    .or("30000")
    .low(),
    acts(
        "retry.backoff.ms",
        MS,
        "pause after a first failed try, in milliseconds; it doubles with each one",
    )
    .or("100")
    .low(),
    acts(
        "retry.backoff.max.ms",
        MS,
        "longest such pause, in milliseconds",
    )
    .or("1000")
    .low(),
    acts(
        "reconnect.backoff.ms",
        MS,
        "pause before a broker is connected to again, in milliseconds",
    )
    .or("50")
    .low(),
    acts(
        "reconnect.backoff.max.ms",
        MS,
        "longest such pause, in milliseconds",
    )
    .or("1000")
    .low(),
    acts(
        "metadata.max.age.ms",
        POSITIVE,
        "age at which metadata is asked for again, in milliseconds",
    )
    .or("300000")
    .low(),
    acts(
        "metadata.recovery.strategy",
        ValueKind::OneOf(&["rebootstrap", "none"]),
        "whether to start again from bootstrap.servers when no known broker can be reached",
    )
    .or("rebootstrap")
    .low(),
    acts(
        "metadata.recovery.rebootstrap.trigger.ms",
        MS,
        "time without metadata after which known brokers are forgotten, in milliseconds",
    )
    .or("300000")
    .low(),
    acts(
        "socket.connection.setup.timeout.ms",
        POSITIVE,
        "time to open a connection, in milliseconds",
    )
    .or("10000")
    .low(),
    acts(
        "socket.connection.setup.timeout.max.ms",
        MS,
        "longest such time, in milliseconds; it doubles with each failed try at a broker",
    )
    .or("30000")
    .low(),
    acts(
        "default.api.timeout.ms",
        POSITIVE,
        "time for one operation with all its retries, in milliseconds",
    )
    .or("60000")
    .low(),
    acts(
        "connections.max.idle.ms",
        ValueKind::at_least(-1),
        "time without a request after which a connection is closed, in milliseconds; -1 = never",
    )
    .or("540000")
    .low(),
    acts(
        "client.dns.lookup",
        ValueKind::OneOf(&[
            "use_all_dns_ips",
            "resolve_canonical_bootstrap_servers_only",
            "default",
        ]),
        "how host names become addresses",
    )
    .or("use_all_dns_ips")
    .low(),
];

const MEANINGLESS: [Known; 16] = [
    ignored(
        "max.partition.fetch.bytes",
        "a share fetch has no such limit; use fetch.max.bytes",
    ),
    ignored(
        "max.poll.interval.ms",
        "a put may take as long as it takes: locks are renewed",
    ),
    ignored("check.crcs", "checksums are always checked"),
    ignored(
        "allow.auto.create.topics",
        "topics are never created by reading",
    ),
    ignored("exclude.internal.topics", "topics are always named"),
    ignored("key.deserializer", AS_BYTES),
    ignored("value.deserializer", AS_BYTES),
    ignored("metadata.cluster.check.enable", TUNED),
    ignored("bootstrap.resolve.timeout.ms", TUNED),
    ignored("send.buffer.bytes", TUNED),
    ignored("receive.buffer.bytes", TUNED),
    ignored("metric.reporters", NO_JVM),
    ignored("metrics.*", TOTALS),
    ignored("auto.include.jmx.reporter", NO_JVM),
    ignored("enable.metrics.push", "metrics aren't pushed to the broker"),
    ignored("share.acquire.record.limit", TUNED),
];

const REFUSED: [Known; 10] = [
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

const AS_BYTES: &str =
    "records are read as bytes; how they are understood is key.converter and value.converter";
