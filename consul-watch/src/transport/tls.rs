//! TLS towards Consul: certificate files, and which servers are accepted.
//!
//! With authorities of the configuration's own, a server is accepted as Go does: a chain to
//! one of them, or a certificate that is itself listed. The latter is what
//! `openssl req -x509` makes: signed by itself and marked as an authority, which the Web PKI
//! refuses as a server's. Without them the platform's verifier decides.
//!
//! Source: Go 1.22 `crypto/x509` (`Certificate.Verify`: "if opts.Roots.contains(c)").

use std::{path::Path, sync::Arc, time::Duration};

use reqwest::ClientBuilder;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _, public_key::PublicKey};

use crate::{Error, Result, config::TlsConfig, error_chain};

/// Bits of the smallest RSA key that is accepted, as in browsers.
const LEAST_RSA_BITS: usize = 2048;

/// The builder with the TLS settings.
///
/// # Errors
///
/// [`Error::Config`] for files that cannot be used.
pub(super) fn configure(builder: ClientBuilder, tls: &TlsConfig) -> Result<ClientBuilder> {
    // Read without verification too: a file that is missing is an error, and not found out on the
    // day on which verification is switched on.
    let authorities = authorities(tls)?;
    let identity = Identity::read(tls)?;
    match authorities {
        Some(found) if tls.verify => {
            Ok(builder.tls_backend_preconfigured(own_authorities(found, identity)?))
        }
        _ => {
            let builder = match identity {
                Some(identity) => builder.identity(identity.for_reqwest()?),
                None => builder,
            };
            Ok(if tls.verify { builder } else { builder.tls_danger_accept_invalid_certs(true) })
        }
    }
}

/// The authorities of the configuration, and the setting that they come from.
struct Authorities {
    setting: &'static str,
    certificates: Vec<CertificateDer<'static>>,
}

fn authorities(tls: &TlsConfig) -> Result<Option<Authorities>> {
    if let Some(pem) = &tls.ca_pem {
        let setting = "ca_pem";
        let certificates = certificates(setting, "the PEM text", pem.as_bytes())?;
        return Ok(Some(Authorities { setting, certificates }));
    }
    if let Some(file) = &tls.ca_file {
        let setting = "CONSUL_CACERT";
        let certificates = read_certificates(setting, file)?;
        return Ok(Some(Authorities { setting, certificates }));
    }
    if let Some(folder) = &tls.ca_path {
        let (setting, certificates) = ("CONSUL_CAPATH", read_folder(folder)?);
        return Ok(Some(Authorities { setting, certificates }));
    }
    Ok(None)
}

/// The certificate that this client shows, and its key.
struct Identity {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Identity {
    fn read(tls: &TlsConfig) -> Result<Option<Self>> {
        match (&tls.client_cert, &tls.client_key) {
            (Some(certificate), Some(key)) => Ok(Some(Self {
                certificate: read("CONSUL_CLIENT_CERT", certificate)?,
                key: read("CONSUL_CLIENT_KEY", key)?,
            })),
            (None, None) => Ok(None),
            _ => Err(Error::config("tls", "both client cert and client key must be provided")),
        }
    }

    fn for_reqwest(&self) -> Result<reqwest::Identity> {
        let pem = [&self.key[..], b"\n", &self.certificate].concat();
        reqwest::Identity::from_pem(&pem)
            .map_err(|error| Error::config("CONSUL_CLIENT_CERT", error_chain(&error)))
    }

    fn chain(&self) -> Result<Vec<CertificateDer<'static>>> {
        certificates("CONSUL_CLIENT_CERT", "the file", &self.certificate)
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>> {
        PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| Error::config("CONSUL_CLIENT_KEY", error.to_string()))
    }
}

fn own_authorities(found: Authorities, identity: Option<Identity>) -> Result<ClientConfig> {
    let Authorities { setting, certificates } = found;
    let provider = CryptoProvider::get_default()
        .map_or_else(|| Arc::new(aws_lc_rs::default_provider()), Arc::clone);
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots
            .add(certificate.clone())
            .map_err(|error| Error::config(setting, error.to_string()))?;
    }
    let chains =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| Error::config(setting, error.to_string()))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::config("tls", error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { chains, listed: certificates }));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let shown = identity.chain()?;
            // The error of rustls does not name the size of the key.
            let weak = shown.first().and_then(weak_key);
            builder.with_client_auth_cert(shown, identity.key()?).map_err(|error| {
                let problem = weak.unwrap_or_else(|| error.to_string());
                Error::config("CONSUL_CLIENT_CERT", problem)
            })?
        }
    };
    // A preconfigured TLS set-up is used as it is: reqwest does not add its own protocols.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Accepts what chains to a listed authority, and what is listed itself.
