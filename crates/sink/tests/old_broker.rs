//! A broker that knows no share groups.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod target;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sharegroup_wire::frame::{RequestHeader, encode_response};
use sharegroup_wire::message::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use sharegroup_wire::message::metadata::MetadataRequest;
use sharegroup_wire::primitive::Reader;
use target::{Target, end, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Says to every question that it serves ApiVersions and Metadata.
async fn serve(mut stream: TcpStream) {
    while let Ok(size) = stream.read_u32().await {
        let mut frame = BytesMut::zeroed(size.try_into().unwrap());
        stream.read_exact(&mut frame).await.unwrap();
        let header = RequestHeader::decode(&mut Reader::new(&Bytes::from(frame)), |_, _| true);
        let header = header.unwrap();
        assert_eq!(header.api_key, ApiVersionsRequest::API_KEY);
        let served = |api_key, max_version| ApiVersion {
            api_key,
            min_version: 0,
            max_version,
        };
        let response = ApiVersionsResponse {
            api_keys: vec![
                served(ApiVersionsRequest::API_KEY, 5),
                served(MetadataRequest::API_KEY, 13),
            ],
            ..Default::default()
        };
        let (version, id) = (header.api_version, header.correlation_id);
        let answer = encode_response::<ApiVersionsRequest>(&response, version, id);
        stream.write_all(&answer).await.unwrap();
    }
}

#[tokio::test]
async fn b_098_brokers_without_share_groups_are_named_with_the_version_that_has_them() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let servers = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    let target = Target::new([], None);
    let losses = std::env::temp_dir().join("sharegroup-old-broker");
    let worker = start(&servers, "old", 1, &target, &losses);
    let failed = async {
        while worker.status().failed().count() == 0 {
            worker.changed().await;
        }
    };
    timeout(Duration::from_secs(60), failed).await.unwrap();
    let status = worker.status();
    let traces: Vec<_> = status
        .failed()
        .map(|(_, task)| task.trace.clone())
        .collect();
    let trace = traces[0].as_deref().unwrap();
    assert!(
        trace.contains(&servers) && trace.contains("Kafka 4.1 or later"),
        "{trace}"
    );
    end(worker).await;
}
