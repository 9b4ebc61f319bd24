//! Membership and share sessions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::{
    AckFailure, Acknowledge, FatalError, OpenError, ShareConsumer, ShareEvent, Warning,
};
use sharegroup_wire::ErrorCode;
use sharegroup_wire::id::{MemberEpoch, SessionEpoch};
use sharegroup_wire::message::share_fetch::{ShareFetchRequest, ShareFetchResponse};
use sharegroup_wire::message::share_group_heartbeat::{
    ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
};
use tokio::time::{Instant, timeout};

use crate::both::{Cluster, on_shared, on_three};
use crate::case::{
    API_VERSIONS, Case, DESCRIBE_CONFIGS, FETCH, METADATA, MS, SECOND, Seen, next, nothing_for,
    offsets, until, up_to,
};
use crate::tap::{Fault, Sent};

fn opens(sent: &Sent) -> bool {
    let fetch: Option<ShareFetchRequest> = sent.read();
    fetch.is_some_and(|fetch| fetch.share_session_epoch == SessionEpoch::OPEN)
}

#[tokio::test(flavor = "multi_thread")]
async fn group_settings_are_waited_for_on_each_broker_by_a_client_that_has_just_begun() {
    on_three(group_settings).await;
}

async fn group_settings(cluster: &Cluster) {
    let case = Case::without_topic(cluster, "settings", &[]).await;
    let admin = Admin::new(case.config());
    let set = admin.set_group_config(case.name, "share.record.lock.duration.ms", "2000");
    set.await.unwrap();
    let sent = case.tap.sent().into_iter();
    let looks = sent.filter(|sent| sent.api_key == DESCRIBE_CONFIGS);
    let asked: BTreeSet<_> = looks.map(|sent| sent.address).collect();
    assert_eq!(asked.len(), 3, "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b_026_epoch_0_never_carries_acknowledgements() {
    on_shared(b_026).await;
}

async fn b_026(cluster: &Cluster) {
    let case = Case::new(cluster, "b-026", 1, &[]).await;
    case.produce(0, 10).await;
    let mut consumer = case.open().await;
    let batch = next(&mut consumer).await;
    // The connection breaks on the first acknowledgement; what is settled behind it waits for it.
    case.tap
        .on(1, |sent| sent.settles().then_some(Fault::CutBefore));
    batch.accept();
    let report = consumer.commit().await.unwrap();
    assert_eq!(report.partitions[0].failed_records, 10);
    let again = next(&mut consumer).await;
    assert_eq!(offsets(&again), up_to(10));
    again.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    assert_eq!(case.tap.count(opens), 2);
    // That none of them carried anything is among what is looked at here.
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_027_full_broker_is_asked_again_with_backoff_and_one_warning() {
    on_shared(b_027).await;
}

async fn b_027(cluster: &Cluster) {
    let case = Case::new(cluster, "b-027", 1, &[]).await;
    case.produce(0, 1).await;
    case.tap.on(5, |sent| {
        let full = ShareFetchResponse {
            error_code: ErrorCode::ShareSessionLimitReached,
            ..Default::default()
        };
        opens(sent).then(|| sent.answered::<ShareFetchRequest>(&full))
    });
    let seen = Arc::new(Seen::default());
    let builder = case.builder().observer(Arc::clone(&seen) as _);
    let mut consumer = builder.build().await.unwrap();
    next(&mut consumer).await.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    let sent = case.tap.sent();
    let opened: Vec<_> = sent.iter().filter(|sent| opens(sent)).collect();
    assert!(opened.len() >= 6, "{opened:?}");
    let is_paced = |pair: &[&Sent]| pair[1].at - pair[0].at >= 100 * MS;
    assert!(opened.windows(2).all(is_paced), "{opened:?}");
    // The coordinator of a fresh cluster may have been waited for.
    let is_of_session = |event: &ShareEvent| matches!(event, ShareEvent::Warning(Warning::Retrying { what, .. }) if what.contains("share session"));
    assert_eq!(seen.count(is_of_session), 1, "{:?}", seen.events());
    case.close(consumer).await;
}

/// Where fetches go, and whether the partition is still among those of the session.
fn fetches_to<'a>(
    sent: &'a [Sent],
    address: &'a str,
) -> impl Iterator<Item = ShareFetchRequest> + 'a {
    sent.iter()
        .filter(move |sent| sent.address == address)
        .filter_map(Sent::read)
}

#[tokio::test(flavor = "multi_thread")]
async fn b_028_old_leader_is_told_that_the_partition_left() {
    on_three(b_028).await;
}

