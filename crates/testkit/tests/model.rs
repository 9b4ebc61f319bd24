//! The model against what was measured on Kafka 4.4 (numbers of the notes in the protocol's reference).
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::time::{Duration, Instant};

use sharegroup_testkit::model::{Answer, LinkId, ModelCluster, Place, Slot};
use sharegroup_wire::message::share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest, ShareAcknowledgeResponse,
};
use sharegroup_wire::message::share_fetch::{
    AcknowledgementBatch, FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest,
    ShareFetchResponse,
};
use sharegroup_wire::{BrokerId, ErrorCode, SessionEpoch};

const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
const RENEW: i8 = 4;

struct Member {
    cluster: ModelCluster,
    place: Place,
    link: LinkId,
    epoch: SessionEpoch,
    now: Instant,
}

impl Member {
    fn new(records: usize) -> Self {
        let mut cluster = ModelCluster::new(1);
        let place = (cluster.create_topic("t", 1), 0);
        cluster.produce(place, records);
        let link = cluster.connect(BrokerId(1));
        Self {
            cluster,
            place,
            link,
            epoch: SessionEpoch::OPEN,
            now: Instant::now(),
        }
    }

    fn fetch_request(&mut self, wait_ms: i32) -> ShareFetchRequest {
        let opening = self.epoch == SessionEpoch::OPEN;
        let partition = FetchPartition {
            partition_index: self.place.1,
            acknowledgement_batches: vec![],
        };
        let topic = FetchTopic {
            topic_id: self.place.0,
            partitions: vec![partition],
        };
        let request = ShareFetchRequest {
            group_id: Some("g".into()),
            member_id: Some("m".into()),
            share_session_epoch: self.epoch,
            max_wait_ms: wait_ms,
            max_records: 500,
            topics: if opening { vec![topic] } else { vec![] },
            ..Default::default()
        };
        self.epoch = self.epoch.next();
        request
    }

    fn fetch(&mut self) -> ShareFetchResponse {
        let request = self.fetch_request(0);
        match self.cluster.share_fetch(self.now, self.link, 2, &request) {
            Answer::Now(fetched) => fetched.response,
            Answer::Parked => panic!("parked without a wait"),
        }
    }

    fn fetched(&mut self) -> Vec<(i64, i64, i16)> {
        let response = self.fetch();
        assert_eq!(response.error_code, ErrorCode::None);
        let partitions = response
            .responses
            .iter()
            .flat_map(|topic| &topic.partitions);
        partitions
            .flat_map(|partition| &partition.acquired_records)
            .map(|range| (range.first_offset, range.last_offset, range.delivery_count))
            .collect()
    }

    fn acknowledge_at(
        &mut self,
        epoch: SessionEpoch,
        batches: &[(i64, i64, i8)],
    ) -> ShareAcknowledgeResponse {
        let batches =
            batches
                .iter()
                .map(|(first_offset, last_offset, kind)| AcknowledgementBatch {
                    first_offset: *first_offset,
                    last_offset: *last_offset,
                    acknowledge_types: vec![*kind],
                });
        let partition = AcknowledgePartition {
            partition_index: self.place.1,
            acknowledgement_batches: batches.collect(),
        };
        let request = ShareAcknowledgeRequest {
            group_id: Some("g".into()),
            member_id: Some("m".into()),
            share_session_epoch: epoch,
            is_renew_ack: partition
                .acknowledgement_batches
                .iter()
                .any(|batch| batch.acknowledge_types == [RENEW]),
            topics: vec![AcknowledgeTopic {
                topic_id: self.place.0,
                partitions: vec![partition],
            }],
        };
        self.cluster
            .share_acknowledge(self.now, self.link, 2, &request)
    }

    fn acknowledge(&mut self, batches: &[(i64, i64, i8)]) -> ErrorCode {
        let response = self.acknowledge_at(self.epoch, batches);
        self.epoch = self.epoch.next();
        assert_eq!(response.error_code, ErrorCode::None);
        response.responses[0].partitions[0].error_code
    }

    fn slot(&self, offset: i64) -> Slot {
        self.cluster.slot(self.place, offset)
    }
}

#[test]
fn m2_five_releases_archive_a_record() {
    let mut member = Member::new(1);
    for delivery in 1..=5 {
        assert_eq!(member.fetched(), [(0, 0, delivery)]);
        assert_eq!(member.acknowledge(&[(0, 0, RELEASE)]), ErrorCode::None);
    }
    assert_eq!(member.slot(0), Slot::Archived { exhausted: true });
    assert_eq!(member.fetched(), []);
}

#[test]
fn m1_lock_that_ran_out_fails_the_whole_partition() {
    let mut member = Member::new(10);
    member.fetched();
    member.now += Duration::from_secs(31);
    assert_eq!(
        member.acknowledge(&[(0, 9, ACCEPT)]),
        ErrorCode::InvalidRecordState
    );
    assert_eq!(member.fetched(), [(0, 9, 2)]);
}

#[test]
fn acknowledgements_of_a_partition_stand_or_fall_together() {
    let mut member = Member::new(10);
    member.fetched();
    member.cluster.expire_lock(member.place, 4);
    assert_eq!(
        member.acknowledge(&[(0, 9, ACCEPT)]),
        ErrorCode::InvalidRecordState
    );
    assert!(matches!(member.slot(0), Slot::Acquired { .. }));
    assert_eq!(
        member.acknowledge(&[(0, 3, ACCEPT), (5, 9, ACCEPT)]),
        ErrorCode::None
    );
    assert_eq!(member.cluster.start_offset(member.place), 4);
}

