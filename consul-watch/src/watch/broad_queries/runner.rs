//! The task of a group: asks the broad queries, tells the watches what changed, and begins again where
//! that is not known.

mod modes;
mod nodes;

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    broad_query::{self, BroadQuery, Kind, Move},
    catalog::{Catalog, Changes, Listing},
    mode::{DUMP, Mode, NODES},
    node::NodeRows,
    node_query::NodeQuery,
    query_group::QueryGroup,
    settings::Settings,
};
use crate::{
    Error, Result,
    client::Response,
    query::QueryKey,
    watch::{plan::Timing, summary::Occasion},
};

/// After nodes could not be followed one by one, or all with one query, everything is listed for
/// this long.
const NO_NODES: Duration = Duration::from_hours(6);
/// All nodes are followed with one query while its answers are no longer than this many bytes:
/// each change brings a whole one.
const LARGEST_DUMP: usize = 4 * 1024 * 1024;
/// Nodes that are listed at the same time.
const LISTERS: usize = 1;
/// After a node could not be listed, services are read one by one for this long.
const NO_LISTINGS: Duration = Duration::from_mins(1);
/// When there are few watches left, the connections of nodes are theirs, for at least this long.
pub(super) const NO_NODES_WITHOUT_CROWD: Duration = Duration::from_secs(10);
/// Shortest time between two lists of nodes that are the same.
const SAME_NODES: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Reads that are made again, because a list may have missed what they saw: at most so many at a
/// time, after each such pause.
const AGAIN: usize = 20;
const AGAIN_PAUSE: Duration = Duration::from_millis(100);
/// In this time each covered watch is read once, whether something was reported or not. With
/// those that join meanwhile, and the jitter, it stays below ten minutes.
const PERIOD: Duration = Duration::from_mins(8);
/// Shortest time between two rounds of periodic reads.
const SHORTEST_ROUND: Duration = Duration::from_secs(1);

/// Returns the time until the next round of periodic reads among so many watches, and the number
/// of those to read then.
fn periodic_round(watches: usize) -> (Duration, usize) {
    let watches = u32::try_from(watches.max(1)).unwrap_or(u32::MAX);
    let rest = (PERIOD / watches).max(SHORTEST_ROUND);
    let count = f64::from(watches) * rest.as_secs_f64() / PERIOD.as_secs_f64();
    // At most the number of watches, and so within range.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
    (rest, count.ceil() as usize)
}

/// A broad query of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Which {
    /// A query that lists everything of its kind, by its place.
    Whole(usize),
    /// That of a node.
    Node(String),
}

/// A broad query has ended.
struct Asked {
    which: Which,
    started: Duration,
    result: Result<Response>,
}

/// The task of a [`QueryGroup`].
pub(super) struct Runner {
    group: Arc<QueryGroup>,
    settings: Arc<Settings>,
    queries: Vec<BroadQuery>,
    mode: Mode,
    catalog: Catalog,
    settled: bool,
    started: Instant,
    no_listings_until: Duration,
    no_nodes_until: Duration,
    no_dump_until: Duration,
    asks: FuturesUnordered<BoxFuture<'static, Option<Asked>>>,
    listings: FuturesUnordered<BoxFuture<'static, (String, Result<Option<Listing>>)>>,
    /// The query of all services, held back while nodes are listed for it:
    /// which one it is, its pause, and since when.
    parked: Option<(usize, Duration, Duration)>,
    /// The nodes and their `ModifyIndex`, with the index of that list, while each is followed.
    listed: BTreeMap<String, u64>,
    listed_at: u64,
    nodes: BTreeMap<String, NodeQuery>,
    /// The last list of nodes was as the one before.
    same_nodes: bool,
    /// Some node's own query has been answered, so Consul has such queries.
    nodes_served: bool,
    /// Instances and checks of all nodes, while one query follows them.
    dumped: BTreeMap<String, NodeRows>,
    /// Number of services, as they were listed first.
    names: usize,
    /// The way in which the catalog is to be followed from now on.
    wanted: Option<Mode>,
}

