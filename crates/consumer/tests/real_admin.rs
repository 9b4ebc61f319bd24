//! Admin work against a real broker and against the embedded one.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod both;

use std::time::Duration;

use sharegroup_consumer::admin::{
    Admin, AdminError, ConfigSource, GroupType, LogOffset, LogPosition, Resource,
};
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::{ShareConsumer, TopicPartition};
use sharegroup_launcher::Kafka;
use sharegroup_wire::{BrokerId, ErrorCode};

use both::{Cluster, on_both};

const SHARE_CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleShareConsumer";
const PRODUCER_PERFORMANCE: &str = "org.apache.kafka.tools.ProducerPerformance";

fn admin(servers: &str) -> Admin {
    let mut config = ClientConfig::new(servers).unwrap();
    config.default_api_timeout = Duration::from_secs(20);
    Admin::new(config)
}

#[tokio::test]
async fn topics_groups_configurations_and_offsets_round_trip() {
    on_both(&[], round_trip).await;
}

async fn round_trip(cluster: &Cluster) {
    let admin = admin(cluster.bootstrap_servers());
    assert_eq!(admin.share_version().await, Ok(Some(2)));

    topics(&admin).await;
    group_configs(&admin).await;
    let brokers = admin.broker_configs().await.unwrap();
    let limit = &brokers[&BrokerId(1)]["group.share.delivery.count.limit"];
    assert_eq!((brokers.len(), limit.value.as_deref()), (1, Some("5")));
    log_offsets(&admin, cluster).await;
    share_group(&admin, cluster).await;
    begun_group(&admin, cluster).await;
    begins_at(&admin, cluster).await;
    consumer_group(&admin, cluster).await;

    admin.delete_topic("orders").await.unwrap();
    let error = admin.delete_topic("orders").await.unwrap_err();
    assert_eq!(
        error.code(),
        Some(ErrorCode::UnknownTopicOrPartition),
        "{error}"
    );
}

async fn topics(admin: &Admin) {
    assert_eq!(admin.find_topic("orders").await, Ok(None));
    let created = admin
        .create_topic("orders", 4, -1, &[("retention.ms", "86400000")])
        .await
        .unwrap();
    assert_eq!(
        (created.partition_count, created.replication_factor),
        (4, 1)
    );
    let error = admin.create_topic("orders", 4, -1, &[]).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::TopicAlreadyExists));
    assert!(
        matches!(&error, AdminError::Broker { resource: Resource::Topic(t), .. } if t == "orders"),
        "{error}"
    );
    let error = admin.create_topic("three", 1, 3, &[]).await.unwrap_err();
    assert_eq!(
        error.code(),
        Some(ErrorCode::InvalidReplicationFactor),
        "{error}"
    );

    let topic = admin.describe_topics(&["orders"]).await.unwrap().remove(0);
    assert_eq!(topic.id, created.id);
    assert_eq!(
        topic
            .partitions
            .iter()
            .map(|p| p.partition)
            .collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    assert!(
        topic
            .partitions
            .iter()
            .all(|partition| partition.leader.is_some())
    );
    let names: Vec<_> = admin
        .list_topics()
        .await
        .unwrap()
        .into_iter()
        .map(|topic| topic.name)
        .collect();
    assert!(names.contains(&"orders".to_owned()), "{names:?}");

    let configs = admin.topic_configs("orders").await.unwrap();
    assert!(configs["retention.ms"].is_set());
    assert_eq!(configs["retention.ms"].value.as_deref(), Some("86400000"));
    assert!(!configs["cleanup.policy"].is_set());
}

async fn group_configs(admin: &Admin) {
    let key = "share.auto.offset.reset";
    let before = admin.group_configs("workers").await.unwrap();
    assert!(
        before.get(key).is_none_or(|value| !value.is_set()),
        "{before:?}"
    );
    admin
        .set_group_config("workers", key, "earliest")
        .await
        .unwrap();
    let after = admin.group_configs("workers").await.unwrap();
    assert_eq!(
        (after[key].value.as_deref(), after[key].source),
        (Some("earliest"), ConfigSource::Group)
    );
    assert!(
        after
            .iter()
            .all(|(name, value)| name == key || !value.is_set()),
        "{after:?}"
    );
    let error = admin
        .set_group_config("workers", key, "soonest")
        .await
        .unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::InvalidConfig));
    assert!(
        error.to_string().contains(key) && error.to_string().contains("workers"),
        "{error}"
    );
}

