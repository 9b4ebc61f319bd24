//! Records that wait: topics, their partitions, and the batches of each. No I/O, no task: plain
//! state under the producer's lock.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sharegroup_wire::id::TopicId;
use sharegroup_wire::message::metadata::MetadataResponse;
use sharegroup_wire::{BrokerId, ErrorCode};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::batch::{Batch, Identity};
use super::config::ProducerConfig;
use super::delivery::{BatchCell, BatchOutcome, DeliveryFuture, Refusal};
use super::error::{ProduceError, may_have_been_written};
use super::partitioner::partition_of_key;
use super::record::ProducerRecord;
use super::thinned::Thinned;
use crate::error::ClientError;
use crate::topic_partition::TopicPartition;

/// What is known of a topic.
#[derive(Debug, Default)]
pub(super) struct Topic {
    pub(super) id: TopicId,
    pub(super) partitions: Vec<Partition>,
    /// Where records without a key go now, and how many bytes went there.
    sticky: Option<(usize, usize)>,
}

#[derive(Debug, Default)]
pub(super) struct Partition {
    leader: Option<BrokerId>,
    queue: VecDeque<Batch>,
    /// The batch that is being sent. One at a time: then order and sequence numbers hold whatever
    /// happens to it.
    in_flight: Option<Arc<BatchCell>>,
    /// Identity of the next new batch; `None` = that of the producer, from sequence 0.
    next: Option<Identity>,
    /// Pause after a failed try.
    not_before: Option<Instant>,
}

/// Why a topic's metadata is not there.
#[derive(Debug, Clone)]
pub(super) enum TopicState {
    Known,
    /// Not yet; asked for.
    Wanted {
        last: Option<Box<ClientError>>,
    },
    /// Refused for good.
    Refused(ErrorCode),
}

/// A batch that goes out now.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) topic_id: TopicId,
    pub(super) batch: Batch,
}

/// What the sender does next.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Batches by leader, at most one per partition.
    pub(super) requests: BTreeMap<BrokerId, Vec<Outgoing>>,
    /// A batch is due, but its partition has no known leader.
    pub(super) needs_leader: bool,
    /// A batch is due, but there is no producer id.
    pub(super) needs_producer_id: bool,
    /// When to look again; `None` = when something happens.
    pub(super) wake_at: Option<Instant>,
    /// Nothing waits and nothing is in flight.
    pub(super) is_idle: bool,
}

#[derive(Debug, Default)]
pub(super) struct Accumulator {
    topics: HashMap<String, Topic>,
    /// Topics whose metadata somebody waits for, and until when.
    wanted: HashMap<String, (Instant, Option<Box<ClientError>>)>,
    refused: HashMap<String, ErrorCode>,
    /// Identity of partitions that have none; `None` = to be asked for.
    pub(super) producer: Option<Identity>,
    /// Flushes that wait: every batch is due.
    pub(super) flushes: usize,
    /// Senders that wait for room: every batch is due.
    pub(super) starved: usize,
    /// First failure since the last flush.
    pub(super) first_failure: Option<ProduceError>,
    /// What was told of records that were not produced.
    losses: Thinned,
    /// No more records.
    pub(super) is_closed: bool,
    /// Give up what waits.
    pub(super) is_aborted: bool,
}

impl Accumulator {
    /// What is known of a topic; asks for it where nothing is, on behalf of somebody who waits
    /// until then.
    pub(super) fn topic_state(&mut self, name: &str, waits_until: Instant) -> TopicState {
        if self.topics.contains_key(name) {
            return TopicState::Known;
        }
        if let Some(code) = self.refused.remove(name) {
            return TopicState::Refused(code);
        }
        let (until, last) = self
            .wanted
            .entry(name.to_owned())
            .or_insert((waits_until, None));
        *until = waits_until.max(*until);
        TopicState::Wanted { last: last.clone() }
    }

    /// Names whose metadata is to be asked for: those wanted and those known.
    pub(super) fn topic_names(&mut self, now: Instant) -> Vec<String> {
        self.wanted.retain(|_, (until, _)| *until > now);
        self.wanted
            .keys()
            .chain(self.topics.keys())
            .cloned()
            .collect()
    }

