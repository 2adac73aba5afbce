//! Computes what a task registers from its configuration and metadata alone.

use std::{collections::BTreeMap, time::Duration};

use consul_watch::{
    GoDuration,
    types::{
        CheckSpec, JsonObject, Locality, MeshGateway, ServiceAddress, ServiceKind, ServiceProxy,
        Upstream, Weights,
    },
};
use serde_json::json;

use super::{MeshCheck, MeshService};
use crate::{
    Config, Error, Result,
    config::{
        CheckConfig, ExposeConfig, GatewayAddress, GatewayConfig, GatewayKind, Generation,
        ServiceConfig, UpstreamConfig,
    },
    metadata::Task,
};

const GATEWAY_PORT: u16 = 8443;

/// Services that a task registers.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TaskPlan {
    /// Id of the task.
    pub task_id: String,
    /// Service of the task; `None` for gateways.
    pub service: Option<MeshService>,
    /// Sidecar, or the gateway.
    pub proxy: MeshService,
}

impl TaskPlan {
    /// Computes the services.
    ///
    /// `aws_region` is the variable `AWS_REGION`, without which the current generation states no
    /// locality.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] if the configuration has neither a service nor a gateway, or the metadata
    /// lacks the parts of ids and names.
    ///
    /// Deviation: upstream builds ids such as `-` from empty metadata.
    ///
    /// Source: consul-ecs 0.10 and 0.6 `subcommand/mesh-init/command.go`.
    pub fn new(config: &Config, task: &Task, aws_region: Option<&str>) -> Result<Self> {
        if task.id().is_empty() {
            return Err(Error::input(format!(
                "the task's metadata has no task id, with which the ids of its services end: TaskARN is {:?}; \
                 is this the address of a task's metadata?",
                task.task_arn
            )));
        }
        let planner = Planner { config, task, aws_region };
        let (service, proxy) = match (&config.gateway, &config.service) {
            // The gateway wins if both are there, as upstream.
            (Some(gateway), _) => (None, planner.gateway(gateway)?),
            (None, Some(settings)) => {
                let service = planner.service(settings)?;
                let proxy = planner.sidecar(settings, &service);
                (Some(service), proxy)
            }
            (None, None) => {
                return Err(Error::input(
                    "invalid config: neither \"service\" nor \"gateway\" is set; one of them says what the task is",
                ));
            }
        };
        Ok(Self { task_id: task.id().to_owned(), service, proxy })
    }

    /// Iterates over the services in the order of their registration.
    pub fn services(&self) -> impl Iterator<Item = &MeshService> {
        self.service.iter().chain([&self.proxy])
    }
}

struct Planner<'a> {
    config: &'a Config,
    task: &'a Task,
    aws_region: Option<&'a str>,
}

