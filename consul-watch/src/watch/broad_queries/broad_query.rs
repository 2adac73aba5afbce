//! One broad query: its request, its place in Consul's history, its pace.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use http::StatusCode;
use serde::{Deserialize, de::IgnoredAny};

use super::catalog::{CheckRow, Instance, Listing};
use crate::{
    Backoff, Client, QueryOptions, Result,
    client::{Request, Response},
    query::{Position, Scope},
    watch::limiter::{Limiter, RateLimit},
};

/// A broad query takes a pause for each byte of a changed answer: at most so
/// many are read in a second, however often it changes.
const BYTES_PER_SECOND: f64 = 16.0 * 1024.0 * 1024.0;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// So many times in a row the query of a node is asked again without a pause. Consul holds it only
/// if nothing at all has changed since the answer before, on any node: the sooner it is asked
/// again, the fewer whole answers it takes until it is held.
const PROMPT: u32 = 10;

/// A broad query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// The checks of all nodes and services.
    Checks,
    /// All nodes.
    Nodes,
    /// The names and tags of all services.
    Services,
    /// The keys with this prefix.
    Prefix(String),
    /// The instances and checks of one node.
    Node(String),
    /// The instances and checks of all nodes.
    Everything,
}

impl Kind {
    /// Returns `true` if a change can change what such a query shows. Those of single
    /// services are listed by name.
    pub(super) fn concerns(&self, scope: &Scope) -> bool {
        match self {
            Self::Checks => *scope == Scope::Checks,
            // With node metadata as a condition, other lists depend on nodes too.
            Self::Nodes => matches!(scope, Scope::Nodes | Scope::CatalogServices | Scope::Checks),
            Self::Services => *scope == Scope::CatalogServices,
            Self::Prefix(_) => true,
            Self::Node(_) | Self::Everything => {
                matches!(scope, Scope::CatalogServices | Scope::Checks)
            }
        }
    }

    async fn ask(&self, client: &Client, options: &QueryOptions) -> Result<Response> {
        let request = match self {
            Self::Checks => Request::get("health.state", "/v1/health/state/any"),
            Self::Nodes => Request::get("catalog.nodes", "/v1/catalog/nodes"),
            Self::Services => Request::get("catalog.services", "/v1/catalog/services"),
            // The index is that of all keys with the prefix; the separator
            // only makes the answer short.
            Self::Prefix(prefix) => Request::get("kv.keys", "/v1/kv")
                .key(prefix)
                .flag("keys")
                .param("separator", "/")
                .accept(StatusCode::NOT_FOUND),
            // The one read that shows instances and checks of a node and nothing else, and is
            // woken by nothing else, from Consul 1.8 to 1.21 (measured). It is made for Consul's
            // own pages: where it is not there, or looks different, lists of everything do.
            Self::Node(name) => Request::get("internal.ui.node", "/v1/internal/ui/node")
                .segment(name)
                .accept(StatusCode::NOT_FOUND),
            // Its list of all of them, with the same reservation.
            Self::Everything => Request::get("internal.ui.nodes", "/v1/internal/ui/nodes"),
        };
        client.send(request.query(options)).await
    }
}

/// Meaning of a broad answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    /// It is the first: what follows is compared with it.
    Baseline,
    /// It has a newer index.
    Newer(u64),
    /// Nothing changed.
    Same,
    /// Consul's history was replaced: ask again without blocking.
    Backwards,
    /// It has no index, so anything may have changed.
    Unknown,
}

/// State of a broad query.
#[derive(Debug)]
pub(super) struct BroadQuery {
    pub(super) kind: Kind,
    index: Option<u64>,
    limiter: Limiter,
    backoff: Backoff,
    poll_interval: Duration,
}

impl BroadQuery {
    pub(super) fn new(
        kind: Kind,
        mut limit: RateLimit,
        backoff: Backoff,
        poll_interval: Duration,
    ) -> Self {
        // Its size slows it down under churn, not the churn alone.
        limit.max_interval = limit.interval;
        if let Kind::Node(_) = kind {
            limit.burst = limit.burst.max(PROMPT);
        }
        Self { kind, index: None, limiter: Limiter::new(limit), backoff, poll_interval }
    }

    /// Returns `true` if there is an answer to compare with.
    pub(super) fn has_baseline(&self) -> bool {
        self.index.is_some()
    }

    /// Makes the next answer the first one.
    pub(super) fn forget(&mut self) {
        self.index = None;
    }

    pub(super) fn index(&self) -> u64 {
        self.index.unwrap_or_default()
    }

    /// Returns the meaning of an answer with this index. `early` says that it came before
    /// the time that the query was allowed to block.
    pub(super) fn answered(&mut self, index: Option<u64>, early: bool) -> Move {
        self.backoff.reset();
        let before = std::mem::replace(&mut self.index, index);
        match (before, index) {
            (_, None) => Move::Unknown,
            (None, Some(_)) => Move::Baseline,
            (Some(before), Some(now)) if now == before && !early => Move::Same,
            (Some(before), Some(now)) if now > before => Move::Newer(now),
            _ => {
                self.index = None;
                Move::Backwards
            }
        }
    }

