//! The task of a group of broad queries.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Settings,
    catalog::{Catalog, Listing},
    feed::{self, Feed, Kind, Move},
    members::Members,
};
use crate::{
    Error, Result,
    client::Response,
    query::QueryKey,
    watch::{plan::Timing, summary::Occasion},
};

/// Nodes that are listed at the same time.
const LISTERS: usize = 1;
/// After a node could not be listed, services are read one by one for this long.
const NO_LISTINGS: Duration = Duration::from_mins(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// In this time each covered watch is read once, whether something was reported or not. With
/// those that join meanwhile, and the jitter, it stays below ten minutes.
const PERIOD: Duration = Duration::from_mins(8);
/// Shortest time between two rounds of periodic reads.
const SHORTEST_ROUND: Duration = Duration::from_secs(1);

/// A group of broad queries, and the watches that they stand in for.
#[derive(Debug)]
pub(super) struct Unit {
    members: Mutex<Members>,
    /// Wakes the unit when a watch joins.
    pub(super) joined: Notify,
    pub(super) stop: CancellationToken,
}

impl Unit {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self { members: Mutex::default(), joined: Notify::new(), stop }
    }

    pub(super) fn members(&self) -> MutexGuard<'_, Members> {
        // Nothing that holds the lock can leave the members half changed.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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

/// A broad query has ended.
struct Asked {
    /// Which one.
    at: usize,
    started: Duration,
    result: Result<Response>,
}

/// The task of a [`Unit`].
pub(super) struct Runner {
    unit: Arc<Unit>,
    settings: Arc<Settings>,
    feeds: Vec<Feed>,
    catalog: Catalog,
    settled: bool,
    started: Instant,
    no_listings_until: Duration,
    asks: FuturesUnordered<BoxFuture<'static, Asked>>,
    listings: FuturesUnordered<BoxFuture<'static, (String, Result<Option<Listing>>)>>,
    /// The query of all services, held back while nodes are listed for it:
    /// which one it is, its pause, and since when.
    parked: Option<(usize, Duration, Duration)>,
}

impl Runner {
    pub(super) fn new(unit: Arc<Unit>, settings: Arc<Settings>, kinds: Vec<Kind>) -> Self {
        let feed = |kind| {
            let backoff = settings.backoff.clone();
            Feed::new(kind, settings.rate_limit, backoff, settings.poll_interval)
        };
        Self {
            unit,
            feeds: kinds.into_iter().map(feed).collect(),
            settings,
            catalog: Catalog::default(),
            settled: false,
            started: Instant::now(),
            no_listings_until: Duration::ZERO,
            asks: FuturesUnordered::new(),
            listings: FuturesUnordered::new(),
            parked: None,
        }
    }

    /// Runs until the last member has left or the watcher stops.
    pub(super) async fn run(mut self) {
        let unit = Arc::clone(&self.unit);
        for at in 0..self.feeds.len() {
            self.ask(at, Duration::ZERO);
        }
        let mut random = fastrand::Rng::with_seed(self.settings.seed);
        let (mut round, mut count) = (pin!(tokio::time::sleep(SHORTEST_ROUND)), 0);
        loop {
            tokio::select! {
                () = &mut round => {
                    self.unit.members().read_periodically(count);
                    let (rest, next) = periodic_round(self.unit.members().count());
                    count = next;
                    round.as_mut().reset(Instant::now() + rest.mul_f64(0.8 + 0.2 * random.f64()));
                }
                () = unit.stop.cancelled() => return,
                () = unit.joined.notified() => {}
                Some(asked) = self.asks.next(), if !self.asks.is_empty() => self.asked(asked),
                Some((node, result)) = self.listings.next(), if !self.listings.is_empty() => {
                    self.listed(&node, result);
                }
            }
            self.go_on();
        }
    }

    fn ask(&self, at: usize, pause: Duration) {
        let Some(feed) = self.feeds.get(at) else { return };
        let asked = feed.ask(self.settings.client.clone(), self.settings.wait, pause);
        let begun = self.started;
        self.asks.push(Box::pin(async move {
            let started = begun.elapsed() + pause;
            Asked { at, started, result: asked.await }
        }));
    }

    fn asked(&mut self, asked: Asked) {
        let ended = self.started.elapsed();
        let timing = Timing { started: asked.started, ended, wait: self.settings.wait };
        let outcome = asked.result.and_then(|response| {
            let moved = self.answered(asked.at, &response, timing.is_early())?;
            Ok((moved, response.body().len()))
        });
        let Some(feed) = self.feeds.get_mut(asked.at) else { return };
        let pause = match outcome {
            Ok((moved, bytes)) => feed.pause(moved, asked.started, ended, bytes),
            Err(error) => {
                let pause = feed.failed(&error);
                self.failed(error, pause);
                pause
            }
        };
        if self.feeds.get(asked.at).is_some_and(|feed| feed.kind == Kind::Services) {
            self.parked = Some((asked.at, pause, ended));
        } else {
            self.ask(asked.at, pause);
        }
    }

    fn answered(&mut self, at: usize, response: &Response, early: bool) -> Result<Move> {
        let Some(feed) = self.feeds.get_mut(at) else { return Ok(Move::Same) };
        let moved = feed.answered(response.meta().index, early);
        let (kind, index) = (feed.kind.clone(), feed.index());
        if moved == Move::Same {
            return Ok(moved);
        }
        if moved == Move::Backwards {
            self.settled = false;
            self.unit.members().unsettle();
            return Ok(moved);
        }
        // All watches read when each broad query has an answer to compare with.
        let first = matches!(moved, Move::Baseline | Move::Unknown);
        let changes = match &kind {
            Kind::Checks => feed::checks(response, |rows| self.catalog.checks(index, first, rows))?,
            Kind::Nodes => self.catalog.nodes(index, first, feed::nodes(response)?),
            Kind::Services => self.catalog.services_moved(index, first),
            Kind::Prefix(_) => super::catalog::Changes::default(),
        };
        let mut members = self.unit.members();
        members.moved(|scope| kind.concerns(scope));
        members.changed(&changes);
        let complete = self.feeds.iter().all(Feed::has_baseline);
        if (complete && !self.settled) || moved == Move::Unknown {
            self.settled = complete;
            members.settle();
        }
        Ok(moved)
    }

    fn failed(&mut self, error: Error, pause: Duration) {
        self.settled = false;
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            delay_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            "broad query failed"
        );
        let error = Arc::new(error);
        let key = QueryKey::new("broad", &self.feeds.first().map(|feed| &feed.kind));
        self.settings.summary.add(Occasion::BroadFailed, &key, Some(&error));
        self.unit.members().fail(error);
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
        self.unit.members().changed(&changes);
    }

    /// Starts what follows from the last event.
    fn go_on(&mut self) {
        // Listing all nodes is cheaper than reading all services when there are fewer of them.
        let services = self.unit.members().service_count();
        let nodes = self.catalog.node_count();
        let worth = services > if self.catalog.keeps_listings() { nodes / 2 } else { nodes };
        let keep = self.settled && worth && self.started.elapsed() >= self.no_listings_until;
        let changes = self.catalog.keep_listings(keep);
        self.unit.members().changed(&changes);
        while self.listings.len() < LISTERS
            && let Some(node) = self.catalog.next_listing()
        {
            let client = self.settings.client.clone();
            self.listings.push(Box::pin(async move {
                let listing = feed::list(client, node.clone()).await;
                (node, listing)
            }));
        }
        if !self.catalog.is_listing()
            && let Some((at, pause, since)) = self.parked.take()
        {
            // At most half of the time is spent on listing nodes.
            let listed_for = self.started.elapsed().saturating_sub(since).min(LONGEST_PAUSE);
            self.ask(at, pause.max(listed_for));
        }
    }
}
