//! A scripted broker: one end of a connection, and the other.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test's own failures")]

use std::io;
use std::sync::Mutex;

use bytes::Bytes;
use sharegroup_wire::frame::{RequestHeader, encode_response};
use sharegroup_wire::message::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey,
};
use sharegroup_wire::message::metadata::{MetadataRequest, MetadataResponse};
use sharegroup_wire::message::sasl_authenticate::SaslAuthenticateRequest;
use sharegroup_wire::message::sasl_handshake::SaslHandshakeRequest;
use sharegroup_wire::message::{Message, Request};
use sharegroup_wire::net::{Address, ConnectFuture, Connector};
use sharegroup_wire::primitive::Reader;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};

/// Hands out one end of a pipe, once.
#[derive(Debug, Default)]
pub(crate) struct Pipe(pub(crate) Mutex<Option<DuplexStream>>);

impl Connector for Pipe {
    fn connect<'a>(&'a self, _: &'a Address) -> ConnectFuture<'a> {
        let stream = self.0.lock().unwrap().take();
        Box::pin(async { Ok(Box::new(stream.ok_or(io::ErrorKind::ConnectionRefused)?) as _) })
    }
}

/// Both ends of a pipe.
pub(crate) fn pipe() -> (Pipe, Peer<DuplexStream>) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    (Pipe(Mutex::new(Some(ours))), Peer(theirs))
}

/// One request.
pub(crate) struct Asked {
    pub(crate) header: RequestHeader,
    pub(crate) body: Bytes,
}

impl Asked {
    pub(crate) fn decode<R: Request>(&self) -> R {
        assert_eq!(self.header.api_key, R::KEY, "asked for {}", R::NAME);
        R::from_bytes(&self.body, self.header.api_version).unwrap()
    }

    /// The frame that answers it.
    pub(crate) fn answered<R: Request>(&self, response: &R::Response) -> Bytes {
        encode_response::<R>(
            response,
            self.header.api_version,
            self.header.correlation_id,
        )
    }
}

/// The broker's end of a connection.
pub(crate) struct Peer<S>(pub(crate) S);

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    /// The next request; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Asked> {
        let size = self.0.read_u32().await.ok()?;
        let mut frame = vec![0; size as usize];
        self.0.read_exact(&mut frame).await.ok()?;
        let frame = Bytes::from(frame);
        let mut reader = Reader::new(&frame);
        let header = RequestHeader::decode(&mut reader, |key, version| match key {
            ApiVersionsRequest::API_KEY => ApiVersionsRequest::is_flexible(version),
            MetadataRequest::API_KEY => MetadataRequest::is_flexible(version),
            SaslHandshakeRequest::API_KEY => SaslHandshakeRequest::is_flexible(version),
            SaslAuthenticateRequest::API_KEY => SaslAuthenticateRequest::is_flexible(version),
            _ => true,
        })
        .unwrap();
        let body = frame.slice(reader.position()..);
        Some(Asked { header, body })
    }

    /// The next request, which must come.
    pub(crate) async fn asked(&mut self) -> Asked {
        self.next().await.unwrap()
    }

    pub(crate) async fn answer<R: Request>(&mut self, asked: &Asked, response: &R::Response) {
        let frame = asked.answered::<R>(response);
        self.0.write_all(&frame).await.unwrap();
        self.0.flush().await.unwrap();
    }

    /// Answers ApiVersions with [`versions`].
    pub(crate) async fn negotiate(&mut self) {
        let Some(asked) = self.next().await else {
            return;
        };
        asked.decode::<ApiVersionsRequest>();
        self.answer::<ApiVersionsRequest>(&asked, &versions()).await;
    }

    /// Answers ApiVersions, and then Metadata to the end.
    pub(crate) async fn serve(&mut self) {
        self.negotiate().await;
        self.serve_metadata().await;
    }

    pub(crate) async fn serve_metadata(&mut self) {
        while let Some(asked) = self.next().await {
            asked.decode::<MetadataRequest>();
            self.answer::<MetadataRequest>(&asked, &metadata()).await;
        }
    }
}

/// Metadata and SASL as Kafka 4.4 has them, ShareGroupHeartbeat 1, a ShareFetch of the future, and
/// `share.version` 2.
pub(crate) fn versions() -> ApiVersionsResponse {
    let api = |api_key, min_version, max_version| ApiVersion {
        api_key,
        min_version,
        max_version,
    };
    ApiVersionsResponse {
        api_keys: vec![
            api(3, 0, 12),
            api(17, 0, 1),
            api(18, 0, 5),
            api(36, 0, 2),
            api(76, 1, 1),
            api(78, 3, 4),
        ],
        finalized_features: vec![FinalizedFeatureKey {
            name: "share.version".into(),
            max_version_level: 2,
            min_version_level: 1,
        }],
        ..Default::default()
    }
}

/// A metadata answer that can be told from a default one.
pub(crate) fn metadata() -> MetadataResponse {
    MetadataResponse {
        cluster_id: Some("the-cluster".to_owned()),
        ..Default::default()
    }
}
