//! An ordered map whose parts are locked one by one, and shared with who lists them.
//!
//! The keys are divided among pages of at most [`MOST`] entries, each of which has a
//! lock of its own: who changes one page does not meet who reads or changes another.
//! A list locks the pages of its range together, takes a handle to the content of
//! each, and gives the locks back: so it shows one moment, and whoever changes a page
//! while that list is in use changes a copy.
//!
//! Only a page that is divided, or taken out because it is empty, changes which pages
//! there are. It is marked, and who comes to it by an older table of pages looks again.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use arc_swap::ArcSwap;
use imbl::OrdMap;

use crate::backend::store::{key::Key, sync::lock};

/// Number of entries beyond which a page is divided. A change of a page that a list
/// holds copies as many.
const MOST: usize = 48;

type Entries<V> = Vec<(Key, V)>;
/// The pages by the least key that each may hold. The first one may hold the least of all.
type Table<V> = OrdMap<Key, Arc<Page<V>>>;

/// An ordered map.
#[derive(Debug)]
pub(super) struct Pages<V> {
    table: ArcSwap<Table<V>>,
    /// Held while the table changes.
    dividing: Mutex<()>,
}

#[derive(Debug)]
struct Page<V>(RwLock<Content<V>>);

#[derive(Debug)]
struct Content<V> {
    entries: Arc<Entries<V>>,
    /// `true` once other pages hold these keys.
    gone: bool,
}

/// The action on an entry.
pub(super) enum Step<V> {
    Keep,
    Put(V),
    Remove,
}

/// The entries of one page that a list found.
#[derive(Debug)]
pub(super) struct Run<V> {
    entries: Arc<Entries<V>>,
    range: Range<usize>,
}

impl<V> Run<V> {
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.get(self.range.clone()).unwrap_or_default().iter().map(|(_, value)| value)
    }

    /// Returns the entry of this place in the run.
    pub(super) fn get(&self, place: usize) -> Option<&V> {
        let entries = self.entries.get(self.range.clone())?;
        entries.get(place).map(|(_, value)| value)
    }

    pub(super) fn len(&self) -> usize {
        self.range.len()
    }
}

impl<V> Page<V> {
    fn new(entries: Entries<V>) -> Arc<Self> {
        Arc::new(Self(RwLock::new(Content { entries: Arc::new(entries), gone: false })))
    }

    // A panic of another holder does not matter: what changes under the lock is one entry.
    fn read(&self) -> RwLockReadGuard<'_, Content<V>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Content<V>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Content<V> {
    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        self.entries.binary_search_by(|(known, _)| (**known).cmp(key))
    }
}

impl<V: Clone> Pages<V> {
    pub(super) fn new() -> Self {
        Self::from_sorted(std::iter::empty())
    }

