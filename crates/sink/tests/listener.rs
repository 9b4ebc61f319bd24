//! The worker's listener against clients that are slow, greedy, or speak something else.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod http;

use std::sync::Arc;

use http::{answer, ask, get, serve};
use sharegroup_sink::Registry;
use sharegroup_sink::config::{Properties, load_properties};
use sharegroup_sink::worker::{Worker, WorkerOptions};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant};

/// A worker with nothing to do.
fn worker() -> Arc<Worker> {
    let mut file = Properties::new("worker.properties");
    file.set("bootstrap.servers", "localhost:9092");
    let loaded = load_properties(file, vec![], false, &Registry::new()).unwrap();
    let options = WorkerOptions::default();
    Arc::new(Worker::start(&loaded.worker, vec![], &options))
}

#[tokio::test]
async fn get_and_head_of_three_pages_are_answered_and_nothing_else() {
    let worker = worker();
    let (_serving, address) = serve(&worker).await;
    let metrics = get(address, "/metrics?x=1").await;
    assert_eq!(metrics.status, 200);
    let kind = "content-type: text/plain; version=0.0.4";
    assert!(metrics.head.contains(kind), "{metrics:?}");
    assert_eq!(get(address, "/health/live").await.status, 200);
    assert_eq!(get(address, "/health/ready").await.status, 503);
    for (request, status) in [
        ("GET /metrics/ HTTP/1.1\r\nHost: h\r\n\r\n", 404),
        ("GET /connectors HTTP/1.1\r\nHost: h\r\n\r\n", 404),
        ("GET /../etc/passwd HTTP/1.1\r\nHost: h\r\n\r\n", 404),
        (
            "POST /connectors HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}",
            404,
        ),
        (
            "POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999999\r\n\r\n{}",
            405,
        ),
        ("DELETE /health/live HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        ("GET /health/live HTTP/1.0\r\n\r\n", 200),
    ] {
        let answer = ask(address, request.as_bytes()).await;
        assert_eq!(answer.status, status, "{request}: {answer:?}");
        let allows = answer.head.contains("allow: get, head");
        assert_eq!(allows, status == 405, "{answer:?}");
    }
    let head = ask(address, b"HEAD /metrics HTTP/1.1\r\nHost: h\r\n\r\n").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[tokio::test]
async fn what_is_no_request_or_too_large_ends_the_connection_and_no_other() {
    let worker = worker();
    let (_serving, address) = serve(&worker).await;
    let long = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(1 << 20));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(10_000));
    let value = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(1 << 20));
    let tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec();
    let http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let nothing = b"\0\xff\r\n\r\n\r\n\r\n".to_vec();
    for bytes in [
        long.into_bytes(),
        many.into_bytes(),
        value.into_bytes(),
        tls,
        http2,
        nothing,
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // It may be gone before all is sent.
        drop(stream.write_all(&bytes).await);
        drop(stream.shutdown().await);
        let answer = answer(stream).await;
        assert!(
            [0, 400, 414, 431, 505].contains(&answer.status),
            "{answer:?}"
        );
    }
    assert_eq!(get(address, "/health/live").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_finish_its_request_is_cut_off() {
    let worker = worker();
    let (_serving, address) = serve(&worker).await;
    let began = Instant::now();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTT").await.unwrap();
    let answer = answer(stream).await;
    assert!([0, 408].contains(&answer.status), "{answer:?}");
    assert!(began.elapsed() <= Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn health_is_answered_at_once_while_silent_clients_have_all_places() {
    let worker = worker();
    let (_serving, address) = serve(&worker).await;
    let began = Instant::now();
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    assert_eq!(get(address, "/health/live").await.status, 200);
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
}
