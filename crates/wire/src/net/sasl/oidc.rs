//! Tokens from an OIDC provider, by the client credentials grant (RFC 6749, section 4.4; KIP-768).

use std::fmt::{self, Debug};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode, Uri};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use super::error::SaslError;
use super::oauth::{TokenFuture, TokenSource};
use super::oidc_options::OidcOptions;
use super::{censored, random_fraction};
use crate::duration::show;
use crate::limits::TOKEN_ANSWER_BYTES_MAX;
use crate::net::address::Address;
use crate::net::base64;
use crate::net::connector::Connector;
use crate::net::http;
use crate::net::secret::Secret;
use crate::net::tls::{TlsConnector, TlsError};

/// Asks a provider's token endpoint for tokens, with the id and the secret of a client.
///
/// A token is kept, and a fresh one is asked for at the first authentication in its last part
/// (`sasl.login.refresh.*`). Where that fails, the old one stays in use until it expires. One
/// request is on its way at a time, and it goes on when those who wait for it give up.
#[derive(Debug)]
pub struct ClientCredentials {
    shared: Arc<Shared>,
}

struct Shared {
    options: OidcOptions,
    /// The endpoint as errors show it: without what follows the path.
    name: String,
    uri: Uri,
    address: Address,
    connector: Arc<dyn Connector>,
    /// Held by the one who asks.
    asking: Semaphore,
    kept: Mutex<Option<Token>>,
}

#[derive(Clone)]
struct Token {
    text: Secret,
    refresh_at: Instant,
    expires_at: Instant,
}

impl ClientCredentials {
    /// Of complete options. Streams are opened by `connector`, with TLS over them for `https`.
    ///
    /// # Errors
    /// [`SaslError::Config`] when the endpoint, the id or the secret is missing, or the endpoint is
    /// no URL of HTTP.
    pub fn new(options: OidcOptions, connector: Arc<dyn Connector>) -> Result<Self, SaslError> {
        let config = |text: String| SaslError::Config { text };
        let missing = |what: &str| config(format!("OAUTHBEARER needs {what}"));
        let url = options.token_endpoint.as_deref();
        let url = url.ok_or_else(|| missing("sasl.oauthbearer.token.endpoint.url"))?;
        if options.client_id.is_empty() || options.client_secret == Secret::default() {
            return Err(missing(
                "sasl.oauthbearer.client.credentials.client.id and .client.secret, or the options clientId and clientSecret in sasl.jaas.config",
            ));
        }
        let bad = |what: &str| config(format!("sasl.oauthbearer.token.endpoint.url {what}"));
        let uri: Uri = url.parse().map_err(|_| bad("is not a URL"))?;
        let host = uri.host().unwrap_or_default();
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        if host.is_empty()
            || uri
                .authority()
                .is_some_and(|all| all.as_str().contains('@'))
        {
            return Err(bad("must have a host and no user"));
        }
        let (port, connector): (_, Arc<dyn Connector>) = match uri.scheme_str() {
            Some("https") => (
                443,
                Arc::new(TlsConnector::new(connector, options.tls.clone())),
            ),
            Some("http") => {
                tracing::warn!(
                    "The client's secret goes to the token endpoint without TLS (sasl.oauthbearer.token.endpoint.url)."
                );
                (80, connector)
            }
            _ => return Err(bad("must start with https: or http:, or be a file: URL")),
        };
        let address = Address::new(host, uri.port_u16().unwrap_or(port));
        let name = format!("{address}{}", uri.path());
        Ok(Self {
            shared: Arc::new(Shared {
                options,
                name,
                uri,
                address,
                connector,
                asking: Semaphore::new(1),
                kept: Mutex::default(),
            }),
        })
    }
}