impl Drop for Runner {
    fn drop(&mut self) {
        if self.mode != Mode::Lists {
            self.settings.slots.reserve_nodes(0);
        }
    }
}

impl Runner {
    pub(super) fn new(group: Arc<QueryGroup>, settings: Arc<Settings>, kinds: Vec<Kind>) -> Self {
        let queries: Vec<BroadQuery> =
            kinds.into_iter().map(|kind| settings.broad_query(kind)).collect();
        // Of the catalog the nodes are counted first.
        let mode = if queries.len() > 1 { Mode::Undecided } else { Mode::Lists };
        Self {
            group,
            queries,
            mode,
            settings,
            catalog: Catalog::default(),
            settled: false,
            started: Instant::now(),
            no_listings_until: Duration::ZERO,
            no_nodes_until: Duration::ZERO,
            no_dump_until: Duration::ZERO,
            asks: FuturesUnordered::new(),
            listings: FuturesUnordered::new(),
            parked: None,
            listed: BTreeMap::new(),
            listed_at: 0,
            nodes: BTreeMap::new(),
            same_nodes: false,
            nodes_served: false,
            dumped: BTreeMap::new(),
            names: 0,
            wanted: None,
        }
    }

    /// Runs until the last member has left or the watcher stops.
    pub(super) async fn run(mut self) {
        let group = Arc::clone(&self.group);
        match self.mode {
            Mode::Lists => self.ask(Which::Whole(0), Duration::ZERO),
            Mode::Undecided | Mode::Dump | Mode::Nodes => {
                self.ask(Which::Whole(NODES), Duration::ZERO);
            }
        }
        let mut random = fastrand::Rng::with_seed(self.settings.seed);
        let (mut round, mut count) = (pin!(tokio::time::sleep(SHORTEST_ROUND)), 0);
        let (mut again, mut waits) = (pin!(tokio::time::sleep(Duration::ZERO)), false);
        loop {
            tokio::select! {
                () = &mut round => {
                    self.group.members().read_periodically(count);
                    let (rest, next) = periodic_round(self.group.members().count());
                    count = next;
                    round.as_mut().reset(Instant::now() + rest.mul_f64(0.8 + 0.2 * random.f64()));
                }
                () = &mut again, if waits => {
                    self.group.members().read_passed(self.group.floor.get(), AGAIN);
                    waits = false;
                }
                () = group.stop.cancelled() => return,
                () = group.joined.notified() => {}
                Some(asked) = self.asks.next(), if !self.asks.is_empty() => {
                    if let Some(asked) = asked {
                        self.asked(asked);
                    }
                }
                Some((node, result)) = self.listings.next(), if !self.listings.is_empty() => {
                    self.listed(&node, result);
                }
            }
            self.go_on();
            if !waits && self.group.members().has_reads_again(self.group.floor.get()) {
                again.as_mut().reset(Instant::now() + AGAIN_PAUSE);
                waits = true;
            }
        }
    }

    fn ask(&self, which: Which, pause: Duration) {
        let never = CancellationToken::new();
        let (broad_query, stop) = match &which {
            Which::Whole(at) => (self.queries.get(*at), &never),
            Which::Node(name) => match self.nodes.get(name) {
                Some(node) => (Some(&node.broad_query), &node.stop),
                None => return,
            },
        };
        let Some(broad_query) = broad_query else { return };
        let asked = broad_query.ask(self.settings.client.clone(), self.settings.wait, pause);
        let (begun, stop) = (self.started, stop.clone());
        self.asks.push(Box::pin(async move {
            // From the end of the pause, in which nothing was asked: an answer is early by the time
            // of its request alone.
            let started = begun.elapsed() + pause;
            let result = stop.run_until_cancelled_owned(asked).await?;
            Some(Asked { which, started, result })
        }));
    }

