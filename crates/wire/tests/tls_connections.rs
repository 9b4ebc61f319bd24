//! TLS against a rustls server in this process, over loopback.
#![cfg(feature = "tls")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod scripted;
mod security;

use std::sync::Arc;
use std::time::Duration;

use rcgen::KeyPair;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use scripted::{Peer, metadata, pipe};
use security::log::Log;
use security::{Authority, Folder, Pair, fixture, fixture_text};
use sharegroup_wire::message::metadata::MetadataRequest;
use sharegroup_wire::net::tls::{StoreError, TlsConnector, TlsError, TlsOptions};
use sharegroup_wire::net::{
    Address, CloseReason, ConnectError, ConnectPhase, Connection, ConnectionOptions, TcpConnector,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// What a test server demands.
#[derive(Clone, Default)]
struct Demand {
    /// Authorities of client certificates, in PEM.
    client_authorities: Option<String>,
    /// TLS 1.2 only.
    old: bool,
}

impl Demand {
    fn in_both_versions(self) -> [Self; 2] {
        let old = Self {
            old: true,
            ..self.clone()
        };
        [self, old]
    }
}

fn server_config(pair: &Pair, demand: &Demand) -> Arc<rustls::ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions: &[_] = if demand.old {
        &[&rustls::version::TLS12]
    } else {
        rustls::DEFAULT_VERSIONS
    };
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .unwrap();
    let builder = match &demand.client_authorities {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                roots.add(certificate.unwrap()).unwrap();
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let config = builder.with_single_cert(chain.map(Result::unwrap).collect(), key);
    Arc::new(config.unwrap())
}

/// Serves a broker over TLS, for as long as the test runs.
async fn serve(config: Arc<rustls::ServerConfig>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = tokio_rustls::TlsAcceptor::from(Arc::clone(&config));
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    Peer(stream).serve().await;
                }
            });
        }
    });
    port
}

async fn serve_pair(pair: &Pair) -> u16 {
    serve(server_config(pair, &Demand::default())).await
}

async fn serve_demanding(authority: &Authority, demand: Demand) -> u16 {
    serve(server_config(&authority.server(), &demand)).await
}

fn options(keys: &[(&str, &str)]) -> TlsOptions {
    let mut options = TlsOptions::default();
    for (key, value) in keys {
        assert!(options.set(key, value).unwrap(), "{key}");
    }
    options
}

async fn open_at(host: &str, port: u16, options: TlsOptions) -> Result<Connection, ConnectError> {
    open_with(&connector(options), host, port).await
}

fn connector(options: TlsOptions) -> TlsConnector {
    TlsConnector::new(Arc::new(TcpConnector::default()), options)
}

async fn open_with(
    connector: &TlsConnector,
    host: &str,
    port: u16,
) -> Result<Connection, ConnectError> {
    let address = Address::new(host, port);
    Connection::open(connector, &address, &ConnectionOptions::default()).await
}

/// Opens a connection and uses it.
async fn works(port: u16, options: TlsOptions) {
    let connection = open_at("localhost", port, options).await.unwrap();
    let answer = connection.call(&MetadataRequest::default()).await.unwrap();
    assert_eq!(answer, metadata());
}

