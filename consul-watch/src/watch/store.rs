//! The current state of a watch, for many tasks that read it without waiting.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::StreamExt as _;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::watch::{Items, Snapshot, Watch, WatchError};

/// A handle to what a watch shows now, by key: each item behind an [`Arc`].
///
/// Made by [`Watch::store`]. Clones share one state; reading waits for nobody, takes no lock
/// for longer than it takes to copy a pointer, and never sees half a snapshot. An item that a
/// snapshot leaves as it was keeps its `Arc`. While the watch fails, the last state stays.
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
    /// Ends the task with the last handle.
    filler: Arc<AbortOnDropHandle<()>>,
}

/// All items of one snapshot.
type Contents<K, V> = Arc<BTreeMap<K, Arc<V>>>;

struct State<K, V> {
    contents: Contents<K, V>,
    ready: bool,
    failure: Option<WatchError>,
}

impl<K, V> Store<K, V>
where
    K: Ord + Clone + Send + Sync + 'static,
    V: PartialEq + Clone + Send + Sync + 'static,
{
    fn fill<T>(mut watch: Watch<T>) -> Self
    where
        T: Items<Key = K, Item = V> + Send + Sync + 'static,
    {
        let empty = State { contents: Contents::default(), ready: false, failure: None };
        let (sender, state) = watch::channel(empty);
        let filler = tokio::spawn(async move {
            while let Some(item) = watch.next().await {
                match item {
                    Ok(snapshot) => {
                        let before = Arc::clone(&sender.borrow().contents);
                        let contents = Arc::new(kept(&before, &snapshot));
                        sender.send_modify(|state| {
                            *state = State { contents, ready: true, failure: None };
                        });
                    }
                    Err(error) => sender.send_modify(|state| state.failure = Some(error)),
                }
            }
            sender.send_modify(|state| {
                if !state.failure.as_ref().is_some_and(WatchError::is_fatal) {
                    state.failure = Some(WatchError::closed());
                }
            });
        });
        Self { state, filler: Arc::new(AbortOnDropHandle::new(filler)) }
    }

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

    /// Returns the failure since the last snapshot: the state may be out of date.
    pub fn failure(&self) -> Option<WatchError> {
        self.state.borrow().failure.clone()
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
        let fatal = |state: &State<K, V>| state.failure.clone().filter(WatchError::is_fatal);
        let mut state = self.state.clone();
        let state = state.wait_for(|state| state.ready || fatal(state).is_some()).await;
        match state {
            Ok(state) if state.ready => Ok(()),
            Ok(state) => Err(fatal(&state).unwrap_or_else(WatchError::closed)),
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
        Store::fill(self)
    }
}

impl<K, V> Clone for Store<K, V> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), filler: Arc::clone(&self.filler) }
    }
}

impl<K, V> fmt::Debug for Store<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.borrow();
        f.debug_struct("Store")
            .field("items", &state.contents.len())
            .field("ready", &state.ready)
            .field("failure", &state.failure)
            .finish_non_exhaustive()
    }
}
