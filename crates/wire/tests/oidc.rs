//! Tokens of an OIDC provider: an HTTPS server in this process, over loopback.
#![cfg(feature = "tls")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[path = "security/provider.rs"]
mod provider;
mod security;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use provider::{Provider, Reply};
use security::log::Log;
use security::{Authority, Pair};
use sharegroup_wire::net::Secret;
use sharegroup_wire::net::sasl::{
    Credentials, SaslError, SaslOptions, TokenSource, UnsecuredToken,
};
use sharegroup_wire::net::tls::TlsError;

const SECRET: &str = "client-secret/ü";

fn options(keys: &[(&str, &str)]) -> SaslOptions {
    let mut options = SaslOptions::default();
    options.set("sasl.mechanism", "OAUTHBEARER").unwrap();
    for (key, value) in keys {
        assert!(options.set(key, value).unwrap(), "{key}");
    }
    options
}

fn source(options: &SaslOptions) -> Arc<dyn TokenSource> {
    let credentials = options.credentials().unwrap();
    let shown = format!("{options:?} {credentials:?}");
    assert!(!shown.contains(SECRET), "{shown}");
    match credentials {
        Credentials::OauthBearer { source, .. } => source,
        other => panic!("{other:?}"),
    }
}

/// Keys of Kafka 4.1 and later.
fn asks(url: &str, authority: &Authority, more: &[(&str, &str)]) -> Arc<dyn TokenSource> {
    let jaas = format!(
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required ssl.truststore.certificates=\"{}\";",
        authority.pem.replace('\n', "\\n")
    );
    let mut options = options(&[
        ("sasl.oauthbearer.token.endpoint.url", url),
        ("sasl.oauthbearer.client.credentials.client.id", "alice"),
        ("sasl.oauthbearer.client.credentials.client.secret", SECRET),
        ("sasl.oauthbearer.scope", "read write"),
        ("sasl.jaas.config", &jaas),
    ]);
    for (key, value) in more {
        assert!(options.set(key, value).unwrap(), "{key}");
    }
    source(&options)
}

/// A JWT that is valid for so long.
async fn jwt(seconds: i64) -> String {
    let token = if seconds < 0 {
        UnsecuredToken::new("alice").with_number("exp", 1000.0)
    } else {
        UnsecuredToken::new("alice").with_lifetime(Duration::from_secs(seconds.unsigned_abs()))
    };
    token.token().await.unwrap().expose().to_owned()
}

fn answer(token: &str) -> Reply {
    Reply::ok(format!(
        r#"{{"access_token":"{token}","token_type":"Bearer","scope":"read","expires_in":3600}}"#
    ))
}

async fn refused(source: &Arc<dyn TokenSource>) -> SaslError {
    let error = source.token().await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(
        !shown.contains(SECRET) && !shown.contains("hush"),
        "{shown}"
    );
    error
}

#[tokio::test]
async fn a_token_is_asked_for_as_kafkas_clients_do() {
    let authority = Authority::new("ca");
    let token = jwt(3600).await;
    let provider = Provider::start(&authority.server(), vec![answer(&token)]).await;
    let source = asks(&provider.url(), &authority, &[]);
    assert_eq!(source.token().await.unwrap().expose(), token);
    let asked = provider.asked();
    assert_eq!(asked.len(), 1);
    let (head, body) = asked[0].split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("POST /token?tenant=1 HTTP/1.1\r\n"),
        "{head}"
    );
    let headers: BTreeMap<String, &str> = head
        .lines()
        .skip(1)
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_lowercase(), value))
        .collect();
    assert_eq!(headers["host"], format!("localhost:{}", provider.port));
    assert_eq!(headers["content-type"], "application/x-www-form-urlencoded");
    assert_eq!(headers["accept"], "application/json");
    // alice:client-secret/ü
    assert_eq!(
        headers["authorization"],
        "Basic YWxpY2U6Y2xpZW50LXNlY3JldC/DvA=="
    );
    assert_eq!(body, "grant_type=client_credentials&scope=read+write");
}

