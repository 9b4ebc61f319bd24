//! Share sessions at one broker: ShareFetch and ShareAcknowledge (KIP-932 "Share sessions").

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sharegroup_wire::message::share_acknowledge::{
    AcknowledgedPartition, AcknowledgedTopic, ShareAcknowledgeRequest, ShareAcknowledgeResponse,
};
use sharegroup_wire::message::share_fetch::{
    ACQUIRE_RECORD_LIMIT, AcknowledgementBatch, FetchedPartition, FetchedTopic, LeaderIdAndEpoch,
    ShareFetchRequest, ShareFetchResponse,
};
use sharegroup_wire::{BrokerId, ErrorCode, SessionEpoch, TopicId};

use super::partition::{Slot, Terms, check_batches};
use super::{
    Answer, Applied, Asked, Fetched, LinkId, Logged, ModelCluster, Place, refused_acknowledge,
};

/// A member's session with one broker.
#[derive(Debug)]
pub(super) struct Session {
    /// Epoch that the next request must have.
    epoch: SessionEpoch,
    partitions: BTreeSet<Place>,
    link: LinkId,
}

/// A fetch that waits for data.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) link: LinkId,
    pub(super) deadline: Instant,
    broker: BrokerId,
    member_id: String,
    /// In the order in which they are served.
    places: Vec<Place>,
    request: ShareFetchRequest,
    results: Results,
    opening: bool,
}

/// Results of acknowledgements by partition.
type Results = BTreeMap<Place, ErrorCode>;
type Batches = Vec<(Place, Vec<AcknowledgementBatch>)>;

/// How a request stands to the sessions of its broker.
enum Admission {
    Opened,
    Goes,
    Closes,
}

impl ModelCluster {
    /// Answers ShareFetch on a connection. A connection carries one request at a time.
    pub fn share_fetch(
        &mut self,
        now: Instant,
        link: LinkId,
        version: i16,
        request: &ShareFetchRequest,
    ) -> Answer<Fetched> {
        self.pass_time(now);
        let asked = Asked::Fetch(request.clone());
        self.history.requests.push(Logged {
            at: now,
            link: Some(link),
            asked,
        });
        match self.try_fetch(now, link, version, request) {
            Ok(answer) => answer,
            Err(error_code) => Answer::Now(Fetched {
                response: ShareFetchResponse {
                    error_code,
                    ..Default::default()
                },
                ..Default::default()
            }),
        }
    }

