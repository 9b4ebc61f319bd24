//! What this client may do with a topic or a group.

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::Message;
use sharegroup_wire::message::describe_topic_partitions::{
    DescribeTopicPartitionsRequest, TopicRequest,
};
use sharegroup_wire::message::metadata::OPERATIONS_UNKNOWN;
use sharegroup_wire::message::share_group_describe::ShareGroupDescribeRequest;

use super::Admin;
use super::error::{AdminError, Resource};

/// The operations that brokers allow a client on a topic or a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights(i32);

impl Rights {
    /// `None` where the broker doesn't say.
    fn of(operations: i32) -> Option<Self> {
        (operations != OPERATIONS_UNKNOWN).then_some(Self(operations))
    }

    /// READ: consume a topic, join a group.
    #[must_use]
    pub const fn read(self) -> bool {
        self.has(READ)
    }

    /// WRITE: produce to a topic.
    #[must_use]
    pub const fn write(self) -> bool {
        self.has(WRITE)
    }

    const fn has(self, operation: u32) -> bool {
        self.0 & (1 << operation) != 0
    }
}

impl Admin {
    /// What this client may do with a topic; `None` where the broker doesn't say. A right to describe is needed to ask.
    ///
    /// # Errors
    /// [`AdminError::Broker`] with UNKNOWN_TOPIC_OR_PARTITION, or with TOPIC_AUTHORIZATION_FAILED where the topic may not
    /// be described.
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn topic_rights(&self, topic: &str) -> Result<Option<Rights>, AdminError> {
        let (operation, resource) = (
            DescribeTopicPartitionsRequest::NAME,
            Resource::Topic(topic.to_owned()),
        );
        let request = DescribeTopicPartitionsRequest {
            topics: vec![TopicRequest {
                name: topic.to_owned(),
            }],
            // Only what is said of the topic itself matters.
            response_partition_limit: 1,
            ..Default::default()
        };
        let response = self.cluster.call_any(&request).await?;
        let mut topics = response.topics.into_iter();
        match topics.find(|found| found.name.as_deref() == Some(topic)) {
            None => Err(AdminError::PeerMisbehaved {
                operation,
                resource,
            }),
            Some(found) => match found.error_code {
                ErrorCode::None => Ok(Rights::of(found.topic_authorized_operations)),
                code => Err(AdminError::broker(operation, resource, code, None)),
            },
        }
    }

    /// What this client may do with a share group; `None` where there is none of that id yet, or the broker doesn't say.
    ///
    /// # Errors
    /// [`AdminError::Broker`] with GROUP_AUTHORIZATION_FAILED where the group may not even be described.
    ///
    /// # Cancel safety
    /// As [`Admin`] says.
    pub async fn share_group_rights(&self, group_id: &str) -> Result<Option<Rights>, AdminError> {
        let (operation, resource) = (
            ShareGroupDescribeRequest::NAME,
            Resource::Group(group_id.to_owned()),
        );
        let request = ShareGroupDescribeRequest {
            group_ids: vec![group_id.to_owned()],
            include_authorized_operations: true,
        };
        let response = self.cluster.call_coordinator(group_id, &request).await?;
        let mut groups = response.groups.into_iter();
        match groups.find(|group| group.group_id == group_id) {
            None => Err(AdminError::PeerMisbehaved {
                operation,
                resource,
            }),
            Some(group) => match group.error_code {
                ErrorCode::None => Ok(Rights::of(group.authorized_operations)),
                ErrorCode::GroupIdNotFound => Ok(None),
                code => {
                    let message = group.error_message;
                    Err(AdminError::broker(operation, resource, code, message))
                }
            },
        }
    }
}

/// Numbers of Kafka's `AclOperation`, which are the bits of the field.
const READ: u32 = 3;
const WRITE: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_bits_and_unknown_is_none() {
        assert_eq!(Rights::of(OPERATIONS_UNKNOWN), None);
        let describe_and_read = Rights::of(1 << 8 | 1 << 3).unwrap();
        assert!(describe_and_read.read() && !describe_and_read.write());
        assert!(Rights::of(1 << 4).unwrap().write());
    }
}