async fn log_offsets(admin: &Admin, cluster: &Cluster) {
    let arguments = [
        "--topic",
        "orders",
        "--num-records",
        "1000",
        "--record-size",
        "10",
        "--throughput",
        "-1",
    ];
    cluster.tool(PRODUCER_PERFORMANCE, &arguments).await;
    let partitions: Vec<_> = (0..4)
        .map(|partition| TopicPartition::new("orders", partition))
        .collect();
    let earliest = admin
        .log_offsets(&partitions, LogPosition::Earliest)
        .await
        .unwrap();
    assert!(
        earliest.iter().all(|found| found.offset == 0),
        "{earliest:?}"
    );
    let latest = admin
        .log_offsets(&partitions, LogPosition::Latest)
        .await
        .unwrap();
    assert_eq!(
        latest.iter().map(|found| found.offset).sum::<i64>(),
        1000,
        "{latest:?}"
    );
    assert_eq!(latest[3].partition, partitions[3]);
    let error = admin
        .log_offsets(&[TopicPartition::new("nowhere", 0)], LogPosition::Latest)
        .await
        .unwrap_err();
    assert_eq!(
        error.code(),
        Some(ErrorCode::UnknownTopicOrPartition),
        "{error}"
    );
    assert_eq!(
        admin.log_offsets(&[], LogPosition::Latest).await,
        Ok(Vec::new())
    );
}

async fn share_group(admin: &Admin, cluster: &Cluster) {
    assert_eq!(admin.find_group("workers").await, Ok(None));
    let error = admin.describe_share_group("workers").await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::GroupIdNotFound), "{error}");
    let arguments = [
        "--topic",
        "orders",
        "--group",
        "workers",
        "--max-messages",
        "1000",
        "--timeout-ms",
        "30000",
    ];
    cluster.tool(SHARE_CONSUMER, &arguments).await;

    let group = admin.find_group("workers").await.unwrap().unwrap();
    assert_eq!(
        (group.group_type, group.state.as_str()),
        (GroupType::Share, "Empty")
    );
    let listed = admin.list_groups().await.unwrap();
    assert!(
        listed
            .iter()
            .any(|group| group.group_id == "workers" && group.group_type == GroupType::Share)
    );
    let described = admin.describe_share_group("workers").await.unwrap();
    assert_eq!(
        (described.state.as_str(), described.members.len()),
        ("Empty", 0)
    );

    let offsets = admin.share_group_offsets("workers", None).await.unwrap();
    assert_eq!(
        offsets.iter().map(|o| o.partition).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    assert_eq!(
        offsets.iter().filter_map(|o| o.lag).sum::<i64>(),
        0,
        "{offsets:?}"
    );
    let one = admin
        .share_group_offsets("workers", Some(&[("orders", &[2])]))
        .await
        .unwrap();
    assert_eq!(one, [offsets[2].clone()]);
    assert_eq!(
        admin.share_group_offsets("nobody", None).await,
        Ok(Vec::new())
    );
}

/// Nobody has set where this group starts: without offsets it would skip what is there.
async fn begun_group(admin: &Admin, cluster: &Cluster) {
    let begin = async |position| {
        admin
            .begin_share_group("begun", &["orders", "nowhere"], position)
            .await
    };
    let ends = begin(LogPosition::Latest).await.unwrap();
    assert_eq!(ends.iter().map(|end| end.offset).sum::<i64>(), 1000);
    assert_eq!(begin(LogPosition::Earliest).await, Ok(Vec::new()), "begun");
    let starts: Vec<_> = ends
        .into_iter()
        .map(|end| LogOffset::new(end.partition, 0))
        .collect();
    admin
        .alter_share_group_offsets("begun", &starts)
        .await
        .unwrap();

    let builder = ShareConsumer::builder(cluster.bootstrap_servers()).group_id("begun");
    let mut consumer = builder.topics(["orders"]).build().await.unwrap();
    let batch = consumer.poll().await.unwrap().unwrap();
    assert_eq!(batch.first_offset(), 0);
    let error = admin.alter_share_group_offsets("begun", &starts).await;
    let error = error.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::NonEmptyGroup), "{error}");
    drop(batch);
    drop(consumer.close(Duration::from_secs(5)).await.unwrap());

    let nowhere = [LogOffset::new(TopicPartition::new("nowhere", 0), 0)];
    let error = admin.alter_share_group_offsets("begun", &nowhere).await;
    let error = error.unwrap_err();
    assert_eq!(
        error.code(),
        Some(ErrorCode::UnknownTopicOrPartition),
        "{error}"
    );
    for (group, since, first) in [("since-0", 0, 0), ("since-2100", 4_102_444_800_000, 1000)] {
        let position = LogPosition::Since(since);
        let begun = admin
            .begin_share_group(group, &["orders"], position)
            .await
            .unwrap();
        assert_eq!(begun.iter().map(|begun| begun.offset).sum::<i64>(), first);
    }
}

