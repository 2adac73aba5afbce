//! `Seen`: the position of a read, and what wakes it while it blocks.

use std::hash::Hash;

use super::format::fingerprint;

/// The index of a read's result, and what its watch channels depend on: a
/// blocked read is woken only when `watched` changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::testing) struct Seen {
    pub(in crate::testing) index: u64,
    pub(in crate::testing) watched: u64,
}

impl Seen {
    /// A read that watches exactly what its index says.
    pub(in crate::testing) fn by_index(index: u64) -> Self {
        let index = index.max(1);
        Self { index, watched: index }
    }

    /// A read that watches less than its index covers.
    pub(in crate::testing) fn by_content(index: u64, content: &impl Hash) -> Self {
        Self { index: index.max(1), watched: fingerprint(content) }
    }
}
