//! The real programs that these tests run on.

use consul_watch::testing::{
    parts::{Suite, find},
    real::Consul,
};

/// A real Consul server of the test's version, if there is one and also a Terraform or OpenTofu for
/// the binary to find; what is missing is reported.
pub(crate) async fn consul_and_terraform(suite: &'static str) -> Option<Consul> {
    let suite = Suite(suite);
    let tool = if find("terraform").is_some() { "terraform" } else { "tofu" };
    suite.part(tool, "all")?;
    let consul = suite.part_in_turn("consul", "all")?;
    Some(Consul::start(&consul.path).await.unwrap())
}
