//! From a changed resource to the requests that it calls for.
//!
//! Of several quick changes a mapper may see an older one only; it should look
//! at the cache for the rest.
//!
//! Source: `internal/controller/dependency`, Consul 1.21.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use super::{
    cache::Key,
    error::BoxError,
    reconciler::{Request, Runtime},
};
use crate::{
    pb::{Id, Reference, Resource, Type},
    typed,
    typed::ResourceData,
};

/// Turns a change of a watched resource into requests for managed ones.
#[async_trait]
pub trait DependencyMapper: Send + Sync + 'static {
    /// The requests that a changed or deleted resource calls for.
    ///
    /// # Errors
    ///
    /// Whatever should have the mapping repeated; no request is made then.
    async fn map(&self, runtime: &Runtime, resource: &Resource) -> Result<Vec<Request>, BoxError>;
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<M: DependencyMapper + ?Sized> DependencyMapper for Arc<M> {
    async fn map(&self, runtime: &Runtime, resource: &Resource) -> Result<Vec<Request>, BoxError> {
        (**self).map(runtime, resource).await
    }
}

/// A mapper that is a function.
#[derive(Clone)]
pub struct FromFn<F>(F);

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FromFn")
    }
}

#[async_trait]
impl<F> DependencyMapper for FromFn<F>
where
    F: Fn(&Runtime, &Resource) -> Result<Vec<Request>, BoxError> + Send + Sync + 'static,
{
    async fn map(&self, runtime: &Runtime, resource: &Resource) -> Result<Vec<Request>, BoxError> {
        (self.0)(runtime, resource)
    }
}

/// A mapper that looks at the resource and the cache only.
pub fn from_fn<F>(map: F) -> FromFn<F>
where
    F: Fn(&Runtime, &Resource) -> Result<Vec<Request>, BoxError> + Send + Sync + 'static,
{
    FromFn(map)
}

/// Maps to the owner, if there is one.
pub fn owner() -> impl DependencyMapper {
    from_fn(|_, resource| Ok(resource.owner.iter().cloned().map(Request::new).collect()))
}

/// Maps to the owner if it is of exactly this type.
pub fn owner_of_type(ty: Type) -> impl DependencyMapper {
    from_fn(move |_, resource| {
        let owner = resource.owner.iter().filter(|owner| owner.is_of_type(&ty));
        Ok(owner.cloned().map(Request::new).collect())
    })
}

/// Maps to the resource of another type with the same tenancy and name.
pub fn replace_type(ty: Type) -> impl DependencyMapper {
    from_fn(move |_, resource| {
        let id = resource.id.iter();
        Ok(id.map(|id| Request::new(retype(id, &ty))).collect())
    })
}

/// Maps by the decoded resource.
pub fn decoded<T: ResourceData>(
    map: impl Fn(&Runtime, &typed::Resource<T>) -> Result<Vec<Request>, BoxError>
    + Send
    + Sync
    + 'static,
) -> impl DependencyMapper {
    from_fn(move |runtime, resource| map(runtime, &typed::Resource::decode(resource)?))
}

/// Maps to what the cache has first under the key of the resource's identity;
/// to nothing if that is nothing.
pub fn cache_get(ty: Type, index: &'static str) -> impl DependencyMapper {
    from_fn(move |runtime, resource| {
        let Some(id) = &resource.id else { return Ok(Vec::new()) };
        let found = runtime
            .cache
            .get_shared(&ty, index, &Key::of(id))
            .map_err(|e| failed(&ty, index, &e))?;
        Ok(found.iter().filter_map(|r| r.id.clone()).map(Request::new).collect())
    })
}

/// Maps to all that the cache has under keys that begin with that of the
/// resource's identity.
pub fn cache_list(ty: Type, index: &'static str) -> impl DependencyMapper {
    cache_list_of(ty, index, Id::clone)
}

/// The same under the identity of another type with the same name: for types
/// whose names go together.
pub fn cache_list_as(alias: Type, ty: Type, index: &'static str) -> impl DependencyMapper {
    cache_list_of(ty, index, move |id| retype(id, &alias))
}

fn cache_list_of(
    ty: Type,
    index: &'static str,
    modify: impl Fn(&Id) -> Id + Send + Sync + 'static,
) -> impl DependencyMapper {
    from_fn(move |runtime, resource| {
        let Some(id) = &resource.id else { return Ok(Vec::new()) };
        let key = Key::of(&modify(id));
        let found =
            runtime.cache.list_shared(&ty, index, &key).map_err(|e| failed(&ty, index, &e))?;
        Ok(found.iter().filter_map(|r| r.id.clone()).map(Request::new).collect())
    })
}

