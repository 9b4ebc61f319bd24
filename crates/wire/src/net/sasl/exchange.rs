//! SASL over a connection: SaslHandshake, then the mechanism's messages in SaslAuthenticate.

use std::time::Duration;

use bytes::Bytes;

use super::credentials::Credentials;
use super::error::SaslError;
use super::oauth;
use super::scram::{self, Expected, Scram};
use super::{censored, enabled_mechanisms, random_fraction};
use crate::error_code::ErrorCode;
use crate::frame::decode_response;
use crate::message::Request;
use crate::message::sasl_authenticate::{
    AuthBytes, SaslAuthenticateRequest, SaslAuthenticateResponse,
};
use crate::message::sasl_handshake::SaslHandshakeRequest;
use crate::net::connection::Link;
use crate::net::error::{CallError, CloseReason};
use crate::net::negotiation::{ApiVersionRange, NegotiatedVersions};
use crate::net::secret::Secret;

/// The version of SaslHandshake after which the mechanism's messages come in requests (KIP-152).
const HANDSHAKE_VERSION: i16 = 1;

/// Kafka's brokers refuse to be asked again sooner.
const SESSION_MIN: Duration = Duration::from_secs(1);

/// Left of a session at least, or half of it, when it is renewed.
const SESSION_MARGIN: Duration = Duration::from_secs(2);

/// Authenticates, and tells how long the session lasts; `None` = for ever.
///
/// Nothing else may be sent meanwhile: a broker takes any other request as a fault.
pub(in crate::net) async fn authenticate(
    link: &Link,
    versions: &NegotiatedVersions,
    credentials: &Credentials,
) -> Result<Option<Duration>, SaslError> {
    let exchange = Exchange {
        link,
        mechanism: credentials.mechanism(),
        version: versions_in_common(versions)?,
    };
    match credentials {
        Credentials::Plain { username, password } => {
            exchange.handshake().await?;
            let message = format!("\0{username}\0{}", password.expose());
            let answer = exchange.send(message, password, None).await?;
            Ok(lifetime(&answer))
        }
        Credentials::Scram {
            algorithm,
            username,
            password,
            is_delegation_token,
        } => {
            // Before anything is sent: it fails on names and passwords that can't be.
            let scram = Scram::new(*algorithm, username, password, *is_delegation_token)?;
            exchange.handshake().await?;
            exchange.scram(&scram, password).await
        }
        Credentials::OauthBearer { source, extensions } => {
            let token = source.token().await?;
            let message = oauth::first_message(&token, extensions)?;
            exchange.handshake().await?;
            exchange.oauth_bearer(message, &token).await
        }
    }
}

/// When to authenticate again in a session that lasts this long: at a random point between 85 and
/// 95 percent, as Kafka's own clients do (KIP-368), so that not all do it at once. But not in the
/// last seconds of a short session: a busy broker cuts the connection for any other request that it
/// reads too late.
pub(in crate::net) fn reauthenticate_after(lifetime: Duration) -> Duration {
    let latest = lifetime.saturating_sub(SESSION_MARGIN).max(lifetime / 2);
    lifetime
        .mul_f64(0.85 + 0.1 * random_fraction())
        .min(latest)
        .max(SESSION_MIN)
}

fn versions_in_common(versions: &NegotiatedVersions) -> Result<i16, SaslError> {
    let unsupported = |api| SaslError::Unsupported { api };
    let handshake = versions.range(SaslHandshakeRequest::KEY);
    if !handshake.is_some_and(|range| (range.min..=range.max).contains(&HANDSHAKE_VERSION)) {
        return Err(unsupported("SaslHandshake"));
    }
    versions
        .range(SaslAuthenticateRequest::KEY)
        .and_then(|range| ApiVersionRange::of::<SaslAuthenticateRequest>().newest_common(range))
        .ok_or_else(|| unsupported("SaslAuthenticate"))
}

fn lifetime(answer: &SaslAuthenticateResponse) -> Option<Duration> {
    let milliseconds = u64::try_from(answer.session_lifetime_ms).ok()?;
    (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
}

/// One authentication.
struct Exchange<'a> {
    link: &'a Link,
    mechanism: &'static str,
    /// Of SaslAuthenticate.
    version: i16,
}

