//! Who sends: authentication, tokens, redirects, proxies.

use sharegroup_testkit::http_server::Proxy;

use super::*;

#[tokio::test]
async fn each_way_to_authenticate_sets_the_header() {
    let server = echo().await;
    for (keys, value) in [
        (
            &[
                ("auth.type", "basic"),
                ("connection.user", "me"),
                ("connection.password", "hush"),
            ][..],
            "Basic bWU6aHVzaA==",
        ),
        (
            &[("auth.type", "bearer"), ("bearer.token", "hush")],
            "Bearer hush",
        ),
        (
            &[
                ("auth.type", "static"),
                ("http.headers.authorization", "Key hush"),
            ],
            "Key hush",
        ),
    ] {
        let mut task = task_to(&server, "/", keys).await;
        put(&mut task, batch(&["x"])).await;
        let seen = server.seen().pop().unwrap();
        assert_eq!(seen.header("authorization"), Some(value));
    }
    let url = server.url("/").replace("://", "://me:h%75sh@");
    let mut task = task(&[("http.url", &url)]).await;
    put(&mut task, batch(&["x"])).await;
    let seen = server.seen().pop().unwrap();
    assert_eq!(seen.header("authorization"), Some("Basic bWU6aHVzaA=="));
}

#[tokio::test]
async fn an_answer_that_echoes_secrets_brings_none_into_a_reason() {
    let server = HttpServer::start(|request| {
        let headers = request.headers.iter().map(|(_, value)| value.as_str());
        let parts = [&request.target, "hush1", "hush4", "hush5-with-much-behind"];
        let echo: Vec<_> = headers.chain(parts).collect();
        Reply::status(400).body(echo.join(" "))
    })
    .await;
    let keys = [
        ("auth.type", "basic"),
        ("connection.user", "me"),
        ("connection.password", "hush1"),
        ("http.headers.secret", "X-Key: hush2"),
    ];
    let mut task = task_to(&server, "/hush3/hush5-with-much-behind?token=hush4", &keys).await;
    let outcomes = put(&mut task, batch(&["x"])).await;
    let text = reason(&outcomes[0]);
    assert!(
        !text.contains("hush") && !text.contains("bWU6aHVzaDE="),
        "{text}"
    );
    assert!(
        text.contains("[hidden]") && text.contains("POST http://127.0.0.1"),
        "{text}"
    );
}

