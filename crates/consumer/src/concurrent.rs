//! Many records in work at a time.

use std::collections::{HashMap, VecDeque};
use std::future::{Pending, pending, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::consumer::ShareConsumer;
use crate::delivery::Delivery;
use crate::error::PollError;

/// What a handler made of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Processed. Once the broker has confirmed it, the record never comes again.
    Accept,
    /// Not processed; again later. The record is held for a delay that grows with its delivery count (1 s,
    /// doubling, at most 60 s) and then released: [`Delivery::release_later`].
    ReleaseLater,
    /// Can't be processed; archived by the broker, or written to the group's dead-letter topic.
    Reject,
}

impl Outcome {
    fn settle(self, delivery: Delivery) {
        match self {
            Self::Accept => delivery.0.accept(),
            Self::ReleaseLater => delivery.0.release_later(),
            Self::Reject => delivery.0.reject(),
        }
    }
}

impl ShareConsumer {
    /// Calls `handler` for each record, up to `limit` at a time; until the consumer can't go on. Each
    /// record is settled as soon as its handler ends, in any order; locks are renewed meanwhile, and the
    /// next records are fetched while stragglers run.
    ///
    /// ```no_run
    /// # use sharegroup_consumer::{Delivery, Outcome, PollError, ShareConsumer};
    /// # async fn send(_: &[u8]) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn run(mut consumer: ShareConsumer) -> Result<(), PollError> {
    /// consumer
    ///     .for_each_concurrent(64, async |delivery: &Delivery| {
    ///         match send(delivery.record().value.unwrap_or_default()).await {
    ///             Ok(()) => Outcome::Accept,
    ///             Err(_) => Outcome::ReleaseLater,
    ///         }
    ///     })
    ///     .await
    /// # }
    /// ```
    ///
    /// In a task of its own (`tokio::spawn`) the handler must own what it uses: `async move` with an
    /// argument whose type is written out. A handler that borrows from its surroundings is not
    /// `Send` for every borrowed delivery, as far as the compiler can tell ("implementation of `Send` is not general
    /// enough"); await it in place instead. Clients are shared by `Arc`:
    ///
    /// ```no_run
    /// # use std::{sync::Arc, time::Duration};
    /// # use sharegroup_consumer::{Delivery, Outcome, ShareConsumer};
    /// # struct Client;
    /// # impl Client { async fn send(&self, _: &[u8]) -> Result<(), std::io::Error> { Ok(()) } }
    /// # fn run(mut consumer: ShareConsumer, client: Arc<Client>) {
    /// tokio::spawn(async move {
    ///     let handler = async move |delivery: &Delivery| {
    ///         match client.send(delivery.record().value.unwrap_or_default()).await {
    ///             Ok(()) => Outcome::Accept,
    ///             Err(_) => Outcome::ReleaseLater,
    ///         }
    ///     };
    ///     let worked = consumer.for_each_concurrent(64, handler).await;
    ///     let report = consumer.close(Duration::from_secs(10)).await; // also after an error
    ///     worked.and(report)
    /// });
    /// # }
    /// ```
    ///
    /// What becomes of the handlers' acknowledgements is told to the
    /// [observer](crate::ShareConsumerBuilder::observer), and stands in the report of the next
    /// [`commit`](Self::commit) or [`close`](Self::close); [`metrics`](Self::metrics) counts it
    /// ([`monitor`](Self::monitor) while this runs).
    ///
    /// All handlers run in the caller's task: concurrent, not parallel. One that blocks its thread holds
    /// up the others, never heartbeats, renewals or acknowledgements; spawn what computes for long. A
    /// handler that panics, also before it returns its future, has its record
    /// [released later](Outcome::ReleaseLater); the others go on.
    ///
    /// # Errors
    /// Those of [`poll`](Self::poll), after the running handlers have ended. After a
    /// [`PollError::CorruptBatch`] it may be called again.
    ///
    /// # Cancel safety
    /// Safe: the records of handlers that are cut off are dropped ([`Delivery`]). To let them end use
    /// [`Concurrent::until`].
    pub async fn for_each_concurrent<F>(
        &mut self,
        limit: usize,
        handler: F,
    ) -> Result<(), PollError>
    where
        F: AsyncFn(&Delivery) -> Outcome,
    {
        self.concurrent(limit).for_each(handler).await
    }

    /// Up to `limit` records in work at a time, at least 1, with options. So many are held from the start, and no more
    /// than the bounds on what is held allow
    /// ([`records_held_max`](crate::ShareConsumerBuilder::records_held_max)): with the brokers' defaults at most
    /// 1,000 per partition.
    pub fn concurrent(&mut self, limit: usize) -> Concurrent<'_> {
        Concurrent {
            consumer: self,
            limit: limit.max(1),
            keys: None,
            shutdown: pending(),
        }
    }
}

/// Options for many records in work at a time: [`ShareConsumer::concurrent`].
#[derive(Debug)]
#[must_use = "nothing is handled before `for_each` is awaited"]
pub struct Concurrent<'a, S = Pending<()>> {
    consumer: &'a mut ShareConsumer,
    limit: usize,
    keys: Option<KeyOrder>,
    shutdown: S,
}

impl<'a, S: Future> Concurrent<'a, S> {
    /// Records of one topic with the same key are handled one after the other, in the order of their
    /// arrival. Records that wait for one of their key count as held. Within this consumer only: other
    /// members of the group get records of the same key at the same time, and a record that is released
    /// comes after its successors.
    pub fn in_key_order(mut self) -> Self {
        self.keys = Some(KeyOrder::default());
        self
    }

