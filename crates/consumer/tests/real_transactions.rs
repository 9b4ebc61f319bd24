//! A topic with transactions on a real broker and on the embedded one: what a share group sees of it.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod both;

use std::time::Duration;

use sharegroup_consumer::ShareConsumer;
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_wire::ErrorCode;
use sharegroup_wire::compress::Compression;
use sharegroup_wire::message::Request;
use sharegroup_wire::message::add_partitions_to_txn::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnTopic,
};
use sharegroup_wire::message::end_txn::EndTxnRequest;
use sharegroup_wire::message::find_coordinator::{FindCoordinatorRequest, KEY_TYPE_TRANSACTION};
use sharegroup_wire::message::init_producer_id::InitProducerIdRequest;
use sharegroup_wire::message::produce::{
    ACKS_ALL, PartitionProduceData, ProduceRequest, TopicProduceData,
};
use sharegroup_wire::net::{Connection, ConnectionOptions, TcpConnector};
use sharegroup_wire::record::RecordBatchBuilder;
use tokio::time::{sleep, timeout};

use both::{Cluster, on_both};

const TOPIC: &str = "orders";
const TRANSACTIONAL_ID: &str = "teller";
const TIMEOUT_MS: i32 = 30_000;

/// A transactional producer on a cluster of one broker, which coordinates and leads all.
struct Teller {
    broker: Connection,
    producer_id: i64,
    epoch: i16,
    sequence: i32,
}

impl Teller {
    async fn open(cluster: &Cluster) -> Self {
        let address = cluster.bootstrap_servers().parse().unwrap();
        let (connector, options) = (TcpConnector::default(), ConnectionOptions::default());
        let broker = Connection::open(&connector, &address, &options).await;
        let mut teller = Self {
            broker: broker.unwrap(),
            producer_id: -1,
            epoch: -1,
            sequence: 0,
        };
        let find = FindCoordinatorRequest {
            key_type: KEY_TYPE_TRANSACTION,
            coordinator_keys: vec![TRANSACTIONAL_ID.into()],
            ..Default::default()
        };
        teller
            .ask(&find, 6, |found| found.coordinators[0].error_code)
            .await;
        let init = InitProducerIdRequest {
            transactional_id: Some(TRANSACTIONAL_ID.into()),
            transaction_timeout_ms: TIMEOUT_MS,
            ..Default::default()
        };
        let producer = teller.ask(&init, 5, |producer| producer.error_code).await;
        (teller.producer_id, teller.epoch) = (producer.producer_id, producer.producer_epoch);
        teller
    }

    /// Asks until the code is none: the coordinator may be loading, or still at the last transaction.
    async fn ask<R: Request>(
        &self,
        request: &R,
        version: i16,
        code: impl Fn(&R::Response) -> ErrorCode,
    ) -> R::Response {
        let limit = Duration::from_secs(30);
        let asked = async {
            loop {
                let answer = self.broker.call_with(request, version, limit).await;
                let answer = answer.unwrap();
                match code(&answer) {
                    ErrorCode::None => return answer,
                    code => assert!(code.is_retriable(), "{}: {code}", R::NAME),
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(limit, asked).await.unwrap()
    }

    /// Writes one record, and commits or aborts it. The last versions before KIP-890.
    async fn transact(&mut self, value: &str, committed: bool) {
        let add = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: TRANSACTIONAL_ID.into(),
            v3_and_below_producer_id: self.producer_id,
            v3_and_below_producer_epoch: self.epoch,
            v3_and_below_topics: vec![AddPartitionsToTxnTopic {
                name: TOPIC.into(),
                partitions: vec![0],
            }],
            ..Default::default()
        };
        self.ask(&add, 3, |added| {
            added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        })
        .await;
        let mut batch = RecordBatchBuilder::new(Compression::None)
            .producer(self.producer_id, self.epoch, self.sequence)
            .transactional(true);
        batch.push(0, None, Some(value.as_bytes()), []).unwrap();
        self.sequence += 1;
        let produce = ProduceRequest {
            transactional_id: Some(TRANSACTIONAL_ID.into()),
            acks: ACKS_ALL,
            timeout_ms: TIMEOUT_MS,
            topic_data: vec![TopicProduceData {
                name: TOPIC.into(),
                partition_data: vec![PartitionProduceData {
                    index: 0,
                    records: Some(batch.build(0).unwrap()),
                }],
                ..Default::default()
            }],
        };
        self.ask(&produce, 11, |produced| {
            produced.responses[0].partition_responses[0].error_code
        })
        .await;
        let end = EndTxnRequest {
            transactional_id: TRANSACTIONAL_ID.into(),
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            committed,
        };
        self.ask(&end, 4, |ended| ended.error_code).await;
    }
}

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
        for (key, value) in [
            ("share.auto.offset.reset", "earliest"),
            ("share.isolation.level", group),
        ] {
            admin.set_group_config(group, key, value).await.unwrap();
        }
    }
    let mut teller = Teller::open(cluster).await;
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
