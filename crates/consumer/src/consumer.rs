//! The share consumer.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use sharegroup_session::{AcquireMode, ReleaseReason, SessionConfig, SessionCore};
use sharegroup_wire::id::base64_22;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::backoff::Jitter;
use crate::batch::{BatchData, ShareBatch};
use crate::client::ClientConfig;
use crate::cluster::Cluster;
use crate::delivery::{Deliveries, Delivery};
use crate::driver::Driver;
use crate::error::{ClientError, ConfigError, OpenError, PollError};
use crate::hand_out::HandOut;
use crate::metrics::ShareMetrics;
use crate::observer::ShareObserver;
use crate::reader::{Reader, Ready};
use crate::report::CommitReport;
use crate::shared::{Arrival, Command, Outbox, ReadId, Shared};
use crate::status::ShareStatus;
use crate::topic_partition::is_topic_name;

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
    ready: VecDeque<Ready>,
    reader: Reader,
    /// Given out by [`poll_implicit`](Self::poll_implicit) last.
    implicit: Option<ShareBatch>,
    left: bool,
}

impl ShareConsumer {
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
    /// # Errors
    /// [`PollError::Fatal`]: the member can't go on. [`PollError::CorruptBatch`]: records that can't
    /// be read, also when they were read again; poll again for what follows.
    ///
    /// # Cancel safety
    /// Safe: no record is lost.
    pub async fn poll(&mut self) -> Result<Option<ShareBatch>, PollError> {
        poll_fn(|cx| self.poll_batch(cx, usize::MAX)).await
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

    /// The records one by one, as a stream. It ends after [`close`](Self::close) or a
    /// [`PollError::Fatal`]; after a [`PollError::CorruptBatch`] it goes on.
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
        let polled = ready!(self.poll_batch(cx, 1))?;
        Poll::Ready(Ok(polled.map(Delivery)))
    }

