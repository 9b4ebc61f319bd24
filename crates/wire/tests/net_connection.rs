//! Connections against a scripted peer on an in-memory pipe, under paused time.
#![cfg(feature = "net")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod scripted;

use std::time::Duration;

use bytes::{Buf, BytesMut};
use scripted::{Peer, Pipe, pipe, versions};
use sharegroup_wire::ErrorCode;
use sharegroup_wire::error::DecodeError;
use sharegroup_wire::frame::encode_response;
use sharegroup_wire::id::{BrokerId, CorrelationId};
use sharegroup_wire::message::Message;
use sharegroup_wire::message::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use sharegroup_wire::message::metadata::{MetadataRequest, MetadataResponse};
use sharegroup_wire::message::share_fetch::ShareFetchRequest;
use sharegroup_wire::message::share_group_heartbeat::{
    ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
};
use sharegroup_wire::net::{
    Address, ApiVersionRange, CallError, CloseReason, ConnectError, ConnectPhase, Connection,
    ConnectionOptions,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, timeout};

const SECOND: Duration = Duration::from_secs(1);

fn address() -> Address {
    Address::new("broker", 9092)
}

async fn open(connector: &Pipe) -> Result<Connection, ConnectError> {
    Connection::open(connector, &address(), &ConnectionOptions::default()).await
}

async fn connected_with(options: ConnectionOptions) -> (Connection, Peer<DuplexStream>) {
    let (connector, mut peer) = pipe();
    let (connection, ()) = tokio::join!(
        async {
            Connection::open(&connector, &address(), &options)
                .await
                .unwrap()
        },
        peer.negotiate()
    );
    (connection, peer)
}

async fn connected() -> (Connection, Peer<DuplexStream>) {
    connected_with(ConnectionOptions::default()).await
}

fn heartbeat(member_id: &str) -> ShareGroupHeartbeatRequest {
    ShareGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: member_id.into(),
        ..Default::default()
    }
}

fn beaten(member_id: &str) -> ShareGroupHeartbeatResponse {
    ShareGroupHeartbeatResponse {
        member_id: Some(member_id.into()),
        ..Default::default()
    }
}

#[tokio::test(start_paused = true)]
async fn negotiation_takes_the_newest_common_version_and_the_features() {
    let (connection, mut peer) = connected().await;
    assert_eq!(connection.version::<MetadataRequest>(), Ok(12));
    assert_eq!(
        connection.versions().range(3),
        Some(ApiVersionRange { min: 0, max: 12 })
    );
    assert_eq!(connection.finalized_feature("share.version"), Some(2));
    assert_eq!(connection.finalized_feature("transaction.version"), None);
    let request = MetadataRequest {
        topics: Some(Vec::new()),
        ..Default::default()
    };
    let (response, version) = tokio::join!(connection.call(&request), async {
        let asked = peer.asked().await;
        let response = MetadataResponse {
            controller_id: BrokerId(4),
            ..Default::default()
        };
        peer.answer::<MetadataRequest>(&asked, &response).await;
        assert_eq!(
            MetadataRequest::from_bytes(&asked.body, 12).unwrap(),
            request
        );
        asked.header.api_version
    });
    assert_eq!(
        (response.unwrap().controller_id, version),
        (BrokerId(4), 12)
    );
}

