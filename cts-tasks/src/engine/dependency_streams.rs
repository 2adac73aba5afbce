//! The watches of one task as one stream.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    task::{Poll, ready},
    time::Duration,
};

use consul_watch::{
    Query, QueryOptions, Watcher,
    query::{CatalogServices, HealthService, KvGet, KvList},
    watch::WatchError,
};
use futures::{
    StreamExt,
    stream::{AbortHandle, BoxStream, SelectAll, abortable, poll_fn},
};

use tokio::time::{Instant, sleep_until};

use super::{
    dependency::{Dependency, DependencyValue},
    health::{Followed, Health, Probe},
};
use crate::measure::Watched;

/// The watches of one task, as one stream of what they yield.
///
/// The watcher below shares each upstream read among all tasks that need it.
pub(crate) struct DependencyStreams {
    watcher: Watcher,
    health: Arc<Health>,
    streams: SelectAll<BoxStream<'static, (Arc<Dependency>, Answer)>>,
    open: BTreeMap<Arc<Dependency>, Open>,
    /// Watches that ended with an error, and when they are opened again.
    ended: BTreeMap<Arc<Dependency>, Instant>,
}

struct Open {
    stream: AbortHandle,
    _watched: Watched,
    _probe: Followed,
}

/// An answer, or why there is none yet; the watch goes on by itself, or is opened
/// again.
pub(crate) type Answer = Result<DependencyValue, WatchError>;

/// Pause before a read that Consul has refused for good is tried again.
const REOPEN: Duration = Duration::from_mins(1);

impl DependencyStreams {
    pub(crate) fn new(watcher: Watcher, health: Arc<Health>) -> Self {
        let (open, ended) = (BTreeMap::new(), BTreeMap::new());
        Self { watcher, health, streams: SelectAll::new(), open, ended }
    }

    /// Watches exactly `dependencies` from now on.
    pub(crate) fn set(&mut self, dependencies: &BTreeSet<Arc<Dependency>>) {
        self.ended.retain(|dependency, _| dependencies.contains(dependency));
        self.open.retain(|dependency, open| {
            let keep = dependencies.contains(dependency);
            if !keep {
                // `SelectAll` has no way to take a stream out; an aborted one ends by itself.
                open.stream.abort();
            }
            keep
        });
        for dependency in dependencies {
            if !self.open.contains_key(dependency) && !self.ended.contains_key(dependency) {
                self.open(Arc::clone(dependency));
            }
        }
    }

    /// The next answer of any watch; pending for ever while there is none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> (Arc<Dependency>, Answer) {
        loop {
            let due = self.ended.values().min().copied();
            tokio::select! {
                biased;
                Some((dependency, answer)) = self.streams.next() => {
                    // Such a watch has ended, but an operator may mend the cause: a token, a policy.
                    if answer.as_ref().is_err_and(WatchError::is_fatal) {
                        self.ended.insert(Arc::clone(&dependency), Instant::now() + REOPEN);
                    }
                    return (dependency, answer);
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    let now = Instant::now();
                    let due: Vec<Arc<Dependency>> =
                        self.ended.extract_if(.., |_, at| *at <= now).map(|(dependency, _)| dependency).collect();
                    for dependency in due {
                        self.open(dependency);
                    }
                }
                else => return futures::future::pending().await,
            }
        }
    }

    fn open(&mut self, dependency: Arc<Dependency>) {
        match &*Arc::clone(&dependency) {
            Dependency::Instances { name, datacenter, namespace, filter, passing } => {
                let mut options = options(datacenter, namespace);
                options.filter = Some(filter.clone()).filter(|filter| !filter.is_empty());
                let query = HealthService::new(name).options(options);
                let query = if *passing { query.passing() } else { query };
                self.stream(dependency, query, DependencyValue::Instances);
            }
            Dependency::Names { datacenter, namespace, node_meta } => {
                let mut options = options(datacenter, namespace);
                options.node_meta =
                    node_meta.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
                self.stream(
                    dependency,
                    CatalogServices::new().options(options),
                    DependencyValue::Names,
                );
            }
            Dependency::Key { path, datacenter, namespace } => {
                let query = KvGet::new(path).options(options(datacenter, namespace));
                self.stream(dependency, query, DependencyValue::Key);
            }
            Dependency::Prefix { path, datacenter, namespace } => {
                let query = KvList::new(path).options(options(datacenter, namespace));
                self.stream(dependency, query, DependencyValue::Prefix);
            }
        }
    }

    fn stream<Q: Query>(
        &mut self,
        dependency: Arc<Dependency>,
        query: Q,
        value: fn(Arc<Q::Value>) -> DependencyValue,
    ) {
        // Shared with the probe, which looks at the watch between two polls of it.
        let watch = Arc::new(Mutex::new(self.watcher.watch(query)));
        let probe = self.health.follow(Probe::of(Arc::clone(&dependency), Arc::clone(&watch)));
        let named = Arc::clone(&dependency);
        let answers = poll_fn(move |context| {
            let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
            let item = ready!(watch.poll_next_unpin(context));
            let answer = item.map(|item| item.map(|shown| value(shown.data)));
            Poll::Ready(answer.map(|answer| (Arc::clone(&named), answer)))
        });
        let (answers, stream) = abortable(answers);
        self.streams.push(answers.boxed());
        self.open.insert(dependency, Open { stream, _watched: Watched::begin(), _probe: probe });
    }
}

fn options(datacenter: &str, namespace: &str) -> QueryOptions {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let mut options = QueryOptions::default();
    options.datacenter = given(datacenter);
    options.namespace = given(namespace);
    options
}

/// A failure of a watch that is not waited out: reads like what happened, not
/// like the watch that will try again.
#[derive(Debug)]
pub(crate) struct FirstFailure(pub(crate) WatchError);

impl fmt::Display for FirstFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.cause().fmt(f)
    }
}

impl std::error::Error for FirstFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause().source()
    }
}