    fn poll_batch(
        &mut self,
        cx: &mut Context<'_>,
        records_max: usize,
    ) -> Poll<Result<Option<ShareBatch>, PollError>> {
        // Where records are always there, other tasks of the runtime get their turn.
        let turn = ready!(tokio::task::coop::poll_proceed(cx));
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
                Found::Arrival(arrival) => self.ready.extend(self.reader.read(&arrival)),
                Found::Read(id, answer) => {
                    self.ready.extend(self.reader.enter_read(id, answer));
                }
            }
        }
    }

    /// The first of what lies ready that can be handed out now.
    fn take_ready(&mut self, records_max: usize) -> Option<Ready> {
        let now = Instant::now();
        let mut index = 0;
        while let Some(ready) = self.ready.remove(index) {
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
                        self.ready.insert(index, Ready::Batch(rest));
                    }
                    return Some(Ready::Batch(first));
                }
                HandOut::Renewed => {
                    batch.ask_renewal();
                    self.ready.insert(index, Ready::Batch(batch));
                    index += 1;
                }
                HandOut::TooLate => batch.give_back(ReleaseReason::TooLate),
            }
        }
        None
    }

    /// Sends all acknowledgements now and waits until each has its outcome.
    ///
    /// # Errors
    /// [`PollError::Fatal`]: the member could not go on before; nothing was sent.
    /// [`PollError::Bug`] if the driver is gone for another reason.
    ///
    /// # Cancel safety
    /// Safe: the acknowledgements are sent all the same; their outcomes stand in no report then.
    pub async fn commit(&mut self) -> Result<CommitReport, PollError> {
        if self.left {
            return Ok(CommitReport::default());
        }
        self.accept_implicit();
        let (reply, report) = oneshot::channel();
        self.shared.command(Command::Commit { reply });
        report.await.map_err(|_| match self.shared.fatal() {
            Some(error) => PollError::Fatal(error),
            None => PollError::Bug,
        })
    }

    /// Flushes acknowledgements, releases what is held, closes the share sessions and leaves the
    /// group; within the given time, after which what is open is reported as unknown. Polls give
    /// `None` from now on.
    ///
    /// # Errors
    /// [`PollError::Bug`] if the driver is gone.
    ///
    /// # Cancel safety
    /// Safe: closing goes on.
    pub async fn close(&mut self, within: Duration) -> Result<CommitReport, PollError> {
        if self.left {
            return Ok(CommitReport::default());
        }
        self.leave(within).await.map_err(|_| PollError::Bug)
    }

    fn leave(&mut self, within: Duration) -> oneshot::Receiver<CommitReport> {
        self.left = true;
        // Nobody said that it was processed. Before the close, which releases it.
        self.implicit = None;
        let unseen = ReleaseReason::Unseen;
        self.ready
            .drain(..)
            .for_each(|ready| ready.give_back(unseen));
        self.reader.give_back(unseen);
        let (reply, report) = oneshot::channel();
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

    /// Subscribes to other topics instead; not empty.
    pub fn subscribe(&self, topics: impl IntoIterator<Item = impl Into<String>>) {
        self.shared.command(Command::Subscribe(
            topics.into_iter().map(Into::into).collect(),
        ));
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

    /// Counters since the start.
    #[must_use]
    pub fn metrics(&self) -> ShareMetrics {
        self.shared.counters.snapshot()
    }
}

/// Many records are in work at a time.
pub(crate) struct InWork(Arc<Shared>);

impl Drop for InWork {
    fn drop(&mut self) {
        self.0.command(Command::WorkOn(0));
    }
}

/// A consumer that is dropped without [`close`](ShareConsumer::close) closes by itself, in the
/// background, within five seconds.
impl Drop for ShareConsumer {
    fn drop(&mut self) {
        if !self.left {
            drop(self.leave(Duration::from_secs(5)));
        }
    }
}

/// Builds a [`ShareConsumer`].
#[derive(Debug)]
#[must_use]
pub struct ShareConsumerBuilder {
    client: Result<ClientConfig, ConfigError>,
    session: SessionConfig,
    max_poll_records: usize,
    startup_timeout: Duration,
    max_poll_interval: Option<Duration>,
    #[cfg(feature = "telemetry")]
    metrics_push: bool,
    observer: Option<Arc<dyn ShareObserver>>,
    on_current: bool,
}

impl ShareConsumerBuilder {
    fn new(client: Result<ClientConfig, ConfigError>) -> Self {
        Self {
            client,
            session: SessionConfig::new("", "", Vec::new()),
            max_poll_records: 500,
            startup_timeout: Duration::from_secs(60),
            max_poll_interval: Some(Duration::from_secs(300)),
            #[cfg(feature = "telemetry")]
            metrics_push: true,
            observer: None,
            on_current: false,
        }
    }

    /// The share group (`group.id`). Required.
    pub fn group_id(mut self, group_id: impl Into<String>) -> Self {
        self.session.group_id = group_id.into();
        self
    }

    /// Topics to consume. Required, not empty.
    pub fn topics(mut self, topics: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.session.topics = topics.into_iter().map(Into::into).collect();
        self
    }

    /// Rack of the client (`client.rack`), which the group's coordinator is told; empty = none. Default none.
    pub fn client_rack(mut self, rack: impl Into<String>) -> Self {
        self.session.client_rack = Some(rack.into()).filter(|rack| !rack.is_empty());
        self
    }

    /// Most records of one poll (`max.poll.records`), at least 1. Default 500.
    pub fn max_poll_records(mut self, records: usize) -> Self {
        self.max_poll_records = records.max(1);
        self.session.batch_records = u32::try_from(self.max_poll_records).unwrap_or(u32::MAX);
        self
    }

    /// Most records acquired and not settled at a time, at least 1. Soft by one producer batch per
    /// leader, unless records are acquired one by one ([`AcquireMode::RecordLimit`]). Fewer are held
    /// where fewer are settled: about one second's worth, at least 100, or what is
    /// [in work](ShareConsumer::concurrent) at a time, and at most this
    /// member's part of what the brokers lock of a partition, so that one slow member
    /// doesn't starve the others. Default 10,000.
    pub fn records_held_max(mut self, records: u32) -> Self {
        self.session.records_held_max = records.max(1);
        self
    }

    /// Most bytes of fetched frames whose records are not settled. Default 32 MiB.
    pub fn bytes_held_max(mut self, bytes: u64) -> Self {
        self.session.bytes_held_max = bytes.max(1);
        self
    }

    /// Longest long poll of an idle member (`fetch.max.wait.ms`): an acknowledgement can't overtake
    /// it. Cut to a quarter of the lock. Default 500 ms.
    pub fn fetch_max_wait(mut self, wait: Duration) -> Self {
        self.session.fetch_wait_max = wait;
        self
    }

    /// Least bytes that end a long poll (`fetch.min.bytes`). Default 1.
    pub fn fetch_min_bytes(mut self, bytes: i32) -> Self {
        self.session.fetch_bytes_min = bytes.max(0);
        self
    }

    /// Most bytes of one fetch (`fetch.max.bytes`). Default 50 MiB.
    pub fn fetch_max_bytes(mut self, bytes: i32) -> Self {
        self.session.fetch_bytes_max = bytes.max(1);
        self
    }

    /// How records are acquired (`share.acquire.mode`). Default by credit.
    pub fn acquire_mode(mut self, mode: AcquireMode) -> Self {
        self.session.acquire_mode = mode;
        self
    }

    /// Longest wait of an acknowledgement for company. Default 10 ms.
    pub fn acknowledge_linger(mut self, linger: Duration) -> Self {
        self.session.acknowledge_linger = linger;
        self
    }

    /// How long the locks of unsettled records are renewed; `None` = without a bound. Default 1 h.
    pub fn hold_max(mut self, hold_max: Option<Duration>) -> Self {
        self.session.hold_max = hold_max;
        self
    }

    /// Deliveries after which the broker archives a record, for who knows the group's
    /// `share.delivery.count.limit`. Otherwise the consumer asks the brokers, every `metadata.max.age.ms`
    /// (which needs DESCRIBE_CONFIGS on the group). A record that is dropped on its last allowed delivery
    /// is settled as [`ShareObserver::last_delivery`] says, by default rejected, and told: released it would
    /// be archived without a word.
    pub fn delivery_count_limit(mut self, limit: i16) -> Self {
        self.session.delivery_count_limit = Some(limit.max(1));
        self
    }

    /// Longest time between two polls (`max.poll.interval.ms`), at least 1 ms; `None` = without a bound.
    /// Default 5 min.
    ///
    /// An application that neither polls nor waits in a poll for so long would keep partitions that others
    /// could serve. So its member leaves the group: acknowledgements made before are flushed, what it holds is
    /// lost ([`AckFailure::SessionEnded`](crate::AckFailure::SessionEnded)) and goes to others, and a
    /// [`Warning::NotPolled`](crate::Warning::NotPolled) tells so. The next poll joins again.
    ///
    /// It holds for [`poll`](ShareConsumer::poll), [`next`](ShareConsumer::next) and
    /// [`deliveries`](ShareConsumer::deliveries) in a loop of the application's own, never while
    /// [`for_each_concurrent`](ShareConsumer::for_each_concurrent) or [`concurrent`](ShareConsumer::concurrent)
    /// runs handlers: these may take as long as [`hold_max`](Self::hold_max) allows.
    pub fn max_poll_interval(mut self, interval: Option<Duration>) -> Self {
        self.max_poll_interval = interval.map(|interval| interval.max(Duration::from_millis(1)));
        self
    }

    /// How long [`build`](Self::build) tries to join. Default 60 s.
    pub fn startup_timeout(mut self, timeout: Duration) -> Self {
        self.startup_timeout = timeout;
        self
    }

    /// Watches the consumer.
    pub fn observer(mut self, observer: Arc<dyn ShareObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Whether metrics are pushed to the broker where it asks for them (`enable.metrics.push`, KIP-714); only
    /// with the feature `telemetry`. They are the counters of [`ShareMetrics`], under the names of Kafka's
    /// own share consumer where it has them, else under `sharegroup.consumer`; with the group, the member and
    /// the rack as attributes. The last push may hold up a close for a second. Default yes.
    #[cfg(feature = "telemetry")]
    pub fn metrics_push(mut self, push: bool) -> Self {
        self.metrics_push = push;
        self
    }

    /// Runs the driver on the current runtime instead of its own thread: for tests under paused time.
    pub fn driver_on_current(mut self) -> Self {
        self.on_current = true;
        self
    }

    /// Joins the group.
    ///
    /// # Errors
    /// [`OpenError::NotJoined`] after [`startup_timeout`](Self::startup_timeout);
    /// [`OpenError::Refused`], at once, where certificates or credentials are refused;
    /// [`OpenError::Fatal`] where share groups are off or the id belongs to a group of another type;
    /// [`OpenError::Misuse`], [`OpenError::Config`].
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    pub async fn build(self) -> Result<ShareConsumer, OpenError> {
        let mut session = self.session;
        if session.group_id.is_empty() {
            return Err(OpenError::Misuse {
                what: "a share consumer needs a group id",
            });
        }
        if session.topics.is_empty() {
            return Err(OpenError::Misuse {
                what: "a share consumer needs at least one topic",
            });
        }
        for topic in &session.topics {
            check_topic(topic)?;
        }
        let client = self.client?;
        client.check()?;
        let servers = client
            .bootstrap_servers
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",");
        session.bootstrap_servers = servers.clone();
        session.member_id = member_id();
        session.request_timeout = client.request_timeout;
        session.retry_backoff_max = client.retry_backoff_max;
        let group_id = session.group_id.clone();
        let shared = Shared::new(ShareStatus::joining(session.member_id.clone()));
        let consumer = ShareConsumer {
            status: shared.status.subscribe(),
            shared: Arc::clone(&shared),
            ready: VecDeque::new(),
            reader: Reader::new(Arc::clone(&shared), self.max_poll_records),
            implicit: None,
            left: false,
        };
        let deadline = Instant::now() + self.startup_timeout;
        let (observer, max_poll_interval) = (self.observer, self.max_poll_interval);
        #[cfg(feature = "telemetry")]
        let metrics_push = self.metrics_push;
        let cluster = Cluster::new(client);
        let watched = cluster.clone();
        let start = async move {
            let core = SessionCore::new(session, Instant::now().into_std());
            let driver =
                Driver::new(core, cluster, shared, observer).with_poll_interval(max_poll_interval);
            #[cfg(feature = "telemetry")]
            let driver = if metrics_push {
                driver.with_telemetry()
            } else {
                driver
            };
            driver.run().await;
        };
        if self.on_current {
            tokio::spawn(start);
        } else {
            crate::thread::handle()
                .map_err(|_| OpenError::Misuse {
                    what: "the driver's thread could not be started",
                })?
                .spawn(start);
        }
        let joining = joined(
            consumer,
            &watched,
            deadline,
            self.startup_timeout,
            group_id.clone(),
            servers,
        );
        tokio::select! {
            biased;
            joined = joining => joined,
            source = watched.refusal() => Err(OpenError::Refused { group_id, source }),
        }
    }
}

async fn joined(
    consumer: ShareConsumer,
    cluster: &Cluster,
    deadline: Instant,
    waited: Duration,
    group_id: String,
    bootstrap_servers: String,
) -> Result<ShareConsumer, OpenError> {
    let started = poll_fn(|cx| {
        consumer
            .shared
            .poll_outbox(cx, |outbox| match outbox.failed.take() {
                Some(PollError::Fatal(error)) => Some(Err(error.into())),
                Some(_) => Some(Err(OpenError::Misuse {
                    what: "the consumer's driver ended",
                })),
                None => outbox.joined.then_some(Ok(())),
            })
    });
    match timeout_at(deadline, started).await {
        Ok(started) => started.map(|()| consumer),
        Err(_) => {
            let problem = consumer.status().problem;
            // None yet where the first round of tries isn't over.
            let last = problem.map(|problem| problem.to_string());
            let last = last.or_else(|| Some(cluster.last_failure()?.to_string()));
            Err(OpenError::NotJoined {
                group_id,
                bootstrap_servers,
                waited,
                last,
            })
        }
    }
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

/// A broker would refuse an illegal name for ever.
fn check_topic(name: &str) -> Result<(), ConfigError> {
    if is_topic_name(name) {
        return Ok(());
    }
    Err(ConfigError::InvalidValue {
        key: "topics".to_owned(),
        value: name.to_owned(),
        expected: "a topic name: 1 to 249 letters, digits, `.`, `_` and `-`, not `.` or `..`",
    })
}

/// A new member id: 22 characters of base64, as Kafka's own client makes them. Random whatever the
/// configuration's seed: two consumers of one configuration are two members.
fn member_id() -> String {
    let random = Jitter::seeded(Jitter::random_seed());
    let bytes = (u128::from(random.next()) << 64 | u128::from(random.next())).to_be_bytes();
    base64_22(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_topic_can_have_are_refused() {
        let longest = "a".repeat(249);
        for name in ["orders", "a.b_c-D9", "...", &longest] {
            assert_eq!(check_topic(name), Ok(()));
        }
        for name in ["", ".", "..", "../x", "a b", "ä", &"a".repeat(250)] {
            let error = check_topic(name).unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}`")), "{error}");
        }
    }

    #[test]
    fn every_consumer_is_a_member_of_its_own() {
        let ids: std::collections::BTreeSet<_> = (0..1000).map(|_| member_id()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == 22));
    }
}