#[test]
fn settled_offsets_below_the_start_are_accepted_again_without_a_word() {
    let mut member = Member::new(10);
    member.fetched();
    assert_eq!(member.acknowledge(&[(0, 4, ACCEPT)]), ErrorCode::None);
    assert_eq!(member.acknowledge(&[(0, 4, RELEASE)]), ErrorCode::None);
    assert_eq!(member.slot(0), Slot::Accepted);
    assert_eq!(
        member.acknowledge(&[(5, 12, ACCEPT)]),
        ErrorCode::InvalidRequest
    );
}

#[test]
fn renewal_restarts_the_lock_and_may_be_refused_by_the_group() {
    let mut member = Member::new(1);
    member.fetched();
    member.now += Duration::from_secs(20);
    assert_eq!(member.acknowledge(&[(0, 0, RENEW)]), ErrorCode::None);
    member.now += Duration::from_secs(20);
    assert_eq!(member.acknowledge(&[(0, 0, ACCEPT)]), ErrorCode::None);
    let mut member = Member::new(1);
    member.cluster.settings.renew_enabled = false;
    member.fetched();
    assert_eq!(
        member.acknowledge(&[(0, 0, RENEW)]),
        ErrorCode::InvalidRecordState
    );
}

#[test]
fn r1_disconnect_releases_and_a_fetch_that_waits_burns_one_delivery_more() {
    let mut member = Member::new(1);
    member.fetched();
    member.cluster.disconnect(member.now, member.link);
    assert_eq!(member.slot(0), Slot::Available);
    // A second member waits in a long poll when its connection ends: the broker doesn't see that.
    let mut member = Member::new(0);
    let request = member.fetch_request(6000);
    assert_eq!(
        member
            .cluster
            .share_fetch(member.now, member.link, 2, &request),
        Answer::Parked
    );
    member.cluster.disconnect(member.now, member.link);
    member.cluster.produce(member.place, 1);
    assert_eq!(member.cluster.poll_parked(member.now), None);
    assert_eq!(member.slot(0), Slot::Available);
    assert_eq!(member.cluster.delivery_count(member.place, 0), 1);
}

#[test]
fn close_applies_its_acknowledgements_and_releases_the_rest() {
    let mut member = Member::new(10);
    member.fetched();
    member.acknowledge_at(SessionEpoch::CLOSE, &[(0, 3, ACCEPT)]);
    assert_eq!(member.slot(0), Slot::Accepted);
    assert_eq!(member.slot(4), Slot::Available);
    let response = member.acknowledge_at(SessionEpoch::CLOSE, &[]);
    assert_eq!(response.error_code, ErrorCode::ShareSessionNotFound);
}

#[test]
fn forgotten_partition_is_not_released_by_a_close() {
    let mut member = Member::new(1);
    member.fetched();
    let mut request = member.fetch_request(0);
    request.forgotten_topics_data = vec![ForgottenTopic {
        topic_id: member.place.0,
        partitions: vec![0],
    }];
    member
        .cluster
        .share_fetch(member.now, member.link, 2, &request);
    member.acknowledge_at(SessionEpoch::CLOSE, &[]);
    assert!(matches!(member.slot(0), Slot::Acquired { .. }));
}

#[test]
fn second_session_of_a_member_keeps_what_the_first_held() {
    let mut member = Member::new(5);
    member.fetched();
    member.epoch = SessionEpoch::OPEN;
    assert_eq!(member.fetched(), []);
    assert_eq!(member.acknowledge(&[(0, 4, ACCEPT)]), ErrorCode::None);
}

#[test]
fn wrong_epoch_is_refused_and_epoch_0_carries_no_acknowledgements() {
    let mut member = Member::new(5);
    member.fetched();
    let response = member.acknowledge_at(SessionEpoch(7), &[]);
    assert_eq!(response.error_code, ErrorCode::InvalidShareSessionEpoch);
    let response = member.acknowledge_at(SessionEpoch::OPEN, &[]);
    assert_eq!(response.error_code, ErrorCode::InvalidShareSessionEpoch);
    member.epoch = SessionEpoch::OPEN;
    let mut request = member.fetch_request(0);
    request.topics[0].partitions[0].acknowledgement_batches = vec![AcknowledgementBatch {
        first_offset: 0,
        last_offset: 0,
        acknowledge_types: vec![ACCEPT],
    }];
    let Answer::Now(fetched) = member
        .cluster
        .share_fetch(member.now, member.link, 2, &request)
    else {
        panic!()
    };
    assert_eq!(fetched.response.error_code, ErrorCode::InvalidRequest);
    assert_eq!(member.cluster.history().illegal.len(), 1);
}

#[test]
fn window_bounds_what_is_in_flight_until_its_front_is_settled() {
    let mut member = Member::new(0);
    member.cluster.settings.record_locks_max = 20;
    for _ in 0..5 {
        member.cluster.produce(member.place, 10);
    }
    assert_eq!(member.fetched(), [(0, 19, 1)]);
    assert_eq!(member.acknowledge(&[(1, 19, ACCEPT)]), ErrorCode::None);
    assert_eq!(member.fetched(), [], "the first record holds the window");
    assert_eq!(member.acknowledge(&[(0, 0, ACCEPT)]), ErrorCode::None);
    assert_eq!(member.fetched(), [(20, 39, 1)]);
}

#[test]
fn moved_leader_forgets_locks_and_the_old_one_knows_nothing() {
    let mut member = Member::new(3);
    member.fetched();
    member.cluster.move_leader(member.place, BrokerId(9));
    assert_eq!(
        member.acknowledge(&[(0, 2, ACCEPT)]),
        ErrorCode::UnknownTopicOrPartition
    );
    let response = member.fetch();
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, ErrorCode::NotLeaderOrFollower);
    assert_eq!(partition.current_leader.leader_id, BrokerId(9));
    assert_eq!(member.cluster.delivery_count(member.place, 0), 0);
}
