//! The double's local agent: its services and checks, and how they reach the catalog.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use tokio::time::Instant;

use super::{NODE, Refused, State, fingerprint, sidecar};
use crate::{
    GoDuration,
    testing::acl::{Access, Authorizer, Resource},
    types::{
        HealthCheck, HealthStatus, Locality, Service, ServiceAddress, ServiceKind, ServiceProxy,
        Weights,
    },
};

/// An output that changes while the status stays reaches the catalog this much later.
const OUTPUT_DELAY: Duration = Duration::from_mins(5);
/// Reasons of a maintenance that nobody gave one for.
const SERVICE_MAINTENANCE: &str = "Maintenance mode is enabled for this service, but no reason was provided. This is a default message.";
const NODE_MAINTENANCE: &str = "Maintenance mode is enabled for this node, but no reason was provided. This is a default message.";
/// Longest output that an agent keeps.
const OUTPUT_LIMIT: usize = 4096;

/// The services and checks of the local agent; the catalog is brought in line with
/// it at once.
#[derive(Default)]
pub(in crate::testing) struct LocalAgent {
    services: BTreeMap<String, Service>,
    checks: BTreeMap<String, LocalCheck>,
    /// Ids of sidecars that came with another service, and go with it.
    sidecars: BTreeSet<String>,
    /// The secret that stands in for a missing token.
    default_token: String,
}

impl fmt::Debug for LocalAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalAgent")
            .field("services", &self.services.keys())
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct LocalCheck {
    check: HealthCheck,
    /// Interval and limit, as they are shown.
    timing: (String, String),
    /// Id of the service whose checks it mirrors.
    alias: Option<String>,
    ttl: Option<Duration>,
    /// When the TTL runs out.
    expires: Option<Instant>,
    /// When a changed output is to reach the catalog.
    sync: Option<Instant>,
    /// When the service is removed for having been critical for too long.
    remove: Option<Instant>,
    remove_after: Option<Duration>,
}

/// The body of a service's registration, as it comes over the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct NewService {
    kind: ServiceKind,
    #[serde(rename = "ID")]
    pub(super) id: String,
    pub(super) name: String,
    tags: Vec<String>,
    address: String,
    #[serde(alias = "tagged_addresses")]
    tagged_addresses: BTreeMap<String, ServiceAddress>,
    socket_path: String,
    meta: BTreeMap<String, String>,
    port: i64,
    pub(super) check: Option<NewCheck>,
    pub(super) checks: Vec<NewCheck>,
    weights: Option<Weights>,
    #[serde(alias = "enable_tag_override")]
    enable_tag_override: bool,
    proxy: Option<ServiceProxy>,
    pub(super) connect: Option<NewConnect>,
    locality: Option<Locality>,
    namespace: Option<String>,
    partition: Option<String>,
    #[serde(rename = "Token")]
    _token: String,
}

