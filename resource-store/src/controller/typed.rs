//! Reconcilers that get their resource read and decoded.

use std::{fmt, future::Future, marker::PhantomData};

use async_trait::async_trait;

use super::reconciler::{BoxError, Outcome, Reconciler, Request, Runtime};
use crate::{
    code::Code,
    typed::{Resource, ResourceData},
};

/// Makes a [`Reconciler`] of a function that gets the resource as it is stored.
///
/// It is not called for a resource that is gone; what has to be cleaned up needs
/// a finalizer ([`Api::release`](crate::Api::release)). A resource whose data are
/// not of the type is a failure, which is repeated as any other.
///
/// ```
/// use std::sync::Arc;
///
/// use resource_store::{
///     Api, LocalClient, Registry, Resource, ResourceService, backend::memory::MemoryBackend,
///     controller::{Controller, Manager, Outcome, Runtime, mapper, reconcile_with},
///     demo::{self, v2::{Album, Artist}},
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// # let mut registry = Registry::new()?;
/// # demo::register(&mut registry)?;
/// # let service = ResourceService::builder(registry, Arc::new(MemoryBackend::new())).build();
/// # let client = LocalClient::new(service);
/// /// Every artist has one album.
/// async fn reconcile(runtime: Runtime, artist: Resource<Artist>) -> Result<Outcome, resource_store::controller::BoxError> {
///     let albums = Api::<Album>::new(runtime.client);
///     if albums.list_owned(&artist).await?.is_empty() {
///         let first = Album { title: format!("{} I", artist.data.name), ..Album::default() };
///         albums.create(&albums.resource("first", first).owned_by(&artist)).await?;
///     }
///     Ok(Outcome::Done)
/// }
///
/// let controller = Controller::of::<Artist>("albums")
///     .with_owned::<Album>()
///     .with_reconciler(reconcile_with(reconcile));
/// let mut manager = Manager::new(client.clone());
/// manager.register(controller)?;
/// let stop = tokio_util::sync::CancellationToken::new();
/// let running = tokio::spawn(manager.run(stop.clone()));
///
/// let artists = Api::<Artist>::new(client);
/// artists.apply("korn", Artist { name: "Korn".to_owned(), ..Artist::default() }).await?;
/// let (_, mut changes) = resource_store::Store::of(&artists.of::<Album>());
/// while let Some(event) = futures::StreamExt::next(&mut changes).await {
///     if let resource_store::ApiEvent::Applied(album) = event? {
///         assert_eq!(album.data.title, "Korn I");
///         break;
///     }
/// }
/// stop.cancel();
/// running.await??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn reconcile_with<K, F, R>(reconcile: F) -> impl Reconciler
where
    K: ResourceData,
    F: Fn(Runtime, Resource<K>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Outcome, BoxError>> + Send + 'static,
{
    Typed { reconcile, kind: PhantomData }
}

struct Typed<K, F> {
    reconcile: F,
    kind: PhantomData<fn() -> K>,
}

impl<K: ResourceData, F> fmt::Debug for Typed<K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Typed").field("message", &K::MESSAGE).finish_non_exhaustive()
    }
}

#[async_trait]
impl<K, F, R> Reconciler for Typed<K, F>
where
    K: ResourceData,
    F: Fn(Runtime, Resource<K>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Outcome, BoxError>> + Send + 'static,
{
    async fn reconcile(&self, runtime: &Runtime, request: &Request) -> Result<Outcome, BoxError> {
        let stored = match runtime.client.read(request.id.clone()).await {
            Err(error) if error.code() == Code::NotFound => return Ok(Outcome::Done),
            read => read?,
        };
        (self.reconcile)(runtime.clone(), Resource::decode(&stored)?).await
    }
}
