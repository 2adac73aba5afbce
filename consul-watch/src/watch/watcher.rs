//! The entry to watches: finds or makes the shared read of a query.

use std::{
    any::TypeId,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::{Notify, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

use crate::{
    Backoff, Client, Clock, Query, SystemClock,
    query::QueryKey,
    transport::Budget,
    watch::{
        RateLimit, Watch, WatchState,
        broad_queries::{self, BroadQueries},
        inner::{Inner, Running, Views},
        plan::Settings,
        shared::Shared,
        slots::Slots,
        state::Repairs,
        summary::Summary,
        view::View,
    },
};

/// Makes [`Watch`]es and lets those of the same query share one upstream read.
///
/// Cheap to clone. Keep one for each [`Client`]: what is watched twice is then
/// read once. Dropping it does not end its watches.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use consul_watch::{Client, Watcher, query::HealthService};
///
/// let watcher = Watcher::new(Client::from_env()?);
/// let mut web = watcher.watch(HealthService::new("web").passing());
/// loop {
///     let snapshot = web.changed().await?;
///     for instance in snapshot.data.iter() {
///         println!("{}:{}", instance.address(), instance.service.port);
///     }
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Watcher {
    inner: Arc<Inner>,
}

/// Numbers of a [`Watcher`]'s upstream reads, by the way in which they wait for changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Load {
    /// Reads that have a connection of their own.
    pub own: usize,
    /// Reads that broad queries stand in for.
    pub covered: usize,
    /// Reads that share a few connections in turn.
    pub round_robin: usize,
    /// Broad queries, each on its connection.
    pub broad: usize,
}

/// A read of a [`Watcher`], for a person who asks what is watched.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WatchReport {
    /// Key of the query.
    pub key: QueryKey,
    /// Health of the read.
    pub state: WatchState,
    /// Number of watches that share it.
    pub subscribers: usize,
}

impl Watcher {
    /// A watcher with the defaults of [`WatcherBuilder`].
    pub fn new(client: Client) -> Self {
        Self::builder(client).build()
    }

    /// A watcher with other settings.
    pub fn builder(client: Client) -> WatcherBuilder {
        WatcherBuilder {
            client,
            wait: Duration::from_mins(1),
            rate_limit: RateLimit::default(),
            backoff: Backoff::default(),
            poll_interval: Duration::from_secs(15),
            linger: Duration::ZERO,
            max_stale: None,
            connections: WatcherBuilder::DEFAULT_CONNECTIONS.into(),
            seed: None,
            clock: Arc::new(SystemClock),
            stop: CancellationToken::new(),
        }
    }

    /// The client that this watcher reads with.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// Follows a query. While another watch of the same query lives, both
    /// share its upstream read, and this one starts with the current snapshot.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn watch<Q: Query>(&self, query: Q) -> Watch<Q::Value> {
        let id = (TypeId::of::<Q::Value>(), query.key());
        let mut views = self.inner.views();
        if let Some(running) = views.running.get(&id)
            && let Some(sender) =
                running.sender.as_any().downcast_ref::<Arc<watch::Sender<Shared<Q::Value>>>>()
        {
            let watch = Watch::new(sender.subscribe());
            // Ends a linger time that runs, also for one who leaves again at once.
            running.came.notify_one();
            return watch;
        }
        // Numbers are never used again, so that a claim or an end of the read before cannot be
        // taken for this one's.
        views.made += 1;
        let number = views.made;
        // Its requests are within it, and nothing of whoever happened to ask first.
        let span = query.subject().span(&id.1);
        let repairs = Repairs::new(id.1.clone(), span.clone(), Arc::clone(&self.inner.summary));
        let sender = Arc::new(watch::Sender::new(Shared::new(Arc::new(repairs))));
        let came = Arc::new(Notify::new());
        let watch = Watch::new(sender.subscribe());
        let settings = Settings {
            rate_limit: self.inner.rate_limit,
            backoff: self.inner.backoff.clone(),
            poll_interval: self.inner.poll_interval,
            seed: views.random.u64(..),
        };
        let view = View::new(
            Arc::clone(&self.inner),
            query,
            id.clone(),
            number,
            Arc::clone(&sender),
            Arc::clone(&came),
            &settings,
        );
        views.running.insert(id, Running { number, came, sender: Box::new(sender) });
        drop(views);
        self.inner.tasks.spawn(view.run().instrument(span));
        watch
    }

    /// Returns the number of upstream reads under way.
    pub fn active(&self) -> usize {
        self.inner.views().running.len()
    }

    /// Returns all reads under way, by their keys. It is made when it is asked for, and keeps
    /// no read waiting; nothing is kept for it meanwhile.
    ///
    /// ```
    /// # #[cfg(feature = "testing")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use consul_watch::{Watcher, query::KvGet, testing::TestConsul, watch::Liveness};
    ///
    /// let watcher = Watcher::new(TestConsul::new().client());
    /// let mut color = watcher.watch(KvGet::new("app/color"));
    /// color.changed().await?;
    /// let reports = watcher.reports();
    /// assert_eq!(reports[0].key.operation(), "kv.get");
    /// assert_eq!((reports[0].state.liveness, reports[0].subscribers), (Liveness::Live, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reports(&self) -> Vec<WatchReport> {
        let views = self.inner.views();
        let mut reports: Vec<WatchReport> = views
            .running
            .iter()
            .map(|((_type, key), running)| {
                let (state, subscribers) = running.sender.state();
                WatchReport { key: key.clone(), state, subscribers }
            })
            .collect();
        drop(views);
        reports.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        reports
    }

    /// Returns how many reads wait for changes in which way.
    pub fn load(&self) -> Load {
        let (own, covered, round_robin) = self.inner.slots.figures();
        Load { own, covered, round_robin, broad: self.inner.broad_queries.broad() }
    }

    /// Ends all watches and waits until their requests are gone. Watches made
    /// afterwards end at once.
    pub async fn shutdown(&self) {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher")
            .field("client", &self.inner.client)
            .field("active", &self.active())
            .finish_non_exhaustive()
    }
}

