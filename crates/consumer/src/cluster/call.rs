//! Calls that find their broker and are tried again.

use std::time::Duration;

use sharegroup_wire::message::Request;
use sharegroup_wire::message::alter_share_group_offsets::AlterShareGroupOffsetsResponse;
use sharegroup_wire::message::delete_share_group_offsets::DeleteShareGroupOffsetsResponse;
use sharegroup_wire::message::describe_share_group_offsets::DescribeShareGroupOffsetsResponse;
use sharegroup_wire::message::list_groups::ListGroupsResponse;
use sharegroup_wire::message::offset_commit::OffsetCommitResponse;
use sharegroup_wire::message::offset_fetch::OffsetFetchResponse;
use sharegroup_wire::message::share_group_describe::ShareGroupDescribeResponse;
use sharegroup_wire::message::share_group_heartbeat::ShareGroupHeartbeatResponse;
use sharegroup_wire::net::{Address, CallError, ConnectError};
use sharegroup_wire::{BrokerId, ErrorCode};
use tokio::time::{Instant, sleep, timeout_at};

use super::Cluster;
use crate::error::ClientError;

/// Which failures a call is tried again after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// All that may pass: for requests that may be done twice.
    Always,
    /// Only those after which the broker certainly has not seen the request.
    Unsent,
}

impl Retry {
    fn allows(self, error: &ClientError) -> bool {
        error.is_retriable() && (self == Self::Always || !error.may_have_arrived())
    }
}

/// An answer of a group coordinator.
pub(crate) trait CoordinatorResponse {
    /// The error that concerns the coordinator, if any.
    fn coordinator_error(&self) -> ErrorCode;
}

macro_rules! top_level_error {
    ($($name:ident),*) => {$(
        impl CoordinatorResponse for $name {
            fn coordinator_error(&self) -> ErrorCode {
                self.error_code
            }
        }
    )*};
}

top_level_error!(
    ShareGroupHeartbeatResponse,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponse,
    ListGroupsResponse
);

macro_rules! first_group_error {
    ($($name:ident),*) => {$(
        impl CoordinatorResponse for $name {
            fn coordinator_error(&self) -> ErrorCode {
                self.groups.first().map_or(ErrorCode::None, |group| group.error_code)
            }
        }
    )*};
}

first_group_error!(
    ShareGroupDescribeResponse,
    DescribeShareGroupOffsetsResponse,
    OffsetFetchResponse
);

impl CoordinatorResponse for OffsetCommitResponse {
    /// Errors of the coordinator are told of each partition.
    fn coordinator_error(&self) -> ErrorCode {
        let mut partitions = self.topics.iter().flat_map(|topic| &topic.partitions);
        partitions
            .next()
            .map_or(ErrorCode::None, |partition| partition.error_code)
    }
}

impl Cluster {
    /// Asks any broker, and others when one can't be reached, until the deadline.
    pub(crate) async fn call_any<R: Request>(
        &self,
        request: &R,
    ) -> Result<R::Response, ClientError> {
        self.call_any_with(request, Retry::Always).await
    }

    /// As [`call_any`](Self::call_any), tried again only after the failures that `retry` allows.
    pub(crate) async fn call_any_with<R: Request>(
        &self,
        request: &R,
        retry: Retry,
    ) -> Result<R::Response, ClientError> {
        let mut attempts = Attempts::new(self, R::NAME);
        loop {
            let bootstrap = self.bootstrap_servers().await;
            let recovery = self.config().metadata_recovery;
            let candidates = self.state().candidates(bootstrap, recovery);
            // A frozen broker answers nothing and refuses nothing. Where another one may answer
            // and the request may be done twice, it gets a short time at first.
            let patience = match retry {
                Retry::Always if candidates.len() > 1 => patience(attempts.failures),
                _ => Duration::MAX,
            };
            let mut any_may_pass = false;
            let mut refused = None;
            for address in &candidates {
                match attempts
                    .try_at(address, patience, self.call_at(address, request))
                    .await?
                {
                    Ok(response) => return Ok(response),
                    Err(error @ ClientError::NoAnswer { .. }) => {
                        any_may_pass = true;
                        self.distrust(address);
                        attempts.failed(error);
                    }
                    Err(error) if error.may_have_arrived() && !retry.allows(&error) => {
                        return Err(error);
                    }
                    // The other candidates are of the same metadata.
                    Err(error) if demands_rebootstrap(&error) => {
                        any_may_pass = true;
                        attempts.failed(error);
                        break;
                    }
                    Err(error) => {
                        any_may_pass |= error.is_retriable();
                        refused = refused.or_else(|| unauthenticated(&error));
                        attempts.failed(error);
                    }
                }
            }
            // Credentials that one broker refuses are the cluster's to refuse; a bad certificate is
            // that broker's alone.
            if let Some(error) = refused {
                self.refused_by(&error);
                return Err(error.into());
            }
            if !any_may_pass {
                let error = attempts.give_up();
                if let ClientError::Connect(error) = &error {
                    self.refused_by(error);
                }
                return Err(error);
            }
            attempts.pause().await?;
        }
    }

    /// Asks one broker, once; a lost pooled connection is opened again first.
    pub(crate) async fn call_broker<R: Request>(
        &self,
        broker: BrokerId,
        request: &R,
    ) -> Result<R::Response, ClientError> {
        let mut attempts = Attempts::new(self, R::NAME);
        let address = self.until(attempts.deadline).known_address(broker).await?;
        attempts
            .try_at(&address, Duration::MAX, self.call_at(&address, request))
            .await?
    }

