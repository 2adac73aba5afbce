//! Looks up a proxy that is not named by its id: by the service it stands before, its gateway kind,
//! or its node.

use consul_watch::{
    Client, QueryOptions,
    types::{AgentService, Service, ServiceKind},
};

use crate::{Error, Result};

/// Returns the id of the one sidecar of a service of the agent.
pub(super) async fn sidecar_of(client: &Client, service_id: &str) -> Result<String> {
    let found = of_agent(client, |service| {
        service.kind == ServiceKind::ConnectProxy
            // Upstream compares ids in lower case.
            && service.proxy.destination_service_id.eq_ignore_ascii_case(service_id)
    })
    .await?;
    match found.as_slice() {
        [id] => Ok(id.clone()),
        [] => Err(Error::input(format!("No sidecar proxy registered for {service_id}"))),
        ids => Err(Error::input(format!(
            "More than one sidecar proxy registered for {service_id}. Name the one to start: {}",
            ids.join(", ")
        ))),
    }
}

/// Returns the id of the agent's one gateway of a kind.
pub(super) async fn gateway(client: &Client, kind: &str) -> Result<String> {
    let wanted = match kind {
        "api" => ServiceKind::ApiGateway,
        "ingress" => ServiceKind::IngressGateway,
        "mesh" => ServiceKind::MeshGateway,
        "terminating" => ServiceKind::TerminatingGateway,
        _ => {
            return Err(Error::input("Gateway must be one of: api, terminating, mesh, or ingress"));
        }
    };
    let found = of_agent(client, |service| service.kind == wanted).await?;
    match found.as_slice() {
        [id] => Ok(id.clone()),
        [] => Err(Error::input(format!("No {kind} gateway is registered with this agent"))),
        ids => Err(Error::input(format!(
            "More than one {kind} gateway is registered with this agent. Name the one to start: {}",
            ids.join(", ")
        ))),
    }
}

/// Returns the ids of the agent's services for which `wanted` holds, in order.
async fn of_agent(client: &Client, wanted: impl Fn(&Service) -> bool) -> Result<Vec<String>> {
    let services = client
        .agent_services(&QueryOptions::default())
        .await
        .map_err(|error| Error::consul("failed looking up the proxy at the local agent", error))?;
    Ok(services.into_iter().filter(|(_id, it)| wanted(&it.service)).map(|(id, _it)| id).collect())
}

/// Reads a proxy from the catalog, as it is registered on `node`.
pub(super) async fn on_node(client: &Client, node: &str, proxy_id: &str) -> Result<AgentService> {
    let mut options = QueryOptions::default();
    options.filter = Some(format!("ID == {proxy_id:?}"));
    // The catalog keeps what was registered; only with this flag it merges `proxy-defaults` and
    // `service-defaults` in, as the agent does by itself.
    options.merge_central_config = true;
    let answer = client
        .catalog_node_services(node, &options)
        .await
        .map_err(|error| Error::consul("failed fetch proxy config from catalog", error))?;
    let found = answer.value.and_then(|(node, mut services)| {
        // Servers older than the filter answer with all services of the node.
        services.retain(|service| service.id == proxy_id);
        services.pop().map(|service| (node, service))
    });
    let (node, service) = found.ok_or_else(|| {
        Error::input(format!("no service with ID {proxy_id} is registered on node {node}"))
    })?;
    // The agent's answer carries the datacenter, the catalog's service does not: it is on the node.
    let mut registered = AgentService::default();
    registered.datacenter = node.datacenter;
    registered.service = service;
    Ok(registered)
}
