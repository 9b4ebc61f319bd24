//! SCRAM (RFC 5802) with SHA-256 and SHA-512 (RFC 7677), without channel binding, as Kafka has it.

use std::num::NonZeroU32;

use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};

use super::credentials::ScramAlgorithm;
use super::error::SaslError;
use crate::limits::{SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN};
use crate::net::base64;
use crate::net::secret::Secret;

/// Bytes of randomness in a nonce.
const NONCE_BYTES: usize = 24;

/// The GS2 header: no channel binding, no other identity.
const HEADER: &str = "n,,";
/// The same in base64.
const CHANNEL_BINDING: &str = "c=biws";

/// One authentication.
pub(super) struct Scram {
    algorithm: ScramAlgorithm,
    password: Vec<u8>,
    nonce: String,
    /// `client-first-message-bare`.
    first: String,
}

/// What the server's last message must be.
pub(super) struct Expected {
    mechanism: &'static str,
    key: hmac::Key,
    message: String,
}

impl Scram {
    /// # Errors
    /// [`SaslError::Config`] for a name or password that SASLprep (RFC 4013) refuses.
    pub(super) fn new(
        algorithm: ScramAlgorithm,
        username: &str,
        password: &Secret,
        is_delegation_token: bool,
    ) -> Result<Self, SaslError> {
        let mut bytes = [0; NONCE_BYTES];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| SaslError::Config {
                text: "the system has no randomness for SCRAM's nonce".to_owned(),
            })?;
        let nonce = base64::encode(&bytes);
        Self::with_nonce(algorithm, username, password, is_delegation_token, nonce)
    }

    fn with_nonce(
        algorithm: ScramAlgorithm,
        username: &str,
        password: &Secret,
        is_delegation_token: bool,
        nonce: String,
    ) -> Result<Self, SaslError> {
        let name = prepare("username", username)?
            .replace('=', "=3D")
            .replace(',', "=2C");
        let extension = if is_delegation_token {
            ",tokenauth=true"
        } else {
            ""
        };
        Ok(Self {
            algorithm,
            password: prepare("password", password.expose())?.into_bytes(),
            first: format!("n={name},r={nonce}{extension}"),
            nonce,
        })
    }

    /// `client-first-message`.
    pub(super) fn first_message(&self) -> String {
        format!("{HEADER}{}", self.first)
    }

    /// `client-final-message`, for the server's first one.
    pub(super) fn final_message(
        &self,
        server_first: &[u8],
    ) -> Result<(String, Expected), SaslError> {
        let mechanism = self.algorithm.mechanism();
        let (text, parts) = ServerFirst::parse(mechanism, server_first)?;
        // RFC 5802, section 5.1: it starts with ours and must have something of the server's.
        let own = parts.nonce.strip_prefix(&*self.nonce);
        if own.is_none_or(str::is_empty) {
            return Err(SaslError::ForeignNonce { mechanism });
        }
        let iterations = self.iterations(parts.iterations)?;
        let without_proof = format!("{CHANNEL_BINDING},r={}", parts.nonce);
        let message = format!("{},{text},{without_proof}", self.first);

        let algorithm = self.algorithm;
        let mut salted = [0; digest::MAX_OUTPUT_LEN];
        let salted = salted
            .get_mut(..algorithm.digest().output_len())
            .unwrap_or_default();
        pbkdf2::derive(
            algorithm.pbkdf2(),
            iterations,
            &parts.salt,
            &self.password,
            salted,
        );
        let salted = hmac::Key::new(algorithm.hmac(), salted);
        let client_key = hmac::sign(&salted, b"Client Key");
        let stored_key = digest::digest(algorithm.digest(), client_key.as_ref());
        let stored_key = hmac::Key::new(algorithm.hmac(), stored_key.as_ref());
        let signature = hmac::sign(&stored_key, message.as_bytes());
        let proof: Vec<u8> = client_key
            .as_ref()
            .iter()
            .zip(signature.as_ref())
            .map(|(key, signature)| key ^ signature)
            .collect();
        let server_key = hmac::sign(&salted, b"Server Key");
        let expected = Expected {
            mechanism,
            key: hmac::Key::new(algorithm.hmac(), server_key.as_ref()),
            message,
        };
        Ok((
            format!("{without_proof},p={}", base64::encode(&proof)),
            expected,
        ))
    }

    fn iterations(&self, text: &str) -> Result<NonZeroU32, SaslError> {
        // RFC 5802, section 7: a number has no sign.
        let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        digits
            .and_then(|digits| digits.parse::<NonZeroU32>().ok())
            .filter(|count| (SCRAM_ITERATIONS_MIN..=SCRAM_ITERATIONS_MAX).contains(&count.get()))
            .ok_or_else(|| SaslError::Iterations {
                mechanism: self.algorithm.mechanism(),
                received: shown_number(text),
                min: SCRAM_ITERATIONS_MIN,
                max: SCRAM_ITERATIONS_MAX,
            })
    }
}

