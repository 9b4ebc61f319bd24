//! The share consumer.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use sharegroup_session::ReleaseReason;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::batch::{BatchData, ShareBatch};
use crate::builder::{ShareConsumerBuilder, bounded};
use crate::client::ClientConfig;
use crate::delivery::{Deliveries, Delivery};
use crate::error::{ClientError, OpenError, PollError};
use crate::hand_out::HandOut;
use crate::metrics::ShareMetrics;
use crate::monitor::Monitor;
use crate::reader::{Reader, Ready};
use crate::report::CommitReport;
use crate::shared::{Arrival, Command, Outbox, ReadId, Shared};
use crate::status::ShareStatus;

/// One member of one share group.
///
/// Records are acquired ahead of [`poll`](Self::poll) up to [`records_held_max`], their locks are
/// renewed while they are unsettled, and acknowledgements travel by themselves: heartbeats, renewals
/// and acknowledgements run on a thread of their own and go on while handlers block.
///
/// Where locks can't be renewed (a broker before Kafka 4.2, a group with
/// `share.renew.acknowledge.enable=false`), a lock may run out while a handler hangs. Then nothing new is
/// acquired until the application polls or settles again: a hang costs each record one delivery, not all of
/// them.
///
/// Records that arrive damaged or cut off stay held and are read again from their leader, for at most five
/// seconds, while others are delivered. This is a plain Fetch (READ on the topic, as ShareFetch needs it).
/// What can be read then comes as any other record; what can't is a [`CorruptBatch`](crate::CorruptBatch).
///
/// [`records_held_max`]: ShareConsumerBuilder::records_held_max
#[derive(Debug)]
pub struct ShareConsumer {
    shared: Arc<Shared>,
    status: watch::Receiver<ShareStatus>,
    ready: VecDeque<Waiting>,
    /// Most records that the application takes at once, as the driver knows; 0 = not yet.
    at_once: usize,
    reader: Reader,
    /// Given out by [`poll_implicit`](Self::poll_implicit) last.
    implicit: Option<ShareBatch>,
    left: bool,
}

impl ShareConsumer {
    /// The application's side of what a driver shares.
    pub(crate) fn over(shared: Arc<Shared>, batch_records_max: usize) -> Self {
        Self {
            status: shared.status.subscribe(),
            ready: VecDeque::new(),
            at_once: 0,
            reader: Reader::new(Arc::clone(&shared), batch_records_max),
            implicit: None,
            left: false,
            shared,
        }
    }

    /// Builds a consumer for servers `host:port[,host:port…]`.
    pub fn builder(bootstrap_servers: impl AsRef<str>) -> ShareConsumerBuilder {
        ShareConsumerBuilder::new(ClientConfig::new(bootstrap_servers.as_ref()))
    }

    /// Builds a consumer from a client configuration.
    pub fn builder_with(config: ClientConfig) -> ShareConsumerBuilder {
        ShareConsumerBuilder::new(Ok(config))
    }

    /// The next acquired records: of one partition, at most
    /// [`max_poll_records`](ShareConsumerBuilder::max_poll_records). Waits until there are some;
    /// `None` after [`close`](Self::close). Earlier batches may still be unsettled.
    ///
    /// A topic that doesn't exist is no error: it is waited for, with a warning in the log and its name in
    /// [`ShareStatus::missing_topics`]. To bound the wait use `tokio::time::timeout`.
    ///
    /// # Errors
    /// [`PollError::Fatal`]: the member can't go on. [`PollError::CorruptBatch`]: records that can't
    /// be read, also when they were read again; poll again for what follows.
    ///
    /// # Cancel safety
    /// Safe: no record is lost.
    pub async fn poll(&mut self) -> Result<Option<ShareBatch>, PollError> {
        poll_fn(|cx| self.poll_batch(cx, usize::MAX, usize::MAX)).await
    }

    /// The next acquired records as [`poll`](Self::poll) gives them, but at most `records_max` of them, at least
    /// one: for who shares a consumer among several workers. Pending: the task of `cx` is woken when there
    /// may be some; where several poll, the last one is.
    ///
    /// # Errors
    /// Those of [`poll`](Self::poll).
    pub fn poll_up_to(
        &mut self,
        cx: &mut Context<'_>,
        records_max: usize,
    ) -> Poll<Result<Option<ShareBatch>, PollError>> {
        self.poll_batch(cx, records_max.max(1), usize::MAX)
    }

