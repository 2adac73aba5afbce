//! The service behind gRPC: a server that listens, with health and reflection.

mod accept;
mod admission;
mod config;
mod direct;
mod grpc;
mod health;
mod tls;

use std::{net::SocketAddr, sync::Arc};

pub use crate::server_tls::ServerTls;
pub use config::ServerConfig;
pub use grpc::GrpcService;
pub use tls::TlsHandle;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tonic::{service::Routes, transport::Server as TonicServer};

use self::{
    accept::{Acceptor, Limits},
    admission::{Admission, BodyMemory},
    direct::Direct,
};
use crate::{
    pb::{FILE_DESCRIPTOR_SET, resource_service_server::ResourceServiceServer},
    service::ResourceService,
};

/// A server cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address.
        address: String,
        /// Why not.
        source: std::io::Error,
    },
    /// Others could reach the server, and nothing keeps them from it.
    #[error(
        "refusing to listen at {address}, which others can reach, {reason}: allow it \
         explicitly if a proxy or the network takes care of that"
    )]
    Insecure {
        /// The address.
        address: SocketAddr,
        /// The protection that is missing.
        reason: &'static str,
    },
    /// Certificates or descriptors are malformed.
    #[error("cannot set the server up")]
    SetUp(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server failed while it ran.
    #[error("the server failed")]
    Serve(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Number of connections that may wait for the server to take them.
const READY: usize = 64;

fn set_up(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ServerError {
    ServerError::SetUp(error.into())
}

/// A server that listens.
///
/// gRPC with health checks and reflection, and with the feature `http` the
/// HTTP+JSON routes under `/api`, on one port.
#[derive(Debug)]
pub struct Server {
    service: ResourceService,
    config: ServerConfig,
    listener: TcpListener,
    tls: Option<TlsHandle>,
}

impl Server {
    /// Listens at `config.address`.
    ///
    /// # Errors
    ///
    /// [`ServerError::Listen`] if that address is taken or not ours;
    /// [`ServerError::Insecure`] if it is not this machine's own, as 127.0.0.1,
    /// and there is no TLS or everything is allowed to everybody, unless
    /// `config.allow_insecure`; [`ServerError::SetUp`] if the certificates are
    /// malformed.
    pub async fn bind(service: ResourceService, config: ServerConfig) -> Result<Self, ServerError> {
        let listener = accept::listen(&config.address)
            .await
            .map_err(|source| ServerError::Listen { address: config.address.clone(), source })?;
        let tls = config.tls.as_ref().map(TlsHandle::new).transpose()?;
        let reachable = |source| ServerError::Listen { address: config.address.clone(), source };
        let address = listener.local_addr().map_err(reachable)?;
        if !address.ip().is_loopback() && !config.allow_insecure {
            let reason = match (tls.is_some(), service.is_guarded()) {
                (true, true) => None,
                (false, _) => Some("without TLS"),
                (true, false) => Some("with everything allowed to everybody"),
            };
            if let Some(reason) = reason {
                return Err(ServerError::Insecure { address, reason });
            }
        }
        Ok(Self { service, config, listener, tls })
    }

    /// Gives what replaces the certificates while the server runs; none without
    /// TLS.
    pub fn tls_handle(&self) -> Option<TlsHandle> {
        self.tls.clone()
    }

    /// Returns the address that the server listens on.
    ///
    /// # Errors
    ///
    /// If the system cannot tell.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`. Then health checks fail, no connection is taken,
    /// watches end with `UNAVAILABLE`, and other calls have
    /// `config.drain_timeout` to finish.
    ///
    /// # Errors
    ///
    /// If the certificates are malformed or the listener breaks.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ServerError> {
        let Self { service, config, listener, tls } = self;
        let (reporter, health) = tonic_health::server::health_reporter();
        health::begin(&reporter, &**service.backend()).await;
        let following = health::follow(
            reporter.clone(),
            Arc::clone(service.backend()),
            config.health_interval,
            stop.child_token(),
        );
        let _following = AbortOnDropHandle::new(tokio::spawn(following));
        let watches = Arc::new(Semaphore::new(config.max_watches.min(Semaphore::MAX_PERMITS)));
        let routes = reflection()?.add_service(health);
        let routes = with_http(routes, &service, &config, &stop, &watches)?;
        let resources = resources(&service, &config, &stop, &watches);

        let acceptor = Acceptor {
            listener,
            tls: tls.map(|handle| handle.current()),
            limits: Limits {
                total: config.max_connections,
                per_address: config.max_connections_per_address,
                silent: config.handshake_timeout,
                idle: config.idle_timeout,
            },
            patience: config.write_timeout,
        };
        let (ready, incoming) = mpsc::channel(READY);
        let accepting = tokio::spawn(acceptor.run(ready, stop.child_token()));
        let _accepting = AbortOnDropHandle::new(accepting);
        let incoming = ReceiverStream::new(incoming);
        let draining = stop.child_token();
        let told = async move { draining.cancelled().await };
        let memory = BodyMemory::new(config.max_body_memory);
        let admission = Admission { inner: Direct { resources, others: routes.prepare() }, memory };
        let serving = transport(&config).serve_with_incoming_shutdown(admission, incoming, told);
        let too_late = async {
            stop.cancelled().await;
            tokio::time::sleep(config.drain_timeout).await;
        };
        tokio::select! {
            served = serving => served.map_err(|e| ServerError::Serve(Box::new(e))),
            () = too_late => {
                tracing::warn!("calls that did not finish in time are cut off");
                Ok(())
            }
        }
    }
}

fn resources(
    service: &ResourceService,
    config: &ServerConfig,
    stop: &CancellationToken,
    watches: &Arc<Semaphore>,
) -> ResourceServiceServer<GrpcService> {
    let service =
        GrpcService::new(service.clone(), stop.clone()).with_watch_permits(Arc::clone(watches));
    // As upstream, which limits what it receives and not what it sends: a list
    // that was stored in many writes has to come back in one answer.
    ResourceServiceServer::new(service)
        .max_decoding_message_size(config.max_message_bytes)
        .max_encoding_message_size(usize::MAX)
}

fn reflection() -> Result<Routes, ServerError> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    Ok(Routes::new(reflection().build_v1().map_err(set_up)?)
        .add_service(reflection().build_v1alpha().map_err(set_up)?))
}

#[cfg(feature = "http")]
fn with_http(
    routes: Routes,
    service: &ResourceService,
    config: &ServerConfig,
    stop: &CancellationToken,
    watches: &Arc<Semaphore>,
) -> Result<Routes, ServerError> {
    let http = crate::http::HttpApi::new(service.clone())
        .map_err(set_up)?
        .with_max_body_bytes(config.max_message_bytes)
        .with_stop(stop.clone())
        .with_watch_permits(Arc::clone(watches));
    Ok(Routes::from(routes.into_axum_router().reset_fallback().merge(http.into_router())))
}

#[cfg(not(feature = "http"))]
#[expect(clippy::unnecessary_wraps, reason = "the same form as with the feature")]
fn with_http(
    routes: Routes,
    _: &ResourceService,
    _: &ServerConfig,
    _: &CancellationToken,
    _: &Arc<Semaphore>,
) -> Result<Routes, ServerError> {
    Ok(routes)
}

fn transport(config: &ServerConfig) -> TonicServer {
    TonicServer::builder()
        .accept_http1(true)
        .max_concurrent_streams(config.max_streams_per_connection)
        .timeout(config.request_timeout)
        .http2_keepalive_interval(Some(config.keepalive_interval))
        .http2_keepalive_timeout(Some(config.keepalive_timeout))
}
