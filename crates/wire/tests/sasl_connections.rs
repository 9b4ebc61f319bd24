//! SASL against a scripted broker on an in-memory pipe, under paused time.
#![cfg(feature = "tls")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod scripted;
mod security;

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ring::{digest, hmac, pbkdf2};
use scripted::{Asked, Peer, metadata, pipe};
use security::Folder;
use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::Request;
use sharegroup_wire::message::metadata::MetadataRequest;
use sharegroup_wire::message::sasl_authenticate::{
    AuthBytes, SaslAuthenticateRequest, SaslAuthenticateResponse,
};
use sharegroup_wire::message::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use sharegroup_wire::net::sasl::{
    Credentials, SaslError, ScramAlgorithm, StaticToken, TokenFile, UnsecuredToken,
};
use sharegroup_wire::net::{
    Address, CloseReason, ConnectError, ConnectPhase, Connection, ConnectionOptions,
};
use tokio::io::DuplexStream;
use tokio::time::{Instant, sleep, timeout};

const PASSWORD: &str = "alice-secret";

type Broker = Peer<DuplexStream>;

async fn open<F: Future<Output = ()> + Send + 'static>(
    credentials: Credentials,
    broker: impl FnOnce(Broker) -> F,
) -> Result<Connection, ConnectError> {
    let (pipe, peer) = pipe();
    tokio::spawn(broker(peer));
    let options = ConnectionOptions {
        sasl: Some(credentials),
        ..Default::default()
    };
    let opened = Connection::open(&pipe, &Address::new("broker", 9092), &options).await;
    let shown = format!("{options:?} {opened:?}");
    assert!(!shown.contains(PASSWORD), "{shown}");
    opened
}

async fn refused<F: Future<Output = ()> + Send + 'static>(
    credentials: Credentials,
    broker: impl FnOnce(Broker) -> F,
) -> SaslError {
    let error = open(credentials, broker).await.unwrap_err();
    assert!(!error.to_string().contains(PASSWORD), "{error}");
    match error {
        ConnectError::Authentication { source, .. } => *source,
        other => panic!("{other:?}"),
    }
}

fn plain() -> Credentials {
    Credentials::Plain {
        username: "alice".into(),
        password: PASSWORD.into(),
    }
}

fn scram(algorithm: ScramAlgorithm, password: &str) -> Credentials {
    Credentials::Scram {
        algorithm,
        username: "alice".into(),
        password: password.into(),
        is_delegation_token: false,
    }
}

/// What the scripted broker answers.
fn says(bytes: impl Into<Bytes>) -> SaslAuthenticateResponse {
    SaslAuthenticateResponse {
        auth_bytes: AuthBytes(bytes.into()),
        ..Default::default()
    }
}

fn says_no(message: &str) -> SaslAuthenticateResponse {
    SaslAuthenticateResponse {
        error_code: ErrorCode::SaslAuthenticationFailed,
        error_message: Some(message.to_owned()),
        ..Default::default()
    }
}

trait Sasl {
    async fn handshake(&mut self, mechanism: &str);
    async fn message(&mut self) -> (Asked, String);
    async fn reply(&mut self, asked: &Asked, answer: &SaslAuthenticateResponse);
}

impl Sasl for Broker {
    async fn handshake(&mut self, mechanism: &str) {
        let asked = self.asked().await;
        assert_eq!(asked.header.api_version, 1);
        assert_eq!(asked.decode::<SaslHandshakeRequest>().mechanism, mechanism);
        let answer = SaslHandshakeResponse {
            mechanisms: vec![mechanism.to_owned()],
            ..Default::default()
        };
        self.answer::<SaslHandshakeRequest>(&asked, &answer).await;
    }

    async fn message(&mut self) -> (Asked, String) {
        let asked = self.asked().await;
        let bytes = asked.decode::<SaslAuthenticateRequest>().auth_bytes.0;
        (asked, String::from_utf8(bytes.to_vec()).unwrap())
    }

    async fn reply(&mut self, asked: &Asked, answer: &SaslAuthenticateResponse) {
        self.answer::<SaslAuthenticateRequest>(asked, answer).await;
    }
}

