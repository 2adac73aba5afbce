//! Listing by query and by owner.

use std::sync::Arc;

use super::{
    RequestContext, ResourceService, Result, check_list,
    checks::{Units, check_id, check_id_scope, check_query, check_scope, required},
    default_units, may_read,
    retry::backend_failure,
};
use crate::{
    acl::Resolved,
    backend::Query,
    code::RpcError,
    pb::{ListByOwnerRequest, ListRequest, Resource, Tenancy},
};

impl ResourceService {
    /// Lists the resources of a type, in this version of its group, by
    /// partition, namespace and name. Each unit of the tenancy may be
    /// [`WILDCARD`](crate::WILDCARD); an empty one is the token's. What the
    /// token may not read is left out.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidArgument`](crate::Code::InvalidArgument);
    /// [`Code::PermissionDenied`](crate::Code::PermissionDenied) without the
    /// permission to list the type at all.
    pub async fn list(
        &self,
        context: &RequestContext,
        request: ListRequest,
    ) -> Result<Vec<Arc<Resource>>> {
        let ty = required(request.r#type, "type")?;
        let mut tenancy = required(request.tenancy, "tenancy")?;
        let registration = self.registration(&ty)?;
        check_query(&tenancy, &request.name_prefix)?;
        check_scope(&ty, registration.scope(), &tenancy, Units::List)?;
        let resolved = self.resolve(context, Some(&tenancy)).await?;
        check_list(registration, &resolved)?;
        default_units(&mut tenancy, &resolved.tenancy, registration.scope());

        let query = Query::new(ty.group_kind(), tenancy).with_name_prefix(&request.name_prefix);
        let items = self.inner.backend.list(context.consistency, &query).await;
        let mut items = items.map_err(|e| backend_failure(&e, "failed list"))?;
        items.retain(|item| item.resource_type() == Some(&ty));
        let mut readable = Vec::with_capacity(items.len());
        let mut rights = RightsByTenancy::default();
        for item in items {
            let resolved = rights.of(self, context, &item).await?;
            if may_read(registration, resolved, &item)? {
                readable.push(item);
            }
        }
        Ok(readable)
    }

    /// Lists what names a resource, uid included, as its owner, whatever the
    /// type. What the token may not read is left out.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidArgument`](crate::Code::InvalidArgument);
    /// [`Code::PermissionDenied`](crate::Code::PermissionDenied) without the
    /// permission to list the owner's type.
    pub async fn list_by_owner(
        &self,
        context: &RequestContext,
        request: ListByOwnerRequest,
    ) -> Result<Vec<Arc<Resource>>> {
        let mut owner = required(request.owner, "owner")?;
        let ty = check_id(&mut owner, "owner")?;
        if owner.uid.is_empty() {
            return Err(RpcError::invalid("owner uid is required"));
        }
        let registration = self.registration(&ty)?;
        check_id_scope(&ty, registration.scope(), &owner)?;
        let resolved = self.resolve(context, owner.tenancy.as_ref()).await?;
        check_list(registration, &resolved)?;
        default_units(
            owner.tenancy.get_or_insert_default(),
            &resolved.tenancy,
            registration.scope(),
        );

        let children = self
            .inner
            .backend
            .list_by_owner(&owner)
            .await
            .map_err(|e| backend_failure(&e, "failed list by owner"))?;
        let mut readable = Vec::with_capacity(children.len());
        let mut rights = RightsByTenancy::default();
        for child in children {
            let ty = child.resource_type().cloned().unwrap_or_default();
            let registration = self.registration(&ty)?;
            let resolved = rights.of(self, context, &child).await?;
            if may_read(registration, resolved, &child)? {
                readable.push(child);
            }
        }
        Ok(readable)
    }
}

/// The rights of the token in the tenancy of the item at hand. Items come
/// sorted by tenancy, so the last answer mostly serves again.
#[derive(Default)]
pub(super) struct RightsByTenancy {
    last: Option<(Tenancy, Resolved)>,
}

impl RightsByTenancy {
    pub(super) async fn of(
        &mut self,
        service: &ResourceService,
        context: &RequestContext,
        item: &Resource,
    ) -> Result<&Resolved> {
        // A long list leaves room for other tasks.
        tokio::task::consume_budget().await;
        let tenancy = item.id.as_ref().and_then(|id| id.tenancy.as_ref());
        let known = self.last.as_ref().is_some_and(|(last, _)| Some(last) == tenancy);
        if !known {
            let resolved = service.resolve(context, tenancy).await?;
            self.last = Some((tenancy.cloned().unwrap_or_default(), resolved));
        }
        self.last
            .as_ref()
            .map(|(_, resolved)| resolved)
            .ok_or_else(|| RpcError::internal("no rights"))
    }
}
