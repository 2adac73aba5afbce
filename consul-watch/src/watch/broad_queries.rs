//! What stands in for watches that have no connection of their own.
//!
//! # Strategy
//!
//! Up to its budget of connections a watcher blocks on one connection for
//! each watch, which is the fastest there is. With one watch more, the budget
//! is divided ([`Shares`](super::slots::Shares)): most connections stay with
//! the watches that have them, and the others are used together.
//!
//! - **Broad queries** block in place of the watches whose scope they cover:
//!   `health/state/any`, `catalog/services` and `catalog/nodes` for all
//!   services, and the keys of a KV prefix (cut to the next `/`) for all keys
//!   below it. They tell *that* something changed.
//!   Where there are no more nodes than connections for them (seven eighths of the watches'
//!   share), a broad query of each node takes the place of the lists of checks and services: it
//!   is woken by what happens on its node only, and names it. With more nodes, and no more than
//!   4,000 checks or services, one query shows what is on all of them, and each of its answers,
//!   4 MB at most, names what changed. Where there is more, and without such queries, as behind a
//!   proxy that passes only documented paths, everything is listed.
//! - **Targeted reads**, the watches' own queries without blocking, tell
//!   *what*. A few run at a time. Signals that come while a watch waits for
//!   its read are one read; a signal that comes while it reads is another.
//! - **Turns**: a watch that nothing can stand in for (another datacenter, a
//!   peer, hashes, events, `connect`) takes a connection from a coverable one,
//!   or else blocks on one of a few connections in turn: each gets its turn
//!   within 10 s, or a second for each that waits per connection.
//!
//! # Which watch reads
//!
//! [`catalog`] decides it and says why that is complete. A check that came,
//! changed or went names its service; a node or a check of a node names what
//! is on the node. The list of services names nothing (a port may have been
//! edited), so the instances on all nodes are listed and compared; with fewer
//! watches than nodes all services are read instead. A broad answer of a KV
//! prefix lets all watches below it read. An answer that is the first, the
//! first after a failure, or after an index that went backwards, lets all
//! read and compare data, whatever the index.
//!
//! With a query for each node, the difference between two answers of one node names what
//! changed there. What came and went between them is on no list, and a read in between may have
//! seen it. So a read whose index is higher than what all nodes' queries had passed when it began
//! is made again, once, when all have passed it ([`members::Floor`]): at the latest when their
//! requests have ended. The same is done after a list of nodes, and after a node's first answer,
//! with all that was read past the answer before.
//!
//! # Order
//!
//! A watch reads after the broad answer that made it read, and both are
//! answered by the leader, so it sees at least what the broad query saw.
//! That is why a covered watch reads neither `stale` nor `cached`, even if
//! its query allows it. A watch joins before it reads for the first time, and
//! reads when the broad queries are known to tell of every later change.
//!
//! # Anti-entropy
//!
//! Should a signal be lost all the same, by a proxy that answers a broad query with an old copy,
//! say, then the watch is wrong until something else changes. So each covered watch is also read
//! when it was not for eight to ten minutes, one after the other. A change that such a read finds,
//! and that no signal reports within half a minute, is counted and logged.
//!
//! # Costs
//!
//! Measured with 10,000 services on 100 nodes (Consul 1.8.7, loopback):
//!
//! | event | work |
//! |---|---|
//! | nothing | one answer of each broad query in every `wait`; one read for each watch in 8 minutes |
//! | check | the list of all checks, 3.5 MB; one read, 0.3 ms |
//! | service | the list of services, 170 kB; 100 listings of nodes, 4 MB; one or two reads |
//! | node | the list of nodes; one read for each service on it |
//! | key | one short answer; one read for each watch below the prefix |
//! | start, failure | one read for each watch |
//!
//! Long answers are paced: changed ones come at 16 MB/s for each query at
//! most, and nodes are listed for at most half of the time. Changes within a
//! pause share the next answer, so churn makes delays longer, and not the load
//! higher.
//!
//! A lone change reaches a watch after one and a half round trips where each node has a query, or
//! one query follows all: the answer on its way, and the read. With lists of everything a check
//! takes as long; a change that only a listing shows takes one round trip more for each node that
//! is listed before its own.
//!
//! So under churn a change of a check waits for the pause after the last list, its
//! size over 16 MB/s. A change that only a listing shows (an instance, a port, meta)
//! and that comes when its node has just been listed waits longest: for the rest of
//! that round of all nodes, a pause as long as the round was (1 s at most), and the
//! next round up to its node. With a round of 0.7 s that is about 2 s.