    /// Whether somebody waits for metadata.
    pub(super) fn wants_metadata(&mut self, now: Instant) -> bool {
        self.wanted.retain(|_, (until, _)| *until > now);
        !self.wanted.is_empty()
    }

    /// Takes over new metadata.
    pub(super) fn learn(&mut self, response: MetadataResponse) {
        for found in response.topics {
            let Some(name) = found.name else { continue };
            if !found.error_code.is_none() {
                self.learn_failure(name, found.error_code);
                continue;
            }
            self.wanted.remove(&name);
            let topic = self.topics.entry(name).or_default();
            topic.id = found.topic_id;
            // A topic never loses partitions, unless it was made anew; what waits for those that are
            // gone then ends by its delivery timeout.
            let count = found
                .partitions
                .iter()
                .filter_map(|p| usize::try_from(p.partition_index + 1).ok())
                .max();
            let count = count.unwrap_or(0).min(found.partitions.len());
            if topic.partitions.len() < count {
                topic.partitions.resize_with(count, Partition::default);
            }
            for partition in &mut topic.partitions {
                partition.leader = None;
            }
            for partition in found.partitions {
                let index = usize::try_from(partition.partition_index).ok();
                if let Some(known) = index.and_then(|index| topic.partitions.get_mut(index)) {
                    known.leader = Some(partition.leader_id).filter(|leader| leader.0 >= 0);
                }
            }
        }
    }

    fn learn_failure(&mut self, name: String, code: ErrorCode) {
        let Some((_, last)) = self.wanted.get_mut(&name) else {
            return;
        };
        if is_final_for_topic(code) {
            self.wanted.remove(&name);
            self.refused.insert(name, code);
        } else {
            *last = Some(Box::new(ClientError::Broker {
                api: "Metadata",
                code,
                message: None,
            }));
        }
    }

    /// Remembers why metadata can't be had, for those who wait.
    pub(super) fn metadata_failed(&mut self, error: &ClientError) {
        for (_, last) in self.wanted.values_mut() {
            *last = Some(Box::new(error.clone()));
        }
    }

    /// Puts a record into the batch of its partition. `true` = the sender has something new to do.
    pub(super) fn append(
        &mut self,
        config: &ProducerConfig,
        record: &ProducerRecord,
        timestamp_ms: i64,
        room: OwnedSemaphorePermit,
        random: impl FnOnce() -> u64,
    ) -> Result<(DeliveryFuture, bool), ProduceError> {
        if self.is_closed {
            return Err(ProduceError::Closed);
        }
        let no_metadata = || ProduceError::NoMetadata {
            topic: record.topic.clone(),
            after: Duration::ZERO,
            last: None,
        };
        let topic = self.topics.get_mut(&record.topic).ok_or_else(no_metadata)?;
        let size_bytes = record.size_bytes();
        let index = topic.choose(record, size_bytes, config.batch_bytes_max, random)?;
        let partition = topic.partitions.get_mut(index).ok_or_else(no_metadata)?;
        let name = || {
            TopicPartition::new(
                record.topic.clone(),
                i32::try_from(index).unwrap_or(i32::MAX),
            )
        };
        let failed = |error| ProduceError::build(name(), &error);
        // A batch that was tried must not change.
        let open = partition
            .queue
            .back_mut()
            .filter(|batch| batch.identity.is_none() && batch.failures == 0);
        match open.filter(|batch| batch.has_room_for(size_bytes, config.batch_bytes_max)) {
            Some(batch) => {
                let future = batch
                    .push(record, timestamp_ms, Some(room))
                    .map_err(failed)?;
                Ok((future, batch.size_bytes() >= config.batch_bytes_max))
            }
            None => {
                let mut batch = Batch::new(name(), config.compression, room);
                let future = batch.push(record, timestamp_ms, None).map_err(failed)?;
                partition.queue.push_back(batch);
                Ok((future, true))
            }
        }
    }

