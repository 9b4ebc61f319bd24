//! Counters of one share consumer.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident),* $(,)?) => {
        /// A snapshot of a consumer's counters; all count from its start.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct ShareMetrics {
            $($(#[$meta])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> ShareMetrics {
                ShareMetrics { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Offsets acquired.
    records_acquired,
    /// Of them, offsets whose delivery count was above 1. A count of 1 doesn't prove a first delivery:
    /// a leader change forgets the attempts of records that were held (KIP-932).
    records_redelivered,
    /// Records acknowledged with ACCEPT and confirmed.
    accepted,
    /// Records acknowledged with RELEASE and confirmed.
    released,
    /// Records acknowledged with REJECT and confirmed.
    rejected,
    /// Offsets without a record, acknowledged and confirmed.
    gaps,
    /// Acknowledgements that the broker refused, in offsets.
    acknowledge_errors,
    /// Acknowledgements that were never sent, or whose answer never came, in offsets. What was acknowledged
    /// after its loss had been told is not among them.
    acknowledgements_lost,
    /// Offsets that the application accepted without the broker's yes: it refused, gave no answer, or was never
    /// asked because the lock or the session had ended before. What was done with them may be done again.
    accepts_unconfirmed,
    /// Held offsets whose lock was lost.
    locks_lost,
    /// Offsets whose lock was renewed.
    records_renewed,
    /// Second reads: of batches that could not be read, and of acquired offsets that did not come.
    batches_read_again,
    /// Record batches that could not be read then either: [`CorruptBatch`](crate::CorruptBatch).
    corrupt_batches,
    /// ShareFetch requests.
    fetches,
    /// ShareAcknowledge requests.
    acknowledge_requests,
    /// Bytes of record batches fetched.
    bytes_fetched,
    /// ShareGroupHeartbeat requests.
    heartbeats,
    /// Pushes of metrics that a broker took (KIP-714); none without the feature `telemetry`.
    telemetry_pushes,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