/// Settings of a [`Watcher`].
#[derive(Debug)]
#[must_use]
pub struct WatcherBuilder {
    client: Client,
    wait: Duration,
    rate_limit: RateLimit,
    backoff: Backoff,
    poll_interval: Duration,
    linger: Duration,
    max_stale: Option<Duration>,
    connections: usize,
    seed: Option<u64>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
}

impl WatcherBuilder {
    /// Default of [`WatcherBuilder::connections`]: Consul's own limit for each client address is
    /// 200, and other programs run there, too.
    pub const DEFAULT_CONNECTIONS: u16 = 160;

    /// Sets the time for which Consul may hold a request. Default 60 s, which most proxies
    /// between let pass; Consul cuts it to 10 min and adds up to a sixteenth.
    pub fn wait(mut self, wait: Duration) -> Self {
        // Consul takes no wait, or 0, for five minutes, and cuts a longer one at ten.
        self.wait = wait.clamp(Duration::from_millis(1), Duration::from_mins(10));
        self
    }

    /// Sets the rate at which a watch may ask while answers come without blocking.
    pub fn rate_limit(mut self, limit: RateLimit) -> Self {
        self.rate_limit = limit;
        self
    }

    /// Delays after failures that pass by themselves. Default: that of [`Backoff`].
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the interval of reads that turn out to have nothing to block on. Default 15 s.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = interval;
        self
    }

    /// Sets the time for which a read goes on after its last subscriber was dropped, so that
    /// one who comes back finds it. Default zero.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Reads from any server instead of the leader, and asks the leader again
    /// when that server had not heard from it for longer than this. Default:
    /// never. Watches past the budget of
    /// [connections](WatcherBuilder::connections) read from the leader.
    pub fn max_stale(mut self, max_stale: Duration) -> Self {
        self.max_stale = Some(max_stale);
        self
    }

    /// Sets the most connections that all watches use together. Default 160; fewer than 12
    /// count as 12. Consul serves 200 for each client address by default, and
    /// whatever else runs there needs some too. Where it refuses connections all the same, the
    /// watcher makes do with fewer, and tries a few more after half a minute; where those are
    /// refused, too, later and later, up to eight minutes.
    ///
    /// A sixteenth of them (1 to 8) are for reads that do not block; the others carry
    /// a watch each. More watches than that are followed through a few broad queries;
    /// see [Many watches](crate::watch#many-watches). Requests that are not a
    /// watch's do not count, and have connections beside these.
    ///
    /// Over plain HTTP without a proxy this is a hard limit: a request waits until
    /// another one's connection is idle or closed. Consul 1.8 itself notices that a
    /// connection was closed, by a watch that was dropped or gave its own back, only
    /// when the time of the request on it is over.
    ///
    /// Over HTTP/2, which Consul offers with TLS, one connection carries all
    /// requests. Then up to 200 watches have a request of their own, whatever
    /// this says; Consul allows 250 on a connection.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Makes jitter repeat, for tests.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the clock of [`WatchState::last_success`](crate::watch::WatchState::last_success).
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Ends all watches when it is cancelled.
    pub fn stop(mut self, stop: &CancellationToken) -> Self {
        self.stop = stop.child_token();
        self
    }

    /// The watcher.
    pub fn build(self) -> Watcher {
        let slots = Arc::new(Slots::new(self.connections));
        // The minimum is applied by the shares, so that both agree on it.
        let budget = Budget::new(slots.shares.budget);
        let bounded = self.client.within(&budget);
        let stale = self
            .max_stale
            .filter(|limit| !limit.is_zero())
            .map(|limit| (bounded.with_consistency(crate::Consistency::Stale), limit));
        let (ordered, confirmed) = (bounded.ordered(), bounded.confirmed());
        let tasks = TaskTracker::new();
        let summary = Arc::new(Summary::new(tasks.clone(), self.stop.clone()));
        let mut random = self.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let settings = broad_queries::Settings {
            client: ordered.clone(),
            summary: Arc::clone(&summary),
            seed: random.fork().u64(..),
            wait: self.wait,
            poll_interval: self.poll_interval,
            rate_limit: self.rate_limit,
            backoff: self.backoff.clone(),
            prefixes: slots.shares.prefixes,
            slots: Arc::clone(&slots),
        };
        let broad_queries = Arc::new(BroadQueries::new(settings, tasks.clone(), self.stop.clone()));
        Watcher {
            inner: Arc::new(Inner {
                client: self.client,
                bounded,
                stale,
                wait: self.wait,
                linger: self.linger,
                clock: self.clock,
                stop: self.stop,
                rate_limit: self.rate_limit,
                backoff: self.backoff,
                poll_interval: self.poll_interval,
                tasks,
                ordered,
                confirmed,
                budget,
                slots,
                broad_queries,
                summary,
                views: Mutex::new(Views { random, ..Views::default() }),
            }),
        }
    }
}
