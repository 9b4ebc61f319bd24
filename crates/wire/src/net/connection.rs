//! One connection to one broker.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout, timeout_at};
#[cfg(feature = "tls")]
use {std::sync::Weak, tokio::sync::OwnedSemaphorePermit, tokio::time::sleep};

use crate::frame::{decode_response, encode_request};
#[cfg(feature = "tls")]
use crate::limits::TOKEN_WAIT_MAX;
use crate::limits::{FRAME_BYTES_MAX, IN_FLIGHT_REQUESTS_MAX, REQUEST_TIMEOUT, SETUP_TIMEOUT};
use crate::message::Request;
use crate::net::address::Address;
use crate::net::connector::Connector;
use crate::net::error::{CallError, CloseReason, ConnectError, ConnectPhase};
use crate::net::negotiation::{ApiVersionRange, NegotiatedVersions, negotiate};
#[cfg(feature = "tls")]
use crate::net::probe::answers_tls;
#[cfg(feature = "tls")]
use crate::net::sasl::{self, Credentials};
use crate::net::task::{Outcome, Shared, Submission, run};

/// Requests that may wait for an answer beside those that have a place: one of SASL.
const SASL_PLACES: usize = 1;

/// What a connection is opened with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Name of the client for the broker's logs and quotas (`client.id`). Default none.
    pub client_id: Option<String>,
    /// Time for one request and its answer (`request.timeout.ms`). Default 30 s.
    pub request_timeout: Duration,
    /// Time to open the stream, to secure it, to negotiate versions and to authenticate
    /// (`socket.connection.setup.timeout.ms`). Default 10 s.
    pub setup_timeout: Duration,
    /// Requests that may wait for an answer. Default [`IN_FLIGHT_REQUESTS_MAX`], at least 1.
    pub in_flight_max: usize,
    /// Time without a request after which the connection closes itself
    /// (`connections.max.idle.ms`); SASL's own requests don't count. Below the broker's, so that no
    /// request meets a connection that the broker is closing. Default never.
    pub idle_max: Option<Duration>,
    /// Largest answer in bytes. Default [`FRAME_BYTES_MAX`].
    pub frame_bytes_max: usize,
    /// Name of the software, for the broker's metrics (KIP-511).
    pub software_name: String,
    /// Its version.
    pub software_version: String,
    /// What to authenticate with (`sasl.*`). Default nothing.
    #[cfg(feature = "tls")]
    pub sasl: Option<Credentials>,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            client_id: None,
            request_timeout: REQUEST_TIMEOUT,
            setup_timeout: SETUP_TIMEOUT,
            in_flight_max: IN_FLIGHT_REQUESTS_MAX,
            idle_max: None,
            frame_bytes_max: FRAME_BYTES_MAX,
            software_name: "sharegroup".to_owned(),
            software_version: env!("CARGO_PKG_VERSION").to_owned(),
            #[cfg(feature = "tls")]
            sasl: None,
        }
    }
}

impl ConnectionOptions {
    const fn has_sasl(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.sasl.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }
}

/// A negotiated connection to one broker. A clone is another handle to the same connection, which
/// ends when the last handle is dropped.
///
/// Requests are written in the order of the calls and answered in that order. A request without an
/// answer at its deadline, an illegal frame or an answer that nobody is due ends the connection,
/// since the state of the stream is unknown then; all other calls fail at once with the reason.
#[derive(Debug, Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    link: Link,
    versions: NegotiatedVersions,
}