/// A peer's number as it wrote it; whatever else it wrote goes into no log line.
fn shown_number(text: &str) -> String {
    if text.bytes().all(|byte| matches!(byte, b'-' | b'0'..=b'9')) {
        text.chars().take(20).collect()
    } else {
        "no number of".to_owned()
    }
}

impl Expected {
    /// Checks `server-final-message`, which proves that the server knows the password's verifier.
    pub(super) fn check(&self, server_final: &[u8]) -> Result<(), SaslError> {
        let mechanism = self.mechanism;
        let misbehaved = |what| SaslError::PeerMisbehaved { mechanism, what };
        let text = std::str::from_utf8(server_final).map_err(|_| misbehaved("not UTF-8"))?;
        let first = text.split(',').next().unwrap_or_default();
        if first.starts_with("e=") {
            return Err(misbehaved("an error in place of its signature"));
        }
        let signature = first
            .strip_prefix("v=")
            .and_then(|signature| base64::decode(signature.as_bytes()))
            .ok_or_else(|| misbehaved("no signature"))?;
        hmac::verify(&self.key, self.message.as_bytes(), &signature)
            .map_err(|_| SaslError::WrongServerSignature { mechanism })
    }
}

impl ScramAlgorithm {
    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        }
    }

    fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }
}

/// `server-first-message`.
struct ServerFirst<'a> {
    nonce: &'a str,
    salt: Vec<u8>,
    iterations: &'a str,
}

impl<'a> ServerFirst<'a> {
    fn parse(mechanism: &'static str, bytes: &'a [u8]) -> Result<(&'a str, Self), SaslError> {
        let misbehaved = |what| SaslError::PeerMisbehaved { mechanism, what };
        let text = std::str::from_utf8(bytes).map_err(|_| misbehaved("not UTF-8"))?;
        let mut parts = text.split(',');
        let mut part = |prefix, what| {
            parts
                .next()
                .and_then(|part| part.strip_prefix(prefix))
                .ok_or_else(|| misbehaved(what))
        };
        let nonce = part("r=", "no nonce, or an extension that must be understood")?;
        let salt = part("s=", "no salt")?;
        let iterations = part("i=", "no iteration count")?;
        let salt =
            base64::decode(salt.as_bytes()).ok_or_else(|| misbehaved("the salt is not base64"))?;
        if salt.is_empty() {
            return Err(misbehaved("the salt is empty"));
        }
        // RFC 5802, section 7: printable, no comma.
        if !nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(misbehaved("a nonce that is not printable"));
        }
        Ok((
            text,
            Self {
                nonce,
                salt,
                iterations,
            },
        ))
    }
}

/// SASLprep.
fn prepare(what: &str, text: &str) -> Result<String, SaslError> {
    let prepared = stringprep::saslprep(text).map_err(|_| SaslError::Config {
        text: format!(
            "the {what} has a character that SASLprep (RFC 4013) does not allow in SCRAM"
        ),
    })?;
    if prepared.is_empty() {
        return Err(SaslError::Config {
            text: format!("the {what} for SCRAM is empty"),
        });
    }
    Ok(prepared.into_owned())
}

