//! Types whose entries in the log have no effect any more.

use std::{fmt, sync::Arc};

use crate::pb::Type;

type Predicate = dyn Fn(&Type) -> bool + Send + Sync;

/// Says which types are retired: writes and deletes of them succeed, but
/// nothing is stored, so that logs that hold some can still be applied.
///
/// All nodes of a cluster have to agree on it.
#[derive(Clone)]
pub struct RetiredTypes(Arc<Predicate>);

impl RetiredTypes {
    /// Types for which `retired` is true. It must depend on nothing but the
    /// type.
    pub fn new(retired: impl Fn(&Type) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(retired))
    }

    /// None at all.
    pub fn none() -> Self {
        Self::new(|_| false)
    }

    /// Returns the types that Consul has retired: `hcp.v2`, and `v2beta1` of
    /// `auth`, `catalog`, `mesh`, `multicluster` and `tenancy`. For a log that
    /// Consul wrote.
    ///
    /// Source: `agent/consul/fsm`, Consul 1.21.
    pub fn consul() -> Self {
        Self::new(|ty| match ty.group.as_str() {
            "hcp" => ty.group_version == "v2",
            "auth" | "catalog" | "mesh" | "multicluster" | "tenancy" => {
                ty.group_version == "v2beta1"
            }
            _ => false,
        })
    }

    pub(crate) fn contains(&self, ty: &Type) -> bool {
        (self.0)(ty)
    }
}

impl Default for RetiredTypes {
    /// None: what a registry knows is stored. A group of one's own may well have
    /// the name of one that Consul has retired.
    fn default() -> Self {
        Self::none()
    }
}

impl fmt::Debug for RetiredTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetiredTypes").finish_non_exhaustive()
    }
}