impl NewService {
    /// The service itself.
    pub(super) fn service(&self) -> Service {
        let mut service = Service::new(self.name.clone(), self.id.clone());
        service.kind = self.kind.clone();
        service.tags.clone_from(&self.tags);
        service.address.clone_from(&self.address);
        service.tagged_addresses.clone_from(&self.tagged_addresses);
        service.socket_path.clone_from(&self.socket_path);
        service.meta.clone_from(&self.meta);
        service.port = self.port;
        service.weights = self.weights.unwrap_or_default();
        service.enable_tag_override = self.enable_tag_override;
        service.proxy = self.proxy.clone().unwrap_or_default();
        service.connect.native = self.connect.as_ref().is_some_and(|connect| connect.native);
        service.locality.clone_from(&self.locality);
        service.namespace.clone_from(&self.namespace);
        service.partition.clone_from(&self.partition);
        service
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(in crate::testing) struct NewConnect {
    native: bool,
    #[serde(alias = "sidecar_service")]
    pub(super) sidecar_service: Option<Box<NewService>>,
}

/// The body of a check's registration.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct NewCheck {
    #[serde(rename = "ID")]
    pub(super) id: String,
    #[serde(rename = "CheckID")]
    pub(super) check_id: String,
    pub(super) name: String,
    pub(super) notes: String,
    #[serde(rename = "ServiceID", alias = "service_id")]
    pub(super) service_id: String,
    #[serde(alias = "alias_service")]
    pub(super) alias_service: String,
    #[serde(alias = "alias_node")]
    pub(super) alias_node: String,
    #[serde(deserialize_with = "duration")]
    pub(super) interval: Option<Duration>,
    #[serde(deserialize_with = "duration")]
    pub(super) timeout: Option<Duration>,
    #[serde(rename = "TTL", deserialize_with = "duration")]
    pub(super) ttl: Option<Duration>,
    pub(super) status: String,
    #[serde(rename = "HTTP")]
    pub(super) http: String,
    #[serde(rename = "TCP")]
    pub(super) tcp: String,
    #[serde(rename = "GRPC")]
    pub(super) grpc: String,
    #[serde(rename = "UDP")]
    pub(super) udp: String,
    #[serde(rename = "H2PING")]
    pub(super) h2ping: String,
    #[serde(rename = "ScriptArgs", alias = "Args", alias = "script_args")]
    pub(super) args: Vec<String>,
    #[serde(alias = "deregister_critical_service_after", deserialize_with = "duration")]
    pub(super) deregister_critical_service_after: Option<Duration>,
    // What a check may say that the double does not carry out.
    #[serde(rename = "Header")]
    pub(super) _header: IgnoredAny,
    #[serde(rename = "Method")]
    pub(super) _method: IgnoredAny,
    #[serde(rename = "Body")]
    pub(super) _body: IgnoredAny,
    #[serde(rename = "DisableRedirects")]
    pub(super) _disable_redirects: IgnoredAny,
    #[serde(rename = "TCPUseTLS")]
    pub(super) _tcp_usetls: IgnoredAny,
    #[serde(rename = "H2PingUseTLS")]
    pub(super) _h2_ping_usetls: IgnoredAny,
    #[serde(rename = "DockerContainerID", alias = "docker_container_id")]
    pub(super) _docker_containerid: IgnoredAny,
    #[serde(rename = "Shell")]
    pub(super) _shell: IgnoredAny,
    #[serde(rename = "GRPCUseTLS", alias = "grpc_use_tls")]
    pub(super) _grpc_usetls: IgnoredAny,
    #[serde(rename = "TLSServerName", alias = "tls_server_name")]
    pub(super) _tls_server_name: IgnoredAny,
    #[serde(rename = "TLSSkipVerify", alias = "tls_skip_verify")]
    pub(super) _tls_skip_verify: IgnoredAny,
    #[serde(rename = "OSService")]
    pub(super) _os_service: IgnoredAny,
    #[serde(rename = "SuccessBeforePassing", alias = "success_before_passing")]
    pub(super) _success_before_passing: IgnoredAny,
    #[serde(rename = "FailuresBeforeWarning", alias = "failures_before_warning")]
    pub(super) _failures_before_warning: IgnoredAny,
    #[serde(rename = "FailuresBeforeCritical", alias = "failures_before_critical")]
    pub(super) _failures_before_critical: IgnoredAny,
    #[serde(rename = "OutputMaxSize", alias = "output_max_size")]
    pub(super) _output_max_size: IgnoredAny,
    #[serde(rename = "Token")]
    pub(super) _token: IgnoredAny,
    #[serde(rename = "Namespace")]
    pub(super) _namespace: IgnoredAny,
    #[serde(rename = "Partition")]
    pub(super) _partition: IgnoredAny,
}

/// A duration as text, or as a number of nanoseconds.
pub(in crate::testing) fn duration<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    use serde::de::Error as _;
    match Value::deserialize(deserializer)? {
        Value::String(text) if text.is_empty() => Ok(None),
        Value::String(text) => {
            let read = text
                .parse::<GoDuration>()
                .map_err(|_bad| D::Error::custom(format!("time: invalid duration {text:?}")))?;
            Ok(Some(read.get()).filter(|read| !read.is_zero()))
        }
        Value::Number(number) => {
            let nanoseconds = number.as_f64().unwrap_or_default().max(0.0);
            let read = Duration::try_from_secs_f64(nanoseconds / 1e9).unwrap_or_default();
            Ok(Some(read).filter(|read| !read.is_zero()))
        }
        _ => Ok(None),
    }
}

