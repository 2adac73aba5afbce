use std::{net::IpAddr, path::Path, time::Duration};

use consul_watch::{Backoff, Client, ClientConfig, Jitter};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::{Error, Result, config::ServersConfig};

/// Connects to a server that answers, trying all addresses in turn, again and again.
///
/// `ca_file` is an authority's PEM file instead of the configured one.
///
/// Deviation: upstream finds and follows servers over gRPC, then talks to the chosen one over HTTP;
/// here the same server is found by asking each over HTTP who leads.
///
/// # Errors
///
/// [`Error::Consul`] for TLS files that cannot be read, [`Error::Stopped`] when `stop` is cancelled.
///
/// Source: consul-server-connection-manager 0.1 `discovery`.
pub async fn connect(
    servers: &ServersConfig,
    ca_file: Option<&Path>,
    tenancy: (Option<&str>, Option<&str>),
    stop: &CancellationToken,
) -> Result<Client> {
    let work = async {
        let mut delays = Backoff::default()
            .with_initial(Duration::from_millis(500))
            .with_factor(1.5)
            .with_jitter(Jitter::Extra(0.5));
        loop {
            match find(servers, ca_file, tenancy).await {
                Ok(client) => return Ok(client),
                Err(error) if matches!(error, Error::Consul { .. }) && !error.is_retryable() => {
                    return Err(error);
                }
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
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(Error::Stopped { operation: "connecting to Consul" }),
        result = work => result,
    }
}

async fn find(
    servers: &ServersConfig,
    ca_file: Option<&Path>,
    tenancy: (Option<&str>, Option<&str>),
) -> Result<Client> {
    let mut last = None;
    for address in discover(&servers.hosts).await? {
        let config = client_config(servers, &address, ca_file, tenancy);
        let client =
            Client::new(config).map_err(|error| Error::consul("making a client", error))?;
        match client.status_leader().await {
            Ok(_leader) => return Ok(client),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(
        || transient(format!("{:?} gives no address", servers.hosts)),
        // Whatever it is, the next server or the next attempt may do better.
        |error| transient(error.to_string()),
    ))
}

fn client_config(
    servers: &ServersConfig,
    address: &str,
    ca_file: Option<&Path>,
    (namespace, partition): (Option<&str>, Option<&str>),
) -> ClientConfig {
    let tls = servers.http_tls();
    let mut config = ClientConfig::default();
    let scheme = if tls.enabled { "https" } else { "http" };
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    config.address = format!("{scheme}://{host}:{}", servers.http.port);
    config.namespace = namespace.map(str::to_owned);
    config.partition = partition.map(str::to_owned);
    if tls.enabled {
        let configured = Some(tls.ca_cert_file).filter(|file| !file.is_empty());
        config.tls.ca_file = ca_file.map(Path::to_owned).or(configured.map(Into::into));
        let name = Some(tls.server_name).filter(|name| name.parse::<IpAddr>().is_err());
        config.tls.server_name = name.filter(|name| !name.is_empty());
    }
    config
}

/// The addresses of `hosts`: what a command prints, an IP address, or all addresses of a name.
async fn discover(hosts: &str) -> Result<Vec<String>> {
    if let Some(command) = hosts.strip_prefix("exec=") {
        let mut words = command.split_whitespace();
        let program = words
            .next()
            .ok_or_else(|| Error::input("consulServers.hosts: exec= names no command"))?;
        let output = Command::new(program)
            .args(words)
            .kill_on_drop(true)
            .output()
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
    let found = tokio::net::lookup_host((hosts, 0))
        .await
        .map_err(|error| transient(format!("{hosts}: {error}")))?;
    Ok(found.map(|address| address.ip().to_string()).collect())
}

fn transient(problem: String) -> Error {
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
        assert!(discover("exec=false").await.is_err() && discover("exec=").await.is_err());
        assert!(discover("exec=/nowhere/command").await.is_err());
    }

    #[test]
    fn a_client_has_the_servers_tls_and_the_tasks_tenancy() {
        let config = crate::Config::parse(
            r#"{"bootstrapDir":"/c","consulServers":{"hosts":"consul.dc1","defaults":{"caCertFile":"/ca.pem"}}}"#,
        )
        .unwrap();
        let servers = config.consul_servers.unwrap();
        let client = client_config(&servers, "10.0.0.1", None, (Some("ns"), None));
        assert_eq!(client.address, "https://10.0.0.1:8501");
        assert_eq!(client.tls.ca_file, Some("/ca.pem".into()));
        assert_eq!(client.tls.server_name.as_deref(), Some("consul.dc1"));
        assert_eq!(client.namespace.as_deref(), Some("ns"));
        let client = client_config(&servers, "::1", Some(Path::new("/env.pem")), (None, None));
        assert_eq!(
            (client.address.as_str(), client.tls.ca_file),
            ("https://[::1]:8501", Some("/env.pem".into()))
        );
    }
}
