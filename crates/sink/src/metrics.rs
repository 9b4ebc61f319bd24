//! Counters of a task, named as Kafka Connect names them.
//!
//! Plain atomics, written by the task and read by whoever asks; each value is exact, a set of them
//! is not one instant. Times are in milliseconds. What the broker has confirmed is counted by the
//! consumer and shown beside these in [`TaskStatus`](crate::worker::TaskStatus).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident = $connect:literal),* $(,)?) => {
        /// Live counters of a task.
        #[derive(Debug, Default)]
        pub(crate) struct TaskMetrics {
            $(pub(crate) $name: Counter,)*
            batch_size_sum: Counter,
            put_batch_time_sum_ms: Counter,
        }

        /// Counters of a task at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct TaskMetricsSnapshot {
            $($(#[$meta])* pub $name: u64,)*
            /// `batch-size-avg`: records per put.
            pub batch_size_avg: u64,
            /// `put-batch-avg-time-ms`.
            pub put_batch_avg_time_ms: u64,
        }

        impl TaskMetrics {
            /// The values now.
            pub(crate) fn snapshot(&self) -> TaskMetricsSnapshot {
                let puts = self.puts.value().max(1);
                TaskMetricsSnapshot {
                    $($name: self.$name.value(),)*
                    batch_size_avg: self.batch_size_sum.value() / puts,
                    put_batch_avg_time_ms: self.put_batch_time_sum_ms.value() / puts,
                }
            }
        }

        impl TaskMetricsSnapshot {
            /// Kafka Connect's name of each counter with its value.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![
                    $(($connect, self.$name),)*
                    ("batch-size-avg", self.batch_size_avg),
                    ("put-batch-avg-time-ms", self.put_batch_avg_time_ms),
                ]
            }
        }
    };
}

counters! {
    /// `sink-record-read-total`: records handed to the task loop.
    records_read = "sink-record-read-total",
    /// `sink-record-send-total`: records put and flushed.
    records_written = "sink-record-send-total",
    /// `sink-record-active-count`: records read and not settled yet.
    records_active = "sink-record-active-count",
    /// Calls of `put`, retries included.
    puts = "put-batch-total",
    /// `put-batch-max-time-ms`.
    put_batch_max_time_ms = "put-batch-max-time-ms",
    /// `batch-size-max`: most records in one put.
    batch_size_max = "batch-size-max",
    /// `total-record-failures`: failed puts and flushes.
    put_failures = "total-record-failures",
    /// Failed puts and flushes in a row, 0 while all is well.
    failures_in_a_row = "consecutive-failures",
    /// `total-retries`: puts made again after a failure.
    retries = "total-retries",
    /// `last-error-timestamp`: milliseconds since 1970-01-01 UTC, 0 = never.
    last_error_timestamp = "last-error-timestamp",
    /// Records written whose lock was lost before they could be accepted: duplicates to come.
    duplicates_expected = "sink-record-duplicate-total",
    /// Records that were named as lost, in the log and in `share.loss.file`.
    named_as_lost = "sink-record-lost-total",
}

/// A number that one task writes and others read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, count: usize) {
        self.add_wide(count as u64);
    }

    pub(crate) fn add_wide(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn raise(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }
}

impl TaskMetrics {
    /// A put of `records` that took `time` has ended, in whatever way.
    pub(crate) fn put_ended(&self, records: usize, time: Duration) {
        let time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.puts.add(1);
        self.batch_size_sum.add(records);
        self.batch_size_max.raise(records as u64);
        self.put_batch_time_sum_ms
            .0
            .fetch_add(time_ms, Ordering::Relaxed);
        self.put_batch_max_time_ms.raise(time_ms);
    }

    /// A put or a flush has failed.
    pub(crate) fn put_failed(&self) {
        self.put_failures.add(1);
        self.failures_in_a_row.add(1);
        self.last_error_timestamp.set(unix_time_ms());
    }
}

/// Milliseconds since 1970-01-01 UTC.
pub(crate) fn unix_time_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_are_counted_with_their_sizes_and_times() {
        let metrics = TaskMetrics::default();
        metrics.put_ended(10, Duration::from_millis(30));
        metrics.put_ended(20, Duration::from_millis(10));
        metrics.put_failed();
        let snapshot = metrics.snapshot();
        assert_eq!(
            (
                snapshot.puts,
                snapshot.batch_size_max,
                snapshot.batch_size_avg
            ),
            (2, 20, 15)
        );
        assert_eq!(
            (
                snapshot.put_batch_max_time_ms,
                snapshot.put_batch_avg_time_ms
            ),
            (30, 20)
        );
        assert_eq!((snapshot.put_failures, snapshot.failures_in_a_row), (1, 1));
        assert!(snapshot.last_error_timestamp > 0);
        assert!(snapshot.named().contains(&("put-batch-max-time-ms", 30)));
    }
}
