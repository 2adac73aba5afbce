//! The part of Consul's API that the controllers use, and the texts by which they recognise
//! conflicts.

use consul_watch::{AclApi, AgentApi, CatalogApi, TenancyApi};

/// APIs of Consul that the controllers need. Implemented for every type with all four, such as
/// [`consul_watch::Client`].
pub trait Consul: AclApi + AgentApi + CatalogApi + TenancyApi {}

impl<T: AclApi + AgentApi + CatalogApi + TenancyApi> Consul for T {}

/// Returns `true` if Consul reports that a name or id is taken: another writer was faster.
pub(crate) fn is_taken(error: &consul_watch::Error) -> bool {
    // Consul has no status of its own for it, so the text decides.
    let text = error.to_string();
    text.contains("already exists") || text.contains("AccessorID is already in use")
}

/// Returns `true` if Consul reports that another token has this secret id.
pub(crate) fn is_secret_taken(error: &consul_watch::Error) -> bool {
    error.to_string().contains("SecretID is already in use")
}
