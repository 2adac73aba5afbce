use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use serde::Deserialize;
use tokio::time::Instant;

use super::{NODE, Refused, State, fingerprint, sidecar};
use crate::{
    GoDuration,
    testing::acl::{Access, Authorizer, Resource},
    types::{HealthCheck, HealthStatus, JsonObject, Service, ServiceKind, from_go_text, nullable},
};

/// An output that changes while the status stays reaches the catalog this much later.
const OUTPUT_DELAY: Duration = Duration::from_mins(5);
/// Longest output that an agent keeps.
const OUTPUT_LIMIT: usize = 4096;

/// What the local agent runs by itself; the catalog is brought in line with it at once.
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
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(in crate::testing) struct NewService {
    #[serde(default, deserialize_with = "nullable")]
    pub(super) name: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) check: Option<NewCheck>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) checks: Vec<NewCheck>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) connect: NewConnect,
    #[serde(flatten)]
    pub(super) service: Service,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(in crate::testing) struct NewConnect {
    #[serde(deserialize_with = "nullable")]
    native: bool,
    pub(super) sidecar_service: Option<Box<NewService>>,
}

/// The body of a check's registration.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(in crate::testing) struct NewCheck {
    #[serde(rename = "ID", deserialize_with = "nullable")]
    pub(super) id: String,
    #[serde(rename = "CheckID", deserialize_with = "nullable")]
    pub(super) check_id: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) notes: String,
    #[serde(rename = "ServiceID", deserialize_with = "nullable")]
    pub(super) service_id: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) alias_service: String,
    #[serde(deserialize_with = "from_go_text")]
    pub(super) interval: Option<Duration>,
    #[serde(rename = "TTL", deserialize_with = "from_go_text")]
    pub(super) ttl: Option<Duration>,
    #[serde(deserialize_with = "nullable")]
    pub(super) status: String,
    #[serde(rename = "HTTP", deserialize_with = "nullable")]
    pub(super) http: String,
    #[serde(rename = "TCP", deserialize_with = "nullable")]
    pub(super) tcp: String,
    #[serde(deserialize_with = "from_go_text")]
    pub(super) deregister_critical_service_after: Option<Duration>,
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
        who: &Authorizer,
        now: Instant,
    ) -> Result<(), Refused> {
        if new.name.is_empty() {
            return Err(Refused::new(400, "Missing service name"));
        }
        if matches!(new.service.address.as_str(), "0.0.0.0" | "::" | "[::]") {
            return Err(Refused::new(400, "Invalid service address"));
        }
        let mut service = Service { name: new.name, ..new.service };
        service.connect.native = new.connect.native;
        if service.id.is_empty() {
            service.id.clone_from(&service.name);
        }
        check_proxy(&service)?;
        let sidecar = new
            .connect
            .sidecar_service
            .map(|sidecar| sidecar::expand(&service, *sidecar, &self.agent))
            .transpose()?;
        self.vet_service(&service, who)?;
        if let Some((sidecar, _)) = &sidecar {
            self.vet_service(sidecar, who)?;
        }
        self.put_local_service(service, new.check.into_iter().chain(new.checks).collect(), now)?;
        if let Some((sidecar, checks)) = sidecar {
            self.agent.sidecars.insert(sidecar.id.clone());
            self.put_local_service(sidecar, checks, now)?;
        }
        self.refresh_aliases(now);
        Ok(())
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
            self.put_local_check(check, now)?;
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
        self.put_local_check(new, now)?;
        self.refresh_aliases(now);
        Ok(())
    }

    fn put_local_check(&mut self, new: NewCheck, now: Instant) -> Result<(), Refused> {
        let id = [&new.check_id, &new.id, &new.name].into_iter().find(|id| !id.is_empty()).cloned();
        let Some(id) = id else {
            return Err(Refused::new(400, "Missing check name"));
        };
        let service = self.agent.services.get(&new.service_id);
        if !new.service_id.is_empty() && service.is_none() {
            return Err(Refused::new(
                500,
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
        let mut definition = JsonObject::new();
        for (name, text) in [("HTTP", &new.http), ("TCP", &new.tcp)] {
            if !text.is_empty() {
                definition.insert(name.to_owned(), text.as_str().into());
            }
        }
        if let Some(interval) = new.interval {
            definition.insert("Interval".to_owned(), GoDuration::new(interval).to_string().into());
        }
        let check = HealthCheck {
            definition,
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
        let local = LocalCheck {
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
            let text = format!(
                "Unknown service ID {id:?}. Ensure that the service ID is passed, not the service name."
            );
            return Err(Refused::new(404, text));
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
            return Err(Refused::new(404, format!("No service registered with ID {service:?}")));
        }
        let on = self.agent.checks.contains_key(&id);
        if enable == on {
            return Ok(());
        }
        if !enable {
            return self.agent_deregister_check(&id, now);
        }
        let reason = if reason.is_empty() {
            "Maintenance mode is enabled for this service."
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
fn check_proxy(service: &Service) -> Result<(), Refused> {
    if service.kind != ServiceKind::ConnectProxy {
        return Ok(());
    }
    let mut problems = Vec::new();
    if service.proxy.destination_service_name.is_empty() {
        let text = "Proxy.DestinationServiceName must be non-empty for Connect proxy services";
        problems.push(text.to_owned());
    }
    if service.port == 0 && service.socket_path.is_empty() {
        problems.push("Port must be set for a Connect proxy".to_owned());
    }
    if problems.is_empty() { Ok(()) } else { Err(Refused::new(400, sidecar::listed(&problems))) }
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