impl TokenSource for ClientCredentials {
    fn token(&self) -> TokenFuture<'_> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            if let Some(token) = shared.fresh() {
                return Ok(token);
            }
            // On its own, so that it goes on without this caller.
            let asked = tokio::spawn(async move { shared.current().await }).await;
            asked.unwrap_or_else(|_| {
                Err(SaslError::Token {
                    text: "the runtime is ending".to_owned(),
                })
            })
        })
    }
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Option<Token>> {
        // Nothing panics under the lock.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kept token, unless it is time for another.
    fn fresh(&self) -> Option<Secret> {
        let kept = self.kept();
        let token = kept.as_ref();
        let token = token.filter(|token| Instant::now() < token.refresh_at);
        token.map(|token| token.text.clone())
    }

    async fn current(&self) -> Result<Secret, SaslError> {
        // The semaphore is never closed.
        let _asking = self.asking.acquire().await;
        if let Some(token) = self.fresh() {
            return Ok(token);
        }
        match self.ask().await {
            Ok(token) => {
                let text = token.text.clone();
                *self.kept() = Some(token);
                Ok(text)
            }
            Err(error) => {
                let mut kept = self.kept();
                let now = Instant::now();
                let Some(token) = kept.as_mut().filter(|token| now < token.expires_at) else {
                    return Err(error);
                };
                tracing::warn!(%error, "The token cannot be renewed yet; the old one stays in use.");
                token.refresh_at = now + self.options.retry_backoff_max;
                Ok(token.text.clone())
            }
        }
    }

    /// Asks until there is an answer, for `sasl.login.retry.backoff.max.ms` of failures that may pass.
    async fn ask(&self) -> Result<Token, SaslError> {
        let give_up_at = Instant::now() + self.options.retry_backoff_max;
        let mut pause = self.options.retry_backoff;
        loop {
            match self.ask_once().await {
                Err(error) if error.is_retriable() => {
                    let spread = pause.mul_f64(0.8 + 0.4 * random_fraction());
                    if Instant::now() + spread >= give_up_at {
                        return Err(error);
                    }
                    tracing::debug!(%error, "Asking for a token again.");
                    sleep(spread.max(Duration::from_millis(1))).await;
                    pause = pause.saturating_mul(2).min(self.options.retry_backoff_max);
                }
                outcome => return outcome,
            }
        }
    }

    async fn ask_once(&self) -> Result<Token, SaslError> {
        let request = self.request()?;
        let late =
            |what: &str, after: Duration| self.failed(&format!("{what} within {}", show(after)));
        let limit = self.options.connect_timeout;
        let stream = timeout(limit, self.connector.connect(&self.address))
            .await
            .map_err(|_| late("no connection", limit))?
            .map_err(|error| self.not_connected(&error))?;
        let limit = self.options.read_timeout;
        let (status, body) = timeout(
            limit,
            http::exchange(stream, request, TOKEN_ANSWER_BYTES_MAX),
        )
        .await
        .map_err(|_| late("no answer", limit))?
        .map_err(|error| self.not_exchanged(&error))?;
        self.token(status, &body)
    }

    fn request(&self) -> Result<Request<Full<Bytes>>, SaslError> {
        let options = &self.options;
        let part = |text: &str| {
            if options.urlencode_header {
                form_encoded(text)
            } else {
                text.to_owned()
            }
        };
        let secret = options.client_secret.expose();
        let user = format!("{}:{}", part(&options.client_id), part(secret));
        let mut body = "grant_type=client_credentials".to_owned();
        if let Some(scope) = &options.scope {
            body.extend(["&scope=", &form_encoded(scope)]);
        }
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let host = self.uri.authority().map_or("", |host| host.as_str());
        Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(HOST, host)
            .header(ACCEPT, "application/json")
            .header(CACHE_CONTROL, "no-cache")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(
                AUTHORIZATION,
                format!("Basic {}", base64::encode(user.as_bytes())),
            )
            .body(Full::from(body))
            .map_err(|_| self.failed("not a request that can be sent"))
    }

    /// The token in an answer.
    fn token(&self, status: StatusCode, body: &Bytes) -> Result<Token, SaslError> {
        let answer: Option<Value> = serde_json::from_slice(body).ok();
        let text = |key: &str| answer.as_ref()?.get(key)?.as_str();
        if !status.is_success() {
            // RFC 6749, section 5.2.
            let said = [text("error"), text("error_description")];
            let said: Vec<_> = said.into_iter().flatten().collect();
            let said = censored(&said.join(": "), &self.options.client_secret);
            return Err(SaslError::TokenRefused {
                endpoint: self.name.clone(),
                status: status.as_u16(),
                message: Some(said).filter(|said| !said.is_empty()),
            });
        }
        let token = text("access_token").map(str::trim);
        let token = token.filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| self.failed("an answer without access_token"))?;
        let lifetime = self.lifetime(token, answer.as_ref())?;
        let now = Instant::now();
        Ok(Token {
            text: token.into(),
            refresh_at: now + self.options.refresh_after(lifetime, random_fraction()),
            expires_at: now + lifetime,
        })
    }

    /// How long a token is valid: what it says itself, else what the answer says. One that says
    /// nothing is not kept.
    fn lifetime(&self, token: &str, answer: Option<&Value>) -> Result<Duration, SaslError> {
        // Longer than any process runs, and short enough for every clock.
        const TEN_YEARS: f64 = 10.0 * 365.0 * 86_400.0;
        let seconds = match claim(token, "exp") {
            Some(expires) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let left = expires - now.unwrap_or_default().as_secs_f64();
                if left <= 0.0 {
                    return Err(self.failed(&format!(
                        "a token that expired {:.0} s ago; check this machine's clock",
                        -left
                    )));
                }
                left
            }
            None => answer
                .and_then(|answer| answer.get("expires_in")?.as_f64())
                .unwrap_or(0.0),
        };
        Ok(Duration::from_secs_f64(seconds.clamp(0.0, TEN_YEARS)))
    }

    fn failed(&self, what: &str) -> SaslError {
        SaslError::Token {
            text: format!("{}: {what}", self.name),
        }
    }

    fn not_connected(&self, error: &io::Error) -> SaslError {
        match TlsError::of(error) {
            Some(source) => SaslError::TokenTls {
                endpoint: self.name.clone(),
                source: Box::new(source.clone()),
            },
            None => self.failed(&error.to_string()),
        }
    }

    /// The text of the HTTP library says what kind of fault it is, and nothing of the request.
    fn not_exchanged(&self, error: &io::Error) -> SaslError {
        let source = error.get_ref().and_then(|error| error.source());
        let text = source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
        self.failed(&censored(&text, &self.options.client_secret))
    }
}

