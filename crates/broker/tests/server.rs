//! The server: what hostile and broken clients can't do to it, and connections in memory.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::time::Duration;

use sharegroup_broker::{Broker, ServerLimits};
use sharegroup_wire::frame::encode_request;
use sharegroup_wire::message::fetch::{FetchPartition, FetchRequest, FetchTopic};
use sharegroup_wire::message::metadata::MetadataRequest;
use sharegroup_wire::message::sasl_authenticate::{AuthBytes, SaslAuthenticateRequest};
use sharegroup_wire::message::sasl_handshake::SaslHandshakeRequest;
use sharegroup_wire::message::share_fetch::{self, ShareFetchRequest};
use sharegroup_wire::message::share_group_heartbeat::ShareGroupHeartbeatRequest;
use sharegroup_wire::net::{Address, Connection, ConnectionOptions};
use sharegroup_wire::{CorrelationId, ErrorCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    matches!(stream.read(&mut byte).await, Ok(0) | Err(_))
}

async fn answers(broker: &Broker) -> bool {
    let first = broker.bootstrap_servers().split(',').next().unwrap();
    let address: Address = first.parse().unwrap();
    let connector = sharegroup_wire::net::TcpConnector::default();
    let connection = Connection::open(&connector, &address, &ConnectionOptions::default())
        .await
        .unwrap();
    connection.call(&MetadataRequest::default()).await.is_ok()
}

#[tokio::test]
async fn hostile_sizes_and_bytes_end_the_connection_that_sent_them_and_no_other() {
    let broker = Broker::builder().topic("orders", 1).start().await.unwrap();
    for bytes in [
        &[0xff; 64][..],
        &[0x7f, 0xff, 0xff, 0xff, 0, 0][..],
        &[0, 0, 0, 0][..],
        &[0, 0, 0, 2, 0, 3][..],
        &[0, 0, 0, 8, 0x7f, 0xff, 0, 0, 0, 0, 0, 1][..],
        // Metadata 12 with an array of two billion topics.
        &[
            0, 0, 0, 17, 0, 3, 0, 12, 0, 0, 0, 1, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0,
        ][..],
    ] {
        let mut stream = TcpStream::connect(broker.bootstrap_servers())
            .await
            .unwrap();
        stream.write_all(bytes).await.unwrap();
        assert!(is_closed(&mut stream).await, "{bytes:02x?}");
        assert!(answers(&broker).await);
    }
}

#[tokio::test]
async fn slow_bytes_and_silence_end_a_connection() {
    let limits = ServerLimits {
        frame_time_max: Duration::from_millis(50),
        idle_time_max: Duration::from_millis(50),
        ..ServerLimits::default()
    };
    let broker = Broker::builder().limits(limits).start().await.unwrap();
    let mut slow = TcpStream::connect(broker.bootstrap_servers())
        .await
        .unwrap();
    slow.write_all(&[0, 0]).await.unwrap();
    assert!(is_closed(&mut slow).await);
    let mut silent = TcpStream::connect(broker.bootstrap_servers())
        .await
        .unwrap();
    assert!(is_closed(&mut silent).await);
}

#[tokio::test]
async fn one_connection_too_many_is_closed_and_a_thousand_idle_ones_are_not() {
    let limits = ServerLimits {
        connections_max: 1001,
        ..ServerLimits::default()
    };
    let broker = Broker::builder().limits(limits).start().await.unwrap();
    let mut idle = Vec::new();
    for _ in 0..1000 {
        idle.push(
            TcpStream::connect(broker.bootstrap_servers())
                .await
                .unwrap(),
        );
    }
    assert!(answers(&broker).await);
    idle.push(
        TcpStream::connect(broker.bootstrap_servers())
            .await
            .unwrap(),
    );
    let mut over = TcpStream::connect(broker.bootstrap_servers())
        .await
        .unwrap();
    assert!(is_closed(&mut over).await);
}

