//! Drivers that end, brokers that go silent, members that vanish: nothing is lost, nothing hangs. (Futures that are
//! dropped: `tests/cancel`.)
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "paused/mod.rs"]
mod paused;

use std::collections::BTreeMap;

use sharegroup_consumer::{FatalError, OpenError, PollError};
use sharegroup_testkit::memory::{Fault, MemoryCluster};
use sharegroup_wire::{BrokerId, ErrorCode};
use tokio::time::{Instant, sleep, timeout};

use paused::{
    ACKNOWLEDGE, API_VERSIONS, FETCH, HEARTBEAT, SECOND, accepted, available, builder, check_legal,
    cluster, next, offsets, open,
};

/// No delivery was settled twice.
fn check_settled_once(cluster: &MemoryCluster) {
    let mut settled = BTreeMap::new();
    cluster.model(|model| {
        for applied in model
            .history()
            .applied
            .iter()
            .filter(|applied| applied.acknowledge_type != 4)
        {
            *settled.entry(applied.delivery).or_insert(0) += 1;
        }
    });
    assert!(settled.values().all(|count| *count == 1));
}

#[tokio::test(start_paused = true)]
async fn close_gives_up_at_its_deadline_when_the_broker_is_silent() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 10));
    let mut consumer = open(&cluster).await;
    let batch = next(&mut consumer).await;
    consumer.pause();
    sleep(SECOND).await;
    cluster.faults(ACKNOWLEDGE, [Fault::Silence]);
    batch.accept();
    let started = Instant::now();
    let report = consumer.close(2 * SECOND).await.unwrap();
    assert!(
        started.elapsed() >= 2 * SECOND && started.elapsed() < 3 * SECOND,
        "{:?}",
        started.elapsed()
    );
    assert_eq!(report.partitions[0].failed_records, 10);
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn close_gives_up_at_its_deadline_when_every_broker_is_gone() {
    let (cluster, _) = cluster(3);
    let mut consumer = open(&cluster).await;
    sleep(2 * SECOND).await;
    for broker in 1..=3 {
        cluster.set_down(BrokerId(broker), true);
        cluster.cut(BrokerId(broker));
    }
    let started = Instant::now();
    assert!(consumer.close(2 * SECOND).await.unwrap().is_ok());
    assert!(started.elapsed() <= 3 * SECOND, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn fatal_refusal_is_told_by_poll_and_hangs_no_other_call() {
    let (cluster, place) = cluster(1);
    cluster.model(|model| model.produce(place, 10));
    let mut consumer = open(&cluster).await;
    let batch = next(&mut consumer).await;
    cluster.model(|model| {
        model
            .refusals
            .insert(HEARTBEAT, [ErrorCode::InvalidRequest].into())
    });
    let failed = timeout(20 * SECOND, async {
        loop {
            match consumer.poll().await {
                Ok(Some(_)) => {}
                other => break other,
            }
        }
    });
    assert!(matches!(
        failed.await.unwrap(),
        Err(PollError::Fatal(FatalError::Refused { .. }))
    ));
    batch.accept();
    // Nothing was sent: that must not look like a success.
    let committed = timeout(10 * SECOND, consumer.commit()).await;
    assert!(matches!(
        committed.expect("commit hangs"),
        Err(PollError::Fatal(_))
    ));
    assert!(
        timeout(10 * SECOND, consumer.poll())
            .await
            .unwrap()
            .unwrap()
            .is_none()
    );
    assert!(
        timeout(10 * SECOND, consumer.close(SECOND)).await.is_ok(),
        "close hangs"
    );
    // What it held is free again: its connection is gone.
    sleep(SECOND).await;
    assert_eq!(available(&cluster, place).len(), 10);
}

#[test]
fn driver_whose_runtime_ends_is_told_as_a_fault_and_hangs_nothing() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
    };
    let (cluster, _) = cluster(1);
    let first = runtime();
    let mut consumer = first.block_on(open(&cluster));
    drop(first);
    runtime().block_on(async {
        assert!(matches!(
            timeout(10 * SECOND, consumer.poll()).await,
            Ok(Err(PollError::Bug))
        ));
        let committed = timeout(10 * SECOND, consumer.commit()).await;
        assert!(matches!(
            committed.expect("commit hangs"),
            Err(PollError::Bug)
        ));
        assert!(
            timeout(10 * SECOND, consumer.close(SECOND)).await.is_ok(),
            "close hangs"
        );
    });
}

#[tokio::test(start_paused = true)]
async fn unreachable_cluster_is_named_after_the_startup_timeout() {
    let (cluster, _) = cluster(1);
    cluster.set_down(BrokerId(1), true);
    let started = Instant::now();
    let error = builder(&cluster)
        .startup_timeout(10 * SECOND)
        .build()
        .await
        .unwrap_err();
    assert!(started.elapsed() >= 10 * SECOND && started.elapsed() < 11 * SECOND);
    let text = error.to_string();
    assert!(matches!(error, OpenError::NotJoined { .. }));
    assert!(
        text.contains("broker-1:9092") && text.contains("refused"),
        "{text}"
    );
    assert!(!text.contains("retrying"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn silent_cluster_is_told_from_one_that_refuses() {
    let (cluster, _) = cluster(1);
    cluster.faults(API_VERSIONS, vec![Fault::Silence; 100]);
    for (timeout, silence) in [(3 * SECOND, "no answer"), (30 * SECOND, "did not answer")] {
        let builder = builder(&cluster).startup_timeout(timeout);
        let text = builder.build().await.unwrap_err().to_string();
        assert!(text.contains(silence), "{text}");
        assert!(
            !text.contains("refused") && !text.contains("retrying"),
            "{text}"
        );
        // Durations as people say them.
        let long = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
        assert!(
            long.into_iter()
                .all(|word| !(word.ends_with('s') && word.contains('.'))),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn share_groups_that_are_off_are_told_at_once_with_advice() {
    let (cluster, _) = cluster(1);
    cluster.model(|model| model.settings.share_groups_on = false);
    let started = Instant::now();
    let error = builder(&cluster).build().await.unwrap_err();
    assert!(started.elapsed() < 5 * SECOND);
    let text = error.to_string();
    assert!(
        text.contains("share.version") && text.contains("--bootstrap-server broker-1:9092 upgrade"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn two_consumers_share_a_partition_and_lose_nothing_when_one_vanishes() {
    let (cluster, place) = cluster(1);
    let mut first = builder(&cluster)
        .records_held_max(10)
        .build()
        .await
        .unwrap();
    cluster.model(|model| {
        for _ in 0..20 {
            model.produce(place, 5);
        }
    });
    let lost = next(&mut first).await;
    let mut second = open(&cluster).await;
    // The first is cut off for good.
    cluster.faults(FETCH, [Fault::None]);
    drop(first);
    drop(lost);
    let mut seen = Vec::new();
    while accepted(&cluster, place).len() < 100 {
        let batch = next(&mut second).await;
        seen.extend(offsets(&batch));
        batch.accept();
        assert!(second.commit().await.unwrap().is_ok());
    }
    assert!(second.close(SECOND).await.unwrap().is_ok());
    check_settled_once(&cluster);
    check_legal(&cluster);
}