/// As an application says it.
async fn begins_at(admin: &Admin, cluster: &Cluster) {
    let builder = ShareConsumer::builder(cluster.bootstrap_servers()).group_id("begins");
    let builder = builder.topics(["orders"]).begin_at(LogPosition::Earliest);
    let mut consumer = builder.build().await.unwrap();
    let batch = consumer.poll().await.unwrap().unwrap();
    assert_eq!(batch.first_offset(), 0);
    drop(batch);
    drop(consumer.close(Duration::from_secs(5)).await.unwrap());
    let configs = admin.group_configs("begins").await.unwrap();
    let start = &configs["share.auto.offset.reset"];
    assert_eq!(
        (start.value.as_deref(), start.is_set()),
        (Some("earliest"), true)
    );
}

/// Committed by who isn't a member, as Kafka's own tool sees it and does it.
async fn consumer_group(admin: &Admin, cluster: &Cluster) {
    let at = |partition, offset| LogOffset::new(TopicPartition::new("orders", partition), offset);
    assert_eq!(admin.consumer_group_offsets("old").await, Ok(Vec::new()));
    admin
        .alter_consumer_group_offsets("old", &[at(2, 7), at(0, 0)])
        .await
        .unwrap();
    let committed = admin.consumer_group_offsets("old").await;
    assert_eq!(committed, Ok(vec![at(0, 0), at(2, 7)]));
    let group = admin.find_group("old").await.unwrap().unwrap();
    assert_eq!(
        (group.group_type, group.state.as_str()),
        (GroupType::Classic, "Empty")
    );

    let tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
    let reset = "--reset-offsets --group old --topic orders:2 --to-latest --execute";
    let reset: Vec<_> = reset.split(' ').collect();
    cluster.tool(tool, &reset).await;
    let committed = admin.consumer_group_offsets("old").await;
    let ends = admin
        .log_offsets(&[at(2, 0).partition], LogPosition::Latest)
        .await
        .unwrap();
    assert_eq!(committed, Ok(vec![at(0, 0), ends[0].clone()]));

    let nowhere = LogOffset::new(TopicPartition::new("nowhere", 0), 1);
    for (group, offset, code) in [
        ("old", nowhere, ErrorCode::UnknownTopicOrPartition),
        ("workers", at(0, 1), ErrorCode::GroupIdNotFound),
    ] {
        let refused = admin.alter_consumer_group_offsets(group, &[offset]).await;
        assert_eq!(refused.unwrap_err().code(), Some(code), "{group}");
    }
    // A share group commits nothing.
    assert_eq!(
        admin.consumer_group_offsets("workers").await,
        Ok(Vec::new())
    );
    cluster.tool(tool, &["--delete", "--group", "old"]).await;
    assert_eq!(admin.find_group("old").await, Ok(None));
    assert_eq!(admin.consumer_group_offsets("old").await, Ok(Vec::new()));
}

#[tokio::test]
async fn share_groups_that_are_off_are_seen_by_the_feature() {
    let Some(kafka) = Kafka::builder()
        .feature("share.version", 0)
        .start_or_skip()
        .unwrap()
    else {
        return;
    };
    let off = admin(&kafka.bootstrap_servers())
        .share_version()
        .await
        .unwrap();
    assert!(off.is_none_or(|level| level == 0), "{off:?}");
}
