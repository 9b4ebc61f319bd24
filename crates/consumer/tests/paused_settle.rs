//! What is settled too late, after the end, or by nobody.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "paused/mod.rs"]
mod paused;

use std::cell::Cell;
use std::future::{Ready, ready};

use sharegroup_consumer::{
    AckFailure, Acknowledge, Acknowledgement, Delivery, FailedRange, MemberState, Outcome,
    ShareStatus,
};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use paused::{
    SECOND, accepted, available, builder, check_legal, cluster, next, offsets, open, up_to,
};

fn failed(ranges: &[FailedRange]) -> Vec<(i64, i64, Acknowledgement, AckFailure)> {
    let parts = |range: &FailedRange| {
        assert!(!range.may_have_counted());
        (range.first_offset, range.last_offset, range.how, range.why)
    };
    ranges.iter().map(parts).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_settled_after_close_is_reported() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 10));
    let mut consumer = builder(&cluster).max_poll_records(9).build().await.unwrap();
    let mut batch = next(&mut consumer).await;
    let delivery = consumer.next().await.unwrap().unwrap();
    batch.settle(0, Acknowledge::Accept).unwrap();
    let (of_batch, of_delivery) = (batch.lock(), delivery.lock());
    assert!(of_batch.is_renewable() && of_batch.lost().is_none());
    assert!(consumer.close(5 * SECOND).await.unwrap().is_ok());
    assert_eq!(of_batch.lost(), Some(AckFailure::SessionEnded));
    assert_eq!(of_delivery.lost(), Some(AckFailure::SessionEnded));
    assert!(!of_batch.is_renewable() && !of_delivery.is_renewable());
    of_batch.lost_or_refused().await;

    batch.settle(3, Acknowledge::Reject).unwrap();
    batch.accept();
    let confirmed = delivery.accept().await;
    assert_eq!(confirmed, Err(AckFailure::SessionEnded));
    let report = consumer.close(5 * SECOND).await.unwrap();
    let (accept, ended) = (Acknowledgement::Accept, AckFailure::SessionEnded);
    assert_eq!(
        failed(&report.partitions[0].failed),
        [
            (3, 3, Acknowledgement::Reject, ended),
            (1, 2, accept, ended),
            (4, 8, accept, ended),
            (9, 9, accept, ended),
        ]
    );
    assert_eq!(consumer.metrics().accepts_unconfirmed, 8);
    assert!(consumer.close(SECOND).await.unwrap().is_ok(), "told once");
    assert_eq!(accepted(&cluster, place), [0]);
    assert_eq!(available(&cluster, place), up_to(10)[1..]);
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn what_is_accepted_after_the_member_left_unpolled_is_unconfirmed() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 10));
    let builder = builder(&cluster).max_poll_interval(Some(10 * SECOND));
    let mut consumer = builder.build().await.unwrap();
    let mut batch = next(&mut consumer).await;
    assert!(!consumer.status().not_polled);
    sleep(12 * SECOND).await;
    let status = consumer.status();
    assert!(status.not_polled && status.state == MemberState::Left);
    batch.settle_indexes(0..4, Acknowledge::Release).unwrap();
    batch.accept();
    let report = consumer.commit().await.unwrap();
    let ended = AckFailure::SessionEnded;
    assert_eq!(
        failed(&report.partitions[0].failed),
        [
            (0, 3, Acknowledgement::Release, ended),
            (4, 9, Acknowledgement::Accept, ended),
        ]
    );
    let metrics = consumer.metrics();
    assert_eq!((metrics.accepts_unconfirmed, metrics.locks_lost), (6, 10));
    // The next poll joins again, and has what was given up.
    next(&mut consumer).await.accept();
    let mut status = consumer.watch_status();
    status.wait_for(|status| !status.not_polled).await.unwrap();
    assert!(consumer.close(5 * SECOND).await.unwrap().is_ok());
    let status = consumer.status();
    assert!(!status.not_polled && status.state == MemberState::Left);
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn a_monitor_sees_what_a_loop_does_that_has_the_consumer() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 10));
    let mut consumer = open(&cluster).await;
    let (monitor, started, go_on) = (consumer.monitor(), Notify::new(), Notify::new());
    let handled = consumer.concurrent(10).until(async {
        started.notified().await;
        let mut status = monitor.watch_status();
        let in_group = |status: &ShareStatus| status.state == MemberState::Stable;
        status.wait_for(in_group).await.unwrap();
        assert_eq!(monitor.metrics().records_acquired, 10);
        go_on.notify_waiters();
    });
    let handler = async |delivery: &Delivery| {
        let let_go = go_on.notified();
        if delivery.record().offset == 9 {
            started.notify_one();
        }
        let_go.await;
        Outcome::Accept
    };
    let handled = timeout(60 * SECOND, handled.for_each(handler)).await;
    handled.expect("seen in time").unwrap();
    assert!(consumer.close(5 * SECOND).await.unwrap().is_ok());
    assert_eq!(monitor.status().state, MemberState::Left);
    assert_eq!(monitor.metrics().accepted, 10);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_before_it_returns_its_future_gets_its_record_again() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 3));
    let mut consumer = open(&cluster).await;
    let (done, all) = (Cell::new(0), Notify::new());
    let handler = |delivery: &Delivery| -> Ready<Outcome> {
        let record = delivery.record();
        if record.offset == 1 && record.delivery_count == 1 {
            panic!("as a handler with a fault does");
        }
        done.set(done.get() + 1);
        if done.get() == 3 {
            all.notify_one();
        }
        ready(Outcome::Accept)
    };
    let handled = consumer.concurrent(2).until(all.notified());
    let handled = timeout(60 * SECOND, handled.for_each(handler)).await;
    handled.expect("all in time").unwrap();
    assert!(consumer.close(5 * SECOND).await.unwrap().is_ok());
    assert_eq!(accepted(&cluster, place), [0, 1, 2]);
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn one_record_more_than_is_held_is_acquired_and_then_nothing_until_told() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 2));
    let mut consumer = open(&cluster).await;
    let held = next(&mut consumer).await;
    consumer.pause();
    cluster.model(|model| model.produce(place, 50));
    assert!(timeout(60 * SECOND, consumer.poll()).await.is_err());
    for offset in [2, 3] {
        consumer.acquire_one();
        let one = next(&mut consumer).await;
        assert_eq!(offsets(&one), [offset]);
        assert!(timeout(60 * SECOND, consumer.poll()).await.is_err());
        one.accept();
        consumer.pause();
        assert!(consumer.commit().await.unwrap().is_ok());
    }
    held.accept();
    consumer.resume();
    assert!(next(&mut consumer).await.len() > 1);
    check_legal(&cluster);
}
