//! What numbers are called: of tasks, connectors and the worker.

use std::time::Duration;

use super::histogram::HistogramSnapshot;
use crate::status::{ConnectorStatus, TaskState, TaskStatus};

/// A number, of a task or of something else.
pub(super) struct Metric<T> {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) help: &'static str,
    pub(super) value: fn(&T) -> f64,
}

macro_rules! numbers {
    ($(#[$meta:meta])* $visibility:vis $list:ident, $prefix:literal, $of:ident: $type:ty,
     $($kind:ident $name:ident: $help:literal = $value:expr;)*) => {
        $(#[$meta])*
        $visibility const $list: &[Metric<$type>] = &[
            $(Metric {
                name: concat!($prefix, stringify!($name)),
                kind: stringify!($kind),
                help: $help,
                value: |$of| $value,
            },)*
        ];
    };
}

numbers! {
    /// Connect's `sink-task-metrics`, with KIP-1302's.
    SINK, "kafka_connect_sink_task_metrics_", t: TaskStatus,
    counter sink_record_read_total: "records handed to the task loop" = t.counters.read as f64;
    counter sink_record_send_total: "records put and flushed" = t.counters.written as f64;
    gauge sink_record_active_count: "records read and not settled yet" = t.metrics.records_active as f64;
    gauge sink_record_active_count_max: "most records read and not settled at one time" = t.metrics.records_active_max as f64;
    gauge sink_record_active_count_avg: "records read and not settled, on average over the changes" = t.metrics.records_active_avg as f64;
    gauge put_batch_max_time_ms: "longest put, in milliseconds" = t.metrics.put_batch_max_time_ms as f64;
    gauge put_batch_avg_time_ms: "average put, in milliseconds" = t.metrics.put_batch_avg_time_ms as f64;
    counter sink_record_acquire_total: "records acquired from the broker" = t.counters.acquired as f64;
    counter sink_record_acknowledge_total: "records whose acceptance the broker has confirmed" = t.counters.acknowledged as f64;
    counter sink_record_release_total: "records whose release the broker has confirmed" = t.counters.released as f64;
    counter sink_record_reject_total: "records whose rejection the broker has confirmed" = t.counters.rejected as f64;
    counter sink_record_redelivery_total: "records acquired with a delivery count above 1; a count of 1 need not be the first delivery" = t.counters.redelivered as f64;
    gauge acknowledge_time_max: "longest time from the settling of records to the broker's answer, in milliseconds" = ms(t.metrics.acknowledge_time.max);
    gauge acknowledge_time_avg: "average time from the settling of records to the broker's answer, in milliseconds" = ms(t.metrics.acknowledge_time.average());
}

numbers! {
    /// Connect's `connector-task-metrics`.
    CONNECTOR_TASK, "kafka_connect_connector_task_metrics_", t: TaskStatus,
    gauge running_ratio: "share of its time that the task was RUNNING" = ratio(t.times.running, t.times.total);
    gauge pause_ratio: "share of its time that the task was PAUSED" = ratio(t.times.paused, t.times.total);
    gauge batch_size_max: "most records in one put" = t.metrics.batch_size_max as f64;
    gauge batch_size_avg: "records in a put, on average" = t.metrics.batch_size_avg as f64;
    gauge offset_commit_max_time_ms: "longest wait for the answers to all acknowledgements, in milliseconds" = ms(t.metrics.commit_time.max);
    gauge offset_commit_avg_time_ms: "average wait for the answers to all acknowledgements, in milliseconds" = ms(t.metrics.commit_time.average());
    gauge offset_commit_success_percentage: "share of those waits that ended with answers, from 0 to 1" = 1.0 - commits_failed(t);
    gauge offset_commit_failure_percentage: "share of those waits that ended with an error, from 0 to 1" = commits_failed(t);
}

numbers! {
    /// Connect's `task-error-metrics`.
    ERRORS, "kafka_connect_task_error_metrics_", t: TaskStatus,
    counter total_record_failures: "failed puts and flushes" = t.metrics.put_failures as f64;
    counter total_record_errors: "records that the sink would not take or that failed for too long" = t.metrics.record_errors as f64;
    counter total_records_skipped: "records that were set aside while the task went on" = t.metrics.records_skipped as f64;
    counter total_retries: "puts made again after a failure" = t.metrics.retries as f64;
    counter total_errors_logged: "records that errors.log.enable gave a line" = t.metrics.errors_logged as f64;
    counter deadletterqueue_produce_requests: "dead letters handed to the producer, retries included" = t.metrics.dead_letters as f64;
    counter deadletterqueue_produce_failures: "dead letters that were not confirmed" = t.metrics.dead_letter_failures as f64;
    gauge last_error_timestamp: "milliseconds since 1970-01-01 UTC, 0 = never" = t.metrics.last_error_timestamp as f64;
}

numbers! {
    /// Of locks and acknowledgements, and of this runtime.
    OURS, "share_", t: TaskStatus,
    gauge acquired_records: "records held: acquired and not settled" = t.records_held as f64;
    gauge acknowledgements_pending: "acknowledgements whose answer is outstanding" = t.acknowledgements_pending as f64;
    counter lock_expired_total: "records whose lock was lost while they were held" = t.counters.locks_lost as f64;
    counter renew_total: "records whose lock was renewed, each time" = t.counters.renewals as f64;
    counter acknowledge_error_total: "acknowledgements that the broker refused or that could not be sent" = t.counters.acknowledge_errors as f64;
    counter duplicate_expected_total: "records written whose lock was lost before they could be accepted" = t.counters.duplicates_expected as f64;
    counter perhaps_written_total: "records given back that a put may have written: it was cut off, or panicked, or did not know" = t.counters.perhaps_written as f64;
    counter records_lost_total: "records named as lost, in the log and in share.loss.file" = t.counters.named_as_lost as f64;
    counter rejected_left_to_broker_total: "of those, records rejected for the broker to write their dead letters, which nobody confirms (share.dead.letter=broker)" = t.counters.left_to_broker as f64;
    counter rejected_unkept_total: "of those, records rejected without a dead letter (errors.tolerance=all without a dead-letter topic)" = t.counters.rejected_unkept as f64;
    gauge breaker_open: "1 while the target is known to be down and nothing new is acquired" = t.metrics.breaker_open as f64;
    gauge puts_active: "puts and flushes that are under way" = t.metrics.puts_active as f64;
    gauge put_stalled_seconds: "for how long the put under way has given no outcome, once that is a quarter of share.put.stall.ms" = t.metrics.put_stalled_ms as f64 / 1e3;
    gauge partitions_assigned: "partitions assigned to the task; other tasks may have them, too" = t.assignment.len() as f64;
    counter task_restarts_total: "starts of the task after a failure (task.restart.*)" = t.restarts as f64;
}

/// All of a task.
pub(super) fn of_tasks() -> impl Iterator<Item = &'static Metric<TaskStatus>> {
    [SINK, CONNECTOR_TASK, ERRORS, OURS].into_iter().flatten()
}

/// What a worker counts.
pub(super) struct Counts {
    pub(super) connectors: u64,
    pub(super) tasks: u64,
    pub(super) connectors_started: u64,
    pub(super) starts: u64,
    pub(super) started: u64,
    pub(super) failed_to_start: u64,
}

numbers! {
    /// Connect's `connect-worker-metrics`. A connector alone does nothing that could fail; its tasks do.
    pub(super) OF_WORKER, "kafka_connect_connect_worker_metrics_", w: Counts,
    gauge connector_count: "connectors" = w.connectors as f64;
    gauge task_count: "tasks" = w.tasks as f64;
    counter connector_startup_attempts_total: "connectors started" = w.connectors_started as f64;
    counter connector_startup_success_total: "connectors started" = w.connectors_started as f64;
    counter connector_startup_failure_total: "always 0: what can't be started is a task" = part(0, w.connectors_started);
    gauge connector_startup_success_percentage: "from 0 to 1" = part(w.connectors_started, w.connectors_started);
    gauge connector_startup_failure_percentage: "always 0" = part(0, w.connectors_started);
    counter task_startup_attempts_total: "starts of tasks, restarts included" = w.starts as f64;
    counter task_startup_success_total: "starts after which the task was in its group" = w.started as f64;
    counter task_startup_failure_total: "starts that failed" = w.failed_to_start as f64;
    gauge task_startup_success_percentage: "from 0 to 1" = part(w.started, w.starts);
    gauge task_startup_failure_percentage: "from 0 to 1" = part(w.failed_to_start, w.starts);
}

numbers! {
    /// Those of a connector.
    pub(super) OF_CONNECTORS, "kafka_connect_connect_worker_metrics_connector_", c: ConnectorStatus,
    gauge total_task_count: "tasks of the connector" = c.tasks.len() as f64;
    gauge running_task_count: "its tasks that are RUNNING" = tasks_in(c, TaskState::Running);
    gauge paused_task_count: "its tasks that are PAUSED" = tasks_in(c, TaskState::Paused);
    gauge failed_task_count: "its tasks that are FAILED" = tasks_in(c, TaskState::Failed);
    gauge unassigned_task_count: "its tasks that are UNASSIGNED" = tasks_in(c, TaskState::Unassigned);
    gauge restarting_task_count: "its tasks that are RESTARTING" = tasks_in(c, TaskState::Restarting);
    counter destroyed_task_count: "tasks that it had and has no more" = c.tasks_destroyed as f64;
}

/// Times of a task.
pub(super) struct TimesOfTask {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) times: fn(&TaskStatus) -> &HistogramSnapshot,
}

