//! Which resources link to which, kept by hand.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{mapper::DependencyMapper, reconciler::Request};
use crate::pb::{Id, Reference, Type};

/// Keeps links between resources of two types, to be asked in both directions.
///
/// A reconciler tracks what each of its items links to; the mapper then turns a
/// change of a link into requests for the items. Uids and sections do not
/// count. Where the links are in the data, an [`Index`](super::Index) does the
/// same without being told. A clone is another handle to the same links.
///
/// Source: `internal/resource/mappers/bimapper`, Consul 1.21.
/// Deviation: what is of another type is left out, where upstream panics.
#[derive(Debug, Clone)]
pub struct Bimapper {
    item_type: Type,
    link_type: Type,
    links: Arc<Mutex<Links>>,
}

#[derive(Debug, Default)]
struct Links {
    /// By the key of an item: itself, and the keys of what it links to.
    items: BTreeMap<String, (Reference, BTreeSet<String>)>,
    /// By the key of a link: itself, and the keys of the items.
    links: BTreeMap<String, (Reference, BTreeSet<String>)>,
}

impl Bimapper {
    /// No links yet, from items of one type to links of another.
    pub fn new(item_type: Type, link_type: Type) -> Self {
        Self { item_type, link_type, links: Arc::default() }
    }

    /// Sets what an item links to, in place of what it linked to before.
    pub fn track(&self, item: &Id, links: &[Reference]) {
        if !item.is_of_type(&self.item_type) {
            return;
        }
        let item = item.to_reference();
        let key = item.key();
        let mut state = self.state();
        // A link that this item alone had must go, or changes of it would still find the item.
        state.forget_item(&key);
        let right = links.iter().filter(|link| link.r#type.as_ref() == Some(&self.link_type));
        let mut keys = BTreeSet::new();
        for link in right {
            let link = Reference { section: String::new(), ..link.clone() };
            let of_link =
                state.links.entry(link.key()).or_insert_with(|| (link.clone(), BTreeSet::new()));
            of_link.1.insert(key.clone());
            keys.insert(link.key());
        }
        if !keys.is_empty() {
            state.items.insert(key, (item, keys));
        }
    }

    /// Forgets an item.
    pub fn untrack(&self, item: &Id) {
        self.state().forget_item(&item.to_reference().key());
    }

    /// Forgets a link, of whichever items.
    pub fn untrack_link(&self, link: &Id) {
        let key = link.to_reference().key();
        let mut state = self.state();
        let Some((_, items)) = state.links.remove(&key) else { return };
        for item in items {
            let empty = state.items.get_mut(&item).is_some_and(|(_, links)| {
                links.remove(&key);
                links.is_empty()
            });
            if empty {
                state.items.remove(&item);
            }
        }
    }

    /// The items that link to a resource, without uids, in order.
    pub fn items_of(&self, link: &Id) -> Vec<Id> {
        let state = self.state();
        let found = state.links.get(&link.to_reference().key());
        let items = found.into_iter().flat_map(|(_, items)| items);
        items.filter_map(|key| state.items.get(key)).map(|(item, _)| item.to_id()).collect()
    }

    /// Returns the items that an item links to, in order.
    pub fn links_of(&self, item: &Id) -> Vec<Reference> {
        let state = self.state();
        let found = state.items.get(&item.to_reference().key());
        let links = found.into_iter().flat_map(|(_, links)| links);
        links.filter_map(|key| state.links.get(key)).map(|(link, _)| link.clone()).collect()
    }

    /// Maps a link to the items that link to it.
    pub fn mapper(&self) -> impl DependencyMapper + use<> {
        let links = self.clone();
        super::mapper::from_fn(move |_, resource| {
            let items = resource.id.iter().flat_map(|id| links.items_of(id));
            Ok(items.map(Request::new).collect())
        })
    }

    /// Nothing panics while it holds the lock, so what it protects is whole.
    fn state(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Links {
    fn forget_item(&mut self, key: &str) {
        let Some((_, links)) = self.items.remove(key) else { return };
        for link in links {
            let empty = self.links.get_mut(&link).is_some_and(|(_, items)| {
                items.remove(key);
                items.is_empty()
            });
            if empty {
                self.links.remove(&link);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{demo, typed::ResourceData as _};

    fn artist(name: &str) -> Id {
        demo::artist(name).id
    }

    fn album(name: &str) -> Id {
        demo::album(name, &artist("owner")).id
    }

    fn names(ids: &[Id]) -> Vec<&str> {
        ids.iter().map(|id| id.name.as_str()).collect()
    }

    fn bimapper() -> Bimapper {
        Bimapper::new(demo::v2::Artist::resource_type(), demo::v2::Album::resource_type())
    }

    #[test]
    fn links_are_known_from_both_sides() {
        let map = bimapper();
        let (x, y, z) = (album("x"), album("y"), album("z"));
        map.track(&artist("a"), &[x.to_reference(), y.to_reference()]);
        map.track(
            &artist("b").with_uid("u"),
            &[y.to_reference(), x.to_reference(), y.to_reference()],
        );
        assert_eq!(names(&map.items_of(&y.clone().with_uid("other"))), ["a", "b"]);
        assert_eq!(map.links_of(&artist("b")), [x.to_reference(), y.to_reference()]);

        map.track(&artist("a"), &[z.to_reference()]);
        assert_eq!(names(&map.items_of(&y)), ["b"]);
        assert_eq!(names(&map.items_of(&z)), ["a"]);
        map.untrack_link(&y);
        assert_eq!(map.links_of(&artist("b")), [x.to_reference()]);
        assert!(map.items_of(&y).is_empty());
        map.untrack(&artist("a"));
        map.untrack(&artist("b"));
        map.untrack(&artist("c"));
        let state = map.state();
        assert!(state.items.is_empty() && state.links.is_empty(), "nothing is left over");
    }

    #[test]
    fn other_types_are_left_out() {
        let map = bimapper();
        map.track(&artist("a"), &[artist("b").to_reference()]);
        map.track(&album("x"), &[album("y").to_reference()]);
        assert!(map.links_of(&artist("a")).is_empty() && map.items_of(&album("y")).is_empty());
    }

    #[tokio::test]
    async fn the_mapper_asks_for_the_items() {
        let map = bimapper();
        map.track(&artist("a"), &[album("x").to_reference()]);
        let controller = crate::controller::Controller::new("c", demo::v2::Artist::resource_type())
            .with_watch(demo::v2::Album::resource_type(), map.mapper(), Vec::new());
        let mut registry = crate::Registry::new().unwrap();
        demo::register(&mut registry).unwrap();
        let backend = Arc::new(crate::backend::memory::MemoryBackend::new());
        let service = crate::ResourceService::builder(registry, backend).build();
        let client = crate::LocalClient::new(service);
        let test = crate::testing::TestController::new(controller, client).unwrap();
        let changed = demo::album("x", &artist("owner")).encode();
        let requests = test.dry_run_mapper(&changed).await.unwrap();
        assert_eq!(requests, [Request::new(artist("a"))]);
    }
}