/// PLAIN, with a session of so many milliseconds.
async fn accept_plain(broker: &mut Broker, session_lifetime_ms: i64) {
    broker.handshake("PLAIN").await;
    let (asked, message) = broker.message().await;
    assert_eq!(message, format!("\0alice\0{PASSWORD}"));
    let answer = SaslAuthenticateResponse {
        session_lifetime_ms,
        ..Default::default()
    };
    broker.reply(&asked, &answer).await;
}

/// The server's half of SCRAM.
struct ScramServer {
    algorithm: ScramAlgorithm,
    password: &'static str,
    /// Put behind the client's nonce.
    nonce: &'static str,
    iterations: &'static str,
}

impl ScramServer {
    const fn new(algorithm: ScramAlgorithm) -> Self {
        Self {
            algorithm,
            password: PASSWORD,
            nonce: "%server~",
            iterations: "4096",
        }
    }

    /// Authenticates a client that knows the password.
    async fn run(self, broker: &mut Broker) {
        broker.handshake(self.algorithm.mechanism()).await;
        let (asked, first) = broker.message().await;
        let bare = first.strip_prefix("n,,").unwrap();
        let client_nonce = bare.strip_prefix("n=alice,r=").unwrap();
        let nonce = format!("{client_nonce}{}", self.nonce);
        let server_first = format!("r={nonce},s=c2FsdA==,i={}", self.iterations);
        broker.reply(&asked, &says(server_first.clone())).await;

        let Some(asked) = broker.next().await else {
            return;
        };
        let message = asked.decode::<SaslAuthenticateRequest>().auth_bytes.0;
        let message = std::str::from_utf8(&message).unwrap();
        let (without_proof, proof) = message.split_once(",p=").unwrap();
        // B-105: exactly the server's nonce.
        assert_eq!(without_proof, format!("c=biws,r={nonce}"));
        let signed = format!("{bare},{server_first},{without_proof}");
        let (expected, signature) = self.proof(&signed);
        let answer = if proof == expected {
            says(format!("v={signature}"))
        } else {
            says_no(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism",
            )
        };
        broker.reply(&asked, &answer).await;
    }

    /// The client's proof and the server's signature, in base64.
    fn proof(&self, signed: &str) -> (String, String) {
        let (digest, hmac, pbkdf2) = match self.algorithm {
            ScramAlgorithm::Sha256 => (
                &digest::SHA256,
                hmac::HMAC_SHA256,
                pbkdf2::PBKDF2_HMAC_SHA256,
            ),
            ScramAlgorithm::Sha512 => (
                &digest::SHA512,
                hmac::HMAC_SHA512,
                pbkdf2::PBKDF2_HMAC_SHA512,
            ),
        };
        let mut salted = vec![0; digest.output_len()];
        let iterations = NonZeroU32::new(4096).unwrap();
        pbkdf2::derive(
            pbkdf2,
            iterations,
            b"salt",
            self.password.as_bytes(),
            &mut salted,
        );
        let sign = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac, key), text);
        let client_key = sign(&salted, b"Client Key");
        let stored = digest::digest(digest, client_key.as_ref());
        let signature = sign(stored.as_ref(), signed.as_bytes());
        let pairs = client_key.as_ref().iter().zip(signature.as_ref());
        let proof: Vec<u8> = pairs.map(|(key, signature)| key ^ signature).collect();
        let server_key = sign(&salted, b"Server Key");
        let server_signature = sign(server_key.as_ref(), signed.as_bytes());
        (base64(&proof), base64(server_signature.as_ref()))
    }
}

/// By way of the JSON form of messages, which has it.
fn base64(bytes: &[u8]) -> String {
    use sharegroup_wire::message::json::Json;
    let mut out = String::new();
    Bytes::copy_from_slice(bytes).json(0, &mut out);
    out.trim_matches('"').to_owned()
}

#[tokio::test(start_paused = true)]
async fn plain_authenticates_before_anything_else() {
    let connection = open(plain(), async |mut broker| {
        broker.negotiate().await;
        accept_plain(&mut broker, 0).await;
        broker.serve_metadata().await;
    })
    .await
    .unwrap();
    let answer = connection.call(&MetadataRequest::default()).await.unwrap();
    assert_eq!(answer, metadata());
}

