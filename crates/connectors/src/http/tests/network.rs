//! Versions of HTTP, TLS, and targets that hang, cut off or say too much.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use sharegroup_testkit::http_server::{Proxy, Seen};
use sharegroup_wire::compress::{Compression, DecompressLimits, decompress};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::*;

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate and its key in PEM.
    fn pair(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn server(&self, wants_client: bool, protocols: &[&str]) -> ServerConfig {
        let provider = Arc::new(default_provider());
        let (certificate, key) = self.pair("localhost");
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if wants_client {
            let mut roots = RootCertStore::empty();
            let own = CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap();
            roots.add(own).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        config
    }
}

const TRUST: &str = "https.ssl.truststore.certificates";

#[tokio::test]
async fn tls_agrees_on_http_2_where_the_server_has_it() {
    let authority = Authority::new("one");
    for (protocols, wanted, version) in [
        (&["h2", "http/1.1"][..], "auto", "HTTP/2.0"),
        (&["http/1.1"], "auto", "HTTP/1.1"),
        (&[], "auto", "HTTP/1.1"),
        (&["h2", "http/1.1"], "1.1", "HTTP/1.1"),
        (&["h2", "http/1.1"], "2", "HTTP/2.0"),
    ] {
        let config = authority.server(false, protocols);
        let server = HttpServer::start_tls(config, |_| Reply::status(200)).await;
        let keys = [(TRUST, authority.pem.as_str()), ("http.version", wanted)];
        let mut task = task_to(&server, "/x", &keys).await;
        assert_eq!(
            put(&mut task, numbered(40)).await,
            vec![Outcome::Written; 40]
        );
        let seen = server.seen();
        assert!(
            seen.iter().all(|seen| seen.version == version),
            "{wanted}: {:?}",
            seen[0]
        );
        assert_eq!(
            seen[0].header("idempotency-key").map(|key| &key[..9]),
            Some("orders-3-")
        );
    }
}

#[tokio::test]
async fn http_2_without_tls_shares_one_connection() {
    let server = HttpServer::start(|_| Reply::hang()).await;
    let keys = [("http.version", "2"), ("http.concurrency.start", "64")];
    hangs(&server, &keys, 64).await;
    assert_eq!((server.connections(), server.at_work_max()), (1, 64));
    assert!(server.seen().iter().all(|seen| seen.version == "HTTP/2.0"));
}

#[tokio::test]
async fn a_server_that_nobody_trusts_gets_no_record() {
    let (authority, other) = (Authority::new("one"), Authority::new("two"));
    let server = HttpServer::start_tls(authority.server(false, &[]), |_| Reply::status(200)).await;
    let mut task = task_to(&server, "/", &[(TRUST, &other.pem)]).await;
    let outcomes = put(&mut task, batch(&["x"])).await;
    assert!(
        is_later(&outcomes[0]) && reason(&outcomes[0]).contains("unknown issuer"),
        "{outcomes:?}"
    );
    let url = server.url("/").replace("localhost", "127.0.0.1");
    let mut task = self::task(&[("http.url", &url), (TRUST, &authority.pem)]).await;
    let outcomes = put(&mut task, batch(&["x"])).await;
    assert!(
        reason(&outcomes[0]).contains("not for 127.0.0.1"),
        "{outcomes:?}"
    );
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_a_server_that_wants_one() {
    let authority = Authority::new("one");
    let config = authority.server(true, &["h2", "http/1.1"]);
    let server = HttpServer::start_tls(config, |_| Reply::status(200)).await;
    let (certificate, key) = authority.pair("client");
    let trust = (TRUST, authority.pem.as_str());
    let keys = [
        trust,
        ("https.ssl.keystore.certificate.chain", certificate.as_str()),
        ("https.ssl.keystore.key", key.as_str()),
    ];
    let mut with = task_to(&server, "/", &keys).await;
    assert_eq!(put(&mut with, batch(&["x"])).await, [Outcome::Written]);
    let mut without = task_to(&server, "/", &[trust]).await;
    let outcomes = put(&mut without, batch(&["x"])).await;
    assert!(
        is_later(&outcomes[0]) || is_unknown(&outcomes[0]),
        "{outcomes:?}"
    );
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn tls_goes_through_the_tunnel_of_a_proxy() {
    let authority = Authority::new("one");
    let config = authority.server(false, &["h2"]);
    let server = HttpServer::start_tls(config, |_| Reply::status(200)).await;
    let proxy = Proxy::start(server.address(), None).await;
    let port = proxy.address().port().to_string();
    let keys = [
        (TRUST, authority.pem.as_str()),
        ("http.proxy.host", "127.0.0.1"),
        ("http.proxy.port", &port),
    ];
    let mut task = task_to(&server, "/x", &keys).await;
    assert_eq!(put(&mut task, batch(&["x"])).await, [Outcome::Written]);
    let target = format!("CONNECT localhost:{} HTTP/1.1", server.address().port());
    assert!(proxy.heads()[0].starts_with(&target), "{:?}", proxy.heads());
    assert_eq!(server.seen()[0].version, "HTTP/2.0");
}

#[tokio::test]
async fn a_redirect_never_leaves_tls() {
    let plain = echo().await;
    let to = plain.url("/");
    let authority = Authority::new("one");
    let config = authority.server(false, &[]);
    let redirect = move |_: &Seen| Reply::status(308).header("location", to.clone());
    let server = HttpServer::start_tls(config, redirect).await;
    let mut task = task_to(&server, "/", &[(TRUST, &authority.pem)]).await;
    assert!(is_later(&put(&mut task, batch(&["x"])).await[0]));
    assert_eq!((server.seen().len(), plain.seen().len()), (1, 0));
}

#[tokio::test]
async fn a_request_without_an_answer_may_have_been_done() {
    for (reply, text) in [
        (Reply::hang(), "no answer within 200 ms"),
        (Reply::cut(), ""),
        (
            Reply::status(200).body("1234567890").truncated(),
            "broke off",
        ),
    ] {
        let server = HttpServer::start(move |_| reply.clone()).await;
        for version in ["1.1", "2"] {
            let keys = [
                ("http.request.timeout.ms", "200"),
                ("http.version", version),
            ];
            let mut task = task_to(&server, "/", &keys).await;
            let outcomes = put(&mut task, batch(&["x"])).await;
            assert!(is_unknown(&outcomes[0]), "{version}, {text}: {outcomes:?}");
            assert!(reason(&outcomes[0]).contains(text), "{outcomes:?}");
        }
    }
}

#[tokio::test]
async fn a_target_that_is_not_there_is_tried_later() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("http://127.0.0.1:{port}/hush");
    let mut task = task(&[("http.url", &url)]).await;
    let outcomes = put(&mut task, batch(&["x"])).await;
    assert!(is_later(&outcomes[0]), "{outcomes:?}");
    assert!(
        reason(&outcomes[0]).contains(&port.to_string()),
        "{outcomes:?}"
    );
    assert!(!reason(&outcomes[0]).contains("hush"), "{outcomes:?}");
}

#[tokio::test]
async fn a_connection_that_is_never_opened_is_given_up() {
    // Nobody speaks TLS there, or says anything.
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let keys = [
        ("http.url", url.as_str()),
        ("http.connect.timeout.ms", "50"),
    ];
    let mut task = task(&keys).await;
    let outcomes = put(&mut task, batch(&["x"])).await;
    assert!(is_later(&outcomes[0]), "{outcomes:?}");
    assert!(
        reason(&outcomes[0]).contains("no connection within 50 ms"),
        "{outcomes:?}"
    );
}

#[tokio::test]
async fn a_connection_that_the_target_has_closed_is_replaced() {
    let server = HttpServer::start(|_| Reply::status(200).header("connection", "close")).await;
    let mut task = task_to(&server, "/", &[("http.concurrency.max", "1")]).await;
    assert_eq!(put(&mut task, numbered(5)).await, vec![Outcome::Written; 5]);
    assert_eq!(server.connections(), 5);
}

#[tokio::test]
async fn a_huge_answer_is_read_up_to_its_bound() {
    let body = "x".repeat(4 << 20);
    let server = HttpServer::start(move |request| match request.number {
        0 => Reply::status(200).body(body.clone()),
        _ => Reply::status(400).body(body.clone()),
    })
    .await;
    let mut task = task_to(&server, "/", &[("response.max.bytes", "1000")]).await;
    assert_eq!(put(&mut task, batch(&["x"])).await, [Outcome::Written]);
    let outcomes = put(&mut task, batch(&["x"])).await;
    assert!(is_refused(&outcomes[0]));
    assert!(reason(&outcomes[0]).len() < 400, "{outcomes:?}");
}

#[tokio::test]
async fn a_put_that_is_given_up_leaves_no_request_behind() {
    let server = HttpServer::start(|_| Reply::hang()).await;
    let mut task = task_to(&server, "/", &[]).await;
    let batch = numbered(100);
    let outcomes = Outcomes::of(&batch);
    let sender = outcomes.sender();
    tokio::select! {
        _ = task.put(batch, &sender) => panic!("it can't end"),
        () = server.wait_for(16) => {}
    }
    // What was given up holds no place.
    let second = numbered(1);
    let outcomes = Outcomes::of(&second);
    let sender = outcomes.sender();
    tokio::select! {
        _ = task.put(second, &sender) => panic!("it can't end"),
        () = server.wait_for(17) => {}
    }
    assert_eq!(server.seen().len(), 17);
}

#[tokio::test]
async fn bodies_are_compressed() {
    let server = echo().await;
    let text = "abc".repeat(1000);
    for (name, codec) in [("gzip", Compression::Gzip), ("zstd", Compression::Zstd)] {
        let mut task = task_to(&server, "/", &[("http.compression.type", name)]).await;
        put(&mut task, batch(&[&text])).await;
        let seen = server.seen().pop().unwrap();
        assert_eq!(seen.header("content-encoding"), Some(name));
        assert!(seen.body.len() < text.len());
        let unpacked = decompress(codec, &seen.body, &DecompressLimits::default()).unwrap();
        assert_eq!(unpacked, text.as_bytes());
    }
}

#[tokio::test]
async fn what_can_not_be_finished_before_a_lock_ends_is_not_begun() {
    let server = HttpServer::start(|_| Reply::status(200).after(Duration::from_millis(200))).await;
    let mut task = task_to(&server, "/", &[("http.concurrency.max", "1")]).await;
    put(&mut task, numbered(1)).await;
    let batch = numbered(100);
    let outcomes = Outcomes::of(&batch);
    let at = Instant::now() + Duration::from_millis(1500);
    outcomes.cut_off_at(Some(at));
    let sender = outcomes.sender();
    assert!(timeout_at(at, task.put(batch, &sender)).await.is_err());
    let outcomes = outcomes.take().unwrap();
    let written = outcomes.iter().flatten().count();
    // What was begun was finished.
    assert_eq!(server.seen().len(), 1 + written);
    assert!((1..=7).contains(&written), "{written}");
    assert!(
        outcomes
            .iter()
            .flatten()
            .all(|outcome| *outcome == Outcome::Written)
    );
}