impl Connection {
    /// Opens a stream, asks for the broker's versions, and authenticates where the options have
    /// credentials. Nothing else is sent before. The connection's task is spawned on the current
    /// runtime.
    ///
    /// A peer that hangs up on plaintext is asked on a second connection whether it speaks TLS
    /// ([`PORT_QUESTION_TIMEOUT`](crate::limits::PORT_QUESTION_TIMEOUT) at the longest).
    ///
    /// Without credentials a broker that wants them shows only at the first call:
    /// [`CallError::explain`].
    ///
    /// # Errors
    /// [`ConnectError`]; [`is_retriable`](ConnectError::is_retriable) tells whether to try again
    /// after a pause.
    ///
    /// # Cancel safety
    /// Dropping the future drops the half-open connection.
    pub async fn open(
        connector: &dyn Connector,
        address: &Address,
        options: &ConnectionOptions,
    ) -> Result<Self, ConnectError> {
        #[cfg(feature = "tls")]
        prepare(address, options).await?;
        let started = Instant::now();
        let is_tls = AtomicBool::new(false);
        let connecting = connector.connect_to_broker(address, &is_tls);
        let stream = match timeout(options.setup_timeout, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                return Err(ConnectError::of_stream(address, &error));
            }
            Err(_) => {
                return Err(ConnectError::Timeout {
                    address: address.clone(),
                    phase: if is_tls.into_inner() {
                        ConnectPhase::TlsHandshake
                    } else {
                        ConnectPhase::Connect
                    },
                    after: options.setup_timeout,
                });
            }
        };
        let in_flight_max = options.in_flight_max.max(1);
        let (frames, queue) = mpsc::channel(in_flight_max + SASL_PLACES);
        let shared = Arc::new(Shared::new(is_tls.into_inner()));
        let link = Link {
            address: address.clone(),
            client_id: options.client_id.clone(),
            request_timeout: options.request_timeout,
            in_flight_max,
            places: Arc::new(Semaphore::new(in_flight_max)),
            frames,
            shared: Arc::clone(&shared),
        };
        let (frame_bytes_max, idle_max) = (options.frame_bytes_max, options.idle_max);
        tokio::spawn(async move { run(stream, queue, &shared, frame_bytes_max, idle_max).await });
        let negotiated =
            timeout_at(started + options.setup_timeout, negotiate(&link, options)).await;
        let negotiated = negotiated.map_err(|_| ConnectError::Timeout {
            address: address.clone(),
            phase: ConnectPhase::ApiVersions,
            after: options.setup_timeout,
        })?;
        #[cfg(feature = "tls")]
        let negotiated = match negotiated {
            Err(ConnectError::Closed {
                reason: CloseReason::ByPeerAtApiVersions,
                ..
            }) if answers_tls(connector, address).await => {
                Err(ConnectError::closed(address, CloseReason::TlsPort))
            }
            negotiated => negotiated,
        };
        let versions = negotiated?;
        link.shared.negotiated(options.has_sasl());
        let connection = Self {
            inner: Arc::new(Inner { link, versions }),
        };
        #[cfg(feature = "tls")]
        connection.authenticate(options, started).await?;
        tracing::debug!(%address, "Connected.");
        Ok(connection)
    }

    /// Authenticates where there are credentials, within the setup time.
    #[cfg(feature = "tls")]
    async fn authenticate(
        &self,
        options: &ConnectionOptions,
        started: Instant,
    ) -> Result<(), ConnectError> {
        let Some(credentials) = &options.sasl else {
            return Ok(());
        };
        let Inner { link, versions } = &*self.inner;
        let authenticated = timeout_at(
            started + options.setup_timeout,
            sasl::authenticate(link, versions, credentials),
        )
        .await
        .map_err(|_| ConnectError::Timeout {
            address: link.address.clone(),
            phase: ConnectPhase::Authentication,
            after: options.setup_timeout,
        })?;
        let lifetime = authenticated.map_err(|source| ConnectError::Authentication {
            address: link.address.clone(),
            source: Box::new(source),
        })?;
        if let Some(lifetime) = lifetime {
            tokio::spawn(keep_authenticated(
                Arc::downgrade(&self.inner),
                Arc::clone(&link.shared),
                credentials.clone(),
                lifetime,
            ));
        }
        Ok(())
    }

    /// Where it leads.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.inner.link.address
    }

    /// What the broker said about itself.
    #[must_use]
    pub fn versions(&self) -> &NegotiatedVersions {
        &self.inner.versions
    }

    /// The newest version of `R` that both sides know.
    ///
    /// # Errors
    /// [`CallError::Unsupported`].
    pub fn version<R: Request>(&self) -> Result<i16, CallError> {
        let ours = ApiVersionRange::of::<R>();
        let broker = self.inner.versions.range(R::KEY);
        broker
            .and_then(|broker| ours.newest_common(broker))
            .ok_or_else(|| CallError::Unsupported {
                address: self.address().clone(),
                api: R::NAME,
                ours,
                broker,
            })
    }

    /// Level of a finalized feature of the cluster, such as `share.version`; `None` = off.
    #[must_use]
    pub fn finalized_feature(&self, name: &str) -> Option<i16> {
        self.inner.versions.finalized_feature(name)
    }

    /// Sends a request in the newest common version and waits for its answer, for the request
    /// timeout at the longest. `ThrottleTimeMs` of the answer is the caller's business. Not for
    /// requests that get no answer (Produce with acks 0).
    ///
    /// # Errors
    /// [`CallError`]; [`may_have_arrived`](CallError::may_have_arrived) tells whether the broker
    /// may have done the work.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the connection usable: the request may or may not have been sent,
    /// a late answer is dropped, and its deadline still holds for the connection.
    pub async fn call<R: Request>(&self, request: &R) -> Result<R::Response, CallError> {
        self.call_with(
            request,
            self.version::<R>()?,
            self.inner.link.request_timeout,
        )
        .await
    }

    /// As [`call`](Self::call), in a given version and with a given time for the answer.
    ///
    /// # Errors
    /// As [`call`](Self::call); the version is not checked against the broker's range.
    ///
    /// # Cancel safety
    /// As [`call`](Self::call).
    pub async fn call_with<R: Request>(
        &self,
        request: &R,
        version: i16,
        timeout: Duration,
    ) -> Result<R::Response, CallError> {
        let frame = self.inner.link.exchange(request, version, timeout).await?;
        decode_response::<R>(&frame, version).map_err(|source| {
            self.inner.link.shared.close(CloseReason::Decode {
                api: R::NAME,
                source: source.clone(),
            });
            CallError::PeerMisbehaved {
                address: self.address().clone(),
                api: R::NAME,
                version,
                source,
            }
        })
    }

    /// Closes the connection; calls that wait fail with [`CloseReason::ByUs`].
    pub fn close(&self) {
        self.inner.link.shared.close(CloseReason::ByUs);
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.link.shared.close_reason().is_some()
    }

    /// Waits for its end and tells why.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn closed(&self) -> CloseReason {
        self.inner.link.shared.closed().await
    }
}

