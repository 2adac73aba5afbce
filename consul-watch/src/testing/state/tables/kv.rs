//! Keys of the KV store.

use bytes::Bytes;

#[derive(Debug, Clone)]
pub(in crate::testing) struct KeyRecord {
    pub(in crate::testing) value: Bytes,
    pub(in crate::testing) flags: u64,
    pub(in crate::testing) session: Option<String>,
    pub(in crate::testing) lock_index: u64,
    pub(in crate::testing) create_index: u64,
    pub(in crate::testing) modify_index: u64,
}
