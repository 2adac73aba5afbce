//! The double's local agent: its services and checks, and how they reach the catalog.

mod registration;
mod sidecar;

use std::time::Duration;

use tokio::time::Instant;

use super::{NODE, Refused, State, tables::LocalCheck};
use crate::{
    GoDuration,
    testing::{
        acl::{Access, Authorizer, Resource},
        refused::listed,
    },
    types::{HealthCheck, HealthStatus, Service, ServiceAddress, ServiceKind},
};

pub(in crate::testing) use registration::duration;
use registration::{NewCheck, NewService};

/// An output that changes while the status stays reaches the catalog this much later.
const OUTPUT_DELAY: Duration = Duration::from_mins(5);
/// Reasons of a maintenance that nobody gave one for.
const SERVICE_MAINTENANCE: &str = "Maintenance mode is enabled for this service, but no reason was provided. This is a default message.";
const NODE_MAINTENANCE: &str = "Maintenance mode is enabled for this node, but no reason was provided. This is a default message.";
/// Longest output that an agent keeps.
const OUTPUT_LIMIT: usize = 4096;

/// A report for a TTL check.
#[derive(Debug)]
pub(in crate::testing) struct CheckUpdate {
    pub(in crate::testing) status: HealthStatus,
    pub(in crate::testing) output: String,
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
    Err(Refused::new(400, format!("{start}{}", listed(&problems))))
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
