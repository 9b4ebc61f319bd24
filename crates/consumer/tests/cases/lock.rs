//! Acquisition locks.

use std::sync::Arc;
use std::time::Duration;

use sharegroup_consumer::{Acknowledge, ShareConsumer, ShareEvent, Warning};
use sharegroup_launcher::Kafka;
use sharegroup_wire::message::api_versions::ApiVersionsRequest;
use tokio::time::{Instant, sleep_until, timeout};

use crate::both::{Cluster, on_shared, on_three};
use crate::case::{
    ACKNOWLEDGE, Case, FETCH, LONG, MS, SECOND, Seen, deliveries, next, offsets, until, up_to,
};
use crate::tap::Sent;

const LOCK: Duration = Duration::from_secs(2);
const LOCK_2_S: (&str, &str) = ("share.record.lock.duration.ms", "2000");

fn not_renewable(seen: &Seen) -> usize {
    let is_it =
        |event: &ShareEvent| matches!(event, ShareEvent::Warning(Warning::NotRenewable { .. }));
    seen.count(is_it)
}

#[tokio::test(flavor = "multi_thread")]
async fn b_055_leader_of_version_1_gets_no_renewal() {
    on_shared(async |cluster| {
        let case = Case::new(cluster, "b-055", 1, &[LOCK_2_S]).await;
        // Both know renewals: this client doesn't learn of it.
        case.tap.answers::<ApiVersionsRequest>(|answer| {
            for api in &mut answer.api_keys {
                if [FETCH, ACKNOWLEDGE].contains(&api.api_key) {
                    api.max_version = 1;
                }
            }
            false
        });
        b_055(&case).await;
    })
    .await;
}

/// The truth: a release without renewals.
#[tokio::test(flavor = "multi_thread")]
async fn b_055_kafka_4_1_gets_no_renewal() {
    let kafka = Kafka::builder()
        .version("4.1.2")
        .feature("share.version", 1)
        .set("group.share.min.record.lock.duration.ms", "1000")
        .set("group.share.min.heartbeat.interval.ms", "500");
    let Some(kafka) = kafka.start_or_skip().unwrap() else {
        return;
    };
    let cluster = Cluster::real(Arc::new(kafka));
    b_055(&Case::new(&cluster, "b-055", 1, &[LOCK_2_S]).await).await;
}

