//! Reading truststores and keystores.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};

use super::der::{Der, SEQUENCE};
use super::error::StoreError;
use super::options::{StoreType, TlsOptions};
use super::pbes2::{self, Failure};
use super::{pem, pkcs12};
use crate::limits::{KEY_DERIVATION_ITERATIONS_MAX, STORE_FILE_BYTES_MAX};
use crate::net::secret::Secret;

const TRUSTSTORE: &str = "ssl.truststore.location";
const TRUSTSTORE_INLINE: &str = "ssl.truststore.certificates";
const TRUSTSTORE_PASSWORD: &str = "ssl.truststore.password";
const KEYSTORE: &str = "ssl.keystore.location";
const KEYSTORE_CHAIN: &str = "ssl.keystore.certificate.chain";
const KEYSTORE_KEY: &str = "ssl.keystore.key";
const KEYSTORE_PASSWORD: &str = "ssl.keystore.password";
const KEY_PASSWORD: &str = "ssl.key.password";

/// What the files held when they were read.
#[derive(Default, Clone, PartialEq, Eq)]
pub(super) struct Files {
    truststore: Option<Vec<u8>>,
    keystore: Option<Vec<u8>>,
}

/// The client's certificate with those that lead to its authority, and its key.
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    pub(super) place: String,
}

/// Reads the files that the options name. They are small and local, so that this blocks.
pub(super) fn read_files(options: &TlsOptions) -> Result<Files, StoreError> {
    let truststore = options.truststore_location.as_deref();
    let keystore = options.keystore_location.as_deref();
    Ok(Files {
        truststore: truststore.map(|file| read(TRUSTSTORE, file)).transpose()?,
        keystore: keystore.map(|file| read(KEYSTORE, file)).transpose()?,
    })
}

fn read(key: &'static str, file: &Path) -> Result<Vec<u8>, StoreError> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(file)?
            .take(STORE_FILE_BYTES_MAX + 1)
            .read_to_end(&mut bytes)?;
        if bytes.len() as u64 > STORE_FILE_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("larger than {STORE_FILE_BYTES_MAX} bytes (limits::STORE_FILE_BYTES_MAX)"),
            ));
        }
        Ok(bytes)
    };
    read().map_err(|error| StoreError::Read {
        place: place(key, Some(file)),
        kind: error.kind(),
        text: error.to_string(),
    })
}

/// Names the authorities that are trusted, for errors.
pub(super) fn trusted_name(options: &TlsOptions) -> String {
    if let Some(file) = &options.truststore_location {
        file.display().to_string()
    } else if options.truststore_certificates.is_some() {
        TRUSTSTORE_INLINE.to_owned()
    } else {
        "the system's truststore".to_owned()
    }
}

/// The authorities that are trusted; `None` = those of the system.
pub(super) fn trusted(
    options: &TlsOptions,
    files: &Files,
) -> Result<Option<Vec<CertificateDer<'static>>>, StoreError> {
    let inline = options.truststore_certificates.as_deref();
    let store = match (&files.truststore, inline) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(both(TRUSTSTORE, TRUSTSTORE_INLINE)),
        (None, Some(text)) => Store {
            key: TRUSTSTORE_INLINE,
            file: None,
            bytes: text.as_bytes(),
            store_type: Some(StoreType::Pem),
        },
        (Some(bytes), None) => Store {
            key: TRUSTSTORE,
            file: options.truststore_location.as_deref(),
            bytes,
            store_type: options.truststore_type,
        },
    };
    let password = options.truststore_password.as_ref();
    let certificates = match store.contents()? {
        Format::Pem(text) => certificates(&store.blocks(text)?),
        Format::Pkcs12 => store
            .pkcs12((TRUSTSTORE_PASSWORD, password), password)?
            .certificates()
            .into_iter()
            .map(CertificateDer::from)
            .collect(),
    };
    if certificates.is_empty() {
        return Err(StoreError::NoCertificate {
            place: store.place(),
        });
    }
    Ok(Some(certificates))
}

/// The client's certificate and key; `None` = it has none.
pub(super) fn identity(
    options: &TlsOptions,
    files: &Files,
) -> Result<Option<Identity>, StoreError> {
    let chain = options.keystore_certificate_chain.as_deref();
    let key = options.keystore_key.as_ref();
    match (&files.keystore, chain, key) {
        (None, None, None) => Ok(None),
        (Some(bytes), None, None) => keystore_file(options, bytes).map(Some),
        (None, Some(chain), Some(key)) => keystore_inline(options, chain, key).map(Some),
        (Some(_), Some(_), _) => Err(both(KEYSTORE, KEYSTORE_CHAIN)),
        (Some(_), _, Some(_)) => Err(both(KEYSTORE, KEYSTORE_KEY)),
        (None, Some(_), None) => Err(one_of(KEYSTORE_CHAIN, KEYSTORE_KEY)),
        (None, None, Some(_)) => Err(one_of(KEYSTORE_KEY, KEYSTORE_CHAIN)),
    }
}

