//! The addresses of the servers, and the client settings for each of them.

use std::net::IpAddr;

use consul_watch::ClientConfig;
use tokio::process::Command;

use crate::{Error, Result, config::ServersConfig};

/// Settings that all servers share.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) servers: ServersConfig,
    pub(super) ca_pem: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) partition: Option<String>,
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