    /// Asks the coordinator of a group until the deadline: looks it up again where the broker is not
    /// or not yet the coordinator, or can't be reached.
    pub(crate) async fn call_coordinator<R>(
        &self,
        group_id: &str,
        request: &R,
    ) -> Result<R::Response, ClientError>
    where
        R: Request,
        R::Response: CoordinatorResponse,
    {
        let mut attempts = Attempts::new(self, R::NAME);
        let cluster = self.until(attempts.deadline);
        loop {
            match cluster.try_coordinator(group_id, request).await {
                Ok(response) => return Ok(response),
                Err(error)
                    if !error.is_retriable() || matches!(error, ClientError::Deadline { .. }) =>
                {
                    return Err(error);
                }
                Err(error) => {
                    // While it loads, the coordinator stays the same.
                    if error.broker_code() != Some(ErrorCode::CoordinatorLoadInProgress) {
                        self.forget_coordinator(group_id);
                    }
                    attempts.failed(error);
                }
            }
            attempts.pause().await?;
        }
    }

    async fn try_coordinator<R>(
        &self,
        group_id: &str,
        request: &R,
    ) -> Result<R::Response, ClientError>
    where
        R: Request,
        R::Response: CoordinatorResponse,
    {
        let broker = self.find_coordinator(group_id).await?;
        let response = self.call_broker(broker, request).await?;
        match response.coordinator_error() {
            code @ (ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator) => Err(ClientError::Broker {
                api: R::NAME,
                code,
                message: None,
            }),
            _ => Ok(response),
        }
    }

    async fn call_at<R: Request>(
        &self,
        address: &Address,
        request: &R,
    ) -> Result<R::Response, ClientError> {
        let mut outcome = self.pooled(address).await?.call(request).await;
        if let Err(CallError::NotConnected { .. }) = &outcome {
            // It ended between the look into the pool and the call: nothing was sent.
            outcome = self.pooled(address).await?.call(request).await;
        }
        match outcome {
            Ok(response) => Ok(response),
            Err(error) => Err(self.explained(error).await),
        }
    }
}

/// The refusal of our credentials, if it is one.
fn unauthenticated(error: &ClientError) -> Option<ConnectError> {
    match error {
        ClientError::Connect(error @ ConnectError::Authentication { .. })
            if !error.is_retriable() =>
        {
            Some(error.clone())
        }
        _ => None,
    }
}

/// Whether a broker sends the client to its bootstrap servers.
const fn demands_rebootstrap(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Connect(ConnectError::Broker {
            code: ErrorCode::RebootstrapRequired,
            ..
        })
    )
}

/// How long one broker may keep silent while others can be asked, after so many rounds.
const fn patience(rounds: u32) -> Duration {
    let doublings = if rounds < 5 { rounds } else { 5 };
    Duration::from_secs(4 << doublings)
}

/// The tries of one operation, up to its deadline.
#[derive(Debug)]
pub(crate) struct Attempts<'a> {
    cluster: &'a Cluster,
    operation: &'static str,
    started: Instant,
    deadline: Instant,
    failures: u32,
    last: Option<ClientError>,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(cluster: &'a Cluster, operation: &'static str) -> Self {
        Self {
            cluster,
            operation,
            started: Instant::now(),
            deadline: cluster.deadline(),
            failures: 0,
            last: None,
        }
    }

    /// Runs one try at a broker, for so long at the longest. The outer error is the deadline.
    async fn try_at<T>(
        &mut self,
        address: &Address,
        patience: Duration,
        attempt: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<Result<T, ClientError>, ClientError> {
        let started = Instant::now();
        let until = started
            .checked_add(patience)
            .map_or(self.deadline, |at| at.min(self.deadline));
        if let Ok(outcome) = timeout_at(until, attempt).await {
            return Ok(outcome);
        }
        let silent = ClientError::NoAnswer {
            address: address.clone(),
            after: started.elapsed(),
        };
        if until < self.deadline {
            return Ok(Err(silent));
        }
        // Cut off in the pause before the next try to connect, or in that: the last one tells more.
        let known = self.cluster.last_failure_at(address);
        self.failed(known.map_or(silent, ClientError::Connect));
        Err(self.deadline_error())
    }

    /// Remembers a failed try.
    pub(crate) fn failed(&mut self, error: ClientError) {
        tracing::debug!(operation = self.operation, %error, "Try failed.");
        self.last = Some(error);
    }

    /// Waits before the next round of tries.
    pub(crate) async fn pause(&mut self) -> Result<(), ClientError> {
        self.failures = self.failures.saturating_add(1);
        // A broker that has just started refuses much; what lasts is told at 4, 8, 16 … failures.
        if let Some(error) = self
            .last
            .as_ref()
            .filter(|_| self.failures >= 4 && self.failures.is_power_of_two())
        {
            tracing::warn!(operation = self.operation, failures = self.failures, %error, "Trying again.");
        }
        let delay = self.cluster.retry_delay(self.failures);
        timeout_at(self.deadline, sleep(delay))
            .await
            .map_err(|_| self.deadline_error())
    }

    /// The last failure, as the outcome.
    pub(crate) fn give_up(&mut self) -> ClientError {
        self.last.take().unwrap_or_else(|| self.deadline_error())
    }

    pub(crate) const fn deadline(&self) -> Instant {
        self.deadline
    }

    fn deadline_error(&mut self) -> ClientError {
        ClientError::Deadline {
            operation: self.operation,
            after: self.started.elapsed(),
            last: self.last.take().map(Box::new),
        }
    }
}
