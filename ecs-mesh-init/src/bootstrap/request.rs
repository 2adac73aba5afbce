//! Reads what Consul knows of a registered proxy and turns it into [`BootstrapOptions`], as `consul
//! connect envoy -bootstrap` does.

use std::net::{IpAddr, SocketAddr};

use consul_watch::{
    Client, QueryOptions,
    types::{AgentService, ServiceKind},
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::{
    AccessLogs, BootstrapOptions, GrpcAddress, HostPort, ProxySettings, XdsAddress, lookup,
};
use crate::{Error, Result};

/// Questions to a Consul agent, to bootstrap one proxy that is registered with it.
///
/// Source: Consul 1.20 `command/connect/envoy/envoy.go`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BootstrapRequest {
    /// Id of the proxy or gateway.
    pub proxy_id: String,
    /// Name of the node that the proxy is registered on. When set, the catalog is read and not the
    /// agent.
    pub node_name: Option<String>,
    /// Access log file of the admin interface, instead of `/dev/null`. Deprecated upstream in
    /// favour of the access logs of `proxy-defaults`.
    pub admin_access_log_path: Option<String>,
    /// Address at which Envoy reaches Consul by gRPC; `None` asks the agent.
    pub grpc_address: Option<GrpcAddress>,
    /// PEM certificates of the authorities for gRPC; empty for none.
    pub grpc_ca_pem: String,
    /// ACL token for Envoy.
    pub token: Option<SecretString>,
    /// Namespace, when the service has none.
    pub namespace: Option<String>,
    /// Partition, when the service has none.
    pub partition: Option<String>,
    /// `true` to ignore the proxy's `Config`. Default `false`.
    pub no_central_config: bool,
    /// Name of Envoy's cluster for a proxy without a destination, such as a gateway; `None` takes
    /// the name of its service.
    pub cluster: Option<String>,
}

/// Result of a [`BootstrapRequest`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Fetched {
    /// Options, to be changed or rendered.
    pub options: BootstrapOptions,
    /// Warnings for an operator, in upstream's words.
    pub warnings: Vec<String>,
}

impl BootstrapRequest {
    /// Creates a request for a proxy, with upstream's defaults.
    pub fn new(proxy_id: impl Into<String>) -> Self {
        Self {
            proxy_id: proxy_id.into(),
            node_name: None,
            admin_access_log_path: None,
            grpc_address: None,
            grpc_ca_pem: String::new(),
            token: None,
            namespace: None,
            partition: None,
            no_central_config: false,
            cluster: None,
        }
    }

    /// Creates a request for the one sidecar of a service, which is looked up at the agent by the
    /// service's id, whatever its case.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] when the service has no sidecar, or several; [`Error::Consul`] when the
    /// agent does not answer.
    pub async fn for_sidecar_of(client: &Client, service_id: &str) -> Result<Self> {
        Ok(Self::new(lookup::sidecar_of(client, service_id).await?))
    }

    /// Creates a request for the agent's one gateway of a kind: `api`, `ingress`, `mesh` or
    /// `terminating`.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for another kind, or when the agent has no such gateway, or several;
    /// [`Error::Consul`] when the agent does not answer.
    pub async fn for_gateway(client: &Client, kind: &str) -> Result<Self> {
        Ok(Self::new(lookup::gateway(client, kind).await?))
    }

    /// Asks the agent, or the catalog when `node_name` is set.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for a missing id, a service that is no proxy, settings that cannot be read,
    /// or an address that has no IP; [`Error::Consul`] when the agent does not give the service.
    pub async fn fetch(&self, client: &Client) -> Result<Fetched> {
        if self.proxy_id.is_empty() {
            return Err(Error::input(if self.node_name.is_some() {
                "'-node-name' requires '-proxy-id'"
            } else {
                "No proxy ID specified. One of -proxy-id, -sidecar-for, or -gateway is required"
            }));
        }
        // Independent of each other, and the container waits for them.
        let (token, registered, logs, address) = tokio::join!(
            self.check_token(client),
            self.registered(client),
            access_logs(client),
            self.address(client),
        );
        let mut warnings: Vec<String> = token.into_iter().collect();
        let mut options = self.options(&registered?)?;
        if let Some(path) = &self.admin_access_log_path {
            warnings.push("-admin-access-log-path is deprecated".to_owned());
            options.admin_access_log_path.clone_from(path);
        }
        options.access_logs = logs?;
        let (address, warning) = address?;
        warnings.extend(warning);
        let (address, tls) = resolved(&address).await?;
        options.xds.address = address;
        // A socket has no scheme that could ask for TLS; upstream takes a CA for that wish.
        options.xds.tls = tls || (is_unix(&options.xds.address) && !self.grpc_ca_pem.is_empty());
        // A CA without TLS is not an error: the variable may be set for HTTP only.
        if options.xds.tls {
            options.xds.ca_pem.clone_from(&self.grpc_ca_pem);
        }
        options.xds.token.clone_from(&self.token);
        Ok(Fetched { options, warnings })
    }

    /// Returns a warning when ACLs are enabled and Envoy has no token, since Consul will refuse it.
    async fn check_token(&self, client: &Client) -> Option<String> {
        let has_token = self.token.as_ref().is_some_and(|token| !token.expose_secret().is_empty());
        let error = client.acl_token_self(&QueryOptions::default()).await.err()?;
        // A token that exists but may not read itself is refused too, with another text; it is good
        // enough for Envoy.
        let unknown = error.is_permission_denied() && error.to_string().contains("ACL not found");
        (unknown && !has_token).then(|| {
            "No ACL token was given and ACLs are enabled: Envoy will not be able to get its configuration. \
             Set CONSUL_HTTP_TOKEN, -token or -token-file"
                .to_owned()
        })
    }

