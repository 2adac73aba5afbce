//! Finds a server that answers and has a leader.

use std::{future::Future, sync::Arc, time::Duration};

use consul_watch::{Backoff, Client, Jitter, error_chain};
use tokio_util::sync::CancellationToken;

use super::discovery::{Settings, discover, transient};
use super::server_pool::{Server, ServerPool};
use crate::{Error, Result, config::ServersConfig};

/// Connects to a server that answers and has a leader, trying all addresses repeatedly.
///
/// If it stops answering later, the client switches to another; only idempotent requests are sent
/// twice.
///
/// `ca_pem` is an authority's PEM text; it replaces the configured file.
///
/// Deviation: upstream discovers and follows servers over gRPC, then talks to the chosen one over
/// HTTP; here a server is found by asking each over HTTP for the leader, and replaced when it
/// fails. `connect_and_follow` (feature `server-watch`) also follows them over gRPC.
///
/// # Errors
///
/// [`Error::Consul`] for unusable TLS settings, [`Error::Input`] for hosts that can never give an
/// address, [`Error::Stopped`] when `stop` is cancelled.
///
/// Source: consul-server-connection-manager 0.1 `discovery`.
pub async fn connect(
    servers: &ServersConfig,
    ca_pem: Option<&str>,
    tenancy: (Option<&str>, Option<&str>),
    stop: &CancellationToken,
) -> Result<Client> {
    connect_to_pool(servers, ca_pem, tenancy, stop).await.map(|(client, _pool)| client)
}

/// Connects as [`connect`] does, and returns the pool below the client, too.
pub(super) async fn connect_to_pool(
    servers: &ServersConfig,
    ca_pem: Option<&str>,
    (namespace, partition): (Option<&str>, Option<&str>),
    stop: &CancellationToken,
) -> Result<(Client, Arc<ServerPool>)> {
    crate::tls::check("consulServers.http.https", servers.http.https)?;
    let settings = Settings {
        servers: servers.clone(),
        ca_pem: ca_pem.map(str::to_owned),
        namespace: namespace.map(str::to_owned),
        partition: partition.map(str::to_owned),
    };
    until_connected(stop, || find(&settings)).await
}

/// Retries until `attempt` succeeds, with growing delays from 0.5 s to 60 s.
///
/// # Errors
///
/// The first error that no retry can cure, or [`Error::Stopped`] when `stop` is cancelled.
pub(super) async fn until_connected<T, F>(
    stop: &CancellationToken,
    attempt: impl Fn() -> F + Send + Sync,
) -> Result<T>
where
    F: Future<Output = Result<T>> + Send,
    T: Send,
{
    let work = async {
        let mut delays = Backoff::default()
            .with_initial(Duration::from_millis(500))
            .with_factor(1.5)
            .with_jitter(Jitter::Extra(0.5));
        loop {
            match attempt().await {
                Ok(found) => return Ok(found),
                Err(error) if !error.is_retryable() => return Err(error),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "no server answers; retrying"
                    );
                }
            }
            tokio::time::sleep(delays.next_delay()).await;
        }
    };
    // The stop first, so that a cancelled run makes no further attempt.
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(Error::Stopped { operation: "connecting to Consul" }),
        result = work => result,
    }
}

async fn find(settings: &Settings) -> Result<(Client, Arc<ServerPool>)> {
    let unusable = |error| Error::consul("using the settings of consulServers", error);
    let mut last = None;
    let addresses = discover(&settings.servers.hosts).await?;
    for address in &addresses {
        let config = settings.client(address);
        let server = Arc::new(Server::new(address.clone(), &config).map_err(unusable)?);
        let probe = Client::with_transport(config.clone(), Arc::<Server>::clone(&server));
        // The leader, because a server that answers without one refuses all that follows.
        match probe.map_err(unusable)?.status_leader().await {
            Ok(Some(_leader)) => {
                tracing::debug!(server = address, "connected");
                let pool = ServerPool::new(settings.clone(), server, addresses.clone());
                let pool = Arc::new(pool);
                let client = Client::with_transport(config, Arc::<ServerPool>::clone(&pool));
                return client.map(|client| (client, pool)).map_err(unusable);
            }
            Ok(None) => last = Some(format!("{address} knows no cluster leader")),
            Err(error) => last = Some(error_chain(&error)),
        }
    }
    // Retryable whatever it was: servers elect, and certificates are renewed.
    let hosts = &settings.servers.hosts;
    Err(transient(last.unwrap_or_else(|| format!("{hosts:?} gives no address"))))
}
