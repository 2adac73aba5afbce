//! Letting go of a resource that is marked for deletion.

use super::ResourceClient;
use crate::{
    code::{Code, RpcError},
    pb::{DeleteRequest, Id},
};

/// How often others may be faster.
const ATTEMPTS: u32 = 10;

/// Removes a finalizer from a resource, and deletes the resource if it is marked
/// for deletion and this was the last one.
///
/// The protocol does not delete by itself what no finalizer holds back any more:
/// a controller that has cleaned up calls this in place of a write and a delete.
/// A resource that is gone, or is another incarnation than a uid that is given,
/// is fine; so is a finalizer that is not there.
///
/// # Errors
///
/// Those of the calls; [`Code::Aborted`] if others were faster ten times.
///
/// # Cancel safety
///
/// Dropped between the two calls, it leaves a resource without finalizers that is
/// marked for deletion; calling it again deletes that.
pub async fn remove_finalizer(
    client: &dyn ResourceClient,
    id: Id,
    finalizer: &str,
) -> Result<(), RpcError> {
    let mut aborted = RpcError::new(Code::Aborted, "others were faster");
    for _ in 0..ATTEMPTS {
        match attempt(client, id.clone(), finalizer).await {
            Err(error) if error.code() == Code::NotFound => return Ok(()),
            Err(error) if error.code() == Code::Aborted => aborted = error,
            other => return other,
        }
    }
    Err(aborted)
}

async fn attempt(client: &dyn ResourceClient, id: Id, finalizer: &str) -> Result<(), RpcError> {
    let mut resource = client.read_strong(id).await?;
    if resource.has_finalizer(finalizer) {
        resource.remove_finalizer(finalizer);
        resource = client.write(resource).await?;
    }
    if !resource.is_marked_for_deletion() || resource.has_finalizers() {
        return Ok(());
    }
    let version = resource.version;
    client.delete(DeleteRequest { id: resource.id, version }).await
}
