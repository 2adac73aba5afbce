//! Finds a server that answers and has a leader.

use std::{future::Future, net::IpAddr, sync::Arc, time::Duration};

use consul_watch::{Backoff, Client, ClientConfig, Jitter, error_chain};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

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

/// Settings that all servers share.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) servers: ServersConfig,
    ca_pem: Option<String>,
    namespace: Option<String>,
    partition: Option<String>,
}

impl Settings {
    /// Returns the client settings for the server at this address.
    pub(super) fn client(&self, address: &str) -> ClientConfig {
        let tls = self.servers.http_tls();
        let mut config = ClientConfig::default();
        let scheme = if tls.enabled { "https" } else { "http" };
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        config.address = format!("{scheme}://{host}:{}", self.servers.http.port);
        config.namespace.clone_from(&self.namespace);
        config.partition.clone_from(&self.partition);
        if tls.enabled {
            config.tls.ca_pem.clone_from(&self.ca_pem);
            config.tls.ca_file =
                Some(tls.ca_cert_file).filter(|file| !file.is_empty()).map(Into::into);
            // An IP address as server name means that the address itself is verified.
            let name = Some(tls.server_name).filter(|name| name.parse::<IpAddr>().is_err());
            config.tls.server_name = name.filter(|name| !name.is_empty());
        }
        config
    }
}

/// Resolves `hosts`: the output of a command, an IP address, or all addresses of a name.
pub(super) async fn discover(hosts: &str) -> Result<Vec<String>> {
    if let Some(command) = hosts.strip_prefix("exec=") {
        let mut words = command.split_whitespace();
        let program = words
            .next()
            .ok_or_else(|| Error::input("consulServers.hosts: exec= names no command"))?;
        let output = Command::new(program)
            .args(words)
            .kill_on_drop(true)
            .output()
            // A shutdown must not leave the command running.
            .await
            .map_err(|error| transient(format!("{program}: {error}")))?;
        if !output.status.success() {
            return Err(transient(format!("{program}: {}", output.status)));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        return Ok(text.split_whitespace().map(str::to_owned).collect());
    }
    if hosts.parse::<IpAddr>().is_ok() {
        return Ok(vec![hosts.to_owned()]);
    }
    // The port is required and unused.
    let found = tokio::net::lookup_host((hosts, 0))
        .await
        .map_err(|error| transient(format!("{hosts}: {error}")))?;
    Ok(found.map(|address| address.ip().to_string()).collect())
}

pub(super) fn transient(problem: String) -> Error {
    Error::Other { operation: "finding a Consul server", retryable: true, source: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn hosts_are_addresses_names_or_a_command() {
        assert_eq!(discover("10.0.0.1").await.unwrap(), ["10.0.0.1"]);
        assert!(discover("localhost").await.unwrap().contains(&"127.0.0.1".to_owned()));
        assert_eq!(discover("exec=echo 1.1.1.1 2.2.2.2").await.unwrap(), ["1.1.1.1", "2.2.2.2"]);
        assert!(discover("exec=false").await.unwrap_err().is_retryable());
        assert!(discover("exec=/nowhere/command").await.unwrap_err().is_retryable());
        // What no retry cures.
        assert!(!discover("exec=").await.unwrap_err().is_retryable());
    }

    #[test]
    fn a_client_has_the_servers_tls_and_the_tasks_tenancy() {
        let config = crate::Config::parse(
            r#"{"bootstrapDir":"/c","consulServers":{"hosts":"consul.dc1","defaults":{"caCertFile":"/ca.pem"}}}"#,
        )
        .unwrap();
        let mut settings = Settings {
            servers: config.consul_servers.unwrap(),
            ca_pem: None,
            namespace: Some("ns".to_owned()),
            partition: None,
        };
        let client = settings.client("10.0.0.1");
        assert_eq!(client.address, "https://10.0.0.1:8501");
        assert_eq!(client.tls.ca_file, Some("/ca.pem".into()));
        assert_eq!(client.tls.server_name.as_deref(), Some("consul.dc1"));
        assert_eq!(client.namespace.as_deref(), Some("ns"));
        settings.ca_pem = Some("PEM".to_owned());
        let client = settings.client("::1");
        assert_eq!(
            (client.address.as_str(), client.tls.ca_pem.as_deref()),
            ("https://[::1]:8501", Some("PEM"))
        );
    }
}