    /// What is due now, the oldest first. `is_busy` tells of a broker whether it can't take a
    /// request now.
    pub(super) fn plan(
        &mut self,
        config: &ProducerConfig,
        is_busy: impl Fn(BrokerId) -> bool,
    ) -> Plan {
        let now = Instant::now();
        self.expire(config, now);
        for (cause, records) in self.losses.take_due(now) {
            tell_further_loss(&cause, records);
        }
        let all_due = self.flushes > 0 || self.starved > 0 || self.is_closed;
        let mut plan = Plan {
            is_idle: true,
            wake_at: self.losses.next_at(),
            ..Plan::default()
        };
        let mut due: Vec<(Instant, BrokerId, TopicId, &mut Partition)> = Vec::new();
        for topic in self.topics.values_mut() {
            for partition in &mut topic.partitions {
                plan.is_idle &= partition.queue.is_empty() && partition.in_flight.is_none();
                let (Some(due_at), Some(front)) =
                    (partition.due_at(config, all_due), partition.queue.front())
                else {
                    continue;
                };
                if due_at > now {
                    plan.wake_at = earliest(plan.wake_at, due_at);
                    continue;
                }
                // What waits for a leader, its id or its turn still ends in time.
                let created = front.created;
                plan.wake_at = earliest(plan.wake_at, created + config.delivery_timeout);
                match partition.leader {
                    Some(leader) if !is_busy(leader) => {
                        due.push((created, leader, topic.id, partition))
                    }
                    Some(_) => {}
                    None => plan.needs_leader = true,
                }
            }
        }
        due.sort_by_key(|(created, ..)| *created);
        let mut bytes: BTreeMap<BrokerId, usize> = BTreeMap::new();
        for (_, leader, topic_id, partition) in due {
            let size = partition.queue.front().map_or(0, Batch::size_bytes);
            let request_bytes = bytes.entry(leader).or_insert(0);
            if *request_bytes > 0 && *request_bytes + size > config.request_bytes_max {
                continue;
            }
            match partition.take(self.producer) {
                Some(batch) => {
                    *request_bytes += size;
                    plan.requests
                        .entry(leader)
                        .or_default()
                        .push(Outgoing { topic_id, batch });
                }
                None => plan.needs_producer_id = true,
            }
        }
        plan
    }

    /// Ends batches whose time is over.
    fn expire(&mut self, config: &ProducerConfig, now: Instant) {
        let mut first_failure = None;
        let mut epochs_used_up = false;
        for partition in self
            .topics
            .values_mut()
            .flat_map(|topic| &mut topic.partitions)
        {
            while let Some(batch) = partition
                .queue
                .pop_front_if(|b| b.created + config.delivery_timeout <= now)
            {
                let error = ProduceError::DeliveryTimeout {
                    partition: batch.partition().clone(),
                    after: config.delivery_timeout,
                    may_have_been_written: batch.may_have_been_written,
                    last: batch.last_failure.clone(),
                };
                tell_loss(&mut self.losses, &error, &batch);
                epochs_used_up |= partition.renounce(&batch);
                first_failure.get_or_insert_with(|| error.clone());
                batch.complete(BatchOutcome::Failed(error));
            }
        }
        self.first_failure = self.first_failure.take().or(first_failure);
        if epochs_used_up {
            self.producer = None;
        }
    }

    fn partition_of(&mut self, batch: &Batch) -> Option<&mut Partition> {
        let TopicPartition { topic, partition } = batch.partition();
        let index = usize::try_from(*partition).ok()?;
        self.topics.get_mut(topic)?.partitions.get_mut(index)
    }

    /// A batch is in the log.
    pub(super) fn written(&mut self, batch: Batch, base_offset: i64, append_time_ms: i64) {
        if let Some(partition) = self.partition_of(&batch) {
            partition.in_flight = None;
            partition.not_before = None;
        }
        batch.complete(BatchOutcome::Written {
            base_offset,
            append_time_ms,
        });
    }

    /// A batch is to be tried again after a pause, before all that waits behind it.
    pub(super) fn retry(&mut self, mut batch: Batch, error: ClientError, pause: Duration) {
        batch.failures = batch.failures.saturating_add(1);
        batch.may_have_been_written |= error
            .broker_code()
            .map_or(error.may_have_arrived(), may_have_been_written);
        batch.last_failure = Some(Box::new(error));
        if let Some(partition) = self.partition_of(&batch) {
            partition.in_flight = None;
            partition.not_before = Some(Instant::now() + pause);
            partition.queue.push_front(batch);
        }
    }

