//! Waiting for the servers' gRPC port, which consul-dataplane will need: whatever keeps mesh-init
//! from it would keep Envoy from its configuration, where nobody looks.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use reqwest::{Certificate, Client, header::CONTENT_TYPE, redirect::Policy};
use tokio_util::sync::CancellationToken;

use super::servers::{discover, transient, until_connected};
use crate::{
    Error, Result,
    config::{ServersConfig, TlsSettings},
};

/// Longest time for the connection, its TLS handshake and one answer.
const LIMIT: Duration = Duration::from_secs(5);
/// The standard method of health, without a message: a server that does not have it says so in gRPC.
const METHOD: &str = "/grpc.health.v1.Health/Check";
const NO_MESSAGE: [u8; 5] = [0; 5];

/// Waits until one of the servers answers gRPC, trying all addresses again and again. Each failure
/// is logged with its address and cause.
///
/// `ca_pem` is an authority's PEM text instead of the configured file.
///
/// # Errors
///
/// [`Error::File`] and [`Error::Input`] for an authority that cannot be used, [`Error::Input`] for
/// hosts that can never give an address, [`Error::Stopped`] when `stop` is cancelled.
///
/// Source: consul-server-connection-manager 0.1, which connects before consul-ecs does anything.
pub(super) async fn wait(
    servers: &ServersConfig,
    ca_pem: Option<&str>,
    stop: &CancellationToken,
) -> Result<()> {
    let tls = servers.grpc_tls();
    let authorities = if tls.enabled { authorities(&tls, ca_pem).await? } else { Some(Vec::new()) };
    let probe = &Probe { port: servers.grpc.port, tls, authorities };
    until_connected(stop, || async move {
        let mut last = None;
        for address in discover(&servers.hosts).await? {
            match probe.ask(&address).await {
                Ok(()) => return Ok(()),
                Err(problem) => {
                    last = Some(format!("gRPC at {}: {problem}", probe.shown(&address)));
                }
            }
        }
        Err(transient(last.unwrap_or_else(|| format!("{:?} gives no address", servers.hosts))))
    })
    .await
}

/// The PEM text of the configured authority, and where it is from; `None` for the system's.
pub(super) async fn authority(
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

/// The authorities to accept; `None` for the system's.
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

/// The name that a server's certificate has to be for; `None` for the address itself.
pub(super) fn server_name(tls: &TlsSettings) -> Option<&str> {
    let name = Some(tls.server_name.as_str()).filter(|_| tls.enabled)?;
    (!name.is_empty() && name.parse::<IpAddr>().is_err()).then_some(name)
}

/// Settings that all servers share.
struct Probe {
    port: u16,
    tls: TlsSettings,
    authorities: Option<Vec<Certificate>>,
}

impl Probe {
    fn shown(&self, address: &str) -> String {
        let port = self.port;
        let name = server_name(&self.tls);
        let expected = name.map(|name| format!(" (as {name})")).unwrap_or_default();
        if address.contains(':') {
            format!("[{address}]:{port}{expected}")
        } else {
            format!("{address}:{port}{expected}")
        }
    }

    async fn ask(&self, address: &str) -> Result<(), String> {
        let chain = |error: reqwest::Error| consul_watch::error_chain(&error.without_url());
        let mut builder = Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .connect_timeout(LIMIT)
            .timeout(LIMIT)
            .http2_prior_knowledge();
        if let Some(authorities) = &self.authorities {
            builder = builder.tls_certs_only(authorities.clone());
        }
        let mut host = match address.parse::<IpAddr>() {
            Ok(IpAddr::V6(_)) => format!("[{address}]"),
            _ => address.to_owned(),
        };
        if let Some(name) = server_name(&self.tls) {
            let found = tokio::net::lookup_host((address, self.port)).await;
            let found: Vec<SocketAddr> = found.map_err(|error| error.to_string())?.collect();
            builder = builder.resolve_to_addrs(name, &found);
            name.clone_into(&mut host);
        }
        let scheme = if self.tls.enabled { "https" } else { "http" };
        let request = builder
            .build()
            .map_err(chain)?
            .post(format!("{scheme}://{host}:{}{METHOD}", self.port))
            .header(CONTENT_TYPE, "application/grpc")
            .header("te", "trailers")
            .body(NO_MESSAGE.to_vec());
        let answer = request.send().await.map_err(chain)?;
        let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if kind.is_some_and(|kind| kind.starts_with("application/grpc")) {
            return Ok(());
        }
        Err(format!("what listens there does not speak gRPC: it answered {}", answer.status()))
    }
}
