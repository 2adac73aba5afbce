//! Follows the servers over gRPC for the client's lifetime: the set of servers, and the one in use.
//!
//! | state | left when |
//! |---|---|
//! | connecting to one server | it answers: connected; else: waiting |
//! | connected: its HTTP port is used, and its stream reports the ready servers | the stream or the
//! connection ends: waiting |
//! | waiting, 0.5 s and more | then connecting to the server that was tried longest ago |
//!
//! Source: consul-server-connection-manager 0.1 `discovery/watcher.go`.

mod calls;

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Weak},
    time::Duration,
};

use consul_watch::{Backoff, Client, Jitter};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tonic::{
    Code, Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};

use self::calls::{Calls, LoginRequest};
use super::{
    grpc::{over_tls::authority, server_name},
    server_pool::ServerPool,
    servers::connect_to_pool,
};
use crate::{
    Error, Result,
    config::{LoginConfig, ServersConfig, TlsSettings},
    login::Refusal,
};

/// Longest time for a connection with its handshake, and for one response.
const LIMIT: Duration = Duration::from_secs(10);
/// Time between two pings, and for the response to one.
///
/// Servers refuse pings more often than every 15 s; load balancers close connections after 350 s of
/// silence.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Time between two checks of a server that reports no others.
const LOOK: Duration = Duration::from_mins(1);
/// Lifetime of a connection that counts as good: the next delay starts from the first again.
const GOOD: Duration = Duration::from_mins(3);

/// Connects as [`connect`](super::connect) does, with this token, and follows the servers over gRPC
/// for as long as the client or a clone of it lives.
///
/// The servers report which others there are, also those that `hosts` does not name; when the
/// connection ends another server is used.
///
/// `http_ca_pem` and `grpc_ca_pem` are authorities' PEM texts; they replace the configured files.
///
/// # Errors
///
/// The errors of [`connect`](super::connect), and [`Error::File`] for an authority that cannot be
/// read.
pub async fn connect_and_follow(
    servers: &ServersConfig,
    (http_ca_pem, grpc_ca_pem): (Option<&str>, Option<&str>),
    tenancy: (Option<&str>, Option<&str>),
    token: Option<SecretString>,
    stop: &CancellationToken,
) -> Result<Client> {
    let connector = Connector::new(servers, grpc_ca_pem).await?;
    let (client, pool) = connect_to_pool(servers, http_ca_pem, tenancy, stop).await?;
    connector.follow(&pool, token.clone());
    client.with_token(token).map_err(|error| Error::consul("using the token", error))
}

/// Factory of gRPC connections to the servers.
#[derive(Clone)]
pub(super) struct Connector {
    port: u16,
    tls: TlsSettings,
    /// PEM text of the authority; `None` for the system's.
    authority: Option<Vec<u8>>,
    watches: bool,
}

impl Connector {
    pub(super) async fn new(servers: &ServersConfig, ca_pem: Option<&str>) -> Result<Self> {
        let tls = servers.grpc_tls();
        let authority = authority(&tls, ca_pem).await?.map(|(_origin, pem)| pem);
        Ok(Self { port: servers.grpc.port, tls, authority, watches: !servers.skip_server_watch })
    }

