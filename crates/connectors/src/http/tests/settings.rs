//! Keys that are wrong, odd, or have other names.

use super::*;

/// What is wrong with these keys, in one text.
fn problems(keys: &[(&str, &str)]) -> String {
    let problems = loaded(keys).map(|(_, warnings)| warnings);
    let problems = problems.unwrap_or_else(|problems| problems);
    let texts = problems.iter().map(ToString::to_string);
    texts.collect::<Vec<_>>().join("\n")
}

#[test]
fn wrong_settings_are_found_before_the_start() {
    const URL: (&str, &str) = ("http.url", "http://h/");
    for (keys, text) in [
        (&[][..], "http.url: must be set"),
        (&[("http.url", "h/x")], "must begin with http"),
        (&[("http.url", "ftp://h/x")], "must begin with http"),
        (&[("http.url", "http://${key}/x")], "must not take its host"),
        (&[("http.url", "http://h/${kex}")], "isn't known"),
        (&[("http.url", "http://h/a b")], "is not a URL"),
        (
            &[URL, ("http.api.url", "http://i/")],
            "another name of http.url",
        ),
        (&[URL, ("http.method", "connect")], "not a method"),
        (&[URL, ("http.method", "P T")], "not a method"),
        (&[URL, ("http.headers", "X")], "without a colon"),
        (&[URL, ("http.headers", "Host: x")], "must not set host"),
        (
            &[URL, ("http.headers", "Authorization: Bearer x")],
            "http.headers.secret",
        ),
        (&[URL, ("http.status.later", "5xx")], "no status"),
        (
            &[URL, ("http.request.timeout.ms", "600000")],
            "share.put.stall.ms",
        ),
        (
            &[URL, ("auth.type", "basic")],
            "connection.user: must be set",
        ),
        (
            &[URL, ("auth.type", "oauth2")],
            "oauth2.client.secret: must be set",
        ),
        (&[URL, ("response.topic", "orders")], "come back for ever"),
        (&[URL, ("batch.response.items", "/items")], "has no effect"),
        (
            &[URL, ("batch.max.size", "9"), ("batch.response.items", "x")],
            "JSON pointer",
        ),
        (
            &[URL, ("http.proxy.host", "http://p")],
            "must be a host alone",
        ),
        (
            &[
                ("http.url", "https://h/"),
                ("https.ssl.truststore.location", "/no/such"),
            ],
            "/no/such",
        ),
        (&[URL, ("https.ssl.enabled.protocols", "SSLv3")], "SSLv3"),
    ] {
        let found = problems(keys);
        assert!(found.contains(text), "{keys:?}: {found}");
    }
    assert_eq!(problems(&[URL]), "");
}

#[test]
fn the_names_of_other_http_sinks_are_known() {
    let other = config(&[
        ("http.api.url", "http://h/x"),
        ("request.method", "PUT"),
        ("http.headers.additional", "A:1,B:2"),
        ("http.authorization.type", "static"),
        ("http.headers.authorization", "hush"),
        ("reporter.result.topic.name", "answers"),
    ]);
    let ours = config(&[
        ("http.url", "http://h/x"),
        ("http.method", "PUT"),
        ("http.headers", "A: 1|B: 2"),
        ("auth.type", "static"),
        ("http.headers.authorization", "hush"),
        ("response.topic", "answers"),
    ]);
    let shown = |config: &HttpConfig| {
        let topic = config.response_topic.as_ref().map(|topic| &topic.topic);
        format!("{:?} {:?} {topic:?}", config.request, config.target)
    };
    assert_eq!(shown(&other), shown(&ours));
    assert_eq!(other.request.path, ours.request.path);
}

#[test]
fn secrets_are_in_no_text() {
    let keys = [
        ("http.url", "http://me:hush1@h/hush5/${key}?t=hush6"),
        ("http.headers.secret", "X-Api: hush2-${key}"),
        ("http.proxy.host", "p"),
        ("http.proxy.user", "u"),
        ("http.proxy.password", "hush3"),
        ("https.ssl.key.password", "hush4"),
    ];
    let (connector, _) = loaded(&keys).unwrap();
    let task = HttpTask::new(HttpConfig::read(&connector).unwrap().0);
    let texts = format!("{connector:?} {task:?}");
    assert!(!texts.contains("hush"), "{texts}");
    let with_mistake: Vec<_> = keys.into_iter().chain([("auth.type", "bearer")]).collect();
    let found = problems(&with_mistake);
    assert!(
        found.contains("contradicts") && !found.contains("hush"),
        "{found}"
    );
    let url_key = |key: &'static str, url: &'static str| {
        let found = problems(&[
            ("http.url", "http://h/"),
            ("auth.type", "oauth2"),
            (key, url),
        ]);
        assert!(found.contains(key) && !found.contains("hush"), "{found}");
    };
    url_key("http.url", "ftp://h/hush1?t=hush2");
    url_key("http.api.url", "http://h/hush1?t=hush2");
    url_key("oauth2.token.url", "ftp://h/hush1?t=hush2");
}

#[test]
fn every_key_of_tls_is_there_and_every_other_name_is_a_key() {
    let names: Vec<_> = super::super::keys::KEYS
        .iter()
        .map(|key| key.name)
        .collect();
    for key in sharegroup_wire::net::tls::TlsOptions::KEYS {
        assert!(names.contains(&format!("https.{key}").as_str()), "{key}");
    }
    for (name, alias) in super::super::keys::ALIASES {
        assert!(names.contains(name) && names.contains(alias), "{alias}");
    }
    let mut apart = names.clone();
    apart.sort_unstable();
    apart.dedup();
    assert_eq!(apart.len(), names.len());
}

#[test]
fn every_default_is_a_value_of_its_key() {
    for key in super::super::keys::KEYS {
        if let Some(default) = key.default {
            assert_eq!(key.kind.check(default), Ok(()), "{}", key.name);
        }
    }
}
