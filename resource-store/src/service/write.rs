//! Write.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Parity, RequestContext, ResourceService, Result, check_write,
    checks::{check_id, check_id_scope, required},
    retry::{Failure, backend_failure, retry_cas},
    validate_update::validate_update,
};
use crate::{
    acl::Resolved,
    backend::{self, Consistency},
    code::{Code, RpcError},
    error_chain::error_chain,
    metadata::{DELETION_TIMESTAMP, FINALIZERS},
    pb::{Id, Resource, Status, Tenancy, Type, WriteRequest},
    registry::Registration,
    schema,
    tenancy::{Scope, TenancyError},
};

/// A write that passed every check that does not depend on what is stored.
pub(super) struct Prepared {
    pub(super) resource: Resource,
    pub(super) ty: Type,
    /// `true` if the tenancy is marked for deletion.
    pub(super) marked: bool,
}

impl ResourceService {
    /// Creates a resource or replaces the one of its name.
    ///
    /// With a version the write takes place only if that is what is stored;
    /// without one it replaces what is there, and keeps its finalizers and
    /// deletion mark unless it brings its own. The owner is set on creation
    /// only; the status is kept and changes by [`ResourceService::write_status`]
    /// only. Removing the last finalizer of a resource that is marked for
    /// deletion does not delete it, as in Consul's code, though its guide
    /// promises that: [`remove_finalizer`](crate::remove_finalizer) does both.
    ///
    /// Deviation, see [`Parity`]: a write that names a uid while nothing of the
    /// name is stored is refused, and so are data that are no message of their
    /// type. A write in another version of the group
    /// stores its own type, where upstream keeps the old one with the new data.
    ///
    /// # Errors
    ///
    /// [`Code::Aborted`] if the version is another;
    /// [`Code::FailedPrecondition`] if the uid is; [`Code::InvalidArgument`]
    /// for what the rules or the type's hooks forbid;
    /// [`Code::PermissionDenied`].
    pub async fn write(
        &self,
        context: &RequestContext,
        request: WriteRequest,
    ) -> Result<Arc<Resource>> {
        let prepared = self.prepare_write(context, request.resource).await?;
        retry_cas(&prepared.resource.version, || self.attempt_write(&prepared))
            .await
            .map_err(|failure| failure.into_answer("failed to write resource"))
    }

    /// The checks and defaults that a write and its dry run share.
    pub(super) async fn prepare_write(
        &self,
        context: &RequestContext,
        resource: Option<Resource>,
    ) -> Result<Prepared> {
        let mut resource = required(resource, "resource")?;
        let id = required(resource.id.as_mut(), "resource.id")?;
        let ty = check_id(id, "resource.id")?;
        if let Some(owner) = &mut resource.owner {
            check_id(owner, "resource.owner")?;
        }
        let registration = Arc::clone(self.registration(&ty)?);
        let scope = registration.scope();
        let id = resource.id.get_or_insert_default();
        check_id_scope(&ty, scope, id)?;
        let resolved = self.resolve_and_default(context, &mut id.tenancy, scope).await?;

        apply_hooks(&registration, &resolved, &mut resource)?;
        let tenancy = resource.id.as_ref().and_then(|id| id.tenancy.clone()).unwrap_or_default();
        self.require_tenancy(Some(&tenancy), scope, Code::InvalidArgument).await?;
        let marked = self.is_marked(&tenancy, scope).await?;
        Ok(Prepared { resource, ty, marked })
    }

    /// Returns `true` if nothing may be created in a tenancy any more.
    async fn is_marked(&self, tenancy: &Tenancy, scope: Scope) -> Result<bool> {
        let failed = |e: TenancyError| {
            RpcError::internal(format!("failed tenancy marked for deletion check: {e}"))
        };
        let bridge = &self.inner.tenancies;
        let (partition, namespace) = (&tenancy.partition, &tenancy.namespace);
        if !matches!(scope, Scope::Partition | Scope::Namespace) {
            return Ok(false);
        }
        if bridge.is_partition_marked_for_deletion(partition).await.map_err(failed)? {
            return Ok(true);
        }
        let in_namespace = scope == Scope::Namespace;
        Ok(in_namespace
            && bridge
                .is_namespace_marked_for_deletion(partition, namespace)
                .await
                .map_err(failed)?)
    }

    /// Reads what is stored, and writes on top of it.
    async fn attempt_write(&self, prepared: &Prepared) -> Result<Arc<Resource>, Failure> {
        let mut input = prepared.resource.clone();
        let id = input.id.clone().unwrap_or_default();
        let Some(existing) = self.stored(&id, &input.version).await? else {
            self.prepare_creation(&mut input, prepared.marked).await?;
            input.generation = self.new_ulid();
            return Ok(self.inner.backend.write_cas(input).await?);
        };
        adopt(&mut input, &existing, &prepared.ty)?;
        validate_update(&existing, &input, prepared.marked)?;
        input.generation = self.new_ulid();
        Ok(self.inner.backend.write_cas(input).await?)
    }