impl Planner<'_> {
    fn is_current(&self) -> bool {
        self.config.generation == Generation::Current
    }

    /// Returns the configured name, or the family in lower case; early gateways keep its case.
    fn name(&self, owner: &str, configured: &str) -> Result<String> {
        let family = &self.task.family;
        match (configured.is_empty(), family.is_empty()) {
            (false, _) => Ok(configured.to_owned()),
            (true, true) => Err(Error::input(format!(
                "{owner}.name is not set, and the task's metadata has no Family to take it from; set {owner}.name"
            ))),
            (true, false) if owner == "gateway" && !self.is_current() => Ok(family.clone()),
            (true, false) if self.config.keeps_family_case => Ok(family.clone()),
            (true, false) => Ok(family.to_lowercase()),
        }
    }

    fn service(&self, settings: &ServiceConfig) -> Result<MeshService> {
        let name = self.name("service", &settings.name)?;
        let mut checks: Vec<MeshCheck> = self
            .config
            .health_sync_containers
            .iter()
            .map(|name| MeshCheck::Container(name.clone()))
            .collect();
        for check in &settings.checks {
            checks.push(MeshCheck::Agent(Box::new(check_spec(check)?)));
        }
        if self.is_current() {
            checks.push(MeshCheck::Dataplane);
        }
        let mut tagged_addresses = BTreeMap::new();
        // The address under which other transparent proxies know this service.
        if self.config.redirects_traffic() {
            let address = self.task.node_ip().to_owned();
            let address = ServiceAddress { address, port: settings.port.into() };
            tagged_addresses.insert("virtual".to_owned(), address);
        }
        Ok(MeshService {
            id: format!("{name}-{}", self.task.id()),
            name,
            tags: settings.tags.clone(),
            meta: self.meta(&settings.meta),
            port: settings.port,
            task_address: self.task.node_ip().to_owned(),
            tagged_addresses,
            weights: settings
                .weights
                .map(|weights| Weights { passing: weights.passing, warning: weights.warning }),
            enable_tag_override: settings.enable_tag_override,
            namespace: some(&settings.namespace),
            partition: some(&settings.partition),
            locality: self.locality(),
            checks,
            ..MeshService::default()
        })
    }

    fn sidecar(&self, settings: &ServiceConfig, service: &MeshService) -> MeshService {
        let proxy = &self.config.proxy;
        let mut body = ServiceProxy::default();
        body.destination_service_name.clone_from(&service.name);
        body.destination_service_id.clone_from(&service.id);
        body.local_service_port = settings.port.into();
        body.config.clone_from(&proxy.config);
        body.upstreams = proxy.upstreams.iter().map(upstream).collect();
        body.mesh_gateway = mesh_gateway(proxy.mesh_gateway.as_ref().map(|it| it.mode.as_str()));
        body.expose = proxy.expose.as_ref().map(expose).unwrap_or_default();
        // A key of the current generation only.
        if self.is_current() {
            body.local_service_address.clone_from(&proxy.local_service_address);
        }
        if self.config.redirects_traffic() {
            "transparent".clone_into(&mut body.mode);
        }
        let port = proxy.public_listener_port;
        let checks = if self.is_current() {
            vec![MeshCheck::Dataplane]
        } else {
            let mut alias = CheckSpec::default();
            "Destination Alias".clone_into(&mut alias.name);
            alias.alias_service = Some(service.id.clone());
            vec![
                listener_check("Proxy Public Listener", "127.0.0.1", port),
                MeshCheck::Agent(Box::new(alias)),
            ]
        };
        MeshService {
            kind: ServiceKind::ConnectProxy,
            id: format!("{}-sidecar-proxy", service.id),
            name: format!("{}-sidecar-proxy", service.name),
            port,
            proxy: Some(body),
            checks,
            // `..` also copies the service's virtual address: Consul builds the outbound filter
            // chains of other proxies from the sidecar's, without which a call to the task's
            // address leaves the mesh.
            ..service.clone()
        }
    }

    fn gateway(&self, gateway: &GatewayConfig) -> Result<MeshService> {
        let name = self.name("gateway", &gateway.name)?;
        let mut body = ServiceProxy::default();
        body.config.clone_from(&gateway.proxy.config);
        // Terminating and API gateways keep the task's address; upstream ignores these settings for
        // them.
        let has_addresses = gateway.kind == GatewayKind::MeshGateway;
        let lan = Some(&gateway.lan_address).filter(|_| has_addresses);
        let wan = Some(&gateway.wan_address).filter(|_| has_addresses);
        let port = lan.map_or(GATEWAY_PORT, port_of);
        let tagged = [("lan", lan), ("wan", wan)];
        // An address with a port only sets the listener's port and is no address to publish.
        let tagged_addresses = tagged.into_iter().filter_map(|(name, address)| {
            let address = address.filter(|address| !address.address.is_empty())?;
            let port = i64::from(port_of(address));
            Some((name.to_owned(), ServiceAddress { address: address.address.clone(), port }))
        });
        let address = lan.and_then(|address| some(&address.address));
        let checks = if self.is_current() {
            vec![MeshCheck::Dataplane]
        } else {
            let host = address.as_deref().unwrap_or_else(|| self.task.node_ip());
            vec![listener_check(&format!("{} listener", gateway.kind.as_str()), host, port)]
        };
        Ok(MeshService {
            kind: gateway.kind.service_kind(),
            id: format!("{name}-{}", self.task.id()),
            name,
            tags: gateway.tags.clone(),
            meta: self.meta(&gateway.meta),
            port,
            address,
            task_address: self.task.node_ip().to_owned(),
            tagged_addresses: tagged_addresses.collect(),
            proxy: Some(body),
            namespace: some(&gateway.namespace),
            partition: some(&gateway.partition),
            checks,
            ..MeshService::default()
        })
    }

    /// Builds the metadata: the task's identity, and over it the user's own.
    fn meta(&self, own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut meta: BTreeMap<String, String> = [
            ("task-id", self.task.id()),
            ("task-arn", self.task.task_arn.as_str()),
            ("source", "consul-ecs"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        meta.extend(own.clone());
        meta
    }

    fn locality(&self) -> Option<Locality> {
        let region = self.aws_region.filter(|region| !region.is_empty() && self.is_current())?;
        let zone = self.task.availability_zone.clone();
        Some(Locality { region: region.to_owned(), zone })
    }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn port_of(address: &GatewayAddress) -> u16 {
    if address.port == 0 { GATEWAY_PORT } else { address.port }
}

fn listener_check(name: &str, host: &str, port: u16) -> MeshCheck {
    let mut spec = CheckSpec::default();
    name.clone_into(&mut spec.name);
    spec.tcp = Some(format!("{host}:{port}"));
    spec.interval = Some(Duration::from_secs(10));
    // So that a task whose host died leaves the catalog after 10 minutes.
    spec.deregister_critical_service_after = Some(Duration::from_mins(10));
    MeshCheck::Agent(Box::new(spec))
}

fn mesh_gateway(mode: Option<&str>) -> MeshGateway {
    let mut gateway = MeshGateway::default();
    mode.unwrap_or_default().clone_into(&mut gateway.mode);
    gateway
}

/// Builds an upstream.
///
/// Deviation: an unset type is sent as `service`, which it means. Upstream leaves that to the
/// server, and an old one (1.8.7) stores nothing if it is registered in the catalog.
fn upstream(config: &UpstreamConfig) -> Upstream {
    let mut upstream = Upstream::default();
    let kind = some(&config.destination_type);
    upstream.destination_type = kind.unwrap_or_else(|| "service".to_owned());
    upstream.destination_namespace.clone_from(&config.destination_namespace);
    upstream.destination_partition.clone_from(&config.destination_partition);
    upstream.destination_peer.clone_from(&config.destination_peer);
    upstream.destination_name.clone_from(&config.destination_name);
    upstream.datacenter.clone_from(&config.datacenter);
    upstream.local_bind_address.clone_from(&config.local_bind_address);
    upstream.local_bind_port = config.local_bind_port.into();
    upstream.config.clone_from(&config.config);
    upstream.mesh_gateway = mesh_gateway(config.mesh_gateway.as_ref().map(|it| it.mode.as_str()));
    upstream
}

fn expose(config: &ExposeConfig) -> JsonObject {
    let paths: Vec<_> = config
        .paths
        .iter()
        .map(|path| {
            json!({
                "ListenerPort": path.listener_port, "Path": path.path,
                "LocalPathPort": path.local_path_port, "Protocol": path.protocol,
            })
        })
        .collect();
    let mut expose = JsonObject::new();
    if config.checks {
        expose.insert("Checks".to_owned(), true.into());
    }
    if !paths.is_empty() {
        expose.insert("Paths".to_owned(), paths.into());
    }
    expose
}

fn check_spec(config: &CheckConfig) -> Result<CheckSpec> {
    let mut spec = CheckSpec::default();
    spec.check_id.clone_from(&config.check_id);
    spec.name.clone_from(&config.name);
    spec.notes.clone_from(&config.notes);
    spec.ttl = duration("ttl", &config.ttl)?;
    spec.http = some(&config.http);
    spec.method.clone_from(&config.method);
    spec.header.clone_from(&config.header);
    spec.body.clone_from(&config.body);
    spec.tcp = some(&config.tcp);
    spec.udp = some(&config.udp);
    spec.grpc = some(&config.grpc);
    spec.grpc_use_tls = config.grpc_use_tls;
    spec.h2ping = some(&config.h2ping);
    spec.h2ping_use_tls = config.h2ping_use_tls;
    spec.tls_server_name.clone_from(&config.tls_server_name);
    spec.tls_skip_verify = config.tls_skip_verify;
    spec.script_args.clone_from(&config.args);
    spec.alias_node = some(&config.alias_node);
    spec.alias_service = some(&config.alias_service);
    spec.interval = duration("interval", &config.interval)?;
    spec.timeout = duration("timeout", &config.timeout)?;
    spec.status = config.status.clone().map(Into::into);
    spec.success_before_passing = config.success_before_passing;
    let after = &config.deregister_critical_service_after;
    spec.deregister_critical_service_after = duration("deregisterCriticalServiceAfter", after)?;
    spec.failures_before_critical = config.failures_before_critical;
    Ok(spec)
}

fn duration(key: &str, text: &str) -> Result<Option<Duration>> {
    if text.is_empty() {
        return Ok(None);
    }
    let duration = text.parse::<GoDuration>().map_err(|error| {
        Error::input(format!("invalid config: service.checks: {key} {text:?}: {error}"))
    })?;
    // Consul takes a duration of zero for unset.
    Ok(Some(duration.get()).filter(|duration| !duration.is_zero()))
}

#[cfg(test)]
mod tests;