#[tokio::test(start_paused = true)]
async fn an_api_without_a_common_version_is_refused_before_anything_is_sent() {
    let (connection, _peer) = connected().await;
    let error = connection
        .call(&ShareFetchRequest::default())
        .await
        .unwrap_err();
    let expected = CallError::Unsupported {
        address: address(),
        api: "ShareFetch",
        ours: ApiVersionRange { min: 1, max: 2 },
        broker: Some(ApiVersionRange { min: 3, max: 4 }),
    };
    assert_eq!(error, expected);
    assert!(!error.is_retriable() && !error.may_have_arrived());
    assert_eq!(
        error.to_string(),
        "broker:9092 has no usable version of ShareFetch: ours 1 to 2, the broker's 3 to 4"
    );
    assert!(!connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn b_023_api_versions_answered_in_version_0_is_asked_again_on_the_same_socket() {
    let (connector, mut peer) = pipe();
    let script = async {
        let first = peer.asked().await;
        assert_eq!(first.header.api_version, ApiVersionsRequest::VERSION_MAX);
        // Header version 0, error 35, ApiVersions 0-3, no tagged section.
        let mut frame = vec![0, 0, 0, 16];
        frame.extend(first.header.correlation_id.0.to_be_bytes());
        frame.extend([0x00, 0x23, 0, 0, 0, 1, 0, 0x12, 0, 0, 0, 3]);
        peer.0.write_all(&frame).await.unwrap();
        let second = peer.asked().await;
        assert_eq!((second.header.api_key, second.header.api_version), (18, 3));
        let request = ApiVersionsRequest::from_bytes(&second.body, 3).unwrap();
        assert_eq!(request.client_software_name, "sharegroup");
        peer.answer::<ApiVersionsRequest>(&second, &versions())
            .await;
    };
    let (connection, ()) = tokio::join!(open(&connector), script);
    assert_eq!(connection.unwrap().version::<MetadataRequest>(), Ok(12));
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_refuses_api_versions_twice_is_an_error_not_a_loop() {
    let (connector, mut peer) = pipe();
    let script = async {
        for _ in 0..2 {
            let asked = peer.asked().await;
            let response = ApiVersionsResponse {
                error_code: ErrorCode::UnsupportedVersion,
                ..Default::default()
            };
            let frame =
                encode_response::<ApiVersionsRequest>(&response, 0, asked.header.correlation_id);
            peer.0.write_all(&frame).await.unwrap();
        }
    };
    let (connection, ()) = tokio::join!(open(&connector), script);
    let error = connection.unwrap_err();
    assert_eq!(
        error,
        ConnectError::Broker {
            address: address(),
            code: ErrorCode::UnsupportedVersion
        }
    );
    assert!(!error.is_retriable());
}

#[tokio::test(start_paused = true)]
async fn b_035_nothing_is_sent_before_the_answer_to_api_versions() {
    let (connector, mut peer) = pipe();
    let script = async {
        let asked = peer.asked().await;
        let mut byte = [0];
        // Two seconds of silence: nothing else arrives.
        timeout(2 * SECOND, peer.0.read(&mut byte))
            .await
            .unwrap_err();
        peer.answer::<ApiVersionsRequest>(&asked, &versions()).await;
    };
    let call = async {
        let connection = open(&connector).await?;
        Ok::<_, ConnectError>((connection.call(&heartbeat("m")).await, connection))
    };
    let (outcome, ()) = tokio::join!(
        async {
            tokio::select! {
                outcome = call => Some(outcome),
                () = tokio::time::sleep(3 * SECOND) => None,
            }
        },
        script
    );
    assert!(
        outcome.is_none(),
        "the heartbeat waits for an answer that the script never gives"
    );
}

#[tokio::test(start_paused = true)]
async fn setup_has_a_deadline() {
    let (connector, _peer) = pipe();
    let started = Instant::now();
    let error = open(&connector).await.unwrap_err();
    let (phase, after) = (ConnectPhase::ApiVersions, 10 * SECOND);
    assert_eq!(
        error,
        ConnectError::Timeout {
            address: address(),
            phase,
            after
        }
    );
    assert_eq!(started.elapsed(), after);
    assert!(error.is_retriable());
    let text = error.to_string();
    assert!(
        text.contains("within 10 s") && text.contains("security.protocol"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_names_the_address() {
    let error = open(&Pipe::default()).await.unwrap_err();
    assert!(error.is_retriable());
    assert!(error.to_string().contains("broker:9092"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_at_its_deadline_ends_the_connection() {
    let (connection, mut peer) = connected().await;
    let started = Instant::now();
    let (first, second) = (heartbeat("first"), heartbeat("second"));
    let (first, second, ()) = tokio::join!(
        connection.call_with(&first, 1, 5 * SECOND),
        connection.call_with(&second, 1, 8 * SECOND),
        async {
            peer.asked().await;
            peer.asked().await;
        }
    );
    assert_eq!(started.elapsed(), 5 * SECOND);
    let first = first.unwrap_err();
    assert_eq!(
        first,
        CallError::Timeout {
            address: address(),
            api: "ShareGroupHeartbeat",
            after: 5 * SECOND
        },
    );
    assert!(first.is_retriable() && first.may_have_arrived());
    let reason = CloseReason::Timeout {
        api: "ShareGroupHeartbeat",
        after: 5 * SECOND,
    };
    assert_eq!(
        second.unwrap_err(),
        CallError::ConnectionLost {
            address: address(),
            api: "ShareGroupHeartbeat",
            reason: reason.clone()
        }
    );
    assert_eq!(connection.closed().await, reason);
    let later = connection.call(&heartbeat("late")).await.unwrap_err();
    assert!(
        matches!(later, CallError::NotConnected { .. }) && !later.may_have_arrived(),
        "{later}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_earlier_deadline_that_is_added_later_is_kept() {
    let (connection, _peer) = connected().await;
    let started = Instant::now();
    let (long, short) = (heartbeat("long"), heartbeat("short"));
    let (_, short) = tokio::join!(connection.call_with(&long, 1, 20 * SECOND), async {
        tokio::time::sleep(SECOND).await;
        connection.call_with(&short, 1, SECOND).await
    });
    assert!(matches!(short, Err(CallError::Timeout { .. })), "{short:?}");
    assert_eq!(started.elapsed(), 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_leaves_the_connection_usable_and_its_late_answer_is_dropped() {
    let (connection, mut peer) = connected().await;
    timeout(SECOND, connection.call(&heartbeat("dropped")))
        .await
        .unwrap_err();
    let dropped = peer.asked().await;
    let request = heartbeat("kept");
    let (kept, ()) = tokio::join!(connection.call(&request), async {
        let asked = peer.asked().await;
        peer.answer::<ShareGroupHeartbeatRequest>(&dropped, &beaten("dropped"))
            .await;
        peer.answer::<ShareGroupHeartbeatRequest>(&asked, &beaten("kept"))
            .await;
    });
    assert_eq!(kept.unwrap().member_id.as_deref(), Some("kept"));
    assert!(!connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_that_is_never_answered_still_ends_the_connection_at_its_deadline() {
    let (connection, _peer) = connected().await;
    let started = Instant::now();
    timeout(SECOND, connection.call(&heartbeat("dropped")))
        .await
        .unwrap_err();
    connection.closed().await;
    assert_eq!(started.elapsed(), 30 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_are_bounded_and_who_finds_no_place_is_told_so() {
    let options = ConnectionOptions {
        in_flight_max: 2,
        ..Default::default()
    };
    let (connection, mut peer) = connected_with(options).await;
    let request = heartbeat("m");
    let calls = async {
        tokio::join!(
            connection.call(&request),
            connection.call(&request),
            connection.call_with(&request, 1, 3 * SECOND),
        )
    };
    let script = async {
        let (first, second) = (peer.asked().await, peer.asked().await);
        let mut byte = [0];
        timeout(4 * SECOND, peer.0.read(&mut byte))
            .await
            .unwrap_err();
        peer.answer::<ShareGroupHeartbeatRequest>(&first, &beaten("1"))
            .await;
        peer.answer::<ShareGroupHeartbeatRequest>(&second, &beaten("2"))
            .await;
    };
    let ((first, second, third), ()) = tokio::join!(calls, script);
    assert_eq!(first.unwrap().member_id.as_deref(), Some("1"));
    assert_eq!(second.unwrap().member_id.as_deref(), Some("2"));
    let third = third.unwrap_err();
    assert!(
        matches!(
            third,
            CallError::Busy {
                in_flight_max: 2,
                ..
            }
        ) && !third.may_have_arrived(),
        "{third}"
    );
    assert!(!connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn an_answer_out_of_order_ends_the_connection() {
    let (connection, mut peer) = connected().await;
    let request = heartbeat("m");
    let (first, second, ids) = tokio::join!(
        connection.call(&request),
        connection.call(&request),
        async {
            let (first, second) = (peer.asked().await, peer.asked().await);
            peer.answer::<ShareGroupHeartbeatRequest>(&second, &beaten("m"))
                .await;
            (first.header.correlation_id, second.header.correlation_id)
        }
    );
    let reason = CloseReason::CorrelationId {
        expected: Some(ids.0.0),
        received: ids.1.0,
    };
    for outcome in [first, second] {
        let error = outcome.unwrap_err();
        assert!(
            matches!(&error, CallError::ConnectionLost { reason: r, .. } if *r == reason),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_asked_for_ends_the_connection() {
    let (connection, mut peer) = connected().await;
    let frame = encode_response::<ShareGroupHeartbeatRequest>(&beaten("m"), 1, CorrelationId(77));
    peer.0.write_all(&frame).await.unwrap();
    assert_eq!(
        connection.closed().await,
        CloseReason::CorrelationId {
            expected: None,
            received: 77
        }
    );
}

#[tokio::test(start_paused = true)]
async fn a_huge_frame_is_refused_by_its_size() {
    let (connection, mut peer) = connected().await;
    peer.0
        .write_all(&[0x7f, 0xff, 0xff, 0xff, 0, 0])
        .await
        .unwrap();
    let limit = ConnectionOptions::default().frame_bytes_max;
    let size = 0x7fff_ffff;
    assert_eq!(
        connection.closed().await,
        CloseReason::Frame(DecodeError::FrameTooLarge { size, limit })
    );
}

#[test]
fn the_size_of_a_frame_alone_allocates_no_more_than_a_mebibyte() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let (connection, mut peer) = runtime.block_on(connected());
    let allocated = allocation_counter::measure(|| {
        runtime.block_on(async {
            peer.0
                .write_all(&(90 * 1024 * 1024_u32).to_be_bytes())
                .await
                .unwrap();
            peer.0.write_all(&[0; 100]).await.unwrap();
            tokio::time::sleep(SECOND).await;
        });
    });
    assert!(!connection.is_closed());
    assert!(allocated.bytes_max <= 1024 * 1024 + 4096, "{allocated:?}");
}

#[tokio::test(start_paused = true)]
async fn frame_sizes_that_hold_no_correlation_id_are_refused() {
    for size in [i32::MIN, -1, 0, 3] {
        let (connection, mut peer) = connected().await;
        peer.0.write_all(&size.to_be_bytes()).await.unwrap();
        assert_eq!(connection.closed().await, CloseReason::FrameSize { size });
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_inside_a_frame_says_so() {
    let (connection, mut peer) = connected().await;
    let request = heartbeat("m");
    let (outcome, ()) = tokio::join!(connection.call(&request), async {
        peer.asked().await;
        peer.0
            .write_all(&[0, 0, 0, 100, 0, 0, 0, 1, 9])
            .await
            .unwrap();
        peer.0.shutdown().await.unwrap();
    });
    let error = outcome.unwrap_err();
    let reason = CloseReason::ByPeerInsideFrame { missing: 95 };
    assert!(
        matches!(&error, CallError::ConnectionLost { reason: r, .. } if *r == reason),
        "{error}"
    );
    assert!(error.is_retriable() && error.may_have_arrived());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_between_frames_is_closed_by_the_broker() {
    let (connection, peer) = connected().await;
    drop(peer);
    assert_eq!(connection.closed().await, CloseReason::ByPeer);
    assert!(connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_answer_ends_the_connection() {
    let (connection, mut peer) = connected().await;
    let request = heartbeat("m");
    let (outcome, ()) = tokio::join!(connection.call(&request), async {
        let asked = peer.asked().await;
        let mut frame = BytesMut::from(&[0, 0, 0, 6][..]);
        frame.extend_from_slice(&asked.header.correlation_id.0.to_be_bytes());
        frame.extend_from_slice(&[0, 0]);
        peer.0.write_all(&frame).await.unwrap();
    });
    let error = outcome.unwrap_err();
    assert!(
        matches!(error, CallError::PeerMisbehaved { version: 1, .. }),
        "{error}"
    );
    assert!(matches!(
        connection.closed().await,
        CloseReason::Decode { .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn close_fails_what_waits_and_ends_the_stream() {
    let (connection, mut peer) = connected().await;
    let request = heartbeat("m");
    let (outcome, ()) = tokio::join!(connection.call(&request), async {
        peer.asked().await;
        connection.close();
    });
    assert!(
        matches!(
            outcome,
            Err(CallError::ConnectionLost {
                reason: CloseReason::ByUs,
                ..
            })
        ),
        "{outcome:?}"
    );
    assert_eq!(peer.0.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_last_dropped_handle_ends_the_stream() {
    let (connection, mut peer) = connected().await;
    let clone = connection.clone();
    drop(connection);
    timeout(SECOND, peer.0.read(&mut [0])).await.unwrap_err();
    drop(clone);
    assert_eq!(peer.0.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn frames_arrive_whole_whatever_the_pieces() {
    let (connection, mut peer) = connected().await;
    let request = heartbeat("m");
    // Larger than what is allocated on the peer's word, so that the buffer grows.
    let text = "x".repeat(3 * 1024 * 1024 + 17);
    let response = ShareGroupHeartbeatResponse {
        error_message: Some(text.clone()),
        ..Default::default()
    };
    let (outcome, ()) = tokio::join!(connection.call(&request), async {
        let asked = peer.asked().await;
        let mut frame = encode_response::<ShareGroupHeartbeatRequest>(
            &response,
            1,
            asked.header.correlation_id,
        );
        // The size itself comes byte by byte.
        for _ in 0..5 {
            peer.0.write_all(&frame.split_to(1)).await.unwrap();
            tokio::task::yield_now().await;
        }
        while frame.has_remaining() {
            let piece = frame.split_to(frame.len().min(9_999));
            peer.0.write_all(&piece).await.unwrap();
        }
    });
    assert_eq!(outcome.unwrap().error_message, Some(text));
}

#[tokio::test(start_paused = true)]
async fn client_id_travels_in_the_header() {
    let options = ConnectionOptions {
        client_id: Some("orders-1".into()),
        ..Default::default()
    };
    let (connector, mut peer) = pipe();
    let address = address();
    let (connection, header) =
        tokio::join!(Connection::open(&connector, &address, &options), async {
            let asked = peer.asked().await;
            peer.answer::<ApiVersionsRequest>(&asked, &versions()).await;
            asked.header
        });
    connection.unwrap();
    assert_eq!(header.client_id.as_deref(), Some("orders-1"));
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_closes_itself_and_one_that_waits_does_not() {
    let idle_max = Some(20 * SECOND);
    let (connection, mut peer) = connected_with(ConnectionOptions {
        idle_max,
        ..Default::default()
    })
    .await;
    // Each answer starts the time anew.
    for _ in 0..3 {
        let request = heartbeat("m");
        let (outcome, ()) = tokio::join!(connection.call(&request), async {
            let asked = peer.asked().await;
            tokio::time::sleep(25 * SECOND).await;
            peer.answer::<ShareGroupHeartbeatRequest>(&asked, &beaten("m"))
                .await;
        });
        outcome.unwrap();
        tokio::time::sleep(15 * SECOND).await;
        assert!(!connection.is_closed());
    }
    let waited = Instant::now();
    let reason = connection.closed().await;
    assert_eq!(reason, CloseReason::Idle { after: 20 * SECOND });
    assert!(reason.is_retriable());
    assert_eq!(waited.elapsed(), 5 * SECOND);
    let error = connection.call(&heartbeat("m")).await.unwrap_err();
    assert!(!error.may_have_arrived(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_meets_a_closed_stream_is_known_as_not_sent() {
    let (connection, peer) = connected().await;
    // The end has come, but nobody has looked at it yet: a broker's close of an idle connection.
    drop(peer);
    assert!(!connection.is_closed());
    let error = connection.call(&heartbeat("m")).await.unwrap_err();
    assert!(
        matches!(
            error,
            CallError::NotConnected {
                reason: CloseReason::ByPeer,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(!error.may_have_arrived() && error.is_retriable());
}
