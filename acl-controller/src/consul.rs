use consul_watch::{AclApi, AgentApi, CatalogApi, TenancyApi};

/// What the controllers need of Consul. Whatever has these four, such as
/// [`consul_watch::Client`], is one.
pub trait Consul: AclApi + AgentApi + CatalogApi + TenancyApi {}

impl<T: AclApi + AgentApi + CatalogApi + TenancyApi> Consul for T {}

/// Whether Consul says that a name or id is taken: somebody else was faster.
pub(crate) fn is_taken(error: &consul_watch::Error) -> bool {
    let text = error.to_string();
    text.contains("already exists") || text.contains("AccessorID is already in use")
}

/// Whether Consul says that another token has this secret.
pub(crate) fn is_secret_taken(error: &consul_watch::Error) -> bool {
    error.to_string().contains("SecretID is already in use")
}