    /// Builds a map of entries that come in the order of their keys, each key once.
    pub(super) fn from_sorted(entries: impl Iterator<Item = (Key, V)>) -> Self {
        let mut table = Table::new();
        let mut page = Vec::new();
        let mut least: Key = Arc::from(Vec::new());
        for entry in entries {
            if page.len() == MOST / 2 {
                let next = Arc::clone(&entry.0);
                let full = std::mem::take(&mut page);
                table.insert(std::mem::replace(&mut least, next), Page::new(full));
            }
            page.push(entry);
        }
        table.insert(least, Page::new(page));
        Self { table: ArcSwap::from_pointee(table), dividing: Mutex::new(()) }
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<V> {
        loop {
            let table = self.table.load();
            let (_, page) = table.get_prev(key)?;
            let content = page.read();
            if !content.gone {
                let place = content.find(key).ok()?;
                return content.entries.get(place).map(|(_, value)| value.clone());
            }
        }
    }

    /// Changes the entry of a key as `change` says. It is given what is there, and runs while
    /// nobody else sees or changes this part of the map: whoever hears of the change from it
    /// and then looks sees the change done. It must not come back to the map.
    ///
    /// Gives what went out of the map, too, so that it is freed without a lock.
    pub(super) fn change<T>(
        &self,
        key: &[u8],
        change: impl FnOnce(Option<&V>) -> (Step<V>, T),
    ) -> (T, Option<V>) {
        loop {
            let table = self.table.load();
            // The first page may hold any key, so there always is one.
            let Some((_, page)) = table.get_prev(key) else { continue };
            let mut content = page.write();
            if content.gone {
                continue;
            }
            let place = content.find(key);
            let known = place.ok().and_then(|at| content.entries.get(at)).map(|(_, value)| value);
            let (step, result) = change(known);
            let before = content.take(place, key, step);
            let size = content.entries.len();
            drop(content);
            if size > MOST || size == 0 && before.is_some() {
                drop(table);
                self.reshape(key);
            }
            return (result, before);
        }
    }

    /// Puts these entries, which come in the order of their keys, in the place of all that
    /// is there. `then` runs before anybody sees them, and while nobody sees anything else.
    pub(super) fn replace(&self, entries: impl Iterator<Item = (Key, V)>, then: impl FnOnce()) {
        let new = Self::from_sorted(entries).table.load_full();
        let alone = lock(&self.dividing);
        let table = self.table.load_full();
        let mut held: Vec<_> = table.values().map(|page| page.write()).collect();
        for content in &mut held {
            content.gone = true;
        }
        then();
        self.table.store(new);
        drop(held);
        drop(alone);
    }

    /// Returns the entries whose keys begin with `prefix`, as of one moment, and what `seen`
    /// gives at that moment.
    pub(super) fn moment<T>(&self, prefix: &[u8], seen: impl Fn() -> T) -> (Vec<Run<V>>, T) {
        'again: loop {
            let table = self.table.load_full();
            let least = table.get_prev(prefix).map_or(&[][..], |(least, _)| least);
            let bounds = (std::ops::Bound::Included(least), std::ops::Bound::Unbounded);
            let mut held = Vec::new();
            for (least, page) in table.range::<_, [u8]>(bounds) {
                if **least > *prefix && !least.starts_with(prefix) {
                    break;
                }
                let content = page.read();
                if content.gone {
                    continue 'again;
                }
                held.push(content);
            }
            let seen = seen();
            let entries: Vec<_> = held.iter().map(|content| Arc::clone(&content.entries)).collect();
            drop(held);
            return (
                entries.into_iter().filter_map(|entries| run(entries, prefix)).collect(),
                seen,
            );
        }
    }

    /// Divides the page of a key if it is full, and takes it out if it is empty.
    fn reshape(&self, key: &[u8]) {
        let alone = lock(&self.dividing);
        let table = self.table.load_full();
        let Some((least, page)) = table.get_prev(key) else { return };
        let mut content = page.write();
        let mut next = Table::clone(&table);
        if content.entries.len() > MOST {
            let mut left = Vec::with_capacity(MOST);
            left.extend(content.entries.iter().take(MOST / 2).cloned());
            let mut right = Vec::with_capacity(MOST);
            right.extend(content.entries.iter().skip(MOST / 2).cloned());
            let Some(middle) = right.first().map(|(key, _)| Arc::clone(key)) else { return };
            next.insert(Arc::clone(least), Page::new(left));
            next.insert(middle, Page::new(right));
        } else if content.entries.is_empty() && !least.is_empty() {
            // The page before it takes its keys from now on.
            next.remove(least);
        } else {
            return;
        }
        content.gone = true;
        content.entries = Arc::default();
        self.table.store(Arc::new(next));
        drop(content);
        drop(alone);
    }

    /// Number of pages.
    #[cfg(test)]
    fn pages(&self) -> usize {
        self.table.load().len()
    }
}

impl<V: Clone> Content<V> {
    /// Does a step at the place of a key, and returns what was there.
    fn take(&mut self, place: Result<usize, usize>, key: &[u8], step: Step<V>) -> Option<V> {
        match (step, place) {
            (Step::Keep, _) | (Step::Remove, Err(_)) => None,
            (Step::Put(value), Ok(at)) => {
                let entry = Arc::make_mut(&mut self.entries).get_mut(at)?;
                Some(std::mem::replace(&mut entry.1, value))
            }
            (Step::Put(value), Err(at)) => {
                Arc::make_mut(&mut self.entries).insert(at, (key.into(), value));
                None
            }
            (Step::Remove, Ok(at)) => Some(Arc::make_mut(&mut self.entries).remove(at).1),
        }
    }
}

/// The entries of a page whose keys begin with `prefix`.
fn run<V>(entries: Arc<Entries<V>>, prefix: &[u8]) -> Option<Run<V>> {
    let from = entries.partition_point(|(key, _)| **key < *prefix);
    let rest = entries.get(from..)?;
    let to = from + rest.partition_point(|(key, _)| key.starts_with(prefix));
    (from < to).then_some(Run { entries, range: from..to })
}

#[cfg(test)]
#[path = "pages/tests.rs"]
mod tests;