    /// A leader refused the identity of a batch: the batch is not in its log, and its sequence
    /// number can't be used. It is tried again with the next epoch.
    pub(super) fn retry_with_next_epoch(
        &mut self,
        mut batch: Batch,
        error: ClientError,
        pause: Duration,
    ) {
        self.renounce(&batch);
        batch.forget_identity();
        batch.may_have_been_written = false;
        self.retry(batch, error, pause);
    }

    /// A batch failed for good.
    pub(super) fn failed(&mut self, batch: Batch, failure: ProduceError) {
        self.end(batch, BatchOutcome::Failed(failure.clone()), failure);
    }

    /// A leader refused a batch for good.
    pub(super) fn refused(&mut self, batch: Batch, refusal: Refusal) {
        let refusal = Refusal {
            may_have_been_written: batch.may_have_been_written
                || may_have_been_written(refusal.code),
            ..refusal
        };
        let failure = refusal.of_batch(batch.partition().clone());
        let is_fenced = matches!(
            refusal.code,
            ErrorCode::InvalidProducerEpoch
                | ErrorCode::ProducerFenced
                | ErrorCode::InvalidProducerIdMapping
        );
        if is_fenced && let Some(partition) = self.partition_of(&batch) {
            // Someone else has the id: what follows gets a new one.
            partition.next = None;
            self.producer = None;
            let batch = batch.without_identity();
            return self.end(batch, BatchOutcome::Refused(refusal), failure);
        }
        self.end(batch, BatchOutcome::Refused(refusal), failure);
    }

    fn end(&mut self, batch: Batch, outcome: BatchOutcome, failure: ProduceError) {
        tell_loss(&mut self.losses, &failure, &batch);
        self.renounce(&batch);
        if let Some(partition) = self.partition_of(&batch) {
            partition.in_flight = None;
            partition.not_before = None;
        }
        self.first_failure.get_or_insert(failure);
        batch.complete(outcome);
    }

    fn renounce(&mut self, batch: &Batch) {
        if self
            .partition_of(batch)
            .is_some_and(|partition| partition.renounce(batch))
        {
            self.producer = None;
        }
    }

    /// Fails everything that waits for a producer id.
    pub(super) fn producer_id_failed(&mut self, error: &ClientError) {
        let failure = ProduceError::NoProducerId(Box::new(error.clone()));
        for partition in self
            .topics
            .values_mut()
            .flat_map(|topic| &mut topic.partitions)
        {
            if partition.next.is_none() {
                // None of them was tried: a batch that was has its identity, or its partition the next.
                for batch in partition.queue.drain(..) {
                    tell_loss(&mut self.losses, &failure, &batch);
                    batch.complete(BatchOutcome::Failed(failure.clone()));
                    self.first_failure.get_or_insert_with(|| failure.clone());
                }
            }
        }
    }

    /// The cells of all batches that wait or are in flight.
    pub(super) fn unfinished(&self) -> Vec<Arc<BatchCell>> {
        let partitions = self.topics.values().flat_map(|topic| &topic.partitions);
        let cells =
            partitions.flat_map(|p| p.queue.iter().map(Batch::cell).chain(&p.in_flight).cloned());
        cells.collect()
    }

    /// Gives up all that waits.
    pub(super) fn abort(&mut self) {
        self.is_closed = true;
        self.is_aborted = true;
        for partition in self
            .topics
            .values_mut()
            .flat_map(|topic| &mut topic.partitions)
        {
            partition.queue.clear();
        }
    }
}

/// Whether asking again is of no use: the name or the user's rights must change first. What else a
/// broker says of a topic may pass before `max.block.ms` does, UNKNOWN_SERVER_ERROR of a controller
/// in trouble, too (the Java producer gives up at the same two).
fn is_final_for_topic(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::InvalidTopicException | ErrorCode::TopicAuthorizationFailed
    )
}

