//! Options of reads and writes that many endpoints share: datacenter, consistency, blocking,
//! filter.

use std::time::Duration;

use crate::position::Position;

/// Consistency of a read: which servers may answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Consistency {
    /// Answered by the leader, without a check that it still leads.
    #[default]
    Default,
    /// Answered by any server, however old its data.
    Stale,
    /// Answered by the leader after it has confirmed that it leads.
    Consistent,
}

/// Lets the agent answer from its cache (`?cached`), where the endpoint supports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Cached {
    /// Oldest copy that will do; sent in seconds. `None` is the agent's own limit (3 days).
    pub max_age: Option<Duration>,
    /// Oldest copy that will do while no server answers; sent in seconds.
    pub stale_if_error: Option<Duration>,
}

/// Options that every read takes besides its own parameters.
///
/// The default asks for nothing in particular and answers at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct QueryOptions {
    /// Datacenter to ask; `None` is the client's own.
    pub datacenter: Option<String>,
    /// Enterprise namespace; `None` is the client's own.
    pub namespace: Option<String>,
    /// Enterprise partition; `None` is the client's own.
    pub partition: Option<String>,
    /// Cluster peer to read imported services from (Consul 1.13).
    pub peer: Option<String>,
    /// Enterprise sameness group to read from (Consul 1.16). Excludes `peer`.
    pub sameness_group: Option<String>,
    /// Consistency mode.
    pub consistency: Consistency,
    /// Answer from the agent's cache. Not sent with [`Consistency::Consistent`].
    pub cached: Option<Cached>,
    /// Filter expression, evaluated by Consul.
    pub filter: Option<String>,
    /// `key:value` pairs that the node's metadata must have, all of them.
    pub node_meta: Vec<(String, String)>,
    /// Sort by distance from this node; `_agent` is the agent's own.
    pub near: Option<String>,
    /// Merge central service configuration into instances (Consul 1.13).
    pub merge_central_config: bool,
    /// Let any server answer, and the agent ask the leader if that one's data is
    /// older than this. Not sent with [`Consistency::Consistent`].
    pub max_stale: Option<Duration>,
    /// Block until Consul's index is larger than this; `None` answers at once.
    pub index: Option<u64>,
    /// Block until the content hash differs from this; for endpoints that block by hash.
    pub hash: Option<String>,
    /// Longest block; `None` is the server's default of five minutes. Consul
    /// cuts it to ten minutes and adds up to a sixteenth.
    pub wait: Option<Duration>,
}

impl QueryOptions {
    /// Returns these options, blocking for up to `wait` past `position`.
    #[must_use]
    pub fn at(&self, position: &Position, wait: Duration) -> Self {
        let mut options = self.clone();
        match position {
            Position::Start => (options.index, options.hash) = (None, None),
            Position::Index(index) => options.index = Some(*index),
            Position::Hash(hash) => options.hash = Some(hash.clone()),
        }
        options.wait = (*position != Position::Start).then_some(wait);
        options
    }

    /// Returns `true` if the request may be held by Consul.
    pub(crate) fn blocks(&self) -> bool {
        self.index.is_some_and(|index| index > 0)
            || self.hash.as_ref().is_some_and(|hash| !hash.is_empty())
    }
}

/// Options that every write takes besides its own parameters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Datacenter to write to; `None` is the client's own.
    pub datacenter: Option<String>,
    /// Enterprise namespace; `None` is the client's own.
    pub namespace: Option<String>,
    /// Enterprise partition; `None` is the client's own.
    pub partition: Option<String>,
}