/// Whether SASLprep changes a password. Kafka's own tools store it unprepared.
pub(super) fn is_changed_by_preparation(password: &Secret) -> bool {
    stringprep::saslprep(password.expose()).is_ok_and(|prepared| prepared != password.expose())
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn no_message_of_the_server_panics(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100),
            parts in "(r=rOprNGfwEbeRWgbNEkqO[a-z]{0,3},)?(s=[A-Za-z=]{0,9},)?i=[0-9-]{0,4}",
        ) {
            let scram = rfc_7677();
            drop(scram.final_message(&bytes));
            drop(scram.final_message(parts.as_bytes()));
            let (_, expected) = scram.final_message(SERVER_FIRST.as_bytes()).unwrap();
            proptest::prop_assert!(expected.check(&bytes).is_err());
        }
    }

    /// RFC 7677, section 3.
    const CLIENT_NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const SERVER_FIRST: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const SERVER_FINAL: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn scram(algorithm: ScramAlgorithm, username: &str, password: &str, nonce: &str) -> Scram {
        Scram::with_nonce(algorithm, username, &password.into(), false, nonce.into()).unwrap()
    }

    fn rfc_7677() -> Scram {
        scram(ScramAlgorithm::Sha256, "user", "pencil", CLIENT_NONCE)
    }

    #[test]
    fn exchange_is_that_of_rfc_7677() {
        let scram = rfc_7677();
        assert_eq!(scram.first_message(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let (last, expected) = scram.final_message(SERVER_FIRST.as_bytes()).unwrap();
        assert_eq!(
            last,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert_eq!(expected.check(SERVER_FINAL.as_bytes()), Ok(()));
    }

    #[test]
    fn wrong_server_signature_is_refused() {
        let (_, expected) = rfc_7677().final_message(SERVER_FIRST.as_bytes()).unwrap();
        let wrong = SERVER_FINAL.replace("6rri", "7rri");
        assert!(matches!(
            expected.check(wrong.as_bytes()),
            Err(SaslError::WrongServerSignature { .. })
        ));
        for illegal in ["", "v=", "v=!", "e=invalid-proof", "6rriTRBi"] {
            assert!(expected.check(illegal.as_bytes()).is_err(), "{illegal}");
        }
    }

    #[test]
    fn b_105_a_foreign_nonce_is_refused() {
        for nonce in [
            "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
            "xOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
            // Nothing of the server's own.
            CLIENT_NONCE,
            "rOprNGfwEbeRWgbNEkq",
        ] {
            let first = format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
            let error = rfc_7677().final_message(first.as_bytes()).err().unwrap();
            assert!(matches!(error, SaslError::ForeignNonce { .. }), "{nonce}");
        }
    }

    #[test]
    fn b_106_iteration_counts_out_of_bounds_are_refused_before_any_work() {
        for count in [
            "0",
            "1",
            "-1",
            "4095",
            "131073",
            "2000000000",
            "99999999999999999999",
            "",
            "4096x",
            " 4096",
            "+4096",
        ] {
            let first = SERVER_FIRST.replace("i=4096", &format!("i={count}"));
            let error = rfc_7677().final_message(first.as_bytes()).err().unwrap();
            assert!(matches!(error, SaslError::Iterations { .. }), "{count}");
        }
    }

    #[test]
    fn iteration_count_that_is_no_number_is_not_shown() {
        let error = |count: &str| {
            let first = SERVER_FIRST.replace("i=4096", &format!("i={count}"));
            let error = rfc_7677().final_message(first.as_bytes()).err().unwrap();
            error.to_string()
        };
        for count in ["81pencil2", "1\u{1b}[2J"] {
            assert!(error(count).contains("asks for no number of iterations"));
        }
        assert!(error("-1").contains("asks for -1 iterations"));
    }

    #[test]
    fn illegal_first_messages_are_refused() {
        for first in [
            "",
            "m=x,r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=4096",
            "r=rOprNGfwEbeRWgbNEkqOx,i=4096,s=W22Z",
            "r=rOprNGfwEbeRWgbNEkqOx,s=,i=4096",
            "r=rOprNGfwEbeRWgbNEkqOx,s=W22,i=4096",
            "r=rOprNGfwEbeRWgbNEkqOx,s=W22Z",
            "r=rOprNGfwEbeRWgbNEkqO\u{1},s=W22Z,i=4096",
        ] {
            let error = rfc_7677().final_message(first.as_bytes()).err().unwrap();
            assert!(matches!(error, SaslError::PeerMisbehaved { .. }), "{first}");
            let says_empty = error.to_string().ends_with("the salt is empty");
            assert_eq!(says_empty, first.contains("s=,"), "{error}");
        }
        assert!(rfc_7677().final_message(&[0xff]).is_err());
    }

    #[test]
    fn names_are_escaped_and_prepared() {
        let first =
            |username: &str| scram(ScramAlgorithm::Sha512, username, "p", "N").first_message();
        assert_eq!(first("a=b,c"), "n,,n=a=3Db=2Cc,r=N");
        // RFC 4013, section 3.
        assert_eq!(first("I\u{ad}X"), "n,,n=IX,r=N");
        assert_eq!(first("\u{aa}"), "n,,n=a,r=N");
        assert_eq!(first("\u{2168}"), "n,,n=IX,r=N");
        let new = |username: &str, password: &str| {
            let scram = Scram::new(ScramAlgorithm::Sha256, username, &password.into(), false);
            scram.err().map(|error| error.to_string())
        };
        assert!(new("\u{7}", "p").unwrap().contains("username"));
        let error = new("u", "hush\u{627}1").unwrap();
        assert!(
            error.contains("password") && !error.contains("hush"),
            "{error}"
        );
        assert!(new("", "p").unwrap().contains("empty"));
    }

    #[test]
    fn nonces_differ_and_delegation_tokens_are_announced() {
        let first = || {
            Scram::new(ScramAlgorithm::Sha256, "u", &"p".into(), true)
                .unwrap()
                .first_message()
        };
        assert_ne!(first(), first());
        assert!(first().ends_with(",tokenauth=true"));
    }
}
