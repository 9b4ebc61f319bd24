//! A topic with transactions on a real broker and on the embedded one: what a share group sees of it.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod both;
mod group;
mod transactions;

use std::time::Duration;

use sharegroup_consumer::ShareConsumer;
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use tokio::time::timeout;

use both::{Cluster, on_both};
use group::set_group;
use transactions::Teller;

const TOPIC: &str = "orders";
/// All that a group gets until it gets nothing for three seconds, as (offset, delivery count, value).
async fn drain(config: ClientConfig, group_id: &str) -> Vec<(i64, i16, String)> {
    let builder = ShareConsumer::builder_with(config).group_id(group_id);
    let mut consumer = builder.topics([TOPIC]).build().await.unwrap();
    let mut seen = Vec::new();
    let mut patience = Duration::from_secs(30);
    while let Ok(batch) = timeout(patience, consumer.poll()).await {
        let batch = batch.unwrap().unwrap();
        seen.extend(batch.records().map(|record| {
            let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
            (record.offset, record.delivery_count, value)
        }));
        batch.accept();
        assert!(consumer.commit().await.unwrap().is_ok());
        patience = Duration::from_secs(3);
    }
    let report = consumer.close(Duration::from_secs(10)).await.unwrap();
    assert!(report.is_ok(), "{report:?}");
    seen
}

#[tokio::test]
async fn b_014_markers_never_surface_and_aborted_records_only_where_they_are_wanted() {
    on_both(&[], transactions).await;
}

async fn transactions(cluster: &Cluster) {
    let config = ClientConfig::new(cluster.bootstrap_servers()).unwrap();
    let admin = Admin::new(config.clone());
    admin.create_topic(TOPIC, 1, -1, &[]).await.unwrap();
    for group in ["read_uncommitted", "read_committed"] {
        let settings = [
            ("share.auto.offset.reset", "earliest"),
            ("share.isolation.level", group),
        ];
        set_group(&admin, group, &settings).await;
    }
    let mut teller = Teller::open(cluster.bootstrap_servers(), TOPIC).await;
    for (value, committed) in [("a", true), ("b", false), ("c", true)] {
        teller.transact(value, committed).await;
    }
    // Offsets 1, 3 and 5 are the markers.
    let of = |offset, value: &str| (offset, 1, value.to_owned());
    let (all, committed) = tokio::join!(
        drain(config.clone(), "read_uncommitted"),
        drain(config, "read_committed")
    );
    assert_eq!(all, [of(0, "a"), of(2, "b"), of(4, "c")]);
    assert_eq!(committed, [of(0, "a"), of(4, "c")]);
}
