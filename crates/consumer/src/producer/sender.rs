//! The producer's task: sends what is due, learns leaders, gets the producer id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sharegroup_wire::message::Message;
use sharegroup_wire::message::init_producer_id::InitProducerIdRequest;
use sharegroup_wire::message::metadata::MetadataResponse;
use sharegroup_wire::net::Connection;
use sharegroup_wire::{BrokerId, ErrorCode};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::accumulator::{Accumulator, Plan};
use super::batch::{Batch, Identity};
use super::config::ProducerConfig;
use super::request::{Answer, Attempt, produce};
use super::thinned::{Thinned, cause};
use crate::cluster::{Cluster, MetadataScope};
use crate::error::ClientError;

/// What the handles of a producer and its task share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: ProducerConfig,
    pub(super) cluster: Cluster,
    state: Mutex<Accumulator>,
    /// Something for the task to do.
    pub(super) wake: Notify,
    /// Metadata came or could not be had.
    pub(super) metadata: watch::Sender<()>,
    /// Bytes that are free in the buffer.
    pub(super) room: Arc<Semaphore>,
}

impl Shared {
    pub(super) fn new(config: ProducerConfig) -> Self {
        Self {
            cluster: Cluster::new(config.client.clone()),
            state: Mutex::default(),
            wake: Notify::new(),
            metadata: watch::Sender::new(()),
            room: Arc::new(Semaphore::new(config.buffer_bytes_max)),
            config,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, Accumulator> {
        // Nothing panics under the lock, and it is never held across an await.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives up all that waits, and refuses what comes.
    pub(super) fn abort(&self) {
        self.state().abort();
        self.room.close();
        self.metadata.send_replace(());
        self.wake.notify_one();
    }
}

/// Whatever ends the task, nobody waits for it in vain.
struct AbortOnDrop(Arc<Shared>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

enum Job {
    Produced(Answer),
    Metadata(Result<MetadataResponse, ClientError>),
    ProducerId(Result<Identity, ClientError>),
}

struct Sender {
    shared: Arc<Shared>,
    jobs: JoinSet<Job>,
    brokers: HashMap<BrokerId, Broker>,
    metadata: Metadata,
    asks_producer_id: bool,
    /// What was told of tries that failed.
    retries: Thinned,
}

#[derive(Default)]
struct Broker {
    connection: Option<Connection>,
    /// A request waits for its answer.
    is_busy: bool,
    /// The broker asked for a pause (quota).
    not_before: Option<Instant>,
}

#[derive(Default)]
struct Metadata {
    is_asked: bool,
    /// Leaders may have moved.
    is_stale: bool,
    asked_at: Option<Instant>,
    /// Fruitless tries in a row.
    failures: u32,
    not_before: Option<Instant>,
}

/// Runs a producer to its end: closed and nothing left, or aborted.
pub(super) async fn run(shared: Arc<Shared>) {
    let guard = AbortOnDrop(Arc::clone(&shared));
    let mut sender = Sender {
        shared,
        jobs: JoinSet::new(),
        brokers: HashMap::new(),
        metadata: Metadata::default(),
        asks_producer_id: false,
        retries: Thinned::default(),
    };
    sender.run().await;
    drop(guard);
}

impl Sender {
    async fn run(&mut self) {
        let shared = Arc::clone(&self.shared);
        loop {
            let Some(wake_at) = self.start_what_is_due() else {
                return;
            };
            tokio::select! {
                Some(done) = self.jobs.join_next(), if !self.jobs.is_empty() => match done {
                    Ok(job) => self.finish(job),
                    Err(error) => {
                        tracing::error!(%error, "A task of the producer ended unexpectedly.");
                        return;
                    }
                },
                () = shared.wake.notified() => {}
                () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {}
            }
        }
    }

    /// Starts requests. `None` = the producer has ended; else when to look again.
    fn start_what_is_due(&mut self) -> Option<Option<Instant>> {
        let now = Instant::now();
        let mut wake_at = None;
        let mut wake = |at: Option<Instant>| wake_at = [wake_at, at].into_iter().flatten().min();
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        let brokers = &self.brokers;
        let plan = state.plan(&shared.config, |broker| {
            brokers
                .get(&broker)
                .is_some_and(|b| b.is_busy || b.not_before.is_some_and(|at| at > now))
        });
        if state.is_aborted || (state.is_closed && plan.is_idle) {
            return None;
        }
        wake(plan.wake_at);
        self.brokers
            .values()
            .for_each(|broker| wake(broker.not_before.filter(|at| *at > now)));
        wake(self.start_metadata(&mut state, plan.needs_leader, now));
        drop(state);
        self.start_requests(plan);
        Some(wake_at)
    }

    fn start_requests(&mut self, plan: Plan) {
        if plan.needs_producer_id && !self.asks_producer_id {
            self.asks_producer_id = true;
            let cluster = self.shared.cluster.clone();
            self.jobs
                .spawn(async move { Job::ProducerId(producer_id(&cluster).await) });
        }
        let delivery_timeout = self.shared.config.delivery_timeout;
        for (id, outgoing) in plan.requests {
            let broker = self.brokers.entry(id).or_default();
            broker.is_busy = true;
            let (cluster, connection) = (self.shared.cluster.clone(), broker.connection.take());
            self.jobs.spawn(async move {
                Job::Produced(produce(cluster, id, connection, outgoing, delivery_timeout).await)
            });
        }
    }

    /// Asks for metadata where somebody needs it, with a pause between tries. Tells when to look
    /// again.
    fn start_metadata(
        &mut self,
        state: &mut Accumulator,
        needs_leader: bool,
        now: Instant,
    ) -> Option<Instant> {
        let metadata = &mut self.metadata;
        if metadata.is_asked {
            return None;
        }
        let names = state.topic_names(now);
        let expires = metadata
            .asked_at
            .map(|at| at + self.shared.config.client.metadata_max_age);
        let is_due = needs_leader || metadata.is_stale || state.wants_metadata(now);
        if names.is_empty() || (!is_due && expires.is_none_or(|at| at > now)) {
            return expires.filter(|_| !names.is_empty());
        }
        if let Some(not_before) = metadata.not_before.filter(|at| *at > now) {
            return Some(not_before);
        }
        metadata.is_asked = true;
        metadata.is_stale = false;
        let cluster = self.shared.cluster.clone();
        self.jobs.spawn(async move {
            Job::Metadata(cluster.metadata(MetadataScope::Names(names)).await)
        });
        None
    }

    fn finish(&mut self, job: Job) {
        match job {
            Job::Produced(answer) => self.finish_request(answer),
            Job::Metadata(outcome) => self.finish_metadata(outcome),
            Job::ProducerId(outcome) => {
                self.asks_producer_id = false;
                let mut state = self.shared.state();
                match outcome {
                    Ok(identity) => state.producer = Some(identity),
                    Err(error) => state.producer_id_failed(&error),
                }
            }
        }
    }

    fn finish_metadata(&mut self, outcome: Result<MetadataResponse, ClientError>) {
        let now = Instant::now();
        let mut state = self.shared.state();
        match outcome {
            Ok(response) => state.learn(response),
            Err(error) => {
                tracing::warn!(%error, "No metadata for the producer.");
                state.metadata_failed(&error);
            }
        }
        let metadata = &mut self.metadata;
        metadata.is_asked = false;
        metadata.asked_at = Some(now);
        metadata.failures = if state.wants_metadata(now) {
            metadata.failures.saturating_add(1)
        } else {
            0
        };
        drop(state);
        metadata.not_before = Some(now + self.shared.cluster.retry_delay(metadata.failures));
        self.shared.metadata.send_replace(());
    }

    fn finish_request(&mut self, answer: Answer) {
        let broker = self.brokers.entry(answer.broker).or_default();
        broker.is_busy = false;
        broker.connection = answer.connection;
        broker.not_before = (!answer.throttle.is_zero()).then(|| Instant::now() + answer.throttle);
        let mut state = self.shared.state();
        for (batch, attempt) in answer.attempts {
            self.metadata.is_stale |= attempt.questions_leader();
            tell_retry(&mut self.retries, &batch, &attempt);
            finish_batch(&self.shared, &mut state, batch, attempt);
        }
    }
}

/// Tells of a batch that is tried again: of one partition for all that fail for the same cause.
fn tell_retry(retries: &mut Thinned, batch: &Batch, attempt: &Attempt) {
    let (Attempt::Retry(error) | Attempt::RetryWithNextEpoch(error)) = attempt else {
        return;
    };
    if let Some(tries) = retries.enter(Instant::now(), cause(error), 1) {
        tracing::warn!(partition = %batch.partition(), tries, %error, "Producing again.");
    }
}

fn finish_batch(shared: &Shared, state: &mut Accumulator, batch: Batch, attempt: Attempt) {
    let pause = shared.cluster.retry_delay(batch.failures.saturating_add(1));
    match attempt {
        Attempt::Written {
            base_offset,
            append_time_ms,
        } => state.written(batch, base_offset, append_time_ms),
        Attempt::Retry(error) => state.retry(batch, error, pause),
        Attempt::RetryWithNextEpoch(error) => state.retry_with_next_epoch(batch, error, pause),
        Attempt::Refused(refusal) => state.refused(batch, refusal),
        Attempt::NotBuilt(error) => state.failed(batch, error),
    }
}

/// Asks for a new producer id, until `default.api.timeout.ms`.
async fn producer_id(cluster: &Cluster) -> Result<Identity, ClientError> {
    let mut attempts = crate::cluster::Attempts::new(cluster, InitProducerIdRequest::NAME);
    let cluster = cluster.until(attempts.deadline());
    let request = InitProducerIdRequest {
        transaction_timeout_ms: i32::MAX,
        ..Default::default()
    };
    loop {
        let response = cluster.call_any(&request).await?;
        match response.error_code {
            ErrorCode::None => {
                let (producer_id, epoch) = (response.producer_id, response.producer_epoch);
                return Ok(Identity {
                    producer_id,
                    epoch,
                    sequence: 0,
                });
            }
            code => {
                let error = ClientError::Broker {
                    api: InitProducerIdRequest::NAME,
                    code,
                    message: None,
                };
                if !error.is_retriable() {
                    return Err(error);
                }
                attempts.failed(error);
            }
        }
        attempts.pause().await?;
    }
}
