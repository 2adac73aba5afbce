//! The HTTP API, version 1: health, status, and tasks.
//!
//! Source: Consul-Terraform-Sync 0.9, `api`.

mod access;
mod answer;
mod certificates;
mod connections;
mod create;
mod document;
mod events;
mod every_request;
mod inputs;
mod limits;
mod listener;
mod metrics;
mod pace;
mod pages;
mod patch;
mod plans;
mod request;
mod roster;
mod routes;
mod schema;
mod status;
mod tasks;
mod tls;
mod token;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use axum::{Router, middleware};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use access::Access;
use certificates::Certificates;
pub(crate) use every_request::request_id;
#[cfg(feature = "ui")]
pub(crate) use inputs::document as inputs_document;
pub use metrics::Exposition;
pub use pages::Pages;
#[cfg(feature = "ui")]
pub(crate) use pages::{PageContext, TokenSource};
use routes::Routes;
pub(crate) use tls::acceptor;
use token::TokenFile;

use crate::{
    Cluster, Engine, Error, Result, Stop,
    config::{ApiTls, TaskRules},
};

/// Answered also by a follower, or without a token.
const HEALTH: &str = "/v1/health";
const CLUSTER: &str = "/v1/status/cluster";

/// Serves the HTTP API of one engine.
///
/// | bound | value |
/// |---|---|
/// | time of a request's head, or of a TLS handshake | 5 s |
/// | time of a request's body | 15 s |
/// | time of a connection without a request | 1 min |
/// | head, body | 64 KiB, 4 MiB |
/// | connections | a quarter of the process's soft limit of descriptors, at most 1024; half of them for one client |
/// | clients that follow events | 64 |
/// | requests answered at once | 256, of which 64 may change something; those for the health beyond that |
///
/// Where there are too many connections, the one that has kept the server waiting
/// longest for a request is closed for a new one.
#[derive(Debug)]
pub struct ApiServer {
    listener: TcpListener,
    tls: Option<Tls>,
    state: ApiState,
}

#[derive(Clone)]
struct Tls {
    certificates: Arc<Certificates>,
    /// `true` if clients have to show a certificate.
    mutual: bool,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("mutual", &self.mutual).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ApiState {
    engine: Engine,
    cluster: Arc<dyn Cluster>,
    rules: Option<TaskRules>,
    token: Option<TokenFile>,
    access: Access,
    exposition: Option<Exposition>,
    /// `true` if this instance serves https, and therefore expects the others of
    /// its cluster to do so, too.
    https: bool,
    /// Port that it listens on.
    port: u16,
    pages: Option<Pages>,
    requests: Arc<Semaphore>,
    /// For those who follow events.
    streams: Arc<Semaphore>,
    /// Ends their streams.
    stopping: CancellationToken,
    writes: Arc<Semaphore>,
}

impl ApiServer {
    /// Takes an address; nothing is answered before [`ApiServer::serve`].
    ///
    /// # Errors
    ///
    /// [`Error::Other`] when the address is not available, with the address in it.
    #[expect(clippy::unused_async, reason = "a socket needs a running runtime")]
    pub async fn bind(
        address: SocketAddr,
        engine: Engine,
        cluster: Arc<dyn Cluster>,
    ) -> Result<Self> {
        let listener = listener::at(address);
        Self::on(listener, &address.to_string(), engine, cluster)
    }

    /// Takes a port on every interface, for IPv6 and IPv4.
    ///
    /// # Errors
    ///
    /// As [`ApiServer::bind`].
    #[expect(clippy::unused_async, reason = "a socket needs a running runtime")]
    pub async fn bind_everywhere(
        port: u16,
        engine: Engine,
        cluster: Arc<dyn Cluster>,
    ) -> Result<Self> {
        Self::on(listener::everywhere(port), &format!("port {port}"), engine, cluster)
    }

    fn on(
        listener: std::io::Result<TcpListener>,
        what: &str,
        engine: Engine,
        cluster: Arc<dyn Cluster>,
    ) -> Result<Self> {
        let listener = listener.map_err(|source| {
            failed(format!("cannot listen on {what} (the setting `port`): {source}"))
        })?;
        let state = ApiState {
            engine,
            cluster,
            rules: None,
            token: None,
            access: Access::of_machine(),
            exposition: None,
            https: false,
            pages: None,
            port: listener.local_addr().map_err(failed)?.port(),
            requests: Arc::new(Semaphore::new(limits::REQUESTS)),
            streams: Arc::new(Semaphore::new(limits::STREAMS)),
            stopping: CancellationToken::new(),
            writes: Arc::new(Semaphore::new(limits::WRITES)),
        };
        Ok(Self { listener, tls: None, state })
    }

    /// Lets tasks be created that pass `rules`; without rules there is no such request.
    #[must_use]
    pub fn accept_tasks(mut self, rules: TaskRules) -> Self {
        self.state.rules = Some(rules);
        self
    }