#[tokio::test(start_paused = true)]
async fn b_105_scram_of_both_hashes_authenticates_both_sides() {
    for algorithm in [ScramAlgorithm::Sha256, ScramAlgorithm::Sha512] {
        let connection = open(scram(algorithm, PASSWORD), async move |mut broker| {
            broker.negotiate().await;
            ScramServer::new(algorithm).run(&mut broker).await;
            broker.serve_metadata().await;
        })
        .await
        .unwrap();
        let answer = connection.call(&MetadataRequest::default()).await.unwrap();
        assert_eq!(answer, metadata());
    }
}

#[tokio::test(start_paused = true)]
async fn b_105_foreign_nonce_is_refused() {
    let error = refused(
        scram(ScramAlgorithm::Sha512, PASSWORD),
        async |mut broker| {
            broker.negotiate().await;
            broker.handshake("SCRAM-SHA-512").await;
            let (asked, _) = broker.message().await;
            let foreign = "r=somebody-elses-nonce,s=c2FsdA==,i=4096";
            broker.reply(&asked, &says(foreign)).await;
            assert!(
                broker.next().await.is_none(),
                "nothing is proved to a stranger"
            );
        },
    )
    .await;
    assert!(matches!(error, SaslError::ForeignNonce { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn b_106_iterations_out_of_bounds_are_refused_at_once() {
    for iterations in ["0", "-1", "1", "4095", "2000000000", "131073"] {
        let started = std::time::Instant::now();
        let error = refused(
            scram(ScramAlgorithm::Sha256, PASSWORD),
            async move |mut broker| {
                broker.negotiate().await;
                let server = ScramServer {
                    iterations,
                    ..ScramServer::new(ScramAlgorithm::Sha256)
                };
                server.run(&mut broker).await;
            },
        )
        .await;
        assert!(
            matches!(&error, SaslError::Iterations { received, min: 4096, .. } if received == iterations),
            "{error}"
        );
        assert!(started.elapsed() < Duration::from_secs(2));
        assert!(!error.is_retriable());
    }
}

/// What a server says that knows another password.
async fn wrong_password(password: &str) -> SaslError {
    let credentials = scram(ScramAlgorithm::Sha256, password);
    let serve = async |mut broker: Broker| {
        broker.negotiate().await;
        let server = ScramServer::new(ScramAlgorithm::Sha256);
        server.run(&mut broker).await;
    };
    refused(credentials, serve).await
}

#[tokio::test(start_paused = true)]
async fn wrong_password_is_refused_by_type() {
    let error = wrong_password("wrong").await;
    assert!(
        matches!(
            &error,
            SaslError::Refused {
                mechanism: "SCRAM-SHA-256",
                code: ErrorCode::SaslAuthenticationFailed,
                hint: None,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(!error.is_retriable());
    assert!(error.to_string().contains("invalid credentials"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn refused_password_that_saslprep_changes_gives_a_hint() {
    // The ligature becomes two letters.
    let error = wrong_password("\u{fb01}").await;
    assert!(error.to_string().contains("SASLprep"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn server_that_does_not_know_the_password_is_refused() {
    let error = refused(
        scram(ScramAlgorithm::Sha256, PASSWORD),
        async |mut broker| {
            broker.negotiate().await;
            broker.handshake("SCRAM-SHA-256").await;
            let (asked, first) = broker.message().await;
            let nonce = first.split("r=").nth(1).unwrap();
            let server_first = format!("r={nonce}x,s=c2FsdA==,i=4096");
            broker.reply(&asked, &says(server_first)).await;
            let (asked, _) = broker.message().await;
            broker
                .reply(&asked, &says(format!("v={}", base64(&[7; 32]))))
                .await;
        },
    )
    .await;
    assert!(
        matches!(error, SaslError::WrongServerSignature { .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn broker_that_echoes_the_password_does_not_get_it_into_the_error() {
    let error = refused(plain(), async |mut broker| {
        broker.negotiate().await;
        broker.handshake("PLAIN").await;
        let (asked, _) = broker.message().await;
        broker
            .reply(
                &asked,
                &says_no(&format!(
                    "{PASSWORD} is\n wrong, alice\u{7f}-sec\0ret too{}",
                    " ".repeat(1 << 20)
                )),
            )
            .await;
    })
    .await;
    let text = error.to_string();
    assert!(
        text.contains("[hidden] is wrong, [hidden] too") && text.len() < 1000,
        "{text}"
    );
}

async fn answer_handshake(mut broker: Broker, error_code: ErrorCode, mechanisms: &[&str]) {
    broker.negotiate().await;
    let asked = broker.asked().await;
    let answer = SaslHandshakeResponse {
        error_code,
        mechanisms: mechanisms.iter().map(|name| (*name).to_owned()).collect(),
    };
    broker.answer::<SaslHandshakeRequest>(&asked, &answer).await;
}

#[tokio::test(start_paused = true)]
async fn mechanism_that_is_off_and_port_without_sasl_are_named() {
    let error = refused(plain(), |broker| {
        answer_handshake(
            broker,
            ErrorCode::UnsupportedSaslMechanism,
            &["GSSAPI", "SCRAM-SHA-512"],
        )
    })
    .await;
    let text = error.to_string();
    assert!(
        text.contains("PLAIN") && text.contains("GSSAPI, SCRAM-SHA-512"),
        "{text}"
    );
    let error = refused(plain(), |broker| {
        answer_handshake(broker, ErrorCode::IllegalSaslState, &[])
    })
    .await;
    assert_eq!(error, SaslError::NotSasl);
    assert!(error.to_string().contains("security.protocol"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn broker_that_hangs_up_or_keeps_silent_is_told_apart() {
    let error = refused(plain(), async |mut broker| {
        broker.negotiate().await;
        broker.handshake("PLAIN").await;
        broker.message().await;
    })
    .await;
    assert!(
        matches!(error, SaslError::Closed { .. }) && error.is_retriable(),
        "{error}"
    );
    let error = open(plain(), async |mut broker| {
        broker.negotiate().await;
        broker.handshake("PLAIN").await;
        sleep(Duration::from_secs(3600)).await;
    })
    .await
    .unwrap_err();
    assert!(
        matches!(
            error,
            ConnectError::Timeout {
                phase: ConnectPhase::Authentication,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn bearer_token_is_sent_with_its_extensions() {
    let credentials = Credentials::OauthBearer {
        source: Arc::new(StaticToken("the.token.".into())),
        extensions: vec![("traceId".into(), "7".into())],
    };
    let connection = open(credentials, async |mut broker| {
        broker.negotiate().await;
        broker.handshake("OAUTHBEARER").await;
        let (asked, message) = broker.message().await;
        assert_eq!(
            message,
            "n,,\u{1}auth=Bearer the.token.\u{1}traceId=7\u{1}\u{1}"
        );
        broker.reply(&asked, &says("")).await;
    })
    .await;
    assert!(connection.is_ok(), "{connection:?}");
}

#[tokio::test(start_paused = true)]
async fn refused_token_is_acknowledged_and_the_refusal_reported() {
    let credentials = Credentials::OauthBearer {
        source: Arc::new(UnsecuredToken::new("alice")),
        extensions: Vec::new(),
    };
    let error = refused(credentials, async |mut broker| {
        broker.negotiate().await;
        broker.handshake("OAUTHBEARER").await;
        let (asked, _) = broker.message().await;
        broker
            .reply(&asked, &says(r#"{"status":"invalid_token"}"#))
            .await;
        let (asked, message) = broker.message().await;
        assert_eq!(message, "\u{1}");
        broker
            .reply(&asked, &says_no("{\"status\":\"invalid_token\"}"))
            .await;
    })
    .await;
    assert!(error.to_string().contains("invalid_token"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn missing_token_file_is_named_before_anything_is_sent() {
    let credentials = Credentials::OauthBearer {
        source: Arc::new(TokenFile("/no/such/token".into())),
        extensions: Vec::new(),
    };
    let error = refused(credentials, async |mut broker| {
        broker.negotiate().await;
        assert!(broker.next().await.is_none());
    })
    .await;
    assert!(error.to_string().contains("/no/such/token"), "{error}");
}

/// Serves metadata, each answer after a pause, and authenticates again whenever asked. Fails when a
/// request comes in the middle of an authentication.
async fn serve_sessions(
    mut broker: Broker,
    session_ms: i64,
    asked_after: Arc<Mutex<Vec<Duration>>>,
) {
    let mut authenticated = Instant::now();
    while let Some(asked) = broker.next().await {
        if asked.header.api_key == SaslHandshakeRequest::KEY {
            asked_after.lock().unwrap().push(authenticated.elapsed());
            let answer = SaslHandshakeResponse::default();
            broker.answer::<SaslHandshakeRequest>(&asked, &answer).await;
            sleep(Duration::from_millis(200)).await;
            let (asked, message) = broker.message().await;
            assert_eq!(message, format!("\0alice\0{PASSWORD}"));
            sleep(Duration::from_millis(200)).await;
            let answer = SaslAuthenticateResponse {
                session_lifetime_ms: session_ms,
                ..Default::default()
            };
            broker.reply(&asked, &answer).await;
            authenticated = Instant::now();
        } else {
            sleep(Duration::from_millis(50)).await;
            broker.answer::<MetadataRequest>(&asked, &metadata()).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b_110_connection_authenticates_again_and_other_requests_wait() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&times);
    let connection = open(plain(), async move |mut broker| {
        broker.negotiate().await;
        accept_plain(&mut broker, 10_000).await;
        serve_sessions(broker, 10_000, log).await;
    })
    .await
    .unwrap();
    let started = Instant::now();
    let callers = (0..8).map(|_| {
        let connection = connection.clone();
        tokio::spawn(async move {
            while started.elapsed() < Duration::from_secs(60) {
                connection.call(&MetadataRequest::default()).await.unwrap();
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    let times = times.lock().unwrap();
    assert!(times.len() >= 5, "{times:?}");
    // In time, and not all connections of a client at once.
    assert!(
        times.iter().all(|after| (8..10).contains(&after.as_secs())),
        "{times:?}"
    );
    assert!(!connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn session_without_an_end_is_not_renewed() {
    let connection = open(plain(), async |mut broker| {
        broker.negotiate().await;
        accept_plain(&mut broker, 0).await;
        broker.serve_metadata().await;
    })
    .await
    .unwrap();
    sleep(Duration::from_secs(24 * 3600)).await;
    connection.call(&MetadataRequest::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn refused_renewal_ends_the_connection_with_the_reason() {
    let connection = open(plain(), async |mut broker| {
        broker.negotiate().await;
        accept_plain(&mut broker, 10_000).await;
        broker.handshake("PLAIN").await;
        let (asked, _) = broker.message().await;
        broker.reply(&asked, &says_no("no longer")).await;
        assert!(broker.next().await.is_none());
    })
    .await
    .unwrap();
    let reason = connection.closed().await;
    let CloseReason::Authentication(error) = &reason else {
        panic!("{reason}")
    };
    assert!(matches!(**error, SaslError::Refused { .. }), "{error}");
    assert!(!reason.is_retriable());
    let error = connection
        .call(&MetadataRequest::default())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no longer"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn last_handle_ends_the_connection_although_a_session_is_to_be_renewed() {
    let (ended, end) = tokio::sync::oneshot::channel();
    let connection = open(plain(), async |mut broker| {
        broker.negotiate().await;
        accept_plain(&mut broker, 3_600_000).await;
        assert!(broker.next().await.is_none());
        ended.send(Instant::now()).unwrap();
    })
    .await
    .unwrap();
    let dropped = Instant::now();
    drop(connection);
    let ended = timeout(Duration::from_secs(7200), end)
        .await
        .unwrap()
        .unwrap();
    assert!(ended - dropped < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn token_file_is_read_again_for_each_session() {
    let folder = Folder::new();
    let file = folder.write("token", "one\n");
    let credentials = Credentials::OauthBearer {
        source: Arc::new(TokenFile(file.into())),
        extensions: Vec::new(),
    };
    let (seen, mut tokens) = tokio::sync::mpsc::channel(4);
    let connection = open(credentials, async move |mut broker| {
        broker.negotiate().await;
        loop {
            broker.handshake("OAUTHBEARER").await;
            let (asked, message) = broker.message().await;
            seen.send(message).await.unwrap();
            let answer = SaslAuthenticateResponse {
                session_lifetime_ms: 60_000,
                ..Default::default()
            };
            broker.reply(&asked, &answer).await;
        }
    })
    .await
    .unwrap();
    assert!(tokens.recv().await.unwrap().contains("Bearer one\u{1}"));
    folder.write("token", "two");
    assert!(tokens.recv().await.unwrap().contains("Bearer two\u{1}"));
    drop(connection);
}
