//! PKCS12 stores (RFC 7292) as OpenSSL 3 and Java 17 write them: a MAC over all, the bags in PBES2
//! or in the clear. RC2 and 3DES of older tools are not read.

use ring::{digest, hmac};

use super::der::{Der, EXPLICIT_0, IMPLICIT_0, OCTET_STRING, Oid, SEQUENCE, SET};
use super::pbes2::{Failure, decrypt, decrypt_key, iterations};

/// `pkcs-7`, whose last number follows.
const DATA: Oid<'_> = Oid(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x01]);
const ENCRYPTED_DATA: Oid<'_> = Oid(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x06]);
const BAG: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x0c, 0x0a, 0x01];
const X509_CERTIFICATE: Oid<'_> =
    Oid(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x16, 0x01]);
const LOCAL_KEY_ID: Oid<'_> = Oid(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x15]);
const SHA1: Oid<'_> = Oid(&[0x2b, 0x0e, 0x03, 0x02, 0x1a]);
/// `sha…`, whose last number follows.
const SHA2: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02];

/// What is in a store.
#[derive(Default)]
pub(super) struct Contents {
    certificates: Vec<Bag>,
    keys: Vec<Bag>,
}

/// A certificate or a private key (PKCS#8).
struct Bag {
    der: Vec<u8>,
    /// Ties a key to its certificate.
    local_key_id: Option<Vec<u8>>,
}

impl Contents {
    /// The private keys, PKCS#8 each.
    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.keys.iter().map(|bag| bag.der.as_slice())
    }

    /// The certificates, that of the first key first.
    pub(super) fn certificates(self) -> Vec<Vec<u8>> {
        let id = self.keys.first().and_then(|key| key.local_key_id.clone());
        let mut certificates = self.certificates;
        if id.is_some() {
            // Stable: the others stay in order.
            certificates.sort_by_key(|bag| bag.local_key_id != id);
        }
        certificates.into_iter().map(|bag| bag.der).collect()
    }
}

/// Whether the bytes look like a PKCS12 store: a sequence that starts with version 3.
pub(super) fn is_pkcs12(bytes: &[u8]) -> bool {
    Der::new(bytes)
        .enter(SEQUENCE)
        .and_then(|mut store| store.number())
        .is_ok_and(|version| version == 3)
}

/// Reads a store; `key_password` is for its keys.
pub(super) fn read(bytes: &[u8], password: &str, key_password: &str) -> Result<Contents, Failure> {
    let mut store = Der::new(bytes).enter(SEQUENCE)?;
    if store.number()? != 3 {
        return Err(Failure::Malformed);
    }
    let mut safe = store.enter(SEQUENCE)?;
    if safe.object_identifier()? != DATA {
        return Err(Failure::Unknown("a public key".to_owned()));
    }
    let safe = safe.enter(EXPLICIT_0)?.take(OCTET_STRING)?;
    if !store.is_empty() {
        check_mac(store.enter(SEQUENCE)?, safe, password)?;
    }
    let mut contents = Contents::default();
    let mut parts = Der::new(safe).enter(SEQUENCE)?;
    while !parts.is_empty() {
        let mut part = parts.enter(SEQUENCE)?;
        let kind = part.object_identifier()?;
        let mut part = part.enter(EXPLICIT_0)?;
        if kind == DATA {
            contents.add(part.take(OCTET_STRING)?, key_password)?;
        } else if kind == ENCRYPTED_DATA {
            let mut encrypted = part.enter(SEQUENCE)?;
            encrypted.number()?;
            let mut encrypted = encrypted.enter(SEQUENCE)?;
            encrypted.object_identifier()?;
            let algorithm = encrypted.enter(SEQUENCE)?;
            let plain = decrypt(algorithm, encrypted.take(IMPLICIT_0)?, password)?;
            contents.add(&plain, key_password)?;
        } else {
            return Err(Failure::Unknown(kind.to_string()));
        }
    }
    Ok(contents)
}

