//! The share consumer's promises, kept by the real driver against a model of a cluster in memory.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "paused/mod.rs"]
mod paused;

use std::collections::BTreeSet;
use std::sync::Arc;

use sharegroup_consumer::{
    AckFailure, Acknowledge, PollError, ReleaseReason, ShareEvent, ShareObserver,
};
use sharegroup_testkit::memory::Fault;
use sharegroup_testkit::model::Slot;
use sharegroup_wire::BrokerId;
use tokio::time::{Instant, sleep, timeout};

use paused::{
    ACKNOWLEDGE, API_VERSIONS, FETCH, MS, SECOND, Seen, accepted, available, builder, check_legal,
    cluster, next, offsets, open, up_to,
};

#[tokio::test(start_paused = true)]
async fn poll_accept_commit_close() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 10));
    let mut consumer = open(&cluster).await;
    let batch = next(&mut consumer).await;
    assert_eq!(offsets(&batch), up_to(10));
    assert_eq!(batch.record(3).unwrap().value, Some(&b"p0-3"[..]));
    assert_eq!(&**batch.topic(), "orders");
    batch.accept();
    let report = consumer.commit().await.unwrap();
    assert!(report.is_ok());
    assert_eq!(report.partitions.len(), 1);
    assert_eq!(report.partitions[0].accepted, 10);
    assert_eq!(accepted(&cluster, place), up_to(10));
    let report = consumer.close(5 * SECOND).await.unwrap();
    assert!(report.is_ok());
    assert!(consumer.poll().await.unwrap().is_none());
    cluster.model(|model| assert_eq!(model.members().count(), 0));
    assert_eq!(consumer.metrics().accepted, 10);
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn each_record_is_settled_as_it_was_said() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 6));
    let mut consumer = open(&cluster).await;
    let mut batch = next(&mut consumer).await;
    batch.settle(0, Acknowledge::Accept).unwrap();
    batch.settle(1, Acknowledge::Reject).unwrap();
    batch.settle(2, Acknowledge::Release).unwrap();
    batch.settle_indexes(3..5, Acknowledge::Accept).unwrap();
    assert!(batch.settle(4, Acknowledge::Accept).is_err());
    assert!(batch.settle(99, Acknowledge::Accept).is_err());
    assert_eq!(batch.unsettled(), 1);
    consumer.pause();
    let report = consumer.commit().await.unwrap();
    let partition = &report.partitions[0];
    assert_eq!(
        (partition.accepted, partition.rejected, partition.released),
        (3, 1, 1)
    );
    assert_eq!(accepted(&cluster, place), [0, 3, 4]);
    cluster.model(|model| {
        assert_eq!(model.slot(place, 1), Slot::Archived { exhausted: false });
        assert_eq!(model.slot(place, 2), Slot::Available);
        assert!(matches!(model.slot(place, 5), Slot::Acquired { .. }));
    });
    batch.accept();
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    assert_eq!(accepted(&cluster, place), [0, 3, 4, 5]);
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn t27_close_sends_finished_work_and_releases_the_rest() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 10));
    let mut consumer = open(&cluster).await;
    let mut batch = next(&mut consumer).await;
    batch.settle_indexes(0..4, Acknowledge::Accept).unwrap();
    let report = consumer.close(5 * SECOND).await.unwrap();
    assert_eq!(
        (report.partitions[0].accepted, report.partitions[0].released),
        (4, 6)
    );
    assert_eq!(accepted(&cluster, place), up_to(4));
    assert_eq!(available(&cluster, place), (4..10).collect::<Vec<_>>());
    // Too late: nothing of this may reach the broker.
    batch.accept();
    sleep(SECOND).await;
    assert_eq!(accepted(&cluster, place), up_to(4));
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn b_031_fetch_that_is_never_answered_ends_the_session_after_the_request_timeout() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 2));
    let mut consumer = builder(&cluster).records_held_max(2).build().await.unwrap();
    let mut batch = next(&mut consumer).await;
    cluster.faults(FETCH, [Fault::Silence]);
    // It rides on the fetch that the broker never answers.
    batch.settle(0, Acknowledge::Accept).unwrap();
    let started = Instant::now();
    assert!(timeout(SECOND, consumer.poll()).await.is_err());
    let report = consumer.commit().await.unwrap();
    assert!(
        started.elapsed() >= 29 * SECOND && started.elapsed() < 32 * SECOND,
        "{:?}",
        started.elapsed()
    );
    assert_eq!(report.partitions[0].failed[0].why, AckFailure::Unknown);
    drop(batch);
    let again = next(&mut consumer).await;
    assert_eq!(offsets(&again), [0, 1]);
    again.accept();
    assert!(consumer.close(5 * SECOND).await.unwrap().is_ok());
    assert_eq!(accepted(&cluster, place), [0, 1]);
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn b_033_close_wakes_at_once_from_an_idle_poll() {
    let (cluster, _) = cluster(1);
    let mut consumer = open(&cluster).await;
    assert!(timeout(10 * SECOND, consumer.poll()).await.is_err());
    let started = Instant::now();
    assert!(consumer.close(10 * SECOND).await.unwrap().is_ok());
    assert!(started.elapsed() < SECOND, "{:?}", started.elapsed());
    cluster.model(|model| assert_eq!(model.members().count(), 0));
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn b_035_nothing_is_sent_before_the_versions_are_known() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 1));
    cluster.faults(API_VERSIONS, [Fault::Delay(2 * SECOND); 4]);
    let mut consumer = open(&cluster).await;
    next(&mut consumer).await.accept();
    assert!(consumer.close(5 * SECOND).await.unwrap().is_ok());
    let arrivals = cluster.arrivals();
    let links: BTreeSet<_> = arrivals.iter().map(|arrival| arrival.link).collect();
    for link in links {
        let on_link: Vec<_> = arrivals
            .iter()
            .filter(|arrival| arrival.link == link)
            .collect();
        assert_eq!(on_link[0].api_key, API_VERSIONS);
        assert!(
            on_link
                .get(1)
                .is_none_or(|next| next.api_key != API_VERSIONS)
        );
    }
    // The first connection's answer took two seconds: nothing came in between.
    assert!(arrivals[1].link != arrivals[0].link || arrivals[1].at - arrivals[0].at >= 2 * SECOND);
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn b_038_acknowledgements_made_while_a_fetch_runs_are_all_sent() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 10));
    let mut consumer = open(&cluster).await;
    let mut batch = next(&mut consumer).await;
    cluster.faults(FETCH, [Fault::Delay(300 * MS)]);
    sleep(200 * MS).await;
    batch.settle(3, Acknowledge::Accept).unwrap();
    sleep(50 * MS).await;
    batch.settle(7, Acknowledge::Accept).unwrap();
    let report = consumer.commit().await.unwrap();
    assert_eq!(report.partitions[0].accepted, 2);
    assert_eq!(accepted(&cluster, place), [3, 7]);
    batch.accept();
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    assert_eq!(accepted(&cluster, place), up_to(10));
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn b_039_commit_after_one_that_was_given_up_has_its_own_result() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 4));
    let mut consumer = open(&cluster).await;
    let mut batch = next(&mut consumer).await;
    consumer.pause();
    sleep(SECOND).await;
    cluster.faults(ACKNOWLEDGE, [Fault::Delay(3 * SECOND)]);
    batch.settle_indexes(0..2, Acknowledge::Accept).unwrap();
    assert!(timeout(SECOND, consumer.commit()).await.is_err());
    batch.settle_indexes(2..4, Acknowledge::Accept).unwrap();
    let report = timeout(5 * SECOND, consumer.commit())
        .await
        .unwrap()
        .unwrap();
    assert!(report.is_ok());
    assert_eq!(accepted(&cluster, place), up_to(4));
    assert_eq!(consumer.metrics().accepted, 4);
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn b_041_connection_dropped_on_the_acknowledgement_fails_the_commit_and_polling_goes_on() {
    for fault in [Fault::Drop, Fault::DropAfter] {
        let (cluster, place) = cluster(1);
        cluster.model(|model| model.produce(place, 3));
        let mut consumer = open(&cluster).await;
        let batch = next(&mut consumer).await;
        consumer.pause();
        sleep(SECOND).await;
        cluster.faults(ACKNOWLEDGE, [fault]);
        batch.accept();
        let report = timeout(5 * SECOND, consumer.commit())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(report.partitions[0].failed_records, 3, "{fault:?}");
        assert_eq!(report.partitions[0].failed[0].why, AckFailure::Unknown);
        consumer.resume();
        cluster.model(|model| model.produce(place, 1));
        while accepted(&cluster, place) != up_to(4) {
            next(&mut consumer).await.accept();
            assert!(consumer.commit().await.unwrap().is_ok());
        }
        assert!(consumer.close(SECOND).await.unwrap().is_ok());
        check_legal(&cluster);
    }
}