    /// Returns the pause after an answer of this size.
    pub(super) fn pause(
        &mut self,
        moved: Move,
        started: Duration,
        ended: Duration,
        bytes: usize,
    ) -> Duration {
        let rest = self.limiter.next(started, ended);
        match moved {
            Move::Same | Move::Backwards => rest,
            Move::Unknown => rest.max(self.poll_interval),
            Move::Baseline | Move::Newer(_) if matches!(self.kind, Kind::Node(_)) => rest,
            Move::Baseline | Move::Newer(_) => {
                let bytes = f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
                rest.max(Duration::from_secs_f64(bytes / BYTES_PER_SECOND).min(LONGEST_PAUSE))
            }
        }
    }

    /// Returns the pause after a failure; the answer that follows is a new baseline.
    pub(super) fn failed(&mut self, error: &crate::Error) -> Duration {
        self.index = None;
        // What no retry cures here may be cured by an operator.
        let least = if error.is_retryable() { Duration::ZERO } else { self.poll_interval };
        self.backoff.next_delay().max(least).max(error.retry_after().unwrap_or_default())
    }

    /// Asks once, after `pause`.
    pub(super) fn ask(
        &self,
        client: Client,
        wait: Duration,
        pause: Duration,
    ) -> impl Future<Output = Result<Response>> + Send + 'static {
        let position = self.index.map_or(Position::Start, Position::Index);
        let (kind, options) = (self.kind.clone(), QueryOptions::default().at(&position, wait));
        async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            kind.ask(&client, &options).await
        }
    }
}

/// Lists the instances on a node.
pub(super) async fn list(client: Client, node: String) -> Result<Option<Listing>> {
    let request = Request::get("catalog.node", "/v1/catalog/node").segment(&node);
    let response = client.send(request.query(&QueryOptions::default())).await?;
    let found: Option<NodeJson> = response.json()?;
    let instance =
        |json: InstanceJson| Instance { service: json.service, modified: json.modify_index };
    Ok(found.map(|node| {
        let services = node.services.unwrap_or_default().into_iter();
        services.map(|(id, json)| (id, instance(json))).collect()
    }))
}

/// Returns the number of names in a list of services.
pub(super) fn service_names(response: &Response) -> Result<usize> {
    let names: Option<BTreeMap<String, Option<Vec<IgnoredAny>>>> = response.json()?;
    Ok(names.unwrap_or_default().len())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CheckJson<'a> {
    #[serde(borrow)]
    node: Cow<'a, str>,
    #[serde(borrow, rename = "CheckID")]
    check_id: Cow<'a, str>,
    #[serde(borrow, default)]
    service_name: Cow<'a, str>,
    #[serde(default)]
    modify_index: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NameJson {
    node: String,
    #[serde(default)]
    modify_index: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NodeJson {
    services: Option<BTreeMap<String, InstanceJson>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InstanceJson {
    service: String,
    #[serde(default)]
    modify_index: u64,
}

/// Decodes a list of checks and gives its rows on.
pub(super) fn checks<T>(
    response: &Response,
    take: impl FnOnce(&mut dyn Iterator<Item = CheckRow<'_>>) -> T,
) -> Result<T> {
    let list: Option<Vec<CheckJson<'_>>> = response.json_borrowed()?;
    let list = list.unwrap_or_default();
    let mut rows = list.iter().map(|json| CheckRow {
        node: &json.node,
        id: &json.check_id,
        service: &json.service_name,
        modified: json.modify_index,
    });
    Ok(take(&mut rows))
}

/// Decodes a list of nodes.
pub(super) fn nodes(response: &Response) -> Result<BTreeMap<String, u64>> {
    let list: Option<Vec<NameJson>> = response.json()?;
    Ok(list.unwrap_or_default().into_iter().map(|json| (json.node, json.modify_index)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_query_is_asked_again_at_once_until_it_is_held() {
        let broad_query = |kind| {
            let poll = Duration::from_secs(15);
            BroadQuery::new(kind, RateLimit::default(), Backoff::default(), poll)
        };
        let (mut node, mut all) =
            (broad_query(Kind::Node("n".into())), broad_query(Kind::Everything));
        let (mut now, took) = (Duration::from_secs(100), Duration::from_millis(5));
        let mut pauses = |broad_query: &mut BroadQuery| -> Vec<Duration> {
            let mut next = || {
                let pause = broad_query.pause(Move::Newer(1), now, now + took, 160 * 1024);
                now += took + pause;
                pause
            };
            (0..30).map(|_| next()).collect()
        };
        let of_node = pauses(&mut node);
        assert!(of_node[..9].iter().all(Duration::is_zero), "{of_node:?}");
        // Where it is never held, because there is no end of changes.
        assert!(of_node[20..].iter().all(|pause| *pause > took * 10), "{of_node:?}");
        assert!(pauses(&mut all)[0] >= Duration::from_millis(9), "its size slows it down");
    }
}