async fn b_028(cluster: &Cluster) {
    let case = Case::new(cluster, "b-028", 1, &[]).await;
    let mut consumer = case.open().await;
    nothing_for(&mut consumer, MS).await;
    until("a session", async || {
        case.tap.count(|sent| sent.api_key == FETCH) > 1
    })
    .await;
    let topic = case.admin.find_topic(case.name).await.unwrap().unwrap();
    let old = topic.partitions[0].leader.unwrap().0;
    let sent = case.tap.sent();
    let address = sent
        .iter()
        .find(|sent| sent.api_key == FETCH)
        .unwrap()
        .address
        .clone();
    // The topic is idle meanwhile.
    cluster.move_partition(case.name, 0, 1 + old % 3).await;
    until("the old leader is told", async || {
        let sent = case.tap.sent();
        let last = sent
            .iter()
            .rfind(|sent| sent.address == address && sent.is_of_session());
        last.is_some_and(Sent::forgets_or_closes)
    })
    .await;
    let told = case.tap.sent().len();
    case.produce(0, 5).await;
    let batch = next(&mut consumer).await;
    assert_eq!(offsets(&batch), up_to(5));
    batch.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    let sent = case.tap.sent();
    let later = fetches_to(&sent[told..], &address);
    let again = later.filter(|fetch| !fetch.topics.is_empty()).count();
    assert_eq!(again, 0, "fetched from the old leader again");
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_029_member_that_is_out_joins_again_with_its_id_and_keeps_what_it_holds() {
    on_shared(b_029).await;
}

async fn b_029(cluster: &Cluster) {
    let case = Case::new(cluster, "b-029", 1, &[]).await;
    case.produce(0, 10).await;
    let seen = Arc::new(Seen::default());
    let builder = case.builder().observer(Arc::clone(&seen) as _);
    let mut consumer = builder.build().await.unwrap();
    let batch = next(&mut consumer).await;
    for (number, error) in [
        ErrorCode::FencedMemberEpoch,
        ErrorCode::UnknownMemberId,
        ErrorCode::GroupIdNotFound,
    ]
    .into_iter()
    .enumerate()
    {
        case.tap
            .answers::<ShareGroupHeartbeatRequest>(move |answer| {
                let is_joined = answer.error_code == ErrorCode::None;
                *answer = refused(error);
                is_joined
            });
        until("a second join", async || seen.joins() == number + 2).await;
    }
    let heartbeats = case.tap.bodies::<ShareGroupHeartbeatRequest>();
    let joins: Vec<_> = heartbeats
        .iter()
        .filter(|heartbeat| heartbeat.member_epoch == MemberEpoch::JOIN)
        .collect();
    assert_eq!(joins.len(), 4);
    assert!(joins.iter().all(|join| *join == joins[0]), "{joins:?}");
    assert_eq!(
        joins[0].subscribed_topic_names,
        Some(vec![case.name.to_owned()])
    );
    // Sessions and what is held went on.
    assert_eq!(case.tap.count(opens), 1);
    assert_eq!(batch.lock().lost(), None);
    batch.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    case.close(consumer).await;
}

fn refused(error_code: ErrorCode) -> ShareGroupHeartbeatResponse {
    ShareGroupHeartbeatResponse {
        error_code,
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b_029_group_id_of_another_kind_of_group_is_fatal() {
    on_shared(async |cluster| {
        let case = Case::new(cluster, "b-029-taken", 1, &[]).await;
        case.tap.answers::<ShareGroupHeartbeatRequest>(|answer| {
            *answer = refused(ErrorCode::GroupIdNotFound);
            true
        });
        let error = case.builder().build().await.unwrap_err();
        let group_id = case.name.to_owned();
        assert_eq!(
            error,
            OpenError::Fatal(FatalError::GroupIdTaken { group_id })
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_031_fetch_that_is_never_answered_ends_the_session_after_the_request_timeout() {
    on_shared(b_031).await;
}

async fn b_031(cluster: &Cluster) {
    let case = Case::new(cluster, "b-031", 1, &[]).await;
    case.produce(0, 2).await;
    let mut config = case.config();
    config.request_timeout = 3 * SECOND;
    let builder = ShareConsumer::builder_with(config);
    let builder = builder.group_id(case.name).topics([case.name]);
    let mut consumer = builder.records_held_max(2).build().await.unwrap();
    let mut batch = next(&mut consumer).await;
    // The acknowledgement rides on the fetch, or goes alone: neither gets an answer.
    case.tap
        .on(1, |sent| sent.settles().then_some(Fault::Withhold));
    batch.settle(0, Acknowledge::Accept).unwrap();
    let started = Instant::now();
    let polled = timeout(SECOND, consumer.poll()).await;
    assert!(
        polled.is_err() && started.elapsed() < 2 * SECOND,
        "{polled:?}"
    );
    let report = consumer.commit().await.unwrap();
    let took = started.elapsed();
    assert!(took >= 5 * SECOND / 2 && took < 6 * SECOND, "{took:?}");
    assert_eq!(report.partitions[0].failed[0].why, AckFailure::Unknown);
    assert!(batch.lock().lost().is_some());
    drop(batch);
    // The broker had taken it: what comes again is the other one.
    let again = next(&mut consumer).await;
    assert_eq!(offsets(&again), [1]);
    assert_eq!(case.tap.count(opens), 2);
    again.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_032_commit_with_a_record_in_hand_waits_for_no_long_poll() {
    on_shared(async |cluster| {
        for (name, wait) in [("b-032", None), ("b-032-long", Some(5 * SECOND))] {
            b_032(cluster, name, wait).await;
        }
    })
    .await;
}

async fn b_032(cluster: &Cluster, name: &'static str, wait: Option<Duration>) {
    let case = Case::new(cluster, name, 1, &[]).await;
    case.produce(0, 2).await;
    let mut builder = case.builder();
    if let Some(wait) = wait {
        builder = builder.fetch_max_wait(wait);
    }
    let mut consumer = builder.build().await.unwrap();
    let mut batch = next(&mut consumer).await;
    for offset in 0..2 {
        let fetches = consumer.metrics().fetches;
        until("a fetch with a record in hand", async || {
            consumer.metrics().fetches > fetches
        })
        .await;
        batch.settle(offset, Acknowledge::Accept).unwrap();
        let started = Instant::now();
        assert!(consumer.commit().await.unwrap().is_ok());
        assert!(started.elapsed() < 500 * MS, "{:?}", started.elapsed());
    }
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_033_close_wakes_at_once_from_an_idle_poll() {
    on_shared(b_033).await;
}

async fn b_033(cluster: &Cluster) {
    let case = Case::new(cluster, "b-033", 1, &[]).await;
    let mut consumer = case.open().await;
    case.members(1).await;
    let idle = timeout(60 * SECOND, consumer.poll());
    let parked = until("a parked fetch", async || {
        let parks = |sent: &Sent| {
            sent.read::<ShareFetchRequest>()
                .is_some_and(|fetch| fetch.max_wait_ms > 0)
        };
        case.tap.count(parks) > 0
    });
    tokio::select! {
        polled = idle => panic!("{polled:?}"),
        () = parked => {}
    }
    let started = Instant::now();
    case.close(consumer).await;
    assert!(started.elapsed() < SECOND, "{:?}", started.elapsed());
    case.members(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_034_recreated_topic_is_consumed_and_old_acknowledgements_fail_at_once() {
    on_shared(b_034).await;
}

async fn b_034(cluster: &Cluster) {
    let case = Case::new(cluster, "b-034", 1, &[]).await;
    case.produce(0, 3).await;
    let mut consumer = case.open().await;
    let batch = next(&mut consumer).await;
    assert_eq!(batch.len(), 3);
    let old = batch.topic_id();
    let (started, asked) = (Instant::now(), metadata(&case));
    case.admin.delete_topic(case.name).await.unwrap();
    case.create_topic(case.name, 1).await;
    let settled = Instant::now();
    batch.accept();
    let report = consumer.commit().await.unwrap();
    assert!(settled.elapsed() < SECOND, "{:?}", settled.elapsed());
    let failed = &report.partitions[0].failed;
    assert_eq!(failed[0].why, AckFailure::Broker(ErrorCode::UnknownTopicId));
    case.produce(0, 5).await;
    let batch = next(&mut consumer).await;
    assert_ne!(batch.topic_id(), old);
    assert_eq!(offsets(&batch), up_to(5));
    batch.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    let seconds = started.elapsed().as_secs_f64().ceil() as usize;
    let asked = metadata(&case) - asked;
    assert!(asked <= 5 * seconds, "{asked} in {seconds} s");
    case.close(consumer).await;
}

fn metadata(case: &Case<'_>) -> usize {
    case.tap.count(|sent| sent.api_key == METADATA)
}

#[tokio::test(flavor = "multi_thread")]
async fn b_035_nothing_is_sent_before_the_versions_are_known() {
    on_shared(b_035).await;
}

async fn b_035(cluster: &Cluster) {
    const DELAY: Duration = SECOND;
    let case = Case::new(cluster, "b-035", 1, &[]).await;
    case.produce(0, 1).await;
    case.tap.fault(100, API_VERSIONS, Fault::Delay(DELAY));
    let mut consumer = case.open().await;
    next(&mut consumer).await.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    let sent = case.tap.sent();
    let links: BTreeSet<_> = sent.iter().map(|sent| sent.link).collect();
    for link in links {
        let on_link: Vec<_> = sent.iter().filter(|sent| sent.link == link).collect();
        assert_eq!(on_link[0].api_key, API_VERSIONS);
        for later in &on_link[1..] {
            assert!(later.at - on_link[0].at >= DELAY, "{later:?}");
        }
    }
    case.close(consumer).await;
}
