//! Traps that other clients fell into (`t…`), as far as no case of the other modules is the same.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_consumer::{
    AckFailure, Acknowledge, AcquireMode, ShareConsumer, ShareEvent, ShareObserver,
};
use sharegroup_wire::ErrorCode;
use sharegroup_wire::id::MemberEpoch;
use sharegroup_wire::message::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use sharegroup_wire::message::share_acknowledge::ShareAcknowledgeRequest;
use sharegroup_wire::message::share_fetch::{AcknowledgementBatch, ShareFetchRequest};
use sharegroup_wire::message::share_group_heartbeat::{
    ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
};
use sharegroup_wire::net::{Connection, ConnectionOptions, TcpConnector};
use tokio::time::{Instant, sleep, timeout};

use crate::both::{Cluster, on_shared};
use crate::case::{
    ACKNOWLEDGE, Case, FETCH, LONG, MS, SECOND, Seen, deliveries, next, nothing_for, offsets,
    until, up_to,
};
use crate::tap::{Fault, Sent};

#[tokio::test(flavor = "multi_thread")]
async fn t2_acknowledgements_of_a_dead_session_never_hit_the_next_delivery() {
    on_shared(t2).await;
}

async fn t2(cluster: &Cluster) {
    let case = Case::new(cluster, "t2", 1, &[]).await;
    case.produce(0, 10).await;
    // Somebody else has the first one: the partition's start stays where it is.
    let builder = case.other().acquire_mode(AcquireMode::RecordLimit);
    let mut other = builder.records_held_max(1).build().await.unwrap();
    let first = next(&mut other).await;
    assert_eq!(offsets(&first), [0]);
    let mut consumer = case.open().await;
    let mut stale = next(&mut consumer).await;
    assert_eq!(offsets(&stale), up_to(10)[1..]);
    // Half is lost on the way, half never sent.
    case.tap
        .on(1, |sent| sent.settles().then_some(Fault::CutBefore));
    stale.settle_indexes(0..4, Acknowledge::Release).unwrap();
    let report = consumer.commit().await.unwrap();
    assert_eq!(report.partitions[0].failed[0].why, AckFailure::Unknown);
    let settled = case.tap.count(Sent::settles);
    let fresh = next(&mut consumer).await;
    assert_eq!(offsets(&fresh), up_to(10)[1..]);
    assert!(fresh.records().all(|record| record.delivery_count == 2));
    stale.accept();
    assert!(!consumer.commit().await.unwrap().is_ok());
    assert_eq!(
        case.tap.count(Sent::settles),
        settled,
        "a stale one was sent"
    );
    assert_eq!(fresh.lock().lost(), None);
    fresh.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    first.accept();
    assert!(other.close(10 * SECOND).await.unwrap().is_ok());
    case.drained().await;
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t3_second_member_takes_nothing_away_from_the_first() {
    on_shared(t3).await;
}

async fn t3(cluster: &Cluster) {
    let case = Case::new(cluster, "t3", 2, &[]).await;
    for partition in 0..2 {
        case.produce(partition, 50).await;
    }
    let mut first = case.open().await;
    let batches = [next(&mut first).await, next(&mut first).await];
    assert_eq!(batches.iter().map(|batch| batch.len()).sum::<usize>(), 100);
    let mut second = case.other().build().await.unwrap();
    case.members(2).await;
    nothing_for(&mut second, SECOND).await;
    for batch in batches {
        assert_eq!(batch.lock().lost(), None);
        batch.accept();
    }
    assert!(first.commit().await.unwrap().is_ok());
    case.drained().await;
    assert_eq!(second.metrics().records_acquired, 0);
    drop(second.close(SECOND).await.unwrap());
    case.close(first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t4_producer_is_not_held_up_by_an_idle_poll() {
    on_shared(t4).await;
}

async fn t4(cluster: &Cluster) {
    let case = Case::new(cluster, "t4", 1, &[]).await;
    case.create_topic("t4-other", 1).await;
    let builder = case.builder().fetch_max_wait(5 * SECOND);
    let mut consumer = builder.build().await.unwrap();
    let parks = |sent: &Sent| {
        let fetch: Option<ShareFetchRequest> = sent.read();
        fetch.is_some_and(|fetch| fetch.max_wait_ms > 1_000)
    };
    nothing_for(&mut consumer, MS).await;
    until("a parked fetch", async || case.tap.count(parks) > 0).await;
    let producer = Producer::new(ProducerConfig::new(case.config()));
    let send = async || {
        let sent = producer.send(ProducerRecord::new("t4-other").value("v"));
        sent.await.unwrap().await.unwrap()
    };
    send().await;
    let started = Instant::now();
    for _ in 0..10 {
        send().await;
    }
    // Behind a parked fetch one alone would take seconds.
    assert!(started.elapsed() < 2 * SECOND, "{:?}", started.elapsed());
    producer.close(LONG).await.unwrap();
    nothing_for(&mut consumer, MS).await;
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t5_a_slow_handler_costs_few_acknowledge_requests() {
    on_shared(t5).await;
}

async fn t5(cluster: &Cluster) {
    const RECORDS: usize = 1_000;
    let case = Case::new(cluster, "t5", 1, &[]).await;
    case.produce(0, RECORDS).await;
    let mut consumer = case.open().await;
    for _ in 0..RECORDS {
        let delivery = deliveries(&mut consumer, 1).await.remove(0);
        sleep(5 * MS).await;
        drop(delivery.accept());
    }
    assert!(case.closed(consumer).await.is_ok());
    // One every 10 ms of the linger at most, and a few fetches.
    let requests = case.tap.count(Sent::settles);
    assert!(requests <= RECORDS * 6 / 10, "{requests} requests");
    case.drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t6_what_a_member_leaves_behind_is_with_the_next_at_once() {
    on_shared(async |cluster| {
        t6(cluster, "t6-close", true).await;
        t6(cluster, "t6-drop", false).await;
    })
    .await;
}

async fn t6(cluster: &Cluster, name: &'static str, closes: bool) {
    let case = Case::new(cluster, name, 1, &[]).await;
    case.produce(0, 20).await;
    let builder = case.builder().max_poll_records(5);
    let mut consumer = builder.build().await.unwrap();
    let in_hand = next(&mut consumer).await;
    let mut other = case.other().build().await.unwrap();
    case.members(2).await;
    let left = Instant::now();
    if closes {
        case.close(consumer).await;
    } else {
        drop(consumer);
    }
    let found = deliveries(&mut other, 20).await;
    assert!(left.elapsed() < 2 * SECOND, "{:?}", left.elapsed());
    let offsets: BTreeSet<_> = found
        .iter()
        .map(|delivery| delivery.record().offset)
        .collect();
    assert_eq!(offsets.len(), 20);
    drop(in_hand);
    for delivery in found {
        drop(delivery.accept());
    }
    assert!(other.close(10 * SECOND).await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn t10_session_errors_at_every_request_end_in_progress_and_honest_failures() {
    on_shared(async |cluster| {
        t10(cluster, "t10-not-found", |sent| {
            // To the broker this is a member without a session.
            if sent.api_key == FETCH {
                sent.changed::<ShareFetchRequest>(|fetch| fetch.member_id = Some("nobody".into()))
            } else {
                sent.changed::<ShareAcknowledgeRequest>(|r| r.member_id = Some("nobody".into()))
            }
        })
        .await;
        t10(cluster, "t10-epoch", |sent| {
            if sent.api_key == FETCH {
                sent.changed::<ShareFetchRequest>(|fetch| fetch.share_session_epoch.0 += 7)
            } else {
                sent.changed::<ShareAcknowledgeRequest>(|r| r.share_session_epoch.0 += 7)
            }
        })
        .await;
    })
    .await;
}

async fn t10(cluster: &Cluster, name: &'static str, spoil: fn(&Sent) -> Fault) {
    let case = Case::new(cluster, name, 1, &[]).await;
    case.produce(0, 10).await;
    let mut consumer = case.open().await;
    // On a fetch, and alone.
    for api_key in [FETCH, ACKNOWLEDGE] {
        let mut batch = next(&mut consumer).await;
        case.tap.on(1, move |sent| {
            let is_it = sent.settles() || (api_key == FETCH && sent.api_key == FETCH);
            is_it.then(|| spoil(sent))
        });
        batch.settle_indexes(0..5, Acknowledge::Accept).unwrap();
        let report = consumer.commit().await.unwrap();
        assert!(
            report
                .partitions
                .iter()
                .all(|p| p.failed_records == 5 || api_key == FETCH)
        );
        until("the session is over", async || {
            batch.lock().lost().is_some()
        })
        .await;
        drop(batch);
    }
    tokio::select! {
        () = case.drained() => {}
        () = accept_all(&mut consumer) => {}
    }
    case.close(consumer).await;
}

async fn accept_all(consumer: &mut ShareConsumer) {
    loop {
        consumer.poll().await.unwrap().unwrap().accept();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t11_member_that_is_fenced_joins_again_and_its_acknowledgements_count() {
    on_shared(t11).await;
}

async fn t11(cluster: &Cluster) {
    let case = Case::new(cluster, "t11", 1, &[]).await;
    case.produce(0, 3).await;
    let seen = Arc::new(Seen::default());
    let builder = case.builder().observer(Arc::clone(&seen) as _);
    let mut consumer = builder.build().await.unwrap();
    let mut batch = next(&mut consumer).await;
    // Fenced, unknown: the coordinator's own words.
    let spoilers: [fn(&mut ShareGroupHeartbeatRequest); 2] = [
        |heartbeat| heartbeat.member_epoch.0 += 100,
        |heartbeat| heartbeat.member_id = "nobody".into(),
    ];
    for (number, spoil) in spoilers.into_iter().enumerate() {
        case.tap.on(1, move |sent| {
            let heartbeat: ShareGroupHeartbeatRequest = sent.read()?;
            (heartbeat.member_epoch != MemberEpoch::JOIN).then(|| sent.changed(spoil))
        });
        until("another join", async || seen.joins() == number + 2).await;
        batch
            .settle_indexes(number..number + 1, Acknowledge::Accept)
            .unwrap();
        assert!(consumer.commit().await.unwrap().is_ok());
    }
    // Another coordinator.
    let heartbeats = case.tap.bodies::<ShareGroupHeartbeatRequest>().len();
    case.tap.answers::<ShareGroupHeartbeatRequest>(|answer| {
        *answer = ShareGroupHeartbeatResponse {
            error_code: ErrorCode::NotCoordinator,
            ..Default::default()
        };
        true
    });
    until("heartbeats go on", async || {
        case.tap.bodies::<ShareGroupHeartbeatRequest>().len() > heartbeats + 2
    })
    .await;
    assert_eq!(seen.joins(), 3);
    batch.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    case.drained().await;
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t12_one_stale_offset_among_500_costs_only_itself() {
    on_shared(t12).await;
}

async fn t12(cluster: &Cluster) {
    const STALE: i64 = 250;
    let case = Case::new(cluster, "t12", 1, &[]).await;
    case.produce(0, 501).await;
    let builder = case
        .builder()
        .max_poll_records(1_000)
        .records_held_max(1_000);
    let mut consumer = builder.build().await.unwrap();
    let mut held = deliveries(&mut consumer, 501).await;
    consumer.pause();
    // The last acknowledgement releases another record beside: the client doesn't know.
    case.tap.on(1, |sent| {
        let stale = AcknowledgementBatch {
            first_offset: STALE,
            last_offset: STALE,
            acknowledge_types: vec![2],
        };
        if !sent.settles() {
            return None;
        }
        Some(if sent.api_key == FETCH {
            sent.changed::<ShareFetchRequest>(|fetch| {
                fetch.topics[0].partitions[0]
                    .acknowledgement_batches
                    .insert(0, stale);
            })
        } else {
            sent.changed::<ShareAcknowledgeRequest>(|request| {
                request.topics[0].partitions[0]
                    .acknowledgement_batches
                    .insert(0, stale);
            })
        })
    });
    assert_eq!(held.pop().unwrap().accept().await, Ok(()));
    let confirmations = held
        .into_iter()
        .map(|delivery| (delivery.record().offset, delivery.accept()));
    for (offset, confirmation) in confirmations.collect::<Vec<_>>() {
        let refused = Err(AckFailure::Broker(ErrorCode::InvalidRecordState));
        let expected = if offset == STALE { refused } else { Ok(()) };
        assert_eq!(confirmation.await, expected, "{offset}");
    }
    let report = case.closed(consumer).await;
    assert_eq!(report.partitions[0].failed_records, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn t13_lower_offset_acknowledged_during_a_request_goes_in_ascending_order() {
    on_shared(t13).await;
}

async fn t13(cluster: &Cluster) {
    let case = Case::new(cluster, "t13", 1, &[]).await;
    case.produce(0, 10).await;
    let mut consumer = case.open().await;
    let mut batch = next(&mut consumer).await;
    batch.settle(2, Acknowledge::Release).unwrap();
    assert!(consumer.commit().await.unwrap().is_ok());
    let again = next(&mut consumer).await;
    assert_eq!(offsets(&again), [2]);
    case.tap
        .on(1, |sent| sent.settles().then_some(Fault::Delay(300 * MS)));
    let settled = case.tap.count(Sent::settles);
    batch.settle(5, Acknowledge::Accept).unwrap();
    until("it is on its way", async || {
        case.tap.count(Sent::settles) > settled
    })
    .await;
    batch.settle(9, Acknowledge::Accept).unwrap();
    again.accept();
    batch.settle(0, Acknowledge::Accept).unwrap();
    batch.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    case.drained().await;
    // That each request's ranges ascend is among what is looked at here.
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t14_partition_that_leaves_is_forgotten_settled_and_fetched_no_more() {
    on_shared(t14).await;
}

async fn t14(cluster: &Cluster) {
    let case = Case::new(cluster, "t14", 1, &[]).await;
    case.create_topic("t14-other", 1).await;
    case.produce(0, 10).await;
    let mut consumer = case.open().await;
    let batch = next(&mut consumer).await;
    let left = batch.topic_id();
    consumer.subscribe(["t14-other"]);
    let forgets = |sent: &Sent| {
        let fetch: Option<ShareFetchRequest> = sent.read();
        let forgotten = fetch
            .into_iter()
            .flat_map(|fetch| fetch.forgotten_topics_data);
        forgotten.into_iter().any(|topic| topic.topic_id == left)
    };
    until("it is forgotten", async || case.tap.count(forgets) > 0).await;
    batch.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    case.drained().await;
    case.produce(0, 5).await;
    case.produce_to("t14-other", 0, 5).await;
    let batch = next(&mut consumer).await;
    assert_eq!(&**batch.topic(), "t14-other");
    batch.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    let sent = case.tap.sent();
    let forgotten = sent.iter().position(forgets).unwrap();
    let later = sent[forgotten..]
        .iter()
        .filter_map(Sent::read::<ShareFetchRequest>);
    let mut topics = later.flat_map(|fetch| fetch.topics);
    assert!(!topics.any(|topic| topic.topic_id == left), "fetched again");
    assert_eq!(case.tap.count(forgets), 1);
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t15_recreated_topic_is_fetched_by_its_new_id_and_the_old_one_no_more() {
    on_shared(t15).await;
}

async fn t15(cluster: &Cluster) {
    let case = Case::new(cluster, "t15", 1, &[]).await;
    case.produce(0, 3).await;
    let mut consumer = case.open().await;
    let batch = next(&mut consumer).await;
    let old = batch.topic_id();
    case.admin.delete_topic(case.name).await.unwrap();
    case.create_topic(case.name, 1).await;
    case.produce(0, 1).await;
    let fresh = next(&mut consumer).await;
    assert_ne!(fresh.topic_id(), old);
    let before = case.tap.sent().len();
    batch.accept();
    fresh.accept();
    let report = consumer.commit().await.unwrap();
    let accepted: u64 = report
        .partitions
        .iter()
        .map(|partition| partition.accepted)
        .sum();
    assert_eq!(accepted, 1, "{report:?}");
    let later = case.tap.sent().split_off(before);
    for fetch in later.iter().filter_map(Sent::read::<ShareFetchRequest>) {
        let is_old =
            |topic: &sharegroup_wire::message::share_fetch::FetchTopic| topic.topic_id == old;
        assert!(!fetch.topics.iter().any(is_old), "{fetch:?}");
    }
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t16_topics_and_partitions_made_later_are_consumed() {
    on_shared(t16).await;
}

async fn t16(cluster: &Cluster) {
    let case = Case::without_topic(cluster, "t16", &[]).await;
    let mut consumer = case.open().await;
    until("the topic is missed", async || {
        !consumer.status().missing_topics.is_empty()
    })
    .await;
    case.create_topic(case.name, 1).await;
    case.produce(0, 5).await;
    next(&mut consumer).await.accept();
    let (connector, options) = (TcpConnector::default(), ConnectionOptions::default());
    let address = cluster.bootstrap_servers().parse().unwrap();
    let broker = Connection::open(&connector, &address, &options)
        .await
        .unwrap();
    let more = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name: case.name.into(),
            count: 3,
            assignments: None,
        }],
        timeout_ms: 10_000,
        validate_only: false,
    };
    broker.call(&more).await.unwrap();
    let has_three = async || {
        let topic = case.admin.find_topic(case.name).await.unwrap();
        topic.is_some_and(|topic| {
            topic
                .partitions
                .iter()
                .filter(|p| p.leader.is_some())
                .count()
                == 3
        })
    };
    until("three partitions", has_three).await;
    for partition in 1..3 {
        case.produce(partition, 5).await;
    }
    let mut seen = BTreeSet::new();
    while seen.len() < 2 {
        let batch = next(&mut consumer).await;
        seen.insert(batch.partition());
        batch.accept();
    }
    assert_eq!(seen, BTreeSet::from([1, 2]));
    assert!(case.closed(consumer).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn t23_observer_that_panics_or_blocks_harms_nothing() {
    on_shared(t23).await;
}

async fn t23(cluster: &Cluster) {
    let case = Case::new(cluster, "t23", 1, &[]).await;
    case.produce(0, 10).await;
    let builder = case.builder().observer(Arc::new(Rude));
    let mut consumer = builder.build().await.unwrap();
    next(&mut consumer).await.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    assert!(case.closed(consumer).await.is_ok());
    case.drained().await;
}

#[derive(Debug)]
struct Rude;

impl ShareObserver for Rude {
    fn event(&self, event: &ShareEvent) {
        if let ShareEvent::Acquired { .. } = event {
            std::thread::sleep(Duration::from_millis(300));
        }
        panic!("an observer's own fault");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t27_close_sends_finished_work_and_releases_the_rest() {
    on_shared(t27).await;
}

async fn t27(cluster: &Cluster) {
    let case = Case::new(cluster, "t27", 1, &[]).await;
    case.produce(0, 10).await;
    let builder = case.builder().acknowledge_linger(10 * SECOND);
    let mut consumer = builder.build().await.unwrap();
    let mut batch = next(&mut consumer).await;
    batch.settle_indexes(0..4, Acknowledge::Accept).unwrap();
    let report = case.closed(consumer).await;
    assert_eq!(
        (report.partitions[0].accepted, report.partitions[0].released),
        (4, 6)
    );
    // Too late: nothing of this may reach the broker.
    batch.accept();
    let mut other = case.other().build().await.unwrap();
    let rest = timeout(LONG, next(&mut other)).await.unwrap();
    assert_eq!(offsets(&rest), up_to(10)[4..]);
    rest.accept();
    assert!(other.close(10 * SECOND).await.unwrap().is_ok());
}
