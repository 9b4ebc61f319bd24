//! The admin client: a question that is dropped spoils no other, and what changes the cluster was done or
//! wasn't.

use sharegroup_consumer::TopicPartition;
use sharegroup_consumer::admin::{Admin, LogOffset, LogPosition};

use super::{GROUP, PARTITIONS, TOPIC, World, at_every_wait, cut};

/// Asks a fresh client, dropped at every wait, and the same client again, which must say the same as one to
/// which nothing happened.
macro_rules! asked_again {
    ($($name:ident: |$admin:ident| $question:expr;)+) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            at_every_wait(async |at| {
                let world = World::with_records(4).await;
                let mut consumer = world.consumer().await;
                let $admin = &Admin::new(world.config());
                let expected = format!("{:?}", $question.await.unwrap());
                let $admin = &Admin::new(world.config());
                let is_done = cut(at, async { $question.await.unwrap() }).await.is_some();
                assert_eq!(format!("{:?}", $question.await.unwrap()), expected);
                drop(consumer.close(super::SECOND).await.unwrap());
                is_done
            })
            .await;
        }
    )+};
}

fn partitions() -> Vec<TopicPartition> {
    let all = 0..PARTITIONS;
    all.map(|partition| TopicPartition::new(TOPIC, partition))
        .collect()
}

asked_again! {
    t9_share_version_can_be_dropped: |admin| admin.share_version();
    t9_knows_share_groups_can_be_dropped: |admin| admin.knows_share_groups();
    t9_list_groups_can_be_dropped: |admin| admin.list_groups();
    t9_find_group_can_be_dropped: |admin| admin.find_group(GROUP);
    t9_describe_share_group_can_be_dropped: |admin| admin.describe_share_group(GROUP);
    t9_share_group_offsets_can_be_dropped: |admin| admin.share_group_offsets(GROUP, None);
    t9_consumer_group_offsets_can_be_dropped: |admin| admin.consumer_group_offsets("old");
    t9_log_offsets_can_be_dropped: |admin| admin.log_offsets(&partitions(), LogPosition::Latest);
    t9_list_topics_can_be_dropped: |admin| admin.list_topics();
    t9_describe_topics_can_be_dropped: |admin| admin.describe_topics(&[TOPIC]);
    t9_find_topic_can_be_dropped: |admin| admin.find_topic(TOPIC);
    t9_describe_each_topic_can_be_dropped: |admin| admin.describe_each_topic(&[TOPIC, "none"]);
    t9_group_configs_can_be_dropped: |admin| admin.group_configs(GROUP);
    t9_share_limits_can_be_dropped: |admin| admin.share_limits(GROUP);
    t9_topic_configs_can_be_dropped: |admin| admin.topic_configs(TOPIC);
    t9_topic_rights_can_be_dropped: |admin| admin.topic_rights(TOPIC);
    t9_share_group_rights_can_be_dropped: |admin| admin.share_group_rights(GROUP);
    t9_broker_configs_can_be_dropped: |admin| admin.broker_configs();
}

#[tokio::test(start_paused = true)]
async fn t9_a_creation_that_is_dropped_was_done_or_not() {
    at_every_wait(async |at| {
        let world = World::new().await;
        let admin = Admin::new(world.config());
        let created = cut(at, admin.create_topic("new", 3, 1, &[])).await;
        let found = admin.find_topic("new").await.unwrap();
        match &found {
            Some(topic) => assert_eq!(topic.partitions.len(), 3),
            None => assert!(created.is_none()),
        }
        if found.is_none() {
            admin.create_topic("new", 3, 1, &[]).await.unwrap();
        }
        created.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_a_deletion_that_is_dropped_was_done_or_not() {
    at_every_wait(async |at| {
        let world = World::with_records(4).await;
        let admin = Admin::new(world.config());
        let deleted = cut(at, admin.delete_topic(TOPIC)).await;
        let found = admin.find_topic(TOPIC).await.unwrap();
        assert!(deleted.is_none() || found.is_none());
        if found.is_some() {
            assert_eq!(world.values(0).len(), 2, "not a part of it");
            admin.delete_topic(TOPIC).await.unwrap();
        }
        deleted.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_a_configuration_that_is_dropped_was_set_or_not() {
    const KEY: &str = "share.record.lock.duration.ms";
    at_every_wait(async |at| {
        let world = World::new().await;
        let admin = Admin::new(world.config());
        let set = cut(at, admin.set_group_config(GROUP, KEY, "3000")).await;
        let value = async || {
            let configs = admin.group_configs(GROUP).await.unwrap();
            configs[KEY].value.clone().unwrap()
        };
        let found = value().await;
        assert!(found == "3000" || set.is_none() && found == super::LOCK_MS);
        admin.set_group_config(GROUP, KEY, "4000").await.unwrap();
        assert_eq!(value().await, "4000");
        set.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_offsets_that_are_dropped_were_set_or_not() {
    at_every_wait(async |at| {
        let world = World::with_records(4).await;
        let admin = Admin::new(world.config());
        let offsets = [LogOffset::new(TopicPartition::new(TOPIC, 0), 1)];
        let altered = cut(at, admin.alter_share_group_offsets("altered", &offsets)).await;
        let stands = async || {
            let offsets = admin.share_group_offsets("altered", None).await.unwrap();
            offsets.iter().find_map(|found| found.start_offset)
        };
        assert!(stands().await == Some(1) || altered.is_none());
        admin
            .alter_share_group_offsets("altered", &offsets)
            .await
            .unwrap();
        assert_eq!(stands().await, Some(1));
        altered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_beginning_that_is_dropped_was_done_or_not() {
    at_every_wait(async |at| {
        let world = World::with_records(4).await;
        let admin = Admin::new(world.config());
        let begin = || admin.begin_share_group("begun", &[TOPIC], LogPosition::Earliest);
        let begun = cut(at, begin()).await;
        begin().await.unwrap();
        assert_eq!(begin().await, Ok(Vec::new()));
        begun.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_commits_that_are_dropped_were_done_or_not() {
    at_every_wait(async |at| {
        let world = World::with_records(4).await;
        let admin = Admin::new(world.config());
        let offsets = [LogOffset::new(TopicPartition::new(TOPIC, 0), 1)];
        let commit = || admin.alter_consumer_group_offsets("old", &offsets);
        let done = cut(at, commit()).await;
        let committed = admin.consumer_group_offsets("old").await.unwrap();
        assert!(committed == offsets || done.is_none() && committed.is_empty());
        commit().await.unwrap();
        assert_eq!(admin.consumer_group_offsets("old").await.unwrap(), offsets);
        done.is_some()
    })
    .await;
}
