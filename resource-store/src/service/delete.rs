//! Delete, and the tombstones that it leaves.

use std::collections::BTreeMap;

use super::{
    Parity, RequestContext, ResourceService, Result, check_write,
    checks::{check_id, check_id_scope, required},
    life::{OnDelete, State},
    retry::{Failure, backend_failure, retry_cas},
};
use crate::{
    acl::Resolved,
    backend::{self, Consistency},
    clock,
    metadata::DELETION_TIMESTAMP,
    pb::{DeleteRequest, Id, Resource, Tombstone, WriteRequest},
    registry::{Registration, tombstone_type},
    typed::any,
};

/// The metadata key under which a tombstone keeps the time of the deletion.
const GENERATED_AT: &str = "generated_at";

/// A delete that passed the checks of its shape.
struct Deletion<'a> {
    context: &'a RequestContext,
    registration: &'a Registration,
    resolved: Resolved,
    id: Id,
    version: String,
}

impl ResourceService {
    /// Deletes a resource, or marks it for deletion where finalizers hold it
    /// back. One that is not there, or of another incarnation than a uid that
    /// is given, is fine.
    ///
    /// What the resource owned is deleted later, by the
    /// reaper, on behalf of the tombstone that
    /// stays.
    ///
    /// Deviation: a version that is given is always compared, where upstream
    /// does so only if a uid is given, too, and nothing holds the resource
    /// back; see [`Parity`].
    ///
    /// # Errors
    ///
    /// [`Code::Aborted`](crate::Code::Aborted) if the version is another;
    /// [`Code::PermissionDenied`](crate::Code::PermissionDenied) without the
    /// permission to write.
    pub async fn delete(&self, context: &RequestContext, request: DeleteRequest) -> Result<()> {
        let mut id = required(request.id, "id")?;
        let ty = check_id(&mut id, "id")?;
        let registration = self.registration(&ty)?;
        check_id_scope(&ty, registration.scope(), &id)?;
        let resolved =
            self.resolve_and_default(context, &mut id.tenancy, registration.scope()).await?;
        let deletion = Deletion { context, registration, resolved, id, version: request.version };
        retry_cas(&deletion.version, || self.attempt_delete(&deletion))
            .await
            .map_err(|failure| failure.into_answer("failed delete"))
    }

    async fn attempt_delete(&self, deletion: &Deletion<'_>) -> Result<(), Failure> {
        let Deletion { context, registration, resolved, id, version } = deletion;
        let partial = version.is_empty() || id.uid.is_empty();
        let consistency = if partial { Consistency::Strong } else { Consistency::Eventual };
        let existing = match self.inner.backend.read(consistency, id).await {
            Ok(existing) => existing,
            Err(backend::Error::NotFound) => return Ok(()),
            Err(other) => return Err(backend_failure(&other, "failed read").into()),
        };
        check_write(registration, resolved, &existing, "write")?;
        let compare = !version.is_empty()
            && (self.inner.parity == Parity::Corrected || !partial && !existing.has_finalizers());
        if compare && *version != existing.version {
            return Err(backend::Error::CasFailure.into());
        }
        match State::of(&existing).on_delete() {
            OnDelete::Remove => self.delete_with_tombstone(&existing).await,
            OnDelete::Mark => self.mark(context, &existing).await,
            OnDelete::Wait => Ok(()),
        }
    }

    /// Marks a resource for deletion, which its finalizers hold back.
    async fn mark(&self, context: &RequestContext, existing: &Resource) -> Result<(), Failure> {
        let mut marked = existing.clone();
        marked
            .metadata
            .insert(DELETION_TIMESTAMP.to_owned(), clock::rfc3339(self.inner.clock.now()));
        self.write(context, WriteRequest { resource: Some(marked) }).await?;
        Ok(())
    }

    /// Deletes exactly this version, after leaving a tombstone, so that a crash
    /// between the two cannot lose what has to happen to owned resources.
    ///
    /// If the delete then fails, the tombstone stays, for the next attempt; the
    /// reaper leaves children alone while their owner lives.
    async fn delete_with_tombstone(&self, resource: &Resource) -> Result<(), Failure> {
        let id = resource.id.clone().unwrap_or_default();
        if id.r#type.as_ref() != Some(&tombstone_type()) {
            self.write_tombstone(&id).await?;
        }
        Ok(self.inner.backend.delete_cas(&id, &resource.version).await?)
    }

    async fn write_tombstone(&self, deleted: &Id) -> Result<()> {
        let tenancy = deleted.tenancy.clone().unwrap_or_default();
        let name = tombstone_name(deleted);
        let now = self.inner.clock.now();
        let tombstone = Resource {
            id: Some(Id::new(tombstone_type(), tenancy, &name).with_uid(&self.new_ulid())),
            generation: self.new_ulid(),
            data: Some(any(&Tombstone { owner: Some(deleted.clone()) })),
            metadata: BTreeMap::from([(GENERATED_AT.to_owned(), clock::rfc3339(now))]),
            ..Resource::default()
        };
        match self.inner.backend.write_cas(tombstone).await {
            // Another attempt left it there.
            Ok(_) | Err(backend::Error::WrongUid) => Ok(()),
            Err(other) => Err(backend_failure(&other, "failed writing tombstone")),
        }
    }
}

/// The name of the tombstone of a resource. It may be longer than other names.
pub(crate) fn tombstone_name(deleted: &Id) -> String {
    format!("tombstone-{}-{}", deleted.name, deleted.uid.to_lowercase())
}
