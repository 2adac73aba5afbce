//! How a read waits for changes, and which part of Consul's data it depends on.

use std::time::Duration;

/// Way in which a query waits for changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Blocks until `X-Consul-Index` grows.
    Index,
    /// Blocks until `X-Consul-ContentHash` differs.
    Hash,
    /// Blocks until the index differs; it has no order (user events).
    Event,
    /// Cannot block: read again after this interval.
    Polled(Duration),
}

/// Data that a query's result depends on, within the client's own datacenter,
/// namespace and partition.
///
/// When there are more watches than [connections](crate::watch::WatcherBuilder::connections),
/// a few broad queries tell when something with this scope changed, and the
/// query is fetched without blocking, at the leader. A result that depends on
/// anything else, such as another datacenter, a peer or configuration entries,
/// is [`Scope::Opaque`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// Instances of one service, by name, with their checks and nodes.
    Service(String),
    /// The names and tags of all services, and nodes.
    CatalogServices,
    /// All nodes.
    Nodes,
    /// The checks of all nodes and services, and nodes.
    Checks,
    /// A single key.
    KvKey(String),
    /// All keys with a prefix.
    KvPrefix(String),
    /// Not known: no other query can stand in for it.
    Opaque,
}