/// Gets a token before the broker is kept waiting for it.
#[cfg(feature = "tls")]
async fn prepare(address: &Address, options: &ConnectionOptions) -> Result<(), ConnectError> {
    let Some(credentials) = &options.sasl else {
        return Ok(());
    };
    timeout(TOKEN_WAIT_MAX, credentials.prepare())
        .await
        .map_err(|_| ConnectError::Timeout {
            address: address.clone(),
            phase: ConnectPhase::Token,
            after: TOKEN_WAIT_MAX,
        })?
        .map_err(|source| ConnectError::Authentication {
            address: address.clone(),
            source: Box::new(source),
        })
}

/// Authenticates again before each end of the session, on the same connection (KIP-368), until one
/// of both ends.
#[cfg(feature = "tls")]
async fn keep_authenticated(
    connection: Weak<Inner>,
    shared: Arc<Shared>,
    credentials: Credentials,
    mut lifetime: Duration,
) {
    loop {
        tokio::select! {
            _ = shared.closed() => return,
            () = sleep(sasl::reauthenticate_after(lifetime)) => {}
        }
        // Before all other requests are kept waiting. An error comes again below.
        drop(timeout(TOKEN_WAIT_MAX, credentials.prepare()).await);
        // Without a handle there is nobody to stay authenticated for.
        let Some(inner) = connection.upgrade() else {
            return;
        };
        let Some(alone) = inner.link.alone().await else {
            return;
        };
        let authenticated = sasl::authenticate(&inner.link, &inner.versions, &credentials).await;
        drop(alone);
        match authenticated {
            Ok(Some(next)) => lifetime = next,
            Ok(None) => return,
            Err(error) => {
                shared.close(CloseReason::Authentication(Box::new(error)));
                return;
            }
        }
        tracing::debug!(address = %inner.link.address, "Authenticated again.");
    }
}

