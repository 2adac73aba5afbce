//! The platform over sockets: connection pool, TLS settings, limits in time.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use reqwest::{
    Certificate, Identity,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect,
};

use crate::{Error, ExchangeError, Platform, Result, hostname::Hostname};

const CONNECT: Duration = Duration::from_secs(30);
/// Limit of a whole exchange: no call of the API takes this long, and an upload goes on while it is
/// read.
const EXCHANGE: Duration = Duration::from_mins(5);
/// Time without a byte after which a connection is taken for dead.
const SILENCE: Duration = Duration::from_mins(1);

/// TLS settings towards the platform, for every call and for archives alike.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsOptions {
    /// `true` if certificates are checked; the default.
    pub verify: bool,
    /// Bundle of certificate authorities, in PEM; the system's by default.
    pub ca_cert: Option<PathBuf>,
    /// Directory of certificate authorities, in PEM; ignored if `ca_cert` is set.
    pub ca_path: Option<PathBuf>,
    /// Client certificate, in PEM; without a `key` the file holds both.
    pub cert: Option<PathBuf>,
    /// Private key of `cert`, in PEM.
    pub key: Option<PathBuf>,
    /// Name to check the platform's certificate against.
    pub server_name: Option<String>,
}

impl Default for TlsOptions {
    fn default() -> Self {
        Self {
            verify: true,
            ca_cert: None,
            ca_path: None,
            cert: None,
            key: None,
            server_name: None,
        }
    }
}

/// [`Platform`] over TCP and TLS.
///
/// Connections are pooled; the system's proxy settings apply, except to loopback addresses.
#[derive(Debug, Clone)]
pub struct HttpPlatform {
    api: reqwest::Client,
    /// Client for hosts other than the platform's.
    others: reqwest::Client,
    host: Hostname,
}

impl HttpPlatform {
    /// Reads certificates and sets up the pool; connects to nothing yet.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for TLS files that cannot be used.
    pub fn new(host: &Hostname, tls: &TlsOptions) -> Result<Self> {
        let others = builder(host, tls)?;
        let mut api = builder(host, tls)?;
        if let Some(name) = &tls.server_name {
            // TLS checks the name in the URL, which `exchange` replaces, while the connection goes
            // to the host. A proxy would resolve that name itself.
            let target = host.host().to_owned();
            api = api.no_proxy().dns_resolver(Redirected { name: name.clone(), target });
        }
        let host = match &tls.server_name {
            Some(name) => host.with_server_name(name)?,
            None => host.clone(),
        };
        Ok(Self { api: built(api)?, others: built(others)?, host })
    }
}

fn built(builder: reqwest::ClientBuilder) -> Result<reqwest::Client> {
    builder.build().map_err(|error| setting("tls", consul_watch::error_chain(&error)))
}

fn setting(setting: &'static str, problem: impl Into<String>) -> Error {
    Error::Setting { setting, problem: problem.into() }
}

/// Resolver that answers one name with the addresses of another host.
#[derive(Debug)]
struct Redirected {
    name: String,
    target: String,
}

impl Resolve for Redirected {
    fn resolve(&self, name: Name) -> Resolving {
        let host = if name.as_str() == self.name { &self.target } else { name.as_str() };
        // `lookup_host` takes IPv6 addresses without brackets.
        let host = host.trim_matches(['[', ']']).to_owned();
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                // The port is not known here; reqwest replaces 0 by that of the URL.
                tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn builder(host: &Hostname, tls: &TlsOptions) -> Result<reqwest::ClientBuilder> {
    let mut builder = reqwest::Client::builder()
        // A redirect would take the token along, or lose the body of a POST; the client follows
        // those it knows.
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT)
        .timeout(EXCHANGE)
        .read_timeout(SILENCE)
        .user_agent(concat!("cts-driver-tfc/", env!("CARGO_PKG_VERSION")));
    if host.is_loopback() {
        builder = builder.no_proxy();
    }
    if let Some(file) = &tls.ca_cert {
        // In place of the system's authorities, not in addition, as `ca_cert` means.
        builder = builder.tls_certs_only(certificates("tls.ca_cert", file)?);
    } else if let Some(folder) = &tls.ca_path {
        builder = builder.tls_certs_only(folder_of_certificates(folder)?);
    }
    if let Some(cert) = &tls.cert {
        let mut pem = match &tls.key {
            Some(key) => bytes_of("tls.key", key)?,
            None => Vec::new(),
        };
        // A file need not end with a line break, without which the two PEM blocks would run
        // together.
        pem.push(b'\n');
        pem.extend(bytes_of("tls.cert", cert)?);
        let identity = Identity::from_pem(&pem)
            .map_err(|error| setting("tls.cert", consul_watch::error_chain(&error)))?;
        builder = builder.identity(identity);
    } else if tls.key.is_some() {
        return Err(setting("tls.key", "a key needs its certificate: set tls.cert"));
    }
    if !tls.verify {
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    Ok(builder)
}

fn bytes_of(name: &'static str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| setting(name, format!("cannot read {}: {error}", path.display())))
}

fn certificates(name: &'static str, path: &Path) -> Result<Vec<Certificate>> {
    let found = Certificate::from_pem_bundle(&bytes_of(name, path)?).map_err(|error| {
        setting(name, format!("{}: {}", path.display(), consul_watch::error_chain(&error)))
    })?;
    if found.is_empty() {
        return Err(setting(name, format!("{} holds no certificate", path.display())));
    }
    Ok(found)
}

fn folder_of_certificates(folder: &Path) -> Result<Vec<Certificate>> {
    let name = "tls.ca_path";
    let problem = |error: std::io::Error| setting(name, format!("{}: {error}", folder.display()));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(problem)? {
        let path = entry.map_err(problem)?.path();
        // Folders like `/etc/ssl/certs` may hold folders and dead links.
        if path.is_file() {
            found.extend(certificates(name, &path)?);
        }
    }
    if found.is_empty() {
        return Err(setting(name, format!("{} holds no certificate", folder.display())));
    }
    Ok(found)
}

fn failed(error: reqwest::Error) -> ExchangeError {
    if error.is_timeout() {
        return ExchangeError::Timeout { after: EXCHANGE };
    }
    // The URL of an archive is a secret.
    ExchangeError::Failed { source: error.without_url().into() }
}

#[async_trait]
impl Platform for HttpPlatform {
    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ExchangeError> {
        // Archives can be at another host, which has its own name in its certificate.
        let to_api = request.uri().host() == Some(self.host.host());
        let client = if to_api { &self.api } else { &self.others };
        let (mut parts, body) = request.into_parts();
        if to_api {
            parts.uri = self.host.addressed(parts.uri);
        }
        let request =
            reqwest::Request::try_from(Request::from_parts(parts, body)).map_err(failed)?;
        let answer = client.execute(request).await.map_err(failed)?;
        // Whole: logs are asked for in pieces, and documents are short.
        let (status, headers) = (answer.status(), answer.headers().clone());
        let mut response = Response::new(answer.bytes().await.map_err(failed)?);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}
