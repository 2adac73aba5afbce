//! The name by which requests of this crate can be told apart in Consul's and a proxy's logs.

pub(super) const USER_AGENT_NAME: &str = concat!("consul-watch/", env!("CARGO_PKG_VERSION"));
