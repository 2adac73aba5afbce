//! `Diff`: snapshots as added, changed and removed items, by identity.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::Stream;

use crate::{
    types,
    watch::{Buffered, Snapshot, Watch, WatchError},
};

/// Identity of an item in a snapshot, which it keeps when it changes.
pub trait Keyed {
    /// The identity. Its order is the order of events.
    type Key: Ord + Clone + fmt::Debug + Send + 'static;

    /// The identity of this item, unique in its snapshot.
    fn key(&self) -> Self::Key;
}

/// A snapshot's data as items with identities.
pub trait Items {
    /// The identity of an item. Its order is the order of events.
    type Key: Ord + Clone + fmt::Debug + Send + 'static;
    /// An item.
    type Item: PartialEq + Clone + fmt::Debug + Send + 'static;

    /// Returns all items. Of two with the same key only the last one counts.
    fn items(&self) -> Vec<(Self::Key, &Self::Item)>;
}

impl<T: Keyed + PartialEq + Clone + fmt::Debug + Send + 'static> Items for Vec<T> {
    type Key = T::Key;
    type Item = T;

    fn items(&self) -> Vec<(T::Key, &T)> {
        self.iter().map(|item| (item.key(), item)).collect()
    }
}

impl<T: Keyed + PartialEq + Clone + fmt::Debug + Send + 'static> Items for Option<T> {
    type Key = T::Key;
    type Item = T;

    fn items(&self) -> Vec<(T::Key, &T)> {
        self.iter().map(|item| (item.key(), item)).collect()
    }
}

impl<K, T> Items for BTreeMap<K, T>
where
    K: Ord + Clone + fmt::Debug + Send + 'static,
    T: PartialEq + Clone + fmt::Debug + Send + 'static,
{
    type Key = K;
    type Item = T;

    fn items(&self) -> Vec<(K, &T)> {
        self.iter().map(|(key, item)| (key.clone(), item)).collect()
    }
}

impl Items for types::CaRoots {
    type Key = String;
    type Item = types::CaRoot;

    fn items(&self) -> Vec<(String, &types::CaRoot)> {
        self.roots.items()
    }
}

/// Makes a type [`Keyed`] by some of its fields.
macro_rules! keyed {
    ($($type:ty as $key:ty = |$item:ident| $by:expr;)+) => {
        $(impl Keyed for $type {
            type Key = $key;

            fn key(&self) -> $key {
                let $item = self;
                $by
            }
        })+
    };
}

keyed! {
    String as String = |name| name.clone();
    types::KvPair as String = |pair| pair.key.clone();
    types::Node as String = |node| node.name.clone();
    types::Session as types::SessionId = |session| session.id.clone();
    types::HealthCheck as (String, String) = |check| (check.node.clone(), check.check_id.clone());
    types::ServiceEntry as InstanceKey = |entry| InstanceKey {
        node: entry.node.name.clone(),
        service_id: entry.service.id.clone(),
        partition: entry.service.partition.clone(),
        namespace: entry.service.namespace.clone(),
        peer: entry.service.peer_name.clone(),
    };
    types::CatalogService as InstanceKey = |instance| InstanceKey {
        node: instance.node.clone(),
        service_id: instance.service_id.clone(),
        partition: instance.partition.clone(),
        namespace: instance.namespace.clone(),
        peer: instance.peer_name.clone(),
    };
    types::Intention as [String; 6] = |intention| [
        intention.destination_name.clone(),
        intention.source_name.clone(),
        intention.destination_namespace.clone(),
        intention.source_namespace.clone(),
        intention.source_peer.clone(),
        intention.source_partition.clone(),
    ];
    types::ConfigEntry as (String, String) = |entry| (entry.kind.clone(), entry.name.clone());
    types::CaRoot as String = |root| root.id.clone();
    types::AclPolicy as String = |policy| policy.id.clone();
    types::AclRole as String = |role| role.id.clone();
    types::AclTokenEntry as String = |token| token.accessor_id.clone();
    types::AclAuthMethod as String = |method| method.name.clone();
    types::AclBindingRule as String = |rule| rule.id.clone();
    types::GatewayService as (String, i64) = |service| (service.service.clone(), service.port);
    types::NodeCoordinate as (String, String) = |node| (node.node.clone(), node.segment.clone());
    types::Peering as String = |peering| peering.name.clone();
    types::ExportedService as (String, Option<String>) =
        |service| (service.service.clone(), service.namespace.clone());
    types::UserEvent as String = |event| event.id.clone();
    types::AgentService as String = |service| service.service.id.clone();
}

/// Identity of a service instance in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceKey {
    /// Name of its node.
    pub node: String,
    /// Id of the instance, unique on the node.
    pub service_id: String,
    /// Enterprise partition.
    pub partition: Option<String>,
    /// Enterprise namespace.
    pub namespace: Option<String>,
    /// Cluster peer that it was imported from; empty for local ones.
    pub peer: String,
}

