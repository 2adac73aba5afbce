//! Many watches as one stream.

use std::{
    collections::HashMap,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::{
    Stream, StreamExt as _,
    stream::{BoxStream, SelectAll},
};

use crate::{
    Query,
    query::QueryKey,
    watch::{Snapshot, WatchError, Watcher},
};

/// An item of [`WatchAll`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AllEvent<T> {
    /// The first item: a snapshot of every watch, in the order of the
    /// queries. A watch that has ended before is missing.
    Ready(Vec<(QueryKey, Snapshot<T>)>),
    /// A newer snapshot of one watch.
    Changed {
        /// The key of its query.
        key: QueryKey,
        /// The snapshot.
        snapshot: Snapshot<T>,
    },
}

/// The snapshots of many watches, as one stream, made by [`Watcher::watch_all`].
///
/// Nothing but fatal errors comes before all watches are ready. Then each change comes with
/// the key of its query, and each failure as an error that names it
/// ([`WatchError::key`]). The stream ends with the last watch.
pub struct WatchAll<T> {
    streams: SelectAll<BoxStream<'static, (usize, Item<T>)>>,
    keys: Vec<QueryKey>,
    /// Tell how the watches fail now.
    failures: Vec<Failure>,
    /// The first snapshots, until all are there.
    waiting: Option<HashMap<usize, Snapshot<T>>>,
    /// Watches that have not ended.
    live: usize,
}

type Failure = Box<dyn Fn() -> Option<WatchError> + Send + Sync>;

type Item<T> = Option<Result<Snapshot<T>, WatchError>>;

impl Watcher {
    /// Follows many queries as one stream, which begins when all of them have an answer.
    ///
    /// Queries with equal keys count as one. Without any query the stream says that it is
    /// ready, and ends.
    ///
    /// ```
    /// # #[cfg(feature = "testing")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use consul_watch::{Watcher, query::HealthService, testing::TestConsul};
    /// use consul_watch::{types::HealthStatus, watch::AllEvent};
    /// use futures::StreamExt as _;
    ///
    /// let consul = TestConsul::new();
    /// let queries = ["web", "api"].map(HealthService::new);
    /// let mut all = Watcher::new(consul.client()).watch_all(queries);
    /// let Some(Ok(AllEvent::Ready(found))) = all.next().await else { panic!("not ready") };
    /// assert_eq!(found.len(), 2);
    ///
    /// consul.set_instance("api", "api-1", "10.0.0.7", 80, HealthStatus::Passing);
    /// let Some(Ok(AllEvent::Changed { key, snapshot })) = all.next().await else { panic!() };
    /// assert!(key.as_str().contains("api"));
    /// assert_eq!(snapshot.data.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn watch_all<Q: Query>(&self, queries: impl IntoIterator<Item = Q>) -> WatchAll<Q::Value> {
        let (mut streams, mut keys) = (SelectAll::new(), Vec::new());
        let mut failures = Vec::new();
        let mut known = std::collections::HashSet::new();
        for query in queries {
            let key = query.key();
            if !known.insert(key.clone()) {
                continue;
            }
            let number = keys.len();
            keys.push(key);
            let end = futures::stream::once(std::future::ready(None));
            let watch = self.watch(query);
            failures.push(Box::new(watch.failure_of()) as Failure);
            let items = watch.map(Some).chain(end);
            streams.push(items.map(move |item| (number, item)).boxed());
        }
        let live = keys.len();
        WatchAll { streams, keys, failures, waiting: Some(HashMap::new()), live }
    }
}

impl<T> WatchAll<T> {
    /// Returns a function that tells how the first watch that fails now does so.
    pub(super) fn failure_of(&mut self) -> impl Fn() -> Option<WatchError> + Send + Sync + 'static {
        let failures = std::mem::take(&mut self.failures);
        move || failures.iter().find_map(|failure| failure())
    }

    /// The event of readiness, if this is the moment.
    fn begin(&mut self) -> Option<AllEvent<T>> {
        let found = self.waiting.as_ref()?;
        if found.len() < self.live {
            return None;
        }
        let mut found: Vec<_> = self.waiting.take()?.into_iter().collect();
        found.sort_unstable_by_key(|(number, _)| *number);
        let named = found
            .into_iter()
            .filter_map(|(number, snapshot)| Some((self.keys.get(number)?.clone(), snapshot)));
        Some(AllEvent::Ready(named.collect()))
    }
}

impl<T: Send + Sync + 'static> Stream for WatchAll<T> {
    type Item = Result<AllEvent<T>, WatchError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(event) = this.begin() {
                return Poll::Ready(Some(Ok(event)));
            }
            let Some((number, item)) = ready!(this.streams.poll_next_unpin(cx)) else {
                return Poll::Ready(None);
            };
            match item {
                None => {
                    this.live -= 1;
                    if let Some(waiting) = &mut this.waiting {
                        waiting.remove(&number);
                    }
                }
                Some(Err(error)) if this.waiting.is_none() || error.is_fatal() => {
                    return Poll::Ready(Some(Err(error)));
                }
                // It tries again; what it shows in the end is part of the first item.
                Some(Err(_passing)) => {}
                Some(Ok(snapshot)) => match (&mut this.waiting, this.keys.get(number)) {
                    (Some(waiting), _) => {
                        waiting.insert(number, snapshot);
                    }
                    (None, Some(key)) => {
                        let key = key.clone();
                        return Poll::Ready(Some(Ok(AllEvent::Changed { key, snapshot })));
                    }
                    (None, None) => {}
                },
            }
        }
    }
}

impl<T> fmt::Debug for WatchAll<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchAll")
            .field("keys", &self.keys)
            .field("ready", &self.waiting.is_none())
            .field("live", &self.live)
            .finish_non_exhaustive()
    }
}