    /// The next acquired records, as [`poll`](Self::poll) gives them, and the last ones accepted: implicit
    /// acknowledgement (`share.acknowledgement.mode=implicit`). The next call accepts them, and so does
    /// [`commit`](Self::commit). Closing or dropping the consumer accepts nothing: what was not followed by a
    /// further call comes again.
    ///
    /// # Errors
    /// Those of [`poll`](Self::poll).
    ///
    /// # Cancel safety
    /// Safe: no record is lost. The call accepts the last records as soon as it is polled.
    pub async fn poll_implicit(&mut self) -> Result<Option<&BatchData>, PollError> {
        self.accept_implicit();
        self.implicit = self.poll().await?;
        Ok(self.implicit.as_ref().map(ShareBatch::records_alone))
    }

    fn accept_implicit(&mut self) {
        if let Some(done) = self.implicit.take() {
            done.accept();
        }
    }

    /// The next record alone, with the right to settle it: see [`poll`](Self::poll), whose batches it
    /// takes apart.
    ///
    /// # Errors
    /// Those of [`poll`](Self::poll).
    ///
    /// # Cancel safety
    /// Safe: no record is lost.
    pub async fn next(&mut self) -> Result<Option<Delivery>, PollError> {
        poll_fn(|cx| self.poll_delivery(cx)).await
    }