mod broad_query;
mod catalog;
mod members;
mod mode;
mod node;
mod node_query;
mod query_group;
mod runner;
mod settings;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{query::Scope, watch::state::Repairs};
use broad_query::Kind;
use members::After;
use query_group::QueryGroup;
use runner::Runner;

pub(super) use members::{RefreshSignal, Signal};
pub(super) use settings::Settings;

/// The broad queries of a watcher. They run while a watch needs them.
#[derive(Debug)]
pub(super) struct BroadQueries {
    settings: Arc<Settings>,
    groups: Mutex<HashMap<Key, Arc<QueryGroup>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Catalog,
    Prefix(String),
}

impl Key {
    fn kinds(&self) -> Vec<Kind> {
        match self {
            Self::Catalog => {
                vec![Kind::Checks, Kind::Nodes, Kind::Services, Kind::Everything]
            }
            Self::Prefix(prefix) => vec![Kind::Prefix(prefix.clone())],
        }
    }
}

impl BroadQueries {
    pub(super) fn new(settings: Settings, tasks: TaskTracker, stop: CancellationToken) -> Self {
        Self { settings: Arc::new(settings), groups: Mutex::default(), tasks, stop }
    }

    fn groups(&self) -> MutexGuard<'_, HashMap<Key, Arc<QueryGroup>>> {
        // Nothing that holds the lock can leave the map half changed.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets broad queries stand in for a watch with this scope, if there are such.
    pub(super) fn join(
        self: &Arc<Self>,
        scope: &Scope,
        repairs: &Arc<Repairs>,
    ) -> Option<Membership> {
        let mut groups = self.groups();
        let key = match scope {
            Scope::Opaque => return None,
            Scope::KvKey(key) | Scope::KvPrefix(key) => self.prefix(&groups, key),
            _ => Key::Catalog,
        };
        let group = if let Some(group) = groups.get(&key) {
            Arc::clone(group)
        } else {
            let group = Arc::new(QueryGroup::new(self.stop.child_token()));
            group.broad.store(1, Ordering::Relaxed);
            if key == Key::Catalog {
                // Until the nodes are counted there is room for as many as there can be: a
                // connection that is taken back later counts for Consul until its time is over.
                self.settings.slots.reserve_most();
            }
            let runner = Runner::new(Arc::clone(&group), Arc::clone(&self.settings), key.kinds());
            self.tasks.spawn(runner.run());
            groups.insert(key.clone(), Arc::clone(&group));
            group
        };
        let (number, refresh_signal) = group.members().join(scope, Arc::clone(repairs));
        drop(groups);
        group.joined.notify_one();
        Some(Membership { broad_queries: Arc::clone(self), key, group, number, refresh_signal })
    }

    /// The prefix to follow for a key. All further ones share the whole store.
    fn prefix(&self, groups: &HashMap<Key, Arc<QueryGroup>>, key: &str) -> Key {
        let group = key.split_inclusive('/').next().unwrap_or_default();
        let group = Key::Prefix(group.to_owned());
        let root = Key::Prefix(String::new());
        let others = groups.keys().filter(|key| **key != Key::Catalog && **key != root).count();
        if groups.contains_key(&group) || others + 1 < self.settings.prefixes {
            group
        } else {
            root
        }
    }

    /// Number of broad queries under way.
    pub(super) fn broad(&self) -> usize {
        self.groups().values().map(|group| group.broad.load(Ordering::Relaxed)).sum()
    }
}

/// A watch's membership; dropping it ends it, and with the last the broad queries.
#[derive(Debug)]
pub(super) struct Membership {
    broad_queries: Arc<BroadQueries>,
    key: Key,
    group: Arc<QueryGroup>,
    number: u64,
    refresh_signal: Arc<RefreshSignal>,
}

impl Membership {
    /// Begins a read of the watch: whatever signal comes from now on asks for another one.
    pub(super) fn begin(&self) {
        self.refresh_signal.begin(self.group.floor.get());
    }

    /// Ends the read, with this index if it succeeded; `published` says that it brought a
    /// snapshot.
    pub(super) fn end(&self, index: Option<u64>, published: bool) {
        match self.refresh_signal.end(index, published) {
            After::Nothing => {}
            After::Found => self.group.members().found(self.number),
            After::Again(index) => self.group.members().read_again(self.number, index),
        }
    }

    /// Returns the signal on which the watch waits until it may read.
    pub(super) fn refresh_signal(&self) -> &RefreshSignal {
        &self.refresh_signal
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut groups = self.broad_queries.groups();
        if self.group.members().leave(self.number) {
            groups.remove(&self.key);
            self.group.stop.cancel();
        }
    }
}
