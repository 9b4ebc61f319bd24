//! What `validate --connect` says of a server.

use sharegroup_sink::{Checked, Connector};

use super::*;

async fn check(keys: &[(&str, &str)]) -> Checked {
    let (config, _) = loaded(keys).unwrap();
    HttpConnector.check(&config, &[]).await
}

#[tokio::test]
async fn a_server_is_reached_and_no_request_is_sent() {
    let server = HttpServer::start(|_| Reply::status(200)).await;
    let url = server.url("/orders/${key}");
    let checked = check(&[("http.url", &url)]).await;
    assert_eq!(checked.problems, []);
    assert!(
        checked.notes[0].ends_with("takes connections"),
        "{checked:?}"
    );
    assert!(
        checked.notes[1].contains("shows with the first one"),
        "{checked:?}"
    );
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_with_its_key() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("http://me:hush@127.0.0.1:{port}/");
    let checked = check(&[("http.url", &url)]).await;
    assert_eq!(checked.problems.len(), 1);
    let text = checked.problems[0].to_string();
    assert!(text.starts_with("http.properties: http.url"), "{text}");
    let expected = format!("no connection to http://127.0.0.1:{port}");
    assert!(text.contains(&expected) && !text.contains("hush"), "{text}");
}

#[tokio::test]
async fn plain_http_where_tls_is_spoken_fails_the_handshake_and_not_later() {
    let server = HttpServer::start(|_| Reply::status(200)).await;
    let url = server.url("/").replace("http://", "https://");
    let checked = check(&[("http.url", &url)]).await;
    assert_eq!(checked.problems.len(), 1, "{checked:?}");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_token_is_got_and_its_refusal_told_without_the_secret() {
    let server = HttpServer::start(|_| Reply::status(200)).await;
    let provider = HttpServer::start(|request| match request.number {
        0 => Reply::status(200).body(r#"{"access_token": "t"}"#),
        _ => Reply::status(401).body(r#"{"error": "invalid_client"}"#),
    })
    .await;
    let (url, token_url) = (server.url("/"), provider.url("/token"));
    let keys = [
        ("http.url", url.as_str()),
        ("auth.type", "oauth2"),
        ("oauth2.token.url", &token_url),
        ("oauth2.client.id", "me"),
        ("oauth2.client.secret", "hush"),
    ];
    let first = check(&keys).await;
    assert_eq!(first.problems, []);
    assert_eq!(first.notes[1], "a token was got from oauth2.token.url");
    let second = check(&keys).await;
    let text = second.problems[0].to_string();
    assert!(
        text.contains("invalid_client") && !text.contains("hush"),
        "{text}"
    );
    assert!(server.seen().is_empty());
}
