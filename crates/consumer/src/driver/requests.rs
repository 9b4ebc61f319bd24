//! Requests that the core asks for, and their answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sharegroup_session::{BrokerVersions, ConnectionId, Failure, MetadataTopics, Request};
use sharegroup_wire::BrokerId;
use sharegroup_wire::message::metadata::MetadataResponse;
use sharegroup_wire::message::share_acknowledge::{
    ShareAcknowledgeRequest, ShareAcknowledgeResponse,
};
use sharegroup_wire::message::share_fetch::{ShareFetchRequest, ShareFetchResponse};
use sharegroup_wire::message::share_group_heartbeat::{
    ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
};
use sharegroup_wire::net::{CallError, Connection};
use tokio::time::Instant;

use super::Driver;
use crate::cluster::{LogRead, MetadataScope};
use crate::error::ClientError;
use crate::group_watch::{ASKED_EVERY, GroupFact, GroupWatch};
use crate::metrics::add;
use crate::shared::ReadId;

/// One round of a cold request; the core tries again after it.
const COLD_ROUND: Duration = Duration::from_secs(5);

/// What a spawned request came to.
pub(super) enum Completion {
    Metadata(Result<MetadataResponse, Failure>),
    Coordinator(Result<BrokerId, Failure>),
    Heartbeat(
        Option<(BrokerId, Connection)>,
        Result<ShareGroupHeartbeatResponse, Failure>,
    ),
    Connected(ConnectionId, Result<(Connection, BrokerVersions), Failure>),
    Disconnected(ConnectionId, String),
    Fetched(ConnectionId, Result<ShareFetchResponse, Failure>),
    Acknowledged(ConnectionId, Result<ShareAcknowledgeResponse, Failure>),
    Group(GroupFact),
    ReadAgain(ReadId, Result<Bytes, ClientError>),
}

impl Driver {
    pub(super) fn send(&mut self, request: Request) {
        match request {
            Request::Metadata(topics) => self.spawn_metadata(topics),
            Request::FindCoordinator => self.spawn_find_coordinator(),
            Request::Heartbeat {
                coordinator,
                request,
            } => self.spawn_heartbeat(coordinator, request),
            Request::Connect { broker, connection } => self.spawn_connect(broker, connection),
            Request::Disconnect { connection, .. } => {
                if let Some(connection) = self.connections.remove(&connection) {
                    connection.close();
                }
            }
            Request::ShareFetch {
                connection,
                request,
                version,
                timeout,
            } => self.spawn_fetch(connection, request, version, timeout),
            Request::ShareAcknowledge {
                connection,
                request,
                version,
                timeout,
            } => {
                self.spawn_acknowledge(connection, request, version, timeout);
            }
        }
    }

    fn spawn_metadata(&mut self, topics: MetadataTopics) {
        let cluster = self.cluster.until(Instant::now() + COLD_ROUND);
        let scope = match topics {
            MetadataTopics::Names(names) => MetadataScope::Names(names),
            MetadataTopics::Ids(ids) => MetadataScope::Ids(ids),
        };
        self.requests.spawn(async move {
            Completion::Metadata(
                cluster
                    .metadata(scope)
                    .await
                    .map_err(|error| client_failure(&error)),
            )
        });
    }

    fn spawn_find_coordinator(&mut self) {
        let cluster = self.cluster.until(Instant::now() + COLD_ROUND);
        let group_id = self.core.config().group_id.clone();
        cluster.forget_coordinator(&group_id);
        self.requests.spawn(async move {
            Completion::Coordinator(
                cluster
                    .find_coordinator(&group_id)
                    .await
                    .map_err(|error| client_failure(&error)),
            )
        });
    }

    fn spawn_heartbeat(&mut self, coordinator: BrokerId, request: ShareGroupHeartbeatRequest) {
        add(&self.shared.counters.heartbeats, 1);
        let live = self
            .heartbeats
            .take()
            .filter(|(broker, connection)| *broker == coordinator && !connection.is_closed());
        let cluster = self.cluster.until(Instant::now() + COLD_ROUND);
        self.requests.spawn(async move {
            let connection = match live {
                Some((_, connection)) => connection,
                None => match cluster.open_connection(coordinator, None).await {
                    Ok(connection) => connection,
                    Err(error) => return Completion::Heartbeat(None, Err(client_failure(&error))),
                },
            };
            let result = connection
                .call(&request)
                .await
                .map_err(|error| call_failure(&error));
            Completion::Heartbeat(Some((coordinator, connection)), result)
        });
    }

    /// Asks what the group allows and who is in it, now and from time to time.
    pub(super) fn watch_group(&mut self, now: Instant) {
        if self.group.is_none() {
            let watch = GroupWatch::new(&self.cluster, &self.core.config().group_id);
            self.group = Some(Arc::new(watch));
            self.spawn_limits(now);
            self.spawn_members(now);
        }
    }

    fn spawn_limits(&mut self, at: Instant) {
        if let Some(group) = self.group.clone() {
            self.requests
                .spawn(async move { Completion::Group(group.limits(at).await) });
        }
    }

    fn spawn_members(&mut self, at: Instant) {
        if let Some(group) = self.group.clone() {
            self.requests
                .spawn(async move { Completion::Group(group.members(at).await) });
        }
    }