    fn asked(&mut self, asked: Asked) {
        let Asked { which, started, result } = asked;
        let ended = self.started.elapsed();
        // Consul may wake a request without a change in what it shows: such answers are paced.
        let early = Timing { started, ended, wait: self.settings.wait }.is_early();
        let outcome = result.and_then(|response| {
            let moved = match &which {
                Which::Whole(at) => self.answered(*at, &response, early)?,
                Which::Node(name) => self.node_answered(name, &response, early)?,
            };
            Ok((moved, response.body().len()))
        });
        if let (Which::Node(_), Err(error)) = (&which, &outcome)
            && !error.is_retryable()
        {
            // It is no promise of Consul's that nodes can be followed like this.
            tracing::debug!(
                error = error as &dyn std::error::Error,
                "nodes cannot be followed one by one"
            );
            return self.give_nodes_up(NO_NODES);
        }
        if let (Which::Whole(DUMP), Err(error)) = (&which, &outcome)
            && !error.is_retryable()
        {
            tracing::debug!(
                error = error as &dyn std::error::Error,
                "nodes cannot be followed with one query"
            );
            self.wanted = Some(Mode::Lists);
        }
        match self.wanted.take() {
            Some(Mode::Dump) => return self.follow_all_nodes(),
            Some(_) => return self.give_dump_up(),
            None => {}
        }
        let broad_query = match &which {
            Which::Whole(at) => self.queries.get_mut(*at),
            Which::Node(name) => self.nodes.get_mut(name).map(|node| &mut node.broad_query),
        };
        let Some(broad_query) = broad_query else { return };
        let unknown = matches!(outcome, Ok((Move::Unknown, _)));
        let mut pause = match outcome {
            Ok((moved, bytes)) => broad_query.pause(moved, started, ended, bytes),
            Err(error) => {
                let (kind, index) = (broad_query.kind.clone(), broad_query.index());
                let pause = broad_query.failed(&error);
                if self.is_first_failure(&which, index) {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        ?kind,
                        "broad query of a node failed"
                    );
                } else {
                    self.failed(error, &kind, pause);
                }
                pause
            }
        };
        if unknown && matches!(which, Which::Node(_)) {
            // The list of nodes tells soon whether it is gone for good.
            pause = SAME_NODES;
        }
        if which == Which::Whole(NODES) && self.mode != Mode::Lists && self.same_nodes {
            // From Consul 1.13 on every write of a service moves the index of the list of nodes. It
            // wakes no request, but the next one is answered at once.
            pause = pause.max(SAME_NODES);
        }
        if which == Which::Whole(NODES) && self.queries.len() > 1 {
            self.decide(unknown);
        }
        match which {
            Which::Whole(at)
                if self
                    .queries
                    .get(at)
                    .is_some_and(|broad_query| broad_query.kind == Kind::Services) =>
            {
                self.parked = Some((at, pause, ended));
            }
            which => self.ask(which, pause),
        }
    }

    fn answered(&mut self, at: usize, response: &Response, early: bool) -> Result<Move> {
        let Some(broad_query) = self.queries.get_mut(at) else { return Ok(Move::Same) };
        let moved = broad_query.answered(response.meta().index, early);
        let (kind, index) = (broad_query.kind.clone(), broad_query.index());
        if moved == Move::Same {
            return Ok(moved);
        }
        if moved == Move::Backwards {
            self.settled = false;
            self.group.members().unsettle();
            return Ok(moved);
        }
        // All watches read when each broad query has an answer to compare with.
        let first = matches!(moved, Move::Baseline | Move::Unknown);
        let changes = match &kind {
            Kind::Checks => {
                broad_query::checks(response, |rows| self.catalog.checks(index, first, rows))?
            }
            Kind::Nodes => {
                let nodes = broad_query::nodes(response)?;
                let before = std::mem::replace(&mut self.listed_at, index);
                if self.mode == Mode::Lists {
                    self.listed.clone_from(&nodes);
                    self.catalog.nodes(index, first, nodes)
                } else {
                    self.update_nodes(nodes, if first { 0 } else { before })
                }
            }
            Kind::Services => {
                if first {
                    self.names = broad_query::service_names(response)?;
                }
                self.catalog.services_moved(index, first)
            }
            Kind::Everything => self.dumped(response, first)?,
            Kind::Prefix(_) | Kind::Node(_) => Changes::default(),
        };
        // Both under one lock: a watch that joins in between would hear of one of them only.
        let members = self.group.members();
        members.moved(|scope| kind.concerns(scope));
        members.changed(&changes);
        drop(members);
        self.settle(moved == Move::Unknown);
        Ok(moved)
    }

    /// Takes over an answer about all nodes, and names what changed on them.
    fn dumped(&mut self, response: &Response, first: bool) -> Result<Changes> {
        let new = NodeRows::decode_all(response.body()).map_err(|error| Error::Decode {
            operation: "internal.ui.nodes",
            source: format!("{:?} at line {}", error.classify(), error.line()).into(),
        })?;
        let old = std::mem::replace(&mut self.dumped, new);
        let mut changes = Changes::default();
        if !first {
            NodeRows::name_all_changed(&old, &self.dumped, &mut changes.services);
        }
        if response.body().len() > LARGEST_DUMP {
            self.wanted = Some(Mode::Lists);
        }
        let index = self.queries.get(DUMP).map(BroadQuery::index);
        self.group.floor.set(Some(index.unwrap_or_default()));
        Ok(changes)
    }

    fn failed(&mut self, error: Error, kind: &Kind, pause: Duration) {
        self.settled = false;
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            delay_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            "broad query failed"
        );
        let error = Arc::new(error);
        let key = QueryKey::new("broad", kind);
        self.settings.summary.add(Occasion::BroadFailed, &key, Some(&error));
        self.group.members().fail(error);
    }

    fn listed(&mut self, node: &str, result: Result<Option<Listing>>) {
        let changes = match result {
            Ok(listing) => self.catalog.listed(node, listing),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    node.name = node,
                    "a node cannot be listed; services are read one by one"
                );
                self.no_listings_until = self.started.elapsed() + NO_LISTINGS;
                self.catalog.not_listed(node)
            }
        };
        self.group.members().changed(&changes);
    }

    /// Starts what follows from the last event.
    fn go_on(&mut self) {
        let broad = match self.mode {
            Mode::Undecided => 1,
            Mode::Nodes => self.nodes.len() + 1,
            Mode::Dump => 2,
            Mode::Lists => self.queries.len().min(DUMP),
        };
        self.group.broad.store(broad, Ordering::Relaxed);
        match self.mode {
            Mode::Undecided | Mode::Dump => return,
            Mode::Nodes => {
                if self.settings.slots.is_spacious() {
                    self.give_nodes_up(NO_NODES_WITHOUT_CROWD);
                }
                return;
            }
            Mode::Lists => {}
        }
        // Listing all nodes is cheaper than reading all services when there are fewer of them.
        // With a half as the way back, so that one watch more or less does not begin it again.
        let services = self.group.members().service_count();
        let nodes = self.catalog.node_count();
        let worth = services > if self.catalog.keeps_listings() { nodes / 2 } else { nodes };
        let keep = self.settled && worth && self.started.elapsed() >= self.no_listings_until;
        let changes = self.catalog.keep_listings(keep);
        self.group.members().changed(&changes);
        while self.listings.len() < LISTERS
            && let Some(node) = self.catalog.next_listing()
        {
            let client = self.settings.client.clone();
            self.listings.push(Box::pin(async move {
                let listing = broad_query::list(client, node.clone()).await;
                (node, listing)
            }));
        }
        if !self.catalog.is_listing()
            && let Some((at, pause, since)) = self.parked.take()
        {
            // At most half of the time is spent on listing nodes.
            let listed_for = self.started.elapsed().saturating_sub(since).min(LONGEST_PAUSE);
            self.ask(Which::Whole(at), pause.max(listed_for));
        }
    }
}
