//! What a service's token lets its bearer do, tried on Consul.

use consul_watch::{
    Client, QueryOptions, Result, WriteOptions,
    client::{AclTokenFilter, HealthOptions, PutOptions},
    types::{AclPolicy, AgentServiceRegistration, CatalogRegistration, Service},
};

/// Deeds that differ from what a token is for; nothing when all is well.
pub(super) async fn deviations(client: &Client, node: &str, service: &str) -> Vec<String> {
    let mut all = Vec::new();
    for name in [service.to_owned(), format!("{service}-sidecar-proxy")] {
        all.extend(denied(&format!("register {name}"), register(client, &name).await));
        let done = client.agent_deregister_service(&name, None).await;
        all.extend(denied(&format!("deregister {name}"), done));
        let done = catalog(client, node, &name, false).await;
        all.extend(denied(&format!("put {name} into the catalog"), done));
    }
    let services = client.catalog_services(&QueryOptions::default()).await;
    match services {
        Ok(services) if services.value.contains_key("consul") => {}
        other => all.push(format!("sees the services {other:?}")),
    }
    let seen = client.health_service("consul", &HealthOptions::default()).await;
    match seen {
        Ok(instances) if instances.value.len() == 1 => {}
        other => all.push(format!("sees of the service consul {other:?}")),
    }

    let options = WriteOptions::default();
    for name in [format!("{service}0"), format!("{service}-sidecar-proxy0"), "other".to_owned()] {
        all.extend(allowed(&format!("register {name}"), register(client, &name).await));
    }
    all.extend(allowed("a new node", catalog(client, "invented", service, true).await));
    all.extend(allowed("kv", client.kv_put("x", "y", &PutOptions::default()).await));
    let tokens = client.acl_tokens(&AclTokenFilter::default(), &QueryOptions::default()).await;
    all.extend(allowed("tokens", tokens));
    let policy = AclPolicy::new("mine", r#"acl = "write""#);
    all.extend(allowed("a policy", client.acl_policy_create(&policy, &options).await));
    all.extend(allowed("the agent", client.agent_self().await));
    all
}

/// What a token can do that is not to work any more, or never did.
pub(super) async fn lives(client: &Client) -> bool {
    client.acl_token_self(&QueryOptions::default()).await.is_ok()
}

async fn register(client: &Client, name: &str) -> Result<()> {
    client.agent_register_service(&AgentServiceRegistration::new(name)).await
}

async fn catalog(client: &Client, node: &str, service: &str, new: bool) -> Result<()> {
    let address = if new { "127.0.0.9" } else { "" };
    let mut registration = CatalogRegistration::new(node, address);
    registration.skip_node_update = !new;
    let mut entry = Service::default();
    entry.id = format!("{service}-in-the-catalog");
    entry.name = service.to_owned();
    registration.service = Some(entry);
    client.catalog_register(&registration).await
}

fn denied<T>(deed: &str, result: Result<T>) -> Option<String> {
    let error = result.err()?;
    Some(format!("cannot {deed}: {}", consul_watch::error_chain(&error)))
}

fn allowed<T>(deed: &str, result: Result<T>) -> Option<String> {
    match result {
        Ok(_) => Some(format!("can {deed}")),
        Err(error) if error.is_permission_denied() => None,
        Err(error) => Some(format!("{deed}: {}", consul_watch::error_chain(&error))),
    }
}
