//! The block `tls`: certificates of the API.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    client::non_empty,
    decode::{Findings, Spanned},
    environment::Environment,
    raw::RawApiTls,
};

/// TLS of the HTTP API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiTls {
    /// The server's certificate chain, in PEM.
    pub cert: PathBuf,
    /// The certificate's key, in PEM.
    pub key: PathBuf,
    /// `true` if clients must present a certificate; default false.
    pub verify_incoming: bool,
    /// Bundle of authorities for client certificates.
    pub ca_cert: Option<PathBuf>,
    /// Directory of authorities for client certificates; `ca_cert` wins.
    pub ca_path: Option<PathBuf>,
}

/// Checks the block; `None` if TLS is off.
///
/// Source: Consul-Terraform-Sync 0.9.0 `config/tls_cts.go`.
pub(super) fn finalize(
    raw: Option<&RawApiTls>,
    environment: &Environment,
    findings: &mut Findings,
) -> Option<ApiTls> {
    let raw = raw?;
    let path = |configured: &Option<Spanned<String>>| {
        non_empty(configured.as_ref()).map(|path| environment.resolve(&path))
    };
    let given = raw.verify_incoming.is_some()
        || [&raw.cert, &raw.key, &raw.ca_cert, &raw.ca_path].into_iter().any(Option::is_some);
    let enabled = raw.enabled.as_ref().map_or(given, |enabled| enabled.value);
    let verify_incoming = raw.verify_incoming.as_ref().is_some_and(|verify| verify.value);
    let (ca_cert, ca_path) = (path(&raw.ca_cert), path(&raw.ca_path));
    if !enabled || !raw.invalid.is_empty() {
        return None;
    }
    if verify_incoming && ca_cert.is_none() && ca_path.is_none() {
        findings.error_help(
            "either ca_cert or ca_path is required if verify_incoming is enabled on the CTS API",
            raw.place.clone(),
            "name the authorities that sign the clients' certificates",
        );
    }
    if ca_cert.is_some()
        && let (Some(_), Some(directory)) = (&ca_path, &raw.ca_path)
    {
        findings.warn(
            "tls: both ca_cert and ca_path are configured",
            directory.place.clone(),
            "ca_cert is used; remove one of them",
        );
    }
    let (cert, key) = key_pair(raw, path(&raw.cert), path(&raw.key), findings)?;
    let tls = ApiTls { cert, key, verify_incoming, ca_cert, ca_path };
    #[cfg(feature = "api")]
    if !verify_incoming || tls.ca_cert.is_some() || tls.ca_path.is_some() {
        check_loading(&tls, raw, findings);
    }
    Some(tls)
}

fn key_pair(
    raw: &RawApiTls,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    findings: &mut Findings,
) -> Option<(PathBuf, PathBuf)> {
    let with_cert = cert.is_some();
    let (Some(cert), Some(key)) = (cert, key) else {
        let message = if with_cert {
            "key is required if cert is configured for TLS on the CTS API"
        } else {
            "key and cert are required if TLS is enabled on the CTS API"
        };
        findings.error_help(
            message,
            raw.place.clone(),
            "set cert and key to files in PEM, or enabled = false",
        );
        return None;
    };
    let readable = check_pem(&cert, "CERTIFICATE", raw.cert.as_ref(), findings)
        & check_pem(&key, "PRIVATE KEY", raw.key.as_ref(), findings);
    readable.then_some((cert, key))
}

/// Loads everything as the API does: the key must be the certificate's, say.
#[cfg(feature = "api")]
fn check_loading(tls: &ApiTls, raw: &RawApiTls, findings: &mut Findings) {
    if let Err(unusable) = crate::api::acceptor(tls) {
        let path = unusable.path();
        let named = [
            (path == tls.key, &raw.key),
            (path == tls.cert, &raw.cert),
            (tls.ca_cert.as_deref() == Some(path), &raw.ca_cert),
            (tls.ca_path.as_deref().is_some_and(|folder| path.starts_with(folder)), &raw.ca_path),
        ];
        let named = named.into_iter().find_map(|(is, key)| key.as_ref().filter(|_| is));
        findings.error_help(
            format!("unable to load {unusable}"),
            named.and_then(|key| key.place.clone()).or_else(|| raw.place.clone()),
            "cert, key, ca_cert and the files in ca_path must be PEM, and key that of cert",
        );
    }
}

/// Checks that the file holds PEM of the kind `kind`, and reports what it finds.
fn check_pem(
    path: &Path,
    kind: &str,
    configured: Option<&Spanned<String>>,
    findings: &mut Findings,
) -> bool {
    let place = configured.and_then(|configured| configured.place.clone());
    match fs::read(path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let found =
                text.lines().any(|line| line.starts_with("-----BEGIN ") && line.contains(kind));
            if !found {
                findings.error_help(
                    format!("unable to load {}: no {kind} in PEM", path.display()),
                    place,
                    format!("the file needs a line -----BEGIN {kind}-----"),
                );
            }
            found
        }
        Err(error) => {
            findings.error_help(
                format!("unable to load {}: {error}", path.display()),
                place,
                "the certificate and the key of the CTS API must be readable at start",
            );
            false
        }
    }
}
