//! TLS of connections to servers.

use secrecy::{ExposeSecret as _, SecretString};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// Trusts servers whose certificates `ca` signs, in PEM, and nobody without
/// one. They have the name `server_name`, or else the host of their address.
/// `identity` is the certificate to show, and its key, in PEM.
pub(crate) fn client_tls(
    ca: Option<&str>,
    server_name: Option<&str>,
    identity: Option<(&str, &SecretString)>,
) -> ClientTlsConfig {
    let mut tls = ClientTlsConfig::new();
    if let Some(ca) = ca {
        tls = tls.ca_certificate(Certificate::from_pem(ca));
    }
    if let Some(name) = server_name {
        tls = tls.domain_name(name);
    }
    if let Some((certificate, key)) = identity {
        tls = tls.identity(Identity::from_pem(certificate, key.expose_secret()));
    }
    tls
}
