//! Sends requests: a pool of connections, authentication, redirects, and answers that are read within bounds.

use std::error::Error;
use std::fmt;
use std::io;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, PROXY_AUTHORIZATION};
use hyper::{Request, StatusCode, Uri};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;
use tower_service::Service as _;

use super::auth::{Auth, basic};
use super::config::{AuthConfig, Origin, TargetConfig, Version};
use super::outcome::{Answer, NoAnswer};
use super::request::Call;
use super::transport::Transport;

/// The target, as requests get there.
pub(super) struct Service {
    client: legacy::Client<Transport, Full<Bytes>>,
    config: TargetConfig,
    auth: Auth,
    /// For requests that a proxy passes on as such.
    proxy_credentials: Option<HeaderValue>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("auth", &self.auth)
            .finish_non_exhaustive()
    }
}

impl Service {
    /// Connects to nobody yet. `Err`: what can't be used of the settings.
    pub(super) fn new(config: &TargetConfig, connections_idle_max: usize) -> Result<Self, String> {
        let client = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(connections_idle_max)
            .http2_only(config.version == Version::Http2)
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_WITHIN)
            .http2_adaptive_window(true)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .build(Transport::new(config));
        // A tunnel has had them already, and behind it is the target.
        let proxy = config.proxy.as_ref();
        let proxy = proxy.filter(|_| Transport::passes_on(config));
        let credentials = proxy.and_then(|proxy| proxy.credentials.as_ref());
        Ok(Self {
            client,
            auth: Auth::new(&config.auth)?,
            proxy_credentials: credentials.map(|(user, password)| basic(user, password)),
            config: config.clone(),
        })
    }

    /// Opens a connection and closes it again: through the proxy, with TLS.
    pub(super) async fn reach(&self, uri: Uri) -> io::Result<()> {
        let link = Transport::new(&self.config).call(uri).await?;
        drop(link);
        Ok(())
    }

    /// Gets a token, where tokens are used; whether they are.
    pub(super) async fn authorize(&self) -> Result<bool, String> {
        let Auth::Token(tokens) = &self.auth else {
            return Ok(false);
        };
        let ask = |request| async move { self.send(&request, None).await };
        let asked = timeout(self.config.request_timeout, tokens.header(None, ask)).await;
        let no_answer = |_| "no token: no answer in time".to_owned();
        asked.map_err(no_answer)??;
        Ok(true)
    }

    /// Sends a request and reads its answer.
    pub(super) async fn exchange(&self, call: &Call) -> Result<Answer, NoAnswer> {
        let request = call.request().map_err(NoAnswer::NotSent)?;
        let limit = self.config.request_timeout;
        let exchanged = timeout(limit, self.follow(request)).await;
        exchanged.unwrap_or_else(|_| {
            let why = format!("no answer within {} ms", limit.as_millis());
            Err(NoAnswer::Unsure(why))
        })
    }

    /// Follows redirects, as far as that is safe.
    async fn follow(&self, mut request: Request<Bytes>) -> Result<Answer, NoAnswer> {
        for _ in 0..self.config.redirects_max {
            let answer = self.authenticated(&request).await?;
            match self.redirected(&request, &answer) {
                Some(uri) => *request.uri_mut() = uri,
                None => return Ok(answer),
            }
        }
        self.authenticated(&request).await
    }

    /// Where an answer sends the request, if it may go there.
    fn redirected(&self, request: &Request<Bytes>, answer: &Answer) -> Option<Uri> {
        if !matches!(answer.status.as_u16(), 307 | 308) {
            return None;
        }
        let from = Origin::of(request.uri())?;
        let location = answer.headers.get(LOCATION)?.to_str().ok()?;
        let absolute = if location.starts_with('/') && !location.starts_with("//") {
            format!("{from}{location}")
        } else {
            location.to_owned()
        };
        let uri: Uri = absolute.parse().ok()?;
        let to = Origin::of(&uri)?;
        let has_credentials = self.auth.is_some()
            || self.config.tls.keystore_location.is_some()
            || self.config.tls.keystore_key.is_some()
            || request.headers().values().any(HeaderValue::is_sensitive);
        let is_safe = from == to || !has_credentials && (to.is_https || !from.is_https);
        is_safe.then_some(uri)
    }

    /// With a token, where one is needed; with another one, where that is refused.
    async fn authenticated(&self, request: &Request<Bytes>) -> Result<Answer, NoAnswer> {
        let tokens = match &self.auth {
            Auth::None => return self.send(request, None).await,
            Auth::Fixed(value) => return self.send(request, Some(value)).await,
            Auth::Token(tokens) => tokens,
        };
        let mut refused = None;
        loop {
            let ask = |request| async move { self.send(&request, None).await };
            let header = tokens.header(refused.as_ref(), ask).await;
            let header = header.map_err(NoAnswer::NotSent)?;
            let answer = self.send(request, Some(&header)).await?;
            if answer.status != StatusCode::UNAUTHORIZED || refused.is_some() {
                return Ok(answer);
            }
            refused = Some(header);
        }
    }

    async fn send(
        &self,
        request: &Request<Bytes>,
        authorization: Option<&HeaderValue>,
    ) -> Result<Answer, NoAnswer> {
        let mut sent = Request::new(Full::new(request.body().clone()));
        *sent.method_mut() = request.method().clone();
        *sent.uri_mut() = request.uri().clone();
        *sent.headers_mut() = request.headers().clone();
        if let Some(value) = authorization {
            sent.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        let secrets = self.secrets(sent.headers(), sent.uri());
        let is_plain = request.uri().scheme_str() == Some("http");
        if let Some(value) = self.proxy_credentials.as_ref().filter(|_| is_plain) {
            sent.headers_mut()
                .insert(PROXY_AUTHORIZATION, value.clone());
        }
        let response = self.client.request(sent).await.map_err(|error| {
            let why = chain(&error);
            if error.is_connect() {
                NoAnswer::NotSent(why)
            } else {
                NoAnswer::Unsure(why)
            }
        })?;
        let (head, body) = response.into_parts();
        let (body, is_cut) = self.body(body).await?;
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
            is_cut,
            secrets,
        })
    }

    /// As much of a body as is read; whether there was more.
    async fn body(&self, mut body: Incoming) -> Result<(Bytes, bool), NoAnswer> {
        let mut read = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                NoAnswer::Unsure(format!("the answer broke off: {}", chain(&error)))
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let room = self.config.response_bytes_max.saturating_sub(read.len());
            if data.len() > room {
                read.extend_from_slice(data.get(..room).unwrap_or_default());
                return Ok((read.freeze(), true));
            }
            read.extend_from_slice(&data);
        }
        Ok((read.freeze(), false))
    }

    /// What an answer to a request with these headers must not be shown with.
    fn secrets(&self, headers: &HeaderMap, uri: &Uri) -> Vec<String> {
        let values = headers.values().filter(|value| value.is_sensitive());
        let texts = values.filter_map(|value| {
            let text = value.to_str().ok()?;
            // Without `Bearer`, which is no secret, but might stand by itself.
            Some(text.rsplit_once(' ').map_or(text, |(_, token)| token))
        });
        let password = match &self.config.auth {
            AuthConfig::Basic { password, .. } => Some(password.expose()),
            _ => None,
        };
        let texts = texts.chain(password).chain(url_secrets(uri));
        let secrets = texts.filter(|secret| !secret.is_empty());
        let mut secrets: Vec<_> = secrets.map(str::to_owned).collect();
        // One that is a part of another would leave the rest of that.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets
    }
}