/// Histograms, in seconds.
pub(super) const TIMES: [TimesOfTask; 3] = [
    TimesOfTask {
        name: "kafka_connect_sink_task_metrics_put_batch_seconds",
        help: "times of puts",
        times: |task| &task.metrics.put_batch_time,
    },
    TimesOfTask {
        name: "kafka_connect_sink_task_metrics_acknowledge_time_seconds",
        help: "times from the settling of records to the broker's answer",
        times: |task| &task.metrics.acknowledge_time,
    },
    TimesOfTask {
        name: "share_lock_remaining_seconds",
        help: "what was left of locks when their records were settled",
        times: |task| &task.metrics.lock_left,
    },
];

fn commits_failed(task: &TaskStatus) -> f64 {
    let metrics = &task.metrics;
    part(metrics.commit_failures, metrics.commit_time.count())
}

fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

fn part(count: u64, of: u64) -> f64 {
    if of == 0 {
        return 0.0;
    }
    count as f64 / of as f64
}

fn tasks_in(connector: &ConnectorStatus, state: TaskState) -> f64 {
    let tasks = connector.tasks.iter();
    tasks.filter(|task| task.state == state).count() as f64
}

fn ratio(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() {
        return 0.0;
    }
    part.as_secs_f64() / whole.as_secs_f64()
}
