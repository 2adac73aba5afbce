//! Resources of one type, and what a watch of them tells.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use resource_store::{
    backend::{Backend, Error, Query, Watch, WatchEvent},
    pb::{Any, Id, Resource, Tenancy, Type},
};

/// Longest wait for an event.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn id(name: &str) -> Id {
    Id::new(Type::new("test", "v1", "Thing"), Tenancy::new("default", "default"), name)
        .with_uid("u")
}

pub(crate) fn thing(name: &str) -> Resource {
    let data = Any { type_url: "test".to_owned(), value: name.as_bytes().to_vec() };
    Resource { data: Some(data), ..Resource::new(id(name)) }
}

/// What changes a resource that is stored.
pub(crate) fn next(stored: &Resource) -> Resource {
    let mut next = stored.clone();
    *next.metadata.entry("changes".to_owned()).or_default() += "x";
    next
}

pub(crate) fn things() -> Query {
    Query::new(Type::new("test", "v1", "Thing").group_kind(), Tenancy::new("*", "*"))
}

pub(crate) async fn event(watch: &mut Watch) -> Result<WatchEvent, Error> {
    tokio::time::timeout(PATIENCE, watch.next()).await.expect("an event").expect("no end")
}

/// A watch that has told of all there is: so many.
pub(crate) async fn watch_after(backend: &dyn Backend, snapshot: usize) -> Watch {
    let mut watch = backend.watch_list(&things()).await.unwrap();
    for _ in 0..snapshot {
        assert!(matches!(event(&mut watch).await.unwrap(), WatchEvent::Upsert(_)));
    }
    assert_eq!(event(&mut watch).await.unwrap(), WatchEvent::EndOfSnapshot);
    watch
}

pub(crate) async fn upserted(watch: &mut Watch, resource: &Arc<Resource>) {
    assert_eq!(event(watch).await.unwrap(), WatchEvent::Upsert(Arc::clone(resource)));
}

pub(crate) async fn deleted(watch: &mut Watch, resource: &Arc<Resource>) {
    assert_eq!(event(watch).await.unwrap(), WatchEvent::Delete(Arc::clone(resource)));
}

pub(crate) async fn closed(watch: &mut Watch) {
    let error = event(watch).await.unwrap_err();
    assert!(matches!(error, Error::WatchClosed), "{error}");
    assert!(watch.next().await.is_none());
}
