//! Groups.

use std::fmt;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::id::{MemberEpoch, TopicId};
use sharegroup_wire::message::Message;
use sharegroup_wire::message::list_groups::{ListGroupsRequest, ListGroupsResponse, ListedGroup};
use sharegroup_wire::message::share_group_describe::{
    DescribedGroup, Member, ShareGroupDescribeRequest,
};

use super::Admin;
use super::error::{AdminError, Resource};
use crate::cluster::{Cluster, MetadataScope, Retry};

/// The type of a group. A group id belongs to one type.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupType {
    /// A share group (KIP-932).
    Share,
    /// A consumer group (KIP-848).
    Consumer,
    /// A consumer group of the older protocol.
    Classic,
    /// A streams group (KIP-1071).
    Streams,
    /// A type that this crate doesn't know, as the broker spells it.
    Other(String),
}

impl GroupType {
    fn from_wire(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "share" => Self::Share,
            "consumer" => Self::Consumer,
            "classic" => Self::Classic,
            "streams" => Self::Streams,
            _ => Self::Other(text.to_owned()),
        }
    }
}

impl fmt::Display for GroupType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Share => "share",
            Self::Consumer => "consumer",
            Self::Classic => "classic",
            Self::Streams => "streams",
            Self::Other(text) => text,
        })
    }
}

/// A group in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupListing {
    /// Its id.
    pub group_id: String,
    /// Its type.
    pub group_type: GroupType,
    /// Its protocol, such as `share`; empty for a classic group that nobody has joined.
    pub protocol_type: String,
    /// Its state, as Kafka spells it: `Empty`, `Stable`, `Dead` and so on.
    pub state: String,
}

/// A share group with its members.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShareGroupDescription {
    /// Its id.
    pub group_id: String,
    /// Its state, as Kafka spells it: `Empty`, `Stable`, `Dead`.
    pub state: String,
    /// Bumped by changes of members, topics and partitions.
    pub group_epoch: i32,
    /// Lags `group_epoch` while a new assignment is due.
    pub assignment_epoch: i32,
    /// Name of the assignor.
    pub assignor: String,
    /// Its members.
    pub members: Vec<ShareGroupMember>,
}

/// A member of a share group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShareGroupMember {
    /// Its id.
    pub member_id: String,
    /// Its epoch.
    pub member_epoch: MemberEpoch,
    /// Name of its client.
    pub client_id: String,
    /// Its host, as the broker saw it.
    pub client_host: String,
    /// Its rack.
    pub rack: Option<String>,
    /// Topics that it has subscribed to.
    pub subscribed_topics: Vec<String>,
    /// Partitions that it is told to read. Several members may have the same one.
    pub assignment: Vec<ShareGroupAssignment>,
}

/// Partitions of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShareGroupAssignment {
    /// The topic's name.
    pub topic: String,
    /// The topic's id.
    pub topic_id: TopicId,
    /// Partition indexes.
    pub partitions: Vec<i32>,
}

impl Admin {
    /// All groups that the client may see, of every type and state, by id. Asks every broker.
    ///
    /// # Errors
    /// [`AdminError`] of the first broker that has one.
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn list_groups(&self) -> Result<Vec<GroupListing>, AdminError> {
        let attempt = |cluster: Cluster| async move {
            cluster.metadata(MetadataScope::Brokers).await?;
            let mut groups = Vec::new();
            for broker in cluster.brokers() {
                let response = cluster
                    .call_broker(broker, &ListGroupsRequest::default())
                    .await?;
                groups.extend(listed(response, Resource::Broker(broker))?);
            }
            Ok(groups)
        };
        let groups = self
            .with_retries(ListGroupsRequest::NAME, Retry::Always, attempt)
            .await?;
        let mut groups: Vec<_> = groups.into_iter().map(listing).collect();
        groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
        groups.dedup_by(|a, b| a.group_id == b.group_id);
        Ok(groups)
    }

    /// One group of any type, asked of its coordinator; `None` = there is none of this id, or the
    /// client may not see it.
    ///
    /// # Errors
    /// [`AdminError`].
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn find_group(&self, group_id: &str) -> Result<Option<GroupListing>, AdminError> {
        let response = self
            .cluster
            .call_coordinator(group_id, &ListGroupsRequest::default())
            .await?;
        let groups = listed(response, Resource::Group(group_id.to_owned()))?;
        Ok(groups
            .into_iter()
            .find(|group| group.group_id == group_id)
            .map(listing))
    }

    /// A share group with its members and their assignments.
    ///
    /// # Errors
    /// [`AdminError::Broker`] with GROUP_ID_NOT_FOUND where there is no share group of this id,
    /// TOPIC_AUTHORIZATION_FAILED where DESCRIBE on an assigned topic is not granted.
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn describe_share_group(
        &self,
        group_id: &str,
    ) -> Result<ShareGroupDescription, AdminError> {
        let (operation, resource) = (ShareGroupDescribeRequest::NAME, || {
            Resource::Group(group_id.to_owned())
        });
        let request = ShareGroupDescribeRequest {
            group_ids: vec![group_id.to_owned()],
            ..Default::default()
        };
        let response = self.cluster.call_coordinator(group_id, &request).await?;
        let group = response
            .groups
            .into_iter()
            .find(|group| group.group_id == group_id);
        let group = group.ok_or_else(|| AdminError::PeerMisbehaved {
            operation,
            resource: resource(),
        })?;
        match group.error_code {
            ErrorCode::None => Ok(description(group)),
            code => Err(AdminError::broker(
                operation,
                resource(),
                code,
                group.error_message,
            )),
        }
    }
}

fn listed(
    response: ListGroupsResponse,
    resource: Resource,
) -> Result<Vec<ListedGroup>, AdminError> {
    match response.error_code.ok() {
        Ok(()) => Ok(response.groups),
        Err(code) => Err(AdminError::broker(
            ListGroupsRequest::NAME,
            resource,
            code,
            None,
        )),
    }
}

fn listing(group: ListedGroup) -> GroupListing {
    GroupListing {
        group_type: GroupType::from_wire(&group.group_type),
        group_id: group.group_id,
        protocol_type: group.protocol_type,
        state: group.group_state,
    }
}

fn description(group: DescribedGroup) -> ShareGroupDescription {
    ShareGroupDescription {
        group_id: group.group_id,
        state: group.group_state,
        group_epoch: group.group_epoch,
        assignment_epoch: group.assignment_epoch,
        assignor: group.assignor_name,
        members: group.members.into_iter().map(member).collect(),
    }
}

fn member(member: Member) -> ShareGroupMember {
    let assigned = member.assignment.topic_partitions.into_iter();
    ShareGroupMember {
        member_id: member.member_id,
        member_epoch: member.member_epoch,
        client_id: member.client_id,
        client_host: member.client_host,
        rack: member.rack_id,
        subscribed_topics: member.subscribed_topic_names,
        assignment: assigned
            .map(|topic| ShareGroupAssignment {
                topic: topic.topic_name,
                topic_id: topic.topic_id,
                partitions: topic.partitions,
            })
            .collect(),
    }
}
