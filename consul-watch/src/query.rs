//! Watchable reads: the seam [`Query`] and the queries that this crate brings.

mod acl;
mod agent_service;
mod canonical;
mod catalog_node;
mod catalog_nodes;
mod catalog_service;
mod catalog_services;
mod datacenters;
mod definition;
mod events;
mod health_service;
mod health_state;
mod kv;
mod mesh;
mod polled;
mod sessions;
mod simple;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use crate::{Answer, Client, QueryOptions, Result};

pub use crate::position::Position;
pub use acl::{AclAuthMethods, AclBindingRules, AclPolicies, AclRoles, AclTokens};
pub use agent_service::AgentService;
pub use catalog_node::{CatalogNode, CoordinateNodes, HealthChecks, HealthNode, NodeServices};
pub use catalog_nodes::CatalogNodes;
pub use catalog_service::CatalogService;
pub use catalog_services::CatalogServices;
pub use datacenters::Datacenters;
pub use definition::{AnyQuery, Definition};
pub use events::Events;
pub use health_service::HealthService;
pub use health_state::HealthState;
pub use kv::{KvGet, KvKeys, KvList};
pub use mesh::{
    CaRoots, CatalogConnect, ConfigEntries, ConfigEntry, ConnectLeaf, DiscoveryChain,
    ExportedServices, GatewayServices, HealthIngress, IntentionMatch, Intentions, Peering,
    Peerings, ServerCaRoots,
};
pub use polled::Polled;
pub use sessions::{NodeSessions, SessionInfo, Sessions};

/// A read that can be watched.
///
/// Implement it to watch something that this crate has no query for.
///
/// # Contract
///
/// - Two queries with equal keys and the same `Value` give equal results.
/// - `fetch` returns the result as it is now, also when nothing changed while it blocked.
/// - Results are normalised: what has no order of its own is sorted, so that
///   equal contents compare as equal.
/// - Dropping the future of `fetch` ends its request.
pub trait Query: fmt::Debug + Send + Sync + 'static {
    /// Type of the data in a snapshot.
    type Value: PartialEq + fmt::Debug + Send + Sync + 'static;

    /// Returns the key that two queries share when they may share one upstream read: every
    /// parameter that changes the result must be in it.
    fn key(&self) -> QueryKey;

    /// Returns the way in which changes are waited for.
    fn mode(&self) -> Mode {
        Mode::Index
    }

    /// Returns the part of Consul's data that the read depends on, so that a broad query
    /// can stand in for it.
    fn scope(&self) -> Scope {
        Scope::Opaque
    }

    /// Returns the names of what is read, for log lines. The default has none beyond the key.
    fn subject(&self) -> Subject<'_> {
        Subject::default()
    }

    /// Returns `true` if two results are the same to a subscriber. Override it where
    /// they differ in what does not matter, such as an order.
    fn same(&self, old: &Self::Value, new: &Self::Value) -> bool {
        old == new
    }

    /// Reads once. With a `position` past the start, blocks up to `wait` until
    /// there is something newer; see [`QueryOptions::at`](crate::QueryOptions::at).
    ///
    /// # Errors
    ///
    /// Those of the client. A watch retries what [`crate::Error::is_retryable`] allows.
    fn fetch(
        &self,
        client: &Client,
        position: &Position,
        wait: Duration,
    ) -> impl Future<Output = Result<Answer<Self::Value>>> + Send;
}

#[deny(clippy::missing_trait_methods)]
impl<Q: Query> Query for Arc<Q> {
    type Value = Q::Value;

    fn key(&self) -> QueryKey {
        (**self).key()
    }

    fn mode(&self) -> Mode {
        (**self).mode()
    }

    fn scope(&self) -> Scope {
        (**self).scope()
    }

    fn subject(&self) -> Subject<'_> {
        (**self).subject()
    }

    fn same(&self, old: &Self::Value, new: &Self::Value) -> bool {
        (**self).same(old, new)
    }

    async fn fetch(
        &self,
        client: &Client,
        position: &Position,
        wait: Duration,
    ) -> Result<Answer<Self::Value>> {
        (**self).fetch(client, position, wait).await
    }
}

