//! A resource as it is stored in etcd.

use std::sync::Arc;

use prost::Message as _;

use super::{layout::Generation, pb::KeyValue};
use crate::{
    backend::{Error, Result},
    pb::Resource,
};

/// The value of a key.
#[derive(Clone, PartialEq, prost::Message)]
struct Record {
    /// The resource without its version, which follows from the revision.
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    /// The version of what was restored; empty for what was written.
    #[prost(string, tag = "2")]
    kept_version: String,
    /// Tells one attempt to write from all others, so that who lost the answer
    /// can find out.
    #[prost(fixed64, tag = "3")]
    attempt: u64,
}

/// The value that is stored under a key.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    /// With its version.
    pub(super) resource: Arc<Resource>,
    pub(super) attempt: u64,
    /// The revision that wrote it.
    pub(super) revision: i64,
}

/// Encodes a resource to be written: its version comes from the revision.
pub(super) fn written(mut resource: Resource, attempt: u64) -> Vec<u8> {
    resource.version.clear();
    Record { resource: Some(resource), kept_version: String::new(), attempt }.encode_to_vec()
}

/// Encodes a resource that keeps its version.
pub(super) fn restored(mut resource: Resource) -> Vec<u8> {
    let kept_version = std::mem::take(&mut resource.version);
    Record { resource: Some(resource), kept_version, attempt: 0 }.encode_to_vec()
}

impl Stored {
    /// Reads what is under a key of a generation.
    pub(super) fn decode(generation: &Generation, stored: &KeyValue) -> Result<Self> {
        let unreadable = |reason: &str| {
            Error::failed(
                "reading from etcd",
                format!(
                    "the key {} holds no resource ({reason}): who else writes below this prefix?",
                    stored.key.escape_ascii()
                ),
            )
        };
        let record =
            Record::decode(stored.value.as_slice()).map_err(|e| unreadable(&e.to_string()))?;
        let mut resource = record.resource.ok_or_else(|| unreadable("it is empty"))?;
        resource.version = if record.kept_version.is_empty() {
            generation.version_at(stored.mod_revision)
        } else {
            record.kept_version
        };
        Ok(Self {
            resource: Arc::new(resource),
            attempt: record.attempt,
            revision: stored.mod_revision,
        })
    }
}
