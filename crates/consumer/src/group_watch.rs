//! What the brokers say of the group, asked from time to time: how often a record is delivered, how
//! many are locked per partition, and who shares a partition.

use std::collections::BTreeMap;
use std::time::Duration;

use sharegroup_session::TopicPartition;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::admin::{Admin, AdminError, ShareGroupDescription, ShareLimits};
use crate::cluster::Cluster;

/// Time between two looks at the group's members; a change of the assignment is looked at at once.
pub(crate) const MEMBERS_EVERY: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct GroupWatch {
    admin: Admin,
    group_id: String,
    assignment_changed: Notify,
}

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
        }
    }

    /// The group's limits, at the given time.
    pub(crate) async fn limits(&self, at: Instant) -> GroupFact {
        sleep_until(at).await;
        GroupFact::Limits(self.admin.share_limits(&self.group_id).await)
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