/// A report for a TTL check.
#[derive(Debug)]
pub(in crate::testing) struct CheckUpdate {
    pub(in crate::testing) status: HealthStatus,
    pub(in crate::testing) output: String,
}

impl LocalAgent {
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.checks
            .values()
            .flat_map(|check| [check.expires, check.sync, check.remove])
            .flatten()
            .min()
    }

    pub(in crate::testing) fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.values()
    }

    pub(in crate::testing) fn checks(&self) -> impl Iterator<Item = &HealthCheck> {
        self.checks.values().map(|local| &local.check)
    }

    pub(in crate::testing) fn check(&self, id: &str) -> Option<&HealthCheck> {
        self.checks.get(id).map(|local| &local.check)
    }

    pub(in crate::testing) fn set_default_token(&mut self, secret: String) {
        self.default_token = secret;
    }

    /// The interval and the limit of a check, as the agent shows them.
    pub(in crate::testing) fn timing(&self, check: &str) -> Option<(String, String)> {
        self.checks.get(check).map(|local| local.timing.clone())
    }

    /// Returns the number of checks that wait for reports.
    pub(in crate::testing) fn ttls(&self) -> usize {
        self.checks.values().filter(|local| local.ttl.is_some()).count()
    }

    /// The secret that a request counts as sending.
    pub(in crate::testing) fn token_or_default<'a>(&'a self, sent: &'a str) -> &'a str {
        if sent.is_empty() { &self.default_token } else { sent }
    }

    /// A service with the hash of its definition.
    pub(in crate::testing) fn service(&self, id: &str) -> Option<(&Service, String)> {
        let service = self.services.get(id)?;
        Some((service, format!("{:016x}", fingerprint(&format!("{service:?}")))))
    }
}

impl State {
    pub(in crate::testing) fn agent_register_service(
        &mut self,
        new: NewService,
        replace_checks: bool,
        who: &Authorizer,
        now: Instant,
    ) -> Result<(), Refused> {
        if new.name.is_empty() {
            return Err(Refused::new(400, "Missing service name"));
        }
        if matches!(new.address.as_str(), "0.0.0.0" | "::" | "[::]") {
            return Err(Refused::new(400, "Invalid service address"));
        }
        let mut service = new.service();
        if service.id.is_empty() {
            service.id.clone_from(&service.name);
        }
        check_service(&service)?;
        check_proxy(&service, self.is_1_8())?;
        for check in new.check.iter().chain(&new.checks) {
            check.validate(true, self.is_1_8())?;
        }
        // The agent has an address of its own in each form that others may ask for.
        if service.address.parse::<std::net::Ipv4Addr>().is_ok() {
            for form in ["lan_ipv4", "wan_ipv4"] {
                service.tagged_addresses.entry(form.to_owned()).or_insert_with(|| ServiceAddress {
                    address: service.address.clone(),
                    port: service.port,
                });
            }
        }
        let sidecar = new
            .connect
            .and_then(|connect| connect.sidecar_service)
            .map(|sidecar| sidecar::expand(&service, *sidecar, &self.agent))
            .transpose()?;
        self.vet_service(&service, who)?;
        if let Some((sidecar, _)) = &sidecar {
            self.vet_service(sidecar, who)?;
        }
        if replace_checks {
            self.drop_checks_of(&service.id, now);
        }
        self.put_local_service(service, new.check.into_iter().chain(new.checks).collect(), now)?;
        if let Some((sidecar, checks)) = sidecar {
            self.agent.sidecars.insert(sidecar.id.clone());
            self.put_local_service(sidecar, checks, now)?;
        }
        self.refresh_aliases(now);
        Ok(())
    }

    fn drop_checks_of(&mut self, service: &str, now: Instant) {
        let checks = self.agent.checks.values().map(|local| &local.check);
        let ids: Vec<String> = checks
            .filter(|check| check.service_id == service)
            .map(|check| check.check_id.clone())
            .collect();
        for id in ids {
            self.agent.checks.remove(&id);
            let index = self.commit();
            self.remove_check(NODE, &id, index, now);
        }
    }