fn keystore_file(options: &TlsOptions, bytes: &[u8]) -> Result<Identity, StoreError> {
    let store = Store {
        key: KEYSTORE,
        file: options.keystore_location.as_deref(),
        bytes,
        store_type: options.keystore_type,
    };
    let password = options.keystore_password.as_ref();
    let key_password = options.key_password.as_ref().or(password);
    let (chain, key) = match store.contents()? {
        Format::Pem(text) => {
            let blocks = store.blocks(text)?;
            let key = private_key(&store, &blocks, key_password)?;
            (certificates(&blocks), key)
        }
        Format::Pkcs12 => {
            let contents = store.pkcs12((KEYSTORE_PASSWORD, password), key_password)?;
            let count = contents.keys().len();
            let key = match contents.keys().next() {
                Some(key) if count == 1 => PrivatePkcs8KeyDer::from(key.to_vec()).into(),
                Some(_) => {
                    return Err(StoreError::SeveralKeys {
                        place: store.place(),
                        count,
                    });
                }
                None => {
                    return Err(StoreError::NoKey {
                        place: store.place(),
                    });
                }
            };
            let chain = contents.certificates().into_iter();
            (chain.map(CertificateDer::from).collect(), key)
        }
    };
    with_chain(chain, key, store.place())
}

fn keystore_inline(
    options: &TlsOptions,
    chain: &str,
    key: &Secret,
) -> Result<Identity, StoreError> {
    let chain = Store::inline(KEYSTORE_CHAIN, chain);
    let key = Store::inline(KEYSTORE_KEY, key.expose());
    let (Format::Pem(chain_text), Format::Pem(key_text)) = (chain.contents()?, key.contents()?)
    else {
        return Err(StoreError::NotPem {
            place: key.place(),
            der: false,
        });
    };
    let certificates = certificates(&chain.blocks(chain_text)?);
    let key = private_key(&key, &key.blocks(key_text)?, options.key_password.as_ref())?;
    with_chain(certificates, key, chain.place())
}

fn with_chain(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    place: String,
) -> Result<Identity, StoreError> {
    if chain.is_empty() {
        Err(StoreError::NoCertificate { place })
    } else {
        Ok(Identity { chain, key, place })
    }
}

/// One store, before it is known what is in it.
struct Store<'a> {
    key: &'static str,
    file: Option<&'a Path>,
    bytes: &'a [u8],
    store_type: Option<StoreType>,
}

enum Format<'a> {
    Pem(&'a str),
    Pkcs12,
}

impl<'a> Store<'a> {
    fn inline(key: &'static str, text: &'a str) -> Self {
        Self {
            key,
            file: None,
            bytes: text.as_bytes(),
            store_type: Some(StoreType::Pem),
        }
    }

    fn place(&self) -> String {
        place(self.key, self.file)
    }

    fn file(&self) -> String {
        self.file
            .map_or_else(String::new, |file| file.display().to_string())
    }

    fn malformed(&self, what: impl Into<String>) -> StoreError {
        StoreError::Malformed {
            place: self.place(),
            what: what.into(),
        }
    }

