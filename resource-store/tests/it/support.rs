//! What many of the tests need.

mod faulty;
#[cfg(any(feature = "etcd", feature = "postgres"))]
pub(crate) mod things;

use std::sync::Arc;

pub(crate) use faulty::Faulty;
use futures::StreamExt as _;
use resource_store::{
    Code, Registry, RequestContext, Resource, ResourceData, ResourceService, RpcError,
    StaticTenancies,
    acl::{ANONYMOUS_TOKEN, SameForAll, StaticRules},
    backend::{Backend, WatchEvent, memory::MemoryBackend},
    demo,
    pb::{self, Id, Status, Tenancy},
    service::{EventStream, ServiceBuilder},
};

/// A registry with the demo types.
pub(crate) fn demo_registry() -> Registry {
    let mut registry = Registry::new().unwrap();
    demo::register(&mut registry).unwrap();
    registry
}

/// A service of the demo types over memory, to be adjusted.
pub(crate) fn builder() -> ServiceBuilder {
    builder_over(Arc::new(MemoryBackend::new()))
}

pub(crate) fn builder_over(backend: Arc<dyn Backend>) -> ServiceBuilder {
    ResourceService::builder(demo_registry(), backend)
        .tenancies(StaticTenancies::default().with_namespace("foo", "bar"))
}

pub(crate) fn service() -> ResourceService {
    builder().build()
}

/// A service whose every token has these rules.
pub(crate) fn service_with_rules(backend: &MemoryBackend, rules: StaticRules) -> ResourceService {
    builder_over(Arc::new(backend.clone())).authorization(SameForAll::new(rules)).build()
}

pub(crate) fn no_rules() -> StaticRules {
    StaticRules::none(ANONYMOUS_TOKEN)
}

pub(crate) fn anonymous() -> RequestContext {
    RequestContext::anonymous()
}

pub(crate) fn default_tenancy() -> Tenancy {
    demo::default_tenancy()
}

/// Calls by what they are about, as an anonymous caller.
pub(crate) trait Calls {
    async fn put(&self, resource: pb::Resource) -> Result<Arc<pb::Resource>, RpcError>;
    async fn get(&self, id: &Id) -> Result<Arc<pb::Resource>, RpcError>;
    async fn remove(&self, id: &Id, version: &str) -> Result<(), RpcError>;
    async fn all<T: ResourceData>(&self, prefix: &str) -> Result<Vec<Arc<pb::Resource>>, RpcError>;
    async fn children(&self, owner: &Id) -> Result<Vec<Arc<pb::Resource>>, RpcError>;
    async fn dry_run(&self, resource: pb::Resource) -> Result<pb::Resource, RpcError>;
    async fn follow<T: ResourceData>(
        &self,
        tenancy: Option<Tenancy>,
    ) -> Result<EventStream, RpcError>;
    async fn set_status(
        &self,
        id: &Id,
        version: &str,
        key: &str,
        status: Status,
    ) -> Result<Arc<pb::Resource>, RpcError>;
}

impl Calls for ResourceService {
    async fn put(&self, resource: pb::Resource) -> Result<Arc<pb::Resource>, RpcError> {
        self.write(&anonymous(), pb::WriteRequest { resource: Some(resource) }).await
    }

    async fn get(&self, id: &Id) -> Result<Arc<pb::Resource>, RpcError> {
        self.read(&anonymous(), pb::ReadRequest { id: Some(id.clone()) }).await
    }

    async fn remove(&self, id: &Id, version: &str) -> Result<(), RpcError> {
        let request = pb::DeleteRequest { id: Some(id.clone()), version: version.to_owned() };
        self.delete(&anonymous(), request).await
    }

    async fn all<T: ResourceData>(&self, prefix: &str) -> Result<Vec<Arc<pb::Resource>>, RpcError> {
        let request = pb::ListRequest {
            r#type: Some(T::resource_type()),
            tenancy: Some(Tenancy::default()),
            name_prefix: prefix.to_owned(),
        };
        self.list(&anonymous(), request).await
    }

    async fn children(&self, owner: &Id) -> Result<Vec<Arc<pb::Resource>>, RpcError> {
        self.list_by_owner(&anonymous(), pb::ListByOwnerRequest { owner: Some(owner.clone()) })
            .await
    }