/// What may be secret of a URL, as a whole and in parts: what looks like a token may be in its path, too.
fn url_secrets(uri: &Uri) -> impl Iterator<Item = &str> {
    let whole = uri.path_and_query().map(|path| path.as_str());
    let query = uri.query().unwrap_or_default();
    let values = query.split('&').map(|part| {
        let (_, value) = part.split_once('=').unwrap_or(("", part));
        value
    });
    let values = values.filter(|value| value.len() >= QUERY_SECRET_MIN);
    let segments = uri.path().split('/');
    let segments = segments.filter(|segment| segment.len() >= PATH_SECRET_MIN);
    let whole = whole.filter(|path| path.len() >= QUERY_SECRET_MIN);
    whole.into_iter().chain(values).chain(segments)
}

/// An error with its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// Bytes of what is hidden of a query, at least: a page's number is no secret.
const QUERY_SECRET_MIN: usize = 4;
/// Bytes of a part of a path that is hidden, at least: a longer one may be a token.
const PATH_SECRET_MIN: usize = 16;
/// A connection that nobody uses is closed after this.
const IDLE_MAX: std::time::Duration = std::time::Duration::from_secs(30);
/// How often a connection of HTTP/2 with requests on it is asked whether it lives.
const PING_EVERY: std::time::Duration = std::time::Duration::from_secs(10);
/// How long it has for its answer.
const PING_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);
/// Most bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
