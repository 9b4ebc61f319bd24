//! Certificates, files and logs for the tests of TLS and SASL.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's own failures")]

pub(crate) mod broker;
#[path = "../log/mod.rs"]
pub(crate) mod log;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// A folder that goes away with the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sharegroup-security-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, contents).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// The path of a file in testdata/tls.
pub(crate) fn fixture(name: &str) -> String {
    format!("{}/testdata/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn fixture_text(name: &str) -> String {
    std::fs::read_to_string(fixture(name)).unwrap()
}

/// Signs certificates.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// For `localhost` and 127.0.0.1.
    pub(crate) fn server(&self) -> Pair {
        self.server_for(&["localhost", "127.0.0.1"])
    }

    pub(crate) fn server_for(&self, names: &[&str]) -> Pair {
        self.sign(names, "server", KeyPair::generate().unwrap(), |_| {})
    }

    pub(crate) fn expired_server(&self) -> Pair {
        let names = ["localhost", "127.0.0.1"];
        self.sign(&names, "server", KeyPair::generate().unwrap(), |params| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        })
    }

    pub(crate) fn not_yet_valid_server(&self) -> Pair {
        let names = ["localhost", "127.0.0.1"];
        self.sign(&names, "server", KeyPair::generate().unwrap(), |params| {
            params.not_before = date_time_ymd(3000, 1, 1);
            params.not_after = date_time_ymd(3001, 1, 1);
        })
    }

    /// A self-signed certificate of an authority, used by a server, as `openssl req -x509` makes it.
    pub(crate) fn own(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        Pair {
            certificate: params.self_signed(&key).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    pub(crate) fn client(&self, name: &str) -> Pair {
        self.client_with(name, KeyPair::generate().unwrap())
    }

    pub(crate) fn client_with(&self, name: &str, key: KeyPair) -> Pair {
        self.sign(&[], name, key, |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    }

    fn sign(
        &self,
        names: &[&str],
        common_name: &str,
        key: KeyPair,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        change(&mut params);
        Pair {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}
