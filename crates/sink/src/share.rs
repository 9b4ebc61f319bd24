//! The task loop's source over a real share group, and what the runtime logs of its events.

mod last_deliveries;
mod settling;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::error::PollError;
use sharegroup_consumer::{
    AckOutcome, Acknowledge, AcquireMode, AcquiredRange, CorruptBatch, LastDelivery, LockLoss,
    LockView, Release, ShareBatch, ShareConsumer, ShareEvent, ShareObserver,
};
use tokio::time::Instant;

use self::last_deliveries::LastDeliveries;
use self::settling::Settling;
use crate::config::ConnectorConfig;
use crate::dead_letter::LettersOfTask;
use crate::loss::{LossLog, LossQueue, LossWriter, LostRange};
use crate::policy::LockLeft;
use crate::policy::is_last_delivery;
use crate::prepare::{Prepared, prepare};
use crate::record::SinkBatch;
use crate::source::{
    CorruptSource, Polled, PolledBy, RecordSource, RenewalStop, Settle, SourceBatch,
    SourceCounters, SourceError, SourceSnapshot,
};
use crate::status::{PartitionStatus, TaskShared};
use crate::subscription::{Following, first_topics};
use crate::task::{CorruptRange, DeadLetters};
use crate::worker::{Cluster, TaskPlace};

/// A Kafka cluster: prepares groups, opens members.
#[derive(Debug)]
pub(crate) struct KafkaCluster {
    /// How long to wait for a broker at start.
    pub(crate) startup_timeout: Duration,
    /// Whether members are driven on the tasks' runtime instead of their own thread: under paused time.
    pub(crate) driver_on_current: bool,
}

impl Cluster for KafkaCluster {
    type Source = ShareSource;

    async fn prepare(&self, connector: &ConnectorConfig) -> Result<Prepared, String> {
        let mut client = connector.consumer.admin.clone();
        client.default_api_timeout = self.startup_timeout;
        let admin = Admin::new(client);
        let topics = connector.subscription.resolve(&admin).await;
        let topics = topics.map_err(|error| error.to_string())?;
        prepare(&admin, connector, &topics)
            .await
            .map_err(|error| error.to_string())
    }

    async fn dead_letters(
        &self,
        connector: &ConnectorConfig,
        task: u32,
    ) -> Result<Option<Box<dyn DeadLetters>>, String> {
        let letters = LettersOfTask::open(connector, task, self.startup_timeout).await?;
        Ok(letters.map(|letters| Box::new(letters) as Box<dyn DeadLetters>))
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
        let settling = Arc::new(Settling::default());
        let admin = Admin::new(settings.admin.clone());
        let topics = first_topics(&admin, connector, &task).await?;
        let mut builder = ShareConsumer::builder_with(client)
            .group_id(&settings.group_id)
            .topics(topics.iter().map(String::as_str))
            .max_poll_records(settings.max_poll_records)
            .acknowledge_linger(settings.acknowledge_linger)
            .acquire_mode(match settings.acquire_mode.as_deref() {
                Some("record_limit") => AcquireMode::RecordLimit,
                Some("batch_optimized") => AcquireMode::BatchOptimized,
                _ => AcquireMode::Auto,
            })
            // The task decides how long a record is held.
            .hold_max(None)
            // A put may take as long as it takes.
            .max_poll_interval(None)
            .startup_timeout(self.startup_timeout)
            .delivery_count_limit(task.delivery_count_limit)
            .observer(Arc::new(EventLog {
                task: task.name.to_owned(),
                delivery_count_limit: task.delivery_count_limit,
                shared: Arc::clone(task.shared),
                settling: Arc::clone(&settling),
                last_deliveries: LastDeliveries::new(task.name, task.delivery_count_limit),
                loss,
            }));
        if self.driver_on_current {
            builder = builder.driver_on_current();
        }
        if let Some(rack) = &settings.client_rack {
            builder = builder.client_rack(rack);
        }
        if let Some(records) = settings.records_held_max {
            builder = builder.records_held_max(records);
        }
        builder = builder.bytes_held_max(settings.bytes_held_max.into());
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
        let known = topics.iter().map(|topic| Arc::from(topic.as_str()));
        let known = known.collect();
        let following = Following::start(admin, connector, topics, &consumer);
        Ok(ShareSource {
            consumer,
            losses,
            topics: known,
            settling,
            shared: Arc::clone(task.shared),
            following,
        })
    }
}

/// A consumer, and the writer of what it loses.
#[derive(Debug)]
pub(crate) struct ShareSource {
    consumer: ShareConsumer,
    losses: LossWriter,
    /// Those that the member joined with.
    topics: Vec<Arc<str>>,
    settling: Arc<Settling>,
    shared: Arc<TaskShared>,
    /// With `topics.regex`.
    following: Option<Following>,
}