    fn put_local_service(
        &mut self,
        service: Service,
        checks: Vec<NewCheck>,
        now: Instant,
    ) -> Result<(), Refused> {
        let id = service.id.clone();
        self.agent.services.insert(id.clone(), service.clone());
        let index = self.commit();
        self.put_service(NODE, service, index);
        let many = checks.len() > 1;
        for (at, mut check) in checks.into_iter().enumerate() {
            check.service_id.clone_from(&id);
            if check.check_id.is_empty() {
                check.check_id =
                    if many { format!("service:{id}:{}", at + 1) } else { format!("service:{id}") };
            }
            // A check that is registered again keeps its state: measured on Consul 1.8.7 and 1.19.2.
            let check_id = check.check_id.clone();
            let before = self.agent.checks.get(&check_id).map(|local| &local.check);
            let before = before
                .filter(|before| before.service_id == id)
                .map(|before| (before.status.clone(), before.output.clone()));
            if let Some((status, _)) = &before {
                status.as_str().clone_into(&mut check.status);
            }
            self.put_local_check(check, true, now)?;
            if let (Some((_, output)), Some(local)) = (before, self.agent.checks.get_mut(&check_id))
            {
                local.check.output = output;
                self.sync_check(&check_id, now);
            }
        }
        Ok(())
    }

    /// Refuses a service that the token may not register with the agent: its
    /// own name, that of the one it replaces, and that of a proxy's destination.
    fn vet_service(&self, service: &Service, who: &Authorizer) -> Result<(), Refused> {
        let write = |name: &str| who.require_of_agent(Resource::Service, name, Access::Write);
        write(&service.name)?;
        if let Some(old) = self.agent.services.get(&service.id) {
            write(&old.name)?;
        }
        if service.kind == ServiceKind::ConnectProxy {
            write(&service.proxy.destination_service_name)?;
        }
        Ok(())
    }

    pub(in crate::testing) fn agent_register_check(
        &mut self,
        new: NewCheck,
        who: &Authorizer,
        now: Instant,
    ) -> Result<(), Refused> {
        match self.agent.services.get(&new.service_id) {
            Some(service) => {
                who.require_of_agent(Resource::Service, &service.name, Access::Write)?;
            }
            None if new.service_id.is_empty() => {
                who.require_of_agent(Resource::Node, NODE, Access::Write)?;
            }
            None => {}
        }
        if new.name.is_empty() {
            return Err(Refused::new(400, "Missing check name"));
        }
        new.validate(false, self.is_1_8())?;
        self.put_local_check(new, false, now)?;
        self.refresh_aliases(now);
        Ok(())
    }

    fn put_local_check(
        &mut self,
        new: NewCheck,
        with_service: bool,
        now: Instant,
    ) -> Result<(), Refused> {
        let id = [&new.check_id, &new.id, &new.name].into_iter().find(|id| !id.is_empty()).cloned();
        let Some(id) = id else {
            return Err(Refused::new(400, "Missing check name"));
        };
        let service = self.agent.services.get(&new.service_id);
        if !new.service_id.is_empty() && service.is_none() {
            let status = if self.is_1_8() { 500 } else { 404 };
            return Err(Refused::new(
                status,
                format!("ServiceID {:?} does not exist", new.service_id),
            ));
        }
        let label = service
            .map_or_else(|| id.clone(), |service| format!("Service '{}' check", service.name));
        let kind = [
            (new.ttl.is_some(), "ttl"),
            (!new.http.is_empty(), "http"),
            (!new.tcp.is_empty(), "tcp"),
            (!new.alias_service.is_empty(), "alias"),
        ];
        let kind = kind.into_iter().find(|(set, _)| *set).map_or("", |(_, kind)| kind);
        let status = if new.status.is_empty() {
            HealthStatus::Critical
        } else {
            HealthStatus::from(new.status)
        };
        let check = HealthCheck {
            service_tags: service.map(|service| service.tags.clone()).unwrap_or_default(),
            name: if new.name.is_empty() { label } else { new.name },
            notes: new.notes,
            kind: kind.to_owned(),
            node: NODE.to_owned(),
            service_name: service.map(|service| service.name.clone()).unwrap_or_default(),
            ..HealthCheck::of_service(new.service_id, id.clone(), status)
        };
        // Consul does not remove a service sooner than after a minute.
        let remove_after =
            new.deregister_critical_service_after.map(|after| after.max(Duration::from_mins(1)));
        let critical = check.status == HealthStatus::Critical;
        let timing = |duration: Option<Duration>| match duration {
            // A check that comes with its service shows nothing where nothing was said.
            None if with_service => String::new(),
            duration => GoDuration::new(duration.unwrap_or_default()).to_string(),
        };
        let local = LocalCheck {
            timing: (timing(new.interval), timing(new.timeout)),
            alias: Some(new.alias_service).filter(|id| !id.is_empty()),
            expires: new.ttl.map(|ttl| now + ttl),
            ttl: new.ttl,
            sync: None,
            remove: remove_after.filter(|_| critical).map(|after| now + after),
            remove_after,
            check,
        };
        self.agent.checks.insert(id.clone(), local);
        self.sync_check(&id, now);
        Ok(())
    }

