//! TLS of the API: its certificate, and which clients' certificates it takes.
//!
//! A client is accepted as Go does: a chain to one of the configured authorities, or a
//! certificate that is itself among them. The latter is what `openssl req -x509` makes:
//! signed by itself and marked as an authority, which the Web PKI refuses as a client's.
//!
//! Source: Go 1.22 `crypto/x509` (`Certificate.Verify`: "if opts.Roots.contains(c)").

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore,
        ServerConfig, SignatureScheme,
        client::danger::HandshakeSignatureValid,
        crypto::aws_lc_rs,
        pki_types::{
            CertificateDer, PrivateKeyDer, UnixTime,
            pem::{self, PemObject},
        },
        server::{
            ParsedCertificate, WebPkiClientVerifier,
            danger::{ClientCertVerified, ClientCertVerifier},
        },
    },
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use crate::config::ApiTls;

/// Why a server's TLS cannot be set up: which file, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub(crate) struct Unusable {
    path: PathBuf,
    problem: String,
}

impl Unusable {
    fn new(path: &Path, problem: impl std::fmt::Display) -> Self {
        Self { path: path.to_owned(), problem: problem.to_string() }
    }

    /// The file, or the directory of files, that is no good.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Reads certificates and key, and checks that they belong together.
pub(crate) fn acceptor(tls: &ApiTls) -> Result<TlsAcceptor, Unusable> {
    let chain = certificates(&tls.cert)?;
    let key = PrivateKeyDer::from_pem_file(&tls.key)
        .map_err(|error| Unusable::new(&tls.key, invalid(&error)))?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Unusable::new(&tls.cert, error))?;
    let builder = if tls.verify_incoming {
        let (roots, listed) = authorities(tls)?;
        let chains = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let at = tls.ca_cert.as_ref().or(tls.ca_path.as_ref()).unwrap_or(&tls.cert);
        let chains = chains.map_err(|error| Unusable::new(at, error))?;
        builder.with_client_cert_verifier(Arc::new(Verifier { chains, listed }))
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        Unusable::new(&tls.key, format!("not the key of the certificate: {error}"))
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts clients whose certificate chains to a listed authority, or is listed itself.
#[derive(Debug)]
struct Verifier {
    chains: Arc<dyn ClientCertVerifier>,
    listed: Vec<CertificateDer<'static>>,
}

impl Verifier {
    /// Checks a certificate that is listed itself: nobody vouches for it but the list.
    fn verify_listed(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), rustls::Error> {
        // Parsing refuses critical extensions that nobody here knows, as Go does.
        ParsedCertificate::try_from(certificate)?;
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
            .is_none_or(|usage| usage.value.any || usage.value.client_auth);
        if usage { Ok(()) } else { Err(CertificateError::InvalidPurpose.into()) }
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chains.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let chained = self.chains.verify_client_cert(end_entity, intermediates, now);
        if chained.is_ok() || !self.listed.iter().any(|listed| listed == end_entity) {
            return chained;
        }
        Self::verify_listed(end_entity, now)?;
        Ok(ClientCertVerified::assertion())
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

/// The authorities that sign the certificates of clients, as a store and as they are listed.
fn authorities(tls: &ApiTls) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), Unusable> {
    let files = match (&tls.ca_cert, &tls.ca_path) {
        (Some(file), _) => vec![file.clone()],
        (None, Some(folder)) => files_in(folder)?,
        (None, None) => Vec::new(),
    };
    let (mut roots, mut listed) = (RootCertStore::empty(), Vec::new());
    for file in files {
        for certificate in certificates(&file)? {
            roots.add(certificate.clone()).map_err(|error| Unusable::new(&file, error))?;
            listed.push(certificate);
        }
    }
    Ok((roots, listed))
}

pub(super) fn files_in(folder: &Path) -> Result<Vec<PathBuf>, Unusable> {
    let unreadable = |error| Unusable::new(folder, format!("cannot be read: {error}"));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| Unusable::new(path, invalid(&error)))?;
    if found.is_empty() {
        return Err(Unusable::new(path, "no certificate in PEM"));
    }
    Ok(found)
}

fn invalid(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => {
            "not valid PEM: its end marker is missing".to_owned()
        }
        pem::Error::IllegalSectionStart { .. } => {
            "not valid PEM: a begin marker is broken".to_owned()
        }
        pem::Error::Base64Decode(_) => "not valid PEM: it is not base64".to_owned(),
        pem::Error::Io(error) => format!("cannot be read: {error}"),
        pem::Error::NoItemsFound => "it holds nothing of what is expected in PEM".to_owned(),
        other => format!("not valid PEM: {other}"),
    }
}
