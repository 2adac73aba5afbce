use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use tokio::time::Instant;

use super::{NODE, Refused, State, fingerprint};
use crate::types::{HealthCheck, HealthStatus, Service, ServiceKind, from_go_text, nullable};

/// An output that changes while the status stays reaches the catalog this much later.
const OUTPUT_DELAY: Duration = Duration::from_mins(5);
/// Longest output that an agent keeps.
const OUTPUT_LIMIT: usize = 4096;

/// What the local agent runs by itself; the catalog is brought in line with it at once.
#[derive(Debug, Default)]
pub(in crate::testing) struct LocalAgent {
    services: BTreeMap<String, Service>,
    checks: BTreeMap<String, LocalCheck>,
}

#[derive(Debug)]
struct LocalCheck {
    check: HealthCheck,
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
    name: String,
    #[serde(default, deserialize_with = "nullable")]
    check: Option<NewCheck>,
    #[serde(default, deserialize_with = "nullable")]
    checks: Vec<NewCheck>,
    #[serde(flatten)]
    service: Service,
}

/// The body of a check's registration.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(in crate::testing) struct NewCheck {
    #[serde(rename = "ID", deserialize_with = "nullable")]
    id: String,
    #[serde(rename = "CheckID", deserialize_with = "nullable")]
    check_id: String,
    #[serde(deserialize_with = "nullable")]
    name: String,
    #[serde(deserialize_with = "nullable")]
    notes: String,
    #[serde(rename = "ServiceID", deserialize_with = "nullable")]
    service_id: String,
    #[serde(rename = "TTL", deserialize_with = "from_go_text")]
    ttl: Option<Duration>,
    #[serde(deserialize_with = "nullable")]
    status: String,
    #[serde(rename = "HTTP", deserialize_with = "nullable")]
    http: String,
    #[serde(rename = "TCP", deserialize_with = "nullable")]
    tcp: String,
    #[serde(deserialize_with = "from_go_text")]
    deregister_critical_service_after: Option<Duration>,
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
        now: Instant,
    ) -> Result<(), Refused> {
        if new.name.is_empty() {
            return Err(Refused::new(400, "Missing service name"));
        }
        if matches!(new.service.address.as_str(), "0.0.0.0" | "::" | "[::]") {
            return Err(Refused::new(400, "Invalid service address"));
        }
        let mut service = Service { name: new.name, ..new.service };
        if service.id.is_empty() {
            service.id.clone_from(&service.name);
        }
        let id = service.id.clone();
        let checks: Vec<NewCheck> = new.check.into_iter().chain(new.checks).collect();
        let kind_is_proxy = service.kind == ServiceKind::ConnectProxy;
        if kind_is_proxy && service.proxy.destination_service_name.is_empty() {
            return Err(Refused::new(
                400,
                "Invalid service registration: Proxy.DestinationServiceName must be non-empty for Connect proxy services",
            ));
        }
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
            self.agent_register_check(check, now)?;
        }
        Ok(())
    }

    pub(in crate::testing) fn agent_register_check(
        &mut self,
        new: NewCheck,
        now: Instant,
    ) -> Result<(), Refused> {
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
        ];
        let kind = kind.into_iter().find(|(set, _)| *set).map_or("", |(_, kind)| kind);
        let status = if new.status.is_empty() {
            HealthStatus::Critical
        } else {
            HealthStatus::from(new.status)
        };
        let check = HealthCheck {
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
        self.agent.checks.retain(|_, local| local.check.service_id != id);
        let index = self.commit();
        self.remove_service(NODE, id, index, now);
        Ok(())
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
                self.agent.checks.retain(|_, local| local.check.service_id != service);
                let index = self.commit();
                self.remove_service(NODE, &service, index, now);
            }
        }
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
        let check = HealthCheck {
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
            ttl: None,
            expires: None,
            sync: None,
            remove: None,
            remove_after: None,
        };
        self.agent.checks.insert(id.clone(), local);
        self.sync_check(&id, now);
        Ok(())
    }
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
