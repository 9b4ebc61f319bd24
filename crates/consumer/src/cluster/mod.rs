//! The cluster as a client sees it: which brokers there are, connections for cold traffic, and calls
//! that find their broker.
//!
//! Cold traffic (metadata, coordinators, admin work) shares one connection per broker, opened when
//! it is needed and again when it was lost. What must not wait behind others (share sessions,
//! produce requests) opens a connection of its own with [`Cluster::open_connection`].

mod call;
mod fetch;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sharegroup_wire::id::TopicId;
use sharegroup_wire::message::Message;
use sharegroup_wire::message::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use sharegroup_wire::message::find_coordinator::{
    FindCoordinatorRequest, FindCoordinatorResponse, KEY_TYPE_GROUP,
};
use sharegroup_wire::message::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use sharegroup_wire::net::{
    Address, CallError, CloseReason, ConnectError, Connection, ConnectionOptions, canonical_servers,
};
use sharegroup_wire::text::is_visible;
use sharegroup_wire::{BrokerId, ErrorCode};
use tokio::sync::{OnceCell, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::backoff::{Backoff, Jitter};
use crate::client::{ClientConfig, DnsLookup, MetadataRecovery};
use crate::error::ClientError;

pub(crate) use call::{Attempts, Retry};
pub(crate) use fetch::LogRead;
use state::State;

/// A cheap handle to one cluster.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    inner: Arc<Inner>,
    /// When calls through this handle end; `None` = `default.api.timeout.ms` after they began.
    deadline: Option<Instant>,
}

#[derive(Debug)]
struct Inner {
    config: ClientConfig,
    options: ConnectionOptions,
    jitter: Jitter,
    state: Mutex<State>,
    /// Changed when addresses of brokers were learnt.
    learnt: watch::Sender<()>,
    /// The bootstrap servers by their own names, where they are wanted.
    canonical: OnceCell<Vec<Address>>,
    /// Why no connection will ever be had, once that is certain.
    refusal: watch::Sender<Option<ConnectError>>,
}

/// Which topics a metadata request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MetadataScope {
    /// Brokers only.
    Brokers,
    /// Every topic that the client may see.
    AllTopics,
    /// Topics by name.
    Names(Vec<String>),
    /// Topics by id.
    Ids(Vec<TopicId>),
}

impl Cluster {
    pub(crate) fn new(config: ClientConfig) -> Self {
        let (options, jitter) = (config.connection_options(), Jitter::seeded(config.seed));
        let config = config.secured();
        Self {
            inner: Arc::new(Inner {
                config,
                options,
                jitter,
                state: Mutex::default(),
                learnt: watch::Sender::new(()),
                canonical: OnceCell::new(),
                refusal: watch::Sender::new(None),
            }),
            deadline: None,
        }
    }

    pub(crate) fn config(&self) -> &ClientConfig {
        &self.inner.config
    }

