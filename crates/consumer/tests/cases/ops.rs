//! What operators meet: many topics, and records larger than everything around them.

use futures_util::future::try_join_all;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_wire::message::metadata::MetadataRequest;
use tokio::time::Instant;

use crate::both::{Cluster, on_both, on_shared};
use crate::case::{Case, LONG, SECOND, next, offsets};

const MIB: usize = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn b_116_only_the_subscribed_topic_is_asked_for_among_2_000() {
    // Of its own: the topics would be in the way of others.
    on_both(&[], b_116).await;
}

async fn b_116(cluster: &Cluster) {
    let case = Case::new(cluster, "b-116", 1, &[]).await;
    for hundred in 0..20 {
        let create = (0..100).map(async |number| {
            let name = format!("other-{hundred}-{number}");
            case.admin.create_topic(&name, 1, 1, &[]).await
        });
        try_join_all(create).await.unwrap();
    }
    case.produce(0, 1).await;
    let started = Instant::now();
    let mut consumer = case.open().await;
    let opened = started.elapsed();
    next(&mut consumer).await.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    println!(
        "open after {opened:?}, first record after {:?}",
        started.elapsed()
    );
    assert!(opened < 2 * SECOND, "{opened:?}");
    let asked = case.tap.bodies::<MetadataRequest>();
    assert!(!asked.is_empty());
    for request in asked {
        let topics = request.topics.expect("not all topics");
        let names: Vec<_> = topics
            .iter()
            .filter_map(|topic| topic.name.as_deref())
            .collect();
        assert!(names.is_empty() || names == ["b-116"], "{names:?}");
        assert!(topics.len() <= 1, "{topics:?}");
    }
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_121_record_above_every_fetch_size_is_delivered_between_small_ones() {
    on_shared(b_121).await;
}

async fn b_121(cluster: &Cluster) {
    let case = Case::without_topic(cluster, "b-121", &[]).await;
    let limit = [("max.message.bytes", "33554432")];
    case.admin
        .create_topic("b-121", 1, 1, &limit)
        .await
        .unwrap();
    let mut config = ProducerConfig::new(case.config());
    config.request_bytes_max = 32 * MIB;
    let producer = Producer::new(config);
    let sizes = [3, 20 * MIB, 5];
    for size in sizes {
        let record = ProducerRecord::new("b-121")
            .partition(0)
            .value(vec![b'v'; size]);
        producer.send(record).await.unwrap().await.unwrap();
    }
    producer.close(LONG).await.unwrap();

    let builder = case.builder().fetch_max_bytes(1 << 20);
    let mut consumer = builder.build().await.unwrap();
    let mut found = Vec::new();
    while found.len() < sizes.len() {
        let batch = next(&mut consumer).await;
        let lengths = batch
            .records()
            .map(|record| record.value.map_or(0, <[u8]>::len));
        found.extend(offsets(&batch).into_iter().zip(lengths));
        batch.accept();
    }
    assert_eq!(found, [(0, sizes[0]), (1, sizes[1]), (2, sizes[2])]);
    assert!(consumer.commit().await.unwrap().is_ok());
    case.drained().await;
    case.close(consumer).await;
}