    fn try_fetch(
        &mut self,
        now: Instant,
        link: LinkId,
        version: i16,
        request: &ShareFetchRequest,
    ) -> Result<Answer<Fetched>, ErrorCode> {
        let batches = fetch_batches(request);
        let limits = [
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.max_records,
        ];
        if request.is_renew_ack && limits.iter().any(|limit| *limit != 0) {
            self.history
                .illegal
                .push("renewal in a fetch that also fetches".to_owned());
            return Err(ErrorCode::InvalidRequest);
        }
        let acknowledges = batches.iter().any(|(_, batches)| !batches.is_empty());
        if request.share_session_epoch == SessionEpoch::OPEN && acknowledges {
            self.history
                .illegal
                .push("acknowledgements at epoch 0".to_owned());
            return Err(ErrorCode::InvalidRequest);
        }
        let (broker, member_id) =
            self.admissible(link, version, request.member_id.as_deref(), 78)?;
        let admission = self.admit(broker, &member_id, link, request.share_session_epoch, true)?;
        let results = self.acknowledge_all(
            now,
            broker,
            &member_id,
            version,
            request.is_renew_ack,
            &batches,
        );
        if matches!(admission, Admission::Closes) {
            self.close_session(broker, &member_id);
            return Ok(Answer::Now(Fetched {
                response: self.fetch_response(results, BTreeMap::new()),
                ..Default::default()
            }));
        }
        let places = self.change_partitions(broker, &member_id, request);
        let parked = Parked {
            link,
            deadline: now + Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)),
            broker,
            member_id,
            places,
            request: request.clone(),
            results,
            opening: matches!(admission, Admission::Opened),
        };
        if parked.deadline <= now || request.max_records == 0 || self.is_ready(&parked) {
            return Ok(Answer::Now(self.finish_parked(now, parked)));
        }
        self.parked.push(parked);
        Ok(Answer::Parked)
    }

    /// Answers ShareAcknowledge on a connection.
    pub fn share_acknowledge(
        &mut self,
        now: Instant,
        link: LinkId,
        version: i16,
        request: &ShareAcknowledgeRequest,
    ) -> ShareAcknowledgeResponse {
        self.pass_time(now);
        let asked = Asked::Acknowledge(request.clone());
        self.history.requests.push(Logged {
            at: now,
            link: Some(link),
            asked,
        });
        let batches: Batches = request
            .topics
            .iter()
            .flat_map(|topic| {
                topic.partitions.iter().map(|partition| {
                    (
                        (topic.topic_id, partition.partition_index),
                        partition.acknowledgement_batches.clone(),
                    )
                })
            })
            .collect();
        let admitted = self
            .admissible(link, version, request.member_id.as_deref(), 79)
            .and_then(|(broker, member_id)| {
                let admission =
                    self.admit(broker, &member_id, link, request.share_session_epoch, false)?;
                Ok((broker, member_id, admission))
            });
        let (broker, member_id, admission) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => return refused_acknowledge(error),
        };
        let results = self.acknowledge_all(
            now,
            broker,
            &member_id,
            version,
            request.is_renew_ack,
            &batches,
        );
        if matches!(admission, Admission::Closes) {
            self.close_session(broker, &member_id);
        }
        let mut topics: BTreeMap<TopicId, Vec<AcknowledgedPartition>> = BTreeMap::new();
        for ((topic_id, partition_index), error_code) in results {
            let partition = AcknowledgedPartition {
                partition_index,
                error_code,
                ..Default::default()
            };
            topics.entry(topic_id).or_default().push(partition);
        }
        let responses = topics
            .into_iter()
            .map(|(topic_id, partitions)| AcknowledgedTopic {
                topic_id,
                partitions,
            });
        ShareAcknowledgeResponse {
            acquisition_lock_timeout_ms: self.lock_ms(),
            responses: responses.collect(),
            ..Default::default()
        }
    }

    fn lock_ms(&self) -> i32 {
        i32::try_from(self.settings.lock.as_millis()).unwrap_or(i32::MAX)
    }

    fn admissible(
        &mut self,
        link: LinkId,
        version: i16,
        member_id: Option<&str>,
        api_key: i16,
    ) -> Result<(BrokerId, String), ErrorCode> {
        if let Some(error) = self.refusal(api_key) {
            return Err(error);
        }
        let broker = self
            .links
            .get(&link)
            .map(|link| link.broker)
            .ok_or(ErrorCode::UnknownServerError)?;
        if self.parked.iter().any(|parked| parked.link == link) {
            self.history
                .illegal
                .push(format!("two requests at a time on connection {}", link.0));
        }
        if version > self.share_version(broker) || !self.settings.share_groups_on {
            return Err(ErrorCode::UnsupportedVersion);
        }
        let member_id = member_id
            .filter(|id| !id.is_empty())
            .ok_or(ErrorCode::InvalidRequest)?;
        Ok((broker, member_id.to_owned()))
    }

    fn admit(
        &mut self,
        broker: BrokerId,
        member_id: &str,
        link: LinkId,
        epoch: SessionEpoch,
        fetches: bool,
    ) -> Result<Admission, ErrorCode> {
        let sessions_max = self.settings.sessions_max;
        let sessions = &mut self
            .brokers
            .get_mut(&broker)
            .ok_or(ErrorCode::UnknownServerError)?
            .sessions;
        if epoch == SessionEpoch::OPEN {
            if !fetches {
                return Err(ErrorCode::InvalidShareSessionEpoch);
            }
            if !sessions.contains_key(member_id) && sessions.len() >= sessions_max {
                return Err(ErrorCode::ShareSessionLimitReached);
            }
            // An older session of this member is dropped without a release: what it held stays the member's.
            let session = Session {
                epoch: epoch.next(),
                partitions: BTreeSet::new(),
                link,
            };
            sessions.insert(member_id.to_owned(), session);
            if let Some(link) = self.links.get_mut(&link) {
                link.member_id = Some(member_id.to_owned());
            }
            return Ok(Admission::Opened);
        }
        let session = sessions
            .get_mut(member_id)
            .ok_or(ErrorCode::ShareSessionNotFound)?;
        if epoch == SessionEpoch::CLOSE {
            return Ok(Admission::Closes);
        }
        if epoch != session.epoch {
            return Err(ErrorCode::InvalidShareSessionEpoch);
        }
        session.epoch = session.epoch.next();
        Ok(Admission::Goes)
    }

    /// Sets the epoch that a session expects next, to try its wrap.
    pub fn set_session_epoch(&mut self, broker: BrokerId, member_id: &str, epoch: SessionEpoch) {
        let session = self
            .brokers
            .get_mut(&broker)
            .and_then(|broker| broker.sessions.get_mut(member_id));
        if let Some(session) = session {
            session.epoch = epoch;
        }
    }

    /// Members that have a session with a broker.
    pub fn sessions(&self, broker: BrokerId) -> Vec<&str> {
        let sessions = self
            .brokers
            .get(&broker)
            .into_iter()
            .flat_map(|broker| broker.sessions.keys());
        sessions.map(String::as_str).collect()
    }

    /// The partitions in a member's session with a broker.
    #[must_use]
    pub fn session_partitions(&self, broker: BrokerId, member_id: &str) -> BTreeSet<Place> {
        let session = self
            .brokers
            .get(&broker)
            .and_then(|broker| broker.sessions.get(member_id));
        session
            .map(|session| session.partitions.clone())
            .unwrap_or_default()
    }

    /// Adds and forgets; returns the session's partitions in the order in which they are served now.
    fn change_partitions(
        &mut self,
        broker: BrokerId,
        member_id: &str,
        request: &ShareFetchRequest,
    ) -> Vec<Place> {
        let session = self
            .brokers
            .get_mut(&broker)
            .and_then(|broker| broker.sessions.get_mut(member_id));
        let Some(session) = session else {
            return Vec::new();
        };
        for topic in &request.topics {
            let places = topic
                .partitions
                .iter()
                .map(|partition| (topic.topic_id, partition.partition_index));
            session.partitions.extend(places);
        }
        for topic in &request.forgotten_topics_data {
            for partition in &topic.partitions {
                session.partitions.remove(&(topic.topic_id, *partition));
            }
        }
        let mut places: Vec<Place> = session.partitions.iter().copied().collect();
        if !places.is_empty() {
            let turn = usize::try_from(session.epoch.0).unwrap_or(0) % places.len();
            places.rotate_left(turn);
        }
        places
    }

    fn acknowledge_all(
        &mut self,
        now: Instant,
        broker: BrokerId,
        member_id: &str,
        version: i16,
        is_renew: bool,
        batches: &Batches,
    ) -> Results {
        let mut results = Results::new();
        for (place, batches) in batches.iter().filter(|(_, batches)| !batches.is_empty()) {
            let error =
                self.acknowledge(now, broker, member_id, *place, (version, is_renew), batches);
            results.insert(*place, error.err().unwrap_or(ErrorCode::None));
        }
        results
    }

    fn acknowledge(
        &mut self,
        now: Instant,
        broker: BrokerId,
        member_id: &str,
        place: Place,
        (version, is_renew): (i16, bool),
        batches: &[AcknowledgementBatch],
    ) -> Result<(), ErrorCode> {
        if let Err(what) = check_batches(batches, version, is_renew) {
            self.history
                .illegal
                .push(format!("acknowledgements of {place:?}: {what}"));
            return Err(ErrorCode::InvalidRequest);
        }
        if let Some(error) = self.acknowledge_errors.pop_front() {
            return Err(error);
        }
        if self.topic(place.0).is_none() {
            return Err(ErrorCode::UnknownTopicId);
        }
        let settings = self.settings.clone();
        // An ex-leader doesn't know the share partition any more.
        let partition = self
            .partition_mut(place)
            .filter(|partition| partition.leader == broker)
            .ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let start_offset = partition.start_offset();
        let changes = partition.acknowledge(now, member_id, batches, &settings)?;
        let settled = batches
            .iter()
            .flat_map(|batch| batch.first_offset..=batch.last_offset.min(start_offset - 1));
        self.history
            .ignored
            .extend(settled.map(|offset| (place, offset)));
        self.history
            .applied
            .extend(changes.into_iter().map(|change| Applied {
                at: now,
                place,
                offset: change.offset,
                delivery: change.delivery,
                acknowledge_type: change.acknowledge_type,
            }));
        Ok(())
    }

    /// Whether a parked fetch has something to answer.
    pub(super) fn is_ready(&self, parked: &Parked) -> bool {
        parked.places.iter().any(|place| {
            if self.fetch_errors.contains_key(place) {
                return true;
            }
            let partition = self.partition(*place);
            partition.is_none_or(|partition| {
                partition.leader != parked.broker || partition.has_available(&self.settings)
            })
        })
    }

    pub(super) fn finish_parked(&mut self, now: Instant, parked: Parked) -> Fetched {
        let request = &parked.request;
        let mut left = u64::try_from(request.max_records).unwrap_or(0);
        let share = usize::try_from(request.max_bytes).unwrap_or(0) / parked.places.len().max(1);
        let mut fetched: BTreeMap<Place, FetchedPartition> = BTreeMap::new();
        let mut deliveries = Vec::new();
        let settings = self.settings.clone();
        let mut last_delivery = self.last_delivery;
        for place in &parked.places {
            if let Some(failed) = self.fetch_error(*place, parked.broker) {
                fetched.insert(*place, failed);
                continue;
            }
            let mut partition = FetchedPartition {
                partition_index: place.1,
                ..Default::default()
            };
            if let Some(share_partition) =
                self.partition_mut(*place).filter(|_| left > 0 && share > 0)
            {
                let terms = Terms {
                    member_id: &parked.member_id,
                    link: parked.link,
                    records_max: left,
                    bytes_max: share,
                    record_limit: request.share_acquire_mode == ACQUIRE_RECORD_LIMIT,
                };
                let grant = share_partition.acquire(now, terms, &settings, &mut last_delivery);
                left = left.saturating_sub(grant.deliveries.len() as u64);
                partition.records = grant.records;
                partition.acquired_records = grant.ranges;
                deliveries.extend(
                    grant
                        .deliveries
                        .into_iter()
                        .map(|(offset, delivery)| (*place, offset, delivery)),
                );
            }
            if parked.opening || !partition.acquired_records.is_empty() {
                fetched.insert(*place, partition);
            }
        }
        self.last_delivery = last_delivery;
        Fetched {
            response: self.fetch_response(parked.results, fetched),
            deliveries,
        }
    }

    fn fetch_error(&self, place: Place, broker: BrokerId) -> Option<FetchedPartition> {
        let mut failed = FetchedPartition {
            partition_index: place.1,
            ..Default::default()
        };
        match self.partition(place) {
            None => failed.error_code = ErrorCode::UnknownTopicId,
            Some(partition) if partition.leader != broker => {
                failed.error_code = ErrorCode::NotLeaderOrFollower;
                if self.settings.leader_hints {
                    failed.current_leader = LeaderIdAndEpoch {
                        leader_id: partition.leader,
                        leader_epoch: partition.leader_epoch,
                    };
                }
            }
            Some(_) => failed.error_code = *self.fetch_errors.get(&place)?,
        }
        Some(failed)
    }

    fn fetch_response(
        &self,
        results: Results,
        mut fetched: BTreeMap<Place, FetchedPartition>,
    ) -> ShareFetchResponse {
        for (place, error) in results {
            let empty = || FetchedPartition {
                partition_index: place.1,
                ..Default::default()
            };
            fetched
                .entry(place)
                .or_insert_with(empty)
                .acknowledge_error_code = error;
        }
        let mut topics: BTreeMap<TopicId, Vec<FetchedPartition>> = BTreeMap::new();
        for ((topic_id, _), partition) in fetched {
            topics.entry(topic_id).or_default().push(partition);
        }
        ShareFetchResponse {
            acquisition_lock_timeout_ms: self.lock_ms(),
            responses: topics
                .into_iter()
                .map(|(topic_id, partitions)| FetchedTopic {
                    topic_id,
                    partitions,
                })
                .collect(),
            ..Default::default()
        }
    }

    fn close_session(&mut self, broker: BrokerId, member_id: &str) {
        let session = self
            .brokers
            .get_mut(&broker)
            .and_then(|broker| broker.sessions.remove(member_id));
        if let Some(session) = session {
            self.release(broker, member_id, &session.partitions);
        }
    }

    /// Frees what a member holds in these partitions of this leader.
    fn release(&mut self, broker: BrokerId, member_id: &str, places: &BTreeSet<Place>) {
        let settings = self.settings.clone();
        for place in places {
            if let Some(partition) = self
                .partition_mut(*place)
                .filter(|partition| partition.leader == broker)
            {
                partition.free(&settings, |slot| {
                    matches!(slot, Slot::Acquired { member_id: owner, .. } if owner == member_id)
                });
            }
        }
    }

    /// The broker noticed that a connection is gone: the session it carried goes with it.
    pub(super) fn end_link(&mut self, link: LinkId) {
        let Some(ended) = self.links.remove(&link) else {
            return;
        };
        let Some(member_id) = ended.member_id else {
            return;
        };
        let session = self
            .brokers
            .get(&ended.broker)
            .and_then(|broker| broker.sessions.get(&member_id));
        // A newer session of the member lives on another connection.
        if session.is_some_and(|session| session.link == link) {
            self.close_session(ended.broker, &member_id);
        }
    }
}

fn fetch_batches(request: &ShareFetchRequest) -> Batches {
    let topics = request.topics.iter();
    let partitions = topics.flat_map(|topic| {
        topic
            .partitions
            .iter()
            .map(|partition| (topic.topic_id, partition))
    });
    partitions
        .map(|(topic_id, partition)| {
            (
                (topic_id, partition.partition_index),
                partition.acknowledgement_batches.clone(),
            )
        })
        .collect()
}
