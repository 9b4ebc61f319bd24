//! A client for the worker's listener, as plain as it gets.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::net::SocketAddr;
use std::sync::Arc;

use sharegroup_sink::Registry;
use sharegroup_sink::config::{Properties, load_properties};
use sharegroup_sink::listener::Listener;
use sharegroup_sink::worker::Worker;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Serves a worker's metrics and health at some port, as long as the first value lives.
pub(crate) async fn serve(worker: &Arc<Worker>) -> (JoinSet<()>, SocketAddr) {
    let mut file = Properties::new("worker.properties");
    file.set("bootstrap.servers", "localhost:9092");
    file.set("listeners", "http://127.0.0.1:0");
    let loaded = load_properties(file, vec![], false, &Registry::new()).unwrap();
    let listener = Listener::bind(&loaded.worker.listeners).await.unwrap();
    let address = listener.addresses()[0];
    let mut serving = JoinSet::new();
    let worker = Arc::clone(worker);
    serving.spawn(async move {
        let never = listener.serve(&worker).await;
        match never {}
    });
    (serving, address)
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Answer {
    let request = format!("GET {path} HTTP/1.1\r\nHost: worker\r\n\r\n");
    ask(address, request.as_bytes()).await
}

/// The answer to some bytes, up to the end of the connection.
pub(crate) async fn ask(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    answer(stream).await
}

pub(crate) async fn answer(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // Whoever was cut off in the middle of what it sends may be told so.
    drop(stream.read_to_end(&mut bytes).await);
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).unwrap_or("0");
    Answer {
        status: status.parse().unwrap(),
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}