/// Maps to all that the cache has under keys that the key of the resource's
/// identity begins with.
pub fn cache_parents(ty: Type, index: &'static str) -> impl DependencyMapper {
    from_fn(move |runtime, resource| {
        let Some(id) = &resource.id else { return Ok(Vec::new()) };
        let found =
            runtime.cache.parents(&ty, index, &Key::of(id)).map_err(|e| failed(&ty, index, &e))?;
        Ok(found.into_iter().filter_map(|r| r.id).map(Request::new).collect())
    })
}

fn failed(ty: &Type, index: &str, error: &super::CacheError) -> BoxError {
    format!("failed to list from cache index \"{index}\" on type \"{ty}\": {error}").into()
}

/// Resources to other resources, to map those.
pub type Transform =
    Arc<dyn Fn(&Runtime, &Resource) -> Result<Vec<Resource>, BoxError> + Send + Sync>;

/// Maps a resource to those that the cache has under keys which begin with that of
/// the resource.
pub fn cache_list_transform(ty: Type, index: &'static str) -> Transform {
    Arc::new(move |runtime, resource| {
        let Some(id) = &resource.id else { return Ok(Vec::new()) };
        runtime.cache.list(&ty, index, &Key::of(id)).map_err(|e| failed(&ty, index, &e))
    })
}

/// Chains transforms: each is applied to the results of the one before.
pub fn transform_chain(transforms: Vec<Transform>) -> Transform {
    Arc::new(move |runtime, resource| {
        let mut resources = vec![resource.clone()];
        for transform in &transforms {
            let mut next = Vec::new();
            for resource in &resources {
                next.extend(transform(runtime, resource)?);
            }
            resources = next;
        }
        Ok(resources)
    })
}

/// Maps what a transform makes of the resource.
pub fn with_transform(
    mapper: impl DependencyMapper,
    transform: Transform,
) -> impl DependencyMapper {
    Transformed { mapper, transform }
}

struct Transformed<M> {
    mapper: M,
    transform: Transform,
}

#[async_trait]
impl<M: DependencyMapper> DependencyMapper for Transformed<M> {
    async fn map(&self, runtime: &Runtime, resource: &Resource) -> Result<Vec<Request>, BoxError> {
        let mut requests = Vec::new();
        for resource in (self.transform)(runtime, resource)? {
            requests.extend(self.mapper.map(runtime, &resource).await?);
        }
        Ok(requests)
    }
}

/// Maps by several mappers, one after the other; the first error is that of
/// all.
pub fn multi(mappers: Vec<Arc<dyn DependencyMapper>>) -> impl DependencyMapper {
    Multi(mappers)
}

struct Multi(Vec<Arc<dyn DependencyMapper>>);

#[async_trait]
impl DependencyMapper for Multi {
    async fn map(&self, runtime: &Runtime, resource: &Resource) -> Result<Vec<Request>, BoxError> {
        let mut requests = Vec::new();
        for mapper in &self.0 {
            requests.extend(mapper.map(runtime, resource).await?);
        }
        Ok(requests)
    }
}

/// Maps by a mapper, then to the resources of another type with the same names.
pub fn with_type(ty: Type, mapper: impl DependencyMapper) -> impl DependencyMapper {
    Retyped { ty, mapper }
}

struct Retyped<M> {
    ty: Type,
    mapper: M,
}

#[async_trait]
impl<M: DependencyMapper> DependencyMapper for Retyped<M> {
    async fn map(&self, runtime: &Runtime, resource: &Resource) -> Result<Vec<Request>, BoxError> {
        let requests = self.mapper.map(runtime, resource).await?;
        Ok(requests
            .into_iter()
            .map(|request| Request::new(retype(&request.id, &self.ty)))
            .collect())
    }
}

fn retype(id: &Id, ty: &Type) -> Id {
    // The uid is that of the other resource, which has the same name and nothing else in common.
    Id { r#type: Some(ty.clone()), ..id.clone() }.without_uid()
}

/// Requests for references, each as a resource of the type, whatever theirs.
///
/// Deviation: without a type, each reference keeps its own, where upstream
/// gives all the first one's.
pub fn requests_for(ty: Option<&Type>, references: &[Reference]) -> Vec<Request> {
    let ids = references.iter().map(Reference::to_id);
    ids.map(|id| Request::new(ty.map_or_else(|| id.clone(), |ty| retype(&id, ty)))).collect()
}