    /// Brings the catalog's copy of a check in line with the agent's.
    fn sync_check(&mut self, id: &str, now: Instant) {
        let Some(local) = self.agent.checks.get_mut(id) else {
            return;
        };
        local.sync = None;
        let check = local.check.clone();
        let index = self.commit();
        self.put_check(NODE, check, index, now);
    }

    pub(in crate::testing) fn agent_deregister_service(
        &mut self,
        id: &str,
        now: Instant,
    ) -> Result<(), Refused> {
        if self.agent.services.remove(id).is_none() {
            if self.is_1_8() {
                return Ok(());
            }
            return Err(unknown_service(id));
        }
        self.forget_local_service(id, now);
        // Its sidecar goes with it, if that came with it.
        let sidecar = format!("{id}-sidecar-proxy");
        if self.agent.sidecars.remove(&sidecar) && self.agent.services.remove(&sidecar).is_some() {
            self.forget_local_service(&sidecar, now);
        }
        self.refresh_aliases(now);
        Ok(())
    }

    /// Takes the checks of a service away, and what the catalog has of it.
    fn forget_local_service(&mut self, id: &str, now: Instant) {
        self.agent.sidecars.remove(id);
        self.agent.checks.retain(|_, local| local.check.service_id != id);
        let index = self.commit();
        self.remove_service(NODE, id, index, now);
    }

    /// Brings alias checks in line with the checks that they mirror: those of
    /// the service and of the node.
    fn refresh_aliases(&mut self, now: Instant) {
        let aliases: Vec<(String, String)> = self
            .agent
            .checks
            .iter()
            .filter_map(|(id, local)| Some((id.clone(), local.alias.clone()?)))
            .collect();
        for (id, service) in aliases {
            let mirrored = || {
                let checks = self.agent.checks.values().map(|local| &local.check);
                checks.filter(|check| {
                    check.check_id != id
                        && (check.service_id == service || check.service_id.is_empty())
                })
            };
            let worst = [HealthStatus::Critical, HealthStatus::Warning]
                .into_iter()
                .find_map(|status| mirrored().find(|check| check.status == status));
            let (status, output) = match worst {
                Some(check) => (
                    check.status.clone(),
                    format!("Aliased check {:?} failing: {}", check.name, check.output),
                ),
                None if mirrored().next().is_none() => {
                    (HealthStatus::Passing, "No checks found.".to_owned())
                }
                None => (HealthStatus::Passing, "All checks passing.".to_owned()),
            };
            let Some(local) = self.agent.checks.get_mut(&id) else { continue };
            let changed = local.check.status != status;
            (local.check.status, local.check.output) = (status, output);
            if changed {
                self.sync_check(&id, now);
            }
        }
    }

    pub(in crate::testing) fn agent_deregister_check(
        &mut self,
        id: &str,
        now: Instant,
    ) -> Result<(), Refused> {
        if self.agent.checks.remove(id).is_none() {
            return if self.is_1_8() { Ok(()) } else { Err(unknown_check(id)) };
        }
        let index = self.commit();
        self.remove_check(NODE, id, index, now);
        self.refresh_aliases(now);
        Ok(())
    }