    /// The same cluster, with one deadline for all calls through the new handle.
    pub(crate) fn until(&self, deadline: Instant) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            deadline: Some(deadline),
        }
    }

    /// The deadline of an operation that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
            .unwrap_or_else(|| Instant::now() + self.inner.config.default_api_timeout)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics under the lock, and it is never held across an await.
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The pause after so many failures in a row of one operation.
    pub(crate) fn retry_delay(&self, failures: u32) -> Duration {
        self.inner
            .config
            .retry_backoff()
            .delay(failures, &self.inner.jitter)
    }

    /// A pause of another kind, spread by the client's generator.
    pub(crate) fn delay(&self, backoff: Backoff, failures: u32) -> Duration {
        backoff.delay(failures, &self.inner.jitter)
    }

    /// A pseudo-random number of the client's seeded generator.
    pub(crate) fn random(&self) -> u64 {
        self.inner.jitter.next()
    }

    /// Where a broker listens, as far as is known.
    pub(crate) fn address(&self, broker: BrokerId) -> Option<Address> {
        self.state().brokers.get(&broker).cloned()
    }

    /// The brokers that are known.
    pub(crate) fn brokers(&self) -> Vec<BrokerId> {
        self.state().brokers.keys().copied().collect()
    }

    /// Learns a broker's address from an answer other than metadata.
    pub(crate) fn learn_broker(&self, broker: BrokerId, host: &str, port: i32) {
        if let Some(address) = address(host, port).filter(|_| broker.0 >= 0) {
            self.state().brokers.insert(broker, address);
            self.inner.learnt.send_replace(());
        }
    }

    /// Opens a connection that is the caller's alone. A pause after failed tries is kept first.
    /// Takes at most the reconnect pause and the setup time (twice, where the broker must first be
    /// looked up). `idle_max` is the time without a request after which it closes itself.
    pub(crate) async fn open_connection(
        &self,
        broker: BrokerId,
        idle_max: Option<Duration>,
    ) -> Result<Connection, ClientError> {
        let mut address = self.known_address(broker).await?;
        loop {
            tokio::select! {
                opened = self.open(&address, idle_max) => {
                    return Ok(opened.inspect_err(|error| self.refused_by(error))?);
                }
                moved = self.moved(broker, &address) => address = moved,
            }
        }
    }

    /// Waits until metadata tells that a broker listens elsewhere by now.
    async fn moved(&self, broker: BrokerId, from: &Address) -> Address {
        let mut learnt = self.inner.learnt.subscribe();
        loop {
            match self.address(broker) {
                Some(address) if address != *from => return address,
                // The sender lives as long as this handle.
                _ => drop(learnt.changed().await),
            }
        }
    }

    /// A failed call, told by its cause where the broker tells that. It is asked once.
    async fn explained(&self, error: CallError) -> ClientError {
        let (connector, options) = (&*self.inner.config.connector, &self.inner.options);
        if error.has_hidden_cause()
            && self.state().asked_for_cause.insert(error.address().clone())
            && let Some(cause) = error.explain(connector, options).await
        {
            return cause.into();
        }
        error.into()
    }

    /// Remembers an error that no further try will mend: a certificate or credentials that are refused.
    fn refused_by(&self, error: &ConnectError) {
        if !error.is_retriable() {
            self.inner.refusal.send_replace(Some(error.clone()));
        }
    }

    /// Waits until it is certain that there will be no connection, and tells why.
    pub(crate) async fn refusal(&self) -> ConnectError {
        let mut refusal = self.inner.refusal.subscribe();
        loop {
            if let Some(error) = refusal.borrow_and_update().clone() {
                return error;
            }
            // The sender lives as long as this handle.
            drop(refusal.changed().await);
        }
    }

    /// The first contacts. Where their names can't be looked up in the time of a connection, what was
    /// configured is tried as it is.
    async fn bootstrap_servers(&self) -> &[Address] {
        let config = &self.inner.config;
        if config.dns_lookup == DnsLookup::UseAllDnsIps {
            return &config.bootstrap_servers;
        }
        let lookup = self.inner.canonical.get_or_try_init(|| {
            let servers = canonical_servers(&config.bootstrap_servers);
            timeout(config.connection_setup_timeout, servers)
        });
        lookup.await.unwrap_or(&config.bootstrap_servers)
    }

    /// A broker's address, looked up where it isn't known.
    async fn known_address(&self, broker: BrokerId) -> Result<Address, ClientError> {
        if let Some(address) = self.address(broker) {
            return Ok(address);
        }
        self.metadata(MetadataScope::Brokers).await?;
        self.address(broker)
            .ok_or(ClientError::UnknownBroker { broker })
    }

    async fn open(
        &self,
        address: &Address,
        idle_max: Option<Duration>,
    ) -> Result<Connection, ConnectError> {
        let reconnect = self
            .state()
            .reconnects
            .get(address)
            .map(|r| (r.not_before, r.failures));
        if let Some((not_before, _)) = reconnect {
            sleep_until(not_before).await;
        }
        let failures = reconnect.map_or(0, |(_, failures)| failures);
        let timeouts = self.inner.config.setup_timeout();
        let options = ConnectionOptions {
            setup_timeout: timeouts.delay(failures.saturating_add(1), &self.inner.jitter),
            idle_max,
            ..self.inner.options.clone()
        };
        let opened = Connection::open(&*self.inner.config.connector, address, &options).await;
        if let Err(ConnectError::Broker { code, .. }) = &opened {
            self.rebootstraps_for(*code);
        }
        let backoff = self.inner.config.reconnect_backoff();
        let mut state = self.state();
        match &opened {
            Ok(_) => {
                state.reconnects.remove(address);
            }
            Err(error) => state.connect_failed(address, Some(error), |failures| {
                backoff.delay(failures, &self.inner.jitter)
            }),
        }
        opened
    }

    /// Asks others first for a while: this one keeps silent.
    fn distrust(&self, address: &Address) {
        let backoff = self.inner.config.reconnect_backoff();
        let mut state = self.state();
        state.pool.remove(address);
        state.connect_failed(address, None, |failures| {
            backoff.delay(failures, &self.inner.jitter)
        });
    }

    /// Why the last try to connect to this address failed, where none has worked since.
    fn last_failure_at(&self, address: &Address) -> Option<ConnectError> {
        self.state().reconnects.get(address)?.last.clone()
    }

    /// Why the last try to connect to any address failed, where none has worked there since.
    pub(crate) fn last_failure(&self) -> Option<ConnectError> {
        let state = self.state();
        let failed = state.reconnects.values().filter(|r| r.last.is_some());
        failed.max_by_key(|r| r.not_before)?.last.clone()
    }

    /// The connection for cold traffic. It is opened once for all who wait for it, and to the end
    /// though they stop waiting: a caller may have less time than a connection takes.
    async fn pooled(&self, address: &Address) -> Result<Connection, ConnectError> {
        let mut opening = {
            let mut state = self.state();
            if let Some(connection) = state.live_connection(address) {
                return Ok(connection);
            }
            match state.opening.get(address) {
                Some(opening) => opening.clone(),
                None => {
                    let (sender, opening) = watch::channel(None);
                    state.opening.insert(address.clone(), opening.clone());
                    tokio::spawn(self.clone().open_pooled(address.clone(), sender));
                    opening
                }
            }
        };
        let opened = opening.wait_for(Option::is_some).await;
        let opened = opened.map(|opened| opened.clone());
        opened.ok().flatten().unwrap_or_else(|| {
            self.state().opening.remove(address);
            Err(ConnectError::Closed {
                address: address.clone(),
                reason: CloseReason::ByUs,
            })
        })
    }

    async fn open_pooled(
        self,
        address: Address,
        outcome: watch::Sender<Option<Result<Connection, ConnectError>>>,
    ) {
        let opened = self
            .open(&address, self.inner.config.connections_max_idle)
            .await;
        let mut state = self.state();
        state.opening.remove(&address);
        if let Ok(connection) = &opened {
            state.pool.insert(address, connection.clone());
        }
        drop(state);
        outcome.send_replace(Some(opened));
    }

    /// Level of a finalized feature of the cluster now, such as `share.version`; `None` = off.
    pub(crate) async fn finalized_feature(&self, name: &str) -> Result<Option<i16>, ClientError> {
        let response = self.api_versions().await?;
        let feature = response
            .finalized_features
            .iter()
            .find(|feature| feature.name == name);
        Ok(feature.map(|feature| feature.max_version_level))
    }

    /// What a broker says that it serves.
    pub(crate) async fn api_versions(&self) -> Result<ApiVersionsResponse, ClientError> {
        // Asked anew: what a connection was told when it was opened may have changed since.
        let request = ApiVersionsRequest {
            client_software_name: self.inner.options.software_name.clone(),
            client_software_version: self.inner.options.software_version.clone(),
            ..Default::default()
        };
        self.call_any(&request).await
    }

    /// Asks for metadata, and learns the brokers' addresses from the answer. Never creates a topic.
    pub(crate) async fn metadata(
        &self,
        scope: MetadataScope,
    ) -> Result<MetadataResponse, ClientError> {
        let by_name = |name| MetadataRequestTopic {
            name: Some(name),
            ..Default::default()
        };
        let by_id = |topic_id| MetadataRequestTopic {
            topic_id,
            name: None,
        };
        let request = MetadataRequest {
            topics: match scope {
                MetadataScope::Brokers => Some(Vec::new()),
                MetadataScope::AllTopics => None,
                MetadataScope::Names(names) => Some(names.into_iter().map(by_name).collect()),
                MetadataScope::Ids(ids) => Some(ids.into_iter().map(by_id).collect()),
            },
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        let mut attempts = Attempts::new(self, MetadataRequest::NAME);
        let cluster = self.until(attempts.deadline());
        loop {
            cluster.give_up_silent_brokers();
            let response = cluster.call_any(&request).await?;
            let code = response.error_code;
            if code.is_none() {
                let brokers = response.brokers.iter();
                let known = brokers
                    .filter_map(|b| address(&b.host, b.port).map(|address| (b.node_id, address)));
                let mut state = cluster.state();
                state.set_brokers(known);
                state.unrefreshed_since = None;
                drop(state);
                cluster.inner.learnt.send_replace(());
                return Ok(response);
            }
            let error = ClientError::Broker {
                api: MetadataRequest::NAME,
                code,
                message: None,
            };
            if !cluster.rebootstraps_for(code) {
                return Err(error);
            }
            attempts.failed(error);
            attempts.pause().await?;
        }
    }

    /// Forgets the known brokers where none has given metadata for too long (KIP-1102).
    fn give_up_silent_brokers(&self) {
        let (now, config) = (Instant::now(), self.config());
        let mut state = self.state();
        let since = *state.unrefreshed_since.get_or_insert(now);
        let is_long = now.duration_since(since) >= config.metadata_rebootstrap_trigger;
        if is_long && config.metadata_recovery == MetadataRecovery::Rebootstrap {
            tracing::warn!(
                waited = ?now.duration_since(since),
                "No known broker gave metadata; starting again from the bootstrap servers."
            );
            state.rebootstrap();
        }
    }

    /// Forgets the known brokers where one says so (KIP-1102): they are another cluster's by now. Whether
    /// that was so.
    fn rebootstraps_for(&self, code: ErrorCode) -> bool {
        let required = code == ErrorCode::RebootstrapRequired
            && self.config().metadata_recovery == MetadataRecovery::Rebootstrap;
        if required {
            tracing::warn!("A broker asks to start again from the bootstrap servers.");
            self.state().rebootstrap();
        }
        required
    }

    /// The coordinator of a group, from memory or by asking once.
    pub(crate) async fn find_coordinator(&self, group_id: &str) -> Result<BrokerId, ClientError> {
        if let Some(broker) = self.state().coordinators.get(group_id) {
            return Ok(*broker);
        }
        let request = FindCoordinatorRequest {
            key: group_id.to_owned(),
            key_type: KEY_TYPE_GROUP,
            coordinator_keys: vec![group_id.to_owned()],
        };
        let response = self.call_any(&request).await?;
        let broker = self.coordinator_of(response, group_id)?;
        self.state().remember_coordinator(group_id, broker);
        Ok(broker)
    }

    fn coordinator_of(
        &self,
        response: FindCoordinatorResponse,
        group_id: &str,
    ) -> Result<BrokerId, ClientError> {
        let (code, message, broker, host, port) = match response
            .coordinators
            .into_iter()
            .find(|coordinator| coordinator.key == group_id)
        {
            Some(found) => (
                found.error_code,
                found.error_message,
                found.node_id,
                found.host,
                found.port,
            ),
            // Up to version 3 the answer is the one coordinator itself.
            None => (
                response.error_code,
                response.error_message,
                response.node_id,
                response.host,
                response.port,
            ),
        };
        if !code.is_none() {
            return Err(ClientError::Broker {
                api: FindCoordinatorRequest::NAME,
                code,
                message,
            });
        }
        self.learn_broker(broker, &host, port);
        Ok(broker)
    }

    /// Forgets a group's coordinator: it said that it isn't, or it is gone.
    pub(crate) fn forget_coordinator(&self, group_id: &str) {
        self.state().coordinators.remove(group_id);
    }
}

fn address(host: &str, port: i32) -> Option<Address> {
    let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
    let is_host = !host.is_empty() && host.chars().all(is_visible);
    is_host.then(|| Address::new(host, port))
}
