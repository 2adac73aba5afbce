//! What has to hold for a read, a write and a delete, given what is stored.

use std::sync::Arc;

use super::key;
use crate::{
    backend::{Error, Result},
    pb::{Id, Resource},
};

/// Checks that a read of `id` gives `stored`, which has its key.
pub(crate) fn check_read(stored: &Arc<Resource>, id: &Id) -> Result<()> {
    if !id.uid.is_empty() && id.uid != stored.uid() {
        return Err(Error::NotFound);
    }
    match (&id.r#type, stored.resource_type()) {
        (Some(requested), Some(ty)) if requested.group_version != ty.group_version => {
            Err(Error::GroupVersionMismatch {
                requested: Box::new(requested.clone()),
                stored: Arc::clone(stored),
            })
        }
        _ => Ok(()),
    }
}

/// Checks that `resource` may take the place of `stored`, which has its key.
#[cfg(any(feature = "durable", feature = "etcd", feature = "postgres", feature = "raft"))]
pub(crate) fn check_write(stored: Option<&Resource>, resource: &Resource) -> Result<()> {
    check_expected(stored, resource, &resource.version)
}

/// Checks that `resource` may take the place of `stored`, which has its key, if that is of the
/// version `expected`.
pub(crate) fn check_expected(
    stored: Option<&Resource>,
    resource: &Resource,
    expected: &str,
) -> Result<()> {
    match stored {
        Some(stored) if stored.uid() != resource.uid() => Err(Error::WrongUid),
        Some(stored) if stored.version != expected => Err(Error::CasFailure),
        None if !expected.is_empty() => Err(Error::CasFailure),
        Some(_) | None => Ok(()),
    }
}

/// Returns `true` if `stored` is to be deleted, and `false` if it is another
/// incarnation.
pub(crate) fn check_delete(stored: &Resource, id: &Id, version: &str) -> Result<bool> {
    if stored.uid() != id.uid {
        return Ok(false);
    }
    if stored.version != version {
        return Err(Error::CasFailure);
    }
    Ok(true)
}

/// Returns the key of a resource, which must have an id.
pub(crate) fn key_of(resource: &Resource) -> Result<Vec<u8>> {
    resource
        .id
        .as_ref()
        .map(key::resource_key)
        .ok_or_else(|| Error::failed("write", "resource has no id"))
}
