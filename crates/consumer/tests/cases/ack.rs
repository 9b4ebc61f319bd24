//! Acknowledgements: each gets its outcome, once, and none hurts another.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sharegroup_broker::{Broker, ServerLimits};
use sharegroup_consumer::{
    AckFailure, Acknowledge, CommitReport, Delivery, PartitionReport, SettleError, ShareBatch,
    ShareEvent,
};
use sharegroup_launcher::Kafka;
use sharegroup_wire::ErrorCode;
use tokio::time::{Instant, sleep, timeout};

use crate::both::{Cluster, on_shared, on_three};
use crate::case::{
    Case, FETCH, MS, SECOND, Seen, counted, deliveries, next, nothing_for, offsets, until, up_to,
};
use crate::tap::Fault;
use crate::transactions::Teller;

/// Offsets that were told to have failed, or to have counted; none is told twice.
fn told(seen: &Seen, failed: bool) -> BTreeSet<(i32, i64)> {
    let mut told = BTreeSet::new();
    for event in seen.events() {
        let ShareEvent::Acknowledged { outcome, .. } = event else {
            continue;
        };
        if outcome.result.is_err() == failed {
            for offset in outcome.first_offset..=outcome.last_offset {
                assert!(
                    told.insert((outcome.partition.partition, offset)),
                    "{offset} twice"
                );
            }
        }
    }
    told
}

fn of(report: &CommitReport, partition: i32) -> &PartitionReport {
    let mut partitions = report.partitions.iter();
    partitions
        .find(|report| report.partition == partition)
        .unwrap()
}

/// Other tests need a broker that lives on, and keeps its connections.
#[tokio::test(flavor = "multi_thread")]
async fn b_036_b_114_t24_and_t25_what_is_held_outlives_idleness_and_its_loss_in_a_restart_is_told_once()
 {
    let kafka = Kafka::builder().set("connections.max.idle.ms", "3000");
    let kafka = kafka.set("group.share.min.heartbeat.interval.ms", "500");
    let Some(kafka) = kafka.start_or_skip().unwrap() else {
        return;
    };
    let limits = ServerLimits {
        idle_time_max: 3 * SECOND,
        ..ServerLimits::default()
    };
    let broker = Broker::builder().limits(limits);
    let broker = broker.set("group.share.min.heartbeat.interval.ms", "500");
    let embedded = Cluster::embedded(broker.start().await.unwrap(), kafka.tools());
    let real = Cluster::real(Arc::new(kafka));
    tokio::join!(Box::pin(t24(&embedded)), Box::pin(t24(&real)));
    tokio::join!(Box::pin(b_114(&embedded)), Box::pin(b_114(&real)));
    tokio::join!(Box::pin(b_036(&embedded)), Box::pin(b_036(&real)));
}

async fn t24(cluster: &Cluster) {
    let case = Case::new(cluster, "t24", 1, &[]).await;
    // The heartbeats' connection is idle in between, and opened again.
    case.set_group("share.heartbeat.interval.ms", "5000").await;
    case.produce(0, 3).await;
    let mut consumer = case.open().await;
    let held = next(&mut consumer).await;
    nothing_for(&mut consumer, 5 * SECOND).await;
    assert_eq!(held.lock().lost(), None);
    held.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    case.drained().await;
    case.close(consumer).await;
}

async fn b_114(cluster: &Cluster) {
    let case = Case::new(cluster, "b-114", 1, &[]).await;
    case.set_group("share.heartbeat.interval.ms", "5000").await;
    case.produce(0, 3).await;
    let seen = Arc::new(Seen::default());
    let builder = case.builder().observer(Arc::clone(&seen) as _);
    let mut consumer = builder.build().await.unwrap();
    next(&mut consumer).await.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    let links = case.tap.links();
    // Nothing is asked for: the broker closes every connection.
    consumer.pause();
    nothing_for(&mut consumer, 10 * SECOND).await;
    consumer.resume();
    case.produce(0, 2).await;
    let again = next(&mut consumer).await;
    assert_eq!(offsets(&again), [3, 4]);
    again.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    assert!(case.tap.links() > links, "nothing was idle");
    let warned =
        |event: &ShareEvent| matches!(event, ShareEvent::Warning(_) | ShareEvent::LockLost { .. });
    assert_eq!(seen.count(warned), 0, "{:?}", seen.events());
    case.drained().await;
    case.close(consumer).await;
}

