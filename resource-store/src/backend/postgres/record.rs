//! A resource as it is stored in a row.

use std::sync::Arc;

use prost::Message as _;
use tokio_postgres::Row;

use crate::{
    backend::{Error, Result},
    pb::Resource,
};

/// Encodes a resource without its version, which has a column.
pub(super) fn encode(resource: &Resource) -> Vec<u8> {
    if resource.version.is_empty() {
        return resource.encode_to_vec();
    }
    Resource { version: String::new(), ..resource.clone() }.encode_to_vec()
}

/// Decodes the resource of two columns: the version, and the value after it.
pub(super) fn decode(row: &Row, version: usize, operation: &'static str) -> Result<Arc<Resource>> {
    let unreadable = |error: &dyn std::error::Error| {
        Error::failed(
            operation,
            format!("a row holds no resource ({error}): who else writes to these tables?"),
        )
    };
    let value: &[u8] = row.try_get(version + 1).map_err(|error| unreadable(&error))?;
    let mut resource = Resource::decode(value).map_err(|error| unreadable(&error))?;
    resource.version = row.try_get(version).map_err(|error| unreadable(&error))?;
    Ok(Arc::new(resource))
}

/// Returns the version of the group of a resource.
pub(super) fn group_version(resource: &Resource) -> &str {
    resource.resource_type().map_or("", |ty| &ty.group_version)
}
