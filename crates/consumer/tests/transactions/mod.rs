//! A producer with transactions.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::time::Duration;

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

const TIMEOUT_MS: i32 = 30_000;

/// A transactional producer on a cluster of one broker, which coordinates and leads all.
pub(crate) struct Teller {
    broker: Connection,
    /// The topic's name, and the transactional id.
    topic: String,
    producer_id: i64,
    epoch: i16,
    sequence: i32,
}

impl Teller {
    pub(crate) async fn open(bootstrap_servers: &str, topic: &str) -> Self {
        let address = bootstrap_servers.parse().unwrap();
        let (connector, options) = (TcpConnector::default(), ConnectionOptions::default());
        let broker = Connection::open(&connector, &address, &options).await;
        let mut teller = Self {
            broker: broker.unwrap(),
            topic: topic.to_owned(),
            producer_id: -1,
            epoch: -1,
            sequence: 0,
        };
        let find = FindCoordinatorRequest {
            key_type: KEY_TYPE_TRANSACTION,
            coordinator_keys: vec![topic.into()],
            ..Default::default()
        };
        teller
            .ask(&find, 6, |found| found.coordinators[0].error_code)
            .await;
        let init = InitProducerIdRequest {
            transactional_id: Some(topic.into()),
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
    pub(crate) async fn transact(&mut self, value: &str, committed: bool) {
        let add = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: self.topic.clone(),
            v3_and_below_producer_id: self.producer_id,
            v3_and_below_producer_epoch: self.epoch,
            v3_and_below_topics: vec![AddPartitionsToTxnTopic {
                name: self.topic.clone(),
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
            transactional_id: Some(self.topic.clone()),
            acks: ACKS_ALL,
            timeout_ms: TIMEOUT_MS,
            topic_data: vec![TopicProduceData {
                name: self.topic.clone(),
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
            transactional_id: self.topic.clone(),
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            committed,
        };
        self.ask(&end, 4, |ended| ended.error_code).await;
    }
}