    /// What can't be asked stays as it was.
    fn learn_of_group(&mut self, now: Instant, fact: GroupFact) {
        match fact {
            GroupFact::Limits(limits) => {
                match limits {
                    Ok(limits) => self
                        .core
                        .set_group_limits(limits.delivery_count, limits.record_locks),
                    Err(error) => tracing::debug!(%error, "What the group allows is not known."),
                }
                self.spawn_limits(now + ASKED_EVERY);
            }
            GroupFact::Members(members) => {
                match members {
                    Ok(members) => self.core.set_members(members),
                    Err(error) => tracing::debug!(%error, "The group's members are not known."),
                }
                self.spawn_members(now + ASKED_EVERY);
            }
        }
    }

    fn spawn_connect(&mut self, broker: BrokerId, id: ConnectionId) {
        let cluster = self.cluster.until(Instant::now() + COLD_ROUND);
        self.requests.spawn(async move {
            let result = match cluster.open_connection(broker, None).await {
                Ok(connection) => versions(&connection)
                    .map(|versions| (connection, versions))
                    .map_err(|error| call_failure(&error)),
                Err(error) => Err(client_failure(&error)),
            };
            Completion::Connected(id, result)
        });
    }

    fn spawn_fetch(
        &mut self,
        id: ConnectionId,
        request: ShareFetchRequest,
        version: i16,
        timeout: Duration,
    ) {
        let Some(connection) = self.connections.get(&id).cloned() else {
            return;
        };
        add(&self.shared.counters.fetches, 1);
        self.requests.spawn(async move {
            let result = connection.call_with(&request, version, timeout).await;
            Completion::Fetched(id, result.map_err(|error| call_failure(&error)))
        });
    }

    fn spawn_acknowledge(
        &mut self,
        id: ConnectionId,
        request: ShareAcknowledgeRequest,
        version: i16,
        timeout: Duration,
    ) {
        let Some(connection) = self.connections.get(&id).cloned() else {
            return;
        };
        add(&self.shared.counters.acknowledge_requests, 1);
        self.requests.spawn(async move {
            let result = connection.call_with(&request, version, timeout).await;
            Completion::Acknowledged(id, result.map_err(|error| call_failure(&error)))
        });
    }

    /// Over a connection that no ShareFetch uses: the link may be what damages bytes.
    pub(super) fn spawn_read_again(&mut self, id: ReadId, read: LogRead, until: Instant) {
        let cluster = self.cluster.until(until);
        self.requests
            .spawn(async move { Completion::ReadAgain(id, cluster.read_log(&read).await) });
    }

    pub(super) fn complete_all(&mut self, first: Result<Completion, tokio::task::JoinError>) {
        let mut next = Some(first);
        while let Some(completion) = next {
            match completion {
                Ok(completion) => self.complete(completion),
                // A request's task never panics and is never aborted while the driver runs.
                Err(error) => tracing::error!(%error, "A request ended without an answer."),
            }
            next = self.requests.try_join_next();
        }
    }

    fn complete(&mut self, completion: Completion) {
        let now = Instant::now().into_std();
        match completion {
            Completion::Metadata(Ok(response)) => self.core.handle_metadata(now, Ok(&response)),
            Completion::Metadata(Err(failure)) => self.core.handle_metadata(now, Err(failure)),
            Completion::Coordinator(result) => self.core.handle_coordinator(now, result),
            Completion::Heartbeat(connection, result) => {
                self.heartbeats = connection;
                match result {
                    Ok(response) => self.core.handle_heartbeat(now, Ok(&response)),
                    Err(failure) => self.core.handle_heartbeat(now, Err(failure)),
                }
            }
            Completion::Connected(id, Ok((connection, versions))) => {
                let watched = connection.clone();
                self.requests.spawn(async move {
                    Completion::Disconnected(id, watched.closed().await.to_string())
                });
                self.connections.insert(id, connection);
                self.core.handle_connected(now, id, Ok(versions));
            }
            Completion::Connected(id, Err(failure)) => {
                self.core.handle_connected(now, id, Err(failure))
            }
            Completion::Disconnected(id, why) => {
                self.connections.remove(&id);
                self.core.handle_disconnected(now, id, &why);
            }
            Completion::Fetched(id, result) => self.core.handle_share_fetch(now, id, result),
            Completion::Acknowledged(id, result) => {
                self.core.handle_share_acknowledge(now, id, result)
            }
            Completion::Group(fact) => self.learn_of_group(Instant::from_std(now), fact),
            Completion::ReadAgain(id, answer) => {
                self.shared
                    .tell(|outbox| outbox.reads.push_back((id, answer)));
            }
        }
    }
}

fn versions(connection: &Connection) -> Result<BrokerVersions, CallError> {
    Ok(BrokerVersions {
        share_fetch: connection.version::<ShareFetchRequest>()?,
        share_acknowledge: connection.version::<ShareAcknowledgeRequest>()?,
    })
}

fn call_failure(error: &CallError) -> Failure {
    Failure {
        detail: error.to_string(),
        unsupported: matches!(error, CallError::Unsupported { .. }),
    }
}

fn client_failure(error: &ClientError) -> Failure {
    match error {
        ClientError::Call(error) => call_failure(error),
        error => Failure {
            detail: error.to_string(),
            unsupported: false,
        },
    }
}
