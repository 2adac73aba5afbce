//! The logs of changes of one store, by what watches ask for.
//!
//! There is one log for each kind and tenancy that is watched, in which each unit
//! of the tenancy may be the wildcard; a change goes to the up to four logs that
//! match it. Within a log, a change wakes only watches whose name prefix matches.

use std::collections::HashMap;

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
    pb::{Tenancy, Type},
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
    topics: Mutex<HashMap<Vec<u8>, Arc<ChangeLog>>>,
}

impl Topics {
    /// Creates logs that hold `buffer` events each.
    pub(crate) fn new(buffer: usize) -> Self {
        Self { buffer, topics: Mutex::new(HashMap::new()) }
    }

    /// Publishes a change to its readers. To be called in the order of the
    /// commits, and after the change can be read.
    pub(crate) fn publish(&self, change: &Change) {
        let Some(id) = &change.resource.id else { return };
        let Some(Type { group, kind, .. }) = &id.r#type else { return };
        let topics = lock(&self.topics);
        if topics.is_empty() {
            return;
        }
        let names = matching(group, kind, id.partition(), id.namespace());
        let found: Vec<_> =
            names.iter().filter_map(|name| topics.get(name)).map(Arc::clone).collect();
        drop(topics);
        if found.is_empty() {
            return;
        }
        for mut step in change.steps() {
            let bytes = step.resource.encoded_len();
            step.bytes = bytes;
            for topic in &found {
                topic.publish(id.name.as_bytes(), step.clone(), bytes);
            }
        }
    }

    /// Subscribes to all changes from now on that a query may match. The snapshot
    /// that goes before them is to be taken after this.
    pub(crate) fn subscribe(&self, query: &Query) -> ChangeReader {
        let Tenancy { partition, namespace } = &query.tenancy;
        let name = key::topic(&query.kind.group, &query.kind.kind, partition, namespace);
        let mut topics = lock(&self.topics);
        if topics.len() >= MANY_TOPICS {
            topics.retain(|_, topic| !topic.is_idle());
        }
        let topic = topics.entry(name).or_insert_with(|| Arc::new(Topic::new(self.buffer)));
        topic.subscribe(query.name_prefix.as_bytes())
    }

    /// Ends every reader.
    pub(crate) fn close_all(&self) {
        let topics = std::mem::take(&mut *lock(&self.topics));
        for topic in topics.values() {
            topic.close();
        }
    }

    /// Returns the number of logs.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.topics).len()
    }
}

/// Returns the names of the topics whose watches a change in this tenancy may
/// concern.
fn matching(group: &str, kind: &str, partition: &str, namespace: &str) -> Vec<Vec<u8>> {
    let mut names = Vec::with_capacity(4);
    for partition in or_wildcard(partition) {
        for namespace in or_wildcard(namespace) {
            names.push(key::topic(group, kind, partition, namespace));
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
