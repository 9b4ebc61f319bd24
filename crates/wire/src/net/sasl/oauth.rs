//! OAUTHBEARER (RFC 7628): where tokens come from, and how one is sent.

use std::fmt::{self, Debug};
use std::fs::File;
use std::future::Future;
use std::io::Read;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::error::SaslError;
use crate::limits::TOKEN_FILE_BYTES_MAX;
use crate::net::base64;
use crate::net::secret::Secret;

/// The future of [`TokenSource::token`].
pub type TokenFuture<'a> = Pin<Box<dyn Future<Output = Result<Secret, SaslError>> + Send + 'a>>;

/// Gives out bearer tokens. Asked at each authentication, so also before the broker's session ends:
/// a source that knows when its tokens expire gives a fresh one then.
pub trait TokenSource: Debug + Send + Sync {
    /// A token that is valid now.
    ///
    /// # Errors
    /// [`SaslError::Token`] when there is none; the authentication fails with it.
    fn token(&self) -> TokenFuture<'_>;
}

/// The same token for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticToken(pub Secret);

impl TokenSource for StaticToken {
    fn token(&self) -> TokenFuture<'_> {
        let token = self.0.clone();
        Box::pin(async move { Ok(token) })
    }
}

/// A file with a token that somebody else renews. It is read at each authentication; blanks around
/// the token are dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenFile(pub PathBuf);

impl TokenFile {
    fn read(&self) -> Result<Secret, SaslError> {
        let failed = |text: &str| SaslError::Token {
            text: format!("{}: {text}", self.0.display()),
        };
        let file = File::open(&self.0).map_err(|error| failed(&error.to_string()))?;
        let mut text = String::new();
        file.take(TOKEN_FILE_BYTES_MAX + 1)
            .read_to_string(&mut text)
            .map_err(|error| failed(&error.to_string()))?;
        if text.len() as u64 > TOKEN_FILE_BYTES_MAX {
            return Err(failed(&format!(
                "larger than {TOKEN_FILE_BYTES_MAX} bytes (limits::TOKEN_FILE_BYTES_MAX)"
            )));
        }
        match text.trim() {
            "" => Err(failed("empty")),
            token => Ok(token.into()),
        }
    }
}

impl TokenSource for TokenFile {
    fn token(&self) -> TokenFuture<'_> {
        // A small local file, read where it is asked for.
        let token = self.read();
        Box::pin(async move { token })
    }
}

/// Makes tokens without a signature, which only brokers for tests accept: Java's
/// `OAuthBearerUnsecuredLoginCallbackHandler`.
#[derive(Clone, PartialEq)]
pub struct UnsecuredToken {
    lifetime: Duration,
    /// Name and JSON of each claim beside `iat` and `exp`.
    claims: Vec<(String, String)>,
}

impl UnsecuredToken {
    /// Tokens of a subject (claim `sub`), valid for one hour each.
    #[must_use]
    pub fn new(subject: &str) -> Self {
        Self {
            lifetime: Duration::from_secs(3600),
            claims: Vec::new(),
        }
        .with_text("sub", subject)
    }

    /// Valid for so long; whole seconds count.
    #[must_use]
    pub const fn with_lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// With a claim that is a text.
    #[must_use]
    pub fn with_text(self, name: &str, value: &str) -> Self {
        self.with_claim(name, json_text(value))
    }

