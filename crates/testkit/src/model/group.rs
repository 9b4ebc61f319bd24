//! Membership and assignment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use sharegroup_wire::message::share_group_heartbeat::{
    Assignment, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, TopicPartitions,
};
use sharegroup_wire::{BrokerId, ErrorCode, MemberEpoch, TopicId};

use super::{Asked, Logged, ModelCluster, Place};

#[derive(Debug, Default)]
pub(super) struct Group {
    members: BTreeMap<String, Member>,
    epoch: i32,
    /// Assignments that stand whatever the number of members.
    fixed: BTreeMap<String, BTreeSet<Place>>,
}

#[derive(Debug)]
struct Member {
    epoch: i32,
    previous_epoch: i32,
    topics: Vec<String>,
    /// What it was told last.
    told: Option<BTreeSet<Place>>,
}

const KEY: i16 = ShareGroupHeartbeatRequest::API_KEY;

impl ModelCluster {
    /// Answers ShareGroupHeartbeat at a broker.
    pub fn heartbeat(
        &mut self,
        now: Instant,
        broker: BrokerId,
        request: &ShareGroupHeartbeatRequest,
    ) -> ShareGroupHeartbeatResponse {
        self.history.requests.push(Logged {
            at: now,
            link: None,
            asked: Asked::Heartbeat(request.clone()),
        });
        if let Some(error) = self.refusal(KEY) {
            return refused(error);
        }
        if !self.settings.share_groups_on {
            return refused(ErrorCode::UnsupportedVersion);
        }
        if broker != self.coordinator {
            return refused(ErrorCode::NotCoordinator);
        }
        if request.member_id.is_empty()
            || request.member_id.len() > 36
            || request.rack_id.as_deref() == Some("")
        {
            return self.illegal_heartbeat("member or rack id");
        }
        match request.member_epoch {
            MemberEpoch::LEAVE => self.leave(request),
            MemberEpoch::JOIN => self.join(request),
            epoch => self.beat(request, epoch.0),
        }
    }

    fn illegal_heartbeat(&mut self, what: &str) -> ShareGroupHeartbeatResponse {
        self.history.illegal.push(format!("heartbeat: {what}"));
        refused(ErrorCode::InvalidRequest)
    }

    fn leave(&mut self, request: &ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse {
        if self.group.members.remove(&request.member_id).is_none() {
            return refused(ErrorCode::UnknownMemberId);
        }
        self.group.epoch += 1;
        ShareGroupHeartbeatResponse {
            member_id: Some(request.member_id.clone()),
            member_epoch: MemberEpoch::LEAVE,
            ..Default::default()
        }
    }

    fn join(&mut self, request: &ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse {
        let topics = request.subscribed_topic_names.clone().unwrap_or_default();
        if topics.is_empty() {
            return self.illegal_heartbeat("join without topics");
        }
        self.group.epoch += 1;
        let epoch = self.group.epoch;
        let previous_epoch = self
            .group
            .members
            .get(&request.member_id)
            .map_or(epoch, |member| member.epoch);
        let member = Member {
            epoch,
            previous_epoch,
            topics,
            told: None,
        };
        self.group.members.insert(request.member_id.clone(), member);
        self.tell(&request.member_id)
    }

    fn beat(
        &mut self,
        request: &ShareGroupHeartbeatRequest,
        epoch: i32,
    ) -> ShareGroupHeartbeatResponse {
        let Some(member) = self.group.members.get_mut(&request.member_id) else {
            return refused(ErrorCode::UnknownMemberId);
        };
        if epoch != member.epoch && epoch != member.previous_epoch {
            return refused(ErrorCode::FencedMemberEpoch);
        }
        if let Some(topics) = &request.subscribed_topic_names {
            member.topics.clone_from(topics);
            member.told = None;
        }
        if member.epoch != self.group.epoch {
            (member.previous_epoch, member.epoch) = (member.epoch, self.group.epoch);
        }
        self.tell(&request.member_id)
    }

    fn tell(&mut self, member_id: &str) -> ShareGroupHeartbeatResponse {
        let target = self.target(member_id);
        let interval =
            i32::try_from(self.settings.heartbeat_interval.as_millis()).unwrap_or(i32::MAX);
        let Some(member) = self.group.members.get_mut(member_id) else {
            return refused(ErrorCode::UnknownMemberId);
        };
        let changed = member.told.as_ref() != Some(&target);
        let assignment = changed.then(|| assignment(&target));
        member.told = Some(target);
        ShareGroupHeartbeatResponse {
            member_id: Some(member_id.to_owned()),
            member_epoch: MemberEpoch(member.epoch),
            heartbeat_interval_ms: interval,
            assignment,
            ..Default::default()
        }
    }

    /// The partitions a member should have.
    fn target(&self, member_id: &str) -> BTreeSet<Place> {
        if let Some(fixed) = self.group.fixed.get(member_id) {
            return fixed.clone();
        }
        let Some(member) = self.group.members.get(member_id) else {
            return BTreeSet::new();
        };
        let subscribed = |place: &Place| {
            self.topic(place.0)
                .is_some_and(|topic| member.topics.contains(&topic.name))
        };
        let places: Vec<Place> = self.places().into_iter().filter(subscribed).collect();
        let members: Vec<&String> = self.group.members.keys().collect();
        let position = members
            .iter()
            .position(|other| *other == member_id)
            .unwrap_or(0);
        let (count, all) = (members.len().max(1), places.len().max(1));
        let mine = |index: &usize| {
            if count <= all {
                index % count == position
            } else {
                position % all == *index
            }
        };
        (0..places.len())
            .filter(mine)
            .filter_map(|index| places.get(index).copied())
            .collect()
    }

    /// Assigns these partitions to a member whatever the number of members; `None` undoes it. The
    /// member hears of it with its next heartbeat.
    pub fn fix_assignment(&mut self, member_id: &str, places: Option<BTreeSet<Place>>) {
        match places {
            Some(places) => self.group.fixed.insert(member_id.to_owned(), places),
            None => self.group.fixed.remove(member_id),
        };
    }

    /// The members of the group now.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        self.group.members.keys().map(String::as_str)
    }

    /// Throws a member out: its session timed out.
    pub fn expel(&mut self, member_id: &str) {
        if self.group.members.remove(member_id).is_some() {
            self.group.epoch += 1;
        }
    }

    /// Makes the epoch that a member has one that the coordinator refuses.
    pub fn fence(&mut self, member_id: &str) {
        self.group.epoch += 10;
        if let Some(member) = self.group.members.get_mut(member_id) {
            (member.previous_epoch, member.epoch) = (self.group.epoch, self.group.epoch);
        }
    }
}

fn assignment(places: &BTreeSet<Place>) -> Assignment {
    let mut topics: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
    for (topic_id, partition) in places {
        topics.entry(*topic_id).or_default().push(*partition);
    }
    Assignment {
        topic_partitions: topics
            .into_iter()
            .map(|(topic_id, partitions)| TopicPartitions {
                topic_id,
                partitions,
            })
            .collect(),
    }
}

fn refused(error_code: ErrorCode) -> ShareGroupHeartbeatResponse {
    ShareGroupHeartbeatResponse {
        error_code,
        ..Default::default()
    }
}