    async fn connect(
        &self,
        address: &str,
    ) -> std::result::Result<Channel, tonic::transport::Error> {
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let scheme = if self.tls.enabled { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{host}:{}", self.port))?
            .connect_timeout(LIMIT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        if self.tls.enabled {
            let name = server_name(&self.tls).unwrap_or(address);
            // Consul's servers speak HTTP/2 there without offering it in the handshake.
            let tls = ClientTlsConfig::new().domain_name(name).assume_http2(true);
            endpoint = endpoint.tls_config(match &self.authority {
                Some(pem) => tls.ca_certificate(Certificate::from_pem(pem)),
                None => tls.with_native_roots(),
            })?;
        }
        endpoint.connect().await
    }

    async fn calls(
        &self,
        address: &str,
        token: Option<&SecretString>,
    ) -> std::result::Result<Calls, Status> {
        let connected = timeout(LIMIT, self.connect(address)).await;
        let channel = connected
            .map_err(|_elapsed| Status::deadline_exceeded("no connection within 10 s"))?
            .map_err(|error| Status::unavailable(consul_watch::error_chain(&error)))?;
        Calls::new(channel, token)
    }

    /// Logs in with the server that the pool has chosen; a server that cannot be reached is
    /// replaced.
    ///
    /// Returns `None` if that server has no logins over gRPC.
    ///
    /// # Errors
    ///
    /// [`Error::Login`] with the server's words, which a retry may cure.
    pub(super) async fn log_in(
        &self,
        pool: &ServerPool,
        login: &LoginConfig,
        bearer: &SecretString,
        meta: BTreeMap<String, String>,
        (namespace, partition): (Option<&str>, Option<&str>),
    ) -> Result<Option<SecretString>> {
        let address = pool.chosen();
        let request = LoginRequest {
            auth_method: login.method.clone(),
            bearer_token: bearer.expose_secret().to_owned(),
            meta: meta.into_iter().collect(),
            namespace: namespace.unwrap_or_default().to_owned(),
            partition: partition.unwrap_or_default().to_owned(),
            datacenter: login.datacenter.clone(),
        };
        let attempt = async {
            let mut calls = self.calls(&address, None).await?;
            let answer = timeout(LIMIT, calls.log_in(request)).await;
            answer.map_err(|_elapsed| Status::deadline_exceeded("no answer within 10 s"))?
        };
        match attempt.await {
            Ok(token) => Ok(Some(token)),
            // An older server; the caller then uses HTTP.
            Err(status) if status.code() == Code::Unimplemented => Ok(None),
            Err(status) => {
                if [Code::Unavailable, Code::DeadlineExceeded].contains(&status.code()) {
                    pool.leave(&address).await;
                }
                let step = format!("logging in with the server {address} over gRPC");
                let source = Refusal { code: status.code(), message: status.message().to_owned() };
                Err(Error::Login { step, retryable: true, source: source.into() })
            }
        }
    }

    /// Follows the servers until the pool is dropped.
    pub(super) fn follow(self, pool: &Arc<ServerPool>, token: Option<SecretString>) {
        // Weak, since the task would otherwise keep the pool, and with it itself, alive for ever.
        let work = follow(self, Arc::downgrade(pool), token);
        pool.keep(AbortOnDropHandle::new(tokio::spawn(work)));
    }
}

async fn follow(connector: Connector, pool: Weak<ServerPool>, token: Option<SecretString>) {
    let delays = || {
        Backoff::default()
            // Delays of upstream's connection manager.
            .with_initial(Duration::from_millis(500))
            .with_factor(1.5)
            .with_cap(Duration::from_mins(1))
            .with_jitter(Jitter::Extra(0.5))
    };
    let mut delay = delays();
    let mut left: Option<String> = None;
    loop {
        let Some(strong) = pool.upgrade() else { return };
        let address = match left {
            None => strong.chosen(),
            Some(left) => strong.next_after(&left).await,
        };
        // Not held across the connection, or the pool could not end.
        drop(strong);
        let began = Instant::now();
        let Err(status) = connector.stay(&pool, &address, token.as_ref()).await else { return };
        if began.elapsed() >= GOOD {
            delay = delays();
        }
        tracing::warn!(
            server = address,
            code = ?status.code(),
            error = status.message(),
            "the connection to the server has ended; another one is tried"
        );
        left = Some(address);
        sleep(delay.next_delay()).await;
    }
}

impl Connector {
    /// Connects to a server and stays with it. Ends with an error, or when the pool is dropped.
    async fn stay(
        &self,
        pool: &Weak<ServerPool>,
        address: &str,
        token: Option<&SecretString>,
    ) -> std::result::Result<(), Status> {
        let mut calls = self.calls(address, token).await?;
        // Also proves that the server answers, before requests are switched to it.
        let has_watch = look(&mut calls).await?;
        let Some(strong) = pool.upgrade() else { return Ok(()) };
        strong
            .switch_to(address)
            .map_err(|error| Status::internal(consul_watch::error_chain(&error)))?;
        drop(strong);
        tracing::info!(server = address, "connected to the server");
        if has_watch && self.watches {
            let mut stream = calls.watch_servers().await?;
            while let Some(answer) = stream.message().await? {
                let found = answer.servers.iter().filter_map(|server| host(&server.address));
                let found: Vec<String> = found.collect();
                tracing::info!(servers = ?found, "{} servers are ready", found.len());
                // Upgraded for each answer only: between two the pool may be dropped.
                let Some(strong) = pool.upgrade() else { return Ok(()) };
                strong.set_servers(found);
            }
            // Also after a clean end another server is needed.
            return Err(Status::unavailable("the server has ended its stream"));
        }
        loop {
            sleep(LOOK).await;
            look(&mut calls).await?;
        }
    }
}

/// Asks whether the server reports others. A server without this method does not.
async fn look(calls: &mut Calls) -> std::result::Result<bool, Status> {
    match timeout(LIMIT, calls.has_server_watch()).await {
        Ok(Err(status)) if status.code() == Code::Unimplemented => Ok(false),
        Ok(answer) => answer,
        Err(_elapsed) => Err(Status::deadline_exceeded("no answer within 10 s")),
    }
}

/// Returns the address without a port; `None` if it is no address.
fn host(address: &str) -> Option<String> {
    let ip = address.parse::<IpAddr>().ok();
    let ip = ip.or_else(|| address.parse::<SocketAddr>().ok().map(|it| it.ip()));
    if ip.is_none() {
        tracing::warn!(address, "a server has an address that is none; it is left out");
    }
    ip.map(|ip| ip.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_have_a_port() {
        assert_eq!(host("10.0.0.1").as_deref(), Some("10.0.0.1"));
        assert_eq!(host("10.0.0.1:8300").as_deref(), Some("10.0.0.1"));
        assert_eq!(host("::1").as_deref(), Some("::1"));
        assert_eq!(host("[fd00::1]:8300").as_deref(), Some("fd00::1"));
        assert_eq!(host("server"), None);
    }
}
