//! Registration in the catalog through the servers (current generation).

use async_trait::async_trait;
use consul_watch::{
    Client, QueryOptions,
    types::{CatalogDeregistration, CatalogRegistration, HealthCheck, HealthStatus, Service},
};

use super::{MeshCheck, MeshService, Registrar};
use crate::{Error, Result};

const CHECK_TYPE: &str = "consul-ecs-health-check";
const DATAPLANE: &str = "consul-dataplane";

/// Returns the id of the check that copies a container's health.
pub(crate) fn check_id(service_id: &str, container: &str) -> String {
    format!("{service_id}-{container}")
}

/// Builds the catalog registration of a service on the node `node`.
///
/// Source: consul-ecs 0.10 `subcommand/mesh-init/command.go`.
pub fn catalog_registration(service: &MeshService, node: &str) -> CatalogRegistration {
    let mut entry = Service::new(service.name.as_str(), service.id.as_str());
    entry.kind = service.kind.clone();
    entry.tags.clone_from(&service.tags);
    entry.meta.clone_from(&service.meta);
    entry.port = service.port.into();
    entry.address = service.address.clone().unwrap_or_else(|| service.task_address.clone());
    entry.tagged_addresses.clone_from(&service.tagged_addresses);
    entry.weights = service.weights.unwrap_or_default();
    entry.enable_tag_override = service.enable_tag_override;
    entry.proxy = service.proxy.clone().unwrap_or_default();
    entry.namespace.clone_from(&service.namespace);
    entry.partition.clone_from(&service.partition);
    entry.locality.clone_from(&service.locality);

    let mut registration =
        CatalogRegistration::new(node, service.task_address.as_str()).with_service(entry);
    // Upstream's mark of a node that has no agent.
    registration.node_meta = [("synthetic-node".to_owned(), "true".to_owned())].into();
    // Every task of the cluster registers on this node; without the flag each would overwrite its
    // address.
    registration.skip_node_update = true;
    registration.partition.clone_from(&service.partition);
    registration.checks =
        service.checks.iter().filter_map(|check| health_check(service, check)).collect();
    registration
}

fn health_check(service: &MeshService, check: &MeshCheck) -> Option<HealthCheck> {
    let (container, name, notes) = match check {
        MeshCheck::Container(container) => (
            container.as_str(),
            "Consul ECS health check synced",
            format!(
                "consul-ecs created and updates this check because the {container} container \
                 has an ECS health check."
            ),
        ),
        MeshCheck::Dataplane => (
            DATAPLANE,
            "Consul dataplane readiness",
            "consul-ecs created and updates this check to indicate consul-dataplane container's \
             readiness"
                .to_owned(),
        ),
        MeshCheck::Agent(_) => return None,
    };
    let id = check_id(&service.id, container);
    // Critical until health-sync reports: a task that is still starting takes no traffic.
    let mut check = HealthCheck::of_service(&service.id, id, HealthStatus::Critical);
    name.clone_into(&mut check.name);
    CHECK_TYPE.clone_into(&mut check.kind);
    check.output = format!("Service {} is not ready", service.name);
    check.notes = notes;
    check.namespace.clone_from(&service.namespace);
    Some(check)
}

/// Registrar that writes to the catalog, on a node that stands for the ECS cluster.
#[derive(Debug, Clone)]
pub struct CatalogRegistrar {
    client: Client,
    node: String,
}

impl CatalogRegistrar {
    /// Creates a registrar that uses this client; `node` is the ARN of the cluster.
    pub fn new(client: Client, node: impl Into<String>) -> Self {
        Self { client, node: node.into() }
    }

    /// Writes checks of services that share a partition.
    async fn write(&self, checks: Vec<HealthCheck>, partition: Option<String>) -> Result<()> {
        // An empty address, which `SkipNodeUpdate` makes the server ignore.
        let mut registration = CatalogRegistration::new(self.node.as_str(), "");
        registration.skip_node_update = true;
        registration.partition = partition;
        registration.checks = checks;
        self.client
            .catalog_register(&registration)
            .await
            .map_err(|error| Error::consul("updating checks", error))
    }
}

