//! Builds a share consumer and opens it.

use std::sync::Arc;
use std::time::Duration;

use sharegroup_session::{AcquireMode, SessionConfig, SessionCore};
use sharegroup_wire::id::base64_22;
use tokio::time::{Instant, timeout_at};

use crate::admin::{Admin, LogPosition};
use crate::backoff::Jitter;
use crate::client::ClientConfig;
use crate::cluster::Cluster;
use crate::consumer::ShareConsumer;
use crate::driver::Driver;
use crate::error::{ConfigError, OpenError};
use crate::group_watch::begin;
use crate::observer::ShareObserver;
use crate::shared::Shared;
use crate::status::ShareStatus;
use crate::topic_partition::is_topic_name;

/// Builds a [`ShareConsumer`].
#[derive(Debug)]
#[must_use]
pub struct ShareConsumerBuilder {
    client: Result<ClientConfig, ConfigError>,
    session: SessionConfig,
    max_poll_records: usize,
    startup_timeout: Duration,
    begin_at: Option<LogPosition>,
    max_poll_interval: Option<Duration>,
    #[cfg(feature = "telemetry")]
    metrics_push: bool,
    observer: Option<Arc<dyn ShareObserver>>,
    on_current: bool,
}

impl ShareConsumerBuilder {
    pub(crate) fn new(client: Result<ClientConfig, ConfigError>) -> Self {
        Self {
            client,
            session: SessionConfig::new("", "", Vec::new()),
            max_poll_records: 500,
            startup_timeout: Duration::from_secs(60),
            begin_at: None,
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
    /// where fewer are settled: about one second's worth, no more than were settled since the start, but at
    /// least 4, one per leader, what a poll takes at once (up to 100) and what is
    /// [in work](ShareConsumer::concurrent) at a time; and at most this member's part of what the brokers lock of
    /// a partition, so that one slow member doesn't starve the others. An application that has all of them in hand,
    /// unsettled, and waits in a poll for more gets twice as many, again and again up to these bounds; then the poll
    /// waits until some are settled. Default 10,000.
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
        self.session.hold_max = hold_max.map(bounded);
        self
    }

    /// Deliveries after which the broker archives a record, for who knows the group's
    /// `share.delivery.count.limit`. Otherwise the consumer asks the brokers, every 30 s
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
        self.max_poll_interval =
            interval.map(|interval| bounded(interval.max(Duration::from_millis(1))));
        self
    }

    /// Where a group begins on partitions that it hasn't begun to read, written before joining; without, what the
    /// group's `share.auto.offset.reset` says: by default the end, so that what is there already is never delivered.
    ///
    /// On partitions that are there offsets are written, unless the group has members
    /// ([`Admin::begin_share_group`]); for those to come the group's setting, where nobody has set it (nothing with
    /// [`LogPosition::Since`]). Takes DESCRIBE_CONFIGS and ALTER_CONFIGS on the group.
    pub fn begin_at(mut self, position: LogPosition) -> Self {
        self.begin_at = Some(position);
        self
    }

    /// How long [`build`](Self::build) tries to join. Default 60 s.
    pub fn startup_timeout(mut self, timeout: Duration) -> Self {
        self.startup_timeout = bounded(timeout);
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
    /// [`OpenError::NotBegun`] where [`begin_at`](Self::begin_at) can't be done; [`OpenError::Misuse`], [`OpenError::Config`].
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
        session.bootstrap_servers.clone_from(&servers);
        session.member_id = member_id();
        session.request_timeout = client.request_timeout;
        session.retry_backoff_max = client.retry_backoff_max;
        let opening = Opening {
            cluster: Cluster::new(client),
            group_id: session.group_id.clone(),
            bootstrap_servers: servers,
            waited: self.startup_timeout,
            deadline: Instant::now() + self.startup_timeout,
        };
        if let Some(position) = self.begin_at {
            opening.begin(&session.topics, position).await?;
        }
        let shared = Shared::new(ShareStatus::joining(session.member_id.clone()));
        let consumer = ShareConsumer::over(Arc::clone(&shared), self.max_poll_records);
        let (observer, max_poll_interval) = (self.observer, self.max_poll_interval);
        #[cfg(feature = "telemetry")]
        let metrics_push = self.metrics_push;
        let cluster = opening.cluster.clone();
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
        opening.join(consumer).await
    }
}

/// A consumer that is being opened.
struct Opening {
    cluster: Cluster,
    group_id: String,
    bootstrap_servers: String,
    /// The time allowed, and when it is over.
    waited: Duration,
    deadline: Instant,
}

impl Opening {
    async fn begin(&self, topics: &[String], position: LogPosition) -> Result<(), OpenError> {
        let admin = Admin::over(self.cluster.clone());
        // Cold: it shall not make the future of each build large.
        let begun = Box::pin(begin(&admin, &self.group_id, topics, position));
        match self.in_time(begun).await? {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) if error.is_retriable() => {
                Err(self.not_joined(Some(error.to_string())))
            }
            Some(Err(source)) => Err(OpenError::NotBegun {
                group_id: self.group_id.clone(),
                source,
            }),
            None => Err(self.not_joined(None)),
        }
    }

    async fn join(&self, consumer: ShareConsumer) -> Result<ShareConsumer, OpenError> {
        match self.in_time(consumer.joined()).await? {
            Some(started) => started.map(|()| consumer),
            None => {
                let problem = consumer.status().problem;
                Err(self.not_joined(problem.map(|problem| problem.to_string())))
            }
        }
    }

    /// `None`: the time is over. An error: no broker can be reached, and none will.
    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<Option<T>, OpenError> {
        tokio::select! {
            biased;
            done = timeout_at(self.deadline, work) => Ok(done.ok()),
            source = self.cluster.refusal() => Err(OpenError::Refused {
                group_id: self.group_id.clone(),
                source,
            }),
        }
    }

    fn not_joined(&self, last: Option<String>) -> OpenError {
        OpenError::NotJoined {
            group_id: self.group_id.clone(),
            bootstrap_servers: self.bootstrap_servers.clone(),
            waited: self.waited,
            // None yet where the first round of tries isn't over.
            last: last.or_else(|| Some(self.cluster.last_failure()?.to_string())),
        }
    }
}

/// What is longer than anybody waits ends no clock's range.
pub(crate) fn bounded(time: Duration) -> Duration {
    time.min(Duration::from_secs(100 * 365 * 86_400))
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
