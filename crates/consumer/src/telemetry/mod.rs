//! Client metrics pushed to the broker (KIP-714), behind the feature `telemetry`.
//!
//! A task of its own beside the driver: it asks a broker what it wants (GetTelemetrySubscriptions), pushes that in
//! the broker's interval (PushTelemetry), and once more at the end. It reads the counters that are there anyhow.

mod names;
mod otlp;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sharegroup_session::MemberState;
use sharegroup_wire::compress::{Compression, compress};
use sharegroup_wire::message::Request;
use sharegroup_wire::message::get_telemetry_subscriptions::{
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse,
};
use sharegroup_wire::message::push_telemetry::PushTelemetryRequest;
use sharegroup_wire::net::CallError;
use sharegroup_wire::{BrokerId, ErrorCode, TopicId};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::Cluster;
use crate::error::ClientError;
use crate::metrics::{ShareMetrics, add};
use crate::shared::Shared;

use otlp::{Frame, Value};

/// Longest wait for the push at the end: so long it may hold up a close.
pub(crate) const LAST_PUSH_MAX: Duration = Duration::from_secs(1);

/// Time for one request.
const CALL_MAX: Duration = Duration::from_secs(10);

/// Pause after a request that no broker answered.
const UNANSWERED_PAUSE: Duration = Duration::from_secs(30);

/// Time between two pushes where the broker names none that makes sense.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(300);

/// Shortest time between two requests, whatever a broker says.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The running task.
#[derive(Debug)]
pub(crate) struct Telemetry {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Telemetry {
    /// Starts on the current runtime, for a member with these attributes.
    pub(crate) fn start(
        cluster: Cluster,
        shared: Arc<Shared>,
        resource: Vec<(&'static str, String)>,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let reporter = Reporter {
            cluster,
            shared,
            resource,
            broker: None,
            client_instance_id: TopicId::ZERO,
            interval: INTERVAL_DEFAULT,
            subscription: None,
            started: SystemTime::now(),
            pushed: (SystemTime::now(), ShareMetrics::default()),
        };
        Self {
            stop,
            task: tokio::spawn(reporter.run(stopped)),
        }
    }

    /// Pushes a last time, where anything is wanted, and ends; within the given time.
    pub(crate) async fn end(self, within: Duration) {
        // It may have ended before.
        let _ended = self.stop.send(());
        let mut task = self.task;
        if timeout(within, &mut task).await.is_err() {
            task.abort();
        }
    }
}

/// What a broker wants.
#[derive(Debug)]
struct Subscription {
    id: i32,
    compression: Compression,
    bytes_max: usize,
    is_delta: bool,
    /// Prefixes of names.
    wanted: Vec<String>,
}

impl Subscription {
    /// `None` = nothing is wanted.
    fn of(response: GetTelemetrySubscriptionsResponse) -> Option<Self> {
        let wanted = response.requested_metrics;
        let known = |id: &i8| u8::try_from(*id).ok().and_then(Compression::from_id);
        let mut codecs = response.accepted_compression_types.iter();
        (!wanted.is_empty()).then(|| Self {
            id: response.subscription_id,
            // The broker lists them in the order in which it prefers them.
            compression: codecs.find_map(known).unwrap_or(Compression::None),
            bytes_max: usize::try_from(response.telemetry_max_bytes).unwrap_or(0),
            is_delta: response.delta_temporality,
            wanted,
        })
    }

    fn wants(&self, name: &str) -> bool {
        let mut prefixes = self.wanted.iter();
        prefixes.any(|prefix| prefix == "*" || name.starts_with(prefix.as_str()))
    }
}

/// What to do after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The next one, after this pause.
    After(Duration),
    /// No more: the broker has no use for it.
    Off,
}

#[derive(Debug)]
struct Reporter {
    cluster: Cluster,
    shared: Arc<Shared>,
    resource: Vec<(&'static str, String)>,
    /// The broker that answered last: the same one is asked as long as it does (KIP-714).
    broker: Option<BrokerId>,
    /// Given by the broker; zero = not yet.
    client_instance_id: TopicId,
    interval: Duration,
    subscription: Option<Subscription>,
    started: SystemTime,
    /// What was pushed last, and when.
    pushed: (SystemTime, ShareMetrics),
}

impl Reporter {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut status = self.shared.status.subscribe();
        tokio::select! {
            // A cluster that refuses the member is not asked for more.
            _ = status.wait_for(|status| status.state == MemberState::Stable) => {}
            _ = &mut stopped => return,
        }
        let mut pause = Duration::ZERO;
        loop {
            tokio::select! {
                () = sleep(pause) => {}
                // A request is never cut off: whether it counted would be unknown.
                _ = &mut stopped => break,
            }
            let next = match &self.subscription {
                None => self.subscribe().await,
                Some(_) => self.push(false).await,
            };
            match next {
                Next::After(time) => pause = time.max(INTERVAL_MIN),
                Next::Off => return,
            }
        }
        if self.subscription.is_some() {
            self.push(true).await;
        }
    }