/// Identifies the upstream read that subscribers may share.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueryKey(String);

impl QueryKey {
    /// A key made of a kind, such as `health.service`, and everything that changes the result.
    ///
    /// ```
    /// use consul_watch::query::QueryKey;
    ///
    /// let key = QueryKey::new("health.service", &("web", Some("dc2")));
    /// assert_eq!(key.as_str(), r#"health.service("web", Some("dc2"))"#);
    /// ```
    pub fn new(kind: &str, parameters: &dyn fmt::Debug) -> Self {
        Self(format!("{kind}{parameters:?}"))
    }

    /// The key as text, for logs.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The kind that the key was made with, such as `health.service`.
    pub fn operation(&self) -> &str {
        self.0.split_once('(').map_or(&self.0, |(kind, _parameters)| kind)
    }
}

impl fmt::Display for QueryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names of what a query reads: the fields of its watch's log lines besides the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Subject<'a> {
    /// Name of the service, as `service.name`.
    pub service: Option<&'a str>,
    /// Key or prefix of the KV store, as `kv.path`.
    pub path: Option<&'a str>,
    /// Name of another object, such as a node or a configuration entry, as `consul.object`.
    pub object: Option<&'a str>,
    /// The datacenter that is asked, if not the client's own, as `consul.datacenter`.
    pub datacenter: Option<&'a str>,
}

impl<'a> Subject<'a> {
    /// A service with this name.
    #[must_use]
    pub fn service(name: &'a str) -> Self {
        Self { service: Some(name), ..Self::default() }
    }

    /// A key or prefix of the KV store.
    #[must_use]
    pub fn path(path: &'a str) -> Self {
        Self { path: Some(path), ..Self::default() }
    }

    /// Another object with this name.
    #[must_use]
    pub fn object(name: &'a str) -> Self {
        Self { object: Some(name), ..Self::default() }
    }

    /// The same in this datacenter; `None` is the client's own.
    #[must_use]
    pub fn within(mut self, datacenter: Option<&'a str>) -> Self {
        self.datacenter = datacenter;
        self
    }

    /// The span of a watch, so that each of its log lines says which watch it is about.
    pub(crate) fn span(self, key: &QueryKey) -> tracing::Span {
        // Of the highest level: a filter that lets only errors pass must not lose it.
        tracing::error_span!(
            parent: None,
            "consul.watch",
            watch.key = %key,
            consul.operation = key.operation(),
            service.name = self.service,
            kv.path = self.path,
            consul.object = self.object,
            consul.datacenter = self.datacenter,
        )
    }
}

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

/// Returns `true` if a read stays within what broad queries of the client see.
fn is_local(options: &QueryOptions) -> bool {
    options.datacenter.is_none()
        && options.namespace.is_none()
        && options.partition.is_none()
        && options.peer.is_none()
        && options.sameness_group.is_none()
        && !options.merge_central_config
}

/// Setters for what every read takes.
macro_rules! common_setters {
    () => {
        /// Asks another datacenter.
        pub fn datacenter(mut self, name: impl Into<String>) -> Self {
            self.options.datacenter = Some(name.into());
            self
        }

        /// Asks in an Enterprise namespace.
        pub fn namespace(mut self, name: impl Into<String>) -> Self {
            self.options.namespace = Some(name.into());
            self
        }

        /// Asks in an Enterprise partition.
        pub fn partition(mut self, name: impl Into<String>) -> Self {
            self.options.partition = Some(name.into());
            self
        }

        /// Asks for what was imported from a cluster peer (Consul 1.13).
        pub fn peer(mut self, name: impl Into<String>) -> Self {
            self.options.peer = Some(name.into());
            self
        }

        /// Sets everything that reads take; what earlier setters set is lost.
        pub fn options(mut self, options: $crate::QueryOptions) -> Self {
            self.options = options;
            self
        }
    };
}
use common_setters;

#[cfg(test)]
mod tests;
