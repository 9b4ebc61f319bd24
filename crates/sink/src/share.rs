//! The task loop's source over a real share group, and what the runtime logs of its events.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::error::PollError;
use sharegroup_consumer::{
    AckOutcome, Acknowledge, AcquireMode, AcquiredRange, LastDelivery, LockLoss, Release,
    ShareBatch, ShareConsumer, ShareEvent, ShareObserver,
};
use tokio::time::Instant;

use crate::config::{ConnectorConfig, ConsumerSettings};
use crate::loss::{LossLog, LossQueue, LossWriter, LostRange};
use crate::policy::LockLeft;
use crate::policy::is_last_delivery;
use crate::prepare::{Prepared, prepare};
use crate::record::SinkBatch;
use crate::source::{
    RecordSource, Settle, SourceBatch, SourceCounters, SourceError, SourceSnapshot,
};
use crate::status::{PartitionStatus, TaskShared};
use crate::worker::{Cluster, TaskPlace};

/// A Kafka cluster: prepares groups, opens members.
#[derive(Debug)]
pub(crate) struct KafkaCluster {
    /// How long to wait for a broker at start.
    pub(crate) startup_timeout: Duration,
}

impl Cluster for KafkaCluster {
    type Source = ShareSource;

    async fn prepare(&self, settings: &ConsumerSettings) -> Result<Prepared, String> {
        let mut client = settings.admin.clone();
        client.default_api_timeout = self.startup_timeout;
        let admin = Admin::new(client);
        prepare(&admin, settings)
            .await
            .map_err(|error| error.to_string())
    }

    async fn open(
        &self,
        connector: &ConnectorConfig,
        task: TaskPlace<'_>,
    ) -> Result<ShareSource, String> {
        let settings = &connector.consumer;
        let mut client = settings.client.clone();
        client.client_id = client.client_id.map(|id| format!("{id}-{}", task.index));
        // Tasks must not pause in step.
        client.seed ^= u64::from(task.index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (loss, losses) = LossQueue::new(LossLog {
            file: settings.loss_file.clone(),
            group_id: settings.group_id.clone(),
            task: task.name.to_owned(),
        });
        let mut builder = ShareConsumer::builder_with(client)
            .group_id(&settings.group_id)
            .topics(connector.topics.iter().map(String::as_str))
            .max_poll_records(settings.max_poll_records)
            .acknowledge_linger(settings.acknowledge_linger)
            .acquire_mode(match settings.acquire_mode.as_deref() {
                Some("record_limit") => AcquireMode::RecordLimit,
                Some("batch_optimized") => AcquireMode::BatchOptimized,
                _ => AcquireMode::Auto,
            })
            // A put that fails is retried until the task stops, however long that takes.
            .hold_max(None)
            // A put may take as long as it takes.
            .max_poll_interval(None)
            .startup_timeout(self.startup_timeout)
            .delivery_count_limit(task.delivery_count_limit)
            .observer(Arc::new(EventLog {
                task: task.name.to_owned(),
                delivery_count_limit: task.delivery_count_limit,
                shared: Arc::clone(task.shared),
                loss,
            }));
        if let Some(rack) = &settings.client_rack {
            builder = builder.client_rack(rack);
        }
        if let Some(records) = settings.records_held_max {
            builder = builder.records_held_max(records);
        }
        if let Some(wait) = settings.fetch_max_wait {
            builder = builder.fetch_max_wait(wait);
        }
        if let Some(bytes) = settings.fetch_max_bytes {
            builder = builder.fetch_max_bytes(bytes);
        }
        if let Some(bytes) = settings.fetch_min_bytes {
            builder = builder.fetch_min_bytes(bytes);
        }
        let consumer = builder.build().await.map_err(|error| error.to_string())?;
        Ok(ShareSource { consumer, losses })
    }
}

/// A consumer, and the writer of what it loses.
#[derive(Debug)]
pub(crate) struct ShareSource {
    consumer: ShareConsumer,
    losses: LossWriter,
}

impl RecordSource for ShareSource {
    type Batch = ShareBatch;

    async fn poll(&mut self) -> Result<Option<ShareBatch>, SourceError> {
        self.consumer.poll().await.map_err(|error| match error {
            // Records that can't be read can't be written: the task fails and releases them.
            PollError::CorruptBatch(batch) => {
                let text = batch.to_string();
                batch.release();
                SourceError(text)
            }
            error => SourceError(error.to_string()),
        })
    }

