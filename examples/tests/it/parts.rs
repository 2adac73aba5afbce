//! The real programs that these tests run on.

use consul_watch::testing::{
    parts::{Suite, find},
    real::Consul,
};

/// A real Consul server, if there is one and also a Terraform or OpenTofu for
/// the binary to find; what is missing is reported.
pub(crate) async fn consul_and_terraform(suite: &'static str) -> Option<Consul> {
    let suite = Suite(suite);
    let tool = if find("terraform").is_some() { "terraform" } else { "tofu" };
    suite.part(tool, "all")?;
    let consul = suite.part("consul", "all")?;
    Some(Consul::start(&consul.path).await.unwrap())
}

/// A real Consul server whose sessions may be short, if there is one; if not,
/// the report says that `case` did not run.
#[cfg(feature = "resource-store")]
pub(crate) async fn consul(suite: Suite, case: &str) -> Option<Consul> {
    let part = suite.part("consul", case)?;
    let settings = serde_json::json!({ "session_ttl_min": "1s" });
    Some(Consul::start_with(&part.path, settings).await.unwrap())
}