    /// The records one by one, as a stream: a `futures_core::Stream`, whose combinators are in the crate
    /// `futures-util` (`StreamExt`, `TryStreamExt`). It ends after [`close`](Self::close) or a
    /// [`PollError::Fatal`]; after a [`PollError::CorruptBatch`] it goes on.
    ///
    /// ```no_run
    /// use futures_util::{StreamExt, TryStreamExt};
    /// # use sharegroup_consumer::{PollError, ShareConsumer};
    /// # async fn run(mut consumer: ShareConsumer) -> Result<(), PollError> {
    /// let mut first = consumer.deliveries().take(100);
    /// while let Some(delivery) = first.try_next().await? {
    ///     println!("{:?}", delivery.record());
    ///     drop(delivery.accept()); // confirmed later: `commit` and `close` report it
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The stream borrows the consumer; [`monitor`](Self::monitor) shows its state meanwhile.
    pub fn deliveries(&mut self) -> Deliveries<'_> {
        Deliveries(self)
    }

    /// Holds at least so many records, until the guard is dropped.
    pub(crate) fn work_on(&self, at_a_time: usize) -> InWork {
        let at_a_time = u32::try_from(at_a_time).unwrap_or(u32::MAX);
        self.shared.command(Command::WorkOn(at_a_time));
        InWork(Arc::clone(&self.shared))
    }

    pub(crate) fn poll_delivery(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Delivery>, PollError>> {
        let polled = ready!(self.poll_batch(cx, 1, 1))?;
        Poll::Ready(Ok(polled.map(Delivery)))
    }

    /// At most `records_max` records, for an application that takes up to `at_once` of them at a time.
    fn poll_batch(
        &mut self,
        cx: &mut Context<'_>,
        records_max: usize,
        at_once: usize,
    ) -> Poll<Result<Option<ShareBatch>, PollError>> {
        // Where records are always there, other tasks of the runtime get their turn.
        let turn = ready!(tokio::task::coop::poll_proceed(cx));
        let at_once = at_once.min(self.reader.batch_records_max());
        if self.at_once != at_once {
            self.at_once = at_once;
            let at_once = u32::try_from(at_once).unwrap_or(u32::MAX);
            self.shared.command(Command::Take(at_once));
        }
        loop {
            if self.left {
                return Poll::Ready(Ok(None));
            }
            self.shared.polled();
            if let Some(ready) = self.take_ready(records_max) {
                turn.made_progress();
                return Poll::Ready(match ready {
                    Ready::Batch(batch) => Ok(Some(batch)),
                    Ready::Corrupt(corrupt) => Err(PollError::CorruptBatch(Box::new(corrupt))),
                });
            }
            let Poll::Ready(found) = self.shared.poll_outbox(cx, Found::take) else {
                // It may have been asked for a sign of life before there was anybody to wake.
                self.shared.polled();
                self.shared.waits();
                return Poll::Pending;
            };
            match found {
                Found::Failed(error) => return Poll::Ready(Err(error)),
                Found::Closed => return Poll::Ready(Ok(None)),
                Found::Arrival(arrival) => {
                    let ranges = arrival.acquired.ranges.iter();
                    let deliveries = ranges.map(|range| range.delivery_count).max();
                    let found = self.reader.read(&arrival);
                    self.lies_ready(deliveries.unwrap_or(1), found);
                }
                Found::Read(id, answer) => {
                    let found = self.reader.enter_read(id, answer);
                    self.lies_ready(1, found);
                }
            }
        }
    }

    /// What was delivered more often goes before the rest: it has fewer deliveries left.
    fn lies_ready(&mut self, deliveries: i16, found: Vec<Ready>) {
        let behind = |waiting: &Waiting| waiting.deliveries < deliveries;
        let index = match deliveries {
            ..=1 => None,
            _ => self.ready.iter().position(behind),
        };
        let index = index.unwrap_or(self.ready.len());
        for (place, ready) in (index..).zip(found) {
            self.ready.insert(place, Waiting { deliveries, ready });
        }
    }

    /// The first of what lies ready that can be handed out now.
    fn take_ready(&mut self, records_max: usize) -> Option<Ready> {
        let now = Instant::now();
        let mut index = 0;
        while let Some(Waiting { deliveries, ready }) = self.ready.remove(index) {
            let again = |batch| Waiting {
                deliveries,
                ready: Ready::Batch(batch),
            };
            // What lost its lock while it lay here is somebody else's by now.
            if ready.is_lost() {
                continue;
            }
            let Ready::Batch(batch) = ready else {
                return Some(ready);
            };
            match batch.hand_out(now, records_max) {
                HandOut::First(records) => {
                    let (first, rest) = batch.split(now, records);
                    if let Some(rest) = rest {
                        self.ready.insert(index, again(rest));
                    }
                    return Some(Ready::Batch(first));
                }
                HandOut::Renewed => {
                    batch.ask_renewal();
                    self.ready.insert(index, again(batch));
                    index += 1;
                }
                HandOut::TooLate => batch.give_back(ReleaseReason::TooLate),
            }
        }
        None
    }

    /// Sends all acknowledgements now and waits until each has its outcome. The future borrows nothing: others may
    /// poll meanwhile.
    ///
    /// # Errors
    /// [`PollError::Fatal`]: the member could not go on before; nothing was sent.
    /// [`PollError::Bug`] if the driver is gone for another reason.
    ///
    /// # Cancel safety
    /// Safe: the acknowledgements are sent all the same; their outcomes stand in no report then.
    pub fn commit(
        &mut self,
    ) -> impl Future<Output = Result<CommitReport, PollError>> + Send + 'static + use<> {
        self.accept_implicit();
        let shared = Arc::clone(&self.shared);
        let report = (!self.left).then(|| {
            let (reply, report) = oneshot::channel();
            shared.command(Command::Commit { reply });
            report
        });
        async move {
            let Some(report) = report else {
                return Ok(shared.reporter().take());
            };
            report.await.map_err(|_| match shared.fatal() {
                Some(error) => PollError::Fatal(error),
                None => PollError::Bug,
            })
        }
    }

    /// Flushes acknowledgements, releases what is held, closes the share sessions and leaves the
    /// group; within the given time, after which what is open is reported as unknown. Polls give
    /// `None` from now on. Batches and deliveries in hand lose their locks
    /// ([`LockView::lost`](crate::LockView::lost)); what is settled of them all the same stands as failed in the report of
    /// another `close`.
    ///
    /// # Errors
    /// [`PollError::Bug`] if the driver is gone.
    ///
    /// # Cancel safety
    /// Safe: closing goes on.
    pub async fn close(&mut self, within: Duration) -> Result<CommitReport, PollError> {
        if self.left {
            return Ok(self.shared.reporter().take());
        }
        self.leave(within).await.map_err(|_| PollError::Bug)
    }

    fn leave(&mut self, within: Duration) -> oneshot::Receiver<CommitReport> {
        self.left = true;
        // Nobody said that it was processed. Before the close, which releases it.
        if let Some(batch) = self.implicit.take() {
            batch.release_later();
        }
        let unseen = ReleaseReason::Unseen;
        self.ready
            .drain(..)
            .for_each(|waiting| waiting.ready.give_back(unseen));
        self.reader.give_back(unseen);
        let (reply, report) = oneshot::channel();
        let within = bounded(within);
        self.shared.command(Command::Close { within, reply });
        report
    }

    /// Acquires nothing new until [`resume`](Self::resume). Membership goes on, what is held stays held.
    pub fn pause(&self) {
        self.shared.command(Command::Pause);
    }

    /// Acquires again.
    pub fn resume(&self) {
        self.shared.command(Command::Resume);
    }

    /// Acquires one record more than is held, and then nothing until [`resume`](Self::resume): how to try
    /// whether work goes on after a [`pause`](Self::pause). A whole batch where the leader knows no other way
    /// (before Kafka 4.2, or with [`AcquireMode::BatchOptimized`](crate::AcquireMode::BatchOptimized)).
    pub fn acquire_one(&self) {
        self.shared.command(Command::AcquireOne);
    }

    /// A handle that lets all locks run out, for whoever watches over an application that may be stuck.
    #[must_use]
    pub fn renewal_stop(&self) -> RenewalStop {
        RenewalStop(Arc::clone(&self.shared))
    }

    /// Subscribes to other topics instead; not empty.
    pub fn subscribe(&self, topics: impl IntoIterator<Item = impl Into<String>>) {
        self.shared.command(Command::Subscribe(
            topics.into_iter().map(Into::into).collect(),
        ));
    }

    /// A handle that does the same, for whoever follows which topics there are.
    #[must_use]
    pub fn subscriber(&self) -> Subscriber {
        Subscriber(Arc::clone(&self.shared))
    }

    /// A handle that shows status and metrics while a loop has the consumer.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor {
            shared: Arc::clone(&self.shared),
            status: self.status.clone(),
        }
    }

    /// Whether the member has joined.
    pub(crate) async fn joined(&self) -> Result<(), OpenError> {
        poll_fn(|cx| {
            self.shared
                .poll_outbox(cx, |outbox| match outbox.failed.take() {
                    Some(PollError::Fatal(error)) => Some(Err(error.into())),
                    Some(_) => Some(Err(OpenError::Misuse {
                        what: "the consumer's driver ended",
                    })),
                    None => outbox.joined.then_some(Ok(())),
                })
        })
        .await
    }

    /// Where the consumer stands.
    #[must_use]
    pub fn status(&self) -> ShareStatus {
        self.status.borrow().clone()
    }

    /// Where the consumer stands, as it changes.
    #[must_use]
    pub fn watch_status(&self) -> watch::Receiver<ShareStatus> {
        self.status.clone()
    }

    /// The name that a broker gave this client for its metrics (KIP-714), 22 characters of base64; `None` until
    /// a broker was asked, and where none takes metrics. Only with the feature `telemetry`.
    #[cfg(feature = "telemetry")]
    #[must_use]
    pub fn client_instance_id(&self) -> Option<String> {
        let id = self.shared.client_instance_id.get();
        id.map(ToString::to_string)
    }

    /// Records acquired and not settled, as of [`status`](Self::status).
    #[must_use]
    pub fn records_held(&self) -> u64 {
        self.status.borrow().records_held
    }

    /// Counters since the start.
    #[must_use]
    pub fn metrics(&self) -> ShareMetrics {
        self.shared.counters.snapshot()
    }
}