    async fn commit(&mut self) -> Result<(), SourceError> {
        // What did not count is logged as an event and counted.
        let report = self.consumer.commit().await;
        report
            .map(|_| ())
            .map_err(|error| SourceError(error.to_string()))
    }

    async fn close(&mut self, budget: Duration) -> Result<(), SourceError> {
        let deadline = Instant::now() + budget;
        let report = self.consumer.close(budget).await;
        let left = deadline.saturating_duration_since(Instant::now());
        self.losses.finish(left.max(LOSSES_MIN)).await;
        report
            .map(|_| ())
            .map_err(|error| SourceError(error.to_string()))
    }

    fn pause(&mut self) {
        self.consumer.pause();
    }

    fn resume(&mut self) {
        self.consumer.resume();
    }

    fn snapshot(&self) -> SourceSnapshot {
        let status = self.consumer.status();
        let metrics = self.consumer.metrics();
        SourceSnapshot {
            member_id: Some(status.member_id),
            assignment: status.assignment.into_iter().map(partition).collect(),
            records_held: status.records_held,
            acknowledgements_pending: status.acknowledgements_pending,
            last_record_at: status.last_record_at,
            last_settled_at: status.last_settled_at,
            missing_topics: status.missing_topics,
            problem: status.problem.map(|problem| problem.to_string()),
            counters: SourceCounters {
                acquired: metrics.records_acquired,
                redelivered: metrics.records_redelivered,
                accepted: metrics.accepted,
                released: metrics.released,
                rejected: metrics.rejected,
                renewals: metrics.records_renewed,
                acknowledge_errors: metrics.acknowledge_errors + metrics.acknowledgements_lost,
                accepts_unconfirmed: metrics.accepts_unconfirmed,
                locks_lost: metrics.locks_lost,
            },
        }
    }
}

fn partition(view: sharegroup_consumer::PartitionView) -> PartitionStatus {
    PartitionStatus {
        topic: view
            .topic
            .unwrap_or_else(|| view.partition.topic_id.to_string().into()),
        partition: view.partition.partition,
        leader_known: view.leader.is_some(),
        fetch_answered: view.fetch_answered,
        last_fetch_empty: view.last_fetch_empty,
        records_held: view.records_held,
    }
}

impl SourceBatch for ShareBatch {
    fn records(&self) -> SinkBatch {
        SinkBatch::from_fetched(self.data())
    }

    fn settle(&mut self, indexes: Range<usize>, how: Settle) {
        let how = match how {
            Settle::Accept => Acknowledge::Accept,
            Settle::Release => Acknowledge::Release,
        };
        let settled = self.settle_indexes(indexes, how);
        // INVARIANT: a flight settles each of its records once.
        debug_assert!(settled.is_ok(), "{settled:?}");
        if let Err(error) = settled {
            tracing::error!(%error, "Records could not be settled; they will be delivered again.");
        }
    }

    fn lock(&self) -> LockLeft {
        let lock = Self::lock(self);
        if lock.lost().is_some() {
            LockLeft::Lost
        } else if lock.is_renewable() {
            LockLeft::Renewable
        } else {
            LockLeft::Ends(lock.deadline().saturating_duration_since(Instant::now()))
        }
    }

    async fn lock_trouble(&self) {
        Self::lock(self).lost_or_refused().await;
    }
}

/// Logs what happens to a task's consumer, and names what is lost while no batch of the task's own can
/// tell. Runs on the driver's thread: waits for nothing.
#[derive(Debug)]
struct EventLog {
    task: String,
    delivery_count_limit: i16,
    shared: Arc<TaskShared>,
    loss: LossQueue,
}

impl EventLog {
    fn is_last(&self, delivery_count: i16) -> bool {
        is_last_delivery(delivery_count, self.delivery_count_limit)
    }

    fn arrived(&self, topic: &str, partition: i32, ranges: &[AcquiredRange]) {
        let last = ranges
            .iter()
            .filter(|range| self.is_last(range.delivery_count));
        let last: Vec<_> = last
            .map(|range| (range.first_offset, range.last_offset))
            .collect();
        if !last.is_empty() {
            tracing::warn!(
                task = self.task,
                records = %format_args!("{topic}-{partition} offsets {}", list(&last)),
                delivery_count_limit = self.delivery_count_limit,
                "Records arrived on their last allowed delivery: if they aren't accepted this time the broker archives them."
            );
        }
    }