#[derive(Debug)]
struct Verifier {
    chains: Arc<WebPkiServerVerifier>,
    listed: Vec<CertificateDer<'static>>,
}

impl Verifier {
    /// Checks a certificate that is listed itself: nobody vouches for it but the list.
    fn verify_listed(
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        // Parsing refuses critical extensions that nobody here knows, as Go does.
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        let (_rest, parsed) = X509Certificate::from_der(certificate)
            .map_err(|_malformed| CertificateError::BadEncoding)?;
        let moment = |seconds: i64| {
            UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
        };
        let not_before = moment(parsed.validity().not_before.timestamp());
        let not_after = moment(parsed.validity().not_after.timestamp());
        if now < not_before {
            return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
        }
        if now > not_after {
            return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
        }
        let usage = parsed
            .extended_key_usage()
            .map_err(|_malformed| CertificateError::BadEncoding)?
            .is_none_or(|usage| usage.value.any || usage.value.server_auth);
        if usage { Ok(()) } else { Err(CertificateError::InvalidPurpose.into()) }
    }

    /// The presented certificates, and those of the list that could have issued one of them.
    fn weak_key_of(&self, presented: &[&CertificateDer<'_>]) -> Option<String> {
        let issuers: Vec<Vec<u8>> = presented
            .iter()
            .filter_map(|one| X509Certificate::from_der(one).ok())
            .map(|(_rest, parsed)| parsed.issuer().as_raw().to_vec())
            .collect();
        let may_issue = |listed: &&CertificateDer<'_>| {
            X509Certificate::from_der(listed).is_ok_and(|(_rest, parsed)| {
                issuers.iter().any(|issuer| issuer == parsed.subject().as_raw())
            })
        };
        presented
            .iter()
            .copied()
            .find_map(weak_key)
            .or_else(|| self.listed.iter().filter(may_issue).find_map(weak_key))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // Its key signs the handshake, and would fail there without saying why.
        if let Some(problem) = weak_key(end_entity) {
            return Err(refused(problem));
        }
        let chained = self.chains.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        let Err(error) = chained else { return chained };
        // Compared byte by byte, as in Go: a certificate of the same name is another one.
        if self.listed.iter().any(|listed| listed == end_entity) {
            Self::verify_listed(end_entity, server_name, now)?;
            return Ok(ServerCertVerified::assertion());
        }
        let presented: Vec<_> = std::iter::once(end_entity).chain(intermediates).collect();
        Err(self.weak_key_of(&presented).map_or(error, refused))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

fn refused(problem: String) -> rustls::Error {
    rustls::Error::Other(OtherError(Arc::from(crate::BoxError::from(problem))))
}

/// Describes the RSA key that is too small, if the certificate has such a one.
fn weak_key(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_rest, parsed) = X509Certificate::from_der(certificate).ok()?;
    let Ok(PublicKey::RSA(key)) = parsed.public_key().parsed() else { return None };
    let modulus = key.modulus;
    // DER puts a zero before a number whose highest bit is set (X.690, 8.3).
    let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    let first = modulus.get(zeros).map_or(0, |byte| byte.leading_zeros() as usize);
    let bits = (modulus.len() - zeros) * 8 - first;
    (bits < LEAST_RSA_BITS).then(|| {
        format!(
            "the certificate of {:?} has an RSA key of {bits} bits, at least {LEAST_RSA_BITS} are \
             needed: make it again with a larger key",
            parsed.subject().to_string()
        )
    })
}

fn read(setting: &str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| Error::config(setting, format!("cannot read {}: {error}", path.display())))
}

fn read_certificates(setting: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    certificates(setting, &path.display().to_string(), &read(setting, path)?)
}

/// The certificates in PEM text; `origin` names it in errors.
fn certificates(setting: &str, origin: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| Error::config(setting, format!("{origin}: {error}")))?;
    if found.is_empty() {
        return Err(Error::config(setting, format!("{origin} holds no certificate")));
    }
    Ok(found)
}

fn read_folder(folder: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let setting = "CONSUL_CAPATH";
    let problem =
        |error: std::io::Error| Error::config(setting, format!("{}: {error}", folder.display()));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(problem)? {
        let path = entry.map_err(problem)?.path();
        if path.is_file() {
            found.extend(read_certificates(setting, &path)?);
        }
    }
    if found.is_empty() {
        return Err(Error::config(setting, format!("{} holds no certificate", folder.display())));
    }
    Ok(found)
}