async fn tls_error(host: &str, port: u16, options: TlsOptions) -> TlsError {
    match open_at(host, port, options).await.unwrap_err() {
        ConnectError::Tls { source, .. } => *source,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn b_108_private_authority_is_trusted_from_a_file_or_inline() {
    let authority = Authority::new("private");
    let port = serve_pair(&authority.server()).await;
    let folder = Folder::new();
    let file = folder.write("ca.pem", &authority.pem);
    works(port, options(&[("ssl.truststore.location", &file)])).await;
    works(
        port,
        options(&[
            ("ssl.truststore.location", &file),
            ("ssl.truststore.type", "PEM"),
        ]),
    )
    .await;
    works(
        port,
        options(&[("ssl.truststore.certificates", &authority.pem)]),
    )
    .await;
    // As a properties file gives it, lines joined.
    let line = authority.pem.replace('\n', " ");
    works(port, options(&[("ssl.truststore.certificates", &line)])).await;
    let connection = open_at(
        "127.0.0.1",
        port,
        options(&[("ssl.truststore.location", &file)]),
    )
    .await;
    assert!(
        connection.is_ok(),
        "an address in the certificate: {connection:?}"
    );
}

#[tokio::test]
async fn b_108_file_with_two_authorities_trusts_both() {
    let (one, other) = (Authority::new("one"), Authority::new("other"));
    let pem = format!("# two of them\n{}\n{}", one.pem, other.pem);
    for authority in [&one, &other] {
        let port = serve_pair(&authority.server()).await;
        works(port, options(&[("ssl.truststore.certificates", &pem)])).await;
    }
}

#[tokio::test]
async fn b_108_wrong_authority_is_an_unknown_issuer_and_names_the_file() {
    let port = serve_pair(&Authority::new("real").server()).await;
    let folder = Folder::new();
    let file = folder.write("wrong-ca.pem", Authority::new("wrong").pem);
    let error = tls_error(
        "localhost",
        port,
        options(&[("ssl.truststore.location", &file)]),
    )
    .await;
    assert_eq!(
        error,
        TlsError::UnknownIssuer {
            trusted: file.clone()
        }
    );
    let text = error.to_string();
    assert!(
        text.contains("unknown issuer") && text.contains(&file),
        "{text}"
    );
    assert!(!error.is_retriable());
}

#[tokio::test]
async fn an_authoritys_own_certificate_serves_where_it_is_trusted_itself() {
    let own = Authority::own(&["localhost"], |_| {});
    let port = serve_pair(&own).await;
    let trust = |pem: &str| options(&[("ssl.truststore.certificates", pem)]);
    works(port, trust(&own.certificate)).await;
    let off = ("ssl.endpoint.identification.algorithm", "");
    let error = tls_error("127.0.0.1", port, trust(&own.certificate)).await;
    assert!(matches!(error, TlsError::WrongHostName { .. }), "{error}");
    let keys = [
        ("ssl.truststore.certificates", own.certificate.as_str()),
        off,
    ];
    assert!(open_at("127.0.0.1", port, options(&keys)).await.is_ok());

    // One of the same name and another key is another one.
    let other = Authority::own(&["localhost"], |_| {});
    let error = tls_error("localhost", port, trust(&other.certificate)).await;
    let text = error.to_string();
    assert!(
        text.contains("-addext basicConstraints=critical,CA:FALSE"),
        "{text}"
    );
    assert!(
        !text.contains("CaUsedAsEndEntity") && !text.contains("Other"),
        "{text}"
    );

    let expired = Authority::own(&["localhost"], |params| {
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    });
    let port = serve_pair(&expired).await;
    let error = tls_error("localhost", port, trust(&expired.certificate)).await;
    assert!(matches!(error, TlsError::Expired { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_dies_in_its_handshake_is_not_taken_for_a_plaintext_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let accepted = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let mut hello = [0; 5];
            stream.read_exact(&mut hello).await.unwrap();
            // The head of a record of a ServerHello, and of that its first bytes.
            stream
                .write_all(b"\x16\x03\x03\x00\x7a\x02\x00")
                .await
                .unwrap();
        }
    });
    let authority = Authority::new("ca");
    let trust = options(&[("ssl.truststore.certificates", &authority.pem)]);
    let error = tls_error("localhost", port, trust).await;
    assert_eq!(error, TlsError::LostInHandshake);
    assert!(
        error.is_retriable() && !error.to_string().contains("plaintext"),
        "{error}"
    );
    assert_eq!(accepted.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test]
async fn without_a_truststore_the_systems_is_used() {
    let port = serve_pair(&Authority::new("private").server()).await;
    let error = tls_error("localhost", port, TlsOptions::default()).await;
    assert!(
        error.to_string().contains("the system's truststore"),
        "{error}"
    );
}

#[tokio::test]
async fn b_107_certificate_for_another_host_is_refused() {
    let authority = Authority::new("ca");
    let port = serve_pair(&authority.server_for(&["other.example"])).await;
    let trust = ("ssl.truststore.certificates", authority.pem.as_str());
    let error = tls_error("localhost", port, options(&[trust])).await;
    assert_eq!(
        error,
        TlsError::WrongHostName {
            host: "localhost".into(),
            presented: vec!["other.example".into()],
        }
    );
    let error = tls_error("127.0.0.1", port, options(&[trust])).await;
    assert!(matches!(error, TlsError::WrongHostName { .. }), "{error}");
}

#[tokio::test]
async fn b_107_switch_turns_the_check_of_the_host_name_off_and_nothing_else() {
    let authority = Authority::new("ca");
    let trust = ("ssl.truststore.certificates", authority.pem.as_str());
    let off = ("ssl.endpoint.identification.algorithm", "");
    let port = serve_pair(&authority.server_for(&["other.example"])).await;
    let (log, guard) = Log::start();
    works(port, options(&[trust, off])).await;
    drop(guard);
    assert_eq!(
        log.lines("WARN message=The host names in TLS certificates are not checked")
            .len(),
        1
    );

    let other = Authority::new("other");
    let port = serve_pair(&other.server_for(&["other.example"])).await;
    let error = tls_error("localhost", port, options(&[trust, off])).await;
    assert!(matches!(error, TlsError::UnknownIssuer { .. }), "{error}");
    let port = serve_pair(&authority.expired_server()).await;
    let error = tls_error("localhost", port, options(&[trust, off])).await;
    assert!(matches!(error, TlsError::Expired { .. }), "{error}");
}

#[tokio::test]
async fn certificate_out_of_its_time_is_told_apart() {
    let authority = Authority::new("ca");
    let trust = || options(&[("ssl.truststore.certificates", &authority.pem)]);
    let port = serve_pair(&authority.expired_server()).await;
    let error = tls_error("localhost", port, trust()).await;
    let TlsError::Expired { ago: Some(ago) } = error else {
        panic!("{error}")
    };
    assert!(ago > Duration::from_secs(365 * 24 * 3600), "{ago:?}");
    assert!(error.to_string().contains("days ago"), "{error}");
    let port = serve_pair(&authority.not_yet_valid_server()).await;
    let error = tls_error("localhost", port, trust()).await;
    assert_eq!(error, TlsError::NotYetValid);
}

#[tokio::test]
async fn b_108_client_certificate_with_each_kind_of_key_is_accepted() {
    let authority = Authority::new("ca");
    let demand = Demand {
        client_authorities: Some(authority.pem.clone()),
        old: false,
    };
    let folder = Folder::new();
    let trust = ("ssl.truststore.certificates", authority.pem.as_str());
    for demand in demand.in_both_versions() {
        let port = serve_demanding(&authority, demand).await;
        for (pkcs8, key) in [
            ("rsa.pkcs8.pem", "rsa.pkcs8.pem"),
            ("rsa.pkcs8.pem", "rsa.pkcs1.pem"),
            ("rsa.pkcs8.pem", "rsa.encrypted.pem"),
            ("ec.pkcs8.pem", "ec.pkcs8.pem"),
            ("ec.pkcs8.pem", "ec.sec1.pem"),
        ] {
            let pair = KeyPair::from_pem(&fixture_text(pkcs8)).unwrap();
            let certificate = authority.client_with("client", pair).certificate;
            let key = fixture_text(key);
            let password = ("ssl.key.password", "key-secret");
            // Key first, certificate second, and the other way round.
            for text in [format!("{key}{certificate}"), format!("{certificate}{key}")] {
                let file = folder.write("client.pem", text);
                works(
                    port,
                    options(&[trust, ("ssl.keystore.location", &file), password]),
                )
                .await;
            }
            let chain = ("ssl.keystore.certificate.chain", certificate.as_str());
            let off = ("ssl.endpoint.identification.algorithm", "");
            works(
                port,
                options(&[trust, chain, ("ssl.keystore.key", &key), password, off]),
            )
            .await;
        }
    }
}

#[tokio::test]
async fn b_108_pkcs12_stores_of_openssl_and_java_are_read() {
    let authority = Authority::new("ca");
    let demand = Demand {
        client_authorities: Some(fixture_text("ca.pem")),
        old: false,
    };
    let port = serve_demanding(&authority, demand).await;
    let trust = ("ssl.truststore.certificates", authority.pem.as_str());
    for (store, store_type, password) in [
        ("client.p12", "PKCS12", "store-secret"),
        ("client.java.p12", "PKCS12", "store-secret"),
        // Java's habit: the old name for the new format.
        ("client.java.p12", "JKS", "store-secret"),
        ("client.aes128.p12", "", "pässwörd"),
    ] {
        let keys = [
            trust,
            ("ssl.keystore.location", &fixture(store)),
            ("ssl.keystore.type", store_type),
            ("ssl.keystore.password", password),
        ];
        works(port, options(&keys)).await;
    }
    for store in [
        "truststore.openssl.p12",
        "truststore.java.p12",
        "client.p12",
    ] {
        let keys = [
            ("ssl.truststore.location", fixture(store).leak() as &str),
            ("ssl.truststore.password", "store-secret"),
        ];
        options(&keys).check().unwrap();
        // Read, and not the server's authority.
        let error = tls_error("localhost", port, options(&keys)).await;
        assert!(
            matches!(error, TlsError::UnknownIssuer { .. }),
            "{store}: {error}"
        );
    }
}

#[tokio::test]
async fn b_109_missing_client_certificate_is_refused_by_name_after_the_handshake() {
    let authority = Authority::new("ca");
    let demand = Demand {
        client_authorities: Some(authority.pem.clone()),
        old: false,
    };
    let port = serve_demanding(&authority, demand.clone()).await;
    let trust = ("ssl.truststore.certificates", authority.pem.as_str());
    let error = open_at("localhost", port, options(&[trust]))
        .await
        .unwrap_err();
    let ConnectError::Tls { source, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(
        **source,
        TlsError::ClientCertificateRefused {
            alert: "certificate_required".into(),
            sent: false,
        }
    );
    assert!(!error.is_retriable());
    let text = error.to_string();
    assert!(
        text.contains("certificate_required") && text.contains("ssl.keystore"),
        "{text}"
    );

    let foreign = Authority::new("foreign").client("mallory");
    let keys = [
        trust,
        (
            "ssl.keystore.certificate.chain",
            foreign.certificate.as_str(),
        ),
        ("ssl.keystore.key", foreign.key.as_str()),
    ];
    for demand in demand.in_both_versions() {
        let port = serve_demanding(&authority, demand).await;
        let error = tls_error("localhost", port, options(&keys)).await;
        assert!(
            matches!(error, TlsError::ClientCertificateRefused { sent: true, .. }),
            "{error}"
        );
    }
}

#[tokio::test]
async fn b_104_plaintext_port_is_named_as_one() {
    // Kafka's plaintext listener takes the handshake for a frame that is too large, and hangs up. Then
    // it is asked in plaintext; a load balancer with nobody behind it hangs up again.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let frame: &[u8] = b"\0\0\0\x0a\0\0\0\0\0\x23\0\0\0\0";
    let answers = [b"", frame, b"", b"", frame];
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut hello = [0; 5];
            stream.read_exact(&mut hello).await.unwrap();
            stream.write_all(answer).await.unwrap();
        }
    });
    let authority = Authority::new("ca");
    let trust = || options(&[("ssl.truststore.certificates", &authority.pem)]);
    for expected in [
        TlsError::PlaintextPort,
        TlsError::ClosedInHandshake,
        TlsError::NotTls,
    ] {
        let error = tls_error("localhost", port, trust()).await;
        assert_eq!(error, expected);
        let text = error.to_string();
        assert!(
            text.contains("plaintext") && text.contains("security.protocol"),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn b_104_peer_that_keeps_silent_in_the_handshake_is_named_at_the_setup_timeout() {
    let (pipe, _peer) = pipe();
    let connector = TlsConnector::new(Arc::new(pipe), options(&[]));
    let (address, limits) = (Address::new("broker", 9092), ConnectionOptions::default());
    let error = Connection::open(&connector, &address, &limits).await;
    let error = error.unwrap_err();
    let (phase, after) = (ConnectPhase::TlsHandshake, limits.setup_timeout);
    assert_eq!(
        error,
        ConnectError::Timeout {
            address,
            phase,
            after
        }
    );
    let text = error.to_string();
    assert!(
        text.contains("within 10 s") && text.contains("security.protocol"),
        "{text}"
    );
}

#[tokio::test]
async fn changed_files_are_taken_up_by_the_next_connection() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let (old_port, new_port) = (
        serve_pair(&old.server()).await,
        serve_pair(&new.server()).await,
    );
    let folder = Folder::new();
    let file = folder.write("ca.pem", &old.pem);
    let connector = connector(options(&[("ssl.truststore.location", &file)]));
    open_with(&connector, "localhost", old_port).await.unwrap();
    assert!(open_with(&connector, "localhost", new_port).await.is_err());

    folder.write("ca.pem", &new.pem);
    open_with(&connector, "localhost", new_port).await.unwrap();
    assert!(open_with(&connector, "localhost", old_port).await.is_err());

    // Half written, then gone: what was read last stays in use.
    folder.write("ca.pem", &new.pem[..100]);
    open_with(&connector, "localhost", new_port).await.unwrap();
    std::fs::remove_file(&file).unwrap();
    open_with(&connector, "localhost", new_port).await.unwrap();
}

#[tokio::test]
async fn a_replaced_client_certificate_is_used_by_the_next_connection() {
    let (authority, old, new) = (
        Authority::new("ca"),
        Authority::new("old"),
        Authority::new("new"),
    );
    let demand = |client: &Authority| Demand {
        client_authorities: Some(client.pem.clone()),
        old: true,
    };
    let old_port = serve_demanding(&authority, demand(&old)).await;
    let new_port = serve_demanding(&authority, demand(&new)).await;
    let folder = Folder::new();
    let write = |authority: &Authority| {
        let pair = authority.client("alice");
        folder.write("client.pem", [pair.key, pair.certificate].concat())
    };
    let file = write(&old);
    let connector = connector(options(&[
        ("ssl.truststore.certificates", &authority.pem),
        ("ssl.keystore.location", &file),
    ]));
    let before = open_with(&connector, "localhost", old_port).await.unwrap();
    assert!(open_with(&connector, "localhost", new_port).await.is_err());

    write(&new);
    open_with(&connector, "localhost", new_port).await.unwrap();
    assert!(open_with(&connector, "localhost", old_port).await.is_err());
    // What is open stays open.
    before.call(&MetadataRequest::default()).await.unwrap();
}

#[tokio::test]
async fn only_the_cipher_suites_of_the_configuration_are_offered() {
    let authority = Authority::new("ca");
    let demand = Demand {
        client_authorities: None,
        old: true,
    };
    let port = serve_demanding(&authority, demand).await;
    let keys = |suites| {
        options(&[
            ("ssl.truststore.certificates", authority.pem.as_str()),
            ("ssl.cipher.suites", suites),
        ])
    };
    // The key of the server's certificate is one of elliptic curves.
    works(port, keys("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")).await;
    for suites in [
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_AES_128_GCM_SHA256",
    ] {
        let error = tls_error("localhost", port, keys(suites)).await;
        assert!(matches!(error, TlsError::Alert { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn end_of_a_connection_without_close_notify_is_an_end_by_the_broker() {
    let authority = Authority::new("ca");
    let config = server_config(&authority.server(), &Demand::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(config);
        let mut peer = Peer(acceptor.accept(stream).await.unwrap());
        peer.negotiate().await;
        // The socket below goes away, TLS says nothing.
    });
    let trust = options(&[("ssl.truststore.certificates", &authority.pem)]);
    let connection = open_at("localhost", port, trust).await.unwrap();
    assert_eq!(connection.closed().await, CloseReason::ByPeer);
}

#[test]
fn stores_that_cannot_be_used_say_why_and_what_to_do() {
    let folder = Folder::new();
    let authority = Authority::new("ca");
    let broken = folder.write("broken.pem", "-----BEGIN CERTIFICATE-----\nZm9v");
    let keys_only = folder.write("keys.pem", fixture_text("rsa.pkcs8.pem"));
    let two_keys = folder.write(
        "two.pem",
        format!(
            "{}{}",
            fixture_text("rsa.pkcs8.pem"),
            fixture_text("ec.pkcs8.pem")
        ),
    );
    let mismatch = folder.write(
        "mismatch.pem",
        format!(
            "{}{}",
            authority.client("c").certificate,
            fixture_text("rsa.pkcs8.pem")
        ),
    );
    let encrypted = folder.write(
        "encrypted.pem",
        format!(
            "{}{}",
            fixture_text("client.pem"),
            fixture_text("rsa.encrypted.pem")
        ),
    );
    let old = folder.write(
        "old.pem",
        format!(
            "{}{}",
            fixture_text("client.pem"),
            fixture_text("rsa.old-encryption.pem")
        ),
    );
    let garbage = folder.write("garbage", [1, 2, 3]);
    let (trust, key) = ("ssl.truststore.location", "ssl.keystore.location");
    let (trust_password, key_password) = ("ssl.truststore.password", "ssl.keystore.password");
    let cases: &[(&[(&str, &str)], &str)] = &[
        (
            &[(trust, "/no/such/file")],
            "ssl.truststore.location=/no/such/file",
        ),
        (&[(trust, &broken)], "without -----END CERTIFICATE-----"),
        (&[(trust, &keys_only)], "no certificate found"),
        (&[(trust, &garbage)], "neither PEM nor PKCS12"),
        (&[(trust, &fixture("ca.der"))], "openssl x509 -inform der"),
        (
            &[(trust, &fixture("ca.der")), ("ssl.truststore.type", "PEM")],
            "openssl x509 -inform der",
        ),
        (
            &[
                (trust, &fixture("truststore.jks")),
                (trust_password, "hush"),
            ],
            "keytool -importkeystore -srckeystore",
        ),
        (
            &[(trust, &fixture("truststore.java.p12"))],
            "ssl.truststore.password is not set",
        ),
        (
            &[
                (trust, &fixture("truststore.java.p12")),
                (trust_password, "hush"),
            ],
            "ssl.truststore.password is not the password",
        ),
        (
            &[(trust, &broken), ("ssl.truststore.certificates", "x")],
            "both set",
        ),
        (
            &[
                (key, &fixture("client.legacy.p12")),
                (key_password, "store-secret"),
            ],
            "openssl pkcs12 -legacy",
        ),
        (
            &[(key, &fixture("client.p12")), (key_password, "hush")],
            "ssl.keystore.password is not the password",
        ),
        (
            &[
                (key, &fixture("truststore.openssl.p12")),
                (key_password, "store-secret"),
            ],
            "no private key",
        ),
        (&[(key, &fixture("client.pem"))], "no private key"),
        (&[(key, &keys_only)], "no certificate found"),
        (&[(key, &two_keys)], "2 private keys"),
        (
            &[(key, &mismatch)],
            "the private key is not the certificate's",
        ),
        (&[(key, &encrypted)], "ssl.key.password is not set"),
        (
            &[(key, &encrypted), ("ssl.key.password", "hush")],
            "ssl.key.password is not the password",
        ),
        (&[(key, &old)], "openssl pkcs8 -topk8"),
        (
            &[("ssl.keystore.key", "x")],
            "without ssl.keystore.certificate.chain",
        ),
        (
            &[("ssl.keystore.certificate.chain", "x")],
            "without ssl.keystore.key",
        ),
    ];
    for (keys, expected) in cases {
        let keys: Vec<_> = keys
            .iter()
            .copied()
            .chain([("ssl.truststore.certificates", "")])
            .collect();
        let mut options = options(&keys);
        if options.truststore_location.is_none() {
            options.truststore_certificates = Some(authority.pem.clone());
        } else if *expected == "both set" {
            options.truststore_certificates = Some("x".into());
        }
        let error = options.check().unwrap_err();
        assert!(matches!(error, TlsError::Store(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(expected), "{expected}: {text}");
        let shown = format!("{error:?} {text} {options:?}");
        assert!(
            !shown.contains("hush") && !shown.contains("secret"),
            "{shown}"
        );
    }
}

#[test]
fn a_damaged_pkcs12_store_is_refused_whatever_is_damaged() {
    let folder = Folder::new();
    let whole = std::fs::read(fixture("truststore.openssl.p12")).unwrap();
    let check = |bytes: &[u8]| {
        let file = folder.write("store.p12", bytes);
        let keys = [
            ("ssl.truststore.location", file.as_str()),
            ("ssl.truststore.password", "store-secret"),
        ];
        options(&keys).check()
    };
    check(&whole).unwrap();
    for cut in [1, 10, 100, whole.len() / 2, whole.len() - 1] {
        assert!(matches!(
            check(&whole[..cut]),
            Err(TlsError::Store(StoreError::Malformed { .. }))
        ));
    }
    for at in (30..whole.len()).step_by(97) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        // Bits of names and parameters outside of the MAC may go unnoticed; nothing panics.
        drop(check(&damaged));
    }
}