    pub(in crate::testing) fn agent_update_check(
        &mut self,
        id: &str,
        update: CheckUpdate,
        now: Instant,
    ) -> Result<(), Refused> {
        let old_version = self.is_1_8();
        let without_ttl =
            || Refused::new(500, format!("CheckID {id:?} does not have associated TTL"));
        let local = match self.agent.checks.get_mut(id) {
            Some(local) => local,
            None if old_version => return Err(without_ttl()),
            None => return Err(unknown_check(id)),
        };
        let ttl = local.ttl.ok_or_else(without_ttl)?;
        local.expires = Some(now + ttl);
        let output = cut(update.output);
        let status_same = local.check.status == update.status;
        let output_same = local.check.output == output;
        local.check.output = output;
        if status_same {
            if !output_same && local.sync.is_none() {
                local.sync = Some(now + OUTPUT_DELAY);
            }
            return Ok(());
        }
        local.remove = (update.status == HealthStatus::Critical)
            .then_some(local.remove_after)
            .flatten()
            .map(|after| now + after);
        local.check.status = update.status;
        self.sync_check(id, now);
        self.refresh_aliases(now);
        Ok(())
    }

    pub(super) fn expire_checks(&mut self, now: Instant) {
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        let expired: Vec<String> = self.due_checks(|local| is_due(local.expires));
        for id in expired {
            if let Some(local) = self.agent.checks.get_mut(&id) {
                local.expires = None;
                let before = std::mem::take(&mut local.check.output);
                local.check.output = if before.is_empty() {
                    "TTL expired".to_owned()
                } else {
                    format!("TTL expired (last output before timeout follows): {before}")
                };
                local.check.status = HealthStatus::Critical;
                local.remove = local.remove_after.map(|after| now + after);
            }
            self.sync_check(&id, now);
        }
        for id in self.due_checks(|local| is_due(local.sync)) {
            self.sync_check(&id, now);
        }
        for id in self.due_checks(|local| is_due(local.remove)) {
            let service = self.agent.checks.get_mut(&id).map(|local| {
                local.remove = None;
                local.check.service_id.clone()
            });
            if let Some(service) =
                service.filter(|service| self.agent.services.contains_key(service))
            {
                self.agent.services.remove(&service);
                self.forget_local_service(&service, now);
            }
        }
        self.refresh_aliases(now);
    }

    fn due_checks(&self, due: impl Fn(&LocalCheck) -> bool) -> Vec<String> {
        self.agent.checks.iter().filter(|(_, local)| due(local)).map(|(id, _)| id.clone()).collect()
    }

    /// Switches maintenance of a service, or with `None` of the node.
    pub(in crate::testing) fn agent_maintenance(
        &mut self,
        service: Option<&str>,
        enable: bool,
        reason: &str,
        now: Instant,
    ) -> Result<(), Refused> {
        let (id, name) = match service {
            None => ("_node_maintenance".to_owned(), "Node Maintenance Mode"),
            Some(service) => {
                (format!("_service_maintenance:{service}"), "Service Maintenance Mode")
            }
        };
        if let Some(service) = service.filter(|service| !self.agent.services.contains_key(*service))
        {
            return Err(if self.is_1_8() {
                Refused::new(404, format!("No service registered with ID {service:?}"))
            } else {
                unknown_service(service)
            });
        }
        let on = self.agent.checks.contains_key(&id);
        if enable == on {
            return Ok(());
        }
        if !enable {
            return self.agent_deregister_check(&id, now);
        }
        let reason = if reason.is_empty() {
            match service {
                Some(_) => SERVICE_MAINTENANCE,
                None => NODE_MAINTENANCE,
            }
        } else {
            reason
        };
        let of = service.and_then(|id| self.agent.services.get(id));
        let check = HealthCheck {
            service_name: of.map(|service| service.name.clone()).unwrap_or_default(),
            service_tags: of.map(|service| service.tags.clone()).unwrap_or_default(),
            name: name.to_owned(),
            notes: reason.to_owned(),
            node: NODE.to_owned(),
            kind: "maintenance".to_owned(),
            ..HealthCheck::of_service(
                service.unwrap_or_default(),
                id.clone(),
                HealthStatus::Critical,
            )
        };
        let local = LocalCheck {
            check,
            timing: (String::new(), String::new()),
            alias: None,
            ttl: None,
            expires: None,
            sync: None,
            remove: None,
            remove_after: None,
        };
        self.agent.checks.insert(id.clone(), local);
        self.sync_check(&id, now);
        self.refresh_aliases(now);
        Ok(())
    }
}

