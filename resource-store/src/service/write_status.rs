//! Setting one key of a status.

use std::sync::Arc;

use super::{
    RequestContext, ResourceService, Result, check_write,
    checks::{check_id, check_id_scope, required},
    retry::{Failure, backend_failure, retry_cas},
};
use crate::{
    backend::{self, Consistency},
    clock,
    code::{Code, RpcError},
    name,
    pb::{Condition, Id, Resource, Status, WriteStatusRequest},
};

/// A request whose shape is right.
struct Checked {
    id: Id,
    version: String,
    key: String,
    status: Status,
}

impl ResourceService {
    /// Sets one key of the status of a resource, whose uid must be given. The
    /// version changes, the generation does not.
    ///
    /// Deviation: references in conditions may lack tenancy units, so that
    /// partition and cluster scoped resources can be named.
    ///
    /// # Errors
    ///
    /// [`Code::NotFound`] if there is no such incarnation; [`Code::Aborted`] if
    /// the version is another; [`Code::InvalidArgument`];
    /// [`Code::PermissionDenied`] without the permission to write.
    pub async fn write_status(
        &self,
        context: &RequestContext,
        request: WriteStatusRequest,
    ) -> Result<Arc<Resource>> {
        let mut request = check_shape(request)?;
        let ty = check_id(&mut request.id, "id")?;
        check_references(&request.status.conditions)?;
        let registration = self.registration(&ty)?;
        let scope = registration.scope();
        check_id_scope(&ty, scope, &request.id)?;
        let resolved = self.resolve_and_default(context, &mut request.id.tenancy, scope).await?;
        self.require_tenancy(request.id.tenancy.as_ref(), scope, Code::InvalidArgument).await?;

        let backend = &self.inner.backend;
        let existing =
            backend.read(Consistency::Eventual, &request.id).await.map_err(|e| match e {
                backend::Error::NotFound => RpcError::not_found(e.to_string()),
                other => backend_failure(&other, "failed read"),
            })?;
        check_write(registration, &resolved, &existing, "operator:write allowed")?;
        retry_cas(&request.version, || self.attempt_write_status(&request)).await.map_err(
            |failure| match failure {
                Failure::Backend(e @ backend::Error::NotFound) => {
                    RpcError::not_found(e.to_string())
                }
                other => other.into_answer("failed to write resource"),
            },
        )
    }

    async fn attempt_write_status(&self, request: &Checked) -> Result<Arc<Resource>, Failure> {
        let backend = &self.inner.backend;
        let existing = backend.read(Consistency::Eventual, &request.id).await?;
        if !request.version.is_empty() && request.version != existing.version {
            return Err(backend::Error::CasFailure.into());
        }
        let updated_at = Some(clock::timestamp(self.inner.clock.now()));
        let mut changed = Resource::clone(&existing);
        changed.status.insert(request.key.clone(), Status { updated_at, ..request.status.clone() });
        Ok(backend.write_cas(changed).await?)
    }
}

/// Finds the first required field that is missing, then checks the values.
fn check_shape(request: WriteStatusRequest) -> Result<Checked> {
    let WriteStatusRequest { id, version, key, status } = request;
    let id = required(id, "id")?;
    required(id.r#type.as_ref(), "id.type")?;
    for (field, value) in [("id.name", &id.name), ("id.uid", &id.uid), ("key", &key)] {
        required_text(field, value)?;
    }
    let status = required(status, "status")?;
    required_text("status.observed_generation", &status.observed_generation)?;
    if let Some(field) = missing_in_conditions(&status.conditions) {
        return Err(RpcError::invalid(format!("{field} is required")));
    }
    if status.updated_at.is_some() {
        return Err(RpcError::invalid(
            "status.updated_at is automatically set and cannot be provided",
        ));
    }
    if !clock::is_strict_ulid(&status.observed_generation) {
        return Err(RpcError::invalid("status.observed_generation is not valid"));
    }
    Ok(Checked { id, version, key, status })
}

fn required_text(field: &str, value: &str) -> Result<()> {
    if value.is_empty() { Err(RpcError::invalid(format!("{field} is required"))) } else { Ok(()) }
}

/// The field that the message has to name. A missing type ends the search; a
/// broken reference does not, so that the last one is named.
fn missing_in_conditions(conditions: &[Condition]) -> Option<String> {
    let mut missing = None;
    for (i, condition) in conditions.iter().enumerate() {
        if condition.r#type.is_empty() {
            return Some(format!("status.conditions[{i}].type"));
        }
        let Some(reference) = &condition.resource else { continue };
        let part = if reference.r#type.is_none() {
            "type"
        } else if reference.tenancy.is_none() {
            "tenancy"
        } else if reference.name.is_empty() {
            "name"
        } else {
            continue;
        };
        missing = Some(format!("status.conditions[{i}].resource.{part}"));
    }
    missing
}

fn check_references(conditions: &[Condition]) -> Result<()> {
    for (i, condition) in conditions.iter().enumerate() {
        let Some(reference) = &condition.resource else { continue };
        let tenancy = reference.tenancy.clone().unwrap_or_default();
        let fields = [
            ("name", &reference.name),
            ("tenancy.partition", &tenancy.partition),
            ("tenancy.namespace", &tenancy.namespace),
        ];
        for (part, value) in fields {
            let absent = part != "name" && value.is_empty();
            if !absent && !name::is_valid_name(value) {
                let text = name::invalid_name_text(value);
                return Err(RpcError::invalid(format!(
                    "status.conditions[{i}].resource.{part} invalid: {text}"
                )));
            }
        }
    }
    Ok(())
}
