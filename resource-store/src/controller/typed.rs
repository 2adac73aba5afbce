//! Reconcilers that get their resource read and decoded.

use std::{fmt, future::Future, marker::PhantomData};

use async_trait::async_trait;

use super::{
    error::BoxError,
    reconciler::{Outcome, Reconciler, Request, Runtime},
};
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
#[cfg_attr(feature = "derive", doc = "```")]
#[cfg_attr(not(feature = "derive"), doc = "```ignore")]
/// # use std::sync::Arc;
/// use resource_store::{
///     Api, Resource,
///     controller::{BoxError, Controller, Manager, Outcome, Runtime, reconcile_with},
/// };
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Resource)]
/// #[resource(group = "music", version = "v1", scope = "namespace")]
/// struct Band {
///     name: String,
/// }
///
/// #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Resource)]
/// #[resource(group = "music", version = "v1", scope = "namespace")]
/// struct Album {
///     title: String,
/// }
///
/// /// Every band has a first album.
/// async fn reconcile(runtime: Runtime, band: Resource<Band>) -> Result<Outcome, BoxError> {
///     let albums = Api::<Album>::new(runtime.client);
///     if albums.list_owned(&band).await?.is_empty() {
///         let first = Album { title: format!("{} I", band.data.name) };
///         albums.create(&albums.resource("first", first).owned_by(&band)).await?;
///     }
///     Ok(Outcome::Done)
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// # let mut registry = resource_store::Registry::new()?;
/// # registry.register_type::<Band>()?;
/// # registry.register_type::<Album>()?;
/// # let store = Arc::new(resource_store::backend::memory::MemoryBackend::new());
/// # let service = resource_store::ResourceService::builder(registry, store).build();
/// # let client = resource_store::LocalClient::new(service);
/// let controller = Controller::of::<Band>("albums")
///     .with_owned::<Album>()
///     .with_reconciler(reconcile_with(reconcile));
/// let mut manager = Manager::new(client.clone());
/// manager.register(controller)?;
/// # let stop = tokio_util::sync::CancellationToken::new();
/// let running = tokio::spawn(manager.run(stop.clone()));
/// # let bands = Api::<Band>::new(client);
/// # bands.apply("korn", Band { name: "Korn".to_owned() }).await?;
/// # let (_, mut changes) = resource_store::Store::of(&bands.of::<Album>());
/// # while let Some(event) = futures::StreamExt::next(&mut changes).await {
/// #     if let resource_store::ApiEvent::Applied(album) = event? {
/// #         assert_eq!(album.data.title, "Korn I");
/// #         break;
/// #     }
/// # }
/// # stop.cancel();
/// # running.await??;
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
