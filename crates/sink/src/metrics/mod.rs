//! Counters of a task, named as Kafka Connect names them.
//!
//! Plain atomics, written by the task and read by whoever asks; each value is exact, a set of them
//! is not one instant. Times are in milliseconds. What the broker has confirmed is counted by the
//! consumer and shown beside these in [`TaskStatus`](crate::worker::TaskStatus).

mod histogram;
mod names;
mod text;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) use self::histogram::Histogram;
pub use self::histogram::HistogramSnapshot;
pub(crate) use self::text::{Lag, Shown, show};

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident = $connect:literal),* $(,)?) => {
        /// Live counters of a task.
        #[derive(Debug, Default)]
        pub(crate) struct TaskMetrics {
            $(pub(crate) $name: Counter,)*
            /// Records read and not settled yet.
            pub(crate) records_active: Gauge,
            batch_size_sum: Counter,
            put_batch_time_sum_ms: Counter,
            put_batch_time: Histogram,
            /// From the settling of records to the broker's answer.
            pub(crate) acknowledge_time: Histogram,
            /// Of calls that await all answers.
            pub(crate) commit_time: Histogram,
            /// What was left of a lock when its records were settled.
            pub(crate) lock_left: Histogram,
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
            /// `sink-record-active-count`: records read and not settled yet.
            pub records_active: u64,
            /// `sink-record-active-count-max`.
            pub records_active_max: u64,
            /// `sink-record-active-count-avg`: over the changes of the count.
            pub records_active_avg: u64,
            /// Times of puts, retries included.
            pub put_batch_time: HistogramSnapshot,
            /// `acknowledge-time`: from the settling of records to the broker's answer.
            pub acknowledge_time: HistogramSnapshot,
            /// Times of the calls that awaited all answers.
            pub commit_time: HistogramSnapshot,
            /// What was left of locks when their records were settled, before the linger of acknowledgements.
            pub lock_left: HistogramSnapshot,
        }

        impl TaskMetrics {
            /// The values now.
            pub(crate) fn snapshot(&self) -> TaskMetricsSnapshot {
                let puts = self.puts.value().max(1);
                TaskMetricsSnapshot {
                    $($name: self.$name.value(),)*
                    batch_size_avg: self.batch_size_sum.value() / puts,
                    put_batch_avg_time_ms: self.put_batch_time_sum_ms.value() / puts,
                    records_active: self.records_active.value(),
                    records_active_max: self.records_active.max.value(),
                    records_active_avg: self.records_active.average(),
                    put_batch_time: self.put_batch_time.snapshot(),
                    acknowledge_time: self.acknowledge_time.snapshot(),
                    commit_time: self.commit_time.snapshot(),
                    lock_left: self.lock_left.snapshot(),
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
                    ("sink-record-active-count", self.records_active),
                    ("sink-record-active-count-max", self.records_active_max),
                    ("sink-record-active-count-avg", self.records_active_avg),
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
    /// Calls of `put`, retries included.
    puts = "put-batch-total",
    /// `put-batch-max-time-ms`.
    put_batch_max_time_ms = "put-batch-max-time-ms",
    /// `batch-size-max`: most records in one put.
    batch_size_max = "batch-size-max",
    /// `total-record-failures`: failed puts and flushes, and records that a stage before them failed.
    put_failures = "total-record-failures",
    /// Failed puts and flushes in a row, 0 while all is well.
    failures_in_a_row = "consecutive-failures",
    /// `total-errors-logged`: records that `errors.log.enable` gave a line.
    errors_logged = "total-errors-logged",
    /// `total-retries`: what was tried again after a failure: puts, and stages before them.
    retries = "total-retries",
    /// Calls that awaited all answers and got an error.
    commit_failures = "commit-failures",
    /// `last-error-timestamp`: milliseconds since 1970-01-01 UTC, 0 = never.
    last_error_timestamp = "last-error-timestamp",
    /// Records written whose lock was lost before they could be accepted: duplicates to come.
    duplicates_expected = "sink-record-duplicate-total",
    /// Records given up, or given back, that a put may have written.
    perhaps_written = "sink-record-perhaps-written-total",
    /// `total-record-errors`: records that the sink would not take or that failed for too long.
    record_errors = "total-record-errors",
    /// `total-records-skipped`: of those, records that were set aside while the task went on.
    records_skipped = "total-records-skipped",
    /// `deadletterqueue-produce-requests`: dead letters handed to the producer, retries included.
    dead_letters = "deadletterqueue-produce-requests",
    /// `deadletterqueue-produce-failures`: dead letters that were not confirmed.
    dead_letter_failures = "deadletterqueue-produce-failures",
    /// Puts and flushes that are under way, whether or not they block their thread.
    puts_active = "put-active-count",
    /// Milliseconds for which the put under way has given no outcome, once that is a quarter of
    /// `share.put.stall.ms`; else 0.
    put_stalled_ms = "put-stalled-time-ms",
    /// 1 while the target is known to be down and nothing new is acquired, else 0.
    breaker_open = "breaker-open",
    /// Records that were named as lost, in the log and in `share.loss.file`.
    named_as_lost = "sink-record-lost-total",
    /// Of those, records that were rejected without a dead letter, as it is configured.
    rejected_unkept = "sink-record-reject-unkept-total",
    /// Of those, records that were rejected for the broker to write their dead letters.
    left_to_broker = "sink-record-reject-left-total",
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

    /// Takes away what was added.
    pub(crate) fn take(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    fn raise(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }
}

/// A number that goes up and down, with its maximum and its average over all changes.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    now: Counter,
    max: Counter,
    sum: Counter,
    changes: Counter,
}

impl Gauge {
    pub(crate) fn value(&self) -> u64 {
        self.now.value()
    }

    pub(crate) fn add(&self, count: usize) {
        self.set(self.value().saturating_add(count as u64));
    }

    pub(crate) fn set(&self, value: u64) {
        self.now.set(value);
        self.max.raise(value);
        self.sum.add_wide(value);
        self.changes.add(1);
    }

    fn average(&self) -> u64 {
        self.sum.value() / self.changes.value().max(1)
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
        self.put_batch_time.observe(time);
    }

    /// Another attempt of the task begins: totals go on, what tells of the present begins anew.
    pub(crate) fn begin_again(&self) {
        self.records_active.set(0);
        for now in [
            &self.failures_in_a_row,
            &self.put_stalled_ms,
            &self.breaker_open,
        ] {
            now.set(0);
        }
    }

    /// A put or a flush has failed.
    pub(crate) fn put_failed(&self) {
        self.failures_in_a_row.add(1);
        self.stage_failed();
    }

    /// A record has failed before its put, which says nothing of the target.
    pub(crate) fn stage_failed(&self) {
        self.put_failures.add(1);
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