async fn b_055(case: &Case<'_>) {
    case.produce(0, 2).await;
    let seen = Arc::new(Seen::default());
    let builder = case.builder().observer(Arc::clone(&seen) as _);
    let mut consumer = builder.build().await.unwrap();
    let mut batch = next(&mut consumer).await;
    assert_eq!(batch.len(), 2);
    let lock = batch.lock();
    assert!(!lock.is_renewable());
    assert_eq!(not_renewable(&seen), 1);
    batch.settle(0, Acknowledge::Renew).unwrap();
    batch.settle(0, Acknowledge::Accept).unwrap();
    assert!(consumer.commit().await.unwrap().is_ok());
    // The other one's lock runs out, which is told.
    until("the loss is told", async || lock.lost().is_some()).await;
    assert!(Instant::now() + LOCK / 4 > lock.deadline());
    drop(batch);
    let again = next(&mut consumer).await;
    assert_eq!(offsets(&again), [1]);
    again.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    assert_eq!(case.tap.count(Sent::renews), 0);
    drop(consumer.close(SECOND).await.unwrap());
    case.tap.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn b_056_and_t22_refused_renewal_is_seen_once_and_not_tried_in_a_loop() {
    on_shared(b_056).await;
}

async fn b_056(cluster: &Cluster) {
    let refused = ("share.renew.acknowledge.enable", "false");
    let case = Case::new(cluster, "b-056", 1, &[LOCK_2_S, refused]).await;
    case.produce(0, 10).await;
    let seen = Arc::new(Seen::default());
    let builder = case.builder().observer(Arc::clone(&seen) as _);
    let mut consumer = builder.build().await.unwrap();
    let slow = next(&mut consumer).await;
    let (lock, started) = (slow.lock(), Instant::now());
    timeout(LOCK, lock.lost_or_refused()).await.unwrap();
    assert!(lock.lost().is_none() && !lock.is_renewable());
    sleep_until(started + 2 * LOCK).await;
    assert_eq!(not_renewable(&seen), 1);
    let renewals = case.tap.count(Sent::renews);
    assert!((1..=8).contains(&renewals), "{renewals} renewals");
    // Too late, which is reported; nothing of it was sent.
    slow.accept();
    assert!(!consumer.commit().await.unwrap().is_ok());
    assert_eq!(case.tap.count(Sent::settles), 0);
    // The fallback: few at a time, so that what is fetched can be done in time.
    let mut left = 10;
    while left > 0 {
        let batch = next(&mut consumer).await;
        assert!(batch.records().all(|record| record.delivery_count == 2));
        left -= batch.len();
        batch.accept();
    }
    assert!(consumer.commit().await.unwrap().is_ok());
    case.drained().await;
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_057_member_that_holds_all_it_can_get_leaves_some_for_the_others() {
    on_shared(b_057).await;
}

async fn b_057(cluster: &Cluster) {
    let case = Case::new(cluster, "b-057", 1, &[]).await;
    for _ in 0..50 {
        case.produce(0, 100).await;
    }
    let mut greedy = case.open().await;
    let mut held = vec![next(&mut greedy).await];
    while let Ok(batch) = timeout(SECOND, greedy.poll()).await {
        held.push(batch.unwrap().unwrap());
    }
    let records = held.iter().map(|batch| batch.len() as u64).sum::<u64>();
    assert!((1..=1_000).contains(&records), "{records} held");
    let status = || greedy.status().records_held;
    until("the status tells what is held", async || {
        status() == records
    })
    .await;
    let mut other = case.other().build().await.unwrap();
    case.members(2).await;
    let started = Instant::now();
    next(&mut other).await.accept();
    assert!(started.elapsed() < 5 * SECOND, "{:?}", started.elapsed());
    drop(other.close(SECOND).await.unwrap());
    drop(held);
    case.close(greedy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t8_no_record_is_delivered_after_its_deadline_and_none_twice() {
    on_three(t8).await;
}

async fn t8(cluster: &Cluster) {
    const RECORDS: usize = 30;
    let case = Case::new(cluster, "t8", 3, &[LOCK_2_S]).await;
    for partition in 0..3 {
        case.produce(partition, RECORDS / 3).await;
    }
    let mut consumer = case.open().await;
    // One after the other: the last ones wait for longer than a lock.
    for delivery in deliveries(&mut consumer, RECORDS).await {
        assert_eq!(delivery.record().delivery_count, 1);
        let ends = delivery.lock().deadline();
        assert!(delivery.lock().lost().is_none() && ends > Instant::now());
        sleep_until(Instant::now() + LOCK / 20).await;
        assert_eq!(delivery.accept().await, Ok(()));
    }
    let metrics = consumer.metrics();
    assert_eq!(metrics.records_acquired, RECORDS as u64, "{metrics:?}");
    assert_eq!((metrics.accepted, metrics.locks_lost), (RECORDS as u64, 0));
    assert!(metrics.records_renewed > 0, "{metrics:?}");
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t21_acknowledgement_made_during_a_renewal_stands() {
    on_shared(t21).await;
}

async fn t21(cluster: &Cluster) {
    let case = Case::new(cluster, "t21", 1, &[LOCK_2_S]).await;
    case.produce(0, 5).await;
    let mut consumer = case.open().await;
    let batch = next(&mut consumer).await;
    // The renewal is with the broker, and its answer on the way.
    let delay = |sent: &Sent| sent.renews().then_some(crate::tap::Fault::Delay(300 * MS));
    case.tap.on(1, delay);
    until("a renewal", async || case.tap.count(Sent::renews) == 1).await;
    batch.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    let sent = case.tap.sent();
    let settled = sent.iter().position(Sent::settles).unwrap();
    assert_eq!(
        sent[settled..].iter().filter(|sent| sent.settles()).count(),
        1
    );
    assert!(!sent[settled..].iter().any(Sent::renews));
    case.drained().await;
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t28_deadlines_follow_the_groups_lock_duration() {
    on_shared(t28).await;
}

async fn t28(cluster: &Cluster) {
    let long = ("share.record.lock.duration.ms", "20000");
    let case = Case::new(cluster, "t28", 1, &[long]).await;
    case.produce(0, 5).await;
    let mut consumer = case.open().await;
    let first = next(&mut consumer).await;
    assert!(left(&first.lock().deadline()) > 15 * SECOND);
    case.set_group(LOCK_2_S.0, LOCK_2_S.1).await;
    // Group configurations arrive when they arrive.
    let started = Instant::now();
    while left(&one_more(&case, &mut consumer).await) > LOCK {
        assert!(started.elapsed() < LONG);
    }
    // What is acquired from now on is renewed in time.
    case.produce(0, 1).await;
    let held = next(&mut consumer).await;
    sleep_until(Instant::now() + 2 * LOCK).await;
    assert_eq!((held.lock().lost(), first.lock().lost()), (None, None));
    held.accept();
    first.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    case.drained().await;
    case.close(consumer).await;
}

fn left(deadline: &Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Takes one more record, and tells when its lock ends.
async fn one_more(case: &Case<'_>, consumer: &mut ShareConsumer) -> Instant {
    case.produce(0, 1).await;
    let batch = next(consumer).await;
    assert!(offsets(&batch) != up_to(5));
    let deadline = batch.lock().deadline();
    batch.accept();
    deadline
}
