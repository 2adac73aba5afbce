//! TLS of a server, which may get other certificates while it runs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use secrecy::ExposeSecret as _;
use tokio_rustls::rustls::{
    self, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};

use super::{ServerError, ServerTls, accept::CurrentTls, set_up};

/// Replaces the certificates of a server while it runs. A clone is another
/// handle to the same server.
#[derive(Debug, Clone)]
pub struct TlsHandle {
    current: CurrentTls,
}

impl TlsHandle {
    pub(super) fn new(tls: &ServerTls) -> Result<Self, ServerError> {
        Ok(Self { current: Arc::new(ArcSwap::from_pointee(configuration(tls)?)) })
    }

    pub(super) fn current(&self) -> CurrentTls {
        Arc::clone(&self.current)
    }

    /// Serves connections from now on with these certificates. Those that there
    /// are go on.
    ///
    /// # Errors
    ///
    /// If a certificate or the key is malformed, or they do not belong
    /// together. What was there stays then.
    pub fn replace(&self, tls: &ServerTls) -> Result<(), ServerError> {
        self.current.store(Arc::new(configuration(tls)?));
        Ok(())
    }
}

/// What a listener needs to speak TLS.
pub(crate) fn configuration(tls: &ServerTls) -> Result<rustls::ServerConfig, ServerError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(set_up)?;
    let builder = match &tls.client_ca_pem {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(pem, "that signs the clients'")? {
                roots.add(certificate).map_err(set_up)?;
            }
            let roots = Arc::new(roots);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.map_err(set_up)?)
        }
    };
    let key = PrivateKeyDer::from_pem_slice(tls.key_pem.expose_secret().as_bytes())
        .map_err(|_quotes_nothing| set_up("the server's key is not valid PEM"))?;
    let chain = certificates(&tls.certificate_pem, "of the server")?;
    let mut config = builder.with_single_cert(chain, key).map_err(set_up)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(pem: &str, which: &str) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let found = found.map_err(|error| set_up(format!("the certificate {which}: {error}")))?;
    if found.is_empty() {
        return Err(set_up(format!("there is no certificate {which} in the PEM")));
    }
    Ok(found)
}
