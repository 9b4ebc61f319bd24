//! Who may connect, and how.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::*;

/// What a server without TLS says to users of each kind.
#[tokio::test]
async fn passwords_are_sent_as_the_server_asks_for_them() {
    let database = Database::new("passwords").await;
    database.run("CREATE ROLE scram LOGIN PASSWORD 'p%:@'; SET password_encryption = md5; CREATE ROLE md5 LOGIN PASSWORD 'secret'; CREATE ROLE plain LOGIN PASSWORD 'secret'; CREATE TABLE orders (id int)").await;
    let port = server().port();
    let url = |user: &str, password: &str| {
        format!("jdbc:postgresql://127.0.0.1:{port}/passwords?user={user}&password={password}")
    };
    for (user, password) in [
        ("scram", "p%25:%40"),
        ("md5", "secret"),
        ("plain", "secret"),
    ] {
        let url = url(user, password);
        start(&mut task(&[("connection.url", &url), ("pk.mode", "none")]))
            .await
            .unwrap();
        let wrong = [
            ("connection.url", url.as_str()),
            ("connection.password", "hush"),
            ("pk.mode", "none"),
        ];
        let error = start(&mut task(&wrong)).await.unwrap_err().to_string();
        assert!(
            error.contains("28P01") && !error.contains("hush"),
            "{error}"
        );
    }
    let keys = [
        ("connection.user", "scram"),
        ("connection.password", "p%:@"),
        ("pk.mode", "none"),
    ];
    let bare = format!("postgresql://127.0.0.1:{port}/passwords");
    start(&mut task(
        &[&[("connection.url", bare.as_str())], &keys[..]].concat(),
    ))
    .await
    .unwrap();
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_is_checked_in_full_where_the_url_asks_for_it() {
    let authority = || {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let (trusted, foreign) = (authority(), authority());
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &trusted).unwrap();
    let mut server = Postgres::start(&[("fsync", "off")]).unwrap();
    let certificate = server.write("server.crt", &certificate.pem()).unwrap();
    let key = server.write("server.key", &key.serialize_pem()).unwrap();
    let roots = server.write("roots.pem", &trusted.pem()).unwrap();
    let others = server.write("others.pem", &foreign.pem()).unwrap();
    server.kill().unwrap();
    server.set("ssl", "on");
    server.set("ssl_cert_file", certificate.to_str().unwrap());
    server.set("ssl_key_file", key.to_str().unwrap());
    server.restart().unwrap();
    let client = connect(&server.url("postgres")).await;
    client.batch_execute("CREATE ROLE tls_only LOGIN; CREATE TABLE orders (id int); GRANT ALL ON orders TO tls_only").await.unwrap();
    let try_to = async |host: &str, mode: &str, roots: &std::path::Path| {
        let (port, roots) = (server.port(), roots.display());
        let url = format!(
            "postgresql://tls_only@{host}:{port}/postgres?sslmode={mode}&sslrootcert={roots}"
        );
        let mut task = task(&[("connection.url", &url), ("pk.mode", "none")]);
        let started = start(&mut task).await.map_err(|error| error.to_string());
        if started.is_ok() {
            write(&mut task, Json::plain().value(0, r#"{"id":1}"#)).await;
        }
        started
    };
    for (host, mode) in [
        ("localhost", "verify-full"),
        ("localhost", "require"),
        ("127.0.0.1", "verify-ca"),
    ] {
        try_to(host, mode, &roots).await.unwrap();
    }
    for (host, mode, roots, expected) in [
        ("localhost", "verify-full", &others, "certificate"),
        ("127.0.0.1", "verify-full", &roots, "127.0.0.1"),
        ("localhost", "verify-ca", &others, "certificate"),
        ("localhost", "prefer", &roots, "sslmode=verify-full"),
    ] {
        let error = try_to(host, mode, roots).await.unwrap_err();
        assert!(error.contains(expected), "{host} {mode}: {error}");
    }
}
