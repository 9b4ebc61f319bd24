//! What a peer's port is, asked on a connection of its own when one failed in a way that has several
//! causes.

use tokio::time::timeout;

use crate::error_code::ErrorCode;
use crate::limits::PORT_QUESTION_TIMEOUT;
use crate::message::sasl_handshake::SaslHandshakeRequest;
use crate::net::connection::{Connection, ConnectionOptions};
use crate::net::connector::Connector;
use crate::net::error::{CallError, CloseReason, ConnectError};
use crate::net::sasl::{SaslError, enabled_mechanisms};
#[cfg(feature = "tls")]
use {
    crate::frame::{encode_request, response_correlation_id},
    crate::id::CorrelationId,
    crate::limits::PORT_ANSWER_BYTES_MAX,
    crate::message::api_versions::ApiVersionsRequest,
    crate::net::address::Address,
    crate::net::task::read_frame,
    crate::net::tls::client_hello,
    tokio::io::{AsyncReadExt, AsyncWriteExt},
};

/// Whether the streams of this connector lead to a Kafka broker that answers as they are: its port is
/// one without TLS. Nothing of the client is told.
#[cfg(feature = "tls")]
pub(super) async fn answers_plaintext(connector: &dyn Connector, address: &Address) -> bool {
    let asked = async {
        let mut stream = connector.connect(address).await?;
        let id = CorrelationId(0);
        let request = encode_request(&ApiVersionsRequest::default(), 0, id, None);
        stream.write_all(&request).await?;
        stream.flush().await?;
        read_frame(&mut stream, PORT_ANSWER_BYTES_MAX, PORT_ANSWER_BYTES_MAX).await
    };
    let answer = timeout(PORT_QUESTION_TIMEOUT, asked).await;
    matches!(answer, Ok(Ok(frame)) if response_correlation_id(&frame) == Ok(CorrelationId(0)))
}

/// Whether a peer that hangs up on plaintext answers in TLS. Nothing of the client is told.
#[cfg(feature = "tls")]
pub(super) async fn answers_tls(connector: &dyn Connector, address: &Address) -> bool {
    let Some(hello) = client_hello(&address.host) else {
        return false;
    };
    let asked = async {
        let mut stream = connector.connect(address).await?;
        stream.write_all(&hello).await?;
        stream.flush().await?;
        let mut head = [0; 2];
        stream.read_exact(&mut head).await?;
        std::io::Result::Ok(head)
    };
    // The heads of an alert and of a handshake message, of any version (RFC 8446, section 5.1).
    matches!(
        timeout(PORT_QUESTION_TIMEOUT, asked).await,
        Ok(Ok([21 | 22, 3]))
    )
}

impl CallError {
    /// Whether a broker has ended a connection without SASL at the first request, so that
    /// [`explain`](Self::explain) may find out why.
    #[must_use]
    pub const fn has_hidden_cause(&self) -> bool {
        matches!(
            self,
            Self::ConnectionLost {
                reason: CloseReason::ByPeerAtFirstRequest,
                ..
            }
        )
    }

    /// Finds out why a broker ended a connection at the first request
    /// ([`CloseReason::ByPeerAtFirstRequest`]): asks it, on a new connection, whether its port wants
    /// SASL. Takes [`PORT_QUESTION_TIMEOUT`] at the longest.
    ///
    /// `Some` is that error, with the mechanisms that the broker takes; it is not retriable. `None` =
    /// the port wants no SASL, the broker can't be asked, or this is another error.
    ///
    /// # Cancel safety
    /// Dropping the future drops the new connection.
    pub async fn explain(
        &self,
        connector: &dyn Connector,
        options: &ConnectionOptions,
    ) -> Option<ConnectError> {
        if !self.has_hidden_cause() {
            return None;
        }
        let address = self.address();
        let asked = async {
            let connection = Connection::open(connector, address, options).await.ok()?;
            // No broker has a mechanism without a name, so it tells those that it has.
            connection.call(&SaslHandshakeRequest::default()).await.ok()
        };
        let answer = timeout(PORT_QUESTION_TIMEOUT, asked).await.ok()??;
        (answer.error_code == ErrorCode::UnsupportedSaslMechanism).then(|| {
            let enabled = enabled_mechanisms(&answer);
            let source = Box::new(SaslError::Required { enabled });
            let address = address.clone();
            ConnectError::Authentication { address, source }
        })
    }
}
