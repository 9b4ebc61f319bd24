//! Truststores and keystores: PEM and PKCS12.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use sharegroup_wire::net::tls::TlsOptions;

/// Of the stores that the seeds are.
const PASSWORD: &str = "store-secret";
const KEY_PASSWORD: &str = "key-secret";

/// An authority that is one, so that keystores are looked at alone.
const AUTHORITY: &str = include_str!("../../../crates/wire/testdata/tls/ca.pem");

/// A certificate that is one.
const CHAIN: &str = include_str!("../../../crates/wire/testdata/tls/client.pem");

/// Keystores and truststores are read from files.
static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let name = format!("sharegroup-fuzz-store-{}", std::process::id());
    std::env::temp_dir().join(name)
});

/// Input: which key the rest is the value of.
pub fn stores(data: &[u8]) {
    let [which, bytes @ ..] = data else { return };
    let text = || std::str::from_utf8(bytes).unwrap_or_default().to_owned();
    let file = || {
        fs::write(&*FILE, bytes).expect("a file in the folder for temporary ones");
        Some(FILE.clone())
    };
    let mut options = TlsOptions::default();
    options.truststore_certificates = Some(AUTHORITY.to_owned());
    options.truststore_password = Some(PASSWORD.into());
    options.keystore_password = Some(PASSWORD.into());
    options.key_password = Some(KEY_PASSWORD.into());
    match which & 7 {
        0 => options.truststore_certificates = Some(text()),
        1 => {
            options.truststore_certificates = None;
            options.truststore_location = file();
        }
        2 => options.keystore_location = file(),
        3 => {
            options.keystore_location = file();
            options.key_password = None;
        }
        4 => {
            options.keystore_certificate_chain = Some(CHAIN.to_owned());
            options.keystore_key = Some(text().into());
        }
        _ => {
            options.keystore_certificate_chain = Some(text());
            options.keystore_key = Some(CHAIN.into());
        }
    }
    if let Err(error) = options.check() {
        let seen = format!("{error} {error:?}");
        for secret in [PASSWORD, KEY_PASSWORD] {
            assert!(!seen.contains(secret) || text().contains(secret), "{seen}");
        }
    }
}
