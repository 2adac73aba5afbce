//! The dry run of a write: what a write would store.

use super::{RequestContext, ResourceService, Result, write::tenancy_marked};
use crate::pb::{MutateAndValidateRequest, Resource};

impl ResourceService {
    /// Says what [`ResourceService::write`] would store, as far as that does
    /// not depend on what is stored: the resource with tenancy and the type's
    /// own defaults. Stores nothing. The permission to write is needed.
    ///
    /// # Errors
    ///
    /// As [`ResourceService::write`], but for what depends on what is stored.
    pub async fn mutate_and_validate(
        &self,
        context: &RequestContext,
        request: MutateAndValidateRequest,
    ) -> Result<Resource> {
        let prepared = self.prepare_write(context, request.resource).await?;
        if prepared.marked {
            return Err(tenancy_marked(&prepared.resource.id.unwrap_or_default()));
        }
        Ok(prepared.resource)
    }
}
