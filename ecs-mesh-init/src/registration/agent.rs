//! Registration with a Consul agent that runs in the task (early generation).

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use consul_watch::{
    AgentApi,
    types::{AgentServiceRegistration, CheckSpec, HealthCheck, HealthStatus},
};

use super::{MeshCheck, MeshService, Registrar};
use crate::{Error, Result};

/// TTL of a copied check: in effect infinite, since the health of a container may not change for
/// months.
const SYNCED_TTL: Duration = Duration::from_hours(100_000);

/// Returns the id of the check that copies a container's health.
pub(crate) fn synced_check_id(service_id: &str, container: &str) -> String {
    format!("{service_id}-{container}-consul-ecs")
}

/// Builds the registration of a service with an agent.
///
/// Empty members are left out, since a community agent refuses `Namespace` and `Partition`, and
/// weights of zero.
///
/// Source: consul-ecs 0.6 `subcommand/mesh-init/command.go`.
pub fn agent_registration(service: &MeshService) -> AgentServiceRegistration {
    let mut registration = AgentServiceRegistration::new(service.name.as_str());
    registration.kind = service.kind.clone();
    registration.id.clone_from(&service.id);
    registration.tags.clone_from(&service.tags);
    registration.port = service.port.into();
    registration.address = service.address.clone().unwrap_or_default();
    registration.tagged_addresses.clone_from(&service.tagged_addresses);
    registration.enable_tag_override = service.enable_tag_override;
    registration.meta.clone_from(&service.meta);
    registration.weights = service.weights;
    registration.proxy.clone_from(&service.proxy);
    registration.namespace.clone_from(&service.namespace);
    registration.partition.clone_from(&service.partition);
    registration.checks =
        service.checks.iter().filter_map(|check| check_spec(service, check)).collect();
    registration
}

fn check_spec(service: &MeshService, check: &MeshCheck) -> Option<CheckSpec> {
    match check {
        MeshCheck::Agent(spec) => Some((**spec).clone()),
        MeshCheck::Container(container) => {
            let mut spec = CheckSpec::ttl(synced_check_id(&service.id, container), SYNCED_TTL);
            "consul ecs synced".clone_into(&mut spec.name);
            spec.notes = format!(
                "consul-ecs created and updates this check because the {container} container \
                 is essential and has an ECS health check."
            );
            Some(spec)
        }
        MeshCheck::Dataplane => None,
    }
}

/// Registrar that writes to the agent in the task.
#[derive(Debug, Clone)]
pub struct AgentRegistrar {
    agent: Arc<dyn AgentApi>,
}

impl AgentRegistrar {
    /// Creates a registrar for this agent.
    pub fn new(agent: Arc<dyn AgentApi>) -> Self {
        Self { agent }
    }
}

#[async_trait]
impl Registrar for AgentRegistrar {
    async fn register(&self, service: &MeshService) -> Result<()> {
        let registration = agent_registration(service);
        self.agent
            .agent_register_service(&registration)
            .await
            .map_err(|error| Error::consul(format!("registering {}", service.id), error))
    }

    async fn checks(&self, service: &MeshService) -> Result<Vec<HealthCheck>> {
        // From the plan: the ids are all that an update of a TTL check needs.
        let ids = service.checks.iter().filter_map(|check| match check {
            MeshCheck::Container(name) => Some(synced_check_id(&service.id, name)),
            MeshCheck::Dataplane | MeshCheck::Agent(_) => None,
        });
        Ok(ids.map(|id| HealthCheck::of_service(&service.id, id, HealthStatus::Critical)).collect())
    }

    async fn report(&self, checks: &[HealthCheck]) -> Result<()> {
        for check in checks {
            self.agent
                .agent_update_check(&check.check_id, &check.status, &check.output)
                .await
                .map_err(|error| Error::consul(format!("updating {}", check.check_id), error))?;
        }
        Ok(())
    }

    /// Treats an unknown service as deregistered.
    async fn deregister(&self, service: &MeshService) -> Result<()> {
        let result =
            self.agent.agent_deregister_service(&service.id, service.namespace.as_deref()).await;
        match result {
            // The agent may have left with the task before.
            Err(error) if !error.is_not_found() => {
                Err(Error::consul(format!("deregistering {}", service.id), error))
            }
            _ => Ok(()),
        }
    }
}
