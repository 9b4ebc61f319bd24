//! How requests authenticate: a fixed header, or a token that is fetched and renewed.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Uri};
use serde_json::Value;
use sharegroup_wire::net::Secret;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::config::{AuthConfig, TokenConfig};
use super::outcome::{Answer, NoAnswer};
use super::template::percent_encode;
use crate::json;

/// The header `Authorization` of requests.
pub(super) enum Auth {
    None,
    Fixed(HeaderValue),
    Token(Box<Tokens>),
}

impl Auth {
    pub(super) fn new(config: &AuthConfig) -> Result<Self, String> {
        Ok(match config {
            AuthConfig::None => Self::None,
            AuthConfig::Basic { user, password } => Self::Fixed(basic(user, password)),
            AuthConfig::Bearer(token) => Self::Fixed(bearer(token.expose())?),
            AuthConfig::Static(value) => Self::Fixed(sensitive(value.expose())?),
            AuthConfig::OAuth2(config) => Self::Token(Box::new(Tokens {
                config: config.clone(),
                kept: Mutex::default(),
            })),
        })
    }

    pub(super) const fn is_some(&self) -> bool {
        !matches!(self, Self::None)
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Fixed(_) => "Fixed",
            Self::Token(_) => "Token",
        })
    }
}

/// `Basic`, of a user and a password (RFC 7617).
pub(super) fn basic(user: &str, password: &Secret) -> HeaderValue {
    let mut text = b"Basic ".to_vec();
    json::base64(
        format!("{user}:{}", password.expose()).as_bytes(),
        &mut text,
    );
    // Base64 is always a header's value.
    let mut value = HeaderValue::from_maybe_shared(Bytes::from(text))
        .unwrap_or_else(|_| HeaderValue::from_static("Basic"));
    value.set_sensitive(true);
    value
}

fn bearer(token: &str) -> Result<HeaderValue, String> {
    sensitive(&format!("Bearer {token}"))
}

fn sensitive(text: &str) -> Result<HeaderValue, String> {
    let value = HeaderValue::from_str(text);
    let mut value = value.map_err(|_| "a token can't be put into a header".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// Tokens of client credentials (RFC 6749, section 4.4). One is fetched at a time, while the others wait for it.
pub(super) struct Tokens {
    config: TokenConfig,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    token: Option<Token>,
    /// When fetching failed last, and why.
    failed: Option<(Instant, String)>,
}

struct Token {
    header: HeaderValue,
    /// When the next one is to be fetched; `None` = when the target refuses this one.
    refresh_at: Option<Instant>,
    expires_at: Option<Instant>,
}

impl Tokens {
    /// The header of the token that is kept, or of a new one got by `ask`. `refused` is one that the target has
    /// refused.
    ///
    /// # Cancel safety
    /// The next caller asks again.
    pub(super) async fn header<F>(
        &self,
        refused: Option<&HeaderValue>,
        ask: impl FnOnce(Request<Bytes>) -> F,
    ) -> Result<HeaderValue, String>
    where
        F: Future<Output = Result<Answer, NoAnswer>>,
    {
        let mut kept = self.kept.lock().await;
        let now = Instant::now();
        let usable = kept.token.as_ref();
        let usable = usable.filter(|token| Some(&token.header) != refused);
        let is_fresh = |token: &&Token| token.refresh_at.is_none_or(|at| now < at);
        if let Some(token) = usable.filter(is_fresh) {
            return Ok(token.header.clone());
        }
        let old = usable.filter(|token| token.expires_at.is_none_or(|at| now < at));
        let old = old.map(|token| token.header.clone());
        if let Some((at, why)) = &kept.failed
            && now.duration_since(*at) < ASK_AGAIN
        {
            return old.ok_or_else(|| why.clone());
        }
        match self.fetch(ask).await {
            Ok(token) => {
                let header = token.header.clone();
                *kept = Kept {
                    token: Some(token),
                    failed: None,
                };
                Ok(header)
            }
            Err(why) => {
                kept.failed = Some((Instant::now(), why.clone()));
                if old.is_some() {
                    tracing::warn!(
                        why,
                        "The token can't be renewed yet; the old one stays in use."
                    );
                }
                old.ok_or(why)
            }
        }
    }

    async fn fetch<F>(&self, ask: impl FnOnce(Request<Bytes>) -> F) -> Result<Token, String>
    where
        F: Future<Output = Result<Answer, NoAnswer>>,
    {
        let request = self.request()?;
        let answer = ask(request).await;
        let answer = answer.map_err(|error| format!("no token: {error}"))?;
        let refused = |why: &str| {
            let status = answer.status;
            format!("no token: oauth2.token.url answered {status}{why}")
        };
        // Never the body: it may have the secret, or a token.
        let body: Option<Value> = serde_json::from_slice(&answer.body).ok();
        if !answer.status.is_success() {
            let error = body.as_ref().and_then(|body| body.get("error")?.as_str());
            let is_code = |text: &&str| text.len() < 64 && text.bytes().all(is_code_byte);
            let error = error.filter(is_code).map(|code| format!(" ({code})"));
            return Err(refused(&error.unwrap_or_default()));
        }
        let body = body.ok_or_else(|| refused(", but not in JSON"))?;
        let token = body.get(&self.config.property).and_then(Value::as_str);
        let token = token.ok_or_else(|| refused(" without a token (oauth2.token.property)"))?;
        let life = body.get("expires_in").and_then(|life| {
            let text = life.as_str().and_then(|text| text.parse().ok());
            life.as_u64().or(text)
        });
        let life = life.map(|seconds| Duration::from_secs(seconds.min(LIFE_SECONDS_MAX)));
        let now = Instant::now();
        Ok(Token {
            header: bearer(token)?,
            refresh_at: life.map(|life| now + life.mul_f64(REFRESH_AFTER)),
            expires_at: life.map(|life| now + life),
        })
    }

    fn request(&self) -> Result<Request<Bytes>, String> {
        let config = &self.config;
        let uri: Uri = config
            .url
            .parse()
            .map_err(|_| "oauth2.token.url is no URL")?;
        let mut form = b"grant_type=client_credentials".to_vec();
        let mut add = |name: &str, value: &str| {
            form.extend_from_slice(format!("&{name}=").as_bytes());
            percent_encode(value.as_bytes(), &mut form);
        };
        if let Some(scope) = &config.scope {
            add("scope", scope);
        }
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(uri)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, "application/json");
        if config.in_header {
            request = request.header(
                AUTHORIZATION,
                basic(&config.client_id, &config.client_secret),
            );
        } else {
            add("client_id", &config.client_id);
            add("client_secret", config.client_secret.expose());
        }
        let request = request.body(Bytes::from(form));
        request.map_err(|_| "the request for a token can't be built".to_owned())
    }
}

const fn is_code_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Part of a token's life after which the next one is fetched.
const REFRESH_AFTER: f64 = 0.8;
/// A provider that says more is not believed.
const LIFE_SECONDS_MAX: u64 = 365 * 24 * 60 * 60;
/// Pause after a failure: many requests wait for the same token.
const ASK_AGAIN: Duration = Duration::from_secs(1);
