//! The example `raw`, against a real broker and the embedded one.
#![cfg(feature = "net")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[path = "../../consumer/tests/both/mod.rs"]
mod both;

use std::process::Command;
use std::time::{Duration, Instant};

use both::{Cluster, on_both};
use sharegroup_wire::ErrorCode;
use sharegroup_wire::compress::Compression;
use sharegroup_wire::message::create_topics::{CreatableTopic, CreateTopicsRequest};
use sharegroup_wire::message::describe_configs::RESOURCE_GROUP;
use sharegroup_wire::message::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequestGroup,
};
use sharegroup_wire::message::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, OPERATION_SET,
};
use sharegroup_wire::message::produce::{
    ACKS_ALL, PartitionProduceData, ProduceRequest, TopicProduceData,
};
use sharegroup_wire::net::{Address, Connection, ConnectionOptions, TcpConnector};
use sharegroup_wire::record::RecordBatchBuilder;

/// Makes a topic with one partition, `records` values in it, and a group that starts with the first.
async fn prepare(connection: &Connection, records: usize) {
    let topic = CreatableTopic {
        name: "orders".into(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let create = CreateTopicsRequest {
        topics: vec![topic],
        ..Default::default()
    };
    let created = connection.call(&create).await.unwrap().topics.remove(0);
    created.error_code.ok().unwrap();

    let mut batch = RecordBatchBuilder::new(Compression::Lz4);
    for number in 0..records {
        let value = format!("value-{number}");
        batch.push(0, None, Some(value.as_bytes()), []).unwrap();
    }
    let partition = PartitionProduceData {
        index: 0,
        records: Some(batch.build(0).unwrap()),
    };
    let produce = ProduceRequest {
        acks: ACKS_ALL,
        timeout_ms: 10_000,
        topic_data: vec![TopicProduceData {
            name: "orders".into(),
            topic_id: created.topic_id,
            partition_data: vec![partition],
        }],
        ..Default::default()
    };
    // The controller answers before the broker knows that it leads the partition.
    let deadline = Instant::now() + Duration::from_secs(30);
    let written = loop {
        let produced = connection.call(&produce).await.unwrap();
        match produced.responses[0].partition_responses[0].error_code {
            ErrorCode::NotLeaderOrFollower
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
                if Instant::now() < deadline => {}
            code => break code,
        }
    };
    written.ok().unwrap();

    let earliest = AlterableConfig {
        name: "share.auto.offset.reset".into(),
        config_operation: OPERATION_SET,
        value: Some("earliest".into()),
    };
    let alter = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: RESOURCE_GROUP,
            resource_name: "g".into(),
            configs: vec![earliest],
        }],
        ..Default::default()
    };
    let altered = connection.call(&alter).await.unwrap();
    altered.responses[0].error_code.ok().unwrap();
}

async fn lag(connection: &Connection) -> i64 {
    let group = DescribeShareGroupOffsetsRequestGroup {
        group_id: "g".into(),
        topics: None,
    };
    let describe = DescribeShareGroupOffsetsRequest {
        groups: vec![group],
    };
    let described = connection.call(&describe).await.unwrap();
    described.groups[0].topics[0].partitions[0].lag
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_example_takes_a_batch_through_a_share_group() {
    on_both(&[], takes_a_batch).await;
}

async fn takes_a_batch(cluster: &Cluster) {
    let servers = cluster.bootstrap_servers();
    let address: Address = servers.parse().unwrap();
    let options = ConnectionOptions::default();
    let connection = Connection::open(&TcpConnector::default(), &address, &options)
        .await
        .unwrap();
    prepare(&connection, 100).await;

    let run = [
        "run",
        "--quiet",
        "-p",
        "sharegroup-wire",
        "--example",
        "raw",
        "--",
    ];
    let mut raw = Command::new(env!("CARGO"));
    raw.args(run).args([servers, "g", "orders"]);
    // What cargo tells a test of its package would make build scripts of others run again.
    let package = std::env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    });
    for name in package {
        raw.env_remove(name);
    }
    let output = raw.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let lines: Vec<String> = (0..100).map(|number| format!("value-{number}")).collect();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.lines().collect::<Vec<_>>(), lines);
    assert_eq!(lag(&connection).await, 0, "all are accepted");
}

#[test]
fn raw_example_is_short() {
    let example = include_str!("../examples/raw.rs");
    assert!(example.lines().count() < 60);
}