#[tokio::test(start_paused = true)]
async fn b_044_producer_batch_above_the_poll_limit_is_delivered_whole_and_once() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 1000));
    let mut consumer = builder(&cluster)
        .max_poll_records(100)
        .build()
        .await
        .unwrap();
    let started = Instant::now();
    let mut seen = Vec::new();
    while seen.len() < 1000 {
        let batch = next(&mut consumer).await;
        assert!(batch.len() <= 100);
        assert!(batch.records().all(|record| record.delivery_count == 1));
        seen.extend(offsets(&batch));
        batch.accept();
    }
    assert_eq!(seen, up_to(1000));
    assert!(started.elapsed() < 10 * SECOND);
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    assert_eq!(accepted(&cluster, place).len(), 1000);
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn b_046_close_accepts_nothing_by_itself() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 3));
    let mut consumer = open(&cluster).await;
    let mut batch = next(&mut consumer).await;
    batch.settle(0, Acknowledge::Accept).unwrap();
    // The second fails: the handler gives up.
    drop(batch);
    assert!(consumer.close(5 * SECOND).await.unwrap().is_ok());
    assert_eq!(accepted(&cluster, place), [0]);
    assert_eq!(available(&cluster, place), [1, 2]);
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn b_048_outcomes_are_told_without_another_call() {
    let (cluster, _) = cluster(3);
    let seen = Seen::new();
    let places = cluster.model(|model| model.places());
    for place in &places {
        cluster.model(|model| model.produce(*place, 5));
    }
    let mut consumer = builder(&cluster)
        .observer(Arc::clone(&seen) as _)
        .build()
        .await
        .unwrap();
    for _ in 0..3 {
        next(&mut consumer).await.accept();
    }
    // No commit, no poll: only time.
    sleep(2 * SECOND).await;
    let mut confirmed = BTreeSet::new();
    for event in seen.events() {
        if let ShareEvent::Acknowledged { outcome, .. } = event {
            assert_eq!(outcome.result, Ok(()));
            for offset in outcome.first_offset..=outcome.last_offset {
                assert!(confirmed.insert((outcome.partition, offset)), "told once");
            }
        }
    }
    assert_eq!(confirmed.len(), 15);
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn b_112_no_request_is_sent_to_a_broker_that_throttles() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 1));
    let mut consumer = open(&cluster).await;
    let batch = next(&mut consumer).await;
    cluster.faults(FETCH, [Fault::Throttle(3 * SECOND)]);
    sleep(SECOND).await;
    batch.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    let arrivals = cluster.arrivals();
    let share: Vec<_> = arrivals
        .iter()
        .filter(|arrival| [FETCH, ACKNOWLEDGE].contains(&arrival.api_key))
        .map(|a| a.at)
        .collect();
    let longest = share
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .max()
        .unwrap();
    assert!(longest >= 3 * SECOND && longest < 4 * SECOND, "{longest:?}");
    assert!(consumer.close(5 * SECOND).await.unwrap().is_ok());
    assert_eq!(accepted(&cluster, place), [0]);
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn t5_a_slow_handler_costs_few_acknowledge_requests() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 1000));
    let mut consumer = open(&cluster).await;
    let mut done = 0;
    while done < 1000 {
        let mut batch = next(&mut consumer).await;
        for index in 0..batch.len() {
            sleep(5 * MS).await;
            batch
                .settle_indexes(index..index + 1, Acknowledge::Accept)
                .unwrap();
            done += 1;
        }
    }
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    assert_eq!(accepted(&cluster, place).len(), 1000);
    // Five seconds of handling with a linger of 10 ms: never one request per record.
    let requests = cluster.requests(ACKNOWLEDGE) + cluster.requests(FETCH);
    assert!(requests <= 520, "{requests} requests for 1000 records");
    check_legal(&cluster);
}

