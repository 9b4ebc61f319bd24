//! What rustls says, in plain words: of much it tells the names of its variants only.

use rustls::{CertificateError, Error};

use crate::text::visible;

/// An error as people read it.
pub(super) fn plain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate(error),
        Error::PeerIncompatible(why) => {
            format!("the two sides have nothing in common: {}", words(why))
        }
        Error::PeerMisbehaved(why) => format!("the peer broke a rule: {}", words(why)),
        Error::InvalidMessage(why) => format!("a message that cannot be read: {}", words(why)),
        Error::AlertReceived(alert) => format!("the alert {}", alert_name(*alert)),
        Error::InappropriateMessage { got_type, .. } => {
            format!("a message out of turn: {}", words(got_type))
        }
        Error::InappropriateHandshakeMessage { got_type, .. } => {
            format!("a message out of turn: {}", words(got_type))
        }
        Error::InconsistentKeys(why) => words(why),
        Error::General(text) => visible(text),
        Error::Other(error) => visible(&error.to_string()),
        other => words(other),
    }
}

/// What is wrong with a certificate.
pub(super) fn certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::BadEncoding => "it cannot be read".to_owned(),
        CertificateError::Revoked => "it was revoked".to_owned(),
        CertificateError::BadSignature => "its signature is wrong".to_owned(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not for a server (its extendedKeyUsage has no serverAuth)".to_owned()
        }
        error if is_authority(error) => {
            "it is that of an authority (basicConstraints CA:TRUE), not of a server; \
            put this very certificate into the truststore, or make one for the server \
            (openssl req -x509 … -addext basicConstraints=critical,CA:FALSE)"
                .to_owned()
        }
        other => words(other),
    }
}

/// Whether all that is wrong is that an authority's own certificate is used by a server.
///
/// webpki looks at this after the times and before the issuer.
pub(super) fn is_authority(error: &CertificateError) -> bool {
    matches!(error, CertificateError::Other(inner) if format!("{:?}", inner.0) == "CaUsedAsEndEntity")
}

/// The alert's name in RFC 8446: `CertificateRequired` → `certificate_required`.
pub(super) fn alert_name(alert: rustls::AlertDescription) -> String {
    separated(&format!("{alert:?}"), '_')
}

/// The innermost variant's name as words: `Other(OtherError(BadDerTime))` → `bad der time`.
fn words(error: &impl std::fmt::Debug) -> String {
    let text = format!("{error:?}");
    let text = text.split(" {").next().unwrap_or_default();
    let name = text.trim_end_matches(')').rsplit('(').next();
    separated(name.unwrap_or_default(), ' ')
}

fn separated(name: &str, separator: char) -> String {
    let mut out = String::new();
    let mut after_lower = false;
    for character in name.chars() {
        if character.is_ascii_uppercase() && after_lower {
            out.push(separator);
        }
        after_lower = character.is_ascii_lowercase() || character.is_ascii_digit();
        out.push(character.to_ascii_lowercase());
    }
    visible(&out)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::UnixTime;
    use rustls::{
        AlertDescription, ContentType, HandshakeType, InconsistentKeys, InvalidMessage, OtherError,
        PeerIncompatible, PeerMisbehaved,
    };

    use super::*;

    #[test]
    fn no_name_of_a_variant_is_shown() {
        let time = UnixTime::now();
        let other = |text: &str| OtherError(Arc::new(std::io::Error::other(text.to_owned())));
        for error in [
            CertificateError::BadEncoding.into(),
            CertificateError::Revoked.into(),
            CertificateError::BadSignature.into(),
            CertificateError::UnhandledCriticalExtension.into(),
            CertificateError::UnknownRevocationStatus.into(),
            CertificateError::ExpiredRevocationListContext {
                time,
                next_update: time,
            }
            .into(),
            CertificateError::ApplicationVerificationFailure.into(),
            CertificateError::UnsupportedSignatureAlgorithmContext {
                signature_algorithm_id: vec![1],
                supported_algorithms: vec![],
            }
            .into(),
            Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon),
            Error::PeerMisbehaved(PeerMisbehaved::IllegalMiddleboxChangeCipherSpec),
            Error::InvalidMessage(InvalidMessage::InvalidContentType),
            Error::AlertReceived(AlertDescription::HandshakeFailure),
            Error::InappropriateMessage {
                expect_types: vec![],
                got_type: ContentType::ApplicationData,
            },
            Error::InappropriateHandshakeMessage {
                expect_types: vec![],
                got_type: HandshakeType::ServerHello,
            },
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch),
            Error::NoCertificatesPresented,
            Error::PeerSentOversizedRecord,
            Error::General("it went wrong".to_owned()),
            Error::Other(other("it went wrong")),
        ] {
            let text = plain(&error);
            let is_debug = |word: &str| {
                word.chars().skip(1).any(|c| c.is_ascii_uppercase()) && word != "serverAuth"
            };
            let words = text.split(|c: char| !c.is_alphanumeric());
            assert!(
                !text.is_empty() && !words.into_iter().any(is_debug),
                "{text}"
            );
        }
        let incompatible = Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon);
        assert!(plain(&incompatible).ends_with("no cipher suites in common"));
        assert_eq!(
            alert_name(AlertDescription::CertificateRequired),
            "certificate_required"
        );
        assert_eq!(alert_name(AlertDescription::UnknownCA), "unknown_ca");
    }
}
