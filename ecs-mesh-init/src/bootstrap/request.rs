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

/// What to ask a Consul agent for, to bootstrap one proxy that is registered with it.
///
/// Source: Consul 1.20 `command/connect/envoy/envoy.go`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BootstrapRequest {
    /// Id of the proxy or gateway.
    pub proxy_id: String,
    /// Node that the proxy is registered on: it is read from the catalog then, not from the agent.
    pub node_name: Option<String>,
    /// Where the admin interface logs, instead of `/dev/null`. Deprecated upstream: the access logs
    /// of `proxy-defaults` are the way to do it.
    pub admin_access_log_path: Option<String>,
    /// Where Envoy reaches Consul by gRPC; `None` asks the agent.
    pub grpc_address: Option<GrpcAddress>,
    /// PEM certificates of authorities for gRPC.
    pub grpc_ca_pem: String,
    /// Token for Envoy.
    pub token: Option<SecretString>,
    /// Namespace, when the service has none.
    pub namespace: Option<String>,
    /// Partition, when the service has none.
    pub partition: Option<String>,
    /// Whether the proxy's `Config` is left out. Default false.
    pub no_central_config: bool,
    /// Envoy's cluster for a proxy without a destination, such as a gateway; `None` takes the name
    /// of its service.
    pub cluster: Option<String>,
}

/// What a [`BootstrapRequest`] came to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Fetched {
    /// The options, to be changed or rendered.
    pub options: BootstrapOptions,
    /// What an operator should know, in upstream's words.
    pub warnings: Vec<String>,
}

impl BootstrapRequest {
    /// A request for a proxy, with upstream's defaults.
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

    /// A request for the one sidecar of a service, which is looked up at the agent by the service's
    /// id; its case does not matter.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] when the service has no sidecar, or several; [`Error::Consul`] when the
    /// agent does not tell.
    pub async fn for_sidecar_of(client: &Client, service_id: &str) -> Result<Self> {
        Ok(Self::new(lookup::sidecar_of(client, service_id).await?))
    }

    /// A request for the agent's one gateway of a kind: `api`, `ingress`, `mesh` or `terminating`.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for another kind, or when the agent has no such gateway, or several;
    /// [`Error::Consul`] when the agent does not tell.
    pub async fn for_gateway(client: &Client, kind: &str) -> Result<Self> {
        Ok(Self::new(lookup::gateway(client, kind).await?))
    }

    /// Asks the agent, or the catalog when there is a node's name.
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
        options.xds.tls = tls || (is_unix(&options.xds.address) && !self.grpc_ca_pem.is_empty());
        if options.xds.tls {
            options.xds.ca_pem.clone_from(&self.grpc_ca_pem);
        }
        options.xds.token.clone_from(&self.token);
        Ok(Fetched { options, warnings })
    }

    /// Without a token where one is needed Envoy will be refused: that is worth a word.
    async fn check_token(&self, client: &Client) -> Option<String> {
        let has_token = self.token.as_ref().is_some_and(|token| !token.expose_secret().is_empty());
        let error = client.acl_token_self(&QueryOptions::default()).await.err()?;
        let unknown = error.is_permission_denied() && error.to_string().contains("ACL not found");
        (unknown && !has_token).then(|| {
            "No ACL token was given and ACLs are enabled: Envoy will not be able to get its configuration. \
             Set CONSUL_HTTP_TOKEN, -token or -token-file"
                .to_owned()
        })
    }

    /// Where Envoy reaches Consul, and what an operator should know of it.
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
            Err(error) if error.is_permission_denied() => {}
            Err(error) => {
                warning = Some(format!("failed to ask the agent for its gRPC port: {error}"));
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
        let destination = Some(&service.proxy.destination_service_name);
        let cluster =
            [destination, self.cluster.as_ref(), Some(&service.name), Some(&self.proxy_id)]
                .into_iter()
                .flatten()
                .find(|name| !name.is_empty())
                .cloned()
                .unwrap_or_default();
        let mut options = BootstrapOptions::new(self.proxy_id.as_str(), cluster);
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

/// The access logs of `proxy-defaults`. What Consul refuses is no reason not to start.
async fn access_logs(client: &Client) -> Result<Option<AccessLogs>> {
    match client.config_entry("proxy-defaults", "global", &QueryOptions::default()).await {
        Ok(answer) => {
            let logs = answer.value.as_ref().and_then(|entry| entry.settings.get("AccessLogs"));
            match logs.and_then(Value::as_object) {
                Some(logs) => AccessLogs::from_config_entry(logs),
                None => Ok(None),
            }
        }
        Err(error) if error.status().is_some() => Ok(None),
        Err(error) => Err(Error::consul("failed fetch of proxy-defaults", error)),
    }
}

fn is_unix(address: &XdsAddress) -> bool {
    matches!(address, XdsAddress::Unix(_))
}

/// Envoy does not look names up for this cluster, so we do; IPv4 is preferred.
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