/// One answer fits, two don't: of two clients that ask for much and take nothing the second is cut.
#[tokio::test]
async fn answers_that_nobody_takes_have_a_limit() {
    let limits = ServerLimits {
        answer_bytes_max: 4 * 1024 * 1024,
        ..ServerLimits::default()
    };
    let broker = Broker::builder()
        .in_memory()
        .topic("orders", 1)
        .limits(limits)
        .start()
        .await
        .unwrap();
    broker.model(|model| {
        let id = model.topics.named("orders").unwrap().id;
        let log = &mut model.topics.partition_mut((id, 0)).unwrap().log;
        (0..3).for_each(|_| log.push_raw(1, vec![0; 1024 * 1024].into()));
    });
    let address: Address = broker.bootstrap_servers().parse().unwrap();
    let connector = broker.connector();
    let fetch = FetchRequest {
        max_bytes: i32::MAX,
        topics: vec![fetch_topic()],
        ..Default::default()
    };
    let request = encode_request(&fetch, 12, CorrelationId(1), None);
    let ask = async || {
        let mut stream = connector.connect(&address).await.unwrap();
        stream.write_all(&request).await.unwrap();
        // Its beginning says that the rest is on its way.
        let size = stream.read_i32().await;
        (
            stream,
            size.map_or(0, |size| usize::try_from(size).unwrap()),
        )
    };
    let (mut first, size) = ask().await;
    assert!(size > 3 * 1024 * 1024, "{size}");
    let (_, cut) = ask().await;
    assert_eq!(cut, 0, "the second is cut");
    let mut taken = vec![0; size];
    first.read_exact(&mut taken).await.unwrap();
    let (_, again) = ask().await;
    assert_eq!(again, size, "the first's answer no longer counts");
}

fn fetch_topic() -> FetchTopic {
    FetchTopic {
        topic: "orders".into(),
        partitions: vec![FetchPartition {
            partition_max_bytes: i32::MAX,
            ..Default::default()
        }],
        ..Default::default()
    }
}

#[tokio::test]
async fn starts_in_far_less_than_a_hundred_milliseconds() {
    let began = std::time::Instant::now();
    let broker = Broker::builder()
        .brokers(3)
        .topic("orders", 16)
        .start()
        .await
        .unwrap();
    assert!(answers(&broker).await);
    assert!(
        began.elapsed() < Duration::from_millis(100),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn nobody_gets_in_without_the_right_password() {
    let broker = Broker::builder()
        .user("alice", "secret")
        .start()
        .await
        .unwrap();
    let address: Address = broker.bootstrap_servers().parse().unwrap();
    let open = || async {
        let connector = sharegroup_wire::net::TcpConnector::default();
        Connection::open(&connector, &address, &ConnectionOptions::default())
            .await
            .unwrap()
    };
    assert!(
        open()
            .await
            .call(&MetadataRequest::default())
            .await
            .is_err()
    );
    let connection = open().await;
    let handshake = SaslHandshakeRequest {
        mechanism: "PLAIN".into(),
    };
    assert_eq!(
        connection.call(&handshake).await.unwrap().error_code,
        ErrorCode::None
    );
    let mut login = SaslAuthenticateRequest {
        auth_bytes: AuthBytes("\0alice\0wrong".into()),
    };
    let refused = connection.call(&login).await.unwrap();
    assert_eq!(refused.error_code, ErrorCode::SaslAuthenticationFailed);
    login.auth_bytes = AuthBytes("\0alice\0secret".into());
    assert_eq!(
        connection.call(&login).await.unwrap().error_code,
        ErrorCode::None
    );
    assert!(connection.call(&MetadataRequest::default()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn under_paused_time_a_long_poll_takes_exactly_its_time() {
    let broker = Broker::builder()
        .in_memory()
        .topic("orders", 1)
        .start()
        .await
        .unwrap();
    let address: Address = broker.bootstrap_servers().parse().unwrap();
    let connector = broker.connector();
    let connection = Connection::open(&*connector, &address, &ConnectionOptions::default())
        .await
        .unwrap();
    let join = ShareGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: "a".into(),
        subscribed_topic_names: Some(vec!["orders".into()]),
        ..Default::default()
    };
    assert_eq!(
        connection.call(&join).await.unwrap().error_code,
        ErrorCode::None
    );
    let topic_id = broker.model(|model| model.topics.named("orders").unwrap().id);
    let fetch = ShareFetchRequest {
        group_id: Some("g".into()),
        member_id: Some("a".into()),
        max_wait_ms: 20_000,
        min_bytes: 1,
        max_records: 10,
        batch_size: 10,
        topics: vec![share_fetch::FetchTopic::of(topic_id, [0])],
        ..Default::default()
    };
    let began = Instant::now();
    assert_eq!(
        connection.call(&fetch).await.unwrap().error_code,
        ErrorCode::None
    );
    let took = began.elapsed();
    assert!(
        took >= Duration::from_secs(20) && took < Duration::from_millis(20_010),
        "{took:?}"
    );
}