/// A provider of tokens `t0`, `t1` and so on, each of which is good for so many seconds.
async fn provider(seconds: u64) -> HttpServer {
    HttpServer::start(move |request| {
        let number = request.number;
        let body = format!(r#"{{"access_token": "t{number}", "expires_in": {seconds}}}"#);
        Reply::status(200).body(body)
    })
    .await
}

async fn task_with_tokens(server: &HttpServer, provider: &HttpServer, mode: &str) -> HttpTask {
    let url = provider.url("/token");
    let keys = [
        ("auth.type", "oauth2"),
        ("oauth2.token.url", url.as_str()),
        ("oauth2.client.id", "me"),
        ("oauth2.client.secret", "hu&sh"),
        ("oauth2.client.scope", "a b"),
        ("oauth2.client.auth.mode", mode),
    ];
    task_to(server, "/", &keys).await
}

#[tokio::test]
async fn one_token_is_fetched_for_many_requests() {
    let (server, provider) = (echo().await, provider(3600).await);
    for (mode, authorization, form) in [
        (
            "header",
            Some("Basic bWU6aHUmc2g="),
            "grant_type=client_credentials&scope=a%20b",
        ),
        (
            "url",
            None,
            "grant_type=client_credentials&scope=a%20b&client_id=me&client_secret=hu%26sh",
        ),
    ] {
        let before = provider.seen().len();
        let mut task = task_with_tokens(&server, &provider, mode).await;
        put(&mut task, numbered(50)).await;
        let seen = provider.seen();
        assert_eq!(seen.len(), before + 1);
        let asked = seen.last().unwrap();
        assert_eq!(asked.header("authorization"), authorization);
        assert_eq!(asked.text(), form);
    }
    let seen = server.seen();
    let tokens = seen
        .iter()
        .map(|seen| seen.header("authorization").unwrap());
    assert_eq!(tokens.filter(|token| *token == "Bearer t0").count(), 50);
}

#[tokio::test]
async fn a_token_that_has_run_out_or_is_refused_is_replaced() {
    let server = HttpServer::start(|request| match request.header("authorization") {
        Some("Bearer t0") => Reply::status(401),
        _ => Reply::status(200),
    })
    .await;
    let refused = provider(3600).await;
    let mut task = task_with_tokens(&server, &refused, "header").await;
    assert_eq!(
        put(&mut task, numbered(20)).await,
        vec![Outcome::Written; 20]
    );
    assert_eq!(refused.seen().len(), 2);
    let short = provider(0).await;
    let mut task = task_with_tokens(&server, &short, "header").await;
    put(&mut task, numbered(1)).await;
    put(&mut task, numbered(1)).await;
    assert!(short.seen().len() >= 3, "{}", short.seen().len());
}

#[tokio::test]
async fn without_a_token_records_wait_and_the_secret_is_in_no_reason() {
    let server = echo().await;
    let provider = HttpServer::start(|request| {
        let body = format!(
            r#"{{"error": "invalid_client", "echo": {:?}}}"#,
            request.text()
        );
        Reply::status(401).body(body)
    })
    .await;
    let mut task = task_with_tokens(&server, &provider, "url").await;
    let outcomes = put(&mut task, numbered(40)).await;
    assert!(outcomes.iter().all(is_later));
    let text = reason(&outcomes[0]);
    assert!(
        text.contains("invalid_client") && !text.contains("hu"),
        "{text}"
    );
    assert_eq!((server.seen().len(), provider.seen().len()), (0, 1));
}

#[tokio::test]
async fn a_redirect_is_followed_with_method_and_body() {
    let server = HttpServer::start(|request| match request.target.as_str() {
        "/old" => Reply::status(308).header("location", "/new"),
        _ => Reply::status(200),
    })
    .await;
    let keys = [("auth.type", "bearer"), ("bearer.token", "hush")];
    let mut task = task_to(&server, "/old", &keys).await;
    assert_eq!(put(&mut task, batch(&["x"])).await, [Outcome::Written]);
    let seen = server.seen().pop().unwrap();
    assert_eq!(
        (seen.target.as_str(), seen.method.as_str()),
        ("/new", "POST")
    );
    assert_eq!(
        (seen.text().as_str(), seen.header("authorization")),
        ("x", Some("Bearer hush"))
    );
}

#[tokio::test]
async fn credentials_go_to_no_other_server() {
    let other = echo().await;
    let to = other.url("/");
    let server =
        HttpServer::start(move |_| Reply::status(307).header("location", to.clone())).await;
    for keys in [
        &[("auth.type", "bearer"), ("bearer.token", "hush")][..],
        &[("http.headers.secret", "X-Key: hush")],
        &[("http.headers", "X-Auth-Token: hush")],
    ] {
        let mut task = task_to(&server, "/", keys).await;
        let outcomes = put(&mut task, batch(&["x"])).await;
        assert!(is_later(&outcomes[0]), "{outcomes:?}");
        assert!(other.seen().is_empty());
    }
    let mut task = task_to(&server, "/", &[]).await;
    assert_eq!(put(&mut task, batch(&["x"])).await, [Outcome::Written]);
    assert_eq!(other.seen().len(), 1);
}

#[tokio::test]
async fn redirects_end_and_others_are_not_followed() {
    let server = HttpServer::start(|request| match request.target.as_str() {
        "/loop" => Reply::status(307).header("location", "/loop"),
        _ => Reply::status(302).header("location", "/elsewhere"),
    })
    .await;
    let mut task = task_to(&server, "/loop", &[]).await;
    assert!(is_later(&put(&mut task, batch(&["x"])).await[0]));
    assert_eq!(server.seen().len(), 4);
    let mut task = task_to(&server, "/", &[]).await;
    assert!(is_later(&put(&mut task, batch(&["x"])).await[0]));
    assert_eq!(server.seen().len(), 5);
}

fn proxy_keys(proxy: &Proxy) -> [(&'static str, String); 4] {
    [
        ("http.proxy.host", "127.0.0.1".to_owned()),
        ("http.proxy.port", proxy.address().port().to_string()),
        ("http.proxy.user", "me".to_owned()),
        ("http.proxy.password", "hush".to_owned()),
    ]
}

#[tokio::test]
async fn requests_go_through_a_proxy_that_wants_a_password() {
    let server = echo().await;
    let proxy = Proxy::start(server.address(), Some("Basic bWU6aHVzaA==")).await;
    let keys = proxy_keys(&proxy);
    let keys: Vec<_> = keys
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    let url = [("http.url", "http://target.invalid/x")];
    let mut task = task(&[&url[..], &keys].concat()).await;
    assert_eq!(put(&mut task, batch(&["x"])).await, [Outcome::Written]);
    assert_eq!(server.seen()[0].target, "http://target.invalid/x");
    assert!(proxy.heads()[0].starts_with("POST http://target.invalid/x HTTP/1.1"));
    // HTTP/2 needs a tunnel.
    let version = [("http.version", "2")];
    let mut task = self::task(&[&url[..], &keys, &version].concat()).await;
    assert_eq!(put(&mut task, batch(&["x"])).await, [Outcome::Written]);
    assert!(proxy.heads()[1].starts_with("CONNECT target.invalid:80"));
    let seen = &server.seen()[1];
    assert_eq!(seen.version, "HTTP/2.0");
    // The password is the proxy's alone.
    assert_eq!(seen.header("proxy-authorization"), None);
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_without_the_password() {
    let server = echo().await;
    let proxy = Proxy::start(server.address(), Some("Basic other")).await;
    let keys = proxy_keys(&proxy);
    let keys: Vec<_> = keys
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    let url = [("http.url", "https://target.invalid/x")];
    let mut task = task(&[&url[..], &keys].concat()).await;
    let outcomes = put(&mut task, batch(&["x"])).await;
    assert!(is_later(&outcomes[0]));
    let text = reason(&outcomes[0]);
    assert!(
        text.contains("407") && text.contains("proxy") && !text.contains("hush"),
        "{text}"
    );
}
