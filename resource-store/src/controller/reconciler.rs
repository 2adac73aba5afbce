//! What a controller's author writes.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{cache::Cache, error::BoxError, queue::QueueItem};
use crate::{client::ResourceClient, pb::Id};

/// Asks to reconcile one resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The resource; with a uid when it comes from a watch, mostly without one
    /// when a mapper made it.
    pub id: Id,
}

impl Request {
    /// Asks for a resource.
    pub fn new(id: Id) -> Self {
        Self { id }
    }
}

impl QueueItem for Request {
    fn key(&self) -> String {
        let Id { uid, name, .. } = &self.id;
        let (partition, namespace) = (self.id.partition(), self.id.namespace());
        format!("part={partition:?},ns={namespace:?},name={name:?},uid={uid:?}")
    }

    /// The resource, whichever its incarnation.
    fn subject(&self) -> String {
        let (partition, namespace) = (self.id.partition(), self.id.namespace());
        format!("part={partition:?},ns={namespace:?},name={:?}", self.id.name)
    }
}

/// The result of a request that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do until something changes.
    Done,
    /// Ask again after this time; zero means at once.
    RequeueAfter(Duration),
}

/// The means of user code: the client and the cache. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Runtime {
    /// The resource service.
    pub client: Arc<dyn ResourceClient>,
    /// The resources that the controller's watches saw.
    pub cache: Cache,
}

/// Brings the world in line with one resource.
///
/// Called for one request at a time, or for as many as
/// [`Controller::with_concurrency`](super::Controller::with_concurrency) allows, but never for two
/// of one resource. The resource may be gone, or have changed
/// since the request was made: read it first. An error, and a panic, has the
/// request repeated with growing delays.
#[async_trait]
pub trait Reconciler: fmt::Debug + Send + Sync + 'static {
    /// Reconciles the resource of a request.
    ///
    /// Dropped when the controller stops; what it does outside must bear that.
    ///
    /// # Errors
    ///
    /// Whatever should have the request repeated.
    async fn reconcile(&self, runtime: &Runtime, request: &Request) -> Result<Outcome, BoxError>;
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<R: Reconciler + ?Sized> Reconciler for Arc<R> {
    async fn reconcile(&self, runtime: &Runtime, request: &Request) -> Result<Outcome, BoxError> {
        (**self).reconcile(runtime, request).await
    }
}

/// Prepares what a controller needs; runs before anything else at each start.
#[async_trait]
pub trait Initializer: fmt::Debug + Send + Sync + 'static {
    /// Prepares; there is no cache yet.
    ///
    /// # Errors
    ///
    /// Whatever should have the start repeated.
    async fn initialize(&self, client: &dyn ResourceClient) -> Result<(), BoxError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo;

    #[test]
    fn requests_with_and_without_uid_are_two() {
        let id = demo::artist("korn").id;
        let key = |uid: &str| Request::new(id.clone().with_uid(uid)).key();
        assert_eq!(key("u"), "part=\"default\",ns=\"default\",name=\"korn\",uid=\"u\"");
        assert_ne!(key("u"), key(""));
        let subject = |uid: &str| Request::new(id.clone().with_uid(uid)).subject();
        assert_eq!(subject("u"), subject(""), "and about one resource");
    }
}
