//! What the brokers say of the group: where it begins, and, asked from time to time, how often a record is
//! delivered, how many are locked per partition, and who shares a partition.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sharegroup_session::TopicPartition;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::admin::{
    Admin, AdminError, ConfigValue, LogPosition, ShareGroupDescription, ShareLimits,
};
use crate::cluster::Cluster;

/// Time between two looks at the group's members and at what it allows; a change of the assignment is looked at
/// at once.
pub(crate) const ASKED_EVERY: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct GroupWatch {
    admin: Admin,
    group_id: String,
    assignment_changed: Notify,
    /// Whether the application was told where the group begins.
    start_told: AtomicBool,
}

/// Where a group begins on partitions that are new to it.
const START: &str = "share.auto.offset.reset";

/// An answer. `Err`: it may not be ours to see.
#[derive(Debug)]
pub(crate) enum GroupFact {
    Limits(Result<ShareLimits, AdminError>),
    /// Members by partition.
    Members(Result<BTreeMap<TopicPartition, u32>, AdminError>),
}

impl GroupWatch {
    pub(crate) fn new(cluster: &Cluster, group_id: &str) -> Self {
        Self {
            admin: Admin::over(cluster.clone()),
            group_id: group_id.to_owned(),
            assignment_changed: Notify::new(),
            start_told: AtomicBool::new(false),
        }
    }

    /// The group's limits, at the given time.
    pub(crate) async fn limits(&self, at: Instant) -> GroupFact {
        sleep_until(at).await;
        GroupFact::Limits(self.ask_limits().await)
    }

    async fn ask_limits(&self) -> Result<ShareLimits, AdminError> {
        let configs = self.admin.group_configs(&self.group_id).await?;
        if !self.start_told.swap(true, Ordering::Relaxed) {
            self.tell_start(&configs).await?;
        }
        self.admin.share_limits_in(&configs).await
    }

    /// A group that skips what is there already does so without an error.
    async fn tell_start(&self, configs: &BTreeMap<String, ConfigValue>) -> Result<(), AdminError> {
        let start = configs.get(START);
        let begins_at_end = start.is_none_or(|start| {
            !start.is_set() && start.value.as_deref().is_none_or(|value| value == "latest")
        });
        if !begins_at_end {
            return Ok(());
        }
        let offsets = self.admin.share_group_offsets(&self.group_id, None).await?;
        if offsets.iter().all(|found| found.start_offset.is_none()) {
            tracing::warn!(
                group = self.group_id,
                "A new group begins at the end of its topics: what is there already is not delivered, unless \
                 ShareConsumerBuilder::begin_at or share.auto.offset.reset says so."
            );
        }
        Ok(())
    }

    /// The group's members, at the given time or when our assignment changes.
    pub(crate) async fn members(&self, at: Instant) -> GroupFact {
        tokio::select! {
            () = sleep_until(at) => {}
            () = self.assignment_changed.notified() => {}
        }
        let described = self.admin.describe_share_group(&self.group_id).await;
        GroupFact::Members(described.map(|group| members_by_partition(&group)))
    }

    /// Others may have come or gone.
    pub(crate) fn assignment_changed(&self) {
        self.assignment_changed.notify_one();
    }
}

/// Makes a group begin here: on what is there by offsets, later by its setting, where nobody has set it.
pub(crate) async fn begin(
    admin: &Admin,
    group_id: &str,
    topics: &[String],
    position: LogPosition,
) -> Result<(), AdminError> {
    let later = match position {
        LogPosition::Earliest => Some("earliest"),
        LogPosition::Latest => Some("latest"),
        LogPosition::Since(_) => None,
    };
    if let Some(value) = later {
        let configs = admin.group_configs(group_id).await?;
        if !configs.get(START).is_some_and(ConfigValue::is_set) {
            admin.set_group_config(group_id, START, value).await?;
        }
    }
    let topics: Vec<_> = topics.iter().map(String::as_str).collect();
    let begun = admin.begin_share_group(group_id, &topics, position).await?;
    tracing::debug!(group = group_id, ?begun, "The group begins.");
    Ok(())
}

fn members_by_partition(group: &ShareGroupDescription) -> BTreeMap<TopicPartition, u32> {
    let mut members = BTreeMap::new();
    let topics = group.members.iter().flat_map(|member| &member.assignment);
    for topic in topics {
        for partition in &topic.partitions {
            let place = TopicPartition {
                topic_id: topic.topic_id,
                partition: *partition,
            };
            *members.entry(place).or_default() += 1;
        }
    }
    members
}
