//! The resource service: every call of the protocol, in process.
//!
//! Source: `agent/grpc-external/services/resource`, Consul 1.21.

mod builder;
mod checks;
mod delete;
mod life;
mod list;
mod mutate_and_validate;
mod read;
mod retry;
mod validate_update;
mod watch;
mod write;
mod write_status;

use std::sync::Arc;

pub use builder::{Parity, ServiceBuilder};
use secrecy::SecretString;
pub use watch::EventStream;

use crate::{
    acl::{AclError, Authorization, Resolved},
    backend::{Backend, Consistency},
    clock::{self, Clock},
    code::{Code, RpcError},
    pb::{Id, Resource, Tenancy, Type},
    registry::{Registration, Registry},
    tenancy::{DEFAULT_UNIT, Scope, TenancyBridge, TenancyError},
};

/// The context of a request besides its message.
#[derive(Debug, Clone, Default)]
pub struct RequestContext {
    /// The caller's token; none means the anonymous one.
    pub token: Option<SecretString>,
    /// Required freshness of reads and lists.
    pub consistency: Consistency,
    /// The address that the request comes from, for the audit log.
    pub peer: Option<std::net::SocketAddr>,
}

impl RequestContext {
    /// No token, eventual reads.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// The same with another token.
    #[must_use]
    pub fn with_token(mut self, token: SecretString) -> Self {
        self.token = Some(token);
        self
    }

    /// The same with another freshness.
    #[must_use]
    pub fn with_consistency(mut self, consistency: Consistency) -> Self {
        self.consistency = consistency;
        self
    }
}

/// Stores resources of registered types, by the rules of the protocol.
///
/// Checks and defaults requests, asks for permissions, and keeps uids,
/// generations, owners, finalizers and tombstones in order; the backend keeps
/// the resources. Resources come back as the store's own, shared, unchanging
/// objects. A clone is another handle to the same service.
///
/// - Reads are eventual unless asked otherwise, but monotonic on one server,
///   and what a watch told of can be read.
/// - Writes without a version are repeated up to five times if someone else was
///   faster; with a version they fail at once with [`Code::Aborted`].
///
/// # Deviations
///
/// `Deviation:` notes stand at the methods; [`Parity::Upstream`] takes three of
/// them back.
#[derive(Debug, Clone)]
pub struct ResourceService {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    registry: Arc<Registry>,
    backend: Arc<dyn Backend>,
    tenancies: Arc<dyn TenancyBridge>,
    authorization: Arc<dyn Authorization>,
    clock: Arc<dyn Clock>,
    parity: Parity,
    guarded: bool,
}

/// The target of the audit log: one event for each call over the network, with
/// who called (`acl.accessor`, `peer`), what (`rpc.method`, `resource`) and what
/// came of it (`rpc.code`). Tokens are never in it.
pub const AUDIT: &str = "resource_store::audit";

/// Returns `true` if somebody reads the audit log.
#[cfg(any(feature = "grpc", feature = "http"))]
pub(crate) fn audited() -> bool {
    tracing::enabled!(target: AUDIT, tracing::Level::INFO)
}

/// Takes the place of one watch, or refuses it.
#[cfg(any(feature = "grpc", feature = "http"))]
pub(crate) fn watch_permit(
    watches: &Arc<tokio::sync::Semaphore>,
) -> Result<tokio::sync::OwnedSemaphorePermit> {
    Arc::clone(watches).try_acquire_owned().map_err(|_none_left| {
        RpcError::new(
            Code::ResourceExhausted,
            "as many watches as the server allows; try again later or another server",
        )
    })
}

type Result<T, E = RpcError> = std::result::Result<T, E>;

impl ResourceService {
    /// A service over `backend` that knows the types of `registry`.
    pub fn builder(registry: Registry, backend: Arc<dyn Backend>) -> ServiceBuilder {
        ServiceBuilder::new(registry, backend)
    }