impl RecordSource for ShareSource {
    type Batch = AcquiredBatch;
    type Corrupt = Box<CorruptBatch>;

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        records_max: usize,
    ) -> Poll<Result<Option<PolledBy<Self>>, SourceError>> {
        Poll::Ready(match ready!(self.consumer.poll_up_to(cx, records_max)) {
            Ok(batch) => Ok(batch.map(|batch| {
                Polled::Batch(AcquiredBatch {
                    batch,
                    settling: Arc::clone(&self.settling),
                    shared: Arc::clone(&self.shared),
                })
            })),
            Err(PollError::CorruptBatch(batch)) => Ok(Some(Polled::Corrupt(batch))),
            Err(error) => Err(SourceError(error.to_string())),
        })
    }

    fn commit(&mut self) -> impl Future<Output = Result<(), SourceError>> + Send + use<> {
        let committed = self.consumer.commit();
        // What did not count is logged as an event and counted.
        async move {
            let report = committed.await;
            report
                .map(|_| ())
                .map_err(|error| SourceError(error.to_string()))
        }
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

    fn acquire_one(&mut self) {
        self.consumer.acquire_one();
    }

    fn topics(&self) -> Vec<Arc<str>> {
        self.topics.clone()
    }

    fn renewal_stop(&self) -> RenewalStop {
        let renewals = self.consumer.renewal_stop();
        Box::new(move || renewals.stop())
    }

    fn records_held(&self) -> u64 {
        self.consumer.records_held()
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
            // One that matched drops out: nobody waits for it.
            missing_topics: match self.following {
                Some(_) => Vec::new(),
                None => status.missing_topics,
            },
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

/// A batch with where the times of its settling are taken.
#[derive(Debug)]
pub(crate) struct AcquiredBatch {
    batch: ShareBatch,
    settling: Arc<Settling>,
    shared: Arc<TaskShared>,
}

impl AcquiredBatch {
    fn take_time(&self, indexes: &Range<usize>) {
        let batch = &self.batch;
        let lock = batch.lock();
        if let Some(first) = batch.record(indexes.start)
            && lock.lost().is_none()
        {
            let left = lock.deadline().saturating_duration_since(Instant::now());
            self.shared.metrics.lock_left.observe(left);
            self.settling
                .began(batch.topic_id(), batch.partition(), first.offset);
        }
    }
}

impl SourceBatch for AcquiredBatch {
    fn records(&self) -> SinkBatch {
        SinkBatch::from_fetched(self.batch.data())
    }

    fn settle(&mut self, indexes: Range<usize>, how: Settle) {
        let how = match how {
            Settle::Accept => Acknowledge::Accept,
            Settle::Release => Acknowledge::Release,
            Settle::Reject => Acknowledge::Reject,
        };
        self.take_time(&indexes);
        let settled = self.batch.settle_indexes(indexes, how);
        // INVARIANT: a flight settles each of its records once.
        debug_assert!(settled.is_ok(), "{settled:?}");
        if let Err(error) = settled {
            tracing::error!(%error, "Records could not be settled; they will be delivered again.");
        }
    }

    fn lock(&self) -> LockLeft {
        lock_left(&self.batch.lock())
    }

    fn lock_duration(&self) -> Duration {
        self.batch.lock().duration()
    }

    async fn lock_trouble(&self) {
        self.batch.lock().lost_or_refused().await;
    }
}

fn lock_left(lock: &LockView) -> LockLeft {
    if lock.lost().is_some() {
        LockLeft::Lost
    } else if lock.is_renewable() {
        LockLeft::Renewable
    } else {
        LockLeft::Ends(lock.deadline().saturating_duration_since(Instant::now()))
    }
}

impl CorruptSource for Box<CorruptBatch> {
    fn range(&self) -> CorruptRange {
        CorruptRange {
            topic: Arc::clone(self.topic()),
            partition: self.partition(),
            first_offset: self.first_offset(),
            last_offset: self.last_offset(),
            delivery_count: self.delivery_count(),
            bytes: self.error().bytes.clone(),
            error: self.to_string(),
        }
    }

    fn settle(self, how: Settle) {
        match how {
            Settle::Accept => self.accept(),
            Settle::Release => self.release(),
            Settle::Reject => self.reject(),
        }
    }

    fn lock(&self) -> LockLeft {
        lock_left(&CorruptBatch::lock(self))
    }
}

/// Logs what happens to a task's consumer, and names what is lost while no batch of the task's own can
/// tell. Runs on the driver's thread: waits for nothing.
#[derive(Debug)]
struct EventLog {
    task: String,
    delivery_count_limit: i16,
    shared: Arc<TaskShared>,
    settling: Arc<Settling>,
    last_deliveries: LastDeliveries,
    loss: LossQueue,
}

impl EventLog {
    fn is_last(&self, delivery_count: i16) -> bool {
        is_last_delivery(delivery_count, self.delivery_count_limit)
    }

    fn arrived(&self, topic: &Arc<str>, partition: i32, ranges: &[AcquiredRange]) {
        let last = ranges
            .iter()
            .filter(|range| self.is_last(range.delivery_count));
        let last = last.map(|range| (range.first_offset, range.last_offset));
        self.last_deliveries.arrived(topic, partition, last);
    }

    fn acknowledged(&self, topic: &str, outcome: &AckOutcome) {
        let place = (outcome.partition.topic_id, outcome.partition.partition);
        let times = self
            .settling
            .ended(place, outcome.first_offset, outcome.last_offset);
        for time in times {
            self.shared.metrics.acknowledge_time.observe(time);
        }
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
        let place = (loss.partition.topic_id, loss.partition.partition);
        drop(
            self.settling
                .ended(place, loss.first_offset, loss.last_offset),
        );
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
        self.last_deliveries.tell_if_due();
    }

    /// What a task gives up is named: never in a dead-letter topic that the worker did not choose.
    fn last_delivery(&self, _: &Arc<str>, _: &Release) -> LastDelivery {
        LastDelivery::Release
    }
}

/// Least time for the loss file at the end.
const LOSSES_MIN: Duration = Duration::from_millis(200);
