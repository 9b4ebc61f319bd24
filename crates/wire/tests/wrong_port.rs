//! Ports that speak something else than the client: each has an error of its own that says so.
#![cfg(feature = "net")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod scripted;

use std::time::Duration;

use scripted::{Peer, Pipe, metadata, pipe};
use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::metadata::MetadataRequest;
use sharegroup_wire::message::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use sharegroup_wire::net::{
    Address, CallError, CloseReason, ConnectError, Connection, ConnectionOptions,
};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

fn address() -> Address {
    Address::new("broker", 9092)
}

async fn open(connector: &Pipe) -> Result<Connection, ConnectError> {
    Connection::open(connector, &address(), &ConnectionOptions::default()).await
}

async fn connected() -> (Connection, Peer<DuplexStream>) {
    let (connector, mut peer) = pipe();
    let (connection, ()) = tokio::join!(open(&connector), peer.negotiate());
    (connection.unwrap(), peer)
}

/// Asks for metadata.
async fn ask(connection: &Connection) -> Result<(), CallError> {
    connection.call(&MetadataRequest::default()).await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn b_104_a_tls_alert_gives_an_error_that_suggests_tls() {
    for version in 0..=4 {
        let (connector, mut peer) = pipe();
        let started = Instant::now();
        let (outcome, ()) = tokio::join!(open(&connector), async {
            peer.asked().await;
            peer.0
                .write_all(&[0x15, 0x03, version, 0x00, 0x02, 0x02, 0x28])
                .await
                .unwrap();
        });
        let error = outcome.unwrap_err();
        assert_eq!(
            error,
            ConnectError::Closed {
                address: address(),
                reason: CloseReason::TlsAlert
            }
        );
        assert!(
            error.to_string().contains("TLS") && !error.is_retriable(),
            "{error}"
        );
        assert!(started.elapsed() < Duration::from_secs(2));
    }
}

#[tokio::test(start_paused = true)]
async fn b_104_a_peer_that_hangs_up_at_the_first_bytes_may_expect_tls() {
    let (connector, mut peer) = pipe();
    let (outcome, ()) = tokio::join!(open(&connector), async {
        peer.asked().await;
        drop(peer);
    });
    let error = outcome.unwrap_err();
    let reason = CloseReason::ByPeerAtApiVersions;
    let address = address();
    assert_eq!(error, ConnectError::Closed { address, reason });
    let text = error.to_string();
    assert!(text.contains("TLS") && text.contains("security.protocol"));
    // It may as well be a broker that stops.
    assert!(error.is_retriable());
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn b_104_a_tls_port_that_hangs_up_on_plaintext_is_named_as_one() {
    use tokio::io::AsyncReadExt;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // It hangs up without an alert; asked in TLS, it answers with a ServerHello, or an alert; then it is
    // a broker that stops.
    let hello: &[u8] = b"\x16\x03\x03\x00\x7a\x02";
    let alert: &[u8] = b"\x15\x03\x03\x00\x02\x02\x28";
    tokio::spawn(async move {
        for answer in [b"", hello, b"", alert, b"", b""] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = [0; 5];
            stream.read_exact(&mut asked).await.unwrap();
            stream.write_all(answer).await.unwrap();
        }
    });
    let address = Address::new("localhost", port);
    let connector = sharegroup_wire::net::TcpConnector::default();
    for expected in [
        CloseReason::TlsPort,
        CloseReason::TlsPort,
        CloseReason::ByPeerAtApiVersions,
    ] {
        let opened = Connection::open(&connector, &address, &ConnectionOptions::default()).await;
        let error = opened.unwrap_err();
        let ConnectError::Closed { reason, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(*reason, expected);
        assert_eq!(error.is_retriable(), expected != CloseReason::TlsPort);
        assert!(error.to_string().contains("security.protocol"), "{error}");
    }
}

/// The first request of a client without SASL is not answered, as brokers with SASL do; then the
/// broker is asked for the cause and answers so.
async fn cause_of_a_lost_first_request(code: ErrorCode) -> (CallError, Option<ConnectError>) {
    let (connection, mut peer) = connected().await;
    let (lost, ()) = tokio::join!(ask(&connection), async {
        peer.asked().await;
        drop(peer);
    });
    let lost = lost.unwrap_err();
    let (connector, mut peer) = pipe();
    let options = ConnectionOptions::default();
    let (cause, ()) = tokio::join!(lost.explain(&connector, &options), async {
        peer.negotiate().await;
        let asked = peer.asked().await;
        let mechanisms = vec!["PLAIN".to_owned(), "SCRAM-\nSHA-512".to_owned()];
        let answer = SaslHandshakeResponse {
            error_code: code,
            mechanisms,
        };
        peer.answer::<SaslHandshakeRequest>(&asked, &answer).await;
    });
    (lost, cause)
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_hangs_up_at_the_first_request_tells_whether_it_wants_sasl() {
    let (lost, cause) = cause_of_a_lost_first_request(ErrorCode::UnsupportedSaslMechanism).await;
    assert!(lost.is_retriable() && lost.to_string().contains("security.protocol"));
    let cause = cause.unwrap();
    assert!(!cause.is_retriable());
    let text = cause.to_string();
    assert!(
        text.contains("PLAIN, SCRAM-SHA-512") && text.contains("security.protocol"),
        "{text}"
    );
    let (_, cause) = cause_of_a_lost_first_request(ErrorCode::IllegalSaslState).await;
    assert_eq!(cause, None);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_hangs_up_later_or_unasked_is_not_asked_for_the_cause() {
    let (connection, mut peer) = connected().await;
    let (lost, ()) = tokio::join!(
        async {
            ask(&connection).await.unwrap();
            ask(&connection).await.unwrap_err()
        },
        async {
            let asked = peer.asked().await;
            peer.answer::<MetadataRequest>(&asked, &metadata()).await;
            peer.asked().await;
            drop(peer);
        }
    );
    let reason = CloseReason::ByPeer;
    assert!(matches!(&lost, CallError::ConnectionLost { reason: r, .. } if *r == reason));
    let (connector, _peer) = pipe();
    let options = ConnectionOptions::default();
    assert_eq!(lost.explain(&connector, &options).await, None);
    assert!(connector.0.lock().unwrap().is_some(), "nothing was opened");
}

#[tokio::test(start_paused = true)]
async fn an_http_server_is_recognized() {
    let (connector, mut peer) = pipe();
    let (outcome, ()) = tokio::join!(open(&connector), async {
        peer.asked().await;
        peer.0
            .write_all(b"HTTP/1.1 400 Bad Request\r\n")
            .await
            .unwrap();
    });
    assert_eq!(
        outcome.unwrap_err(),
        ConnectError::Closed {
            address: address(),
            reason: CloseReason::Http
        }
    );
}
