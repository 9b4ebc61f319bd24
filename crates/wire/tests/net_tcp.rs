//! TCP over loopback.
#![cfg(feature = "net")]
#![allow(missing_docs, clippy::unwrap_used)]

use sharegroup_wire::net::{
    Address, ConnectError, Connection, ConnectionOptions, Connector, TcpConnector,
    canonical_servers,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

#[tokio::test]
async fn all_addresses_of_a_host_name_are_tried() {
    // `localhost` may resolve to ::1 first; only 127.0.0.1 listens.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::new("localhost", listener.local_addr().unwrap().port());
    let (stream, accepted) = tokio::join!(
        async { TcpConnector::default().connect(&address).await.unwrap() },
        async { listener.accept().await.unwrap().0 }
    );
    let (mut stream, mut accepted) = (stream, accepted);
    stream.write_all(b"ping").await.unwrap();
    let mut bytes = [0; 4];
    accepted.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"ping");
}

async fn refused(address: &Address) -> ConnectError {
    let (connector, options) = (TcpConnector::default(), ConnectionOptions::default());
    let opened = Connection::open(&connector, address, &options).await;
    opened.unwrap_err()
}

#[tokio::test]
async fn a_port_without_a_listener_is_refused_with_its_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::new("127.0.0.1", listener.local_addr().unwrap().port());
    drop(listener);
    let error = refused(&address).await;
    assert!(
        matches!(
            error,
            ConnectError::Io {
                kind: std::io::ErrorKind::ConnectionRefused,
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error.to_string().contains(&address.to_string()) && error.is_retriable(),
        "{error}"
    );
}

#[tokio::test]
async fn a_host_name_that_does_not_resolve_says_so() {
    let address = Address::new("no-such-host.invalid", 9092);
    let error = refused(&address).await;
    assert!(error.to_string().contains("host name"), "{error}");
}

#[tokio::test]
async fn a_list_with_ipv6_addresses_is_connected_to() {
    let list = Address::parse_list("[2001:db8::1]:9092,[::1]:9093,localhost:9094").unwrap();
    assert_eq!(list[0], Address::new("2001:db8::1", 9092));
    // Where the machine has IPv6.
    let Ok(listener) = TcpListener::bind("[::1]:0").await else {
        eprintln!("SKIPPED: no IPv6 on this machine");
        return;
    };
    let port = listener.local_addr().unwrap().port();
    let address: Address = format!("[::1]:{port}").parse().unwrap();
    let (stream, accepted) = tokio::join!(
        async { TcpConnector::default().connect(&address).await },
        async { listener.accept().await }
    );
    stream.unwrap();
    assert!(accepted.unwrap().1.is_ipv6());
}

#[tokio::test]
async fn canonical_servers_are_all_addresses_by_their_names_and_what_is_unknown_stays() {
    let unknown = Address::new("no-such-host.invalid", 9093);
    let servers = canonical_servers(&[Address::new("127.0.0.1", 9092), unknown.clone()]).await;
    // The machine's own name for it is its business; the port and the order are ours.
    assert!(
        servers[0].port == 9092 && !servers[0].host.is_empty(),
        "{servers:?}"
    );
    assert_eq!(servers.last(), Some(&unknown));
    let connected = TcpListener::bind((servers[0].host.as_str(), 0)).await;
    connected.unwrap();
    let local = Address::new("localhost", 1);
    let twice = canonical_servers(&[local.clone(), local]).await;
    let mut once = twice.clone();
    once.dedup();
    assert_eq!(twice, once);
}