    /// Tells the format by the contents. Java's types are loose: under JKS it also reads PKCS12.
    fn contents(&self) -> Result<Format<'a>, StoreError> {
        // JKS and its sibling JCEKS start with these words.
        if matches!(
            self.bytes.get(..4),
            Some([0xfe, 0xed, 0xfe, 0xed] | [0xce, 0xce, 0xce, 0xce])
        ) {
            return Err(StoreError::Jks {
                place: self.place(),
                file: self.file(),
            });
        }
        let text = std::str::from_utf8(self.bytes).ok();
        if let Some(text) = text.filter(|text| pem::is_pem(text)) {
            return Ok(Format::Pem(text));
        }
        if self.store_type == Some(StoreType::Pem) {
            return Err(StoreError::NotPem {
                place: self.place(),
                der: self.bytes.first() == Some(&SEQUENCE),
            });
        }
        if pkcs12::is_pkcs12(self.bytes) {
            return Ok(Format::Pkcs12);
        }
        let what = if Der::new(self.bytes).take(SEQUENCE).is_ok() {
            "neither PEM nor PKCS12; for a certificate in DER: openssl x509 -inform der -in CERTIFICATE -out CERTIFICATE.pem"
        } else {
            "neither PEM nor PKCS12"
        };
        Err(self.malformed(what))
    }

    fn blocks(&self, text: &'a str) -> Result<Vec<pem::Block<'a>>, StoreError> {
        pem::blocks(text).map_err(|what| self.malformed(what))
    }

    fn pkcs12(
        &self,
        (password_key, password): (&'static str, Option<&Secret>),
        key_password: Option<&Secret>,
    ) -> Result<pkcs12::Contents, StoreError> {
        let contents = pkcs12::read(
            self.bytes,
            password.map_or("", Secret::expose),
            key_password.map_or("", Secret::expose),
        );
        contents.map_err(|failure| match failure {
            Failure::Malformed => self.malformed("damaged PKCS12 store"),
            Failure::Iterations(count) => self.malformed(too_many(count)),
            Failure::Unknown(cipher) => StoreError::Pkcs12Cipher {
                place: self.place(),
                file: self.file(),
                cipher,
            },
            Failure::WrongPassword => self.password_error(password_key, password),
        })
    }

    fn password_error(&self, key: &'static str, password: Option<&Secret>) -> StoreError {
        let place = self.place();
        match password {
            None => StoreError::PasswordMissing { place, key },
            Some(_) => StoreError::WrongPassword { place, key },
        }
    }
}

/// The certificates among the blocks; others, such as keys, are not looked at.
fn certificates(blocks: &[pem::Block<'_>]) -> Vec<CertificateDer<'static>> {
    let labels = ["CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"];
    blocks
        .iter()
        .filter(|block| labels.contains(&block.label))
        .map(|block| CertificateDer::from(block.contents.clone()))
        .collect()
}

/// The one private key among the blocks.
fn private_key(
    store: &Store<'_>,
    blocks: &[pem::Block<'_>],
    password: Option<&Secret>,
) -> Result<PrivateKeyDer<'static>, StoreError> {
    let mut keys = blocks
        .iter()
        .filter(|block| block.label.ends_with("PRIVATE KEY"));
    let place = || store.place();
    let block = keys
        .next()
        .ok_or_else(|| StoreError::NoKey { place: place() })?;
    let others = keys.count();
    if others > 0 {
        return Err(StoreError::SeveralKeys {
            place: place(),
            count: others + 1,
        });
    }
    if block.has_headers {
        return Err(StoreError::KeyCipher {
            place: place(),
            cipher: "OpenSSL's old PEM encryption".to_owned(),
        });
    }
    let contents = block.contents.clone();
    match block.label {
        "PRIVATE KEY" => Ok(PrivatePkcs8KeyDer::from(contents).into()),
        "RSA PRIVATE KEY" => Ok(PrivatePkcs1KeyDer::from(contents).into()),
        "EC PRIVATE KEY" => Ok(PrivateSec1KeyDer::from(contents).into()),
        "ENCRYPTED PRIVATE KEY" => decrypt(store, &contents, password),
        label => Err(store.malformed(format!(
            "the block {label} is no kind of key that is known here"
        ))),
    }
}

fn decrypt(
    store: &Store<'_>,
    contents: &[u8],
    password: Option<&Secret>,
) -> Result<PrivateKeyDer<'static>, StoreError> {
    let Some(text) = password else {
        return Err(store.password_error(KEY_PASSWORD, None));
    };
    let key = pbes2::decrypt_key(contents, text.expose()).map_err(|failure| match failure {
        Failure::Malformed => store.malformed("damaged private key"),
        Failure::Iterations(count) => store.malformed(too_many(count)),
        Failure::Unknown(cipher) => StoreError::KeyCipher {
            place: store.place(),
            cipher,
        },
        Failure::WrongPassword => store.password_error(KEY_PASSWORD, password),
    })?;
    Ok(PrivatePkcs8KeyDer::from(key).into())
}

fn too_many(iterations: u32) -> String {
    format!(
        "{iterations} iterations to derive its key, allowed are 1 to {KEY_DERIVATION_ITERATIONS_MAX} (limits::KEY_DERIVATION_ITERATIONS_MAX)"
    )
}

fn place(key: &str, file: Option<&Path>) -> String {
    match file {
        Some(file) => format!("{key}={}", file.display()),
        None => key.to_owned(),
    }
}

fn both(one: &str, other: &str) -> StoreError {
    StoreError::Keys {
        text: format!("{one} and {other} are both set; one of them is enough"),
    }
}

fn one_of(set: &str, missing: &str) -> StoreError {
    StoreError::Keys {
        text: format!("{set} is set without {missing}"),
    }
}
