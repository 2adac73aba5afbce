//! The certificates of a server, as programs give them and as TLS takes them: for
//! servers of clients, and between the nodes of a cluster.

use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use tokio_rustls::rustls::{
    self, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The certificates of a server, in PEM.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerTls {
    /// The server's certificate, followed by those between it and the root.
    pub certificate_pem: String,
    /// The server's key.
    pub key_pem: SecretString,
    /// The certificates that sign those of clients. With them, a client
    /// without a certificate is refused.
    pub client_ca_pem: Option<String>,
}

impl ServerTls {
    /// A certificate and its key; clients need none.
    pub fn new(certificate_pem: String, key_pem: SecretString) -> Self {
        Self { certificate_pem, key_pem, client_ca_pem: None }
    }
}

/// Builds what a listener needs to speak TLS.
///
/// # Errors
///
/// If a certificate or the key is malformed, or they do not belong together.
pub(crate) fn configuration(tls: &ServerTls) -> Result<rustls::ServerConfig, BoxError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = match &tls.client_ca_pem {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(pem, "that signs the clients'")? {
                roots.add(certificate)?;
            }
            let roots = Arc::new(roots);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier?)
        }
    };
    let key = PrivateKeyDer::from_pem_slice(tls.key_pem.expose_secret().as_bytes())
        .map_err(|_quotes_nothing| "the server's key is not valid PEM")?;
    let chain = certificates(&tls.certificate_pem, "of the server")?;
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(pem: &str, which: &str) -> Result<Vec<CertificateDer<'static>>, BoxError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let found = found.map_err(|error| format!("the certificate {which}: {error}"))?;
    if found.is_empty() {
        return Err(format!("there is no certificate {which} in the PEM").into());
    }
    Ok(found)
}