/// Refuses a proxy that lacks what it needs.
fn check_proxy(service: &Service, old: bool) -> Result<(), Refused> {
    if service.kind != ServiceKind::ConnectProxy {
        return Ok(());
    }
    let mut problems = Vec::new();
    if service.proxy.destination_service_name.is_empty() {
        let text = "Proxy.DestinationServiceName must be non-empty for Connect proxy services";
        problems.push(text.to_owned());
    }
    if service.port == 0 && service.socket_path.is_empty() {
        let text = if old {
            "Port must be set for a Connect proxy"
        } else {
            "Port or SocketPath must be set for a connect-proxy"
        };
        problems.push(text.to_owned());
    }
    if !old {
        // They list the port first.
        problems.reverse();
    }
    if problems.is_empty() {
        return Ok(());
    }
    let start = if old { "" } else { "Validation failed: " };
    Err(Refused::new(400, format!("{start}{}", sidecar::listed(&problems))))
}

/// Refuses weights and metadata that cannot be.
fn check_service(service: &Service) -> Result<(), Refused> {
    let weights = service.weights;
    if weights.passing < 1 {
        return Err(Refused::new(400, "Invalid Weights: Passing must be greater than 0"));
    }
    if weights.warning < 0 {
        let text = "Invalid Weights: Warning must be greater or equal than 0";
        return Err(Refused::new(400, text));
    }
    if let Some((key, value)) = service.meta.iter().find(|(key, _)| key.starts_with("consul-")) {
        let text = format!(
            "Invalid Service Meta: Couldn't load metadata pair ('{key}', '{value}'): Key prefix 'consul-' is reserved for internal use"
        );
        return Err(Refused::new(400, text));
    }
    Ok(())
}

impl NewCheck {
    /// Refuses a check that could not be carried out.
    fn validate(&self, with_service: bool, old: bool) -> Result<(), Refused> {
        let bad = |text: &str| Err(Refused::new(400, text));
        let probes = [&self.http, &self.tcp, &self.grpc, &self.udp, &self.h2ping];
        let probes = probes.into_iter().any(|target| !target.is_empty()) || !self.args.is_empty();
        let interval = self.interval.is_some();
        if !self.alias_service.is_empty() || !self.alias_node.is_empty() {
        } else if probes && self.ttl.is_some() {
            return bad("Invalid check: Interval and TTL cannot both be specified");
        } else if probes && !interval {
            let kinds = if old {
                "Script, HTTP, or TCP"
            } else {
                "Script, HTTP, H2PING, TCP, UDP or OSService"
            };
            return bad(&format!("Invalid check: Interval must be > 0 for {kinds} checks"));
        } else if !probes && self.ttl.is_none() {
            return bad("Invalid check: TTL must be > 0 for TTL checks");
        }
        if matches!(self.status.as_str(), "" | "passing" | "warning" | "critical") {
            return Ok(());
        }
        bad(if with_service {
            "Status for checks must 'passing', 'warning', 'critical'"
        } else {
            "Bad check status"
        })
    }
}

fn unknown_service(id: &str) -> Refused {
    let text = format!(
        "Unknown service ID {id:?}. Ensure that the service ID is passed, not the service name."
    );
    Refused::new(404, text)
}

fn unknown_check(id: &str) -> Refused {
    Refused::new(
        404,
        format!("Unknown check ID {id:?}. Ensure that the check ID is passed, not the check name."),
    )
}

fn cut(mut output: String) -> String {
    if output.len() <= OUTPUT_LIMIT {
        return output;
    }
    let total = output.len();
    let mut end = OUTPUT_LIMIT;
    while !output.is_char_boundary(end) {
        end -= 1;
    }
    output.truncate(end);
    format!("{output} ... (captured {end} of {total} bytes)")
}
