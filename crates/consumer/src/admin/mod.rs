//! Admin work: topics, groups, configurations, offsets.
//!
//! ```no_run
//! use sharegroup_consumer::admin::Admin;
//! use sharegroup_consumer::client::ClientConfig;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let admin = Admin::new(ClientConfig::new("localhost:9092")?);
//! admin.create_topic("orders", 4, -1, &[("retention.ms", "86400000")]).await?;
//! admin.set_group_config("workers", "share.auto.offset.reset", "earliest").await?;
//! # Ok(())
//! # }
//! ```

mod commits;
mod configs;
mod error;
mod groups;
mod offsets;
mod rights;
mod topics;

use std::time::Duration;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::share_group_heartbeat::ShareGroupHeartbeatRequest;
use tokio::time::Instant;

use crate::client::ClientConfig;
use crate::cluster::{Attempts, Cluster, Retry};
use crate::error::ClientError;

pub use configs::{ConfigSource, ConfigValue, ShareLimits};
pub use error::{AdminError, Resource};
pub use groups::{
    GroupListing, GroupType, ShareGroupAssignment, ShareGroupDescription, ShareGroupMember,
};
pub use offsets::{LogOffset, LogPosition, PartitionOffsets};
pub use rights::Rights;
pub use topics::{CreatedTopic, PartitionDescription, TopicDescription, TopicListing};

/// An admin client. A clone is another handle to the same connections.
///
/// Every operation finds the broker that can answer, tries again after what may pass, and ends
/// after `default.api.timeout.ms` at the latest.
///
/// # Cancel safety
/// Every operation may be dropped at any time. What changes the cluster may or may not have been
/// done then.
#[derive(Debug, Clone)]
pub struct Admin {
    cluster: Cluster,
}

impl Admin {
    /// An admin client; connections are opened when they are needed.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        Self {
            cluster: Cluster::new(config),
        }
    }

    /// An admin client over connections that exist.
    pub(crate) const fn over(cluster: Cluster) -> Self {
        Self { cluster }
    }

    /// Level of the cluster's `share.version` feature: `None` or 0 = share groups are off (a 4.1
    /// broker may have them on by its own setting), 1 = on, 2 = with dead-letter queues.
    ///
    /// # Errors
    /// [`AdminError::Client`].
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn share_version(&self) -> Result<Option<i16>, AdminError> {
        Ok(self.cluster.finalized_feature("share.version").await?)
    }

    /// Whether the brokers know share groups at all, on or off: Kafka 4.1 and later do.
    ///
    /// # Errors
    /// [`AdminError::Client`].
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn knows_share_groups(&self) -> Result<bool, AdminError> {
        let served = self.cluster.api_versions().await?.api_keys;
        let key = ShareGroupHeartbeatRequest::API_KEY;
        Ok(served.iter().any(|api| api.api_key == key))
    }

    /// Runs an operation until it succeeds, fails for good, or its time is over. The cluster given
    /// to each try has the operation's deadline.
    async fn with_retries<T, F>(
        &self,
        operation: &'static str,
        retry: Retry,
        attempt: impl Fn(Cluster) -> F,
    ) -> Result<T, AdminError>
    where
        F: Future<Output = Result<T, AdminError>>,
    {
        let mut attempts = Attempts::new(&self.cluster, operation);
        let patient_until = Instant::now() + UNKNOWN_TOPIC_PATIENCE;
        loop {
            let failure = match attempt(self.cluster.until(attempts.deadline())).await {
                Err(AdminError::Broker {
                    code: ErrorCode::UnknownTopicOrPartition,
                    operation,
                    resource,
                    message,
                }) if Instant::now() >= patient_until => {
                    return Err(AdminError::broker(
                        operation,
                        resource,
                        ErrorCode::UnknownTopicOrPartition,
                        message,
                    ));
                }
                Err(AdminError::Broker {
                    operation: api,
                    code,
                    message,
                    ..
                }) if may_pass(code, retry) => ClientError::Broker { api, code, message },
                Err(AdminError::Client(error)) if network_may_pass(&error, retry) => error,
                outcome => return outcome,
            };
            attempts.failed(failure);
            attempts.pause().await?;
        }
    }

    /// The request timeout as the broker's time for its part.
    fn request_timeout_ms(&self) -> i32 {
        i32::try_from(self.cluster.config().request_timeout.as_millis()).unwrap_or(i32::MAX)
    }
}

/// How long UNKNOWN_TOPIC_OR_PARTITION counts as "not yet": a broker learns of a new topic or a new
/// leader within moments; after that it is "not".
const UNKNOWN_TOPIC_PATIENCE: Duration = Duration::from_secs(2);

fn network_may_pass(error: &ClientError, retry: Retry) -> bool {
    retry == Retry::Always && error.is_retriable() && !matches!(error, ClientError::Deadline { .. })
}

/// Whether a broker's refusal may pass. After REQUEST_TIMED_OUT the broker may still do the work.
fn may_pass(code: ErrorCode, retry: Retry) -> bool {
    code.is_retriable() && (retry == Retry::Always || code != ErrorCode::RequestTimedOut)
}
