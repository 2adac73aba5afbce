//! The current state of one watch or of several, for many tasks that read it without waiting.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::{Stream, StreamExt as _};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    query::QueryKey,
    watch::{AllEvent, Items, Snapshot, Watch, WatchAll, WatchError},
};

/// A handle to what a watch shows now, by key: each item behind an [`Arc`].
///
/// Made by [`Watch::store`] or [`WatchAll::store`]. Clones share one state; reading waits for
/// nobody, takes no lock for longer than it takes to copy a pointer, and never sees half a
/// snapshot. An item that a snapshot leaves as it was keeps its `Arc`. While the watch fails, the
/// last state stays.
///
/// A task of the runtime fills it, and ends with the last handle.
///
/// ```
/// # #[cfg(feature = "testing")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use consul_watch::{Watcher, query::KvList, testing::TestConsul};
///
/// let consul = TestConsul::new();
/// consul.kv_put("app/color", "blue");
/// let store = Watcher::new(consul.client()).watch(KvList::new("app/")).store();
/// store.ready().await?;
/// let handle = store.clone(); // for another task
/// let color = handle.get(&"app/color".to_owned()).expect("it is set");
/// assert_eq!(color.text(), Some("blue"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Store<K, V> {
    state: watch::Receiver<State<K, V>>,
    source: Arc<Source>,
}

/// All items of one snapshot.
type Contents<K, V> = Arc<BTreeMap<K, Arc<V>>>;

struct State<K, V> {
    contents: Contents<K, V>,
    ready: bool,
    /// A fatal error that came before the first contents.
    unready: Option<WatchError>,
}

/// A step from one state to the next.
enum Change<K, V> {
    Whole(Contents<K, V>),
    One(K, Arc<V>),
}

/// The task that fills a store; it ends with the last handle.
struct Source {
    _filler: AbortOnDropHandle<()>,
    /// Asks the watches: one that recovers without a change has no item that would tell.
    failure: Box<dyn Fn() -> Option<WatchError> + Send + Sync>,
}

impl<K, V> Store<K, V>
where
    K: Ord + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Creates a store that takes the changes that `change` makes of the stream's items.
    fn fill<S, T>(
        mut stream: S,
        failure: impl Fn() -> Option<WatchError> + Send + Sync + 'static,
        change: impl Fn(&Contents<K, V>, T) -> Change<K, V> + Send + 'static,
    ) -> Self
    where
        S: Stream<Item = Result<T, WatchError>> + Unpin + Send + 'static,
        T: Send,
    {
        let empty = State { contents: Contents::default(), ready: false, unready: None };
        let (sender, state) = watch::channel(empty);
        let filler = tokio::spawn(async move {
            let unready = |error| {
                sender.send_if_modified(|state| {
                    let first = !state.ready && state.unready.is_none();
                    if first {
                        state.unready = Some(error);
                    }
                    first
                });
            };
            while let Some(item) = stream.next().await {
                match item {
                    Ok(item) => {
                        // Worked out, and what it replaces dropped, while nobody is locked out.
                        let before = Arc::clone(&sender.borrow().contents);
                        match change(&before, item) {
                            Change::Whole(contents) => sender.send_modify(|state| {
                                state.contents = contents;
                                state.ready = true;
                            }),
                            Change::One(key, item) => {
                                drop(before);
                                // Copied only while a reader holds this moment.
                                sender.send_modify(|state| {
                                    Arc::make_mut(&mut state.contents).insert(key, item);
                                });
                            }
                        }
                    }
                    Err(error) if error.is_fatal() => unready(error),
                    Err(_passing) => {}
                }
            }
            unready(WatchError::closed());
        });
        let source = Source { _filler: AbortOnDropHandle::new(filler), failure: Box::new(failure) };
        Self { state, source: Arc::new(source) }
    }
}