    /// When `shutdown` is done no further record is handed out; the running handlers end first, however long
    /// they take. For a deadline put `tokio::time::timeout` around the whole from then on, or around what a
    /// handler awaits; [`close`](ShareConsumer::close) then releases what they were cut off from.
    ///
    /// ```no_run
    /// # use std::{pin::pin, time::Duration};
    /// # use sharegroup_consumer::{Delivery, Outcome, PollError, ShareConsumer};
    /// # use tokio::{signal::ctrl_c, sync::Notify, time::sleep};
    /// # async fn work(_: &Delivery) -> Outcome { Outcome::Accept }
    /// # async fn run(mut consumer: ShareConsumer) -> Result<(), PollError> {
    /// let stopping = Notify::new();
    /// let working = consumer.concurrent(64).until(async {
    ///     drop(ctrl_c().await);
    ///     stopping.notify_one();
    /// });
    /// let worked = tokio::select! {
    ///     worked = working.for_each(work) => worked,
    ///     () = async {
    ///         stopping.notified().await;
    ///         sleep(Duration::from_secs(20)).await;
    ///     } => Ok(()),
    /// };
    /// let report = consumer.close(Duration::from_secs(5)).await?;
    /// # drop(report);
    /// worked
    /// # }
    /// ```
    pub fn until<T: Future>(self, shutdown: T) -> Concurrent<'a, T> {
        let Self {
            consumer,
            limit,
            keys,
            ..
        } = self;
        Concurrent {
            consumer,
            limit,
            keys,
            shutdown,
        }
    }

    /// Calls `handler` for each record: see [`ShareConsumer::for_each_concurrent`].
    ///
    /// # Errors
    /// Those of [`poll`](ShareConsumer::poll), after the running handlers have ended.
    ///
    /// # Cancel safety
    /// Safe: the records of handlers that are cut off are dropped ([`Delivery`]).
    pub async fn for_each<F>(self, handler: F) -> Result<(), PollError>
    where
        F: AsyncFn(&Delivery) -> Outcome,
    {
        let Self {
            consumer,
            limit,
            mut keys,
            shutdown,
        } = self;
        let _in_work = consumer.work_on(limit);
        let mut shutdown = pin!(shutdown);
        let mut running = FuturesUnordered::new();
        let ended = loop {
            tokio::select! {
                biased;
                _ = &mut shutdown => break Ok(()),
                Some(key) = running.next() => {
                    let next = keys.as_mut().zip(key).and_then(|(keys, key)| keys.done(key));
                    running.extend(next.map(|next| handle(&handler, key, next)));
                }
                next = consumer.next(), if running.len() < limit => match next {
                    Ok(Some(delivery)) => {
                        let key = keys.as_ref().and_then(|keys| keys.key(&delivery));
                        let turn = match keys.as_mut().zip(key) {
                            Some((keys, key)) => keys.admit(key, delivery),
                            None => Some(delivery),
                        };
                        running.extend(turn.map(|delivery| handle(&handler, key, delivery)));
                    }
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                },
            }
        };
        // Those that wait for one of their key.
        for delivery in keys.into_iter().flat_map(KeyOrder::into_waiting) {
            delivery.release_later();
        }
        while running.next().await.is_some() {}
        ended
    }
}

/// Handles one record and settles it. Gives back its key, for the next one of that key.
async fn handle<F>(handler: &F, key: Option<u64>, delivery: Delivery) -> Option<u64>
where
    F: AsyncFn(&Delivery) -> Outcome,
{
    // What panicked is not called or polled again.
    let outcome = match catch_unwind(AssertUnwindSafe(|| handler(&delivery))) {
        Ok(handling) => {
            let mut handling = pin!(handling);
            poll_fn(|cx| {
                let polled = catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(cx)));
                polled.unwrap_or_else(|_| Poll::Ready(panicked(&delivery)))
            })
            .await
        }
        Err(_) => panicked(&delivery),
    };
    outcome.settle(delivery);
    key
}

fn panicked(delivery: &Delivery) -> Outcome {
    let offset = delivery.record().offset;
    let (topic, partition) = (delivery.topic(), delivery.partition());
    tracing::error!(%topic, partition, offset, "A handler panicked; its record is released later.");
    Outcome::ReleaseLater
}

/// Who waits for a record of its own key. Keys are told apart by their hash: two that share one only wait
/// for each other.
#[derive(Debug, Default)]
struct KeyOrder {
    hasher: RandomState,
    /// The keys in work, with those that wait.
    waiting: HashMap<u64, VecDeque<Delivery>>,
}

impl KeyOrder {
    fn key(&self, delivery: &Delivery) -> Option<u64> {
        let key = delivery.record().key?;
        Some(self.hasher.hash_one((delivery.topic(), key)))
    }

    /// The record, if it is its turn now.
    fn admit(&mut self, key: u64, delivery: Delivery) -> Option<Delivery> {
        match self.waiting.get_mut(&key) {
            Some(waiting) => {
                waiting.push_back(delivery);
                None
            }
            None => {
                self.waiting.insert(key, VecDeque::new());
                Some(delivery)
            }
        }
    }

    /// All records that wait.
    fn into_waiting(self) -> impl Iterator<Item = Delivery> {
        self.waiting.into_values().flatten()
    }

    /// The next record of a key. What lost its lock while it waited is somebody else's by now.
    fn done(&mut self, key: u64) -> Option<Delivery> {
        let waiting = self.waiting.get_mut(&key)?;
        while let Some(next) = waiting.pop_front() {
            if !next.0.is_lost() {
                return Some(next);
            }
        }
        self.waiting.remove(&key);
        None
    }
}
