//! PBES2 (RFC 8018): what encrypts PKCS#8 keys and the bags of PKCS12 stores since OpenSSL 3 and
//! Java 17. AES-128, -192 and -256 in CBC mode under PBKDF2; nothing older.

use std::num::NonZeroU32;

use aes::{Aes128, Aes192, Aes256};
use cbc::Decryptor;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt, KeyIvInit};
use ring::pbkdf2;

use super::der::{Der, Malformed, OCTET_STRING, Oid, SEQUENCE};
use crate::limits::KEY_DERIVATION_ITERATIONS_MAX;

const PBES2: Oid<'_> = Oid(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d]);
const PBKDF2: Oid<'_> = Oid(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0c]);
/// `hmacWithSHA…`, whose last number follows.
const HMAC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x02];
/// `aes…`, whose last number follows.
const AES: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x01];

/// Why something was not decrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// Not the DER that is due here.
    Malformed,
    /// Encrypted in a way that isn't known here: the object identifier.
    Unknown(String),
    /// More than the limit, or none.
    Iterations(u32),
    /// The password doesn't fit.
    WrongPassword,
}

impl From<Malformed> for Failure {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

/// Decrypts an `EncryptedPrivateKeyInfo` (PKCS#8) to a `PrivateKeyInfo`.
pub(super) fn decrypt_key(der: &[u8], password: &str) -> Result<Vec<u8>, Failure> {
    let mut info = Der::new(der).enter(SEQUENCE)?;
    let algorithm = info.enter(SEQUENCE)?;
    let key = decrypt(algorithm, info.take(OCTET_STRING)?, password)?;
    // The padding fits by chance in one of 256 cases; then this catches it.
    let mut whole = Der::new(&key);
    if whole.take(SEQUENCE).is_err() || !whole.is_empty() {
        return Err(Failure::WrongPassword);
    }
    Ok(key)
}

/// Decrypts under the contents of an `AlgorithmIdentifier`.
pub(super) fn decrypt(
    mut algorithm: Der<'_>,
    data: &[u8],
    password: &str,
) -> Result<Vec<u8>, Failure> {
    let scheme = algorithm.object_identifier()?;
    if scheme != PBES2 {
        return Err(Failure::Unknown(scheme.to_string()));
    }
    let mut parameters = algorithm.enter(SEQUENCE)?;
    let derivation = parameters.enter(SEQUENCE)?;
    let mut encryption = parameters.enter(SEQUENCE)?;
    let cipher = encryption.object_identifier()?;
    let vector = encryption.take(OCTET_STRING)?;
    let key_bytes = match cipher.0.strip_prefix(AES) {
        Some([2]) => 16,
        Some([22]) => 24,
        Some([42]) => 32,
        _ => return Err(Failure::Unknown(cipher.to_string())),
    };
    let mut key = [0; 32];
    let key = key.get_mut(..key_bytes).ok_or(Failure::Malformed)?;
    derive(derivation, password, key)?;
    let mut buffer = data.to_vec();
    let plain = match key_bytes {
        16 => unwrap::<Decryptor<Aes128>>(key, vector, &mut buffer),
        24 => unwrap::<Decryptor<Aes192>>(key, vector, &mut buffer),
        _ => unwrap::<Decryptor<Aes256>>(key, vector, &mut buffer),
    }?;
    Ok(plain.to_vec())
}

fn unwrap<'a, D: KeyIvInit + BlockModeDecrypt>(
    key: &[u8],
    vector: &[u8],
    buffer: &'a mut [u8],
) -> Result<&'a [u8], Failure> {
    D::new_from_slices(key, vector)
        .map_err(|_| Failure::Malformed)?
        .decrypt_padded::<Pkcs7>(buffer)
        .map_err(|_| Failure::WrongPassword)
}

fn derive(mut derivation: Der<'_>, password: &str, key: &mut [u8]) -> Result<(), Failure> {
    let function = derivation.object_identifier()?;
    if function != PBKDF2 {
        return Err(Failure::Unknown(function.to_string()));
    }
    let mut parameters = derivation.enter(SEQUENCE)?;
    let salt = parameters.take(OCTET_STRING)?;
    let iterations = iterations(parameters.number()?)?;
    if parameters.tag() == Some(super::der::INTEGER) && parameters.number()? as usize != key.len() {
        return Err(Failure::Malformed);
    }
    let algorithm = match parameters.tag() {
        // The default of RFC 8018.
        None => pbkdf2::PBKDF2_HMAC_SHA1,
        Some(_) => {
            let function = parameters.enter(SEQUENCE)?.object_identifier()?;
            match function.0.strip_prefix(HMAC) {
                Some([7]) => pbkdf2::PBKDF2_HMAC_SHA1,
                Some([9]) => pbkdf2::PBKDF2_HMAC_SHA256,
                Some([10]) => pbkdf2::PBKDF2_HMAC_SHA384,
                Some([11]) => pbkdf2::PBKDF2_HMAC_SHA512,
                _ => return Err(Failure::Unknown(function.to_string())),
            }
        }
    };
    pbkdf2::derive(algorithm, iterations, salt, password.as_bytes(), key);
    Ok(())
}

/// An iteration count that doesn't keep the machine busy for minutes.
pub(super) fn iterations(count: u32) -> Result<NonZeroU32, Failure> {
    NonZeroU32::new(count)
        .filter(|count| count.get() <= KEY_DERIVATION_ITERATIONS_MAX)
        .ok_or(Failure::Iterations(count))
}
