//! Names of the metrics that are pushed. Those that Kafka's own share consumer has bear its names (groups
//! `consumer-share-metrics`, `consumer-share-fetch-manager-metrics` and `consumer-share-coordinator-metrics`, KIP-932,
//! spelled as KIP-714 has it); the rest stands under `sharegroup.consumer`.

use crate::metrics::ShareMetrics;

/// Seconds since the application polled: a level, not a counter.
pub(super) const LAST_POLL: &str = "org.apache.kafka.consumer.share.last.poll.seconds.ago";

/// The counters that are pushed.
pub(super) const fn counters(metrics: &ShareMetrics) -> [(&'static str, u64); 18] {
    let m = metrics;
    let acknowledged = m.accepted + m.released + m.rejected + m.gaps;
    let failed = m.acknowledge_errors + m.acknowledgements_lost;
    [
        (
            "org.apache.kafka.consumer.share.fetch.manager.bytes.consumed.total",
            m.bytes_fetched,
        ),
        (
            "org.apache.kafka.consumer.share.fetch.manager.records.consumed.total",
            m.records_acquired,
        ),
        (
            "org.apache.kafka.consumer.share.fetch.manager.fetch.total",
            m.fetches,
        ),
        (
            "org.apache.kafka.consumer.share.fetch.manager.acknowledgements.send.total",
            acknowledged + failed,
        ),
        (
            "org.apache.kafka.consumer.share.fetch.manager.acknowledgements.error.total",
            failed,
        ),
        (
            "org.apache.kafka.consumer.share.coordinator.heartbeat.total",
            m.heartbeats,
        ),
        (
            "sharegroup.consumer.records.redelivered.total",
            m.records_redelivered,
        ),
        ("sharegroup.consumer.accepted.total", m.accepted),
        ("sharegroup.consumer.released.total", m.released),
        ("sharegroup.consumer.rejected.total", m.rejected),
        ("sharegroup.consumer.gaps.total", m.gaps),
        (
            "sharegroup.consumer.acknowledge.errors.total",
            m.acknowledge_errors,
        ),
        (
            "sharegroup.consumer.acknowledgements.lost.total",
            m.acknowledgements_lost,
        ),
        (
            "sharegroup.consumer.accepts.unconfirmed.total",
            m.accepts_unconfirmed,
        ),
        ("sharegroup.consumer.locks.lost.total", m.locks_lost),
        (
            "sharegroup.consumer.records.renewed.total",
            m.records_renewed,
        ),
        (
            "sharegroup.consumer.corrupt.batches.total",
            m.corrupt_batches,
        ),
        (
            "sharegroup.consumer.acknowledge.requests.total",
            m.acknowledge_requests,
        ),
    ]
}
