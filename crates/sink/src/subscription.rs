//! Follows which topics match `topics.regex`. A share group's heartbeat takes names only, so that a
//! member has to find them.

use std::time::Duration;

use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::{ShareConsumer, ShareStatus, Subscriber};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::config::{ConnectorConfig, Topics};
use crate::worker::TaskPlace;

/// Longest time until a new topic is found.
const INTERVAL_MAX: Duration = Duration::from_secs(30);

fn interval(connector: &ConnectorConfig) -> Duration {
    INTERVAL_MAX.min(connector.consumer.admin.metadata_max_age)
}

/// The topics that are read at the start: a member without any can't join, so that one with a pattern
/// waits for the first that matches.
pub(crate) async fn first_topics(
    admin: &Admin,
    connector: &ConnectorConfig,
    task: &TaskPlace<'_>,
) -> Result<Vec<String>, String> {
    let mut is_told = false;
    loop {
        let topics = connector.subscription.resolve(admin).await;
        let topics = topics.map_err(|error| error.to_string())?;
        if !topics.is_empty() {
            return Ok(topics);
        }
        if !is_told {
            is_told = true;
            let pattern = connector.subscription.to_string();
            tracing::warn!(
                task = task.name,
                topics = pattern,
                "No topic matches; waiting for one."
            );
            let note = format!("waiting for a topic of {pattern}");
            task.shared.set_note(Some(note));
        }
        sleep(interval(connector)).await;
    }
}

/// A task that looks for topics that come and go until it is dropped.
#[derive(Debug)]
pub(crate) struct Following(JoinHandle<()>);

impl Following {
    /// Follows a pattern; `None` where topics are named.
    pub(crate) fn start(
        admin: Admin,
        connector: &ConnectorConfig,
        first: Vec<String>,
        consumer: &ShareConsumer,
    ) -> Option<Self> {
        let topics = match &connector.subscription {
            Topics::Named(_) => return None,
            matching => matching.clone(),
        };
        let looks = Looks {
            every: interval(connector),
            status: consumer.monitor().watch_status(),
        };
        let (name, subscriber) = (connector.name.clone(), consumer.subscriber());
        Some(Self(tokio::spawn(async move {
            follow(&admin, &topics, first, looks, &name, &subscriber).await;
        })))
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// When to look again.
struct Looks {
    every: Duration,
    status: watch::Receiver<ShareStatus>,
}

impl Looks {
    /// Waits for the next look: sooner where one of the topics is gone, since nobody waits for it to come back.
    async fn next(&mut self, known: &[String]) {
        let soonest = self.every / 10;
        sleep(soonest).await;
        let is_gone = |status: &ShareStatus| {
            let mut missing = status.missing_topics.iter();
            missing.any(|topic| known.contains(topic))
        };
        let rest = self.every - soonest;
        let has_ended = {
            let seen = timeout(rest, self.status.wait_for(is_gone)).await;
            matches!(seen, Ok(Err(_)))
        };
        if has_ended {
            // The consumer has ended; so does this, when it is dropped.
            sleep(rest).await;
        }
    }
}

async fn follow(
    admin: &Admin,
    topics: &Topics,
    mut known: Vec<String>,
    mut looks: Looks,
    connector: &str,
    subscriber: &Subscriber,
) {
    loop {
        looks.next(&known).await;
        match topics.resolve(admin).await {
            // A member always has a topic; the last one may come back.
            Ok(found) if found.is_empty() || found == known => {}
            Ok(found) => {
                tracing::info!(
                    connector,
                    topics = found.join(", "),
                    "Other topics match now."
                );
                subscriber.subscribe(found.iter().map(String::as_str));
                known = found;
            }
            Err(error) => {
                tracing::warn!(connector, %error, "Which topics match can't be looked up; those known are read.");
            }
        }
    }
}