impl Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("options", &self.options)
            .field("connector", &self.connector)
            .finish_non_exhaustive()
    }
}

/// A number among a JWT's claims (RFC 7519); `None` also where the token is no JWT.
fn claim(token: &str, name: &str) -> Option<f64> {
    let claims = base64::decode_url(token.split('.').nth(1)?)?;
    serde_json::from_slice::<Value>(&claims)
        .ok()?
        .get(name)?
        .as_f64()
}

/// `application/x-www-form-urlencoded`.
fn form_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => {
                out.push(char::from(byte));
            }
            b' ' => out.push('+'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_encoding_is_javas() {
        assert_eq!(form_encoded("a-Z_0.9* ~/ü"), "a-Z_0.9*+%7E%2F%C3%BC");
    }

    #[test]
    fn expiry_is_read_from_tokens_that_are_jwt_only() {
        let token = |claims: &str| format!("e30.{}.sig", base64::encode_url(claims.as_bytes()));
        assert_eq!(claim(&token(r#"{"exp":12.5}"#), "exp"), Some(12.5));
        assert_eq!(claim(&token(r#"{"exp":"12"}"#), "exp"), None);
        for opaque in ["", "opaque", "a.b.c", "a.%%.c"] {
            assert_eq!(claim(opaque, "exp"), None, "{opaque}");
        }
    }
}