    /// Reads the resource that a write replaces, whatever the version of its group.
    async fn stored(&self, id: &Id, version: &str) -> Result<Option<Arc<Resource>>, Failure> {
        let mut result = self.inner.backend.read(Consistency::Eventual, id).await;
        let stale_uid =
            !id.uid.is_empty() && version.is_empty() && self.inner.parity == Parity::Corrected;
        if stale_uid && matches!(result, Err(backend::Error::NotFound)) {
            // Nothing of this uid here: refused, unless this replica only lags.
            result = self.inner.backend.read(Consistency::Strong, id).await;
            if matches!(result, Err(backend::Error::NotFound)) {
                return Err(backend::Error::WrongUid.into());
            }
        }
        match result {
            Ok(existing) => Ok(Some(existing)),
            Err(backend::Error::GroupVersionMismatch { stored, .. }) => Ok(Some(stored)),
            Err(backend::Error::NotFound) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// Checks what only creations are checked for, and fills in what the
    /// service assigns.
    async fn prepare_creation(&self, input: &mut Resource, marked: bool) -> Result<(), Failure> {
        let id = input.id.get_or_insert_default();
        id.uid = self.new_ulid();
        if !input.status.is_empty() {
            return Err(status_only_by_write_status().into());
        }
        if marked {
            return Err(tenancy_marked(id).into());
        }
        if input.metadata.contains_key(DELETION_TIMESTAMP) {
            let text =
                format!("resource.metadata.{DELETION_TIMESTAMP} can't be set on resource creation");
            return Err(RpcError::invalid(text).into());
        }
        let Some(owner) = input.owner.as_ref().filter(|owner| owner.uid.is_empty()) else {
            return Ok(());
        };
        match self.inner.backend.read(Consistency::Strong, owner).await {
            Ok(stored) => input.owner.clone_from(&stored.id),
            Err(backend::Error::NotFound) => {
                return Err(RpcError::invalid("resource.owner does not exist").into());
            }
            Err(other) => {
                return Err(backend_failure(&other, "failed to resolve owner").into());
            }
        }
        Ok(())
    }
}

/// Checks the data, lets the type's hooks mutate and validate, and asks for the
/// permission to write.
fn apply_hooks(
    registration: &Registration,
    resolved: &Resolved,
    resource: &mut Resource,
) -> Result<()> {
    if let Some(data) = &resource.data
        && !registration.schema().matches_url(&data.type_url)
    {
        return Err(RpcError::invalid(format!(
            "resource.data is of wrong type (expected={:?}, got={:?})",
            registration.schema().message_name(),
            schema::bare_name(&data.type_url)
        )));
    }
    if let Some(data) = &resource.data
        && let Err(error) = registration.schema().decode(data)
    {
        return Err(RpcError::invalid(format!(
            "resource.data is malformed (expected={:?}): {}",
            registration.schema().message_name(),
            error_chain(&error)
        )));
    }
    registration
        .run_mutate(resource)
        .map_err(|e| RpcError::internal(format!("failed mutate hook: {e}")))?;
    registration.run_validate(resource).map_err(|e| RpcError::invalid(e.to_string()))?;
    check_write(registration, resolved, resource, "write")
}

/// Takes over what an update keeps of the stored resource.
fn adopt(input: &mut Resource, existing: &Resource, ty: &Type) -> Result<(), Failure> {
    input.id.clone_from(&existing.id);
    input.id.get_or_insert_default().r#type = Some(ty.clone());
    if input.version.is_empty() {
        input.version.clone_from(&existing.version);
        keep_deferred_deletion(&mut input.metadata, &existing.metadata);
    }
    if input.version != existing.version {
        return Err(backend::Error::CasFailure.into());
    }
    keep_owner(input, existing)?;
    keep_status(&mut input.status, &existing.status)?;
    Ok(())
}

fn keep_deferred_deletion(
    input: &mut BTreeMap<String, String>,
    existing: &BTreeMap<String, String>,
) {
    for key in [DELETION_TIMESTAMP, FINALIZERS] {
        if let Some(value) = existing.get(key) {
            input.entry(key.to_owned()).or_insert_with(|| value.clone());
        }
    }
}

fn keep_owner(input: &mut Resource, existing: &Resource) -> Result<()> {
    if let (Some(owner), Some(stored)) = (&mut input.owner, &existing.owner)
        && owner.uid.is_empty()
    {
        owner.uid.clone_from(&stored.uid);
    }
    if input.owner == existing.owner {
        Ok(())
    } else {
        Err(RpcError::invalid("owner cannot be changed"))
    }
}

fn keep_status(
    input: &mut BTreeMap<String, Status>,
    existing: &BTreeMap<String, Status>,
) -> Result<()> {
    if input.is_empty() {
        input.clone_from(existing);
    }
    if input == existing { Ok(()) } else { Err(status_only_by_write_status()) }
}

fn status_only_by_write_status() -> RpcError {
    RpcError::invalid("resource.status can only be set using the WriteStatus endpoint")
}

/// Nothing may be created here any more.
pub(super) fn tenancy_marked(id: &Id) -> RpcError {
    RpcError::invalid(format!("tenancy marked for deletion: {}/{}", id.partition(), id.namespace()))
}
