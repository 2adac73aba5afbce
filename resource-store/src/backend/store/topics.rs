//! The logs of changes of one store, by what watches ask for.
//!
//! There is one log for each kind and tenancy that is watched, in which each unit
//! of the tenancy may be the wildcard; a change goes to the up to four logs that
//! match it. Within a log, a change wakes only watches whose name prefix matches.

use std::{
    collections::HashMap,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

use prost::Message as _;

use super::{
    change::Change,
    key,
    missed::Missed,
    sync::{Arc, Mutex, lock},
    topic::{Reader, Topic},
};
use crate::{
    backend::Query,
    pb::{Id, Tenancy, Type},
    tenancy::WILDCARD,
};

/// The changes in one tenancy, or one pattern of tenancies.
type ChangeLog = Topic<Change, Missed>;
/// A position in the log that a watch follows.
pub(crate) type ChangeReader = Reader<Change, Missed>;

/// Default number of events that a log holds.
pub(crate) const DEFAULT_WATCH_BUFFER: usize = 8192;
/// Number of logs from which on idle ones are thrown out.
pub(crate) const MANY_TOPICS: usize = 64;

/// Logs of changes, by kind and tenancy.
#[derive(Debug)]
pub(crate) struct Topics {
    /// Number of events that each log holds.
    buffer: usize,
    /// The logs of each kind that was ever watched.
    kinds: RwLock<HashMap<Vec<u8>, Arc<Kind>>>,
    /// `true` from the first watch on, so that writers of a store without any do not meet.
    followed: AtomicBool,
}

/// The logs of one kind by pattern of tenancies. The lock gives the changes of a kind one
/// order, the same in each log.
type Kind = Mutex<HashMap<Vec<u8>, Arc<ChangeLog>>>;

/// The wakers of readers, to be woken once no lock is held.
#[must_use = "nobody hears of the change"]
#[derive(Debug, Default)]
pub(crate) struct Wakers(Vec<Waker>);

impl Wakers {
    pub(crate) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

impl Topics {
    /// Creates logs that hold `buffer` events each.
    pub(crate) fn new(buffer: usize) -> Self {
        Self { buffer, kinds: RwLock::default(), followed: AtomicBool::new(false) }
    }

    /// Publishes a change to its readers. To be called in the order of the
    /// commits, and after the change can be read.
    #[cfg(any(
        test,
        feature = "durable",
        feature = "etcd",
        feature = "postgres",
        feature = "raft"
    ))]
    pub(crate) fn publish(&self, change: &Change) {
        self.append(change.clone(), |_| {}).wake();
    }

    /// Gives a change its index by `number`, in turn with other changes of its kind, and
    /// publishes it to its readers.
    ///
    /// To be called under a lock that the snapshot of every watch of this resource waits for:
    /// so a watch that this does not see yet has the change in its snapshot.
    pub(crate) fn publish_in_turn(
        &self,
        mut change: Change,
        number: impl FnOnce(&mut Change),
    ) -> Wakers {
        // That lock orders this after the watch, or the snapshot after the change.
        if self.followed.load(Ordering::Relaxed) {
            return self.append(change, number);
        }
        number(&mut change);
        Wakers::default()
    }

    fn append(&self, mut change: Change, number: impl FnOnce(&mut Change)) -> Wakers {
        let kind = change.resource.id.as_ref().and_then(|id| self.kind(id));
        let Some(kind) = kind else {
            number(&mut change);
            return Wakers::default();
        };
        let id = change.resource.id.clone().unwrap_or_default();
        let names = matching(id.partition(), id.namespace());
        let bytes = change.resource.encoded_len();
        let mut wakers = Vec::new();
        let topics = lock(&kind);
        number(&mut change);
        for topic in names.iter().filter_map(|name| topics.get(name)) {
            for mut step in change.steps() {
                let same = Arc::ptr_eq(&step.resource, &change.resource);
                step.bytes = if same { bytes } else { step.resource.encoded_len() };
                let bytes = step.bytes;
                topic.append(id.name.as_bytes(), step, bytes, &mut wakers);
            }
        }
        drop(topics);
        Wakers(wakers)
    }

    /// Returns the logs of the kind of a resource, if it was ever watched.
    fn kind(&self, id: &Id) -> Option<Arc<Kind>> {
        let Some(Type { group, kind, .. }) = &id.r#type else { return None };
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
        kinds.get(&key::topic_kind(group, kind)).cloned()
    }

    /// Subscribes to all changes from now on that a query may match. The snapshot
    /// that goes before them is to be taken after this.
    pub(crate) fn subscribe(&self, query: &Query) -> ChangeReader {
        let Tenancy { partition, namespace } = &query.tenancy;
        let kind = key::topic_kind(&query.kind.group, &query.kind.kind);
        let mut kinds = self.kinds.write().unwrap_or_else(PoisonError::into_inner);
        let kind = Arc::clone(kinds.entry(kind).or_default());
        drop(kinds);
        self.followed.store(true, Ordering::Relaxed);
        let mut topics = lock(&kind);
        if topics.len() >= MANY_TOPICS {
            topics.retain(|_, topic| !topic.is_idle());
        }
        let name = key::topic(partition, namespace);
        let topic = topics.entry(name).or_insert_with(|| Arc::new(Topic::new(self.buffer)));
        topic.subscribe(query.name_prefix.as_bytes())
    }

    /// Ends every reader.
    pub(crate) fn close_all(&self) {
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
        for kind in kinds.values() {
            let topics = std::mem::take(&mut *lock(kind));
            for topic in topics.values() {
                topic.close();
            }
        }
    }

    /// Returns the number of logs.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let kinds = self.kinds.read().unwrap();
        kinds.values().map(|kind| lock(kind).len()).sum()
    }
}

/// Returns the names of the topics of a kind whose watches a change in this tenancy may
/// concern.
fn matching(partition: &str, namespace: &str) -> Vec<Vec<u8>> {
    let mut names = Vec::with_capacity(4);
    for partition in or_wildcard(partition) {
        for namespace in or_wildcard(namespace) {
            names.push(key::topic(partition, namespace));
        }
    }
    names
}

/// Yields a unit, and the wildcard that matches it. Backends take any names: a unit that
/// is named as the wildcard comes once.
fn or_wildcard(unit: &str) -> impl Iterator<Item = &str> {
    std::iter::once(unit).chain((unit != WILDCARD).then_some(WILDCARD))
}

#[cfg(test)]
mod tests;
