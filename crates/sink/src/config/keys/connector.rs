//! Keys of a connector file, beside the sink's own and `share.*`.

use super::worker::{BYTES, SIMPLE};
use super::{Effect, INT, Known, MS, POSITIVE, Table, ValueKind, acts, ignored, under};

/// Keys of a connector file, beside the sink's own and `share.*`.
pub(in super::super) const CONNECTOR: Table = &[
    &under("Connector", COMMON),
    &under("Converters", CONVERTER),
    &under("Transforms", TRANSFORMS),
    &under("Errors", ERRORS),
    &under("Dead letters", DEAD_LETTER),
    &under("Restart of failed tasks", RESTART),
    &under("Without meaning here", MEANINGLESS),
];

const COMMON: [Known; 6] = [
    acts(
        "name",
        ValueKind::NonBlank,
        "the connector's name; no two of a worker have the same",
    )
    .must(),
    acts(
        "connector.class",
        ValueKind::Class,
        "the sink: its short name, or the Java class that it replaces",
    )
    .must(),
    acts(
        "tasks.max",
        ValueKind::Int { min: 1, max: 1024 },
        "tasks that this worker runs, each a member of the share group; other workers add theirs",
    )
    .or("1")
    .high(),
    acts(
        "topics",
        ValueKind::List,
        "the topics to read, separated by commas",
    )
    .or("")
    .high(),
    acts(
        "topics.regex",
        ValueKind::Pattern,
        "in place of topics: a pattern that a topic's whole name must match, in Java's syntax; new topics are found within 30 s, or metadata.max.age.ms where that is less; never Kafka's internal topics",
    )
    .or("")
    .high(),
    acts(
        "config.action.reload",
        ValueKind::OneOf(&["none", "restart"]),
        "whether the connector restarts by itself when a value that a provider gave changes",
    )
    .or("restart")
    .low()
    .but(Effect::Later(
        "providers are asked at the start and at SIGHUP alone, which starts anew every connector with a changed value, whatever stands here",
    )),
];

const CONVERTER: [Known; 6] = [
    acts(
        "key.converter",
        ValueKind::Class,
        "how keys are read; left out, the worker's converter with the worker's settings",
    )
    .or(BYTES),
    acts(
        "value.converter",
        ValueKind::Class,
        "how values are read; left out, the worker's converter with the worker's settings",
    )
    .or(BYTES),
    acts(
        "header.converter",
        ValueKind::Class,
        "how header values are read; left out, the worker's converter with the worker's settings",
    )
    .or(SIMPLE)
    .low(),
    acts(
        "key.converter.*",
        ValueKind::Text,
        "settings of this connector's key.converter",
    ),
    acts(
        "value.converter.*",
        ValueKind::Text,
        "settings of this connector's value.converter",
    ),
    acts(
        "header.converter.*",
        ValueKind::Text,
        "settings of this connector's header.converter",
    )
    .low(),
];

const NO_TRANSFORMS: Effect = Effect::Refused(
    "transformations are not supported yet, and without them other records would be written than you mean",
);

const TRANSFORMS: [Known; 4] = [
    acts(
        "transforms",
        ValueKind::List,
        "names of the transforms that each record goes through, in order",
    )
    .or("")
    .but(NO_TRANSFORMS),
    ignored("transforms.*", "transformations are not supported yet"),
    acts(
        "predicates",
        ValueKind::List,
        "names of the predicates that transforms may ask",
    )
    .or("")
    .but(NO_TRANSFORMS),
    ignored("predicates.*", "transformations are not supported yet"),
];

const ERRORS: [Known; 5] = [
    acts(
        "errors.tolerance",
        ValueKind::OneOf(&["none", "all"]),
        "what becomes of a record that can't be converted or that the sink refuses: none = the task fails, all = it becomes a dead letter, and without a dead-letter topic it is named in the log and rejected",
    )
    .or("none"),
    acts(
        "errors.retry.timeout",
        ValueKind::at_least(-1),
        "how long a record that a converter or a transformation can't take now is tried again, in milliseconds, while it is held and others are put; 0 = not at all, -1 = without end, but as share.hold.max.ms says while others are written; a put is tried again by the rules of share.hold.max.ms alone",
    )
    .or("0"),
    acts(
        "errors.retry.delay.max.ms",
        ValueKind::at_least(1),
        "longest pause between two such tries, in milliseconds",
    )
    .or("60000"),
    acts(
        "errors.log.enable",
        ValueKind::Bool,
        "whether each record that fails for good gets a line in the log, with stage, class and error; without it there is a line for all that fail together",
    )
    .or("false"),
    acts(
        "errors.log.include.messages",
        ValueKind::Bool,
        "whether that line has the record's topic, partition, offset and timestamp; never its key, value or headers",
    )
    .or("false"),
];

const DEAD_LETTER: [Known; 4] = [
    acts(
        "errors.deadletterqueue.topic.name",
        ValueKind::Text,
        "topic for records that can't be converted or that the sink refuses; empty = none",
    )
    .or(""),
    acts(
        "errors.deadletterqueue.topic.replication.factor",
        ValueKind::Int {
            min: 1,
            max: i16::MAX as i64,
        },
        "replicas of the dead-letter topic where it is created",
    )
    .or("3"),
    acts(
        "errors.deadletterqueue.topic.partitions",
        POSITIVE,
        "partitions of the dead-letter topic where it is created; one that is there is used as it is",
    )
    .or("1"),
    acts(
        "errors.deadletterqueue.context.headers.enable",
        ValueKind::Bool,
        "whether dead letters have headers that tell where the record came from and what failed",
    )
    .or("false"),
];

const RESTART: [Known; 3] = [
    acts(
        "task.restart.max",
        INT,
        "how often in a row a failed task is started again, counted anew after it has run for task.restart.max.ms, or a minute if that is more; each failure gives back what the task holds, which costs those records a delivery; none takes a record to its last allowed one; 0 = it stays failed",
    )
    .or("0"),
    acts(
        "task.restart.backoff.ms",
        MS,
        "pause before the first restart, in milliseconds; it doubles with each one",
    )
    .or("1000"),
    acts(
        "task.restart.max.ms",
        MS,
        "longest pause before a restart, in milliseconds",
    )
    .or("60000"),
];

const ONE_VERSION: &str = "there is one version of each sink and converter";

const MEANINGLESS: [Known; 6] = [
    ignored(
        "tasks.max.enforce",
        "the number of tasks is always tasks.max",
    ),
    ignored("connector.plugin.version", ONE_VERSION),
    ignored("key.converter.plugin.version", ONE_VERSION),
    ignored("value.converter.plugin.version", ONE_VERSION),
    ignored("header.converter.plugin.version", ONE_VERSION),
    ignored(
        "admin.override.*",
        "beside security.protocol, ssl.* and sasl.* the admin client takes the settings of the consumers",
    ),
];
