//! The logs of changes of one store, by what watches ask for.

use std::collections::HashMap;

use prost::Message as _;

use super::{
    change::Change,
    key,
    sync::{Arc, Mutex, lock},
    topic::{Reader, Topic},
};
use crate::{backend::Query, pb::Type, tenancy::WILDCARD};

/// How many events a topic holds by default.
pub(crate) const DEFAULT_WATCH_BUFFER: usize = 8192;
/// From how many topics on the idle ones are thrown out.
pub(crate) const MANY_TOPICS: usize = 64;

/// Logs of changes, by kind, and by kind and tenancy.
#[derive(Debug)]
pub(crate) struct Topics {
    /// How many events each log holds.
    buffer: usize,
    topics: Mutex<HashMap<Vec<u8>, Arc<Topic<Change>>>>,
}

impl Topics {
    /// Logs that hold `buffer` events each.
    pub(crate) fn new(buffer: usize) -> Self {
        Self { buffer, topics: Mutex::new(HashMap::new()) }
    }

    /// Tells the readers of a change. To be called in the order of the
    /// commits, and after the change can be read.
    pub(crate) fn publish(&self, change: &Change) {
        let Some(id) = &change.resource.id else { return };
        let Some(Type { group, kind, .. }) = &id.r#type else { return };
        let topics = lock(&self.topics);
        if topics.is_empty() {
            return;
        }
        let tenancy = id.tenancy.clone().unwrap_or_default();
        let names = [key::kind_topic(group, kind), key::tenancy_topic(group, kind, &tenancy)];
        let found: Vec<_> =
            names.iter().filter_map(|name| topics.get(name)).map(Arc::clone).collect();
        drop(topics);
        if found.is_empty() {
            return;
        }
        for step in change.steps() {
            let bytes = step.resource.encoded_len();
            for topic in &found {
                topic.publish(step.clone(), bytes);
            }
        }
    }

    /// A reader of all changes from now on that a query may match. The snapshot
    /// that goes before them is to be taken after this.
    pub(crate) fn subscribe(&self, query: &Query) -> Reader<Change> {
        let (group, kind) = (&query.kind.group, &query.kind.kind);
        let wild = query.tenancy.partition == WILDCARD || query.tenancy.namespace == WILDCARD;
        let name = if wild {
            key::kind_topic(group, kind)
        } else {
            key::tenancy_topic(group, kind, &query.tenancy)
        };
        let mut topics = lock(&self.topics);
        if topics.len() >= MANY_TOPICS {
            topics.retain(|_, topic| !topic.is_idle());
        }
        let topic = topics.entry(name).or_insert_with(|| Arc::new(Topic::new(self.buffer)));
        topic.subscribe()
    }

    /// Ends every reader.
    pub(crate) fn close_all(&self) {
        let topics = std::mem::take(&mut *lock(&self.topics));
        for topic in topics.values() {
            topic.close();
        }
    }

    /// How many logs there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.topics).len()
    }
}