    fn acknowledged(&self, topic: &str, outcome: &AckOutcome) {
        match &outcome.result {
            Ok(()) => tracing::trace!(task = self.task, ?outcome, "Acknowledged."),
            Err(error) => tracing::warn!(
                task = self.task,
                topic,
                partition = outcome.partition.partition,
                first_offset = outcome.first_offset,
                last_offset = outcome.last_offset,
                how = ?outcome.how,
                %error,
                "An acknowledgement did not count, or may not have: the records may be delivered again."
            ),
        }
    }

    fn lock_lost(&self, topic: &Arc<str>, loss: &LockLoss) {
        if self.is_last(loss.delivery_count) {
            return self.name(LostRange {
                topic: Arc::clone(topic),
                partition: loss.partition.partition,
                first_offset: loss.first_offset,
                last_offset: loss.last_offset,
                delivery_count: loss.delivery_count,
                reason: format!("the lock was lost: {}", loss.why),
            });
        }
        tracing::warn!(
            task = self.task,
            %topic,
            partition = loss.partition.partition,
            first_offset = loss.first_offset,
            last_offset = loss.last_offset,
            why = %loss.why,
            "Records lost their lock while they were held; they will be delivered again."
        );
    }

    fn released(&self, topic: &Arc<str>, release: &Release) {
        if self.is_last(release.delivery_count) {
            self.name(LostRange {
                topic: Arc::clone(topic),
                partition: release.partition.partition,
                first_offset: release.first_offset,
                last_offset: release.last_offset,
                delivery_count: release.delivery_count,
                reason: format!("released: {}", release.why),
            });
        }
    }

    fn name(&self, range: LostRange) {
        let count = range.last_offset.saturating_sub(range.first_offset);
        let count = u64::try_from(count).unwrap_or(0).saturating_add(1);
        self.shared.metrics.named_as_lost.add_wide(count);
        self.loss.name(range);
    }
}

impl ShareObserver for EventLog {
    fn event(&self, event: &ShareEvent) {
        let task = self.task.as_str();
        match event {
            ShareEvent::Joined { member_epoch } => {
                tracing::info!(task, member_epoch, "Joined the share group.");
            }
            ShareEvent::AssignmentChanged => tracing::debug!(task, "The assignment changed."),
            ShareEvent::Acquired {
                topic,
                partition,
                ranges,
            } => self.arrived(topic, *partition, ranges),
            ShareEvent::Acknowledged { topic, outcome } => self.acknowledged(topic, outcome),
            ShareEvent::LockLost { topic, loss } => self.lock_lost(topic, loss),
            ShareEvent::Released { topic, release }
            | ShareEvent::LastDeliveryDropped { topic, release, .. } => {
                self.released(topic, release)
            }
            ShareEvent::Stalled => tracing::warn!(
                task,
                "A lock ran out before its records were settled: nothing is acquired until the task goes on."
            ),
            ShareEvent::Warning(warning) => tracing::warn!(task, "{warning}."),
            _ => {}
        }
    }

    /// What a task gives up is named: never in a dead-letter topic that the worker did not choose.
    fn last_delivery(&self, _: &Arc<str>, _: &Release) -> LastDelivery {
        LastDelivery::Release
    }
}

/// `1-5, 9-9 and 3 ranges more`; ranges that touch are one.
fn list(ranges: &[(i64, i64)]) -> String {
    let mut merged: Vec<(i64, i64)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if before.1.saturating_add(1) == *first => before.1 = *last,
            _ => merged.push((*first, *last)),
        }
    }
    let shown = merged.iter().take(RANGES_LISTED_MAX);
    let shown: Vec<_> = shown
        .map(|(first, last)| format!("{first}-{last}"))
        .collect();
    match merged.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} ranges more", shown.join(", ")),
    }
}

/// Ranges that one line of the log names.
const RANGES_LISTED_MAX: usize = 20;
/// Least time for the loss file at the end.
const LOSSES_MIN: Duration = Duration::from_millis(200);