#[async_trait]
impl Registrar for CatalogRegistrar {
    /// Omits checks that are already there as they would be registered: their states belong to
    /// health-sync, which writes a state once.
    ///
    /// Otherwise a second mesh-init would make a healthy task critical until its health changes.
    ///
    /// Deviation: upstream makes all of them critical again.
    async fn register(&self, service: &MeshService) -> Result<()> {
        let mut registration = catalog_registration(service, &self.node);
        let known = match self.checks(service).await {
            Ok(known) => known,
            Err(error) if error.is_retryable() => return Err(error),
            // Without the right to read them they start again: critical is the safe side.
            Err(_refused) => Vec::new(),
        };
        for check in &mut registration.checks {
            if let Some(known) = known.iter().find(|known| known.check_id == check.check_id) {
                check.status = known.status.clone();
                check.output.clone_from(&known.output);
            }
        }
        registration.checks.retain(|check| {
            let known = known.iter().find(|known| known.check_id == check.check_id);
            known.is_none_or(|known| !is_same(known, check))
        });
        self.client
            .catalog_register(&registration)
            .await
            .map_err(|error| Error::consul(format!("registering {}", service.id), error))
    }

    async fn checks(&self, service: &MeshService) -> Result<Vec<HealthCheck>> {
        let mut options = QueryOptions::default();
        // Backquotes are the raw quotes of the filter language.
        options.filter = Some(format!("ServiceID == `{}`", service.id));
        options.namespace.clone_from(&service.namespace);
        options.partition.clone_from(&service.partition);
        let answer = self.client.health_checks(&service.name, &options).await.map_err(|error| {
            Error::consul(format!("reading the checks of {}", service.id), error)
        })?;
        // Servers older than the filter answer with the checks of all instances.
        let own = answer.value.into_iter().filter(|check| check.service_id == service.id);
        Ok(own
            .map(|mut check| {
                // Answers of community servers name no partition; the write below needs the
                // service's.
                check.partition = check.partition.or_else(|| service.partition.clone());
                check
            })
            .collect())
    }

    /// Writes all checks in one request, in the partition of the first that names one.
    ///
    /// Deviation: upstream leaves the partition out, which is wrong for any but the default one.
    async fn report(&self, checks: &[HealthCheck]) -> Result<()> {
        if checks.is_empty() {
            return Ok(());
        }
        let partition = checks.iter().find_map(|check| check.partition.clone());
        let checks = checks.iter().cloned().map(written).collect();
        self.write(checks, partition).await
    }

    async fn deregister(&self, service: &MeshService) -> Result<()> {
        let mut deregistration =
            CatalogDeregistration::service(self.node.as_str(), service.id.as_str());
        deregistration.namespace.clone_from(&service.namespace);
        deregistration.partition.clone_from(&service.partition);
        self.client
            .catalog_deregister(&deregistration)
            .await
            .map_err(|error| Error::consul(format!("deregistering {}", service.id), error))
    }
}

/// Returns `true` if two checks differ in their states at most.
fn is_same(known: &HealthCheck, wanted: &HealthCheck) -> bool {
    // Servers before 1.9 do not store the type.
    let same_type = known.kind.is_empty() || known.kind == wanted.kind;
    known.name == wanted.name && known.notes == wanted.notes && same_type
}

/// Copies the members of a check that a write may have: old servers refuse the others.
fn written(check: HealthCheck) -> HealthCheck {
    let mut written = HealthCheck::of_service(check.service_id, check.check_id, check.status);
    written.name = check.name;
    written.notes = check.notes;
    written.output = check.output;
    written.kind = check.kind;
    written.namespace = check.namespace;
    written
}
