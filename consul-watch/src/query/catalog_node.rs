//! Query of the services on a node.

use super::{
    Scope,
    simple::{named_query, plain_query},
};
use crate::types;

named_query! {
    /// A node and its services; `None` while there is none with this name.
    ///
    /// Servers before 1.13 wake it for every registration of the datacenter.
    CatalogNode(
        /// The node with this name.
        name
    ) -> Option<types::CatalogNode>, "catalog.node", |_name| Scope::Opaque,
    |client, options| client.catalog_node(name, options), |_node| ()
}

named_query! {
    /// A node and a list of its services, sorted by id; `None` while there is none with this
    /// name. Unlike [`CatalogNode`] it can look into all Enterprise namespaces.
    NodeServices(
        /// The node with this name.
        name
    ) -> Option<(types::Node, Vec<types::Service>)>, "catalog.node-services",
    |_name| Scope::Opaque, |client, options| client.catalog_node_services(name, options),
    |found| if let Some((_node, services)) = found {
        services.sort_by(|a, b| (&a.namespace, &a.id).cmp(&(&b.namespace, &b.id)));
    }
}

named_query! {
    /// The checks of a service's instances, sorted by node and check id.
    HealthChecks(
        /// The service with this name.
        service
    ) -> Vec<types::HealthCheck>, "health.checks",
    |service| Scope::Service(service.to_owned()),
    |client, options| client.health_checks(service, options), |checks| sort(checks)
}

named_query! {
    /// The checks of a node and of the services on it, sorted by check id.
    HealthNode(
        /// The node with this name.
        node
    ) -> Vec<types::HealthCheck>, "health.node", |_node| Scope::Checks,
    |client, options| client.health_node(node, options), |checks| sort(checks)
}

fn sort(checks: &mut [types::HealthCheck]) {
    checks.sort_by(|a, b| (&a.node, &a.check_id).cmp(&(&b.node, &b.check_id)));
}

plain_query! {
    /// The coordinates of all nodes, sorted by node. They change every few seconds.
    CoordinateNodes -> Vec<types::NodeCoordinate>, "coordinate.nodes", coordinate_nodes,
    |nodes| nodes.sort_by(|a, b| (&a.node, &a.segment).cmp(&(&b.node, &b.segment)))
}
