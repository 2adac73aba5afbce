//! The error of a cache.

use crate::{controller::BoxError, gvk::GroupKind};

/// The cache does not know what it was asked for, or cannot take a resource.
///
/// Source: `internal/controller/cache`, Consul 1.21.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// A resource without a type.
    #[error("the resource type was not specified")]
    NoType,
    /// A kind that no watch feeds.
    #[error("the resource type specified is not indexed")]
    UnknownType,
    /// An index that the kind does not have.
    #[error("No index with name \"{0}\" exists")]
    UnknownIndex(String),
    /// A query that was not registered.
    #[error("No query with name \"{0}\" exists")]
    UnknownQuery(String),
    /// Two indexes of one name.
    #[error("Index with name \"{0}\" is already defined.")]
    DuplicateIndex(String),
    /// Two queries of one name.
    #[error("Query with name \"{0}\" is already defined.")]
    DuplicateQuery(String),
    /// An index without a name.
    #[error("an index needs a name")]
    UnnamedIndex,
    /// An indexer failed.
    #[error("operation on index \"{index}\" failed: {source}")]
    Indexer {
        /// The index.
        index: String,
        /// Why.
        source: BoxError,
    },
    /// A resource has no key for an index that requires one.
    #[error("the indexer produced no value for the required \"{0}\" index")]
    Required(String),
    /// A query failed.
    #[error("query failed: {0}")]
    Query(#[source] BoxError),
    /// Something failed for a kind.
    #[error("operation on resource type {kind} failed: {source}")]
    Kind {
        /// The kind.
        kind: GroupKind,
        /// The failure.
        source: Box<Self>,
    },
}
