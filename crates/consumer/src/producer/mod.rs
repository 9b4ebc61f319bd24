//! An idempotent producer.
//!
//! Records are gathered into batches per partition and sent to its leader, one request at a time per
//! broker, so that order holds whatever happens to a request. Every record is confirmed by all
//! in-sync replicas (`acks=all`) and written once: a leader knows by producer id, epoch and sequence
//! number what it has already. What can't be confirmed in time fails with an error that says whether
//! it may have been written all the same.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use sharegroup_consumer::client::ClientConfig;
//! use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let producer = Producer::new(ProducerConfig::new(ClientConfig::new("localhost:9092")?));
//! let delivery = producer.send(ProducerRecord::new("orders").key("42").value("{}")).await?;
//! println!("written at {:?}", delivery.await?.offset);
//! producer.close(Duration::from_secs(5)).await?;
//! # Ok(())
//! # }
//! ```

mod accumulator;
mod batch;
mod config;
mod delivery;
mod error;
mod partitioner;
mod record;
mod request;
mod sender;
mod thinned;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

pub use config::ProducerConfig;
pub use delivery::DeliveryFuture;
pub use error::ProduceError;
pub use record::{ProducerHeader, ProducerRecord, RecordMetadata};

use accumulator::TopicState;
use sender::{Shared, run};

/// A producer. A clone is another handle to the same one.
///
/// Its task runs on the runtime that it was made on. When the last handle is dropped without
/// [`close`](Self::close), the task goes on until all that was accepted is confirmed or its time is
/// over, unless its runtime ends before.
#[derive(Debug, Clone)]
pub struct Producer {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.state().is_closed = true;
        self.shared.wake.notify_one();
    }
}

impl Producer {
    /// A producer whose task is spawned on the current runtime. Nothing is sent before the first
    /// record.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn new(config: ProducerConfig) -> Self {
        let shared = Arc::new(Shared::new(config));
        tokio::spawn(run(Arc::clone(&shared)));
        Self {
            handle: Arc::new(Handle { shared }),
        }
    }

    /// Accepts a record. Waits for the topic's metadata and for room in the buffer, `max.block.ms`
    /// at the longest; the future that it gives then resolves when the record is confirmed or lost.
    /// Records of one partition are written in the order in which they were accepted.
    ///
    /// # Errors
    /// [`ProduceError`] where the record was not accepted: too large, no such topic or partition, no
    /// room, closed.
    ///
    /// # Cancel safety
    /// A call that is dropped has accepted nothing.
    pub async fn send(&self, record: ProducerRecord) -> Result<DeliveryFuture, ProduceError> {
        let shared = &*self.handle.shared;
        let size_bytes = record.size_bytes();
        let limits = [
            (shared.config.request_bytes_max, "max.request.size"),
            (shared.config.buffer_bytes_max, "buffer.memory"),
        ];
        if let Some((limit_bytes, limit)) =
            limits.into_iter().find(|(bytes, _)| size_bytes > *bytes)
        {
            return Err(ProduceError::RecordTooLarge {
                topic: record.topic,
                size_bytes,
                limit_bytes,
                limit,
            });
        }
        let deadline = Instant::now() + shared.config.block_max;
        self.await_topic(&record.topic, deadline).await?;
        let room = self.await_room(size_bytes, deadline).await?;
        let timestamp_ms = record.timestamp_ms.unwrap_or_else(now_ms);
        let random = || shared.cluster.random();
        let (future, has_work) =
            shared
                .state()
                .append(&shared.config, &record, timestamp_ms, room, random)?;
        if has_work {
            shared.wake.notify_one();
        }
        Ok(future)
    }

    async fn await_topic(&self, topic: &str, deadline: Instant) -> Result<(), ProduceError> {
        let shared = &*self.handle.shared;
        let mut changed = shared.metadata.subscribe();
        loop {
            let state = {
                let mut state = shared.state();
                if state.is_closed {
                    return Err(ProduceError::Closed);
                }
                state.topic_state(topic, deadline)
            };
            let last = match state {
                TopicState::Known => return Ok(()),
                TopicState::Refused(code) => {
                    return Err(ProduceError::Topic {
                        topic: topic.to_owned(),
                        code,
                    });
                }
                TopicState::Wanted { last } => last,
            };
            shared.wake.notify_one();
            if timeout_at(deadline, changed.changed()).await.is_err() {
                return Err(ProduceError::NoMetadata {
                    topic: topic.to_owned(),
                    after: shared.config.block_max,
                    last,
                });
            }
        }
    }

    async fn await_room(
        &self,
        size_bytes: usize,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, ProduceError> {
        let shared = &*self.handle.shared;
        // INVARIANT: the size is at most the size of the buffer, which a u32 holds.
        let size = u32::try_from(size_bytes).unwrap_or(u32::MAX);
        if let Ok(room) = Arc::clone(&shared.room).try_acquire_many_owned(size) {
            return Ok(room);
        }
        let _starving = Counted::new(shared, |state| &mut state.starved);
        match timeout_at(deadline, Arc::clone(&shared.room).acquire_many_owned(size)).await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(_)) => Err(ProduceError::Closed),
            Err(_) => Err(ProduceError::BufferFull {
                size_bytes,
                buffer_bytes: shared.config.buffer_bytes_max,
                after: shared.config.block_max,
            }),
        }
    }

    /// Sends all that was accepted before without lingering, and waits until each record is
    /// confirmed or lost, `delivery.timeout.ms` at the longest.
    ///
    /// # Errors
    /// The first failure since the last flush, also of records whose futures were dropped.
    ///
    /// # Cancel safety
    /// Safe: the records go on; a failure is told by the next flush.
    pub async fn flush(&self) -> Result<(), ProduceError> {
        let shared = &*self.handle.shared;
        let _flushing = Counted::new(shared, |state| &mut state.flushes);
        let unfinished = shared.state().unfinished();
        for cell in unfinished {
            cell.completed().await;
        }
        shared.state().first_failure.take().map_or(Ok(()), Err)
    }

    /// Accepts no more records, sends all that was accepted and waits until each record is confirmed
    /// or lost. What is not after `deadline` fails with [`ProduceError::Closed`].
    ///
    /// # Errors
    /// The first failure since the last flush.
    ///
    /// # Cancel safety
    /// A call that is dropped leaves the producer closed for new records, and those that were
    /// accepted on their way.
    pub async fn close(&self, deadline: Duration) -> Result<(), ProduceError> {
        let shared = &*self.handle.shared;
        shared.state().is_closed = true;
        shared.wake.notify_one();
        if let Ok(flushed) = timeout(deadline, self.flush()).await {
            return flushed;
        }
        shared.abort();
        let first_failure = shared.state().first_failure.take();
        Err(first_failure.unwrap_or(ProduceError::Closed))
    }
}

/// One more who waits, until it is dropped.
struct Counted<'a> {
    shared: &'a Shared,
    count: fn(&mut accumulator::Accumulator) -> &mut usize,
}

impl<'a> Counted<'a> {
    fn new(shared: &'a Shared, count: fn(&mut accumulator::Accumulator) -> &mut usize) -> Self {
        *count(&mut shared.state()) += 1;
        shared.wake.notify_one();
        Self { shared, count }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        *(self.count)(&mut self.shared.state()) -= 1;
    }
}

/// Milliseconds since 1970.
fn now_ms() -> i64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}
