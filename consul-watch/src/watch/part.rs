//! Watches of a part of the data: predicates that drop the rest, and shared mappings.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use futures::{Stream, StreamExt as _};

use crate::watch::{Snapshot, Watch, WatchError};

impl<T: Send + Sync + 'static> Watch<T> {
    /// Drops snapshots in which the relevant part equals that of the last one given out.
    ///
    /// Errors pass unchanged.
    ///
    /// ```
    /// # #[cfg(feature = "testing")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use consul_watch::{Watcher, query::HealthService, testing::TestConsul};
    /// use consul_watch::types::HealthStatus::{Critical, Passing};
    /// use futures::StreamExt as _;
    ///
    /// let consul = TestConsul::new();
    /// consul.set_instance("web", "web-1", "10.0.0.7", 80, Passing);
    /// let watch = Watcher::new(consul.client()).watch(HealthService::new("web"));
    /// let mut addresses = watch.changed_by(|entries| {
    ///     entries.iter().map(|entry| entry.address().to_owned()).collect::<Vec<_>>()
    /// });
    /// assert!(addresses.next().await.is_some());
    /// consul.set_instance("web", "web-1", "10.0.0.7", 80, Critical); // not an address
    /// consul.set_instance("web", "web-2", "10.0.0.8", 80, Passing);
    /// let snapshot = addresses.next().await.expect("it goes on")?;
    /// assert_eq!(snapshot.data.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn changed_by<P, F>(self, part: F) -> ChangedBy<T, P, F>
    where
        P: PartialEq + Unpin,
        F: FnMut(&T) -> P + Unpin,
    {
        ChangedBy { watch: self, part, last: None }
    }

    /// Maps snapshots to something else, once for all clones: they share the results.
    ///
    /// ```
    /// # #[cfg(feature = "testing")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::sync::Arc;
    /// use consul_watch::{Watcher, query::KvList, testing::TestConsul};
    ///
    /// let consul = TestConsul::new();
    /// consul.kv_put("app/color", "blue");
    /// let watch = Watcher::new(consul.client()).watch(KvList::new("app/"));
    /// let mut one = watch.map_shared(|pairs| pairs.iter().map(|p| p.key.clone()).collect::<Vec<_>>());
    /// let mut two = one.clone();
    /// let (first, second) = (one.changed().await?, two.changed().await?);
    /// assert_eq!(*first.data, ["app/color"]);
    /// assert!(Arc::ptr_eq(&first.data, &second.data));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map_shared<U, F>(self, map: F) -> Mapped<T, U>
    where
        F: Fn(&T) -> U + Send + Sync + 'static,
    {
        Mapped { watch: self, map: Arc::new(map), done: Arc::default() }
    }
}

/// Snapshots whose relevant part has changed, made by [`Watch::changed_by`].
pub struct ChangedBy<T, P, F> {
    watch: Watch<T>,
    part: F,
    last: Option<P>,
}

impl<T, P, F> Stream for ChangedBy<T, P, F>
where
    T: Send + Sync + 'static,
    P: PartialEq + Unpin,
    F: FnMut(&T) -> P + Unpin,
{
    type Item = Result<Snapshot<T>, WatchError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            let item = ready!(this.watch.poll_next_unpin(cx));
            if let Some(Ok(snapshot)) = &item {
                let part = (this.part)(&snapshot.data);
                if this.last.as_ref() == Some(&part) {
                    continue;
                }
                this.last = Some(part);
            }
            return Poll::Ready(item);
        }
    }
}

impl<T, P, F> fmt::Debug for ChangedBy<T, P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangedBy").field("watch", &self.watch).finish_non_exhaustive()
    }
}

/// Mapped snapshots, made by [`Watch::map_shared`].
///
/// A clone is a further subscriber, which starts with the current snapshot.
pub struct Mapped<T, U> {
    watch: Watch<T>,
    map: Arc<dyn Fn(&T) -> U + Send + Sync>,
    done: Arc<Mutex<Option<Done<T, U>>>>,
}

/// Data that were mapped last, and the result.
type Done<T, U> = (Arc<T>, Arc<U>);

impl<T: Send + Sync + 'static, U: Send + Sync> Mapped<T, U> {
    /// Waits for a snapshot that this subscriber has not seen; see [`Watch::changed`].
    ///
    /// # Errors
    ///
    /// As [`Watch::changed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn changed(&mut self) -> Result<Snapshot<U>, WatchError> {
        self.watch.changed().await.map(|snapshot| self.apply(snapshot))
    }

    /// The newest snapshot, also if it was given out before; `None` before the first.
    pub fn latest(&self) -> Option<Snapshot<U>> {
        self.watch.latest().map(|snapshot| self.apply(snapshot))
    }

    fn apply(&self, snapshot: Snapshot<T>) -> Snapshot<U> {
        let Snapshot { data, meta, seq, history } = snapshot;
        // Others wait while one maps, rather than map the same a second time. A mapping that
        // panicked has left nothing behind.
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let data = match &*done {
            // By address: equal data at another one is another snapshot, and comparing could cost
            // more than mapping. `from` keeps its address from being given to others.
            Some((from, to)) if Arc::ptr_eq(from, &data) => Arc::clone(to),
            _ => {
                let mapped = Arc::new((self.map)(&data));
                *done = Some((data, Arc::clone(&mapped)));
                mapped
            }
        };
        drop(done);
        Snapshot { data, meta, seq, history }
    }
}

impl<T: Send + Sync + 'static, U: Send + Sync> Stream for Mapped<T, U> {
    type Item = Result<Snapshot<U>, WatchError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let item = ready!(this.watch.poll_next_unpin(cx));
        Poll::Ready(item.map(|item| item.map(|snapshot| this.apply(snapshot))))
    }
}

impl<T: Send + Sync + 'static, U> Clone for Mapped<T, U> {
    fn clone(&self) -> Self {
        let (map, done) = (Arc::clone(&self.map), Arc::clone(&self.done));
        Self { watch: self.watch.clone(), map, done }
    }
}

impl<T, U> fmt::Debug for Mapped<T, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapped").field("watch", &self.watch).finish_non_exhaustive()
    }
}
