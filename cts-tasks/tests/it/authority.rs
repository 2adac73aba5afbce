//! A certificate authority for tests, and what it signed, as files.

use std::{fs, path::PathBuf};

use cts_tasks::config::ApiTls;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

pub(crate) struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
pub(crate) struct Pair {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        fs::create_dir(folder.path().join("authorities")).unwrap();
        let authority = Self { folder, issuer: Issuer::new(params, key) };
        fs::write(authority.ca_file(), certificate.pem()).unwrap();
        authority
    }

    pub(crate) fn ca_path(&self) -> PathBuf {
        self.folder.path().join("authorities")
    }

    pub(crate) fn ca_file(&self) -> PathBuf {
        self.ca_path().join("ca.pem")
    }

    /// Writes a certificate that is an authority signed by itself, as `openssl req -x509`
    /// makes it.
    pub(crate) fn signed_by_itself(
        &self,
        file: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let certificate = params.self_signed(&key).unwrap();
        self.write(file, &certificate.pem(), &key)
    }

    /// Signs a certificate for these names or addresses.
    pub(crate) fn sign(&self, file: &str, names: &[&str]) -> Pair {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let certificate = CertificateParams::new(names).unwrap();
        let certificate = certificate.signed_by(&key, &self.issuer).unwrap();
        self.write(file, &certificate.pem(), &key)
    }

    fn write(&self, file: &str, certificate: &str, key: &KeyPair) -> Pair {
        let at = |ending: &str| self.folder.path().join(format!("{file}-{ending}.pem"));
        let pair = Pair { cert: at("cert"), key: at("key") };
        fs::write(&pair.cert, certificate).unwrap();
        fs::write(&pair.key, key.serialize_pem()).unwrap();
        pair
    }
}

/// The `tls` block of an API with this certificate.
pub(crate) fn tls(pair: &Pair, rest: &str) -> ApiTls {
    let (cert, key) = (pair.cert.display(), pair.key.display());
    let text = format!("tls {{\n cert = \"{cert}\"\n key = \"{key}\"\n{rest}\n}}");
    crate::config::support::load(&text).tls.unwrap()
}
