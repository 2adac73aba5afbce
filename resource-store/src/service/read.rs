//! Read.

use std::sync::Arc;

use super::{
    RequestContext, ResourceService, Result, acl_failure,
    checks::{check_id, check_id_scope, required},
    retry::backend_failure,
};
use crate::{
    acl::AclError,
    backend,
    code::{Code, RpcError},
    pb::{ReadRequest, Resource},
};

impl ResourceService {
    /// Reads one resource.
    ///
    /// # Errors
    ///
    /// [`Code::NotFound`] if there is none, or another incarnation than a uid
    /// that is given, or no such tenancy; [`Code::InvalidArgument`] if it is
    /// stored in another version of its group; [`Code::PermissionDenied`].
    pub async fn read(
        &self,
        context: &RequestContext,
        request: ReadRequest,
    ) -> Result<Arc<Resource>> {
        let mut id = required(request.id, "id")?;
        let ty = check_id(&mut id, "id")?;
        let registration = self.registration(&ty)?;
        check_id_scope(&ty, registration.scope(), &id)?;
        let resolved =
            self.resolve_and_default(context, &mut id.tenancy, registration.scope()).await?;

        let hook = &registration.acl_hooks().read;
        let undecided = match hook(&*resolved.authorizer, &id, None) {
            Ok(()) => false,
            Err(AclError::NeedResource) => true,
            Err(error) => return Err(acl_failure(&error, "read")),
        };
        self.require_tenancy(id.tenancy.as_ref(), registration.scope(), Code::NotFound).await?;
        let resource =
            self.inner.backend.read(context.consistency, &id).await.map_err(read_failure)?;
        if undecided {
            hook(&*resolved.authorizer, &id, Some(&resource))
                .map_err(|e| acl_failure(&e, "read"))?;
        }
        Ok(resource)
    }
}

fn read_failure(error: backend::Error) -> RpcError {
    match error {
        backend::Error::NotFound => RpcError::not_found(error.to_string()),
        backend::Error::GroupVersionMismatch { .. } => RpcError::invalid(error.to_string()),
        other => backend_failure(&other, "failed read"),
    }
}