/// Subscribes a [`ShareConsumer`] to other topics, from anywhere.
#[derive(Debug, Clone)]
pub struct Subscriber(Arc<Shared>);

impl Subscriber {
    /// As [`ShareConsumer::subscribe`]; after its end nothing happens.
    pub fn subscribe(&self, topics: impl IntoIterator<Item = impl Into<String>>) {
        let topics = topics.into_iter().map(Into::into).collect();
        self.0.command(Command::Subscribe(topics));
    }
}

/// Ends the renewals of a [`ShareConsumer`], from any thread.
#[derive(Debug, Clone)]
pub struct RenewalStop(Arc<Shared>);

impl RenewalStop {
    /// Nothing is acquired or renewed any more, for good: each lock ends at its
    /// [deadline](crate::LockView::deadline), what was not settled by then is delivered again, and
    /// [`ShareEvent::LockLost`](crate::ShareEvent::LockLost) names it. Membership goes on until the
    /// consumer is closed.
    pub fn stop(&self) {
        self.0.command(Command::StopRenewals);
    }
}

/// Many records are in work at a time.
pub(crate) struct InWork(Arc<Shared>);

impl Drop for InWork {
    fn drop(&mut self) {
        self.0.command(Command::WorkOn(0));
    }
}

/// A consumer that is dropped without [`close`](ShareConsumer::close) closes by itself in the background, within
/// five seconds, if the process lives that long: nothing waits for it. Where the process ends before, as at the
/// end of `main`, acknowledgements that were not yet sent are lost and their records come again, and the member stays
/// in its group until its session ends (45 s by default). So call `close` on every way out, also after an error.
impl Drop for ShareConsumer {
    fn drop(&mut self) {
        if !self.left {
            drop(self.leave(Duration::from_secs(5)));
        }
    }
}

/// What lies ready to be handed out.
#[derive(Debug)]
struct Waiting {
    /// Of the record that was delivered most often.
    deliveries: i16,
    ready: Ready,
}

/// What an outbox has for a poll.
enum Found {
    Failed(PollError),
    Closed,
    Read(ReadId, Result<Bytes, ClientError>),
    Arrival(Arrival),
}

impl Found {
    fn take(outbox: &mut Outbox) -> Option<Self> {
        if let Some(error) = outbox.failed.take() {
            return Some(Self::Failed(error));
        }
        if outbox.closed {
            return Some(Self::Closed);
        }
        if let Some((id, answer)) = outbox.reads.pop_front() {
            return Some(Self::Read(id, answer));
        }
        outbox.arrivals.pop_front().map(Self::Arrival)
    }
}
