//! Keys of the producer of dead letters.

use super::{Effect, Known, NO_JVM, TOTALS, TUNED, Table, ValueKind, acts, ignored, under};

/// Keys of the producer of dead letters: `producer.` in the worker file, `producer.override.` on a
/// connector.
pub(in super::super) const PRODUCER: Table = &[
    &under("Producer of dead letters", ACTING),
    &under(
        "Producer of dead letters: without meaning here",
        MEANINGLESS,
    ),
];

const BYTES: ValueKind = ValueKind::Int {
    min: 1,
    max: 1 << 30,
};
const MS: ValueKind = ValueKind::at_least(0);

const ACTING: [Known; 19] = [
    acts(
        "bootstrap.servers",
        ValueKind::NonBlank,
        "first contacts of the cluster that dead letters go to; left out, the worker's",
    ),
    acts(
        "client.id",
        ValueKind::Text,
        "name of the producer for the broker's logs and quotas; left out, connector-dlq-producer-<name>",
    )
    .low(),
    letters("acks", ValueKind::OneOf(&["all", "-1"]), "all", "replicas that confirm a dead letter"),
    letters("enable.idempotence", ValueKind::OneOf(&["true"]), "true", "whether a dead letter is written once whatever happens to a request"),
    letters("batch.size", ValueKind::Int { min: 0, max: 1 << 30 }, "16384", "largest batch, in bytes"),
    letters("buffer.memory", BYTES, "33554432", "bytes of dead letters that wait to be confirmed"),
    letters("max.request.size", BYTES, "1048576", "largest request, and so the largest dead letter, in bytes"),
    letters("linger.ms", MS, "5", "how long a batch waits for company, in milliseconds"),
    letters("delivery.timeout.ms", MS, "120000", "time for a dead letter to be confirmed, in milliseconds"),
    letters("max.block.ms", MS, "60000", "longest wait for metadata and room, in milliseconds"),
    letters("compression.type", ValueKind::OneOf(&["none", "gzip", "snappy", "lz4", "zstd"]), "none", "codec of batches"),
    letters("request.timeout.ms", MS, "30000", "time for one request and its answer, in milliseconds"),
    letters("retry.backoff.ms", MS, "100", "pause after a first failed try, in milliseconds"),
    letters("retry.backoff.max.ms", MS, "1000", "longest such pause, in milliseconds"),
    letters("reconnect.backoff.ms", MS, "50", "pause before a broker is connected to again, in milliseconds"),
    letters("reconnect.backoff.max.ms", MS, "1000", "longest such pause, in milliseconds"),
    letters("metadata.max.age.ms", MS, "300000", "age at which metadata is asked for again, in milliseconds"),
    letters("socket.connection.setup.timeout.ms", MS, "10000", "time to open a connection, in milliseconds"),
    letters("socket.connection.setup.timeout.max.ms", MS, "30000", "longest such time, in milliseconds"),
];

const fn letters(
    name: &'static str,
    kind: ValueKind,
    default: &'static str,
    doc: &'static str,
) -> Known {
    acts(name, kind, doc).or(default).low()
}

const MEANINGLESS: [Known; 12] = [
    ignored("key.serializer", AS_BYTES),
    ignored("value.serializer", AS_BYTES),
    ignored("partitioner.*", TUNED),
    ignored("max.in.flight.requests.per.connection", TUNED),
    ignored("retries", "delivery.timeout.ms bounds them"),
    ignored("send.buffer.bytes", TUNED),
    ignored("receive.buffer.bytes", TUNED),
    ignored("metric.reporters", NO_JVM),
    ignored("interceptor.classes", NO_JVM),
    ignored("enable.metrics.push", "metrics aren't pushed to the broker"),
    ignored("metrics.*", TOTALS),
    ignored(
        "transactional.id",
        "dead letters are written without transactions",
    )
    .but(Effect::Refused(
        "dead letters are written without transactions; remove this key",
    )),
];

const AS_BYTES: &str = "dead letters are the bytes that were read";