#[tokio::test]
async fn id_and_secret_may_stand_in_the_jaas_options_and_be_url_encoded() {
    let authority = Authority::new("ca");
    let provider = Provider::start(&authority.server(), vec![answer("opaque")]).await;
    let jaas = format!(
        "OAuthBearerLoginModule required clientId=\"alice\" clientSecret=\"{SECRET}\" scope=\"all\" ssl.truststore.certificates=\"{}\";",
        authority.pem.replace('\n', "\\n")
    );
    let source = source(&options(&[
        ("sasl.oauthbearer.token.endpoint.url", &provider.url()),
        ("sasl.oauthbearer.header.urlencode", "true"),
        (
            "sasl.login.callback.handler.class",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
        ),
        ("sasl.jaas.config", &jaas),
    ]));
    assert_eq!(source.token().await.unwrap().expose(), "opaque");
    let asked = provider.asked();
    // alice:client-secret%2F%C3%BC
    assert!(asked[0].contains("Basic YWxpY2U6Y2xpZW50LXNlY3JldCUyRiVDMyVCQw=="));
    assert!(asked[0].ends_with("&scope=all"));
}

#[tokio::test]
async fn a_token_is_kept_until_the_last_part_of_its_life() {
    let authority = Authority::new("ca");
    let (long, short) = (jwt(3600).await, jwt(2).await);
    let provider = Provider::start(&authority.server(), vec![answer(&long)]).await;
    let source = asks(&provider.url(), &authority, &[]);
    for _ in 0..10 {
        source.token().await.unwrap();
    }
    assert_eq!(provider.asked().len(), 1);

    // Many at once are one request.
    let provider = Provider::start(&authority.server(), vec![answer(&long)]).await;
    let source = asks(&provider.url(), &authority, &[]);
    let (a, b, c) = tokio::join!(source.token(), source.token(), source.token());
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    assert_eq!(provider.asked().len(), 1);

    // 80 to 85 % of at most 2 s are over after 1.75 s. Real time: expiry is a date.
    let provider = Provider::start(&authority.server(), vec![answer(&short), answer(&long)]).await;
    let source = asks(&provider.url(), &authority, &[]);
    let first = Instant::now();
    let same = |token: Secret| token.expose() == short;
    assert!(same(source.token().await.unwrap()));
    while same(source.token().await.unwrap()) {
        assert!(first.elapsed() < Duration::from_secs(2));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(provider.asked().len(), 2);
}

#[tokio::test]
async fn an_old_token_stays_in_use_while_the_provider_fails() {
    let authority = Authority::new("ca");
    let token = jwt(4).await;
    let replies = vec![answer(&token), Reply::status(503, "")];
    let provider = Provider::start(&authority.server(), replies).await;
    let (log, _guard) = Log::start();
    let source = asks(
        &provider.url(),
        &authority,
        &[
            ("sasl.login.refresh.window.factor", "0.5"),
            ("sasl.login.refresh.window.jitter", "0"),
            ("sasl.login.retry.backoff.max.ms", "200"),
        ],
    );
    let first = Instant::now();
    while let Ok(used) = source.token().await {
        assert_eq!(used.expose(), token);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Expiry is a date in whole seconds.
    assert!(first.elapsed() >= Duration::from_secs(3));
    assert!(provider.asked().len() > 2, "it was asked again");
    assert_eq!(log.lines(SECRET).len(), 0);
    let error = refused(&source).await;
    assert!(
        matches!(error, SaslError::TokenRefused { status: 503, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn what_may_pass_is_tried_again_and_what_may_not_is_told_at_once() {
    let authority = Authority::new("ca");
    let token = jwt(3600).await;
    let replies = vec![Reply::status(503, "busy"), Reply::cut(), answer(&token)];
    let provider = Provider::start(&authority.server(), replies).await;
    let source = asks(&provider.url(), &authority, &[]);
    assert_eq!(source.token().await.unwrap().expose(), token);
    assert_eq!(provider.asked().len(), 3);

    let body = format!(
        r#"{{"error":"invalid_client","error_description":"no such client\u0000, secret {SECRET}"}}"#
    );
    let provider = Provider::start(&authority.server(), vec![Reply::status(401, &body)]).await;
    let source = asks(&provider.url(), &authority, &[]);
    let error = refused(&source).await;
    assert!(!error.is_retriable());
    let text = error.to_string();
    assert!(
        text.contains("HTTP 401: invalid_client: no such client, secret [hidden]")
            && text.contains(&format!("localhost:{}/token", provider.port))
            && !text.contains("tenant"),
        "{text}"
    );
    assert_eq!(provider.asked().len(), 1);
}

#[tokio::test]
async fn answers_that_are_no_tokens_are_refused() {
    let authority = Authority::new("ca");
    let expired = jwt(-1).await;
    for (reply, expected) in [
        (Reply::ok("hush, this is no JSON"), "without access_token"),
        (
            Reply::ok(r#"{"access_token":7,"x":"hush"}"#),
            "without access_token",
        ),
        (Reply::ok(r#"{"access_token":""}"#), "without access_token"),
        (answer(&expired), "expired"),
        (Reply::ok("x".repeat(300_000)), "limit"),
        (Reply::status(302, ""), "HTTP 302"),
        (Reply::raw("SSH-2.0-hush\r\n"), "localhost"),
        (
            Reply::raw(format!(
                "HTTP/1.1 200 OK\r\nx: {}\r\n\r\n",
                "h".repeat(100_000)
            )),
            "localhost",
        ),
    ] {
        let provider = Provider::start(&authority.server(), vec![reply]).await;
        let source = asks(
            &provider.url(),
            &authority,
            &[("sasl.login.retry.backoff.max.ms", "50")],
        );
        let error = refused(&source).await.to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[tokio::test]
async fn a_slow_provider_has_its_time() {
    let authority = Authority::new("ca");
    let provider = Provider::start(&authority.server(), vec![Reply::never()]).await;
    let source = asks(
        &provider.url(),
        &authority,
        &[
            ("sasl.login.read.timeout.ms", "100"),
            ("sasl.login.retry.backoff.max.ms", "50"),
        ],
    );
    let error = refused(&source).await;
    assert!(
        error.to_string().contains("no answer within 100 ms"),
        "{error}"
    );
    assert!(error.is_retriable());
    // A port that takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}/", silent.local_addr().unwrap().port());
    let source = asks(
        &url,
        &authority,
        &[
            ("sasl.login.connect.timeout.ms", "100"),
            ("sasl.login.retry.backoff.max.ms", "50"),
        ],
    );
    let error = refused(&source).await;
    assert!(
        error.to_string().contains("no connection within 100 ms"),
        "{error}"
    );
}

#[tokio::test]
async fn who_stops_waiting_leaves_the_token_to_the_next() {
    let authority = Authority::new("ca");
    let token = jwt(3600).await;
    let reply = answer(&token).after(Duration::from_millis(300));
    let provider = Provider::start(&authority.server(), vec![reply]).await;
    let source = asks(&provider.url(), &authority, &[]);
    let cut = tokio::time::timeout(Duration::from_millis(100), source.token()).await;
    assert!(cut.is_err());
    assert_eq!(source.token().await.unwrap().expose(), token);
    assert_eq!(provider.asked().len(), 1);
}

#[tokio::test]
async fn the_providers_certificate_is_checked() {
    let authority = Authority::new("ca");
    type Case = (Pair, fn(&TlsError) -> bool);
    let cases: [Case; 3] = [
        (Authority::new("other").server(), |error| {
            matches!(error, TlsError::UnknownIssuer { .. })
        }),
        (authority.server_for(&["other.example"]), |error| {
            matches!(error, TlsError::WrongHostName { .. })
        }),
        (authority.expired_server(), |error| {
            matches!(error, TlsError::Expired { .. })
        }),
    ];
    for (pair, fits) in cases {
        let provider = Provider::start(&pair, vec![answer("opaque")]).await;
        let error = refused(&asks(&provider.url(), &authority, &[])).await;
        assert!(!error.is_retriable());
        assert!(error.to_string().contains("sasl.jaas.config"), "{error}");
        assert!(
            matches!(&error, SaslError::TokenTls { source, .. } if fits(source)),
            "{error}"
        );
        assert_eq!(provider.asked().len(), 0, "no secret was sent");
    }
}

#[test]
fn endpoints_and_classes_that_cannot_be_are_refused() {
    for (url, expected) in [
        ("https://", "URL"),
        ("https://user:hush@host/", "no user"),
        ("https://a b/", "URL"),
    ] {
        let error = options(&[
            ("sasl.oauthbearer.token.endpoint.url", url),
            ("sasl.oauthbearer.client.credentials.client.id", "alice"),
            ("sasl.oauthbearer.client.credentials.client.secret", "s"),
        ])
        .credentials()
        .unwrap_err()
        .to_string();
        assert!(
            error.contains(expected) && !error.contains("hush"),
            "{error}"
        );
    }
    let keys = [("sasl.oauthbearer.token.endpoint.url", "https://host/")];
    let error = options(&keys).credentials().unwrap_err().to_string();
    assert!(error.contains("client.secret"), "{error}");
    let mut options = SaslOptions::default();
    for (key, value) in [
        ("sasl.oauthbearer.token.endpoint.url", "ftp://host"),
        ("sasl.login.callback.handler.class", "com.example.Handler"),
        (
            "sasl.oauthbearer.jwt.retriever.class",
            "JwtBearerJwtRetriever",
        ),
    ] {
        assert_eq!(options.set(key, value).unwrap_err().key, key);
    }
}
