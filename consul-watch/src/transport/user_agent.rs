//! The name by which Consul's and a proxy's logs distinguish requests of this crate.

pub(super) const USER_AGENT_NAME: &str = concat!("consul-watch/", env!("CARGO_PKG_VERSION"));