    /// Returns the address at which Envoy reaches Consul, and a warning if it had to be guessed.
    async fn address(&self, client: &Client) -> Result<(GrpcAddress, Option<String>)> {
        if let Some(address) = &self.grpc_address {
            return Ok((address.clone(), None));
        }
        let mut warning = None;
        match client.agent_self().await {
            Ok(agent) => {
                if let Some(address) = GrpcAddress::of_agent(&agent)? {
                    return Ok((address, None));
                }
            }
            // A token for Envoy need not have `agent:read`; upstream stays silent here, too.
            Err(error) if error.is_permission_denied() => {}
            Err(error) => {
                let problem = consul_watch::error_chain(&error);
                warning = Some(format!("failed to ask the agent for its gRPC port: {problem}"));
            }
        }
        Ok((GrpcAddress::standard(), warning))
    }

    async fn registered(&self, client: &Client) -> Result<AgentService> {
        if let Some(node) = &self.node_name {
            return lookup::on_node(client, node, &self.proxy_id).await;
        }
        let answer = client
            .agent_service(&self.proxy_id, &QueryOptions::default())
            .await
            .map_err(|error| Error::consul("failed fetch proxy config from local agent", error))?;
        answer.value.ok_or_else(|| {
            Error::input(format!(
                "failed fetch proxy config from local agent: unknown service ID: {}",
                self.proxy_id
            ))
        })
    }

    fn options(&self, registered: &AgentService) -> Result<BootstrapOptions> {
        let service = &registered.service;
        if service.kind == ServiceKind::Typical {
            return Err(Error::input("service is not a Connect proxy or gateway"));
        }
        // First of these that is set: destination, the caller's choice, the service's name, its id.
        let destination = Some(&service.proxy.destination_service_name);
        let cluster =
            [destination, self.cluster.as_ref(), Some(&service.name), Some(&self.proxy_id)]
                .into_iter()
                .flatten()
                .find(|name| !name.is_empty())
                .cloned()
                .unwrap_or_default();
        let mut options = BootstrapOptions::new(self.proxy_id.as_str(), cluster);
        // A gateway has no destination: its statistics carry its own name as the source.
        if service.proxy.destination_service_name.is_empty() && !service.name.is_empty() {
            options.source_service = Some(service.name.clone());
        }
        options.namespace = service.namespace.clone().or_else(|| self.namespace.clone());
        options.partition = service.partition.clone().or_else(|| self.partition.clone());
        options.node_name.clone_from(&self.node_name);
        options.datacenter =
            Some(registered.datacenter.clone()).filter(|datacenter| !datacenter.is_empty());
        if !self.no_central_config {
            options.settings = ProxySettings::from_config(&service.proxy.config)?;
        }
        // An ingress gateway may have no listener of its own yet, and something has to answer its
        // health check.
        if service.kind == ServiceKind::IngressGateway {
            let host = if service.address.is_empty() { "127.0.0.1" } else { &service.address };
            let port = match service.port {
                0 => 8443,
                // Consul takes any number, but a gateway cannot listen on it.
                port => u16::try_from(port).map_err(|_range| {
                    Error::input(format!(
                        "gateway {} is registered with port {port}; expected 0 to 65535",
                        self.proxy_id
                    ))
                })?,
            };
            options.ready = Some(HostPort::new(host, port));
        }
        Ok(options)
    }
}

/// Reads the access logs of `proxy-defaults`. An answer with an error status counts as none.
async fn access_logs(client: &Client) -> Result<Option<AccessLogs>> {
    match client.config_entry("proxy-defaults", "global", &QueryOptions::default()).await {
        Ok(answer) => {
            let logs = answer.value.as_ref().and_then(|entry| entry.settings.get("AccessLogs"));
            match logs.and_then(Value::as_object) {
                Some(logs) => AccessLogs::from_config_entry(logs),
                None => Ok(None),
            }
        }
        // A token without `operator` rights may not read the entry, and old servers do not know it.
        // Upstream starts Envoy all the same.
        Err(error) if error.status().is_some() => Ok(None),
        Err(error) => Err(Error::consul("failed fetch of proxy-defaults", error)),
    }
}

fn is_unix(address: &XdsAddress) -> bool {
    matches!(address, XdsAddress::Unix(_))
}

/// Resolves the name, since Envoy does no DNS for a `STATIC` cluster; prefers IPv4.
async fn resolved(address: &GrpcAddress) -> Result<(XdsAddress, bool)> {
    let (address, tls) = match address {
        GrpcAddress::Unix(path) => return Ok((XdsAddress::Unix(path.clone()), false)),
        GrpcAddress::Tcp { address, tls } => (address, *tls),
    };
    if let Ok(ip) = address.host.parse::<IpAddr>() {
        return Ok((XdsAddress::Tcp(SocketAddr::new(ip, address.port)), tls));
    }
    let failed = |problem: String| {
        Error::input(format!("Failed to resolve agent address {:?}: {problem}", address.host))
    };
    let found: Vec<SocketAddr> = tokio::net::lookup_host((address.host.as_str(), address.port))
        .await
        .map_err(|error| failed(error.to_string()))?
        .collect();
    let chosen = found.iter().find(|address| address.is_ipv4()).or(found.first());
    let chosen = chosen.ok_or_else(|| failed("it has no address".to_owned()))?;
    Ok((XdsAddress::Tcp(*chosen), tls))
}