/// A connection before its versions are known.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) address: Address,
    client_id: Option<String>,
    request_timeout: Duration,
    in_flight_max: usize,
    /// One permit per request that may wait for an answer.
    places: Arc<Semaphore>,
    frames: mpsc::Sender<Bytes>,
    shared: Arc<Shared>,
}

impl Link {
    /// Sends a request and waits for the frame that answers it.
    pub(super) async fn exchange<R: Request>(
        &self,
        request: &R,
        version: i16,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        let (address, api) = (|| self.address.clone(), R::NAME);
        let not_connected = |reason| self.not_connected(api, reason);
        if let Some(reason) = self.shared.close_reason() {
            return Err(not_connected(reason));
        }
        let deadline = Instant::now() + timeout;
        let place = match timeout_at(deadline, Arc::clone(&self.places).acquire_owned()).await {
            Ok(Ok(place)) => place,
            // The semaphore is never closed.
            Ok(Err(_)) => return Err(not_connected(CloseReason::ByUs)),
            Err(_) => {
                return Err(CallError::Busy {
                    address: address(),
                    api,
                    in_flight_max: self.in_flight_max,
                    after: timeout,
                });
            }
        };
        self.submit(
            request,
            version,
            Submission {
                api,
                timeout,
                deadline,
                place: Some(place),
            },
        )
        .await
    }

    /// As [`exchange`](Self::exchange), for requests of SASL: beside the places of all others, which
    /// [`alone`](Self::alone) may hold. One at a time.
    #[cfg(feature = "tls")]
    pub(super) async fn exchange_apart<R: Request>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<Bytes, CallError> {
        let timeout = self.request_timeout;
        let deadline = Instant::now() + timeout;
        self.submit(
            request,
            version,
            Submission {
                api: R::NAME,
                timeout,
                deadline,
                place: None,
            },
        )
        .await
    }

    /// Waits until no request is on its way, and keeps others waiting while the value lives. `None`
    /// when the connection ends before.
    #[cfg(feature = "tls")]
    async fn alone(&self) -> Option<OwnedSemaphorePermit> {
        let all = u32::try_from(self.in_flight_max).unwrap_or(u32::MAX);
        tokio::select! {
            _ = self.shared.closed() => None,
            places = Arc::clone(&self.places).acquire_many_owned(all) => places.ok(),
        }
    }

    fn not_connected(&self, api: &'static str, reason: CloseReason) -> CallError {
        CallError::NotConnected {
            address: self.address.clone(),
            api,
            reason,
        }
    }

    async fn submit<R: Request>(
        &self,
        request: &R,
        version: i16,
        submission: Submission,
    ) -> Result<Bytes, CallError> {
        let address = || self.address.clone();
        let Submission { api, timeout, .. } = submission;
        let answer = self
            .shared
            .submit(submission, &self.frames, |correlation_id| {
                encode_request(request, version, correlation_id, self.client_id.as_deref())
            })
            .map_err(|reason| self.not_connected(api, reason))?;
        match answer.await {
            Ok(Outcome::Answer(frame)) => Ok(frame),
            Ok(Outcome::Timeout) => Err(CallError::Timeout {
                address: address(),
                api,
                after: timeout,
            }),
            Ok(Outcome::NotSent(reason)) => Err(self.not_connected(api, reason)),
            Ok(Outcome::Lost(reason)) => Err(CallError::ConnectionLost {
                address: address(),
                api,
                reason,
            }),
            Err(_) => Err(CallError::ConnectionLost {
                address: address(),
                api,
                reason: CloseReason::ByUs,
            }),
        }
    }
}
