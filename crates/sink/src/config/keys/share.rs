//! Keys of this runtime.

use super::{Known, MS, POSITIVE, Table, ValueKind, acts, under};

/// Keys of this runtime: on a connector under their plain name, or with `consumer.override.`; for
/// all connectors of a worker with `consumer.`.
pub(in super::super) const SHARE: Table = &[
    &under("Share group", GROUP),
    &under("Acquired records", HELD),
    &under("Records that can't be written", FAILING),
];

const GROUP: [Known; 4] = [
    acts(
        "share.group.id",
        ValueKind::NonBlank,
        "the share group; connect-<name> where it isn't set",
    )
    .high(),
    acts(
        "share.group.prepare",
        ValueKind::Bool,
        "whether settings of the group that nobody has set are set at the start: share.auto.offset.reset and share.delivery.count.limit=10",
    )
    .or("true"),
    acts(
        "share.auto.offset.reset",
        ValueKind::NonBlank,
        "where partitions that the group has not read yet are begun: earliest, latest, by_duration:P1DT2H, or broker for the group's own setting",
    )
    .or("earliest")
    .high(),
    acts(
        "share.start.from.group",
        ValueKind::Text,
        "a consumer group without members: partitions that the share group has not begun begin at its committed offsets; what its sink wrote and had not committed comes again",
    )
    .or(""),
];

const HELD: [Known; 6] = [
    acts(
        "share.acknowledgement.mode",
        ValueKind::OneOf(&["explicit", "implicit"]),
        "explicit: the broker's answer to each acknowledgement is awaited before its records count as done; implicit: nobody waits for it",
    )
    .or("explicit"),
    acts(
        "share.acquire.mode",
        ValueKind::OneOf(&["auto", "batch_optimized", "record_limit"]),
        "whether the broker hands out whole batches or never more records than asked for; auto decides by what may be held",
    )
    .or("auto"),
    acts(
        "share.credit.records",
        POSITIVE,
        "most records that a task holds; where it isn't set about one second of measured work",
    ),
    acts(
        "share.credit.bytes",
        POSITIVE,
        "most bytes of records that a task holds",
    )
    .or("33554432"),
    acts(
        "share.ack.linger.ms",
        MS,
        "longest wait of an acknowledgement for company, in milliseconds",
    )
    .or("10")
    .low(),
    acts(
        "share.concurrency",
        ValueKind::Int { min: 1, max: 1000 },
        "batches of one task that are put at the same time, where the sink allows it (the built-in ones do), else 1; together within share.credit.records",
    )
    .or("1"),
];

const FAILING: [Known; 7] = [
    acts(
        "share.hold.max.ms",
        MS,
        "how long a record that fails while others succeed is held and tried again, in milliseconds; while the whole target is down there is no limit",
    )
    .or("300000"),
    acts(
        "share.breaker.failures",
        POSITIVE,
        "failures in a row after which the target counts as down: nothing more is acquired until a probe succeeds",
    )
    .or("5"),
    acts(
        "share.breaker.probe.ms",
        MS,
        "time between two probes of a target that is down, in milliseconds",
    )
    .or("1000"),
    acts(
        "share.put.stall.ms",
        MS,
        "how long a put may go without any outcome before the task fails, in milliseconds",
    )
    .or("600000"),
    acts(
        "share.loss.file",
        ValueKind::NonBlank,
        "file that gets a line of JSON for each record that was named as lost",
    ),
    acts(
        "share.dead.letter",
        ValueKind::OneOf(&["worker", "broker"]),
        "who writes dead letters: worker = this runtime, confirmed before the record is settled; broker = the broker, to share.dead.letter.net.topic, whose writes nobody confirms: what is rejected is named in the log and in share.loss.file, and counts as set aside",
    )
    .or("worker"),
    acts(
        "share.dead.letter.net.topic",
        ValueKind::Text,
        "the group's own dead-letter topic (KIP-1191, Kafka 4.4), as a net for records whose deliveries crashes used up: checked at the start, and set on the group where nobody has set one",
    )
    .or(""),
];
