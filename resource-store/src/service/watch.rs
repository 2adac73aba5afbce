//! Following a list.

use std::sync::Arc;

use futures::{StreamExt as _, stream::BoxStream};

use super::{
    RequestContext, ResourceService, Result, check_list,
    checks::{Units, check_query, check_scope, required},
    default_units, may_read,
    retry::backend_failure,
};
use crate::{
    backend::{self, Query, WatchEvent},
    code::{Code, RpcError},
    pb::{Resource, Type, WatchListRequest},
    registry::Registration,
};

/// The events of one watch. After an error it ends.
pub type EventStream = BoxStream<'static, Result<WatchEvent>>;

impl ResourceService {
    /// Follows the resources of a type, in this version of its group: those
    /// that there are, then an end-of-snapshot mark, then changes in the order
    /// of the commits. No tenancy means every one.
    ///
    /// What the token may not read when an event comes is left out. There is
    /// nothing to resume: a new watch begins with a snapshot.
    ///
    /// # Errors
    ///
    /// As [`ResourceService::list`]. The stream ends with [`Code::Aborted`] if
    /// the watcher was too slow, or the store was restored: start again.
    pub async fn watch_list(
        &self,
        context: &RequestContext,
        request: WatchListRequest,
    ) -> Result<EventStream> {
        let ty = required(request.r#type, "type")?;
        let registration = Arc::clone(self.registration(&ty)?);
        let scope = registration.scope();
        let mut tenancy = request.tenancy.unwrap_or_else(|| scope.wildcard_tenancy());
        check_query(&tenancy, &request.name_prefix)?;
        check_scope(&ty, scope, &tenancy, Units::Watch)?;
        let resolved = self.resolve(context, Some(&tenancy)).await?;
        check_list(&registration, &resolved)?;
        default_units(&mut tenancy, &resolved.tenancy, scope);

        let query = Query::new(ty.group_kind(), tenancy).with_name_prefix(&request.name_prefix);
        let events = self.inner.backend.watch_list(&query).await.map_err(failure)?;
        let filter =
            Arc::new(Filter { service: self.clone(), context: context.clone(), registration, ty });
        let shown = events.filter_map(move |event| {
            let filter = Arc::clone(&filter);
            async move {
                match event {
                    Ok(event) => filter.show(event).await.transpose(),
                    Err(error) => Some(Err(failure(error))),
                }
            }
        });
        Ok(until_error(shown.boxed()))
    }
}

/// Decides which events a watcher sees.
struct Filter {
    service: ResourceService,
    context: RequestContext,
    registration: Arc<Registration>,
    ty: Type,
}

impl Filter {
    async fn show(&self, event: WatchEvent) -> Result<Option<WatchEvent>> {
        let resource: &Resource = match &event {
            WatchEvent::EndOfSnapshot => return Ok(Some(event)),
            WatchEvent::Upsert(resource) | WatchEvent::Delete(resource) => resource,
        };
        if resource.resource_type() != Some(&self.ty) {
            return Ok(None);
        }
        let tenancy = resource.id.as_ref().and_then(|id| id.tenancy.as_ref());
        let resolved = self.service.resolve(&self.context, tenancy).await?;
        Ok(may_read(&self.registration, &resolved, resource)?.then_some(event))
    }
}

fn failure(error: backend::Error) -> RpcError {
    match error {
        backend::Error::WatchClosed => RpcError::new(
            Code::Aborted,
            "watch closed by the storage backend (possibly due to snapshot restoration)",
        ),
        other => backend_failure(&other, "failed next"),
    }
}

/// Ends a stream after its first error.
fn until_error(events: EventStream) -> EventStream {
    let state = Some(events);
    futures::stream::unfold(state, |state| async move {
        let mut events = state?;
        let event = events.next().await?;
        let rest = event.is_ok().then_some(events);
        Some((event, rest))
    })
    .boxed()
}