async fn b_036(cluster: &Cluster) {
    let case = Case::new(cluster, "b-036", 1, &[]).await;
    case.produce(0, 3).await;
    let seen = Arc::new(Seen::default());
    let builder = case.builder().observer(Arc::clone(&seen) as _);
    let mut consumer = builder.build().await.unwrap();
    let batch = next(&mut consumer).await;
    assert_eq!(batch.len(), 3);
    cluster.restart(1).await;
    until("the loss is told", async || batch.lock().lost().is_some()).await;
    batch.accept();
    let report = consumer.commit().await.unwrap();
    assert_eq!(
        (report.partitions.len(), of(&report, 0).failed_records),
        (1, 3)
    );
    let again = next(&mut consumer).await;
    assert_eq!(offsets(&again), up_to(3));
    again.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    assert_eq!(told(&seen, false).len(), 3);
    case.drained().await;
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_038_acknowledgements_made_while_a_fetch_runs_are_all_sent() {
    on_shared(b_038).await;
}

async fn b_038(cluster: &Cluster) {
    let case = Case::new(cluster, "b-038", 1, &[]).await;
    case.produce(0, 10).await;
    let mut consumer = case.open().await;
    let mut batch = next(&mut consumer).await;
    let fetches = case.tap.count(|sent| sent.api_key == FETCH);
    case.tap.fault(1, FETCH, Fault::Delay(500 * MS));
    until("a fetch runs", async || {
        case.tap.count(|sent| sent.api_key == FETCH) > fetches
    })
    .await;
    batch.settle(3, Acknowledge::Accept).unwrap();
    batch.settle(7, Acknowledge::Accept).unwrap();
    let report = consumer.commit().await.unwrap();
    assert_eq!(of(&report, 0).accepted, 2);
    let sent = case.tap.sent();
    let settling: Vec<_> = sent.iter().filter(|sent| sent.settles()).collect();
    assert_eq!(settling.len(), 1, "{settling:?}");
    let acknowledged = settling[0].acknowledged();
    let ranges = acknowledged
        .iter()
        .map(|(_, range)| (range.first_offset, range.last_offset));
    assert_eq!(ranges.collect::<Vec<_>>(), [(3, 3), (7, 7)]);
    batch.accept();
    assert!(case.closed(consumer).await.is_ok());
    case.drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_039_commit_after_one_that_was_given_up_has_its_own_result() {
    on_shared(b_039).await;
}

async fn b_039(cluster: &Cluster) {
    let case = Case::new(cluster, "b-039", 1, &[]).await;
    case.produce(0, 4).await;
    let seen = Arc::new(Seen::default());
    let builder = case.builder().observer(Arc::clone(&seen) as _);
    let mut consumer = builder.build().await.unwrap();
    let mut batch = next(&mut consumer).await;
    case.tap
        .on(1, |sent| sent.settles().then_some(Fault::Delay(3 * SECOND)));
    batch.settle_indexes(0..2, Acknowledge::Accept).unwrap();
    assert!(timeout(SECOND, consumer.commit()).await.is_err());
    batch.settle_indexes(2..4, Acknowledge::Accept).unwrap();
    let report = timeout(5 * SECOND, consumer.commit()).await.unwrap();
    assert!(report.unwrap().is_ok());
    assert_eq!(told(&seen, false).len(), 4);
    assert_eq!(told(&seen, true).len(), 0);
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_040_acknowledgement_to_an_old_leader_fails_without_a_loop_and_others_commit() {
    on_three(b_040).await;
}

async fn b_040(cluster: &Cluster) {
    let case = Case::new(cluster, "b-040", 2, &[]).await;
    for partition in 0..2 {
        case.produce(partition, 5).await;
    }
    let topic = case.admin.find_topic(case.name).await.unwrap().unwrap();
    let leaders = topic
        .partitions
        .iter()
        .map(|partition| partition.leader.unwrap().0);
    let leaders: Vec<_> = leaders.collect();
    let other = (1..=3).find(|broker| !leaders.contains(broker)).unwrap();
    let mut consumer = case.open().await;
    let batches = [next(&mut consumer).await, next(&mut consumer).await];
    let before = case.tap.fetched_from().len();
    cluster.move_partition(case.name, 0, other).await;
    // Until the old leader has said so.
    let is_known = async || case.tap.fetched_from().len() > before;
    until("the client knows the new leader", is_known).await;
    let started = Instant::now();
    batches.into_iter().for_each(ShareBatch::accept);
    let report = consumer.commit().await.unwrap();
    assert!(started.elapsed() < 2 * SECOND, "{:?}", started.elapsed());
    assert_eq!(of(&report, 0).failed_records, 5);
    assert_eq!(
        (of(&report, 1).accepted, of(&report, 1).failed_records),
        (5, 0)
    );
    let tries = case.tap.count(|sent| sent.settles_of(0));
    assert!(tries <= 1, "{tries} tries");
    let again = next(&mut consumer).await;
    assert_eq!((again.partition(), offsets(&again)), (0, up_to(5)));
    again.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_041_connection_dropped_on_the_acknowledgement_fails_the_commit_and_polling_goes_on() {
    on_shared(async |cluster| {
        b_041(cluster, "b-041-before", Fault::CutBefore).await;
        b_041(cluster, "b-041-after", Fault::CutAfter).await;
    })
    .await;
}

async fn b_041(cluster: &Cluster, name: &'static str, fault: Fault) {
    let case = Case::new(cluster, name, 1, &[]).await;
    case.produce(0, 3).await;
    let mut consumer = case.open().await;
    let batch = next(&mut consumer).await;
    consumer.pause();
    case.tap
        .on(1, move |sent| sent.settles().then(|| fault.clone()));
    batch.accept();
    let report = timeout(5 * SECOND, consumer.commit())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(of(&report, 0).failed_records, 3);
    assert_eq!(of(&report, 0).failed[0].why, AckFailure::Unknown);
    consumer.resume();
    case.produce(0, 1).await;
    let mut last = -1;
    while last < 3 {
        let batch = next(&mut consumer).await;
        last = batch.last_offset();
        batch.accept();
        assert!(consumer.commit().await.unwrap().is_ok());
    }
    case.drained().await;
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_042_acknowledgements_of_a_deleted_topic_fail_at_once() {
    on_shared(b_042).await;
}

async fn b_042(cluster: &Cluster) {
    let case = Case::new(cluster, "b-042", 1, &[]).await;
    case.produce(0, 3).await;
    let mut consumer = case.open().await;
    let batch = next(&mut consumer).await;
    case.admin.delete_topic(case.name).await.unwrap();
    let is_gone = async || case.admin.find_topic(case.name).await.unwrap().is_none();
    until("the topic is gone", is_gone).await;
    batch.accept();
    let started = Instant::now();
    let report = consumer.commit().await.unwrap();
    assert!(started.elapsed() < SECOND, "{:?}", started.elapsed());
    let failed = &of(&report, 0).failed;
    assert_eq!(failed[0].why, AckFailure::Broker(ErrorCode::UnknownTopicId));
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_043_markers_are_acknowledged_though_nothing_is_delivered() {
    on_shared(b_043).await;
}

async fn b_043(cluster: &Cluster) {
    const LOCK: Duration = Duration::from_secs(1);
    let lock = [("share.record.lock.duration.ms", "1000")];
    let case = Case::new(cluster, "b-043", 1, &lock).await;
    let mut teller = Teller::open(cluster.bootstrap_servers(), case.name).await;
    teller.transact("a", true).await;
    let mut consumer = case.open().await;
    let batch = next(&mut consumer).await;
    assert_eq!(offsets(&batch), [0]);
    batch.accept();
    // The marker may come alone, and is looked at by whoever polls.
    let drained = async {
        case.drained().await;
        sleep(2 * LOCK).await;
    };
    tokio::select! {
        polled = consumer.poll() => panic!("{polled:?}"),
        () = drained => {}
    }
    counted(&consumer, 1, 1).await;
    let metrics = consumer.metrics();
    assert_eq!(metrics.records_acquired, 2, "record and marker, once");
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_044_producer_batch_above_the_poll_limit_is_delivered_whole_and_once() {
    on_shared(b_044).await;
}

async fn b_044(cluster: &Cluster) {
    let case = Case::new(cluster, "b-044", 1, &[]).await;
    case.produce(0, 1000).await;
    let builder = case.builder().max_poll_records(100);
    let mut consumer = builder.build().await.unwrap();
    let (started, mut seen) = (Instant::now(), Vec::new());
    while seen.len() < 1000 {
        let batch = next(&mut consumer).await;
        assert!(batch.len() <= 100);
        assert!(batch.records().all(|record| record.delivery_count == 1));
        seen.extend(offsets(&batch));
        batch.accept();
    }
    assert_eq!(seen, up_to(1000));
    assert!(started.elapsed() < 10 * SECOND, "{:?}", started.elapsed());
    assert!(case.closed(consumer).await.is_ok());
    case.drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_046_close_accepts_nothing_by_itself() {
    on_shared(b_046).await;
}

async fn b_046(cluster: &Cluster) {
    let case = Case::new(cluster, "b-046", 1, &[]).await;
    case.produce(0, 3).await;
    let mut consumer = case.open().await;
    let mut batch = next(&mut consumer).await;
    batch.settle(0, Acknowledge::Accept).unwrap();
    // The second fails: the handler gives up, and with it the consumer.
    drop(batch);
    case.close(consumer).await;
    let mut other = case.other().build().await.unwrap();
    let batch = next(&mut other).await;
    assert_eq!(offsets(&batch), [1, 2]);
    batch.accept();
    assert!(other.close(SECOND).await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn b_047_renewal_never_replaces_a_terminal_acknowledgement() {
    on_shared(b_047).await;
}

async fn b_047(cluster: &Cluster) {
    let case = Case::new(cluster, "b-047", 1, &[]).await;
    case.produce(0, 2).await;
    let builder = case.builder().acknowledge_linger(200 * MS);
    let mut consumer = builder.build().await.unwrap();
    let mut batch = next(&mut consumer).await;
    batch.settle(0, Acknowledge::Accept).unwrap();
    let late = batch.settle(0, Acknowledge::Renew);
    assert_eq!(late, Err(SettleError::AlreadySettled { offset: 0 }));
    batch.settle(1, Acknowledge::Renew).unwrap();
    batch.settle(1, Acknowledge::Accept).unwrap();
    let report = consumer.commit().await.unwrap();
    assert_eq!(
        (of(&report, 0).accepted, of(&report, 0).failed_records),
        (2, 0)
    );
    case.drained().await;
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_048_outcomes_are_told_without_another_call() {
    on_shared(b_048).await;
}

async fn b_048(cluster: &Cluster) {
    let case = Case::new(cluster, "b-048", 3, &[]).await;
    for partition in 0..3 {
        case.produce(partition, 5).await;
    }
    let seen = Arc::new(Seen::default());
    let builder = case.builder().observer(Arc::clone(&seen) as _);
    let mut consumer = builder.build().await.unwrap();
    let mut left = 15;
    while left > 0 {
        let batch = next(&mut consumer).await;
        left -= batch.len();
        batch.accept();
    }
    // No commit, no poll.
    until("all outcomes", async || told(&seen, false).len() == 15).await;
    assert_eq!(told(&seen, true).len(), 0);
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_049_partition_whose_locks_ran_out_fails_alone() {
    on_shared(b_049).await;
}

async fn b_049(cluster: &Cluster) {
    let group = [
        ("share.record.lock.duration.ms", "3000"),
        ("share.renew.acknowledge.enable", "false"),
    ];
    let case = Case::new(cluster, "b-049", 2, &group).await;
    let mut consumer = case.open().await;
    case.produce(0, 5).await;
    let old = deliveries(&mut consumer, 5).await;
    until("half of the lock is over", async || {
        old[0].lock().deadline() - Instant::now() < 3 * SECOND / 2
    })
    .await;
    case.produce(1, 5).await;
    let young = deliveries(&mut consumer, 5).await;
    // The fifth of them came with a fetch of its own.
    let is_lost = |delivery: &Delivery| delivery.lock().lost().is_some();
    until("the older locks are lost", async || old.iter().all(is_lost)).await;
    for delivery in old.into_iter().chain(young) {
        drop(delivery.accept());
    }
    let report = consumer.commit().await.unwrap();
    assert_eq!(
        (of(&report, 0).accepted, of(&report, 0).failed_records),
        (0, 5)
    );
    assert_eq!(
        (of(&report, 1).accepted, of(&report, 1).failed_records),
        (5, 0)
    );
    assert_eq!(consumer.metrics().locks_lost, 5);
    // Never sent.
    assert_eq!(case.tap.count(|sent| sent.settles_of(0)), 0);
    case.close(consumer).await;
}