impl<K: Ord + Send + Sync, V: Send + Sync> Store<K, V> {
    /// Returns the item with this key, if there is one now.
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        self.state.borrow().contents.get(key).cloned()
    }

    /// Returns all items of one moment, by key. It does not change any more.
    pub fn contents(&self) -> Arc<BTreeMap<K, Arc<V>>> {
        Arc::clone(&self.state.borrow().contents)
    }

    /// Returns an item for which the predicate holds: the one with the smallest key.
    pub fn find(&self, predicate: impl Fn(&V) -> bool) -> Option<Arc<V>> {
        self.contents().values().find(|item| predicate(item)).cloned()
    }

    /// Number of items now.
    pub fn len(&self) -> usize {
        self.state.borrow().contents.len()
    }

    /// Returns `true` without any item, also before the first snapshot.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` once the first snapshot was there.
    pub fn is_ready(&self) -> bool {
        self.state.borrow().ready
    }

    /// Returns why the state may be out of date: the error of the last attempt to read, until
    /// one succeeds, with or without a change, or that of the watch's end.
    ///
    /// In a store of several watches it is that of the first, in the order of the queries, that
    /// fails now.
    pub fn failure(&self) -> Option<WatchError> {
        (self.source.failure)()
    }

    /// Waits for the first snapshot. Failures that can pass are waited out.
    ///
    /// # Errors
    ///
    /// A [fatal](WatchError::is_fatal) one, if it came before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn ready(&self) -> Result<(), WatchError> {
        let mut state = self.state.clone();
        let state = state.wait_for(|state| state.ready || state.unready.is_some()).await;
        match state {
            Ok(state) => state.unready.clone().map_or(Ok(()), Err),
            // The runtime that filled it is gone.
            Err(_gone) => Err(WatchError::closed()),
        }
    }
}

/// The items of a snapshot; those that are as before keep their place in memory.
fn kept<T>(
    before: &BTreeMap<T::Key, Arc<T::Item>>,
    snapshot: &Snapshot<T>,
) -> BTreeMap<T::Key, Arc<T::Item>>
where
    T: Items,
{
    let item = |(key, item): (T::Key, &T::Item)| {
        let same = before.get(&key).filter(|old| ***old == *item);
        let item = same.map_or_else(|| Arc::new(item.clone()), Arc::clone);
        (key, item)
    };
    snapshot.data.items().into_iter().map(item).collect()
}

impl<T> Watch<T>
where
    T: Items<Key: Sync, Item: Sync> + Send + Sync + 'static,
{
    /// Keeps the watch's current items at hand for many readers.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn store(self) -> Store<T::Key, T::Item> {
        let failure = self.failure_of();
        Store::fill(self, failure, |before, snapshot| {
            Change::Whole(Arc::new(kept(before, &snapshot)))
        })
    }
}

impl<T: Send + Sync + 'static> WatchAll<T> {
    /// Keeps the current data of all watches at hand for many readers, by the keys of their
    /// queries. The store is ready when all watches are; if one of them ended before,
    /// [`Store::ready`] says so, and the others are there all the same.
    ///
    /// ```
    /// # #[cfg(feature = "testing")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use consul_watch::{Query as _, Watcher, query::HealthService};
    /// use consul_watch::{testing::TestConsul, types::HealthStatus};
    ///
    /// let consul = TestConsul::new();
    /// consul.set_instance("web", "web-1", "10.0.0.7", 80, HealthStatus::Passing);
    /// let queries = ["web", "api"].map(HealthService::new);
    /// let store = Watcher::new(consul.client()).watch_all(queries).store();
    /// store.ready().await?;
    /// let web = store.get(&HealthService::new("web").key()).expect("all are there");
    /// assert_eq!(web[0].address(), "10.0.0.7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn store(mut self) -> Store<QueryKey, T> {
        let failure = self.failure_of();
        Store::fill(self, failure, |_before, event| match event {
            AllEvent::Ready(found) => {
                let data = found.into_iter().map(|(key, snapshot)| (key, snapshot.data));
                Change::Whole(Arc::new(data.collect()))
            }
            AllEvent::Changed { key, snapshot } => Change::One(key, snapshot.data),
        })
    }
}

impl<K, V> Clone for Store<K, V> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), source: Arc::clone(&self.source) }
    }
}

impl<K, V> fmt::Debug for Store<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.borrow();
        f.debug_struct("Store")
            .field("items", &state.contents.len())
            .field("ready", &state.ready)
            .field("failure", &(self.source.failure)())
            .finish_non_exhaustive()
    }
}