    /// The types that the service knows.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.inner.registry
    }

    /// Returns the backend that keeps the resources.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.inner.backend
    }

    /// The treatment of what is known to be wrong in Consul's service.
    pub fn parity(&self) -> Parity {
        self.inner.parity
    }

    /// Returns `true` if tokens decide who may do what; without
    /// [`ServiceBuilder::authorization`] everybody may do everything.
    pub fn is_guarded(&self) -> bool {
        self.inner.guarded
    }

    /// Writes a call to the log of the target [`AUDIT`], if somebody reads that.
    #[cfg(any(feature = "grpc", feature = "http"))]
    pub(crate) async fn audit(
        &self,
        context: &RequestContext,
        call: &'static str,
        about: &str,
        failure: Option<&RpcError>,
    ) {
        if !audited() {
            return;
        }
        let resolved = self.inner.authorization.resolve(context.token.as_ref(), None).await;
        let accessor = resolved.as_ref().map_or("", |resolved| resolved.authorizer.accessor());
        let code = failure.map_or_else(|| "Ok".to_owned(), |error| error.code().to_string());
        tracing::info!(
            target: AUDIT,
            {
                acl.accessor = accessor,
                peer = context.peer.map(tracing::field::display),
                rpc.method = call,
                resource = about,
                rpc.code = code,
            },
            "call"
        );
    }

    fn registration(&self, ty: &Type) -> Result<&Arc<Registration>> {
        self.inner
            .registry
            .resolve(ty)
            .ok_or_else(|| RpcError::invalid(format!("resource type {ty} not registered")))
    }

    /// Looks the caller's token up.
    async fn resolve(
        &self,
        context: &RequestContext,
        tenancy: Option<&Tenancy>,
    ) -> Result<Resolved> {
        let resolved = self.inner.authorization.resolve(context.token.as_ref(), tenancy).await;
        resolved.map_err(|e| RpcError::internal(format!("failed getting authorizer: {e}")))
    }

    /// Looks the token up, then fills in the units that a request left out.
    async fn resolve_and_default(
        &self,
        context: &RequestContext,
        tenancy: &mut Option<Tenancy>,
        scope: Scope,
    ) -> Result<Resolved> {
        let resolved = self.resolve(context, tenancy.as_ref()).await?;
        default_units(tenancy.get_or_insert_default(), &resolved.tenancy, scope);
        Ok(resolved)
    }

    /// Fails with `code` if the tenancy that the scope asks for does not exist.
    async fn require_tenancy(
        &self,
        tenancy: Option<&Tenancy>,
        scope: Scope,
        code: Code,
    ) -> Result<()> {
        let Some(tenancy) =
            tenancy.filter(|_| matches!(scope, Scope::Partition | Scope::Namespace))
        else {
            return Ok(());
        };
        let bridge = &self.inner.tenancies;
        let (partition, namespace) = (&tenancy.partition, &tenancy.namespace);
        if !bridge.partition_exists(partition).await.map_err(|e| failed_tenancy(&e))? {
            return Err(RpcError::new(code, format!("partition not found: {partition}")));
        }
        if scope == Scope::Namespace
            && !bridge
                .namespace_exists(partition, namespace)
                .await
                .map_err(|e| failed_tenancy(&e))?
        {
            return Err(RpcError::new(code, format!("namespace not found: {namespace}")));
        }
        Ok(())
    }

    fn new_ulid(&self) -> String {
        clock::new_ulid(self.inner.clock.now())
    }
}

fn failed_tenancy(error: &TenancyError) -> RpcError {
    RpcError::internal(error.to_string())
}

/// An empty unit that the scope has becomes the token's, or the default.
fn default_units(tenancy: &mut Tenancy, token: &Tenancy, scope: Scope) {
    let fill = |unit: &mut String, token: &str| {
        if unit.is_empty() {
            let value = if token.is_empty() { DEFAULT_UNIT } else { token };
            value.clone_into(unit);
        }
    };
    if matches!(scope, Scope::Partition | Scope::Namespace) {
        fill(&mut tenancy.partition, &token.partition);
    }
    if scope == Scope::Namespace {
        fill(&mut tenancy.namespace, &token.namespace);
    }
}

/// Turns what a permission hook said into an answer.
fn acl_failure(error: &AclError, what: &str) -> RpcError {
    match error {
        AclError::Denied(text) => RpcError::denied(text),
        AclError::NeedResource | AclError::Other(_) => {
            RpcError::internal(format!("failed {what} acl: {error}"))
        }
    }
}

/// Asks the read hook about one item of a list or watch, whether it may show.
fn may_read(registration: &Registration, resolved: &Resolved, resource: &Resource) -> Result<bool> {
    let no_id = Id::default();
    let id = resource.id.as_ref().unwrap_or(&no_id);
    match (registration.acl_hooks().read)(&*resolved.authorizer, id, Some(resource)) {
        Ok(()) => Ok(true),
        Err(AclError::Denied(_)) => Ok(false),
        Err(error) => Err(acl_failure(&error, "read")),
    }
}

/// Asks the write hook.
fn check_write(
    registration: &Registration,
    resolved: &Resolved,
    resource: &Resource,
    what: &str,
) -> Result<()> {
    (registration.acl_hooks().write)(&*resolved.authorizer, resource)
        .map_err(|e| acl_failure(&e, what))
}

/// Asks the list hook.
fn check_list(registration: &Registration, resolved: &Resolved) -> Result<()> {
    (registration.acl_hooks().list)(&*resolved.authorizer).map_err(|e| acl_failure(&e, "list"))
}
