//! The lag of the connectors' groups, asked for from time to time.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sharegroup_consumer::admin::{Admin, AdminError};
use tokio::time::{sleep, timeout};

use crate::config::ConnectorConfig;
use crate::metrics::Lag;
use crate::worker::Worker;

/// The last lags that brokers have told.
#[derive(Debug, Default)]
pub(super) struct Lags(Mutex<Vec<Lag>>);

impl Lags {
    pub(super) fn known(&self) -> Vec<Lag> {
        let lags = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lags.clone()
    }

    /// Asks for them again and again. Ends only by being dropped.
    pub(super) async fn follow(&self, worker: &Worker) -> Infallible {
        // Before its tasks have joined a group has no lag.
        let _joined = timeout(ASK_EVERY, worker.all_decided()).await;
        let mut soon = ASKED_SOON_MAX;
        loop {
            let mut lags = Vec::new();
            for connector in worker.connectors() {
                match ask(&connector).await {
                    Ok(known) => lags.extend(known),
                    Err(error) => tracing::debug!(
                        connector = connector.name,
                        %error,
                        "The group's lag can't be read."
                    ),
                }
            }
            // Nor before the first fetch of a partition.
            soon = if lags.is_empty() {
                soon.saturating_sub(1)
            } else {
                0
            };
            let pause = if soon > 0 { ASK_SOON } else { ASK_EVERY };
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = lags;
            sleep(pause).await;
        }
    }
}

/// The lags of a connector's group; a partition whose lag isn't known has none.
async fn ask(connector: &Arc<ConnectorConfig>) -> Result<Vec<Lag>, AdminError> {
    let mut client = connector.consumer.admin.clone();
    client.default_api_timeout = ANSWER_WITHIN;
    let admin = Admin::new(client);
    let group_id = &connector.consumer.group_id;
    let offsets = admin.share_group_offsets(group_id, None).await?;
    let lags = offsets.into_iter().filter_map(|offset| {
        Some(Lag {
            connector: connector.name.clone(),
            topic: offset.topic.to_string(),
            partition: offset.partition,
            records: offset.lag?,
        })
    });
    Ok(lags.collect())
}

/// How old lags may be.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// How soon the first are asked for again, and how often at most.
const ASK_SOON: Duration = Duration::from_secs(1);
const ASKED_SOON_MAX: u32 = 10;
/// A question that gets no answer is asked anew later.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
