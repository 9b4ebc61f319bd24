//! A connection that authenticates to a hostile broker, on a pipe in memory, in paused time.

use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::{BufMut, Bytes, BytesMut};
use sharegroup_wire::ErrorCode;
use sharegroup_wire::frame::{RequestHeader, encode_response};
use sharegroup_wire::message::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use sharegroup_wire::message::sasl_authenticate::{
    AuthBytes, SaslAuthenticateRequest, SaslAuthenticateResponse,
};
use sharegroup_wire::message::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use sharegroup_wire::message::{Message, Request};
use sharegroup_wire::net::sasl::{Credentials, ScramAlgorithm, StaticToken};
use sharegroup_wire::net::{Address, ConnectFuture, Connection, ConnectionOptions, Connector};
use sharegroup_wire::primitive::Reader;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Never to be seen.
const SECRET: &str = "hush-hush-hush";
/// Stands for the client's nonce in what the broker says.
const NONCE: u8 = b'%';
/// Stands for the secret.
const ECHO: u8 = b'~';
/// Between two things that the broker says.
const NEXT: u8 = 0xff;

/// Input: the mechanism (bits 0–1), what the broker does well (bits 2–3: nothing, frames, all but the
/// mechanism's messages), and what it says, one after the other.
pub fn sasl(data: &[u8]) {
    let [flags, says @ ..] = data else { return };
    let options = ConnectionOptions {
        sasl: Some(credentials(flags & 3)),
        ..Default::default()
    };
    let broker = Broker {
        conduct: flags >> 2 & 3,
        says: says
            .split(|byte| *byte == NEXT)
            .map(<[u8]>::to_vec)
            .collect(),
        nonce: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let seen = runtime.block_on(async {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        tokio::spawn(broker.run(theirs));
        let pipe = Pipe(Mutex::new(Some(ours)));
        let mut seen = format!("{options:?}");
        match Connection::open(&pipe, &Address::new("broker", 9092), &options).await {
            Ok(connection) => write!(seen, "{connection:?}"),
            Err(error) => write!(seen, "{error} {error:?} {:?}", error.is_retriable()),
        }
        .expect("a string takes everything");
        seen
    });
    assert!(!seen.contains(SECRET), "{seen}");
}

fn credentials(mechanism: u8) -> Credentials {
    let scram = |algorithm| Credentials::Scram {
        algorithm,
        username: "alice".to_owned(),
        password: SECRET.into(),
        is_delegation_token: false,
    };
    match mechanism {
        0 => Credentials::Plain {
            username: "alice".to_owned(),
            password: SECRET.into(),
        },
        1 => scram(ScramAlgorithm::Sha256),
        2 => scram(ScramAlgorithm::Sha512),
        _ => Credentials::OauthBearer {
            source: Arc::new(StaticToken(SECRET.into())),
            extensions: vec![("traceId".to_owned(), "1".to_owned())],
        },
    }
}

/// Hands out one end of a pipe, once.
#[derive(Debug)]
struct Pipe(Mutex<Option<DuplexStream>>);

impl Connector for Pipe {
    fn connect<'a>(&'a self, _: &'a Address) -> ConnectFuture<'a> {
        let stream = self.0.lock().expect("one thread").take();
        Box::pin(async { Ok(Box::new(stream.ok_or(io::ErrorKind::ConnectionRefused)?) as _) })
    }
}

struct Broker {
    /// 0: raw bytes, 1: frames that answer, 2 and 3: answers until the mechanism's messages.
    conduct: u8,
    says: Vec<Vec<u8>>,
    /// The client's, once it was seen.
    nonce: Vec<u8>,
}

impl Broker {
    /// Answers until it has nothing to say any more, then hangs up.
    async fn run(mut self, mut stream: DuplexStream) {
        let says = std::mem::take(&mut self.says);
        let mut says = says.iter();
        while let Some(request) = request(&mut stream).await {
            let Some(answer) = self.answer(&request, &mut says) else {
                return;
            };
            if stream.write_all(&answer).await.is_err() {
                return;
            }
        }
    }

    fn answer<'a>(
        &mut self,
        request: &Bytes,
        says: &mut impl Iterator<Item = &'a Vec<u8>>,
    ) -> Option<Bytes> {
        let mut reader = Reader::new(request);
        let is_flexible = |key, version| match key {
            ApiVersionsRequest::KEY => ApiVersionsRequest::is_flexible(version),
            SaslAuthenticateRequest::KEY => SaslAuthenticateRequest::is_flexible(version),
            _ => false,
        };
        let header = RequestHeader::decode(&mut reader, is_flexible).expect("a request");
        let (version, id) = (header.api_version, header.correlation_id);
        let body = request.slice(reader.position()..);
        match header.api_key {
            _ if self.conduct < 2 => {}
            ApiVersionsRequest::KEY => {
                let response = encode_response::<ApiVersionsRequest>(&versions(), version, id);
                return Some(response);
            }
            SaslHandshakeRequest::KEY => {
                let response = SaslHandshakeResponse::default();
                return Some(encode_response::<SaslHandshakeRequest>(
                    &response, version, id,
                ));
            }
            _ => {
                let asked = SaslAuthenticateRequest::from_bytes(&body, version).expect("a request");
                self.look_for_nonce(&asked.auth_bytes.0);
                let [code, text @ ..] = &says.next()?[..] else {
                    return None;
                };
                let response = self.authenticate_response(*code, &self.expand(text));
                return Some(encode_response::<SaslAuthenticateRequest>(
                    &response, version, id,
                ));
            }
        }
        let said = self.expand(says.next()?);
        if self.conduct == 0 {
            return Some(said.into());
        }
        let mut frame = BytesMut::new();
        frame.put_u32(u32::try_from(said.len() + 4).expect("inputs are small"));
        frame.put_i32(id.0);
        frame.extend_from_slice(&said);
        Some(frame.freeze())
    }

    /// A code that is a printable character is none.
    fn authenticate_response(&self, code: u8, text: &[u8]) -> SaslAuthenticateResponse {
        if code.is_ascii_graphic() {
            SaslAuthenticateResponse {
                auth_bytes: AuthBytes(Bytes::copy_from_slice(text)),
                session_lifetime_ms: i64::from(code),
                ..Default::default()
            }
        } else {
            SaslAuthenticateResponse {
                error_code: ErrorCode::from_code(i16::from(code)),
                error_message: Some(String::from_utf8_lossy(text).into_owned()),
                ..Default::default()
            }
        }
    }

    fn look_for_nonce(&mut self, message: &[u8]) {
        let mut parts = message.split(|byte| *byte == b',');
        if let Some(nonce) = parts.find_map(|part| part.strip_prefix(b"r=")) {
            self.nonce = nonce.to_vec();
        }
    }

    fn expand(&self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for byte in text {
            match *byte {
                NONCE => out.extend_from_slice(&self.nonce),
                ECHO => out.extend_from_slice(SECRET.as_bytes()),
                byte => out.push(byte),
            }
        }
        out
    }
}

fn versions() -> ApiVersionsResponse {
    fn of<R: Request>() -> ApiVersion {
        ApiVersion {
            api_key: R::KEY,
            min_version: R::VERSION_MIN,
            max_version: R::VERSION_MAX,
        }
    }
    ApiVersionsResponse {
        api_keys: vec![
            of::<ApiVersionsRequest>(),
            of::<SaslHandshakeRequest>(),
            of::<SaslAuthenticateRequest>(),
        ],
        ..Default::default()
    }
}

async fn request(stream: &mut DuplexStream) -> Option<Bytes> {
    let size = stream.read_u32().await.ok()?;
    let mut frame = vec![0; usize::try_from(size).ok()?];
    stream.read_exact(&mut frame).await.ok()?;
    Some(frame.into())
}
