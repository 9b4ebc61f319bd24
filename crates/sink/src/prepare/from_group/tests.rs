//! Beginning where a consumer group stands, on a cluster that isn't there.

use sharegroup_consumer::TopicPartition;

use super::super::prepare;
use super::super::tests::{Fake, OLD, settings, topics};
use super::*;

fn at(partition: i32, offset: i64) -> LogOffset {
    LogOffset::new(TopicPartition::new("orders", partition), offset)
}

fn stands(offsets: &[LogOffset]) -> BTreeMap<TopicPartition, i64> {
    let stands = offsets.iter();
    stands
        .map(|stands| (stands.partition.clone(), stands.offset))
        .collect()
}

fn cluster(state: &'static str, committed: &[LogOffset], begun: &[LogOffset]) -> Fake {
    let mut fake = Fake::new();
    fake.old = Some((GroupType::Classic, state, committed.to_vec()));
    fake.stands = stands(begun).into();
    fake
}

/// Where the group stands then.
async fn started(fake: &Fake) -> Result<BTreeMap<TopicPartition, i64>, String> {
    let settings = settings(&format!("share.start.from.group={OLD}\n"));
    let prepared = prepare(fake, &settings, &topics()).await;
    prepared.map_err(|error| error.to_string())?;
    Ok(fake.stands.lock().unwrap().clone())
}

#[tokio::test]
async fn partitions_that_are_not_begun_begin_at_the_committed_offsets() {
    let elsewhere = LogOffset::new(TopicPartition::new("letters", 0), 3);
    let fake = cluster("Empty", &[at(0, 7), at(2, 0), elsewhere], &[]);
    assert_eq!(started(&fake).await, Ok(stands(&[at(0, 7), at(2, 0)])));
    // One that came later.
    let fake = cluster("Empty", &[at(0, 7), at(1, 5)], &[at(0, 9)]);
    assert_eq!(started(&fake).await, Ok(stands(&[at(0, 9), at(1, 5)])));
}

#[tokio::test]
async fn partitions_without_a_commit_are_named() {
    let fake = cluster("Empty", &[], &[]);
    let elsewhere = begin_elsewhere(&fake, &topics(), &stands(&[at(2, 4)]), &[at(0, 7)]).await;
    assert_eq!(elsewhere.unwrap(), [at(1, 0).partition]);
}

#[tokio::test]
async fn a_restart_with_the_key_still_set_moves_nothing() {
    for state in ["Empty", "Stable"] {
        let fake = cluster(state, &[at(0, 7)], &[at(0, 7), at(1, 4)]);
        assert_eq!(started(&fake).await, Ok(stands(&[at(0, 7), at(1, 4)])));
    }
    let mut fake = cluster("Empty", &[], &[at(0, 9)]);
    assert_eq!(started(&fake).await, Ok(stands(&[at(0, 9)])));
    // Its offsets were removed after a week.
    fake.old = None;
    assert_eq!(started(&fake).await, Ok(stands(&[at(0, 9)])));
}

#[tokio::test]
async fn a_share_group_that_stands_before_the_committed_offset_is_refused_with_both_ways_on() {
    let error = started(&cluster("Empty", &[at(0, 7)], &[at(0, 6)])).await;
    let error = error.unwrap_err();
    for part in [
        "connect-out has begun already",
        "offset 6 of orders-0",
        "offset 7",
        OLD,
        "take the key out",
        "--delete --group connect-out",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test]
async fn a_consumer_group_that_still_runs_is_named_and_nothing_is_begun() {
    let fake = cluster("Stable", &[at(0, 7)], &[]);
    let error = started(&fake).await.unwrap_err();
    assert!(
        error.contains(OLD) && error.contains("has members (state Stable)"),
        "{error}"
    );
    assert!(fake.stands.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_commits_nothing_is_refused_before_anything_is_begun() {
    let mut fake = Fake::new();
    let error = started(&fake).await.unwrap_err();
    assert!(error.contains("no group of this cluster"), "{error}");
    fake.old = Some((GroupType::Share, "Empty", Vec::new()));
    let error = started(&fake).await.unwrap_err();
    assert!(error.contains("is a share group"), "{error}");
    fake.old = Some((GroupType::Consumer, "Empty", Vec::new()));
    let error = started(&fake).await.unwrap_err();
    assert!(
        error.contains("has committed no offset of orders"),
        "{error}"
    );
}

#[tokio::test]
async fn a_worker_that_comes_second_finds_the_group_begun() {
    let mut fake = cluster("Empty", &[at(0, 7)], &[]);
    fake.is_joined = true;
    assert_eq!(started(&fake).await, Ok(stands(&[at(0, 7)])));
}
