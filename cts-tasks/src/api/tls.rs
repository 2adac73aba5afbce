//! TLS of the API.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{
            CertificateDer, PrivateKeyDer,
            pem::{self, PemObject},
        },
        server::WebPkiClientVerifier,
    },
};

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
        let roots = Arc::new(authorities(tls)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
        let at = tls.ca_cert.as_ref().or(tls.ca_path.as_ref()).unwrap_or(&tls.cert);
        builder.with_client_cert_verifier(verifier.map_err(|error| Unusable::new(at, error))?)
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        Unusable::new(&tls.key, format!("not the key of the certificate: {error}"))
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Who signs the certificates of clients.
fn authorities(tls: &ApiTls) -> Result<RootCertStore, Unusable> {
    let files = match (&tls.ca_cert, &tls.ca_path) {
        (Some(file), _) => vec![file.clone()],
        (None, Some(folder)) => files_in(folder)?,
        (None, None) => Vec::new(),
    };
    let mut roots = RootCertStore::empty();
    for file in files {
        for certificate in certificates(&file)? {
            roots.add(certificate).map_err(|error| Unusable::new(&file, error))?;
        }
    }
    Ok(roots)
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>, Unusable> {
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
