//! The service as tonic serves it.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt as _, stream::BoxStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::{
    backend::Consistency,
    code::RpcError,
    pb::{
        DeleteRequest, DeleteResponse, ListByOwnerRequest, ListByOwnerResponse, ListRequest,
        ListResponse, MutateAndValidateRequest, MutateAndValidateResponse, ReadRequest,
        ReadResponse, Resource, WatchEvent, WatchListRequest, WriteRequest, WriteResponse,
        WriteStatusRequest, WriteStatusResponse, resource_service_server,
    },
    service::{self, RequestContext, ResourceService},
    wire,
};

/// The service for a tonic server of the caller's own; [`Server`](super::Server)
/// has it built in.
///
/// Metadata: `x-consul-token`, and for reads and lists
/// `x-consul-consistency-mode: consistent`.
#[derive(Debug, Clone)]
pub struct GrpcService {
    service: ResourceService,
    stop: CancellationToken,
    watches: Arc<Semaphore>,
}

impl GrpcService {
    /// Serves `service`; watches end when `stop` is cancelled, so that a server
    /// can drain.
    pub fn new(service: ResourceService, stop: CancellationToken) -> Self {
        Self { service, stop, watches: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)) }
    }

    /// Takes a permit for each watch, so that there are only so many; as many as
    /// come if this is not called.
    #[must_use]
    pub fn with_watch_permits(mut self, watches: Arc<Semaphore>) -> Self {
        self.watches = watches;
        self
    }

    /// Writes a call to the audit log, and makes its answer.
    async fn answer<T>(
        &self,
        context: &RequestContext,
        call: &'static str,
        about: String,
        result: Result<T, RpcError>,
    ) -> Result<T, Status> {
        self.service.audit(context, call, &about, result.as_ref().err()).await;
        result.map_err(|error| wire::to_status(&error))
    }
}

/// The resource or the query that a call is about, for the audit log; empty if nobody
/// reads that.
fn about<T: std::fmt::Display>(subject: Option<&T>) -> String {
    subject.filter(|_| service::audited()).map(ToString::to_string).unwrap_or_default()
}

/// Splits a request into its message and what came with it.
fn open<T>(request: Request<T>) -> (RequestContext, T) {
    let text = |key: &str| request.metadata().get(key).and_then(|value| value.to_str().ok());
    let mut context = RequestContext { peer: request.remote_addr(), ..RequestContext::default() };
    if let Some(token) = text(wire::TOKEN) {
        context = context.with_token(token.to_owned().into());
    }
    if text(wire::CONSISTENCY) == Some(wire::CONSISTENT) {
        context = context.with_consistency(Consistency::Strong);
    }
    (context, request.into_inner())
}

fn all(resources: Vec<Arc<Resource>>) -> Vec<Resource> {
    resources.into_iter().map(Arc::unwrap_or_clone).collect()
}

#[async_trait]
impl resource_service_server::ResourceService for GrpcService {
    type WatchListStream = BoxStream<'static, Result<WatchEvent, Status>>;

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<ReadResponse>, Status> {
        let (context, request) = open(request);
        let about = about(request.id.as_ref());
        let found = self.service.read(&context, request).await;
        let found = self.answer(&context, "Read", about, found).await?;
        Ok(Response::new(ReadResponse { resource: Some(Arc::unwrap_or_clone(found)) }))
    }

    async fn write(
        &self,
        request: Request<WriteRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        let (context, request) = open(request);
        let about = about(request.resource.as_ref().and_then(|resource| resource.id.as_ref()));
        let stored = self.service.write(&context, request).await;
        let stored = self.answer(&context, "Write", about, stored).await?;
        Ok(Response::new(WriteResponse { resource: Some(Arc::unwrap_or_clone(stored)) }))
    }

    async fn write_status(
        &self,
        request: Request<WriteStatusRequest>,
    ) -> Result<Response<WriteStatusResponse>, Status> {
        let (context, request) = open(request);
        let about = about(request.id.as_ref());
        let stored = self.service.write_status(&context, request).await;
        let stored = self.answer(&context, "WriteStatus", about, stored).await?;
        Ok(Response::new(WriteStatusResponse { resource: Some(Arc::unwrap_or_clone(stored)) }))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let (context, request) = open(request);
        let about = about(request.r#type.as_ref());
        let found = self.service.list(&context, request).await;
        let found = self.answer(&context, "List", about, found).await?;
        Ok(Response::new(ListResponse { resources: all(found) }))
    }

    async fn list_by_owner(
        &self,
        request: Request<ListByOwnerRequest>,
    ) -> Result<Response<ListByOwnerResponse>, Status> {
        let (context, request) = open(request);
        let about = about(request.owner.as_ref());
        let found = self.service.list_by_owner(&context, request).await;
        let found = self.answer(&context, "ListByOwner", about, found).await?;
        Ok(Response::new(ListByOwnerResponse { resources: all(found) }))
    }

    async fn delete(
        &self,
        request: Request<DeleteRequest>,
    ) -> Result<Response<DeleteResponse>, Status> {
        let (context, request) = open(request);
        let about = about(request.id.as_ref());
        let deleted = self.service.delete(&context, request).await;
        self.answer(&context, "Delete", about, deleted).await?;
        Ok(Response::new(DeleteResponse {}))
    }

    /// Failures come as the first item of the stream, as Consul sends them.
    async fn watch_list(
        &self,
        request: Request<WatchListRequest>,
    ) -> Result<Response<Self::WatchListStream>, Status> {
        let (context, request) = open(request);
        let about = about(request.r#type.as_ref());
        let begun = match service::watch_permit(&self.watches) {
            Ok(place) => self.service.watch_list(&context, request).await.map(|e| (e, place)),
            Err(error) => Err(error),
        };
        let begun = self.answer(&context, "WatchList", about, begun).await;
        let (events, place) = match begun {
            Ok((events, place)) => (events, place),
            Err(status) => {
                return Ok(Response::new(futures::stream::iter([Err(status)]).boxed()));
            }
        };
        let events = events.map(move |event| {
            let _place = &place;
            event.map(wire::to_event).map_err(|e| wire::to_status(&e))
        });
        let last = futures::stream::iter([Err(Status::unavailable("server is shutting down"))]);
        let stop = self.stop.clone();
        let until_stop = events.take_until(stop.clone().cancelled_owned());
        let stopped = last.filter(move |_| std::future::ready(stop.is_cancelled()));
        Ok(Response::new(until_stop.chain(stopped).boxed()))
    }

    async fn mutate_and_validate(
        &self,
        request: Request<MutateAndValidateRequest>,
    ) -> Result<Response<MutateAndValidateResponse>, Status> {
        let (context, request) = open(request);
        let about = about(request.resource.as_ref().and_then(|resource| resource.id.as_ref()));
        let resource = self.service.mutate_and_validate(&context, request).await;
        let resource = self.answer(&context, "MutateAndValidate", about, resource).await?;
        Ok(Response::new(MutateAndValidateResponse { resource: Some(resource) }))
    }
}
