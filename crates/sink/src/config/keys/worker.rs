//! Keys of a worker file.

use super::{
    Effect, INT, Known, MS, NO_JVM, POSITIVE, REST, TOTALS, Table, ValueKind, acts, ignored, under,
};

/// Keys of a worker file, beside those of clients.
pub(in super::super) const WORKER: Table = &[
    &under("Cluster", CLUSTER),
    &under("Tasks", TASKS),
    &under("Converters", CONVERTER),
    &under("Secrets and values from elsewhere", PROVIDERS),
    &under("REST listener", LISTENER),
    &under("Without meaning here", MEANINGLESS),
];

const CLUSTER: [Known; 1] = [acts(
    "bootstrap.servers",
    ValueKind::NonBlank,
    "first contacts of the cluster, host:port, several separated by commas",
)
.must()];

const TASKS: [Known; 5] = [
    acts(
        "offset.flush.interval.ms",
        POSITIVE,
        "longest time between two flushes of a task, in milliseconds; records are accepted after a flush",
    )
    .or("60000"),
    acts(
        "offset.flush.timeout.ms",
        POSITIVE,
        "longest time of a flush, in milliseconds",
    )
    .or("5000")
    .low()
    .but(Effect::Later("a flush may take as long as it takes")),
    acts(
        "task.shutdown.graceful.timeout.ms",
        MS,
        "time for all tasks together to end when the worker stops: puts are cut off after half of it, and the rest is for dead letters, acknowledgements and leaving the group, in milliseconds",
    )
    .or("5000"),
    acts(
        "connector.client.config.override.policy",
        ValueKind::Text,
        "which consumer.override., producer.override. and admin.override. keys connectors may set: All, Principal (who the client is), Allowlist, None",
    )
    .or("All"),
    acts(
        "connector.client.config.override.allowlist",
        ValueKind::List,
        "for the policy Allowlist: the keys that may be overridden, without their prefix",
    )
    .or(""),
];

const CONVERTER: [Known; 6] = [
    acts(
        "key.converter",
        ValueKind::Class,
        "how keys are read, for connectors that don't say",
    )
    .or(BYTES),
    acts(
        "value.converter",
        ValueKind::Class,
        "how values are read, for connectors that don't say",
    )
    .or(BYTES),
    acts(
        "header.converter",
        ValueKind::Class,
        "how header values are read, for connectors that don't say",
    )
    .or(SIMPLE)
    .low(),
    acts(
        "key.converter.*",
        ValueKind::Text,
        "settings of the key converter",
    ),
    acts(
        "value.converter.*",
        ValueKind::Text,
        "settings of the value converter",
    ),
    acts(
        "header.converter.*",
        ValueKind::Text,
        "settings of the header converter",
    )
    .low(),
];

pub(super) const BYTES: &str = "org.apache.kafka.connect.converters.ByteArrayConverter";
pub(super) const SIMPLE: &str = "org.apache.kafka.connect.storage.SimpleHeaderConverter";

const PROVIDERS: [Known; 2] = [
    acts(
        "config.providers",
        ValueKind::List,
        "names of providers, so that ${NAME:key} and ${NAME:path:key} in any value of any file stand for what the provider has there",
    )
    .or(""),
    acts(
        "config.providers.*",
        ValueKind::Text,
        "of the provider NAME: config.providers.NAME.class is EnvVarConfigProvider, FileConfigProvider or DirectoryConfigProvider, config.providers.NAME.param.allowlist.pattern, .allowed.paths and .trim are its parameters",
    ),
];

const LISTENER: [Known; 10] = [
    acts(
        "listeners",
        ValueKind::List,
        "where /metrics, /health/live and /health/ready are served, as http://host:port; 127.0.0.1:8083 unless set, none if empty",
    ),
    acts(
        "listeners.*",
        ValueKind::Text,
        "TLS of the REST API, as listeners.https.ssl.*",
    )
    .low()
    .but(REST),
    acts(
        "admin.listeners",
        ValueKind::List,
        "where the admin part of the REST API listens",
    )
    .or("")
    .low()
    .but(REST),
    acts(
        "admin.listeners.*",
        ValueKind::Text,
        "TLS of the admin part of the REST API",
    )
    .low()
    .but(REST),
    acts(
        "rest.advertised.*",
        ValueKind::Text,
        "how this worker is called in answers of the REST API",
    )
    .low()
    .but(REST),
    acts("rest.port", INT, "port of the REST API, before listeners")
        .low()
        .but(REST),
    acts(
        "rest.host.name",
        ValueKind::Text,
        "host of the REST API, before listeners",
    )
    .low()
    .but(REST),
    acts(
        "access.control.*",
        ValueKind::Text,
        "which web pages of other origins may use the REST API",
    )
    .low()
    .but(REST),
    acts(
        "response.http.headers.config",
        ValueKind::Text,
        "headers that the REST API adds to its answers",
    )
    .or("")
    .low()
    .but(REST),
    acts(
        "topic.tracking.*",
        ValueKind::Bool,
        "whether the REST API shows which topics a connector has read",
    )
    .or("true")
    .low()
    .but(REST),
];

const NO_WORKER_GROUP: &str = "workers don't form a group here: run as many as you like";
const NO_INTERNAL_TOPICS: &str = "there are no internal topics here: connectors come from files";
const SINKS_ONLY: &str = "only sinks run here";

const MEANINGLESS: [Known; 23] = [
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
    ignored("metrics.*", TOTALS),
];

/// Keys of Kafka's clients that a worker file may hold without prefix, for the worker's own
/// clients.
pub(in super::super) const WORKER_CLIENT: Table = &[&under("Without meaning here", OWN)];

const OWN: [Known; 14] = [
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
    ignored(
        "admin.*",
        "beside security.protocol, ssl.* and sasl.* the admin client takes the settings of the consumers",
    ),
];

const OWN_CLIENT: &str =
    "it sets the worker's own group client, which does not exist here: use consumer.<key>";
