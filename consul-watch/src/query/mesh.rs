//! Queries of the mesh: certificates, intentions, configuration entries, gateways, discovery
//! chains.

use std::time::Duration;

use super::{
    Scope,
    simple::{named_query, plain_query},
};
use crate::{
    Answer, Client, Query, QueryOptions, Result,
    client::HealthOptions,
    query::{Position, QueryKey, Subject, common_setters},
    types::{self, DiscoveryChainOverride, IntentionSide},
};

plain_query! {
    /// All intentions, in Consul's order: the one that decides comes first.
    Intentions -> Vec<types::Intention>, "connect.intentions", intentions, |_intentions| ()
}

plain_query! {
    /// The authorities that the mesh trusts, from the agent's cache.
    CaRoots -> types::CaRoots, "agent.connect.ca.roots", agent_connect_ca_roots,
    |roots| roots.roots.sort_by(|a, b| a.id.cmp(&b.id))
}

plain_query! {
    /// The authorities that the mesh trusts, from the servers; also of another datacenter.
    ServerCaRoots -> types::CaRoots, "connect.ca.roots", connect_ca_roots,
    |roots| roots.roots.sort_by(|a, b| a.id.cmp(&b.id))
}

named_query! {
    /// A service's certificate with its key. A new one comes in time before the old one
    /// ends, and when the authority changes.
    ConnectLeaf(
        /// The certificate of this service.
        service
    ) -> types::ConnectLeaf, "agent.connect.ca.leaf", |_service| Scope::Opaque,
    |client, options| client.agent_connect_ca_leaf(service, options), |_leaf| ()
}

named_query! {
    /// All configuration entries of a kind, sorted by name.
    ConfigEntries(
        /// Entries of this kind, such as `service-defaults`.
        kind
    ) -> Vec<types::ConfigEntry>, "config.list", |_kind| Scope::Opaque,
    |client, options| client.config_entries(kind, options),
    |entries| entries.sort_by(|a, b| a.name.cmp(&b.name))
}

named_query! {
    /// The services that a gateway stands for, sorted by name and port.
    GatewayServices(
        /// The gateway with this name.
        gateway
    ) -> Vec<types::GatewayService>, "catalog.gateway-services", |_gateway| Scope::Opaque,
    |client, options| client.catalog_gateway_services(gateway, options),
    |services| services.sort_by(|a, b| (&a.service, a.port).cmp(&(&b.service, b.port)))
}

named_query! {
    /// Instances that reach a service through the mesh, without checks, sorted by node and id.
    CatalogConnect(
        /// The service with this name.
        service
    ) -> Vec<types::CatalogService>, "catalog.connect", |_service| Scope::Opaque,
    |client, options| client.catalog_connect(service, options),
    |found| found.sort_by(|a, b| (&a.node, &a.service_id).cmp(&(&b.node, &b.service_id)))
}

named_query! {
    /// The ingress gateways that lead to a service, in whatever state, sorted by node and id.
    HealthIngress(
        /// The service with this name.
        service
    ) -> Vec<types::ServiceEntry>, "health.ingress", |_service| Scope::Opaque,
    |client, options| {
        let options: HealthOptions = options.clone().into();
        async move { client.health_ingress(service, &options).await }
    },
    |found| found.sort_by(|a, b| (&a.node.name, &a.service.id).cmp(&(&b.node.name, &b.service.id)))
}

named_query! {
    /// Routing, splitting and resolution of connections to a service.
    DiscoveryChain(
        /// The service with this name.
        service
    ) -> types::DiscoveryChain, "discovery-chain", |_service| Scope::Opaque,
    |client, options| {
        let unchanged = DiscoveryChainOverride::default();
        async move { client.discovery_chain(service, None, &unchanged, options).await }
    },
    |_chain| ()
}

plain_query! {
    /// All connections to other clusters, sorted by name (Consul 1.13).
    Peerings -> Vec<types::Peering>, "peering.list", peerings,
    |peerings| peerings.sort_by(|a, b| a.name.cmp(&b.name))
}

named_query! {
    /// A connection to another cluster; `None` while there is none (Consul 1.13).
    Peering(
        /// The connection with this name.
        name
    ) -> Option<types::Peering>, "peering.get", |_name| Scope::Opaque,
    |client, options| client.peering(name, options), |_peering| ()
}

plain_query! {
    /// The services that other clusters or partitions may use, sorted by name (Consul 1.17.3).
    ExportedServices -> Vec<types::ExportedService>, "exported-services", exported_services,
    |services| services.sort_by(|a, b| {
        (&a.partition, &a.namespace, &a.service).cmp(&(&b.partition, &b.namespace, &b.service))
    })
}

/// A configuration entry; `None` while there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct ConfigEntry {
    kind: String,
    name: String,
    options: QueryOptions,
}

impl ConfigEntry {
    /// The entry of this kind and name.
    pub fn new(kind: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind: kind.into(), name: name.into(), options: QueryOptions::default() }
    }

    common_setters!();
}

impl Query for ConfigEntry {
    type Value = Option<types::ConfigEntry>;

    fn key(&self) -> QueryKey {
        QueryKey::new("config.get", &(&self.kind, &self.name, self.options.canonical()))
    }

    fn subject(&self) -> Subject<'_> {
        Subject::object(&self.name).within(self.options.datacenter.as_deref())
    }

    async fn fetch(
        &self,
        client: &Client,
        position: &Position,
        wait: Duration,
    ) -> Result<Answer<Self::Value>> {
        let read = async |position| {
            client.config_entry(&self.kind, &self.name, &self.options.at(position, wait)).await
        };
        let answer = read(position).await?;
        // Servers of old wake a blocked read of an entry that was deleted with the entry as it
        // was, and hold the next read, which would show the truth, for the whole wait.
        if let (Position::Index(before), Some(entry)) = (position, &answer.value)
            && (1..=*before).contains(&entry.modify_index)
            && answer.meta.index.is_some_and(|index| index > *before)
        {
            return read(&Position::Start).await;
        }
        Ok(answer)
    }
}

/// The intentions that concern a service, in Consul's order: the one that decides comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct IntentionMatch {
    side: IntentionSide,
    service: String,
    options: QueryOptions,
}

impl IntentionMatch {
    /// Intentions about connections from the service.
    pub fn source(service: impl Into<String>) -> Self {
        Self::new(IntentionSide::Source, service)
    }

    /// Intentions about connections to the service.
    pub fn destination(service: impl Into<String>) -> Self {
        Self::new(IntentionSide::Destination, service)
    }

    fn new(side: IntentionSide, service: impl Into<String>) -> Self {
        Self { side, service: service.into(), options: QueryOptions::default() }
    }

    common_setters!();
}

impl Query for IntentionMatch {
    type Value = Vec<types::Intention>;

    fn key(&self) -> QueryKey {
        let parameters = (self.side.as_str(), &self.service, self.options.canonical());
        QueryKey::new("connect.intention.match", &parameters)
    }

    fn subject(&self) -> Subject<'_> {
        Subject::service(&self.service).within(self.options.datacenter.as_deref())
    }

    async fn fetch(
        &self,
        client: &Client,
        position: &Position,
        wait: Duration,
    ) -> Result<Answer<Self::Value>> {
        client.intention_match(&self.side, &self.service, &self.options.at(position, wait)).await
    }
}
