//! The changes that a watch has yet to tell, merged where they are many.
//!
//! A watcher of a large, busy store cannot take every change while it still
//! takes the snapshot, and the shared log of changes is bounded. So a watch
//! moves what happens meanwhile into a backlog. Once that is long or large, of
//! several changes to one resource only those stay that lead to the same end:
//!
//! | first seen as | now | told |
//! |---|---|---|
//! | there before | there, same incarnation and group version | the last upsert |
//! | there before | gone | the delete |
//! | there before | there, another incarnation or group version | the delete, then the last upsert |
//! | created meanwhile | there | the last upsert |
//! | created meanwhile | gone | nothing |
//!
//! Bound: [`SHORT`] changes and [`SMALL`] bytes, or about four changes for each
//! resource of the snapshot and two for each that is stored now, however long the
//! watcher takes.

use std::collections::{HashMap, VecDeque};

use super::{
    change::{Change, ChangeKind},
    key,
};

/// Number of changes that are kept each by itself.
const SHORT: usize = 256;
/// Size of changes that are kept each by itself, in bytes.
const SMALL: usize = 1 << 20;

/// Changes in the order of their commits.
#[derive(Debug)]
pub(crate) struct Backlog {
    queue: VecDeque<Change>,
    /// The sum of what the changes take.
    bytes: usize,
    /// Number of changes beyond which they are merged.
    limit: usize,
    /// Size of the changes beyond which they are merged.
    limit_bytes: usize,
    short: usize,
}

impl Default for Backlog {
    fn default() -> Self {
        Self::with_limit(SHORT)
    }
}

impl Backlog {
    fn with_limit(short: usize) -> Self {
        Self { queue: VecDeque::new(), bytes: 0, limit: short, limit_bytes: SMALL, short }
    }

    /// Approximate size of the changes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes a change in, after all those before it.
    pub(crate) fn push(&mut self, change: Change) {
        self.bytes += size(&change);
        self.queue.push_back(change);
        if self.queue.len() > self.limit || self.bytes > self.limit_bytes {
            self.merge();
            // Merging costs as much as there is: so many changes later again.
            self.limit = (2 * self.queue.len()).max(self.short);
            self.limit_bytes = (2 * self.bytes).max(SMALL);
        }
    }

    /// Takes the oldest change out.
    pub(crate) fn pop(&mut self) -> Option<Change> {
        let change = self.queue.pop_front();
        self.bytes -= change.as_ref().map_or(0, size);
        if self.queue.is_empty() {
            // What a burst took is given back.
            *self = Self::with_limit(self.short);
        }
        change
    }

    fn merge(&mut self) {
        let mut kept: Vec<Option<Change>> = Vec::with_capacity(self.queue.len());
        // By resource, the place of the last upsert since its last delete.
        let mut resources: HashMap<Vec<u8>, Option<usize>> = HashMap::new();
        for mut change in self.queue.drain(..) {
            let Some(id) = &change.resource.id else { continue };
            let last_upsert = resources.entry(key::resource_key(id)).or_default();
            let replaced = last_upsert.take().and_then(|place| kept.get_mut(place)?.take());
            let created_meanwhile = replaced.as_ref().is_some_and(|r| r.kind == ChangeKind::Create);
            match change.kind {
                // The watcher never heard of it.
                ChangeKind::Delete if created_meanwhile => continue,
                ChangeKind::Delete => {}
                ChangeKind::Create | ChangeKind::Update => {
                    if created_meanwhile {
                        change.kind = ChangeKind::Create;
                    }
                    *last_upsert = Some(kept.len());
                }
            }
            kept.push(Some(change));
        }
        self.queue = kept.into_iter().flatten().collect();
        self.bytes = self.queue.iter().map(size).sum();
    }
}

fn size(change: &Change) -> usize {
    change.bytes + size_of::<Change>()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use proptest::prelude::*;

    use super::*;
    use crate::{
        backend::WatchEvent,
        pb::{Id, Resource, Tenancy, Type},
    };

    fn resource(name: u8, group_version: &str, uid: u64, version: u64) -> Arc<Resource> {
        let ty = Type::new("g", group_version, "K");
        let id = Id::new(ty, Tenancy::new("p", "n"), &name.to_string()).with_uid(&uid.to_string());
        Arc::new(Resource { id: Some(id), version: version.to_string(), ..Resource::default() })
    }

    /// A store of a few names, which makes the changes that a real one makes.
    #[derive(Default)]
    struct Store {
        stored: BTreeMap<u8, Arc<Resource>>,
        index: u64,
    }

    impl Store {
        fn change(&mut self, name: u8, action: u8) -> Vec<Change> {
            self.index += 1;
            let before = self.stored.get(&name).cloned();
            let version = if action == 1 { "v1" } else { "v2" };
            match (action, before) {
                (0, None) => Vec::new(),
                (0, Some(before)) => {
                    self.stored.remove(&name);
                    Change::delete(self.index, before).steps().collect()
                }
                (_, before) => {
                    let uid = before.as_ref().map_or(self.index, |r| r.uid().parse().unwrap());
                    let now = resource(name, version, uid, self.index);
                    self.stored.insert(name, Arc::clone(&now));
                    Change::write(self.index, before.as_ref(), now).steps().collect()
                }
            }
        }
    }

    /// The knowledge of somebody who watches both versions.
    type Known = BTreeMap<(u8, String), Arc<Resource>>;

    fn tell(known: &mut Known, event: WatchEvent) {
        let key = |r: &Resource| {
            let version = r.resource_type().unwrap().group_version.clone();
            (r.name().parse().unwrap(), version)
        };
        match event {
            WatchEvent::Upsert(r) => drop(known.insert(key(&r), r)),
            WatchEvent::Delete(r) => {
                let before = known.remove(&key(&r)).expect("a delete of what was told");
                assert_eq!(before.uid(), r.uid(), "of this incarnation");
            }
            WatchEvent::EndOfSnapshot => {}
        }
    }

    fn all(store: &Store) -> Known {
        let of = |(name, r): (&u8, &Arc<Resource>)| {
            ((*name, r.resource_type().unwrap().group_version.clone()), Arc::clone(r))
        };
        store.stored.iter().map(of).collect()
    }

    proptest! {
        /// However a watcher's pace and the changes mix, it ends up with what is
        /// stored, hears of it in order, and never holds more than its bound.
        #[test]
        fn a_backlog_leads_to_what_is_stored(
            before in prop::collection::vec((0_u8..4, 0_u8..3), 0..10),
            steps in prop::collection::vec((0_u8..4, 0_u8..3, 0_u8..3), 0..80),
        ) {
            let mut store = Store::default();
            for (name, action) in before {
                store.change(name, action);
            }
            let mut known = all(&store);
            let mut backlog = Backlog::with_limit(4);
            let mut last = store.index;
            for (name, action, pops) in steps {
                for change in store.change(name, action) {
                    backlog.push(change);
                }
                prop_assert!(backlog.queue.len() <= 2 * (2 * 4 + store.stored.len()).max(4));
                for _ in 0..pops {
                    if let Some(change) = backlog.pop() {
                        prop_assert!(change.index >= last);
                        last = change.index;
                        tell(&mut known, change.into_event());
                    }
                }
            }
            while let Some(change) = backlog.pop() {
                tell(&mut known, change.into_event());
            }
            prop_assert_eq!(known, all(&store));
            prop_assert!(backlog.queue.is_empty());
            prop_assert_eq!(backlog.bytes(), 0);
        }
    }
}
