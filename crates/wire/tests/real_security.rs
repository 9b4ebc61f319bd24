//! Every way to secure a connection, against a real broker: each connects and asks for metadata,
//! and each wrong thing has its own error.
#![cfg(feature = "tls")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[path = "security/provider.rs"]
mod provider;
mod security;

use std::sync::Arc;
use std::time::Duration;

use provider::{Provider, Reply};
use security::Authority;
use security::broker::{Broker, MECHANISMS, client, sasl, ssl};
use security::log::Log;
use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::metadata::MetadataRequest;
use sharegroup_wire::net::sasl::{SaslError, TokenSource, UnsecuredToken};
use sharegroup_wire::net::tls::TlsError;
use sharegroup_wire::net::{
    Address, CloseReason, ConnectError, Connection, ConnectionOptions, SecurityConfig, TcpConnector,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

fn config(keys: &[(&str, String)]) -> SecurityConfig {
    let mut config = SecurityConfig::default();
    for (key, value) in keys {
        assert!(config.set(key, value).unwrap(), "{key}");
    }
    config.check().unwrap();
    config
}

async fn open(port: u16, keys: &[(&str, String)]) -> Result<Connection, ConnectError> {
    let config = config(keys);
    let connector = config.connector(Arc::new(TcpConnector::default()));
    let options = ConnectionOptions {
        sasl: config.credentials().unwrap(),
        ..Default::default()
    };
    let opened = Connection::open(&*connector, &Address::new("localhost", port), &options).await;
    let shown = format!("{config:?} {connector:?} {options:?} {opened:?}");
    assert!(
        !shown.contains("-secret") && !shown.contains("PRIVATE"),
        "{shown}"
    );
    opened
}

async fn works(name: &str, port: u16, keys: &[(&str, String)]) {
    let connection = open(port, keys)
        .await
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let metadata = connection.call(&MetadataRequest::default()).await;
    let metadata = metadata.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(metadata.brokers.len(), 1, "{name}");
}

async fn refused(port: u16, keys: &[(&str, String)]) -> ConnectError {
    let error = open(port, keys).await.unwrap_err();
    assert!(!error.to_string().contains("-secret"), "{error}");
    error
}

async fn tls_refused(port: u16, keys: &[(&str, String)]) -> TlsError {
    match refused(port, keys).await {
        ConnectError::Tls { source, .. } => *source,
        other => panic!("{other:?}"),
    }
}

async fn sasl_refused(port: u16, keys: &[(&str, String)]) -> SaslError {
    match refused(port, keys).await {
        ConnectError::Authentication { source, .. } => *source,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_way_to_secure_a_connection_works_with_a_real_broker() {
    let Some(broker) = Broker::start() else {
        return;
    };
    works("PLAINTEXT", broker.plaintext, &[]).await;
    works("SSL", broker.ssl, &[ssl(), broker.trust()]).await;
    let [chain, key] = client(&broker.authority.client("alice"));
    works("mTLS", broker.mtls, &[ssl(), broker.trust(), chain, key]).await;
    for mechanism in MECHANISMS {
        let keys = sasl("SASL_PLAINTEXT", mechanism, "alice-secret");
        works(
            &format!("SASL_PLAINTEXT {mechanism}"),
            broker.sasl_plaintext,
            &keys,
        )
        .await;
        let mut keys = sasl("SASL_SSL", mechanism, "alice-secret");
        keys.push(broker.trust());
        works(&format!("SASL_SSL {mechanism}"), broker.sasl_ssl, &keys).await;
    }
    wrong_certificates(&broker).await;
    wrong_protocols(&broker).await;
    wrong_credentials(&broker).await;
    token_of_a_provider(&broker).await;
    sessions(&broker).await;
}

async fn wrong_certificates(broker: &Broker) {
    let wrong = broker
        .folder
        .write("wrong-ca.pem", Authority::new("wrong-ca").pem);
    let error = tls_refused(
        broker.ssl,
        &[ssl(), ("ssl.truststore.location", wrong.clone())],
    )
    .await;
    assert_eq!(error, TlsError::UnknownIssuer { trusted: wrong });
    let error = tls_refused(broker.other_host, &[ssl(), broker.trust()]).await;
    assert!(matches!(error, TlsError::WrongHostName { .. }), "{error}");
    let off = ("ssl.endpoint.identification.algorithm", String::new());
    works(
        "another host name",
        broker.other_host,
        &[ssl(), broker.trust(), off],
    )
    .await;
    let error = tls_refused(broker.expired, &[ssl(), broker.trust()]).await;
    assert!(matches!(error, TlsError::Expired { .. }), "{error}");

    // B-109.
    let error = tls_refused(broker.mtls, &[ssl(), broker.trust()]).await;
    assert!(
        matches!(
            error,
            TlsError::ClientCertificateRefused { sent: false, .. }
        ),
        "{error}"
    );
    let [chain, key] = client(&Authority::new("foreign-ca").client("mallory"));
    let error = tls_refused(broker.mtls, &[ssl(), broker.trust(), chain, key]).await;
    assert!(
        matches!(error, TlsError::ClientCertificateRefused { sent: true, .. }),
        "{error}"
    );
}

/// B-104 and its siblings: each protocol of a client on the port of each other one. Every error comes
/// at once, names the key, and is for good.
async fn wrong_protocols(broker: &Broker) {
    let started = Instant::now();
    let sasl_keys = |protocol| sasl(protocol, "PLAIN", "alice-secret");
    let (no_keys, tls_keys) = (Vec::new(), vec![ssl(), broker.trust()]);
    let mut sasl_tls_keys = sasl_keys("SASL_SSL");
    sasl_tls_keys.push(broker.trust());

    for keys in [&tls_keys, &sasl_tls_keys] {
        for port in [broker.plaintext, broker.sasl_plaintext] {
            let error = tls_refused(port, keys).await;
            assert_eq!(error, TlsError::PlaintextPort);
        }
    }
    for keys in [&no_keys, &sasl_keys("SASL_PLAINTEXT")] {
        for port in [broker.ssl, broker.mtls, broker.sasl_ssl] {
            let error = refused(port, keys).await;
            let reason = CloseReason::TlsAlert;
            assert!(matches!(&error, ConnectError::Closed { reason: r, .. } if *r == reason));
        }
    }
    for (port, keys) in [
        (broker.plaintext, sasl_keys("SASL_PLAINTEXT")),
        (broker.ssl, sasl_tls_keys),
    ] {
        assert_eq!(sasl_refused(port, &keys).await, SaslError::NotSasl);
    }
    for (port, keys) in [
        (broker.sasl_plaintext, no_keys),
        (broker.sasl_ssl, tls_keys),
    ] {
        let source = SaslError::Required {
            enabled: MECHANISMS.map(str::to_owned).to_vec(),
        };
        assert_eq!(sasl_required(port, &keys).await, source);
    }
    assert!(started.elapsed() < Duration::from_secs(10));
}

/// Opens a connection without SASL, whose first request the broker does not answer.
async fn sasl_required(port: u16, keys: &[(&str, String)]) -> SaslError {
    let connection = open(port, keys).await.unwrap();
    let error = connection.call(&MetadataRequest::default()).await;
    let error = error.unwrap_err();
    assert!(error.to_string().contains("security.protocol"), "{error}");
    let connector = config(keys).connector(Arc::new(TcpConnector::default()));
    let cause = error
        .explain(&*connector, &ConnectionOptions::default())
        .await;
    match cause.unwrap() {
        ConnectError::Authentication { source, .. } => *source,
        other => panic!("{other:?}"),
    }
}

async fn wrong_credentials(broker: &Broker) {
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let keys = sasl("SASL_PLAINTEXT", mechanism, "wrong-secret");
        let error = sasl_refused(broker.sasl_plaintext, &keys).await;
        assert!(
            matches!(
                &error,
                SaslError::Refused {
                    code: ErrorCode::SaslAuthenticationFailed,
                    ..
                }
            ),
            "{mechanism}: {error:?}"
        );
        assert!(!error.is_retriable());
    }
    // A token that has expired.
    let mut keys = sasl("SASL_PLAINTEXT", "OAUTHBEARER", "");
    keys[2].1 = "OAuthBearerLoginModule required token=\"eyJhbGciOiJub25lIn0.eyJpYXQiOjEsImV4cCI6Miwic3ViIjoiYWxpY2UifQ.\";".to_owned();
    let error = sasl_refused(broker.sasl_plaintext, &keys).await;
    assert!(matches!(error, SaslError::Refused { .. }), "{error}");
}

/// OAUTHBEARER with tokens of an OIDC provider, over TLS to both.
async fn token_of_a_provider(broker: &Broker) {
    let token = UnsecuredToken::new("alice").token().await.unwrap();
    let answer = format!(r#"{{"access_token":"{}"}}"#, token.expose());
    let replies = vec![Reply::ok(answer)];
    let provider = Provider::start(&broker.authority.server(), replies).await;
    let (trust, file) = broker.trust();
    let keys = |secret: &str| {
        let jaas = format!(
            "OAuthBearerLoginModule required clientId=\"alice\" clientSecret=\"{secret}\" {trust}=\"{file}\";"
        );
        let mut keys = sasl("SASL_SSL", "OAUTHBEARER", "");
        keys[2].1 = jaas;
        keys.extend([
            broker.trust(),
            ("sasl.oauthbearer.token.endpoint.url", provider.url()),
        ]);
        keys
    };
    works("OIDC", broker.sasl_ssl, &keys("client-secret")).await;
    assert_eq!(provider.asked().len(), 1);
    // The provider says no: the broker isn't even asked.
    let body = r#"{"error":"invalid_client","error_description":"not wrong-secret"}"#;
    let refusing = vec![Reply::status(401, body)];
    let provider = Provider::start(&broker.authority.server(), refusing).await;
    let mut keys = keys("wrong-secret");
    keys.retain(|(key, _)| *key != "sasl.oauthbearer.token.endpoint.url");
    keys.push(("sasl.oauthbearer.token.endpoint.url", provider.url()));
    let error = sasl_refused(broker.sasl_ssl, &keys).await;
    assert!(
        matches!(error, SaslError::TokenRefused { status: 401, .. }) && !error.is_retriable(),
        "{error}"
    );
}

/// B-110: sessions of 3 s, used for 7 s, all mechanisms at once; and one of 2 s, as long as its token
/// lasts.
async fn sessions(broker: &Broker) {
    let (log, _guard) = Log::start();
    let mut users = JoinSet::new();
    let of = |mechanism| sasl("SASL_PLAINTEXT", mechanism, "alice-secret");
    let mut short = of("OAUTHBEARER");
    short[2].1 = short[2]
        .1
        .replace(';', " unsecuredLoginLifetimeSeconds=\"2\";");
    let users_keys = MECHANISMS.map(|mechanism| (mechanism, of(mechanism)));
    for (mechanism, keys) in users_keys.into_iter().chain([("a short token", short)]) {
        let port = broker.sasl_plaintext;
        users.spawn(async move {
            let connection = open(port, &keys).await.unwrap();
            let started = Instant::now();
            // Real time: the broker's clock can't be paused.
            while started.elapsed() < Duration::from_secs(7) {
                let answer = connection.call(&MetadataRequest::default()).await;
                answer.unwrap_or_else(|error| panic!("{mechanism}: {error}"));
                sleep(Duration::from_millis(50)).await;
            }
        });
    }
    while let Some(user) = users.join_next().await {
        user.unwrap();
    }
    let renewals = log.lines("Authenticated again.").len();
    assert!(renewals >= 2 * MECHANISMS.len() + 4, "{renewals} renewals");
}