    /// Serves https, and with `verify_incoming` only to clients with a certificate. The files are
    /// read again when they change; while what they hold cannot be used, such as a new certificate
    /// without its key, the old ones serve on.
    ///
    /// # Errors
    ///
    /// [`Error::Other`] with the file that cannot be used.
    pub fn with_tls(mut self, tls: &ApiTls) -> Result<Self> {
        let certificates = Arc::new(Certificates::open(tls).map_err(failed)?);
        self.tls = Some(Tls { certificates, mutual: tls.verify_incoming });
        self.state.access.any_host = true;
        self.state.https = true;
        Ok(self)
    }

    /// Answers only who bears the token in this file, except about the
    /// health. The file is read again for each request.
    ///
    /// # Errors
    ///
    /// [`Error::Other`] when there is no token in the file now.
    pub async fn with_token_file(mut self, path: PathBuf) -> Result<Self> {
        let file = TokenFile::new(path.clone());
        file.read().await.map_err(|error| {
            failed(format!("cannot read a token from {} (api_token_file): {error}", path.display()))
        })?;
        self.state.token = Some(file);
        self.state.access.any_host = true;
        Ok(self)
    }

    /// Also answers requests that address it by these names, with or without a port.
    ///
    /// Without a token and without TLS a request has to name an IP address, `localhost`,
    /// this machine's name, or one of these: otherwise a web page whose name resolves
    /// to this server could use it from an operator's browser.
    #[must_use]
    pub fn with_hosts(mut self, hosts: impl IntoIterator<Item = String>) -> Self {
        self.state.access.add_hosts(hosts);
        self
    }

    /// Lets web pages of these origins use it, each as `https://host:port`; `*` stands
    /// for all. By default pages of no other origin may.
    #[must_use]
    pub fn with_cors_origins(mut self, origins: impl IntoIterator<Item = String>) -> Self {
        self.state.access.add_origins(origins);
        self
    }

    /// Serves pages for a browser below `/ui/`.
    ///
    /// Unlike the API they are shown only under a name that this server knows, also over TLS
    /// and with a token: see [`ApiServer::with_hosts`].
    #[must_use]
    pub fn with_pages(mut self, pages: Pages) -> Self {
        self.state.pages = Some(pages);
        self
    }

    /// Serves the metrics of the process at `/metrics`.
    #[must_use]
    pub fn with_metrics(mut self, exposition: Exposition) -> Self {
        self.state.exposition = Some(exposition);
        self
    }

    /// Returns the address that it listens on, with the port that was given out for
    /// port 0.
    ///
    /// # Errors
    ///
    /// [`Error::Other`] when the system does not say.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(failed)
    }

    /// Answers until the stop, and then for up to 5 seconds what is under way.
    ///
    /// # Errors
    ///
    /// None today; a failure of one connection is not one of the server.
    pub async fn serve(self, stop: Stop) -> Result<()> {
        self.warn();
        let certificates = self.tls.map(|tls| tls.certificates);
        let (stopping, stopped) = (self.state.stopping.clone(), stop.clone());
        let ending = tokio::spawn(async move {
            stopped.stopped().await;
            stopping.cancel();
        });
        connections::serve(self.listener, router(self.state), certificates, &stop).await;
        ending.abort();
        Ok(())
    }

    /// Warns about clients that can do what they perhaps should not.
    fn warn(&self) {
        let local = self.local_addr().is_ok_and(|address| address.ip().is_loopback());
        let mutual = self.tls.as_ref().is_some_and(|tls| tls.mutual);
        if local || mutual {
            return;
        }
        if self.state.token.is_none() {
            tracing::warn!(
                "whoever reaches the port of the API can change tasks: set api_token_file, \
                 or verify_incoming in the tls block"
            );
        } else if self.tls.is_none() {
            tracing::warn!(
                "the API takes its token over connections that anyone on their way can read: \
                 configure the tls block"
            );
        }
    }
}

fn failed(problem: impl Into<crate::BoxError>) -> Error {
    Error::Other { operation: "serving the API", retryable: false, source: problem.into() }
}

fn router(state: ApiState) -> Router {
    let pages = state.pages.as_ref().map(|pages| pages.make(routes::page_context(&state)));
    Routes::of(&state)
        .into_router()
        .merge(pages.unwrap_or_default().with_state(()))
        .layer(middleware::from_fn_with_state(state.clone(), every_request::only_leader))
        .layer(middleware::from_fn(request::only_json))
        .layer(middleware::from_fn_with_state(state.clone(), request::only_so_many))
        .layer(middleware::from_fn_with_state(state.clone(), token::authorize))
        .layer(middleware::from_fn_with_state(state.clone(), access::keep_pages_away))
        .layer(CatchPanicLayer::custom(every_request::panicked))
        .layer(middleware::from_fn(every_request::identify))
        .with_state(state)
}