    /// With a claim that is a list of texts.
    #[must_use]
    pub fn with_list<'a>(self, name: &str, values: impl IntoIterator<Item = &'a str>) -> Self {
        let values: Vec<_> = values.into_iter().map(json_text).collect();
        self.with_claim(name, format!("[{}]", values.join(",")))
    }

    /// With a claim that is a number; one that is not finite is left out.
    #[must_use]
    pub fn with_number(self, name: &str, value: f64) -> Self {
        if value.is_finite() {
            self.with_claim(name, value.to_string())
        } else {
            self
        }
    }

    fn with_claim(mut self, name: &str, json: String) -> Self {
        self.claims.retain(|(known, _)| known != name);
        self.claims.push((name.to_owned(), json));
        self
    }

    fn at(&self, now: SystemTime) -> Secret {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let expires = now.saturating_add(self.lifetime.as_secs());
        let mut claims = format!("{{\"iat\":{now},\"exp\":{expires}");
        for (name, json) in &self.claims {
            claims.extend([",", &json_text(name), ":", json]);
        }
        claims.push('}');
        let (header, claims) = (
            base64::encode_url(br#"{"alg":"none"}"#),
            base64::encode_url(claims.as_bytes()),
        );
        format!("{header}.{claims}.").into()
    }
}

impl Debug for UnsecuredToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnsecuredToken")
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}

impl TokenSource for UnsecuredToken {
    fn token(&self) -> TokenFuture<'_> {
        let token = self.at(SystemTime::now());
        Box::pin(async move { Ok(token) })
    }
}

/// The client's first message.
///
/// # Errors
/// [`SaslError::Token`] for a token, and [`SaslError::Config`] for an extension, that would break
/// the message's frame.
pub(super) fn first_message(
    token: &Secret,
    extensions: &[(String, String)],
) -> Result<String, SaslError> {
    if token.expose().is_empty() || !token.expose().bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(SaslError::Token {
            text: "it is empty or has characters that no token has".to_owned(),
        });
    }
    let mut message = format!("n,,\u{1}auth=Bearer {}\u{1}", token.expose());
    for (name, value) in extensions {
        if !is_extension(name, value) {
            return Err(SaslError::Config {
                text: format!(
                    "sasl.jaas.config: `{name}` is not a SASL extension: its name takes letters, its value printable characters"
                ),
            });
        }
        message.extend([name, "=", value, "\u{1}"]);
    }
    message.push('\u{1}');
    Ok(message)
}

/// RFC 7628, section 3.1; `auth` is taken.
fn is_extension(name: &str, value: &str) -> bool {
    !name.is_empty()
        && name != "auth"
        && name.bytes().all(|byte| byte.is_ascii_alphabetic())
        && value
            .bytes()
            .all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~'))
}

fn json_text(text: &str) -> String {
    let mut out = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => out.push(character),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsecured_tokens_are_javas() {
        let token = UnsecuredToken::new("alice")
            .with_lifetime(Duration::from_secs(60))
            .with_list("scope", ["a", "b"])
            .with_number("n", 1.5)
            .with_text("t", "\"");
        let token = token.at(UNIX_EPOCH + Duration::from_secs(1000));
        let claims = r#"{"iat":1000,"exp":1060,"sub":"alice","scope":["a","b"],"n":1.5,"t":"\""}"#;
        let parts: Vec<_> = token.expose().split('.').collect();
        assert_eq!(
            parts,
            [
                base64::encode_url(br#"{"alg":"none"}"#).as_str(),
                &base64::encode_url(claims.as_bytes()),
                ""
            ]
        );
    }

    #[test]
    fn message_is_that_of_rfc_7628() {
        let extensions = [("traceId".to_owned(), "12 3".to_owned())];
        assert_eq!(
            first_message(
                &"vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==".into(),
                &extensions
            )
            .unwrap(),
            "n,,\u{1}auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\u{1}traceId=12 3\u{1}\u{1}"
        );
    }

    #[test]
    fn what_would_break_the_message_is_refused() {
        for token in ["", "a b", "a\u{1}b"] {
            assert!(first_message(&token.into(), &[]).is_err(), "{token:?}");
        }
        for (name, value) in [("auth", "x"), ("", "x"), ("a1", "x"), ("a", "\u{1}")] {
            let extensions = [(name.to_owned(), value.to_owned())];
            assert!(first_message(&"t".into(), &extensions).is_err(), "{name}");
        }
    }
}