impl Exchange<'_> {
    async fn handshake(&self) -> Result<(), SaslError> {
        let request = SaslHandshakeRequest {
            mechanism: self.mechanism.to_owned(),
        };
        let answer = self.call(&request, HANDSHAKE_VERSION).await?;
        match answer.error_code {
            ErrorCode::None => Ok(()),
            ErrorCode::UnsupportedSaslMechanism => Err(SaslError::MechanismNotEnabled {
                mechanism: self.mechanism,
                enabled: enabled_mechanisms(&answer),
            }),
            ErrorCode::IllegalSaslState => Err(SaslError::NotSasl),
            code => Err(self.refused(code, None, None)),
        }
    }

    async fn scram(&self, scram: &Scram, password: &Secret) -> Result<Option<Duration>, SaslError> {
        let hint = scram::is_changed_by_preparation(password).then_some(
            "SASLprep changes this password, and Kafka's own tools store it unchanged: set it in its prepared form",
        );
        let first = self.send(scram.first_message(), password, hint).await?;
        let (message, expected): (String, Expected) = scram.final_message(&first.auth_bytes.0)?;
        let last = self.send(message, password, hint).await?;
        expected.check(&last.auth_bytes.0)?;
        Ok(lifetime(&last))
    }

    async fn oauth_bearer(
        &self,
        message: String,
        token: &Secret,
    ) -> Result<Option<Duration>, SaslError> {
        let answer = self.send(message, token, None).await?;
        if answer.auth_bytes.0.is_empty() {
            return Ok(lifetime(&answer));
        }
        // RFC 7628, section 3.2.3: the server says no in a challenge, the client acknowledges that,
        // and the exchange fails.
        self.send("\u{1}".to_owned(), token, None).await?;
        Err(SaslError::PeerMisbehaved {
            mechanism: self.mechanism,
            what: "a refusal that was taken back",
        })
    }

    /// Sends one message of the mechanism. `secret` is taken out of whatever the broker says.
    async fn send(
        &self,
        message: String,
        secret: &Secret,
        hint: Option<&'static str>,
    ) -> Result<SaslAuthenticateResponse, SaslError> {
        let request = SaslAuthenticateRequest {
            auth_bytes: AuthBytes(Bytes::from(message)),
        };
        let answer = self.call(&request, self.version).await?;
        match answer.error_code {
            ErrorCode::None => Ok(answer),
            code => {
                let message = answer.error_message.as_deref();
                Err(self.refused(code, message.map(|text| censored(text, secret)), hint))
            }
        }
    }

    fn refused(
        &self,
        code: ErrorCode,
        message: Option<String>,
        hint: Option<&'static str>,
    ) -> SaslError {
        SaslError::Refused {
            mechanism: self.mechanism,
            code,
            message: message.filter(|message| !message.is_empty()),
            hint,
        }
    }

    async fn call<R: Request>(&self, request: &R, version: i16) -> Result<R::Response, SaslError> {
        let frame = self
            .link
            .exchange_apart(request, version)
            .await
            .map_err(|error| closed(error, R::NAME))?;
        decode_response::<R>(&frame, version).map_err(|source| SaslError::Decode {
            api: R::NAME,
            source,
        })
    }
}

fn closed(error: CallError, api: &'static str) -> SaslError {
    let reason = match error {
        CallError::NotConnected { reason, .. } | CallError::ConnectionLost { reason, .. } => reason,
        CallError::Timeout { after, .. } | CallError::Busy { after, .. } => {
            CloseReason::Timeout { api, after }
        }
        _ => CloseReason::ByUs,
    };
    SaslError::Closed {
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_renewed_before_their_end_and_never_within_a_second() {
        for (lifetime_ms, earliest, latest) in [
            (1, 1000, 1000),
            (3000, 1500, 1500),
            (10_000, 8000, 8000),
            (3_600_000, 3_060_000, 3_420_000),
        ] {
            for _ in 0..100 {
                let after = reauthenticate_after(Duration::from_millis(lifetime_ms)).as_millis();
                assert!(
                    (earliest..=latest).contains(&after),
                    "{lifetime_ms}: {after}"
                );
            }
        }
        // The longest that the wire can say.
        reauthenticate_after(Duration::from_millis(i64::MAX as u64));
    }
}