#[derive(Debug)]
struct Panics;

impl ShareObserver for Panics {
    fn event(&self, _: &ShareEvent) {
        panic!("an observer's own fault");
    }
}

#[tokio::test(start_paused = true)]
async fn t23_observer_that_panics_harms_nothing() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 10));
    let mut consumer = builder(&cluster)
        .observer(Arc::new(Panics))
        .build()
        .await
        .unwrap();
    next(&mut consumer).await.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    assert_eq!(accepted(&cluster, place), up_to(10));
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn t25_restart_of_the_leader_fails_acknowledgements_visibly_and_consumption_resumes() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 5));
    let mut consumer = open(&cluster).await;
    let batch = next(&mut consumer).await;
    consumer.pause();
    sleep(SECOND).await;
    cluster.restart(BrokerId(1));
    sleep(MS).await;
    assert!(batch.lock().lost().is_some());
    batch.accept();
    let report = consumer.commit().await.unwrap();
    assert_eq!(report.partitions[0].failed_records, 5);
    assert_eq!(accepted(&cluster, place), up_to(0));
    consumer.resume();
    let again = next(&mut consumer).await;
    assert_eq!(offsets(&again), up_to(5));
    again.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    assert_eq!(accepted(&cluster, place), up_to(5));
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn locks_are_renewed_while_a_handler_holds_a_batch_for_three_lock_times() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| {
        model.settings.lock = 10 * SECOND;
        model.produce(place, 5);
    });
    let mut consumer = open(&cluster).await;
    let batch = next(&mut consumer).await;
    let first_deadline = batch.lock().deadline();
    assert!(batch.lock().is_renewable());
    sleep(30 * SECOND).await;
    assert!(batch.lock().deadline() > first_deadline + 20 * SECOND);
    assert_eq!(batch.lock().lost(), None);
    batch.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    assert_eq!(accepted(&cluster, place), up_to(5));
    assert!(consumer.metrics().records_renewed >= 25);
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn refusal_of_renewal_wakes_whoever_waits_for_it() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| {
        model.settings.lock = 10 * SECOND;
        model.settings.renew_enabled = false;
        model.produce(place, 5);
    });
    let mut consumer = open(&cluster).await;
    let batch = next(&mut consumer).await;
    let lock = batch.lock();
    let acquired = Instant::now();
    timeout(9 * SECOND, lock.lost_or_refused()).await.unwrap();
    assert!(acquired.elapsed() >= 4 * SECOND);
    assert!(!lock.is_renewable());
    // What is done before the lock ends still counts.
    batch.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn dropped_batch_comes_again_after_a_delay_that_doubles() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 5));
    let mut consumer = open(&cluster).await;
    let mut batch = next(&mut consumer).await;
    for delay in [1, 2, 4] {
        drop(batch);
        let dropped = Instant::now();
        batch = next(&mut consumer).await;
        let waited = dropped.elapsed();
        assert!(
            waited >= delay * SECOND && waited < delay * SECOND + 700 * MS,
            "{waited:?} instead of {delay} s"
        );
        assert_eq!(offsets(&batch), up_to(5));
    }
    batch.accept();
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    assert_eq!(accepted(&cluster, place), up_to(5));
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn pause_acquires_nothing_and_resume_goes_on() {
    let (cluster, place) = cluster(1);
    let mut consumer = open(&cluster).await;
    consumer.pause();
    sleep(2 * SECOND).await;
    cluster.model(|model| model.produce(place, 5));
    assert!(timeout(60 * SECOND, consumer.poll()).await.is_err());
    assert_eq!(available(&cluster, place), up_to(5));
    consumer.resume();
    next(&mut consumer).await.accept();
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    assert_eq!(accepted(&cluster, place), up_to(5));
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn consumer_that_is_dropped_leaves_by_itself() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 5));
    let mut consumer = open(&cluster).await;
    let batch = next(&mut consumer).await;
    drop(consumer);
    sleep(SECOND).await;
    cluster.model(|model| assert_eq!(model.members().count(), 0));
    assert_eq!(available(&cluster, place), up_to(5));
    drop(batch);
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn b_018_corrupt_batch_is_yielded_and_its_neighbours_are_delivered() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| {
        model.produce(place, 3);
        // A record batch whose checksum is wrong (FX-P).
        let hex = "0000000000000003000000 3a0000000002716a618800000000000000000000000003e8\
                   00000000000003e8ffffffffffffffffffffffffffff0000000110000000026b027600"
            .replace(' ', "");
        let bytes: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect();
        model.produce_bytes(place, 1, bytes.into());
        model.produce(place, 3);
    });
    let mut consumer = open(&cluster).await;
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    while good.len() + bad.len() < 7 {
        match timeout(30 * SECOND, consumer.poll())
            .await
            .expect("in time")
        {
            Ok(Some(batch)) => {
                good.extend(offsets(&batch));
                batch.accept();
            }
            Err(PollError::CorruptBatch(corrupt)) => {
                bad.extend(corrupt.first_offset()..=corrupt.last_offset());
                corrupt.reject();
            }
            other => panic!("{other:?}"),
        }
    }
    good.sort_unstable();
    assert_eq!((good, bad), (vec![0, 1, 2, 4, 5, 6], vec![3]));
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    assert_eq!(accepted(&cluster, place), [0, 1, 2, 4, 5, 6]);
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn transaction_markers_are_settled_although_nothing_is_delivered() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| {
        model.produce_marker(place);
        model.produce_hole(place, 3);
        model.produce_marker(place);
    });
    let mut consumer = open(&cluster).await;
    assert!(timeout(5 * SECOND, consumer.poll()).await.is_err());
    cluster.model(|model| assert_eq!(model.start_offset(place), 5));
    assert_eq!(consumer.metrics().gaps, 5);
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn t3_second_member_takes_nothing_away_from_the_first() {
    let (cluster, _) = cluster(2);
    let places = cluster.model(|model| model.places());
    for place in &places {
        cluster.model(|model| model.produce(*place, 50));
    }
    let mut first = open(&cluster).await;
    let mut batches = vec![next(&mut first).await, next(&mut first).await];
    assert_eq!(batches.iter().map(|batch| batch.len()).sum::<usize>(), 100);
    let mut second = open(&cluster).await;
    // Both know the new assignment by now.
    sleep(20 * SECOND).await;
    assert!(timeout(SECOND, second.poll()).await.is_err());
    for batch in batches.drain(..) {
        assert_eq!(batch.lock().lost(), None);
        batch.accept();
    }
    assert!(first.commit().await.unwrap().is_ok());
    for place in &places {
        assert_eq!(accepted(&cluster, *place), up_to(50));
    }
    assert_eq!(second.metrics().records_acquired, 0);
    assert!(first.close(SECOND).await.unwrap().is_ok());
    assert!(second.close(SECOND).await.unwrap().is_ok());
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn b_032_commit_with_a_record_in_hand_waits_for_no_long_poll() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 2));
    let mut consumer = open(&cluster).await;
    let mut batch = next(&mut consumer).await;
    sleep(10 * SECOND).await;
    for offset in 0..2 {
        batch.settle(offset, Acknowledge::Accept).unwrap();
        let started = Instant::now();
        assert!(consumer.commit().await.unwrap().is_ok());
        assert!(started.elapsed() < 10 * MS, "{:?}", started.elapsed());
    }
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn idle_member_asks_about_twice_a_second() {
    let (cluster, _) = cluster(1);
    let mut consumer = open(&cluster).await;
    sleep(10 * SECOND).await;
    let before = cluster.arrivals().len();
    sleep(60 * SECOND).await;
    let requests = cluster.arrivals().len() - before;
    assert!(requests <= 140, "{requests} requests in an idle minute");
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn member_that_holds_records_for_long_asks_rarely() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 5));
    let mut consumer = open(&cluster).await;
    let batch = next(&mut consumer).await;
    sleep(10 * SECOND).await;
    let before = cluster.arrivals().len();
    sleep(60 * SECOND).await;
    let requests = cluster.arrivals().len() - before;
    // Five fetches a second, a renewal every 15 s, a heartbeat every 5 s.
    assert!(requests <= 330, "{requests} requests in a minute");
    batch.accept();
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_without_renewal_costs_each_record_one_delivery() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| {
        model.settings.renew_enabled = false;
        model.produce(place, 10);
    });
    let mut consumer = open(&cluster).await;
    for hang in 1..=3 {
        let batch = next(&mut consumer).await;
        sleep(200 * SECOND).await;
        cluster.model(|model| assert_eq!(model.delivery_count(place, 0), hang));
        // Too late: reported, and a sign of life.
        let late = batch.len() as u64;
        batch.accept();
        let report = consumer.commit().await.unwrap();
        assert_eq!(report.partitions[0].failed_records, late);
    }
    let mut accepted_now = 0;
    while accepted_now < 10 {
        let batch = next(&mut consumer).await;
        accepted_now += batch.len();
        batch.accept();
    }
    assert!(consumer.close(5 * SECOND).await.unwrap().is_ok());
    assert_eq!(accepted(&cluster, place), up_to(10));
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn an_application_that_waits_for_records_is_alive_though_a_lock_ran_out() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| {
        model.settings.renew_enabled = false;
        model.produce(place, 1);
    });
    let mut consumer = open(&cluster).await;
    let forgotten = next(&mut consumer).await;
    let again = next(&mut consumer).await;
    assert_eq!(offsets(&again), [0]);
    assert_eq!(again.record(0).unwrap().delivery_count, 2);
    again.accept();
    drop(forgotten);
    assert!(consumer.close(5 * SECOND).await.unwrap().is_ok());
    assert_eq!(accepted(&cluster, place), [0]);
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn records_are_told_when_they_arrive_and_when_they_leave_unseen() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 10));
    let seen = Seen::new();
    let builder = builder(&cluster).max_poll_records(2);
    let mut consumer = builder.observer(seen.clone()).build().await.unwrap();
    let in_hand = next(&mut consumer).await;
    cluster.model(|model| model.produce(place, 5));
    sleep(SECOND).await;
    assert!(consumer.close(5 * SECOND).await.unwrap().is_ok());
    drop(in_hand);
    let (mut arrived, mut left) = (0, Vec::new());
    for event in seen.events() {
        match event {
            ShareEvent::Acquired {
                topic,
                partition,
                ranges,
            } => {
                assert_eq!((&*topic, partition), ("orders", 0));
                assert!(ranges.iter().all(|range| range.delivery_count == 1));
                let offsets = ranges.iter().map(|r| r.last_offset - r.first_offset + 1);
                arrived += offsets.sum::<i64>();
            }
            ShareEvent::Released { release, .. } => {
                left.push((release.first_offset, release.last_offset, release.why))
            }
            _ => {}
        }
    }
    assert_eq!(arrived, 4, "few, where they are taken one by one");
    left.sort_unstable_by_key(|(first, ..)| *first);
    let unseen = ReleaseReason::Unseen;
    assert_eq!(left.remove(0), (0, 1, ReleaseReason::Closing));
    assert!(left.iter().all(|(_, _, why)| *why == unseen), "{left:?}");
    assert_eq!(left.iter().map(|(a, b, _)| b - a + 1).sum::<i64>(), 2);
    assert_eq!(available(&cluster, place), up_to(15));
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn an_acceptance_that_is_not_confirmed_is_counted() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 10));
    let mut consumer = open(&cluster).await;
    let mut batch = next(&mut consumer).await;
    consumer.pause();
    cluster.faults(ACKNOWLEDGE, [Fault::DropAfter]);
    batch.settle_indexes(0..6, Acknowledge::Accept).unwrap();
    batch.settle_indexes(6..8, Acknowledge::Release).unwrap();
    assert!(!consumer.commit().await.unwrap().is_ok());
    assert_eq!(consumer.metrics().accepts_unconfirmed, 6);
    drop(batch);
    assert!(consumer.close(5 * SECOND).await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_problem_is_shown_until_it_is_over() {
    let (cluster, place) = cluster(1);
    let mut consumer = open(&cluster).await;
    cluster.model(|model| model.produce(place, 1));
    next(&mut consumer).await.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    assert_eq!(consumer.status().problem, None);
    (1..=3).for_each(|broker| {
        cluster.set_down(BrokerId(broker), true);
        cluster.cut(BrokerId(broker));
    });
    assert!(timeout(20 * SECOND, consumer.poll()).await.is_err());
    let problem = consumer.status().problem.unwrap();
    assert!(problem.contains("refused"), "{problem}");
    (1..=3).for_each(|broker| cluster.set_down(BrokerId(broker), false));
    assert!(timeout(30 * SECOND, consumer.poll()).await.is_err());
    assert_eq!(consumer.status().problem, None);
    assert!(consumer.close(5 * SECOND).await.unwrap().is_ok());
}
