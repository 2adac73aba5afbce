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
    health::{Followed, Health, Probe},
    want::{Feed, Want},
};
use crate::measure::Watched;

/// The watches of one task, as one stream of what they yield.
///
/// The watcher below shares each upstream read among all tasks that want it.
pub(crate) struct Feeds {
    watcher: Watcher,
    health: Arc<Health>,
    streams: SelectAll<BoxStream<'static, (Arc<Want>, Answer)>>,
    open: BTreeMap<Arc<Want>, Open>,
    /// Watches that ended with an error, and when they are opened again.
    ended: BTreeMap<Arc<Want>, Instant>,
}

struct Open {
    stream: AbortHandle,
    _watched: Watched,
    _probe: Followed,
}

/// An answer, or why there is none yet; the watch goes on by itself, or is opened
/// again.
pub(crate) type Answer = Result<Feed, WatchError>;

/// Pause before a read that Consul has refused for good is tried again.
const REOPEN: Duration = Duration::from_mins(1);

impl Feeds {
    pub(crate) fn new(watcher: Watcher, health: Arc<Health>) -> Self {
        let (open, ended) = (BTreeMap::new(), BTreeMap::new());
        Self { watcher, health, streams: SelectAll::new(), open, ended }
    }

    /// Watches exactly `wants` from now on.
    pub(crate) fn set(&mut self, wants: &BTreeSet<Arc<Want>>) {
        self.ended.retain(|want, _| wants.contains(want));
        self.open.retain(|want, open| {
            let keep = wants.contains(want);
            if !keep {
                // `SelectAll` has no way to take a stream out; an aborted one ends by itself.
                open.stream.abort();
            }
            keep
        });
        for want in wants {
            if !self.open.contains_key(want) && !self.ended.contains_key(want) {
                self.open(Arc::clone(want));
            }
        }
    }

    /// The next answer of any watch; pending for ever while there is none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> (Arc<Want>, Answer) {
        loop {
            let due = self.ended.values().min().copied();
            tokio::select! {
                biased;
                Some((want, answer)) = self.streams.next() => {
                    // Such a watch has ended, but an operator may mend the cause: a token, a policy.
                    if answer.as_ref().is_err_and(WatchError::is_fatal) {
                        self.ended.insert(Arc::clone(&want), Instant::now() + REOPEN);
                    }
                    return (want, answer);
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    let now = Instant::now();
                    let due: Vec<Arc<Want>> =
                        self.ended.extract_if(.., |_, at| *at <= now).map(|(want, _)| want).collect();
                    for want in due {
                        self.open(want);
                    }
                }
                else => return futures::future::pending().await,
            }
        }
    }

    fn open(&mut self, want: Arc<Want>) {
        match &*Arc::clone(&want) {
            Want::Instances { name, datacenter, namespace, filter, passing } => {
                let mut options = options(datacenter, namespace);
                options.filter = Some(filter.clone()).filter(|filter| !filter.is_empty());
                let query = HealthService::new(name).options(options);
                let query = if *passing { query.passing() } else { query };
                self.stream(want, query, Feed::Instances);
            }
            Want::Names { datacenter, namespace, node_meta } => {
                let mut options = options(datacenter, namespace);
                options.node_meta =
                    node_meta.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
                self.stream(want, CatalogServices::new().options(options), Feed::Names);
            }
            Want::Key { path, datacenter, namespace } => {
                let query = KvGet::new(path).options(options(datacenter, namespace));
                self.stream(want, query, Feed::Key);
            }
            Want::Prefix { path, datacenter, namespace } => {
                let query = KvList::new(path).options(options(datacenter, namespace));
                self.stream(want, query, Feed::Prefix);
            }
        }
    }

    fn stream<Q: Query>(&mut self, want: Arc<Want>, query: Q, feed: fn(Arc<Q::Value>) -> Feed) {
        // Shared with the probe, which looks at the watch between two polls of it.
        let watch = Arc::new(Mutex::new(self.watcher.watch(query)));
        let probe = self.health.follow(Probe::of(Arc::clone(&want), Arc::clone(&watch)));
        let named = Arc::clone(&want);
        let answers = poll_fn(move |context| {
            let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
            let item = ready!(watch.poll_next_unpin(context));
            let answer = item.map(|item| item.map(|shown| feed(shown.data)));
            Poll::Ready(answer.map(|answer| (Arc::clone(&named), answer)))
        });
        let (answers, stream) = abortable(answers);
        self.streams.push(answers.boxed());
        self.open.insert(want, Open { stream, _watched: Watched::begin(), _probe: probe });
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
