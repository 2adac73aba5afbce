//! The probe of the gRPC port over TLS.

use std::net::{IpAddr, SocketAddr};

use reqwest::{Certificate, Client, redirect::Policy};

use super::question::{LIMIT, judge, question, server_name};
use crate::{Error, Result, config::TlsSettings};

/// TLS settings that all servers share.
pub(super) struct OverTls {
    tls: TlsSettings,
    authorities: Option<Vec<Certificate>>,
}

impl OverTls {
    /// Reads the authority.
    ///
    /// # Errors
    ///
    /// [`Error::File`] and [`Error::Input`] for an unusable authority.
    pub(super) async fn new(tls: &TlsSettings, ca_pem: Option<&str>) -> Result<Self> {
        Ok(Self { tls: tls.clone(), authorities: authorities(tls, ca_pem).await? })
    }

    /// Asks one server; the error describes the obstacle.
    pub(super) async fn ask(&self, address: &str, port: u16) -> Result<(), String> {
        let chain = |error: reqwest::Error| consul_watch::error_chain(&error.without_url());
        let mut builder = Client::builder()
            // No proxy and no redirect: the question is whether this server answers.
            .no_proxy()
            .redirect(Policy::none())
            .connect_timeout(LIMIT)
            .timeout(LIMIT)
            // gRPC needs HTTP/2, which Consul's servers do not offer by ALPN.
            .http2_prior_knowledge();
        if let Some(authorities) = &self.authorities {
            builder = builder.tls_certs_only(authorities.clone());
        }
        let mut host = match address.parse::<IpAddr>() {
            Ok(IpAddr::V6(_)) => format!("[{address}]"),
            _ => address.to_owned(),
        };
        // The URL carries the certificate's name, and resolves to this server alone: TLS then
        // verifies the name while the connection goes to the address.
        if let Some(name) = server_name(&self.tls) {
            let found = tokio::net::lookup_host((address, port)).await;
            let found: Vec<SocketAddr> = found.map_err(|error| error.to_string())?.collect();
            builder = builder.resolve_to_addrs(name, &found);
            name.clone_into(&mut host);
        }
        let request = question(&format!("https://{host}:{port}"))?;
        let request = reqwest::Request::try_from(request).map_err(chain)?;
        let answer = builder.build().map_err(chain)?.execute(request).await.map_err(chain)?;
        judge(answer.status(), answer.headers())
    }
}

/// Reads the PEM text of the configured authority, with its origin for messages; `None` for the
/// system's.
pub(in crate::mesh_init) async fn authority(
    tls: &TlsSettings,
    ca_pem: Option<&str>,
) -> Result<Option<(String, Vec<u8>)>> {
    match ca_pem {
        _ if !tls.enabled => Ok(None),
        Some(pem) => Ok(Some(("CONSUL_GRPC_CACERT_PEM".to_owned(), pem.as_bytes().to_vec()))),
        None if tls.ca_cert_file.is_empty() => Ok(None),
        None => {
            let file = &tls.ca_cert_file;
            let read = tokio::fs::read(file).await;
            Ok(Some((file.clone(), read.map_err(|error| Error::file("reading", file, error))?)))
        }
    }
}

/// Parses the authorities to accept; `None` for the system's.
async fn authorities(tls: &TlsSettings, ca_pem: Option<&str>) -> Result<Option<Vec<Certificate>>> {
    let Some((origin, pem)) = authority(tls, ca_pem).await? else { return Ok(None) };
    let found = Certificate::from_pem_bundle(&pem).map_err(|error| {
        Error::input(format!("{origin}: {}", consul_watch::error_chain(&error)))
    })?;
    if found.is_empty() {
        return Err(Error::input(format!("{origin} holds no certificate in PEM form")));
    }
    Ok(Some(found))
}