/// A difference from one snapshot to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<K, T> {
    /// The first snapshot, sorted by key.
    Init(Vec<(K, T)>),
    /// Consul's history was replaced, as by a restored backup: what happened in between is
    /// not known ([`Snapshot::history`]). The differences to what was delivered before follow.
    Resync,
    /// An item is gone.
    Removed {
        /// Identity of the item.
        key: K,
        /// The item as it was.
        old: T,
    },
    /// An item is another one.
    Changed {
        /// Identity of the item.
        key: K,
        /// The item as it was.
        old: T,
        /// The item as it is now.
        new: T,
    },
    /// An item is new.
    Added {
        /// Identity of the item.
        key: K,
        /// The item as it is now.
        new: T,
    },
}

/// The differences between two data: what was removed, what changed, what was added, each
/// sorted by key.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use consul_watch::watch::{Event, changes};
///
/// let old = BTreeMap::from([("a", 1), ("b", 1)]);
/// let new = BTreeMap::from([("b", 2), ("c", 1)]);
/// assert_eq!(
///     changes(&old, &new),
///     [
///         Event::Removed { key: "a", old: 1 },
///         Event::Changed { key: "b", old: 1, new: 2 },
///         Event::Added { key: "c", new: 1 },
///     ]
/// );
/// ```
pub fn changes<V: Items>(old: &V, new: &V) -> Vec<Event<V::Key, V::Item>> {
    let before: BTreeMap<_, _> = old.items().into_iter().collect();
    let after: BTreeMap<_, _> = new.items().into_iter().collect();
    let (mut events, mut changed, mut added) = (Vec::new(), Vec::new(), Vec::new());
    for (key, item) in &before {
        if !after.contains_key(key) {
            events.push(Event::Removed { key: key.clone(), old: (*item).clone() });
        }
    }
    for (key, item) in after {
        match before.get(&key) {
            Some(old) if *old == item => {}
            Some(old) => {
                changed.push(Event::Changed { key, old: (*old).clone(), new: item.clone() });
            }
            None => added.push(Event::Added { key, new: item.clone() }),
        }
    }
    events.append(&mut changed);
    events.append(&mut added);
    events
}

/// A stream of [`Event`]s made from a stream of snapshots.
///
/// Differences are those to the snapshot that was delivered before: a slow subscriber sees
/// the sum of what it missed. Errors are passed on; the next snapshot is compared as if there
/// had been none.
#[must_use = "streams do nothing unless polled"]
pub struct Diff<S, V: Items> {
    inner: S,
    last: Option<Snapshot<V>>,
    ready: VecDeque<Event<V::Key, V::Item>>,
}

// Events are moved, never pinned.
impl<S: Unpin, V: Items> Unpin for Diff<S, V> {}

impl<S, V: Items> Diff<S, V> {
    /// The differences between the snapshots of a stream.
    pub fn new(inner: S) -> Self {
        Self { inner, last: None, ready: VecDeque::new() }
    }

    /// The snapshot that the last event belongs to.
    pub fn snapshot(&self) -> Option<&Snapshot<V>> {
        self.last.as_ref()
    }

    /// The stream behind.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    fn take(&mut self, snapshot: Snapshot<V>) {
        if let Some(last) = &self.last {
            if snapshot.history != last.history {
                self.ready.push_back(Event::Resync);
            }
            self.ready.extend(changes(&*last.data, &*snapshot.data));
        } else {
            let items: BTreeMap<_, _> = snapshot.data.items().into_iter().collect();
            let items = items.into_iter().map(|(key, item)| (key, item.clone())).collect();
            self.ready.push_back(Event::Init(items));
        }
        self.last = Some(snapshot);
    }
}

impl<S, V> Stream for Diff<S, V>
where
    S: Stream<Item = Result<Snapshot<V>, WatchError>> + Unpin,
    V: Items,
{
    type Item = Result<Event<V::Key, V::Item>, WatchError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(event) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            match ready!(Pin::new(&mut this.inner).poll_next(cx)) {
                Some(Ok(snapshot)) => this.take(snapshot),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl<S: fmt::Debug, V: Items> fmt::Debug for Diff<S, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Diff").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<V: Items + Send + Sync + 'static> Watch<V> {
    /// Events instead of snapshots: what was added, changed and removed.
    pub fn diff(self) -> Diff<Self, V> {
        Diff::new(self)
    }
}

impl<V: Items + Send + Sync + 'static> Buffered<Watch<V>, Snapshot<V>> {
    /// Events instead of snapshots: what was added, changed and removed over a buffer's time.
    pub fn diff(self) -> Diff<Self, V> {
        Diff::new(self)
    }
}

#[cfg(test)]
mod tests;