    async fn dry_run(&self, resource: pb::Resource) -> Result<pb::Resource, RpcError> {
        let request = pb::MutateAndValidateRequest { resource: Some(resource) };
        self.mutate_and_validate(&anonymous(), request).await
    }

    async fn follow<T: ResourceData>(
        &self,
        tenancy: Option<Tenancy>,
    ) -> Result<EventStream, RpcError> {
        let request = pb::WatchListRequest {
            r#type: Some(T::resource_type()),
            tenancy,
            name_prefix: String::new(),
        };
        self.watch_list(&anonymous(), request).await
    }

    async fn set_status(
        &self,
        id: &Id,
        version: &str,
        key: &str,
        status: Status,
    ) -> Result<Arc<pb::Resource>, RpcError> {
        let request = pb::WriteStatusRequest {
            id: Some(id.clone()),
            version: version.to_owned(),
            key: key.to_owned(),
            status: Some(status),
        };
        self.write_status(&anonymous(), request).await
    }
}

/// An untyped artist without owner.
pub(crate) fn artist(name: &str) -> pb::Resource {
    demo::artist(name).encode()
}

/// An untyped record label.
pub(crate) fn label(name: &str) -> pb::Resource {
    let data = demo::v1::RecordLabel { name: name.to_owned(), ..Default::default() };
    Resource::new(Tenancy::new("default", ""), name, data).encode()
}

/// An untyped executive.
pub(crate) fn executive(name: &str) -> pb::Resource {
    let data = demo::v1::Executive { position: "CEO".to_owned() };
    Resource::new(Tenancy::default(), name, data).encode()
}

/// The identity of a resource.
pub(crate) fn id(resource: &pb::Resource) -> Id {
    resource.id.clone().unwrap()
}

/// A status that observed the resource, with one condition.
pub(crate) fn status_of(resource: &pb::Resource) -> Status {
    let condition = pb::Condition {
        r#type: "Accepted".to_owned(),
        state: pb::condition::State::True.into(),
        ..pb::Condition::default()
    };
    Status {
        observed_generation: resource.generation.clone(),
        conditions: vec![condition],
        updated_at: None,
    }
}

/// What a conditional change is told that comes too late.
pub(crate) const CAS_FAILED: &str =
    "CAS operation failed because the given version doesn't match what is stored";

/// What a field is told whose value is no name.
pub(crate) fn name_invalid(field: &str, got: &str) -> String {
    format!(
        "{field} invalid: a resource name must consist of lower case alphanumeric characters or \
         '-', must start and end with an alphanumeric character and be less than 64 characters, \
         got: {got:?}"
    )
}

/// What the anonymous token is told that lacks a permission on a key.
pub(crate) fn denied(permission: &str, key: &str) -> String {
    format!(
        "Permission denied: anonymous token lacks permission '{permission}' on {key:?}. The anonymous token \
         is used implicitly when a request does not specify a token."
    )
}

/// Asserts that a call failed with the code, and exactly this message.
#[track_caller]
pub(crate) fn assert_fails<T: std::fmt::Debug>(
    result: Result<T, RpcError>,
    code: Code,
    message: &str,
) {
    let error = match result {
        Ok(value) => panic!("no failure but {value:?}"),
        Err(error) => error,
    };
    assert_eq!((error.code(), error.message()), (code, message));
}

/// The next event of a watch.
pub(crate) async fn next(watch: &mut EventStream) -> WatchEvent {
    let patience = std::time::Duration::from_secs(10);
    tokio::time::timeout(patience, watch.next()).await.unwrap().unwrap().unwrap()
}

/// The events up to the end of the snapshot.
pub(crate) async fn snapshot(watch: &mut EventStream) -> Vec<Arc<pb::Resource>> {
    let mut seen = Vec::new();
    loop {
        match next(watch).await {
            WatchEvent::Upsert(resource) => seen.push(resource),
            WatchEvent::EndOfSnapshot => return seen,
            WatchEvent::Delete(resource) => panic!("deleted in a snapshot: {resource:?}"),
        }
    }
}