impl Topic {
    /// The partition of a record: as told, by its key, or the one of the moment.
    fn choose(
        &mut self,
        record: &ProducerRecord,
        size_bytes: usize,
        batch_bytes_max: usize,
        random: impl FnOnce() -> u64,
    ) -> Result<usize, ProduceError> {
        let partition_count = self.partitions.len();
        if let Some(partition) = record.partition {
            let index = usize::try_from(partition)
                .ok()
                .filter(|index| *index < partition_count);
            let topic = record.topic.clone();
            return index.ok_or(ProduceError::NoSuchPartition {
                topic,
                partition,
                partition_count,
            });
        }
        if let Some(key) = &record.key {
            let count = u32::try_from(partition_count).unwrap_or(u32::MAX);
            return Ok(partition_of_key(key, count) as usize);
        }
        match &mut self.sticky {
            // Whole batches go to one partition, then another is taken (KIP-794).
            Some((index, bytes)) if *bytes + size_bytes <= batch_bytes_max => {
                *bytes += size_bytes;
                Ok(*index)
            }
            sticky => {
                let last = sticky.map(|(index, _)| index);
                let has_leader = |index: &usize| {
                    self.partitions
                        .get(*index)
                        .is_some_and(|p| p.leader.is_some())
                };
                let mut choice: Vec<usize> = (0..partition_count).filter(has_leader).collect();
                if choice.len() > 1 {
                    choice.retain(|index| Some(*index) != last);
                }
                let at = random() as usize % choice.len().max(1);
                let index = choice.get(at).copied().unwrap_or(0);
                *sticky = Some((index, size_bytes));
                Ok(index)
            }
        }
    }
}

impl Partition {
    /// When the front batch is to be sent; `None` = nothing waits, or it waits for the one in flight.
    fn due_at(&self, config: &ProducerConfig, all_due: bool) -> Option<Instant> {
        let front = self.queue.front().filter(|_| self.in_flight.is_none())?;
        if let Some(not_before) = self.not_before {
            return Some(not_before.min(front.created + config.delivery_timeout));
        }
        let is_full = self.queue.len() > 1 || front.size_bytes() >= config.batch_bytes_max;
        Some(if is_full || all_due {
            front.created
        } else {
            front.created + config.linger
        })
    }

    /// Takes the front batch to be sent and gives it an identity; `None` = there is none to give.
    fn take(&mut self, producer: Option<Identity>) -> Option<Batch> {
        let next = self.next.or(producer);
        let has_identity = self.queue.front()?.identity.is_some();
        if !has_identity && next.is_none() {
            return None;
        }
        let mut batch = self.queue.pop_front()?;
        if let Some(next) = next
            && batch.identity.is_none()
        {
            batch.identity = Some(next);
            self.next = Some(next.after(batch.len()));
        }
        self.in_flight = Some(Arc::clone(batch.cell()));
        Some(batch)
    }

    /// A batch that was tried ends without being known to be in the log: what follows must not wait
    /// for its sequence number, and a late copy of it must not be appended behind what follows. The
    /// next epoch does both.
    ///
    /// `true` = the epochs of the producer id are used up.
    fn renounce(&mut self, batch: &Batch) -> bool {
        let Some(identity) = batch.identity else {
            return false;
        };
        self.next = identity.next_epoch();
        self.next.is_none()
    }
}

/// Tells of a batch that ends without being written.
fn tell_loss(losses: &mut Thinned, error: &ProduceError, batch: &Batch) {
    if let Some(records) = losses.enter(Instant::now(), error.cause(), batch.len() as u64) {
        tracing::error!(%error, records, "Records were not produced.");
    }
}

fn tell_further_loss(cause: &str, records: u64) {
    tracing::error!(error = cause, records, "Further records were not produced.");
}

/// Nothing that was lost is left untold.
impl Drop for Accumulator {
    fn drop(&mut self) {
        for (cause, records) in self.losses.take_all() {
            tell_further_loss(&cause, records);
        }
    }
}

fn earliest(a: Option<Instant>, b: Instant) -> Option<Instant> {
    Some(a.map_or(b, |a| a.min(b)))
}