impl Contents {
    /// Adds the bags of a `SafeContents`.
    fn add(&mut self, safe: &[u8], key_password: &str) -> Result<(), Failure> {
        let mut bags = Der::new(safe).enter(SEQUENCE)?;
        while !bags.is_empty() {
            let mut bag = bags.enter(SEQUENCE)?;
            let kind = bag.object_identifier()?;
            let mut value = bag.enter(EXPLICIT_0)?;
            let local_key_id = local_key_id(bag)?;
            match kind.0.strip_prefix(BAG) {
                Some([1]) => self.keys.push(Bag {
                    der: value.rest().to_vec(),
                    local_key_id,
                }),
                Some([2]) => self.keys.push(Bag {
                    der: decrypt_key(value.rest(), key_password)?,
                    local_key_id,
                }),
                Some([3]) => {
                    let mut certificate = value.enter(SEQUENCE)?;
                    if certificate.object_identifier()? != X509_CERTIFICATE {
                        continue;
                    }
                    let der = certificate.enter(EXPLICIT_0)?.take(OCTET_STRING)?.to_vec();
                    self.certificates.push(Bag { der, local_key_id });
                }
                // Revocation lists, secrets and nested bags are nothing for a TLS client.
                _ => {}
            }
        }
        Ok(())
    }
}

fn local_key_id(mut bag: Der<'_>) -> Result<Option<Vec<u8>>, Failure> {
    if bag.is_empty() {
        return Ok(None);
    }
    let mut attributes = bag.enter(SET)?;
    while !attributes.is_empty() {
        let mut attribute = attributes.enter(SEQUENCE)?;
        if attribute.object_identifier()? == LOCAL_KEY_ID {
            return Ok(Some(attribute.enter(SET)?.take(OCTET_STRING)?.to_vec()));
        }
    }
    Ok(None)
}

/// Checks the MAC, which is what tells a wrong password from a damaged file best.
fn check_mac(mut mac: Der<'_>, safe: &[u8], password: &str) -> Result<(), Failure> {
    let mut info = mac.enter(SEQUENCE)?;
    let function = info.enter(SEQUENCE)?.object_identifier()?;
    let expected = info.take(OCTET_STRING)?;
    let salt = mac.take(OCTET_STRING)?;
    let count = if mac.is_empty() { 1 } else { mac.number()? };
    let (digest, hmac) = match function.0.strip_prefix(SHA2) {
        Some([1]) => (&digest::SHA256, hmac::HMAC_SHA256),
        Some([2]) => (&digest::SHA384, hmac::HMAC_SHA384),
        Some([3]) => (&digest::SHA512, hmac::HMAC_SHA512),
        _ if function == SHA1 => (
            &digest::SHA1_FOR_LEGACY_USE_ONLY,
            hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        ),
        _ => return Err(Failure::Unknown(function.to_string())),
    };
    let key = mac_key(digest, password, salt, iterations(count)?.get());
    hmac::verify(&hmac::Key::new(hmac, key.as_ref()), safe, expected)
        .map_err(|_| Failure::WrongPassword)
}

/// RFC 7292, appendix B.2, for a key as long as the digest (ID 3).
fn mac_key(
    algorithm: &'static digest::Algorithm,
    password: &str,
    salt: &[u8],
    iterations: u32,
) -> digest::Digest {
    const MAC_KEY: u8 = 3;
    let block = algorithm.block_len();
    let password: Vec<u8> = password
        .encode_utf16()
        .chain([0])
        .flat_map(u16::to_be_bytes)
        .collect();
    let mut input = vec![MAC_KEY; block];
    for part in [salt, &password] {
        let padded = part.len().next_multiple_of(block);
        input.extend(part.iter().cycle().take(padded));
    }
    let mut key = digest::digest(algorithm, &input);
    for _ in 1..iterations {
        key = digest::digest(algorithm, key.as_ref());
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: &[u8] = include_bytes!("../../../testdata/tls/client.p12");

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

        #[test]
        fn no_bytes_panic(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
            at in 0..STORE.len(),
            flip in 1..=255_u8,
        ) {
            drop(read(&bytes, "", ""));
            let mut damaged = STORE.to_vec();
            damaged[at] ^= flip;
            drop(read(&damaged, "store-secret", "store-secret"));
        }
    }

    #[test]
    fn the_certificate_of_the_key_comes_first() {
        let bag = |byte, id: Option<&[u8]>| Bag {
            der: vec![byte],
            local_key_id: id.map(<[u8]>::to_vec),
        };
        let contents = Contents {
            certificates: vec![
                bag(1, None),
                bag(2, Some(b"x")),
                bag(3, Some(b"k")),
                bag(4, None),
            ],
            keys: vec![bag(9, Some(b"k"))],
        };
        assert_eq!(contents.certificates(), [[3], [1], [2], [4]]);
    }
}