    /// Asks what is wanted.
    async fn subscribe(&mut self) -> Next {
        let request = GetTelemetrySubscriptionsRequest {
            client_instance_id: self.client_instance_id,
        };
        let response = match self.call(&request).await {
            Ok(response) => response,
            Err(error) => return self.unanswered(&error),
        };
        if !response.error_code.is_none() {
            return self.refused(response.error_code);
        }
        if !response.client_instance_id.is_zero() {
            self.client_instance_id = response.client_instance_id;
            // The first one stays the client's.
            let _same = self
                .shared
                .client_instance_id
                .set(response.client_instance_id);
        }
        let interval = u64::try_from(response.push_interval_ms).ok();
        let interval = interval.filter(|ms| *ms > 0).map(Duration::from_millis);
        self.interval = interval.unwrap_or(INTERVAL_DEFAULT);
        self.subscription = Subscription::of(response);
        tracing::debug!(subscription = ?self.subscription, interval = ?self.interval, "Asked which metrics the broker wants.");
        match self.subscription {
            // Clients that start together don't push together.
            Some(_) => Next::After(self.spread(self.interval)),
            None => Next::After(self.interval),
        }
    }

    /// Half to one and a half of a time.
    fn spread(&self, time: Duration) -> Duration {
        let percent = u32::try_from(50 + self.cluster.random() % 101).unwrap_or(100);
        time * percent / 100
    }

    /// Pushes what is wanted.
    async fn push(&mut self, terminating: bool) -> Next {
        let Some(subscription) = &self.subscription else {
            return Next::After(self.interval);
        };
        let now = (SystemTime::now(), self.shared.counters.snapshot());
        let metrics = self.payload(subscription, now);
        let compressed = compress(subscription.compression, &metrics);
        let (compression, metrics) = match compressed {
            Ok(compressed) => (subscription.compression, compressed),
            Err(_) => (Compression::None, metrics),
        };
        if metrics.len() > subscription.bytes_max {
            return self.refused(ErrorCode::TelemetryTooLarge);
        }
        let request = PushTelemetryRequest {
            client_instance_id: self.client_instance_id,
            subscription_id: subscription.id,
            terminating,
            compression_type: compression.id().cast_signed(),
            metrics: Bytes::from(metrics),
        };
        match self.call(&request).await {
            Ok(response) if response.error_code.is_none() => {
                add(&self.shared.counters.telemetry_pushes, 1);
                self.pushed = now;
                Next::After(self.interval)
            }
            Ok(response) => self.refused(response.error_code),
            Err(error) => self.unanswered(&error),
        }
    }

    fn payload(
        &self,
        subscription: &Subscription,
        (time, now): (SystemTime, ShareMetrics),
    ) -> Vec<u8> {
        let (start, before) = if subscription.is_delta {
            self.pushed
        } else {
            (self.started, ShareMetrics::default())
        };
        let counters = names::counters(&now).into_iter();
        let counters = counters
            .zip(names::counters(&before))
            .map(|((name, count), (_, before))| (name, Value::Count(count.saturating_sub(before))));
        let last_poll = self.shared.polled_at().elapsed().as_secs_f64();
        let metrics: Vec<_> = counters
            .chain([(names::LAST_POLL, Value::Level(last_poll))])
            .filter(|(name, _)| subscription.wants(name))
            .collect();
        let frame = Frame {
            resource: &self.resource,
            is_delta: subscription.is_delta,
            start,
            time,
        };
        otlp::encode(frame, &metrics)
    }

    /// What a broker's error means (KIP-714 "Error handling").
    fn refused(&mut self, error: ErrorCode) -> Next {
        tracing::debug!(%error, "The broker refused a request for telemetry.");
        match error {
            ErrorCode::InvalidRequest
            | ErrorCode::InvalidRecord
            | ErrorCode::UnsupportedVersion => Next::Off,
            ErrorCode::UnknownSubscriptionId | ErrorCode::UnsupportedCompressionType => {
                self.subscription = None;
                Next::After(Duration::ZERO)
            }
            ErrorCode::TelemetryTooLarge | ErrorCode::ThrottlingQuotaExceeded => {
                self.subscription = None;
                Next::After(self.interval)
            }
            _ => Next::After(self.interval),
        }
    }

    fn unanswered(&self, error: &ClientError) -> Next {
        tracing::debug!(%error, "A request for telemetry was not answered.");
        match error {
            // Also where the broker has nobody to give metrics to.
            ClientError::Call(CallError::Unsupported { .. }) => Next::Off,
            _ => Next::After(self.interval.min(self.spread(UNANSWERED_PAUSE))),
        }
    }

    async fn call<R: Request>(&mut self, request: &R) -> Result<R::Response, ClientError> {
        let cluster = self.cluster.until(Instant::now() + CALL_MAX);
        let known = cluster.brokers();
        let any = usize::try_from(cluster.random()).unwrap_or(0) % known.len().max(1);
        let same = self.broker.filter(|broker| known.contains(broker));
        let broker = same.or_else(|| known.get(any).copied());
        let answered = match broker {
            Some(broker) => cluster.call_broker(broker, request).await,
            None => cluster.call_any(request).await,
        };
        self.broker = broker.filter(|_| answered.is_ok());
        answered
    }
}
